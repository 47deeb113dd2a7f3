"""Operators of ``topic_rollback``."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperator

from topicshift.acts.participants import consumers_of, producers_of
from topicshift.core.errors import Refused
from topicshift.ports import MigrationRow
from topicshift_airflow.links import EvidenceLink
from topicshift_airflow.operators.named import find_migration, named_migration
from topicshift_airflow.operators.verify import write_report
from topicshift_airflow.runtime import owner_alive, owner_of, typed_failures


def require_ended(row: MigrationRow, context: Any) -> None:
    """Raises ``Refused`` while the run that owns this migration may still be running."""
    if row.owner != owner_of(context) and owner_alive(row.owner) is not False:
        raise Refused(
            f"{row.migration_id} is owned by {row.owner}, which is still running. Mark that run as failed, then "
            "trigger this again at once: until it has run, or topic_give_back has (every minute), producers that stand "
            "still are held, at the latest until the lease in the route ends."
        )


class ObserveRollback(BaseOperator):
    """Say which type of rollback holds right now. Read-only."""

    operator_extra_links = (EvidenceLink(),)

    def execute(self, context: Any) -> Any:
        """Returns the migration id, the type and why."""
        from topicshift.acts.rollback import Rollback, rollback_type
        from topicshift.adapters.kafka.admin import KafkaAdmin
        from topicshift.core.spec.model import Spec
        from topicshift_airflow.runtime import kafka_config

        with typed_failures(context):
            row = find_migration(str(context["params"]["migration"]))
            if row.state == "rolled_back":
                raise Refused(f"{row.migration_id} was rolled back already; there is nothing to do.")
            require_ended(row, context)
            admin = KafkaAdmin(kafka_config(Spec.model_validate(dict(row.spec)).kafka_conn_id))
            try:
                kind, why = rollback_type(row, admin)
            finally:
                admin.close()
            self.log.info("%s: %s: %s", row.migration_id, kind.value, why)
            if kind is not Rollback.FREE:
                raise Refused(f"Rollback of {row.migration_id} is {kind.value}, not free: {why}. Nothing was changed.")
            return {"migration_id": row.migration_id, "type": kind.value, "why": why}


class RollBack(BaseOperator):
    """Put everything back on the source and delete the empty target."""

    operator_extra_links = (EvidenceLink(),)

    def execute(self, context: Any) -> Any:
        """Returns who must be started by hand."""
        from topicshift.acts.fence import unfence
        from topicshift.acts.retention import restore_retention
        from topicshift.acts.rollback import roll_back
        from topicshift.acts.target import delete_target

        with typed_failures(context):
            row = find_migration(str(context["params"]["migration"]))
            require_ended(row, context)
        migration_id = row.migration_id
        with named_migration(context, migration_id) as run:
            people = [*producers_of(run.spec), *consumers_of(run.spec)]
            result = roll_back(
                run.cast({p.kind for p in people}),
                run.row,
                run.spec,
                admin=run.admin,
                journal=run.journal,
                claim=run.claim,
                clock=run.clock,
                unfence=lambda: unfence(run.admin, run.journal, run.claim, run.row.source),
                restore_retention=lambda: restore_retention(run.admin, run.journal, run.claim, run.row.source),
                delete_target=lambda: delete_target(run.admin, run.journal, run.claim),
                progress=run.progress,
            )
            self.evidence_url = write_report(run)
            if result["start_by_hand"]:
                self.log.warning("START BY HAND on %s: %s", run.row.source, ", ".join(result["start_by_hand"]))
            return result
