"""The clocks of the route: readings of this machine's, and what is known of the brokers' time. Pure."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

SAMPLES = 8
"""So many of the latest samples of the brokers' time are kept."""


@dataclass(frozen=True)
class Now:
    """One reading of this machine's clocks, in seconds.

    ``wall`` is the time since the epoch; anybody may set it. ``boot`` counts from some start and goes on while the
    machine sleeps (``CLOCK_BOOTTIME``; a monotonic clock where there is none).
    """

    wall: float
    boot: float


def elapsed(since: Now, now: Now) -> float:
    """At least so many seconds lie between two readings as either clock says. Never less than the truth."""
    return max(now.boot - since.boot, now.wall - since.wall)


@dataclass
class BrokerTime:
    """What is known of the brokers' time, as bounds. The wall clock plays no part in it.

    A broker stamps a record when it appends it: after it was sent, and before it was confirmed or read. So each stamp
    bounds the brokers' clock against ``boot``. Times are in ms since the epoch.
    """

    _least: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    _most: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))

    def seen(self, now: Now, stamp_ms: int) -> None:
        """A record with this stamp exists at ``now``: the brokers' time is not less."""
        self._least.append(stamp_ms - now.boot * 1000)
        self._agree()

    def stamped(self, sent: Now, now: Now, stamp_ms: int) -> None:
        """A record that was sent after ``sent`` and confirmed by ``now`` has this stamp."""
        self._most.append(stamp_ms + 1 - sent.boot * 1000)
        self.seen(now, stamp_ms)

    def _agree(self) -> None:
        # Another leader with another clock, or a clock that was set: the latest sample counts.
        if self._most and max(self._least) > min(self._most):
            latest = self._least[-1], self._most[-1]
            self._least.clear()
            self._most.clear()
            self._least.append(latest[0])
            if latest[1] >= latest[0]:
                self._most.append(latest[1])

    @property
    def is_known(self) -> bool:
        """Whether anything is known of the brokers' time."""
        return bool(self._least)

    def least(self, now: Now) -> int | None:
        """The brokers' time is at least this; None while nothing is known."""
        return math.floor(now.boot * 1000 + max(self._least)) if self._least else None

    def most(self, now: Now) -> int | None:
        """The brokers' time is at most this; None while no record of one's own was stamped."""
        return math.ceil(now.boot * 1000 + min(self._most)) if self._most else None
