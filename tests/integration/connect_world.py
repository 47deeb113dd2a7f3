"""A real Kafka Connect worker with connectors of our own, compiled from ``tests/integration/connect``."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tests.integration.host_world import Host, by_key, seen
from tests.integration.real_world import RealWorld
from tests.integration.reaper import Reaper

from lab.broker import EmbeddedBroker, kafka_command, kafka_jars
from lab.java import find_java
from lab.ports_free import claim, release
from lab.runfolder import write_private
from topicshift.adapters.clock import SystemClock
from topicshift.adapters.controllers.command import CommandController
from topicshift.adapters.controllers.connect import ConnectController
from topicshift.adapters.kafka.admin import KafkaAdmin
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
    """One distributed worker on a broker, of a group of its own or of that of another one. A context manager."""

    def __init__(
        self, broker: EmbeddedBroker, folder: Path, user: str | None = None, beside: ConnectWorker | None = None
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, (self.port,) = folder, claim()
        self.name = beside.name if beside is not None else f"connect-{self.port}"
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
            "plugin.path": compiled(folder) if beside is None else beside.folder / "plugins",
            "offset.flush.interval.ms": 500,
            "scheduled.rebalance.max.delay.ms": 0,
            "heartbeat.interval.ms": 300,
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
        self.start()
        self.until(lambda: self.ask("GET", "/connectors", None) is not None, "the worker answers", REBALANCED_S)
        return self

    def start(self) -> None:
        """Start its process; it answers some seconds later."""
        command = kafka_command(
            "org.apache.kafka.connect.cli.ConnectDistributed", str(self.folder / "worker.properties")
        )
        with (self.folder / "worker.log").open("ab") as out:
            self.child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=self.folder)

    def __exit__(self, *_: object) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.wait(20)
        release([self.port])

    def leave(self) -> None:
        """The worker shuts down: it ends its tasks and leaves the group."""
        assert self.child is not None
        self.child.terminate()
        self.child.wait(60)

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

    def places(self, name: str) -> set[str]:
        """The workers, as ``HOST:PORT``, that a connector and its tasks are on."""
        status = self.ask("GET", f"/connectors/{name}/status", None)
        return {one["worker_id"] for one in (status["connector"], *status["tasks"])}

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


def given_all(file: Path, sent: dict[str, list[int]]) -> bool:
    """Whether as many records were given as were sent."""
    return len(seen(file)) >= sum(map(len, sent.values()))


class Migration(RealWorld):
    """One source connector and one sink connector."""

    def __init__(
        self, worker: ConnectWorker, broker: EmbeddedBroker, admin: KafkaAdmin, topic: str, home: Path, **changes: Any
    ) -> None:
        self.worker, self.wrote, self.kept = worker, home / "wrote", home / "kept"
        self.source_name, self.sink_name = f"{topic}_source", f"{topic}_sink"
        admin.create_topic(topic, 3, 1, {})
        more, says = changes.pop("settings_of_sink", {}), changes.pop("says", "none")
        self.before = {
            self.source_name: worker.create(self.source_name, source(self.wrote, topic)),
            self.sink_name: worker.create(self.sink_name, sink(self.kept, f"{topic}, other", **more)),
        }
        kind = {"kind": "connect"}
        producers: list[dict[str, Any]] = [
            {"name": "intake", **kind, "settings": {"connector": self.source_name}, "principal": "User:connect"}
        ]
        consumers: list[dict[str, Any]] = [
            {
                "name": "archive",
                "group": f"connect-{self.sink_name}",
                **kind,
                "settings": {"connector": self.sink_name},
                "stored_offsets": says,
            }
        ]
        self.host: Host | None = changes.pop("host", None)
        if self.host is not None:
            hook = {"kind": "command"}
            admin.alter_commits(f"g-{topic}", topic, dict.fromkeys(range(3), 0))
            self.host.install("producer", "checkout", topic)
            self.host.install("consumer", "ledger", topic, f"g-{topic}")
            producers.append({"name": "checkout", **hook, "settings": {"hook": "checkout"}})
            consumers.append({"name": "ledger", "group": f"g-{topic}", **hook, "settings": {"hook": "ledger"}})
        super().__init__(
            broker,
            admin,
            topic,
            producers=producers,
            consumers=consumers,
            **changes,
        )
        self.reaper = Reaper()
        ask = self.reaper.asking(worker.ask)
        self.controllers["connect"] = ConnectController(admin, lambda _: ask, SystemClock())  # type: ignore[assignment]
        if self.host is not None:
            self.controllers["command"] = CommandController(admin, self.host.hooks)  # type: ignore[assignment]
            self.until(lambda: len({key for key, _, _ in self.host.seen("ledger")}) == 24, "the ledger reads both", 60)
        self.until(lambda: len(seen(self.kept)) > 50, "the sink is given records", 60)

    def drain(self, group: str = "", topic: str = "") -> None:
        """The connector does."""

    def differs(self) -> dict[str, tuple[str | None, str | None]]:
        """Every setting of the two connectors that is not as it was before, as (before, now)."""
        now = {name: self.worker.config(name) for name in self.before}
        return {
            f"{name}.{key}": (settings.get(key), now[name].get(key))
            for name, settings in self.before.items()
            for key in sorted({*settings, *now[name]})
            if settings.get(key) != now[name].get(key)
        }

    def moved(self) -> dict[str, tuple[str | None, str | None]]:
        """What differs after a migration: the topics, and nothing else."""
        return {
            f"{self.source_name}.topic": (self.source, self.target),
            f"{self.sink_name}.topics": (f"{self.source}, other", f"{self.target}, other"),
        }

    def is_in(self, name: str, state: str) -> bool:
        """Whether a connector is in this state, whatever its tasks are in."""
        return self.worker.status(name)[0] == state

    def goes_on(self, most_s: float = 30) -> None:
        """Both run, and more is written and given."""
        self.until(lambda: all(map(self.worker.running, self.before)), "both connectors run", most_s)
        before = len(seen(self.kept))
        self.until(lambda: len(seen(self.kept)) > before + 30, "the sink is given more", most_s)
        if self.host is not None:
            before = len(self.host.seen("ledger"))
            self.until(lambda: len(self.host.seen("ledger")) > before + 30, "the ledger reads more", most_s)

    def proven(self) -> None:
        """Everything acknowledged was given once, and each key in order, by the connectors' own files."""
        self.worker.ask("PUT", f"/connectors/{self.source_name}/stop", None)
        self.worker.until(lambda: self.worker.status(self.source_name) == ("STOPPED", []), "the source stands")
        if self.host is not None:
            self.host.stand("checkout")
            self.until(lambda: not self.host.running("checkout")[1], "the producer has ended")
        sent = by_key(seen(self.wrote)) | (by_key(self.host.seen("checkout")) if self.host is not None else {})
        assert all(numbers == list(range(len(numbers))) for numbers in sent.values())
        files = [self.kept, *([self.host.file("ledger")] if self.host is not None else [])]
        for file in files:
            self.until(partial(given_all, file, sent), "all is given", 30)
            assert by_key(seen(file)) == sent

    def close(self) -> None:
        for name in self.before:
            self.worker.delete(name)
        super().close()
