"""Files that a reader sees whole or not at all. Standard library only: set-up runs it before any package is there."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def write_whole(path: Path, content: str | bytes, *, private: bool = False) -> None:
    """Write a file in one step: beside it, flushed to the disk, then renamed.

    ``private`` gives it mode 0600 from its first byte on; else the umask decides. Raises ``OSError`` when it cannot be
    written; what was at ``path`` is then as it was.
    """
    beside = path.with_name(f".{path.name[:100]}.{os.getpid()}.{secrets.token_hex(6)}.part")
    try:
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name survives a power cut only with its folder
    finally:
        os.close(folder)
