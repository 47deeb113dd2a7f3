"""A real Flink cluster with jobs of our own, compiled from ``tests/integration/flink``, and a live flow through it."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import threading
import time
import zipfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from confluent_kafka import Consumer, Producer, TopicPartition

from lab.flink import FlinkCluster, flink_jars
from lab.java import find_java
from topicshift.adapters.rest import Endpoint, asker
from topicshift.core.flink.job import Job, jobs_named, newest_jar, read_checkpoints

KEYS = 12
JAR = "moved.jar"


def compiled(out: Path) -> Path:
    """The jar with our job."""
    home = out / "moved"
    home.mkdir(parents=True)
    beside = find_java(for_spark=False).home / "bin" / "javac"
    javac = str(beside) if beside.exists() else shutil.which("javac")
    assert javac, "these tests compile a job: install a JDK (javac), not only a Java runtime"
    sources = sorted(map(str, (Path(__file__).parent / "flink").glob("*.java")))
    command = [javac, "--release", "17", "-cp", f"{flink_jars()}/*"]
    done = subprocess.run(
        [*command, "-d", str(home), *sources], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(out / JAR, "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\nMain-Class: Moved\n\n")
        for one in home.glob("*.class"):
            jar.write(one, one.name)
    return out / JAR


def words(bootstrap: str, **options: Any) -> list[str]:
    """Arguments of our job."""
    told = {"bootstrap": bootstrap, **options}
    return [word for name, value in told.items() for word in (f"--{name}", str(value))]


class Jobs:
    """Jobs of a cluster, by name."""

    def __init__(self, cluster: FlinkCluster) -> None:
        self.cluster = cluster
        self.ask = asker(Endpoint(cluster.url), 60.0)

    def named(self, name: str) -> list[Job]:
        """Oldest first."""
        return jobs_named(self.ask("GET", "/jobs/overview", None), name)

    def state(self, name: str) -> str:
        """Of the one that was started last."""
        return self.named(name)[-1].state

    def start(self, args: Sequence[str], parallelism: int = 1, **more: Any) -> None:
        """Run our jar with these arguments; returns once a checkpoint is complete."""
        name = args[args.index("--name") + 1]
        self.submit(args, parallelism, **more)
        self.cluster.until(lambda: self.runs(name), f"{name} runs and completes a checkpoint")

    def submit(self, args: Sequence[str], parallelism: int, **more: Any) -> None:
        """Run our jar with these arguments."""
        jar = newest_jar(self.ask("GET", "/jars", None), JAR)
        assert jar is not None
        body = {"programArgsList": list(args), "parallelism": parallelism, **more}
        self.ask("POST", f"/jars/{quote(jar[0], safe='')}/run", body)

    def runs(self, name: str) -> bool:
        """Whether it has completed a checkpoint of its own."""
        found = self.named(name)
        if not found:
            return False
        job = found[-1]
        assert job.state not in ("FAILED", "CANCELED"), self.why(job.jid)
        seen = read_checkpoints(self.ask("GET", f"/jobs/{job.jid}/checkpoints", None))
        return job.state == "RUNNING" and seen.completed > 0

    def why(self, jid: str) -> str:
        """Why a job failed."""
        history = self.ask("GET", f"/jobs/{jid}/exceptions", None)["exceptionHistory"]["entries"]
        return "".join(str(e["stacktrace"])[:1500] for e in history[:1])

    def cancel(self, name: str) -> None:
        """End all of this name."""
        for job in self.named(name):
            if job.live:
                self.ask("PATCH", f"/jobs/{job.jid}?mode=cancel", None)
        self.cluster.until(lambda: not any(j.live for j in self.named(name)), f"{name} has ended")


class Writer:
    """Writes numbers of some keys in turn to a topic, in a thread. A context manager; what it wrote is in ``wrote``."""

    def __init__(self, config: Mapping[str, Any], topic: str, pause_s: float = 0.005) -> None:
        self._producer = Producer(
            {**config, "enable.idempotence": True, "linger.ms": 1, "partitioner": "murmur2_random"}
        )
        self.topic, self._pause = topic, pause_s
        self.wrote: dict[str, list[int]] = defaultdict(list)
        self._ending, self.going = threading.Event(), threading.Event()
        self.going.set()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        next_of: dict[str, int] = defaultdict(int)
        for key in itertools.cycle(f"k{n}" for n in range(KEYS)):
            self.going.wait()
            if self._ending.wait(self._pause):
                return
            number, next_of[key] = next_of[key], next_of[key] + 1
            self._producer.produce(self.topic, str(number), key, on_delivery=self._kept)
            self._producer.poll(0)

    def _kept(self, error: Any, message: Any) -> None:
        assert error is None, error
        self.wrote[message.key().decode()].append(int(message.value()))

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> dict[str, list[int]]:
        """It ends, and everything is acknowledged."""
        self._ending.set()
        self.going.set()
        self._thread.join(20)
        assert self._producer.flush(20) == 0
        return dict(self.wrote)


def readable(config: Mapping[str, Any], topic: str, partitions: int) -> dict[str, list[list[int]]]:
    """The numbers in the value of every record that a read_committed reader gets, by key, in order."""
    consumer = Consumer(
        {
            **config,
            "group.id": f"reads-{topic}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    found: dict[str, list[list[int]]] = defaultdict(list)
    ended: set[int] = set()
    deadline = time.monotonic() + 60
    try:
        while len(ended) < partitions:
            assert time.monotonic() < deadline, f"{topic} could not be read to its end"
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is None:
                found[message.key().decode()].append([int(n) for n in message.value().split()])
            else:
                ended.add(message.partition())
    finally:
        consumer.close()
    return dict(found)


class Flow:
    """Numbers go live from ``up`` by a job to the topic, and by another one from there to ``scored``."""

    def __init__(self, jobs: Jobs, config: Mapping[str, Any], admin: Any, topic: str, **options: Any) -> None:
        self.jobs, self.config, self.admin, self.topic = jobs, config, admin, topic
        self.up, self.scored, self.group = f"{topic}-up", f"{topic}-scored", f"{topic}-scores"
        self.intake, self.scorer = f"{topic}-intake", f"{topic}-scorer"
        for name, partitions in ((self.up, 2), (topic, 3), (self.scored, 2)):
            admin.create_topic(name, partitions, 1, {})
        servers = str(config["bootstrap.servers"])
        of_intake = {"name": self.intake, "from": self.up, "uid": "up", "group": f"{topic}-ups", "prefix": self.intake}
        of_scorer = {"name": self.scorer, "to": self.scored, "group": self.group, "prefix": self.scorer}
        self.args = {
            self.intake: words(servers, **of_intake, to="{topic}", **options),
            self.scorer: words(servers, **of_scorer, **{"from": "{topic}", "uid": "{uid}"}, **options),
        }
        self.uid = f"{topic}-in"
        self.writer = Writer(config, self.up)
        self.writer.__enter__()
        self.begin()
        self.goes_on()

    def begin(self) -> None:
        """Start both jobs."""
        for name, parallelism in ((self.intake, 1), (self.scorer, 2)):
            self.jobs.start([a.format(topic=self.topic, uid=self.uid) for a in self.args[name]], parallelism)

    def producer(self, **more: Any) -> dict[str, Any]:
        """The spec's word for the job that writes the topic."""
        settings = {"job": self.intake, "jar": JAR, "args": self.args[self.intake], **more}
        settings |= {"transactional_id_prefix": self.intake}
        return {"name": "intake", "kind": "flink", "settings": settings, "principal": "User:intake"}

    def consumer(self, **more: Any) -> dict[str, Any]:
        """The spec's word for the job that reads the topic."""
        settings = {"job": self.scorer, "jar": JAR, "args": self.args[self.scorer], "source_uid": self.uid}
        settings |= {"starts_at": "committed_or_earliest", "sinks": [self.scored], **more}
        settings |= {"transactional_id_prefix": self.scorer}
        return {"name": "scorer", "group": self.group, "kind": "flink", "settings": settings, "stored_offsets": "none"}

    def given(self) -> int:
        """Records that came out."""
        return sum(map(len, readable(self.config, self.scored, 2).values()))

    def quiet(self) -> None:
        """Nothing is written for now, and what was written has come out."""
        self.writer.going.clear()
        self.jobs.cluster.until(
            lambda: self.given() >= sum(map(len, list(self.writer.wrote.values()))), "everything comes out"
        )

    def goes_on(self, more: int = 50) -> None:
        """More comes out."""
        before = self.given()
        self.jobs.cluster.until(lambda: self.given() > before + more, "more comes out")

    def proven(self) -> None:
        """Everything that was written came out once and in order, and no state was lost on the way."""
        wrote = self.writer.stop()
        total = sum(map(len, wrote.values()))
        self.jobs.cluster.until(lambda: self.given() >= total, "everything comes out")
        assert all(numbers == list(range(len(numbers))) for numbers in wrote.values())
        assert readable(self.config, self.scored, 2) == self.wanted()
        self.jobs.cluster.until(lambda: not self.open(), f"every transaction has ended: {self.open()}")

    def wanted(self) -> dict[str, list[list[int]]]:
        """What is to come out: each number with the counts of both jobs."""
        return {key: [[n, n + 1, n + 1] for n in numbers] for key, numbers in self.writer.wrote.items()}

    def open(self) -> list[str]:
        """What keeps readers of committed records from the end of a topic that one of the jobs writes to."""
        topics = [name for name in (self.topic, f"{self.topic}-v2", self.scored) if self.admin.topic(name) is not None]
        held = [
            f"{name}[{p}] ends at {o.end}, and readers get no further than {o.end_committed}"
            for name in topics
            for p, o in self.admin.offsets(name).items()
            if o.end != o.end_committed
        ]
        return held + [t.transactional_id for name in topics for t in self.admin.transactions(name)]

    def close(self) -> None:
        """End both jobs and the writer."""
        self.writer.stop()
        for name in (self.intake, self.scorer):
            self.jobs.cancel(name)
