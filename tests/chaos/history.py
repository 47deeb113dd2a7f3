"""What happened in a run, written down by those to whom it happened: one JSON object a line, one file a process.

Times come from the monotonic clock, which all processes of a machine share. A line is written before anything is
acknowledged or committed for it, so that not even SIGKILL loses one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Event:
    """One line: the time in seconds, who, what, and its particulars."""

    t: float
    who: str
    what: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.data[name]


class Writer:
    """Appends the lines of one process."""

    def __init__(self, path: Path, who: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._who = who
        self._file = path.open("a", buffering=1)

    def add(self, what: str, *, who: str = "", **data: Any) -> None:
        """Write a line; it is in the page cache when this returns."""
        line = {"t": time.monotonic(), "who": who or self._who, "what": what, "data": data}
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read(paths: Iterable[Path]) -> list[Event]:
    """All events in the order of time. A last line that a kill tore is left out; any other is an error."""
    out: list[Event] = []
    for path in paths:
        lines = path.read_text().split("\n")
        for n, line in enumerate(lines):
            if not line:
                continue
            try:
                out.append(Event(**json.loads(line)))
            except ValueError:
                if n < len(lines) - 1:
                    raise
    return sorted(out, key=lambda e: e.t)
