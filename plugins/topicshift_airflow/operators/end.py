"""Steps at an end: the report, the rollback, the retirement; and a question in a run of its own."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.standard.operators.hitl import HITLOperator  # noqa: TID253 - 0.03 s, all of it from airflow.sdk
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from topicshift.core.engine.words import Row
from topicshift.core.errors import NotCounted, OwnershipLost, Refused, SpecError, Unreadable
from topicshift_airflow.airflow_api import show
from topicshift_airflow.links import LINKS
from topicshift_airflow.operators.advance import RETRIES, AdvanceOperator, asked, record
from topicshift_airflow.operators.orders import SAID, reason_of
from topicshift_airflow.questions import Question
from topicshift_airflow.runtime import (
    find_migration,
    journal,
    open_context,
    owner_alive,
    owner_of,
    typed_failures,
)

if TYPE_CHECKING:
    from topicshift.acts.advance import Done, Waiting
    from topicshift.acts.context import MigrationContext
    from topicshift.core.engine.view import Record
    from topicshift.ports import MigrationRow


class ReportingOperator(AdvanceOperator):
    """A step after which ``report.html`` is written anew, whether it went well or not."""

    def _link(self, ctx: MigrationContext) -> None:
        from topicshift.reporting.run_report import write_report

        if ctx.reported:
            self.evidence_url = ctx.reported
            return
        self.evidence_url = write_report(ctx.journal, ctx.ports.evidence, ctx.row.migration_id, ctx.keep)
        with suppress(OwnershipLost):  # another owner's trail by now
            ctx.name_charts()
            ctx.name_evidence()

    def after(self, ctx: MigrationContext, done: Done) -> Any:
        """Where the report lies, and what was found."""
        rows = (Row.ORDER_PROOF, Row.ROLLBACK, Row.DELETE_SOURCE)
        found = [done.record.step(row) for row in rows]
        data = next((step.data for step in reversed(found) if step is not None), {})
        kept = {
            k: data[k]
            for k in ("verdict", "type", "why", "start_by_hand", "not_restored", "left", "topic_id", "deleted_at")
            if k in data
        }
        return {"report": self.evidence_url, "state": done.record.state.value, **kept}


# ------------------------------------------------------------------------------------------------------- rollback


def require_ended(row: MigrationRow, context: Any, kind: str | None = None) -> None:
    """Raises ``Refused`` while the run that owns this migration may still be running.

    ``kind`` is the type of rollback that holds now, where one does.
    """
    if row.owner != owner_of(context) and owner_alive(row.owner) is not False:
        holds = f" The type of rollback that holds now is {kind}." if kind else ""
        raise Refused(
            f"{row.migration_id} is owned by {row.owner}, which is still running, and two runs would undo each other's "
            f"work. Nothing was changed.{holds} If going back is what you want: mark that run as failed (producers "
            "that stand still resume on the source then), and trigger this again."
        )


class ObserveRollback(BaseOperator):
    """Say which type of rollback holds right now. Read-only."""

    operator_extra_links = LINKS

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**RETRIES, **kwargs})

    def execute(self, context: Any) -> Any:
        """Returns the migration id, the type and why."""
        from topicshift.acts.observe import observe
        from topicshift.core.engine.back import rollback_type
        from topicshift.core.engine.decision import Kind
        from topicshift.core.engine.engine import next_act

        with typed_failures():
            row = find_migration(str(context["params"]["migration"]))
            if row.state == "rehearsed":
                raise Refused(f"{row.migration_id} was a rehearsal: it has moved nothing, and left nothing behind.")
            if row.state == "rolled_back":
                raise Refused(f"{row.migration_id} was rolled back already; there is nothing to do.")
            params = context["params"]
            with open_context(context, row.migration_id, take_over=False) as ctx:
                record = ctx.refresh()
                if params.get("only_say"):
                    self._say(ctx, record, context)
                if record.mirrored:
                    require_ended(row, context, "drain_back")
                    return self._told(row.migration_id, "drain_back", "it is under way, and goes on")
                view = observe(ctx, record, "rollback")
                decision, (kind, why) = next_act(view), rollback_type(view)
            if decision.kind is Kind.STOP:
                raise Refused(f"Rollback of {row.migration_id}: {decision.why}. Nothing was changed. {decision.do}")
            if decision.kind is Kind.WAIT:
                raise Unreadable(f"Rollback of {row.migration_id}: {decision.why}. Nothing was changed.")
            # Nobody is told to fail a healthy run for a way back that is not there.
            require_ended(row, context, kind)
            return self._told(row.migration_id, kind, why)

    def _say(self, ctx: MigrationContext, record: Record, context: Any) -> NoReturn:
        """Say what a rollback would do now, as ``topicshift rollback --what``; the run ends here, skipped."""
        from topicshift.acts.going_back import way_back

        found = way_back(ctx, record, asks=True).values()
        if not found["cannot"]:
            try:
                require_ended(ctx.row, context, found["type"])
            except Refused as error:
                found["cannot"] = str(error)
        for line in (*found["would"], *([found["cannot"]] if found["cannot"] else [])):
            self.log.info("%s: %s", ctx.row.migration_id, line)
        context["ti"].xcom_push(key=SAID, value={"migration": ctx.row.migration_id, **found})
        raise AirflowSkipException("It was only asked what a rollback would do. Nothing was changed.")

    def _told(self, migration: str, kind: str | None, why: str) -> dict[str, Any]:
        self.log.info("%s: %s: %s", migration, kind, why)
        return {"migration_id": migration, "type": kind, "why": why}


class RollBack(ReportingOperator):
    """Put everything back on the source, by the type of rollback that holds and that a person has accepted."""

    reason = ""
    """Why it was ordered; empty once this task has waited, as it is written down by then."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(wanted="rollback", **kwargs)

    def execute(self, context: Any) -> Any:
        """Write down who ordered it and why, and go back."""
        self.reason = reason_of(context["params"], needed=False)
        return super().execute(context)

    def before(self, ctx: MigrationContext) -> None:
        """The order, in the audit trail."""
        begun = ctx.refresh()
        if self.reason and not begun.mirrored and not begun.begun(Row.ROLLBACK):
            by = f"user:{ctx.triggered_by}" if ctx.triggered_by else ctx.actor
            ctx.event("rollback_ordered", {"reason": self.reason, "by": by})

    def context_of(self, context: Any) -> AbstractContextManager[MigrationContext]:
        """The migration that was named, once its own run has ended."""
        row = find_migration(str(context["params"]["migration"]))
        require_ended(row, context)
        return open_context(context, row.migration_id)


# ----------------------------------------------------------------------------------------------------- retirement


class FindDue(BaseOperator):
    """The finished migrations whose source may be looked at for deletion. None: the run ends here, skipped."""

    def execute(self, context: Any) -> Any:
        """Returns migration ids."""
        from topicshift.acts.rollback import going_back, refuse_while_going_back

        wanted = str(context["params"].get("migration") or "").strip()
        with typed_failures():
            if wanted:
                row = find_migration(wanted)
                if row.state != "done":
                    raise Refused(f"{row.migration_id} is {row.state}, not done; its source is not deleted.")
                with journal() as opened:
                    refuse_while_going_back(opened, row.migration_id)
                return [row.migration_id]
            with journal() as opened:
                rows = [r for r in opened.find() if r.state == "done" and not going_back(opened, r.migration_id)]
        if not rows:
            raise AirflowSkipException("No finished migration has a source left to retire.")
        return [r.migration_id for r in rows]


class RetireOperator(ReportingOperator):
    """One step of the retirement of one migration, which is taken over by its id.

    :param skip_waiting: the task is skipped where nothing but time speaks against the next step
    """

    def __init__(self, *, skip_waiting: bool = False, **kwargs: Any) -> None:
        super().__init__(**{"wanted": "retire", "again": True, **kwargs})
        self.skip_waiting = skip_waiting
        if skip_waiting:
            self.patience_s = 0.0

    def context_of(self, context: Any) -> AbstractContextManager[MigrationContext]:
        """The migration of this task, unless it goes back at the moment."""
        from topicshift.acts.rollback import refuse_while_going_back

        with journal() as opened:
            refuse_while_going_back(opened, self.migration)
        return super().context_of(context)

    def _link(self, ctx: MigrationContext) -> None:
        if ctx.row.state == "retired":
            super()._link(ctx)

    def waits(self, ctx: MigrationContext, waiting: Waiting) -> None:
        """Not yet due is no failure."""
        if self.skip_waiting:
            raise AirflowSkipException(f"{ctx.row.source}: {waiting.why}")

    def after(self, ctx: MigrationContext, done: Done) -> Any:
        """Skip what follows where somebody else has deleted the source, and where nothing had to be done."""
        if self.skip_waiting and done.record.state == "retired":
            raise AirflowSkipException(f"{ctx.row.source}: nothing is left to retire ({done.why}).")
        return super().after(ctx, done)


class Finished(BaseOperator):
    """The last task: it does nothing, and is not reached where the retirement of a migration has failed."""

    def execute(self, context: Any) -> None:
        """Nothing."""


# ------------------------------------------------------------------------------------------------------ questions


class AnswerQuestion(HITLOperator):
    """Asks one question, which a migration's own task cannot show any more, and writes its answer down."""

    ui_color = "#fdf3d8"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(subject="Topicshift", options=["Confirm", "Refuse"], **{**RETRIES, **kwargs})

    def execute(self, context: Any) -> Any:
        """Ask."""
        with typed_failures():
            question = self._question(context)
            if not show(context["ti"].id, question):
                raise SpecError("This task shows another question already. The migration's own task starts a new run.")
        raise asked(question, context["ti"].id)

    def execute_complete(self, context: Any, event: dict[str, Any], question: Any = None) -> Any:
        """Write the answer down; the migration's own task goes on with it."""
        with typed_failures():
            shown = Question(**question)
            try:
                with open_context(context, shown.migration, take_over=False) as ctx:
                    record(ctx, shown, event)
            except NotCounted as error:
                again = str(error)
            else:
                again = ""
        if again:
            self.log.warning("%s", again)
            return self.execute(context)
        return {"migration": shown.migration, "ask": shown.ask, "of": shown.of}

    @staticmethod
    def _question(context: Any) -> Question:
        try:
            return Question(**dict(context["params"]))
        except TypeError:
            raise SpecError(
                "This DAG is started by a migration that asks a person something; it holds no question by itself."
            ) from None
