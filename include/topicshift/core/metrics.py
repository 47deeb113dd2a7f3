"""The metrics of a migration: their names and labels, and their values from what the engine saw and the journal has.

Pure: who emits them decides where to. Labels are bounded by what the cluster and the spec have: topics, groups,
participants, steps and states. No migration, run or offset is one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from topicshift.core.drain.certificate import DrainCertificate, Verdict
from topicshift.core.drain.gate import GateDecision, load_of
from topicshift.core.drain.progress import DrainProgress
from topicshift.core.engine.freeze import lasted
from topicshift.core.engine.view import FenceFact, Unknown, View, Whereabouts
from topicshift.core.engine.words import MigrationState, Row, StepState, plain_name, told
from topicshift.core.errors import FenceBroken
from topicshift.core.rows import MigrationRow, StepRow

PREFIX: Final = "topicshift"


class Kind(StrEnum):
    """How the values of a metric are to be understood."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True)
class Metric:
    """One metric: its name behind ``topicshift.``, its labels, and what its value is."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    what: str


@dataclass(frozen=True)
class Sample:
    """One value of a metric."""

    metric: Metric
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The full name."""
        return f"{PREFIX}.{self.metric.name}"

    def tags(self) -> dict[str, str]:
        """Its labels, with nothing in them that StatsD, InfluxDB or OpenTelemetry would misread."""
        return {label: clean(self.labels.get(label, "")) for label in self.metric.labels}


_MISREAD = re.compile(r"[^A-Za-z0-9_.-]")
LONGEST: Final = 60
"""Characters of a label's value: Airflow sends no StatsD name of more than 250, labels included."""


def clean(value: str) -> str:
    """A label's value as every backend takes it; never empty. A long one ends in a hash, so that no two become one."""
    found = _MISREAD.sub("_", value) or "none"
    if len(found) <= LONGEST:
        return found
    return f"{found[: LONGEST - 9]}_{hashlib.sha256(value.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def _gauge(name: str, labels: str, what: str) -> Metric:
    return Metric(name, Kind.GAUGE, tuple(labels.split()), what)


def _counter(name: str, labels: str, what: str) -> Metric:
    return Metric(name, Kind.COUNTER, tuple(labels.split()), what)


STATE = _gauge(
    "migration.state", "source state", "1 for the state that the newest migration of this source has, else 0."
)
STEP_SECONDS = _gauge(
    "step.seconds", "source step what", "Seconds that a part (a kind of journal row) of a step took, when done last."
)
RUNNING = _gauge("freeze.running", "source", "1 while producers may stand still, else 0.")
FREEZE = _gauge("freeze.seconds", "source", "Length of the freeze that runs, or of the last one, in seconds.")
BEGAN = _gauge("freeze.began_timestamp_seconds", "source", "When that freeze began, in seconds since the epoch.")
BUDGET = _gauge("freeze.budget_seconds", "source", "Seconds that the freeze may last.")
FORECAST = _gauge(
    "freeze.forecast_seconds", "source", "Predicted length of the next freeze; not sent while it cannot be told."
)
LAG = _gauge("group.lag", "source group", "Offsets that a group has left to read; not sent while that cannot be told.")
RATE = _gauge("group.rate", "source group", "Offsets a second by which the lag shrinks (negative: it grows).")
LEFT = _gauge(
    "group.drain_seconds",
    "source group",
    "Forecast of the seconds until a group has drained the source; not sent without one.",
)
UNREAD = _gauge(
    "group.unreadable", "source group", "1 while the lag of a group cannot be told (its last value stands), else 0."
)
STUCK = _gauge("group.stuck", "source group", "1 while a drain comes no nearer and an alarm is raised, else 0.")
PARTICIPANT = _gauge(
    "participant.state", "source participant role state", "1 for the state in which a participant is seen, else 0."
)
FENCE_BROKEN = _gauge("fence.broken", "source", "1 while the source does not end where its fence was taken, else 0.")
VIOLATIONS = _counter("fence.violations", "source", "Times that a record was found on a fenced source.")
BACK = _counter("source.back", "source", "Times that a deleted source was found there again, or replaced.")
FAILED = _counter("step.failures", "source task", "Tasks or commands of a migration that have failed.")

METRICS: Final = (
    *(
        STATE,
        STEP_SECONDS,
        FAILED,
        RUNNING,
        FREEZE,
        BEGAN,
        BUDGET,
        FORECAST,
        LAG,
        RATE,
        LEFT,
        UNREAD,
        STUCK,
        PARTICIPANT,
    ),
    *(FENCE_BROKEN, VIOLATIONS, BACK),
)
"""Every metric, in the order of the docs."""

SIGHTS: Final = ("running_on_source", "running_on_target", "running", "stopped", "unknown")
"""Values of the label ``state`` of a participant; ``running``: on both topics, or on neither."""

_EVENTS: Final[Mapping[str, Metric]] = {
    "fence_broken": VIOLATIONS,
    "source_written": VIOLATIONS,
    "source_back": BACK,
    "source_replaced": BACK,
    "step_failed": FAILED,
}


def of_event(source: str, kind: str, data: Mapping[str, Any]) -> Iterator[Sample]:
    """What an event of the audit trail adds to a counter."""
    metric = _EVENTS.get(kind)
    if metric is not None:
        yield Sample(metric, 1, {"source": source, "task": str(data.get("task") or "")})
    if kind == "step_failed" and data.get("error") == FenceBroken.__name__:
        yield Sample(VIOLATIONS, 1, {"source": source})


# ------------------------------------------------------------------------------------------------ the journal


def of_journal(row: MigrationRow, steps: Sequence[StepRow], now: datetime) -> Iterator[Sample]:
    """State, freeze and step seconds, from the journal's rows."""
    for state in MigrationState:
        yield Sample(STATE, float(row.state == state), {"source": row.source, "state": state.value})
    for step in steps:
        if step.step == Row.FREEZE:
            yield from _freeze(row.source, step.state, step.data, now)
        if step.state == StepState.DONE and step.finished_at is not None:
            took = (datetime.fromisoformat(step.finished_at) - datetime.fromisoformat(step.started_at)).total_seconds()
            name, _ = told(step.step)
            # A group's or a question's row counts for its kind: its name would make a label of each.
            what = plain_name(step.step).partition(":")[0]
            yield Sample(STEP_SECONDS, round(took, 3), {"source": row.source, "step": name, "what": what})


def _freeze(source: str, state: str, data: Mapping[str, Any], now: datetime) -> Iterator[Sample]:
    labels = {"source": source}
    seen = lasted(state, data, now)
    began, lease = seen.freeze.started_at, seen.freeze.lease_until
    yield Sample(RUNNING, float(seen.running), labels)
    yield Sample(FREEZE, seen.seconds, labels)
    yield Sample(BEGAN, round(began.timestamp(), 3), labels)
    yield Sample(BUDGET, (lease - began).total_seconds(), labels)


# --------------------------------------------------------------------------------------------------- the view


def of_view(source: str, view: View) -> Iterator[Sample]:
    """What one look of the engine has seen; nothing of a fact that it did not ask for, or could not read.

    ``source`` is the migration's, also on a way back, where the engine's source is the target.
    """
    record = view.record
    row = record.step(Row.FREEZE)
    if row is not None:
        yield from _freeze(source, row.state, row.data, view.now)
    if isinstance(view.producers, Mapping):
        for name, where in view.producers.items():
            yield from _sight(source, name, "producer", where, mirrored=record.mirrored)
    names = {c.group: c.name for c in record.policy.consumers}
    for group, fact in view.groups.items():
        if not isinstance(fact, Unknown):
            yield from _sight(source, names.get(group, group), "consumer", fact.where, mirrored=record.mirrored)
    if isinstance(view.fence, FenceFact) and not record.mirrored:
        yield Sample(FENCE_BROKEN, float(bool(view.fence.broken)), {"source": source})
    if not isinstance(view.gate, Unknown) and view.gate.forecast is not None:
        seconds = view.gate.forecast.seconds
        if seconds is not None:
            yield Sample(FORECAST, round(seconds, 3), {"source": source})
        yield from _left(source, view.gate.forecast.groups or {})


def _sight(source: str, name: str, role: str, where: Whereabouts, *, mirrored: bool) -> Iterator[Sample]:
    side = {"source": "target", "target": "source"}.get(where.side or "") if mirrored else where.side
    seen = f"running_on_{side}" if where.status == "running" and side else where.status
    for state in SIGHTS:
        labels = {"source": source, "participant": name, "role": role, "state": state}
        yield Sample(PARTICIPANT, float(state == seen), labels)


def _left(source: str, seconds: Mapping[str, float | None]) -> Iterator[Sample]:
    for group, value in seconds.items():
        if value is not None:
            yield Sample(LEFT, round(value, 3), {"source": source, "group": group})


# -------------------------------------------------------------------------------------------------- the drain


def of_progress(source: str, progress: DrainProgress) -> Iterator[Sample]:
    """Every group of a drain at one moment."""
    for group in progress.groups:
        labels = {"source": source, "group": group.group}
        known = group.lag is not None
        yield Sample(UNREAD, float(not known), labels)
        yield Sample(STUCK, float(group.alarm is not None), labels)
        if known and group.lag is not None:
            yield Sample(LAG, group.lag, labels)
            yield Sample(RATE, round(group.rate, 3), labels)
        seconds = 0.0 if group.verdict is Verdict.DRAINED else group.left.seconds
        yield from _left(source, {group.group: seconds})


def of_gate(source: str, certificate: DrainCertificate, decision: GateDecision) -> Iterator[Sample]:
    """Every group before the freeze, while the gate is waited for."""
    for group in certificate.groups:
        load, labels = load_of(group), {"source": source, "group": group.group}
        yield Sample(UNREAD, float(load.lag is None), labels)
        if load.lag is not None:
            yield Sample(LAG, load.lag, labels)
    yield from _left(source, decision.seconds)
