"""Key-rehash impact: which keys move under another partition count, what will be hot, and who placed them.

Usage (with ``spark-submit --jars ...``, the jars of ``build/jars/spark``)::

    key_rehash_impact.py --topic T --candidates 12,24,30 --output DIR \\
        (--bootstrap-server HOST:PORT | --kafka-config FILE)

Writes ``DIR/impact.json`` (the model is :class:`topicshift.core.impact.report.Impact`) and ``DIR/impact.html``, each at
once or not at all. Reads the topic once, with frozen offsets, read_committed. Exit code 0 when the result is there, 2
for wrong use, 4 when something could not be read. Credentials come from the properties file only.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from topicshift.core.errors import SpecError, Unreadable
from topicshift.core.files import write_whole
from topicshift.core.impact import report as model
from topicshift.core.impact.findings import findings
from topicshift.core.impact.fingerprint import MAX_UNEXPLAINED, RuleAt, earlier_counts, names_to_try, rules_at
from topicshift.core.impact.partitioning import RULES, KeyHashes
from topicshift.core.impact.sampling import CONFIDENCE, Design
from topicshift_spark import impact_groups, impact_query
from topicshift_spark.files import Folder
from topicshift_spark.impact_figures import Figures, KeyNames, group_impacts, iso
from topicshift_spark.impact_ranges import SLICES, between, is_number, parse_sample, parse_time, sampled, slice_edges
from topicshift_spark.impact_scan import PAIRS_KEPT, ScanPlan, Sums, merge, nothing
from topicshift_spark.progress import progress, say
from topicshift_spark.result import first_cause, prepare_folder, run
from topicshift_spark.session import cores, get_session, ship_code
from topicshift_spark.source import Cluster, Range, Topic, client_properties, read, total

MAX_CANDIDATE = 100_000
SETTINGS = {
    # Enough keys at once for numpy, and never more than so many bytes of them: keys may be a megabyte long.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(32 << 20),
    # The job derives its shuffle from the offsets; planning anew between stages only takes time.
    "spark.sql.adaptive.enabled": "false",
}
MAX_CANDIDATES = 50
MAX_TOGETHER = 250_000
_DRIVER_BYTES = 256 << 20  # answers that the driver holds together
_OFFSETS_PER_TASK = 2_000_000
_SMALL = 100_000  # below this many offsets one task a partition is quicker than splitting


@dataclass(frozen=True)
class Request:
    """What is asked, checked."""

    topic: str
    candidates: tuple[int, ...]
    output: Path
    properties: Mapping[str, str]
    since_ms: int | None = None
    until_ms: int | None = None
    sample: float | None = None
    seed: int = 0
    commits: Mapping[str, Mapping[int, int | None]] | None = None
    names: KeyNames = field(default_factory=lambda: KeyNames(None))
    hash_key: str = "random"
    max_unexplained: float = MAX_UNEXPLAINED
    top: int = 20
    timeout_s: float = 30.0


@dataclass(frozen=True)
class Frozen:
    """The topic at the moment of asking: ranges to read, the sample over them, edges of the time slices (ms)."""

    topic: Topic
    ranges: dict[int, Range]
    design: Design
    edges_ms: list[int]
    log_ranges: dict[int, Range]


def parse_candidates(text: str) -> tuple[int, ...]:
    """``12,24,30`` as ascending distinct counts. Raises ``SpecError`` with the one that is wrong."""
    found = set()
    for word in filter(None, (w.strip() for w in text.split(","))):
        if not is_number(word) or not 1 <= int(word) <= MAX_CANDIDATE:
            raise SpecError(
                f"--candidates: {word[:40]!r} is not a partition count. Give whole numbers from 1 to "
                f"{MAX_CANDIDATE:,}, separated by commas, for instance 12,24,30."
            )
        found.add(int(word))
    if not found or len(found) > MAX_CANDIDATES:
        raise SpecError(
            f"--candidates {text[:80]!r}: give 1 to {MAX_CANDIDATES} partition counts, for instance 12,24,30."
        )
    if sum(found) > MAX_TOGETHER:
        raise SpecError(
            f"--candidates: together these counts are {sum(found):,} partitions, and each of them gets its figures. "
            f"Give counts whose sum is at most {MAX_TOGETHER:,}."
        )
    return tuple(sorted(found))


def parse(arguments: Sequence[str]) -> Request:
    """The command line as a request. Raises ``SpecError`` (or ends with code 2, as argparse does) for wrong use."""
    parser = argparse.ArgumentParser(
        prog="key_rehash_impact.py", allow_abbrev=False, description=__doc__.split("\n")[0]
    )
    add = parser.add_argument
    add("--topic", required=True)
    add("--candidates", required=True, help="partition counts to judge, for instance 12,24,30")
    add("--output", required=True, help="folder for impact.json and impact.html")
    add("--bootstrap-server", help="HOST:PORT")
    add("--kafka-config", help="client properties file; the only place for credentials")
    add("--from", dest="since", help="ISO 8601; skip older records")
    add("--to", dest="until", help="ISO 8601; stop at the first record not older than this")
    add("--sample", help="a share (0.05 or 5%%) or a number of records; the default is everything")
    add("--seed", type=int, help="repeat an earlier sample (its seed is in impact.json)")
    add("--groups-file", help='committed offsets: {"group": {"0": 123, "1": null}}')
    add("--show-keys", action="store_true", help="show keys as they are; they may be personal data")
    add("--hash-key-file", help="secret for the keyed hash of keys, so that hashes of two runs can be compared")
    add("--max-unexplained", type=float, default=MAX_UNEXPLAINED, help="share of records no single rule need explain")
    add("--top", type=int, default=20, help="how many of the largest keys to list")
    add("--timeout", type=float, default=30.0, help="seconds to wait for the broker's answers")
    given = parser.parse_args(list(arguments))
    if not 0 <= given.max_unexplained < 1:
        raise SpecError(f"--max-unexplained {given.max_unexplained} is not a share from 0 to below 1.")
    if not 1 <= given.top <= 1000:
        raise SpecError(f"--top {given.top}: give a number from 1 to 1000.")
    if not 1 <= given.timeout <= 600:
        raise SpecError(f"--timeout {given.timeout}: give 1 to 600 seconds.")
    since, until = parse_time("--from", given.since), parse_time("--to", given.until)
    if since is not None and until is not None and since >= until:
        raise SpecError(f"--from {given.since} is not before --to {given.until}; no record can lie between.")
    secret, origin = _hash_key(given.hash_key_file)
    return Request(
        topic=given.topic,
        candidates=parse_candidates(given.candidates),
        properties=client_properties(given.kafka_config, given.bootstrap_server),
        since_ms=since,
        until_ms=until,
        sample=parse_sample(given.sample),
        seed=given.seed if given.seed is not None else secrets.randbelow(1 << 31),
        commits=impact_groups.read_groups(given.groups_file) if given.groups_file else None,
        names=KeyNames(None if given.show_keys else secret),
        hash_key=origin,
        max_unexplained=given.max_unexplained,
        top=given.top,
        timeout_s=given.timeout,
        output=prepare_folder(given.output),
    )


def _hash_key(path: str | None) -> tuple[bytes, str]:
    if path is None:
        return os.urandom(32), "random"
    try:
        secret = Path(path).read_bytes().strip()
    except OSError as error:
        raise SpecError(f"--hash-key-file {path}: {error.strerror}.") from error
    if len(secret) < 16:
        raise SpecError(f"--hash-key-file {path}: at least 16 bytes are needed, or keys can be found by trying.")
    return secret, "file"


def freeze(spark: SparkSession, request: Request) -> Frozen:
    """Ask the broker once for everything the scan needs; nothing is read yet."""
    with Cluster(spark, request.properties, request.timeout_s) as cluster:
        topic = cluster.topic(request.topic)
        if topic.without_leader:
            raise Unreadable(
                f"topic {topic.name}: partitions {list(topic.without_leader)} have no leader, so their records cannot "
                "be read and no figure would be whole. Try again when they are back."
            )
        log = cluster.ranges(topic)
        since = None if request.since_ms is None else _offsets(cluster, topic, request.since_ms)
        until = None if request.until_ms is None else _offsets(cluster, topic, request.until_ms)
        ranges = between(log, since, until)
        edges = [0, 1]
        if total(ranges.values()):
            firsts = [found[1] for found in cluster.first_at(topic, request.since_ms or 0).values() if found]
            lasts = [t for t in cluster.latest_timestamps(topic).values() if t is not None]
            first, last = min(firsts, default=0), max(lasts, default=0)
            if request.until_ms is not None:
                last = min(last, request.until_ms - 1)

            def before(moment_ms: int) -> int:
                at = _offsets(cluster, topic, moment_ms)
                return sum(min(max(at.get(p, r.end), r.start), r.end) - r.start for p, r in ranges.items())

            edges = slice_edges(first, max(first, last), before, total(ranges.values()), SLICES)
    return Frozen(topic, ranges, sampled(ranges, request.sample, request.seed), edges, log)


def _offsets(cluster: Cluster, topic: Topic, moment_ms: int) -> dict[int, int]:
    return {p: found[0] for p, found in cluster.first_at(topic, moment_ms).items() if found}


def records_of(spark: SparkSession, request: Request, design: Design, *, available: int) -> DataFrame:
    """The records of the sample (or all), with the number of the replicate they belong to."""
    offsets = design.offsets
    tasks = max(-(-offsets // _OFFSETS_PER_TASK), available if offsets > _SMALL else 1)
    each = -(-tasks // design.replicates)
    parts = [
        read(
            spark,
            request.properties,
            request.topic,
            {p: Range(*ends) for p, ends in block.items()},
            min_partitions=each,
            poll_timeout_s=request.timeout_s,
        ).withColumn("replicate", F.lit(number))
        for number, block in enumerate(design.blocks)
    ]
    return reduce(DataFrame.union, parts)


def scan(spark: SparkSession, records: DataFrame, plan: ScanPlan, boundaries_ms: Sequence[int], offsets: int) -> Sums:
    """Read, group, hash, add up: one Spark job. The shuffle is as wide as the offsets ask for."""
    tasks = impact_query.shuffle_partitions(offsets, cores(spark))
    spark.conf.set("spark.sql.shuffle.partitions", str(tasks))
    measures = impact_query.with_measures(records, boundaries_ms)
    groups = impact_query.grouped(measures, plan.packing, plan.replicates)
    answers = impact_query.summarised(groups, plan, tasks)
    # All tasks at once where the driver can hold their answers; else one after the other, the next one fetched ahead.
    small = tasks * plan.answer_bytes <= _DRIVER_BYTES
    rows = answers.collect() if small else answers.toLocalIterator(prefetchPartitions=True)
    return merge(bytes(row["sums"]) for row in rows) or nothing(plan)


def plan_of(request: Request, frozen: Frozen, earlier: Sequence[RuleAt] = ()) -> ScanPlan:
    """What the executors are told about this topic, with rules at earlier partition counts where there were any."""
    n = len(frozen.topic.partitions)
    largest = max((r.size for r in frozen.ranges.values()), default=0)
    return ScanPlan(
        partitions=n,
        candidates=request.candidates,
        rules=tuple((r.name, r.partitions) for r in rules_at(n, earlier)),
        packing=impact_query.packing(len(frozen.edges_ms) - 1, largest),
        replicates=frozen.design.replicates,
        top=request.top,
    )


def measure(spark: SparkSession, request: Request, frozen: Frozen) -> model.Impact:
    """All figures of the topic. A second pass follows only where the first one found earlier partition counts."""
    started = time.monotonic()
    offsets = frozen.design.offsets
    records = records_of(spark, request, frozen.design, available=cores(spark))
    boundaries = frozen.edges_ms[1:-1]
    plan = plan_of(request, frozen)
    share = "" if frozen.design.whole else f", {frozen.design.fraction:.2%} of them all"
    what = f"Reading {offsets:,} offsets of {frozen.topic.name}{share}"
    sums = nothing(plan)
    if offsets:
        with progress(spark, what):
            sums = scan(spark, records, plan, boundaries, offsets)
    if earlier := _earlier(sums, plan, request.max_unexplained):
        plan = plan_of(request, frozen, earlier)
        counts = " or ".join(str(rule.partitions) for rule in earlier)
        with progress(spark, f"{what} again, as some records lie as {counts} partitions would put them"):
            sums = scan(spark, records, plan, boundaries, offsets)

    def unread(tails: impact_groups.Tails) -> impact_groups.Cells:
        tail = records_of(spark, request, tails.design, available=cores(spark))
        with progress(spark, f"Reading {tails.design.offsets:,} offsets that groups have not read"):
            return impact_groups.unread_by_piece(tail, tails)

    return impact_of(request, frozen, plan, sums, unread, started)


def impact_of(
    request: Request,
    frozen: Frozen,
    plan: ScanPlan,
    sums: Sums,
    unread: Callable[[impact_groups.Tails], impact_groups.Cells],
    started: float,
) -> model.Impact:
    """The result out of a scan's sums. ``unread`` reads the tails of groups; ``started`` is of ``time.monotonic``."""
    design = frozen.design
    figures = Figures(sums, plan, design.fraction, request.names)
    part = figures.partitioner(request.max_unexplained, frozen.edges_ms)
    totals = figures.totals()
    kind = model.kind_of(totals["records"], totals["keyed_records"])
    groups = _groups(request, frozen, part, figures.burst, unread) if request.commits else []
    result = model.Impact(
        topic=frozen.topic.name,
        topic_id=frozen.topic.topic_id,
        taken_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        kind=kind,
        in_place=model.in_place(kind, ordered=bool(figures.keyed.sum())),
        **totals,
        partitioner=part,
        slices=figures.slices(frozen.edges_ms, part),
        source=figures.source(),
        top_keys=figures.top_keys(),
        top_keys_by_bytes=figures.top_keys(by_bytes=True),
        schema_prefixes=figures.schema_prefixes(),
        limits=figures.limits(),
        candidates=[figures.candidate(c) for c in range(len(request.candidates))],
        groups=groups,
        measured=model.Measured(
            ranges={p: (r.start, r.end) for p, r in frozen.ranges.items()},
            offsets_read=design.offsets,
            since=None if request.since_ms is None else iso(request.since_ms),
            until=None if request.until_ms is None else iso(request.until_ms),
            isolation="read_committed",
            seconds=round(time.monotonic() - started, 3),
            keys_shown=request.names.secret is None,
            keys_shown_to=_user() if request.names.secret is None else None,
            hash_key=request.hash_key,
            sample=None
            if design.whole
            else model.Sample(
                fraction=design.fraction,
                replicates=design.replicates,
                ranges_read=sum(map(len, design.blocks)),
                records_read=int(sums.records.sum()),
                confidence=CONFIDENCE,
                seed=request.seed,
            ),
        ),
    )
    return result.model_copy(update={"findings": findings(result, request.max_unexplained)})


def _user() -> str:
    """Who runs this, as the operating system says it, and not the environment, which anybody can set.

    In a container a user may be a number without a name.
    """
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def _earlier(sums: Sums, plan: ScanPlan, max_unexplained: float) -> list[RuleAt]:
    """Earlier partition counts, looked for among the pairs that today's best rule leaves unexplained."""
    import numpy as np

    records = {mask: int(r.sum()) for mask, (_, r) in sums.buckets.items()}
    total = sum(records.values())
    explained = [sum(n for mask, n in records.items() if mask >> bit & 1) for bit in range(len(RULES))]
    if not sums.pairs or total - max(explained) <= max_unexplained * total:
        return []
    # The tasks hold keys at random, so some of them are as good a sample as all.
    hashes, lies_in, weights = (np.concatenate([pair[i] for pair in sums.pairs])[-PAIRS_KEPT:] for i in range(3))
    values = {name: hashes[:, i] for i, name in enumerate(sorted({rule.hash for rule in RULES}))}
    names = names_to_try(explained, total, plan.partitions)
    return earlier_counts(KeyHashes(values), lies_in, weights, plan.partitions, names)


def _groups(
    request: Request,
    frozen: Frozen,
    part: model.Partitioner,
    burst: float,
    unread: Callable[[impact_groups.Tails], impact_groups.Cells],
) -> list[model.GroupImpact]:
    """The groups' tails, read to the same ends as the scan; as large a sample as was asked for the whole."""
    commits = request.commits or {}
    unknown = {g: sorted(set(c) - set(frozen.log_ranges)) for g, c in commits.items()}
    if wrong := {g: ps for g, ps in unknown.items() if ps}:
        raise SpecError(f"--groups-file names partitions that topic {request.topic} does not have: {wrong}.")
    count = len(frozen.topic.partitions)
    where = impact_groups.starts(commits, frozen.log_ranges)
    ranges = impact_groups.tails(where, frozen.log_ranges)
    design = sampled(ranges, request.sample if not frozen.design.whole else None, request.seed)
    larger = tuple(m for m in request.candidates if m > count)
    rule = part.name or "murmur2"
    tails = impact_groups.Tails(design, where, count, larger, rule, part.empty_keys == "spread")
    return group_impacts(unread(tails) if design.offsets else {}, tails, commits, burst=burst)


def main(arguments: Sequence[str]) -> int:
    """Run the job; the exit code."""
    request = parse(arguments)
    spark = get_session(f"key_rehash_impact {request.topic}", SETTINGS)
    ship_code(spark)
    say(f"Asking {request.properties['bootstrap.servers']} for the offsets of {request.topic}.")
    try:
        result = measure(spark, request, freeze(spark, request))
    except (Py4JJavaError, PySparkException) as error:
        raise _unreadable(request.topic, error) from error
    answer = result.to_json()
    text = json.dumps(answer, indent=1, ensure_ascii=False, allow_nan=False)
    Folder(str(request.output)).write("impact.json", text + "\n")
    for finding in result.findings:
        print(finding.line(), file=sys.stderr)
    _write_report(request.output, answer)
    print(request.output / "impact.json")
    return 0


def _unreadable(topic: str, error: Exception) -> Unreadable:
    if "OffsetOutOfRange" in str(error) or "failOnDataLoss" in str(error):
        return Unreadable(
            f"topic {topic}: records expired while they were read, so no figure would be whole. Run the job again; "
            "with a short retention give --from."
        )
    return Unreadable(
        f"topic {topic} could not be read to the end ({first_cause(error)}). Is the broker reachable? Nothing was "
        "written; run the job again."
    )


def _write_report(folder: Path, answer: dict[str, Any]) -> None:
    """``impact.html``, last and guarded: a report that cannot be drawn takes nothing from the figures.

    One of an earlier run does not stay beside figures that are not its own.
    """
    try:
        # Only here do the jobs reach into reporting: a driver without Plotly still writes its figures.
        from topicshift.reporting.impact import render

        write_whole(folder / "impact.html", render(answer))
    except Exception as error:  # noqa: BLE001
        (folder / "impact.html").unlink(missing_ok=True)
        print(f"warning: impact.html was not written ({type(error).__name__}: {error})", file=sys.stderr)


if __name__ == "__main__":
    run(main)
