"""The rules of the retirement: look, ask, deny everybody for a while, look again, delete."""

from __future__ import annotations

from datetime import datetime

from topicshift.core.engine.decision import Decision, Table, act, answered, over, stop, wait
from topicshift.core.engine.view import Record, Unknown, View
from topicshift.core.engine.where import against_policy
from topicshift.core.engine.words import Act, Ask, Fact, MigrationState, Row, StepState

RETIRE = Table()


def _deleting(record: Record) -> bool:
    return record.begun(Row.DELETE_SOURCE)


def _screaming(record: Record) -> bool:
    return record.at(Row.SCREAM_TEST) is StepState.INTENDED


@RETIRE.rule(lambda r: r.state is MigrationState.RETIRED)
def already_retired(view: View) -> Decision | None:
    """The source is gone."""
    return over("the source is retired")


@RETIRE.rule(lambda r: True)
def cancelled(view: View) -> Decision | None:
    """Asked to let everybody in again."""
    if view.wanted != "cancel_retirement":
        return None
    return act(Act.END_SCREAM, "it was asked for") if _screaming(view.record) else over("no scream test is running")


@RETIRE.rule(lambda r: r.state is not MigrationState.DONE)
def only_finished(view: View) -> Decision | None:
    """A source is deleted after a migration that ended well alone."""
    return stop("Refused", f"the migration is {view.record.state.value}, not done; its source is not deleted")


@RETIRE.rule(lambda r: True, Fact.SOURCE)
def nothing_against(view: View) -> Decision | None:
    """Nobody reads or writes the source, it is the same topic, and its time has come."""
    source = view.source
    if isinstance(source, Unknown):
        return wait(f"the source cannot be looked at: {source.why}")
    if not source.exists:
        return act(
            Act.FINISH_RETIREMENT if _deleting(view.record) else Act.CLOSE_GONE, "the source does not exist any more"
        )
    if not source.against:
        return None
    text = "; ".join(source.against)
    if source.waits:
        return wait(text)
    if _screaming(view.record):
        return act(Act.END_SCREAM, text)
    return stop("PreflightFailed", f"the source is not deleted: {text}")


@RETIRE.rule(lambda r: not _deleting(r), Fact.POLICY)
def policy_allows_deletion(view: View) -> Decision | None:
    """Nothing is deleted that the installation policy does not allow by now."""

    def refused(why: str) -> Decision:
        return act(Act.END_SCREAM, why) if _screaming(view.record) else stop("Refused", why)

    return against_policy(view, refused)


@RETIRE.rule(lambda r: not _deleting(r))
def deletion_approved(view: View) -> Decision | None:
    """A person says that this very topic may be deleted."""
    return answered(view, Ask.RETIRE, f"the deletion of {view.record.source} has to be accepted")


@RETIRE.rule(lambda r: not _deleting(r))
def screamed(view: View) -> Decision | None:
    """Everybody is denied for a while, so that a forgotten client shows."""
    row = view.record.step(Row.SCREAM_TEST)
    if row is None or row.state is not StepState.INTENDED or "until" not in row.data:
        return act(Act.BEGIN_SCREAM, "nobody was kept out of the source yet")
    until = str(row.data["until"])
    return wait(f"the scream test goes on until {until}", until) if view.now < datetime.fromisoformat(until) else None


@RETIRE.rule(lambda r: True)
def source_deleted(view: View) -> Decision | None:
    """Forward only."""
    return act(Act.DELETE_SOURCE, "nobody reads or writes it, and the scream test is over")
