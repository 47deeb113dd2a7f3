"""The first task of a migration: its spec, and the lock on both topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from topicshift.core.errors import SpecError, TopicshiftError
from topicshift.core.spec.cutover import Cutover
from topicshift.core.spec.model import Mode, Spec
from topicshift_airflow.links import LINKS
from topicshift_airflow.operators.advance import RETRIES
from topicshift_airflow.operators.orders import SAID
from topicshift_airflow.runtime import (
    SPEC_FOLDER,
    journal,
    kafka_config,
    owner_alive,
    owner_of,
    policy_file,
    typed_failures,
)

DAGS = {
    Cutover.DRAIN_FIRST: "topic_migration",
    Cutover.PRODUCERS_FIRST: "topic_migration_producers_first",
}
"""The DAG of each order of the cut-over that is started by hand."""


def spec_of_form(params: Mapping[str, Any], cutover: Cutover) -> Spec:
    """The spec that a form asks for, in the order of its DAG. Raises ``SpecError`` for a spec of the other order."""
    from topicshift.core.spec.form import SPEC_FILE, spec_from_form

    given = {"cutover": cutover.value} if not params.get(SPEC_FILE) and not params.get("cutover") else {}
    # Of an empty form nothing is said but that it is empty.
    filled = any(value not in (None, "", []) for value in params.values())
    spec = spec_from_form({**params, **(given if filled else {})}, SPEC_FOLDER)
    if spec.cutover is not cutover:
        raise SpecError(
            f"cutover: is {spec.cutover.value}, and this DAG runs {cutover.value}. Nothing was locked or changed. "
            f"Trigger {DAGS[spec.cutover]} with the same values."
        )
    return spec


class OpenMigration(BaseOperator):
    """Read the spec of this run (form or file), check it, and lock its source and target for this run."""

    operator_extra_links = LINKS
    ui_color = "#e8f0fb"

    def __init__(self, *, cutover: Cutover, spec_file: str | None = None, **kwargs: Any) -> None:
        super().__init__(**{**RETRIES, **kwargs})
        self.cutover = cutover
        self.spec_file = spec_file

    def execute(self, context: Any) -> Any:
        """Returns the names of the consumers, over which later tasks are mapped."""
        with typed_failures():
            try:
                return self._opened(context)
            except TopicshiftError as error:
                # A run that is refused owns no migration whose page could say why: pages tell the reason from this.
                said = {"cannot": " ".join(str(error).split()), "again": error.retryable}
                context["ti"].xcom_push(key=SAID, value=said)
                raise

    def _opened(self, context: Any) -> list[str]:
        from topicshift.acts.open import open_migration
        from topicshift.adapters.kafka.admin import KafkaAdmin

        params = {"spec_file": self.spec_file} if self.spec_file else dict(context["params"])
        spec = spec_of_form(params, self.cutover)
        require_places(spec)
        with journal() as opened:
            admin = KafkaAdmin(kafka_config(spec.kafka_conn_id))
            try:
                claim, row = open_migration(
                    spec, admin=admin, journal=opened, owner=owner_of(context), owner_alive=owner_alive
                )
            finally:
                admin.close()
        context["ti"].xcom_push(
            key="migration", value={"id": claim.migration_id, "source": row.source, "target": row.target}
        )
        kept = Spec.model_validate(dict(row.spec))
        if spec.mode is Mode.REHEARSE:
            self.log.info("A rehearsal: %s and %s are its shadow topics.", row.source, row.target)
        elif kept != spec.model_copy(update={"target": row.target}):
            self.log.warning(
                "The spec has changed since this run began to act; it goes on with the one that it began with."
            )
        # Tasks can be mapped over a return value alone.
        return [c.name for c in kept.consumers]


def require_places(spec: Spec) -> None:
    """Raise ``SpecError`` where a reader's evidence lies at a place that the installation does not let a spec name."""
    from topicshift.adapters.readers import refused

    opened = spec.opened()
    found = policy_file()() if opened else None
    listed = found.reader_locations if found is not None else None
    for line in refused(opened, listed):
        raise SpecError(line)


class BrokenSpec(BaseOperator):
    """Stands in for a spec file that cannot be read, so that its DAG shows the reason."""

    def __init__(self, *, message: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.message = message

    def execute(self, context: Any) -> Any:
        """Fail with the reason."""
        raise AirflowFailException(f"SpecError: {self.message}")
