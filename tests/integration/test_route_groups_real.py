"""Consumer groups on the route, on a real broker: released, stopped, static and idle members."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.integration.route_world import CHECKOUT, Member, RouteWorld, Traffic, eventually, life

from topicshift.client import RoutedConsumer

pytestmark = pytest.mark.broker


# ------------------------------------------------------------------------------------------------ consumers


def test_a_group_is_switched_and_loses_nothing_with_latest(world: RouteWorld) -> None:
    got: dict[str, list[tuple[str, int]]] = defaultdict(list)
    members = [Member(world, got) for _ in range(2)]
    producer = world.producer()
    with life(*members, producer):
        _begun(world)
        traffic = Traffic(producer, range(40), pause_s=0.001)
        with life(traffic):
            eventually("records flow", lambda: sum(map(len, got.values())) > 200)
            world.controller.stop(world.ctx(), [CHECKOUT])
            world.wait(CHECKOUT, "stopped", world.source)
            sent_to_source = traffic.count
            eventually("the source is drained", lambda: _committed(world, world.source) == world.ends(world.source))
            world.controller.point(world.ctx(), [CHECKOUT], world.target)
            world.controller.start(world.ctx(), [CHECKOUT])
            world.wait(CHECKOUT, "running", world.target)
            # A whole backlog on the target before any member reads it: latest alone would skip all of it.
            eventually("the target fills", lambda: sum(world.ends(world.target).values()) > 200)
            assert sum(map(len, got.values())) == sent_to_source
            world.controller.point(world.ctx(), [world.ledger], world.target)
            world.controller.start(world.ctx(), [world.ledger])
            world.wait(world.ledger, "running", world.target)
        eventually("everything is read", lambda: sum(map(len, list(got.values()))) >= traffic.count)
        _whole(traffic.sent, got, world)
        # Every partition has a commit, also those without a record: nobody's auto.offset.reset is ever asked.
        eventually("every partition is committed", lambda: _committed(world, world.target) == world.ends(world.target))
    assert _members(world) == 0


def _begun(world: RouteWorld) -> None:
    """Wait until a group with ``latest`` has its first position everywhere: what comes from now on is its to read."""
    eventually("the group reads", lambda: _committed(world, world.source) == world.ends(world.source))


def _whole(sent: dict[str, list[int]], got: dict[str, list[tuple[str, int]]], world: RouteWorld) -> None:
    """Each key's records once, in order, those of the source before those of the target."""
    assert {k: [s for _, s in v] for k, v in got.items()} == sent
    for key, records in got.items():
        order = [topic for topic, _ in records]
        assert order == sorted(order, key=[world.source, world.target].index), key


def test_a_stopped_group_leaves_and_goes_on_where_it_is_pointed(world: RouteWorld) -> None:
    got: dict[str, list[tuple[str, int]]] = defaultdict(list)
    member = Member(world, got)
    producer = world.producer()
    with life(member, producer):
        _begun(world)
        for n in range(30):
            producer.produce(f"k{n % 5}", b"x", {"seq": str(n // 5)})
        eventually("it has read", lambda: sum(map(len, got.values())) == 30)
        world.controller.stop(world.ctx(), [world.ledger])
        world.wait(world.ledger, "stopped", world.source)
        eventually("the group is empty", lambda: _members(world) == 0)
        world.controller.point(world.ctx(), [world.ledger], world.target)
        raw = Producer(world.config)
        raw.produce(world.target, key="k0", value=b"x", headers=[("seq", "6")])
        raw.flush(10)
        world.controller.start(world.ctx(), [world.ledger])
        world.wait(world.ledger, "running", world.target)
        eventually("it reads the target from its start", lambda: (world.target, 6) in got["k0"])


def test_a_static_member_says_paused_only_once_its_group_counts_it_no_more(world: RouteWorld) -> None:
    """It sends no LeaveGroup: before its session is over a seed of the group would be refused."""
    got: dict[str, list[tuple[str, int]]] = defaultdict(list)
    member = Member(world, got, **{"group.instance.id": f"{world.group}-1"})
    with life(member):
        _begun(world)
        world.controller.stop(world.ctx(), [world.ledger])
        world.wait(world.ledger, "stopped", world.source)
        assert _members(world) == 0
        world.controller.point(world.ctx(), [world.ledger], world.target)
        world.controller.start(world.ctx(), [world.ledger])
        world.wait(world.ledger, "running", world.target)


def test_a_member_released_too_early_reads_what_is_left_of_its_own_first(world: RouteWorld) -> None:
    order: list[str] = []
    slow = threading.Event()
    consumer = RoutedConsumer(
        {**world.config, "auto.offset.reset": "earliest"}, world.source, world.group, participant="ledger"
    )
    raw = Producer(world.config)
    for n in range(300):
        raw.produce(world.source, key=f"k{n}", value=b"x")
    raw.produce(world.target, key="late", value=b"x")
    raw.flush(10)

    def handle(message: Any) -> None:
        if len(order) == 10:
            slow.wait(30)
        order.append(message.topic())

    stop = threading.Event()
    thread = threading.Thread(target=consumer.run, args=(handle, stop), daemon=True)
    thread.start()
    try:
        eventually("it reads", lambda: len(order) == 10)
        world.controller.point(world.ctx(), [world.ledger], world.target)
        slow.set()
        eventually("it ends on the target", lambda: world.target in order)
    finally:
        stop.set()
        thread.join(30)
        consumer.close()
    assert order == [world.source] * 300 + [world.target]


def test_an_idle_member_leaves_the_group_when_it_closes(world: RouteWorld) -> None:
    got: dict[str, list[tuple[str, int]]] = defaultdict(list)
    members = [Member(world, got) for _ in range(4)]
    with life(*members):
        eventually("four members for three partitions", lambda: _members(world) == 4 and len(_assigned(world)) == 3)
        idle = next(m for m in members if m.consumer is not None and not m.consumer._assigned)
        idle.stop()
        eventually("it is out at once, not after its session", lambda: _members(world) == 3, 4)


def test_a_consumers_commit_is_explicit_or_by_the_next_poll(world: RouteWorld) -> None:
    raw = Producer(world.config)
    for n in range(3):
        raw.produce(world.source, partition=0, key="k", value=str(n).encode())
    raw.flush(10)
    with RoutedConsumer({**world.config, "auto.offset.reset": "earliest"}, world.source, world.group) as consumer:
        assert eventually("a record", lambda: consumer.poll(1)).value() == b"0"
        consumer.commit()
        assert _committed(world, world.source)[0] == 1
        assert eventually("a record", lambda: consumer.poll(1)).value() == b"1"
    # The last one polled was not asked to be counted as processed: it is read again.
    assert _committed(world, world.source)[0] == 1


def _described(world: RouteWorld) -> Any:
    return world.admin.describe_consumer_groups([world.group])[world.group].result(10)


def _members(world: RouteWorld) -> int:
    return len(_described(world).members)


def _assigned(world: RouteWorld) -> set[tuple[str, int]]:
    members = _described(world).members
    return {(tp.topic, tp.partition) for m in members if m.assignment for tp in m.assignment.topic_partitions}


def _committed(world: RouteWorld, topic: str) -> dict[int, int]:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    parts = [TopicPartition(topic, p) for p in world.ends(topic)]
    asked = ConsumerGroupTopicPartitions(world.group, parts)
    answer = world.admin.list_consumer_group_offsets([asked])[world.group].result(10)
    return {tp.partition: tp.offset for tp in answer.topic_partitions}
