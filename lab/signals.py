"""SIGTERM and SIGINT as a flag that a process looks at."""

from __future__ import annotations

import signal
import threading
import time


class Ended(threading.Event):
    """An event that a signal handler may set: it takes no lock.

    A handler runs in the main thread between any two instructions. ``threading.Event`` locks, so a signal that comes
    while the main thread is itself inside ``wait`` can make the process wait for itself for ever.
    """

    def __init__(self) -> None:
        super().__init__()
        self._came = False

    def is_set(self) -> bool:
        """Whether it has come."""
        return self._came

    def set(self) -> None:
        """It has come."""
        self._came = True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has come, for at most ``timeout`` seconds; whether it has. Notices within 0.05 s."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._came:
            left = 0.05 if deadline is None else min(0.05, deadline - time.monotonic())
            if left <= 0:
                break
            time.sleep(left)
        return self._came


def ended_on_signal() -> Ended:
    """An :class:`Ended` that SIGTERM and SIGINT set. For the main thread."""
    ended = Ended()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    return ended
