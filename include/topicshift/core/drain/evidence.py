"""Evidence of readers that commit nothing to Kafka: Spark checkpoints, connectors, Flink jobs, a person's word. Pure.

An offset is always *the next one to be read*, as a commit is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from pydantic import Field, ValidationError

from topicshift.core.base import Model
from topicshift.core.drain.decision import GroupView
from topicshift.core.drain.reasons import Reason
from topicshift.core.errors import SpecError
from topicshift.core.text import parse_json


class ReaderEvidence(Model):
    """What a reader outside Kafka's groups has read of one topic.

    ``offsets``: partition -> next offset to be read. ``statement``: a person's word instead of offsets, with
    ``by`` and ``taken_at`` (ISO 8601 with a zone). ``from_start``: of a partition without an offset it has read
    nothing. ``error``: why the evidence could not be read.
    """

    reader: str = Field(min_length=1)
    kind: Literal["spark_checkpoint", "connect", "flink", "person", "evidence_file"]
    topic: str
    topic_id: str | None = None
    taken_at: str | None = None
    offsets: dict[int, int] = Field(default_factory=dict)
    from_start: bool = False
    statement: str | None = None
    by: str | None = None
    error: str | None = None


def parse_evidence(text: str, *, name: str) -> list[ReaderEvidence]:
    """Evidence from JSON: one object, or a list of them. Raises ``SpecError`` naming the place."""
    try:
        data = parse_json(text)
        return [ReaderEvidence.model_validate(e) for e in (data if isinstance(data, list) else [data])]
    except json.JSONDecodeError as exc:
        raise SpecError(
            f"{name}: not JSON (line {exc.lineno}: {exc.msg}). Evidence is an object with reader, kind, topic and "
            "offsets. Correct the file."
        ) from None
    except ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        place = ".".join(str(p) for p in first["loc"]) or "the object"
        raise SpecError(f"{name}: {place}: {first['msg']}. Correct the field.") from None


def as_group(
    evidence: ReaderEvidence,
    *,
    topic: str,
    topic_id: str | None,
    partitions: int,
    fence_at: datetime | None = None,
) -> GroupView:
    """The evidence as a row of the certificate. Outdated, foreign or missing evidence is a problem, never a yes.

    A statement must name the person and be younger than the fence: reading may have gone on until then.
    """
    problem: Reason | None = None
    attested = False
    if evidence.error is not None:
        problem = Reason.EVIDENCE_MISSING
    elif evidence.topic != topic or (evidence.topic_id is not None and evidence.topic_id != topic_id):
        problem = Reason.EVIDENCE_OUTDATED
    elif evidence.statement is not None:
        taken = _time(evidence.taken_at)
        if not evidence.by or taken is None:
            problem = Reason.EVIDENCE_MISSING
        elif fence_at is None or taken < fence_at:
            problem = Reason.EVIDENCE_OUTDATED
        else:
            attested = True
    elif not evidence.offsets:
        problem = Reason.EVIDENCE_MISSING
    read = dict.fromkeys(range(partitions), 0) | evidence.offsets if evidence.from_start else evidence.offsets
    return GroupView(
        group=evidence.reader,
        kind=evidence.kind,
        state="ATTESTED" if attested else "EXTERNAL",
        committed={p: read[p] for p in range(partitions) if p in read},
        problem=problem,
        error=evidence.error,
        attested=attested,
        evidence=True,
    )


def _time(text: str | None) -> datetime | None:
    try:
        at = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


def spark_batch_offsets(text: str, topic: str) -> dict[int, int]:
    """Offsets of one topic in a file of a Structured Streaming checkpoint's ``offsets/`` folder.

    The file is a version line (``v1`` or ``v2``), one line of batch metadata, then one line a source: a JSON object
    ``{"topic": {"partition": next offset}}``, in ``v2`` behind the source's id or name and a colon; a source that is
    no Kafka source has another shape and is passed over. A batch's offsets are where it ends; they count only when
    ``commits/`` holds the same batch id. When several Kafka sources of the query read the topic, the lowest offset of
    each partition counts. Raises ``ValueError`` for a file that is none of a checkpoint, or of a format that is not
    known, ``LookupError`` if no source reads the topic.
    """
    lowest: dict[int, int] = {}
    for source in _kafka_sources(text):
        for partition, offset in source.get(topic, {}).items():
            lowest[partition] = min(offset, lowest.get(partition, offset))
    if not lowest:
        raise LookupError(f"no source of this query reads {topic}")
    return lowest


def spark_batch_topics(text: str) -> set[str]:
    """The topics that a file of a checkpoint's ``offsets/`` folder names. Raises ``ValueError`` as above."""
    return {topic for source in _kafka_sources(text) for topic in source}


def spark_initial_offsets(text: str) -> dict[str, dict[int, int]]:
    """Where a source began, by topic and partition, from the file ``0`` of its ``sources/N`` folder.

    A byte of zero, the line ``v1``, and a JSON object as in ``offsets/``. Raises ``ValueError`` for another file.
    """
    version, _, rest = text.removeprefix("\0").partition("\n")
    if version.strip() != "v1":
        raise ValueError(f"where it began has the format {version.strip()[:10]!r}, and this version reads v1")
    found = _kafka_source(rest)
    if not found:
        raise ValueError("where it began is not in the form of a Kafka source")
    return found


def _kafka_sources(text: str) -> list[dict[str, dict[int, int]]]:
    version, *lines = text.splitlines() or [""]
    version = version.strip()
    if version not in ("v1", "v2") and re.fullmatch(r"v\d+", version):
        raise ValueError(f"its offset log has format {version}, and this version of Topicshift reads v1 and v2")
    if version not in ("v1", "v2") or len(lines) < 2:
        raise ValueError("not an offsets file of a Structured Streaming checkpoint (version line v1 or v2 expected)")
    texts = (line.strip() if version == "v1" else line.partition(":")[2].strip() for line in lines[1:])
    return [_kafka_source(source) for source in texts if source not in ("", "-")]


def _kafka_source(text: str) -> dict[str, dict[int, int]]:
    """Offsets by topic and partition; empty for a source that is none of Kafka."""
    try:
        source = parse_json(text)
    except json.JSONDecodeError as exc:
        raise ValueError(f"a source's offsets are not JSON: {exc.msg}") from None
    found: dict[str, dict[int, int]] = {}
    for topic, ends in source.items() if isinstance(source, dict) else ():
        if not isinstance(ends, dict):
            continue
        for partition, offset in ends.items():
            if not partition.isdigit() or not isinstance(offset, int):
                raise ValueError(f"partition {partition!r} has the offset {offset!r}, which is no number")
            found.setdefault(topic, {})[int(partition)] = offset
    return found


def connect_offsets(answer: Mapping[str, Any], topic: str) -> dict[int, int]:
    """Offsets of one topic in the answer of Connect's ``GET /connectors/NAME/offsets``.

    A sink connector answers ``kafka_topic``, ``kafka_partition`` and ``kafka_offset`` (the next to be read);
    MirrorMaker 2's source connector ``topic``, ``partition`` and ``offset``, which is the last one copied (MM2 starts
    again at offset + 1). Raises ``ValueError`` for another shape.
    """
    found: dict[int, int] = {}
    entries = answer.get("offsets")
    if not isinstance(entries, list):
        raise ValueError("no list named offsets: this is not the answer of GET /connectors/NAME/offsets")
    for entry in entries:
        where, at = entry.get("partition") or {}, entry.get("offset") or {}
        if where.get("kafka_topic") == topic and "kafka_offset" in at:
            found[int(where["kafka_partition"])] = int(at["kafka_offset"])
        elif where.get("topic") == topic and "partition" in where and "offset" in at:
            found[int(where["partition"])] = int(at["offset"]) + 1
    return found
