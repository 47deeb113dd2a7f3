"""Around the freeze: the watch over it, and the ways by which producers resume on the source."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from topicshift.core.engine.words import Row
from topicshift.core.errors import AmbiguousState, OwnershipLost, TopicshiftError
from topicshift_airflow.abandoned import RESUME_DAG, find, look, note_all, rehearsals
from topicshift_airflow.airflow_api import start_run
from topicshift_airflow.notices import news_told
from topicshift_airflow.operators.advance import AdvanceOperator
from topicshift_airflow.runtime import journal, log, open_context, owner_of, typed_failures

if TYPE_CHECKING:
    from topicshift.acts.advance import Done
    from topicshift.acts.context import MigrationContext

AGAIN_S = 2.0
"""Seconds to the next look while producers resume on the source."""


class WatchedOperator(AdvanceOperator):
    """A step before or in the freeze: somebody else watches over the run, in case that it is marked or deleted."""

    def before(self, ctx: MigrationContext) -> None:
        """See that the watch is there. Without one, the rare look at all migrations ends an abandoned freeze."""
        if ctx.record().freeze is not None:
            return
        migration = ctx.row.migration_id
        try:
            start_run(RESUME_DAG, migration, {"migration": migration})
        except TopicshiftError as error:
            log.warning("nobody watches over this freeze: %s", error)


class ResumeOnSource(AdvanceOperator):
    """Producers resume on the source when a step inside the freeze has failed. Runs only then."""

    ui_color = "#fbe3e0"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(wanted="resume", **kwargs)

    def context_of(self, context: Any) -> AbstractContextManager[MigrationContext]:
        """Skip for a run that never owned a migration: its failure left nothing behind."""
        with journal() as opened:
            if not opened.find(owner=owner_of(context)):
                raise AirflowSkipException("This run never locked a topic, so nobody has to resume on a source.")
        return super().context_of(context)

    def before(self, ctx: MigrationContext) -> None:
        """The run does not go on, so its armed verifier ends."""
        ctx.ports.verifier.abort()

    def _link(self, ctx: MigrationContext) -> None:
        if ctx.record().freeze is None:  # nobody stands still for a page
            self.evidence_url = ctx.report()

    def after(self, ctx: MigrationContext, done: Done) -> Any:
        """What became of the freeze; skipped where there was none."""
        from topicshift.acts.finish import fail_unbegun

        freeze = done.record.step(Row.FREEZE)
        fail_unbegun(ctx, done.record)
        if freeze is None:
            raise AirflowSkipException(f"No producer was stopped by this run: {done.why}.")
        return {"freeze": freeze.state.value, **{k: freeze.data.get(k) for k in ("how", "why", "start_by_hand")}}


class ResumeAbandoned(BaseOperator):
    """End the freezes that nobody ends any more, each on behalf of its run, which stays the owner and can go on.

    With the parameter ``migration`` it watches over that one, in the triggerer, until its freeze is over.
    """

    def execute(self, context: Any) -> Any:
        """Returns what became of each; skipped where there is none."""
        wanted = str(context["params"].get("migration") or "")
        with typed_failures():
            if wanted:
                return self._watch(context, wanted)
            with journal() as opened:
                note_all(opened)
                left = rehearsals(opened)
                found = {
                    r.migration_id: why for r, why in find(opened, datetime.now(UTC)) if r.migration_id not in left
                }
            if not found and not left:
                raise AirflowSkipException("No freeze and no rehearsal is left behind.")
            done = self._resume(context, found) if found else {}  # somebody stands still for these
            return {**done, **self._close(context, left)}

    def _close(self, context: Any, migrations: list[str]) -> dict[str, str]:
        """End rehearsals whose run has ended: nobody stands still for them, and all that they made is deleted."""
        from topicshift.acts.close import close

        failed: list[str] = []
        for migration in migrations:
            log.warning("%s: its run has ended before the rehearsal did", migration)
            try:
                with open_context(context, migration, take_over=False) as ctx, ctx.recorded(self.task_id):
                    close(ctx, "its run has ended", even_frozen=True, leave_nothing=True)
            except TopicshiftError as error:
                failed.append(
                    f"{migration}: {error} By hand, with all that is left named: topicshift close {migration}"
                )
        if failed:
            raise AmbiguousState("\n".join(failed))
        return dict.fromkeys(migrations, "its shadow is deleted")

    def woken(self, context: Any, event: Any = None) -> Any:
        """A wait is over: look again."""
        return self.execute(context)

    def _watch(self, context: Any, migration: str) -> Any:
        from topicshift_airflow.triggers.journal import FreezeTrigger

        with journal() as opened:
            seen = look(opened, migration)
        if seen == "abandoned":
            return self._resume(context, {migration: "its run does not end its freeze"})
        if seen == "over":
            return {migration: "nothing is left to watch"}
        self.defer(trigger=FreezeTrigger(migration_id=migration), method_name="woken")
        return None

    def _resume(self, context: Any, found: dict[str, str]) -> dict[str, str]:
        from topicshift.acts.advance import Waiting, advance
        from topicshift_airflow.triggers.journal import ClockTrigger

        done, failed, waiting = dict[str, str](), list[str](), False
        for migration, why in found.items():
            log.warning("%s: %s", migration, why)
            try:
                opened = open_context(context, migration, take_over=False)
                with opened as ctx, news_told(ctx), ctx.recorded(self.task_id):
                    outcome = advance(ctx, wanted="resume")
                    done[migration] = outcome.decision.why
                    waiting = waiting or isinstance(outcome, Waiting)
            except OwnershipLost as error:
                done[migration] = str(error)
            except TopicshiftError as error:
                failed.append(f"{migration}: {error}")
        if waiting:
            moment = datetime.now(UTC) + timedelta(seconds=AGAIN_S)
            self.defer(trigger=ClockTrigger(moment=moment.timestamp()), method_name="woken")
        if failed:
            raise AmbiguousState("\n".join(failed))
        return done
