"""The whole stack in one run folder: a real Kafka broker with its authorizer on, and real Airflow.

``python -m lab.stack up|down|status|run --run-folder DIR``

Everything is on free loopback ports and ends with the process that started it, so that two stacks never meet. ``up``
starts that process in the background and returns when all is healthy; ``run`` stays in the foreground until Ctrl-C.
"""

from __future__ import annotations

import contextlib
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy.engine import make_url

from lab import kept
from lab.airflow_api import AirflowApi
from lab.airflow_services import AirflowServices
from lab.broker import SUPERUSER, EmbeddedBroker, new_password
from lab.postgres import create_database, embedded_postgres
from lab.rights import grant, orchestrator_rights
from lab.runfolder import ROOT, RunFolder
from lab.spark import quick_start_options, spark_jars
from lab.upkeep import Upkeep
from topicshift.adapters.journal.urls import shown

ORCHESTRATOR = "topicshift"
APPLICATIONS = ("checkout", "billing", "ledger", "fraud", "search", "legacy", "rogue")
"""Users of the broker besides ``admin`` and ``topicshift``; what they may do is for the caller to grant."""

DAGS = ("topic_migration", "topic_migration_producers_first", "topic_assessment", "topic_rollback")
"""DAGs that are unpaused; ``topic_retirement`` is left paused, since it runs by itself. Those that migrations start
themselves (``topic_resume_on_source``, ``topic_question``) are never paused."""

Progress = Callable[[str], None]


def _quiet(_: str) -> None:
    return None


class Stack:
    """Broker and Airflow in one run folder. A context manager.

    Args:
        run_folder: where all data, logs and secrets of the run go.
        postgres: keep the journal and Airflow's database in a PostgreSQL of its own, as production does, instead of
            SQLite files. It ends with the stack, and so does what is in it.
        unpause: DAGs that are waited for and unpaused.
        environment: more variables for Airflow's services.
        go_on: go on with topics, journal and Airflow's data of the run before, where that is possible.
    """

    def __init__(
        self,
        run_folder: str | Path,
        *,
        postgres: bool = False,
        unpause: Sequence[str] = DAGS,
        environment: Mapping[str, str] | None = None,
        go_on: bool = False,
    ) -> None:
        self._go_on = go_on
        self.went_on = False
        """Whether it goes on with what the run before left."""
        self.folder = RunFolder(run_folder)
        self.home = self.folder / "topicshift"
        self.journal_url = f"sqlite:///{self.home / 'journal.db'}"
        self.evidence = self.home / "evidence"
        self._database_url: str | None = None
        self._postgres = contextlib.ExitStack() if postgres else None
        self._unpause = tuple(unpause)
        self._environment = dict(environment or {})
        self._broker: EmbeddedBroker | None = None
        self._services: AirflowServices | None = None

    # ------------------------------------------------------------------------------------------------ parts

    @property
    def broker(self) -> EmbeddedBroker:
        """The broker. Raises RuntimeError before ``start``."""
        if self._broker is None:
            raise RuntimeError("the stack has not been started")
        return self._broker

    @property
    def services(self) -> AirflowServices:
        """Airflow's services. Raises RuntimeError before ``start``."""
        if self._services is None:
            raise RuntimeError("the stack has not been started")
        return self._services

    @property
    def airflow(self) -> AirflowApi:
        """Airflow's REST API as ``admin``."""
        return self.services.api

    def properties_file(self, user: str) -> Path:
        """The client properties file (mode 0600) of a user of the broker."""
        return self.folder.folder("clients") / f"{user}.properties"

    # ------------------------------------------------------------------------------------------------ life

    def start(self, progress: Progress = _quiet, *, airflow: bool = True, announce: bool = True) -> Stack:
        """Start the broker and Airflow side by side and wait until all is ready.

        Args:
            progress: called with one line whenever something is done.
            airflow: start Airflow too.
            announce: say in the state file that it is ready; without, that is for the caller to do (``announce``).

        Raises:
            FolderInUse: another stack lives in the run folder.
            BrokerFailed, AirflowFailed: a part did not come up; whatever was started has been ended.
        """
        self.folder.lock()
        try:
            self._start(progress, airflow)
            if announce:
                self.announce()
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self, progress: Progress, airflow: bool) -> None:
        self.folder.write_state(status="starting")
        self._take_over(progress, airflow)
        self.home.mkdir(exist_ok=True)
        if self._postgres is not None:
            server = self._postgres.enter_context(embedded_postgres())
            self._database_url, self.journal_url = (create_database(server, n) for n in ("airflow", "topicshift"))
            progress("PostgreSQL is up")
        passwords = {user: new_password() for user in (ORCHESTRATOR, *APPLICATIONS)}
        broker = EmbeddedBroker(self.folder / "kafka", authorizer=True, users=passwords)
        self._broker = broker
        for user in broker.users:
            broker.write_client_properties(user, self.properties_file(user))
        failures: list[BaseException] = []

        def start_broker() -> None:
            try:
                broker.start()
                grant(broker.superuser_config(), orchestrator_rights(ORCHESTRATOR))
                progress(f"Kafka is up at {broker.bootstrap}")
            except BaseException as error:  # noqa: BLE001 - told to the caller below
                failures.append(error)

        starter = threading.Thread(target=start_broker, name="start-broker")
        starter.start()
        try:
            if airflow:
                self._start_airflow(broker, progress)
        finally:
            starter.join()
        if failures:
            raise failures[0]

    def _take_over(self, progress: Progress, airflow: bool) -> None:
        postgres = self._postgres is not None
        why = kept.why_not(self.folder, airflow=airflow, postgres=postgres) if self._go_on else "it begins afresh"
        if why is None:
            self.went_on = True
            progress("going on with the topics, journal and evidence of the run before")
            return
        aside = kept.begin_afresh(self.folder)
        if self._go_on and why:
            progress(f"the run before cannot be gone on with: {why}. Its topics and Airflow's data are removed")
        if aside is not None:
            progress(f"journal and evidence of the run before are kept in {aside}, until the next run that does so")

    def announce(self, upkeep: Upkeep | None = None) -> None:
        """Say in the state file that it is ready, where everything is, and what had to be started again."""
        again = upkeep.values() if upkeep is not None else []
        self.folder.write_private("env", self.shell())
        kept.mark(self.folder, airflow=self._services is not None, postgres=self._postgres is not None)
        self.folder.write_state(status="ready", again=again, **self.facts())

    def keep_up(self, upkeep: Upkeep) -> None:
        """Start parts again that have ended by themselves. Raises EndedTooOften or BrokerFailed."""
        self.broker.keep_up(upkeep)
        if self._services is not None:
            self._services.keep_up(upkeep)

    def shell(self) -> str:
        """What ``env`` of the run folder holds: lines for a shell that is to see what Airflow's workers see."""
        given = {"TOPICSHIFT_KAFKA_CONFIG": str(self.properties_file(SUPERUSER))}
        if self._services is not None:
            given |= {n: v for n, v in self._services.environment().items() if n.startswith(("AIRFLOW", "TOPICSHIFT_"))}
        return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(given.items()))

    def _start_airflow(self, broker: EmbeddedBroker, progress: Progress) -> None:
        connections: dict[str, Mapping[str, Any]] = {
            "kafka_default": {
                "conn_type": "kafka",
                "extra": {
                    "bootstrap.servers": broker.bootstrap,
                    "topicshift.properties.file": str(self.properties_file(ORCHESTRATOR)),
                },
            },
            "spark_default": {"conn_type": "spark", "host": "local[*]", "extra": {"deploy-mode": "client"}},
        }
        environment = {
            "TOPICSHIFT_HOME": str(self.home),
            "TOPICSHIFT_EVIDENCE": self.evidence.as_uri(),
            "TOPICSHIFT_JOURNAL": self.journal_url,
            "TOPICSHIFT_SPARK_JARS": str(spark_jars()[0].parent),
            # Topics are small here, and cores few: the drivers shall start quickly.
            "TOPICSHIFT_SPARK_JAVA_OPTIONS": quick_start_options(),
        }
        connections["topicshift_journal"] = journal_connection(self.journal_url)
        self._services = AirflowServices(
            self.folder,
            connections=connections,
            environment=environment | self._environment,
            database_url=self._database_url,
        )
        self._services.migrate_database()
        progress("Airflow: the database is ready")
        self._services.start(progress)
        if self._unpause:
            self.airflow.wait_parsed(*self._unpause)
            for dag_id in self._unpause:
                self.airflow.unpause(dag_id)
            progress(f"Airflow: {', '.join(self._unpause)} can be triggered")

    def facts(self) -> dict[str, Any]:
        """What a person needs to use it; no secrets, only the paths of files that hold them."""
        facts: dict[str, Any] = {
            "bootstrap": self.broker.bootstrap,
            "kafka_config": str(self.properties_file(SUPERUSER)),
            "logs": str(self.folder.folder("logs")),
            "env": str(self.folder / "env"),
        }
        if self._services is not None:
            facts |= {"journal": shown(self.journal_url)}
            facts |= {"airflow": self._services.url, "passwords": str(self._services.passwords_file), "user": "admin"}
        return facts

    def check_alive(self) -> None:
        """Raises BrokerFailed or AirflowFailed where a part has ended by itself."""
        if self._services is not None:
            self._services.check_alive()
        self.broker.check_alive()

    def stop(self) -> None:
        """End everything that was started, and only that. The folder keeps logs and evidence."""
        if self._services is not None:
            self._services.stop()
            self._services = None
        if self._broker is not None:
            self._broker.stop()
            self._broker = None
        if self._postgres is not None:
            self._postgres.close()
        if self.folder.locked:  # else another run lives there, and the state is that one's
            self.folder.clear_state()
            self.folder.unlock()

    def __enter__(self) -> Stack:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()


def journal_connection(url: str) -> dict[str, Any]:
    """The journal's SQLAlchemy URL as an Airflow connection in JSON form."""
    parts = make_url(url)
    if parts.get_backend_name() == "sqlite":
        return {"conn_type": "sqlite", "host": parts.database}
    return {
        "conn_type": "postgres",
        "host": parts.host,
        "port": parts.port,
        "login": parts.username,
        "password": parts.password,
        "schema": parts.database,
        "extra": dict(parts.query),
    }


def default_run_folder(name: str) -> Path:
    """``build/<name>`` of the project."""
    return ROOT / "build" / name


def wait_gone(process: psutil.Process, timeout: float) -> bool:
    """Wait until a process has ended (one that waits to be reaped has); whether it has."""
    deadline = time.monotonic() + timeout
    with contextlib.suppress(psutil.NoSuchProcess):
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
    return True


if __name__ == "__main__":
    import sys

    from lab.stack_cli import main

    sys.exit(main())
