"""The operator of ``topic_give_back``: end the freezes that nobody ends any more."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from topicshift.acts.participants import FREEZE, begin_give_back, describe, judge_give_back, producers_of
from topicshift.core.engine.freeze import Freeze, GiveBack, abandoned
from topicshift.core.errors import AmbiguousState, TopicshiftError
from topicshift.ports import Journal, MigrationRow
from topicshift_airflow.operators.cutover import kinds, put_back
from topicshift_airflow.runtime import Run, open_journal, open_run, owner_alive, typed_failures


def find_abandoned(journal: Journal, now: datetime, alive: Any) -> list[tuple[MigrationRow, str]]:
    """Open migrations with a freeze that runs and that nobody will end, each with the reason."""
    found = []
    for row in journal.find(active=True):
        step = journal.step(row.migration_id, FREEZE)
        if row.state != "open" or step is None or step.state not in ("intended", "failed"):
            continue
        back = journal.step(row.migration_id, "rollback")
        over, why = abandoned(
            freeze=Freeze.from_data(step.data),
            owner_alive=alive(row.owner),
            rolling_back=back is not None and back.state == "intended",
            now=now,
        )
        if over:
            found.append((row, why))
    return found


class GiveBackAbandoned(BaseOperator):
    """Put producers back on the source, and lift the fence, where a run has ended in the middle of its freeze.

    A run that is marked as failed or as success by hand, or deleted, runs no further task, so not its ``give_back``
    either. The migration stays with its run, which can be cleared and go on, or be rolled back.
    """

    def execute(self, context: Any) -> Any:
        """Returns what became of each; skipped where there is none. One that fails does not keep the others waiting."""
        from topicshift.adapters.clock import SystemClock

        journal = open_journal()
        try:
            found = find_abandoned(journal, SystemClock().now(), owner_alive)
        finally:
            journal.close()
        if not found:
            raise AirflowSkipException("No freeze is left behind.")
        done: dict[str, str] = {}
        failed: list[str] = []
        for row, why in found:
            self.log.warning("%s (%s to %s): %s", row.migration_id, row.source, row.target, why)
            try:
                with open_run(context, row.migration_id, take_over=False) as run:
                    done[row.migration_id] = end_freeze(run)
            except TopicshiftError as error:
                failed.append(f"{row.migration_id}: {error}")
        with typed_failures(context):
            if failed:
                raise AmbiguousState("\n".join(failed))
        return done


def end_freeze(run: Run) -> str:
    """Give the producers of one abandoned freeze back, and return the decision.

    It is decided before anything is marked or written, so that a freeze that a person has to look at leaves no trace of
    each look. Raises ``AmbiguousState`` where it cannot be told who writes where.
    """
    from topicshift_airflow.operators.drain import end_verifier

    producers = producers_of(run.spec)
    cast = run.cast(kinds(producers))
    decision, why, states = judge_give_back(
        cast, producers, admin=run.admin, journal=run.journal, migration_id=run.row.migration_id
    )
    if decision is GiveBack.AMBIGUOUS:
        raise AmbiguousState(
            f"Producers were not given back to {run.row.source}: {why} ({describe(states)}). Look at each producer, "
            f"then trigger topic_rollback (nothing in {run.row.target} yet), or clear the failed tasks of "
            f"{run.row.owner}."
        )
    if decision is not GiveBack.TO_SOURCE:
        run.progress(f"{decision.value}: {why}. Clear the tasks of {run.row.owner} that have not ended, to go on.")
        return decision.value
    end_verifier(run.row.migration_id)
    run.claim = begin_give_back(run.journal, run.claim)
    decision, _, _ = put_back(run)
    return decision.value
