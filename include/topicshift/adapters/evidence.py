"""Evidence: the files that a migration leaves behind, in one folder of an object store or of the local disk."""

from __future__ import annotations

import errno
import os
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fsspec
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from topicshift.adapters.home import topicshift_home
from topicshift.core.errors import SpecError, TopicshiftError, Transient, Unreadable
from topicshift.core.files import write_whole

ENV = "TOPICSHIFT_EVIDENCE"
"""The environment variable that names the folder."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
# A PUT shows whole or not at all on these; elsewhere a file is written beside and then moved.
_ATOMIC_PUT = frozenset({"memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss"})

_TRIES, _PAUSE_S, _TRY_FOR_S = 4, 0.1, 5.0
"""Tries of one act, the first pause (each is three times the one before), and seconds after which none is begun."""
_REFUSALS = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)
_WRONG = (ValueError, TypeError, LookupError, AttributeError, ImportError, NotImplementedError)
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL}


class FsspecEvidence:
    """:class:`topicshift.ports.EvidenceStore` over fsspec: ``base_url/<migration id>/<name>``.

    ``base_url`` is a local path, a ``file://`` URL, or any URL that fsspec has a file system for (``s3://bucket/dir``);
    credentials belong into that file system's own environment, never into the URL, which ends up in reports. A file
    shows whole or not at all, and replaces one of the same name. Raises ``SpecError`` for a bad base, id or name,
    ``Transient`` when the store does not answer (it was asked several times), and ``Unreadable`` for what trying again
    does not mend.
    """

    def __init__(self, base_url: str) -> None:
        text = base_url.strip()
        if not text:
            raise SpecError(f"The evidence folder is empty. Give a folder or a URL, for instance with {ENV}.")
        if "://" in text and "@" in urlsplit(text).netloc and ":" in urlsplit(text).netloc.rsplit("@", 1)[0]:
            raise SpecError(
                "The evidence URL carries a password, and it would be printed in every report. "
                "Give credentials through the environment of the store instead."
            )
        if "://" not in text:
            text = str(Path(text).expanduser().absolute())
        try:
            self._fs, root = url_to_fs(text)
        except (ValueError, ImportError) as exc:
            raise SpecError(
                f"The evidence folder {text} cannot be used: {exc}. Give a local folder, or a URL of a store whose "
                f"fsspec package is installed. Known here: {', '.join(sorted(fsspec.available_protocols()))}."
            ) from None
        self._root = root.rstrip("/")
        self._local = isinstance(self._fs, LocalFileSystem)

    @property
    def base_url(self) -> str:
        """The folder as a URL (``file://`` for a local one)."""
        return str(self._fs.unstrip_protocol(self._root)).rstrip("/")

    def write(self, migration_id: str, name: str, data: bytes | str) -> str:
        """Write one file and return its URL. Text is written as UTF-8."""
        path = self._path(migration_id, name)
        content = data.encode() if isinstance(data, str) else data
        self._tried("written", path, lambda: self._put(path, name, content))
        return self.url(migration_id, name)

    def _put(self, path: str, name: str, content: bytes) -> None:
        if self._local:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            write_whole(Path(path), content)
            return
        folder = path.rsplit("/", 1)[0]
        self._fs.makedirs(folder, exist_ok=True)
        if set(_protocols(self._fs)) & _ATOMIC_PUT:
            self._fs.pipe_file(path, content)
        else:
            beside = f"{folder}/.{name}.{secrets.token_hex(6)}"
            self._fs.pipe_file(beside, content)
            self._fs.mv(beside, path)

    def read(self, migration_id: str, name: str) -> bytes | None:
        """The file's content, None if there is no such file."""
        path = self._path(migration_id, name)
        found: bytes | None = self._tried("read", path, lambda: bytes(self._fs.cat_file(path)), missing=None)
        return found

    def names(self, migration_id: str) -> list[str]:
        """The names of the migration's files, sorted; files that are being written are left out."""
        folder = f"{self._root}/{_checked(migration_id, 'migration id')}"

        def listed() -> list[Any]:
            self._fs.invalidate_cache(folder)
            return list(self._fs.ls(folder, detail=True))

        found = self._tried("listed", folder, listed, missing=[])
        names = (str(entry["name"]).rstrip("/").rsplit("/", 1)[-1] for entry in found if entry["type"] == "file")
        return sorted(name for name in names if _NAME.fullmatch(name))

    def folders(self, prefix: str) -> list[str]:
        """The ids that have evidence and begin with ``prefix``, sorted."""

        def listed() -> list[Any]:
            self._fs.invalidate_cache(self._root)
            return list(self._fs.ls(self._root, detail=True))

        found = self._tried("listed", self._root, listed, missing=[])
        names = (str(entry["name"]).rstrip("/").rsplit("/", 1)[-1] for entry in found if entry["type"] == "directory")
        return sorted(name for name in names if name.startswith(prefix) and _NAME.fullmatch(name))

    def _tried(self, act: str, path: str, work: Callable[[], Any], **known: Any) -> Any:
        """``work()``, again after a passing fault; ``missing`` is the answer where there is no such file.

        Whatever is done may be done twice: a file has one content and one name. Raises ``Transient`` or ``Unreadable``.
        """
        until = time.monotonic() + _TRY_FOR_S
        for attempt in range(_TRIES):
            try:
                return work()
            except Exception as exc:
                if isinstance(exc, FileNotFoundError) and "missing" in known:
                    return known["missing"]
                if _lasting(exc) or attempt == _TRIES - 1 or time.monotonic() > until:
                    raise self._error(act, path, exc) from exc
            time.sleep(_PAUSE_S * 3**attempt)
        raise AssertionError("unreachable: the last try returns or raises")

    def url(self, migration_id: str, name: str) -> str:
        """The URL of a file, written or not."""
        return str(self._fs.unstrip_protocol(self._path(migration_id, name)))

    def _path(self, migration_id: str, name: str) -> str:
        return f"{self._root}/{_checked(migration_id, 'migration id')}/{_checked(name, 'file name')}"

    def _error(self, act: str, path: str, exc: Exception) -> TopicshiftError:
        why = (exc.strerror if isinstance(exc, OSError) and exc.strerror else None) or f"{type(exc).__name__}: {exc}"
        kind = Unreadable if _lasting(exc) else Transient
        return kind(
            f"Evidence {self._fs.unstrip_protocol(path)} could not be {act}: {why.rstrip('.')}. Without "
            f"evidence nothing can be proven. Check that the folder of {ENV} exists and that this user may "
            "read and write there."
        )


def _lasting(exc: Exception) -> bool:
    """Whether the store's own word is that this will not do; what a client of a store raises else may pass."""
    return isinstance(exc, _REFUSALS + _WRONG) or (isinstance(exc, OSError) and exc.errno in _FULL)


def _checked(text: str, what: str) -> str:
    if not _NAME.fullmatch(text):
        raise SpecError(
            f"{text!r} is no {what} for evidence: letters, digits, '.', '_' and '-' are allowed, it begins with a "
            "letter or digit and has at most 200 of them. Folders inside a name are not."
        )
    return text


def _protocols(fs: Any) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def default_evidence_url() -> str:
    """The folder ``evidence`` beside the default journal."""
    return str(topicshift_home() / "evidence")


def evidence_from_env() -> FsspecEvidence:
    """The store that ``TOPICSHIFT_EVIDENCE`` names, or the default local folder."""
    return FsspecEvidence(os.environ.get(ENV, "").strip() or default_evidence_url())
