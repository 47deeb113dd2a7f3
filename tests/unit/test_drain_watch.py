"""Taking certificates and waiting for them, on a cluster in memory that counts what it is asked."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from topicshift.acts.drain import DrainTaker
from topicshift.acts.drain_inputs import DrainConfig, DrainInputs
from topicshift.acts.drain_watch import DrainWatch
from topicshift.adapters.executor import run_async
from topicshift.core.drain.certificate import Verdict
from topicshift.core.drain.decision import Tail, TailRange
from topicshift.core.drain.discovery import GroupListing
from topicshift.core.drain.progress import DrainProgress
from topicshift.core.drain.reasons import Alarm
from topicshift.core.errors import Transient, Unreadable
from topicshift.core.fence.point import FencePoint
from topicshift.core.kafka.cluster import GroupCommits, GroupInfo, PartitionOffsets


class World:
    """Implements ``DrainReader``; a test moves ``ends`` and ``commits`` as it likes."""

    def __init__(self, ends: Sequence[int], **commits: Sequence[int | None]) -> None:
        self.ends = list(ends)
        self.commits_of: dict[str, list[int | None]] = {g: list(c) for g, c in commits.items()}
        self.topic_id = "id"
        self.complete = True
        self.broken: Exception | None = None
        self.asked: Counter[str] = Counter()
        self.asked_commits: list[tuple[tuple[str, ...], tuple[int, ...]]] = []
        self.members: dict[str, int] = {}

    def _enter(self, what: str) -> None:
        self.asked[what] += 1
        if self.broken is not None:
            raise self.broken

    async def topic(self, name: str) -> tuple[str, int] | None:
        self._enter("topic")
        return (self.topic_id, len(self.ends)) if name == "t" else None

    async def offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, PartitionOffsets]:
        self._enter("offsets")
        return {p: PartitionOffsets(0, self.ends[p], self.ends[p]) for p in partitions}

    async def listing(self) -> GroupListing:
        self._enter("listing")
        return GroupListing(tuple(self._info(g) for g in self.commits_of), self.complete)

    def _info(self, group: str) -> GroupInfo:
        known = group in self.commits_of
        return GroupInfo(group, "classic", "EMPTY" if known else "DEAD")

    async def describe(self, groups: Sequence[str]) -> dict[str, GroupInfo]:
        self._enter("describe")
        return {g: self._info(g) for g in groups}

    async def commits(self, groups: Sequence[str], topic: str, partitions: Iterable[int]) -> dict[str, GroupCommits]:
        self._enter("commits")
        wanted = list(partitions)
        self.asked_commits.append((tuple(groups), tuple(wanted)))
        nothing: list[int | None] = [None] * len(self.ends)
        return {g: GroupCommits(g, {p: self.commits_of.get(g, nothing)[p] for p in wanted}) for g in groups}

    async def tails(self, topic: str, ranges: Iterable[TailRange], *, timeout_s: float) -> dict[TailRange, Tail]:
        self._enter("tails")
        return {r: Tail(True, True, r.end - r.start) for r in ranges}

    async def timestamps(self, topic: str, starts: Mapping[int, int]) -> dict[int, int | None]:
        return dict.fromkeys(starts)

    async def sizes(self, topic: str) -> dict[int, int]:
        return {}

    async def close(self) -> None:
        self._enter("close")


class Time:
    """A clock that only the watch's own pauses move; at each, the world may change."""

    def __init__(self) -> None:
        self.at = datetime(2026, 3, 1, tzinfo=UTC)
        self.pauses: list[float] = []
        self.changes: list[object] = []

    def now(self) -> datetime:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.at += timedelta(seconds=seconds)
        if self.changes:
            self.changes.pop(0)()  # type: ignore[operator]


CONFIG = DrainConfig(second_sample_s=0.0)


def watch(
    world: World, time: Time, inputs: DrainInputs, *, fence: bool = True, **options: object
) -> list[DrainProgress]:
    point = (
        FencePoint(topic="t", topic_id="id", taken_at=time.at, fence_offsets=dict(enumerate(world.ends)))
        if fence
        else None
    )
    taker = DrainTaker(world, inputs, fence=point if fence else None, config=CONFIG, now=time.now)

    async def run() -> list[DrainProgress]:
        return [p async for p in DrainWatch(taker, sleep=time.sleep, **options)]  # type: ignore[arg-type]

    return asyncio.run(run())


def test_a_drained_topic_is_certified_at_the_first_look() -> None:
    world, time = World([5, 0], g=[5, None]), Time()
    seen = watch(world, time, DrainInputs("t", declared=("g",)))
    assert [p.certificate.verdict for p in seen] == [Verdict.DRAINED]
    assert time.pauses == []
    assert world.asked == {"topic": 1, "listing": 1, "describe": 1, "commits": 1, "offsets": 1}


def test_only_what_is_open_is_asked_again_and_everything_before_the_yes() -> None:
    world, time = World([5, 5, 5], a=[5, 5, 5], b=[5, 2, 5]), Time()
    time.changes = [lambda: None, lambda: world.commits_of.update(b=[5, 5, 5])]
    seen = watch(world, time, DrainInputs("t", declared=("a", "b")))
    assert [p.certificate.verdict.value for p in seen] == ["not_drained", "not_drained", "drained"]
    whole = (("a", "b"), (0, 1, 2))
    assert world.asked_commits == [whole, (("b",), (1,)), (("b",), (1,)), whole]


def test_a_group_that_slips_back_before_the_yes_is_caught() -> None:
    world, time = World([5], a=[5], b=[2]), Time()

    def both() -> None:
        world.commits_of.update(a=[1], b=[5])

    time.changes = [both, lambda: world.commits_of.update(a=[5])]
    seen = watch(world, time, DrainInputs("t", declared=("a", "b")))
    assert [p.certificate.verdict.value for p in seen] == ["not_drained", "not_drained", "drained"]
    assert [g.verdict.value for g in seen[1].certificate.groups] == ["not_drained", "drained"]


def test_growth_after_the_fence_is_seen_in_every_look() -> None:
    world, time = World([5, 5], a=[5, 2]), Time()
    time.changes = [lambda: world.ends.__setitem__(0, 6), lambda: None]
    seen = watch(world, time, DrainInputs("t", declared=("a",)), timeout_s=1.0)
    assert seen[1].certificate.groups[0].partitions[0].reason == "source_grew"
    assert seen[-1].certificate.verdict is Verdict.NOT_DRAINED


def test_without_a_fence_every_group_is_asked_again() -> None:
    world, time = World([5], a=[5], b=[2]), Time()

    def more() -> None:
        world.ends[0] = 7

    time.changes = [more, lambda: world.commits_of.update(a=[7], b=[7])]
    seen = watch(world, time, DrainInputs("t", declared=("a", "b")), fence=False)
    assert [[g.lag for g in p.groups] for p in seen] == [[0, 3], [2, 5], [0, 0]]


def test_the_time_limit_ends_the_watch() -> None:
    world, time = World([5], a=[2]), Time()
    seen = watch(world, time, DrainInputs("t", declared=("a",)), timeout_s=3.0)
    assert seen[-1].certificate.verdict is Verdict.NOT_DRAINED
    assert sum(time.pauses) == pytest.approx(3.0)


def test_a_look_that_fails_is_unknown_and_the_next_one_counts() -> None:
    world, time = World([5], a=[2]), Time()

    def fail() -> None:
        world.broken = Transient("no leader")

    def heal() -> None:
        world.broken = None
        world.commits_of["a"] = [5]

    time.changes = [fail, heal]
    seen = watch(world, time, DrainInputs("t", declared=("a",)))
    assert [p.certificate.verdict.value for p in seen] == ["not_drained", "unknown", "drained"]
    assert seen[1].certificate.groups[0].partitions[0].reason == "partition_unreadable"


def test_a_first_look_that_fails_is_raised() -> None:
    world, time = World([5], a=[2]), Time()
    world.broken = Unreadable("no broker answers")
    with pytest.raises(Unreadable, match="no broker answers"):
        watch(world, time, DrainInputs("t", declared=("a",)))


def test_a_topic_made_again_is_looked_at_as_a_whole() -> None:
    world, time = World([5], a=[2]), Time()

    def remade() -> None:
        world.topic_id = "other"

    time.changes = [remade]
    seen = watch(world, time, DrainInputs("t", declared=("a",)), timeout_s=0.5)
    assert seen[1].certificate.reasons == ["topic_remade"]
    assert seen[1].certificate.verdict is Verdict.UNKNOWN


def test_a_group_that_appears_while_waiting_blocks() -> None:
    world, time = World([5], a=[2]), Time()
    time.changes = [lambda: world.commits_of.update(intruder=[5])]
    seen = watch(world, time, DrainInputs("t", declared=("a",)), timeout_s=15.0)
    assert seen[-1].certificate.reasons == ["undeclared_group:intruder"]


def test_a_stuck_group_raises_an_alarm() -> None:
    world, time = World([5], a=[2]), Time()
    seen = watch(world, time, DrainInputs("t", declared=("a",)), timeout_s=70.0)
    assert [g.alarm for g in seen[-1].groups] == [Alarm.NO_MEMBERS]
    assert seen[0].groups[0].alarm is None


def test_a_listing_that_fails_leaves_the_declared_groups_certified_but_not_the_topic() -> None:
    world = World([5], g=[5])

    async def denied() -> GroupListing:
        raise Unreadable("not allowed")

    world.listing = denied  # type: ignore[method-assign]
    certificate = run_async(DrainTaker(world, DrainInputs("t", declared=("g",))).take)
    assert (certificate.verdict, certificate.reasons) == (Verdict.UNKNOWN, ["listing_incomplete"])
    assert certificate.groups[0].verdict is Verdict.DRAINED
    with pytest.raises(Unreadable):
        run_async(DrainTaker(world, DrainInputs("t")).take)


def test_a_missing_topic_is_said_and_nothing_else_is_asked() -> None:
    world = World([5], g=[5])
    certificate = run_async(DrainTaker(world, DrainInputs("missing", declared=("g",), compare=False)).take)
    assert (certificate.verdict, certificate.reasons) == (Verdict.UNKNOWN, ["topic_not_found"])
    assert set(world.asked) == {"topic"}


def test_the_second_sample_tells_who_assigns_partitions_itself() -> None:
    world = World([100], mover=[1], stale=[1])
    first = world.commits

    async def moving(groups: Sequence[str], topic: str, partitions: Iterable[int]) -> dict[str, GroupCommits]:
        answer = await first(groups, topic, partitions)
        world.commits_of["mover"] = [(world.commits_of["mover"][0] or 0) + 5]
        return answer

    world.commits = moving  # type: ignore[method-assign]
    certificate = run_async(DrainTaker(world, DrainInputs("t"), config=DrainConfig(second_sample_s=0.001)).take)
    assert {g.group: g.state for g in certificate.groups} == {"mover": "SELF_ASSIGNING", "stale": "EMPTY"}
    assert certificate.groups[0].partitions[0].committed == 1, "the verdict keeps to the first sample"


def test_it_can_be_asked_where_a_loop_is_running() -> None:
    async def inside() -> Verdict:
        return run_async(DrainTaker(World([5], g=[5]), DrainInputs("t", declared=("g",))).take).verdict

    assert asyncio.run(inside()) is Verdict.DRAINED


def test_what_fails_at_the_same_time_is_no_second_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise Unreadable("the topic")

    async def fails_when_it_is_let_go() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise Unreadable("the groups") from None

    async def both() -> None:
        await asyncio.gather(fails_when_it_is_let_go(), fails())

    with pytest.raises(Unreadable, match="the topic"):
        run_async(both)
    assert caplog.records == []
