"""The verdict of several: unknown beats not drained beats drained, and nothing at all is no yes."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from topicshift.core.drain.certificate import Verdict
from topicshift.core.drain.decision import DEFAULT_VALID_FOR_S
from topicshift.core.engine.frozen import CERTIFICATE_VALID


def test_an_empty_answer_is_not_a_yes() -> None:
    assert Verdict.worst([]) is Verdict.UNKNOWN


@given(st.lists(st.sampled_from(list(Verdict)), min_size=1))
def test_drained_only_if_all_are(verdicts: list[Verdict]) -> None:
    worst = Verdict.worst(verdicts)
    assert (worst is Verdict.DRAINED) == (set(verdicts) == {Verdict.DRAINED})
    assert (worst is Verdict.UNKNOWN) == (Verdict.UNKNOWN in verdicts)


def test_a_certificate_says_how_long_a_run_goes_by_it() -> None:
    assert timedelta(seconds=DEFAULT_VALID_FOR_S) == CERTIFICATE_VALID
