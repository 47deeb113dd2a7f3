"""`drained` is only ever answered when an independent reader of the same log finds nothing left."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from topicshift.core.drain.certificate import Verdict
from topicshift.core.drain.decision import GroupView, Snapshot, Tail, TailRange, certify, in_doubt
from topicshift.core.drain.reasons import Reason
from topicshift.core.kafka.cluster import PartitionOffsets

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Log:
    """One partition as a broker keeps it: entries by offset, transactions, log start. Nothing here is the product's."""

    entries: list[tuple[str, int | None]] = field(default_factory=list)
    open_since: dict[int, int] = field(default_factory=dict)
    outcome: dict[tuple[int, int], bool] = field(default_factory=dict)
    owner: dict[int, tuple[int, int]] = field(default_factory=dict)
    start: int = 0
    committed: int | None = None
    pending: bool = False

    @property
    def end(self) -> int:
        return len(self.entries)

    @property
    def stable(self) -> int:
        return max(self.start, min(self.open_since.values(), default=self.end))

    def apply(self, op: tuple[str, int]) -> None:
        kind, n = op
        txn = n % 3
        if kind == "record":
            self.entries.append(("record", None))
        elif kind == "txn":
            first = self.open_since.setdefault(txn, self.end)
            self.owner[self.end] = (txn, first)
            self.entries.append(("record", txn))
        elif kind in ("commit_txn", "abort_txn") and txn in self.open_since:
            self.outcome[(txn, self.open_since.pop(txn))] = kind == "commit_txn"
            self.entries.append(("marker", txn))
        elif kind == "compact" and self.stable > self.start + 1:
            at = self.start + n % (self.stable - self.start - 1)
            if self.entries[at][0] == "record":
                self.entries[at] = ("hole", None)
        elif kind == "truncate":
            self.start = min(self.stable, self.start + n)
        elif kind == "group":
            self.committed = n % (self.end + 1)
        elif kind == "catch_up":
            self.committed = self.end
        elif kind == "pending":
            self.pending = True

    def visible(self, offset: int) -> bool:
        """Whether a read_committed consumer is, or may still be, given the record at this offset."""
        kind, _ = self.entries[offset]
        if kind != "record":
            return False
        return offset not in self.owner or self.outcome.get(self.owner[offset], True)

    def unread(self) -> list[int]:
        """What an independent reader that starts where the group stands would still be given, now or later."""
        at = self.start if self.committed is None else max(self.committed, self.start)
        return [o for o in range(at, self.end) if self.visible(o)]

    def lost(self) -> bool:
        """Whether something below the log start may never have been read."""
        return self.start > 0 if self.committed is None else self.committed < self.start

    def tail(self, r: TailRange) -> Tail:
        assert r.start >= self.start and r.end <= self.stable, "a reader would be out of range"
        found = sum(self.visible(o) for o in range(r.start, r.end))
        return Tail(found=found > 0, complete=True, records=found)


KINDS = "record record txn txn commit_txn abort_txn abort_txn compact truncate group catch_up pending"
OPS = st.lists(
    st.tuples(
        st.sampled_from(KINDS.split()),
        st.integers(0, 40),
    ),
    max_size=40,
)
FAULTS = st.sampled_from(
    ["none"] * 6
    + ["no_partition", "partition_error", "no_end", "no_stable", "no_start", "no_commit", "commit_error", "group_error"]
    + ["tails_fail", "tails_unfinished", "no_tails", "remade", "fence_hole", "grew", "filtered", "undeclared", "beyond"]
)


def snapshot(logs: list[Log], fenced: bool) -> Snapshot:
    offsets = {p: PartitionOffsets(log.start, log.stable, log.end) for p, log in enumerate(logs)}
    group = GroupView(
        "g",
        committed={p: log.committed for p, log in enumerate(logs)},
        unstable=frozenset(p for p, log in enumerate(logs) if log.pending),
    )
    return Snapshot(
        topic="t",
        topic_id="id",
        partitions=len(logs),
        offsets=offsets,
        groups=[group],
        taken_at=NOW,
        fence={p: log.end for p, log in enumerate(logs)} if fenced else None,
        fence_topic_id="id" if fenced else None,
    )


def with_tails(snap: Snapshot, logs: list[Log]) -> Snapshot:
    return replace(snap, tails={d.range: logs[d.partition].tail(d.range) for d in in_doubt(snap)})


def broken(snap: Snapshot, fault: str, p: int) -> Snapshot:
    """The same snapshot with one thing unknown or untrue about partition ``p``."""
    seen, group = snap.offsets[p], snap.groups[0]
    without = {q: v for q, v in snap.offsets.items() if q != p}
    if fault == "no_partition":
        return replace(snap, offsets=without)
    if fault == "partition_error":
        return replace(snap, offsets={**without, p: replace(seen, error="LEADER_NOT_AVAILABLE")})
    if fault in ("no_end", "no_stable", "no_start"):
        name = {"no_end": "end", "no_stable": "end_committed", "no_start": "log_start"}[fault]
        return replace(snap, offsets={**without, p: replace(seen, **{name: None})})
    if fault == "no_commit":
        return replace(snap, groups=[replace(group, committed={q: c for q, c in group.committed.items() if q != p})])
    if fault == "commit_error":
        return replace(snap, groups=[replace(group, errors={p: "NOT_COORDINATOR"})])
    if fault == "group_error":
        return replace(snap, groups=[replace(group, error="GROUP_AUTHORIZATION_FAILED")])
    if fault == "tails_fail":
        return replace(snap, tails={r: Tail(False, False, None, "denied") for r in snap.tails})
    if fault == "tails_unfinished":
        return replace(snap, tails={r: Tail(False, False) for r in snap.tails})
    if fault == "no_tails":
        return replace(snap, tails={})
    if fault == "remade":
        return replace(snap, topic_id="another", fence_topic_id="id")
    if fault == "fence_hole":
        ends = {q: o.end or 0 for q, o in without.items()}
        return replace(snap, fence=ends)
    if fault == "grew":
        ends = {q: o.end or 0 for q, o in snap.offsets.items()}
        return replace(snap, fence=ends, offsets={**without, p: replace(seen, end=ends[p] + 1)})
    if fault == "filtered":
        return replace(snap, listing_complete=False)
    if fault == "undeclared":
        return replace(snap, undeclared=frozenset({"other"}))
    if fault == "beyond":
        return replace(snap, groups=[replace(group, committed={**group.committed, p: (seen.end or 0) + 1})])
    return snap


@settings(max_examples=600, deadline=None)
@given(st.lists(OPS, min_size=1, max_size=3), st.booleans(), FAULTS, st.integers(0, 2))
def test_drained_only_when_an_independent_reader_finds_nothing(
    ops: list[list[tuple[str, int]]], fenced: bool, fault: str, where: int
) -> None:
    logs = []
    for partition_ops in ops:
        log = Log()
        for op in partition_ops:
            log.apply(op)
        logs.append(log)
    whole = with_tails(snapshot(logs, fenced), logs)
    snap = broken(whole, fault, where % len(logs))
    certificate = certify(snap)
    rows = certificate.groups[0].partitions
    assert [r.partition for r in rows] == list(range(len(logs))), "every partition has a row, whatever was read"
    for row, log in zip(rows, logs, strict=True):
        if row.verdict is Verdict.DRAINED:
            assert log.unread() == []
            assert not log.lost()
            assert not log.open_since
            assert not log.pending
    all_read = all(not (o.unread() or o.lost() or o.open_since or o.pending) for o in logs)
    if certificate.verdict is Verdict.DRAINED:
        assert all_read
        # A tail that nobody had to read cannot fail; every other fault must show.
        assert fault == "none" or (fault.startswith(("tails", "no_tails")) and not whole.tails)
    if fault == "none":
        # And it is not a "no" for everything: whoever has read all of it is told so.
        assert (certificate.verdict is Verdict.DRAINED) == all_read


@settings(max_examples=200, deadline=None)
@given(OPS)
def test_a_loss_counts_only_when_it_was_accepted_by_name(ops: list[tuple[str, int]]) -> None:
    log = Log()
    for op in ops:
        log.apply(op)
    snap = with_tails(snapshot([log], fenced=True), [log])
    plain = certify(snap).groups[0].partitions[0]
    other = certify(replace(snap, accepted_lost=frozenset({"other"}))).groups[0].partitions[0]
    accepted = certify(replace(snap, accepted_lost=frozenset({"g"}))).groups[0].partitions[0]
    assert other == plain
    if plain.reason in (Reason.LOST_UNREAD, Reason.NEVER_COMMITTED_EXPIRED):
        assert (plain.verdict, accepted.reason) == (Verdict.NOT_DRAINED, Reason.LOST_ACCEPTED)
        assert log.lost() and not log.unread()
    else:
        assert accepted == plain, "acceptance of a loss never covers anything else"


@settings(max_examples=100, deadline=None)
@given(st.lists(OPS, min_size=1, max_size=3), st.integers(0, 30))
def test_ranges_in_doubt_lie_where_a_reader_can_read(ops: list[list[tuple[str, int]]], committed: int) -> None:
    logs = []
    for partition_ops in ops:
        log = Log()
        for op in partition_ops:
            log.apply(op)
        logs.append(log)
    snap = snapshot(logs, fenced=True)
    one = GroupView("h", committed={p: min(committed, log.end) for p, log in enumerate(logs)})
    snap = replace(snap, groups=[*snap.groups, one])
    for doubt in in_doubt(snap):
        assert doubt.start < doubt.end
        assert logs[doubt.partition].start <= doubt.start
        assert doubt.end <= logs[doubt.partition].stable
