"""All the live traffic of a demo: two producer applications and three consumer groups, as processes of their own."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.load_proof import frozen_now
from lab.process import GuardedProcess
from lab.runfolder import ROOT
from lab.upkeep import Upkeep
from topicshift.core.files import write_whole
from topicshift.core.route.records import Status

_FOLLOWS = frozenset(status.value for status in Status)
"""Events of a process that has read the route; it may find a pause there, left by a run of the stack that was ended."""

_PATH = [str(ROOT), str(ROOT / "include")]


class LoadFailed(RuntimeError):
    """A process of the load ended, or did not do what it should in time. The message holds its last words."""


@dataclass(frozen=True)
class App:
    """One application: its name (also its SASL user), how many processes, and the work per record of a consumer."""

    name: str
    processes: int
    delay_ms: float = 0.0


PRODUCERS = (App("checkout", 2), App("billing", 1))
CONSUMERS = (App("ledger", 2), App("fraud", 2), App("search", 2, delay_ms=0.15))


@dataclass
class Life:
    """Starts, watches and stops the traffic. ``properties(user)`` is the client properties file of an application.

    Args:
        folder: takes the logs (``*.csv``, ``*.csv.events``) that :func:`lab.load_proof.prove` reads.
        properties: from the application's name to its properties file (the same file for all, without log-ins).
        topic: the logical topic; it must exist.
        rate: records/s of each producer process.
        offset_reset: ``auto.offset.reset`` of the consumers.
    """

    folder: Path
    properties: Callable[[str], Path]
    topic: str = "payments"
    keys: int = 2000
    rate: float = 100.0
    producers: tuple[App, ...] = PRODUCERS
    consumers: tuple[App, ...] = CONSUMERS
    offset_reset: str = "earliest"
    _running: dict[str, GuardedProcess] = field(default_factory=dict)
    _counted: dict[Path, tuple[int, int]] = field(default_factory=dict)

    @property
    def groups(self) -> list[str]:
        """The consumer groups."""
        return [app.name for app in self.consumers]

    @property
    def seqs(self) -> Path:
        """Where the backlog leaves the next sequence numbers."""
        return self.folder / "seqs.json"

    # -------------------------------------------------------------------------------------------- starting

    def backlog(self, records: int = 200_000, *, user: str | None = None, timeout_s: float = 180.0) -> None:
        """Write the backlog, in a process of its own, as ``user`` (the first producer by default); waits for it."""
        name = user or self.producers[0].name
        process = self._process("sent-backlog", name, "backlog", "--records", str(records), "--seqs", str(self.seqs))
        process.start()
        deadline = time.monotonic() + timeout_s
        while process.alive:
            if time.monotonic() > deadline:
                process.stop(2)
                raise LoadFailed(f"The backlog of {records} records was not written within {timeout_s:g} s.")
            time.sleep(0.05)
        if process.exit_code != 0:
            raise LoadFailed(f"The backlog was not written: {process.tail()}")

    def start_producers(self) -> None:
        """Start every producer process, going on with the sequence numbers of the backlog."""
        total = sum(app.processes for app in self.producers)
        index = 0
        for app in self.producers:
            for n in range(app.processes):
                name = f"sent-{app.name}-{n}"
                words = ["--name", app.name, "--index", str(index), "--of", str(total), "--rate", str(self.rate)]
                words += ["--seqs", str(self.seqs)] if self.seqs.exists() else []
                self._running[name] = self._process(name, app.name, "producer", *words).start()
                index += 1

    def start_consumers(self) -> None:
        """Start every consumer process."""
        for app in self.consumers:
            for n in range(app.processes):
                self.start_consumer(app, n)

    def start_consumer(self, app: App, n: int) -> str:
        """Start one more consumer process of an application; returns the name of its log."""
        name = f"processed-{app.name}-{n}"
        words = ["--name", app.name, "--delay-ms", str(app.delay_ms), "--offset-reset", self.offset_reset]
        self._running[name] = self._process(name, app.name, "consumer", *words).start()
        return name

    def start(self, timeout_s: float = 90.0) -> None:
        """Start everything and wait until every process follows the route. Raises :class:`LoadFailed`."""
        self.start_consumers()
        self.start_producers()
        self.wait_ready(timeout_s)

    def wait_ready(self, timeout_s: float = 90.0) -> None:
        """Wait until every process has read the route and goes by it. Raises :class:`LoadFailed`."""
        deadline = time.monotonic() + timeout_s
        waiting = set(self._running)
        while waiting:
            self.check_alive()
            waiting = {name for name in waiting if not any(e["event"] in _FOLLOWS for e in self.events(name))}
            if waiting and time.monotonic() > deadline:
                raise LoadFailed(f"Not ready within {timeout_s:g} s: {', '.join(sorted(waiting))}.")
            time.sleep(0.05)

    def _process(self, name: str, user: str, command: str, *words: str) -> GuardedProcess:
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPATH"] = os.pathsep.join([*_PATH, *filter(None, [env.get("PYTHONPATH")])])
        line = [sys.executable, "-m", "lab.load", command, "--topic", self.topic]
        line += ["--config-file", str(self.properties(user)), "--keys", str(self.keys)]
        line += ["--log", str(self.folder / f"{name}.csv"), *words]
        return GuardedProcess(name, line, log=self.folder / f"{name}.out", env=env)

    # -------------------------------------------------------------------------------------------- watching

    def events(self, name: str) -> list[dict[str, Any]]:
        """What a process wrote about itself so far."""
        path = self.folder / f"{name}.csv.events"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]

    def check_alive(self) -> None:
        """Raises :class:`LoadFailed` with its last words if a process has ended by itself."""
        for name, process in self._running.items():
            if not process.alive:
                raise LoadFailed(f"{name} ended with code {process.exit_code}: {process.tail()}")

    def keep_up(self, upkeep: Upkeep) -> None:
        """Start processes again that have ended by themselves. Raises EndedTooOften."""
        for name, process in self._running.items():
            if not process.alive:

                def again(process: GuardedProcess = process) -> None:
                    self.take_up()
                    process.restart()

                upkeep.again(name, process.exit_code, process.tail(), again)

    def take_up(self) -> None:
        """Go on where the logs of an earlier start end: each key's next sequence number goes into ``seqs``."""
        seqs: dict[str, int] = json.loads(self.seqs.read_text()) if self.seqs.exists() else {}
        for path in self.folder.glob("sent-*.csv"):
            with path.open(errors="replace") as rows:
                for row in rows:
                    key, _, rest = row.partition(",")
                    number = rest.partition(",")[0]
                    if number.isdigit() and row.endswith("\n"):
                        seqs[key] = max(seqs.get(key, 0), int(number) + 1)
        write_whole(self.seqs, json.dumps(seqs))

    def pids(self) -> Mapping[str, int]:
        """The process ids, by log name."""
        return {name: process.pid for name, process in self._running.items()}

    def kill(self, name: str) -> None:
        """SIGKILL for one process, as a fault; it is no longer watched."""
        self._running.pop(name).kill()

    def frozen(self) -> tuple[list[str], float]:
        """The producer processes that may not write now, and for how many seconds the first of them may not."""
        return frozen_now({n: self.events(n) for n in self._running if n.startswith("sent-")}, time.monotonic_ns())

    def counts(self) -> dict[str, int]:
        """Rows so far: ``sent``, and those of each group under its name."""
        out = dict.fromkeys(["sent", *self.groups], 0)
        for path in self.folder.glob("*.csv"):
            size, rows = self._counted.get(path, (0, -2))
            with path.open("rb") as file:
                file.seek(size)
                data = file.read()
            self._counted[path] = (size + len(data), rows + data.count(b"\n"))
            kind, name = path.stem.split("-", 1)
            label = "sent" if kind == "sent" else name.rsplit("-", 1)[0]
            out[label] = out.get(label, 0) + max(0, self._counted[path][1])
        return out

    # -------------------------------------------------------------------------------------------- stopping

    def stop_producers(self, timeout_s: float = 60.0) -> None:
        """SIGTERM for every producer process; each flushes, says good-bye and closes its log."""
        self._end([n for n in self._running if n.startswith("sent-")], timeout_s)

    def finish(self, timeout_s: float = 120.0) -> None:
        """Stop the producers, let every group read what is left, then stop the consumers.

        A group that has not read as many rows as were sent when time is up is stopped all the same: the proof counts
        what it lost.
        """
        self.stop_producers()
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            counts = self.counts()
            if all(counts[group] >= counts["sent"] for group in self.groups):
                break
            self.check_alive()
            time.sleep(0.2)
        self.stop()

    def stop(self, timeout_s: float = 60.0) -> None:
        """SIGTERM for every process that this object started, producers first, and nothing else. Idempotent."""
        self._end([n for n in self._running if n.startswith("sent-")], timeout_s)
        self._end(list(self._running), timeout_s)

    def _end(self, names: list[str], timeout_s: float) -> None:
        processes = [self._running.pop(name) for name in names]
        for process in processes:
            process.ask_to_stop()
        deadline = time.monotonic() + timeout_s
        while any(p.alive for p in processes) and time.monotonic() < deadline:
            time.sleep(0.02)
        for process in processes:
            process.stop(0.1)
