"""Waiting for AdminClient futures, in a loop without blocking it, or from plain code."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from topicshift.adapters.kafka.connection import Connection
from topicshift.core.errors import TopicshiftError

T = TypeVar("T")


async def settle(futures: Iterable[concurrent.futures.Future[Any]], timeout_s: float) -> None:
    """Return when every future is done, or after ``timeout_s`` seconds. One wake-up for thousands of futures."""
    waiting = list(futures)
    if not waiting:
        return
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    lock = threading.Lock()
    left = len(waiting)

    def one(_: concurrent.futures.Future[Any]) -> None:
        nonlocal left
        with lock:
            left -= 1
            last = left == 0
        if last and not loop.is_closed():
            loop.call_soon_threadsafe(event.set)

    for future in waiting:
        future.add_done_callback(one)
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return


def outcome(
    conn: Connection, future: concurrent.futures.Future[T], *, operation: str, resource: str
) -> tuple[T | None, TopicshiftError | None, str]:
    """Result, typed error and Kafka's error code of a future that has settled; one that has not is ``_TIMED_OUT``."""
    if not future.done():
        error = conn.error(TimeoutError(), operation=operation, resource=resource)
        return None, error, "_TIMED_OUT"
    failure = future.exception()
    if failure is None:
        return future.result(), None, ""
    name = getattr(failure.args[0] if failure.args else None, "name", None)
    code = str(name()) if callable(name) else type(failure).__name__
    return None, conn.error(failure, operation=operation, resource=resource), code


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end from plain code, also where a loop is running already (then in a thread)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with concurrent.futures.ThreadPoolExecutor(1, "topicshift-kafka") as pool:
        return pool.submit(asyncio.run, work).result()
