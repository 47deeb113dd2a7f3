"""The audit trail: events that are chained by hash, so that a changed, missing or reordered row shows.

Each event's hash is SHA-256 over the canonical JSON of all its fields, the hash of the event before it among them. The
first one's predecessor is the genesis hash, which is bound to the migration's id, so that a trail cannot be passed off
as another migration's. How many events there are and the last hash stand in the migration's own row; without them a
trail that was cut off at its end would look whole. See ``docs/audit.md`` for what this proves and what it does not.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from enum import Enum, StrEnum
from pathlib import PurePath
from typing import Any

from topicshift.core.base import Model
from topicshift.core.rows import EventRow, MigrationRow, StepRow

_FORMAT = "topicshift-audit/1"
_SECRET_KEY = re.compile(r"pass(word|wd|phrase)|secret|token|credential|private.?key|jaas", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(://[^/@\s:]*):[^/@\s]+@")
MASK = "***"
_AS_IT_IS = frozenset((int, bool, type(None)))
_TEXT = (str, bytes)
"""What stands in place of a value that looks like a secret."""


class ProblemKind(StrEnum):
    """What is wrong with a row of the trail."""

    CHANGED = "changed"
    MISSING = "missing"
    REORDERED = "reordered"
    FOREIGN = "foreign"
    TRUNCATED = "truncated"
    EXTRA = "extra"
    UNREADABLE = "unreadable"


class Problem(Model):
    """One broken place of a trail. ``seq`` is the number of the row, or of the first row that is not there."""

    seq: int
    kind: ProblemKind
    seen: str

    def line(self) -> str:
        """One line for a terminal or a log."""
        return f"row {self.seq}: {self.kind.value}: {self.seen}"

    @classmethod
    def of(cls, seq: int, kind: ProblemKind, seen: str) -> Problem:
        """A problem of a row."""
        return cls(seq=seq, kind=kind, seen=seen)


class ChainHead(Model):
    """The end of a trail as the migration's row keeps it: number of events, hash of the last one."""

    count: int
    hash: str


def plain(value: Any) -> Any:  # noqa: C901 - a branch for each type that the journal takes
    """``value`` as plain JSON values, ready to be stored and hashed; what looks like a secret becomes ``***``.

    Keys become strings, tuples and sets lists (sets sorted), models, dataclasses, enums, times and paths their JSON
    form. Numbers that JSON does not have (``nan``, ``inf``) become strings. Raises ``TypeError`` for anything else.
    """
    kind = type(value)
    if kind is str:
        return _URL_PASSWORD.sub(rf"\1:{MASK}@", value) if "://" in value else value
    if kind in _AS_IT_IS:
        return value
    if kind is dict:
        return _object(value)
    if kind is list or kind is tuple:
        return [plain(v) for v in value]
    if isinstance(value, int):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, str):
        return _URL_PASSWORD.sub(rf"\1:{MASK}@", value)
    if isinstance(value, Mapping):
        return _object(value)
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(v) for v in value), key=canonical_json)
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "model_dump"):
        return plain(value.model_dump(mode="json"))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _masked(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)}
    raise TypeError(f"{type(value).__name__} cannot be written to the journal; give plain JSON values.")


def _object(value: Mapping[Any, Any]) -> dict[str, Any]:
    return {key: _masked(key, v) for k, v in value.items() for key in [k if type(k) is str else _key(k)]}


def _key(key: Any) -> str:
    if isinstance(key, Enum):
        key = key.value
    if isinstance(key, str):
        return key
    if isinstance(key, bool) or not isinstance(key, int):
        raise TypeError(f"{key!r} cannot be a key of a JSON object; use a string or a whole number.")
    return str(key)


@functools.lru_cache(maxsize=1024)
def _is_secret(key: str) -> bool:
    return _SECRET_KEY.search(key) is not None


def _masked(key: str, value: Any) -> Any:
    if isinstance(value, _TEXT) and value and _is_secret(key):
        return MASK
    return plain(value)


def canonical_json(value: Any) -> str:
    """The one spelling of a JSON value that is hashed: keys sorted, no white space, ASCII, no ``NaN``."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def genesis_hash(migration_id: str) -> str:
    """The hash that the first event of this migration names as its predecessor."""
    return hashlib.sha256(canonical_json([_FORMAT, migration_id]).encode()).hexdigest()


def hash_of(event: EventRow) -> str:
    """SHA-256, in hex, that this event should carry: over the canonical JSON of its fields, of which ``data`` must be
    plain already (see :func:`plain`).
    """
    body = {f.name: getattr(event, f.name) for f in dataclasses.fields(EventRow) if f.name != "hash"}
    return hashlib.sha256(canonical_json({**body, "format": _FORMAT}).encode()).hexdigest()


def verify(events: Iterable[EventRow], head: ChainHead, *, migration_id: str) -> list[Problem]:
    """Every broken place of a trail, in the order of the rows; none means that it is intact.

    ``events`` are the rows in the order in which they are stored; ``head`` is what the migration's row says about the
    end. Found are: a row whose content does not give its hash (changed), rows left out (missing), rows not in the
    order of their numbers (reordered), a row of another migration (foreign), a trail that is shorter than the head
    says (truncated) or longer (extra), and a head that names another last hash.
    """
    rows = list(events)
    problems = [*_order(rows, migration_id), *_content(rows, migration_id), *_end(rows, head, migration_id)]
    return sorted(problems, key=lambda p: p.seq)


def verify_part(rows: Sequence[EventRow], migration_id: str, after: int, before_hash: str) -> list[Problem]:
    """Every broken place among rows that follow row ``after``, whose hash is ``before_hash`` (nothing for the first).

    Together with what was verified before they are as good as the whole trail; its end is for the caller to compare.
    """
    known = {after: before_hash} if after else {}
    problems = [*_order(rows, migration_id, after + 1), *_content(rows, migration_id, known)]
    return sorted(problems, key=lambda p: p.seq)


def _order(rows: Sequence[EventRow], migration_id: str, wanted: int = 1) -> list[Problem]:
    problems: list[Problem] = []
    for row in rows:
        if row.migration_id != migration_id:
            problems.append(Problem.of(row.seq, ProblemKind.FOREIGN, f"belongs to migration {row.migration_id!r}"))
        if row.seq < wanted:
            problems.append(Problem.of(row.seq, ProblemKind.REORDERED, f"stands where row {wanted} should be"))
            continue
        if row.seq > wanted:
            gap = f"row {wanted} is" if row.seq == wanted + 1 else f"rows {wanted} to {row.seq - 1} are"
            problems.append(Problem.of(wanted, ProblemKind.MISSING, f"{gap} not there before row {row.seq}"))
        wanted = row.seq + 1
    return problems


def _content(rows: Sequence[EventRow], migration_id: str, known: Mapping[int, str] | None = None) -> list[Problem]:
    problems: list[Problem] = []
    before = {**(known or {}), **{row.seq: row.hash for row in rows}}
    for row in rows:
        try:
            wanted = hash_of(row)
        except (TypeError, ValueError) as exc:
            problems.append(Problem.of(row.seq, ProblemKind.UNREADABLE, f"cannot be hashed: {exc}"))
            continue
        previous = genesis_hash(migration_id) if row.seq == 1 else before.get(row.seq - 1)
        if wanted != row.hash:
            seen = f"its content gives the hash {wanted[:12]}..., it carries {row.hash[:12]}..."
        elif previous is not None and row.prev_hash != previous:
            seen = f"it follows a row with hash {row.prev_hash[:12]}..., the row before has {previous[:12]}..."
        else:
            continue
        problems.append(Problem.of(row.seq, ProblemKind.CHANGED, seen))
    return problems


def _end(rows: Sequence[EventRow], head: ChainHead, migration_id: str) -> list[Problem]:
    last = max(rows, key=lambda row: row.seq, default=None)
    seq, found = (last.seq, last.hash) if last is not None else (0, genesis_hash(migration_id))
    if seq < head.count:
        seen = f"the trail ends at row {seq}, the migration counts {head.count} events"
        return [Problem.of(seq + 1, ProblemKind.TRUNCATED, seen)]
    if seq > head.count:
        seen = f"the migration counts {head.count} events, the trail goes on to row {seq}"
        return [Problem.of(head.count + 1, ProblemKind.EXTRA, seen)]
    if found != head.hash:
        seen = f"the last row has the hash {found[:12]}..., the migration names {head.hash[:12]}..."
        return [Problem.of(seq, ProblemKind.CHANGED, seen)]
    return []


def verify_noted(events: Iterable[EventRow], noted: ChainHead) -> list[str]:
    """Whether a trail still begins with what it was when ``noted`` was written down elsewhere; none means it does.

    This is what finds a trail that somebody with all rights has rewritten from some row on, head and all.
    """
    row = next((event for event in events if event.seq == noted.count), None)
    if noted.count == 0 or (row is not None and row.hash == noted.hash):
        return []
    if row is None:
        return [f"row {noted.count}: truncated: it was there when the head was noted, and is not now"]
    return [
        f"row {noted.count}: changed: its hash was {noted.hash[:12]}... when it was noted, it is {row.hash[:12]}..."
    ]


def verify_steps(steps: Iterable[StepRow], events: Iterable[EventRow]) -> list[str]:
    """Every step whose row is not what the trail says was written last, in words; none means that they agree.

    The journal writes an event with each change of a step, in the same transaction, so the trail tells what each row
    must hold: the data of the intent, with the data of the end laid over it.
    """
    return compare_steps(steps, steps_told(events))


Told = Mapping[str, tuple[str, Mapping[str, Any]]]
"""What a trail says of each step: its state, and its data."""


def steps_told(events: Iterable[EventRow], before: Told | None = None) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """What these events say of each step, laid over what earlier ones have said."""
    told = dict(before or {})
    for event in events:
        name = event.data.get("step")
        if not isinstance(name, str):
            continue
        if event.kind == "step_intended":
            told[name] = ("intended", dict(event.data.get("data", {})))
        elif event.kind == "step_finished":
            kept = told.get(name, ("", {}))[1]
            told[name] = (str(event.data.get("state")), {**kept, **event.data.get("data", {})})
    return told


def compare_steps(steps: Iterable[StepRow], said: Told) -> list[str]:
    """Every step whose row is not what the trail says of it, in words."""
    told = dict(said)
    problems = []
    for step in steps:
        if step.step not in told:
            problems.append(f"step {step.step}: it is {step.state}, the trail does not know it")
            continue
        state, data = told.pop(step.step)
        if step.state != state:
            problems.append(f"step {step.step}: it is {step.state}, the trail says {state}")
        elif canonical_json(dict(step.data)) != canonical_json(data):
            problems.append(f"step {step.step}: its data is not what the trail says was written")
    return problems + [
        f"step {name}: the trail says {state}, its row is not there" for name, (state, _) in told.items()
    ]


_OF_THE_ROW = frozenset({"source", "target", "cluster_id", "spec"})


def verify_row(row: MigrationRow, events: Iterable[EventRow]) -> list[str]:
    """Every field of a migration's own row that the trail says otherwise, in words; none means that they agree.

    Compared are its topics and cluster, its spec, its state and its plan: what the trail has a word of.
    """
    told: dict[str, Any] = {}
    active = False
    for event in events:
        if event.kind in ("claimed", "reopened"):
            # Opened again while it is under way it keeps the spec that it began with.
            kept = {"spec"} if active else set()
            told |= {k: v for k, v in event.data.items() if k in _OF_THE_ROW - kept}
            told["state"] = "open"
        elif event.kind == "state":
            told["state"], active = event.data.get("state"), bool(event.data.get("active"))
        elif event.kind == "replaced":
            told["state"], active = "failed" if told.get("state") == "open" else told.get("state"), False
        elif event.kind == "plan":
            told["plan_hash"] = event.data.get("plan_hash")
    seen = dataclasses.asdict(row)
    return [
        f"{name}: it is not what the trail says was written last"
        for name, value in told.items()
        if canonical_json(plain(seen[name])) != canonical_json(value)
    ]
