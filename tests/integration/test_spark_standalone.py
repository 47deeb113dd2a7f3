"""Jobs on a real standalone master and worker, by spark-submit in client mode."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer, murmur2
from confluent_kafka.admin import AdminClient, NewTopic

from lab import ports_free
from lab.broker import EmbeddedBroker
from lab.java import find_java
from lab.process import GuardedProcess
from lab.runfolder import ROOT
from lab.spark import quick_start_options, spark_jars

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


BOTH = """\
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
used = pathlib.Path(sys.argv[2])
import key_rehash_impact, order_proof
for job, name in ((order_proof, "order_proof"), (key_rehash_impact, "key_rehash_impact")):
    code = job.main(json.loads(sys.argv[3])[name])
    print(json.dumps({"job": name, "code": code, "python": used.exists()}), flush=True)
"""


@dataclass
class Ended:
    """What came of both jobs. ``python``: whether an executor had started Python when the job had ended."""

    folder: Path
    python: dict[str, bool]


@pytest.fixture(scope="module")
def ended(
    master: str, broker: EmbeddedBroker, admin_client: AdminClient, tmp_path_factory: pytest.TempPathFactory
) -> Ended:
    """Both jobs, one after the other, in one driver and one executor: starting these is what takes time."""
    folder = tmp_path_factory.mktemp("jobs")
    source, target, hashed = f"{folder.name}-proof", f"{folder.name}-proof-v2", f"{folder.name}-impact"
    for topic, partitions in ((source, 3), (target, 5), (hashed, 3)):
        admin_client.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    producer = Producer({**broker.config(), "partitioner": "murmur2_random", "enable.idempotence": True})
    for number in range(6):
        for key in range(50):
            topic = source if number < 4 else target
            producer.produce(topic, b"v", f"k{key}".encode(), headers=[("seq", str(number).encode())])
        producer.flush(30)
    for number in range(600):
        producer.produce(hashed, b"v", b"customer-%d" % (number % 60))
    assert producer.flush(30) == 0
    groups = folder / "groups.json"
    groups.write_text(json.dumps({"ledger": {"0": 0, "1": 0, "2": 0}}))
    where = ["--bootstrap-server", broker.bootstrap, "--output", str(folder)]
    jobs = {
        "order_proof": ["--source", source, "--target", target, "--sequence-header", "seq", *where],
        "key_rehash_impact": ["--topic", hashed, "--candidates", "6,7", "--groups-file", str(groups), *where],
    }
    script, used = folder / "both.py", folder / "python-was-started"
    script.write_text(BOTH)
    command = [str(BIN / "spark-submit"), "--master", master, "--deploy-mode", "client"]
    command += ["--jars", ",".join(str(jar) for jar in spark_jars()), "--executor-memory", "768m"]
    command += ["--driver-java-options", quick_start_options()]
    for setting in (
        "spark.driver.host=127.0.0.1",
        "spark.ui.enabled=false",
        f"spark.executor.extraJavaOptions={quick_start_options()}",
        f"spark.pyspark.driver.python={sys.executable}",
        f"spark.pyspark.python={bare_python(folder, used)}",
    ):
        command += ["--conf", setting]
    env = {**os.environ, "JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1"}
    env |= {"PYTHONPATH": str(ROOT / "include"), "SPARK_HOME": str(spark_home())}
    command += [str(script), str(ROOT / "spark_jobs"), str(used), json.dumps(jobs)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=400, check=False)
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert {s["job"]: s["code"] for s in said} == dict.fromkeys(jobs, 0), done.stderr[-3000:]
    return Ended(folder, {s["job"]: s["python"] for s in said})


def test_the_order_proof_needs_no_python_on_the_executors(ended: Ended) -> None:
    assert not ended.python["order_proof"]
    proof = json.loads((ended.folder / "order_proof.json").read_bytes())
    assert proof["verdict"] == "partly_proven"  # no fence was given
    assert (proof["source"]["records"], proof["target"]["records"], proof["missing"]) == (200, 100, 0)
    assert proof["target"]["misplaced_records"] == 0


def test_the_impact_hashes_its_keys_on_the_executors(ended: Ended) -> None:
    """Its Arrow half needs a Python with numpy and pyarrow there; the project's code comes from the driver."""
    assert ended.python["key_rehash_impact"]
    found = json.loads((ended.folder / "impact.json").read_bytes())
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
    assert (ended.folder / "impact.html").exists()


def bare_python(folder: Path, used: Path) -> Path:
    """A Python for the executors that finds packages but not this project, and leaves a trace when it is started."""
    blocked = folder / "blocked"
    blocked.mkdir()
    (blocked / "sitecustomize.py").write_text(
        "import os, sys\n"
        f"sys.path[:] = [p for p in sys.path if not os.path.realpath(p).startswith({str(ROOT / 'include')!r})]\n"
    )
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{blocked}:$PYTHONPATH"\nexport PYTHONPATH\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert subprocess.run([python, "-c", "import numpy, pyarrow"], timeout=60, check=False).returncode == 0
    assert subprocess.run([python, "-c", "import topicshift"], capture_output=True, timeout=60, check=False).returncode
    python.write_text(python.read_text().replace("\n", f'\n: > "{used}"\n', 1))
    return python
