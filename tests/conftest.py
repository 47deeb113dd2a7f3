"""Fixtures that every test may use: real brokers, PostgreSQL and Spark, each started at most once in a run."""

from __future__ import annotations

import itertools
import logging
import os
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from tests import budget

from lab.broker import EmbeddedBroker, new_password

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from pyspark.sql import SparkSession

    from lab.stack import Stack

# Byte code makes each child Python start in a tenth of the time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A client that tells of every connection would bury what a failed test has to say.
logging.getLogger("kafka").setLevel(logging.WARNING)

# Time is measured in benchmarks, not in tests: on a busy machine a deadline fails for no reason.
settings.register_profile("topicshift", deadline=None)
settings.load_profile("topicshift")

METRICS = "AIRFLOW__METRICS__"

USERS = ("topicshift", "checkout", "billing", "ledger", "fraud", "search", "legacy", "rogue")


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    """One broker without an authorizer, shared by the whole run. Make topics with names of your own."""
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture(scope="session")
def secure_broker() -> Iterator[EmbeddedBroker]:
    """One broker with an authorizer: the superuser admin, and users that may do nothing until an ACL allows it."""
    with EmbeddedBroker(authorizer=True, users={user: new_password() for user in USERS}) as running:
        yield running


@pytest.fixture(scope="session")
def admin_client(broker: EmbeddedBroker) -> AdminClient:
    """A confluent-kafka AdminClient on ``broker``."""
    from confluent_kafka.admin import AdminClient

    return AdminClient(broker.config())


@pytest.fixture(scope="session")
def secure_admin_client(secure_broker: EmbeddedBroker) -> AdminClient:
    """The superuser's confluent-kafka AdminClient on ``secure_broker``."""
    from confluent_kafka.admin import AdminClient

    return AdminClient(secure_broker.superuser_config())


def pytest_configure(config: pytest.Config) -> None:
    """CI has an end."""
    config.pluginmanager.register(budget, "budget")


def pytest_sessionfinish() -> None:
    """Clients' threads may log a last word when the streams that pytest captured are closed already."""
    logging.raiseExceptions = False


ELSEWHERE = {
    "kubernetes": ("KUBEBUILDER_ASSETS", "no folder with etcd, kube-apiserver and kube-controller-manager"),
    "unleash": ("TOPICSHIFT_UNLEASH", "no folder in which npm has installed unleash-server"),
    "prometheus": ("TOPICSHIFT_PROMETHEUS", "no folder with prometheus, promtool and statsd_exporter"),
}
"""Tests that need programs that set-up does not bring: their mark, the variable that says where, and what it lacks."""

BESIDE = {"unleash": {"e2e", "chaos"}, "prometheus": {"integration", "chaos"}}
"""Folders that have no tests of a mark."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests whose programs nothing says the place of; the summary says so."""
    lacking = [mark for mark, (variable, _) in ELSEWHERE.items() if not os.environ.get(variable)]
    out = [item for item in items if any(item.get_closest_marker(mark) for mark in lacking)]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What was left out, in a line that nobody misses."""
    files = [arg.split("::")[0] for arg in config.args]
    for mark, (variable, lack) in ELSEWHERE.items():
        beside = {"unit", "simulation"} | BESIDE.get(mark, set())
        asked = any(mark in f or (Path(f).is_dir() and not beside & set(Path(f).parts)) for f in files)
        if asked and not os.environ.get(variable):
            terminalreporter.write_sep("=", f"NOT RUN: the tests of {mark.capitalize()}", red=True)
            terminalreporter.write_line(f"{variable} names {lack}: tests/README.md.")


_counter = itertools.count(1)


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> Callable[..., str]:
    """A factory of names that no other test uses, for topics and groups: ``topic_name()``, ``topic_name("target")``."""
    stem = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40]

    def make(suffix: str = "") -> str:
        name = f"{stem}-{next(_counter)}-{secrets.token_hex(3)}"
        return f"{name}-{suffix}" if suffix else name

    return make


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """SQLAlchemy URL of a real PostgreSQL, shared by the whole run. Make a schema or database of your own in it."""
    from lab.postgres import embedded_postgres

    with embedded_postgres() as url:
        yield url


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local Spark session with two cores and the Kafka connector, shared by the whole run."""
    from lab.spark import local_spark

    session = local_spark()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of hooks of ``stack``, empty at first."""
    return tmp_path_factory.mktemp("hooks")


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder below which ``stack`` lets a spec name checkpoints, empty at first."""
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="session")
def statsd_port() -> int:
    """Where ``stack`` sends its metrics; a test may listen there. What nobody listens to is lost, as StatsD is."""
    from lab import ports_free

    return ports_free.claim()[0]


@pytest.fixture(scope="session")
def stack(
    tmp_path_factory: pytest.TempPathFactory, hooks: Path, checkpoints: Path, statsd_port: int
) -> Iterator[Stack]:
    """Broker with authorizer and real Airflow on the project's DAGs, shared by the whole run (half a minute).

    Airflow's data and the journal are in PostgreSQL, as in production; the demo keeps both in SQLite. Its spec files
    are those of ``tests/specs``. Metrics are sent by the very settings of docker-compose.yml.
    """
    from lab.airflow_services import read_env_file
    from lab.runfolder import ROOT
    from lab.stack import Stack

    specs = Path(__file__).parent / "specs"
    metrics = {k: v for k, v in read_env_file(ROOT / "deploy/compose.env", {}).items() if k.startswith(METRICS)}
    metrics |= {f"{METRICS}STATSD_HOST": "127.0.0.1", f"{METRICS}STATSD_PORT": str(statsd_port)}
    environment = {**metrics, "TOPICSHIFT_SPECS": str(specs), "TOPICSHIFT_HOOKS": str(hooks)}
    environment["TOPICSHIFT_READER_LOCATIONS"] = str(checkpoints)
    running = Stack(tmp_path_factory.mktemp("stack"), postgres=True, environment=environment)
    running.start()
    try:
        yield running
    finally:
        running.stop()
