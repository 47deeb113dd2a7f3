"""The key-rehash impact of 5 M records: against a bare ``count()`` of the same Kafka source, and against a Python loop.

Usage::

    python -m benchmarks.impact                        # 5 M records of about 100 bytes, 400 k keys, 7 candidates
    python -m benchmarks.impact --records 500000       # smaller
    python -m benchmarks.impact --bootstrap-server HOST:PORT --topic T     # a topic that is there already
    python -m benchmarks.impact --growth 1,2,5,10      # millions of records: time against their number
    python -m benchmarks.impact --distinct 10000000 --heap 640m            # every key its own: peak memory

One Spark session, ``local[2]``, warm: every query runs once unmeasured, then all run in turn, ``--rounds`` times, so
that whatever else the machine does meets all of them. Ratios are taken within a round; the median is shown. Three
queries are measured: ``count()`` as everybody writes it (Spark's defaults), the same through the reader that the job
uses (DataSource V2), and the job itself, whole: asking for offsets, reading, hashing, adding up, all figures.
The loop is what a person would write: a consumer, ``murmur2`` for each record and count, a dictionary of sets.

``--growth`` measures the whole job, warm, on topics of growing size, a key for every 12 records. ``--distinct`` runs
it as a user does, with spark-submit under ``--heap``, and samples the resident memory of the driver's JVM and of the
Python processes ten times a second.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lab.broker import EmbeddedBroker
from lab.java import find_java
from lab.spark import local_spark, spark_jars

ROOT = Path(__file__).resolve().parent.parent
CANDIDATES = (6, 18, 24, 25, 30, 48, 60)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def fill(config: dict[str, Any], topic: str, partitions: int, records: Iterable[tuple[bytes, bytes]]) -> None:
    """Make the topic and write (key, value) pairs, as a producer with Java's partitioner does."""
    admin = AdminClient(config)  # kept: its futures end with it
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)
    settings = {"partitioner": "murmur2_random", "linger.ms": 50, "batch.size": 500_000}
    producer = Producer({**config, **settings, "queue.buffering.max.messages": 500_000})
    for i, (key, value) in enumerate(records):
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.1)
        if i % 10_000 == 0:
            producer.poll(0)
    if producer.flush(300):
        raise SystemExit("not every record was acknowledged")


def repeating(records: int, keys: int) -> Iterator[tuple[bytes, bytes]]:
    """Records of about 100 bytes."""
    rng, value = random.Random(1), b"x" * 84
    return ((b"customer-%07d" % rng.randrange(keys), value) for _ in range(records))


def every_key_once(records: int) -> Iterator[tuple[bytes, bytes]]:
    """A key of its own for every record, and small values."""
    return ((b"customer-%09d" % i, b"x" * 8) for i in range(records))


def loop(config: dict[str, Any], topic: str, partitions: int) -> dict[str, int]:
    """Moved keys and records per candidate, the way of a person with a consumer and an afternoon."""
    consumer = Consumer({**config, "group.id": "loop", "enable.auto.commit": False})
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), 30) for p in range(partitions)}
    left = sum(high - low for low, high in ends.values())
    consumer.assign([TopicPartition(topic, p, low) for p, (low, _) in ends.items()])
    murmur2 = confluent_kafka.murmur2
    seen: set[bytes] = set()
    moved: Counter[str] = Counter()
    placed = {m: Counter[int]() for m in CANDIDATES}
    while left > 0:
        for message in consumer.consume(10_000, 5):
            left -= 1
            key = message.key() or b""
            now = murmur2(key, partitions)
            for m in CANDIDATES:
                then = murmur2(key, m)
                placed[m][then] += 1
                if then != now:
                    moved[f"records {m}"] += 1
                    if key not in seen:
                        moved[f"keys {m}"] += 1
            seen.add(key)
    consumer.close()
    return dict(moved)


def measure(arguments: argparse.Namespace, config: dict[str, Any], bootstrap: str) -> dict[str, Any]:
    job, spark = session()
    from topicshift_spark.source import read

    request = request_for(job, arguments.topic, bootstrap)
    frozen = job.freeze(spark, request)

    def plain_count() -> int:
        options = {"subscribe": arguments.topic, "kafka.bootstrap.servers": bootstrap}
        ends = {"startingOffsets": "earliest", "endingOffsets": "latest"}
        return int(spark.read.format("kafka").options(**options, **ends).load().count())

    def reader_count() -> int:
        return int(read(spark, request.properties, request.topic, frozen.ranges).count())

    def impact() -> Any:
        return job.measure(spark, request, job.freeze(spark, request))

    queries: dict[str, Callable[[], Any]] = {"count": plain_count, "count_v2": reader_count, "impact": impact}
    taken: dict[str, list[float]] = {name: [] for name in queries}
    result = None
    for number in range(arguments.rounds + 1):
        for name, query in queries.items():
            started = time.monotonic()
            answer = query()
            seconds = time.monotonic() - started
            result = answer if name == "impact" else result
            if number:
                taken[name].append(seconds)
            say(f"{'warm-up' if not number else f'round {number}'}: {name} {seconds:.2f} s")
    spark.stop()
    assert result is not None
    out: dict[str, Any] = {name: statistics.median(times) for name, times in taken.items()}
    for name in ("count", "count_v2"):
        ratios = [a / b for a, b in zip(taken["impact"], taken[name], strict=True)]
        out[f"ratio_{name}"] = statistics.median(ratios)
        out[f"best_ratio_{name}"] = min(taken["impact"]) / min(taken[name])
    out |= {"records": result.records, "keys": result.distinct_keys}
    if arguments.loop:
        started = time.monotonic()
        moved = loop(config, arguments.topic, len(frozen.topic.partitions))
        out["loop"] = time.monotonic() - started
        for c in result.candidates:
            assert (c.moved_keys, c.moved_records) == (moved[f"keys {c.partitions}"], moved[f"records {c.partitions}"])
    return out


def growth(arguments: argparse.Namespace, config: dict[str, Any], bootstrap: str) -> int:
    """Seconds of the job against the number of records; the table on stdout."""
    admin = AdminClient(config)  # kept: its futures end with it
    job, spark = session()
    print("| records | distinct keys | seconds | microseconds a record |\n|---|---|---|---|")
    for millions in [float(m) for m in arguments.growth.split(",")]:
        records = int(millions * 1e6)
        topic = f"{arguments.topic}-{records}"
        say(f"writing {records:,} records")
        fill(config, topic, arguments.partitions, repeating(records, max(1, records // 12)))
        request = request_for(job, topic, bootstrap)
        taken = []
        for number in range(arguments.rounds + 1):
            started = time.monotonic()
            result = job.measure(spark, request, job.freeze(spark, request))
            if number:
                taken.append(time.monotonic() - started)
        seconds = statistics.median(taken)
        keys = result.distinct_keys
        print(f"| {records:,} | {keys:,} | {seconds:.2f} | {seconds / records * 1e6:.2f} |", flush=True)
        admin.delete_topics([topic])[topic].result(60)
    spark.stop()
    return 0


def distinct(arguments: argparse.Namespace, config: dict[str, Any], bootstrap: str) -> int:
    """Peak memory of the job, as spark-submit runs it, on a topic in which hardly a key comes twice."""
    topic = f"{arguments.topic}-distinct"
    say(f"writing {arguments.distinct:,} records, each with a key of its own")
    fill(config, topic, arguments.partitions, every_key_once(arguments.distinct))
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]"),
            *("--driver-memory", arguments.heap, "--conf", "spark.ui.enabled=false"),
            *("--conf", "spark.driver.host=127.0.0.1", "--jars", ",".join(map(str, spark_jars()))),
            *(str(ROOT / "spark_jobs" / "key_rehash_impact.py"), "--topic", topic, "--output", folder),
            *("--bootstrap-server", bootstrap, "--candidates", ",".join(map(str, CANDIDATES))),
        ]
        env = {**os.environ, "JAVA_HOME": str(find_java().home), "PYTHONPATH": str(ROOT / "include")}
        env |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        started = time.monotonic()
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
            peak: dict[str, int] = {}
            while process.poll() is None:
                for name, size in resident(process.pid).items():
                    peak[name] = max(peak.get(name, 0), size)
                time.sleep(0.1)
        seconds = time.monotonic() - started
        if process.returncode:
            say(Path(folder, "log").read_text(errors="replace")[-3000:])
            return 1
        found = json.loads(Path(folder, "impact.json").read_text())
    assert found["distinct_keys"] == arguments.distinct, found["distinct_keys"]
    print("| distinct keys | heap | seconds, start included | peak of the JVM | of all Python processes |")
    print("|---|---|---|---|---|")
    java, python = (f"{peak.get(name, 0) / 2**20:,.0f} MiB" for name in ("java", "python"))
    print(f"| {arguments.distinct:,} | {arguments.heap} | {seconds:.0f} | {java} | {python} |")
    return 0


def resident(root: int) -> dict[str, int]:
    """Resident bytes of a process and all below it, summed by kind; what is shared between forks counts once each."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            after = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has just ended
        children.setdefault(int(after[1]), []).append(int(stat.parent.name))
    todo, sums = [root], {"java": 0, "python": 0}
    while todo:
        pid = todo.pop()
        todo += children.get(pid, [])
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        pss = next((int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")), 0) * 1024
        sums["java" if name == "java" else "python"] += pss
    return sums


def session() -> tuple[Any, Any]:
    """The job's module and a warm-to-be session as it is measured."""
    sys.path[:0] = [str(ROOT / "spark_jobs")]
    import key_rehash_impact as job
    from topicshift_spark.session import ship_code

    spark = local_spark("benchmark-impact", cores=2, memory="3g", conf=job.SETTINGS)
    ship_code(spark)
    return job, spark


def request_for(job: Any, topic: str, bootstrap: str) -> Any:
    """What is asked of the job."""
    with tempfile.TemporaryDirectory() as folder:
        return job.parse(
            [
                *("--topic", topic, "--bootstrap-server", bootstrap, "--output", folder),
                *("--candidates", ",".join(map(str, CANDIDATES))),
            ]
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="Key-rehash impact against count() and against a Python loop.")
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=400_000)
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bootstrap-server")
    parser.add_argument("--topic", default="benchmark-impact")
    parser.add_argument("--growth", help="millions of records, for instance 1,2,5,10")
    parser.add_argument("--distinct", type=int, help="so many records, each with a key of its own")
    parser.add_argument("--heap", default="3g", help="with --distinct: the driver's heap")
    parser.add_argument("--no-loop", dest="loop", action="store_false")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        if arguments.bootstrap_server:
            config, bootstrap = {"bootstrap.servers": arguments.bootstrap_server}, arguments.bootstrap_server
        else:
            broker = stack.enter_context(EmbeddedBroker(heap="768m"))
            config, bootstrap = broker.config(), broker.bootstrap
        if arguments.growth:
            return growth(arguments, config, bootstrap)
        if arguments.distinct:
            return distinct(arguments, config, bootstrap)
        if not arguments.bootstrap_server:
            say(f"writing {arguments.records:,} records")
            fill(config, arguments.topic, arguments.partitions, repeating(arguments.records, arguments.keys))
        found = measure(arguments, config, bootstrap)
    found["driver_python_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    rows = [
        ("bare `count()`, Spark's defaults", found["count"], found["ratio_count"]),
        ("bare `count()`, the job's reader", found["count_v2"], found["ratio_count_v2"]),
    ]
    print("| against | its seconds | impact, seconds | ratio |\n|---|---|---|---|")
    for name, seconds, ratio in rows:
        print(f"| {name} | {seconds:.2f} | {found['impact']:.2f} | {ratio:.2f} |")
    if "loop" in found:
        ratio = found["impact"] / found["loop"]
        print(f"| Python consumer loop | {found['loop']:.2f} | {found['impact']:.2f} | {ratio:.2f} |")
    print(json.dumps(found), file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
