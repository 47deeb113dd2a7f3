"""``topicshift doctor``: whether an installation is fit for a migration, row by row, with what to do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topicshift.commands.common import (
    EXIT_NO,
    EXIT_OK,
    EXIT_UNKNOWN,
    answer,
    console,
    escape,
    journal_option,
    kafka_options_if_wanted,
)
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


@click.command(
    help="Check this installation: Airflow's DAGs, plugin, connections and the settings that lengthen a freeze, Kafka "
    "and the rights on it, journal, evidence store, Spark. Run it where the scheduler and the workers run, with their "
    "environment. Writes one probe file into the evidence store, and changes nothing else. Exit code 0 where all is "
    "OK, 3 where something is not, 4 where something could not be told."
)
@click.option(
    "--connection", "conn_id", default="kafka_default", show_default=True, help="The Airflow Kafka connection."
)
@journal_option
@kafka_options_if_wanted
def command(conn_id: str, journal_url: str | None, kafka_config: dict[str, Any] | None, as_json: bool) -> int:
    """Look at everything, and print one row for each. See the help text."""
    from topicshift.core.doctor import overall

    rows = [
        *_airflow(),
        *_connections(conn_id, needed=kafka_config is None),
        *_kafka(conn_id, kafka_config),
        *_journal(journal_url),
        *_evidence(),
        *_spark(),
    ]
    verdict = overall(rows)
    if as_json:
        answer({"verdict": verdict, "rows": [row.values() for row in rows]})
    else:
        _show(rows)
    return {"ok": EXIT_OK, "not_ok": EXIT_NO, "unknown": EXIT_UNKNOWN}[verdict]


def _looked(area: str, name: str, look: Callable[[], Iterable[Row]], do: str) -> Rows:
    """The rows of one look; where it fails, one that says so: what is missing is not OK, the rest is unknown."""
    from topicshift.core.doctor import Row

    try:
        yield from list(look())
    except (NotFound, SpecError) as error:
        yield Row(area, name, "not_ok", " ".join(str(error).split()), do)
    except TopicshiftError as error:
        yield Row(area, name, "unknown", " ".join(str(error).split()), do)


def _airflow() -> Rows:
    from topicshift.adapters import airflow_here
    from topicshift.core.doctor import SETTINGS, Row, dag_rows, settings_rows

    here = "Run this where Airflow's scheduler runs, with its environment."
    try:
        yield Row("airflow", "version", "ok", airflow_here.version())
    except TopicshiftError as error:
        yield Row("airflow", "version", "unknown", str(error), here)
        return
    yield from _looked("dags", "DAGs", lambda: dag_rows(airflow_here.dags(), airflow_here.import_errors()), here)
    yield from _looked(
        "airflow",
        "plugin",
        lambda: [Row("airflow", "plugin", "ok", airflow_here.plugin())],
        "Point AIRFLOW__CORE__PLUGINS_FOLDER to `plugins`, with `include` and `plugins` in PYTHONPATH.",
    )
    yield from _looked(
        "settings",
        "settings",
        lambda: settings_rows({k: airflow_here.setting(*k) for k in SETTINGS}),
        here,
    )


def _connections(conn_id: str, *, needed: bool) -> Rows:
    from topicshift.adapters import airflow_here
    from topicshift.core.doctor import Row

    def look(name: str, note: str) -> Rows:
        if airflow_here.connection(name) is not None:
            yield Row("connections", name, "ok", "is there")
        else:
            must = name == conn_id
            do = f"Create it: Admin, Connections, or AIRFLOW_CONN_{name.upper()}." if must else ""
            yield Row("connections", name, "not_ok" if must else "ok", f"is not there; {note}", do)

    for name, note in {conn_id: "a spec names it as kafka_conn_id", **_CONNECTIONS}.items():
        do = "" if name != conn_id and not needed else "Run this where Airflow's connections can be read."
        yield from _looked("connections", name, lambda name=name, note=note: look(name, note), do)  # type: ignore[misc]


def _kafka(conn_id: str, given: Mapping[str, Any] | None) -> Rows:
    from topicshift.core.doctor import Row, cluster_rows, route_rows
    from topicshift.core.kafka.rules import ACKS_TOPIC, ROUTES_TOPIC

    def look() -> Rows:
        from topicshift.adapters import airflow_here
        from topicshift.adapters.kafka.admin import KafkaAdmin
        from topicshift.adapters.kafka.connection import from_airflow_extra

        config = given
        if config is None:
            found = airflow_here.connection(conn_id)
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


def _journal(url: str | None) -> Rows:
    from sqlalchemy.engine import make_url

    from topicshift.adapters.journal import SqlJournal, default_url
    from topicshift.adapters.journal.urls import shown
    from topicshift.core.doctor import Row

    def look() -> Rows:
        named = url or _journal_of_airflow() or default_url()
        if make_url(named).drivername.startswith("sqlite"):
            yield from _one_machine(shown(named))
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


def _journal_of_airflow() -> str | None:
    from topicshift.adapters import airflow_here
    from topicshift.adapters.journal import from_airflow_uri

    try:
        found = airflow_here.connection("topicshift_journal")
    except TopicshiftError:
        return None
    return None if found is None else from_airflow_uri(found.get_uri())


def _one_machine(file: str) -> Rows:
    """A journal that is a file is one machine's: elsewhere its locks do not hold."""
    from topicshift.adapters import airflow_here
    from topicshift.core.doctor import Row

    try:
        executors = airflow_here.setting("core", "executor")
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


_STYLE = {"ok": "green", "not_ok": "bold red", "unknown": "bold yellow"}


def _show(rows: list[Row]) -> None:
    from rich.table import Table

    out = console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("", "what", "seen"):
        table.add_column(name, no_wrap=name != "seen", overflow="fold")
    for row in rows:
        seen = escape(row.seen) + (f"\n[dim]do:[/] {escape(row.do)}" if row.do else "")
        verdict = row.verdict.replace("_", " ")
        table.add_row(f"[{_STYLE[row.verdict]}]{verdict}[/]", escape(f"{row.area}: {row.name}"), seen)
    out.print(table)
