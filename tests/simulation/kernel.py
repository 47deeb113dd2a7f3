"""Simulated time and simulated processes: one seed, one thread, no wall clock.

A process runs plain synchronous code in a greenlet. Whenever it calls a port or sleeps it gives way to the kernel,
which moves time to the next event. A process that is killed never runs another instruction that reaches the world.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import heapq
import random
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import greenlet

T = TypeVar("T")

BASE = datetime(2026, 3, 29, 0, 58, tzinfo=UTC)
"""The moment at which every simulated run begins: two minutes before Berlin puts its clocks forward."""
BASE_MS = int(BASE.timestamp() * 1000)


class Killed(BaseException):
    """The process was killed (kill -9): nothing that it does from now on reaches the world."""


class OutOfTime(RuntimeError):
    """The simulation ran past its last moment, or past its number of events: something spins."""


class Kernel:
    """The event queue. ``now`` is in seconds since :data:`BASE`; ``rng`` decides latencies."""

    def __init__(self, seed: str, *, max_events: int = 60_000) -> None:
        self.rng = random.Random(seed)
        self.random = self.rng.random
        self.now = 0.0
        self.calls = 0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0
        self._hub = greenlet.getcurrent()
        self._left = max_events
        self._until = self._look = 0.0
        self._stop: Callable[[], bool] | None = None
        self.running: Process | None = None

    @property
    def time(self) -> datetime:
        """The true time."""
        return BASE + timedelta(seconds=self.now)

    @property
    def ms(self) -> int:
        """The true time in ms since the epoch: the brokers' clock."""
        return BASE_MS + int(self.now * 1000)

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Do something at this time, or now if it is over."""
        self._serial += 1
        heapq.heappush(self._queue, (max(when, self.now), self._serial, do))

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        """Do something in so many seconds."""
        self.at(self.now + seconds, do)

    def every(self, seconds: float, do: Callable[[], float | None]) -> None:
        """Do something again and again; it returns the next pause, None for the same, a negative one for the end."""

        def again() -> None:
            pause = do()
            if pause is None or pause >= 0:
                self.after(seconds if pause is None else pause, again)

        self.after(seconds, again)

    def run(self, until: float, stop: Callable[[], bool] | None = None) -> None:
        """Let events happen up to this time, or until ``stop`` says so."""
        self._until, self._look, self._stop = until, self.now, stop
        while self._queue and self._queue[0][0] <= until:
            if stop is not None and self.now >= self._look:
                if stop():
                    return
                self._look = self.now + 0.5
            self._left -= 1
            if self._left <= 0:
                raise OutOfTime(f"too many events at {self.now:.1f} s")
            when, _, do = heapq.heappop(self._queue)
            self.now = max(self.now, when)
            do()
        self.now = max(self.now, until)

    def jump(self, seconds: float) -> bool:
        """Let time pass for the process that runs, if nothing else would happen in it: no switch is needed then."""
        when = self.now + seconds
        if when > self._until or (self._queue and self._queue[0][0] <= when):
            return False
        if self._left <= 1 or (self._stop is not None and self.now >= self._look):
            return False
        self._left -= 1
        self.now = when
        return True


class Process:
    """A process of the product. ``skew`` is how far its clock runs ahead, in seconds."""

    def __init__(self, kernel: Kernel, name: str, body: Callable[[], Any], *, skew: float = 0.0) -> None:
        self.kernel, self.name, self.skew = kernel, name, skew
        self.since = kernel.now
        self.doomed = False
        self.over = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.on_end: Callable[[], None] | None = None
        self._body = body
        self._stalled_until = -1.0
        self._waiting = False
        self._greenlet = greenlet.greenlet(self._main, parent=kernel._hub)

    def start(self, after: float = 0.0) -> Process:
        """Let it begin."""
        self.kernel.after(after, self._resume)
        return self

    def _main(self) -> None:
        self.since = self.kernel.now
        try:
            self.result = self._body()
        except Killed:
            self.doomed = True
        except BaseException as error:
            if not isinstance(error, Exception):
                raise
            self.error = error
        self.over = True
        if self.on_end is not None:
            self.kernel.after(0.0, self.on_end)

    def _resume(self) -> None:
        if self.over:
            return
        if self.kernel.now < self._stalled_until and not self.doomed:
            self.kernel.at(self._stalled_until, self._resume)
            return
        before, self.kernel.running = self.kernel.running, self
        self._greenlet.switch()
        self.kernel.running = before

    def pause(self, seconds: float) -> None:
        """Called by the process itself: give way for so long. Raises ``Killed`` if it was killed meanwhile."""
        if self.doomed:
            raise Killed(self.name)
        if self.kernel.now + seconds >= self._stalled_until and self.kernel.jump(seconds):
            return
        self.kernel.after(seconds, self._resume)
        loop = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        self.kernel._hub.switch()
        asyncio._set_running_loop(loop)
        if self.doomed:
            raise Killed(self.name)

    def stall(self, seconds: float) -> None:
        """SIGSTOP for so long (from outside, or by a fault inside one of its calls)."""
        self._stalled_until = max(self._stalled_until, self.kernel.now + seconds)

    def kill(self) -> None:
        """Kill it: it ends at its next call, before any effect."""
        self.doomed = True

    def end(self) -> None:
        """Kill it here and now, once its run is over: the collector would wake it in the middle of another run."""
        self.doomed = True
        if self._greenlet:
            self._greenlet.throw(Killed(self.name))


class SimClock:
    """The clock of one process: true time and its skew. ``sleep`` gives way to the kernel.

    A process that only looks, again and again, sleeps longer each time (as on a loaded machine), so that long waits
    cost little to simulate; ``acted`` is called when it changes something.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._looks = 0

    def acted(self) -> None:
        """The process changed something: it looks closely again."""
        self._looks = 0

    def now(self) -> datetime:
        """What this process believes."""
        p = self._process
        return BASE + timedelta(seconds=p.kernel.now + p.skew)

    def sleep(self, seconds: float) -> None:
        """Let simulated time pass."""
        self._looks += 1
        longer = 1.0 if self._looks <= 8 else min(2.0 ** ((self._looks - 8) / 3), 12.0)
        self._process.pause(max(seconds, 0.0) * longer)


class InlineExecutor(concurrent.futures.Executor):
    """Runs what is submitted at once, in the caller."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[T]:
        """Run it and return its result as a finished future."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class _Future(asyncio.Future[Any]):
    """One on which ``gather`` can set what it sets on a task."""


class _Loop(asyncio.AbstractEventLoop):
    """As much of an event loop as ``gather`` and ``to_thread`` need: ready callbacks, and nothing to wait for."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._ready: list[tuple[Any, Any, Any]] = []

    def get_debug(self) -> bool:
        return False

    def time(self) -> float:
        return self._process.kernel.now

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> asyncio.Future[Any]:
        """Run it to its end at once: what stands side by side in a ``gather`` is a call of a port, and none waits."""
        made = self.create_future()
        try:
            coro.send(None)
        except StopIteration as end:
            made.set_result(end.value)
        except BaseException as error:
            made.set_exception(error)
        else:
            coro.close()
            made.set_exception(RuntimeError("a coroutine beside others may not wait in the simulator"))
        return made

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        self._ready.append((callback, args, context))

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        self._process.pause(delay)
        handle = asyncio.TimerHandle(0.0, callback, args, self, context)
        self.call_soon(handle._run)
        return handle

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Nobody listens."""

    def drain(self, task: asyncio.Future[T]) -> T:
        while not task.done():
            if not self._ready:
                raise RuntimeError("the coroutine waits for something that no simulated event will bring")
            ready, self._ready = self._ready, []
            for callback, args, context in ready:
                if context is None:
                    callback(*args)
                else:
                    context.run(callback, *args)
        return task.result()


def drive(process: Process, coro: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end inside a simulated process, without a real event loop."""
    loop = _Loop(process)
    before = asyncio._get_running_loop()
    asyncio._set_running_loop(loop)
    try:
        return loop.drain(asyncio.Task(coro, loop=loop))
    finally:
        asyncio._set_running_loop(before)
