"""A real Flink session cluster on this machine: one JobManager and one TaskManager, from the jars of set-up."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import yaml

from lab.java import find_java
from lab.ports_free import claim, release
from lab.process import GuardedProcess
from topicshift.adapters.rest import Ask, Endpoint, asker
from topicshift.core.errors import TopicshiftError

ROOT = Path(__file__).resolve().parents[1]
_STARTS_S = 120.0
_ENTRY = "org.apache.flink.runtime"
_OPENED = ("java.lang", "java.lang.reflect", "java.util", "java.util.concurrent", "java.net", "java.io", "java.nio")


def flink_jars() -> Path:
    """The folder of Flink's jars.

    Raises:
        RuntimeError: they are not there.
    """
    folder = ROOT / "build" / "jars" / "flink"
    if not list(folder.glob("flink-runtime-web-*.jar")):
        raise RuntimeError(f"Flink's jars are not in {folder}. Run make setup, which fetches them.")
    return folder


def flink_command(entry: str, *options: str) -> list[str]:
    """What runs one of Flink's programs, frugally. ``options``: of its JVM."""
    small = ["-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=WARN"]
    return [str(find_java().binary), *small, *options, "-cp", f"{flink_jars()}/*", entry]


def until_it_holds(processes: Sequence[GuardedProcess], holds: Callable[[], Any], what: str, seconds: float) -> Any:
    """Wait for something that processes say; no answer yet is no answer.

    Raises:
        RuntimeError: not in time, or one of them has ended; with the end of its log, else of the first one's.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            found = holds()
        except TopicshiftError:
            found = None
        if found:
            return found
        ended = [p for p in processes if not p.alive]
        if ended or time.monotonic() > deadline:
            late = [*ended, *processes][0]
            raise RuntimeError(f"not in {seconds:g} s: {what}. {late.name} said:\n{late.tail(40)}")
        time.sleep(0.1)


class FlinkCluster:
    """A JobManager and a TaskManager with state in a folder. A context manager.

    Args:
        folder: configuration, logs, uploaded jars, checkpoints and savepoints.
        slots: how many parallel tasks there is room for.
        settings: configuration that wins over what is made here.
    """

    def __init__(self, folder: Path, slots: int = 4, settings: dict[str, Any] | None = None) -> None:
        self.folder = folder
        self._ports = claim(4)
        rest, rpc, blob, task = self._ports
        self.port = rest
        self.url = f"http://127.0.0.1:{rest}"
        self.ask: Ask = asker(Endpoint(self.url))
        folder.mkdir(parents=True, exist_ok=True)
        config: dict[str, Any] = {
            "jobmanager.rpc.address": "127.0.0.1",
            "jobmanager.rpc.port": rpc,
            "jobmanager.bind-host": "127.0.0.1",
            "blob.server.port": str(blob),
            "rest.address": "127.0.0.1",
            "rest.bind-address": "127.0.0.1",
            "rest.bind-port": str(rest),
            "rest.port": rest,
            "taskmanager.host": "127.0.0.1",
            "taskmanager.bind-host": "127.0.0.1",
            "taskmanager.rpc.port": str(task),
            "taskmanager.numberOfTaskSlots": slots,
            "taskmanager.cpu.cores": 1.0,
            "taskmanager.memory.task.heap.size": "128m",
            "taskmanager.memory.task.off-heap.size": "0m",
            "taskmanager.memory.network.min": "32m",
            "taskmanager.memory.network.max": "32m",
            "taskmanager.memory.managed.size": "0m",
            "taskmanager.memory.framework.heap.size": "96m",
            "taskmanager.memory.framework.off-heap.size": "64m",
            "taskmanager.memory.jvm-metaspace.size": "160m",
            "taskmanager.memory.jvm-overhead.min": "64m",
            "taskmanager.memory.jvm-overhead.max": "64m",
            "restart-strategy.type": "none",
            "heartbeat.interval": "1 s",
            "heartbeat.timeout": "8 s",
            "execution.checkpointing.savepoint-dir": (folder / "savepoints").as_uri(),
            "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
            "web.upload.dir": str(folder / "upload"),
            "io.tmp.dirs": str(folder / "tmp"),
            **(settings or {}),
        }
        (folder / "tmp").mkdir(exist_ok=True)
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        self._manager = self._process("jobmanager", f"{_ENTRY}.entrypoint.StandaloneSessionClusterEntrypoint")
        self._worker = self._process("taskmanager", f"{_ENTRY}.taskexecutor.TaskManagerRunner")

    def _process(self, name: str, entry: str) -> GuardedProcess:
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
        command = [*flink_command(entry, *opened), "--configDir", str(self.folder)]
        return GuardedProcess(name, command, log=self.folder / f"{name}.log", cwd=self.folder)

    def __enter__(self) -> FlinkCluster:
        try:
            self._manager.start()
            self._worker.start()
            self.until(self._ready, "the TaskManager has come to the JobManager", _STARTS_S)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End both."""
        self._worker.kill()
        self._manager.kill()
        release(self._ports)

    def kill_worker(self) -> None:
        """The TaskManager dies, and another one comes; what is submitted before it has come fails for want of slots."""
        dead = self._workers()
        self._worker.kill()
        self._worker.start()
        self.until(lambda: self._workers() - dead and self._ready(), "another TaskManager has come", _STARTS_S)

    def restart_manager(self) -> None:
        """The JobManager dies and starts anew: it has forgotten every job."""
        self._manager.kill()
        self._manager.start()
        self.until(self._ready, "the TaskManager has come to the new JobManager", _STARTS_S)

    def _workers(self) -> set[str]:
        return {found["id"] for found in self.ask("GET", "/taskmanagers", None)["taskmanagers"]}

    def _ready(self) -> bool:
        return bool(self.ask("GET", "/overview", None)["slots-available"])

    def until(self, holds: Callable[[], Any], what: str, seconds: float = 180.0) -> Any:
        """Wait for something that the JobManager says; no answer yet is no answer.

        Raises:
            RuntimeError: not in time, or one of both has ended.
        """
        return until_it_holds((self._manager, self._worker), holds, what, seconds)

    def upload(self, jar: Path) -> str:
        """Upload a jar; returns its id."""
        mark = "topicshift-boundary"
        head = (
            f'--{mark}\r\nContent-Disposition: form-data; name="jarfile"; filename="{jar.name}"\r\n'
            "Content-Type: application/x-java-archive\r\n\r\n"
        )
        body = head.encode() + jar.read_bytes() + f"\r\n--{mark}--\r\n".encode()
        request = Request(  # noqa: S310
            f"{self.url}/jars/upload", body, {"Content-Type": f"multipart/form-data; boundary={mark}"}, method="POST"
        )
        with urlopen(request, timeout=30) as answer:  # noqa: S310
            assert answer.status == 200, answer.status
        return str(next(j["id"] for j in self.ask("GET", "/jars", None)["files"] if j["name"] == jar.name))
