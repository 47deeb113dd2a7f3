"""TS701 to TS716: what the impact's figures say, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.findings import Finding, Level
from topicshift.core.impact.partitioning import RULE
from topicshift.core.impact.report import Impact, Kind

CODES: dict[str, str] = {
    "TS701": "Records were placed by several partitioner rules.",
    "TS702": "More records than allowed lie where no known rule puts their key.",
    "TS703": "Records are from before an earlier in-place increase.",
    "TS704": "A partition of the source is hot.",
    "TS705": "A candidate count leaves a hot partition, or the hottest key sets the bound.",
    "TS706": "Keys begin with schema ids (Confluent wire format).",
    "TS707": "Keys already lie in more than one partition.",
    "TS708": "The topic is unkeyed: it may be altered in place.",
    "TS709": "Some records have a key and some have none.",
    "TS710": "The topic's rule is not the one that the predictions take.",
    "TS711": "There was no record to judge by.",
    "TS712": "The figures come from a sample.",
    "TS713": "An in-place increase now would let records be overtaken.",
    "TS714": "Too few keys to be sure of the rule.",
    "TS715": "The report shows keys as they are.",
    "TS716": "All records without a key lie in one partition.",
}


GROUPS_NAMED = 5
"""Groups that TS713 names, the largest figures first."""


def findings(impact: Impact, max_unexplained: float) -> list[Finding]:
    """All findings, errors first."""
    order = {Level.ERROR: 0, Level.WARNING: 1, Level.INFO: 2}
    found = [*_kind(impact), *_partitioner(impact, max_unexplained), *_skew(impact), *_in_place(impact)]
    return sorted(found, key=lambda f: (order[f.level], f.code))


def _kind(impact: Impact) -> Iterator[Finding]:
    if impact.kind is Kind.EMPTY:
        yield Finding(
            code="TS711",
            level=Level.WARNING,
            subject=impact.topic,
            seen="No record was there to read: the topic is empty, or all its records are expired or out of range.",
            why="Which rule placed the keys and how they spread cannot be told.",
            do="Repeat the assessment when records are there, or widen --from and --to.",
        )
    elif impact.kind is Kind.UNKEYED:
        yield Finding(
            code="TS708",
            level=Level.INFO,
            subject=impact.topic,
            seen=f"None of {impact.records:,} records has a key.",
            why="Without keys no order per key exists that more partitions could break.",
            do="Increase the count in place (kafka-topics.sh --alter); no migration is needed.",
        )
    elif impact.kind is Kind.MIXED:
        yield Finding(
            code="TS709",
            level=Level.INFO,
            subject=impact.topic,
            seen=f"{impact.null_keys:,} of {impact.records:,} records have no key.",
            why="They have no order to keep and spread anew; the figures for keys leave them out.",
            do="Nothing, if that is meant.",
        )
    if (sample := impact.measured.sample) is not None:
        yield Finding(
            code="TS712",
            level=Level.INFO,
            subject=impact.topic,
            seen=f"{sample.records_read:,} records were read, {sample.fraction:.2%} of the offsets.",
            why="Every figure is an estimate; low and high hold the truth with 95 % confidence.",
            do="Read a larger sample, or everything, where an interval is too wide to decide by.",
        )
    if impact.measured.keys_shown:
        yield Finding(
            code="TS715",
            level=Level.INFO,
            subject=impact.topic,
            seen=f"The largest keys are shown as they are, as {impact.measured.keys_shown_to or 'someone'} asked with "
            "--show-keys.",
            why="Keys may be personal data; whoever reads impact.json or impact.html sees them.",
            do="Keep both files where such data may lie, or make them again without --show-keys.",
        )
    if impact.partitioner.null_keys == "one_partition" and impact.source.partitions > 1:
        yield _null_keys(impact)


def _null_keys(impact: Impact) -> Finding:
    sure = impact.partitioner.null_keys_sure
    return Finding(
        code="TS716",
        level=Level.WARNING if sure else Level.INFO,
        subject=impact.topic,
        seen=f"All {impact.null_keys:,} records without a key lie in one of {impact.source.partitions} partitions"
        + (", over too many batches for chance." if sure else "; they are too few bursts to tell a rule from chance."),
        why="A client that hashes a missing key (librdkafka's consistent, murmur2 and fnv1a) or names the partition "
        "does the same on the target."
        if sure
        else "Producers that spread records without a key keep to one partition for a while (librdkafka 10 ms, Java "
        "16 KiB), so one burst lies in one partition.",
        do="Find the producer that sends them; a partitioner whose name ends in _random spreads them."
        if sure
        else "Nothing because of this alone. Assess again when more of them are there, if it matters.",
    )


def _partitioner(impact: Impact, max_unexplained: float) -> Iterator[Finding]:
    part = impact.partitioner
    if not impact.keyed_records:
        return
    if part.verdict == "mixture" and len({w.name for w in part.writers if w.share > max_unexplained}) > 1:
        writers = ", ".join(
            f"{w.name} at {w.partitions} partition{'' if w.partitions == 1 else 's'} {w.share:.1%} "
            f"({_when(impact, w.first_slice, w.last_slice)})"
            for w in part.writers
        )
        yield Finding(
            code="TS701",
            level=Level.ERROR,
            subject=impact.topic,
            seen=f"Records were placed by several rules: {writers}; unexplained {part.unexplained_share:.1%}.",
            why="Clients that disagree put one key into several partitions: its order is already gone, and the target "
            "inherits the mixture.",
            do="Give every producer the same partitioner (for librdkafka clients: partitioner=murmur2_random), then "
            "assess again.",
        )
    elif part.verdict in ("mixture", "custom", "scattered") and part.unexplained_share > max_unexplained:
        kind = {
            "custom": "Each key keeps to one partition, so this is a rule of somebody's own.",
            "scattered": "Keys are scattered over partitions, as round robin, random or explicit partitions do.",
        }.get(part.verdict, "A part of the records follows a rule of somebody's own, or none.")
        yield Finding(
            code="TS702",
            level=Level.ERROR,
            subject=impact.topic,
            seen=f"No known rule explains {part.unexplained_share:.1%} of the keyed records. {kind}",
            why="Where these keys go under another count cannot be predicted, and their order may already be gone.",
            do="Find the producer that sets the partition itself or brings its own partitioner, and decide what it "
            "shall do on the target.",
        )
    if part.earlier_counts:
        counts = ", ".join(map(str, part.earlier_counts))
        yield Finding(
            code="TS703",
            level=Level.WARNING,
            subject=impact.topic,
            seen=f"Some records were placed when the topic had {counts} partition{'' if counts == '1' else 's'}, "
            f"before it had {impact.source.partitions}.",
            why="Keys that moved then have records in two partitions; their old records have no order to the new ones.",
            do="Let every group read past these records before the cut-over, which the drain proves anyway.",
        )
    if part.name is not None and part.name != "murmur2":
        yield Finding(
            code="TS710",
            level=Level.WARNING,
            subject=impact.topic,
            seen=f"The keys are placed by {part.name} ({', '.join(RULE[part.name].clients[:2])}), not by murmur2.",
            why="Moved keys and predicted loads are for murmur2, Kafka's Java client; clients that keep their rule put "
            "the keys elsewhere on the target. Relocated records count against what is there today.",
            do="Set partitioner=murmur2_random in the producers with the switch, so that every language agrees.",
        )
    if not part.sure and part.verdict != "none":
        yield Finding(
            code="TS714",
            level=Level.INFO,
            subject=impact.topic,
            seen=f"{impact.distinct_keys:,} distinct keys in {impact.source.partitions} partitions were seen.",
            why="So few agree with some rule by chance; the name of the rule is a guess.",
            do="Assess again with more keys, or look at the producers' configuration.",
        )
    if impact.keys_in_several_partitions:
        yield Finding(
            code="TS707",
            level=Level.WARNING,
            subject=impact.topic,
            seen=f"{impact.keys_in_several_partitions:,} of {impact.distinct_keys:,} keys have records in more than "
            "one partition.",
            why="Between partitions there is no order: for these keys it is already gone.",
            do="See the partitioner's findings for the cause.",
        )
    if impact.schema_prefixes is not None:
        ids = len(impact.schema_prefixes.ids)
        yield Finding(
            code="TS706",
            level=Level.WARNING,
            subject=impact.topic,
            seen=f"{impact.schema_prefixes.keys:,} keys begin with what looks like a schema id; {ids} "
            f"{'id was' if ids == 1 else 'ids were'} seen.",
            why="The hash covers the id, so every new version of the key's schema moves every key elsewhere.",
            do="Keep the key's schema unchanged, or serialize keys without a schema registry.",
        )


def _when(impact: Impact, first: int, last: int) -> str:
    if not impact.slices or (first == 0 and last == len(impact.slices) - 1):
        return "all the time"
    return f"{impact.slices[first].start} to {impact.slices[last].end}"


def _skew(impact: Impact) -> Iterator[Finding]:
    for p in impact.source.hot_partitions:
        here, keyed = impact.source.partition_records[p], impact.source.keyed_partition_records[p]
        burst = impact.partitioner.null_keys == "one_partition" and not impact.partitioner.null_keys_sure
        yield Finding(
            code="TS704",
            level=Level.WARNING,
            subject=f"{impact.topic}[{p}]",
            seen=f"Partition {p} has {here / sum(impact.source.partition_records):.1%} of the records"
            + (f", {1 - keyed / here:.0%} of them without a key." if keyed < here else "."),
            why="One consumer has to follow it while the others idle.",
            do="See the largest keys: if one of them is the cause, more partitions do not help."
            if keyed * 2 >= here
            else "Nothing yet: a burst of records without a key lies together. Assess again when more are there."
            if burst
            else "No key is the cause. Find the producer of the records without a key: one that names the partition, "
            "hashes the missing key, or (Java clients 2.4 to 3.2) sends more of them to slow brokers.",
        )
    useful = impact.limits.useful_partitions
    for c in impact.candidates:
        too_many = useful is not None and c.partitions > useful
        if not c.hot_partitions and not too_many:
            continue
        share = impact.limits.hottest_key_share or 0.0
        yield Finding(
            code="TS705",
            level=Level.WARNING if c.hot_partitions else Level.INFO,
            subject=f"candidates[{c.partitions}]",
            seen=f"With {c.partitions} partitions the hottest has {c.max_partition_share or 0:.1%} of the keyed "
            f"records; the hottest key alone has {share:.2%}.",
            why=f"A key lies in one partition, so beyond {useful} partitions no count lowers the hottest one."
            if too_many
            else "That partition stays the bottleneck.",
            do="Split the hottest keys, or take a smaller count.",
        )


def _in_place(impact: Impact) -> Iterator[Finding]:
    """One finding for all groups: there can be hundreds, and the report has a row for each."""
    behind = []
    for group in impact.groups:
        worst = max(group.overtaken, key=lambda o: o.records, default=None)
        if worst is not None and worst.records:
            behind.append((worst.records, worst.partitions, group))
    if not behind:
        return
    behind.sort(key=lambda b: (-b[0], b[2].group))
    named = "; ".join(
        f"{group.group} {records:,} of {group.unread:,} unread, with {partitions} partitions"
        for records, partitions, group in behind[:GROUPS_NAMED]
    )
    more = f"; and {len(behind) - GROUPS_NAMED} groups more" if len(behind) > GROUPS_NAMED else ""
    yield Finding(
        code="TS713",
        level=Level.WARNING,
        subject=impact.topic,
        seen=f"Unread records of keys that would move, by group: {named}{more}.",
        why="After an in-place increase newer records of these keys can be read before them.",
        do="Do not alter the topic in place; migrate, or wait until every group has read everything and stop the "
        "producers first.",
    )
