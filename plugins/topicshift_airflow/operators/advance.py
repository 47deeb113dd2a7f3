"""The operator of every step: it advances the engine until the step is done, defers, or asks a person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import HITLOperator  # noqa: TID253 - 0.03 s, all of it from airflow.sdk
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskDeferred

from topicshift.core.drain.names import suffix
from topicshift.core.engine.words import ORDER, STEPS, Ask, MigrationState, Step
from topicshift.core.errors import Refused
from topicshift_airflow.airflow_api import show, start_run
from topicshift_airflow.lineage import Lineage, as_openlineage, lineage_of
from topicshift_airflow.links import LINKS
from topicshift_airflow.notices import news_told
from topicshift_airflow.questions import Question
from topicshift_airflow.runtime import log, open_context, typed_failures

if TYPE_CHECKING:
    from topicshift.acts.advance import Done, Waiting
    from topicshift.acts.context import MigrationContext
    from topicshift.core.engine.engine import Wanted
    from topicshift.core.engine.view import Record

RETRIES = {"retries": 3, "retry_delay": timedelta(seconds=1), "retry_exponential_backoff": False}
"""For every step: a killed worker or a passing fault is tried again at once; a freeze has no time for more."""

TRIGGERER_LATE = timedelta(minutes=1)
"""Where the triggerer is dead, the scheduler wakes a task so long after the time of its question."""

QUESTION_DAG = "topic_question"
"""Shows a question that its own task cannot show any more; see :func:`topicshift_airflow.airflow_api.show`."""


def result_of(record: Record, step: Step | None, subject: str = "") -> dict[str, Any]:
    """What the journal rows of a step say in few words: plain values as they are, numbers by partition as their sum."""
    out: dict[str, Any] = {"plan_hash": record.plan_hash}
    for row in STEPS[step].rows if step is not None else ():
        found = record.step(row, subject) or record.step(row)
        if found is not None:
            out[row.value] = _few({**found.data, **found.data.get("record", {})})
    return out


def _few(data: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping) and value and all(isinstance(v, int) for v in value.values()):
            out[f"{key}_sum"] = sum(value.values())
        elif value is None or isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) < 200):
            out[key] = value
    return out


class AdvanceOperator(HITLOperator):
    """Advance one migration until this task's step is done; it waits 10 s in its worker, and longer in the triggerer.

    :param until, through, leave, wanted: see :func:`topicshift.acts.advance.advance`
    :param consumer: name of a declared consumer: its group is advanced alone (templated)
    :param migration: id of a migration that is taken over; the run's own by default (templated)
    :param evidence: name of the evidence file that the task links to; ``%s`` stands for the consumer
    :param again: whether it may run once more when the migration has ended; other tasks are skipped then
    """

    template_fields = ("subject", "body", "consumer", "migration")
    operator_extra_links = LINKS
    evidence_url = ""
    ui_color = "#e8f0fb"
    lineage: Lineage | None = None
    """Topics that this task tells lineage of, once it is done."""
    patience_s = 10.0
    """Seconds of waiting for which the task holds its worker."""

    def __init__(  # noqa: PLR0913 - an operator has an argument a setting
        self,
        *,
        until: Step | None = None,
        through: Step | None = None,
        leave: Iterable[str] = (),
        wanted: Wanted = "forward",
        consumer: str = "",
        migration: str = "",
        evidence: str = "",
        again: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(subject="Topicshift", options=["Confirm", "Refuse"], **{**RETRIES, **kwargs})
        self.until = until
        self.through = through
        self.leave = [str(name) for name in leave]
        self.wanted = wanted
        self.consumer = consumer
        self.migration = migration
        self.evidence = evidence
        self.again = again
        self.told: dict[str, Any] = {}

    # ------------------------------------------------------------------------------------------ to be overridden

    def context_of(self, context: Mapping[str, Any]) -> AbstractContextManager[MigrationContext]:
        """The migration that is advanced."""
        return open_context(context, self.migration)

    def before(self, ctx: MigrationContext) -> None:
        """Called before the engine is advanced."""

    def after(self, ctx: MigrationContext, done: Done) -> Any:
        """Called when the step is done; what it returns goes to XCom (small values only)."""
        return result_of(done.record, self.until, self._group(ctx) or "")

    def waits(self, ctx: MigrationContext, waiting: Waiting) -> None:
        """Called before the task defers; may raise instead."""

    # ------------------------------------------------------------------------------------------------- the task

    def execute(self, context: Any) -> Any:
        """Advance."""
        return self._advance(context)

    def resume(self, context: Any, event: Any = None, told: Mapping[str, Any] | None = None) -> Any:
        """Called when a wait is over: look again. What the trigger has seen is a moment old, and only told.

        ``told`` is which acts this task had performed before it waited, so that none is repeated too soon.
        """
        said = event if isinstance(event, dict) else {}
        self.told = dict(told or {})
        if "chosen_options" in said:
            log.warning("an answer to an earlier question has come; it counts for nothing")
        if said.get("status") == "error":
            log.warning("the wait ended with: %s", said.get("message"))
        hints = [said.get("why"), *said.get("alarms", ())] if said.get("status") == "deadline" else []
        return self._advance(context, hint="".join(f" {text}" for text in hints if text), woken=True)

    def execute_complete(self, context: Any, event: dict[str, Any], question: Any = None) -> Any:
        """Record the answer for the question that was shown, unless it was given elsewhere; then advance."""
        with typed_failures(), self.context_of(context) as ctx:
            try:
                record(ctx, Question(**question), event)
            except Refused as error:
                log.warning("%s", error)  # whatever is asked now is asked anew
        return self._advance(context)

    def _advance(self, context: Any, *, hint: str = "", woken: bool = False) -> Any:
        # The engine is imported here: a DAG file is parsed for each of its tasks.
        from topicshift.acts.advance import Done, Waiting, advance, beyond
        from topicshift.acts.questions import record_question
        from topicshift_airflow.questions import question_of
        from topicshift_airflow.waits import trigger_for

        with typed_failures(hint), self.context_of(context) as ctx, news_told(ctx), ctx.recorded(self.task_id):
            self.before(ctx)
            ctx.memory.remember(self.told)
            try:
                outcome = advance(
                    ctx,
                    until=self.until,
                    focus=self._group(ctx),
                    wanted=self.wanted,
                    through=self.through,
                    leave=frozenset(self.leave),
                    patience_s=self.patience_s,
                )
            finally:
                self._link(ctx)
            if isinstance(outcome, Waiting) and beyond(outcome.decision, self.until, ORDER[ctx.policy.cutover]):
                outcome = Done(outcome.why, ctx.record(), outcome.decision)
            if isinstance(outcome, Done):
                return self._done(ctx, outcome)
            if isinstance(outcome, Waiting):
                self.waits(ctx, outcome)
                trigger, question = trigger_for(ctx, outcome, self.consumer, woken=woken), None
            else:
                question = question_of(ctx, outcome)
                record_question(ctx, outcome.ask, outcome.subject, outcome.about, question.subject)
                trigger = None
            told = ctx.memory.recall()
        # The ports are closed by now: what follows raises the signal that parks the task.
        if question is not None:
            trigger = self._ask(context, question)
        self.defer(trigger=trigger, method_name="resume", kwargs={"told": told})
        return None

    def _done(self, ctx: MigrationContext, done: Done) -> Any:
        if self.wanted == "forward" and (otherwise := ended_otherwise(ctx)):
            # Airflow takes a run of skipped tasks for a success.
            raise AirflowFailException(otherwise)
        if done.decision.rule == "ended" and not self.again:
            raise AirflowSkipException(f"{_ended(ctx)} A task that is cleared has nothing left to do.")
        ctx.log(f"done; next: {done.why}")
        self.lineage = lineage_of(ctx, self.until)
        return self.after(ctx, done)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Asked by the OpenLineage provider, where it is installed: source and target as datasets."""
        return as_openlineage(self.lineage)

    def _ask(self, context: Any, question: Question) -> Any:
        """Park the task until a person has answered; else the trigger that waits for an answer given elsewhere."""
        ti_id = context["ti"].id
        if show(ti_id, question):
            # The log of a task that waits for a person would else say no more than that it waits.
            log.info("waits for a person to answer: %s", question.waits)
            raise asked(question, ti_id)
        with typed_failures():
            run_id = start_run(QUESTION_DAG, question.name, question.values())
        log.warning(
            "Airflow goes on showing an earlier question here, which counts for nothing now. %s %s asks the new one.",
            QUESTION_DAG,
            run_id,
        )
        return _trigger(question, ti_id, withdraw=question.no)

    def _group(self, ctx: MigrationContext) -> str | None:
        if not self.consumer:
            return None
        for consumer in ctx.spec.consumers:
            if consumer.name == self.consumer:
                return consumer.group
        raise Refused(f"The spec declares no consumer {self.consumer!r} (any more).")

    def _link(self, ctx: MigrationContext) -> None:
        name = self.evidence.replace("%s", suffix(self.consumer))
        if name and name in ctx.ports.evidence.names(ctx.row.migration_id):
            self.evidence_url = ctx.ports.evidence.url(ctx.row.migration_id, name)


def ended_otherwise(ctx: MigrationContext) -> str:
    """What became of a migration that was aborted, closed or rolled back; empty for one that is open, or went well."""
    from topicshift.core.plan.ownership import called_off

    return _ended(ctx) if called_off(ctx.row) else ""


def _ended(ctx: MigrationContext) -> str:
    from topicshift.core.plan.ownership import closing

    closed = closing(ctx.journal.events(ctx.row.migration_id)) if ctx.row.state == MigrationState.FAILED else None
    said = f"{ctx.row.migration_id} is {ctx.row.state}: {ctx.row.source} was to move to {ctx.row.target}."
    return f"{said} {closed}." if closed else said


def asked(question: Question, ti_id: Any) -> TaskDeferred:
    """The signal that parks a task until a person has answered what Airflow shows, or ``topicshift answer`` has.

    Airflow wakes a deferred task with the answer as well. Its own state for a task that waits for a person has no
    trigger, so an answer that is given elsewhere would wake nobody.
    """
    return TaskDeferred(
        trigger=_trigger(question, ti_id),
        method_name="execute_complete",
        kwargs={"question": question.values()},
        timeout=question.timeout + TRIGGERER_LATE,
    )


def _trigger(question: Question, ti_id: Any, withdraw: str = "") -> Any:
    from topicshift.acts.questions import name_of
    from topicshift_airflow.triggers.journal import AnswerTrigger

    row = name_of(Ask(question.ask), question.of)
    return AnswerTrigger(
        migration_id=question.migration, row=row, ti_id=str(ti_id), option=withdraw, moment=question.ends_at
    )


def record(ctx: MigrationContext, question: Question, event: Mapping[str, Any]) -> None:
    """Write down who said what to the question that was shown; nothing where the journal has told of the answer.

    Raises ``Refused`` where another one is open by now, ``NotCounted`` where this person may not answer it.
    """
    from topicshift.acts.questions import record_answer
    from topicshift.core.engine.people import Person
    from topicshift_airflow.triggers.journal import MOMENT
    from topicshift_airflow.triggers.standing import CHANGED

    if event == CHANGED:
        return
    silent = event == MOMENT
    user = event.get("responded_by_user") or {}
    option = next(iter(event.get("chosen_options") or ()), "")
    name, user_id = user.get("name"), user.get("id")
    known = name is not None or user_id is not None
    record_answer(
        ctx,
        Ask(question.ask),
        question.of,
        question.about,
        "silence" if silent else "yes" if option == question.yes else "no",
        actor="topicshift" if silent else f"user:{name or user_id or 'unknown'}",
        person=Person(str(name or user_id), str(user_id or "")) if known and not silent else None,
    )
