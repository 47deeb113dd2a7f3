"""The end of a migration that went well."""

from __future__ import annotations

import json

from topicshift.acts.context import MigrationContext
from topicshift.core.engine.decision import Decision
from topicshift.core.engine.view import View
from topicshift.core.engine.words import MigrationState, Row


def finish(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """The migration is done; its topics are free again."""
    proof = json.loads(ctx.read("order_proof.json"))
    verdict = proof.get("verdict")
    ctx.event("proof", {"verdict": verdict, "checks": proof.get("checks", [])})
    ctx.finish(Row.ORDER_PROOF, {"verdict": verdict})
    ctx.journal.set_state(ctx.claim, MigrationState.DONE.value, active=False)
