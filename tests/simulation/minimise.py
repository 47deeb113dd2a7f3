"""A failing scenario made small, and told as a short story that a person can read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .checker import Violation
from .history import Event
from .run import Result, simulate
from .scenario import Mood, Scenario

Fails = Callable[[Result], bool]


def same_rule(violation: Violation) -> Fails:
    """Whether a result breaks the same rule."""
    return lambda result: any(v.rule == violation.rule for v in result.violations)


def smaller(scenario: Scenario, fails: Fails, *, tries: int = 150) -> Scenario:
    """Drop faults, hands, moods and parts of the world for as long as it still fails."""
    left = [tries]

    def still(candidate: Scenario) -> bool:
        if left[0] <= 0:
            return False
        left[0] -= 1
        try:
            return fails(simulate(candidate))
        except Exception:
            return False

    changed = True
    while changed and left[0] > 0:
        changed = False
        for candidate in _candidates(scenario):
            if still(candidate):
                scenario, changed = candidate, True
                break
    return scenario


def _candidates(s: Scenario) -> list[Scenario]:
    """Every scenario that is one thing smaller, the boldest first."""
    out = []
    if len(s.faults) > 1:
        half = len(s.faults) // 2
        out += [replace(s, faults=s.faults[half:]), replace(s, faults=s.faults[:half])]
    out += [replace(s, faults=s.faults[:i] + s.faults[i + 1 :]) for i in range(len(s.faults))]
    out += [replace(s, hands=s.hands[:i] + s.hands[i + 1 :]) for i in range(len(s.hands))]
    if any(m != Mood(m.after) for m in s.moods):
        out.append(replace(s, moods=(Mood(2.0),)))
    if s.skew:
        out.append(replace(s, skew=0.0))
    shape = s.shape
    for simpler in (
        replace(shape, skews=(0.0,)),
        replace(shape, instances=(1,)),
        replace(shape, members=(1,)),
        replace(shape, producers=1),
        replace(shape, groups=1),
    ):
        if simpler != shape:
            out.append(replace(s, shape=simpler))
    return out


# ------------------------------------------------------------------------------------------------------- a story

_TOLD = frozenset(
    {
        *("world", "call", "route", "row", "fault", "hand", "killed", "asked", "answered", "crashed", "rebalanced"),
        *("too_late", "reset", "plan", "holds", "healed", "quiet", "note", "says", "put_back"),
    }
)


def story(result: Result, *, lines: int = 70) -> str:
    """What happened: time, who, what. The last lines before the violation matter most."""
    first = result.violations[0] if result.violations else None
    head = [f"seed {result.scenario.seed}: {first or 'nothing wrong'}"]
    head += [f"  fault: {f}" for f in result.scenario.faults] + [f"  hand: {h}" for h in result.scenario.hands]
    until = first.at if first is not None and first.at else float("inf")
    told: list[str] = []
    for e in result.history.events:
        if e.what not in _TOLD or e.at > until + 5.0:
            continue
        line = f"{e.at:8.2f}  {e.who:<44} {_words(e)}"
        if not told or told[-1][10:] != line[10:]:
            told.append(line)
    if len(told) > lines:
        told = [*told[:5], f"          ... {len(told) - lines} lines ...", *told[5 - lines :]]
    return "\n".join([*head, *told, *(f"  BROKEN {v}" for v in result.violations[:5])])


def _words(e: Event) -> str:
    d: dict[str, Any] = e.data
    if e.what == "call":
        more = f" -> {d['why']}" if d["outcome"] == "fail" else ""
        return f"{d['port']}.{d['method']}({d['args'][:100]}){more}"
    if e.what == "row":
        return f"{d['step']} is {d['state']}"
    if e.what == "route":
        return f"route epoch {d['epoch']}: {d['state']} on {d['active']}, groups {d['groups']}"
    if e.what == "fault":
        return f"FAULT {d['fault'].kind} at {d['call']}"
    if e.what == "hand":
        return f"HAND {d['hand']} ({d['did']})"
    if e.what == "says":
        return f"says {d['status']} on {d['topic']} (epoch {d['epoch']})"
    if e.what == "note":
        return f"{d['kind']}: {d['text'][:150]}"
    return f"{e.what} " + " ".join(f"{k}={v}" for k, v in d.items())[:150]
