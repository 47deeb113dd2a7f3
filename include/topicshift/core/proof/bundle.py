"""An audit bundle: trail, evidence and report of one migration in one archive, checked without journal and Airflow.

A manifest names each file with its size and SHA-256. Whoever has the manifest's own SHA-256, or the public key of who
signed it, can tell whether anything in the archive is not what was exported. Pure: files come and go as bytes by name.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import ValidationError

from topicshift.core.base import Model
from topicshift.core.proof import audit
from topicshift.core.proof.audit import ChainHead
from topicshift.core.rows import EventRow, MigrationRow, StepRow
from topicshift.core.text import printable_json

FORMAT: Final = "topicshift-audit-bundle/1"
MANIFEST, SIGNATURE, PUBLIC_KEY = "manifest.json", "manifest.sig", "manifest.pub"
"""The file with the hashes, its Ed25519 signature (64 bytes), and the key that fits it (PEM); not in the manifest."""

TRAIL, STEPS, MIGRATION, REPORT = "trail.jsonl", "steps.json", "migration.json", "report.html"
"""What is made from the journal: events and head, rows of the steps, row of the migration; and the report."""

ALWAYS: Final = frozenset({TRAIL, STEPS, MIGRATION, REPORT})

EVIDENCE = "evidence/"
"""The folder of the files that the run itself wrote."""

NAME = re.compile(rf"(?:{EVIDENCE})?[A-Za-z0-9][A-Za-z0-9._-]{{0,199}}")
"""Names of files in a bundle; none of them leads out of a folder in which it is unpacked."""

LARGEST_MANIFEST = 16 * 1024 * 1024
"""Bytes of a manifest beyond which it is none of ours."""


class File(Model):
    """One file of a bundle: its name, its size in bytes, its SHA-256 in hex."""

    name: str
    size: int
    sha256: str


class Manifest(Model):
    """What a bundle holds. ``missing``: evidence that the journal speaks of and the store did not have."""

    format: Literal["topicshift-audit-bundle/1"] = FORMAT
    migration_id: str
    made_at: str
    topicshift: str
    head: ChainHead
    missing: list[str]
    files: list[File]


def trail_lines(head: ChainHead, events: Sequence[EventRow]) -> str:
    """The events as JSON lines, and a last line with the head, so that a cut file shows."""
    lines = [json.dumps(dataclasses.asdict(event), ensure_ascii=False) for event in events]
    lines.append(json.dumps({"head": {"count": head.count, "hash": head.hash}}))
    return printable_json("\n".join(lines)) + "\n"


def named_evidence(events: Iterable[EventRow]) -> dict[str, tuple[str, int]]:
    """Evidence that the trail speaks of, by file name: SHA-256 of what the run wrote last, and the event's number."""
    found: dict[str, tuple[str, int]] = {}
    for event in events:
        named = event.data.get("evidence")
        if isinstance(named, dict):
            found |= {str(name): (str(digest), event.seq) for name, digest in named.items()}
    return found


def rows_json(rows: Any) -> bytes:
    """Rows of the journal as JSON."""
    return (json.dumps(rows, indent=2, ensure_ascii=False, default=dataclasses.asdict) + "\n").encode()


def manifest_of(row: MigrationRow, head: ChainHead, files: Mapping[str, bytes], *, made_at: str, version: str) -> bytes:
    """``manifest.json`` of these files."""
    events, _ = _events(files[TRAIL], TRAIL, [])
    listed = [File(name=n, size=len(d), sha256=sha256(d)) for n, d in sorted(files.items())]
    evidence = {name.removeprefix(EVIDENCE) for name in files if name.startswith(EVIDENCE)}
    steps = [StepRow(**step) for step in json.loads(files[STEPS])]
    manifest = Manifest(
        migration_id=row.migration_id,
        made_at=made_at,
        topicshift=version,
        head=head,
        missing=sorted(expected_evidence(row, steps, events) - evidence),
        files=listed,
    )
    return (manifest.model_dump_json(indent=2) + "\n").encode()


def shown(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """What the report of a bundle is drawn from, by the names that the report knows."""
    found = {name.removeprefix(EVIDENCE): d for name, d in files.items() if name.startswith(EVIDENCE)}
    found = {name: data for name, data in found.items() if not name.endswith(".html")}
    trail = files[TRAIL]
    # The page wants events alone: the last line is the head.
    found["audit.jsonl"] = trail[: trail.rstrip(b"\n").rfind(b"\n") + 1]
    return found | {STEPS: files[STEPS], MIGRATION: files[MIGRATION]}


def sha256(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def expected_evidence(row: MigrationRow, steps: Sequence[StepRow], events: Iterable[EventRow]) -> set[str]:
    """Evidence that a migration must have left behind, as far as its journal has come."""
    found = {step.step: step for step in steps}
    expected = {*named_evidence(events), *(("plan.json",) if row.plan_hash else ())}
    if "fence" in found and "record" in found["fence"].data:
        expected.add("fence.json")
    if "order_proof" in found and found["order_proof"].state == "done":
        expected.add("order_proof.json")
    if row.state in ("done", "retired", "rolled_back", "rehearsed"):
        expected |= {"audit.jsonl", "report.html"}
    return expected


def read_manifest(data: bytes) -> Manifest | str:
    """The manifest, or why these bytes are none."""
    try:
        return Manifest.model_validate_json(data)
    except (ValidationError, ValueError, RecursionError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else None
        why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}" if first else str(error)
        return f"{MANIFEST}: changed: it is no manifest of {FORMAT} ({why})"


def check_files(manifest: Manifest, found: Mapping[str, File]) -> list[str]:
    """Every file that was changed, is missing or was added, one line each; none means that all are as exported."""
    listed = {file.name: file for file in manifest.files}
    lines = [f"{name}: missing: every bundle has one" for name in sorted(ALWAYS - listed.keys())]
    lines += [f"{name}: missing: the manifest names it" for name in sorted(listed.keys() - found.keys())]
    lines += [f"{name}: added: the manifest does not name it" for name in sorted(found.keys() - listed.keys())]
    for name in sorted(listed.keys() & found.keys()):
        wanted, seen = listed[name], found[name]
        if wanted.sha256 != seen.sha256 or wanted.size != seen.size:
            lines.append(f"{name}: changed: SHA-256 {seen.sha256[:12]}..., the manifest has {wanted.sha256[:12]}...")
    return lines


def check_trail(manifest: Manifest, files: Mapping[str, bytes]) -> tuple[list[EventRow], list[str]]:
    """The events of ``trail.jsonl``, and every broken place of the chain, in words.

    Compared with each other are the trail, its head, the head in the manifest, the rows of the steps, and the copy of
    the trail that the run itself left in its evidence.
    """
    lines: list[str] = []
    events, head = _events(files.get(TRAIL, b""), TRAIL, lines)
    if head is None:
        lines.append(f"{TRAIL}: truncated: its last line is not the head of the trail")
        head = manifest.head
    if head != manifest.head:
        lines.append(f"{TRAIL}: changed: it ends at {head.count}:{head.hash[:12]}..., the manifest says otherwise")
    lines += [f"{TRAIL}: {p.line()}" for p in audit.verify(events, manifest.head, migration_id=manifest.migration_id)]
    lines += [f"{STEPS}: {line}" for line in _check_steps(manifest, files.get(STEPS, b"[]"), events)]
    lines += [f"{MIGRATION}: {line}" for line in _check_migration(manifest, files.get(MIGRATION), events)]
    lines += _check_evidence(manifest, events)
    copy = files.get(f"{EVIDENCE}audit.jsonl")
    if copy is not None:
        lines += _check_copy(copy, events)
    return events, lines


def _events(data: bytes, name: str, problems: list[str]) -> tuple[list[EventRow], ChainHead | None]:
    events: list[EventRow] = []
    head: ChainHead | None = None
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
        if not line:
            continue
        if head is not None:
            problems.append(f"{name}: extra: line {number} stands after the head")
            break
        try:
            value = json.loads(line)
            if set(value) == {"head"}:
                head = ChainHead.model_validate(value["head"])
            else:
                events.append(_event(value))
        except (ValueError, TypeError, RecursionError) as error:
            problems.append(f"{name}: unreadable: line {number} is no event ({type(error).__name__})")
    return events, head


def _event(value: Any) -> EventRow:
    event = EventRow(**value)
    texts = (event.migration_id, event.at, event.actor, event.kind, event.prev_hash, event.hash)
    numbers = (event.seq, event.epoch)
    if not all(isinstance(t, str) for t in texts) or not all(type(n) is int for n in numbers):
        raise TypeError("a field of another type")
    if not isinstance(event.data, dict):
        raise TypeError("data is no object")
    return event


def _check_steps(manifest: Manifest, data: bytes, events: Sequence[EventRow]) -> list[str]:
    try:
        steps = [StepRow(**row) for row in json.loads(data)]
        return [*audit.verify_steps(steps, events), *_check_certificates(manifest, steps)]
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        return [f"unreadable: it holds no rows of steps ({type(error).__name__})"]


def _check_migration(manifest: Manifest, data: bytes | None, events: Sequence[EventRow]) -> list[str]:
    if data is None:
        return []
    try:
        row = MigrationRow(**json.loads(data))
        other = [] if row.migration_id == manifest.migration_id else [f"migration_id: it is {row.migration_id!r}"]
        return [*other, *audit.verify_row(row, events)]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return [f"unreadable: it holds no row of a migration ({type(error).__name__})"]


def _check_certificates(manifest: Manifest, steps: Sequence[StepRow]) -> list[str]:
    """The journal has the hash of each certificate as the run wrote it, before anybody made a bundle."""
    hashes = {digest for name, digest in _evidence_of(manifest).items() if name.startswith("drain_certificate")}
    return [
        f"step {step.step}: no certificate in {EVIDENCE} has the run's SHA-256, {str(step.data.get('sha256'))[:12]}..."
        for step in steps
        if step.step.partition(":")[0] == "certificate" and step.state == "done"
        if step.data.get("sha256", "") not in {"", *hashes}
    ]


def _evidence_of(manifest: Manifest) -> dict[str, str]:
    """SHA-256 of each file of evidence, by its name in the run's folder."""
    return {f.name.removeprefix(EVIDENCE): f.sha256 for f in manifest.files if f.name.startswith(EVIDENCE)}


def _check_evidence(manifest: Manifest, events: Sequence[EventRow]) -> list[str]:
    """The trail has the hash of each file as the run wrote it, before anybody made a bundle."""
    hashes = _evidence_of(manifest)
    lines = []
    for name, (wanted, seq) in sorted(named_evidence(events).items()):
        seen = hashes.get(name)
        if seen is None and name not in manifest.missing:
            lines.append(f"{EVIDENCE}{name}: missing: row {seq} of the trail names it")
        elif seen is not None and seen != wanted:
            lines.append(
                f"{EVIDENCE}{name}: it is not what the run wrote: SHA-256 {seen[:12]}..., "
                f"row {seq} of the trail has {wanted[:12]}..."
            )
    return lines


def unnamed_evidence(manifest: Manifest, events: Sequence[EventRow]) -> list[str]:
    """Files of evidence of which the trail does not say what was in them: they may have been changed before."""
    return sorted(_evidence_of(manifest).keys() - named_evidence(events).keys())


def _check_copy(data: bytes, events: Sequence[EventRow]) -> list[str]:
    name = f"{EVIDENCE}audit.jsonl"
    lines: list[str] = []
    copy, _ = _events(data, name, lines)
    now = {event.seq: event.hash for event in events}
    other = [event.seq for event in copy if now.get(event.seq) != event.hash or audit.hash_of(event) != event.hash]
    if other:
        lines.append(f"{name}: changed: row {other[0]} is not the one of {TRAIL}: one of them was rewritten")
    return lines
