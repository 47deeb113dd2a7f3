"""One job on a real standalone master and worker, by spark-submit in client mode."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, murmur2
from confluent_kafka.admin import AdminClient, NewTopic

from topicshift.testing import ports_free
from topicshift.testing.broker import EmbeddedBroker
from topicshift.testing.java import find_java
from topicshift.testing.process import GuardedProcess
from topicshift.testing.runfolder import ROOT
from topicshift.testing.spark import quick_start_options, spark_jars

pytestmark = [pytest.mark.broker, pytest.mark.spark]
BIN = Path(sys.executable).parent


def environment(folder: Path) -> dict[str, str]:
    """What a worker on a machine of its own has: Java, Spark, and no Python of this project."""
    keep = {k: v for k, v in os.environ.items() if k in ("HOME", "LANG", "TMPDIR")}
    return {
        **keep,
        "JAVA_HOME": str(find_java().home),
        "PATH": f"{BIN}:/usr/bin:/bin",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": "/no/python/here",
        "SPARK_WORKER_DIR": str(folder / "work"),
    }


def spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def spark_class(name: str, *args: str) -> list[str]:
    return [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *args]


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("standalone")
    port, web, worker_web = ports_free.claim(3)
    url = f"spark://127.0.0.1:{port}"
    env = environment(folder)
    logs = folder / "master.log", folder / "worker.log"
    chief_args = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web)]
    chief = GuardedProcess(
        "master",
        spark_class("master.Master", *chief_args),
        log=logs[0],
        env=env,
    )
    settings = ["--cores", "1", "--memory", "1g", "--webui-port", str(worker_web), "--host", "127.0.0.1"]
    worker = GuardedProcess("worker", spark_class("worker.Worker", *settings, url), log=logs[1], env=env)
    chief.start()
    try:
        wait_for_line(logs[0], r"I have been elected leader", chief)
        worker.start()
        wait_for_line(logs[1], r"Successfully registered with master", worker)
        yield url
    finally:
        worker.stop()
        chief.stop()
        ports_free.release([port, web, worker_web])


def wait_for_line(log: Path, pattern: str, process: GuardedProcess, timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not (log.exists() and re.search(pattern, log.read_text(errors="replace"))):
        assert process.alive, process.tail()
        assert time.monotonic() < deadline, f"{pattern}: {process.tail()}"
        time.sleep(0.1)


def submit(master: str, job: str, *args: str, conf: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / "spark-submit"), "--master", master, "--deploy-mode", "client"]
    command += [word for setting in conf for word in ("--conf", setting)]
    command += ["--jars", ",".join(str(jar) for jar in spark_jars()), "--executor-memory", "768m"]
    command += ["--driver-java-options", quick_start_options()]
    command += ["--conf", "spark.driver.host=127.0.0.1", "--conf", f"spark.pyspark.driver.python={sys.executable}"]
    env = {**os.environ, "JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1"}
    env |= {"PYTHONPATH": str(ROOT / "include"), "SPARK_HOME": str(spark_home())}
    script = str(ROOT / "spark_jobs" / f"{job}.py")
    return subprocess.run([*command, script, *args], capture_output=True, text=True, env=env, timeout=400, check=False)


def test_executors_need_nothing_of_the_project(
    master: str, broker: EmbeddedBroker, admin_client: AdminClient, topic_name: Callable[..., str], tmp_path: Path
) -> None:
    source, target = topic_name(), topic_name("v2")
    for topic, partitions in ((source, 3), (target, 5)):
        admin_client.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    producer = Producer({**broker.config(), "partitioner": "murmur2_random"})
    for number in range(6):
        for key in range(50):
            topic = source if number < 4 else target
            producer.produce(topic, b"v", f"k{key}".encode(), headers=[("seq", str(number).encode())])
        producer.flush(30)
    config = broker.write_client_properties(None, tmp_path / "client.properties")
    ended = submit(
        master, "order_proof", "--source", source, "--target", target, "--sequence-header", "seq",
        "--kafka-config", str(config), "--output", str(tmp_path),
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    proof = json.loads((tmp_path / "order_proof.json").read_bytes())
    assert proof["verdict"] == "partly_proven"  # no fence was given
    assert (proof["source"]["records"], proof["target"]["records"], proof["missing"]) == (200, 100, 0)
    assert proof["target"]["misplaced_records"] == 0


def test_the_impact_hashes_its_keys_on_the_executors(
    master: str, broker: EmbeddedBroker, admin_client: AdminClient, topic_name: Callable[..., str], tmp_path: Path
) -> None:
    """Its Arrow half needs a Python with numpy and pyarrow there; the project's code comes from the driver."""
    topic = topic_name()
    admin_client.create_topics([NewTopic(topic, 3, 1)])[topic].result(30)
    producer = Producer({**broker.config(), "partitioner": "murmur2_random"})
    for number in range(600):
        producer.produce(topic, b"v", b"customer-%d" % (number % 60))
    assert producer.flush(30) == 0
    groups = tmp_path / "groups.json"
    groups.write_text(json.dumps({"ledger": {"0": 0, "1": 0, "2": 0}}))
    ended = submit(
        master, "key_rehash_impact", "--topic", topic, "--candidates", "6,7", "--output", str(tmp_path / "out"),
        "--bootstrap-server", broker.bootstrap, "--groups-file", str(groups),
        conf=(f"spark.pyspark.python={bare_python(tmp_path)}",),
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads((tmp_path / "out" / "impact.json").read_bytes())
    assert (found["records"], found["distinct_keys"], found["partitioner"]["name"]) == (600, 60, "murmur2")
    keys = [b"customer-%d" % i for i in range(60)]
    for candidate in found["candidates"]:
        count = candidate["partitions"]
        placed = Counter(murmur2(key, count) for key in keys)
        assert candidate["partition_records"] == [10 * placed[p] for p in range(count)]
        moved = sum(murmur2(key, 3) != murmur2(key, count) for key in keys)
        assert candidate["moved_keys"] == moved
        overtaken = {o["partitions"]: o["records"] for o in found["groups"][0]["overtaken"]}
        assert overtaken[count] == 10 * moved
    assert (tmp_path / "out" / "impact.html").exists()


def bare_python(folder: Path) -> Path:
    """A Python for the executors that finds packages but not this project."""
    blocked = folder / "blocked"
    blocked.mkdir()
    (blocked / "sitecustomize.py").write_text(
        "import os, sys\n"
        f"sys.path[:] = [p for p in sys.path if not os.path.realpath(p).startswith({str(ROOT / 'include')!r})]\n"
    )
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{blocked}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert subprocess.run([python, "-c", "import numpy, pyarrow"], timeout=60, check=False).returncode == 0
    assert subprocess.run([python, "-c", "import topicshift"], capture_output=True, timeout=60, check=False).returncode
    return python
