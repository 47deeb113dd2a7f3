"""The real parts of a run: broker, journal, applications and advancers, each of which may be killed or stopped."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.chaos.history import Writer
from tests.chaos.hosts import Hosts, NoHosts

from lab.broker import EmbeddedBroker, new_password
from lab.java import find_java
from lab.postgres import EmbeddedPostgres, create_database
from lab.process import GuardedProcess
from lab.rights import grant, orchestrator_rights
from lab.runfolder import ROOT
from lab.spark import quick_start_options, spark_jars

PRODUCERS = {"checkout": 2, "billing": 1}
GROUPS = {"ledger": 2, "fraud": 1}
"""Applications by name, with how many instances each has."""

USERS = ("topicshift", *PRODUCERS, *GROUPS, "legacy")
"""Users of the broker; nobody is ``legacy``, which is there so that the fence has somebody to deny."""

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"

RESTART_S = 1.0
"""Whoever looks after applications and advancers starts one that has ended again after this time."""


class Cluster:
    """What a migration stands on: brokers with their authorizer, PostgreSQL, and hosts. A context manager.

    Args:
        folder: where all of it goes.
        brokers: how many, 1 or 3.
        executors: whether Spark has an executor in a process of its own.
    """

    broker: EmbeddedBroker
    postgres: EmbeddedPostgres
    hosts: Hosts | None = None
    no_hosts = ""
    """Why there are none."""

    def __init__(self, folder: Path, brokers: int = 1, executors: bool = False) -> None:
        self.folder = folder
        self.brokers = brokers
        self.executors = executors
        self.journal_url = ""

    def __enter__(self) -> Cluster:
        with contextlib.ExitStack() as stack:
            try:
                self.hosts = stack.enter_context(Hosts())
            except NoHosts as error:
                self.no_hosts = str(error)
            self.postgres = EmbeddedPostgres(self.hosts.journal if self.hosts else "")
            self.broker = EmbeddedBroker(
                self.folder / "kafka", authorizer=True, users={user: new_password() for user in USERS},
                brokers=self.brokers, host=self.hosts.kafka if self.hosts else "127.0.0.1",
            )  # fmt: skip
            stack.enter_context(self.broker)
            stack.enter_context(self.postgres)
            self.journal_url = create_database(self.postgres.url, "topicshift")
            for user in self.broker.users:
                self.broker.write_client_properties(user, self.properties(user))
            grant(self.broker.superuser_config(), orchestrator_rights("topicshift"))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def on(self, host: int, words: list[str]) -> list[str]:
        """The command that runs ``words`` on a host of its own, where there are some."""
        return self.hosts.on(host, words) if self.hosts else words

    @property
    def evidence(self) -> Path:
        """Where evidence goes, one folder a migration."""
        return self.folder / "evidence"

    def properties(self, user: str) -> Path:
        """The client properties file of a user."""
        return self.folder / "clients" / f"{user}.properties"

    def environment(self) -> dict[str, str]:
        """The environment of applications and advancers."""
        path = [str(ROOT), str(ROOT / "include"), str(ROOT / "spark_jobs")]
        return {
            **{k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
            "PYTHONPATH": os.pathsep.join(path),
            "TOPICSHIFT_HOME": str(self.folder / "home"),
            "TOPICSHIFT_WORK": str(self.folder / "work"),
            "TOPICSHIFT_EVIDENCE": str(self.evidence),
            "TOPICSHIFT_JOURNAL": self.journal_url,
            "TOPICSHIFT_KAFKA_CONFIG": str(self.properties("topicshift")),
            "TOPICSHIFT_SPARK_JARS": str(spark_jars()[0].parent),
            **self._spark(),
            "SPARK_SUBMIT_OPTS": quick_start_options(),
            "JAVA_HOME": str(find_java().home),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def _spark(self) -> dict[str, str]:
        if not self.executors:
            return {"TOPICSHIFT_SPARK_MASTER": "local[1]"}
        import pyspark

        # Its executors work in a folder of Spark's home, which is to be one of this run.
        home = self.folder / "spark"
        if not home.exists():
            home.mkdir()
            for each in Path(pyspark.__file__).parent.iterdir():
                (home / each.name).symlink_to(each)
            (home / "conf").mkdir()
            quick = "spark.executor.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC\n"
            (home / "conf" / "spark-defaults.conf").write_text(quick)
        return {"TOPICSHIFT_SPARK_MASTER": "local-cluster[1,1,1024]", "SPARK_HOME": str(home)}


@dataclass
class Minded:
    """A process that is started again when it has ended, as long as ``again`` says so."""

    name: str
    command: Callable[[int], list[str]]
    folder: Path
    env: Mapping[str, str]
    history: Writer
    host: int = 0
    over: bool = False
    starts: int = 0
    process: GuardedProcess | None = None
    _ended_at: float = 0.0
    told: bool = True
    ended_with: int | None = None

    def tend(self) -> int | None:
        """Look at it, and start it where it should run; gives its exit code once, when it has ended."""
        if self.process is not None and self.process.alive:
            return None
        code = None
        if not self.told and self.process is not None:
            code, self.told, self._ended_at = self.process.exit_code, True, time.monotonic()
            said = self.process.tail(4)[-600:] if code not in (0, -9) else ""
            self.history.add("ended", who=self.name, code=code, said=said, asked=self.over)
        if not self.over and time.monotonic() - self._ended_at >= RESTART_S:
            self.start()
        return code

    def start(self) -> None:
        """Start it."""
        self.starts += 1
        words = self.command(self.starts)
        log = self.folder / f"{self.name}.{self.starts}.log"
        self.process = GuardedProcess(self.name, words, log=log, env=self.env, cwd=self.folder).start()
        self.told = False

    def tree(self) -> list[psutil.Process]:
        """It and what it has started."""
        with contextlib.suppress(psutil.NoSuchProcess, RuntimeError):
            if self.process is not None and self.process.alive:
                me = psutil.Process(self.process.pid)
                return [me, *me.children(recursive=True)]
        return []

    def signal(self, number: int, which: Callable[[psutil.Process], bool] = lambda _: True) -> list[psutil.Process]:
        """Send a signal to those of its processes; returns whom it was sent to."""
        sent = []
        for process in filter(which, self.tree()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
                sent.append(process)
        return sent

    def kill(self) -> None:
        """SIGKILL for it alone: what it has started lives on, as after a real kill."""
        if self.process is not None and self.process.alive:
            os.kill(self.process.pid, signal.SIGKILL)

    def end(self, timeout_s: float = 40.0) -> None:
        """SIGTERM, and no further start; SIGKILL where it does not end."""
        self.over = True
        if self.process is not None:
            self.process.stop(timeout_s)
            self.tend()

    @property
    def out(self) -> dict[str, Any]:
        """The JSON object that a command has answered with; empty where there is none."""
        path = self.folder / f"{self.name}.{self.starts}.log"
        text = path.read_text(errors="replace") if path.exists() else ""
        start = text.find("\n{\n") + 1 if not text.startswith("{\n") else 0
        with contextlib.suppress(ValueError):
            found, _ = json.JSONDecoder().raw_decode(text[start:])
            return found if isinstance(found, dict) else {}
        return {}


def is_executor(process: psutil.Process) -> bool:
    """Whether it is the JVM of a Spark executor."""
    with contextlib.suppress(psutil.Error):
        return "java" in process.name() and EXECUTOR in process.cmdline()
    return False


def is_driver(process: psutil.Process) -> bool:
    """Whether it is the JVM of a Spark driver (which holds its executor, with a local master)."""
    with contextlib.suppress(psutil.Error):
        return "java" in process.name() and EXECUTOR not in process.cmdline()
    return False


@dataclass
class Applications:
    """Every producer and consumer of one migration."""

    cluster: Cluster
    topic: str
    folder: Path
    history: Writer
    all: dict[str, Minded] = field(default_factory=dict)

    def start(self) -> None:
        """Start them, and wait until each follows the route."""
        for role, apps in (("consumer", GROUPS), ("producer", PRODUCERS)):
            for name, count in apps.items():
                for n in range(count):
                    self.all[f"{name}-{n}"] = self._app(role, name, f"{name}-{n}")
        for app in self.all.values():
            app.start()

    def _app(self, role: str, name: str, instance: str) -> Minded:
        def command(start: int) -> list[str]:
            words = [sys.executable, "-m", "tests.chaos.app", role, "--topic", self.topic, "--name", name]
            words += ["--config-file", str(self.cluster.properties(name)), "--instance", instance]
            return self.cluster.on(host, [*words, "--history", str(self.folder / f"{instance}.{start}.jsonl")])

        host = (len(self.all) + 1) % 2  # instances of one application on both
        return Minded(instance, command, self.folder, self.cluster.environment(), self.history, host)

    def tend(self) -> None:
        """Start those again that have ended."""
        for app in self.all.values():
            app.tend()

    def of(self, names: Mapping[str, int]) -> list[Minded]:
        """The instances of these applications."""
        return [app for instance, app in self.all.items() if instance.rsplit("-", 1)[0] in names]

    def end(self, names: Mapping[str, int]) -> None:
        """End these applications in order."""
        for app in self.of(names):
            app.over = True
            if app.process is not None:
                app.process.ask_to_stop()
        for app in self.of(names):
            app.end()

    def counts(self) -> dict[str, int]:
        """How many records each instance has had acknowledged, or was given, so far."""
        out = {}
        for instance in self.all:
            out[instance] = 0
            for path in self.folder.glob(f"{instance}.*.jsonl"):
                data = path.read_bytes()
                out[instance] += data.count(b'"what":"ack"') + data.count(b'"what":"got"')
        return out

    def still(self) -> set[str]:
        """Instances of producers whose last word is that they may not write."""
        out = set()
        for app in self.of(PRODUCERS):
            path = self.folder / f"{app.name}.{app.starts}.jsonl"
            said = [line for line in path.read_text().splitlines() if '"says"' in line] if path.exists() else []
            with contextlib.suppress(ValueError):
                if said and json.loads(said[-1])["data"]["status"] in ("paused", "flushing", "blind"):
                    out.add(app.name)
        return out
