"""The installation policy as a file, read anew whenever it has changed."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from topicshift.core.errors import Unreadable
from topicshift.core.policy.model import Installation
from topicshift.core.spec.io import parse_model

ENV = "TOPICSHIFT_POLICY"
"""Path of the policy file."""


@dataclass
class PolicyFile:
    """The policy in a file, or none where no file is named. Calling it gives the policy as it is now."""

    path: Path | None
    _seen: tuple[tuple[int, int, int], Installation] | None = field(default=None, repr=False)

    def __call__(self) -> Installation | None:
        """Read it, if it has changed.

        Raises ``Unreadable`` where the named file cannot be read, and ``InvalidSpec`` for what is wrong in it.
        """
        if self.path is None:
            return None
        try:
            found = self.path.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if self._seen is None or self._seen[0] != stamp:
                text = self.path.read_text("utf-8")
                self._seen = stamp, parse_model(text, f"the installation policy {self.path}", Installation)
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no UTF-8 text"
            raise Unreadable(
                f"The installation policy {self.path} cannot be read ({why}), so what it forbids is unknown. See that "
                f"the file is there on this machine, or name another one ({ENV})."
            ) from None
        return self._seen[1]


def policy_from_env() -> PolicyFile:
    """The policy that ``TOPICSHIFT_POLICY`` names."""
    named = os.environ.get(ENV, "").strip()
    return PolicyFile(Path(named) if named else None)
