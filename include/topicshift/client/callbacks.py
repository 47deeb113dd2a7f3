"""The application's callbacks, in a thread of their own: whatever they do, the route's thread goes on."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)

MOST = 100_000
"""So many callbacks may wait; a sender waits then, as it does for a full queue of records."""


class Callbacks:
    """Runs what is submitted, in order, in one thread that starts with the first. Thread-safe."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._busy = False
        self._closed = False

    @property
    def full(self) -> bool:
        """Whether a sender should wait. Never for the thread that runs the callbacks: it would wait for itself."""
        return len(self._calls) >= MOST and not self.inside

    @property
    def inside(self) -> bool:
        """Whether this is the thread that runs the callbacks."""
        return threading.current_thread() is self._thread

    def submit(self, call: Callable[..., object], *args: Any) -> None:
        """Have it called soon. An exception of it is logged."""
        with self._change:
            self._calls.append((call, args))
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._change.notify_all()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until all that was submitted has run; whether it has. At once in the thread of the callbacks itself."""
        if self.inside:
            return not self._calls
        with self._change:
            return self._change.wait_for(lambda: not self._calls and not self._busy, timeout_s)

    def close(self, timeout_s: float) -> None:
        """Run what is left, within the time, and end the thread."""
        deadline = time.monotonic() + timeout_s
        self.wait(timeout_s)
        with self._change:
            self._closed = True
            self._change.notify_all()
        if self._thread is not None and not self.inside:
            self._thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._calls or self._closed)
                if not self._calls:
                    return
                call, args = self._calls.popleft()
                self._busy = True
            try:
                call(*args)
            except BaseException:  # sys.exit() of an application, too: the next one must run
                log.exception("A callback of the application failed")
            finally:
                with self._change:
                    self._busy = False
                    self._change.notify_all()
