"""Operators of ``topic_retirement``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from topicshift.acts.approvals import find_approval, record_approval
from topicshift.acts.on_record import require_approval, require_screamed
from topicshift.core.errors import Refused
from topicshift.core.spec.model import Approval
from topicshift_airflow.links import EvidenceLink
from topicshift_airflow.operators.base import AskingOperator, Question
from topicshift_airflow.operators.cutover import read_fence
from topicshift_airflow.operators.named import find_migration, named_migration
from topicshift_airflow.operators.verify import write_report
from topicshift_airflow.runtime import Run, open_journal, typed_failures

if TYPE_CHECKING:
    from topicshift.core.findings import Finding


class FindDue(BaseOperator):
    """The finished migrations whose source may be looked at for deletion. None: the run ends here, skipped."""

    def execute(self, context: Any) -> Any:
        """Returns migration ids."""
        wanted = str(context["params"].get("migration") or "").strip()
        with typed_failures(context):
            if wanted:
                row = find_migration(wanted)
                if row.state != "done":
                    raise Refused(f"{row.migration_id} is {row.state}, not done; its source is not deleted.")
                return [row.migration_id]
            journal = open_journal()
            try:
                rows = [r for r in journal.find() if r.state == "done"]
            finally:
                journal.close()
        if not rows:
            raise AirflowSkipException("No finished migration has a source left to retire.")
        return [r.migration_id for r in rows]


def look_at_source(run: Run) -> list[Finding]:
    """Everything that speaks against deleting the source of this migration now."""
    from topicshift.acts.retire import look

    fence = read_fence(run)
    return look(
        run.row,
        run.spec,
        topic_id=fence.topic_id,
        fence_offsets=fence.fence_offsets,
        admin=run.admin,
        journal=run.journal,
        clock=run.clock,
    )


APPROVE = "retire.approve"
"""The task whose answer allows the deletion; it names the act in the audit trail."""


def about_source(run: Run) -> dict[str, str]:
    """What the approval of the deletion is about: this very topic."""
    return {"topic": run.row.source, "topic_id": read_fence(run).topic_id}


def lift_fence(run: Run) -> None:
    """Take away the DENY of the write fence."""
    from topicshift.acts.fence import unfence

    unfence(run.admin, run.journal, run.claim, run.row.source)


class RetireOperator(BaseOperator):
    """One step of the retirement of one migration, which is taken over by its id."""

    template_fields = ("migration",)
    operator_extra_links = (EvidenceLink(),)
    evidence_url = ""

    def __init__(self, *, migration: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.migration = migration


class CheckRetirement(RetireOperator):
    """Look for anything that speaks against deleting the source. Not yet due is a skip, not a failure."""

    def execute(self, context: Any) -> Any:
        """Skip while only time speaks against it, or nothing is left to delete; fail where anything else does."""
        from topicshift.acts.retire import close_gone, require_nothing_against
        from topicshift.core.proof.retirement import only_time

        with named_migration(context, self.migration) as run:
            if close_gone(
                run.row, admin=run.admin, journal=run.journal, claim=run.claim, unfence=lambda: lift_fence(run)
            ):
                self.evidence_url = write_report(run)
                raise AirflowSkipException(
                    f"{run.row.source} does not exist any more: somebody else has deleted it, and nothing is left to "
                    f"retire. {self.migration} is closed."
                )
            found = look_at_source(run)
            for f in found:
                run.progress(f.line())
            if only_time(found):
                raise AirflowSkipException(f"{run.row.source}: {found[0].seen}")
            require_nothing_against(found)
            return {"migration": self.migration, "source": run.row.source}


class ApproveRetirement(AskingOperator):
    """A person says that this very topic may be deleted."""

    YES = "Delete it"
    NO = "Keep it"
    template_fields = ("subject", "body", "migration")

    def __init__(self, *, migration: str = "", **kwargs: Any) -> None:
        super().__init__(subject="Delete the source", **kwargs)
        self.migration = migration

    def migration_of(self) -> str | None:
        """The named migration."""
        return self.migration

    def question(self, run: Run, context: Mapping[str, Any]) -> Question | None:
        """The topic, its id, and what cannot be undone."""
        from topicshift.core.proof.retirement import retention_of

        about = about_source(run)
        if run.spec.approvals.retire is Approval.AUTO:
            if not find_approval(run.journal, run.row.migration_id, self.task_id, about):
                record_approval(run.journal, run.claim, self.task_id, about, actor="spec", how="auto")
            return None
        info = run.admin.topic(run.row.source)
        keeps = retention_of(info) if info else None
        kept = f"{keeps}" if keeps is not None else "for ever: its records are not copied anywhere by this"
        return Question(
            f"Delete {run.row.source} for good?",
            f"`{run.row.source}` (topic id `{about['topic_id']}`) was moved to `{run.row.target}`. Nobody reads or "
            f"writes it. It keeps records {kept}.\n\nAfter your answer everybody is denied for "
            f"{run.spec.retire.scream_test}, then it is looked at again and deleted. **This cannot be undone.**",
            timedelta(days=7),
            about,
        )

    def act(self, run: Run, context: Mapping[str, Any]) -> Any:
        """The recorded answer is the result."""
        return {"migration": run.row.migration_id}


class ScreamTest(RetireOperator):
    """Deny everybody on the source for a while, without holding a worker."""

    def execute(self, context: Any, event: Any = None) -> Any:
        """Begin (or go on with) the test; defer until its end."""
        from airflow.providers.standard.triggers.temporal import DateTimeTrigger

        from topicshift.acts.retire import begin_scream

        with named_migration(context, self.migration) as run:
            require_approval(run.journal, run.row.migration_id, APPROVE, about_source(run))
            until: datetime = begin_scream(
                run.row.source,
                run.spec.retire.scream_test,
                admin=run.admin,
                journal=run.journal,
                claim=run.claim,
                clock=run.clock,
            )
            if run.clock.now() >= until:
                return {"until": until.isoformat()}
        self.defer(trigger=DateTimeTrigger(moment=until), method_name="execute")
        return None


class DeleteSource(RetireOperator):
    """Look once more, then delete the source. Forward only."""

    def execute(self, context: Any) -> Any:
        """Returns what was deleted."""
        from topicshift.acts.retire import DELETE, SCREAM, delete_source

        with named_migration(context, self.migration) as run:
            begun = run.journal.step(run.row.migration_id, DELETE)
            if begun is None or begun.state not in ("intended", "done"):
                require_approval(run.journal, run.row.migration_id, APPROVE, about_source(run))
                require_screamed(run.journal, run.row.migration_id, SCREAM, run.clock)
            result = delete_source(
                run.row,
                topic_id=read_fence(run).topic_id,
                admin=run.admin,
                journal=run.journal,
                claim=run.claim,
                clock=run.clock,
                look_again=lambda: look_at_source(run),
                unfence=lambda: lift_fence(run),
            )
            self.evidence_url = write_report(run)
            return result


class StopScream(RetireOperator):
    """When the scream test found somebody, or the deletion failed: let everybody in again."""

    def execute(self, context: Any) -> Any:
        """Remove the DENY of the scream test, unless the source was deleted."""
        from topicshift.acts.retire import end_scream

        with named_migration(context, self.migration) as run:
            if not end_scream(run.row.source, admin=run.admin, journal=run.journal, claim=run.claim):
                raise AirflowSkipException(f"No scream test is running on {run.row.source}; nobody is kept out of it.")


class Finished(BaseOperator):
    """The last task: it does nothing, and is not reached where the retirement of a migration has failed."""

    def execute(self, context: Any) -> None:
        """Nothing."""
