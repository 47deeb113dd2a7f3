"""Audit bundles on disk: a ZIP archive, read without unpacking it, and its Ed25519 signature."""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from topicshift.core.errors import SpecError, Unreadable
from topicshift.core.files import write_whole
from topicshift.core.proof.bundle import (
    EVIDENCE,
    LARGEST_MANIFEST,
    MANIFEST,
    MIGRATION,
    NAME,
    PUBLIC_KEY,
    SIGNATURE,
    STEPS,
    TRAIL,
    File,
)

_JUDGED = frozenset({TRAIL, STEPS, MIGRATION, f"{EVIDENCE}audit.jsonl"})
"""Files that are always looked into; of the others only the hash is taken where they are large."""

_LARGEST_JUDGED = 1024 * 1024 * 1024
_KEPT, _ALL_KEPT = 64 * 1024 * 1024, 256 * 1024 * 1024
"""Bytes of one file, and of all, up to which the others are kept to draw the report anew."""
_BLOCK = 1024 * 1024
_THEN = (1980, 1, 1, 0, 0, 0)  # the same files give the same archive


@dataclass
class Archive:
    """What an archive holds. ``problems``: entries that cannot be read, or stand there twice, in words."""

    files: dict[str, File] = field(default_factory=dict)
    content: dict[str, bytes] = field(default_factory=dict)
    manifest: bytes | None = None
    signature: bytes | None = None
    public_key: bytes | None = None
    problems: list[str] = field(default_factory=list)


def write_bundle(path: Path, files: Mapping[str, bytes], manifest: bytes, key: Ed25519PrivateKey | None) -> None:
    """Write the archive in one step, signed where a key is given. Raises ``Unreadable`` where it cannot be written."""
    try:
        write_whole(path, packed(files, manifest, key))
    except OSError as exc:
        raise Unreadable(f"{path} cannot be written: {exc.strerror}. Name a file in a folder of yours.") from None


def packed(files: Mapping[str, bytes], manifest: bytes, key: Ed25519PrivateKey | None) -> bytes:
    """The archive, signed where a key is given."""
    own = {MANIFEST: manifest}
    if key is not None:
        own |= {SIGNATURE: key.sign(manifest), PUBLIC_KEY: _pem(key.public_key())}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**own, **files}.items():
            entry = zipfile.ZipInfo(name, _THEN)
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def read_bundle(path: Path) -> Archive:
    """Read an archive, nothing of which is trusted. Raises ``Unreadable`` where the file is no archive at all."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(archive)
    except OSError as exc:
        raise Unreadable(f"{path} cannot be read: {exc.strerror or exc}. Nothing was verified.") from None
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as exc:
        raise Unreadable(
            f"{path} is no archive that can be read ({exc}), so nothing in it can be verified. Take the file as "
            "topicshift audit export wrote it."
        ) from None


def _read(archive: zipfile.ZipFile) -> Archive:
    found = Archive()
    own: dict[str, bytes] = {}
    seen: set[str] = set()
    for entry in archive.infolist():
        name = entry.filename
        if name in seen:
            found.problems.append(f"{name!r}: added: the archive holds it twice")
            continue
        seen.add(name)
        if not NAME.fullmatch(name):
            found.problems.append(f"{name!r}: added: no bundle holds a file of such a name")
            continue
        try:
            with archive.open(entry) as stream:
                if name in (MANIFEST, SIGNATURE, PUBLIC_KEY):
                    own[name] = _whole(stream, LARGEST_MANIFEST)
                else:
                    found.files[name] = _measure(stream, name, found.content)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as exc:
            # Its hash stays unknown, which is never the one of the manifest.
            found.files[name] = File(name=name, size=-1, sha256="unreadable")
            found.problems.append(f"{name}: changed: the archive's own checksum or form is broken ({exc})")
    found.manifest, found.signature, found.public_key = own.get(MANIFEST), own.get(SIGNATURE), own.get(PUBLIC_KEY)
    return found


def _whole(stream: IO[bytes], most: int) -> bytes:
    data = stream.read(most + 1)
    if len(data) > most:
        raise ValueError(f"more than {most} bytes")
    return data


def _measure(stream: IO[bytes], name: str, content: dict[str, bytes]) -> File:
    if name in _JUDGED:
        data = _whole(stream, _LARGEST_JUDGED)
        content[name] = data
        return File(name=name, size=len(data), sha256=hashlib.sha256(data).hexdigest())
    digest, size, room = hashlib.sha256(), 0, min(_KEPT, _ALL_KEPT - sum(map(len, content.values())))
    kept: list[bytes] = []
    while block := stream.read(_BLOCK):
        digest.update(block)
        size += len(block)
        if size <= room:
            kept.append(block)
    if size <= room:
        content[name] = b"".join(kept)
    return File(name=name, size=size, sha256=digest.hexdigest())


# --------------------------------------------------------------------------------------------------- the signature


def private_key(pem: bytes, where: str, passphrase: str | None = None) -> Ed25519PrivateKey:
    """The signing key in a PEM text. Raises ``SpecError`` that names ``where``, and nothing of the key."""
    try:
        key = serialization.load_pem_private_key(pem, passphrase.encode() if passphrase else None)
    except TypeError:
        if passphrase:
            return private_key(pem, where)
        raise SpecError(f"{where} holds a key with a passphrase. Give it in TOPICSHIFT_KEY_PASSPHRASE.") from None
    except (ValueError, UnsupportedAlgorithm):
        raise SpecError(
            f"{where} holds no private key in PEM form, or the passphrase in TOPICSHIFT_KEY_PASSPHRASE is another "
            "one. Make a key with: openssl genpkey -algorithm ed25519 -out key.pem"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise SpecError(f"{where} holds a key of another kind than Ed25519, with which bundles are signed.")
    return key


def public_key(pem: bytes, where: str) -> Ed25519PublicKey:
    """The public key in a PEM text. Raises ``SpecError`` that names ``where``."""
    try:
        key = serialization.load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise SpecError(
            f"{where} holds no public key in PEM form. Make it with: openssl pkey -in key.pem -pubout -out public.pem"
        ) from None
    if not isinstance(key, Ed25519PublicKey):
        raise SpecError(f"{where} holds a key of another kind than Ed25519, with which bundles are signed.")
    return key


def fingerprint(key: Ed25519PublicKey) -> str:
    """SHA-256, in hex, of the key in DER form: ``openssl pkey -pubin -in public.pem -outform DER | sha256sum``."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(key.public_bytes(serialization.Encoding.DER, form)).hexdigest()


def fits(key: Ed25519PublicKey, signature: bytes, data: bytes) -> bool:
    """Whether this signature over ``data`` was made with the private key of ``key``."""
    try:
        key.verify(signature, data)
    except InvalidSignature:
        return False
    return True


def _pem(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
