"""Real Airflow for tests, the demo and ``make up``: scheduler, API server, DAG processor and triggerer.

Each is a process group of its own, started directly (``airflow standalone`` leaves children behind when it is ended).
Settings come from ``deploy/airflow.env``, which docker-compose.yml uses too; what belongs to one run (ports, secrets,
connections) is added here. Secrets lie in an ``airflow.cfg`` of mode 0600 in the run folder, not in any environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from string import Template
from typing import Any

import httpx

from lab import ports_free
from lab.airflow_api import AirflowApi
from lab.java import find_java
from lab.process import GuardedProcess
from lab.runfolder import ROOT, RunFolder, write_private
from lab.upkeep import Upkeep

ENV_FILE = ROOT / "deploy" / "airflow.env"
SERVICES = {
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "api-server": ["api-server"],
    "dag-processor": ["dag-processor"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
}
"""Name and arguments of each service. Logs are read from the run folder, so nobody has to serve them."""


class AirflowFailed(RuntimeError):
    """A service could not be started or has ended by itself. The message holds the last lines of its log."""


def keep_template(database: Path, template: Path) -> None:
    """Keep an empty metadata database of this Airflow's version: copying it saves the next run ten seconds."""
    template.parent.mkdir(parents=True, exist_ok=True)
    part = template.with_name(f".{template.name}.{os.getpid()}.part")
    with contextlib.closing(sqlite3.connect(database)) as source, contextlib.closing(sqlite3.connect(part)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode=DELETE")
    part.replace(template)


def read_env_file(path: Path, values: Mapping[str, str]) -> dict[str, str]:
    """The settings of an env file, with ``${NAME}`` filled in from ``values``.

    Raises:
        KeyError: a name is not in ``values``.
        ValueError: a line is not ``NAME=value``.
    """
    settings = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, separator, value = line.partition("=")
        if not separator or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"{path.name}, line {number}: not NAME=value")
        settings[name] = Template(value).substitute(values)
    return settings


USERS = {"admin": "admin", "deputy": "user", "viewer": "viewer"}
"""Who may log in, each with a role: it takes two to answer where a policy wants two people."""


class AirflowServices:
    """One Airflow in one run folder.

    Args:
        folder: the run folder; ``airflow/`` in it becomes AIRFLOW_HOME.
        connections: Airflow connections by id, as the JSON form has them; no secrets in them.
        environment: more variables for every service.
        database_url: SQLAlchemy URL of the metadata database; a SQLite file of the run folder by default.
    """

    def __init__(
        self,
        folder: RunFolder,
        *,
        connections: Mapping[str, Mapping[str, Any]] | None = None,
        environment: Mapping[str, str] | None = None,
        database_url: str | None = None,
    ) -> None:
        self.folder = folder
        self.home = folder.folder("airflow")
        self._database_url = database_url or f"sqlite:///{self.home / 'airflow.db'}"
        self._connections = dict(connections or {})
        self._extra = dict(environment or {})
        self.port = ports_free.claim()[0]
        self.processes: dict[str, GuardedProcess] = {}
        self._api: AirflowApi | None = None
        self._probe = httpx.Client(base_url=self.url, timeout=5, trust_env=False)

    @property
    def url(self) -> str:
        """Where the UI and the API answer."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def passwords_file(self) -> Path:
        """The file (mode 0600) with the password of each of :data:`USERS`."""
        return self.folder / "passwords.json"

    @property
    def api(self) -> AirflowApi:
        """The REST API as ``admin``."""
        if self._api is None:
            self._api = self.api_as("admin")
        return self._api

    def password(self, user: str) -> str:
        """The password of one of :data:`USERS`."""
        return str(json.loads(self.passwords_file.read_text())[user])

    def api_as(self, user: str) -> AirflowApi:
        """The REST API as this user, one of :data:`USERS`."""
        return AirflowApi(self.url, user, self.password(user))

    def environment(self) -> dict[str, str]:
        """The environment of every service: deploy/airflow.env and what belongs to this run."""
        env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AIRFLOW", "TOPICSHIFT_", "PYTHON")) and name not in ("SPARK_HOME", "VIRTUAL_ENV")
        }
        env |= read_env_file(ENV_FILE, {"TOPICSHIFT_ROOT": str(ROOT)})
        env |= {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "JAVA_HOME": str(find_java(for_spark=False).home),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TOPICSHIFT_ROOT": str(ROOT),
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{user}:{role}" for user, role in USERS.items()),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.passwords_file),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(self.folder.folder("logs") / "tasks"),
            "AIRFLOW__LOGGING__DAG_PROCESSOR_CHILD_PROCESS_LOG_DIRECTORY": str(self.folder.folder("logs") / "parsing"),
            "AIRFLOW__SCHEDULER__MP_START_METHOD": "fork",
        }
        for name, connection in self._connections.items():
            env[f"AIRFLOW_CONN_{name.upper()}"] = json.dumps(connection)
        return env | self._extra

    def _write_config(self) -> None:
        fernet_key = urlsafe_b64encode(self.folder.secret("fernet-key", 32).encode()).decode()
        text = (
            f"[core]\nfernet_key = {fernet_key}\n"
            f"[database]\n{self._database_settings()}"
            f"[api]\nsecret_key = {self.folder.secret('api-secret-key', 48)}\n"
            f"[api_auth]\njwt_secret = {self.folder.secret('jwt-secret', 64)}\n"
        )
        write_private(self.home / "airflow.cfg", text)
        passwords = {user: self.folder.secret(f"airflow-{user}", 16) for user in USERS}
        write_private(self.passwords_file, json.dumps(passwords) + "\n")

    def _database_settings(self) -> str:
        url = self._database_url.replace("%", "%%")
        if url.startswith("sqlite"):
            # One writer at a time: on a busy machine the others wait for longer than the 5 s that SQLite allows.
            url += "?timeout=60"
        # Airflow would take asyncpg for PostgreSQL; psycopg 3, which is there, serves both ways.
        asynchronous = f"sql_alchemy_conn_async = {url}\n" if url.startswith("postgresql+psycopg") else ""
        return f"sql_alchemy_conn = {url}\n{asynchronous}"

    def migrate_database(self) -> None:
        """Write the configuration and bring the metadata database to this Airflow's schema.

        Raises:
            AirflowFailed: it did not work.
        """
        self._write_config()
        database = self.home / "airflow.db"
        fresh = self._database_url == f"sqlite:///{database}" and not database.exists()
        template = ROOT / "build" / "cache" / f"airflow-{version('apache-airflow-core')}.db"
        if fresh and template.exists():
            shutil.copyfile(template, database)
            return
        log = self.folder.folder("logs") / "db-migrate.log"
        with log.open("wb") as out:
            code = subprocess.run(
                [sys.executable, "-m", "airflow", "db", "migrate"],
                env=self.environment(),
                cwd=self.folder.path,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=300,
                check=False,
            ).returncode
        if code != 0:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise AirflowFailed(f"airflow db migrate ended with code {code}:\n{tail}")
        if fresh:
            keep_template(database, template)

    def start(self, progress: Callable[[str], None] = lambda _: None, timeout: float = 300.0) -> None:
        """Start the four services and wait until all are healthy. The database must be there.

        Raises:
            AirflowFailed: a service ended by itself, or they were not healthy in ``timeout`` seconds.
        """
        env = self.environment()
        for name, arguments in SERVICES.items():
            command = [sys.executable, str(ROOT / "deploy" / "airflow_main.py"), *arguments]
            log = self.folder.folder("logs") / f"{name}.log"
            self.processes[name] = GuardedProcess(name, command, log=log, env=env, cwd=self.folder.path).start()
        warmer = threading.Thread(target=self._warm_execution_api, args=(timeout,), daemon=True)
        warmer.start()
        deadline = time.monotonic() + timeout
        told: set[str] = set()
        while True:
            self.check_alive()
            healthy = self._healthy()
            for name in sorted(healthy - told):
                progress(f"Airflow: {name} is up")
            told |= healthy
            if healthy == set(SERVICES) and not warmer.is_alive():
                return
            if time.monotonic() > deadline:
                missing = sorted(set(SERVICES) - healthy)
                tails = "\n".join(f"--- {name}\n{self.processes[name].tail()}" for name in missing)
                raise AirflowFailed(f"not healthy after {timeout:.0f} s: {', '.join(missing)}\n{tails}")
            time.sleep(0.1)

    def _warm_execution_api(self, timeout: float) -> None:
        """The API server builds its execution API at the first request, for 6 s: make that request."""
        from airflow.sdk.api.datamodels._generated import API_VERSION

        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            try:
                self._probe.get("/execution/health", headers={"airflow-api-version": API_VERSION}, timeout=timeout)
            except httpx.ConnectError:
                time.sleep(0.1)
            except (httpx.HTTPError, RuntimeError):  # the service, or this client, was stopped meanwhile
                return
            else:
                return

    def check_alive(self) -> None:
        """Raises AirflowFailed where a service has ended by itself, with the end of its log."""
        for name, process in self.processes.items():
            if not process.alive:
                raise AirflowFailed(f"{name} has ended with code {process.exit_code}:\n{process.tail()}")

    def keep_up(self, upkeep: Upkeep) -> None:
        """Start services again that have ended by themselves, and end what they left. Raises EndedTooOften."""
        for name, process in self.processes.items():
            if not process.alive:
                upkeep.again(name, process.exit_code, process.tail(), process.restart)

    def _healthy(self) -> set[str]:
        try:
            health = self._probe.get("/api/v2/monitor/health")
        except httpx.HTTPError:
            return set()
        if health.status_code != 200:
            return set()
        parts = health.json()
        up = {"api-server"}
        up |= {n for n in SERVICES if (parts.get(n.replace("-", "_")) or {}).get("status") == "healthy"}
        return up

    def stop(self, timeout: float = 15.0) -> None:
        """End every service and all that they started."""
        if self._api is not None:
            self._api.close()
            self._api = None
        self._probe.close()
        for process in self.processes.values():
            process.ask_to_stop()
        for process in self.processes.values():
            process.stop(timeout)
        self.processes.clear()
        ports_free.release([self.port])
