"""The freeze clock, its lease, and the decision that producers resume on the source."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from topicshift.core.engine.engine import next_act
from topicshift.core.engine.freeze import Freeze, lease_margin
from topicshift.core.engine.view import (
    UNASKED,
    Member,
    Policy,
    Record,
    StepRecord,
    TargetFact,
    Unknown,
    View,
    Whereabouts,
)
from topicshift.core.engine.words import Act, MigrationState, Row, StepState
from topicshift.core.spec.cutover import Cutover

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


states = st.sampled_from([None, *StepState])
wheres = st.sampled_from(
    [
        Whereabouts("running", "source"),
        Whereabouts("running", "target"),
        Whereabouts("stopped", "source"),
        Whereabouts("stopped", "target"),
        Whereabouts("unknown"),
    ]
)
targets = st.sampled_from(
    [UNASKED, *(TargetFact(True, used=used) for used in (None, 0, 1, 7)), TargetFact(False, used=0)]
)


@given(
    st.sampled_from([StepState.INTENDED, StepState.UNDOING]),
    states,
    states,
    st.fixed_dictionaries({"a": wheres, "b": wheres}) | st.just(Unknown("no answer")),
    targets,
    st.sampled_from(["forward", "resume"]),
    st.floats(0, 400),
)
def test_nobody_is_sent_back_who_may_have_written_to_the_target(
    freeze: StepState,
    switch: StepState | None,
    group: StepState | None,
    producers: dict[str, Whereabouts] | Unknown,
    target: TargetFact | Unknown,
    wanted: str,
    at: float,
) -> None:
    clock = Freeze.begin(NOW, timedelta(seconds=120))
    rows = {Row.FREEZE.value: (freeze, clock.to_data()), Row.CREATE_TARGET.value: (StepState.DONE, {})}
    rows |= {name: (s, {}) for name, s in ((Row.SWITCH_PRODUCERS.value, switch), ("switch_consumer:g", group)) if s}
    policy = Policy(
        Cutover.PRODUCERS_FIRST, (Member("a"), Member("b")), (Member("g", "g"),), frozenset(), timedelta(seconds=120)
    )
    steps = {name: StepRecord(state, data) for name, (state, data) in rows.items()}
    view = View(
        Record("m", "s", "t", MigrationState.OPEN, True, "h", policy, steps),
        NOW + timedelta(seconds=at),
        NOW,
        wanted=wanted,  # type: ignore[arg-type]
        producers=producers,
        target=target,
    )
    decision = next_act(view)
    assert decision.why
    if decision.act not in (Act.BEGIN_RESUME, Act.RESUME_PRODUCERS):
        return
    assert switch is not StepState.DONE
    if decision.act is Act.RESUME_PRODUCERS:
        assert group in (None, StepState.UNDONE), "it would miss what is written to the source from now on"
    if switch in (StepState.INTENDED, StepState.UNDOING):
        assert isinstance(target, TargetFact) and target.used == 0, "an unreadable target is not an empty one"
        assert isinstance(producers, dict) and all(w.side != "target" for w in producers.values())
