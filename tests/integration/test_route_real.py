"""The route on a real broker: pauses, leases, epochs, switches and faults, with the shipped clients."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ConfigResource
from tests.integration.route_world import CHECKOUT, QUICK, Member, RouteWorld, Traffic, Victim, eventually, life

from lab.broker import EmbeddedBroker
from lab.rights import allow, consumer_rights, grant, producer_rights
from topicshift.adapters.route_store import RouteStore
from topicshift.cli import run
from topicshift.client import RoutedConsumer, RoutedProducer, RouteError, RoutePaused, RouteUnavailable
from topicshift.core.errors import AccessDenied, Refused, Unreadable
from topicshift.core.route.client import Timing
from topicshift.core.route.records import ACKS_TOPIC, ROUTES_TOPIC, Route, State, Status, serialise_route
from topicshift.ports import Participant

pytestmark = pytest.mark.broker


# ------------------------------------------------------------------------------------------------ the store


def test_both_topics_are_made_once_and_as_the_protocol_says(world: RouteWorld) -> None:
    assert world.store.ensure_topics() == []
    assert world.store.check() == []
    for topic, policy in ((ROUTES_TOPIC, "compact"), (ACKS_TOPIC, "compact,delete")):
        assert list(world.admin.list_topics(topic, timeout=10).topics[topic].partitions) == [0]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        configs = world.admin.describe_configs([resource])[resource].result(10)
        assert configs["cleanup.policy"].value == policy
        assert configs["message.timestamp.type"].value == "LogAppendTime"
        assert configs["min.insync.replicas"].value == "1"


def test_a_write_is_a_compare_and_set_and_fences_an_earlier_writer(world: RouteWorld) -> None:
    one, two = world.store, RouteStore(world.config)
    with life(two):
        assert one.read(world.source) is None
        first = Route(world.source, world.source, State.OPEN, 1)
        one.write(first, None)
        assert two.read(world.source) == first
        two.write(Route(world.source, world.source, State.OPEN, 2), 1)
        # The first writer's transactional producer is a zombie now; it must find out, not win.
        with pytest.raises(Refused, match="epoch 2, not 1"):
            one.write(Route(world.source, "elsewhere", State.OPEN, 2), 1)
        with pytest.raises(Refused, match="never goes back"):
            one.write(first, 2)
        one.write(Route(world.source, world.source, State.OPEN, 3), 2)
        assert two.read(world.source) == Route(world.source, world.source, State.OPEN, 3)


def test_of_writers_at_the_same_time_one_wins_each_epoch(world: RouteWorld) -> None:
    won: list[int] = []
    stores = [RouteStore(world.config) for _ in range(3)]

    def race(store: RouteStore) -> None:
        for _ in range(5):
            have = store.read(world.source)
            epoch = have.epoch if have else 0
            try:
                store.write(Route(world.source, world.source, State.OPEN, epoch + 1), epoch)
                won.append(epoch + 1)
            except Refused:
                continue

    with life(*stores):
        threads = [threading.Thread(target=race, args=(s,)) for s in stores]
        for t in threads:
            t.start()
        for t in threads:
            t.join(120)
    assert len(set(won)) == len(won)
    last = world.store.read(world.source)
    assert last is not None
    assert last.epoch == max(won)


def test_a_transaction_left_open_hides_nothing_and_is_ended(world: RouteWorld) -> None:
    dead = Producer({**world.config, "transactional.id": f"topicshift-route-{world.source}"})
    dead.init_transactions(30)
    dead.begin_transaction()
    dead.produce(ROUTES_TOPIC, key=world.source, value=serialise_route(Route(world.source, "x", State.OPEN, 9)))
    dead.flush(10)
    assert world.store.read(world.source) is None
    world.store.write(Route(world.source, world.source, State.OPEN, 1), None)
    assert world.store.read(world.source) == Route(world.source, world.source, State.OPEN, 1)


def test_a_record_that_is_not_understood_is_unknown(world: RouteWorld) -> None:
    raw = Producer(world.config)
    raw.produce(ROUTES_TOPIC, key=world.source, value=b'{"v": 9}')
    raw.flush(10)
    with pytest.raises(Unreadable, match="v=9"):
        world.store.read(world.source)
    assert isinstance(world.store.read("another-topic"), Route | None)
    raw.produce(ROUTES_TOPIC, key=world.source, value=None)
    raw.flush(10)
    assert world.store.read(world.source) is None


def test_a_dead_address_is_unreadable_within_its_bound() -> None:
    with RouteStore({"bootstrap.servers": "127.0.0.1:1"}, timeout_s=2) as store, pytest.raises(Unreadable):
        store.read("payments")


# ------------------------------------------------------------------------------------------------ producers


def test_a_pause_is_acknowledged_by_all_and_nothing_is_written_after_it(world: RouteWorld) -> None:
    one, two = world.producer(), world.producer()
    traffic = [Traffic(one, range(20)), Traffic(two, range(20, 40))]
    with life(*traffic, one, two):
        eventually("both write", lambda: all(t.count > 30 for t in traffic))
        world.wait(CHECKOUT, "running", world.source)
        world.controller.stop(world.ctx(), [CHECKOUT])
        stopped = world.wait(CHECKOUT, "stopped", world.source)
        fence = world.ends(world.source)
        assert {i.instance for i in stopped.instances} == {one.instance, two.instance}
        # What each says it wrote last lies below the fence, and together they account for all of it.
        last = {p: max(i.last_offsets.get(p, -1) for i in stopped.instances) for p in fence}
        assert {p: o + 1 for p, o in last.items()} == fence
        with pytest.raises(RoutePaused, match="paused at epoch"):
            one.produce("k", b"x")
        world.controller.stop(world.ctx(), [CHECKOUT])
        assert world.ends(world.source) == fence
        world.controller.point(world.ctx(), [CHECKOUT], world.target)
        world.controller.start(world.ctx(), [CHECKOUT])
        world.wait(CHECKOUT, "running", world.target)
        eventually("both write to the target", lambda: sum(world.ends(world.target).values()) > 20)
        assert world.ends(world.source) == fence
        assert not any(t.failed for t in traffic)


def test_a_lease_that_runs_out_lets_producers_go_on_where_they_were(world: RouteWorld) -> None:
    producer = world.producer()
    with life(producer):
        producer.wait_ready()
        world.controller.prepare(world.ctx())
        world.controller.stop(world.ctx(lease_s=5), [CHECKOUT])
        eventually("it pauses", lambda: producer.status is Status.PAUSED)
        eventually("it goes on by itself", lambda: producer.status is Status.LEASE_EXPIRED, 20)
        assert producer.produce("k", b"x") == world.source
        eventually("and says so", lambda: world.state(CHECKOUT).instances[0].status == "lease_expired", 20)
        assert world.state(CHECKOUT).status == "running"
        with pytest.raises(Refused, match="margin"):
            world.controller.point(world.ctx(), [CHECKOUT], world.target)
        world.controller.stop(world.ctx(), [CHECKOUT])
        world.wait(CHECKOUT, "stopped", world.source)


def test_a_longer_lease_is_a_new_pause_that_follows_without_a_gap(world: RouteWorld) -> None:
    producer = world.producer()
    with life(producer):
        producer.wait_ready()
        world.controller.prepare(world.ctx())
        first = world.ctx(lease_s=6)
        world.controller.stop(first, [CHECKOUT])
        world.wait(CHECKOUT, "stopped", world.source)
        world.controller.stop(world.ctx(lease_s=60), [CHECKOUT])
        route = world.store.read(world.source)
        assert route is not None
        assert route.epoch == 2
        eventually("the first lease is over", lambda: datetime.now(UTC) > first.lease_until + timedelta(seconds=0.5))
        assert producer.status is Status.PAUSED
        world.wait(CHECKOUT, "stopped", world.source)


def test_a_higher_epoch_wins_and_a_lower_one_in_the_log_is_ignored(world: RouteWorld) -> None:
    producer = world.producer()
    raw = Producer(world.config)

    def put(route: Route) -> None:
        raw.produce(ROUTES_TOPIC, key=world.source, value=serialise_route(route))
        raw.flush(10)

    with life(producer):
        producer.wait_ready()
        put(Route(world.source, world.target, State.OPEN, 5))
        eventually("it follows", lambda: producer.epoch == 5)
        put(Route(world.source, world.source, State.PAUSED, 4, 60_000, pause=4))
        put(Route(world.source, world.target, State.OPEN, 6))
        eventually("it follows", lambda: producer.epoch == 6)
        assert producer.produce("k", b"x") == world.target


def test_a_producer_that_starts_into_a_pause_does_not_write(world: RouteWorld) -> None:
    world.controller.stop(world.ctx(), [CHECKOUT])
    producer = world.producer()
    with life(producer):
        producer.wait_ready()
        assert producer.status is Status.PAUSED
        with pytest.raises(RoutePaused):
            producer.produce("k", b"x")
        world.wait(CHECKOUT, "stopped", world.source)


def test_good_bye_counts_as_stopped_and_a_closed_producer_takes_nothing(world: RouteWorld) -> None:
    producer = world.producer()
    producer.wait_ready()
    producer.produce("k", b"x")
    world.wait(CHECKOUT, "running", world.source)
    assert producer.close() == 0
    assert "good-bye" in world.wait(CHECKOUT, "stopped", None).reason
    assert sum(world.ends(world.source).values()) == 1
    with pytest.raises(RouteError, match="closed"):
        producer.produce("k", b"x")
    with pytest.raises(RouteError, match="transactions"):
        RoutedProducer({**world.config, "transactional.id": "t"}, world.source, "checkout")


def test_a_killed_client_is_unknown_by_name(world: RouteWorld) -> None:
    producer = world.producer()
    victim = Victim(world, busy=False, timing={"heartbeat_s": 0.3})
    with life(producer, victim):
        eventually("both are seen", lambda: len(world.state(CHECKOUT).instances) == 2)
        victim.stop()
        world.controller.stop(world.ctx(), [CHECKOUT])
        eventually("it is missed", lambda: world.state(CHECKOUT).status == "unknown")
        state = world.state(CHECKOUT)
        assert "victim is silent" in state.reason and producer.instance not in state.reason
        assert state.clears_at is not None and state.clears_at > datetime.now(UTC) + timedelta(minutes=10)


# ------------------------------------------------------------------------------------------------ rights


def test_clients_need_no_more_than_the_documented_rights(
    secure_broker: EmbeddedBroker, topic_name: Callable[..., str]
) -> None:
    world = RouteWorld(secure_broker.config(), topic_name())
    grant(
        world.config,
        [*producer_rights("checkout", world.source), *consumer_rights("ledger", world.source, world.group)],
    )
    got: dict[str, list[tuple[str, int]]] = defaultdict(list)
    producer = RoutedProducer(secure_broker.config("checkout"), world.source, "checkout", timing=QUICK)
    world.config = secure_broker.config("ledger")
    member = Member(world, got, **{"auto.offset.reset": "earliest"})
    with life(member, producer, world):
        producer.wait_ready()
        producer.produce("k", b"x", {"seq": "0"})
        eventually("it arrives", lambda: got["k"])
        state = world.wait(CHECKOUT, "running", world.source)
        assert state.instances[0].principal == "User:checkout"
        world.controller.stop(world.ctx(), [CHECKOUT])
        world.wait(CHECKOUT, "stopped", world.source)


def test_without_the_right_to_read_the_route_nothing_is_written(
    secure_broker: EmbeddedBroker, topic_name: Callable[..., str]
) -> None:
    world = RouteWorld(secure_broker.config(), topic_name())
    grant(world.config, allow("rogue", "TOPIC", world.source, "WRITE", "DESCRIBE"))
    grant(world.config, allow("rogue", "GROUP", world.group, "READ"))
    producer = RoutedProducer(secure_broker.config("rogue"), world.source, "checkout", max_block_s=0.1)
    consumer = RoutedConsumer(secure_broker.config("rogue"), world.source, world.group, timing=Timing(start_s=3))
    with life(producer, consumer, world):
        with pytest.raises(RouteUnavailable, match="READ on __topicshift_routes"):
            producer.wait_ready(1.5)
        with pytest.raises(RoutePaused, match="cannot be read"):
            producer.produce("k", b"x")
        with pytest.raises(RouteUnavailable, match="READ __topicshift_routes"):
            while True:
                consumer.poll(1)
        assert sum(world.ends(world.source).values()) == 0
        with RouteStore(secure_broker.config("rogue"), timeout_s=5) as store:
            with pytest.raises(AccessDenied):
                store.read(world.source)
            with pytest.raises(AccessDenied, match="__topicshift_acks"):
                store.broker_now()


def test_a_producer_that_loses_sight_of_the_route_stops_writing(
    secure_broker: EmbeddedBroker, topic_name: Callable[..., str]
) -> None:
    from confluent_kafka import admin

    world = RouteWorld(secure_broker.config(), topic_name())
    api: Any = admin
    sight = allow("billing", "TOPIC", ROUTES_TOPIC, "READ", "DESCRIBE")
    others = [r for r in producer_rights("billing", world.source) if r not in sight]
    grant(world.config, [*others, *sight])
    timing = Timing(heartbeat_s=0.5, stale_s=1.5)
    producer = RoutedProducer(secure_broker.config("billing"), world.source, "billing", max_block_s=0.1, timing=timing)
    with life(producer, world):
        producer.wait_ready()
        world.arm(Participant("billing", "producer", "route"))
        producer.produce("k", b"x")
        for operation in ("READ", "DESCRIBE"):
            gone = api.AclBindingFilter(
                api.ResourceType.TOPIC,
                ROUTES_TOPIC,
                api.ResourcePatternType.LITERAL,
                "User:billing",
                "*",
                api.AclOperation[operation],
                api.AclPermissionType.ALLOW,
            )
            world.admin.delete_acls([gone])[gone].result(10)
        eventually("it is blind", lambda: producer.status is Status.BLIND, 30)
        with pytest.raises(RoutePaused, match="cannot be read"):
            producer.produce("k", b"x")
        grant(world.config, sight)
        eventually("it goes on", lambda: producer.status is Status.RUNNING, 30)


# ------------------------------------------------------------------------------------------------ the command


def route_command(world: RouteWorld, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any, str]:
    code = run(["route", *words, "--bootstrap-server", world.config["bootstrap.servers"], "--json"])
    out = capsys.readouterr()
    return code, json.loads(out.out) if out.out.strip() else None, out.err


def test_the_operator_sees_and_sets_the_route(world: RouteWorld, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = route_command(world, capsys, "show", "--topic", world.source)
    assert (code, "no route record" in err) == (3, True)
    producer = world.producer()
    with life(producer):
        producer.wait_ready()
        world.wait(CHECKOUT, "running", world.source)
        confirm = ("--topic", world.source, "--yes", "--epoch")
        code, answer, _ = route_command(world, capsys, "set", *confirm, "0", "--state", "paused", "--lease", "30s")
        assert (code, answer["state"], answer["epoch"], answer["lease_ms"]) == (0, "paused", 1, 30_000)
        eventually("it is paused", lambda: producer.status is Status.PAUSED)
        world.wait(CHECKOUT, "stopped", world.source)
        code, answer, _ = route_command(world, capsys, "show", "--topic", world.source)
        (one,) = answer["routes"]
        assert (code, one["paused_now"]) == (0, True)
        assert [(i["instance"], i["status"], i["liveness"]) for i in one["instances"]] == [
            (producer.instance, "paused", "alive")
        ]
        code, _, err = route_command(world, capsys, "set", *confirm, "0", "--state", "open")
        assert (code, "epoch 1, not 0" in err) == (3, True)
        code, answer, err = route_command(
            world,
            capsys,
            "set",
            *confirm,
            "1",
            "--state",
            "open",
            "--active",
            world.target,
            "--group",
            f"g={world.target}",
        )
        assert (code, answer["active"], answer["groups"]["g"]["from"]) == (0, world.target, world.source)
        assert "topicshift drain" in err
        assert answer["warnings"] and all(f"warning: {w}" in err for w in answer["warnings"])
        eventually("it goes on", lambda: producer.topic == world.target and producer.status is Status.RUNNING)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--active", "a/b", "--yes", "--epoch", "0"), 2, "no topic name"),
        (("--yes", "--epoch", "0"), 2, "Nothing to set"),
        (("--state", "open", "--yes"), 2, "--yes needs --epoch"),
        (("--state", "paused", "--lease", "soon", "--yes", "--epoch", "0"), 2, "--lease"),
        (("--group", "ledger", "--yes", "--epoch", "0"), 2, "GROUP=TOPIC"),
        (("--active", "does-not-exist", "--yes", "--epoch", "0"), 3, "does not exist"),
    ],
)
def test_wrong_words_change_nothing(
    world: RouteWorld, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, says: str
) -> None:
    got, _, err = route_command(world, capsys, "set", "--topic", world.source, *words)
    assert (got, says in err) == (code, True)
    assert world.store.read(world.source) is None
