"""Going back after the switch: the protocol with source and target exchanged, on rows of the same migration.

A rollback of the type ``drain_back`` is decided by the rules of a migration that goes forward, on a *mirrored* record:
the target is what is fenced and drained, the source is where producers and groups go. Its journal rows have the names
of the forward rows behind a prefix, so one migration, one claim and one seat hold for both ways.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from topicshift.core.engine.view import Record, StepRecord
from topicshift.core.engine.words import DENIES, Ask, MigrationState, Row, StepState, plain_name, way_of

TYPE: Final = "drain_back"
_ANSWERED: Final = frozenset({Ask.FREEZE, Ask.CERTIFICATE})
"""What a yes to the rollback covers: it was shown what would happen, and that it begins at once, window or not."""
_SIDE: Final = re.compile(r"\bthe (source|target)\b")
_QUESTION: Final = f"{Row.QUESTION.value}:"


def way_back(record: Record) -> str:
    """What stands before the rows of the way back that is under way; empty where none is."""
    row = record.step(Row.ROLLBACK)
    if row is None or row.state is not StepState.INTENDED or row.data.get("type") != TYPE:
        return ""
    return way_of(int(row.data["way"]))


def named_on(way: str, step: str) -> str:
    """The journal name of a row on this way. Questions have one row for all ways: each says what it is about."""
    return step if not way or step.startswith(_QUESTION) else way + step


def mirror(record: Record, way: str) -> Record:
    """The record of a way back: source and target exchanged, with the rows of that way alone.

    What stands for the target's making is the source as the first fence left it. The DENYs of every other way are in it
    too, under the names of those ways, for a request may be late with one; the way forward counts as way 0.
    """
    steps = {name.removeprefix(way): row for name, row in record.steps.items() if name.startswith(way)}
    steps |= {name: row for name, row in record.steps.items() if name.startswith(_QUESTION)}
    for name, row in record.steps.items():
        if plain_name(name) in DENIES and not name.startswith(way):
            steps[named_on(way_of(0), name) if name in DENIES else name] = row
    steps[Row.CREATE_TARGET.value] = StepRecord(StepState.DONE, _made(record))
    steps[Row.FIRST_DENY.value] = _first_deny(record)
    return replace(
        record,
        source=record.target,
        target=record.source,
        state=MigrationState.OPEN,
        active=True,
        policy=replace(record.policy, required=record.policy.required - _ANSWERED, window=None),
        steps=steps,
        way=way,
    )


def in_names(record: Record, text: str) -> str:
    """A rule's words for a person: on a way back the topics by their names, since the rules exchange the two."""
    if not record.mirrored:
        return text
    return _SIDE.sub(lambda found: record.source if found[1] == "source" else record.target, text)


def live(record: Record) -> Record:
    """The record that decides now: the mirrored one while the migration goes back."""
    way = way_back(record)
    return mirror(record, way) if way else record


def _data(record: Record, row: Row) -> Mapping[str, Any]:
    found = record.step(row)
    return found.data if found is not None else {}


def _made(record: Record) -> dict[str, Any]:
    made, fence = _data(record, Row.CREATE_TARGET), _data(record, Row.FENCE).get("record") or {}
    return {
        "ours": False,
        "topic_id": fence.get("topic_id"),
        "partitions": fence.get("partitions"),
        "source_id": made.get("topic_id"),
        "acls_added": [],
        "may_write": list(made.get("may_write", ())),
        "holds": {int(p): int(o) for p, o in (fence.get("fence_offsets") or {}).items()},
    }


def _first_deny(record: Record) -> StepRecord:
    """The DENY bindings of the way forward, which keep everybody off the source: one row for both of them."""
    rows = [record.step(row) for row in (Row.FENCE, Row.WIDE_DENY)]
    in_effect = any(row is not None and row.state.in_effect for row in rows)
    added = [acl for row in rows if row is not None for acl in row.data.get("acls_added", ())]
    return StepRecord(StepState.DONE if in_effect else StepState.UNDONE, {"acls_added": added})
