"""The end of a migration that went well, and of one that never began."""

from __future__ import annotations

import json

from topicshift.acts.context import MigrationContext
from topicshift.acts.health import look_after
from topicshift.core.engine.decision import Decision
from topicshift.core.engine.view import Record, View
from topicshift.core.engine.words import MigrationState, Row


def fail_unbegun(ctx: MigrationContext, record: Record) -> None:
    """A run that changed nothing and has failed ends its migration, so that its topics are free for another run."""
    if record.state is MigrationState.OPEN and not record.active:
        ctx.outrun(record, "the run has failed before anything was changed")
        ctx.end(MigrationState.FAILED)
        ctx.report()


def finish(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """The migration is done; its topics are free again. Of a rehearsal nothing is left."""
    ctx.outrun(view.record, "the migration is done")
    proof = json.loads(ctx.read_result("order_proof.json"))
    verdict = proof.get("verdict")
    look_after(ctx)
    ctx.event("proof", {"verdict": verdict, "checks": proof.get("checks", [])})
    ctx.finish(Row.ORDER_PROOF, {"verdict": verdict})
    ctx.end(MigrationState.REHEARSED if view.record.policy.rehearsal else MigrationState.DONE)
