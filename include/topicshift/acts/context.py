"""The context of one advancer: the migration, its ports, and what this advancer remembers between two looks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from topicshift.acts.memory import Memory
from topicshift.core.drain.names import is_chart
from topicshift.core.engine.mirror import live, named_on
from topicshift.core.engine.need import BROKEN_OFF, WENT_ON
from topicshift.core.engine.snapshot import record_of
from topicshift.core.engine.view import Member, Policy, Record
from topicshift.core.engine.words import Act, Ask, MigrationState, Row, StepState, row_of
from topicshift.core.errors import OwnershipLost, Refused, TopicshiftError, Transient, Unreadable
from topicshift.core.policy.floor import raised, who_answers
from topicshift.core.policy.model import Installation
from topicshift.core.spec.model import Approval, Mode, Spec
from topicshift.core.spec.windows import Schedule
from topicshift.ports import (
    Claim,
    Clock,
    ClusterAdmin,
    ControlContext,
    Controller,
    DrainReader,
    EvidenceStore,
    Executor,
    Journal,
    Meter,
    MigrationRow,
    Participant,
    ParticipantState,
    Rehearser,
    Replayer,
    Seat,
    StepRow,
    Verifier,
)

if TYPE_CHECKING:
    from topicshift.core.fence.record import FenceRecord
    from topicshift.core.sizing.sizing import SizingResult

SEAT_S = 30.0
"""Seconds for which an advancer holds the seat of one act; what it may send, it sends within that time."""

_OF_BOTH_WAYS = frozenset({"plan.json", "impact.json", "impact.html"})
"""Evidence of the plan, which holds for a way back too."""


def file_on(way: str, name: str) -> str:
    """The name of an evidence file on a way: a way back overwrites nothing of the way forward."""
    return name if not way or name in _OF_BOTH_WAYS else f"{way.rstrip('.')}-{name}"


SPARK_ACTS = frozenset({Act.MEASURE_IMPACT, Act.START_VERIFIER, Act.PROVE_ORDER})
"""Acts that start a Spark driver. An Airflow task that is no Spark task leaves them to the task that is."""


@dataclass
class Ports:
    """The world of one advancer. Clients are made when they are first used, by the callables given here."""

    journal: Journal
    evidence: EvidenceStore
    clock: Clock
    executor: Executor
    make_admin: Callable[[], ClusterAdmin]
    make_reader: Callable[[], DrainReader]
    make_controller: Callable[[str, ClusterAdmin], Controller]
    verifier: Verifier
    run_job: Callable[[MigrationContext, Act], None] | None = None
    """Runs a Spark job to its end (or starts the armed one); None where this advancer cannot."""
    owner_alive: Callable[[str], bool | None] = lambda _: None
    reader_evidence: Callable[[Spec, str], Any] | None = None
    """Evidence of readers that commit nothing (``readers`` of the spec), as ``DrainInputs`` wants it."""
    installation: Callable[[], Installation | None] = lambda: None
    """The installation policy as it is now, None without one. Raises ``Unreadable`` or ``SpecError``."""
    make_rehearser: Callable[[], Rehearser] | None = None
    """Fills the shadow of a rehearsal; None where this advancer cannot."""
    make_shadow_controller: Callable[[str, ClusterAdmin, Rehearser], Controller] | None = None
    """Moves the shadow participants of a rehearsal, in place of the controller of a kind; None likewise."""
    make_replayer: Callable[[], Replayer] | None = None
    """Writes late records to the target; None where this advancer cannot."""
    report: Callable[[Journal, EvidenceStore, str, Callable[[str, str], str]], str] | None = None
    """Draws ``report.html`` of a migration with what stores a file by its name; None where nobody draws."""
    impact_page: Callable[[Mapping[str, Any], SizingResult], str] | None = None
    """Draws ``impact.html`` anew with the count that was worked out from rates; None where nobody draws."""

    @cached_property
    def admin(self) -> ClusterAdmin:
        """The cluster."""
        return self.make_admin()

    @cached_property
    def reader(self) -> DrainReader:
        """What drain certificates are made from."""
        return self.make_reader()

    @cached_property
    def replayer(self) -> Replayer:
        """Who writes late records to the target. Raises ``Refused`` where this advancer cannot."""
        if self.make_replayer is None:
            raise Refused("A replay is for another task, or for: topicshift advance.")
        return self.make_replayer()

    @cached_property
    def rehearser(self) -> Rehearser:
        """Who copies a sample for a rehearsal. Raises ``Refused`` where this advancer cannot."""
        if self.make_rehearser is None:
            raise Refused("A rehearsal goes on in another task, or with: topicshift advance.")
        return self.make_rehearser()


def producers_of(spec: Spec) -> list[Participant]:
    """The declared producers."""
    return [Participant(p.name, "producer", p.kind, None, p.principal, p.settings) for p in spec.producers]


def consumers_of(spec: Spec) -> list[Participant]:
    """The declared consumers."""
    return [
        Participant(c.name, "consumer", c.kind, c.group, None, c.settings, c.stored_offsets) for c in spec.consumers
    ]


def policy_of(spec: Spec, controller: Callable[[str], Controller]) -> Policy:
    """What a spec wants, in the engine's words. ``controller`` gives that of a kind."""
    wanted = spec.approvals
    wants = {
        Ask.PLAN: wanted.plan,
        Ask.FREEZE: wanted.freeze,
        Ask.CERTIFICATE: wanted.certificate,
        Ask.RETIRE: wanted.retire,
    }
    people = frozenset(
        {
            *(Ask.ABORT_TRANSACTIONS, Ask.STOP_BY_HAND, Ask.START_BY_HAND, Ask.STOP_GROUP),
            *(Ask.STRAYS, Ask.ROLLBACK),
        }
    )
    return Policy(
        cutover=spec.cutover,
        producers=tuple(Member(p.name, manual=controller(p.kind).needs_person) for p in spec.producers),
        consumers=tuple(
            Member(c.name, c.group, controller(c.kind).needs_person, controller(c.kind).seeded, spec.groups_before(c))
            for c in spec.consumers
        ),
        required=people | {ask for ask, approval in wants.items() if approval is Approval.REQUIRED},
        freeze_budget=spec.freeze_budget,
        window=Schedule(w.cron, w.timezone, w.duration) if (w := spec.window) is not None else None,
        rehearsal=spec.mode is Mode.REHEARSE,
    )


@dataclass
class MigrationContext:
    """One advancer's hold on one migration.

    ``holder`` names the process that acts (for the seat), ``actor`` whom the audit trail names. ``begin_by`` is the
    latest moment at which a freeze may begin, where the spec has no window.
    """

    ports: Ports
    row: MigrationRow
    claim: Claim
    holder: str
    log: Callable[[str], None]
    began_at: datetime
    actor: str = "topicshift"
    begin_by: datetime | None = None
    seat: Seat | None = None
    rests_on: datetime | None = None
    """When the look began on which the act at work rests, where it may not rest on an old one."""
    memory: Memory = field(default_factory=Memory)
    way: str = ""
    """On a way back, with source and target exchanged in ``row`` and ``spec``: what stands before its rows' names."""
    held: MigrationRow | None = None
    """The migration as the journal has it."""
    controllers: dict[str, Controller] = field(default_factory=dict)
    triggered_by: str = ""
    """Name of the Airflow user who triggered the run, empty where nobody did."""
    reported: str = ""
    """Where the report lies, once this advancer has drawn it."""
    meter: Meter | None = None
    """Told of each look and event, for metrics; None where nobody counts."""
    unnamed: dict[str, str] = field(default_factory=dict)
    """SHA-256, in hex, of evidence that was written since the last event, by file name: the next event names them."""
    _policy: tuple[Installation | None, Policy] | None = field(default=None, repr=False)
    _trail: Lock = field(default_factory=Lock, repr=False)
    _governed: tuple[Sequence[StepRow], bool] | None = field(default=None, repr=False)
    """These rows of the journal, and whether the plan of them was made under an installation policy."""

    @cached_property
    def _accepted(self) -> Spec:
        return Spec.model_validate(dict(self.row.spec))

    @cached_property
    def _accepted_back(self) -> Spec:
        row = self.held or self.row
        return self._accepted.model_copy(update={"source": row.target, "target": row.source})

    @property
    def spec(self) -> Spec:
        """The spec as accepted when the migration was opened; on a way back with source and target exchanged."""
        return self._accepted_back if self.way else self._accepted

    @property
    def journal(self) -> Journal:
        """The journal."""
        return self.ports.journal

    def fence_of(self, record: Record) -> FenceRecord:
        """The proven fence, from the journal. Raises ``Refused`` where none is proven now."""
        if not record.done(Row.FENCE):
            raise Refused(
                f"There is no proven fence on {record.source} now. Nothing was changed; begin a freeze again."
            )
        return self.last_fence(record)

    def last_fence(self, record: Record) -> FenceRecord:
        """The fence that was proven last, also where it was lifted meanwhile. Raises ``Refused`` without one."""
        from topicshift.core.fence.record import FenceRecord

        row = record.step(Row.FENCE)
        data = row.data.get("record") if row is not None else None
        if data is None:
            raise Refused(f"No fence of {record.source} was ever proven. Nothing was changed.")
        if self.memory.fence is None or self.memory.fence.taken_at != data["taken_at"]:
            self.memory.fence = FenceRecord.model_validate(data)
        return self.memory.fence

    @property
    def admin(self) -> ClusterAdmin:
        """The cluster."""
        return self.ports.admin

    @property
    def clock(self) -> Clock:
        """The clock."""
        return self.ports.clock

    # ------------------------------------------------------------------------------------------------ the journal

    def refresh(self) -> Record:
        """Read the migration anew, and go on under its newest epoch as long as the owner is the same.

        Raises ``OwnershipLost`` where another owner has it by now.
        """
        self.row = self.held = self.journal.current(self.row.migration_id)
        if self.row.owner != self.claim.owner:
            raise OwnershipLost(
                f"{self.row.migration_id} is owned by {self.row.owner} since epoch {self.row.epoch}, no longer by "
                f"{self.claim.owner}. Nothing was changed. Look at the new owner's run instead."
            )
        if self.claim.epoch != self.row.epoch:
            self.claim = replace(self.claim, epoch=self.row.epoch)
        return self.record()

    def record(self) -> Record:
        """The migration as the engine needs it."""
        row, steps = self.held or self.row, self.journal.steps(self.row.migration_id)
        policy = self.policy
        if self.memory.record is None or (row, steps, policy) != self.memory.rows:
            found = live(record_of(row, steps, policy))
            self.memory.record, self.memory.rows = found, (row, steps, policy)
        record = self.memory.record
        if record.way != self.way:
            self.memory.samples.clear()  # they are of the other topic
        self.way = record.way
        self.row = replace(row, source=record.source, target=record.target) if record.way else row
        return record

    def record_as_held(self) -> Record:
        """The migration itself, also where it goes back at this moment."""
        row = self.held or self.row
        return record_of(row, self.journal.steps(row.migration_id), self.policy)

    @property
    def policy(self) -> Policy:
        """What the spec wants, raised to the installation policy as it is now, in the engine's words.

        Where that cannot be read, the spec alone: the fact ``policy`` is unknown then, and nothing begins.
        """
        try:
            found = self.installation()
        except TopicshiftError:
            found = None
        if self._policy is None or self._policy[0] != found:
            policy = policy_of(raised(self.spec, found), self.controller)
            who = {Ask[name.upper()]: rule for name, rule in who_answers(self.spec, found).items()}
            self._policy = found, replace(policy, who=who)
        return self._policy[1]

    def installation(self) -> Installation | None:
        """The installation policy as it is now, None where this installation has none.

        Raises ``Unreadable`` where it cannot be read, and where this process knows none although the migration was
        planned under one.
        """
        found = self.ports.installation()
        if found is None:
            last = self.memory.rows
            steps = last[1] if last is not None else self.journal.steps(self.row.migration_id)
            if self._governed is None or self._governed[0] is not steps:
                self._governed = steps, any(s.step == Row.CHECK and s.data.get("policy") for s in steps)
            if self._governed[1]:
                raise Unreadable(
                    f"{self.row.migration_id} was planned under an installation policy, and this process knows none. "
                    "Set TOPICSHIFT_POLICY to its file."
                )
        return found

    def effective_spec(self) -> Spec:
        """The spec, raised to the installation policy as it is now. Raises as :meth:`installation`."""
        return raised(self.spec, self.installation())

    def intend(self, row: Row, data: Mapping[str, Any], subject: str = "") -> Mapping[str, Any]:
        """Write the intent of an act; returns what the row holds: the first intent, while one is in effect."""
        return self.journal.intend(self.claim, self.named(row_of(row, subject)), data).data

    def finish(
        self, row: Row, data: Mapping[str, Any], subject: str = "", state: StepState = StepState.DONE
    ) -> Mapping[str, Any]:
        """Write how far an act is; ``data`` is laid over what the row holds, which is returned."""
        self.name_evidence()
        return self.journal.finish(self.claim, self.named(row_of(row, subject)), data, state=state.value).data

    def outrun(self, seen: Record, why: str) -> None:
        """Refuse from now on what is still on its way to the journal, before the migration ends: the epoch rises.

        Raises ``Transient`` where something came through since ``seen`` was read: the end is decided anew then.
        """
        self.claim = self.journal.renew(self.claim, why)
        if self.refresh().steps != seen.steps:
            raise Transient(f"{seen.migration_id} was written to while it was to end")

    def event(self, kind: str, data: Mapping[str, Any], actor: str | None = None) -> None:
        """One event of the audit trail, with the SHA-256 of new evidence; one of a way back says so."""
        way = {"way": "back"} if self.way else {}
        with self._trail:  # controllers that are told side by side speak at the same time
            named = {"evidence": dict(self.unnamed)} if self.unnamed else {}
            self.journal.event(self.claim, kind, actor or self.actor, {**data, **way, **named})
            self.unnamed.clear()
        if self.meter is not None:
            self.meter.event(kind, data)

    def name_evidence(self) -> None:
        """Name in the audit trail what was written since the last event."""
        if self.unnamed:
            self.event("evidence", {})

    def name_charts(self) -> None:
        """Name in the next event what waits in the triggerer have kept for charts: they write without the trail."""
        from topicshift.core.proof.bundle import named_evidence

        migration, evidence = self.row.migration_id, self.ports.evidence
        charts = [name for name in evidence.names(migration) if is_chart(name)]
        named = named_evidence(self.journal.events(migration)) if charts else {}
        for name in charts:
            data = evidence.read(migration, name)
            if data is not None and hashlib.sha256(data).hexdigest() != named.get(name, ("", 0))[0]:
                self._name(name, data)

    def named(self, step: str) -> str:
        """The journal name of a row, on the way that is under way."""
        return named_on(self.way, step)

    def file(self, name: str) -> str:
        """The name of an evidence file, on the way that is under way: a way back overwrites nothing."""
        return file_on(self.way, name)

    @contextmanager
    def recorded(self, who: str) -> Iterator[None]:
        """What fails inside is in the audit trail as a failed step of ``who``: a task, or a command.

        That somebody goes on after a failure is there as well: until then status says that nobody does.
        """
        try:
            self._goes_on(who)
            yield
        except OwnershipLost:
            raise
        except TopicshiftError as error:
            self.failed(who, error)
            raise

    def _goes_on(self, who: str) -> None:
        last = self.journal.events(self.row.migration_id, BROKEN_OFF | {WENT_ON})
        if last and last[-1].kind != WENT_ON and self.row.state == MigrationState.OPEN:
            self.event(WENT_ON, {"task": who})

    def failed(self, who: str, error: Exception) -> None:
        """Write a failed step to the audit trail, without hiding the failure if that fails as well."""
        said = {"task": who, "error": type(error).__name__, "message": str(error)[:2000]}
        try:
            self.refresh()
            self.event("step_failed", said)
        except Exception as other:  # noqa: BLE001 - the step's own error is the one that must be seen
            self.log(f"the failure could not be written to the audit trail: {other}")

    # ----------------------------------------------------------------------------------------------- evidence

    def write(self, name: str, data: str | bytes) -> str:
        """Write one evidence file of the way that is under way; returns its URL."""
        return self.keep(self.file(name), data)

    def keep(self, name: str, data: str | bytes) -> str:
        """Write one evidence file of this very name, whose SHA-256 the next event carries; returns its URL."""
        url = self.ports.evidence.write(self.row.migration_id, name, data)
        self._name(name, data.encode() if isinstance(data, str) else data)
        return url

    def _name(self, name: str, data: bytes) -> None:
        self.unnamed[name] = hashlib.sha256(data).hexdigest()

    def read(self, name: str) -> bytes:
        """One evidence file that must be there. Raises ``Refused`` naming it."""
        name = self.file(name)
        data = self.ports.evidence.read(self.row.migration_id, name)
        if data is None:
            where = self.ports.evidence.url(self.row.migration_id, name)
            raise Refused(
                f"Evidence {name} of {self.row.migration_id} is missing ({where}), so the step that needs it is "
                "refused. Run the step that writes it again; in a terminal, set TOPICSHIFT_EVIDENCE as Airflow's "
                "workers have it."
            )
        return data

    def read_result(self, name: str) -> bytes:
        """What a Spark job found, to be acted on: the next event names it as it was read. Raises as :meth:`read`."""
        data = self.read(name)
        self._name(self.file(name), data)
        return data

    # ------------------------------------------------------------------------------------------- participants

    @cached_property
    def producers(self) -> list[Participant]:
        """The declared producers."""
        return producers_of(self.spec)

    @cached_property
    def consumers(self) -> list[Participant]:
        """The declared consumers."""
        return consumers_of(self.spec)

    def consumer(self, group: str) -> Participant:
        """The declared consumer of a group. Raises ``Refused`` where there is none (any more)."""
        for consumer in self.consumers:
            if consumer.group == group:
                return consumer
        raise Refused(f"The spec declares no consumer of group {group!r} (any more).")

    def controller(self, kind: str) -> Controller:
        """The controller of a kind; made once. Raises ``SpecError`` for an unknown kind."""
        if kind not in self.controllers:
            self.controllers[kind] = self._make_controller(kind)
        return self.controllers[kind]

    def _make_controller(self, kind: str) -> Controller:
        if self.spec.mode is not Mode.REHEARSE:
            return self.ports.make_controller(kind, self.admin)
        if self.ports.make_shadow_controller is None:
            raise Refused("A rehearsal goes on in another task, or with: topicshift advance.")
        return self.ports.make_shadow_controller(kind, self.admin, self.ports.rehearser)

    def end(self, state: MigrationState) -> None:
        """The migration ends in this state: its topics are free. A rehearsal's shadow is gone by then."""
        from topicshift.acts.rehearse import remove_shadow

        remove_shadow(self)
        self.journal.set_state(self.claim, state.value, active=False)

    def report(self) -> str:
        """Draw ``report.html`` anew; returns its URL, empty where it could not be drawn.

        It is for people and proves nothing, and comes when all else is done: what fails is logged, and ends nothing.
        """
        draw, migration = self.ports.report, self.row.migration_id
        if draw is None:
            return ""
        try:
            self.reported = draw(self.journal, self.ports.evidence, migration, self.keep)
            self.name_charts()
            self.name_evidence()
        except Exception as error:  # noqa: BLE001 - see above
            self.log(f"report.html of {migration} could not be drawn: {type(error).__name__}: {error}")
        return self.reported

    def control(self, lease_until: datetime | None = None) -> ControlContext:
        """The context for a controller's act; ``lease_until`` ends a pause."""
        row, known = self.row, self.memory.record
        side = known.producers_on if known is not None else None
        producers_on = {"source": row.source, "target": row.target, None: None}[side]
        return ControlContext(
            row.migration_id,
            row.source,
            row.target,
            self.claim.epoch,
            lease_until,
            producers_on,
            self.check_seat,
            self._heard,
            self._told,
            self.held.source if self.way and self.held is not None else None,
        )

    def _told(self, name: str) -> list[Mapping[str, Any]]:
        trail = self.journal.events(self.row.migration_id, ("participant",))
        return [e.data for e in trail if e.data.get("name") == name]

    def _heard(self, name: str, data: Mapping[str, Any]) -> None:
        self.event("participant", {"name": name, **data})
        self.log(f"{name}: " + ", ".join(f"{k} {v}" for k, v in data.items()))

    def manual(self, participant: Participant) -> bool:
        """Whether a person moves it."""
        return self.controller(participant.kind).needs_person

    def driven(self, participants: Sequence[Participant]) -> list[Participant]:
        """Those that a controller moves."""
        return [p for p in participants if not self.manual(p)]

    def leased(self, participant: Participant) -> bool:
        """Whether its pause ends by itself."""
        return bool(getattr(self.controller(participant.kind), "leased", False))

    def by_kind(self, participants: Sequence[Participant]) -> list[tuple[Controller, list[Participant]]]:
        """Participants by controller."""
        kinds: dict[str, list[Participant]] = {}
        for p in participants:
            kinds.setdefault(p.kind, []).append(p)
        return [(self.controller(kind), members) for kind, members in kinds.items()]

    def ask_all(self, calls: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
        """The answer to each of these independent questions, asked side by side; the first error is raised."""
        answers = self.ports.executor.gather(calls)
        for answer in answers.values():
            if isinstance(answer, TopicshiftError):
                raise answer
        return answers

    def observe(self, participants: Sequence[Participant]) -> list[ParticipantState]:
        """What every controller sees, one state for each participant asked, in the order asked."""
        calls = {
            members[0].kind: partial(controller.observe, self.control(), members)
            for controller, members in self.by_kind(participants)
        }
        seen = self.ask_all(calls).values()
        found = {(s.participant.role, s.participant.name): s for states in seen for s in states}
        return [
            found.get((p.role, p.name))
            or ParticipantState(p, "unknown", None, reason=f"its controller ({p.kind}) gave no answer for {p.name}")
            for p in participants
        ]

    # ----------------------------------------------------------------------------------------------- the seat

    def check_seat(self) -> None:
        """Call it just before each effect: an advancer that was stalled sends nothing on an old intent.

        Raises ``Transient`` where the time of the seat is over, and where the look that the act rests on is as old.
        """
        if self.rests_on is not None and self.clock.now() - self.rests_on >= timedelta(seconds=SEAT_S):
            raise Transient(
                f"the look that this act rests on began {SEAT_S:g} s ago or more: {self.row.source} may have been "
                "written to since"
            )
        if self.seat is not None and self.clock.now() >= datetime.fromisoformat(self.seat.until):
            raise Transient(
                f"This process was held up for longer than an act may take ({SEAT_S:g} s), so {self.seat.act} is not "
                "carried on. It looks again."
            )

    def close(self) -> None:
        """Let the controllers go."""
        for controller in self.controllers.values():
            controller.close()
