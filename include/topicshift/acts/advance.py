"""The loop that runs a migration: observe, decide, take the seat, act, observe again.

Airflow's tasks, the command line, the resume DAG, the tests and the simulator all call :func:`advance`. Several
advancers may drive one migration at once: acts are serialised by the seat in the journal, the others observe and wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from topicshift.acts.certificate import heard
from topicshift.acts.context import SEAT_S, MigrationContext
from topicshift.acts.memory import Told
from topicshift.acts.observe import observe
from topicshift.core import errors
from topicshift.core.engine.decision import RETELL_S, Decision, Kind
from topicshift.core.engine.engine import Wanted, next_act
from topicshift.core.engine.trace import dump
from topicshift.core.engine.view import Record, View, key_of
from topicshift.core.engine.words import ORDER, Act, Ask, Row, Step, StepState
from topicshift.core.errors import AccessDenied, NotFound, OwnershipLost, TopicshiftError, Transient
from topicshift.core.news import News

POLL_S = 0.1
"""Seconds between two looks while producers stand still, at most."""

FIRST_POLL_S = 0.02
"""Seconds before the first look after an act, doubled from look to look: most answers come soon."""

ANSWER_POLL_S = 0.05
"""Seconds between two looks for the verifier's answer alone."""

CALM_POLL_S = 0.5
"""Seconds between two looks while nobody is held up."""

AGAIN_S = 1.0
"""Seconds after which an act that a passing fault ended is performed again, where it did not show its effect."""

PATIENCE_S = 10.0
"""Seconds of waiting after which :func:`advance` returns, so that a task defers and gives its slot free."""


@dataclass(frozen=True)
class Done:
    """The wanted step is done (or the migration has ended): ``why`` in words.

    ``decision`` is what comes next, which is left to somebody else.
    """

    why: str
    record: Record
    decision: Decision


@dataclass(frozen=True)
class Waiting:
    """Nothing can be done now. ``decision`` says what is waited for, decided on ``view``; ``other`` names another
    advancer that acts."""

    decision: Decision
    view: View
    other: str = ""

    @property
    def why(self) -> str:
        """What is waited for, in words."""
        return self.other or self.decision.why


@dataclass(frozen=True)
class Asking:
    """A person has to answer ``ask`` (of ``subject``) before anything goes on; ``about`` is what the answer is for."""

    ask: Ask
    subject: str
    about: dict[str, Any]
    decision: Decision
    view: View


Outcome = Done | Waiting | Asking

ENDINGS = frozenset(
    {
        *(Act.FINISH, Act.END_RESUME, Act.FINISH_ROLLBACK, Act.FINISH_BACK, Act.CLOSE_GONE),
        *(Act.END_ROLLBACK, Act.CALL_OFF_BACK, Act.FINISH_RETIREMENT),
    }
)
"""Acts that end a migration, a freeze or a way back: the report is drawn anew after each."""

TOWARDS_TARGET = frozenset({Act.POINT_PRODUCERS, Act.RELEASE_GROUP, Act.SEED_GROUP})
"""Acts that lead applications to the target: what they rest on has to have been seen a moment ago."""


def beyond(decision: Decision, until: Step | None, order: tuple[Step, ...]) -> bool:
    """Whether a decision belongs to a later step than the one that is to be reached."""
    return until is not None and decision.step is not None and order.index(decision.step) > order.index(until)


def advance(
    ctx: MigrationContext,
    *,
    until: Step | None = None,
    focus: str | None = None,
    wanted: Wanted = "forward",
    patience_s: float = PATIENCE_S,
    through: Step | None = None,
    leave: frozenset[str] = frozenset(),
) -> Outcome:
    """Advance the migration until step ``until`` is done (None: to its end), a person is needed, or patience is over.

    ``focus`` is a consumer group: the others are left alone. ``through`` is a later step up to which acts are performed
    as well while producers stand still, or for one group alone; its questions are left to the task whose step they
    belong to. ``leave`` names rules, acts and questions that are somebody else's: at the first of them this advancer is
    done.

    Raises the error of a decision to stop (``FenceBroken``, ``AmbiguousState``, ...), and ``OwnershipLost``.
    """
    from topicshift.acts.questions import about_of

    last, pause = ctx.clock.now(), FIRST_POLL_S
    while True:
        record = ctx.refresh()
        order = ORDER[record.policy.cutover]
        view = observe(ctx, record, wanted, focus)
        decision = next_act(view)
        if ctx.meter is not None:
            ctx.meter.look(view)
        if decision.kind is Kind.OVER or leave & set(_names(decision)):
            return Done(decision.why, record, decision)
        further = through is not None and (record.freeze is not None or focus is not None)
        reach = through if further else until
        if beyond(decision, until, order) and (decision.kind is Kind.ASK or beyond(decision, reach, order)):
            return Done(decision.why, record, decision)
        if decision.kind is Kind.STOP:
            if not _same(ctx, record):
                continue  # somebody else acted meanwhile: what blocks may be what that act has made
            raise _error(decision)
        if decision.kind is Kind.ASK:
            assert decision.ask is not None
            if not _same(ctx, record):
                continue  # asked about what somebody else has changed meanwhile, it would be answered for nothing
            about = about_of(decision.ask, decision.subject, record, view)
            return Asking(decision.ask, decision.subject, about, decision, view)
        other = perform(ctx, view, decision) if decision.kind is Kind.ACT else ""
        if other is None and decision.act in ENDINGS:
            ctx.report()
        if other is None and not _same(ctx, record):
            last, pause = ctx.clock.now(), FIRST_POLL_S
            continue
        # An act that changed no row was performed once more: that is a way of waiting.
        _say(ctx, other or decision.why)
        if (ctx.clock.now() - last).total_seconds() >= patience_s:
            return _waiting(ctx, Waiting(decision, view, other or ""))
        _rest(ctx, record, decision, pause)
        pause *= 2


def _waiting(ctx: MigrationContext, outcome: Waiting) -> Waiting:
    """It; raises what a person has to mend of a group, now that nothing more can be done for the others."""
    for error in ctx.memory.refused.values():
        raise error
    return outcome


def _rest(ctx: MigrationContext, record: Record, decision: Decision, pause: float) -> None:
    """Wait until the next look.

    While producers stand still for the verifier's answer alone, that is looked for and nothing else, for up to
    :data:`CALM_POLL_S`: whole looks, which ask for every partition, would take the processors that Spark reads on.
    """
    if record.freeze is None:
        ctx.clock.sleep(CALM_POLL_S)
        return
    ctx.clock.sleep(_pause(ctx, decision, pause))
    if decision.kind is not Kind.WAIT or decision.step is not Step.VERIFY_DRAIN:
        return
    for _ in range(round(CALM_POLL_S / ANSWER_POLL_S)):
        if _answered(ctx, record):
            return
        ctx.clock.sleep(ANSWER_POLL_S)


def _answered(ctx: MigrationContext, record: Record) -> bool:
    """Whether the verifier has answered, or has to be looked at for another reason."""
    asked = [s for s in record.certificates if record.at(Row.VERIFICATION, s) is StepState.INTENDED]
    try:
        return not asked or any(heard(ctx, record, s) is not None for s in asked)
    except TopicshiftError:
        return True  # the next look tells what is wrong


def _pause(ctx: MigrationContext, decision: Decision, pause: float) -> float:
    """Seconds until the next look of a freeze: at the moment itself, where the wait ends by itself soon."""
    if decision.until:
        left = (datetime.fromisoformat(decision.until) - ctx.clock.now()).total_seconds()
        if 0 < left <= 2 * POLL_S:
            return left
    return min(pause, POLL_S)


def _names(decision: Decision) -> tuple[str, ...]:
    return tuple(str(name) for name in (decision.rule, decision.act, decision.ask) if name)


def perform(ctx: MigrationContext, view: View, decision: Decision) -> str | None:
    """Take the seat and perform one act; None once it was performed, else why it was not, in words.

    A passing fault is no failure: the act is decided on anew. What the view shows must still be what the journal holds
    once the seat is taken, for somebody else may have acted in between.
    """
    from topicshift.acts.registry import performer

    act = decision.act
    assert act is not None
    run = performer(ctx, act)
    if run is None:
        return f"{act.value} is for another task: {decision.why}"

    def trace() -> dict[str, Any]:
        return {"rule": decision.rule, "why": decision.why, "view": dump(view)}

    try:
        got = ctx.journal.take_seat(ctx.claim, act.value, decision.subject, ctx.holder, lasts_s=SEAT_S, trace=trace)
    except OwnershipLost:
        # Another advancer has taken a dead one's seat over, or lets producers resume: ``refresh`` tells whether the
        # owner is another.
        return f"{key_of(act.value, decision.subject)} is decided on anew: somebody has gone on since the last look"
    if got is None:
        seat = ctx.journal.seat(view.record.migration_id)
        return f"{seat.holder} is at {seat.act}" if seat is not None else "somebody else acts"
    ctx.claim, ctx.seat = got
    try:
        if not _same(ctx, view.record):
            return None
        return _carry_out(ctx, view, decision, run)
    finally:
        seat, ctx.seat = ctx.seat, None
        ctx.journal.leave_seat(seat)


def _same(ctx: MigrationContext, before: Record) -> bool:
    now = ctx.refresh()
    return (now.state, now.plan_hash, now.steps) == (before.state, before.plan_hash, before.steps)


def _carry_out(
    ctx: MigrationContext, view: View, decision: Decision, run: Callable[[MigrationContext, View, Decision], None]
) -> str | None:
    assert decision.act is not None
    key = key_of(decision.act.value, decision.subject)
    ctx.log(f"{key}: {decision.why}")
    ctx.memory.news = News()
    ctx.rests_on = view.now if decision.act in TOWARDS_TARGET else None
    sooner = timedelta(seconds=RETELL_S - AGAIN_S)
    try:
        run(ctx, view, decision)
        sooner = timedelta(0)
        ctx.memory.refused.pop(decision.subject, None)
    except (AccessDenied, NotFound) as error:
        # A group of several: the others are moved first, then the run ends with this.
        if view.focus is not None or decision.subject not in view.record.policy.groups:
            raise
        ctx.memory.refused[decision.subject] = error
        return f"{key} is for a person to mend: {error}"
    except (OwnershipLost, Transient) as error:
        # Shut out by somebody of the same owner: it looks again, and ``refresh`` tells whether the owner is another.
        return f"{key} is tried again: {error}"
    finally:
        ctx.rests_on = None
        at, before = ctx.clock.now() - sooner, ctx.memory.told.get(key)
        ctx.memory.told[key] = Told(at) if before is None else before.again(at)
    return None


def _say(ctx: MigrationContext, text: str) -> None:
    if ctx.memory.news(text, ctx.clock.now().timestamp()):
        ctx.log(f"waiting: {text}")


def _error(decision: Decision) -> TopicshiftError:
    kind = getattr(errors, decision.error or "Refused")
    error: TopicshiftError = kind(f"{decision.why}. {decision.do}".strip())
    return error


__all__ = ["Act", "Asking", "Done", "Outcome", "Waiting", "advance", "perform"]
