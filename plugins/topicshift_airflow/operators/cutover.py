"""Operators of the cut-over: ready, stop and fence, drain, confirm, switch, give back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from topicshift.acts.approvals import find_approval, record_approval
from topicshift.acts.on_record import require_drained, require_switch_begun, require_target
from topicshift.acts.participants import (
    FREEZE,
    SWITCH_PRODUCERS,
    Cast,
    begin_freeze,
    begin_give_back,
    consumers_of,
    current_freeze,
    give_back,
    producers_of,
    require_lease,
    require_on_target,
    stop_producers,
    switch_producers,
    switch_step,
)
from topicshift.core.engine.freeze import Freeze
from topicshift.core.engine.freeze import GiveBack as GiveBackDecision
from topicshift.core.errors import DrainTimedOut, Refused
from topicshift.core.spec.model import Approval, Cutover
from topicshift.ports import Participant, ParticipantState
from topicshift_airflow.operators.base import AskingOperator, Question, StepOperator
from topicshift_airflow.operators.names import certificate_name, suffix, verification_name
from topicshift_airflow.runtime import Run, open_journal, owner_of

if TYPE_CHECKING:
    from topicshift.core.fence.record import FenceRecord


def kinds(participants: Sequence[Participant]) -> set[str]:
    """The controller kinds of these participants."""
    return {p.kind for p in participants}


def people(cast: Cast, participants: Sequence[Participant]) -> list[Participant]:
    """Those that a person moves."""
    return [p for p in participants if cast.controllers[p.kind].needs_person]


def certificate_hash(data: bytes) -> str:
    """What an approval of the cut-over is about: the certificate byte for byte."""
    return hashlib.sha256(data).hexdigest()


def skip_unless(run: Run, cutover: Cutover | None) -> None:
    """Skip a task of the other cut-over order."""
    if cutover is not None and run.spec.cutover is not cutover:
        raise AirflowSkipException(
            f"This migration runs {run.spec.cutover.value}; this task belongs to {cutover.value}."
        )


def switched(run: Run) -> bool:
    """Whether every producer is on the target already.

    A task of the freeze that is cleared after that must not act: there is no freeze any more, and stopping producers
    now would begin another one.
    """
    row = run.journal.step(run.row.migration_id, SWITCH_PRODUCERS)
    return row is not None and row.state == "done"


def group_switched(run: Run, group: str) -> bool:
    """Whether this group is on the target already."""
    row = run.journal.step(run.row.migration_id, switch_step(group))
    return row is not None and row.state == "done"


def switch_begun_at(run: Run) -> str | None:
    """When the switch of the producers was begun: a person's word on what follows it counts for this one alone."""
    row = run.journal.step(run.row.migration_id, SWITCH_PRODUCERS)
    at = row.data.get("at") if row is not None else None
    return None if at is None else str(at)


SWITCHED = {"switched": True}
"""What a task of the freeze returns when producers are on the target already: it did nothing."""


GATE_PATIENCE = timedelta(hours=12)
"""So long a run that was started by hand may wait for its freeze, so that it ends one day."""


def freeze_deadline(run: Run, context: Mapping[str, Any]) -> datetime:
    """Until when this run may begin its freeze: the end of the window for a scheduled run, else after a patience.

    That one counts from the last answer of a person, who may take days for the plan, or from the run's own beginning.
    """
    dag_run = context["dag_run"]
    if run.spec.window is not None and getattr(dag_run, "run_type", "") == "scheduled" and dag_run.run_after:
        end: datetime = dag_run.run_after + run.spec.window.duration
        return end
    began: datetime = dag_run.start_date or run.clock.now()
    answers = [datetime.fromisoformat(e.at) for e in run.journal.events(run.row.migration_id) if e.kind == "approved"]
    return max([began, *answers]) + GATE_PATIENCE


def too_late(deadline: datetime, waits: str = "") -> DrainTimedOut:
    """Why no freeze is begun any more."""
    return DrainTimedOut(
        f"The time in which this run might begin its freeze ended at {deadline:%Y-%m-%d %H:%M:%S} UTC; no producer was "
        "stopped. " + (f"It waited for: {waits}" if waits else "Nothing else was in the way.")
    )


def require_time_to_begin(run: Run, context: Mapping[str, Any], waits: str = "") -> None:
    """Raises ``DrainTimedOut`` when this run may not begin a freeze any more."""
    deadline = freeze_deadline(run, context)
    if run.clock.now() >= deadline:
        raise too_late(deadline, waits)


def seconds_left(freeze: Freeze | None, run: Run) -> timedelta:
    """Time in which a person can still answer inside the freeze."""
    freeze = require_lease(freeze, run.clock, "asking")
    return timedelta(seconds=max(1.0, freeze.left(run.clock.now())))


class StopAndFence(AskingOperator):
    """Stop every producer, deny writes to the source, and prove that nothing is written any more.

    The freeze begins here. Producers that a person stops are asked for first.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(subject="Stop the producers", **kwargs)

    def question(self, run: Run, context: Mapping[str, Any]) -> Question | None:
        """Ask for the producers that a person stops, if there are any."""
        if switched(run):
            return None
        require_target(run.admin, run.journal, run.row)
        producers = producers_of(run.spec)
        cast = run.cast(kinds(producers))
        manual = people(cast, producers)
        if not manual:
            return None
        if current_freeze(run.journal, run.claim) is None:
            require_time_to_begin(run, context)
        freeze = begin_freeze(run.journal, run.claim, run.clock, run.spec.freeze_budget)
        names = ", ".join(p.name for p in manual)
        return Question(
            f"Stop {names} now",
            f"Stop every process of **{names}** that writes to `{run.row.source}`, then confirm.\n\n"
            "The answer is checked: the run goes on only when the end of every partition stands still. "
            f"Without an answer by {freeze.act_until:%H:%M:%S} UTC the run gives up and says so.",
            seconds_left(freeze, run),
            {"stop": [p.name for p in manual], "freeze": freeze.started_at.isoformat()},
        )

    def act(self, run: Run, context: Mapping[str, Any]) -> Any:
        """Stop, fence, prove; write ``fence.json``."""
        from topicshift.acts.fence import fence, rehearse
        from topicshift.core.fence.decision import FenceSettings

        spec, source = run.spec, run.row.source
        if switched(run):
            run.progress("every producer is on the target already; nobody is stopped")
            return SWITCHED
        if current_freeze(run.journal, run.claim) is None:
            # Connections are opened, and rights missed, before anybody is stopped.
            run.cast(kinds(producers_of(spec))).prepare()
            rehearse(run.admin, source)
            # The gate may have been passed long ago: a DAG can be paused, and a task be cleared, after it.
            require_time_to_begin(run, context)
        freeze = begin_freeze(run.journal, run.claim, run.clock, spec.freeze_budget)
        require_lease(freeze, run.clock, "stopping producers")
        producers = producers_of(spec)
        cast = run.cast(kinds(producers), freeze.lease_until)
        by_hand = people(cast, producers)
        driven = [p for p in producers if p not in by_hand]
        states = (
            stop_producers(cast, driven, clock=run.clock, deadline=freeze.act_until, progress=run.progress)
            if driven
            else []
        )
        exempt = {p.principal for p in driven if p.principal}
        exempt |= {i.principal for s in states for i in s.instances if i.principal}
        record = fence(
            run.admin,
            run.journal,
            run.claim,
            run.clock,
            source,
            exempt,
            FenceSettings(deadline_s=max(1.0, freeze.left(run.clock.now()))),
            lambda: cast.observe(driven),
            run.progress,
            unnamed_route_producers=_unnamed(states),
        )
        self.evidence_url = run.write("fence.json", record.model_dump_json(indent=2))
        run.event("fenced", {"fence_offsets": record.fence_offsets, "topic_id": record.topic_id})
        return {"records": record.records, "partitions": record.partitions}


def _unnamed(states: Sequence[ParticipantState]) -> list[str]:
    """Producers under a controller whose principal neither the spec nor their own acknowledgements tell."""
    return [
        s.participant.name for s in states if not s.participant.principal and not any(i.principal for i in s.instances)
    ]


def read_fence(run: Run) -> FenceRecord:
    """The fence of this migration."""
    from topicshift.core.fence.record import FenceRecord

    return FenceRecord.model_validate_json(run.read("fence.json"))


def recheck(run: Run) -> None:
    """Raise ``FenceBroken`` if the source grew after the fence: called just before each later act."""
    from topicshift.acts.fence import STEP
    from topicshift.acts.fence import recheck as compare

    row = run.journal.step(run.row.migration_id, STEP)
    if row is None or row.state != "done":
        # fence.json stays behind when a fence is taken away.
        raise Refused(f"There is no fence on {run.row.source} now. Clear create_target.create and what follows.")
    compare(run.admin, read_fence(run), run.clock)


def require_certified(run: Run, consumer: str = "") -> None:
    """Raise ``Refused`` unless every group (or that of one consumer) is certified and verified for the fence of now."""
    names = [c.group for c in run.spec.consumers if consumer in ("", c.name)]
    paper, answer = (
        run.evidence.read(run.row.migration_id, name)
        for name in (certificate_name(consumer), verification_name(consumer))
    )
    require_drained(read_fence(run), names, paper, answer, suffix=suffix(consumer))


class SwitchProducers(AskingOperator):
    """Point every producer to the target and start it. The freeze ends here.

    With ``approvals.cutover: required`` a person accepts this plan and this certificate first.
    """

    YES = "Approve"
    NO = "Reject"

    def __init__(self, *, cutover: Cutover | None = None, **kwargs: Any) -> None:
        super().__init__(subject="Switch the producers", **kwargs)
        self.cutover = cutover

    def execute(self, context: Any) -> Any:
        """Skip in the other order; else ask or act."""
        return super().execute(context)

    def _about(self, run: Run) -> dict[str, Any]:
        name = "drain_certificate.json" if run.spec.cutover is Cutover.DRAIN_FIRST else "fence.json"
        return {"plan_hash": run.row.plan_hash, name: certificate_hash(run.read(name))}

    def question(self, run: Run, context: Mapping[str, Any]) -> Question | None:
        """Ask for the cut-over where the spec wants it."""
        skip_unless(run, self.cutover)
        if switched(run):
            return None
        require_target(run.admin, run.journal, run.row)
        if run.spec.cutover is Cutover.DRAIN_FIRST:
            require_certified(run)
        about = self._about(run)
        if run.spec.approvals.cutover is Approval.AUTO:
            if not find_approval(run.journal, run.row.migration_id, self.task_id, about):
                record_approval(run.journal, run.claim, self.task_id, about, actor="spec", how="auto")
            return None
        from topicshift.reporting.markdown import cutover_markdown

        freeze = current_freeze(run.journal, run.claim)
        return Question(
            f"Switch the producers of {run.row.source} to {run.row.target}?",
            cutover_markdown(run.row, run.spec, run.evidence, freeze, about),
            seconds_left(freeze, run),
            about,
        )

    def act(self, run: Run, context: Mapping[str, Any]) -> Any:
        """Switch those that a controller moves."""
        producers = producers_of(run.spec)
        freeze = current_freeze(run.journal, run.claim)
        cast = run.cast(kinds(producers), freeze.lease_until if freeze else None)
        by_hand = people(cast, producers)
        return switch_producers(
            cast,
            [p for p in producers if p not in by_hand],
            by_hand=by_hand,
            journal=run.journal,
            claim=run.claim,
            clock=run.clock,
            recheck=lambda: recheck(run),
            progress=run.progress,
        )


class StartByHand(AskingOperator):
    """Ask for the producers that a person starts on the target.

    Where there are none it sees that the switch is done, so that a switch that somebody only marked as done gives
    producers back.
    """

    def __init__(self, *, cutover: Cutover | None = None, **kwargs: Any) -> None:
        super().__init__(subject="Start producers on the target", **kwargs)
        self.cutover = cutover

    def question(self, run: Run, context: Mapping[str, Any]) -> Question | None:
        """Ask, if a person has something to start."""
        skip_unless(run, self.cutover)
        if switched(run):
            return None
        producers = producers_of(run.spec)
        manual = people(run.cast(kinds(producers)), producers)
        if not manual or not self._switch_begun(run):
            raise Refused(
                "The producers are not on the target, and nobody has to start one by hand. A task that was marked as "
                "success by hand proves nothing. Producers go back to the source; then clear create_target.create and "
                "what follows."
            )
        names = ", ".join(p.name for p in manual)
        return Question(
            f"Point {names} to {run.row.target} and start it",
            f"Point **{names}** to `{run.row.target}`, start it, then confirm. The source stays closed for writes.",
            timedelta(hours=2),
            {"start": [p.name for p in manual], "target": run.row.target, "switch": switch_begun_at(run)},
        )

    @staticmethod
    def _switch_begun(run: Run) -> bool:
        row = run.journal.step(run.row.migration_id, SWITCH_PRODUCERS)
        return row is not None and row.state == "intended"

    def act(self, run: Run, context: Mapping[str, Any]) -> Any:
        """Check the source once more and end the freeze."""
        from topicshift.acts.participants import confirm_started

        if switched(run):
            return SWITCHED
        return confirm_started(
            producers_of(run.spec), journal=run.journal, claim=run.claim, clock=run.clock, recheck=lambda: recheck(run)
        )


class SwitchGroup(AskingOperator):
    """Release one consumer group to the target and see it read there. Mapped over the consumers."""

    template_fields = ("subject", "body", "consumer")

    def __init__(self, *, consumer: str = "", cutover: Cutover | None = None, **kwargs: Any) -> None:
        super().__init__(subject="Switch a consumer group", **kwargs)
        self.consumer = consumer
        self.cutover = cutover

    def _participant(self, run: Run) -> Participant:
        for p in consumers_of(run.spec):
            if p.name == self.consumer:
                return p
        raise Refused(f"The spec declares no consumer {self.consumer!r} (any more).")

    def question(self, run: Run, context: Mapping[str, Any]) -> Question | None:
        """Ask to stop a group that a person moves."""
        skip_unless(run, self.cutover)
        p = self._participant(run)
        if group_switched(run, p.group or ""):
            return None
        self._require_licence(run, p)
        if not people(run.cast({p.kind}), [p]):
            return None
        return Question(
            f"Stop group {p.group} now",
            f"Stop every member of group **{p.group}** ({p.name}), then confirm. Its offsets are then set on "
            f"`{run.row.target}`, and the task waits until you have pointed it there and started it.",
            timedelta(hours=4),
            {"stop_group": p.group, "target": run.row.target, "switch": switch_begun_at(run)},
        )

    @staticmethod
    def _require_licence(run: Run, p: Participant) -> None:
        """The producers are on the target, and this group has read the source up to the fence."""
        if not require_switch_begun(run.journal, run.row.migration_id):
            producers = producers_of(run.spec)
            cast = run.cast(kinds(producers))
            by_hand = people(cast, producers)
            require_on_target(cast, [each for each in producers if each not in by_hand])
        require_certified(run, "" if run.spec.cutover is Cutover.DRAIN_FIRST else p.name)

    def act(self, run: Run, context: Mapping[str, Any]) -> Any:
        """Seed, release, observe."""
        from topicshift.acts.groups import switch_group

        p = self._participant(run)
        waits = timedelta(hours=1) if people(run.cast({p.kind}), [p]) else timedelta(minutes=5)
        return switch_group(
            run.cast({p.kind}),
            p,
            admin=run.admin,
            journal=run.journal,
            claim=run.claim,
            clock=run.clock,
            recheck=lambda: recheck(run),
            progress=run.progress,
            wait=waits,
        )


def put_back(run: Run) -> tuple[GiveBackDecision, str, list[str]]:
    """Give the producers back, if that is right, under a claim that ``begin_give_back`` gave.

    Returns the decision, why, and the producers that a person has to start on the source. Raises as
    :func:`topicshift.acts.participants.give_back`.
    """
    from topicshift.acts.fence import unfence

    producers = producers_of(run.spec)
    cast = run.cast(kinds(producers))
    decision, why = give_back(
        cast,
        producers,
        admin=run.admin,
        journal=run.journal,
        claim=run.claim,
        clock=run.clock,
        unfence=lambda: unfence(run.admin, run.journal, run.claim, run.row.source),
        progress=run.progress,
    )
    run.progress(f"{decision.value}: {why}")
    by_hand = [p.name for p in people(cast, producers)]
    if by_hand and decision is GiveBackDecision.TO_SOURCE:
        run.progress(f"START BY HAND on {run.row.source}: {', '.join(by_hand)}")
    return decision, why, by_hand


class GiveBack(StepOperator):
    """Put producers back on the source when a step inside the freeze has failed. Runs only then."""

    ui_color = "#fbe3e0"
    after_the_end = True

    def execute(self, context: Mapping[str, Any]) -> Any:
        """Skip for a run that never owned a migration: its failure left nothing behind."""
        journal = open_journal()
        try:
            if not journal.find(owner=owner_of(context)):
                raise AirflowSkipException("This run never locked a topic, so there is nothing to give back.")
        finally:
            journal.close()
        return super().execute(context)

    def step(self, run: Run, context: Mapping[str, Any]) -> Any:
        """Give back, or say why there is nothing to give back."""
        from topicshift_airflow.operators.drain import end_verifier

        end_verifier(run.row.migration_id)
        if not run.row.active:
            if run.row.state == "open":
                run.journal.set_state(run.claim, "failed", active=False)
            raise AirflowSkipException("Nothing was changed by this run, so there is nothing to give back.")
        run.claim = begin_give_back(run.journal, run.claim)
        self._wait_for_others(run, context)
        decision, why, by_hand = put_back(run)
        return {"decision": decision.value, "why": why, "start_by_hand": by_hand}

    def _wait_for_others(self, run: Run, context: Mapping[str, Any]) -> None:
        """Wait until no other task inside the freeze is running: one may be cleared by a person at any moment.

        It cannot write to the journal or the route any more. At the end of the lease whatever it may still be about to
        do is refused by the freeze's clock, so nobody waits longer than that.
        """
        row = run.journal.step(run.row.migration_id, FREEZE)
        if row is None or row.state != "failed":
            return
        until, said = Freeze.from_data(row.data).lease_until, ""
        while running := self._running(context):
            if run.clock.now() >= until:
                run.progress(f"the lease is over, so {running} may not act any more: going on")
                return
            if running != said:
                run.progress(f"waiting until these have ended, which cannot write any more: {running}")
                said = running
            run.clock.sleep(0.5)

    def _running(self, context: Mapping[str, Any]) -> str:
        """Which tasks before this one are at work, as one text; empty when none is."""
        ti = context["ti"]
        states = ti.get_task_states(dag_id=ti.dag_id, task_ids=sorted(self.upstream_task_ids), run_ids=[ti.run_id]).get(
            ti.run_id, {}
        )
        # One that is cleared while it runs is `restarting` until its process has noticed.
        return ", ".join(sorted(task for task, state in states.items() if state in ("running", "restarting")))
