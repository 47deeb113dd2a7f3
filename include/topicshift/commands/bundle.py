"""Making and judging the bundles of ``topicshift audit``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topicshift import __version__
from topicshift.commands.common import say
from topicshift.core.errors import SpecError, Unreadable
from topicshift.core.proof import audit, bundle
from topicshift.core.proof.audit import ChainHead
from topicshift.ports import EventRow, EvidenceStore, MigrationRow, StepRow

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from topicshift.adapters.bundle import Archive

PASSPHRASE = "TOPICSHIFT_KEY_PASSPHRASE"  # noqa: S105 - the name of a variable


def make(
    row: MigrationRow,
    head: ChainHead,
    events: Sequence[EventRow],
    steps: Sequence[StepRow],
    out: Path,
    key_file: Path | None,
    key_conn_id: str | None,
) -> list[str]:
    """Write a bundle; returns the evidence that it lacks. Raises ``SpecError`` for a key that is none."""
    from topicshift.adapters.bundle import fingerprint, write_bundle
    from topicshift.adapters.evidence import evidence_from_env

    key = _key(key_file, key_conn_id)  # before anything else: a wrong key costs nothing then
    store = evidence_from_env()
    made = gather(row, head, events, steps, store)
    write_bundle(out, made.files, made.manifest, key)
    signed = f"signed, key {fingerprint(key.public_key())}" if key else "not signed"
    of_evidence = sum(name.startswith(bundle.EVIDENCE) for name in made.files)
    say(f"{out}: {len(events)} events, {of_evidence} files of evidence, {signed}")
    say(f"SHA-256 of its manifest: {bundle.sha256(made.manifest)}")
    if made.missing:
        say(
            f"Evidence that the journal speaks of is not in {store.base_url}: {', '.join(made.missing)}. "
            "The bundle says so. If the run wrote its evidence elsewhere, set TOPICSHIFT_EVIDENCE and export again."
        )
    return made.missing


@dataclass(frozen=True)
class Gathered:
    """What goes into a bundle. ``missing``: evidence that the journal speaks of and the store does not have."""

    files: dict[str, bytes]
    manifest: bytes
    missing: list[str]


def gather(
    row: MigrationRow,
    head: ChainHead,
    events: Sequence[EventRow],
    steps: Sequence[StepRow],
    store: EvidenceStore,
) -> Gathered:
    """Read what a bundle of this moment holds. Raises what the store raises."""
    from topicshift.reporting.run_report import render

    found = {name: store.read(row.migration_id, name) for name in store.names(row.migration_id)}
    evidence = {name: data for name, data in found.items() if data is not None}
    trail = bundle.trail_lines(head, events).encode()
    files = {
        bundle.TRAIL: trail,
        bundle.STEPS: bundle.rows_json([asdict(step) for step in steps]),
        bundle.MIGRATION: bundle.rows_json(asdict(row)),
        **{bundle.EVIDENCE + name: data for name, data in evidence.items()},
    }
    files[bundle.REPORT] = render(bundle.shown(files)).encode()
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    manifest = bundle.manifest_of(row, head, files, made_at=made_at, version=__version__)
    return Gathered(files, manifest, sorted(bundle.expected_evidence(row, steps, events) - evidence.keys()))


def judge(path: Path, key_file: Path | None, noted: ChainHead | None) -> dict[str, Any]:
    """What is wrong with a bundle, as plain values; nothing but the file itself is read."""
    from topicshift.adapters.bundle import public_key, read_bundle

    trusted = None if key_file is None else public_key(_bytes(key_file, "--public-key"), str(key_file))
    archive = read_bundle(path)
    lines = list(archive.problems)
    if archive.manifest is None:
        lines.append(f"{bundle.MANIFEST}: missing: what else the archive holds cannot be judged without it")
        return _told(path, None, 0, lines, [], None)
    signed_by, said = _signature(archive, trusted)
    lines += said
    manifest = bundle.read_manifest(archive.manifest)
    if isinstance(manifest, str):
        return _told(path, None, 0, [*lines, manifest], [], signed_by)
    lines += bundle.check_files(manifest, archive.files)
    events, broken = bundle.check_trail(manifest, archive.content)
    lines += broken
    if noted is not None:
        lines += audit.verify_noted(events, noted)
    notes = [f"{len(manifest.files)} files are as the manifest has them"]
    drawn = _drawn_anew(manifest, archive)
    if drawn is None:
        notes.append(f"{bundle.REPORT} was not drawn anew to compare it: another version made it, or a file is large")
    elif not drawn:
        lines.append(f"{bundle.REPORT}: changed: the other files of this bundle give another report")
    if signed_by is None:
        notes.append("not signed: whoever changed a file could write the manifest anew")
    elif trusted is None:
        notes.append(f"signed, key {signed_by}; give --public-key to be sure whose key that is")
    else:
        notes.append(f"signed by the key of {key_file}")
    if unnamed := bundle.unnamed_evidence(manifest, events):
        notes.append(f"evidence of which the trail has no SHA-256, so it may have been changed: {', '.join(unnamed)}")
    if manifest.missing:
        notes.append(f"evidence that was missing when it was exported: {', '.join(manifest.missing)}")
    return _told(path, manifest, len(events), lines, notes, signed_by)


def _drawn_anew(manifest: bundle.Manifest, archive: Archive) -> bool | None:
    """Whether the report is the one that the other files give; None where that cannot be told."""
    from topicshift.reporting.run_report import render

    wanted = {file.name for file in manifest.files if not file.name.endswith(".html")} | bundle.ALWAYS
    if manifest.topicshift != __version__ or not wanted <= archive.content.keys():
        return None
    return render(bundle.shown(archive.content)).encode() == archive.content[bundle.REPORT]


def _told(
    path: Path, manifest: bundle.Manifest | None, events: int, lines: list[str], notes: list[str], signed_by: str | None
) -> dict[str, Any]:
    return {
        "bundle": str(path),
        "migration": manifest.migration_id if manifest else None,
        "intact": not lines,
        "events": events,
        "head": f"{manifest.head.count}:{manifest.head.hash}" if manifest else None,
        "files": len(manifest.files) if manifest else 0,
        "missing": manifest.missing if manifest else [],
        "signed_by": signed_by,
        "broken": lines,
        "notes": notes,
    }


def _signature(archive: Archive, trusted: Any) -> tuple[str | None, list[str]]:
    """The fingerprint of the key that signed the manifest, None without one, and what is wrong with the signature."""
    from topicshift.adapters.bundle import fingerprint, fits, public_key

    name, data = bundle.SIGNATURE, archive.manifest or b""
    if archive.signature is None:
        return None, [f"{name}: missing: the bundle is not signed"] if trusted is not None or archive.public_key else []
    try:
        own = public_key(archive.public_key or b"", bundle.PUBLIC_KEY)
    except SpecError:
        own = None
    key = trusted or own
    if key is None:
        return None, [f"{bundle.PUBLIC_KEY}: missing or changed: the signature cannot be checked without a key"]
    if not fits(key, archive.signature, data):
        other = "" if trusted is None or own is None else f"; the bundle's own key is {fingerprint(own)}"
        return None, [f"{name}: changed: it is no signature of {bundle.MANIFEST} by key {fingerprint(key)}{other}"]
    return fingerprint(key), []


# ------------------------------------------------------------------------------------------------------------- keys


def _key(file: Path | None, conn_id: str | None) -> Ed25519PrivateKey | None:
    from topicshift.adapters.bundle import private_key

    if file is not None and conn_id is not None:
        raise SpecError("--key and --key-conn-id name two keys. Give one of them.")
    if file is not None:
        return private_key(_bytes(file, "--key"), str(file), os.environ.get(PASSPHRASE))
    if conn_id is None:
        return None
    where = f"The Airflow connection {conn_id!r}"
    connection = _connection(conn_id)
    named = connection.extra_dejson.get("key_file")
    pem = _bytes(Path(str(named)), f"{where}, extra.key_file") if named else str(connection.password or "").encode()
    return private_key(pem, where, os.environ.get(PASSPHRASE))


def _connection(conn_id: str) -> Any:
    try:
        from airflow.models.connection import Connection
    except ImportError:
        raise SpecError("--key-conn-id needs Airflow, which is not installed here. Give the key with --key.") from None
    try:
        return Connection.get_connection_from_secrets(conn_id)
    except Exception as error:  # noqa: BLE001 - of any database and secrets backend
        if type(error).__name__ == "AirflowNotFoundException":
            raise SpecError(
                f"--key-conn-id: the Airflow connection {conn_id!r} does not exist. Create it, or use --key."
            ) from None
        # Only the kind: an error of a database or a secrets backend may hold its address with a password.
        raise Unreadable(
            f"--key-conn-id: Airflow could not look the connection {conn_id!r} up ({type(error).__name__})."
        ) from None


def _bytes(path: Path, option: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as exc:
        raise SpecError(f"{option}: {path} cannot be read: {exc.strerror}.") from None
