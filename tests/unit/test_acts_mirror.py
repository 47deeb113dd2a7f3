"""A mirror of MirrorMaker 2 in a migration: killed at any call, it has copied all once, and is where it must be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.ways import ALL, OwnOffsetsWorld, killed_at, killed_at_each_effect
from tests.unit.world import SOURCE, TARGET, _quietly

from topicshift.adapters.controllers.connect import ConnectController
from topicshift.core.engine.words import Step
from topicshift.core.errors import NotFound, PreflightFailed
from topicshift.core.policy.model import Installation
from topicshift.testing.fake_connect import FakeConnectWorker, Log

few = settings(max_examples=3, deadline=None)
GROUP = "mirror-dr"
MIRROR = {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "topics": f"orders,{SOURCE}",
    "source.cluster.alias": "here",
    "target.cluster.alias": "there",
    "source.cluster.bootstrap.servers": "broker:9092",
    "sync.topic.acls.enabled": "false",
    "tasks.max": "2",
}


class Mirrored(OwnOffsetsWorld):
    """A migration with a mirror, a group on the route, and producers that a hook and the route move."""

    group = GROUP

    def __init__(self, **changes: Any) -> None:
        self.ask_of = lambda _: self.asked
        self.worker = self.fake = FakeConnectWorker(cluster_id="another")
        self.worker.logs = self.logs
        dr = {"name": "dr", "group": GROUP, "kind": "connect", "settings": {"connector": "dr", "mirror": True}}
        producers = [
            {"name": "billing", "kind": "command", "settings": {"hook": "billing"}, "principal": "User:billing"},
            {"name": "checkout", "principal": "User:checkout"},
        ]
        consumers = [dr, {"name": "fraud", "group": "fraud-g"}]
        super().__init__(**{"producers": producers, "consumers": consumers, **changes})
        self.dr = self.worker.create("dr", MIRROR)
        self.worker.work()
        self.cluster.calls.clear()
        self.was = dict(self.dr.config)
        self.worker.on_call = self.fuse.burn
        made = ConnectController(self.cluster, lambda _: self.worker, self.clock)
        self.controllers["connect"] = made  # type: ignore[assignment]

    def logs(self, topic: str) -> Log:
        if topic not in (SOURCE, TARGET):
            return {}
        try:
            return {p: (o.log_start or 0, o.end or 0) for p, o in _quietly(self.cluster, topic).items()}
        except NotFound:
            return {}

    def asked(self, method: str, path: str, body: Any = None) -> Any:
        """Asked for evidence, in a thread of its own, which no kill ends alone."""
        held, self.worker.on_call = self.worker.on_call, lambda _: None
        try:
            return self.worker(method, path, body)
        finally:
            self.worker.on_call = held

    def offsets(self, topic: str) -> dict[int, int]:
        return {p: at for (_, t, p), at in self.worker.offsets["dr"].items() if t == topic}

    def copied_once(self) -> None:
        """It has copied every record of both topics once, and those of the source first."""
        self.worker.on_call = lambda _: None
        self.worker.work()
        for topic in (SOURCE, TARGET):
            for partition, (_, end) in self.logs(topic).items():
                ranges = self.worker.copied.get(("dr", topic, partition), [])
                assert [n for a, b in ranges for n in range(a, b)] == list(range(end)), (topic, partition, ranges)

    def unharmed(self) -> bool:
        return self.dr.config == self.was and self.dr.state == "RUNNING" and self.hook_unharmed()

    def back(self) -> None:
        super().back()
        self.copied_once()
        assert self.offsets(TARGET) == {}, "what it had of the target is forgotten, as before the migration"
        assert self.offsets(SOURCE) == {p: end - 1 for p, (_, end) in self.logs(SOURCE).items()}

    def arrived(self) -> None:
        super().arrived()
        assert self.dr.config == self.was | {"topics": f"orders,{TARGET}"} and self.dr.state == "RUNNING"
        self.hook_arrived()
        self.copied_once()

    def on_target(self) -> None:
        assert self.dr.config["topics"] == f"orders,{TARGET}"

    def read_target(self) -> None:
        self.worker.work()
        super().read_target()


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_a_mirror_moves_beside_other_kinds(cutover: str) -> None:
    w = Mirrored(cutover=cutover)
    w.advanced()
    w.write(TARGET, 4, 5)
    w.arrived()
    said = [e for e in w.events("participant") if e["name"] == "dr"]
    assert [e["moment"] for e in said] == ["position", "stop", "point", "start"]
    assert (said[0]["home"], said[0]["copied"]) == (SOURCE, {"0": 10, "1": 10, "2": 10})


@ALL
def test_killed_before_or_after_every_effect_on_a_worker_it_ends_where_it_would(way: str) -> None:
    """At each stop, change of offsets, point and start, on the way there and on both ways back."""
    count = {"forward": 6, "resume": 0, "rollback": 6, "drain_back": 8}[way]
    killed_at_each_effect(
        Mirrored, way, lambda call: not call.startswith("GET ") and "/connector-plugins/" not in call, count
    )


@ALL
@few
@given(at=st.lists(st.integers(0, 300), min_size=1, max_size=3))
def test_killed_anywhere_it_ends_where_it_would(way: str, at: list[int]) -> None:
    killed_at(Mirrored, way, at)


def test_a_mirror_that_is_behind_is_waited_for_by_name() -> None:
    w = Mirrored()
    w.worker.held = True
    w.write(SOURCE, 0, 3)
    w.drain("fraud-g")
    w.advanced(until=Step.STOP_PRODUCERS)
    assert GROUP in w.waits(patience_s=5)
    w.worker.held = False
    w.advanced()
    w.arrived()


def test_offsets_of_an_earlier_topic_of_the_targets_name_are_not_gone_on_from() -> None:
    """A target that was deleted and made again: MirrorMaker 2 knows topics by name, and would leave records out."""
    w = Mirrored()
    w.worker.offsets["dr"] |= {("here", TARGET, p): 3 for p in (0, 1, 9)}
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.write(TARGET, 0, 5)
    w.write(TARGET, 4, 2)
    w.advanced()
    w.arrived()
    assert w.offsets(TARGET) == {0: 4, 4: 1}


def test_a_mirror_that_was_paused_beyond_retention_does_not_go_on_silently() -> None:
    """It would resume at the earliest: records of the source are gone before it copied them."""
    w = Mirrored()
    w.worker.held = True
    w.write(SOURCE, 0, 5)
    w.cluster.delete_records(SOURCE, 0, 12)
    w.drain("fraud-g")
    with pytest.raises(PreflightFailed, match=rf"TS305.*{GROUP}.*lost up to 2 records"):
        w.advanced()
    assert w.unharmed()


def test_what_the_target_lost_before_it_was_started_there_is_named_until_a_person_accepts_it() -> None:
    w = Mirrored()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.write(TARGET, 0, 5)
    w.worker.on_call = lambda call: (
        w.cluster.delete_records(TARGET, 0, 4) if call.startswith("PUT /connectors/dr/config") else None
    )
    why = w.waits(patience_s=30)
    assert f"{TARGET}[0] from 0 to 3 is gone before it was copied" in why
    w.worker.on_call = lambda _: None
    w.worker.offsets["dr"]["here", TARGET, 0] = 3
    w.advanced()
    assert w.dr.state == "RUNNING" and w.worker.copied["dr", TARGET, 0] == [(4, 5)]


def test_another_flow_that_copies_the_source_blocks_the_plan_and_a_pattern_is_shown_to_who_approves_it() -> None:
    w = Mirrored()
    (node,) = w.cluster.cluster().brokers
    second = {**MIRROR, "topics": SOURCE, "source.cluster.bootstrap.servers": f"{node.host}:{node.port}"}
    w.worker.create("second", second)
    with pytest.raises(PreflightFailed, match=r"TS329.*connector second of connect_default.*no consumer declares it"):
        w.advanced()
    w.worker.connectors["second"].config["topics"] = ".*"
    w.advanced(until=Step.APPROVE)
    assert any("TS329" in line and "both 'payments' and 'payments-v2'" in line for line in w.said)


def test_workers_that_the_policy_names_are_looked_at_where_no_participant_is_a_connector() -> None:
    w = Mirrored(consumers=[{"name": "fraud", "group": "fraud-g"}])
    (node,) = w.cluster.cluster().brokers
    w.dr.config["source.cluster.bootstrap.servers"] = f"{node.host}:{node.port}"
    w.policy = Installation(apiVersion="topicshift-policy/v1", connect_workers=["connect_dr"])
    with pytest.raises(PreflightFailed, match=r"TS329.*connector dr of connect_dr.*no consumer declares it"):
        w.advanced()
    w.policy = None
    w.advanced(until=Step.APPROVE)
