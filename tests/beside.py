"""Work that goes on beside a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def meanwhile(work: Callable[[], object], *, pause_s: float = 0.0) -> Iterator[None]:
    """Do something again and again, in a thread of its own, for as long as the block runs.

    Raises, when the block has ended, what the work raised: a helper that died early proves nothing.
    """
    over = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            while not over.is_set():
                work()
                over.wait(pause_s)
        except BaseException as error:  # told below, in the test's own thread
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if failed:
        raise failed[0]
