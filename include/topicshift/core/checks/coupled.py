"""TS327: topics that are coupled with the source: written in one transaction, or read by one group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level
from topicshift.core.kafka.several import held_apart
from topicshift.core.kafka.streams import internal_topics, is_streams

JOIN_BY_KEY = ("connect", "flink", "spark_streaming")
"""Kinds whose applications treat each record by itself, or bring keys together themselves."""

OFFSETS = "__consumer_offsets"

TS327 = Code(
    "TS327",
    (Level.ERROR, Level.WARNING, Level.INFO),
    "Another topic is coupled with the source: a transaction writes to both, or a declared group reads both and they "
    "have as many partitions (or that cannot be told), so it may join them by partition. An error until the spec "
    "acknowledges it, then an info; a warning where the source is written in transactions and none was open, so that "
    "what else they write could not be seen; an info where a transaction commits offsets of a group too.",
    "Ask the owner what becomes of it at the switch, then name the topic or the group under `coupled` with that "
    "(docs/coupling.md).",
    of_a_moment=True,
)


@check(Scope.PARTICIPANTS, TS327, needs=("transactions", "transactional", "described", "beside"))
def run(facts: Facts) -> Iterator[Finding]:
    """Looks at the transactions that are open now, and at what the declared groups read."""
    topics = {c.topic: c.reason for c in facts.spec.coupled if c.topic is not None}
    yield from _written_together(facts, topics)
    yield from _unseen(facts)
    yield from _read_together(facts, topics)


def _written_together(facts: Facts, accepted: Mapping[str, str]) -> Iterator[Finding]:
    source = facts.spec.source
    with_: dict[str, list[str]] = {}
    for txn in facts.snapshot.transactions or ():
        for topic in txn.beside:
            with_.setdefault(topic, []).append(txn.transactional_id)
    for topic, ids in sorted(with_.items()):
        if topic == OFFSETS:
            yield TS327.info(
                f"transaction {ids[0]}",
                f"{_some(ids)} writes to {source} and commits offsets of a group: it consumes and produces.",
                "While it stands as a producer it reads no input either, so its lag on that grows for the freeze.",
                "Where its input is the source itself, declare it as a consumer too (docs/coupling.md).",
            )
        elif topic in accepted:
            yield TS327.info(
                f"topic {topic}",
                f"it is written in one transaction with {source} ({_some(ids)}), which is known: {accepted[topic]}.",
                "Nothing is written to it either while these producers stand still.",
                "Nothing to do.",
            )
        else:
            yield TS327.error(
                f"topic {topic}",
                f"it is written in one transaction with {source}, by {_some(ids)}.",
                "Nothing is written to it either while these producers stand still; and whoever relies on both "
                f"topics together meets {facts.shape.name} with other partitions than {topic}.",
                f"Ask the owner, then write `coupled: [{{topic: {topic}, reason: ...}}]`.",
            )


def _unseen(facts: Facts) -> Iterator[Finding]:
    """Producers that write in transactions, none of which was open: what else they write is not known."""
    open_now = {t.transactional_id for t in facts.snapshot.transactions or ()}
    others = [t for t in facts.snapshot.transactional or () if t not in open_now]
    if others and not any(c.topic for c in facts.spec.coupled):
        yield TS327.warning(
            "source",
            f"it is written in transactions by {_some(others)}, and none of these was open now.",
            "Whether they write to other topics too shows only while one is open.",
            "Ask their owners; plan again while they work, or write under `coupled` which topics they write as well.",
        )


def _read_together(facts: Facts, accepted: Mapping[str, str]) -> Iterator[Finding]:
    source, spec, described = facts.snapshot.source, facts.spec, facts.snapshot.described or {}
    by_group = {c.group: c.reason for c in spec.coupled if c.group is not None}
    for i, consumer in enumerate(spec.consumers):
        info = described.get(consumer.group)
        if source is None or info is None or consumer.kind in JOIN_BY_KEY:
            continue
        if is_streams(info, internal_topics(consumer.group, facts.snapshot.topics or (), described)):
            continue  # TS326
        counts = (facts.snapshot.beside or {}).get(consumer.group, {})
        found = {
            t: n
            for t, n in counts.items()
            if not t.startswith("__") and n in (None, source.partitions) and not held_apart(info, spec.source, t)
        }
        where = f"consumers[{i}].group"
        reason = by_group.get(consumer.group)
        open_ = {} if reason is not None else {t: n for t, n in found.items() if t not in accepted}
        if open_:
            same = [t for t, n in open_.items() if n is not None]
            unknown = [t for t, n in open_.items() if n is None]
            yield TS327.error(
                where,
                f"{consumer.group!r} reads "
                + " and ".join(
                    [f"{_some(same)} too, with {source.partitions} partitions like the source"] * bool(same)
                    + [f"{_some(unknown)} too, whose partitions cannot be counted"] * bool(unknown)
                )
                + ".",
                f"Should it join them by partition, it misses keys once it reads {facts.shape.name} with "
                f"{facts.shape.partitions} partitions, in silence.",
                "Ask its owner. Where it joins none by partition, write "
                f"`coupled: [{{group: {consumer.group}, reason: ...}}]`; where it does: docs/coupling.md.",
            )
        elif found:
            known = reason or "; ".join(f"{t}: {accepted[t]}" for t in found)
            yield TS327.info(
                where,
                f"{consumer.group!r} reads {_some(list(found))} too, which is known: {known}.",
                "Should it join them by partition, it misses keys after the switch.",
                "Nothing to do.",
            )


def _some(names: Sequence[str]) -> str:
    shown = sorted(set(names))
    return ", ".join(shown[:5]) + (f" and {len(shown) - 5} more" if len(shown) > 5 else "")
