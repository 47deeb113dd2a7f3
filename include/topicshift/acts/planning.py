"""The plan of a migration: checked before Spark is started, and decided with the impact in it."""

from __future__ import annotations

import json
from functools import lru_cache

from topicshift.acts.context import MigrationContext
from topicshift.acts.measured import take_over_impact
from topicshift.acts.plan import make_plan
from topicshift.core.checks.snapshot import MEASURED_NEXT
from topicshift.core.engine.decision import Decision
from topicshift.core.engine.view import View
from topicshift.core.engine.words import Row
from topicshift.core.errors import PreflightFailed, Refused, Unreadable
from topicshift.core.plan.model import Plan


def plan_now(ctx: MigrationContext, *, with_impact: bool) -> Plan:
    """The plan as the world is now. Changes nothing."""
    return make_plan(
        ctx.spec,
        ctx.admin,
        impact=json.loads(ctx.read("impact.json")) if with_impact else None,
        no_impact=None if with_impact else MEASURED_NEXT,
        journal=ctx.journal,
        migration_id=ctx.row.migration_id,
        route=ctx.controller("route"),
        movers=ctx.controller,
        policy=ctx.installation,
        now=ctx.clock.now(),
    )


def accepted_plan(ctx: MigrationContext) -> Plan:
    """``plan.json``, if it is the plan whose hash the journal has. Raises ``Refused`` for any other content."""
    plan = _intact(ctx.read("plan.json"))
    if plan is None or plan.plan_hash != ctx.row.plan_hash:
        raise Refused(
            f"plan.json of {ctx.row.migration_id} is not the plan that was accepted ({ctx.row.plan_hash}): somebody "
            "changed the file. Nothing is done by it. Find out who did, close this migration, and plan anew."
        )
    return plan


@lru_cache(maxsize=4)
def _intact(data: bytes) -> Plan | None:
    """The plan in a file, None where its content does not give its hash. Each look at the gate reads the same one."""
    plan = Plan.model_validate_json(data)
    return plan if plan.intact else None


def check_plan(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Take stock and run every check; the row names the partition counts for which keys are to be measured."""
    plan = _plan(ctx, with_impact=False)
    assert plan.source is not None and plan.target is not None
    counts = candidates(plan.source.partitions, plan.target.partitions)
    policy = ctx.installation()
    governed = {"policy": policy.fingerprint} if policy else {}
    take_over_impact(ctx, plan, counts)
    ctx.finish(Row.CHECK, {"partitions": plan.target.partitions, "candidates": counts, **governed})


def decide_plan(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Fix the plan, by its hash, as the world is now."""
    impact = json.loads(ctx.read_result("impact.json"))
    plan = _plan(ctx, with_impact=True)
    if plan.sizing is not None and ctx.ports.impact_page is not None:
        try:
            ctx.write("impact.html", ctx.ports.impact_page(impact, plan.sizing))
        except Exception as error:  # noqa: BLE001 - a page that cannot be drawn takes nothing from the plan
            ctx.log(f"impact.html keeps its choice by skew alone ({type(error).__name__}: {error})")
    ctx.event("planned", {"plan_hash": plan.plan_hash, "findings": sorted({f.code for f in plan.findings})})
    ctx.journal.set_plan(ctx.claim, plan.plan_hash)


def _plan(ctx: MigrationContext, *, with_impact: bool) -> Plan:
    """The plan, as ``plan.json`` too. Raises ``PreflightFailed`` or ``Unreadable`` with the findings that block it."""
    plan = plan_now(ctx, with_impact=with_impact)
    for finding in plan.findings:
        ctx.log(finding.line())
    ctx.check_seat()
    ctx.write("plan.json", plan.model_dump_json(indent=2))
    if not plan.ok:
        blocking = plan.blocking()
        raise (Unreadable if plan.unknown else PreflightFailed)(
            f"{len(blocking)} finding(s) block this plan; nothing was changed:\n"
            + "\n".join(f"- {f.line()}" for f in blocking)
        )
    return plan


def candidates(source: int, target: int) -> list[int]:
    """Partition counts to assess: the planned one, and its neighbours that are multiples of the source's count."""
    return sorted({source * k for k in (2, 3, 4, 5)} | {target})
