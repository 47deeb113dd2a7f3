"""Who may act on which topic: the rules of claims, as pure decisions that every journal follows.

A migration holds both of its topics from its claim until it is closed. It is *active* from the first intent of a step
that changes something; from then on nobody is given its topics, however dead its run is, because producers may stand
still or a target may exist that only this migration's steps explain. Before that, a run that has ended is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from topicshift.core.engine.words import READ_ONLY_ROWS, MigrationState, StepState, label, plain_name
from topicshift.core.rows import Claim, EventRow, MigrationRow, Seat


class Own(Enum):
    """What a claim by the owner of an earlier claim on the same topics comes to."""

    NEW = "new"
    RETURN = "return"
    REOPEN = "reopen"


def migration_state(state: str) -> MigrationState:
    """The state of this name. Raises ``ValueError`` for a name that is none."""
    if state not in {s.value for s in MigrationState}:
        raise ValueError(f"{state!r} is no state of a migration; there are {', '.join(MigrationState)}")
    return MigrationState(state)


def step_state(state: str) -> StepState:
    """The state of this name. Raises ``ValueError`` for a name that is none."""
    if state not in {s.value for s in StepState}:
        raise ValueError(f"{state!r} is no state of a step; there are {', '.join(StepState)}")
    return StepState(state)


def is_acting(step: str) -> bool:
    """Whether the intent of this step makes its migration active. What follows a colon names its subject."""
    return plain_name(step).split(":", 1)[0] not in READ_ONLY_ROWS


def is_closed(state: str, active: bool) -> bool:
    """Whether a migration in this state gives its topics free."""
    return not active and state != MigrationState.OPEN


def called_off(row: MigrationRow) -> bool:
    """Whether it was aborted, closed or rolled back, and nothing of it is under way any more."""
    return row.state in (MigrationState.FAILED, MigrationState.ROLLED_BACK) and not row.active


def intent_refused(migration_id: str, step: str, before: str | None) -> str | None:
    """Why a step in this state cannot be intended, None if it can."""
    if before != StepState.UNDOING:
        return None
    return (
        f"Step {label(step)} of migration {migration_id} is being taken back at this moment, so it is not begun again. "
        "Wait until it has been taken back."
    )


def finish_refused(migration_id: str, step: str, before: str | None, after: StepState) -> str | None:
    """Why a step cannot go from one state to the other, None if it can. ``before`` None: it was never intended."""
    if before is None:
        return _never_intended(migration_id, step) if is_acting(step) else None
    wrong = (after is StepState.INTENDED and before not in (StepState.INTENDED, StepState.UNDOING)) or (
        after is StepState.UNDOING and before == StepState.UNDONE
    )
    return f"Step {step} of migration {migration_id} is {before}, so it cannot become {after}." if wrong else None


def own_claim(earlier: MigrationRow | None) -> Own:
    """A repeated claim gets the same claim back; one that failed or was rolled back before is opened again."""
    if earlier is None:
        return Own.NEW
    if earlier.state in (MigrationState.FAILED, MigrationState.ROLLED_BACK):
        return Own.REOPEN
    return Own.RETURN


def closing(events: Sequence[EventRow]) -> str | None:
    """Who closed a migration for good, when and why; None where nobody did, or it was opened again since."""
    last = next((e for e in reversed(events) if e.kind in ("closed", "reopened")), None)
    if last is None or last.kind == "reopened":
        return None
    return f"{last.actor} closed it at {last.at}: {last.data.get('reason')}"


def reopen_refused(earlier: MigrationRow, events: Sequence[EventRow]) -> str | None:
    """Why an owner's earlier claim is not opened again, None if it is.

    What a person closed was left to people: since then nobody knows what became of it, and its topics were free.
    """
    closed = closing(events) if earlier.state == MigrationState.FAILED else None
    if closed is None:
        return None
    return (
        f"Migration {earlier.migration_id}, {earlier.source} to {earlier.target}, is not opened again: {closed}. What "
        "it left was left to people, and its topics were free since. Nothing was changed. Trigger a new run, which "
        "looks at everything and plans anew."
    )


def in_the_way(holders: Sequence[MigrationRow], owner: str, ended: Mapping[str, int]) -> list[MigrationRow]:
    """Those holders of a wanted topic that this owner's claim may not replace.

    ``ended`` maps a migration to the epoch at which its owner's run was found to have ended. An owner replaces its own
    earlier claim for another target, as long as that changed nothing.
    """
    return [h for h in holders if h.active or (h.owner != owner and ended.get(h.migration_id) != h.epoch)]


def refusal(holder: MigrationRow, *, alive: bool | None, source: str, target: str) -> str:
    """Why ``source`` and ``target`` cannot be claimed, by whom they are held, and how to go on."""
    topics = [t for t in (source, target) if t in (holder.source, holder.target)]
    what = f"{' and '.join(topics) or source} cannot be claimed: held by {holder.owner}"
    where = f"migration {holder.migration_id}, {holder.source} to {holder.target}"
    step = f"step {label(holder.step)}" if holder.step else "no step begun"
    if holder.active and alive is False:
        return (
            f"{what}, which has ended or was deleted, and left its {where}, under way at {step}. Only that migration "
            "knows what it changed, so another one would act blindly. To go on with it, clear the failed tasks of that "
            f"run; where Airflow does not show it any more: topicshift advance {holder.migration_id}. To end it in the "
            f"way that holds now: topicshift abort {holder.migration_id}, or topic_control with the order abort."
        )
    running = (
        "of which it cannot be told whether it still runs, so it counts as running"
        if alive is None
        else "which is running"
    )
    return (
        f"{what}, {running} ({where}, {step}). Two runs on one topic would undo each "
        f"other's work. Wait until it has ended; `topicshift status {holder.migration_id}` says what it waits for. To "
        f"end it: topicshift abort --what {holder.migration_id} says whether that can be done now, and how."
    )


def lost(claim: Claim, now: MigrationRow) -> str | None:
    """None if this claim still owns the migration, else the message that says who does."""
    migration_id, owner, epoch, now_owner, now_epoch = now.migration_id, claim.owner, claim.epoch, now.owner, now.epoch
    if (owner, epoch) == (now_owner, now_epoch):
        return None
    if now_epoch > epoch and owner == now_owner:
        return (
            f"Migration {migration_id} stands at epoch {now_epoch} by now, and this task of {owner} began under epoch "
            f"{epoch}: somebody else has gone on with it meanwhile, for instance to resume producers on the source. "
            "What was begun under the old epoch must stop; look at the migration again."
        )
    if now_epoch > epoch:
        return (
            f"Migration {migration_id} is owned by {now_owner} since epoch {now_epoch}; {owner} held epoch {epoch}. "
            "Going on would work against the new owner. Stop this run; look at the new owner's run instead."
        )
    return (
        f"Migration {migration_id} stands at epoch {now_epoch} of {now_owner} in the journal, but {owner} holds epoch "
        f"{epoch}. The journal is older than this claim (restored from a backup?), so what happened since cannot be "
        "told from it. Stop, and compare the journal with the cluster before anything is done."
    )


def _never_intended(migration_id: str, step: str) -> str:
    """Why a step that changes something cannot be finished without an intent."""
    return (
        f"Step {step} of migration {migration_id} was never intended, so it cannot be finished: the intent is written "
        "before the act, so that a run that dies in between is understood. Call intend first."
    )


def next_try(before: Seat | None, act: str, subject: str) -> int:
    """The number of this try of an act: one more than that of a seat for the same act which was never left."""
    return before.attempt + 1 if before is not None and (before.act, before.subject) == (act, subject) else 1


def seat_taken_over(before: Seat, act: str, subject: str, holder: str) -> dict[str, str]:
    """What the audit trail says of a seat that was taken over because its time was over."""
    return {
        "holder": holder,
        "act": act,
        "subject": subject,
        "from_holder": before.holder,
        "from_act": before.act,
        "from_subject": before.subject,
        "until": before.until,
    }
