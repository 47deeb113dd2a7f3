"""docs/drain.md explains every code with the very words of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from topicshift.commands.drain import command
from topicshift.core.drain.reasons import ALARMS, REASONS, Explained

DOC = (Path(__file__).parents[2] / "docs" / "drain.md").read_text(encoding="utf-8")
CODES: list[tuple[str, Explained]] = [(c.value, e) for table in (REASONS, ALARMS) for c, e in table.items()]


@pytest.mark.parametrize(("code", "told"), CODES, ids=[c for c, _ in CODES])
def test_each_code_is_explained_with_its_remedy(code: str, told: Explained) -> None:
    assert f"| `{code}` | {told.meaning} | {told.remedy} |" in DOC


def test_codes_stand_under_their_verdict() -> None:
    for code, told in REASONS.items():
        section = DOC[: DOC.index(f"| `{code.value}` |")].rsplit("## ", 1)[1].splitlines()[0]
        if told.verdict is not None:
            assert section == f"Reasons: {told.verdict.value.replace('_', ' ')}", code


def test_no_row_speaks_of_a_code_that_is_not_there() -> None:
    known = {c for c, _ in CODES}
    rows = [line.split("`")[1] for line in DOC.splitlines() if line.startswith("| `")]
    assert set(rows) - known <= {"drained", "not_drained", "unknown"}


def test_every_option_is_explained() -> None:
    own = {o for p in command.params for o in getattr(p, "opts", []) if o.startswith("--")}
    shared = {"--kafka-config", "--topic", "--bootstrap-server"}
    missing = [o for o in own - shared if o not in DOC]
    assert not missing
