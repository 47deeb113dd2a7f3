"""A streaming query in a migration: killed at any call, it is where it must be, and has read everything once."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.ways import ALL, OwnOffsetsWorld, killed_at, killed_at_each_effect
from tests.unit.world import SOURCE, TARGET, _quietly

from topicshift.adapters.controllers.spark_streaming import SparkStreamingController
from topicshift.core.engine.words import Step
from topicshift.core.errors import PreflightFailed
from topicshift.testing.fake_spark import FakeQuery

few = settings(max_examples=3, deadline=None)
GROUP = "stats-g"
HOME = tempfile.TemporaryDirectory()


class Streamed(OwnOffsetsWorld):
    """A migration with a streaming query, a group on the route, and a producer that a hook moves."""

    group = GROUP

    def __init__(self, **changes: Any) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="query-", dir=HOME.name))
        folders = {SOURCE: str(self.home / "old"), TARGET: str(self.home / "new")}
        stats = {
            "name": "stats",
            "group": GROUP,
            "kind": "spark_streaming",
            "settings": {"hook": "stats", "checkpoints": folders},
        }
        self.query = self.fake = FakeQuery(
            self.ends, SOURCE, folders[SOURCE], f'{{"{SOURCE}": {{"0": 0, "1": 0, "2": 0}}}}'
        )
        producers = [
            {"name": "checkout", "kind": "command", "settings": {"hook": "c"}, "principal": "User:checkout"},
            {"name": "billing", "principal": "User:billing"},
        ]
        consumers = [stats, {"name": "fraud", "group": "fraud-g"}]
        super().__init__(**{"producers": producers, "consumers": consumers, **changes})
        self.query("", "start", {}, 1)
        self.query.starting_offsets = ""
        self.first = self.query.fields()
        self.cluster.calls.clear()
        made = SparkStreamingController(self.cluster, None)
        made._call_hook = self.query
        self.query.on_call = self.fuse.burn
        self.controllers["spark_streaming"] = made  # type: ignore[assignment]

    def ends(self, topic: str) -> dict[int, int]:
        return {p: o.end or 0 for p, o in _quietly(self.cluster, topic).items()}

    def read_once(self) -> None:
        """It has read every record of both topics once."""
        self.query.on_call = lambda _: None
        self.query("", "observe", {}, 1)
        for topic in {topic for topic, _ in self.query.read}:
            for partition, end in self.ends(topic).items():
                ranges = self.query.read.get((topic, partition), [])
                assert [n for a, b in ranges for n in range(a, b)] == list(range(end)), (
                    f"{topic}[{partition}]: {ranges}"
                )

    def back(self) -> None:
        assert self.query.fields() == self.first and self.acls() == self.before
        self.read_once()

    def arrived(self) -> None:
        super().arrived()
        assert self.query.fields() == {"topic": TARGET, "checkpoint": str(self.home / "new"), "running": True}
        self.read_once()

    def on_target(self) -> None:
        assert self.query.topic == TARGET

    def read_target(self) -> None:
        self.query("", "observe", {}, 1)
        super().read_target()


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_a_query_moves_beside_other_kinds(cutover: str) -> None:
    w = Streamed(cutover=cutover)
    w.advanced()
    w.write(TARGET, 4, 5)
    w.arrived()
    assert [e["moment"] for e in w.events("participant") if e["name"] == "stats"] == ["stop", "point", "start"]


@ALL
def test_killed_before_or_after_every_act_on_the_query_it_ends_where_it_would(way: str) -> None:
    """At each stop, point and start, on the way there and on every way back."""
    count = {"forward": 6, "resume": 0, "rollback": 6, "drain_back": 6}[way]
    killed_at_each_effect(Streamed, way, lambda call: call.split()[0] in ("stop", "point", "start"), count)


@ALL
@few
@given(at=st.lists(st.integers(0, 300), min_size=1, max_size=3))
def test_killed_anywhere_it_ends_where_it_would(way: str, at: list[int]) -> None:
    killed_at(Streamed, way, at)


def test_a_query_that_is_behind_is_waited_for_by_name() -> None:
    """Its checkpoint's commit log is the proof, against the fence."""
    w = Streamed()
    w.query.work = lambda: None  # type: ignore[method-assign]
    w.write(SOURCE, 0, 3)
    w.drain("fraud-g")
    w.advanced(until=Step.STOP_PRODUCERS)
    assert GROUP in w.waits(patience_s=5)
    del w.query.work
    w.query.on_call = w.fuse.burn
    w.query("", "observe", {}, 1)
    w.advanced()
    w.arrived()


def test_a_checkpoint_of_an_unknown_format_holds_the_drain() -> None:
    w = Streamed()
    w.advanced(until=Step.STOP_PRODUCERS)
    newest = max((w.home / "old/offsets").iterdir(), key=lambda p: int(p.name))
    kept = newest.read_text()
    newest.write_text(kept.replace("v1", "v3", 1))
    assert "evidence_missing" in w.waits(patience_s=5) or GROUP in w.waits(patience_s=5)
    newest.write_text(kept)
    w.advanced()
    w.arrived()


def test_one_that_does_not_stop_is_waited_for_by_name_and_never_pointed() -> None:
    w = Streamed()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.query.deaf.add("stop")
    assert f"group {GROUP} still reads the source" in w.waits(patience_s=5)
    assert not (w.home / "new").exists()
    w.query.deaf.clear()
    w.advanced()
    w.arrived()


def test_one_that_cannot_be_moved_blocks_the_plan_by_name() -> None:
    w = Streamed()
    (w.home / "new/offsets").mkdir(parents=True)
    (w.home / "new/offsets/0").write_text("")
    with pytest.raises(PreflightFailed, match=r"TS325.*stats"):
        w.advanced()
    assert w.query.fields() == w.first
