"""What ``topicshift doctor`` and the DAG ``topic_doctor`` look at, and what to do where it is not as it should be."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from topicshift.core.errors import NotFound, SpecError, TopicshiftError

if TYPE_CHECKING:
    from topicshift.core.doctor import Row

Rows = Iterator["Row"]
PROBE = "doctor"
"""Folder of the evidence store in which the probe is written."""

JAVA = 17
"""Spark's least version of Java."""

_CONNECTIONS = {
    "topicshift_journal": "without it the journal is a SQLite file of this machine, which tasks refuse elsewhere",
    "spark_default": "without it jobs run on local[*]",
    "connect_default": "needed only where connectors are moved",
}


class AirflowHere(Protocol):
    """Airflow, asked from a terminal (the module ``adapters.airflow_here``) or from a task.

    Each raises ``Unreadable`` for what cannot be told.
    """

    def version(self) -> str:
        """Airflow's version."""

    def setting(self, section: str, key: str) -> str:
        """A setting of Airflow's configuration."""

    def dags(self) -> dict[str, bool]:
        """DAGs that Airflow knows: id to whether it is paused."""

    def import_errors(self) -> dict[str, str]:
        """DAG files that cannot be parsed: name to the last line of the error."""

    def plugin(self) -> str:
        """Where Topicshift's plugin was loaded from. Raises ``NotFound`` with the reason where it was not."""

    def connection(self, conn_id: str) -> Any:
        """An Airflow connection, None where there is none of this name."""


AREAS = ("airflow", "connections", "kafka", "journal", "evidence", "spark")
"""What is looked at, one after the other."""


def look(
    areas: Iterable[str],
    airflow: AirflowHere,
    conn_id: str,
    *,
    kafka_config: Mapping[str, Any] | None = None,
    journal_url: str | None = None,
) -> Rows:
    """The rows of these areas. Writes one probe file into the evidence store, and changes nothing else.

    ``kafka_config`` and ``journal_url``: instead of those of Airflow's connections. Raises ``KeyError`` for any other
    area.
    """
    looks: dict[str, Callable[[], Rows]] = {
        "airflow": lambda: _airflow(airflow),
        "connections": lambda: _connections(airflow, conn_id, needed=kafka_config is None),
        "kafka": lambda: _kafka(airflow, conn_id, kafka_config),
        "journal": lambda: _journal(airflow, journal_url),
        "evidence": _evidence,
        "spark": _spark,
    }
    for area in areas:
        yield from looks[area]()


def _looked(area: str, name: str, look: Callable[[], Iterable[Row]], do: str) -> Rows:
    """The rows of one look; where it fails, one that says so: what is missing is not OK, the rest is unknown."""
    from topicshift.core.doctor import Row

    try:
        yield from list(look())
    except (NotFound, SpecError) as error:
        yield Row(area, name, "not_ok", " ".join(str(error).split()), do)
    except TopicshiftError as error:
        yield Row(area, name, "unknown", " ".join(str(error).split()), do)


def _airflow(airflow: AirflowHere) -> Rows:
    from topicshift.core.doctor import SETTINGS, Row, dag_rows, settings_rows

    here = "Run this where Airflow's scheduler runs, with its environment."
    try:
        yield Row("airflow", "version", "ok", airflow.version())
    except TopicshiftError as error:
        yield Row("airflow", "version", "unknown", str(error), here)
        return
    yield from _looked("dags", "DAGs", lambda: dag_rows(airflow.dags(), airflow.import_errors()), here)
    yield from _looked(
        "airflow",
        "plugin",
        lambda: [Row("airflow", "plugin", "ok", airflow.plugin())],
        "Point AIRFLOW__CORE__PLUGINS_FOLDER to `plugins`, with `include` and `plugins` in PYTHONPATH.",
    )
    yield from _looked(
        "settings",
        "settings",
        lambda: settings_rows({k: airflow.setting(*k) for k in SETTINGS}),
        here,
    )


def _connections(airflow: AirflowHere, conn_id: str, *, needed: bool) -> Rows:
    from topicshift.core.doctor import Row

    def look(name: str, note: str) -> Rows:
        if airflow.connection(name) is not None:
            yield Row("connections", name, "ok", "is there")
        else:
            must = name == conn_id
            do = f"Create it: Admin, Connections, or AIRFLOW_CONN_{name.upper()}." if must else ""
            yield Row("connections", name, "not_ok" if must else "ok", f"is not there; {note}", do)

    for name, note in {conn_id: "a spec names it as kafka_conn_id", **_CONNECTIONS}.items():
        do = "" if name != conn_id and not needed else "Run this where Airflow's connections can be read."
        yield from _looked("connections", name, lambda name=name, note=note: look(name, note), do)  # type: ignore[misc]


def _kafka(airflow: AirflowHere, conn_id: str, given: Mapping[str, Any] | None) -> Rows:
    from topicshift.core.doctor import Row, cluster_rows, route_rows
    from topicshift.core.kafka.rules import ACKS_TOPIC, ROUTES_TOPIC

    def look() -> Rows:
        from topicshift.adapters.kafka.admin import KafkaAdmin
        from topicshift.adapters.kafka.connection import from_airflow_extra

        config = given
        if config is None:
            found = airflow.connection(conn_id)
            if found is None:
                raise NotFound(f"no cluster was named, and there is no Airflow connection {conn_id}")
            config = from_airflow_extra(found.extra_dejson)
        with KafkaAdmin(config) as admin:
            cluster = admin.cluster()
            yield from cluster_rows(cluster)
            topics = {name: admin.topic(name) for name in (ROUTES_TOPIC, ACKS_TOPIC)}
            yield from route_rows(topics, len(cluster.brokers))
            groups = admin.groups()
            yield Row("kafka", "groups", "ok", f"{len(groups)} consumer group(s) are listed")

    do = (
        "See that the brokers can be reached from here, and that log-in and rights are as docs/least-privilege.md says."
    )
    yield from _looked("kafka", "cluster", look, do)


def _journal(airflow: AirflowHere, url: str | None) -> Rows:
    from sqlalchemy.engine import make_url

    from topicshift.adapters.journal import SqlJournal, default_url
    from topicshift.adapters.journal.urls import shown
    from topicshift.core.doctor import Row

    def look() -> Rows:
        named = url or _journal_of_airflow(airflow) or default_url()
        if make_url(named).drivername.startswith("sqlite"):
            yield from _one_machine(airflow, shown(named))
        journal = SqlJournal(named, create=False)
        try:
            rows = journal.find()
        except NotFound:
            yield Row("journal", "journal", "ok", f"{shown(named)} is not there yet: the first migration makes it")
            return
        finally:
            journal.close()
        yield Row(
            "journal", "journal", "ok", f"{shown(named)}: {sum(r.state == 'open' for r in rows)} open of {len(rows)}"
        )

    do = "Name the journal that Airflow uses with TOPICSHIFT_JOURNAL or --journal."
    yield from _looked("journal", "journal", look, do)


def _journal_of_airflow(airflow: AirflowHere) -> str | None:
    from topicshift.adapters.journal import from_airflow_uri

    try:
        found = airflow.connection("topicshift_journal")
    except TopicshiftError:
        return None
    return None if found is None else from_airflow_uri(found.get_uri())


def _one_machine(airflow: AirflowHere, file: str) -> Rows:
    """A journal that is a file is one machine's: elsewhere its locks do not hold."""
    from topicshift.core.doctor import Row

    try:
        executors = airflow.setting("core", "executor")
    except TopicshiftError:
        return
    if any("LocalExecutor" not in name for name in re.split(r"[,;]", executors)):
        said = f"{file} is a file of one machine, and tasks run with {executors}"
        yield Row(
            "journal", "place", "not_ok", said, "Create the connection topicshift_journal to a PostgreSQL database."
        )


def _evidence() -> Rows:
    from topicshift.adapters.evidence import evidence_from_env
    from topicshift.core.doctor import Row

    def look() -> Rows:
        store = evidence_from_env()
        store.write(PROBE, "probe.json", "{}")
        if store.read(PROBE, "probe.json") != b"{}":
            raise NotFound(f"{store.base_url} does not give back what was written there")
        yield Row("evidence", "store", "ok", f"{store.base_url} takes and gives back a file")

    do = "Set TOPICSHIFT_EVIDENCE to a folder or URL that every worker reaches and may write to."
    yield from _looked("evidence", "store", look, do)


def _spark() -> Rows:
    from topicshift.adapters.spark import connector_jars, job_file
    from topicshift.core.doctor import Row

    def jars() -> Rows:
        found = connector_jars().split(",")
        missing = [jar for jar in found if not Path(jar).is_file()]
        if missing:
            raise NotFound(f"{', '.join(missing)} is not there")
        yield Row("spark", "jars", "ok", f"{len(found)} jar(s) of the Kafka connector")

    def jobs() -> Rows:
        for name in ("key_rehash_impact", "drain_verification", "order_proof"):
            job_file(name)
        yield Row("spark", "jobs", "ok", str(job_file("order_proof").parent))

    yield from _looked("spark", "jars", jars, "Run make setup, or set TOPICSHIFT_SPARK_JARS.")
    yield from _looked("spark", "jobs", jobs, "Set TOPICSHIFT_SPARK_JOBS to the project's spark_jobs.")
    beside = Path(sys.executable).with_name("spark-submit")
    submit = str(beside) if beside.exists() else shutil.which("spark-submit")
    do = "Install pyspark beside Airflow (requirements/runtime.txt)."
    yield Row(
        "spark", "spark-submit", "ok" if submit else "not_ok", submit or "is not on the path", "" if submit else do
    )
    yield _java()


def _java() -> Row:
    from topicshift.core.doctor import Row

    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    do = f"Install Java {JAVA} or later, and set JAVA_HOME."
    if java is None:
        return Row("spark", "java", "not_ok", "there is no java on the path", do)
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return Row("spark", "java", "unknown", f"{java} does not say its version ({type(error).__name__})", do)
    found = re.search(r'version "(\d+)', said)
    if found is None:
        return Row("spark", "java", "unknown", f"{java} does not say its version", do)
    good = int(found[1]) >= JAVA
    return Row("spark", "java", "ok" if good else "not_ok", f"{java} is of version {found[1]}", "" if good else do)
