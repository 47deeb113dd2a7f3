"""The work folder: where Spark jobs and the processes that ask them meet, until results are evidence.

``TOPICSHIFT_WORK`` names it; by default it is ``work`` in Topicshift's home. Of each migration it holds ``requests``
(certificates for the armed verifier, and the files by which it is armed and ended) and ``answers``.
"""

from __future__ import annotations

import os
from pathlib import Path

from topicshift.adapters.home import topicshift_home


def work_folder() -> Path:
    """The work folder of this machine."""
    return Path(os.environ.get("TOPICSHIFT_WORK") or topicshift_home() / "work")


def requests_folder(migration_id: str) -> Path:
    """Where the armed verifier of a migration looks for certificates."""
    return work_folder() / migration_id / "requests"


def answers_folder(migration_id: str) -> Path:
    """Where the armed verifier of a migration answers."""
    return work_folder() / migration_id / "answers"


def put(path: Path, data: bytes) -> None:
    """Write a file that another process waits for: it is there whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(data)
    part.replace(path)
