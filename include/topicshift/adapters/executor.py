"""Independent questions side by side, in threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from topicshift.core.errors import TopicshiftError

T = TypeVar("T")
THREADS = 16
"""At most so many questions at once. Each waits for a broker, so threads cost little."""


class ThreadExecutor:
    """:class:`topicshift.ports.Executor` in threads."""

    def __init__(self, threads: int = THREADS) -> None:
        self._here = threading.local()
        self._pool = concurrent.futures.ThreadPoolExecutor(
            threads, thread_name_prefix="topicshift-ask", initializer=lambda: setattr(self._here, "asked", True)
        )

    def gather(self, calls: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
        """The result of each call, or the ``TopicshiftError`` that it raised, as a value. Other errors are raised."""
        if len(calls) == 1:
            return {name: _result(call) for name, call in calls.items()}
        if calls and getattr(self._here, "asked", False):
            # Waiting for the pool in one of its own threads could wait forever.
            with concurrent.futures.ThreadPoolExecutor(len(calls), thread_name_prefix="topicshift-ask") as own:
                return _all(own, calls)
        return _all(self._pool, calls)

    def run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """The result of a coroutine, from plain code."""
        return run_async(work)

    def close(self) -> None:
        """End the threads; what they still ask is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _all(pool: concurrent.futures.ThreadPoolExecutor, calls: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    asked = {name: pool.submit(call) for name, call in calls.items()}
    concurrent.futures.wait(asked.values())
    return {name: _result(future.result) for name, future in asked.items()}


def _result(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except TopicshiftError as error:
        return error


def run_async(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine from plain code, also where an event loop is running already (then in a thread)."""
    found: list[T] = []

    async def keep() -> None:
        # Not as the result of the task: putting back the handler of SIGINT, asyncio.run makes a repr of the task,
        # result and all, which takes seconds for a large certificate.
        try:
            found.append(await work())
        except BaseException:
            # What was asked at the same time may fail in this very moment too: asyncio.run would print its traceback.
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            raise

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(keep())
    else:
        with concurrent.futures.ThreadPoolExecutor(1, "topicshift-drain") as pool:
            pool.submit(lambda: asyncio.run(keep())).result()
    return found[0]
