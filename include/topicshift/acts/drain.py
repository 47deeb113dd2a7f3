"""Take a drain certificate: the same code behind the command line, the trigger and the DAG's step.

Everything here only reads. Commits are asked before end offsets, so that a group that keeps up with live producers is
never seen beyond the end, and a commit that has reached an end read later has reached it in truth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from topicshift.acts.drain_inputs import DrainConfig, DrainInputs
from topicshift.core.drain.certificate import DrainCertificate, Verdict
from topicshift.core.drain.decision import (
    Doubt,
    GroupView,
    Snapshot,
    Tail,
    TailRange,
    certify,
    in_doubt,
    lost_now,
    with_moves,
)
from topicshift.core.drain.discovery import Discovery, GroupListing, discover, moved
from topicshift.core.drain.evidence import ReaderEvidence, as_group
from topicshift.core.drain.reasons import Reason
from topicshift.core.errors import TopicshiftError, Unreadable
from topicshift.core.fence.point import FencePoint
from topicshift.core.kafka.cluster import GroupCommits, GroupInfo, PartitionOffsets
from topicshift.ports import DrainReader


@dataclass
class _World:
    """What was seen last, so that a watch asks again only for what can have changed."""

    topic_id: str | None = None
    partitions: int = 0
    listing: GroupListing | None = None
    described: dict[str, GroupInfo] = field(default_factory=dict)
    commits: dict[str, GroupCommits] = field(default_factory=dict)
    moved: dict[str, frozenset[int]] = field(default_factory=dict)
    offsets: dict[int, PartitionOffsets] = field(default_factory=dict)
    evidence: tuple[ReaderEvidence, ...] = ()
    known_lost: frozenset[tuple[str, int]] = frozenset()


class DrainTaker:
    """Takes certificates of one topic from one reader. Keeps what it saw, for :mod:`topicshift.acts.drain_watch`."""

    def __init__(
        self,
        reader: DrainReader,
        inputs: DrainInputs,
        *,
        fence: FencePoint | None = None,
        config: DrainConfig | None = None,
        now: Callable[[], datetime] | None = None,
        issued_by: str | None = None,
    ) -> None:
        self.reader = reader
        self.inputs = inputs
        self.fence = fence
        self.config = config or DrainConfig()
        self.now = now or (lambda: datetime.now(UTC))
        self.issued_by = issued_by
        self.world = _World()
        self.whole = False
        """Whether the last look asked for everything."""
        self._listed_at: datetime | None = None
        self._read_at: datetime | None = None

    # ------------------------------------------------------------------------------------------------- whole look

    async def take(self, *, second_sample: bool = True) -> DrainCertificate:
        """Ask everything, and certify it. A topic that does not exist gives verdict unknown, ``topic_not_found``.

        ``second_sample``: ask groups that are empty and not at the end twice; a watch looks again anyway.
        Raises ``Unreadable`` (or a kind of it) where not even topic and groups can be told.
        """
        w, self.whole = self.world, True
        topic, listing, evidence = await asyncio.gather(
            self.reader.topic(self.inputs.topic), self._listing(), self._evidence()
        )
        w.evidence = evidence
        w.topic_id, w.partitions = topic or (None, 0)
        w.listing = listing
        before = w.commits
        w.described, w.commits, w.moved, w.offsets = {}, {}, {}, {}
        if topic is not None:
            names = self._names()
            parts = range(w.partitions)
            w.described, w.commits = await asyncio.gather(
                self.reader.describe(names), self.reader.commits(names, self.inputs.topic, parts)
            )
            self._read_at = self.now()
            w.offsets = await self.reader.offsets(self.inputs.topic, parts)
        for name, old in before.items():
            self._note_moves(name, old, w.commits.get(name))
        return await self._certify(second_sample=second_sample)

    async def _listing(self) -> GroupListing | None:
        if not self.inputs.compare:
            return None
        self._listed_at = self.now()
        try:
            return await self.reader.listing()
        except Unreadable as exc:
            if self.inputs.declared is None:
                raise
            # The declared groups can be certified all the same; that others read the topic cannot be ruled out.
            return GroupListing((), complete=False, why=str(exc))

    async def _evidence(self) -> tuple[ReaderEvidence, ...]:
        if self.inputs.evidence is None:
            return ()
        return tuple(await asyncio.to_thread(self.inputs.evidence))

    def _names(self) -> list[str]:
        listed = [g.group for g in self.world.listing.groups] if self.world.listing is not None else []
        return list(dict.fromkeys([*(self.inputs.declared or ()), *listed]))

    # --------------------------------------------------------------------------------------------------- decision

    def discovery(self) -> Discovery:
        """Which groups read the topic, from what was seen last."""
        w = self.world
        return discover(
            self.inputs.topic,
            w.listing,
            w.described,
            w.commits,
            declared=self.inputs.declared,
            ignored=self.inputs.ignored,
        )

    def snapshot(self) -> Snapshot:
        """Everything seen last, for the decision. Tails are added by :meth:`take`."""
        w, found = self.world, self.discovery()
        if self.inputs.declared is None:
            names = [g for g in found.readers if g not in found.ignored]
        else:
            names = [*self.inputs.declared, *sorted(found.undeclared)]
        groups = [self._view(g, found) for g in dict.fromkeys(names)]
        fence_at = self.fence.taken_at if self.fence else None
        groups += [
            as_group(e, topic=self.inputs.topic, topic_id=w.topic_id, partitions=w.partitions, fence_at=fence_at)
            for e in w.evidence
        ]
        return Snapshot(
            topic=self.inputs.topic,
            topic_id=w.topic_id,
            partitions=w.partitions,
            offsets=w.offsets,
            groups=groups,
            taken_at=self.now(),
            fence=self.fence.fence_offsets if self.fence else None,
            fence_topic_id=self.fence.topic_id if self.fence else None,
            accepted_lost=self.inputs.accepted_lost,
            known_lost=w.known_lost,
            undeclared=found.undeclared,
            ignored=found.ignored,
            listing_complete=found.complete if w.listing is not None else None,
            why_incomplete=found.why_incomplete,
        )

    def _view(self, group: str, found: Discovery) -> GroupView:
        w = self.world
        info = w.described.get(group, GroupInfo(group, "classic", "UNKNOWN", error="it was not described"))
        commits = w.commits.get(group, GroupCommits(group, {}, error="its commits were not read"))
        return GroupView(
            group=group,
            kind=info.kind,
            state=info.state,
            members=len(info.members),
            committed=commits.offsets,
            errors=commits.errors,
            unstable=commits.unstable,
            moved=w.moved.get(group, frozenset()),
            problem=Reason.GROUP_NOT_FOUND if group in found.not_found else None,
            error=info.error or commits.error,
        )

    async def _certify(self, *, second_sample: bool) -> DrainCertificate:
        snapshot = self.snapshot()
        self.world.known_lost = lost_now(snapshot)
        doubts = in_doubt(snapshot)
        idle = self._idle(snapshot, {d.group for d in doubts}) if second_sample else []
        again = asyncio.create_task(self._second_sample(idle)) if idle else None
        try:
            tails = await self._tails(self._ranges(doubts))
            snapshot = replace(snapshot, tails=tails)
            # Judged while the second sample is waited for: it can change the name of a state, and no verdict.
            certificate = certify(snapshot, valid_for_s=self.config.valid_for_s, issued_by=self.issued_by)
            if again is not None:
                await again
        finally:
            if again is not None:
                again.cancel()
        return with_moves(certificate, snapshot, {g: self.world.moved[g] for g in idle if self.world.moved.get(g)})

    def _ranges(self, doubts: Sequence[Doubt]) -> list[TailRange]:
        """The ranges to read: each once, however many groups stand there; the narrowest first where there are many."""
        ranges = {d.range for d in doubts}
        return sorted(ranges, key=lambda r: (r.end - r.start, r))[: self.config.tail_ranges]

    async def _tails(self, ranges: Sequence[TailRange]) -> dict[TailRange, Tail]:
        if not ranges:
            return {}
        try:
            return await self.reader.tails(self.inputs.topic, ranges, timeout_s=self.config.tail_timeout_s)
        except TopicshiftError as exc:
            return {r: Tail(found=False, complete=False, error=str(exc)) for r in ranges}

    @staticmethod
    def _idle(snapshot: Snapshot, doubtful: set[str]) -> list[str]:
        """Groups without members that are not at the end: they may be consumers that assign partitions themselves."""
        return [g.group for g in snapshot.groups if g.members == 0 and not g.evidence and g.group in doubtful]

    async def _second_sample(self, groups: Sequence[str]) -> None:
        """Ask the commits of these groups once more and note which moved. The verdict keeps to the first sample."""
        if self.config.second_sample_s <= 0:
            return
        since = (self.now() - self._read_at).total_seconds() if self._read_at is not None else 0.0
        await asyncio.sleep(max(0.0, self.config.second_sample_s - max(0.0, since)))
        again = await self.reader.commits(groups, self.inputs.topic, range(self.world.partitions))
        for group in groups:
            self._note_moves(group, self.world.commits.get(group), again[group])

    def _note_moves(self, group: str, old: GroupCommits | None, new: GroupCommits | None) -> None:
        self.world.moved[group] = self.world.moved.get(group, frozenset()) | moved(old, new)

    # ----------------------------------------------------------------------------------------------- partial look

    async def refresh(self, certificate: DrainCertificate) -> DrainCertificate:
        """Ask again only for what can have changed since ``certificate``, and certify what is known then.

        With a fence a group that has drained a partition has drained it for good, so only open groups are asked, for
        their open partitions; without one, every group is. The end offsets of all partitions are always asked.
        """
        w = self.world
        due = self._listed_at is None or (self.now() - self._listed_at).total_seconds() >= self.config.rediscover_s
        if w.topic_id is None or (self.inputs.compare and due):
            return await self.take(second_sample=False)
        open_: dict[str, list[int]] = {}
        for row in certificate.groups:
            if row.group in w.commits and (self.fence is None or row.verdict is not Verdict.DRAINED):
                open_[row.group] = [
                    p.partition for p in row.partitions if self.fence is None or p.verdict is not Verdict.DRAINED
                ]
        identity, described, commits = await asyncio.gather(
            self.reader.topic(self.inputs.topic),
            self.reader.describe(list(open_)),
            asyncio.gather(*(self.reader.commits(gs, self.inputs.topic, ps) for gs, ps in _alike(open_))),
        )
        if identity is None or identity != (w.topic_id, w.partitions):
            return await self.take(second_sample=False)
        self.whole = False
        w.described |= described
        w.moved = {}
        for answer in commits:
            for group, new in answer.items():
                self._note_moves(group, w.commits[group], new)
                w.commits[group] = _merged(w.commits[group], new)
        before = w.evidence, w.offsets
        w.evidence = await self._evidence()
        w.offsets = await self.reader.offsets(self.inputs.topic, range(w.partitions))
        drained = self.fence is not None and certificate.verdict is Verdict.DRAINED
        if drained and before == (w.evidence, w.offsets):
            return certificate  # everybody has drained it for good, and nothing else has changed
        return await self._certify(second_sample=False)


def _alike(open_: Mapping[str, list[int]]) -> list[tuple[list[str], list[int]]]:
    """Groups that are asked for the same partitions, together."""
    by: dict[tuple[int, ...], list[str]] = {}
    for group, partitions in open_.items():
        by.setdefault(tuple(partitions), []).append(group)
    return [(groups, list(partitions)) for partitions, groups in by.items()]


def _merged(old: GroupCommits, new: GroupCommits) -> GroupCommits:
    """The new answer over the old one, partition by partition; an error of the whole group stands for all of it."""
    if new.error is not None:
        return replace(new, offsets={})
    asked = new.offsets.keys() | new.errors.keys() | new.unstable
    return GroupCommits(
        old.group,
        {**{p: o for p, o in old.offsets.items() if p not in asked}, **new.offsets},
        {**{p: e for p, e in old.errors.items() if p not in asked}, **new.errors},
        frozenset(old.unstable - asked) | new.unstable,
        None,
    )
