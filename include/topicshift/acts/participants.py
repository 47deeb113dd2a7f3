"""Stop, switch and give back participants through their controllers, with the intent written before each act."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from topicshift.core.engine.freeze import Freeze, GiveBack, decide_give_back
from topicshift.core.errors import (
    AmbiguousState,
    DrainTimedOut,
    Refused,
    TopicshiftError,
    Transient,
    Unreadable,
)
from topicshift.core.spec.model import Spec
from topicshift.ports import (
    Claim,
    Clock,
    ClusterAdmin,
    ControlContext,
    Controller,
    Journal,
    Participant,
    ParticipantState,
)

Progress = Callable[[str], None]

FREEZE = "freeze"
SWITCH_PRODUCERS = "switch_producers"
POLL_S = 0.1


def producers_of(spec: Spec) -> list[Participant]:
    """The declared producers."""
    return [Participant(p.name, "producer", p.kind, principal=p.principal) for p in spec.producers]


def consumers_of(spec: Spec) -> list[Participant]:
    """The declared consumers."""
    return [Participant(c.name, "consumer", c.kind, group=c.group) for c in spec.consumers]


def switch_step(group: str) -> str:
    """The journal's name of the switch of one group."""
    return f"switch_consumer:{group}"


@dataclass(frozen=True)
class Cast:
    """Participants with the controllers that can move them, and the context of the migration."""

    controllers: Mapping[str, Controller]
    context: ControlContext

    def each(self, participants: Iterable[Participant]) -> list[tuple[Controller, list[Participant]]]:
        """Participants by controller: those under a lease first, then in the order in which kinds first appear.

        Raises ``Refused`` for a kind without a controller.
        """
        kinds: dict[str, list[Participant]] = {}
        for p in participants:
            kinds.setdefault(p.kind, []).append(p)
        missing = [k for k in kinds if k not in self.controllers]
        if missing:
            raise Refused(
                f"No controller for participants of kind {', '.join(missing)}. Known kinds: "
                f"{', '.join(sorted(self.controllers))}. Correct `kind` in the spec."
            )
        # Those under a lease first: a kill in between must not leave them to go on with the source by themselves
        # while others already write to the target.
        leased = sorted(kinds, key=lambda k: not getattr(self.controllers[k], "leased", False))
        return [(self.controllers[k], kinds[k]) for k in leased]

    def observe(self, participants: Sequence[Participant]) -> list[ParticipantState]:
        """What every controller sees, one state for each participant asked, in the order asked."""
        seen: dict[tuple[str, str], ParticipantState] = {}
        for controller, ps in self.each(participants):
            for state in controller.observe(self.context, ps):
                seen[state.participant.role, state.participant.name] = state
        return [
            seen.get((p.role, p.name))
            or ParticipantState(p, "unknown", None, reason=f"its controller ({p.kind}) gave no answer for {p.name}")
            for p in participants
        ]

    def prepare(self) -> None:
        """Let controllers make what their participants need before they can report (the route's topics)."""
        for controller in self.controllers.values():
            prepare = getattr(controller, "prepare", None)
            if prepare is not None:
                prepare(self.context)

    def with_lease(self, until: datetime) -> Cast:
        """The same cast under a lease."""
        return replace(self, context=replace(self.context, lease_until=until))

    def close(self) -> None:
        """Let every controller go."""
        for controller in self.controllers.values():
            controller.close()


def describe(states: Iterable[ParticipantState]) -> str:
    """One line on who is in which state, for a log or an error."""
    return "; ".join(
        f"{s.participant.role} {s.participant.name} {s.status}"
        + (f" on {s.topic}" if s.topic else "")
        + (f" ({s.reason})" if s.reason else "")
        for s in states
    )


def wait_for(
    cast: Cast,
    participants: Sequence[Participant],
    wanted: Callable[[ParticipantState], bool],
    *,
    what: str,
    clock: Clock,
    deadline: datetime,
    progress: Progress,
) -> list[ParticipantState]:
    """Observe until every participant is as wanted.

    Raises ``DrainTimedOut`` at the deadline, naming those that are not. A controller that cannot be read for
    a moment is asked again; the last thing it said is part of the error.
    """
    said = ""
    while True:
        try:
            states = cast.observe(participants)
            open_ = [s for s in states if not wanted(s)]
            text = describe(open_)
        except Transient as error:
            open_, text = [], str(error)
            states = []
        if states and not open_:
            return states
        if text != said:
            progress(f"waiting until {what}: {text}")
            said = text
        if clock.now() >= deadline:
            raise DrainTimedOut(
                f"Not all participants are where they should be ({what}) at the end of the time allowed: {text}. "
                "Nothing further is done; see who is named, and start again."
            )
        clock.sleep(POLL_S)


def begin_freeze(journal: Journal, claim: Claim, clock: Clock, budget: timedelta) -> Freeze:
    """Start the freeze clock, once: a repeated or resumed step gets the freeze that is already running."""
    row = journal.step(claim.migration_id, FREEZE)
    if row is not None and row.state == "intended":
        return Freeze.from_data(row.data)
    if row is not None and row.state == "failed":
        raise Refused(
            "Producers of this migration are being put back on the source (the task give_back), so no freeze is begun. "
            "Wait until give_back has ended, or clear it if it failed; then clear this task."
        )
    row = journal.intend(claim, FREEZE, Freeze.begin(clock.now(), budget).to_data())
    freeze = Freeze.from_data(row.data)
    journal.event(claim, "freeze_begun", "topicshift", row.data)
    return freeze


def current_freeze(journal: Journal, claim: Claim) -> Freeze | None:
    """The freeze that is running, if any."""
    row = journal.step(claim.migration_id, FREEZE)
    return Freeze.from_data(row.data) if row is not None and row.state == "intended" else None


def require_lease(freeze: Freeze | None, clock: Clock, act: str) -> Freeze:
    """Before each act after the fence. Raises ``DrainTimedOut`` when the time left is too short to act safely."""
    if freeze is None:
        raise Refused(f"No freeze is running, so {act} is refused: producers may be writing to the source.")
    left = freeze.left(clock.now())
    if left <= 0:
        raise DrainTimedOut(
            f"The freeze budget is used up ({-left:.1f} s past the last moment to act), so {act} is refused. "
            "Producers go back to the source. Raise freeze_budget, or wait for less lag before the fence."
        )
    return freeze


def require_on_target(cast: Cast, producers: Sequence[Participant]) -> None:
    """Raises ``Refused``, naming them, unless all ``producers`` run on the target at this moment."""
    target = cast.context.target
    states = cast.observe(producers) if producers else []
    open_ = [s for s in states if not (s.status == "running" and s.topic == target)]
    if open_:
        raise Refused(
            f"The switch of the producers to {target} has not ended: {describe(open_)}. A group that left the source "
            "now would miss what is written there. Clear the task switch."
        )


def stop_producers(
    cast: Cast,
    producers: Sequence[Participant],
    *,
    clock: Clock,
    deadline: datetime,
    progress: Progress,
) -> list[ParticipantState]:
    """Stop every producer and wait until each says so. Safe to repeat."""
    for controller, ps in cast.each(producers):
        controller.stop(cast.context, ps)
    return wait_for(
        cast,
        producers,
        lambda s: s.status == "stopped",
        what="every producer says stopped",
        clock=clock,
        deadline=deadline,
        progress=progress,
    )


def switch_producers(
    cast: Cast,
    producers: Sequence[Participant],
    *,
    journal: Journal,
    claim: Claim,
    clock: Clock,
    recheck: Callable[[], None],
    progress: Progress,
    by_hand: Sequence[Participant] = (),
    settle: timedelta = timedelta(seconds=60),
) -> dict[str, Any]:
    """Point every producer to the target and start it; the freeze ends when all of them run there.

    ``producers`` are under a controller. With ``by_hand`` (a person starts these) the freeze goes on until
    :func:`confirm_started`.

    ``recheck`` must raise if anything was written to the source after the fence; it is called just before the act.
    """
    ctx = cast.context
    row = journal.step(claim.migration_id, SWITCH_PRODUCERS)
    if row is None or row.state not in ("intended", "done"):
        freeze = require_lease(current_freeze(journal, claim), clock, "switching producers")
        recheck()
        journal.intend(claim, SWITCH_PRODUCERS, {"target": ctx.target, "at": clock.now().isoformat()})
        require_lease(freeze, clock, "switching producers")
    if row is None or row.state != "done":
        _finish_switch(cast, producers, journal=journal, claim=claim, clock=clock, recheck=recheck)
    states = (
        wait_for(
            cast,
            producers,
            lambda s: s.status == "running" and s.topic == ctx.target,
            what=f"every producer runs on {ctx.target}",
            clock=clock,
            deadline=clock.now() + settle,
            progress=progress,
        )
        if producers
        else []
    )
    if by_hand:
        return {"target": ctx.target, "to_start_by_hand": [p.name for p in by_hand]}
    return _end_freeze(ctx.target, describe(states), journal=journal, claim=claim, clock=clock)


def confirm_started(
    producers: Sequence[Participant],
    *,
    journal: Journal,
    claim: Claim,
    clock: Clock,
    recheck: Callable[[], None],
) -> dict[str, Any]:
    """A person has started the rest of the producers on the target: check the source once more, end the freeze."""
    row = journal.step(claim.migration_id, SWITCH_PRODUCERS)
    if row is None or row.state not in ("intended", "done"):
        raise Refused("The producers were not switched by this run, so a start by hand cannot be confirmed.")
    recheck()
    said = "started by hand: " + ", ".join(p.name for p in producers)
    return _end_freeze(str(row.data.get("target")), said, journal=journal, claim=claim, clock=clock)


def _end_freeze(target: str, states: str, *, journal: Journal, claim: Claim, clock: Clock) -> dict[str, Any]:
    # Two rows end here; a try that died between them is finished by the next.
    freeze = journal.step(claim.migration_id, FREEZE)
    switch = journal.step(claim.migration_id, SWITCH_PRODUCERS)
    if switch is not None and switch.state == "done" and (freeze is None or freeze.state != "intended"):
        return dict(switch.data)
    now = clock.now()
    data: dict[str, Any] = {"target": target, "finished_at": now.isoformat()}
    if freeze is not None:
        data["freeze_seconds"] = round((now - Freeze.from_data(freeze.data).started_at).total_seconds(), 3)
        if freeze.state == "intended":
            journal.finish(claim, FREEZE, {**freeze.data, "ended_at": now.isoformat(), "how": "switched"})
    if switch is None or switch.state != "done":
        journal.finish(claim, SWITCH_PRODUCERS, data)
        journal.event(claim, "producers_switched", "topicshift", {**data, "states": states})
    return data


def _finish_switch(
    cast: Cast,
    producers: Sequence[Participant],
    *,
    journal: Journal,
    claim: Claim,
    clock: Clock,
    recheck: Callable[[], None],
) -> None:
    ctx = cast.context
    waiting = [s.participant for s in cast.observe(producers) if not (s.status == "running" and s.topic == ctx.target)]
    if not waiting:
        return
    # A try that died between intent and act comes here too: the guards hold for it as well.
    require_lease(current_freeze(journal, claim), clock, "switching producers")
    recheck()
    for controller, ps in cast.each(waiting):
        controller.point(ctx, ps, ctx.target)
    for controller, ps in cast.each(waiting):
        controller.start(ctx, ps)


def begin_give_back(journal: Journal, claim: Claim) -> Claim:
    """Shut out every other task of this run that still acts, before it is decided what becomes of the producers.

    The epoch rises, so that what began before cannot write any more, and the freeze is marked ``failed``, so that what
    begins later is refused. Returns the claim to go on with: the same one where no freeze is running. Safe to repeat.
    """
    row = journal.step(claim.migration_id, FREEZE)
    if row is None or row.state not in ("intended", "failed"):
        return claim
    claim = journal.renew(claim, "producers are to be given back")
    row = journal.step(claim.migration_id, FREEZE)
    if row is not None and row.state == "intended":
        journal.finish(claim, FREEZE, {}, state="failed")
    return claim


def give_back(
    cast: Cast,
    producers: Sequence[Participant],
    *,
    admin: ClusterAdmin,
    journal: Journal,
    claim: Claim,
    clock: Clock,
    unfence: Callable[[], object],
    progress: Progress,
    wait: timedelta = timedelta(seconds=60),
) -> tuple[GiveBack, str]:
    """Put producers back on the source after a failure inside the freeze, unless they are already switched.

    Call it with the claim of :func:`begin_give_back`, once nothing else of the run acts any more: what is decided here
    must not change under it. Raises ``AmbiguousState`` where it cannot be told; nothing is changed then, and the freeze
    goes on. What ``unfence`` raises is raised again, once producers were pointed back all the same. Safe to repeat.
    """
    ctx = cast.context
    freeze_row = journal.step(claim.migration_id, FREEZE)
    switch_row = journal.step(claim.migration_id, SWITCH_PRODUCERS)
    decision, why, _ = judge_give_back(cast, producers, admin=admin, journal=journal, migration_id=claim.migration_id)
    if decision in (GiveBack.AMBIGUOUS, GiveBack.ALREADY_SWITCHED) and freeze_row and freeze_row.state == "failed":
        journal.intend(claim, FREEZE, freeze_row.data)  # it runs on as it was: the run, or a person, ends it
    if decision is GiveBack.AMBIGUOUS:
        journal.event(claim, "give_back_ambiguous", "topicshift", {"why": why})
        raise AmbiguousState(
            f"Producers were not given back to {ctx.source}: {why}. Look at each producer, then use the DAG "
            f"topic_rollback (nothing in {ctx.target} yet) or go on with this run."
        )
    if decision is not GiveBack.TO_SOURCE:
        return decision, why
    assert freeze_row is not None
    unfence_and_return(cast, producers, unfence)
    states = (
        wait_for(
            cast,
            [p for p in producers if not _person(cast, p)],
            lambda s: s.status == "running" and s.topic == ctx.source,
            what=f"every producer runs on {ctx.source} again",
            clock=clock,
            deadline=clock.now() + wait,
            progress=progress,
        )
        if any(not _person(cast, p) for p in producers)
        else []
    )
    now = clock.now().isoformat()
    if switch_row is not None and switch_row.state == "intended":
        journal.finish(claim, SWITCH_PRODUCERS, {"undone_at": now}, state="undone")
    journal.finish(claim, FREEZE, {**freeze_row.data, "ended_at": now, "how": "given back"}, state="undone")
    journal.event(claim, "producers_given_back", "topicshift", {"why": why, "states": describe(states)})
    return decision, why


def judge_give_back(
    cast: Cast, producers: Sequence[Participant], *, admin: ClusterAdmin, journal: Journal, migration_id: str
) -> tuple[GiveBack, str, list[ParticipantState]]:
    """Whether producers may go back to the source, as things stand now: the decision, why, and what was seen of them.

    Changes nothing.
    """
    freeze_row, switch_row = (journal.step(migration_id, step) for step in (FREEZE, SWITCH_PRODUCERS))
    states = list(cast.observe(producers))
    decision, why = decide_give_back(
        freeze_state=freeze_row.state if freeze_row else None,
        switch_state=switch_row.state if switch_row else None,
        producer_topics={s.participant.name: s.topic for s in states},
        target=cast.context.target,
        target_records=used_offsets(admin, cast.context.target),
        moved_groups=moved_groups(journal, migration_id),
    )
    return decision, why, states


def moved_groups(journal: Journal, migration_id: str) -> list[str]:
    """The consumer groups that were released to the target, or are about to be."""
    prefix = switch_step("")
    return [
        s.step.removeprefix(prefix)
        for s in journal.steps(migration_id)
        if s.step.startswith(prefix) and s.state in ("intended", "done")
    ]


def unfence_and_return(cast: Cast, producers: Sequence[Participant], unfence: Callable[[], object]) -> None:
    """Lift the fence and put producers back on the source; where it cannot be lifted, put them back and raise why.

    Producers on the route are exempt from the DENY: a broker that is late with it must not keep them waiting.
    """
    try:
        unfence()
    except TopicshiftError:
        back_to_source(cast, producers)
        raise
    back_to_source(cast, producers)


def back_to_source(cast: Cast, producers: Sequence[Participant]) -> None:
    """Point every producer to the source and start it there. Idempotent."""
    for controller, ps in cast.each(producers):
        controller.point(cast.context, ps, cast.context.source)
    for controller, ps in cast.each(producers):
        controller.start(cast.context, ps)


def _person(cast: Cast, participant: Participant) -> bool:
    return cast.controllers[participant.kind].needs_person


def used_offsets(admin: ClusterAdmin, topic: str) -> int | None:
    """The sum of END_U over all partitions of a topic: 0 only if nothing was ever written to it.

    A topic that does not exist holds nothing (0). None where a partition cannot be read.
    """
    try:
        if admin.topic(topic) is None:
            return 0
        ends = [o.end for o in admin.offsets(topic).values()]
    except Unreadable:
        return None
    return None if any(e is None for e in ends) else sum(e for e in ends if e is not None)
