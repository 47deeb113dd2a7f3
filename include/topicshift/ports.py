"""The ports: what the steps need of the world, as Protocols over plain values.

Real adapters live in :mod:`topicshift.adapters`, fakes in :mod:`topicshift.testing.fakes`; a shared contract test
holds each fake against the real thing. Methods raise the errors of :mod:`topicshift.core.errors`:
``Unreadable``/``Transient``/``AccessDenied`` when the world cannot be read, never an empty answer instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol, runtime_checkable

from topicshift.core.drain.decision import Tail, TailRange
from topicshift.core.drain.discovery import GroupListing
from topicshift.core.drain.replay import KeySeen, ReplayOrder
from topicshift.core.drain.strays import NamedRecord, Replayed
from topicshift.core.engine.view import View
from topicshift.core.errors import TopicshiftError
from topicshift.core.flink.job import Checkpoints
from topicshift.core.kafka.cluster import (
    Acl,
    ActiveProducer,
    Broker,
    ClusterInfo,
    ConfigEntry,
    GroupCommits,
    GroupInfo,
    GroupMember,
    PartitionOffsets,
    TopicInfo,
    Transaction,
)
from topicshift.core.kafka.mirror import Flow
from topicshift.core.route.judge import Follower
from topicshift.core.rows import Claim, EventRow, MigrationRow, Seat, StepRow

__all__ = [
    "Acl",
    "ActiveProducer",
    "Broker",
    "Claim",
    "Clock",
    "ClusterAdmin",
    "ClusterInfo",
    "ConfigEntry",
    "ControlContext",
    "Controller",
    "DrainReader",
    "EventRow",
    "EvidenceStore",
    "Executor",
    "Follower",
    "GroupCommits",
    "GroupInfo",
    "GroupMember",
    "InstanceState",
    "Journal",
    "Meter",
    "MigrationRow",
    "Participant",
    "ParticipantState",
    "PartitionOffsets",
    "Seat",
    "StepRow",
    "TellsCheckpoints",
    "TopicInfo",
    "Transaction",
    "Verifier",
]

# --------------------------------------------------------------------------------------------- cluster admin


class ClusterAdmin(Protocol):
    """What the product asks of Kafka. Every call is bounded by the adapter's time-out.

    A call that changes topics, configs or ACLs returns once every live broker shows the change: whoever looks next
    sees it, and no broker serves by the old state. It raises ``Transient`` where one does not show it in time.
    """

    def cluster(self) -> ClusterInfo: ...
    def topic_names(self) -> frozenset[str]: ...
    def topic(self, name: str) -> TopicInfo | None:
        """The topic, or None when the broker says it does not exist. Never creates one."""

    def partition_counts(self, names: Collection[str]) -> dict[str, int | None]:
        """How many partitions each topic has; None where there is no such topic, or this client may not see it."""

    def create_topic(self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> str:
        """Create it and return its topic id. Raises ``Refused`` when it exists."""

    def validate_create(self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> None:
        """Ask whether it would be created, without making it. Raises ``Refused`` with the brokers' reason."""

    def validate_configs(self, name: str, set_: Mapping[str, str]) -> None:
        """Ask whether these configs of a topic would be set, without setting them. Raises ``Refused`` likewise."""

    def delete_topic(self, name: str, topic_id: str | None = None) -> None:
        """Delete the topic; with ``topic_id`` that very one alone, whatever has its name by then.

        Raises ``NotFound`` where there is none, also where another topic has the name.
        """

    def alter_topic_configs(
        self, name: str, *, set_: Mapping[str, str] | None = None, unset: Iterable[str] = ()
    ) -> None: ...
    def acls(self) -> frozenset[Acl]:
        """All ACLs of type TOPIC, GROUP, CLUSTER and TRANSACTIONAL_ID. Raises ``Unreadable`` if it may not see them."""

    def create_acls(self, acls: Iterable[Acl]) -> None: ...
    def delete_acls(self, acls: Iterable[Acl]) -> None:
        """Delete exactly these bindings; those that are not there are passed over."""

    def offsets(
        self, topic: str, partitions: Iterable[int] | None = None, *, ends_alone: bool = False
    ) -> dict[int, PartitionOffsets]:
        """One entry for every partition of the topic as described (or of those asked), read or not.

        With ``ends_alone`` END_U is asked and nothing else: log start and END_C are None. That is one request a
        leader in place of three, for looks that come one after another while producers stand still.
        """

    def groups(self) -> list[GroupInfo]:
        """Every group the broker lists, of every kind, without members."""

    def describe_groups(self, groups: Sequence[str]) -> dict[str, GroupInfo]: ...
    def commits(self, groups: Sequence[str], topic: str, partitions: Sequence[int]) -> dict[str, GroupCommits]: ...
    def committed_topics(self, groups: Sequence[str]) -> dict[str, frozenset[str]]:
        """The topics on which each group has a commit, as far as this client may DESCRIBE them.

        A group that is not there has none; a first commit that is pending in a transaction does not show. Raises
        ``Unreadable`` or ``AccessDenied`` where one group cannot be asked.
        """

    def alter_commits(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Set a group's offsets. Raises ``Refused`` while the group has members."""

    def producers(self, topic: str, partitions: Sequence[int]) -> list[ActiveProducer]: ...
    def transactions(self, topic: str) -> list[Transaction]: ...
    def transactional_ids(self, producer_ids: Collection[int]) -> dict[int, str]:
        """The transactional id of each of these producers that writes in transactions, open at this moment or not."""

    def abort_transaction(self, topic: str, partition: int, producer_id: int, producer_epoch: int) -> None:
        """Write an abort marker for one open transaction. Only ever on a person's word."""

    def close(self) -> None: ...


class Meter(Protocol):
    """Counts what an advancer sees and does, for metrics. It neither waits nor raises."""

    def look(self, view: View) -> None: ...
    def event(self, kind: str, data: Mapping[str, Any]) -> None: ...


class Replayer(Protocol):
    """Writes late records of the source to the target, on a person's order. The only port that writes such records."""

    def keys(self, topic: str, since: Mapping[bytes, int | None], *, timeout_s: float) -> dict[bytes, KeySeen]:
        """What a read_committed reader finds of these keys from a time on (ms since the epoch, None: the beginning).

        A key of which it has nothing is not in the answer. Raises ``Unreadable`` where it did not come to the end of
        every partition in ``timeout_s`` seconds.
        """

    def replay(self, order: ReplayOrder, *, timeout_s: float) -> list[Replayed]:
        """Write these records to the target, all or none, and return where each lies there.

        Key, value, headers and timestamp stay as they are; :data:`topicshift.core.drain.replay.HEADER` is added. Those
        that an earlier try has written are found and not written again, and what that try still holds back never
        appears. Raises ``Unreadable`` where the source has one of them no more, or that cannot be read; ``Transient``
        where it cannot be told whether they were written.
        """

    def close(self) -> None:
        """Let go of the connection."""


@dataclass(frozen=True)
class Sample:
    """What was copied for a rehearsal."""

    records: int
    keys: int


class Rehearser(Protocol):
    """Fills the shadow of a rehearsal. It writes to shadow topics alone, and refuses any other with ``Refused``."""

    def copy(self, source: str, shadow: str, *, most: int, timeout_s: float, keyed: bool = False) -> Sample:
        """Copy the latest records of some keys of the source, in their order and to the same partitions.

        All or none, and once: a try that finds them there returns what it finds. ``most`` bounds the records;
        ``keyed`` leaves out those without a key, which a compacted topic refuses. Raises ``Unreadable`` where the
        source cannot be read in ``timeout_s`` seconds.
        """

    def go_on(self, shadow: str, target: str) -> None:
        """Write one record more of each key of the shadow to the shadow target, where that is empty."""

    def forget(self, groups: Sequence[str]) -> None:
        """Delete these groups of the shadow; those that are not there are passed over."""

    def close(self) -> None:
        """Let go of the connection."""


class DrainReader(Protocol):
    """What a drain certificate is made from. Changes nothing; each call is bounded and blocks no event loop."""

    async def topic(self, name: str) -> tuple[str, int] | None:
        """Topic id and partition count, None when the broker says that there is no such topic. Never creates one."""

    async def offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, PartitionOffsets]:
        """One row for every partition asked, read or not."""

    async def listing(self) -> GroupListing:
        """Every group of every kind, and whether ACLs can be ruled out to have hidden some."""

    async def describe(self, groups: Sequence[str]) -> dict[str, GroupInfo]: ...
    async def commits(
        self, groups: Sequence[str], topic: str, partitions: Iterable[int]
    ) -> dict[str, GroupCommits]: ...
    async def tails(self, topic: str, ranges: Iterable[TailRange], *, timeout_s: float) -> dict[TailRange, Tail]:
        """What a read_committed reader finds in each range; joins no group and commits nothing."""

    async def records(
        self, topic: str, ranges: Iterable[TailRange], *, timeout_s: float, most: int
    ) -> list[NamedRecord]:
        """Readable records of these ranges with their keys, at most ``most`` of them; as :meth:`tails` reads.

        Raises ``Unreadable`` where it did not come to the end of every range in time.
        """

    async def timestamps(self, topic: str, starts: Mapping[int, int]) -> dict[int, int | None]:
        """Timestamp (ms since the epoch) of the first record at or after each offset, None where not known."""

    async def sizes(self, topic: str) -> dict[int, int]:
        """Bytes of each partition's log on its largest replica; partitions of which nothing is known are left out."""

    async def close(self) -> None: ...


# --------------------------------------------------------------------------------------------- participants


@dataclass(frozen=True)
class Participant:
    """An application: ``role`` producer or consumer; ``group`` for consumers; ``settings``: what its kind takes;
    ``stored_offsets``: what the spec says of a consumer that may keep offsets."""

    name: str
    role: Literal["producer", "consumer"]
    kind: str
    group: str | None = None
    principal: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    stored_offsets: str | None = None


@dataclass(frozen=True)
class InstanceState:
    """One process of a participant as its controller sees it.

    ``gone_ms``: once armed, and silent for so long, it counts as gone; None where its kind has no such bound.
    """

    instance: str
    status: str
    topic: str | None
    epoch: int | None
    last_offsets: Mapping[int, int] = field(default_factory=dict)
    seen_at: datetime | None = None
    principal: str | None = None
    gone_ms: int | None = None


@dataclass(frozen=True)
class ParticipantState:
    """What a controller observes. ``status``: running, stopped, unknown. ``reason`` says why, for a person.

    ``topic`` is the topic it is on, None if mixed or not known. Stopped without ``instances``: none of them is alive,
    or waited for. ``armed``: every live instance lives by the rules of an armed route; None where a kind needs none.
    ``clears_at`` is when the silence of its last silent instance counts as its end; None if none is silent, or one is
    unknown until somebody acts.
    """

    participant: Participant
    status: Literal["running", "stopped", "unknown"]
    topic: str | None
    instances: tuple[InstanceState, ...] = ()
    reason: str = ""
    armed: bool | None = None
    clears_at: datetime | None = None

    @property
    def gone_ms(self) -> int | None:
        """How long one dead instance can hold a freeze, ms: the longest of its live instances."""
        return max((i.gone_ms for i in self.instances if i.gone_ms is not None), default=None)


@dataclass(frozen=True)
class ControlContext:
    """The migration on whose behalf a controller acts. ``epoch`` is the journal's; ``lease_until`` ends a pause.

    ``producers_on`` is the topic on which the journal says that producers are, None while it cannot tell. ``still`` is
    called just before each effect: it raises ``Transient`` where the act's time is over, and nothing is sent then.
    ``say`` puts what an act has done or heard into the audit trail: the participant's name, and plain values. ``told``
    gives what was put there of a participant, oldest first: the memory of a controller whose applications have none.
    ``first_source`` is the source as the spec names it, also on a way back, where ``source`` is the target; None where
    the two are the same.
    """

    migration: str
    source: str
    target: str
    epoch: int
    lease_until: datetime | None = None
    producers_on: str | None = None
    still: Callable[[], None] = field(default=lambda: None, compare=False)
    say: Callable[[str, Mapping[str, Any]], None] = field(default=lambda name, data: None, compare=False)
    told: Callable[[str], Sequence[Mapping[str, Any]]] = field(default=lambda name: (), compare=False)
    first_source: str | None = None


@runtime_checkable
class Controller(Protocol):
    """Stops, points, starts and observes participants of one kind. Each act is idempotent and returns at once;
    the caller observes until the wanted state shows. ``needs_person`` is true where a person does the act. ``seeded``:
    its groups are stopped, and offsets committed for them on the target, before they start there; false where the
    applications begin at the log start by themselves."""

    kind: str
    needs_person: bool
    seeded: bool

    def can_i(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[str]:
        """What would keep the acts from working on these participants (rights, reachability, settings), one line each,
        by name. Changes nothing. Raises ``Unreadable`` where it cannot be told."""

    def check(self, ctx: ControlContext) -> list[str]:
        """What is wrong with that by which this kind is moved, in words; reads only. Raises ``Unreadable``."""

    def prepare(self, ctx: ControlContext) -> list[str]:
        """Make and mend what the acts need; what was done, in words. Raises ``Refused`` where it cannot be mended."""

    def followers(self, ctx: ControlContext) -> list[Follower]:
        """Every application that this kind would move or that stands beside it, declared or not."""

    def observe(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[ParticipantState]: ...
    def arm(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Make them ready to be stopped; nothing for a kind that needs none. ``ParticipantState.armed`` shows it."""

    def disarm(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """The inverse of arm, at every ending."""

    def stop(self, ctx: ControlContext, participants: Sequence[Participant]) -> None: ...
    def point(self, ctx: ControlContext, participants: Sequence[Participant], topic: str) -> None: ...
    def start(self, ctx: ControlContext, participants: Sequence[Participant]) -> None: ...
    def close(self) -> None: ...


@runtime_checkable
class TellsCheckpoints(Protocol):
    """A controller of jobs that take checkpoints; one that is not asked for them lacks this."""

    def checkpoints(
        self, ctx: ControlContext, participants: Sequence[Participant]
    ) -> dict[str, Checkpoints | TopicshiftError]:
        """Those of the job that each participant has now, by its name; the error of one that could not be read."""


@runtime_checkable
class Mirroring(Protocol):
    """A controller that can tell what MirrorMaker 2 copies. Both raise ``Unreadable`` where a worker does not tell."""

    def flows(self, connections: Sequence[str]) -> Sequence[Flow]:
        """Every connector of MirrorMaker 2 on the Connect workers that these connections name."""

    def copied(self, participants: Sequence[Participant], topic: str) -> Mapping[str, Mapping[int, int]]:
        """The next offset of the topic to be copied, by the group of each participant, and partition."""


# --------------------------------------------------------------------------------------------- journal


class Journal(Protocol):
    """The memory of the product: locks, steps, events, and the seat. Every write is one transaction."""

    def claim(
        self,
        *,
        cluster_id: str,
        source: str,
        target: str,
        owner: str,
        spec: Mapping[str, Any],
        owner_alive: Callable[[str], bool | None],
    ) -> Claim:
        """Lock source and target for this owner.

        The same owner gets its own claim back (same epoch); one that failed or was rolled back is opened again, unless
        a person closed it. A migration of another owner whose run has ended
        (``owner_alive`` is False) and whose state is not active is given a new migration; an active one that
        is left behind is refused with the owner's name and how to go on. None (cannot be told) counts as alive.
        Raises ``Refused``.
        """

    def take_over(self, migration_id: str, owner: str) -> Claim:
        """A new owner (the rollback run, a resumed run) raises the epoch; the old owner's writes fail from then."""

    def renew(self, claim: Claim, why: str) -> Claim:
        """The same owner goes on with the next epoch; whatever else still acts under the old one is refused from then.

        Raises ``OwnershipLost`` when the claim is not the newest.
        """

    def current(self, migration_id: str) -> MigrationRow: ...
    def find(
        self, *, source: str | None = None, owner: str | None = None, active: bool | None = None
    ) -> list[MigrationRow]: ...
    def set_state(self, claim: Claim, state: str, *, active: bool) -> None: ...
    def set_plan(self, claim: Claim, plan_hash: str) -> None: ...
    def step(self, migration_id: str, step: str) -> StepRow | None: ...
    def steps(self, migration_id: str) -> list[StepRow]: ...
    def intend(self, claim: Claim, step: str, data: Mapping[str, Any]) -> StepRow:
        """Write the intent before the act. For a step intended or done already, its row comes back unchanged.

        Raises ``Refused`` for one that is being taken back.
        """

    def finish(self, claim: Claim, step: str, data: Mapping[str, Any], state: str = "done") -> StepRow:
        """Write how far a step is; ``data`` is laid over what is there. ``undoing`` may become ``intended`` again.

        Raises ``Refused`` for an acting step that was never intended, and for an ``intended`` of one that is done or
        undone.
        """

    def take_seat(
        self,
        claim: Claim,
        act: str,
        subject: str,
        holder: str,
        *,
        lasts_s: float,
        trace: Callable[[], Mapping[str, Any]] | None = None,
    ) -> tuple[Claim, Seat] | None:
        """Become the one who acts, by compare and swap; None while another holder's act is under way.

        What ``trace`` gives is written into the audit trail as an event ``act``, in the same transaction.

        A seat whose time is over is taken over: the epoch rises, so that the late holder's writes are refused, and the
        returned claim carries the new one. The same holder gets its own seat again, for any act. Raises
        ``OwnershipLost`` when the claim is not the newest.
        """

    def leave_seat(self, seat: Seat) -> None:
        """Give the seat free; nothing happens where somebody else has it by now."""

    def seat(self, migration_id: str) -> Seat | None:
        """The act that is under way, None when nobody acts."""

    def event(self, claim: Claim, kind: str, actor: str, data: Mapping[str, Any]) -> EventRow: ...
    def events(self, migration_id: str, kinds: Collection[str] = ()) -> list[EventRow]:
        """The audit trail in the order of its rows; of these kinds alone, where some are named."""

    def close(self) -> None: ...


class EvidenceStore(Protocol):
    """Files of a migration under one folder of an object store. Writes are atomic; names are flat."""

    def write(self, migration_id: str, name: str, data: bytes | str) -> str:
        """Write and return the URL."""

    def read(self, migration_id: str, name: str) -> bytes | None: ...
    def names(self, migration_id: str) -> list[str]: ...
    def url(self, migration_id: str, name: str) -> str: ...


class Verifier(Protocol):
    """The armed drain verification of one migration: a Spark driver that was started before the fence and waits."""

    def state(self) -> tuple[Literal["absent", "starting", "ready", "gone"], str]:
        """Where it is, and why, in words. ``gone``: it has ended, or its heartbeat is too old."""

    def request(self, subject: str, certificate: bytes) -> None:
        """Ask for one certificate to be verified by reading. Idempotent."""

    def answer(self, subject: str) -> Mapping[str, Any] | None:
        """The latest answer for this subject, with ``question`` (SHA-256 of the certificate) and ``verdict``."""

    def release(self) -> None:
        """It has answered everything and may end."""

    def abort(self) -> None:
        """Call it off: the run does not go on."""


class Executor(Protocol):
    """Runs independent calls side by side; one of them may gather calls of its own."""

    def gather(self, calls: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
        """The result of each call, or the ``TopicshiftError`` that it raised, as a value. Other errors are raised."""

    def run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """The result of a coroutine, from plain code."""


class Clock(Protocol):
    """Time, so that decisions can be tested with plain values."""

    def now(self) -> datetime: ...
    def sleep(self, seconds: float) -> None: ...
