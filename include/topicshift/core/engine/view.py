"""What a decision is made from: the journal's rows, the world as it was just observed, and the answers of people.

A fact that was not asked, or that could not be read, is an :class:`Unknown` with its reason. There are no defaults:
a rule that needs an unknown fact waits, and says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final, Literal

from topicshift.core.engine.freeze import Freeze
from topicshift.core.engine.go import Forecast
from topicshift.core.engine.words import Ask, MigrationState, Row, StepState, row_of
from topicshift.core.policy.who import Who
from topicshift.core.spec.cutover import Cutover
from topicshift.core.spec.windows import Opening, Schedule


@dataclass(frozen=True)
class Unknown:
    """A fact that is not known, with the reason in words."""

    why: str


UNASKED: Final = Unknown("it was not asked")


# ------------------------------------------------------------------------------------------------ the journal


@dataclass(frozen=True)
class Member:
    """A declared participant. ``group`` is empty for a producer; ``manual``: a person moves it; ``seeded``: its group
    is stopped and gets offsets on the target before it starts there; ``after``: groups that are switched before its."""

    name: str
    group: str = ""
    manual: bool = False
    seeded: bool = False
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class Policy:
    """What the spec wants of this migration. ``required``: questions that a person must answer.

    ``window``: when a freeze may begin; None at any time.
    """

    cutover: Cutover
    producers: tuple[Member, ...]
    consumers: tuple[Member, ...]
    required: frozenset[Ask]
    freeze_budget: timedelta
    who: Mapping[Ask, Who] = field(default_factory=dict)
    """Who may answer, for questions that not everybody may answer alone."""
    window: Schedule | None = None
    rehearsal: bool = False
    """Source, target and groups are the shadow's."""

    def opening(self, now: datetime) -> Opening | None:
        """The opening of the window that is open, or the next one; None without a window."""
        return None if self.window is None else self.window.opening(self.freeze_budget, now)

    @property
    def drain_first(self) -> bool:
        """Whether producers wait until every group has drained the source."""
        return self.cutover is Cutover.DRAIN_FIRST

    @property
    def groups(self) -> tuple[str, ...]:
        """The declared consumer groups."""
        return tuple(c.group for c in self.consumers)

    @property
    def certificates(self) -> tuple[str, ...]:
        """Subjects of the drain certificates: one for all groups (empty), or one for each group."""
        return ("",) if self.drain_first else self.groups


@dataclass(frozen=True)
class StepRecord:
    """One journal row."""

    state: StepState
    data: Mapping[str, Any] = field(default_factory=dict)
    finished_at: str | None = None


@dataclass(frozen=True)
class Record:
    """A migration as its journal has it. ``way``: on a way back, with source and target
    exchanged, what stands before the names of its rows."""

    migration_id: str
    source: str
    target: str
    state: MigrationState
    active: bool
    plan_hash: str | None
    policy: Policy
    steps: Mapping[str, StepRecord] = field(default_factory=dict)
    epoch: int = 0
    way: str = ""

    def step(self, row: Row, subject: str = "") -> StepRecord | None:
        """The row, None where it was never written."""
        return self.steps.get(row_of(row, subject))

    def at(self, row: Row, subject: str = "") -> StepState | None:
        """State of the row, None where it was never written."""
        found = self.steps.get(row_of(row, subject))
        return None if found is None else found.state

    def done(self, row: Row, subject: str = "") -> bool:
        """Whether the row is done."""
        return self.at(row, subject) is StepState.DONE

    def begun(self, row: Row, subject: str = "") -> bool:
        """Whether the row is intended or done: the forward act has begun and was not taken back."""
        return self.at(row, subject) in (StepState.INTENDED, StepState.DONE)

    def in_effect(self, row: Row, subject: str = "") -> bool:
        """Whether something of the row may be in effect."""
        state = self.at(row, subject)
        return state is not None and state.in_effect

    @property
    def mirrored(self) -> bool:
        """Whether this is a way back: what it calls the source is the target of the migration."""
        return bool(self.way)

    @cached_property
    def in_play(self) -> dict[str, tuple[list[Any], tuple[list[Any], frozenset[Any]]]]:
        """By table: its rules; those that are in play for this record, and what they need. Empty until asked."""
        return {}

    @cached_property
    def freeze(self) -> Freeze | None:
        """The freeze that runs (also one in which producers are being resumed), None without one."""
        row = self.step(Row.FREEZE)
        running = row is not None and row.state in (StepState.INTENDED, StepState.UNDOING)
        return Freeze.from_data(row.data) if row is not None and running else None

    @property
    def released(self) -> tuple[str, ...]:
        """Groups that were released to the target, or are about to be."""
        return tuple(g for g in self.policy.groups if self.in_effect(Row.SWITCH_GROUP, g))

    @property
    def producers_on(self) -> Literal["source", "target"] | None:
        """Where producers are by the journal, or are on their way back to; None while they are being switched."""
        if not self.in_effect(Row.SWITCH_PRODUCERS) or self.at(Row.ROLLBACK) is StepState.INTENDED:
            return "source"
        return "target" if self.done(Row.SWITCH_PRODUCERS) else None

    @property
    def certificates(self) -> tuple[str, ...]:
        """Subjects of the certificates that license the next release: one a group once the source was fenced anew."""
        return self.policy.groups if self.in_effect(Row.FENCE_AGAIN) else self.policy.certificates

    @property
    def postponed_until(self) -> datetime | None:
        """The moment before which no freeze begins, None where there is none."""
        row = self.step(Row.POSTPONE)
        if row is None or row.state is not StepState.INTENDED:
            return None
        return datetime.fromisoformat(str(row.data["until"]))

    @property
    def over(self) -> bool:
        """Whether the migration has ended and nothing of it is left to do but its retirement."""
        return self.state is not MigrationState.OPEN and not self.active


# -------------------------------------------------------------------------------------------------- the world

Side = Literal["source", "target"]


@dataclass(frozen=True)
class Whereabouts:
    """A participant as its controller sees it. ``side`` is None where it is on both topics, neither, or not known.

    ``absent``: none of its instances is alive, so nobody is there to wait for; ``side`` is where one that starts now
    would go on at once.
    """

    status: Literal["running", "stopped", "unknown"]
    side: Side | None = None
    armed: bool | None = None
    reason: str = ""
    absent: bool = False

    def runs_on(self, side: Side) -> bool:
        """Whether it runs there, wholly."""
        return self.status == "running" and self.side == side


@dataclass(frozen=True)
class PlanFact:
    """The plan as the world is now: its hash, and what blocks it, one line a finding."""

    plan_hash: str
    blocking: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()


@dataclass(frozen=True)
class TargetFact:
    """The target against the plan. ``wrong``: differences that cannot be mended, in words; ``used``: the sum of END_U.

    ``missing_acls`` are bindings of the plan that are not in force; none are missed of another topic of its name.
    ``late_denies`` are in force although this migration had lifted them: a request was late with them.
    """

    exists: bool
    wrong: str = ""
    used: int | None = None
    missing_acls: tuple[str, ...] = ()
    same: bool = True
    late_denies: tuple[str, ...] = ()


@dataclass(frozen=True)
class FenceFact:
    """The ends of the source against its fence. ``broken`` names every difference; empty while the fence holds.

    ``grown``: it is broken by records that came, and by nothing else.
    """

    broken: str = ""
    grown: bool = False


@dataclass(frozen=True)
class ProofFact:
    """The samples of the source so far: whether they prove the fence, else what is waited for, in words.

    ``until`` is the moment (ISO 8601) from which one more equal sample proves it, if known.
    """

    proven: bool
    waits: str = ""
    broken: bool = False
    open_transactions: int = 0
    until: str = ""


@dataclass(frozen=True)
class DenyFact:
    """DENY bindings of this migration that should be in force and are not, in words."""

    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class GroupFact:
    """A consumer group. ``members`` (live ones) and ``unseeded`` (partitions of the target without a commit, on a way
    back also those with a lower one than the certificate's) are None where they were not counted. ``beyond``: commits
    on the target beyond its log start, in words.
    """

    where: Whereabouts
    members: int | None = None
    unseeded: int | None = None
    beyond: str = ""


@dataclass(frozen=True)
class DrainFact:
    """What a certificate for these groups would say now. ``substance`` is a hash of what it says, without its time.

    ``forgotten``: nothing is in its way but commits that are not there (any more), of groups without members.
    """

    verdict: Literal["drained", "not_drained", "unknown"]
    substance: str = ""
    text: str = ""
    forgotten: bool = False


@dataclass(frozen=True)
class VerifierFact:
    """The armed verifier. ``answers`` maps a certificate's substance to the verdict on it.

    ``gone``: it has ended, or its heartbeat is too old.
    """

    state: Literal["absent", "starting", "ready", "gone"]
    answers: Mapping[str, str] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True)
class TransactionsFact:
    """Open transactions on the source: until when those that stand still are waited for, and the keys that hang."""

    standing_until: datetime | None = None
    hanging: tuple[str, ...] = ()


@dataclass(frozen=True)
class GateFact:
    """What keeps the gate shut, in words. ``too_late``: the time in which a freeze may begin is over.

    ``forecast``: what the freeze would take now. ``denied``: principals that would be denied to write.
    """

    waits: tuple[str, ...] = ()
    too_late: bool = False
    forecast: Forecast | None = None
    denied: tuple[str, ...] | Unknown = ()


@dataclass(frozen=True)
class JobFact:
    """A Spark job of this migration by its result: ``verdict`` None where there is none (yet)."""

    verdict: str | None
    text: str = ""


@dataclass(frozen=True)
class SourceFact:
    """The source before its retirement: whether it exists, and what speaks against its deletion, one line a finding.

    ``waits``: nothing but time speaks against it. ``differs``: what is not as it was planned, as the end of a sentence.
    ``later``: a later migration that holds one of both topics or has moved it on, in words.
    """

    exists: bool
    against: tuple[str, ...] = ()
    waits: bool = False
    same: bool = True
    differs: str = ""
    later: str = ""


@dataclass(frozen=True)
class PolicyFact:
    """What the installation policy does not let this migration do, one line a finding."""

    against: tuple[str, ...] = ()


# ----------------------------------------------------------------------------------------------------- the view


@dataclass(frozen=True)
class Answer:
    """The answer to a question as it would be asked now: ``said`` None while it is open, or was never asked."""

    said: Literal["yes", "no", "silence"] | None
    asked: bool = False
    by: str = ""


def key_of(act: str, subject: str) -> str:
    """What an act is remembered by."""
    return f"{act}:{subject}" if subject else act


@dataclass(frozen=True)
class View:
    """All that is known at one moment.

    ``answers`` has an entry for every question that a rule may look at now, for exactly what it would be about now.
    ``wanted``: what the advancer was told to do instead of going forward. ``focus``: a consumer group, to leave the
    others alone. ``told``: seconds since this advancer last performed an act (``act`` or ``act:subject``),
    ``times``: how often in a row.
    ``began_at``: when this advancer began.
    """

    record: Record
    now: datetime
    began_at: datetime
    wanted: Literal["forward", "resume", "rollback", "retire", "cancel_retirement"] = "forward"
    focus: str | None = None
    answers: Mapping[str, Answer] = field(default_factory=dict)
    told: Mapping[str, float] = field(default_factory=dict)
    times: Mapping[str, int] = field(default_factory=dict)
    plan: PlanFact | Unknown = UNASKED
    impact: JobFact | Unknown = UNASKED
    target: TargetFact | Unknown = UNASKED
    producers: Mapping[str, Whereabouts] | Unknown = UNASKED
    groups: Mapping[str, GroupFact | Unknown] = field(default_factory=dict)
    fence: FenceFact | Unknown = UNASKED
    proof: ProofFact | Unknown = UNASKED
    still: ProofFact | Unknown = UNASKED
    deny: DenyFact | Unknown = UNASKED
    drain: Mapping[str, DrainFact | Unknown] = field(default_factory=dict)
    verifier: VerifierFact | Unknown = UNASKED
    transactions: TransactionsFact | Unknown = UNASKED
    gate: GateFact | Unknown = UNASKED
    retention_at_risk: bool | Unknown = UNASKED
    order_proof: JobFact | Unknown = UNASKED
    source: SourceFact | Unknown = UNASKED
    policy: PolicyFact | Unknown = UNASKED

    def answer(self, ask: Ask, subject: str = "") -> Answer:
        """The answer to this question; open where it was never asked."""
        return self.answers.get(f"{ask.value}:{subject}" if subject else ask.value, Answer(None))

    def age(self, act: str, subject: str = "") -> float | None:
        """Seconds since this advancer last performed the act, None if it never did."""
        return self.told.get(key_of(act, subject))
