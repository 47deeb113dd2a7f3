"""Every task of the DAGs: which step of the engine it advances, and what it leaves to the tasks after it."""

from __future__ import annotations

from typing import Any

from topicshift.core.engine.words import ORDER, Act, Ask, Step
from topicshift.core.spec.cutover import Cutover
from topicshift_airflow.docs import task_doc
from topicshift_airflow.operators.advance import AdvanceOperator
from topicshift_airflow.operators.end import RetireOperator
from topicshift_airflow.operators.freeze import ResumeOnSource, WatchedOperator
from topicshift_airflow.operators.jobs import ArmedVerification, KeyRehashImpact, OrderProof
from topicshift_airflow.operators.last import LastReport
from topicshift_airflow.operators.open import OpenMigration
from topicshift_airflow.operators.switched import SwitchedOperator

_LABEL = "{{ task.consumer }}"


def inside_freeze(step: Step, cutover: Cutover, line: list[Any]) -> list[Any]:
    """The tasks of a step in which producers may stand still: when one of them fails, they resume on the source."""
    order = ORDER[cutover]
    if not order.index(Step.STOP_PRODUCERS) <= order.index(step) <= order.index(Step.SWITCH_PRODUCERS):
        return []
    return [task for task in line if Act.BEGIN_FREEZE not in getattr(task, "leave", ())]


def line_of(step: Step, cutover: Cutover, spec_file: str | None, consumers: Any) -> list[Any]:
    """The tasks of a step, from left to right. ``consumers``: names over which tasks of one group each are mapped."""
    each = consumers if cutover is Cutover.PRODUCERS_FIRST else None
    match step:
        case Step.PLAN:
            return [
                OpenMigration(task_id="read_spec", cutover=cutover, spec_file=spec_file),
                AdvanceOperator(
                    task_id="check", until=step, leave=(Act.MEASURE_IMPACT, Act.DECIDE_PLAN), evidence="plan.json"
                ),
                KeyRehashImpact(task_id="key_rehash_impact"),
                AdvanceOperator(task_id="decide", until=step, evidence="impact.html"),
            ]
        case Step.APPROVE:
            return [AdvanceOperator(task_id="plan", until=step, evidence="impact.html")]
        case Step.CREATE_TARGET:
            return [AdvanceOperator(task_id="create", until=step, evidence="plan.json")]
        case Step.STOP_PRODUCERS:
            begin = (Ask.STOP_BY_HAND, Act.BEGIN_FREEZE)
            after_gate = ("go_given", *begin)
            return [
                WatchedOperator(task_id="transactions", until=step, leave=("verifier_started", "gate", *after_gate)),
                AdvanceOperator(task_id="ready", until=step, leave=after_gate),
                AdvanceOperator(task_id="go", until=step, leave=begin),
                WatchedOperator(task_id="fence", until=step, through=Step.SWITCH_PRODUCERS, evidence="fence.json"),
            ]
        case Step.DRAIN:
            # One group that is late must not hold back the others, which drain tasks after this one wait for together.
            return [_mapped("certificate", step, each, "drain_certificate%s.json", through=Step.SWITCH_CONSUMERS)]
        case Step.VERIFY_DRAIN:
            return [_mapped("confirm", step, each, "drain_verification%s.json")]
        case Step.SWITCH_PRODUCERS:
            return [
                AdvanceOperator(task_id="switch", until=step, leave=(Ask.START_BY_HAND,)),
                SwitchedOperator(task_id="by_hand", until=step),
            ]
        case Step.SWITCH_CONSUMERS:
            return [_mapped("switch", step, consumers)]
        case Step.VERIFY:
            return [OrderProof(task_id="order_proof", trigger_rule="none_failed"), report()]
        case _:
            raise ValueError(f"{step} is no step of a migration's DAG")


def _mapped(task_id: str, step: Step, consumers: Any, evidence: str = "", through: Step | None = None) -> Any:
    """One task for all groups, or one for each, which goes on with its group ``through`` a later step."""
    if consumers is None:
        return AdvanceOperator(task_id=task_id, until=step, evidence=evidence)
    return AdvanceOperator.partial(
        task_id=task_id,
        until=step,
        through=through,
        evidence=evidence,
        map_index_template=_LABEL,
        doc_md=task_doc(f"{step.value}.{task_id}"),
    ).expand(consumer=consumers)


def drain_verification() -> ArmedVerification:
    """The armed drain verification, which runs beside the line from ``create_target`` on."""
    return ArmedVerification(task_id="drain_verification")


def report() -> LastReport:
    """The last task of a migration."""
    return LastReport(task_id="report", until=Step.VERIFY, again=True)


def resume_on_source() -> ResumeOnSource:
    """The way back of the freeze."""
    return ResumeOnSource(task_id="resume_on_source", trigger_rule="one_failed")


# ----------------------------------------------------------------------------------------------------- retirement

_AFTER = ("deletion_approved", "screamed", "source_deleted")
"""Rules of the retirement after the first look, in their order."""


def retirement(migration: str) -> tuple[RetireOperator, RetireOperator, RetireOperator, RetireOperator, RetireOperator]:
    """Check, approve, scream test, delete, and letting everybody in again; of one migration."""

    def task(task_id: str, leave: tuple[str, ...], **kwargs: Any) -> RetireOperator:
        doc = task_doc(f"retire.{task_id}")
        return RetireOperator(task_id=task_id, migration=migration, leave=leave, doc_md=doc, **kwargs)

    return (
        task("check", _AFTER, skip_waiting=True),
        task("approve", _AFTER[1:]),
        task("scream_test", _AFTER[2:]),
        task("delete", ()),
        task("let_in_again", (), wanted="cancel_retirement", trigger_rule="one_failed"),
    )
