"""The base of every step's operator: open the run, do the step, type the failure, leave nothing open."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import HITLOperator  # noqa: TID253 - 0.03 s, all of it from airflow.sdk
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from topicshift.acts.approvals import asked_about, find_approval, record_approval
from topicshift.core.errors import DrainTimedOut, Refused
from topicshift_airflow.links import EvidenceLink
from topicshift_airflow.runtime import Run, open_run, typed_failures

RETRIES = {"retries": 3, "retry_delay": timedelta(seconds=1), "retry_exponential_backoff": False}
"""For every step: a killed worker or a passing fault is tried again at once; a freeze has no time for more."""


class _Recorder:
    """Records a failed step in the audit trail, without hiding the failure if that fails as well."""

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        self.run: Run | None = None

    def __call__(self, kind: str, message: str) -> None:
        if self.run is None or kind == "OwnershipLost":
            return
        try:
            self.run.event("step_failed", {"task": self.task_id, "error": kind, "message": message[:2000]})
        except Exception as error:  # noqa: BLE001 - the step's own error is the one that must be seen
            self.run.progress(f"the failure could not be written to the audit trail: {error}")


def skip_when_finished(run: Run) -> None:
    """Skip a task that is cleared after the migration has ended: what it would do was done, and proven.

    Acting once more would, for instance, stop producers that have long been on the target.
    """
    if run.row.state in ("done", "retired"):
        raise AirflowSkipException(
            f"{run.row.migration_id} is {run.row.state}: {run.row.source} was moved to {run.row.target}. A task "
            "that is cleared has nothing left to do."
        )


class StepOperator(BaseOperator):
    """One step. Subclasses implement :meth:`step`; it observes first, so that it may be repeated.

    ``after_the_end``: whether it may run once more when the migration has ended (it only reads, or judges by itself).
    """

    after_the_end = False

    operator_extra_links = (EvidenceLink(),)
    evidence_url = ""
    ui_color = "#e8f0fb"

    def step(self, run: Run, context: Mapping[str, Any]) -> Any:
        """Do it. The return value goes to XCom: small values only."""
        raise NotImplementedError

    def execute(self, context: Mapping[str, Any]) -> Any:
        """Run the step with its ports open."""
        record = _Recorder(self.task_id)
        with typed_failures(context, record), open_run(context) as run:
            record.run = run
            if not self.after_the_end:
                skip_when_finished(run)
            return self.step(run, context)


class AskingOperator(HITLOperator):
    """A step that may need a person's answer before it acts.

    ``question`` says what to ask, or None when nobody need be asked (participants under a controller, ``auto``).
    The answer holds for exactly ``Question.about``; if that has changed by the time the answer comes, it is
    asked again. ``act`` does the step.
    """

    operator_extra_links = (EvidenceLink(),)
    evidence_url = ""
    ui_color = "#fdf3d8"
    YES = "Confirm"
    NO = "Refuse"

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("subject", "Topicshift")
        super().__init__(options=[self.YES, self.NO], **kwargs)

    def migration_of(self) -> str | None:
        """The migration to take over; None for the one that this DAG run owns."""
        return None

    def question(self, run: Run, context: Mapping[str, Any]) -> Question | None:
        """What to ask now."""
        raise NotImplementedError

    def act(self, run: Run, context: Mapping[str, Any]) -> Any:
        """Do the step."""
        raise NotImplementedError

    def execute(self, context: Any) -> Any:
        """Ask, or act at once when nobody need be asked or the same question was answered before."""
        record = _Recorder(self.task_id)
        with typed_failures(context, record), open_run(context, self.migration_of()) as run:
            record.run = run
            if self.migration_of() is None:
                skip_when_finished(run)
            question = self.question(run, context)
            if question is None or find_approval(run.journal, run.row.migration_id, self.task_id, question.about):
                return self.act(run, context)
            self._ask(run, question, context)
        # Raises the signal that parks the task; the ports are closed by now.
        return super().execute(context)

    def _ask(self, run: Run, question: Question, context: Mapping[str, Any]) -> None:
        self.subject, self.body = question.subject, question.body
        self.response_timeout = question.timeout
        said = {"act": self.task_id, "subject": question.subject, "about": question.about}
        which = _map_index(context)
        run.event("asked", said if which < 0 else {**said, "map_index": which})

    def execute_complete(self, context: Any, event: dict[str, Any]) -> Any:
        """Record the answer, then act, stop, or ask again."""
        record = _Recorder(self.task_id)
        with typed_failures(context, record), open_run(context, self.migration_of()) as run:
            record.run = run
            about = asked_about(run.journal, run.row.migration_id, self.task_id, _map_index(context)) or {}
            if event.get("error_type") == "timeout" or event.get("timedout"):
                run.event("unanswered", {"act": self.task_id, "about": dict(about)})
                raise DrainTimedOut(
                    f"Nobody answered {self.task_id} in time. Nothing was done on the strength of silence; "
                    "producers go back to the source if they were stopped. Clear the task to ask again."
                )
            super().execute_complete(context, event)
            user = event.get("responded_by_user") or {}
            actor = f"user:{user.get('name') or user.get('id') or 'unknown'}"
            option = str((event.get("chosen_options") or ["?"])[0])
            if option != self.YES:
                run.event("refused", {"act": self.task_id, "about": dict(about)}, actor=actor)
                raise Refused(f"{actor} refused {self.task_id}. Nothing was done; the run ends here.")
            record_approval(run.journal, run.claim, self.task_id, about, actor=actor, how="person")
            question = self.question(run, context)
            if question is None or question.about == about:
                return self.act(run, context)
            run.progress("what was approved has changed since it was asked; asking again")
            self._ask(run, question, context)
        return super().execute(context)


def _map_index(context: Mapping[str, Any]) -> int:
    """Which instance of a mapped task this is; -1 for a task that is not mapped."""
    return int(getattr(context.get("ti"), "map_index", -1))


class Question:
    """What to ask a person: a headline, Markdown, how long to wait, and what the answer is about."""

    def __init__(self, subject: str, body: str, timeout: timedelta, about: Mapping[str, Any] | None = None) -> None:
        self.subject = subject
        self.body = body
        self.timeout = timeout
        self.about = dict(about or {})
