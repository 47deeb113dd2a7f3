"""The drain verification of 5 M unread-candidate records, against a bare ``count()`` over the same offset ranges.

Usage::

    python -m benchmarks.drain_verification                       # 5 M records of about 100 bytes, 6 partitions
    python -m benchmarks.drain_verification --records 500000      # smaller
    python -m benchmarks.drain_verification --bootstrap-server HOST:PORT --topic T    # a topic that is there already

One Spark session, ``local[2]``, warm: each query runs once unmeasured, then all run in turn, ``--rounds`` times, so
that whatever else the machine does meets all of them. Ratios are taken within a round; the median is shown. The
verification is measured whole: certificate in, offsets asked, read, judged, offsets asked again. Three certificates:
one group that has read nothing, twenty groups at different offsets, and one group at the fence (nothing to read).
The ``count()`` is given the same ranges, read_committed, through Spark's Kafka source as everybody writes it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "spark_jobs"))

from benchmarks.impact import fill, repeating

import drain_verification as job
from lab.broker import EmbeddedBroker
from lab.spark import local_spark
from topicshift.core.drain.certificate import DrainCertificate
from topicshift_spark.offsets import OffsetsProbe
from topicshift_spark.source import Cluster

GROUPS = 20


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def question(topic: str, topic_id: str, fence: dict[int, int], commits: dict[str, dict[int, int]]) -> job.Question:
    """A certificate whose groups stand at these offsets."""
    groups = [
        {
            "group": group, "kind": "classic", "state": "STABLE", "verdict": "not_drained",
            "partitions": [
                {"partition": p, "log_start": 0, "committed": committed[p], "end_committed": end, "end": end,
                 "records_left": None, "verdict": "not_drained", "reason": "behind"} for p, end in fence.items()
            ],
        }
        for group, committed in commits.items()
    ]  # fmt: skip
    value = {"topic": topic, "topic_id": topic_id, "taken_at": "2026-01-01T00:00:00+00:00", "fence_offsets": fence,
             "verdict": "not_drained", "groups": groups}  # fmt: skip
    return job.Question(DrainCertificate.model_validate(value), "benchmark")


def counter(spark: Any, bootstrap: str, topic: str, fence: dict[int, int]) -> Callable[[], int]:
    """``count()`` over [0, fence) of every partition."""
    reader = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("assign", json.dumps({topic: list(fence)}))
        .option("startingOffsets", json.dumps({topic: {str(p): 0 for p in fence}}))
        .option("endingOffsets", json.dumps({topic: {str(p): end for p, end in fence.items()}}))
    )

    def count() -> int:
        return int(reader.load().count())

    return count


def measure(queries: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each query in each round, after one round that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in queries}
    for number in range(rounds + 1):
        for name, query in queries.items():
            began = time.perf_counter()
            query()
            took = time.perf_counter() - began
            if number:
                seconds[name].append(took)
            say(f"{'round ' + str(number) if number else 'warm-up'}: {name} {took:.2f} s")
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bootstrap-server")
    parser.add_argument("--topic", default="benchmark-drain-verification")
    args = parser.parse_args()
    with ExitStack() as stack:
        bootstrap = args.bootstrap_server
        if bootstrap is None:
            broker = stack.enter_context(EmbeddedBroker(heap="768m"))
            bootstrap = broker.bootstrap
            say(f"writing {args.records:,} records")
            fill(broker.config(), args.topic, args.partitions, repeating(args.records, 400_000))
        spark = local_spark("drain-verification-benchmark", cores=2, conf=job._SETTINGS)
        stack.callback(spark.stop)
        properties = {"bootstrap.servers": bootstrap}
        probe = OffsetsProbe(stack.enter_context(Cluster(spark, properties)), args.topic)
        topic = probe.topic()
        assert topic is not None
        fence = {p: o.end or 0 for p, o in probe.offsets(topic).items()}
        nothing_read = dict.fromkeys(fence, 0)
        spread = {f"g{n:02}": {p: end * n // GROUPS for p, end in fence.items()} for n in range(GROUPS)}
        asked = {
            "one group, nothing read": question(args.topic, topic.topic_id, fence, {"g": nothing_read}),
            f"{GROUPS} groups at different offsets": question(args.topic, topic.topic_id, fence, spread),
            "one group at the fence": question(args.topic, topic.topic_id, fence, {"g": fence}),
        }
        count = counter(spark, bootstrap, args.topic, fence)
        records = count()

        def verify(about: job.Question) -> Callable[[], None]:
            def run() -> None:
                found = job.answer(spark, properties, about, probe=probe)
                left = max(r.records_left or 0 for g in found.groups for r in g.partitions)
                assert found.verdict in ("verified", "not_drained"), found.reason
                assert (found.records_read == records) == (left > 0)

            return run

        queries: dict[str, Callable[[], Any]] = {"count()": count}
        queries |= {name: verify(about) for name, about in asked.items()}
        seconds = measure(queries, args.rounds)
    print(f"{records:,} records, {len(fence)} partitions, local[2], {args.rounds} rounds, medians")
    for name, taken in seconds.items():
        ratio = statistics.median(t / c for t, c in zip(taken, seconds["count()"], strict=True))
        print(f"{name:34} {statistics.median(taken):7.2f} s   {ratio:5.2f} x count()")
    return 0


if __name__ == "__main__":
    sys.exit(main())
