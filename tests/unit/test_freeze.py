"""The freeze clock, its lease, and the decision to give producers back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicshift.core.engine.freeze import Freeze, GiveBack, decide_give_back, lease_margin

NOW = datetime(2030, 1, 1, tzinfo=UTC)
budgets = st.floats(5, 7200).map(lambda s: timedelta(seconds=s))


@given(budgets)
def test_no_act_is_allowed_within_the_margin_of_the_lease(budget: timedelta) -> None:
    freeze = Freeze.begin(NOW, budget)
    assert freeze.lease_until == NOW + budget, "the lease is the budget: never longer"
    assert freeze.lease_until - freeze.act_until == lease_margin(budget) >= timedelta(seconds=2)
    assert freeze.left(freeze.act_until) == 0
    assert freeze.left(freeze.lease_until) < 0


@given(budgets)
def test_a_freeze_comes_back_from_the_journal(budget: timedelta) -> None:
    freeze = Freeze.begin(NOW, budget)
    assert Freeze.from_data(freeze.to_data()) == freeze


topics = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["old", "new", None]), min_size=1)
states = st.sampled_from([None, "intended", "done", "undone"])


@given(states, states, topics, st.sampled_from([None, 0, 1, 7]))
def test_nobody_is_sent_back_who_may_have_written_to_the_target(
    freeze: str | None, switch: str | None, producers: dict[str, str | None], records: int | None
) -> None:
    decision, why = decide_give_back(
        freeze_state=freeze, switch_state=switch, producer_topics=producers, target="new", target_records=records
    )
    assert why
    if decision is GiveBack.TO_SOURCE:
        assert not records
        assert switch != "done"
        if switch == "intended":
            assert records == 0, "an unreadable target is not an empty one"
            assert "new" not in producers.values()
    if freeze is None:
        assert decision is GiveBack.NOTHING


def test_a_failure_before_the_switch_gives_back() -> None:
    decision, _ = decide_give_back(
        freeze_state="intended", switch_state=None, producer_topics={"a": None}, target="new", target_records=0
    )
    assert decision is GiveBack.TO_SOURCE


@pytest.mark.parametrize("switch", [None, "undone", "intended"])
def test_producers_do_not_go_back_behind_a_group_that_reads_the_target(switch: str | None) -> None:
    decision, why = decide_give_back(
        freeze_state="intended",
        switch_state=switch,
        producer_topics={"a": None},
        target="new",
        target_records=0,
        moved_groups=["ledger"],
    )
    assert decision is GiveBack.AMBIGUOUS and "ledger" in why
