"""The key-rehash impact of an earlier migration of the same source, where it still says what a new one would."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from topicshift.acts.context import MigrationContext
from topicshift.core.plan.model import Plan
from topicshift.core.proof.verification import same_topic_id

FRESH: Final = timedelta(hours=24)
"""Age up to which a measurement is taken over."""

GROWN: Final = 0.1
"""Share of the measured offsets by which the source may have grown, or lost records, since."""


def take_over_impact(ctx: MigrationContext, plan: Plan, counts: Collection[int]) -> bool:
    """Make the latest fresh measurement evidence of this migration; False where there is none.

    A run that is tried again does not pay for Spark twice. Reports that show keys are not taken over: whether this
    installation wants that is not known here.
    """
    for row in reversed(ctx.journal.find()):
        same = (row.cluster_id, row.source) == (ctx.row.cluster_id, ctx.row.source)
        if row.migration_id == ctx.row.migration_id or not same:
            continue
        data = ctx.ports.evidence.read(row.migration_id, "impact.json")
        if data is None or not _holds(ctx, plan, counts, json.loads(data)):
            continue
        ctx.check_seat()
        page = ctx.ports.evidence.read(row.migration_id, "impact.html")
        if page is not None:
            ctx.write("impact.html", page)
        ctx.write("impact.json", data)
        taken_at = json.loads(data)["taken_at"]
        ctx.event("impact_taken_over", {"from": row.migration_id, "taken_at": taken_at})
        ctx.log(f"the keys were measured at {taken_at} for {row.migration_id}, so they are not measured again")
        return True
    return False


def _holds(ctx: MigrationContext, plan: Plan, counts: Collection[int], impact: Mapping[str, Any]) -> bool:
    source, measured, taken_at = plan.source, impact.get("measured") or {}, impact.get("taken_at")
    ranges = {int(p): (int(start), int(end)) for p, (start, end) in (measured.get("ranges") or {}).items()}
    if source is None or not taken_at or not ranges or not same_topic_id(source.topic_id, str(impact.get("topic_id"))):
        return False
    if ctx.clock.now() - datetime.fromisoformat(str(taken_at)) > FRESH or measured.get("keys_shown") is not False:
        return False
    if measured.get("since") or measured.get("until"):
        return False
    there = {c.get("partitions") for c in impact.get("candidates", ())}
    if set(ranges) != set(range(source.partitions)) or not set(counts) <= there:
        return False
    now = ctx.admin.offsets(ctx.row.source)
    moved = 0
    for p, (start, end) in ranges.items():
        found = now.get(p)
        if found is None or found.end is None or found.log_start is None or found.end < end:
            return False
        moved += found.end - end + max(0, found.log_start - start)
    return moved <= GROWN * sum(end - start for start, end in ranges.values())
