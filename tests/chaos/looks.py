"""Read in the end: what the journal's audit trail and the two topics say."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.chaos.history import Event


def rows_of(kind: str, data: Mapping[str, Any], t: float) -> Iterable[Event]:
    """An event of the audit trail as rows and states, with the time given."""
    if kind == "state":
        yield Event(t, "journal", "state", {"state": data["state"], "active": data["active"]})
    elif kind in ("step_intended", "step_finished"):
        told = {"step": data["step"], "state": data.get("state", "intended")}
        record = data.get("data", {}).get("record") if data["step"] == "fence" else None
        if record:
            told["offsets"] = {str(p): o for p, o in record["fence_offsets"].items()}
        yield Event(t, "journal", "row", told)


def whole_files(folder: Path) -> list[str]:
    """Names of the JSON files in a folder that can be read to their end."""
    out = []
    for path in sorted(folder.glob("*.json")):
        with contextlib.suppress(ValueError):
            json.loads(path.read_bytes())
            out.append(path.name)
    return out


def records_of(config: Mapping[str, Any], topics: Iterable[str]) -> Iterable[dict[str, Any]]:
    """Every record of these topics as it lies there, read by nobody's group."""
    from confluent_kafka import Consumer, TopicPartition

    reader = Consumer({**config, "group.id": "chaos-reader", "enable.auto.commit": False, "enable.partition.eof": True})
    try:
        known = reader.list_topics(timeout=30).topics
        places = [TopicPartition(t, p, 0) for t in topics if t in known for p in known[t].partitions]
        reader.assign(places)
        ends = 0
        while ends < len(places):
            message = reader.poll(30)
            if message is None:
                raise TimeoutError(f"the records of {list(topics)} could not be read in time")
            if message.error() is not None:
                ends += 1  # the end of a partition
                continue
            headers = {n: v for n, v in message.headers() or [] if isinstance(v, bytes)}
            yield {
                "topic": message.topic(), "partition": message.partition(), "offset": message.offset(),
                "key": (message.key() or b"").decode(), "seq": int(headers.get("seq", b"-1")),
            }  # fmt: skip
    finally:
        reader.close()
