"""The verdict of several: unknown beats not drained beats drained, and nothing at all is no yes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from topicshift.core.drain.certificate import Verdict


def test_an_empty_answer_is_not_a_yes() -> None:
    assert Verdict.worst([]) is Verdict.UNKNOWN


@given(st.lists(st.sampled_from(list(Verdict)), min_size=1))
def test_drained_only_if_all_are(verdicts: list[Verdict]) -> None:
    worst = Verdict.worst(verdicts)
    assert (worst is Verdict.DRAINED) == (set(verdicts) == {Verdict.DRAINED})
    assert (worst is Verdict.UNKNOWN) == (Verdict.UNKNOWN in verdicts)
