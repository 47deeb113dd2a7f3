"""A real Kafka Connect worker with connectors of our own, compiled from ``tests/integration/connect``."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lab.broker import EmbeddedBroker, kafka_command, kafka_jars
from lab.java import find_java
from lab.ports_free import claim, release
from lab.runfolder import write_private
from topicshift.adapters.rest import Endpoint, asker
from topicshift.core.errors import NotFound, TopicshiftError, Transient

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
REBALANCED_S = 60.0


def compiled(out: Path) -> Path:
    """A plugin folder with our connectors; returns the path for ``plugin.path``."""
    home = out / "kept"
    services = home / "META-INF" / "services"
    services.mkdir(parents=True)
    beside = find_java(for_spark=False).home / "bin" / "javac"
    javac = str(beside) if beside.exists() else shutil.which("javac")
    assert javac, "these tests compile a connector: install a JDK (javac), not only a Java runtime"
    source = Path(__file__).parent / "connect" / "Kept.java"
    command = [javac, "--release", "17", "-Xlint:all,-classfile", "-Werror", "-cp", f"{kafka_jars()}/*"]
    command += ["-d", str(home), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for kind in ("Sink", "Source"):
        (services / f"org.apache.kafka.connect.{kind.lower()}.{kind}Connector").write_text(f"Kept${kind}\n")
    with_jar = out / "plugins"
    with_jar.mkdir()
    shutil.make_archive(str(with_jar / "kept"), "zip", home)
    (with_jar / "kept.zip").rename(with_jar / "kept.jar")
    return with_jar


class ConnectWorker:
    """One distributed worker on a broker. A context manager."""

    def __init__(self, broker: EmbeddedBroker, folder: Path, user: str | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, (self.port,) = folder, claim()
        self.name = f"connect-{self.port}"
        """Its group, and what the names of its topics begin with."""
        self.url = f"http://127.0.0.1:{self.port}"
        self.ask = asker(Endpoint(self.url))
        settings: dict[str, Any] = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": self.name,
            "listeners": self.url,
            "key.converter": BYTES,
            "value.converter": BYTES,
            "plugin.discovery": "service_load",
            "plugin.path": compiled(folder),
            "offset.flush.interval.ms": 500,
            "scheduled.rebalance.max.delay.ms": 0,
        }
        for kind in ("config", "offset", "status"):
            settings |= {f"{kind}.storage.topic": f"{self.name}-{kind}", f"{kind}.storage.replication.factor": 1}
        settings |= {"offset.storage.partitions": 1, "status.storage.partitions": 1}
        if user is not None:
            lines = [line.split("=", 1) for line in broker.client_properties(user).splitlines() if "=" in line]
            settings |= {prefix + k: v for k, v in lines for prefix in ("", "producer.", "consumer.", "admin.")}
        write_private(folder / "worker.properties", "".join(f"{k}={v}\n" for k, v in settings.items()))
        self.child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ConnectWorker:
        command = kafka_command(
            "org.apache.kafka.connect.cli.ConnectDistributed", str(self.folder / "worker.properties")
        )
        with (self.folder / "worker.log").open("ab") as out:
            self.child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=self.folder)
        self.until(lambda: self.ask("GET", "/connectors", None) is not None, "the worker answers", REBALANCED_S)
        return self

    def __exit__(self, *_: object) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.wait(20)
        release([self.port])

    def kill(self) -> None:
        """The worker dies."""
        assert self.child is not None
        self.child.kill()
        self.child.wait(20)

    def until(self, holds: Callable[[], Any], what: str, seconds: float = 30.0) -> Any:
        """Wait for something that the worker says; no answer yet is no answer."""
        deadline = time.monotonic() + seconds
        while True:
            assert self.child is not None and self.child.poll() is None, self.log()
            try:
                found = holds()
            except (Transient, NotFound):
                found = None
            if found:
                return found
            assert time.monotonic() < deadline, f"not in {seconds:g} s: {what}\n{self.log()}"
            time.sleep(0.05)

    def log(self) -> str:
        """The end of its log."""
        return (self.folder / "worker.log").read_text()[-3000:]

    def create(self, name: str, settings: Mapping[str, str]) -> dict[str, str]:
        """A connector, running; its settings as the worker shows them."""
        self.until(lambda: self._created(name, settings), f"{name} is created")
        self.until(lambda: self.running(name), f"{name} runs")
        return self.config(name)

    def _created(self, name: str, settings: Mapping[str, str]) -> bool:
        self.ask("PUT", f"/connectors/{name}/config", settings)
        return True

    def config(self, name: str) -> dict[str, str]:
        """Its settings."""
        return dict(self.until(lambda: self.ask("GET", f"/connectors/{name}/config", None), f"settings of {name}"))

    def status(self, name: str) -> tuple[str, list[str]]:
        """The state of the connector, and those of its tasks."""
        status = self.ask("GET", f"/connectors/{name}/status", None)
        return status["connector"]["state"], [t["state"] for t in status["tasks"]]

    def running(self, name: str) -> bool:
        """Whether it and its tasks run."""
        state, tasks = self.status(name)
        return state == "RUNNING" and bool(tasks) and set(tasks) == {"RUNNING"}

    def delete(self, name: str) -> None:
        """Take it out, where it is there."""
        try:
            self.until(lambda: self.ask("DELETE", f"/connectors/{name}", None) is None, f"{name} is deleted")
        except TopicshiftError:
            return


def sink(file: Path, topic: str, **more: str) -> dict[str, str]:
    """Settings of our sink."""
    return {"connector.class": "Kept$Sink", "file": str(file), "topics": topic, "tasks.max": "1", **more}


def source(file: Path, topic: str, **more: str) -> dict[str, str]:
    """Settings of our source."""
    return {"connector.class": "Kept$Source", "file": str(file), "topic": topic, "tasks.max": "1", **more}
