"""Rollback of the type ``free``: nothing was written to the target yet, so everything is put back as it was."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from topicshift.acts.participants import (
    FREEZE,
    SWITCH_PRODUCERS,
    Cast,
    Progress,
    back_to_source,
    consumers_of,
    describe,
    producers_of,
    switch_step,
    unfence_and_return,
    used_offsets,
    wait_for,
)
from topicshift.core.engine import states
from topicshift.core.engine.states import Rollback as Rollback
from topicshift.core.errors import AmbiguousState, Refused
from topicshift.core.spec.model import Spec
from topicshift.ports import Claim, Clock, ClusterAdmin, Journal, MigrationRow

ROLLBACK_LEASE = timedelta(seconds=60)


def rollback_type(row: MigrationRow, admin: ClusterAdmin) -> tuple[Rollback, str]:
    """The type of rollback that holds right now, and why. Raises ``AmbiguousState`` where it cannot be told."""
    kind, why = states.rollback_type(
        state=row.state,
        source_exists=admin.topic(row.source) is not None,
        target_records=used_offsets(admin, row.target),
    )
    if kind is None:
        raise AmbiguousState(
            f"{row.target} cannot be read, so it cannot be told whether something was written to it ({why}). "
            "Nothing was changed. Make the cluster reachable and try again."
        )
    return kind, f"{row.source} to {row.target}: {why}"


def roll_back(
    cast: Cast,
    row: MigrationRow,
    spec: Spec,
    *,
    admin: ClusterAdmin,
    journal: Journal,
    claim: Claim,
    clock: Clock,
    unfence: Callable[[], object],
    restore_retention: Callable[[], object],
    delete_target: Callable[[], object],
    progress: Progress,
) -> dict[str, Any]:
    """Put everything back on the source and delete the empty target. Safe to repeat.

    Producers that are on the target already are stopped first, and the target is looked at once more: only if it
    is still empty do they go back. Raises ``Refused`` when rollback is not free.
    """
    kind, why = rollback_type(row, admin)
    if kind is not Rollback.FREE:
        raise Refused(_not_free(row, kind, why))
    journal.intend(claim, "rollback", {"type": kind.value, "why": why})
    producers, consumers = producers_of(spec), consumers_of(spec)
    driven = [p for p in producers if not cast.controllers[p.kind].needs_person]
    freeze, switch = (journal.step(row.migration_id, s) for s in (FREEZE, SWITCH_PRODUCERS))
    touched = freeze is not None and freeze.state in ("intended", "failed", "done")
    if touched and driven:
        held = cast.with_lease(clock.now() + ROLLBACK_LEASE)
        if switch is not None and switch.state in ("intended", "done"):
            for controller, ps in held.each(driven):
                controller.stop(held.context, ps)
            wait_for(
                held,
                driven,
                lambda s: s.status == "stopped",
                what="every producer says stopped",
                clock=clock,
                deadline=clock.now() + ROLLBACK_LEASE / 2,
                progress=progress,
            )
            kind, why = rollback_type(row, admin)
            if kind is not Rollback.FREE:
                # They were on the target a moment ago and belong there: let them go on.
                for controller, ps in held.each(driven):
                    controller.point(held.context, ps, row.target)
                    controller.start(held.context, ps)
                raise Refused(_not_free(row, kind, why))
    by_hand = [p.name for p in producers if p not in driven]
    for consumer in consumers:
        step = journal.step(row.migration_id, switch_step(consumer.group or ""))
        if step is not None and step.state in ("intended", "done"):
            back_to_source(cast, [consumer])
        if step is not None and cast.controllers[consumer.kind].needs_person:
            # A person has stopped it for the switch, or started it on the target, whatever an earlier try wrote down.
            by_hand.append(f"{consumer.name} (group {consumer.group})")
        if step is not None and step.state in ("intended", "done"):
            journal.finish(claim, switch_step(consumer.group or ""), {}, state="undone")
    unfence_and_return(cast, driven if touched else [], unfence)
    said = ""
    if touched and driven:
        seen = wait_for(
            cast,
            driven,
            lambda s: s.status == "running" and s.topic == row.source,
            what=f"every producer runs on {row.source} again",
            clock=clock,
            deadline=clock.now() + ROLLBACK_LEASE,
            progress=progress,
        )
        said = describe(seen)
    now = clock.now().isoformat()
    for name, step in ((SWITCH_PRODUCERS, switch), (FREEZE, freeze)):
        if step is not None and step.state in ("intended", "failed", "done"):
            journal.finish(claim, name, {"ended_at": now, "how": "rolled back"}, state="undone")
    restore_retention()
    delete_target()
    journal.finish(claim, "rollback", {"finished_at": now})
    journal.event(claim, "rolled_back", claim.owner, {"why": why, "states": said})
    journal.set_state(claim, "rolled_back", active=False)
    return {"type": kind.value, "why": why, "start_by_hand": by_hand}


def _not_free(row: MigrationRow, kind: Rollback, why: str) -> str:
    if kind is Rollback.FORWARD_ONLY:
        return f"There is no way back for {row.migration_id}: {why}. Go forward: migrate {row.target} to a new topic."
    return (
        f"Rollback of {row.migration_id} is not free: {why}. Nothing was changed. The way back is a migration with "
        f"source and target exchanged: every group drains {row.target} before anybody returns to {row.source}."
    )
