"""Lines in a job's log while Spark works: a read of minutes must not look like one that hangs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import InheritableThread
from pyspark.sql import SparkSession

EVERY_S = 10.0
"""Seconds between two lines."""


def say(text: str) -> None:
    """One line for whoever follows the log; stdout is for the answer."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def progress(spark: SparkSession, what: str, *, every_s: float = EVERY_S) -> Iterator[None]:
    """Say what begins, every few seconds how many of Spark's tasks are done, and how long it took in the end."""
    started = time.monotonic()
    over = threading.Event()

    def follow() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not over.wait(every_s):
            found = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            stages = [f"{s.numCompletedTasks} of {s.numTasks} tasks of {s.name.split(' at ')[0]}" for s in found if s]
            say(f"{what}: {time.monotonic() - started:.0f} s, {', '.join(stages) or 'between two stages'}")

    say(f"{what} ...")
    thread = InheritableThread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    say(f"{what}: done in {time.monotonic() - started:.1f} s")
