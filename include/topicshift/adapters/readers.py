"""The evidence of declared readers that commit nothing to Kafka, read anew each time it is asked for.

A spec names the place, and tasks and triggers open it with Airflow's rights: so they open only what lies below the
places that the installation lists in ``TOPICSHIFT_READER_LOCATIONS``. The command line acts for the person who types.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from topicshift.adapters.connectors import MAX_BYTES, asks_of, read_by_connection, read_connector
from topicshift.adapters.rest import Ask
from topicshift.adapters.spark_checkpoint import read_checkpoint
from topicshift.core.drain.evidence import ReaderEvidence, parse_evidence
from topicshift.core.errors import SpecError
from topicshift.core.policy.floor import is_local, lies_below
from topicshift.core.spec.locations import connection_of

ENV = "TOPICSHIFT_READER_LOCATIONS"
"""Folders and URLs, separated by blanks, below which Airflow may read the evidence of a spec's readers."""

WAIT_S = 10.0
"""Seconds for all readers together: a certificate is waited for inside the freeze."""


def places_from_env() -> tuple[str, ...]:
    """The places that this installation allows; none by default."""
    return tuple(os.environ.get(ENV, "").split())


def refusal(location: str, places: Sequence[str]) -> str | None:
    """Why this location may not be opened; None if it lies below one of the places."""
    if any(_below(location, place) for place in places):
        return None
    allowed = f"allows {', '.join(places)}" if places else "allows none"
    return (
        f"{location} may not be opened: {ENV} (or the installation policy in its place) {allowed}. Whoever runs "
        "Airflow adds the folder or URL that it lies in, if a spec may make workers and triggerer read there"
    )


def refused(opened: Iterable[tuple[str, str]], places: Sequence[str] | None) -> list[str]:
    """Why each place that a spec names (:meth:`Spec.opened`) may not be opened by a DAG.

    ``places``: the policy's; None: as listed here.
    """
    listed = places_from_env() if places is None else places
    whys = [(where, refusal(location, listed)) for where, location in opened]
    return [f"{where}: {why}." for where, why in whys if why is not None]


def _below(location: str, place: str) -> bool:
    """By its text, and by where its links lead: whoever may make a link there could name any file else."""
    if not lies_below(location, place):
        return False
    if not is_local(location):
        return True
    path, folder = (Path(unquote(urlsplit(each).path)) for each in (location, place))
    return path.resolve().is_relative_to(folder.resolve())


def evidence_source(
    readers: Iterable[Mapping[str, str]],
    topic: str,
    *,
    places: Sequence[str] | None = None,
    ask_of: Callable[[str], Ask] | None = None,
) -> Callable[[], list[ReaderEvidence]] | None:
    """A function that reads the evidence of each reader, all at once; None when there is none to read.

    ``readers`` are the entries of a spec's ``readers`` as plain values: name, kind, location. ``places``: see
    :func:`refusal`; None opens whatever is named. ``ask_of`` gives what asks the service of a connection; by
    default those of the environment. What cannot be read, or not within ``WAIT_S``, is evidence with an error, which
    certifies nothing.
    """
    wanted = [(r["name"], r["kind"], r["location"]) for r in readers]
    if not wanted:
        return None

    def unread(name: str, kind: str, why: str) -> ReaderEvidence:
        return ReaderEvidence.model_validate({"reader": name, "kind": kind, "topic": topic, "error": why})

    def read() -> list[ReaderEvidence]:
        late = f"it did not answer within {WAIT_S:g} s"
        found = [unread(name, kind, f"{location}: {late}") for name, kind, location in wanted]

        def one(number: int, name: str, kind: str, location: str) -> None:
            try:
                if kind == "connect" and connection_of(location) is not None:
                    found[number] = read_by_connection(name, location, topic, ask_of or asks_of())
                    return
                denied = None if places is None else refusal(location, places)
                found[number] = unread(name, kind, denied) if denied else _READ[kind](name, location, topic)
            except Exception as exc:  # noqa: BLE001 - each file system raises its own, and none of it is a yes
                found[number] = unread(name, kind, f"{location}: {type(exc).__name__}: {exc}")

        # Daemons: one that hangs in a file system's client must not keep the process from ending.
        threads = [threading.Thread(target=one, args=(n, *reader), daemon=True) for n, reader in enumerate(wanted)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + WAIT_S
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        return list(found)

    return read


def read_evidence(reader: str, location: str, topic: str) -> ReaderEvidence:
    """The evidence of one reader in a JSON file (a path or an fsspec URL; one object, or a list of them)."""
    import fsspec

    def failed(why: str) -> ReaderEvidence:
        return ReaderEvidence(reader=reader, kind="evidence_file", topic=topic, error=f"{location}: {why}")

    # Where a web server would send us is not the place that was named.
    options = {"allow_redirects": False} if location.startswith(("http:", "https:")) else {}
    try:
        with fsspec.open(location, "rb", **options) as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            return failed(f"it is longer than {MAX_BYTES:,} bytes")
        found = parse_evidence(data.decode("utf-8"), name=location)
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
