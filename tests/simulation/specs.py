"""What a simulated migration is to do: its spec, and what was measured for its plan."""

from __future__ import annotations

import json
from functools import cached_property, lru_cache
from typing import Any

from topicshift.acts.context import MigrationContext
from topicshift.core.spec.io import spec_from_params
from topicshift.core.spec.model import Spec

from .manual import ManualConsumer, ManualProducer
from .scenario import Scenario
from .world import SOURCE, TARGET, Shape, World

IMPACT: dict[str, Any] = {
    "topic": SOURCE, "records": 1000, "keyed_records": 1000, "null_keys": 0, "empty_keys": 0,
    "top_keys": [{"key": "h:1", "share": 0.01}],
    "candidates": [{"partitions": n, "max_partition_share": 0.4} for n in (3, 4, 5)], "findings": [],
}  # fmt: skip
"""What Spark finds in the records."""


def spec_of(scenario: Scenario, world: World) -> Spec:
    """The spec of a scenario."""
    shape, how = scenario.shape, scenario.approvals
    return spec_from_params(
        {
            "source": SOURCE,
            "target": TARGET,
            "partitions": shape.target_partitions,
            "cutover": shape.order,
            "freeze_budget": f"{shape.budget_s}s",
            "approvals": {
                "plan": how,
                "freeze": how,
                "certificate": how,
                "retire": how if shape.retire_after_s else "required",
            },
            **_retire_when(shape),
            **_window(shape),
            "producers": [{"name": p.name, "principal": p.principal, "kind": _kind(p)} for p in world.producers],
            "consumers": [
                {"name": c.name, "group": c.group, "kind": _kind(c), "stored_offsets": "none"} for c in world.consumers
            ],
        }
    )


def _retire_when(shape: Shape) -> dict[str, Any]:
    if not shape.retire_after_s:
        return {}
    return {"retire": {"after": f"{shape.retire_after_s}s", "scream_test": f"{shape.scream_s}s"}}


def _window(shape: Shape) -> dict[str, Any]:
    if (window := shape.window) is None:
        return {}
    lasts = f"{shape.budget_s + window.open_s}s"
    return {"window": {"cron": window.cron, "timezone": window.timezone, "duration": lasts}}


def _kind(app: Any) -> str:
    return "manual" if isinstance(app, ManualProducer | ManualConsumer) else "route"


@lru_cache(maxsize=64)
def _validated(spec: str) -> Spec:
    return Spec.model_validate_json(spec)


class SimContext(MigrationContext):
    """The context of one process; a spec that many processes read is validated once."""

    @cached_property
    def _accepted(self) -> Spec:
        return _validated(json.dumps(self.row.spec))
