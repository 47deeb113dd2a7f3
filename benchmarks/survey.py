"""Survey of one topic: every group on every partition, against ``kafka-consumer-groups --describe --all-groups``.

Usage::

    python -m benchmarks.survey                 # the ratio: 500 groups x 100 partitions, one run of each, same broker
    python -m benchmarks.survey --growth        # and the growth to 5,000 groups and to 2,000 partitions
    python -m benchmarks.survey --bootstrap-server HOST:PORT      # on a broker that runs already

Both sides are whole commands: a process is started, connects, asks, prints, ends. Kafka's tool runs from its own jars
with the JVM options of its start script. Ours is ``topicshift drain --json`` on the topic, which also reads the tails
of groups that are behind; every tenth group is. Memory is the peak resident size of the process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lab.broker import EmbeddedBroker, kafka_jars
from lab.java import find_java

RECORDS = 10
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
ROOT = Path(__file__).resolve().parent.parent


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def make(admin: AdminClient, config: dict[str, Any], topic: str, groups: int, partitions: int, stem: str) -> None:
    """A topic with records, and groups that committed on all of it; every tenth one is half-way."""
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(120)
    producer = Producer({**config, "linger.ms": 20})
    deadline = time.monotonic() + 120
    while True:
        found = admin.list_topics(topic, timeout=30).topics[topic].partitions
        if len(found) == partitions and all(p.leader >= 0 for p in found.values()):
            break
        assert time.monotonic() < deadline
        time.sleep(0.2)
    for p in range(partitions):
        for _ in range(RECORDS):
            producer.produce(topic, b"key", b"value", partition=p)
        producer.poll(0)
    assert producer.flush(120) == 0
    batch = 100
    for first in range(0, groups, batch):
        futures: list[Any] = []
        for g in range(first, min(groups, first + batch)):
            offset = RECORDS // 2 if g % 10 == 0 else RECORDS
            tps = [TopicPartition(topic, p, offset) for p in range(partitions)]
            futures += admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(f"{stem}-{g}", tps)]).values()
        for future in futures:
            future.result(120)


@dataclass(frozen=True)
class Cost:
    """What one process took: seconds, seconds of processor time, peak resident MiB."""

    seconds: float
    cpu: float
    mib: float

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s ({self.cpu:.2f} s of processor time), {self.mib:.0f} MiB"


def run(command: list[str], environment: dict[str, str]) -> tuple[Cost, Path]:
    """Run one process; its cost, and the file with its output."""
    out = Path(tempfile.mkstemp(prefix="survey-")[1])
    with out.open("wb") as stdout:
        began = time.perf_counter()
        child = subprocess.Popen(command, stdout=stdout, stderr=subprocess.DEVNULL, env=environment, cwd=ROOT)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode in (0, 3), f"exit code {child.returncode} of {command[:6]}"
    return Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024), out


def ours(bootstrap: str, topic: str) -> tuple[Cost, dict[str, Any]]:
    """``topicshift drain`` on the topic, discovering its groups."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(ROOT / "include")
    command = [sys.executable, "-m", "topicshift.cli", "drain", "--topic", topic, "--json"]
    cost, out = run([*command, "--bootstrap-server", bootstrap], environment)
    answer: dict[str, Any] = json.loads(out.read_bytes())
    out.unlink()
    return cost, answer


def theirs(bootstrap: str) -> tuple[Cost, int]:
    """Kafka's tool over all groups; the number of rows it printed."""
    java = find_java(for_spark=False)
    options = [
        "-Xmx256M",
        "-server",
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        "-XX:InitiatingHeapOccupancyPercent=35",
    ]
    classpath = f"{kafka_jars()}/*"
    command = [str(java.binary), *options, "-cp", classpath, TOOL]
    command += ["--bootstrap-server", bootstrap, "--describe", "--all-groups", "--timeout", "120000"]
    cost, out = run(command, dict(os.environ))
    rows = sum(1 for line in out.read_text().splitlines() if line.startswith("ratio-"))
    out.unlink()
    return cost, rows


def check(answer: dict[str, Any], groups: int, partitions: int) -> None:
    """The answer is right: every group, every partition, and exactly every tenth group behind by half."""
    assert len(answer["groups"]) == groups, f"{len(answer['groups'])} of {groups} groups"
    for group in answer["groups"]:
        behind = int(group["group"].rsplit("-", 1)[1]) % 10 == 0
        assert len(group["partitions"]) == partitions
        left = {r["records_left"] for r in group["partitions"]}
        assert left == ({RECORDS // 2} if behind else {0}), f"{group['group']}: {left}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-server", help="a broker that runs already; one is started otherwise")
    parser.add_argument("--growth", action="store_true", help="measure the growth as well")
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--partitions", type=int, default=100)
    args = parser.parse_args()
    with ExitStack() as stack:
        if args.bootstrap_server:
            bootstrap = args.bootstrap_server
        else:
            properties = {"offsets.topic.num.partitions": 50, "group.coordinator.threads": 4}
            bootstrap = stack.enter_context(EmbeddedBroker(heap="768m", server_properties=properties)).bootstrap
        config = {"bootstrap.servers": bootstrap, "log_level": 0}
        admin = AdminClient(config)
        topic = f"survey-{os.getpid()}"
        say(f"making {args.groups} groups x {args.partitions} partitions")
        make(admin, config, topic, args.groups, args.partitions, "ratio")
        ours(bootstrap, topic)  # both sides find the broker warm
        tool, mine = [], []
        for _ in range(2):
            cost, lines = theirs(bootstrap)
            assert lines >= args.groups * args.partitions, f"the tool printed {lines} rows"
            tool.append(cost)
            cost, answer = ours(bootstrap, topic)
            check(answer, args.groups, args.partitions)
            mine.append(cost)
        best_tool, best_mine = min(tool, key=lambda c: c.seconds), min(mine, key=lambda c: c.seconds)
        print(f"kafka-consumer-groups --describe --all-groups: {best_tool}")
        print(f"topicshift drain --topic:                      {best_mine}")
        ratio = best_mine.seconds / best_tool.seconds
        print(f"ratio {ratio:.3f} (at most 0.100)", flush=True)
        ok = ratio <= 0.1
        if args.growth:
            print(f"{'groups':>7} {'partitions':>10} {'rows':>9} {'seconds':>8} {'us/row':>7} {'MiB':>6}")
            for groups, partitions in ((500, 100), (1000, 100), (2000, 100), (5000, 100), (500, 500), (500, 2000)):
                growing = f"{topic}-{groups}x{partitions}"
                say(f"making {groups} groups x {partitions} partitions")
                stem = f"s{groups}x{partitions}"
                make(admin, config, growing, groups, partitions, stem)
                cost, answer = ours(bootstrap, growing)
                check(answer, groups, partitions)
                count = groups * partitions
                per_row = cost.seconds * 1e6 / count
                line = f"{groups:>7} {partitions:>10} {count:>9} {cost.seconds:>8.2f} {per_row:>7.1f} {cost.mib:>6.0f}"
                print(line, flush=True)
                names = [f"{stem}-{g}" for g in range(groups)]
                for first in range(0, groups, 200):
                    for future in admin.delete_consumer_groups(names[first : first + 200]).values():
                        future.result(120)
                admin.delete_topics([growing])[growing].result(120)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
