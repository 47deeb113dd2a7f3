"""TS701 to TS717: what the impact's figures say, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.findings import Code, Finding, Level, sort_findings
from topicshift.core.impact.partitioning import RULE, SPREADS_EMPTY_KEYS, Rule
from topicshift.core.impact.report import Impact, Kind

_E, _W, _I = Level.ERROR, Level.WARNING, Level.INFO
CODES: tuple[Code, ...] = (
    Code("TS701", (_E,), "Records were placed by several partitioner rules.",
            "Give every producer the same partitioner (for librdkafka clients: partitioner=murmur2_random), then "
            "assess again; an application that works the partition out itself needs the right count."),
    Code("TS702", (_E,), "More records than allowed lie where no known rule puts their key.",
            "Find the producer that sets the partition itself or brings its own partitioner, and decide what it shall "
            "do on the target."),
    Code("TS703", (_W,), "Records are from before an earlier in-place increase.",
            "Let every group read past these records before the cut-over, which the drain proves anyway."),
    Code("TS704", (_W,), "A partition of the source is hot.",
            "See the largest keys: if one of them is the cause, more partitions do not help. Otherwise find the "
            "producer of the records without a key."),
    Code("TS705", (_W, _I), "A candidate count leaves a hot partition, or the hottest key sets the bound.",
            "Split the hottest keys, or take a smaller count."),
    Code("TS706", (_W,), "Keys begin with schema ids (Confluent wire format).",
            "Keep the key's schema unchanged, or serialize keys without a schema registry."),
    Code("TS707", (_W,), "Keys already lie in more than one partition.",
            "See the partitioner's findings for the cause."),
    Code("TS708", (_I,), "The topic is unkeyed: it may be altered in place.",
            "Increase the count in place (kafka-topics.sh --alter); no migration is needed."),
    Code("TS709", (_I,), "Some records have a key and some have none.",
            "Nothing, if that is meant."),
    Code("TS710", (_W,), "The topic's rule is not the one that the predictions take.",
            "Set partitioner=murmur2_random in the producers with the switch, so that every language agrees; set or "
            "take out the count of an application that works the partition out itself."),
    Code("TS711", (_W,), "There was no record to judge by.",
            "Repeat the assessment when records are there, or widen --from and --to."),
    Code("TS712", (_I,), "The figures come from a sample.",
            "Read a larger sample, or everything, where an interval is too wide to decide by."),
    Code("TS713", (_I,), "What an in-place increase now would let be overtaken; a migration does not.",
            "Nothing for a migration. Before an in-place increase: stop the producers and wait until every group has "
            "read everything."),
    Code("TS714", (_I,), "Too few keys to be sure of the rule.",
            "Assess again with more keys, or look at the producers' configuration."),
    Code("TS715", (_I,), "The report shows keys as they are.",
            "Keep both files where such data may lie, or make them again without --show-keys."),
    Code("TS716", (_W, _I), "All records without a key lie in one partition.",
            "Find the producer that sends them; a partitioner whose name ends in _random spreads them. Assess again "
            "where they are too few to tell."),
    Code("TS717", (_W, _I), "Some records have an empty key.",
            "Nothing if they are meant to be one key, or need no order; send no key where they need none."),
)  # fmt: skip
_DOCS = {doc.code: doc for doc in CODES}


GROUPS_NAMED = 5
"""Groups that TS713 names, the largest figures first."""


def findings(impact: Impact, max_unexplained: float) -> list[Finding]:
    """All findings, errors first."""
    return sort_findings([*_kind(impact), *_partitioner(impact, max_unexplained), *_skew(impact), *_in_place(impact)])


def _find(
    impact: Impact, code: str, seen: str, why: str, *, level: Level | None = None, subject: str = "", do: str = ""
) -> Finding:
    """A finding of this code; of its first level, about the topic, and with its usual remedy, unless told otherwise."""
    doc = _DOCS[code]
    return doc.at(level or doc.levels[0], subject or impact.topic, seen, why, do)


def _kind(impact: Impact) -> Iterator[Finding]:
    if impact.kind is Kind.EMPTY:
        yield _find(
            impact,
            "TS711",
            seen="No record was there to read: the topic is empty, or all its records are expired or out of range.",
            why="Which rule placed the keys and how they spread cannot be told.",
        )
    elif impact.kind is Kind.UNKEYED:
        yield _find(
            impact,
            "TS708",
            seen=f"None of {impact.records:,} records has a key.",
            why="Without keys no order per key exists that more partitions could break.",
        )
    elif impact.kind is Kind.MIXED:
        yield _find(
            impact,
            "TS709",
            seen=f"{impact.null_keys:,} of {impact.records:,} records have no key.",
            why="They have no order to keep and spread anew; the figures for keys leave them out.",
        )
    if (sample := impact.measured.sample) is not None:
        yield _find(
            impact,
            "TS712",
            seen=f"{sample.records_read:,} records were read, {sample.fraction:.2%} of the offsets.",
            why="Every figure is an estimate; low and high hold the truth with 95 % confidence.",
        )
    if impact.measured.keys_shown:
        yield _find(
            impact,
            "TS715",
            seen=f"The largest keys are shown as they are, as {impact.measured.keys_shown_to or 'someone'} asked with "
            "--show-keys.",
            why="Keys may be personal data; whoever reads impact.json or impact.html sees them.",
        )
    if impact.partitioner.null_keys == "one_partition" and impact.source.partitions > 1:
        yield _null_keys(impact)


def _null_keys(impact: Impact) -> Finding:
    sure = impact.partitioner.null_keys_sure
    return _find(
        impact,
        "TS716",
        level=Level.WARNING if sure else Level.INFO,
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


def _empty_keys(impact: Impact) -> Finding:
    """What became of records with an empty key: one client spreads them, all others hash them."""
    part, share = impact.partitioner, impact.empty_keys / impact.keyed_records
    spread = part.empty_keys == "spread"
    if spread:
        where = "They are spread over partitions."
    elif not part.empty_keys_sure:
        where = "They lie in one partition, but are too few bursts to tell a rule from chance."
    elif part.empty_keys == "hashed":
        where = "They lie where the rule of the other keys puts an empty key."
    else:
        where = "All lie in one partition, and not where the rule of the other keys puts an empty key."
    others = part.name is not None and RULE[part.name].hash != SPREADS_EMPTY_KEYS
    odd = part.empty_keys_sure and (others if spread else part.empty_keys == "one_partition")
    return _find(
        impact,
        "TS717",
        level=Level.WARNING if odd else Level.INFO,
        seen=f"{impact.empty_keys:,} records have an empty key, {share:.1%} of the keyed ones. {where}",
        why="librdkafka's default partitioner (consistent_random) spreads empty keys as it does missing ones: such "
        "records have no order to keep, and are left out of what is predicted. Every other client hashes an empty key"
        + (f", so a client other than that of {part.name} writes these." if others and odd else "."),
        do="Nothing if they need no order; send no key then. With another partitioner (murmur2_random) all of them go "
        "to one partition."
        if spread
        else "Nothing if they are meant to be one key: they stay together in one partition. Send no key where they "
        "need no order.",
    )


def _partitioner(impact: Impact, max_unexplained: float) -> Iterator[Finding]:
    part = impact.partitioner
    if not impact.keyed_records:
        return
    mine = [w for w in part.writers if RULE[w.name].home_made]
    if (
        part.verdict == "mixture"
        and len({(w.name, w.partitions) for w in part.writers if w.share > max_unexplained}) > 1
    ):
        writers = ", ".join(
            f"{w.name} at {w.partitions} partition{'' if w.partitions == 1 else 's'} {w.share:.1%} "
            f"({_when(impact, w.first_slice, w.last_slice)})"
            for w in part.writers
        )
        yield _find(
            impact,
            "TS701",
            seen=f"Records were placed by several rules: {writers}; unexplained {part.unexplained_share:.1%}.",
            why="Clients that disagree put one key into several partitions: its order is already gone, and the target "
            "inherits the mixture.",
            do="Give every producer the same partitioner, then assess again. The application behind "
            f"{mine[0].name} works the partition out itself, over a count of its own."
            if mine
            else "Give every producer the same partitioner (for librdkafka clients: partitioner=murmur2_random), then "
            "assess again.",
        )
    elif part.unexplained_share > max_unexplained and part.verdict != "one_partition":
        yield _unexplained(impact)
    if part.earlier_counts:
        counts = ", ".join(map(str, part.earlier_counts))
        yield _find(
            impact,
            "TS703",
            seen=f"Some records were placed when the topic had {counts} partition{'' if counts == '1' else 's'}, "
            f"before it had {impact.source.partitions}.",
            why="Keys that moved then have records in two partitions; their old records have no order to the new ones.",
        )
    if part.name is not None and (part.name != "murmur2" or part.verdict == "fixed_count"):
        yield _other_rule(impact, RULE[part.name])
    if impact.empty_keys and impact.source.partitions > 1:
        yield _empty_keys(impact)
    if not part.sure and part.verdict != "none":
        yield _find(
            impact,
            "TS714",
            seen=f"{impact.distinct_keys:,} distinct keys in {impact.source.partitions} partitions were seen.",
            why="So few agree with some rule by chance; the name of the rule is a guess.",
        )
    several = impact.keys_in_several_partitions - (part.empty_keys == "spread")
    if several > 0:
        yield _find(
            impact,
            "TS707",
            seen=f"{several:,} of {impact.distinct_keys:,} keys have records in more than one partition.",
            why="Between partitions there is no order: for these keys it is already gone.",
        )
    if impact.schema_prefixes is not None:
        ids = len(impact.schema_prefixes.ids)
        yield _find(
            impact,
            "TS706",
            seen=f"{impact.schema_prefixes.keys:,} keys begin with what looks like a schema id; {ids} "
            f"{'id was' if ids == 1 else 'ids were'} seen.",
            why="The hash covers the id, so every new version of the key's schema moves every key elsewhere.",
        )


def _unexplained(impact: Impact) -> Finding:
    """Records that no rule explains; in one partition they are told apart from a rule of somebody's own."""
    part, only = impact.partitioner, impact.partitioner.constant_partition
    kind = {
        "custom": "Each key keeps to one partition, so this is a rule of somebody's own.",
        "scattered": "Keys are scattered over partitions, as round robin, random or explicit partitions do.",
    }.get(part.verdict, "A part of the records follows a rule of somebody's own, or none.")
    if only is not None:
        which = "All of them lie" if part.verdict == "constant" else "These lie"
        kind = f"{which} in partition {only}, whatever their key: a client names it, or a constant partitioner does."
        if only == 0 and part.verdict == "constant":
            kind += " Or the topic had one partition then, and nothing was written since."
    return _find(
        impact,
        "TS702",
        seen=f"No known rule explains {part.unexplained_share:.1%} of the keyed records. {kind}",
        why="Where these keys go under another count cannot be predicted, and their order may already be gone."
        if only is None
        else "As long as one partition is named, more of them relieve nothing; where these keys go on the target "
        "cannot be predicted.",
    )


def _other_rule(impact: Impact, rule: Rule) -> Finding:
    """The rule is not the one of the predictions, or takes a count that the topic does not have."""
    n, fixed = impact.source.partitions, impact.partitioner.verdict == "fixed_count"
    count = impact.partitioner.writers[0].partitions if fixed else n
    over = f" over {count} partitions, although the topic has {n}" if fixed else ""
    own = fixed or rule.home_made
    grown = (
        f" If the topic has grown from {count} since its last record, they have not." if own != rule.home_made else ""
    )
    return _find(
        impact,
        "TS710",
        seen=f"The keys are placed by {rule.name} ({', '.join(rule.clients[:2])}){over}, not by murmur2 over {n}.",
        why="Applications that work the partition out themselves usually have the count in their configuration or "
        f"code, and go on to fill as many partitions of the target, and no others.{grown}"
        if own
        else "Moved keys and predicted loads are for murmur2, Kafka's Java client; clients that keep their rule put "
        "the keys elsewhere on the target. Relocated records count against what is there today.",
        do=f"Look for the count {count} in the application that writes these keys, and set it to the target's count "
        "with the switch; or take its partitioner out, so that the Kafka client places the keys."
        if own
        else "Set partitioner=murmur2_random in the producers with the switch, so that every language agrees.",
    )


def _when(impact: Impact, first: int, last: int) -> str:
    if not impact.slices or (first == 0 and last == len(impact.slices) - 1):
        return "all the time"
    return f"{impact.slices[first].start} to {impact.slices[last].end}"


def _skew(impact: Impact) -> Iterator[Finding]:
    for p in impact.source.hot_partitions:
        here, keyed = impact.source.partition_records[p], impact.source.keyed_partition_records[p]
        burst = impact.partitioner.null_keys == "one_partition" and not impact.partitioner.null_keys_sure
        empty = " or with an empty one" if impact.partitioner.empty_keys == "spread" else ""
        yield _find(
            impact,
            "TS704",
            subject=f"{impact.topic}[{p}]",
            seen=f"Partition {p} has {here / sum(impact.source.partition_records):.1%} of the records"
            + (f", {1 - keyed / here:.0%} of them without a key{empty}." if keyed < here else "."),
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
        yield _find(
            impact,
            "TS705",
            level=Level.WARNING if c.hot_partitions else Level.INFO,
            subject=f"candidates[{c.partitions}]",
            seen=f"With {c.partitions} partitions the hottest has {c.max_partition_share or 0:.1%} of the keyed "
            f"records; the hottest key alone has {share:.2%}.",
            why=f"A key lies in one partition, so beyond {useful} partitions no count lowers the hottest one."
            if too_many
            else "That partition stays the bottleneck.",
        )


def in_place(impact: Impact, partitions: int) -> Finding | None:
    """TS713 of this count alone, as a plan has it; None where no record would be overtaken with it."""
    return next(_in_place(impact, partitions), None)


def _in_place(impact: Impact, partitions: int | None = None) -> Iterator[Finding]:
    """One finding for all groups: there can be hundreds, and the report has a row for each.

    Of the worst count that was measured, or of one.
    """
    behind = []
    for group in impact.groups:
        counted = [o for o in group.overtaken if partitions in (None, o.partitions)]
        worst = max(counted, key=lambda o: o.records, default=None)
        if worst is not None and worst.records:
            behind.append((worst.records, worst.partitions, group))
    if not behind:
        return
    behind.sort(key=lambda b: (-b[0], b[2].group))
    named = "; ".join(
        f"{group.group} {records:,} of {group.unread:,} unread, with {count} partitions"
        for records, count, group in behind[:GROUPS_NAMED]
    )
    more = f"; and {len(behind) - GROUPS_NAMED} groups more" if len(behind) > GROUPS_NAMED else ""
    yield _find(
        impact,
        "TS713",
        seen=f"Unread records of keys that would move, by group: {named}{more}.",
        why="After an in-place increase newer records of these keys could be read before them. A migration to another "
        "topic lets no group read the target before it has read these.",
    )
