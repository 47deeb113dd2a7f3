"""The last task of a migration: the report, and the order proof anew where that is wanted once more."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from topicshift.core.engine.words import Act
from topicshift_airflow.operators.end import ReportingOperator
from topicshift_airflow.runtime import log

if TYPE_CHECKING:
    from topicshift.acts.advance import Waiting
    from topicshift.acts.context import MigrationContext
    from topicshift_airflow.operators.jobs import OrderProof


class _ProofWanted(Exception):
    """The order proof has to be made, and the task that makes it is over."""


class LastReport(ReportingOperator):
    """Takes the proof and closes the migration.

    A record that came to the source late, or was replayed, makes an order proof void that was made before. Its own task
    is over by then, so this one runs the job.
    """

    _job: OrderProof | None = None

    def waits(self, ctx: MigrationContext, waiting: Waiting) -> None:
        """Called before the task defers."""
        if waiting.decision.act is Act.PROVE_ORDER:
            raise _ProofWanted
        super().waits(ctx, waiting)

    def _advance(self, context: Any, *, hint: str = "", woken: bool = False) -> Any:
        while True:
            try:
                return super()._advance(context, hint=hint, woken=woken)
            except _ProofWanted:
                log.info("what was proven is not all that there is now: the order proof is made anew")
                self._prove(context)

    def _prove(self, context: Any) -> None:
        from airflow.sdk.bases.operator import ExecutorSafeguard

        from topicshift_airflow.operators.jobs import OrderProof

        job = self._job = OrderProof(task_id=self.task_id)

        def run() -> None:
            ExecutorSafeguard.tracker.set(job)  # it runs inside this task, and says so
            job.execute(context)

        try:
            contextvars.copy_context().run(run)
        except AirflowSkipException as done:
            log.info("%s", done)  # somebody else has made it meanwhile
        finally:
            self._job = None

    def on_kill(self) -> None:
        """End the job with the task."""
        if self._job is not None:
            self._job.on_kill()
