"""The end of the switch of the producers, told to Airflow as an event of the target's asset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias

from topicshift.core.engine.words import Row
from topicshift_airflow.lineage import first_server
from topicshift_airflow.operators.advance import AdvanceOperator
from topicshift_airflow.runtime import kafka_config, log

if TYPE_CHECKING:
    from topicshift.acts.advance import Done
    from topicshift.acts.context import MigrationContext

SWITCHED = "topicshift-switched"
"""Name of the asset alias behind which the target of each migration stands. A DAG may be scheduled on it, too."""


def asset_uri(bootstrap: str, topic: str) -> str:
    """The URI of a topic: the first of the bootstrap servers as the connection names it, and the topic.

    Raises ``ValueError`` where no server is named.
    """
    return f"kafka://{first_server(bootstrap)}/{topic}"


class SwitchedOperator(AdvanceOperator):
    """The last task of the switch: it tells Airflow that producers write to the target, so that DAGs follow."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(outlets=[AssetAlias(SWITCHED)], **kwargs)
        self._events: Any = None

    def _advance(self, context: Any, *, hint: str = "", woken: bool = False) -> Any:
        self._events = context.get("outlet_events")
        return super()._advance(context, hint=hint, woken=woken)

    def after(self, ctx: MigrationContext, done: Done) -> Any:
        """One event of the target's asset. A rehearsal moves nobody, and tells nobody."""
        row = done.record.step(Row.SWITCH_PRODUCERS)
        if row is not None and row.state == "done" and not done.record.policy.rehearsal:
            self._tell(ctx, row.data.get("finished_at"))
        return super().after(ctx, done)

    def _tell(self, ctx: MigrationContext, at: Any) -> None:
        record = ctx.record()
        said = {"migration": record.migration_id, "source": record.source, "target": record.target, "at": str(at)}
        try:
            uri = asset_uri(str(kafka_config(ctx.spec.kafka_conn_id).get("bootstrap.servers", "")), record.target)
            self._events[AssetAlias(SWITCHED)].add(Asset(uri), extra=said)
        except Exception as error:  # noqa: BLE001 - everybody is moved: an event is no reason to fail
            log.warning("no event of an asset for %s: %s: %s", record.target, type(error).__name__, error)
            return
        log.info("asset %s: %s writes there now", uri, ", ".join(p.name for p in record.policy.producers))
