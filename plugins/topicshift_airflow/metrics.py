"""Metrics through Airflow's own: StatsD or OpenTelemetry, as Airflow is configured; without either, nothing.

A look of the engine is told every few seconds, a task's end by the journal. Nothing here may hold up or fail a step:
StatsD is a datagram, OpenTelemetry is sent by a thread of its own, and whatever goes wrong is logged once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk.configuration import conf

from topicshift.core import metrics

if TYPE_CHECKING:
    from topicshift.acts.context import MigrationContext
    from topicshift.core.engine.view import View
    from topicshift.core.metrics import Sample

log = logging.getLogger("topicshift")

EVERY_S = 2.0
"""Seconds between two looks that are told, at least."""

_BACKENDS = ("statsd_on", "statsd_datadog_enabled", "otel_on")
_warned = False


def on() -> bool:
    """Whether Airflow sends metrics anywhere."""
    return any(conf.getboolean("metrics", key, fallback=False) for key in _BACKENDS)


def labelled() -> bool:
    """Whether the backend takes labels. With plain StatsD they become part of the name, as Airflow's own do."""
    plain = conf.getboolean("metrics", "statsd_on", fallback=False)
    takes = ("statsd_influxdb_enabled", "statsd_datadog_enabled", "otel_on")
    return not plain or any(conf.getboolean("metrics", key, fallback=False) for key in takes)


def emit(samples: Callable[[], Iterable[Sample]], *, trigger: bool = False) -> None:
    """Send what ``samples`` yields. ``trigger``: in the triggerer, whose process has Airflow's own side of the metrics.

    Never raises.
    """
    global _warned
    try:
        if not on():
            return
        if trigger:
            from airflow.observability import stats
        else:
            from airflow.sdk.observability import stats  # type: ignore[no-redef]
        with_labels = labelled()
        for sample in samples():
            _send(stats, sample, with_labels)
    except Exception as error:  # noqa: BLE001 - a metric must never fail a step
        if not _warned:
            log.warning("metrics cannot be sent: %s: %s", type(error).__name__, error)
        _warned = True


def _send(stats: Any, sample: Sample, with_labels: bool) -> None:
    tags = sample.tags()
    name = sample.name if with_labels else ".".join([sample.name, *(v.replace(".", "__") for v in tags.values())])
    send = stats.gauge if sample.metric.kind is metrics.Kind.GAUGE else stats.incr
    value = sample.value if sample.metric.kind is metrics.Kind.GAUGE else int(sample.value)
    send(name, value, tags=tags if with_labels else None)


class Meter:
    """Metrics of one migration, from one task. ``source`` is the label of all of them."""

    def __init__(self, source: str, *, trigger: bool = False) -> None:
        self._source = source
        self._trigger = trigger
        self._next = 0.0

    def look(self, view: View) -> None:
        """One look of the engine; told every few seconds."""
        if self._due():
            emit(lambda: metrics.of_view(self._source, view), trigger=self._trigger)

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """One event of the audit trail."""
        emit(lambda: metrics.of_event(self._source, kind, data), trigger=self._trigger)

    def drain(self, samples: Callable[[], Iterable[Sample]]) -> None:
        """One look of a wait in the triggerer; told every few seconds."""
        if self._due():
            emit(samples, trigger=self._trigger)

    def last(self, ctx: MigrationContext) -> None:
        """The end of a task: what the journal has. In a freeze nobody waits for that read."""
        if on() and (ctx.memory.record is None or ctx.memory.record.freeze is None):
            emit(lambda: _journal(ctx), trigger=self._trigger)

    def _due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + EVERY_S
        return True


def _journal(ctx: MigrationContext) -> Iterable[Sample]:
    row = ctx.journal.current(ctx.row.migration_id)
    return metrics.of_journal(row, ctx.journal.steps(row.migration_id), ctx.clock.now())


def meter_of(source: str, *, trigger: bool = False) -> Meter | None:
    """The meter of a migration; none of a rehearsal, whose topics have a name of their own each time."""
    from topicshift.core.spec.shadows import real_name

    return None if real_name(source) else Meter(source, trigger=trigger)
