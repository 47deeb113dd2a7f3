"""Faults at the ports: drawn from the seed before the run, and injected by one proxy that wraps any port.

A fault says at which call it strikes: the n-th call that its pattern matches. So a run is decided by its seed and its
list of faults, and a fault can be left out to see whether a failure needs it.
"""

from __future__ import annotations

import functools
import inspect
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import log as _log
from typing import Any

from topicshift.core.errors import OwnershipLost, Transient
from topicshift.ports import GroupCommits, GroupInfo, PartitionOffsets

from .history import History
from .kernel import Kernel, Killed, Process

WRITES = frozenset(
    {
        *("create_topic", "delete_topic", "alter_topic_configs", "create_acls", "delete_acls", "alter_commits"),
        *("abort_transaction", "claim", "take_over", "renew", "set_state", "set_plan", "intend", "finish", "event"),
        *("take_seat", "leave_seat", "write", "request", "release", "abort"),
    }
)
"""Calls that change the world. Every other method of a port only reads."""

STALE = frozenset({"acls", "topic", "topic_names", "groups", "listing"})
"""Reads that any broker answers from its own, perhaps old, metadata."""

LOOKS = frozenset({"acls", "read_all", "topic"})
"""Reads of what outsiders take away: the history tells when each was answered in truth."""

READ_KINDS = ("refused", "slow", "kill", "stall", "clock_step")
WRITE_KINDS = ("refused", "lost", "late", "slow", "twice", "kill", "kill_after", "stall", "stall_after", "clock_step")


@dataclass(frozen=True)
class Fault:
    """``kind`` at the ``nth`` call whose port and method match (``*``: any, ``writes``: any that changes something)."""

    kind: str
    port: str
    method: str
    nth: int
    amount: float = 0.0

    def __str__(self) -> str:
        more = f" ({self.amount:.1f} s)" if self.amount else ""
        return f"{self.kind} at call {self.nth} of {self.port}.{self.method}{more}"


class Injector:
    """Counts the calls of the product's processes and says which fault strikes."""

    def __init__(self, kernel: Kernel, history: History, faults: Iterable[Fault]) -> None:
        self.kernel, self.history = kernel, history
        self._by: dict[tuple[str, str], dict[int, list[Fault]]] = {}
        self.has_stale = False
        self._watched: dict[tuple[str, str, bool], list[tuple[str, str]]] = {}
        for f in faults:
            self.has_stale |= f.kind == "stale"
            self._by.setdefault((f.port, f.method), {}).setdefault(f.nth, []).append(f)
        self._counts: Counter[tuple[str, str]] = Counter()
        self.hit: list[Fault] = []
        self.healed = False
        self.calls = 0

    def watched(self, port: str, method: str, write: bool) -> list[tuple[str, str]]:
        """The patterns of faults that a call matches."""
        known = self._watched.get((port, method, write))
        if known is None:
            all_ = ((port, method), (port, "*"), ("*", method), ("*", "*"), ("*", "writes" if write else "reads"))
            known = self._watched[port, method, write] = [key for key in all_ if key in self._by]
        return known

    def strike(self, keys: list[tuple[str, str]], method: str, write: bool) -> Fault | None:
        """Count a call that matches these patterns; the fault that strikes at it, if any."""
        self.calls += 1
        if self.healed or not keys:
            return None
        found: Fault | None = None
        for key in keys:
            self._counts[key] += 1
            for fault in self._by[key].get(self._counts[key], ()):
                if found is None and _fits(fault.kind, method, write):
                    found = fault
        if found is not None:
            self.hit.append(found)
        return found


def _fits(kind: str, method: str, write: bool) -> bool:
    if kind == "partial":
        return method in PARTIAL
    if kind == "stale":
        return method in STALE
    return kind in (WRITE_KINDS if write else READ_KINDS)


def lost_reply(port: str, method: str) -> Transient:
    """What an adapter raises for a request without an answer."""
    return Transient(f"no answer to {port}.{method} in time")


_MEAN_S = 0.006
"""Mean seconds that a call takes; the times are distributed exponentially."""

_is_async = functools.cache(inspect.iscoroutinefunction)


class Faulty:
    """A port as one process sees it: each call takes time, gives way to others, and may meet a fault."""

    def __init__(
        self,
        port: Any,
        name: str,
        process: Process,
        injector: Injector,
        describe: Callable[[str, str, tuple[Any, ...]], dict[str, Any]] = lambda *_: {},
    ) -> None:
        self._port, self._name, self._process, self._injector = port, name, process, injector
        self._describe = describe
        self.acted: Callable[[], None] = lambda: None
        self._last: dict[str, tuple[float, Any]] = {}

    def __getattr__(self, method: str) -> Any:
        real = getattr(self._port, method)
        if not callable(real):
            return real
        write = method in WRITES
        keys = self._injector.watched(self._name, method, write)
        plain = not (write or method == "offsets" or method in LOOKS or (method in STALE and self._injector.has_stale))
        if _is_async(getattr(real, "__func__", real)):

            async def later(*args: Any, **kwargs: Any) -> Any:
                began, fault = self._enter(keys, method, write)
                return self._call(fault, method, write, functools.partial(_finish, real, kwargs), args, began)

            call: Callable[..., Any] = later
        else:

            def now(*args: Any, **kwargs: Any) -> Any:
                began, fault = self._enter(keys, method, write)
                if plain and fault is None:
                    return real(*args, **kwargs)
                return self._call(fault, method, write, functools.partial(real, **kwargs), args, began)

            call = now
        self.__dict__[method] = call
        return call

    # ------------------------------------------------------------------------------------------------ one call

    def _enter(self, keys: list[tuple[str, str]], method: str, write: bool) -> tuple[float, Fault | None]:
        """Let the time pass that a call takes; when it began, and the fault that strikes at it."""
        process = self._process
        kernel = process.kernel
        if process.doomed:
            raise Killed(process.name)
        fault = self._injector.strike(keys, method, write)
        began = kernel.now
        process.pause(-_log(1.0 - kernel.random()) * _MEAN_S)
        return began, fault

    def _call(
        self,
        fault: Fault | None,
        method: str,
        write: bool,
        effect: Callable[..., Any],
        args: tuple[Any, ...],
        began: float,
    ) -> Any:
        process = self._process
        if fault is None:
            result = self._effect(method, effect, args, write, began)
            if method in STALE and self._injector.has_stale:
                self._last[f"{method}{args}"] = (process.kernel.now, result)
            return result
        self._injector.history.add(process.name, "fault", fault=fault, call=f"{self._name}.{method}")
        return self._faulty(fault, method, functools.partial(self._effect, method, effect, args, write, began), args)

    def _effect(self, method: str, effect: Callable[..., Any], args: tuple[Any, ...], write: bool, began: float) -> Any:
        history, name, port = self._injector.history, self._process.name, self._name
        if not write:
            result = effect(*args)
            if method == "offsets":
                whole = all(o.end is not None for o in result.values())
                history.add(name, "saw", topic=args[0], complete=whole, began=began)
            elif method in LOOKS:
                history.add(name, "looked", method=method, began=began)
            return result
        if method not in ("take_seat", "leave_seat"):
            self.acted()
        if port == "journal" or port == "evidence":
            return effect(*args)
        said = self._describe(port, method, args) | {"port": port, "method": method, "began": began}
        try:
            result = effect(*args)
        except Exception as error:
            history.add(name, "call", args=_note(args), outcome="fail", why=_short(error), **said)
            raise
        if getattr(result, "voided", None):
            said["void"] = True
        history.add(name, "call", args=_note(args), outcome="ok", **said)
        self._last.clear()
        return result

    def _faulty(self, fault: Fault, method: str, do: Callable[[], Any], args: tuple[Any, ...]) -> Any:
        process, kernel, kind = self._process, self._process.kernel, fault.kind
        if kind == "refused":
            raise lost_reply(self._name, method)
        if kind == "slow":
            process.pause(fault.amount)
            return do()
        if kind == "stall":
            process.stall(fault.amount)
            process.pause(0.0)
            return do()
        if kind == "stall_after":
            result = do()
            process.stall(fault.amount)
            process.pause(0.0)
            return result
        if kind == "kill":
            process.kill()
            raise Killed(process.name)
        if kind == "kill_after":
            _quietly(do)
            process.kill()
            raise Killed(process.name)
        if kind == "lost":
            _quietly(do)
            process.pause(fault.amount)
            raise lost_reply(self._name, method)
        if kind == "late":
            kernel.after(fault.amount, lambda: _quietly(do))
            process.pause(min(fault.amount, 10.0) * 0.5)
            raise lost_reply(self._name, method)
        if kind == "twice":
            do()
            return do()
        if kind == "clock_step":
            process.skew += fault.amount
            return do()
        if kind == "stale":
            at, old = self._last.get(f"{method}{args}", (-1e9, None))
            return old if kernel.now - at <= 30.0 else do()
        return PARTIAL[method](do())


def _quietly(do: Callable[[], Any]) -> None:
    try:
        do()
    except OwnershipLost:
        return
    except Exception:  # the reply is lost whatever it says
        return


def _finish(real: Callable[..., Any], kwargs: dict[str, Any], *args: Any) -> Any:
    """Run a coroutine function that never really waits."""
    try:
        real(*args, **kwargs).send(None)
    except StopIteration as done:
        return done.value
    raise RuntimeError("a simulated port may not wait")


def _note(args: tuple[Any, ...]) -> str:
    return ", ".join(_short(a) for a in args)[:160]


def _short(value: Any) -> str:
    return str(value)[:80]


# ------------------------------------------------------------------------------------------------ partial answers

WHY = "no answer from the leader in time"


def _some_offsets(found: dict[int, PartitionOffsets]) -> dict[int, PartitionOffsets]:
    first = min(found, default=None)
    return {p: PartitionOffsets(None, None, None, WHY) if p == first else o for p, o in found.items()}


def _some_commits(found: dict[str, GroupCommits]) -> dict[str, GroupCommits]:
    first = min(found, default=None)
    return {g: GroupCommits(g, {}, error=WHY) if g == first else c for g, c in found.items()}


def _some_groups(found: dict[str, GroupInfo]) -> dict[str, GroupInfo]:
    first = min(found, default=None)
    return {g: GroupInfo(g, i.kind, "UNKNOWN", error=WHY) if g == first else i for g, i in found.items()}


PARTIAL: dict[str, Callable[[Any], Any]] = {
    "offsets": _some_offsets,
    "commits": _some_commits,
    "describe_groups": _some_groups,
    "describe": _some_groups,
}
"""How an answer to each of these looks with a part unread."""


# ------------------------------------------------------------------------------------------------ drawing them

_KINDS = (
    ("refused", 10), ("lost", 14), ("late", 8), ("slow", 8), ("twice", 5), ("stale", 6), ("partial", 8),
    ("kill", 10), ("kill_after", 12), ("stall", 7), ("stall_after", 5), ("clock_step", 3),
)  # fmt: skip
_PLACES = (
    ("*", "*", 400), ("*", "reads", 300), ("*", "writes", 90), ("journal", "*", 150), ("journal", "intend", 25),
    ("journal", "finish", 25), ("admin", "create_acls", 4), ("admin", "delete_acls", 4), ("admin", "offsets", 60),
    ("admin", "create_topic", 2), ("admin", "alter_commits", 4), ("routes", "write", 9), ("routes", "*", 200),
    ("admin", "acls", 40), ("reader", "*", 60), ("admin", "*", 200),
)  # fmt: skip


def draw(rng: random.Random, count: int) -> list[Fault]:
    """So many faults."""
    names, weights = zip(*_KINDS, strict=True)
    out = []
    for _ in range(count):
        kind = rng.choices(names, weights)[0]
        port, method, reach = rng.choice(_PLACES)
        if kind == "partial":
            port, method, reach = rng.choice((("admin", "offsets", 60), ("reader", "*", 60), ("*", "commits", 20)))
        elif kind == "stale":
            port, method, reach = rng.choice(
                (("admin", "acls", 40), ("admin", "topic", 60), ("admin", "topic_names", 9))
            )
        amount = _amount(rng, kind)
        out.append(Fault(kind, port, method, 1 + int(rng.random() ** 1.5 * reach), amount))
    return out


def wished(rng: random.Random, name: str) -> list[Fault]:
    """Three faults of a kind; with ``kind@port.method`` two of the first calls of that method, and long ones."""
    kind, _, place = name.partition("@")
    if not place:
        return [f for f in draw(rng, 60) if f.kind == kind][:3]
    port, _, method = place.partition(".")
    long = rng.choice((45.0, 90.0)) if kind.startswith("stall") else rng.choice((3.0, 10.0))
    nths = rng.choice(((1, 3), (1, 2), (2, 5), (4, 7), (6, 10), (8, 11)))
    return [Fault(kind, port, method, nth, long * rng.uniform(0.8, 1.2)) for nth in nths]


def _amount(rng: random.Random, kind: str) -> float:
    if kind in ("stall", "stall_after"):
        return rng.choice((3.0, 12.0, 40.0, 90.0, 240.0)) * rng.uniform(0.8, 1.2)
    if kind in ("late", "slow", "lost"):
        return rng.choice((0.5, 3.0, 10.0, 25.0)) * rng.uniform(0.5, 1.2)
    if kind == "clock_step":
        return rng.choice((-20.0, -2.0, 2.0, 20.0, 70.0)) * rng.uniform(0.5, 1.0)
    return 0.0
