"""Which freezes nobody ends any more. Looks alone; what is done then is the engine's decision."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from topicshift.core.engine.freeze import Freeze, abandoned
from topicshift.core.engine.mirror import TYPE
from topicshift.core.engine.need import BROKEN_OFF, RUN_ENDED, WENT_ON
from topicshift.core.engine.words import MigrationState, Row, StepState, way_of
from topicshift.core.errors import OwnershipLost
from topicshift.core.rows import Claim
from topicshift.core.spec.model import Mode
from topicshift_airflow import airflow_api
from topicshift_airflow.runtime import owner_alive

if TYPE_CHECKING:
    from topicshift.ports import Journal, MigrationRow

RESUME_DAG = "topic_resume_on_source"


def judge(opened: Journal, row: MigrationRow, now: datetime) -> str | None:
    """Why nobody will end the freeze of this migration; empty for one that somebody may still end, None without one."""
    steps = {s.step: s for s in opened.steps(row.migration_id)}
    back, way = steps.get(Row.ROLLBACK), way_under_way(opened, row.migration_id)
    freeze, switch = (steps.get(way + r) for r in (Row.FREEZE, Row.SWITCH_PRODUCERS))
    running = (StepState.INTENDED, StepState.UNDOING)
    if (row.state != MigrationState.OPEN and not way) or freeze is None or freeze.state not in running:
        return None
    over, why = abandoned(
        freeze=Freeze.from_data(freeze.data),
        owner_alive=owner_alive(row.owner),
        rolling_back=not way and back is not None and back.state == StepState.INTENDED,
        pointing=switch is not None and StepState(switch.state).in_effect,
        now=now,
    )
    return why if over else ""


def way_under_way(opened: Journal, migration_id: str) -> str:
    """What stands before the rows of the way back that is under way; empty where none is."""
    back = opened.step(migration_id, Row.ROLLBACK)
    if back is None or back.state != StepState.INTENDED or back.data.get("type") != TYPE:
        return ""
    return way_of(int(back.data["way"]))


def find(opened: Journal, now: datetime) -> list[tuple[MigrationRow, str]]:
    """Migrations with an abandoned freeze, each with the reason."""
    judged = [(row, judge(opened, row, now)) for row in opened.find(active=True)]
    return [(row, why) for row, why in judged if why]


def note_ended(opened: Journal, row: MigrationRow) -> bool:
    """Whether the run has ended, or is not known to Airflow any more; of an open migration that is written down, once.

    Status tells it: nobody asks that run's questions, and nothing of it goes on by itself.
    """
    if owner_alive(row.owner) is not False:
        return False
    if row.state != MigrationState.OPEN:
        return True
    dag_id, _, run_id = row.owner.partition("/")
    last = opened.events(row.migration_id, {*BROKEN_OFF, WENT_ON})
    if not last or last[-1].kind != RUN_ENDED:
        claim = Claim(row.migration_id, row.epoch, row.owner)
        said = {"owner": row.owner, "state": airflow_api.run_state(dag_id, run_id)}
        opened.event(claim, RUN_ENDED, RESUME_DAG, said)
    return True


def note_all(opened: Journal) -> None:
    """:func:`note_ended` for every migration."""
    for row in opened.find():
        if row.state != MigrationState.OPEN:
            continue
        with suppress(OwnershipLost):  # somebody has taken it over at this moment, so it goes on
            note_ended(opened, row)


def rehearsals(opened: Journal) -> list[str]:
    """Rehearsals whose run has ended before they did: what they have made is still there."""
    rows = [r for r in opened.find() if r.state == MigrationState.OPEN and r.spec.get("mode") == Mode.REHEARSE]
    return [r.migration_id for r in rows if owner_alive(r.owner) is False]


def look(opened: Journal, migration_id: str, *, ask_airflow: bool = True) -> str | None:
    """``abandoned``, ``over`` where nothing is left to watch, or None: look again.

    While no freeze is under way, the state of the owner's run is asked of Airflow only where ``ask_airflow`` says so.
    """
    row = opened.current(migration_id)
    why = judge(opened, row, datetime.now(UTC))
    if why is None:
        way = way_under_way(opened, row.migration_id)
        moved = opened.step(migration_id, way + Row.SWITCH_PRODUCERS)
        ended = (row.state != MigrationState.OPEN and not way) or (moved is not None and moved.state == StepState.DONE)
        return "over" if ended or (ask_airflow and note_ended(opened, row)) else None
    return "abandoned" if why else None
