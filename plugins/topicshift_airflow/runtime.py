"""From an Airflow task to the ports: connections become clients, the run becomes a claim on its migration."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook, Variable
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException, AirflowRuntimeError

from topicshift.core.engine.words import Row
from topicshift.core.errors import NotFound, Refused, SpecError, TopicshiftError, Transient
from topicshift.core.spec.model import Spec
from topicshift.quiet import quiet

if TYPE_CHECKING:
    from airflow.sdk.exceptions import ErrorType

    from topicshift.acts.context import MigrationContext
    from topicshift.adapters.policy import PolicyFile
    from topicshift.adapters.rest import Endpoint
    from topicshift.ports import Journal, MigrationRow

log = logging.getLogger("topicshift")
quiet()

JOURNAL_CONN_ID = "topicshift_journal"
POLICY_VARIABLE = "topicshift_policy"
"""Airflow variable with the path of the installation policy, where the environment names none."""
PROJECT = Path(__file__).resolve().parents[2]
SPEC_FOLDER = Path(os.environ.get("TOPICSHIFT_SPECS", PROJECT / "include" / "migrations"))


def find_connection(conn_id: str) -> Any | None:
    """An Airflow connection, None where there surely is none of this name. Raises ``Transient`` where that is unknown.

    Airflow says "isn't defined" of a connection that its API server could not look up, too.
    """
    try:
        return BaseHook.get_connection(conn_id)
    except (AirflowNotFoundException, AirflowRuntimeError) as error:
        why = _why_unknown(conn_id)
        if why is None:
            return None
        raise Transient(
            f"Whether Airflow has a connection {conn_id!r} could not be told: {why}. It is never taken for missing on "
            "that ground; the task is tried again. See that the API server is up."
        ) from error


def _why_unknown(conn_id: str) -> str | None:
    """None when the API server itself says that it has no such connection (or none can be asked), else what it says."""
    from airflow.sdk.exceptions import ErrorType
    from airflow.sdk.execution_time.comms import GetConnection

    return _not_missing(GetConnection(conn_id=conn_id), ErrorType.CONNECTION_NOT_FOUND)


def _not_missing(question: Any, missing: ErrorType) -> str | None:
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import ErrorResponse

    asks = getattr(task_runner, "SUPERVISOR_COMMS", None)
    if asks is None:
        return None  # not in a task: there is no API server behind the answer
    try:
        answer = asks.send(question)
    except AirflowRuntimeError as error:
        answer = error.error
    except Exception as error:  # noqa: BLE001 - whatever it is, it is no answer
        return type(error).__name__
    if not isinstance(answer, ErrorResponse):
        return "it could not be looked up a moment ago"
    return None if answer.error is missing else answer.error.value


def connection(conn_id: str) -> Any:
    """An Airflow connection. Raises ``SpecError`` that names it when it does not exist."""
    found = find_connection(conn_id)
    if found is None:
        raise SpecError(
            f"kafka_conn_id: the Airflow connection {conn_id!r} does not exist. Create it (Admin, Connections, "
            "or AIRFLOW_CONN_...), or name another one in the spec."
        )
    return found


def kafka_config(conn_id: str) -> dict[str, str]:
    """librdkafka properties from an Airflow Kafka connection; secrets may lie in a file that its extra names."""
    from topicshift.adapters.kafka.connection import from_airflow_extra

    return from_airflow_extra(connection(conn_id).extra_dejson)


def endpoint_of(conn_id: str) -> Endpoint:
    """The address and log-in of the service that an Airflow connection names. Raises ``SpecError`` without one."""
    found = find_connection(conn_id)
    if found is None:
        raise no_endpoint(conn_id)
    return endpoint_in(conn_id, found)


def no_endpoint(conn_id: str) -> SpecError:
    """The error for a connection that a participant names and that does not exist."""
    return SpecError(
        f"The Airflow connection {conn_id!r} does not exist. A participant is moved through it, so nobody could be "
        "asked. Create it (Admin, Connections, or AIRFLOW_CONN_...), or name another one in its settings."
    )


def endpoint_in(conn_id: str, found: Any) -> Endpoint:
    """The address and log-in in an Airflow connection. Raises ``SpecError`` where there is no address."""
    from topicshift.adapters.rest import endpoint

    names = ("conn_type", "host", "port", "schema", "login", "password", "extra")
    return endpoint(conn_id, {name: getattr(found, name) for name in names})


def open_journal(*, create: bool = True) -> Journal:
    """The journal named by the connection ``topicshift_journal``; the default of the command line without one.

    With ``create=False`` one that is not there is ``NotFound`` when it is read. Raises ``Transient`` where it cannot be
    told whether there is one, and ``SpecError`` for a local file where tasks may run on other machines: in another
    journal the locks of this one are not.
    """
    from topicshift.adapters.journal import SqlJournal

    return SqlJournal(journal_url(), create=create)


def journal_url() -> str:
    """The SQLAlchemy URL of the journal. Raises as :func:`open_journal`."""
    from topicshift.adapters.journal import default_url, from_airflow_uri

    named = find_connection(JOURNAL_CONN_ID)
    url = default_url() if named is None else from_airflow_uri(named.get_uri())
    elsewhere = remote_executors() if url.startswith("sqlite:") else []
    if elsewhere:
        raise SpecError(
            f"The journal is the SQLite file {url.removeprefix('sqlite:///')}, and tasks run with "
            f"{', '.join(elsewhere)}, so perhaps on several machines. Each would have a journal of its own, and two "
            f"runs could move one topic at once. Create the connection {JOURNAL_CONN_ID} to a PostgreSQL database."
        )
    return url


def remote_executors() -> list[str]:
    """Airflow's executors (``core.executor``) that may run tasks on another machine than its scheduler's."""
    found = re.split(r"[,;]", conf.get("core", "executor"))
    return [name.strip() for name in found if "LocalExecutor" not in re.split(r"[=:.]", name.strip())]


def owner_of(context: Mapping[str, Any]) -> str:
    """The owner's name in the journal: the DAG and its run, so that a person can find it."""
    ti = context["ti"]
    return f"{ti.dag_id}/{ti.run_id}"


def owner_alive(owner: str) -> bool | None:
    """Whether the run that owns a lock still runs; None where Airflow cannot tell (counts as alive)."""
    from topicshift_airflow.airflow_api import run_state

    dag_id, _, run_id = owner.partition("/")
    state = run_state(dag_id, run_id)
    # A run that Airflow has deleted cannot be running any more.
    return None if state is None else state in ("running", "queued")


GATE_PATIENCE = timedelta(hours=12)
"""Time after which a run without a window begins no freeze any more, so that it ends one day."""


@contextmanager
def journal() -> Iterator[Journal]:
    """The journal, closed at the end."""
    opened = open_journal()
    try:
        yield opened
    finally:
        opened.close()


def find_migration(wanted: str) -> MigrationRow:
    """The newest migration with this id, source or target. Raises ``NotFound`` with those there are."""
    if not wanted.strip():
        raise SpecError("migration: is empty. Give the id of a migration, or the name of its source or target topic.")
    with journal() as opened:
        rows = opened.find()
    hits = [r for r in rows if wanted in (r.migration_id, r.source, r.target)]
    if not hits:
        known = ", ".join(f"{r.migration_id} ({r.state})" for r in rows[-5:]) or "none"
        raise NotFound(f"migration: {wanted!r} is not in the journal. The latest are: {known}.")
    return hits[-1]


def begin_by(context: Mapping[str, Any], spec: Spec, opened: Journal, migration_id: str) -> datetime | None:
    """Until when this run may begin its freeze, where its spec has no window: for a patience.

    That one counts from the last answer of a person, who may take days for the plan, from the start of the run, or
    from the time until which the freeze was postponed. None where no run of Airflow's is behind it, and where there is
    a window: a missed one is followed by the next.
    """
    dag_run = context.get("dag_run")
    if dag_run is None or spec.window is not None:
        return None
    later = opened.step(migration_id, Row.POSTPONE)
    postponed = [datetime.fromisoformat(later.data["until"])] if later is not None and later.state == "intended" else []
    answers = [datetime.fromisoformat(e.at) for e in opened.events(migration_id) if e.kind == "approved"] + postponed
    return max([dag_run.start_date or datetime.now(UTC), *answers]) + GATE_PATIENCE


def holder_of(context: Mapping[str, Any]) -> str:
    """The name of this very try of a task, for the seat."""
    ti = context["ti"]
    return f"airflow:{ti.dag_id}/{ti.run_id}/{ti.task_id}/{ti.map_index}/{ti.try_number}"


def policy_file() -> PolicyFile:
    """The installation policy: the file that the environment variable TOPICSHIFT_POLICY names, else the variable.

    Raises ``Transient`` where Airflow cannot tell whether it has such a variable.
    """
    from topicshift.adapters.policy import PolicyFile, policy_from_env

    found = policy_from_env()
    if found.path is not None:
        return found
    named = str(_variable(POLICY_VARIABLE) or "").strip()
    return PolicyFile(Path(named) if named else None)


def _variable(name: str) -> Any:
    """An Airflow variable, None where there surely is none of this name. Raises ``Transient`` where that is unknown.

    Airflow takes a variable that its API server could not look up for one that does not exist.
    """
    from airflow.sdk.exceptions import ErrorType
    from airflow.sdk.execution_time.comms import GetVariable

    why: str | None
    try:
        found = Variable.get(name, default=None)
        why = None if found is not None else _not_missing(GetVariable(key=name), ErrorType.VARIABLE_NOT_FOUND)
    except (AirflowRuntimeError, PermissionError) as error:
        why = str(error)
    if why is not None:
        raise Transient(
            f"Whether Airflow has a variable {name} could not be told ({why}), so what the installation policy forbids "
            "is unknown. The task is tried again."
        )
    return found


def impact_page(impact: Mapping[str, Any], sizing: Any) -> str:
    """``impact.html``, drawn with the partition count that was worked out from rates."""
    from topicshift.reporting.impact import render

    return render(impact, sizing)


def _own(opened: Journal, owner: str) -> MigrationRow:
    rows = opened.find(owner=owner)
    if not rows:
        raise Refused(
            f"The run {owner} owns no migration (it may have been taken over by a rollback). "
            "Start a new run of topic_migration."
        )
    return rows[-1]


@contextmanager
def open_context(
    context: Mapping[str, Any], migration_id: str = "", *, take_over: bool = True
) -> Iterator[MigrationContext]:
    """The migration that this DAG run owns, or the named one, which it takes over if another run owns it.

    Without ``take_over`` the named one stays with its owner, on whose behalf is acted: that run can be cleared later.

    Raises ``Refused`` when the run owns none (plan was never run, or a rollback has taken it over).
    """
    from topicshift.acts.context import MigrationContext
    from topicshift.commands.wiring import make_ports
    from topicshift.ports import Claim
    from topicshift_airflow.metrics import meter_of

    owner = owner_of(context)
    with journal() as opened, ExitStack() as stack:
        row = opened.current(migration_id) if migration_id else _own(opened, owner)
        if row.owner != owner and take_over:
            opened.take_over(row.migration_id, owner)
            row = opened.current(row.migration_id)
        spec, meter = Spec.model_validate(dict(row.spec)), meter_of(row.source)
        ports = make_ports(
            opened,
            row,
            lambda: kafka_config(spec.kafka_conn_id),
            stack,
            owner_alive=owner_alive,
            impact_page=impact_page,
            policy=policy_file(),
            endpoint=endpoint_of,
        )
        ctx = MigrationContext(
            ports,
            row,
            Claim(row.migration_id, row.epoch, row.owner),
            holder_of(context),
            lambda text: log.info("%s", text),
            began_at=getattr(context["ti"], "start_date", None) or ports.clock.now(),
            begin_by=begin_by(context, spec, opened, row.migration_id),
            triggered_by=str(getattr(context.get("dag_run"), "triggering_user_name", None) or ""),
            meter=meter,
        )
        stack.callback(ctx.close)
        if meter is not None:
            stack.callback(meter.last, ctx)
        yield ctx


@contextmanager
def typed_failures(hint: str = "") -> Iterator[None]:
    """Errors of the product become task failures: transient ones are retried, the others are final.

    ``hint`` is added to the message.
    """
    try:
        yield
    except TopicshiftError as error:
        if error.retryable:
            raise
        # The message says it all; a chained traceback would only repeat it in the log.
        raise AirflowFailException(f"{type(error).__name__}: {error}{hint}") from None
