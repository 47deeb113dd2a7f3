"""The proof: what was sent, processed, lost, duplicated and out of order, from the applications' own logs alone.

Nothing here asks Kafka or the product. The logs are those of :mod:`lab.load`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from topicshift.core.errors import NotFound, Unreadable
from topicshift.core.impact.partitioning import partition_of

_STOPPED = frozenset({"flushing", "paused", "blind"})
_GOING = frozenset({"running", "lease_expired"})
_EXAMPLES = 5


def prove(folder: str | Path) -> dict[str, Any]:
    """The proof from every log (``*.csv`` with its ``.events``) in the folder.

    Returns a JSON-ready dict:
        ``sent``: distinct records acknowledged to a producer; ``sent_by_topic``; ``keys``: distinct keys sent;
        ``groups.{name}``: ``processed`` (distinct records), ``lost`` (sent, never processed), ``duplicated`` (rows over
        the first of a record), ``out_of_order`` (records whose first processing came after that of a later one of the
        same key, over all topics), ``unacknowledged`` (processed, though no producer logged its acknowledgement), and
        ``examples`` of each fault as ``key/seq``;
        ``freeze_seconds``: the first producer stopped to the last one running again, summed over separate freezes,
        null while one has not ended; ``freezes``: each with ``seconds`` and the ``producers`` in it.

    Raises ``NotFound`` when there are no logs and ``Unreadable`` for one that is not a log.
    """
    paths = sorted(Path(folder).glob("*.csv"))
    logs = [_read(path) for path in paths]
    sent_logs = [rows for head, rows in logs if head["kind"] == "sent"]
    if not sent_logs:
        raise NotFound(f"There is no log of a producer in {folder}, so nothing can be proven. Was the load started?")
    sent_rows = pd.concat(sent_logs, ignore_index=True)
    names = pd.Index(pd.concat([rows["key"] for _, rows in logs]).unique())
    sent = np.unique(_ids(sent_rows, names))
    groups: dict[str, list[pd.DataFrame]] = {}
    for head, rows in logs:
        if head["kind"] == "processed":
            groups.setdefault(head["name"], []).append(rows)
    events = {path.stem: _events(path) for path, (head, _) in zip(paths, logs, strict=True) if head["kind"] == "sent"}
    freezes = find_freezes(events)
    return {
        "sent": len(sent),
        "sent_by_topic": {str(t): int(n) for t, n in sent_rows["topic"].value_counts().sort_index().items()},
        "keys": int(sent_rows["key"].nunique()),
        "groups": {name: judge_group(sent, pd.concat(rows), names) for name, rows in sorted(groups.items())},
        "freeze_seconds": total_freeze(freezes),
        "freezes": freezes,
    }


def placement(folder: str | Path, topic: str, partitions: int) -> dict[str, int]:
    """Whether a topic shows the placement that the impact predicts, from where the applications met its records.

    The prediction for a key is ``(murmur2(key) & 0x7fffffff) mod partitions``, as ``impact.json`` counts it.

    Returns ``records`` (rows of the logs of this topic), ``keys``, and ``misplaced_records`` and ``misplaced_keys``,
    those that lay elsewhere.
    """
    logs = [_read(path)[1] for path in sorted(Path(folder).glob("*.csv"))]
    rows = pd.concat(logs, ignore_index=True) if logs else pd.DataFrame({"topic": [], "key": [], "partition": []})
    rows = rows[rows["topic"] == topic]
    keys = rows["key"].unique()
    predicted = {key: partition_of("murmur2", str(key).encode(), partitions) for key in keys}
    wrong = rows[rows["key"].map(predicted) != rows["partition"]]
    return {
        "records": len(rows),
        "keys": len(keys),
        "misplaced_records": len(wrong),
        "misplaced_keys": int(wrong["key"].nunique()),
    }


def _read(path: Path) -> tuple[dict[str, Any], pd.DataFrame]:
    try:
        with path.open() as file:
            head = json.loads(file.readline().removeprefix("#"))
        rows = pd.read_csv(
            path,
            skiprows=1,
            dtype={"key": "string", "seq": "int64", "topic": "string", "partition": "int64", "t": "int64"},
        )
        if head["kind"] not in ("sent", "processed") or list(rows.columns[:2]) != ["key", "seq"]:
            raise ValueError("its head or its columns are not those of a log")
    except (ValueError, KeyError, OSError) as exc:
        raise Unreadable(f"{path} is no log of the load ({exc}), so what it says is unknown.") from exc
    return head, rows


def _events(path: Path) -> list[dict[str, Any]]:
    events = path.with_name(path.name + ".events")
    return [json.loads(line) for line in events.read_text().splitlines()] if events.exists() else []


def _ids(rows: pd.DataFrame, names: pd.Index[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """One number a record: the key's index and the sequence number."""
    keys = names.get_indexer(pd.Index(rows["key"])).astype(np.int64)
    ids: np.ndarray[Any, np.dtype[np.int64]] = (keys << 32) | rows["seq"].to_numpy(np.int64)
    return ids


def judge_group(sent: np.ndarray[Any, np.dtype[np.int64]], rows: pd.DataFrame, names: pd.Index[str]) -> dict[str, Any]:
    """The figures of one group; ``sent`` are sorted distinct ids, ``rows`` all that its processes logged."""
    ids = _ids(rows, names)
    order = np.argsort(rows["t"].to_numpy(), kind="stable")
    ids = ids[order]
    _, first = np.unique(ids, return_index=True)
    again = np.ones(len(ids), dtype=bool)
    again[first] = False
    once = ids[np.sort(first)]  # first processings, in the order of time
    keys, seqs = once >> 32, once & 0xFFFFFFFF
    by_key = np.argsort(keys, kind="stable")
    frame = pd.DataFrame({"key": keys[by_key], "seq": seqs[by_key]})
    highest = frame.groupby("key", sort=False)["seq"].cummax().to_numpy()
    late = once[by_key][frame["seq"].to_numpy() < highest]
    lost = np.setdiff1d(sent, once, assume_unique=True)
    extra = np.setdiff1d(once, sent, assume_unique=True)
    return {
        "processed": len(once),
        "lost": len(lost),
        "duplicated": int(again.sum()),
        "out_of_order": len(late),
        "unacknowledged": len(extra),
        "examples": {
            "lost": _words(lost, names),
            "duplicated": _words(ids[again], names),
            "out_of_order": _words(late, names),
        },
    }


def _words(ids: Iterable[Any], names: pd.Index[str]) -> list[str]:
    return [f"{names[int(i) >> 32]}/{int(i) & 0xFFFFFFFF}" for i in list(ids)[:_EXAMPLES]]


# ------------------------------------------------------------------------------------------------ the freeze


def stops(events: Sequence[Mapping[str, Any]]) -> list[tuple[int, int | None]]:
    """When one producer process might not write: (from, to) on the monotonic clock in ns.

    ``to`` is None while it still may not. The time before it first ran is none of them, and a process that closed while
    stopped counts until then.
    """
    found: list[tuple[int, int | None]] = []
    ran, since = False, None
    for event in events:
        what, t = event["event"], int(event["t"])
        if what in _GOING:
            if since is not None:
                found.append((since, t))
            ran, since = True, None
        elif what in _STOPPED and ran and since is None:
            since = t
        elif what == "closed" and since is not None:
            found.append((since, t))
            since = None
    if since is not None:
        found.append((since, None))
    return found


def find_freezes(events: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """The freezes: overlapping stops of several producers are one, from the first stopped to the last running again."""
    spans = sorted(
        ((start, end, name) for name, log in events.items() for start, end in stops(log)), key=lambda span: span[0]
    )
    freezes: list[tuple[int, int | None, set[str]]] = []
    for start, end, name in spans:
        if freezes and (freezes[-1][1] is None or start <= freezes[-1][1]):
            begun, until, who = freezes.pop()
            freezes.append((begun, None if until is None or end is None else max(until, end), {*who, name}))
        else:
            freezes.append((start, end, {name}))
    return [
        {"seconds": None if end is None else round((end - start) / 1e9, 3), "producers": sorted(who)}
        for start, end, who in freezes
    ]


def total_freeze(freezes: Sequence[Mapping[str, Any]]) -> float | None:
    """The seconds of all freezes; None while one has not ended."""
    seconds = [f["seconds"] for f in freezes]
    return None if any(s is None for s in seconds) else round(sum(seconds), 3)


def frozen_now(events: Mapping[str, Sequence[Mapping[str, Any]]], now_ns: int) -> tuple[list[str], float]:
    """The producers that may not write at this moment, and for how many seconds the first of them may not."""
    since = {name: log[-1][0] for name, entries in events.items() if (log := stops(entries)) and log[-1][1] is None}
    return sorted(since), (now_ns - min(since.values())) / 1e9 if since else 0.0
