"""TS326: Kafka Streams applications that read the source."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.drain.discovery import reads
from topicshift.core.findings import Code, Finding, Level
from topicshift.core.kafka.streams import internal_topics, is_streams

_TOOL = "kafka-streams-application-reset.sh --bootstrap-server SERVER"

TS326 = Code(
    "TS326",
    (Level.ERROR, Level.WARNING),
    "A Kafka Streams application reads the source. Its state, its changelog topics and its repartition topics are cut "
    "by the partitions of what it reads; on a topic with another number it refuses to start, or joins wrong keys. "
    "Refused where it is to be moved; a warning once its group is ignored, so that its owner moves it.",
    "Name its group under `ignore_groups`. Once the switch is done and it has read the source to its end: stop it, "
    "reset it (`kafka-streams-application-reset.sh`), clean its state, start it on the target (docs/coupling.md).",
)


@check(Scope.PARTICIPANTS, TS326, needs=("described", "commits"))
def run(facts: Facts) -> Iterator[Finding]:
    """Looks at every group that is declared or reads the source."""
    snapshot, spec = facts.snapshot, facts.spec
    described, commits = snapshot.described or {}, snapshot.commits or {}
    declared = {c.group: f"consumers[{i}].group" for i, c in enumerate(spec.consumers)}
    ignored = {g.group: f"ignore_groups[{i}]" for i, g in enumerate(spec.ignore_groups)}
    own = {c.group for c in spec.consumers if c.reader(spec.source) is not None}
    names = set(described) | set(declared)
    for group in sorted(names - own):
        info = described.get(group)
        if group not in declared and reads(spec.source, info, commits.get(group)) is None:
            continue
        internal = internal_topics(group, snapshot.topics or (), names)
        how = is_streams(info, internal)
        if how is None:
            continue
        protocol = info is not None and info.kind == "streams"
        steps = _new_id(facts, group) if protocol else _reset(facts, group)
        if group in ignored and group not in declared:
            yield TS326.warning(
                ignored[group],
                f"{group!r} is a Kafka Streams application: {how}.",
                "It is not moved. It stays on the source until its owner resets it, and its state begins anew.",
                f"After the switch: {steps}",
            )
            continue
        told = protocol or (info is not None and info.members)
        guess = "" if told else " If it is none, start it: its members then tell."
        yield TS326.error(
            declared.get(group, f"group {group}"),
            f"{group!r} is a Kafka Streams application: {how}.",
            "Its internal topics and its state have as many partitions as what it reads; with another number it "
            "refuses to start, or joins wrong keys.",
            f"Name it under `ignore_groups`, and let its owner move it after the switch: {steps}{guess}",
        )


def _drained(facts: Facts, group: str) -> str:
    return (
        f"(1) wait until `topicshift drain --topic {facts.spec.source} --group {group}` says drained, and the same for "
        "each of its -repartition topics; (2) stop it"
    )


def _reset(facts: Facts, group: str) -> str:
    source, target = facts.spec.source, facts.shape.name
    return (
        f"{_drained(facts, group)}, every instance; (3) `{_TOOL} --application-id {group} --input-topics {target} "
        "--dry-run`, then without --dry-run: it deletes the internal topics; (4) delete its state.dir, or call "
        f"KafkaStreams#cleanUp(); (5) start it with {target} in the place of {source}. See docs/coupling.md."
    )


def _new_id(facts: Facts, group: str) -> str:
    """Brokers keep the topology of a group of the streams protocol, and refuse another one, after a reset as well."""
    source, target = facts.spec.source, facts.shape.name
    return (
        f"{_drained(facts, group)}, every instance; (3) give it a new application.id, for brokers refuse another "
        f"topology of {group!r}; (4) start it with {target} in the place of {source}; (5) `{_TOOL} --application-id "
        f"{group}` deletes the internal topics that are left. See docs/coupling.md."
    )
