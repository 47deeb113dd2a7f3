"""The evidence of declared readers that commit nothing to Kafka, read anew each time it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from topicshift.adapters.connectors import read_connector
from topicshift.adapters.spark_checkpoint import read_checkpoint
from topicshift.core.drain.evidence import ReaderEvidence, parse_evidence
from topicshift.core.errors import SpecError


def evidence_source(readers: Iterable[Mapping[str, str]], topic: str) -> Callable[[], list[ReaderEvidence]] | None:
    """A function that reads the evidence of each reader; None when there is none to read.

    ``readers`` are the entries of a spec's ``readers`` as plain values: name, kind, location. What cannot be read is
    evidence with an error, which certifies nothing.
    """
    wanted = [(r["name"], r["kind"], r["location"]) for r in readers]
    if not wanted:
        return None

    def read() -> list[ReaderEvidence]:
        return [_READ[kind](name, location, topic) for name, kind, location in wanted]

    return read


def read_evidence(reader: str, location: str, topic: str) -> ReaderEvidence:
    """The evidence of one reader in a JSON file (a path or an fsspec URL; one object, or a list of them)."""
    import fsspec

    def failed(why: str) -> ReaderEvidence:
        return ReaderEvidence(reader=reader, kind="evidence_file", topic=topic, error=f"{location}: {why}")

    try:
        with fsspec.open(location, "rt", encoding="utf-8") as file:
            found = parse_evidence(file.read(), name=location)
    except SpecError as exc:
        return failed(str(exc))
    except (OSError, ValueError, ImportError) as exc:
        return failed(f"it cannot be read: {exc}")
    mine = [e for e in found if e.reader == reader]
    return mine[-1] if mine else failed(f"it says nothing of {reader}")


_READ: Mapping[str, Callable[[str, str, str], ReaderEvidence]] = {
    "spark_checkpoint": read_checkpoint,
    "connect": read_connector,
    "evidence_file": read_evidence,
}
