"""Before and after: the source before anybody was stopped, the target since, and what got better or worse. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

from pydantic import Field

from topicshift.core.base import Model
from topicshift.core.series import thinned
from topicshift.core.text import bytes_text

FILE: Final = "health.json"
WATCHED: Final = timedelta(hours=24)
"""Time for which the target is looked at after the end of the migration."""

MOST: Final = 60
"""Samples after the migration that are kept."""

SAME: Final = 0.2
"""Share by which a figure may differ and still count as the same."""

FEW: Final = 1000
"""Offsets of lag that are nothing to speak of, whatever they were before."""

FEW_MS: Final = 1000
"""Milliseconds of a checkpoint that are nothing to speak of, whatever they were before."""

SHORT_S: Final = 300.0
"""Seconds below which a rate says little; it is shown, and not judged."""

FREEZE_SHARE: Final = 0.1
"""Share of a time that a freeze may have been next to it: producers send then what they held back, and the rate of that
time is no longer the one at which they write."""


class GroupSample(Model):
    """One group at one moment; ``lag`` in offsets and ``members`` are None where they could not be read."""

    lag: int | None
    state: str
    members: int | None


class CheckpointSample(Model):
    """Checkpoints of one Flink job since it was started. ``ms``: mean duration; ``failing``: the latest has failed."""

    completed: int
    failed: int
    ms: int | None
    failing: bool


class Sample(Model):
    """One topic at one moment. None where it could not be read.

    ``end``: the sum of the end offsets; ``sizes``: bytes of each partition on its largest replica; ``checkpoints``: of
    each participant that is a Flink job.
    """

    at: str
    topic: str
    partitions: int
    end: int | None
    sizes: dict[int, int] | None
    under_replicated: list[int]
    groups: dict[str, GroupSample]
    checkpoints: dict[str, CheckpointSample | None] = Field(default_factory=dict)


def _seconds(since: str, until: str) -> float:
    return (datetime.fromisoformat(until) - datetime.fromisoformat(since)).total_seconds()


class Rate(Model):
    """Records per second that were written, from one moment to another."""

    per_second: float
    since: str
    until: str

    @property
    def seconds(self) -> float:
        """Over so many seconds."""
        return _seconds(self.since, self.until)


class Health(Model):
    """``health.json``: the source before, with its rate, and samples of the target after ``switched_at``."""

    schema_version: Literal[1] = 1
    before: Sample
    rate_before: Rate | None
    switched_at: str | None = None
    after: list[Sample] = Field(default_factory=list)

    def with_after(self, sample: Sample, switched_at: str | None) -> Health:
        """With one sample more; of many, every second one of the older half goes."""
        kept = thinned([*self.after, sample], MOST)
        return self.model_copy(update={"after": kept, "switched_at": switched_at or self.switched_at})


def rate(end: int | None, at: str, earlier_end: int | None, earlier_at: str) -> Rate | None:
    """The rate between two sums of end offsets, None where one is not known or no time lies between."""
    if end is None or earlier_end is None or end < earlier_end:
        return None
    seconds = _seconds(earlier_at, at)
    return Rate(per_second=(end - earlier_end) / seconds, since=earlier_at, until=at) if seconds > 0 else None


class Change(Model):
    """One figure before and after, in words; where it got worse, what to look at and why."""

    name: str
    before: str
    after: str
    verdict: Literal["better", "same", "worse", "unknown"]
    look: str = ""
    why: str = ""
    """Why it is not judged, where that needs a word."""


_THROUGHPUT = (
    "If demand has not fallen: more partitions make smaller batches for the same rate. Producers: raise linger.ms and "
    "batch.size, see buffer.memory and max.block.ms (they wait for space), and compression. Brokers: request queue and "
    "network threads, as each produce request names more partitions."
)
_LAG = (
    "Consumers: no more members than partitions, and enough of them; max.poll.records; fetch.min.bytes and "
    "fetch.max.wait.ms (more partitions give smaller fetches: raise them); a poll that takes longer than before. A "
    "group that began at the log start catches up first: look again later."
)
_REBALANCE = (
    "Consumers: max.poll.interval.ms against the time of one poll, session.timeout.ms, a cooperative assignor "
    "(partition.assignment.strategy) or the consumer protocol, and group.instance.id for restarts: more partitions "
    "make each rebalance longer."
)
_MEMBERS = (
    "See that every instance was started again, and that none is stuck: a member less is a share of the load more."
)
_REPLICAS = (
    "Brokers: num.replica.fetchers and replica.fetch.max.bytes (more partitions to fetch), disk and network, "
    "replica.lag.time.max.ms; and whether a broker is down: then it is no matter of this migration."
)
_SLOW_CHECKPOINTS = (
    "Flink: each partition is one more split for the barrier. Less state in each: incremental checkpoints with RocksDB "
    "(execution.checkpointing.incremental); a pause between them (execution.checkpointing.min-pause); under "
    "backpressure unaligned ones (execution.checkpointing.unaligned.enabled); and parallelism against the partitions. "
    "A job that began at the log start catches up first: look again later."
)
_FAILED_CHECKPOINTS = (
    "Flink: the job's checkpoint page has the cause of each. One that takes too long: execution.checkpointing.timeout, "
    "and what makes it slow; a sink that cannot commit: its transaction timeout against the interval, and its rights "
    "on the target; a full or slow checkpoint store."
)
_SKEW = (
    "A key, or a few, weigh more than a partition's share: more partitions do not part a key. impact.html has the "
    "hot keys; producers that set no key, or another partitioner, are the other cause (partitioner.class)."
)


def compare(health: Health) -> list[Change]:
    """What got better, worse or stayed, in the order of what matters; only what was looked at before and after."""
    if not health.after:
        return []
    last, found = health.after[-1], list[Change]()
    found.append(_throughput(health))
    found += _groups(health.before, health.after)
    found += _checkpoints(health.before, last)
    found.append(_skew(health.before, last))
    found.append(_bytes(health.before, last))
    found.append(_replicas(health.before, health.after))
    return found


def rate_after(health: Health) -> Rate | None:
    """Records a second that came to the target: between its first and last sample, else since the switch."""
    first, last = health.after[0], health.after[-1]
    between = rate(last.end, last.at, first.end, first.at)
    if between is not None and between.seconds >= SHORT_S:
        return between
    return rate(last.end, last.at, 0, health.switched_at) if health.switched_at else between


def _throughput(health: Health) -> Change:
    then, now = health.rate_before, rate_after(health)
    name = "records a second"
    if then is None or now is None:
        return Change(name=name, before=_per_second(then), after=_per_second(now), verdict="unknown")
    why = _not_comparable(health, then, now)
    verdict = "unknown" if why else _judged(then.per_second, now.per_second, more_is="better")
    look = _THROUGHPUT if verdict == "worse" else ""
    return Change(name=name, before=_per_second(then), after=_per_second(now), verdict=verdict, look=look, why=why)


def _not_comparable(health: Health, then: Rate, now: Rate) -> str:
    """Why these rates say nothing of producers that write as fast as before, or not; empty where they do."""
    shortest = min(then.seconds, now.seconds)
    if shortest < SHORT_S:
        return (
            f"Not comparable: {_span(shortest)} is too short for a rate. A burst, or what producers or a copy catch up "
            f"with, weighs too much in less than {_span(SHORT_S)}."
        )
    if health.switched_at is not None and now.since == health.switched_at:
        # Whoever was stopped was stopped after the look at the source.
        stopped = _seconds(health.before.at, health.switched_at)
        if stopped > FREEZE_SHARE * now.seconds:
            return (
                f"Not comparable: the later rate holds what producers held back in the freeze, up to {_span(stopped)} "
                f"of it. Look again later."
            )
    return ""


def _per_second(found: Rate | None) -> str:
    return "not measured" if found is None else f"{found.per_second:,.1f} over {_span(found.seconds)}"


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def _judged(
    before: float, after: float, *, more_is: Literal["better", "worse"]
) -> Literal["better", "same", "worse", "unknown"]:
    if abs(after - before) <= SAME * max(before, after):
        return "same"
    more = after > before
    return more_is if more else "worse" if more_is == "better" else "better"


def _groups(before: Sample, after: Sequence[Sample]) -> Iterator[Change]:
    last = after[-1]
    for group in sorted(before.groups.keys() & last.groups.keys()):
        then, now = before.groups[group], last.groups[group]
        yield _lag(group, then.lag, now.lag)
        busy = [s.at for s in after if group in s.groups and _rebalancing(s.groups[group].state)]
        yield Change(
            name=f"rebalances of {group}",
            before="one when it was looked at" if _rebalancing(then.state) else "none seen",
            after=f"in {len(busy)} of {len(after)} looks" if busy else f"none in {len(after)} look(s)",
            verdict="same" if bool(busy) == _rebalancing(then.state) else "worse" if busy else "better",
            look=_REBALANCE if busy and not _rebalancing(then.state) else "",
        )
        if then.members is not None and now.members is not None and now.members < then.members:
            yield Change(
                name=f"members of {group}",
                before=str(then.members),
                after=str(now.members),
                verdict="worse",
                look=_MEMBERS,
            )


def _rebalancing(state: str) -> bool:
    return "REBALANC" in state.upper() or state.upper() in ("ASSIGNING", "RECONCILING")


def _lag(group: str, then: int | None, now: int | None) -> Change:
    name = f"lag of {group}"
    if then is None or now is None:
        return Change(name=name, before=_count(then), after=_count(now), verdict="unknown")
    verdict = "same" if max(then, now) <= FEW else _judged(then, now, more_is="worse")
    return Change(
        name=name, before=_count(then), after=_count(now), verdict=verdict, look=_LAG if verdict == "worse" else ""
    )


def _count(value: int | None) -> str:
    return "not known" if value is None else f"{value:,}"


def _checkpoints(before: Sample, after: Sample) -> Iterator[Change]:
    for name in sorted(before.checkpoints.keys() & after.checkpoints.keys()):
        then, now = before.checkpoints[name], after.checkpoints[name]
        took, failures = f"checkpoint duration of {name}", f"failed checkpoints of {name}"
        if then is None or now is None or then.ms is None or now.ms is None:
            yield Change(name=took, before=_duration(then), after=_duration(now), verdict="unknown")
        else:
            worse = "same" if max(then.ms, now.ms) <= FEW_MS else _judged(then.ms, now.ms, more_is="worse")
            look = _SLOW_CHECKPOINTS if worse == "worse" else ""
            yield Change(name=took, before=_duration(then), after=_duration(now), verdict=worse, look=look)
        if then is None or now is None:
            yield Change(name=failures, before=_failures(then), after=_failures(now), verdict="unknown")
        else:
            # A job that was just started has failed at few: what counts is the share, and whether it fails now.
            worse = _judged(_share(then), _share(now), more_is="worse")
            worse = worse if now.failing == then.failing else "worse" if now.failing else "better"
            look = _FAILED_CHECKPOINTS if worse == "worse" else ""
            yield Change(name=failures, before=_failures(then), after=_failures(now), verdict=worse, look=look)


def _share(found: CheckpointSample) -> float:
    ended = found.completed + found.failed
    return found.failed / ended if ended else 0.0


def _duration(found: CheckpointSample | None) -> str:
    return "not known" if found is None or found.ms is None else f"{found.ms:,} ms on average"


def _failures(found: CheckpointSample | None) -> str:
    if found is None:
        return "not known"
    return f"{found.failed:,} of {found.completed + found.failed:,}" + (", the latest too" if found.failing else "")


def _largest_share(sample: Sample) -> float | None:
    """The largest partition's bytes over the mean of all; None where nothing is known, or there."""
    sizes = sample.sizes
    total = sum(sizes.values()) if sizes and len(sizes) == sample.partitions else 0
    return max(sizes.values()) * sample.partitions / total if sizes and total else None


def _skew(before: Sample, after: Sample) -> Change:
    then, now = _largest_share(before), _largest_share(after)
    name = "largest partition, in means"
    if then is None or now is None:
        return Change(name=name, before=_times(then), after=_times(now), verdict="unknown")
    verdict = _judged(then, now, more_is="worse")
    return Change(
        name=name, before=_times(then), after=_times(now), verdict=verdict, look=_SKEW if verdict == "worse" else ""
    )


def _times(value: float | None) -> str:
    return "not known" if value is None else f"{value:.1f} times the mean"


def _bytes(before: Sample, after: Sample) -> Change:
    """Not judged: a topic that is young holds less than one that is old."""
    return Change(name="bytes a partition, on average", before=_mean(before), after=_mean(after), verdict="unknown")


def _mean(sample: Sample) -> str:
    if not sample.sizes:
        return "not known"
    return bytes_text(sum(sample.sizes.values()) / len(sample.sizes))


def _replicas(before: Sample, after: Sequence[Sample]) -> Change:
    then, worst = len(before.under_replicated), max(len(s.under_replicated) for s in after)
    now = len(after[-1].under_replicated)
    verdict: Literal["better", "same", "worse"] = "worse" if now > then else "better" if now < then else "same"
    return Change(
        name="under-replicated partitions",
        before=f"{then} of {before.partitions}",
        after=f"{now} of {after[-1].partitions}" + (f" (at most {worst})" if worst > now else ""),
        verdict=verdict,
        look=_REPLICAS if verdict == "worse" else "",
    )


def lag_of(
    ends: Mapping[int, int | None], starts: Mapping[int, int | None], commits: Mapping[int, int | None]
) -> int | None:
    """What a group has left to read, in offsets: from the log start where it has no commit; None if unknown."""
    total = 0
    for partition, end in ends.items():
        start = starts.get(partition)
        if end is None or start is None:
            return None
        at = commits.get(partition)
        total += max(0, end - max(start, start if at is None else at))
    return total
