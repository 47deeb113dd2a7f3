"""Which function performs which act."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from topicshift.acts import (
    again,
    before,
    certificate,
    fence,
    finish,
    freeze,
    groups,
    planning,
    rehearse,
    replay,
    resume,
    retention,
    retire,
    rollback,
    switch,
    target,
    transactions,
    window,
)
from topicshift.acts.context import SPARK_ACTS, MigrationContext
from topicshift.core.engine.decision import Decision
from topicshift.core.engine.view import View
from topicshift.core.engine.words import Act

Performer = Callable[[MigrationContext, View, Decision], None]


def run_job(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Run a Spark job."""
    assert ctx.ports.run_job is not None and decision.act is not None
    ctx.ports.run_job(ctx, decision.act)


ACTS: Final[dict[Act, Performer]] = {
    Act.MAKE_SHADOW: rehearse.make_shadow,
    Act.CHECK_PLAN: planning.check_plan,
    Act.MEASURE_IMPACT: run_job,
    Act.DECIDE_PLAN: planning.decide_plan,
    Act.CREATE_TARGET: target.create_target,
    Act.CAPTURE: before.capture,
    Act.ARM: freeze.arm,
    Act.MISS_WINDOW: window.miss_window,
    Act.ABORT_TRANSACTIONS: transactions.abort_transactions,
    Act.LENGTHEN_RETENTION: retention.lengthen_retention,
    Act.START_VERIFIER: run_job,
    Act.BEGIN_FREEZE: freeze.begin_freeze,
    Act.STOP_PRODUCERS: freeze.stop_producers,
    Act.DENY: fence.deny,
    Act.RECORD_FENCE: fence.record_fence,
    Act.REPLAY: replay.replay,
    Act.BEGIN_FENCE_AGAIN: again.begin_fence_again,
    Act.RECORD_FENCE_AGAIN: again.record_fence_again,
    Act.REPAIR_DENY: fence.repair_deny,
    Act.REPAIR_TARGET: target.repair_target,
    Act.CERTIFY: certificate.certify,
    Act.REQUEST_VERIFICATION: certificate.request_verification,
    Act.READ_TAILS: certificate.read_tails,
    Act.RECORD_VERIFICATION: certificate.record_verification,
    Act.INTEND_SWITCH: switch.intend_switch,
    Act.POINT_PRODUCERS: switch.point_producers,
    Act.END_FREEZE: switch.end_freeze,
    Act.WIDEN_DENY: fence.widen_deny,
    Act.STOP_GROUP: groups.stop_group,
    Act.RELEASE_GROUP: groups.release_group,
    Act.SEED_GROUP: groups.seed_group,
    Act.FINISH_GROUP: groups.finish_group,
    Act.PROVE_ORDER: run_job,
    Act.FINISH: finish.finish,
    Act.BEGIN_RESUME: resume.begin_resume,
    Act.GO_ON: resume.go_on,
    Act.RESUME_PRODUCERS: resume.resume_producers,
    Act.UNFENCE: fence.unfence,
    Act.END_RESUME: resume.end_resume,
    Act.BEGIN_ROLLBACK: rollback.begin_rollback,
    Act.STOP_ON_TARGET: rollback.stop_on_target,
    Act.DENY_TARGET: fence.deny_target,
    Act.END_ROLLBACK: rollback.end_rollback,
    Act.OPEN_SOURCE: fence.open_source,
    Act.SHUT_SOURCE: fence.shut_source,
    Act.PAUSE_GROUP: groups.pause_group,
    Act.CALL_OFF_BACK: rollback.call_off_back,
    Act.FINISH_BACK: rollback.finish_back,
    Act.RETURN_GROUP: groups.return_group,
    Act.RESTORE_RETENTION: retention.restore_retention,
    Act.DELETE_TARGET: target.delete_target,
    Act.DISARM: freeze.disarm,
    Act.FINISH_ROLLBACK: rollback.finish_rollback,
    Act.CLOSE_GONE: retire.close_gone,
    Act.BEGIN_SCREAM: retire.begin_scream,
    Act.END_SCREAM: retire.end_scream,
    Act.DELETE_SOURCE: retire.delete_source,
    Act.FINISH_RETIREMENT: retire.finish_retirement,
}
"""Every act, and the function that performs it: idempotent, its intent in the journal before its effect."""


def performer(ctx: MigrationContext, act: Act) -> Performer | None:
    """The function that performs an act; None where this advancer cannot, because it runs no Spark jobs."""
    return None if act in SPARK_ACTS and ctx.ports.run_job is None else ACTS[act]
