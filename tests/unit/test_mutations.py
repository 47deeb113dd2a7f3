"""The mutations of ``tests/mutations.py`` still fit the code: one that matches nothing would show nothing."""

from __future__ import annotations

import pytest
from tests.mutations import MUTATIONS, ROOT, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_a_mutation_has_a_place_and_tests(mutation: Mutation) -> None:
    assert (ROOT / mutation.file).read_text().count(mutation.old) == 1
    assert mutation.new != mutation.old
    assert all((ROOT / test.partition("::")[0]).exists() for test in mutation.tests)
