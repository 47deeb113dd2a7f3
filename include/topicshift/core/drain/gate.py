"""The gate before the freeze: would every group drain the source well within the freeze budget? Pure.

A group that keeps up has a lag of a moment's production. What counts is how long it would need for that lag once nobody
writes any more: its lag over the rate at which its committed offsets move.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from topicshift.core.drain.certificate import DrainCertificate, GroupEvidence, Verdict
from topicshift.core.drain.progress import SERIES_POINTS
from topicshift.core.drain.reasons import REASONS, Reason
from topicshift.core.series import thinned

BUDGET_SHARE = 0.25
"""The drain may take this share of the freeze budget; the rest is for fence, proof, approval and switch."""

WINDOW_S = 5.0
"""Rates are taken over this many seconds."""

FEW = 20
"""So few offsets are no obstacle, whatever the rate was."""

_NOT_BY_WAITING = (
    Reason.LOST_AND_UNREAD,
    Reason.LOST_UNREAD,
    Reason.NEVER_COMMITTED_EXPIRED,
    Reason.NEVER_COMMITTED,
)
"""Reasons that a freeze would meet again: a person decides, or the group commits a first offset, before it begins."""


@dataclass(frozen=True)
class GroupLoad:
    """One group at one moment: lag and sum of commits in offsets, over all partitions; None if not known.

    ``why``: what is not known. ``stuck``: why no freeze would be long enough, and what to do.
    """

    lag: int | None
    committed: int | None
    why: str = ""
    stuck: str = ""


def load_of(group: GroupEvidence) -> GroupLoad:
    """Lag and commits of a group from its rows in a certificate taken without a fence."""
    lag = committed = 0
    for row in group.partitions:
        if row.end is None or row.log_start is None or row.verdict is Verdict.UNKNOWN:
            return GroupLoad(None, None, f"partition {row.partition}: {row.reason}")
        at = row.log_start if row.committed is None else max(row.committed, row.log_start)
        lag += 0 if row.verdict is Verdict.DRAINED else max(0, row.end - at)
        committed += at
    return GroupLoad(lag, committed, stuck=_stuck(group, lag))


def _stuck(group: GroupEvidence, lag: int) -> str:
    for reason in _NOT_BY_WAITING:
        partitions = [str(r.partition) for r in group.partitions if r.reason == reason]
        if partitions:
            return f"{reason} on partition {', '.join(partitions)}. {REASONS[reason].remedy}"
    return f"{lag} records behind, and it has no members. Start it" if group.state == "EMPTY" and lag else ""


def _is_an_obstacle(code: str) -> bool:
    """Whether a reason of the whole certificate bears on its verdict: a group that is ignored does not."""
    return REASONS[Reason(code.partition(":")[0])].verdict is not None


@dataclass(frozen=True)
class GateDecision:
    """``ready``, and what is waited for, one line a group: signal, observed, wanted."""

    ready: bool
    waits: tuple[str, ...] = ()
    seconds: Mapping[str, float | None] = field(default_factory=dict)


class Gate:
    """Fed one certificate after the other; memory is bounded by the window."""

    def __init__(self, budget_s: float) -> None:
        self.wanted_s = budget_s * BUDGET_SHARE
        self._seen: deque[tuple[float, dict[str, GroupLoad]]] = deque(maxlen=64)
        self._series: dict[str, list[tuple[float, int]]] = {}
        self._needs: dict[str, float | None] = {}

    def add(self, certificate: DrainCertificate, at: float) -> GateDecision:
        """Take in what was seen at ``at`` (seconds) and decide. Anything unknown keeps the gate shut, by name."""
        now = {g.group: load_of(g) for g in certificate.groups}
        self._seen.append((at, now))
        while len(self._seen) > 2 and self._seen[1][0] <= at - WINDOW_S:
            self._seen.popleft()
        began, then = self._seen[0]
        waits = [f"{certificate.topic}: {code}" for code in certificate.reasons if _is_an_obstacle(code)]
        seconds: dict[str, float | None] = {}
        if not now:
            waits.append(f"{certificate.topic}: no group could be seen")
        for name, load in now.items():
            seconds[name] = self._seconds(load, then.get(name), at - began)
            needs = self._needs[name] = seconds[name]
            self._note(name, load, at)
            if load.lag is None:
                waits.append(f"group {name}: cannot be told ({load.why})")
            elif load.stuck:
                waits.append(f"group {name}: {load.stuck}")
            elif needs is None:
                waits.append(f"group {name}: {load.lag} records behind, and its commits do not move")
            elif needs > self.wanted_s:
                waits.append(
                    f"group {name}: {load.lag} records behind, about {needs:.0f} s to drain; "
                    f"wanted at most {self.wanted_s:.0f} s"
                )
        return GateDecision(not waits, tuple(waits), seconds)

    def _note(self, name: str, load: GroupLoad, at: float) -> None:
        series = self._series.setdefault(name, [])
        if load.lag is not None:
            series.append((at, load.lag))
        series[:] = thinned(series, SERIES_POINTS)

    def progress(self, at: float, waits: Sequence[str]) -> dict[str, Any]:
        """What was seen so far, for charts: by group its lag (offsets, None if not known) over time, and how long it
        would take to drain (seconds, None if not known). ``waits``: what the gate waits for at ``at``."""
        loads = self._seen[-1][1] if self._seen else {}
        groups = [
            {
                "group": name,
                "lag": load.lag,
                "seconds_left": self._needs.get(name),
                "series": self._series.get(name, []),
            }
            for name, load in loads.items()
        ]
        return {"at": at, "wanted_s": self.wanted_s, "waits": list(waits), "groups": groups}

    @staticmethod
    def _seconds(now: GroupLoad, then: GroupLoad | None, elapsed: float) -> float | None:
        if now.lag is None or now.committed is None:
            return None
        if now.lag <= FEW:
            return 0.0
        if then is None or then.committed is None or elapsed <= 0 or now.committed <= then.committed:
            return None
        return now.lag * elapsed / (now.committed - then.committed)
