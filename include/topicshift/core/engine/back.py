"""The rules of the ways back: how producers resume on the source after a broken freeze, and how a rollback begins."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from topicshift.core.engine.again import replay_begun, unseen
from topicshift.core.engine.decision import Decision, Table, act, answered, due, over, retell, stop, wait
from topicshift.core.engine.freeze import lease_margin
from topicshift.core.engine.view import GroupFact, Member, Record, TargetFact, Unknown, View, Whereabouts
from topicshift.core.engine.where import arrived, driven, named, seen, switched
from topicshift.core.engine.words import Act, Ask, Fact, MigrationState, Row, StepState

RESUME = Table()
ROLLBACK = Table()


def _always(record: Record) -> bool:
    return True


def _on_the_source(view: View) -> Decision | None:
    open_ = [p for p in driven(view) if not arrived(view, p, "source")]
    if not open_:
        return None
    text = named(view, open_)
    return retell(view, Act.RESUME_PRODUCERS, f"not on the source: {text}", f"not on the source yet: {text}")


def _called_off(view: View, what: Act, why: str) -> Decision | None:
    """Somebody is on the target: the way back is called off where the fence of the source holds, or still would.

    Where the source was written to meanwhile, going back is the way that keeps the order; what came to the target is
    then for a person to look at, see :func:`_target_unused`.
    """
    if view.record.in_effect(Row.FENCE):
        return act(what, why)
    if isinstance(view.fence, Unknown):
        return wait(f"whether the source was written to cannot be told: {view.fence.why}")
    return None if view.fence.broken else act(what, why)


def _target_shut(view: View) -> Decision | None:
    """Nobody may write to the target from before the last look at it, not even a process that wakes up late."""
    if view.record.done(Row.TARGET_DENY):
        return None
    return act(Act.DENY_TARGET, f"{view.record.target} must stay empty while producers go back")


def _target_unused(view: View) -> Decision | None:
    """Records that came to the target after the fence was lifted are for a person: nobody reads them."""
    target, record = view.target, view.record
    if isinstance(target, Unknown) or (target.exists and target.used is None):
        return wait(f"whether {record.target} is empty cannot be told")
    if not target.used:
        return None
    return stop(
        "AmbiguousState",
        f"everybody is on {record.source} again, and {record.target} holds {target.used} record(s) that came while "
        "producers went back; nobody reads them",
        f"Look at them, carry over what is missing, then: topicshift close {record.migration_id}",
    )


def _deny_gone(view: View) -> Decision | None:
    return retell(view, Act.UNFENCE, "the DENY is still shown", "the DENY to be gone at every broker")


# -------------------------------------------------------------------------------- producers resume on the source


@RESUME.rule(lambda r: r.in_effect(Row.SWITCH_PRODUCERS) or bool(r.released), Fact.PRODUCERS, Fact.TARGET, Fact.FENCE)
def nobody_on_target(view: View) -> Decision | None:
    """Looked at once more when everybody else is shut out: producers resume only where none is on the target."""
    record = view.record
    if record.done(Row.SWITCH_PRODUCERS):
        return act(Act.GO_ON, "every producer runs on the target")
    if record.released:
        return act(Act.GO_ON, f"groups read the target already: {', '.join(record.released)}")
    if not record.in_effect(Row.SWITCH_PRODUCERS):
        return None
    if isinstance(view.target, Unknown) or view.target.used is None or isinstance(view.producers, Unknown):
        return wait("whether anybody is on the target cannot be told")
    on_target = [p for p in driven(view) if seen(view, p).side == "target"]
    if on_target or view.target.used:
        known = named(view, on_target) or "nobody that is known"
        return _called_off(view, Act.GO_ON, f"on the target: {known}; records in it: {view.target.used}")
    return None


@RESUME.rule(lambda r: r.in_effect(Row.SWITCH_PRODUCERS) and r.in_effect(Row.FENCE))
def target_shut(view: View) -> Decision | None:
    """Producers may have been told of the target: nobody writes to it while they go back."""
    return _target_shut(view)


@RESUME.rule(lambda r: r.in_effect(Row.FENCE))
def fence_lifted_first(view: View) -> Decision | None:
    """The DENY goes before producers do, so that none is denied; a broker that is late does not hold them up."""
    return act(Act.UNFENCE, "producers resume on the source") if view.age(Act.UNFENCE.value) is None else None


@RESUME.rule(_always, Fact.PRODUCERS)
def producers_resumed(view: View) -> Decision | None:
    """Every producer that a controller moves runs on the source again."""
    return _on_the_source(view)


@RESUME.rule(lambda r: r.in_effect(Row.FENCE))
def fence_lifted(view: View) -> Decision | None:
    """Nothing of the DENY is left."""
    return _deny_gone(view)


@RESUME.rule(lambda r: r.in_effect(Row.SWITCH_PRODUCERS), Fact.TARGET)
def nothing_left_on_target(view: View) -> Decision | None:
    """The freeze has no clean end while records that nobody reads are on the target."""
    return _target_unused(view)


@RESUME.rule(_always)
def resume_ended(view: View) -> Decision | None:
    """The freeze has ended; the run may try again, or be rolled back."""
    return act(Act.END_RESUME, "every producer runs on the source")


# ------------------------------------------------------------------------------------------------------- rollback


def _begun(record: Record) -> bool:
    return record.at(Row.ROLLBACK) is StepState.INTENDED


def _touched(record: Record) -> bool:
    return _begun(record) and record.in_effect(Row.FREEZE)


@ROLLBACK.rule(lambda r: not _begun(r), Fact.TARGET, Fact.SOURCE, Fact.FENCE)
def rollback_begun(view: View) -> Decision | None:
    """A rollback begins with a person's yes to exactly the type that holds."""
    record = view.record
    if record.state is MigrationState.ROLLED_BACK:
        return over("it was rolled back")
    if record.state is MigrationState.REHEARSED:
        return over("it was a rehearsal, and nothing of it is left")
    kind, why = rollback_type(view)
    if kind in ("free", "drain_back"):
        asked = answered(view, Ask.ROLLBACK, f"the rollback of the type {kind} has to be accepted: {why}")
        return _called_off_here(view) or asked or act(Act.BEGIN_ROLLBACK, why)
    return wait(why) if kind is None else stop("Refused", f"there is no way back ({kind}): {why}")


def _called_off_here(view: View) -> Decision | None:
    """An advancer that saw its rollback called off does not stop producers once more by itself."""
    row = view.record.step(Row.ROLLBACK)
    if row is None or row.finished_at is None or datetime.fromisoformat(row.finished_at) < view.began_at:
        return None
    if "called_off" not in row.data:
        return None
    why = f"the rollback was called off: {row.data['called_off']}"
    return stop("DrainTimedOut", why, "Mend that, then ask for it again.")


ROLLBACK_TYPES: Final[Mapping[str, str]] = {
    "free": "Producers go back to `{source}`, then groups do, each at its own offsets (those of its drain certificate "
    "where the brokers forgot them), every DENY goes, the retention of `{source}` is what it was "
    "before, and `{target}` is deleted if this migration made it and it is empty.",
    "drain_back": "The protocol runs with source and target exchanged, at once: a window is not waited for. A gate "
    "waits until the groups are near the end of `{target}`. Then producers stop for the freeze budget at most, "
    "`{target}` is fenced, each group reads it up to that fence, producers go on with `{source}`, and groups resume "
    "there at the offsets of their drain certificates. The order of each key is kept. `{target}` keeps its records, "
    "shut for everybody by a DENY, and is not deleted.",
}
"""What a rollback of each type does, for a person who is asked; names of the topics are to be filled in."""


def rollback_type(view: View) -> tuple[str | None, str]:
    """The type of rollback that holds now, and why; None where it cannot be told, because it is never guessed."""
    if view.record.state is MigrationState.RETIRED:
        return "forward_only", "the source was deleted"
    if isinstance(view.source, Unknown):
        return None, f"the source could not be looked up: {view.source.why}"
    if view.source.later:
        return "forward_only", view.source.later
    if not view.source.exists:
        return "forward_only", "the source does not exist any more"
    if not view.source.same:
        return "forward_only", "the source was deleted and made again: it is another topic"
    if isinstance(view.target, Unknown):
        return None, "the target could not be read"
    lost = _target_lost(view.record, view.target)
    if lost:
        return "forward_only", lost
    if view.target.used is None:
        return None, "the target could not be read"
    return (
        _with_records(view, view.target.used)
        if view.target.used
        else ("free", "nothing was ever written to the target")
    )


def _with_records(view: View, used: int) -> tuple[str | None, str]:
    record, holds = view.record, f"the target holds {used} record(s)"
    if record.policy.rehearsal:
        return "forward_only", f"it is a rehearsal, and ends with: topicshift close {record.migration_id}"
    open_ = [g for g in record.policy.groups if not record.done(Row.SWITCH_GROUP, g)]
    if not switched(record) or open_:
        still = ", ".join(open_) or "some producer"
        return "forward_only", f"{holds}, which {still} would never see: every producer and group has to be there first"
    if record.in_effect(Row.SCREAM_TEST):
        return (
            "forward_only",
            f"{holds}, and nobody may read or write the source during its scream test: end that first",
        )
    if unseen(record) != 0:
        return (
            "forward_only",
            f"{holds}, and records came to the source after its fence (strays.json): groups that go back would get "
            "them after later ones",
        )
    if replay_begun(record):
        return (
            "forward_only",
            f"{holds}, and late records of the source were replayed into it: a group that goes back would get them a "
            "second time, after later ones",
        )
    if not all(record.done(Row.VERIFICATION, s) for s in record.certificates):
        return "forward_only", f"{holds}, and no certificate says where every group stood on the source"
    if isinstance(view.fence, Unknown):
        return None, f"whether the source still ends at its fence cannot be told: {view.fence.why}"
    if view.fence.broken:
        return "forward_only", f"{holds}, and the source was written to: {view.fence.broken}"
    return "drain_back", f"{holds}, which every group reads before it goes back"


def _target_lost(record: Record, target: TargetFact) -> str:
    """Why nobody can tell what was written to the target once producers were sent to it; empty while it stands."""
    if (target.exists and target.same) or not record.in_effect(Row.SWITCH_PRODUCERS):
        return ""
    what = "was deleted and made again" if target.exists else "does not exist any more"
    return (
        f"{record.target} {what}, and producers had been sent to it: what they wrote there is lost, and nobody can "
        "tell how much that was. Write it again from the applications' own data, then: topicshift close "
        f"{record.migration_id}"
    )


@ROLLBACK.rule(lambda r: _touched(r) and r.in_effect(Row.SWITCH_PRODUCERS), Fact.PRODUCERS, Fact.TARGET, Fact.FENCE)
def stopped_on_target(view: View) -> Decision | None:
    """Producers on the target are stopped, and the target is looked at once more while they stand still."""
    target = view.target
    if isinstance(target, Unknown) or target.used is None:
        return wait("the target could not be read")
    if isinstance(view.producers, Unknown):
        return wait(f"producers cannot be observed: {view.producers.why}")
    if target.used:
        why = f"the target holds {target.used} records by now: producers go on there"
        called_off = _called_off(view, Act.END_ROLLBACK, why)
        if called_off is not None:
            return called_off
    shut = view.record.done(Row.TARGET_DENY)
    on_target = [p for p in driven(view) if not _off_target(seen(view, p), shut)]
    if not on_target:
        return None
    text, until = named(view, on_target), _lease_of(view.record)
    if until is not None and view.now >= until and not _returned(view):
        why = f"not stopped within the freeze budget: {text}; producers go on with the target"
        called_off = _called_off(view, Act.END_ROLLBACK, why)
        if called_off is not None:
            return called_off
    return retell(view, Act.STOP_ON_TARGET, f"not stopped: {text}", f"not stopped yet: {text}")


def _lease_of(record: Record) -> datetime | None:
    """Until when producers stand still for this rollback, None where nobody was stopped for it."""
    row = record.step(Row.ROLLBACK)
    until = row.data.get("lease_until") if row is not None else None
    return datetime.fromisoformat(str(until)) if until else None


def _returned(view: View) -> bool:
    """Whether some producer runs on the source again: the others follow it."""
    return any(seen(view, p).runs_on("source") for p in driven(view))


def _off_target(where: Whereabouts, shut: bool) -> bool:
    """Whether it is stopped, with nobody who could start on the target, or runs on the source.

    ``shut``: nobody may write to the target any more, which comes after every producer was seen off it. One that is
    seen on the source from then on is on its way, however long it takes to run: it is not stopped again.
    """
    if where.runs_on("source") or (shut and where.status == "unknown" and where.side == "source"):
        return True
    return where.status == "stopped" and not (where.absent and where.side == "target")


@ROLLBACK.rule(lambda r: _touched(r) and r.in_effect(Row.SWITCH_PRODUCERS) and r.in_effect(Row.FENCE))
def target_shut_for_rollback(view: View) -> Decision | None:
    """Nobody writes to the target from before the last look at it."""
    return _target_shut(view)


@ROLLBACK.rule(lambda r: _begun(r) and (r.in_effect(Row.FENCE) or r.in_effect(Row.WIDE_DENY)))
def rollback_unfenced(view: View) -> Decision | None:
    """The DENY goes before producers do."""
    return act(Act.UNFENCE, "producers go back to the source") if view.age(Act.UNFENCE.value) is None else None


@ROLLBACK.rule(lambda r: _touched(r) and r.in_effect(Row.WIDE_DENY), Fact.PRODUCERS, Fact.FENCE)
def source_opened_for_all(view: View) -> Decision | None:
    """No producer goes back to a source that is shut for everybody: it would be denied at a broker that is late.

    They stand still for it until their lease ends at most. Then they go on with the target; where the source was
    written to, back all the same.
    """
    if isinstance(view.producers, Unknown):
        return wait(f"producers cannot be observed: {view.producers.why}")
    if _returned(view):
        return None
    until, source = _lease_of(view.record), view.record.source
    if until is not None and view.now >= until - lease_margin(view.record.policy.freeze_budget):
        why = f"the DENY for everybody is still shown on {source} as the lease ends; producers go on with the target"
        return _called_off(view, Act.END_ROLLBACK, why)
    return _deny_gone(view)


@ROLLBACK.rule(_touched, Fact.PRODUCERS)
def producers_returned(view: View) -> Decision | None:
    """Every producer that a controller moves runs on the source again."""
    return _on_the_source(view)


FOLLOWS = timedelta(minutes=10)
"""Time for which one advancer waits for groups to read the source again, before it calls a person."""


def returning(record: Record, group: str) -> bool:
    """Whether this rollback has begun to return the group."""
    row, back = record.step(Row.SWITCH_GROUP, group), record.step(Row.ROLLBACK)
    return row is not None and back is not None and row.data.get("returning") == back.data.get("way", 0)


def _sent_back(record: Record) -> list[Member]:
    """Groups that this rollback returns and a controller moves; the others are a person's to start."""
    return [c for c in record.policy.consumers if not c.manual and returning(record, c.group)]


@ROLLBACK.rule(_begun)
def groups_returned(view: View) -> Decision | None:
    """Groups that were released are sent to the source, after the producers: nobody stands still for a group."""
    released = view.record.released
    for group in released:
        if due(view, Act.RETURN_GROUP, group):
            return act(Act.RETURN_GROUP, "it was released to the target", group)
    followed = [c.group for c in _sent_back(view.record)]
    others = [g for g in released if g not in followed]
    return wait(f"sent to the source: {', '.join(others)}") if others else None


@ROLLBACK.rule(lambda r: _begun(r) and r.in_effect(Row.CREATE_TARGET) and bool(_sent_back(r)), Fact.GROUPS)
def groups_followed(view: View) -> Decision | None:
    """Each of them reads the source before the target goes; who does not is told again, then a person is called."""
    record, open_, since = view.record, list[str](), view.began_at
    for consumer in _sent_back(record):
        fact = view.groups.get(consumer.group, Unknown("it was not asked"))
        if not record.in_effect(Row.SWITCH_GROUP, consumer.group) and _reads_source(fact):
            continue
        text = f"group {consumer.group} does not read {record.source} yet: {_seen_of(fact)}"
        if due(view, Act.RETURN_GROUP, consumer.group):
            return act(Act.RETURN_GROUP, text, consumer.group)
        open_.append(text)
        row = record.step(Row.SWITCH_GROUP, consumer.group)
        if row is not None:
            since = max(since, datetime.fromisoformat(str(row.data["returning_at"])))
    if not open_:
        return None
    if view.now - since < FOLLOWS:
        return wait("; ".join(open_))
    return stop(
        "AmbiguousState",
        f"producers are on {record.source} again, and after {FOLLOWS.total_seconds() / 60:g} min {'; '.join(open_)}",
        f"Start it on {record.source}, then trigger topic_rollback again, or: topicshift rollback "
        f"{record.migration_id}. {record.target} is not deleted before.",
    )


def _reads_source(fact: GroupFact | Unknown) -> bool:
    return (
        not isinstance(fact, Unknown)
        and fact.where.side == "source"
        and (fact.where.status == "running" or fact.where.absent)
    )


def _seen_of(fact: GroupFact | Unknown) -> str:
    if isinstance(fact, Unknown):
        return f"it cannot be seen ({fact.why})"
    where = fact.where
    on = f" on the {where.side}" if where.side else ""
    return f"it is {where.status}{on}" + (f" ({where.reason})" if where.reason else "")


@ROLLBACK.rule(lambda r: _begun(r) and (r.in_effect(Row.FENCE) or r.in_effect(Row.WIDE_DENY)))
def rollback_fence_gone(view: View) -> Decision | None:
    """Nothing of the DENY is left."""
    return _deny_gone(view)


@ROLLBACK.rule(lambda r: _touched(r) and r.in_effect(Row.SWITCH_PRODUCERS), Fact.TARGET)
def nothing_lost_on_target(view: View) -> Decision | None:
    """No rollback ends, and no target is deleted, while records that nobody reads are on it."""
    return _target_unused(view)


@ROLLBACK.rule(lambda r: _begun(r) and r.in_effect(Row.LENGTHEN_RETENTION))
def retention_restored(view: View) -> Decision | None:
    """The source keeps its records as long as before."""
    return act(Act.RESTORE_RETENTION, "the migration is rolled back")


@ROLLBACK.rule(lambda r: _begun(r) and r.in_effect(Row.CREATE_TARGET))
def target_deleted(view: View) -> Decision | None:
    """The target goes, if this migration made it and it is empty."""
    return act(Act.DELETE_TARGET, "the migration is rolled back")


@ROLLBACK.rule(lambda r: _begun(r) and r.in_effect(Row.ARM))
def rollback_disarmed(view: View) -> Decision | None:
    """Participants follow at leisure again."""
    return act(Act.DISARM, "the migration is rolled back")


@ROLLBACK.rule(_begun)
def rolled_back(view: View) -> Decision | None:
    """The end of the rollback."""
    return act(Act.FINISH_ROLLBACK, "everything is as it was before")
