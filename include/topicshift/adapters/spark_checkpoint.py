"""Offsets of a Spark Structured Streaming query, read from its checkpoint folder.

A streaming query commits nothing to Kafka: what it has finished is the newest batch that stands both in ``offsets/``
(where the batch ends) and in ``commits/`` (that it is done). A checkpoint belongs to the topics that it names: on the
target the query needs a new one.
"""

from __future__ import annotations

from typing import Any

from topicshift.core.drain.evidence import ReaderEvidence, spark_batch_offsets


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


def _batches(fs: Any, folder: str) -> set[int]:
    """Batch numbers in a folder. Raises ``FileNotFoundError`` naming it."""
    fs.invalidate_cache(folder)
    try:
        names = [str(n).rsplit("/", 1)[-1] for n in fs.ls(folder, detail=False)]
    except FileNotFoundError:
        raise FileNotFoundError(folder) from None
    return {int(n) for n in names if n.isdigit()}
