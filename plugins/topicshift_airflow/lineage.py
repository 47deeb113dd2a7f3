"""What a task tells lineage (OpenLineage): which topics it read and wrote, where its provider is installed.

Topicshift copies no records. The target is told as made from the source because that is what it takes the place of.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from topicshift.core.engine.words import Step
from topicshift_airflow.runtime import kafka_config, log

if TYPE_CHECKING:
    from topicshift.acts.context import MigrationContext

PROVIDER: Final = "airflow.providers.openlineage"
PORT: Final = 9092
"""Kafka's port where a bootstrap server is named without one, as librdkafka takes it."""

Side = Literal["source", "target"]
TOPICS: Final[Mapping[Step, tuple[tuple[Side, ...], tuple[Side, ...]]]] = MappingProxyType(
    {
        Step.CREATE_TARGET: (("source",), ("target",)),
        Step.SWITCH_PRODUCERS: (("source",), ("target",)),
        Step.SWITCH_CONSUMERS: (("source",), ("target",)),
        Step.VERIFY: (("source", "target"), ()),
    }
)
"""Inputs and outputs of the steps that lineage is told of."""


@dataclass(frozen=True)
class Lineage:
    """Topics that a task read and wrote. ``namespace``: of the cluster, by OpenLineage's naming of Kafka."""

    namespace: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@cache
def installed() -> bool:
    """Whether the OpenLineage provider is here; nothing is looked up for it where it is not."""
    return importlib.util.find_spec(PROVIDER) is not None


def first_server(bootstrap: str) -> str:
    """Host and port of the first bootstrap server, as the connection names it. Raises ``ValueError`` without one."""
    server = bootstrap.split(",")[0].strip().rpartition("://")[2]
    if not server:
        raise ValueError("the connection names no bootstrap server")
    return server


def namespace_of(bootstrap: str) -> str:
    """The namespace of a cluster's topics: ``kafka://host:port``. Raises ``ValueError`` where no server is named."""
    server = first_server(bootstrap)
    port = server.rpartition("]")[2].rpartition(":")[2] if ":" in server.rpartition("]")[2] else ""
    return f"kafka://{server}" if port else f"kafka://{server}:{PORT}"


def lineage_of(ctx: MigrationContext, step: Step | None) -> Lineage | None:
    """What a task that has done this step tells; None for a step that moves nothing, and for a rehearsal."""
    topics = TOPICS.get(step) if step is not None else None
    if topics is None or not installed():
        return None
    record = ctx.record()
    if record.policy.rehearsal:
        return None
    names = {"source": record.source, "target": record.target}
    try:
        namespace = namespace_of(str(kafka_config(ctx.spec.kafka_conn_id).get("bootstrap.servers", "")))
    except Exception as error:  # noqa: BLE001 - lineage is no reason to fail a migration
        log.warning("lineage is not told of %s: %s: %s", record.target, type(error).__name__, error)
        return None
    inputs, outputs = (tuple(names[side] for side in sides) for sides in topics)
    return Lineage(namespace, inputs, outputs)


def as_openlineage(found: Lineage | None) -> Any:
    """The provider's ``OperatorLineage``; None where there is nothing to tell."""
    if found is None:
        return None
    from airflow.providers.common.compat.openlineage.facet import Dataset
    from airflow.providers.openlineage.extractors import OperatorLineage

    inputs, outputs = ([Dataset(found.namespace, t) for t in topics] for topics in (found.inputs, found.outputs))
    return OperatorLineage(inputs=inputs, outputs=outputs)
