"""Offsets of a Spark Structured Streaming query, read from its checkpoint folder.

A streaming query commits nothing to Kafka: what it has finished is the newest batch that stands both in ``offsets/``
(where the batch ends) and in ``commits/`` (that it is done). A checkpoint belongs to the topics that it names: on the
target the query needs a new one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from topicshift.core.drain.evidence import (
    ReaderEvidence,
    spark_batch_offsets,
    spark_batch_topics,
    spark_initial_offsets,
)


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint says of one topic.

    ``begun``: whether any batch was begun in it. ``finished``: number of the newest finished batch, None where there is
    none. ``offsets``: the next offset to be read by partition, ``starts``: where it began, and ``topics``: all that it
    names, as of that batch.
    """

    begun: bool = False
    finished: int | None = None
    offsets: dict[int, int] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    topics: frozenset[str] = frozenset()


def look_at_checkpoint(folder: str, topic: str) -> Checkpoint:
    """What the checkpoint says; a folder that is not there was never begun. Raises ``ValueError`` with the reason."""
    import fsspec

    try:
        fs, root = fsspec.core.url_to_fs(folder)
        fs.invalidate_cache()
        planned = _batches(fs, f"{root}/offsets", missing=set())
        both = planned & _batches(fs, f"{root}/commits", missing=set())
        if not both:
            return Checkpoint(begun=bool(planned))
        newest = max(both)
        text = fs.cat_file(f"{root}/offsets/{newest}").decode("utf-8")
        began = [fs.cat_file(name).decode("utf-8") for name in sorted(fs.glob(f"{root}/sources/*/0"))]
        topics = spark_batch_topics(text)
        starts: dict[int, int] = {}
        for each in began:
            for partition, offset in spark_initial_offsets(each).get(topic, {}).items():
                starts[partition] = max(offset, starts.get(partition, offset))
        offsets = spark_batch_offsets(text, topic) if topic in topics else {}
        return Checkpoint(True, newest, offsets, starts, frozenset(topics))
    except Exception as exc:  # each kind of file system raises errors of its own
        raise ValueError(f"{folder}: it cannot be read: {exc or type(exc).__name__}") from exc


def read_checkpoint(reader: str, folder: str, topic: str) -> ReaderEvidence:
    """The evidence of one query. ``folder`` is a path or an fsspec URL. What cannot be read stands in ``error``."""
    import fsspec

    def failed(why: str) -> ReaderEvidence:
        return ReaderEvidence(reader=reader, kind="spark_checkpoint", topic=topic, error=f"{folder}: {why}")

    try:
        fs, root = fsspec.core.url_to_fs(folder)
        done = _batches(fs, f"{root}/commits")
        planned = _batches(fs, f"{root}/offsets")
        both = done & planned
        text = fs.cat_file(f"{root}/offsets/{max(both)}").decode("utf-8") if both else ""
    except FileNotFoundError as exc:
        return failed(f"{exc} is missing; name the query's checkpointLocation")
    except Exception as exc:  # noqa: BLE001 - each kind of file system raises errors of its own
        return failed(f"it cannot be read: {type(exc).__name__}: {exc}")
    if not both:
        return failed("it holds no finished batch (no number stands in both offsets/ and commits/)")
    batch = max(both)
    try:
        offsets = spark_batch_offsets(text, topic)
    except (ValueError, LookupError) as exc:
        return failed(f"batch {batch}: {exc}")
    return ReaderEvidence(reader=reader, kind="spark_checkpoint", topic=topic, offsets=offsets)


def _batches(fs: Any, folder: str, missing: set[int] | None = None) -> set[int]:
    """Batch numbers in a folder. Raises ``FileNotFoundError`` naming it where it is not there; else ``missing``."""
    fs.invalidate_cache(folder)
    try:
        names = [str(n).rsplit("/", 1)[-1] for n in fs.ls(folder, detail=False)]
    except FileNotFoundError:
        if missing is not None:
            return missing
        raise FileNotFoundError(folder) from None
    return {int(n) for n in names if n.isdigit()}
