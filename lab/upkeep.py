"""Keeps the stack of a person up: what has ended by itself is started again, a bounded number of times."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

LIMIT = 5
WINDOW_S = 600.0
"""So many starts of one process within so many seconds, and no more: one that cannot run must not try for ever."""


class EndedTooOften(RuntimeError):
    """A process ends again and again. The message says which, how often, and holds its last words."""


@dataclass
class Upkeep:
    """Counts and tells what was started again.

    Args:
        tell: called with one line for each, before it is started.
        limit: how often one process may be started again within ``window_s`` seconds.
        clock: seconds that only go forward.
    """

    tell: Callable[[str], None]
    limit: int = LIMIT
    window_s: float = WINDOW_S
    clock: Callable[[], float] = time.monotonic
    _times: dict[str, list[float]] = field(default_factory=dict)
    _total: dict[str, int] = field(default_factory=dict)
    _last: dict[str, str] = field(default_factory=dict)

    def again(self, name: str, exit_code: int | None, words: str, start: Callable[[], object]) -> None:
        """Start a process again that has ended.

        Raises:
            EndedTooOften: it was started again ``limit`` times within the window already.
        """
        now = self.clock()
        times = [t for t in self._times.get(name, ()) if now - t < self.window_s]
        how = f"has ended with code {exit_code}"
        if len(times) >= self.limit:
            raise EndedTooOften(
                f"{name} {how}, and was started again {self.limit} times in {self.window_s / 60:.0f} minutes already. "
                f"Its last words:\n{words}"
            )
        self._times[name] = [*times, now]
        self._total[name] = self._total.get(name, 0) + 1
        self._last[name] = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
        self.tell(f"{name} {how}; starting it again ({len(times) + 1} of at most {self.limit})")
        start()

    def values(self) -> list[dict[str, Any]]:
        """What was started again so far, for the state file."""
        return [{"name": n, "times": self._total[n], "last": self._last[n]} for n in sorted(self._total)]
