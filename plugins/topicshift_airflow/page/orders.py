"""The orders that a person may give from the page, each with what it will do.

Nothing is done here: the browser triggers ``topic_control`` or ``topic_rollback`` by Airflow's own API, which checks
the rights and names the user.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from topicshift.acts import orders
from topicshift.acts.close import close_lines, not_closed
from topicshift.acts.replay_order import not_replayed
from topicshift.core.drain.replay import HEADER
from topicshift.core.engine.hold import paused
from topicshift.core.engine.snapshot import record_to_show
from topicshift.core.engine.view import Record
from topicshift.core.engine.words import MigrationState, Row
from topicshift.core.page.listing import Shown
from topicshift_airflow.operators.orders import REASONED
from topicshift_airflow.page.rights import CONTROL, ROLLBACK

RED_RUN: Final = "if its run in Airflow still goes on, that ends red (failed), as it did not reach its own end"
"""What becomes of the run of a migration that an order ends."""


@dataclass(frozen=True)
class Order:
    """One button. ``does``: what will happen, as far as the journal tells; ``cannot``: why it would be refused now, and
    then nothing will happen.

    ``reasoned``: it is refused without a reason, as on the command line.

    ``looks``: what holds is looked up on the cluster before anything is done. ``may``: whether this user may give it.
    """

    order: str
    label: str
    dag_id: str
    does: tuple[str, ...]
    cannot: str = ""
    looks: bool = False
    may: bool = False
    grave: bool = False
    reasoned: bool = False


def offered(found: Shown, page: Mapping[str, Any], may: frozenset[str], now: datetime) -> list[dict[str, Any]]:
    """The orders that make sense for this migration now. ``page``: what is shown of it, with its way back to expect
    (``rollback``) and its late records (``late``)."""
    record, back, late = found.record, page["rollback"], page["late"]
    out = list[Order]()
    if record.state is MigrationState.OPEN and not record.over:
        out += _holds(record, now)
        if record.freeze is not None and not record.mirrored:
            out.append(_resume(record))
        out.append(_abort(record, back))
        if late is not None and late["unseen"] != 0 and not record.mirrored:
            out.append(_replay(record, late))
    if _can_go_back(record):
        out.append(_roll_back(record, back))
    if not record.over:
        out.append(_close(record_to_show(found.row, found.steps), record))
    return [
        {
            **asdict(o),
            "does": () if o.cannot else o.does,
            "may": o.dag_id in may,
            "reasoned": o.order in (*REASONED, "roll back"),
        }
        for o in out
    ]


def _holds(record: Record, now: datetime) -> list[Order]:
    out = []
    if paused(record) or record.postponed_until is not None:
        going = orders.go_on_prospect(record)
        out.append(Order("go on", "Go on", CONTROL, going.does, going.cannot))
    if not paused(record):
        pause = orders.pause_prospect(record)
        out.append(Order("pause", "Pause", CONTROL, pause.does, pause.cannot))
    if record.freeze is None and not record.in_effect(Row.SWITCH_PRODUCERS):
        # Whether it can be postponed at all does not depend on the moment that is chosen.
        later = orders.postpone_prospect(record, now + timedelta(days=1), now)
        does = ("the freeze does not begin before the time that you give, else before the next window of the spec; "
                "what comes before it goes on", *later.does[1:])  # fmt: skip
        out.append(Order("postpone", "Postpone", CONTROL, does if not later.cannot else (), later.cannot))
    return out


def _resume(record: Record) -> Order:
    does: tuple[str, ...] = (
        f"the freeze ends: producers resume on {record.source}, and the DENY is lifted",
        RED_RUN,
        "to try again, clear the failed tasks of its run; to end it, abort",
    )
    if record.in_effect(Row.SWITCH_PRODUCERS):
        asked = (
            f"producers are being pointed to {record.target} already: the cluster is asked whether one may write "
            "there, and this is done only where it is certain that none does"
        )
        does = (asked, *does)
    return Order("resume on source", "End the freeze", CONTROL, does, looks=True, grave=True)


def _abort(record: Record, back: Mapping[str, Any]) -> Order:
    if orders.rolling_back(record):
        return Order("abort", "Abort", CONTROL, ("the rollback that was begun is finished",), looks=True, grave=True)
    kind, why = back.get("kind"), back.get("why")
    cannot = "" if kind in ("free", None) else f"the way back is {kind}: {why}"
    does = (*orders.abort_lines(record), RED_RUN)
    return Order("abort", "Abort", CONTROL, does, cannot, looks=True, grave=True)


def _can_go_back(record: Record) -> bool:
    if record.mirrored:
        return True
    alive = record.state in (MigrationState.OPEN, MigrationState.DONE) and not record.policy.rehearsal
    return alive and record.in_effect(Row.CREATE_TARGET)


def _roll_back(record: Record, back: Mapping[str, Any]) -> Order:
    kind = back.get("kind")
    does = [f"{kind}, as the engine saw the cluster last: {back.get('why')}"] if kind else []
    does += [str(back["does"])] if back.get("does") else []
    does.append(
        "the type of rollback is worked out on the cluster, and you are asked for exactly that before it begins"
    )
    if record.state is MigrationState.OPEN:
        does.append(
            "refused while the migration's own run still runs: abort it instead, or mark that run as failed first"
        )
    cannot = f"{back.get('why')}" if kind == "forward_only" else ""
    return Order("roll back", "Roll back", ROLLBACK, tuple(does), cannot, looks=True, grave=True)


def _replay(record: Record, late: Mapping[str, Any]) -> Order:
    unseen, groups = late["unseen"], ", ".join(late["groups"])
    records = "records" if unseen is None else "1 record" if unseen == 1 else f"{unseen:,} records"
    more = unseen - len(late["records"]) if unseen is not None else 0
    does = [
        f"{records} that came to {record.source} too late for {groups or 'some groups'} go to {record.target}: "
        "all of them, or those that you name",
        *(one["line"] for one in late["records"]),
        *([f"and {more:,} more, see strays.json"] if late["records"] and more > 0 else []),
        "a group that has read one of them already gets it a second time; a key with later records in the target gets "
        "it after those: look first, and each is named",
        f"each gets the header {HEADER} with its place on {record.source}; the order proof is made anew",
        f"it cannot be taken back: a group that went back to {record.source} would get them twice",
    ]
    cannot = not_replayed(record)
    if not cannot and not late["complete"]:
        cannot = "more records came than were named one by one; a replay would be of a part of them"
    return Order("replay", "Replay late records", CONTROL, tuple(does), cannot, looks=True, grave=True)


def _close(held: Record, record: Record) -> Order:
    cannot = not_closed(record)
    if cannot and record.freeze is not None:
        cannot = (
            f"producers of {record.source} may stand still for it: end the freeze first. Where that cannot tell where "
            f"producers are, look at each, then: topicshift close --even-frozen {record.migration_id}"
        )
    ends = (RED_RUN,) if record.state is MigrationState.OPEN else ()
    does = () if cannot else (*close_lines(held, record), *ends)
    return Order("close", "Close the migration", CONTROL, does, cannot, looks=True, grave=True)
