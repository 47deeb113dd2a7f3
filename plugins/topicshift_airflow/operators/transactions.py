"""Before the freeze: transactions that stand still are waited for, and hanging ones offered to a person to abort."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from topicshift.acts.approvals import asked_about, find_approval
from topicshift.acts.transactions import abort_approved, open_transactions
from topicshift.core.errors import Unreadable
from topicshift.core.fence import hanging
from topicshift_airflow.operators.base import AskingOperator, Question
from topicshift_airflow.operators.cutover import switched
from topicshift_airflow.operators.drain import raise_for
from topicshift_airflow.runtime import Run

PATIENCE = timedelta(hours=12)


class SettleTransactions(AskingOperator):
    """Wait for transactions that stand still up to their time-outs; ask a person about those that hang.

    A live producer's transactions, which come and go, are not waited for here: the fence does that. Nothing is ever
    aborted without a yes to exactly these transactions, and silence is none.
    """

    YES = "Abort"
    NO = "Leave them"
    quiet_s = hanging.QUIET_S

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(subject="Abort hanging transactions", **kwargs)
        self.waited = False

    def question(self, run: Run, context: Mapping[str, Any]) -> Question | None:
        """Wait first, where Kafka will end one by itself; then ask about what hangs."""
        if switched(run):
            return None
        source = run.row.source
        now_ms = int(run.clock.now().timestamp() * 1000)
        seen = open_transactions(run.admin, source, run.clock)
        waiting = hanging.standing(seen, now_ms, quiet_s=self.quiet_s)
        if waiting and not self.waited:
            from topicshift_airflow.triggers.transactions import TransactionsTrigger

            for t in waiting:
                run.progress(t.line(source, now_ms))
            last = max(t.ends_by_ms or now_ms for t in waiting)
            self.defer(
                trigger=TransactionsTrigger(
                    kafka_conn_id=run.spec.kafka_conn_id,
                    topic=source,
                    wanted=[[t.partition, t.producer_id, t.start_offset] for t in waiting],
                    deadline=last / 1000 + 1.0,
                ),
                method_name="resume",
            )
        hung = hanging.abortable(seen)
        if not hung:
            return None
        return Question(
            f"Abort {len(hung)} hanging transaction(s) on {source}?",
            hanging.explain(source, hung, now_ms),
            PATIENCE,
            hanging.about(source, hung),
        )

    def resume(self, context: Any, event: dict[str, Any]) -> Any:
        """They ended, or their time is over: look again."""
        if event.get("status") == "error":
            raise_for(event)
        self.waited = True
        return self.execute(context)

    def act(self, run: Run, context: Mapping[str, Any]) -> Any:
        """Abort what was approved; nothing without an approval."""
        about = asked_about(run.journal, run.row.migration_id, self.task_id) or {}
        approval = find_approval(run.journal, run.row.migration_id, self.task_id, about) if about else None
        if approval is None:
            return {"aborted": []}
        aborted = abort_approved(
            run.admin,
            run.journal,
            run.claim,
            run.clock,
            run.row.source,
            about,
            actor=approval.actor,
            progress=run.progress,
        )
        left = hanging.abortable(open_transactions(run.admin, run.row.source, run.clock))
        if left:
            raise Unreadable(
                f"{len(left)} transaction(s) on {run.row.source} still hang. Clear the task to look again."
            )
        return {"aborted": aborted}
