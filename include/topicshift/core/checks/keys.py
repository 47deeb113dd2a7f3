"""TS401 to TS405: what impact.json says about the keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.checks.snapshot import MEASURED_NEXT
from topicshift.core.findings import Code, Finding, Level
from topicshift.core.sizing.sizing import skew_from_impact
from topicshift.core.spec.model import Sizing

TS401 = Code(
    "TS401",
    (Level.ERROR, Level.WARNING),
    "The keys were not measured: whether the source is keyed, by which rule, and what is hot, is not known, and "
    "unknown is never OK. A warning where the source held no record to measure, where a later step measures them, "
    "or where a person said `--without-impact`.",
    "Run the assessment (`topic_assessment`) or `spark_jobs/key_rehash_impact.py`, and give its impact.json with "
    "`--impact`.",
)
TS402 = Code(
    "TS402",
    (Level.ERROR,),
    "No record of the source has a key (or none but an empty one, which the producers spread), so no order per key "
    "can break: it may be altered in place.",
    "Increase it in place with `kafka-topics.sh --alter`; no migration, no freeze.",
)
TS403 = Code(
    "TS403",
    (Level.WARNING,),
    "Some records have a key and some have none; the latter have no order to keep and go anywhere.",
    "Nothing to do if that is meant.",
)
TS404 = Code(
    "TS404",
    (Level.WARNING,),
    "One key, or the hottest partition under the planned count, is more than one consumer can work through.",
    "Split the hot key, or speed up its consumer; no count of partitions helps a single key.",
)
TS405 = Code(
    "TS405",
    (Level.ERROR,),
    "The impact report is not one of this source: of another topic, of a topic of the same name that was deleted "
    "since, or no report at all.",
    "Give the impact.json that was made of this topic.",
)


@check(Scope.KEYS, TS401, TS402, TS403, TS404, TS405)
def run(facts: Facts) -> Iterator[Finding]:
    """Reads the counts of impact.json."""
    impact = facts.snapshot.impact
    if impact is None:
        if facts.snapshot.topics is not None and facts.snapshot.source is None:
            return  # TS101 says that there is no such topic, so there is nothing to measure
        yield _unmeasured("the keys were not measured", facts.snapshot.no_impact)
        return
    if strange := _not_of_this_source(facts, impact):
        yield strange
        return
    records, keyed = int(impact["records"]), int(impact.get("keyed_records") or 0)
    if not records:
        yield _unmeasured("the source held no record to measure", "measured, with nothing to see")
        return
    part = impact.get("partitioner") or {}
    spread = part.get("empty_keys") == "spread" and keyed == int(impact.get("empty_keys") or 0)
    if keyed == 0 or spread:
        count = facts.shape.partitions
        source = facts.snapshot.source
        up = source is not None and count is not None and count > source.partitions
        command = f"`kafka-topics.sh --alter --topic {facts.spec.source} --partitions {count}`"
        yield TS402.error(
            "source",
            f"none of its {records:,} records has a key"
            + (" but an empty one, and its producers spread these." if spread and keyed else "."),
            "Without keys there is no order per key to protect, so a freeze of the producers buys nothing.",
            f"Increase it in place: {command}."
            if up
            else "An increase can be done in place; for fewer partitions point the producers to a new topic.",
        )
        return
    if keyed < records:
        yield TS403.warning(
            "source",
            f"{records - keyed:,} of its {records:,} records have no key.",
            "They have no order to keep; the proof counts them, and says nothing about their order.",
        )
    yield from _hot(facts, impact)


def _unmeasured(seen: str, excuse: str | None) -> Finding:
    if excuse == MEASURED_NEXT:
        return TS401.warning(
            "keys",
            f"the keys are not measured yet: {excuse}.",
            "Whether the topic is keyed, by which rule, and which keys are hot, is not known to this first plan.",
            "Nothing to do: the plan that people are asked about is made with what is measured.",
        )
    return TS401.at(
        Level.WARNING if excuse else Level.ERROR,
        "keys",
        f"{seen} ({excuse})." if excuse else f"{seen}.",
        "Whether the topic is keyed, by which rule, and which keys are hot, is not known to this plan.",
        "Run the assessment (DAG topic_assessment), which reads the topic and makes impact.json"
        + ("." if excuse else ", and plan with that."),
        unknown=not excuse,
    )


def _not_of_this_source(facts: Facts, impact: Mapping[str, Any]) -> Finding | None:
    """A report of another topic says nothing about this one, and would pass for an answer."""
    source, topic, topic_id = facts.snapshot.source, impact.get("topic"), impact.get("topic_id")
    if topic != facts.spec.source or not isinstance(impact.get("records"), int):
        seen = f"it is of topic {topic}, not of {facts.spec.source}." if topic else "it names no topic and no records."
    elif source is not None and topic_id is not None and topic_id != source.topic_id:
        seen = f"it is of a topic of this name with the id {topic_id}; the id is {source.topic_id} now."
    else:
        return None
    return TS405.error(
        "impact.json",
        seen,
        "What it says of keys and skew is about other records, so the keys of this source are unknown.",
        "Give the impact.json that was made of this topic, or run the assessment again.",
        unknown=True,
    )


def _hot(facts: Facts, impact: Mapping[str, Any]) -> Iterator[Finding]:
    curve, hottest = skew_from_impact(impact)
    count, sizing = facts.shape.partitions, facts.spec.partitions
    share = curve.get(count) if count is not None else None
    do = "Split the key (a suffix that the consumer knows), or speed up its consumer."
    if isinstance(sizing, Sizing):
        if hottest is not None and hottest * sizing.throughput > sizing.per_consumer:
            yield TS404.warning(
                "keys",
                f"the hottest key has {hottest:.1%} of the records, {hottest * sizing.throughput:,.0f}/s at the wanted "
                f"rate; one consumer does {sizing.per_consumer:,.0f}/s.",
                "A key lies in one partition, and a partition has one consumer: no count helps it.",
                do,
            )
        elif share is not None and share * sizing.throughput > sizing.per_consumer:
            yield TS404.warning(
                "partitions",
                f"the hottest of {count} partitions would get {share:.1%}, {share * sizing.throughput:,.0f}/s at the "
                f"wanted rate; one consumer does {sizing.per_consumer:,.0f}/s.",
                "That partition falls behind while the others idle.",
                "Look at the skew curve of the impact report for a better count.",
            )
    elif hottest is not None and count is not None and count > 1 and hottest > max(0.3, 2 / count):
        yield TS404.warning(
            "keys",
            f"the hottest key has {hottest:.1%} of the records; an even share of a partition is {1 / count:.1%}.",
            "Its partition stays the bottleneck; a key lies in one partition, so no count helps it.",
            do,
        )
