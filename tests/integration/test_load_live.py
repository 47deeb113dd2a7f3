"""The live load as real processes: a migration under it, with one consumer killed, and the proof from its logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from tests.integration.route_world import RouteWorld, eventually

from lab.broker import EmbeddedBroker
from lab.load_life import App, Life
from lab.load_proof import prove
from topicshift.ports import Participant

pytestmark = pytest.mark.broker


def test_a_switch_under_load_with_a_killed_consumer_loses_nothing(
    broker: EmbeddedBroker, topic_name: Callable[..., str], tmp_path: Path
) -> None:
    world = RouteWorld(broker.config(), topic_name())
    properties = broker.write_client_properties(None, tmp_path / "client.properties")
    group = f"{world.source}-ledger"
    life = Life(
        tmp_path / "logs",
        lambda _: properties,
        topic=world.source,
        keys=200,
        producers=(App("checkout", 1),),
        consumers=(App(group, 2),),
    )
    checkout = Participant("checkout", "producer", "route")
    ledger = Participant(group, "consumer", "route", group=group)

    def committed() -> dict[int, int]:
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(world.source, p) for p in world.ends(world.source)])
        answer = world.admin.list_consumer_group_offsets([asked])[group].result(10)
        return {tp.partition: tp.offset for tp in answer.topic_partitions}

    try:
        life.backlog(3000)
        assert life.counts() == {"sent": 3000, group: 0}
        life.start(120)
        life.kill(f"processed-{group}-0")  # its partitions go to the other one after its session
        world.controller.stop(world.ctx(), [checkout])
        world.wait(checkout, "stopped", world.source)
        assert life.frozen()[0] == ["sent-checkout-0"]
        eventually("the source is drained", lambda: committed() == world.ends(world.source), 120)
        world.controller.point(world.ctx(), [checkout], world.target)
        world.controller.start(world.ctx(), [checkout])
        world.wait(checkout, "running", world.target)
        world.controller.point(world.ctx(), [ledger], world.target)
        eventually("the group reads the target", lambda: _reads(life, world.target, group))
        life.check_alive()
        life.finish(120)
    finally:
        life.stop()
        world.close()
    proof = prove(tmp_path / "logs")
    assert proof["sent"] > 3000
    assert set(proof["sent_by_topic"]) == {world.source, world.target}
    assert proof["freeze_seconds"] > 0
    (one,) = proof["groups"].values()
    assert (one["processed"], one["lost"], one["out_of_order"], one["unacknowledged"]) == (proof["sent"], 0, 0, 0)


def _reads(life: Life, topic: str, group: str) -> bool:
    return f",{topic}," in (life.folder / f"processed-{group}-1.csv").read_text()
