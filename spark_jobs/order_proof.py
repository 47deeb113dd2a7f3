"""Prove over both topics that nothing was lost and that the order of every key held.

Usage (with ``spark-submit --jars ...``, the jars of ``build/jars/spark``)::

    order_proof.py --source payments --target payments-v2 --fence FILE --sequence-header seq --output DIR
                   (--bootstrap-server HOST:PORT | --kafka-config FILE)

Both topics are read once, with frozen ends, read_committed: the source up to the fence, the target up to its last
stable offset of now. Checked, per key: one partition in each topic; sequence numbers in order in each topic; no
number of the target below the last one of the source; no number missing between the first and the last; repeats
counted; keyed placement in the target as Java's murmur2 predicts; no record of the source behind the fence.

``--fence`` is the run's ``fence.json`` (or a drain certificate up to a fence). Without
``--sequence-header`` order and loss are not proven, and the result says so. The answer is ``DIR/order_proof.json``;
exit code 0 proven (or partly, without a header), 3 violated, 4 unknown, 2 wrong use.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import Column, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody uses

from topicshift.core.drain.replay import HEADER
from topicshift.core.errors import NotFound, SpecError, Unreadable
from topicshift.core.fence.point import FencePoint
from topicshift.core.kafka.cluster import PartitionOffsets
from topicshift.core.proof.order import Example, Facts, Name, OrderProof, Side, prove
from topicshift.core.proof.verification import same_topic_id
from topicshift_spark.files import Folder
from topicshift_spark.keys import SOURCE, TARGET, per_key, records_of, totals
from topicshift_spark.offsets import OffsetsProbe, cleanup_policy
from topicshift_spark.progress import progress
from topicshift_spark.result import prepare_folder, run
from topicshift_spark.session import cores, get_session
from topicshift_spark.source import Cluster, Range, Topic, client_properties, read, total

RESULT = "order_proof.json"
RECORDS_A_TASK = 250_000
_SETTINGS = {"spark.ui.enabled": "false"}
_OPTIONS = {"kafka.fetch.max.wait.ms": "20", "kafka.enable.metrics.push": "false"}


def load_fence(path: str, source: str) -> FencePoint:
    """The fence of the source. Raises ``SpecError`` for a file that is none, or is another topic's."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise SpecError(f"--fence {path} cannot be read: {error.strerror}.") from error
    return FencePoint.read(data, where=f"--fence {path}", topic=source)


class _Digest:
    """How a key is named: a keyed hash of this run alone, or the key itself where that was asked for."""

    def __init__(self, show: bool) -> None:
        self._show, self._salt = show, secrets.token_bytes(16)

    def __call__(self, key: bytes) -> str:
        if self._show:
            try:
                return key.decode("utf-8")
            except UnicodeDecodeError:
                return "0x" + key.hex()
        return hmac.new(self._salt, key, hashlib.sha256).hexdigest()[:16]


class _Read:
    """One topic with frozen ranges."""

    def __init__(self, probe: OffsetsProbe, name: str, fence: Mapping[int, int] | None = None) -> None:
        topic = probe.topic()
        if topic is None:
            raise NotFound(f"Topic {name} does not exist (or this user may not see it). Check the name.")
        self.topic: Topic = topic
        self.offsets = probe.offsets(topic)
        bad = {p: o.error for p, o in self.offsets.items() if o.error is not None}
        if bad:
            first = min(bad)
            raise Unreadable(f"Partition {first} of {name} cannot be read, nor {len(bad) - 1} others: {bad[first]}")
        self.ranges = {p: self._range(p, o, fence) for p, o in self.offsets.items()}

    @staticmethod
    def _range(partition: int, seen: PartitionOffsets, fence: Mapping[int, int] | None) -> Range:
        start, end = seen.log_start or 0, seen.end_committed or 0
        if fence is not None and partition in fence:
            end = min(end, fence[partition])
        return Range(start, max(start, end))


def behind_the_fence(
    spark: SparkSession, properties: Mapping[str, str], source: _Read, fence: Mapping[int, int]
) -> dict[int, int]:
    """Readable records of the source behind the fence, by partition; markers alone are none."""
    ranges = {
        p: Range(max(fence[p], o.log_start or 0), o.end_committed or 0)
        for p, o in source.offsets.items()
        if p in fence and (o.end_committed or 0) > max(fence[p], o.log_start or 0)
    }
    if not ranges:
        return {}
    records = read(spark, properties, source.topic.name, ranges, options=_OPTIONS)
    return {row["partition"]: row["count"] for row in records.groupBy("partition").count().collect()}


class Named:
    """What the run has named between its first fence and its last: where it begins, and how many by partition."""

    def __init__(self, path: str) -> None:
        try:
            found = json.loads(Path(path).read_bytes())
            self.begins = {int(p): int(at) for p, at in found["from"].items()}
            self.records = {int(p): int(n) for p, n in found["named"].items()}
            self.complete = bool(found["complete"])
        except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
            raise SpecError(f"--strays {path} is not what the run writes ({type(error).__name__}: {error}).") from None


def between(
    spark: SparkSession,
    properties: Mapping[str, str],
    source: _Read,
    begins: Mapping[int, int],
    ends: Mapping[int, int],
) -> dict[int, int]:
    """Readable records of the source between two fences, by partition."""
    ranges = {
        p: Range(max(begins[p], o.log_start or 0), min(ends[p], o.end_committed or 0))
        for p, o in source.offsets.items()
        if p in begins and p in ends
    }
    wanted = {p: r for p, r in ranges.items() if r.start < r.end}
    if not wanted:
        return {}
    records = read(spark, properties, source.topic.name, wanted, options=_OPTIONS)
    return {row["partition"]: row["count"] for row in records.groupBy("partition").count().collect()}


def load_replayed(path: str) -> frozenset[str]:
    """Marks of the records that the run has replayed. Raises ``SpecError`` for a file that is none of its."""
    try:
        return frozenset(str(mark) for mark in json.loads(Path(path).read_bytes())["marks"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpecError(f"--replayed {path} is not what the run writes ({type(error).__name__}: {error}).") from None


def _is_replayed() -> Column:
    return F.exists("headers", lambda h: h["key"] == HEADER)


def replayed_in(spark: SparkSession, properties: Mapping[str, str], target: _Read) -> list[str]:
    """The mark of every record of the target that has one."""
    found = read(spark, properties, target.topic.name, target.ranges, headers=True, options=_OPTIONS)
    mark = F.element_at(F.filter("headers", lambda h: h["key"] == HEADER), 1)["value"]
    return [row["mark"] for row in found.where(_is_replayed()).select(mark.cast("string").alias("mark")).collect()]


def left_at(
    spark: SparkSession, properties: Mapping[str, str], source: _Read, starts: Mapping[int, int]
) -> tuple[dict[int, int], list[int]]:
    """Readable records of the source from these offsets up to its end (the fence), and partitions that begin later."""
    ranges = {p: Range(max(at, source.ranges[p].start), source.ranges[p].end) for p, at in starts.items()}
    wanted = {p: r for p, r in ranges.items() if r.start < r.end}
    found = dict.fromkeys(starts, 0)
    if wanted:
        records = read(spark, properties, source.topic.name, wanted, options=_OPTIONS)
        found |= {row["partition"]: row["count"] for row in records.groupBy("partition").count().collect()}
    return found, sorted(p for p, at in starts.items() if at < source.ranges[p].start)


def count(
    spark: SparkSession,
    properties: Mapping[str, str],
    source: _Read,
    target: _Read,
    header: str | None,
    *,
    replayed: bool = False,
) -> Row:
    """Read both topics once and return the totals of :func:`topicshift_spark.keys.totals`.

    ``replayed``: records of the target that are marked as replayed are left out.
    """
    offsets = total(source.ranges.values()) + total(target.ranges.values())
    # A reducer sorts about as many records as a task reads; more of them only where there are more cores.
    spark.conf.set("spark.sql.shuffle.partitions", str(max(cores(spark), -(-offsets // RECORDS_A_TASK))))
    both = None
    for side, one in ((SOURCE, source), (TARGET, target)):
        tasks = min(2 * cores(spark), total(one.ranges.values()) // RECORDS_A_TASK)
        found = read(
            spark,
            properties,
            one.topic.name,
            one.ranges,
            headers=header is not None or replayed,
            min_partitions=tasks or None,
            options=_OPTIONS,
        )
        if replayed and side == TARGET:
            found = found.where(F.col("headers").isNull() | ~_is_replayed())
        records = records_of(spark, found, side, len(one.topic.partitions), header)
        both = records if both is None else both.unionAll(records)
    assert both is not None
    ordered = header is not None
    with progress(spark, f"Reading {offsets:,} offsets of {source.topic.name} and {target.topic.name}"):
        return totals(per_key(both, ordered=ordered), ordered=ordered).collect()[0]


def facts(  # noqa: PLR0913 - what was counted, by keyword
    row: Row,
    source: _Read,
    target: _Read,
    *,
    ordered: bool,
    show_keys: bool = False,
    fence: Mapping[int, int] | None = None,
    after_fence: Mapping[int, int] | None = None,
    tails: tuple[dict[int, int], list[int]] | None = None,
    strays: tuple[dict[int, int], Named] | None = None,
    replayed: tuple[list[str], frozenset[str]] | None = None,
    compacted: frozenset[Name] = frozenset(),
) -> Facts:
    """What was counted, in the words of :mod:`topicshift.core.proof.order`."""
    names = (source.topic.name, target.topic.name)
    get = row.asDict()
    return Facts(
        source=_side(get, source, "s", ordered),
        target=_side(get, target, "t", ordered),
        keys=get["keys"],
        keys_in_both=get["keys_in_both"],
        fence=fence,
        after_fence=after_fence or {},
        below_fence=[p for p, o in source.offsets.items() if p in (fence or {}) and (o.end or 0) < (fence or {})[p]],
        duplicates_across=get["across"] if ordered else None,
        missing=get["missing"] if ordered else None,
        keys_with_gaps=get["gap_keys"] if ordered else None,
        crossing_keys=get["crossing"] if ordered else None,
        crossing_repeats=get["crossing_repeats"] if ordered else None,
        time_reversed_keys=get["time_reversed"],
        empty_key_split=get["empty_key_split"] > 0,
        compacted=compacted,
        tails=tails[0] if tails else None,
        tails_expired=tails[1] if tails else (),
        between=strays[0] if strays else {},
        strays=strays[1].records if strays else None,
        strays_complete=strays is None or strays[1].complete,
        replayed=replayed[0] if replayed else None,
        replayed_wanted=replayed[1] if replayed else frozenset(),
        examples=_examples(get, names, _Digest(show_keys)),
    )


def _side(get: Mapping[str, Any], one: _Read, tag: str, ordered: bool) -> Side:
    return Side(
        topic=one.topic.name,
        topic_id=one.topic.topic_id,
        partitions=len(one.topic.partitions),
        ranges={p: (r.start, r.end) for p, r in one.ranges.items()},
        records=get[f"records_{tag}"],
        null_keys=get[f"null_keys_{tag}"],
        empty_keys_spread=get[f"loose_keys_{tag}"],
        keys=get[f"keys_{tag}"],
        keys_in_several_partitions=get[f"spread_{tag}"],
        without_sequence=get[f"absent_{tag}"] if ordered else None,
        unreadable_sequence=get[f"bad_{tag}"] if ordered else None,
        duplicates=get[f"repeats_{tag}"] if ordered else None,
        out_of_order=get[f"inverted_{tag}"] if ordered else None,
        misplaced_records=get[f"misplaced_{tag}"],
        misplaced_keys=get[f"misplaced_keys_{tag}"],
    )


def _examples(get: Mapping[str, Any], names: tuple[str, str], digest: _Digest) -> dict[str, list[Example]]:
    """The worst keys by check; each with the offsets at which the first or largest fault shows."""

    def at(place: Row, prefix: str = "") -> str:
        return f"{names[place[prefix + 'side']]}-{place[prefix + 'p']} offset {place[prefix + 'o']}"

    def spread(row: Row, tag: str) -> str:
        return f"records in partitions from {row['first_p_' + tag]} to {row['last_p_' + tag]}"

    def gap(row: Row) -> str:
        g = row["gap_at"]
        return f"{g['gap']} missing between {g['bq']} ({at(g, 'b')}) and {g['q']} ({at(g)})"

    def inverted(row: Row) -> str:
        i = row["inverted_at"]
        return f"{i['q']} ({at(i)}) lies before {i['bq']} ({at(i, 'b')})"

    def crossed(row: Row) -> str:
        return f"lowest number in the target {row['first_q_t']}, last in the source {row['last_q_s']}"

    def repeat(row: Row) -> str:
        return f"number {row['repeat_at']['q']} again at {at(row['repeat_at'])}"

    told: dict[str, tuple[str, Callable[[Row], str]]] = {
        "one_partition_per_key_source": ("x_spread_s", lambda r: spread(r, "s")),
        "one_partition_per_key_target": ("x_spread_t", lambda r: spread(r, "t")),
        "order_source": ("x_inverted_s", inverted),
        "order_target": ("x_inverted_t", inverted),
        "crossing": ("x_crossing", crossed),
        "loss": ("x_loss", gap),
        "duplicates": ("x_duplicates", repeat),
        "placement": ("x_misplaced_t", lambda r: spread(r, "t")),
    }
    return {
        check: [
            Example(key=digest(bytes(row["k"])), count=row["score"], seen=tell(row)) for row in get.get(column) or ()
        ]
        for check, (column, tell) in told.items()
    }


def proof(  # noqa: PLR0913 - the options of the job, by keyword
    spark: SparkSession,
    properties: Mapping[str, str],
    source: str,
    target: str,
    *,
    fence: FencePoint | None = None,
    tails: Mapping[int, int] | None = None,
    strays: Named | None = None,
    replayed: frozenset[str] | None = None,
    header: str | None = None,
    show_keys: bool = False,
    timeout_s: float = 30.0,
) -> OrderProof:
    """Read both topics and judge.

    Raises ``NotFound``, ``SpecError`` or ``Unreadable`` where there is nothing to judge.
    """
    started = time.monotonic()
    ends = None if fence is None else fence.fence_offsets
    with Cluster(spark, properties, timeout_s) as cluster:
        # The target first: a record that comes while we ask is at most one that the proof leaves out.
        there = _Read(OffsetsProbe(cluster, target), target)
        here = _Read(OffsetsProbe(cluster, source), source, ends if strays is None else strays.begins)
        if fence is not None and fence.topic_id is not None and not same_topic_id(fence.topic_id, here.topic.topic_id):
            raise Unreadable(
                f"Topic {source} has id {here.topic.topic_id}, the fence speaks of {fence.topic_id}: it was deleted "
                "and made again. Nothing that was known of the old topic holds for this one."
            )
        policies: dict[Name, str] = {
            "source": cleanup_policy(cluster, source),
            "target": cleanup_policy(cluster, target),
        }
        after = behind_the_fence(spark, properties, here, ends) if ends is not None else {}
        if unknown := sorted(set(tails or ()) - set(here.ranges)):
            raise SpecError(f"--tails names partitions {unknown} of {source}, which has none of that number.")
        came = (between(spark, properties, here, strays.begins, ends or {}), strays) if strays is not None else None
        left = left_at(spark, properties, here, tails) if tails is not None else None
        again = (replayed_in(spark, properties, there), replayed) if replayed is not None else None
        row = count(spark, properties, here, there, header, replayed=again is not None)
    counted = facts(
        row,
        here,
        there,
        ordered=header is not None,
        show_keys=show_keys,
        fence=ends,
        after_fence=after,
        tails=left,
        strays=came,
        replayed=again,
        compacted=frozenset(name for name, policy in policies.items() if "compact" in policy),
    )
    return prove(counted, header=header, now=datetime.now(UTC), seconds=round(time.monotonic() - started, 3))


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="order_proof.py", description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--source", required=True, metavar="TOPIC")
    parser.add_argument("--target", required=True, metavar="TOPIC")
    parser.add_argument("--fence", metavar="FILE", help="fence.json of the run; without it the source ends now")
    parser.add_argument(
        "--tails", metavar="FILE", help="JSON: partition of the source -> offset from which a task read it to the fence"
    )
    parser.add_argument(
        "--strays",
        metavar="FILE",
        help="JSON: what came between the first fence and this one, where there were several",
    )
    parser.add_argument(
        "--replayed", metavar="FILE", help="JSON: marks of the records that were written to the target a second time"
    )
    parser.add_argument("--sequence-header", metavar="NAME", help="header with the sequence number of the record's key")
    parser.add_argument("--output", required=True, metavar="DIR", help=f"folder for {RESULT}")
    parser.add_argument("--show-keys", action="store_true", help="name keys themselves; they may be personal data")
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT", help="address of a broker")
    parser.add_argument("--kafka-config", metavar="FILE", help="client properties; secrets belong here")
    parser.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS", help="for each question (30)")
    return parser


def load_tails(path: str) -> dict[int, int]:
    """Offsets by partition. Raises ``SpecError`` for a file that holds none."""
    try:
        found = json.loads(Path(path).read_bytes())
        tails = {int(p): at for p, at in found.items()}
        if not all(isinstance(at, int) and at >= 0 and p >= 0 for p, at in tails.items()):
            raise ValueError("an offset is no whole number of at least 0")
    except (OSError, ValueError, AttributeError) as error:
        raise SpecError(f'--tails {path} holds no offsets by partition ({error}). Give {{"0": 12}}.') from None
    return tails


def main(argv: Sequence[str]) -> int:
    """Run the job; returns its exit code. Raises ``TopicshiftError`` where there is nothing to judge."""
    args = arguments().parse_args(argv)
    if args.source == args.target:
        raise SpecError(f"--source and --target are both {args.source}; there is nothing to compare.")
    if args.sequence_header == "":
        raise SpecError("--sequence-header is empty. Name the header, or leave the option out.")
    fence = load_fence(args.fence, args.source) if args.fence else None
    tails = load_tails(args.tails) if args.tails else None
    strays = Named(args.strays) if args.strays else None
    replayed = load_replayed(args.replayed) if args.replayed else None
    if strays is not None and fence is None:
        raise SpecError("--strays needs --fence: the records lie between the first fence and this one.")
    properties = client_properties(args.kafka_config, args.bootstrap_server)
    (prepare_folder(args.output) / RESULT).unlink(missing_ok=True)
    result = proof(
        get_session("topicshift order_proof", _SETTINGS),
        properties,
        args.source,
        args.target,
        fence=fence,
        tails=tails,
        strays=strays,
        replayed=replayed,
        header=args.sequence_header,
        show_keys=args.show_keys,
        timeout_s=args.timeout,
    )
    Folder(args.output).write(RESULT, result.model_dump_json(indent=1) + "\n")
    print(f"{result.verdict.value}: {result.reason}", flush=True)
    return result.verdict.exit_code


if __name__ == "__main__":
    run(main)
