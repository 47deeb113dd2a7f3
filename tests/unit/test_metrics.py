"""Metrics of a migration, as a StatsD server receives them from Airflow's own client."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from airflow.observability import stats as core_stats
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.test_acts_drain_back import moved
from tests.unit.world import SOURCE, World

from topicshift.acts.context import MigrationContext
from topicshift.core import metrics
from topicshift.core.drain.certificate import Verdict
from topicshift.core.engine.words import Step
from topicshift.core.errors import FenceBroken
from topicshift.core.metrics import METRICS, Kind, Sample
from topicshift_airflow import metrics as plugin
from topicshift_airflow.metrics import Meter, emit, meter_of
from topicshift_airflow.triggers.drain import DrainTrigger

LISTENS = """
import socket, sys
heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
heard.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
heard.bind(("127.0.0.1", 0))
print(heard.getsockname()[1], flush=True)
while True:
    sys.stdout.write(heard.recv(65536).decode() + chr(10))
    sys.stdout.flush()
"""


class Statsd:
    """A StatsD server: the last value of each gauge, the sum of each counter, by name and labels.

    It is a process of its own: a thread gets the interpreter too seldom, and datagrams that nobody reads are dropped.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "heard"
        with self._file.open("w") as file:
            self._process = subprocess.Popen([sys.executable, "-c", LISTENS], stdout=file)
        self.port = int(self._until(lambda lines: lines[0] if lines else None))

    def _until(self, found: Callable[[list[str]], str | None]) -> str:
        for _ in range(1000):
            result = found(self.lines)
            if result is not None:
                return result
            time.sleep(0.01)
        raise AssertionError("the server heard nothing for 10 s")

    @property
    def lines(self) -> list[str]:
        """What was received, a datagram a line; the first one is the server's own port."""
        return self._file.read_text().rpartition("\n")[0].splitlines()

    def values(self) -> dict[str, float]:
        """Everything that was received up to now, without Airflow's prefix."""
        mark = f"mark {uuid4()}"  # datagrams of one machine keep their order
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(mark.encode(), ("127.0.0.1", self.port))
        self._until(lambda lines: mark if mark in lines else None)
        found: dict[str, float] = {}
        for line in (line for line in self.lines[1:] if not line.startswith("mark ")):
            name, _, rest = line.removeprefix("airflow.topicshift.").rpartition(":")
            value, _, kind = rest.partition("|")
            found[name] = float(value) + (found.get(name, 0) if kind == "c" else 0)
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def statsd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Statsd]]:
    """Airflow configured for a StatsD server that listens."""
    server = Statsd(tmp_path)

    def configure(**settings: str) -> Statsd:
        found = {"statsd_on": "True", "statsd_host": "127.0.0.1", "statsd_port": str(server.port), **settings}
        for key, value in found.items():
            monkeypatch.setenv(f"AIRFLOW__METRICS__{key.upper()}", value)
        for module in (stats, core_stats):
            module.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=False)
        return server

    monkeypatch.setattr(plugin, "EVERY_S", 0.0)
    yield configure
    monkeypatch.undo()
    for module in (stats, core_stats):
        module.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=False)
    server.close()


class Metered(World):
    """A world whose advancers are tasks that send metrics."""

    meter = meter_of(SOURCE)

    def context(self, *args: Any, **kwargs: Any) -> MigrationContext:
        ctx = super().context(*args, **kwargs)
        ctx.meter = self.meter
        return ctx

    def ended(self) -> None:
        """A task ends."""
        ctx = self.context()
        ctx.refresh()
        assert self.meter is not None
        self.meter.last(ctx)


TAGGED = {"statsd_influxdb_enabled": "True"}


def test_a_whole_migration_as_a_statsd_server_sees_it(statsd: Callable[..., Statsd]) -> None:
    server, w = statsd(**TAGGED), Metered()
    w.advanced()
    w.ended()
    seen = server.values()
    freeze = w.journal.step(w.claim.migration_id, "freeze")
    assert freeze is not None
    began, ended = (datetime.fromisoformat(freeze.data[key]) for key in ("started_at", "ended_at"))
    assert seen[f"freeze.seconds,source={SOURCE}"] == round((ended - began).total_seconds(), 3)
    assert seen[f"freeze.began_timestamp_seconds,source={SOURCE}"] == round(began.timestamp(), 3)
    assert seen[f"freeze.running,source={SOURCE}"] == 0
    assert any(line.startswith(f"airflow.topicshift.freeze.running,source={SOURCE}:1") for line in server.lines)
    assert seen[f"freeze.budget_seconds,source={SOURCE}"] == 120
    assert seen[f"migration.state,source={SOURCE},state=done"] == 1
    assert seen[f"migration.state,source={SOURCE},state=open"] == 0
    for name, role in (("checkout", "producer"), ("ledger", "consumer")):
        at = f"participant.state,source={SOURCE},participant={name},role={role},state="
        assert (seen[f"{at}running_on_target"], seen[f"{at}stopped"]) == (1, 0)
    assert seen[f"fence.broken,source={SOURCE}"] == 0
    assert f"step.seconds,source={SOURCE},step=create_target,what=create_target" in seen
    assert f"step.seconds,source={SOURCE},step=switch_consumers,what=switch_consumer" in seen
    assert not any(w.claim.migration_id in line for line in server.lines), "a label without a bound"


def test_on_a_way_back_everything_has_the_name_of_the_migrations_source(statsd: Callable[..., Statsd]) -> None:
    server, w = statsd(**TAGGED), Metered()
    moved(w)
    w.advanced(wanted="rollback")
    w.ended()
    seen = server.values()
    assert {name.partition("source=")[2].partition(",")[0] for name in seen} == {SOURCE}
    assert seen[f"participant.state,source={SOURCE},participant=checkout,role=producer,state=running_on_source"] == 1
    assert seen[f"migration.state,source={SOURCE},state=rolled_back"] == 1


def test_a_write_after_the_fence_and_a_failed_step_are_counted(statsd: Callable[..., Statsd]) -> None:
    server, w = statsd(**TAGGED), Metered()
    w.cluster.commit("fraud-g", SOURCE, {0: 9})
    w.advance(until=Step.STOP_PRODUCERS)
    w.write()
    ctx = w.context()
    with pytest.raises(FenceBroken), ctx.recorded("drain.certificate"):
        w.advanced(ctx=ctx)
    seen = server.values()
    assert seen[f"fence.violations,source={SOURCE}"] == 1
    assert seen[f"step.failures,source={SOURCE},task=drain.certificate"] == 1


def test_a_drain_that_is_waited_for_in_the_triggerer(
    statsd: Callable[..., Statsd], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    server = statsd(**TAGGED)

    def group(
        name: str, lag: int | None, seconds: float | None, alarm: Any = None, verdict: Any = "not_drained"
    ) -> Any:
        return SimpleNamespace(
            group=name, lag=lag, rate=12.5, left=SimpleNamespace(seconds=seconds, sure="high"), alarm=alarm,
            alarm_text="", verdict=Verdict(verdict), slowest=(), series=(), advice=(),
        )  # fmt: skip

    groups = (group("ledger g", 50, 4.0), group("fraud", None, None, SimpleNamespace(value="cannot_read")))
    progress = SimpleNamespace(at=1.0, groups=groups, alarms=(), line=lambda: "")

    class Watch:
        certificate = SimpleNamespace(verdict=Verdict.DRAINED)

        def __init__(self, *_: Any, **__: Any) -> None: ...

        async def __aiter__(self) -> Any:
            yield progress

    async def taker(*_: Any, **__: Any) -> Any:
        async def nothing() -> None: ...

        return SimpleNamespace(now=lambda: datetime(2026, 1, 1, tzinfo=UTC), reader=SimpleNamespace(close=nothing))

    monkeypatch.setenv("TOPICSHIFT_EVIDENCE", f"file://{tmp_path}")
    monkeypatch.setattr("topicshift.acts.drain_watch.DrainWatch", Watch)
    monkeypatch.setattr(DrainTrigger, "taker", taker)
    trigger = DrainTrigger(
        kafka_conn_id="kafka_default", migration_id="m", inputs={"topic": SOURCE}, deadline=2e9, owner="o", epoch=1,
        fence={"offsets": {}, "topic_id": "x", "at": "2026-01-01T00:00:00+00:00"}, progress_name="drain_progress.json",
    )  # fmt: skip
    monkeypatch.setattr("topicshift.core.fence.point.FencePoint.model_validate", lambda *_: None)
    monkeypatch.setattr("topicshift_airflow.triggers.drain.series", lambda _: "{}")
    assert asyncio.run(trigger.wait())["status"] == "drained"
    seen = server.values()
    ledger, fraud = f"source={SOURCE},group=ledger_g", f"source={SOURCE},group=fraud"
    assert seen[f"group.lag,{ledger}"] == 50 and seen[f"group.rate,{ledger}"] == 12.5
    assert seen[f"group.drain_seconds,{ledger}"] == 4
    assert (seen[f"group.unreadable,{ledger}"], seen[f"group.stuck,{ledger}"]) == (0, 0)
    assert (seen[f"group.unreadable,{fraud}"], seen[f"group.stuck,{fraud}"]) == (1, 1)
    assert f"group.lag,{fraud}" not in seen, "what cannot be told is not zero"


def test_without_labels_their_values_are_part_of_the_name(statsd: Callable[..., Statsd]) -> None:
    server = statsd()
    emit(lambda: [Sample(metrics.LAG, 7, {"source": "pay.ments", "group": "ledger"})])
    assert server.values() == {"group.lag.pay__ments.ledger": 7}


def test_where_airflow_sends_no_metrics_nothing_is_worked_out() -> None:
    def never() -> Any:
        raise AssertionError

    emit(never)


def test_what_fails_is_logged_once_and_fails_no_step(
    statsd: Callable[..., Statsd], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    statsd(**TAGGED)
    monkeypatch.setattr(plugin, "_warned", False)

    def broken() -> Any:
        raise OSError("no route to host")

    emit(broken)
    emit(broken)
    assert [r.message for r in caplog.records] == ["metrics cannot be sent: OSError: no route to host"]


def test_a_look_is_told_every_few_seconds_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(plugin, "emit", lambda samples, **_: sent.append(samples))
    meter = Meter(SOURCE)
    for _ in range(100):
        meter.look(None)  # type: ignore[arg-type]
    assert len(sent) == 1 and plugin.EVERY_S >= 1


def test_a_rehearsal_has_no_metrics() -> None:
    assert meter_of("topicshift-rehearsal-0123abcd.payments") is None


@given(st.text(max_size=400))
def test_a_label_is_what_every_backend_takes(value: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,60}", metrics.clean(value))


def test_the_longest_names_are_sent_and_told_apart(statsd: Callable[..., Statsd]) -> None:
    server = statsd(**TAGGED)
    longest = [
        {"source": "s" * 249, "participant": "p" * 248 + end, "role": "consumer", "state": "running_on_source"}
        for end in "ab"
    ]
    emit(lambda: [Sample(metrics.PARTICIPANT, 1, labels) for labels in longest])
    assert len(server.values()) == 2


def test_metrics_are_named_well_and_once() -> None:
    names = [m.name for m in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", metric.name) and metric.labels[0] == "source"
        assert metric.what.endswith(".") and metric.kind in Kind
    assert timedelta(seconds=plugin.EVERY_S) <= timedelta(seconds=5)
