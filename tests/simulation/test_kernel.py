"""The kernel: simulated time, processes that give way, die and stall, and coroutines without an event loop."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from tests.simulation.faults import Fault, Faulty, Injector, draw
from tests.simulation.history import History
from tests.simulation.kernel import Kernel, Process, SimClock, drive

from topicshift.core.errors import Transient


class Counter:
    """A port that counts."""

    def __init__(self) -> None:
        self.writes = 0

    def write(self, n: int) -> int:
        self.writes += n
        return self.writes

    def look(self) -> int:
        return self.writes

    async def later(self) -> int:
        return self.writes


def world(*faults: Fault) -> tuple[Kernel, Counter, Injector]:
    kernel = Kernel("1")
    return kernel, Counter(), Injector(kernel, History(lambda: kernel.now), faults)


def run(kernel: Kernel, port: Counter, injector: Injector, body: Any) -> Process:
    process: Process = Process(kernel, "p", lambda: body(Faulty(port, "port", process, injector)))
    process.start()
    kernel.run(1000.0)
    return process


def test_two_processes_take_turns_and_time_jumps() -> None:
    kernel, said = Kernel("1"), []

    def body(name: str, pause: float) -> None:
        for _ in range(2):
            process[name].pause(pause)
            said.append((name, kernel.now))

    process = {n: Process(kernel, n, lambda n=n, s=s: body(n, s)) for n, s in (("a", 3600.0), ("b", 5000.0))}
    for p in process.values():
        p.start()
    kernel.run(20_000.0)
    assert said == [("a", 3600.0), ("b", 5000.0), ("a", 7200.0), ("b", 10_000.0)]


def test_a_reply_is_lost_after_the_effect() -> None:
    kernel, port, injector = world(Fault("lost", "port", "write", 1))
    process = run(kernel, port, injector, lambda p: p.write(1))
    assert isinstance(process.error, Transient)
    assert port.writes == 1


def test_a_refused_call_has_no_effect() -> None:
    kernel, port, injector = world(Fault("refused", "port", "write", 1))
    process = run(kernel, port, injector, lambda p: p.write(1))
    assert isinstance(process.error, Transient)
    assert port.writes == 0


def test_a_late_effect_comes_after_the_caller_gave_up() -> None:
    kernel, port, injector = world(Fault("late", "port", "write", 1, 20.0))
    seen: list[int] = []

    def body(p: Any) -> None:
        with pytest.raises(Transient):
            p.write(1)
        seen.append(p.look())

    run(kernel, port, injector, body)
    assert (seen, port.writes) == ([0], 1)


@pytest.mark.parametrize(("kind", "effect"), [("kill", 0), ("kill_after", 1)])
def test_a_killed_process_reaches_nothing_any_more(kind: str, effect: int) -> None:
    kernel, port, injector = world(Fault(kind, "port", "write", 1))

    def body(p: Any) -> None:
        try:
            p.write(1)
        finally:
            p.write(10)

    process = run(kernel, port, injector, body)
    assert process.doomed
    assert port.writes == effect


def test_a_stalled_process_sees_its_clock_jump() -> None:
    kernel, port, injector = world(Fault("stall", "port", "look", 1, 90.0))
    times: list[float] = []

    def body(p: Any) -> None:
        clock = SimClock(process_of[0])
        before = clock.now()
        p.look()
        times.append((clock.now() - before).total_seconds())

    process_of: list[Process] = []
    process = Process(kernel, "p", lambda: body(Faulty(port, "port", process, injector)))
    process_of.append(process)
    process.start()
    kernel.run(200.0)
    assert times[0] == pytest.approx(90.0, abs=1.0)


def test_coroutines_run_without_an_event_loop() -> None:
    kernel, port, injector = world()

    async def both(p: Any) -> list[int]:
        return list(await asyncio.gather(p.later(), asyncio.to_thread(lambda: 7)))

    process: Process = Process(kernel, "p", lambda: drive(process, both(Faulty(port, "port", process, injector))))
    process.start()
    kernel.run(10.0)
    assert process.error is None
    assert process.result == [0, 7]


def test_the_same_seed_draws_the_same_faults() -> None:
    assert draw(random.Random("7"), 20) == draw(random.Random("7"), 20)


def test_a_process_ends_with_its_run_and_reaches_nothing_any_more() -> None:
    """The collector would wake it later, in the middle of another run."""
    kernel, said = Kernel("s"), list[str]()

    def body() -> None:
        try:
            process.pause(100.0)
        finally:
            said.append("closing")
            process.pause(0.0)
            said.append("still at work")

    process = Process(kernel, "p", body).start()
    kernel.run(10.0)
    assert process._greenlet and not process.over
    process.end()
    assert (bool(process._greenlet), process.over, said) == (False, True, ["closing"])


def test_calls_side_by_side_are_made_one_after_the_other() -> None:
    kernel, port, injector = world(Fault("refused", "port", "later", 2))
    port.writes = 5

    async def three(port: Any) -> list[Any]:
        one = asyncio.gather(port.later(), port.later(), port.later(), return_exceptions=True)
        return [*await one, *await asyncio.gather(asyncio.gather(port.later()), port.later())]

    process = run(kernel, port, injector, lambda port: drive(process_of(port), three(port)))
    assert process.error is None
    first, second, third, inner, last = process.result
    assert (first, third, inner, last) == (5, 5, [5], 5)
    assert isinstance(second, Transient)


def test_a_coroutine_beside_others_may_not_wait() -> None:
    async def waits() -> None:
        await asyncio.get_running_loop().create_future()

    async def both() -> None:
        await asyncio.gather(waits(), waits())

    kernel = Kernel("1")
    process: Process = Process(kernel, "p", lambda: drive(process, both()))
    process.start()
    kernel.run(1.0)
    assert "may not wait" in str(process.error)


def process_of(port: Any) -> Process:
    made: Process = port._process
    return made
