"""From an Airflow task to the ports: connections become clients, the run becomes a claim on its migration."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException, AirflowRuntimeError

from topicshift.acts.participants import Cast
from topicshift.core.errors import Refused, SpecError, TopicshiftError, Transient
from topicshift.core.spec.model import Spec
from topicshift.ports import Claim, ControlContext, Controller, MigrationRow

if TYPE_CHECKING:
    from airflow.sdk.execution_time.comms import ErrorResponse

    from topicshift.ports import Clock, ClusterAdmin, EvidenceStore, Journal

log = logging.getLogger("topicshift")
# A client that tells of every connection would bury what a step has to say in the task's log.
logging.getLogger("kafka").setLevel(logging.WARNING)

JOURNAL_CONN_ID = "topicshift_journal"
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
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import ErrorResponse, GetConnection

    asks = getattr(task_runner, "SUPERVISOR_COMMS", None)
    if asks is None:
        return None  # not in a task: there is no API server behind the answer
    try:
        answer = asks.send(GetConnection(conn_id=conn_id))
    except AirflowRuntimeError as error:
        answer = error.error
    except Exception as error:  # noqa: BLE001 - whatever it is, it is no answer
        return type(error).__name__
    if not isinstance(answer, ErrorResponse):
        return "it could not be looked up a moment ago"
    return None if answer.error is ErrorType.CONNECTION_NOT_FOUND else answer.error.value


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


def open_journal(*, create: bool = True) -> Journal:
    """The journal named by the connection ``topicshift_journal``; the default of the command line without one.

    With ``create=False`` one that is not there is ``NotFound`` when it is read. Raises ``Transient`` where it cannot be
    told whether there is one, and ``SpecError`` for a local file where tasks may run on other machines: in another
    journal the locks of this one are not.
    """
    from topicshift.adapters.journal import SqlJournal, default_url, from_airflow_uri

    named = find_connection(JOURNAL_CONN_ID)
    url = default_url() if named is None else from_airflow_uri(named.get_uri())
    elsewhere = remote_executors() if url.startswith("sqlite:") else []
    if elsewhere:
        raise SpecError(
            f"The journal is the SQLite file {url.removeprefix('sqlite:///')}, and tasks run with "
            f"{', '.join(elsewhere)}, so perhaps on several machines. Each would have a journal of its own, and two "
            f"runs could move one topic at once. Create the connection {JOURNAL_CONN_ID} to a PostgreSQL database."
        )
    return SqlJournal(url, create=create)


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
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    dag_id, _, run_id = owner.partition("/")
    try:
        return RuntimeTaskInstance.get_dagrun_state(dag_id, run_id) in ("running", "queued")
    except AirflowRuntimeError as error:
        # A run that Airflow has deleted cannot be running any more.
        return False if _no_such_run(error.error) else None


def _no_such_run(answer: ErrorResponse) -> bool:
    """Whether Airflow's own answer for the state of a run says that there is none; a proxy's 404 does not."""
    from airflow.sdk.exceptions import ErrorType

    said = answer.detail or {}
    body = said.get("detail")
    reason = body.get("detail") if isinstance(body, dict) else None
    return (
        answer.error is ErrorType.API_SERVER_ERROR
        and said.get("status_code") == 404
        and isinstance(reason, dict)
        and reason.get("reason") == "not_found"
    )


@dataclass
class Run:
    """One task's view of its migration: the ports, the claim and the spec."""

    owner: str
    journal: Journal
    evidence: EvidenceStore
    clock: Clock
    row: MigrationRow
    claim: Claim
    _stack: ExitStack
    actor: str = "topicshift"
    _controllers: dict[str, Controller] = field(default_factory=dict)

    @cached_property
    def spec(self) -> Spec:
        """The spec as accepted when the migration was opened."""
        return Spec.model_validate(dict(self.row.spec))

    @cached_property
    def config(self) -> dict[str, str]:
        """librdkafka properties of the cluster."""
        return kafka_config(self.spec.kafka_conn_id)

    @cached_property
    def admin(self) -> ClusterAdmin:
        """The cluster."""
        from topicshift.adapters.kafka.admin import KafkaAdmin

        admin = KafkaAdmin(self.config)
        self._stack.callback(admin.close)
        return admin

    def cast(self, kinds: set[str], lease_until: datetime | None = None) -> Cast:
        """Controllers of these kinds, under a lease if one is given."""
        from topicshift.adapters.controllers import ControllerEnv, controller

        for kind in kinds - set(self._controllers):
            made = controller(kind, ControllerEnv(self.config, self.admin, self.clock))
            self._controllers[kind] = made
            self._stack.callback(made.close)
        context = ControlContext(self.row.migration_id, self.row.source, self.row.target, self.claim.epoch, lease_until)
        return Cast(self._controllers, context)

    def progress(self, text: str) -> None:
        """Talk: goes to the task's log."""
        log.info("%s", text)

    def event(self, kind: str, data: Mapping[str, Any], actor: str | None = None) -> None:
        """One event of the audit trail."""
        self.journal.event(self.claim, kind, actor or self.actor, data)

    def write(self, name: str, text: str | bytes) -> str:
        """One evidence file."""
        return self.evidence.write(self.row.migration_id, name, text)

    def read(self, name: str) -> bytes:
        """One evidence file that must be there. Raises ``Refused`` naming it."""
        data = self.evidence.read(self.row.migration_id, name)
        if data is None:
            raise Refused(
                f"Evidence {name} of {self.row.migration_id} is missing, so the step that needs it is refused. "
                "Clear the task that writes it."
            )
        return data


@contextmanager
def open_run(context: Mapping[str, Any], migration_id: str | None = None, *, take_over: bool = True) -> Iterator[Run]:
    """The migration that this DAG run owns, or the named one, which it takes over if another run owns it.

    Without ``take_over`` the named one stays with its owner, on whose behalf is acted: that run can be cleared later.

    Raises ``Refused`` when the run owns none (plan was never run, or a rollback has taken it over).
    """
    from topicshift.adapters.clock import SystemClock
    from topicshift.adapters.evidence import evidence_from_env

    owner = owner_of(context)
    with ExitStack() as stack:
        journal = open_journal()
        stack.callback(journal.close)
        if migration_id is not None and not take_over:
            row = journal.current(migration_id)
            claim = Claim(migration_id, row.epoch, row.owner)
        elif migration_id is not None:
            claim = journal.take_over(migration_id, owner)
            row = journal.current(migration_id)
        else:
            rows = journal.find(owner=owner)
            if not rows:
                raise Refused(
                    f"The run {owner} owns no migration (it may have been taken over by a rollback). "
                    "Start a new run of topic_migration."
                )
            row = rows[-1]
            claim = Claim(row.migration_id, row.epoch, owner)
        yield Run(owner, journal, evidence_from_env(), SystemClock(), row, claim, stack)


@contextmanager
def typed_failures(context: Mapping[str, Any], record: Callable[[str, str], None] | None = None) -> Iterator[None]:
    """Errors of the product become task failures: transient ones are retried, the others are final."""
    try:
        yield
    except TopicshiftError as error:
        name = type(error).__name__
        if record is not None:
            record(name, str(error))
        if error.retryable:
            raise
        # The message says it all; a chained traceback would only repeat it in the log.
        raise AirflowFailException(f"{name}: {error}") from None
