"""The proof over both topics: what the counts of ``order_proof`` say about loss, order and placement. Pure.

The Spark job counts, this module judges. The JSON of :class:`OrderProof` is a public contract (``order_proof.json``).
What cannot be proven from the records is said, by name; it is never taken for proven.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import ConfigDict, Field

from topicshift.core.base import Model
from topicshift.core.fence.point import FenceOffsets
from topicshift.core.kafka.partitions import listed

SCHEMA = "topicshift/order-proof/v1"

Name = Literal["source", "target"]


class Verdict(StrEnum):
    """The answer. ``partly_proven``: nothing speaks against it, but the spec names no header to prove the order by."""

    PROVEN = "proven"
    PARTLY_PROVEN = "partly_proven"
    VIOLATED = "violated"
    UNKNOWN = "unknown"

    @property
    def exit_code(self) -> int:
        """0 proven, in whole or in part; 3 violated; 4 unknown."""
        return {Verdict.VIOLATED: 3, Verdict.UNKNOWN: 4}.get(self, 0)


class State(StrEnum):
    """The answer of one check. ``unknown`` is worse than ``not_proven``: something that should be readable was not."""

    PASSED = "passed"
    NOT_PROVEN = "not_proven"
    UNKNOWN = "unknown"
    FAILED = "failed"


class Example(Model):
    """One key for which a check does not hold, with the worst first: a digest of the key, and what was seen."""

    key: str
    count: int
    seen: str


class Check(Model):
    """One statement. ``count`` is the number of records or keys against it, null if it was not counted."""

    name: str
    state: State
    count: int | None
    seen: str
    why: str
    examples: list[Example] = Field(default=[])


class Side(Model):
    """One topic as it was read: offsets [from, to) of each partition, and its counts.

    ``empty_keys_spread``: records with an empty key that the producers spread over partitions; like those without a key
    they have no order, and no other figure counts them. ``keys_in_several_partitions``: keys with records in more than
    one partition. ``duplicates``: records whose key and sequence number came before, in the same topic.
    ``out_of_order``: sequence numbers whose first record lies before the first record of the next lower number of that
    key, in the same partition. ``misplaced``: records (and keys) that do not lie where Java's murmur2 puts them under
    this topic's partition count.
    """

    topic: str
    topic_id: str
    partitions: int
    ranges: dict[int, tuple[int, int]]
    records: int
    null_keys: int
    keys: int
    keys_in_several_partitions: int
    empty_keys_spread: int = 0
    without_sequence: int | None
    unreadable_sequence: int | None
    duplicates: int | None
    out_of_order: int | None
    misplaced_records: int
    misplaced_keys: int


class OrderProof(Model):
    """The whole result. Times are ISO 8601, UTC.

    ``missing``: sequence numbers of a key that lie between two seen ones and are in neither topic.
    ``duplicates_across``: records of the target whose key and number the source has too. ``crossing_keys``: keys with a
    record in the target whose number is below the last one in the source. ``records_after_fence``: readable
    records of the source behind the fence. ``replayed``: records of the target that are marked as replayed, null where
    nobody replayed any.
    """

    schema_: str = Field(default=SCHEMA, alias="schema")
    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True, serialize_by_alias=True)

    verdict: Verdict
    reason: str
    taken_at: str
    seconds: float
    sequence_header: str | None
    fence_offsets: FenceOffsets | None
    source: Side
    target: Side
    keys: int
    keys_in_both: int
    duplicates_across: int | None
    missing: int | None
    crossing_keys: int | None
    records_after_fence: int | None
    replayed: int | None = None
    checks: list[Check]
    not_proven: list[str]


@dataclass(frozen=True)
class Facts:
    """What was counted. A figure is None where there was no sequence header to count by, or no fence.

    ``after_fence`` maps a partition of the source to its readable records behind the fence; ``below_fence`` are
    partitions whose end lies below it. ``compacted`` names topics that drop records by key. ``examples`` holds the
    worst keys by check. ``crossing_repeats``: crossing keys whose records in question are all in the source too.
    ``time_reversed_keys``: keys whose first timestamp in the target lies before their last one in the source.
    ``empty_key_split``: the empty key, which lies in one partition of the source, lies in several of the target.
    ``tails`` maps a partition of which a task read the end by itself to the records found there (None: no task did);
    of those in ``tails_expired`` a part expired since.
    ``between`` maps a partition of the source to its readable records between the first fence and ``fence``, ``strays``
    to those that the run has named there (None: the source was never fenced anew); ``strays_complete``: it named all.
    ``replayed``: marks of records of the target that were replayed, as often as they are there (None: nobody replayed
    any), ``replayed_wanted`` those that the run has on record. No other figure counts them.
    """

    source: Side
    target: Side
    keys: int
    keys_in_both: int
    fence: Mapping[int, int] | None = None
    after_fence: Mapping[int, int] = field(default_factory=dict)
    below_fence: Sequence[int] = ()
    duplicates_across: int | None = None
    missing: int | None = None
    keys_with_gaps: int | None = None
    crossing_keys: int | None = None
    crossing_repeats: int | None = None
    time_reversed_keys: int = 0
    empty_key_split: bool = False
    compacted: frozenset[Name] = frozenset()
    examples: Mapping[str, Sequence[Example]] = field(default_factory=dict)
    tails: Mapping[int, int] | None = None
    tails_expired: Sequence[int] = ()
    between: Mapping[int, int] = field(default_factory=dict)
    strays: Mapping[int, int] | None = None
    strays_complete: bool = True
    replayed: Sequence[str] | None = None
    replayed_wanted: frozenset[str] = frozenset()


_NO_HEADER = "The spec names no sequence header (ordering.sequence_header), so the records do not say their order."


def _check(facts: Facts, name: str, state: State, count: int | None, seen: str, why: str) -> Check:
    return Check(
        name=name,
        state=state,
        count=count,
        seen=seen,
        why=why,
        examples=list(facts.examples.get(name, ())) if state in (State.FAILED, State.UNKNOWN) or count else [],
    )


def _counted(count: int) -> State:
    return State.FAILED if count else State.PASSED


def _fence(facts: Facts) -> Check:
    why = "A record written to the source after the fence is read by nobody once the groups have moved on."
    if facts.fence is None:
        return _check(facts, "fence", State.NOT_PROVEN, None, "No fence offsets were given.", why)
    absent = sorted(set(range(facts.source.partitions)) - set(facts.fence))
    if absent:
        seen = f"The fence names no offset for partitions {listed(absent)} of the source."
        return _check(facts, "fence", State.UNKNOWN, None, seen, why)
    if facts.below_fence:
        seen = f"The source ends below the fence on partitions {listed(facts.below_fence)}: its log was truncated."
        return _check(facts, "fence", State.UNKNOWN, None, seen, why)
    count = sum(facts.after_fence.values())
    where = ", ".join(f"{p}: {n}" for p, n in sorted(facts.after_fence.items()) if n)
    seen = f"{count} records behind the fence ({where})." if count else "No record of the source behind the fence."
    return _check(facts, "fence", _counted(count), count, seen, why)


def _strays(facts: Facts) -> Check:
    why = (
        "The source was written to after its fence and fenced anew. These records are left out of every other figure: "
        "groups that were on it then have read them, and a person answers for what the others cannot see."
    )
    count = sum(facts.between.values())
    differs = sorted(p for p in {*facts.between, *(facts.strays or {})}
                     if facts.between.get(p, 0) != (facts.strays or {}).get(p, 0))  # fmt: skip
    if differs and facts.strays_complete:
        seen = f"{count} records came after the first fence; other ones are named for partitions {listed(differs)}."
        return _check(facts, "strays", State.FAILED, count, seen, why)
    if not facts.strays_complete:
        seen = f"{count} records came after the first fence, more than were named."
        return _check(facts, "strays", State.NOT_PROVEN, count, seen, why)
    seen = f"{count} records came after the first fence, and each is named in strays.json."
    return _check(facts, "strays", State.PASSED, count, seen, why)


def _replayed(facts: Facts) -> Check:
    why = (
        "Late records of the source were written to the target on a person's order, each with a header that names its "
        "place. They are left out of every other figure, for they come after newer records of their keys."
    )
    found, wanted = list(facts.replayed or ()), facts.replayed_wanted
    lost, strange = sorted(wanted - set(found)), sorted(set(found) - wanted)
    twice = len(found) - len(set(found))
    if not (lost or strange or twice):
        return _check(
            facts, "replayed", State.PASSED, len(found), f"{len(found)} records were replayed, each once.", why
        )
    seen = [f"{len(found)} records of {facts.target.topic} are marked as replayed"]
    seen += [f"{len(lost)} on record are not there, first {lost[0]}"] if lost else []
    seen += [f"{len(strange)} are not on record, first {strange[0]}"] if strange else []
    seen += [f"{twice} are there once more"] if twice else []
    return _check(facts, "replayed", State.FAILED, len(found), f"{'; '.join(seen)}.", why)


def _tails(facts: Facts) -> Check:
    why = (
        "The armed verifier had ended when these ranges were in doubt, so the task that asked read them by itself; "
        "this is the second look."
    )
    found = {p: n for p, n in sorted((facts.tails or {}).items()) if n}
    if found:
        where = ", ".join(f"{p}: {n}" for p, n in found.items())
        seen = f"{sum(found.values())} records that no group had read when it was certified ({where})."
        return _check(facts, "drain", State.FAILED, sum(found.values()), seen, why)
    if facts.tails_expired:
        seen = f"What a task read at the end of partitions {listed(facts.tails_expired)} has expired since."
        return _check(facts, "drain", State.NOT_PROVEN, None, seen, why)
    seen = f"Nothing is left to read at the end of partitions {listed(sorted(facts.tails or {}))}, as the task said."
    return _check(facts, "drain", State.PASSED, 0, seen, why)


def _one_partition(facts: Facts, side: Side, name: Name) -> Check:
    count = side.keys_in_several_partitions
    state = _counted(count)
    seen = f"{count} of {side.keys} keys of {side.topic} have records in more than one partition."
    if name == "target" and facts.empty_key_split:
        seen += " One of them is the empty key."
        # Clients of murmur2 hash it. Those of CRC32 may spread it, and a few records in a burst do not show that.
        if count == 1 and facts.source.misplaced_records:
            state = State.NOT_PROVEN
            seen += " The source is not placed by murmur2, so its producers may be such that spread empty keys."
    return _check(
        facts,
        f"one_partition_per_key_{name}",
        state,
        count,
        seen,
        "Kafka keeps order inside a partition only; a key in two of them has no order.",
    )


def _readable_sequences(facts: Facts, header: str) -> Check:
    missing = {s.topic: s.without_sequence or 0 for s in (facts.source, facts.target)}
    bad = {s.topic: s.unreadable_sequence or 0 for s in (facts.source, facts.target)}
    count = sum(missing.values()) + sum(bad.values())
    parts = [f"{n} records of {topic} without the header" for topic, n in missing.items() if n]
    parts += [f"{n} of {topic} whose value is not a whole number" for topic, n in bad.items() if n]
    return _check(
        facts,
        "sequence",
        State.UNKNOWN if count else State.PASSED,
        count,
        f"{'; '.join(parts)}." if parts else f"Every keyed record carries the header {header}.",
        "What carries no number cannot be put in order, counted twice, or missed.",
    )


def _order(facts: Facts, side: Side, name: Name) -> Check:
    why = "A reader of this partition sees an older state of the key after a newer one."
    if side.out_of_order is None:
        return _check(facts, f"order_{name}", State.NOT_PROVEN, None, _NO_HEADER, why)
    return _check(
        facts,
        f"order_{name}",
        _counted(side.out_of_order),
        side.out_of_order,
        f"{side.out_of_order} sequence numbers of {side.topic} lie before the next lower number of their key.",
        why,
    )


def _crossing(facts: Facts) -> Check:
    why = "The groups read the source to its end before the target, so an older record in the target comes too late."
    if facts.crossing_keys is None:
        seen = _NO_HEADER
        if facts.time_reversed_keys:
            seen += (
                f" By timestamp, {facts.time_reversed_keys} of {facts.keys_in_both} keys have a record in the target"
                " that is older than their last one in the source; clocks and CreateTime prove nothing."
            )
        return _check(facts, "crossing", State.NOT_PROVEN, None, seen, why)
    count, repeats = facts.crossing_keys, facts.crossing_repeats or 0
    seen = (
        f"{count} of {facts.keys_in_both} keys in both topics have a record in the target with a lower number than "
        "their last one in the source."
    )
    if repeats:
        seen += f" For {repeats} of them these are only repeats of records that the source has too."
    return _check(facts, "crossing", _counted(count), count, seen, why)


def _loss(facts: Facts) -> Check:
    why = "A number that is in neither topic is a record that was sent and cannot be read any more."
    if facts.missing is None:
        return _check(facts, "loss", State.NOT_PROVEN, None, _NO_HEADER, why)
    seen = f"{facts.missing} sequence numbers of {facts.keys_with_gaps} keys are in neither topic."
    if not facts.missing:
        seen = "Between the first and the last number of each key none is missing."
    if facts.missing and facts.compacted:
        names = " and ".join(sorted(facts.compacted))
        seen += f" The {names} is compacted, which drops older records of a key by design."
        return _check(facts, "loss", State.NOT_PROVEN, facts.missing, seen, why)
    if facts.missing and facts.missing <= sum(facts.between.values()):
        seen += " They may be among the records that came to the source after its first fence (strays.json)."
        return _check(facts, "loss", State.NOT_PROVEN, facts.missing, seen, why)
    return _check(facts, "loss", _counted(facts.missing), facts.missing, seen, why)


def _duplicates(facts: Facts) -> Check:
    why = "A producer without idempotence sends again after a time-out; readers see the record twice."
    if facts.duplicates_across is None:
        return _check(facts, "duplicates", State.NOT_PROVEN, None, _NO_HEADER, why)
    parts = {
        f"in {facts.source.topic} (sent again to the same topic)": facts.source.duplicates or 0,
        f"in {facts.target.topic} (sent again to the same topic)": facts.target.duplicates or 0,
        "in both (sent to the source, and again to the target after the switch)": facts.duplicates_across,
    }
    count = sum(parts.values())
    said = "; ".join(f"{n} {where}" for where, n in parts.items() if n)
    seen = f"Key and number came before: {said}." if count else "No key and sequence number twice."
    return _check(facts, "duplicates", State.PASSED, count, seen, why)


def _placement(facts: Facts) -> Check:
    side = facts.target
    count = side.misplaced_records
    why = (
        "The plan predicts placement by Java's murmur2 under the target's count; a client with another partitioner "
        "splits keys as soon as it writes beside others."
    )
    seen = f"{count} records ({side.misplaced_keys} keys) of {side.topic} do not lie where murmur2 puts them."
    if not count:
        return _check(facts, "placement", State.PASSED, 0, f"Every keyed record of {side.topic} lies there.", why)
    before = facts.source
    if before.misplaced_records:
        seen += (
            f" Nor do {before.misplaced_records} records of {before.topic} under its own count: the producers use "
            "another partitioner, or the count was raised in place earlier."
        )
        return _check(facts, "placement", State.NOT_PROVEN, count, seen, why)
    if not before.records - before.null_keys - before.empty_keys_spread:
        seen += f" {before.topic} holds no keyed record to compare with."
        return _check(facts, "placement", State.NOT_PROVEN, count, seen, why)
    return _check(facts, "placement", State.FAILED, count, seen, why)


def _records(facts: Facts) -> Check:
    why = "An empty answer is not a proof: nothing is known of records that are not there."
    empty = [s.topic for s in (facts.source, facts.target) if not s.records]
    if empty:
        seen = f"No record in {' and '.join(empty)}."
        return _check(facts, "records", State.UNKNOWN, 0, seen, why)
    total = facts.source.records + facts.target.records
    seen = (
        f"{facts.source.records} records in {facts.source.topic} up to its end, {facts.target.records} in "
        f"{facts.target.topic}; {facts.keys} keys, {facts.keys_in_both} of them in both."
    )
    return _check(facts, "records", State.PASSED, total, seen, why)


def prove(facts: Facts, *, header: str | None, now: datetime, seconds: float) -> OrderProof:
    """Judge what was counted: one check a statement, and the verdict.

    A failed check makes it ``violated``, else an unknown one ``unknown``, else one not proven ``partly_proven``.
    """
    checks = [_records(facts), _fence(facts), *([_strays(facts)] if facts.strays is not None else [])]
    checks += [*([_replayed(facts)] if facts.replayed is not None else [])]
    checks += [*([_tails(facts)] if facts.tails is not None else [])]
    checks += [_one_partition(facts, facts.source, "source"), _one_partition(facts, facts.target, "target")]
    if header is not None:
        checks.append(_readable_sequences(facts, header))
    checks += [_order(facts, facts.source, "source"), _order(facts, facts.target, "target")]
    checks += [_crossing(facts), _loss(facts), _duplicates(facts), _placement(facts)]
    states = {c.state for c in checks}
    if State.FAILED in states:
        verdict, chosen = Verdict.VIOLATED, State.FAILED
    elif State.UNKNOWN in states:
        verdict, chosen = Verdict.UNKNOWN, State.UNKNOWN
    elif State.NOT_PROVEN in states:
        verdict, chosen = Verdict.PARTLY_PROVEN, State.NOT_PROVEN
    else:
        verdict, chosen = Verdict.PROVEN, State.PASSED
    said = [f"{c.name}: {c.seen}" for c in checks if c.state is chosen]
    reason = "Every check passed." if verdict is Verdict.PROVEN else " ".join(dict.fromkeys(said))
    return OrderProof(
        verdict=verdict,
        reason=reason,
        taken_at=now.isoformat(),
        seconds=seconds,
        sequence_header=header,
        fence_offsets=dict(facts.fence) if facts.fence is not None else None,
        source=facts.source,
        target=facts.target,
        keys=facts.keys,
        keys_in_both=facts.keys_in_both,
        duplicates_across=facts.duplicates_across,
        missing=facts.missing,
        crossing_keys=facts.crossing_keys,
        records_after_fence=sum(facts.after_fence.values()) if facts.fence is not None else None,
        replayed=len(facts.replayed) if facts.replayed is not None else None,
        checks=checks,
        not_proven=_limits(facts, checks, header),
    )


def _limits(facts: Facts, checks: Sequence[Check], header: str | None) -> list[str]:
    """What this proof does not say, for a person who reads it."""
    limits = [f"{c.name}: {c.seen}" for c in checks if c.state is State.NOT_PROVEN]
    if header is not None:
        limits.append("A record that was lost after the last one seen of its key leaves no gap in the numbers.")
    expired = [s.topic for s in (facts.source, facts.target) if any(start > 0 for start, _ in s.ranges.values())]
    if expired:
        limits.append(f"Records of {' and '.join(expired)} that expired or were deleted before could not be read.")
    for what, count in (
        ("no key", facts.source.null_keys + facts.target.null_keys),
        ("an empty key, which the producers spread", facts.source.empty_keys_spread + facts.target.empty_keys_spread),
    ):
        if count:
            limits.append(f"{count} records have {what}; they have no order to keep.")
    return limits
