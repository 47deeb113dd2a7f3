"""The rights on docs/least-privilege.md are enough, and each is needed: read from the page, tried on a broker."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from tests.integration.real_world import RealWorld

from lab.broker import EmbeddedBroker
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.adapters.kafka.connection import Connection
from topicshift.adapters.kafka.rehearse import KafkaRehearser
from topicshift.adapters.kafka.replay import KafkaReplayer
from topicshift.adapters.route_store import RouteStore
from topicshift.client import RoutedConsumer, RoutedProducer
from topicshift.core.drain.replay import ReplayOrder, Wanted
from topicshift.core.engine.words import Row, Step
from topicshift.core.errors import AccessDenied, TopicshiftError, Transient
from topicshift.core.fence.decision import FenceSample, FenceSettings, find_open_transactions
from topicshift.core.kafka.cluster import Acl
from topicshift.core.kafka.java_client import java_properties
from topicshift.core.kafka.rules import ACKS_TOPIC, ROUTES_TOPIC
from topicshift.core.route.records import CLOCK_KEY, Route, State
from topicshift.core.spec.shadows import shadow_name

pytestmark = pytest.mark.broker
PAGE = Path(__file__).parents[2] / "docs" / "least-privilege.md"
WAIT_S = 20.0


@dataclass(frozen=True)
class Right:
    """One row of a table on the page."""

    resource: str
    name: str
    pattern: str
    operation: str
    without: str

    def acl(self, principal: str) -> Acl:
        return Acl(self.resource, self.name, self.pattern, principal, "*", self.operation, "ALLOW")


def table(after: str) -> list[Right]:
    """The rows of the first table after these words."""
    text = PAGE.read_text(encoding="utf-8").split(after, 1)[1]
    lines = text[text.index("| resource |") :].split("\n\n", 1)[0].splitlines()[2:]
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines]
    return [Right(*c[:4], c[5]) for c in cells]


ORCHESTRATOR = table("## Airflow's tasks")
REPLAY = table("## A replay")
REHEARSAL = table("## A rehearsal")
SPARK = table("## Spark")
PRODUCER = table("A producer:")
CONSUMER = table("A consumer:")


@dataclass
class World:
    """Topics, users and a superuser on the shared broker."""

    broker: EmbeddedBroker
    super: KafkaAdmin
    source: str
    target: str
    group: str
    given: set[Acl] = field(default_factory=set)

    def fill(self, right: Right) -> Right:
        words = {"{source}": self.source, "{target}": self.target, "{group}": self.group}
        name, without = right.name, right.without
        for word, value in words.items():
            name, without = name.replace(word, value), without.replace(word, value)
        return replace(right, name=name, without=without)

    def grant(self, user: str, rights: list[Right]) -> None:
        acls = {self.fill(r).acl(f"User:{user}") for r in rights}
        self.super.create_acls(acls)
        self.given |= acls
        until(lambda: self.given <= self.super.acls(), "the rights show")

    def revoke(self, user: str, right: Right) -> None:
        acl = self.fill(right).acl(f"User:{user}")
        self.super.delete_acls([acl])
        self.given.discard(acl)
        until(lambda: acl not in self.super.acls(), "the right is gone")


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, f"not in {WAIT_S:g} s: {what}"
        time.sleep(0.05)


def _made(store: RouteStore) -> bool:
    with contextlib.suppress(Transient):  # a topic that was just made has no leader for a moment
        store.ensure_topics()
        return True
    return False


def _clock(store: RouteStore) -> bool:
    with contextlib.suppress(Transient):
        return bool(store.broker_now())
    return False


@pytest.fixture(scope="module")
def alone(secure_broker: EmbeddedBroker) -> Iterator[KafkaAdmin]:
    """The superuser, on a broker where no right of another test is in the way; those come back at the end."""
    with KafkaAdmin(secure_broker.superuser_config()) as admin:
        theirs = admin.acls()
        admin.delete_acls(theirs)
        store = RouteStore(secure_broker.superuser_config())
        until(lambda: _made(store), "the topics of the route are there")
        until(lambda: _clock(store), "the brokers' time is known")
        store.close()
        yield admin
        admin.delete_acls(admin.acls())
        admin.create_acls(theirs)


@pytest.fixture
def world(secure_broker: EmbeddedBroker, alone: KafkaAdmin, topic_name: Callable[..., str]) -> Iterator[World]:
    name = topic_name()
    made = World(secure_broker, alone, name, f"{name}-v2", f"{name}-group")
    alone.create_topic(made.source, 1, 1, {})
    yield made
    alone.delete_acls(made.given)


def make_target(world: World) -> None:
    world.super.create_topic(world.target, 1, 1, {})


def test_every_table_of_the_page_was_read() -> None:
    tables = (ORCHESTRATOR, REPLAY, REHEARSAL, SPARK, PRODUCER, CONSUMER)
    assert [len(t) for t in tables] == [17, 4, 7, 2, 4, 5]
    assert all(re.fullmatch(r"[A-Z_]+", r.operation) for t in tables for r in t)


# ------------------------------------------------------------------------------------------------ the orchestrator


def test_the_orchestrators_rights_are_enough_for_a_migration(world: World) -> None:
    writers = {
        Acl("TOPIC", world.source, "LITERAL", f"User:{name}", "*", "WRITE", "ALLOW") for name in ("legacy", "checkout")
    }
    world.super.create_acls(writers)
    world.given |= writers
    world.super.alter_commits(world.group, world.source, {0: 0})
    world.grant("topicshift", ORCHESTRATOR)
    config = world.broker.config("topicshift")
    with KafkaAdmin(config, timeout_s=5) as admin:
        assert admin.cluster().authorizer is True
        before = {a for a in admin.acls() if a.name == world.source}
        admin.alter_topic_configs(world.source, set_={"retention.ms": "7200000"})
        run = RealWorld(
            world.broker,
            admin,
            world.source,
            user="topicshift",
            target=world.target,
            partitions=2,
            producers=[{"name": "checkout", "principal": "User:checkout"}],
            consumers=[{"name": "c", "group": world.group}],
        )
        run.advanced(until=Step.SWITCH_PRODUCERS)
        fence = run.data(Row.FENCE)["record"]
        assert [a["principal"] for a in fence["acls_added"]] == ["User:legacy"]
        run.advanced(wanted="rollback")
        assert admin.topic(world.target) is None
        assert {a for a in admin.acls() if a.name == world.source} == before
        run.open()
        run.advanced()
        assert run.journal.current(run.claim.migration_id).state == "done"
        assert dict(admin.commits([world.group], world.target, [0, 1])[world.group].offsets) == {0: 0, 1: 0}
        run.close()
        store = RouteStore(config, timeout_s=5)
        store.prepare(world.source)
        store.write(Route(world.source, world.source, State.OPEN, 1), None)
        until(lambda: store.read(world.source) is not None, "the route shows")
        assert [a for a in store.all_acks()[0] if a.logical == world.source] == []
        store.dismiss(world.source, "nobody")
        store.close()
        admin.delete_topic(world.source)


def _alter_acls(admin: KafkaAdmin, world: World) -> None:
    mine = [Acl("TOPIC", f"{world.source}-none", "LITERAL", "User:nobody", "*", "READ", "ALLOW")]
    admin.create_acls(mine)
    admin.delete_acls(mine)
    admin.acls()


def _open_transaction(admin: KafkaAdmin, world: World) -> None:
    sample = FenceSample(
        began=0,
        ended=0,
        topic_id=None,
        offsets=None,
        producers=tuple(admin.producers(world.source, [0])),
        transactions=tuple(admin.transactions(world.source)),
        stops=None,
    )
    (found,) = find_open_transactions(sample, FenceSettings(), 0)
    if found.transactional_id is None:
        raise AccessDenied(found.line(world.source, 0))


def _with_store(act: Callable[[RouteStore, World], object]) -> Callable[[KafkaAdmin, World], None]:
    def probe(admin: KafkaAdmin, world: World) -> None:
        store = RouteStore(admin.connection.config, timeout_s=5)
        try:
            act(store, world)
        finally:
            store.close()

    return probe


def _next_route(store: RouteStore, world: World) -> None:
    have = store.read(world.source)
    epoch = have.epoch if have else 0
    store.write(Route(world.source, world.source, State.OPEN, epoch + 1), epoch)


def id_of(world: World, topic: str) -> str:
    """The id of a topic, as acts know it when they delete that very topic."""
    found = world.super.topic(topic)
    assert found is not None
    return found.topic_id


Probe = Callable[[KafkaAdmin, World], object]
PROBES: dict[tuple[str, str, str], Probe] = {
    ("CLUSTER", "kafka-cluster", "ALTER"): _alter_acls,
    ("TOPIC", "{source}", "READ"): lambda a, w: a.producers(w.source, [0]),
    ("TOPIC", "{source}", "ALTER_CONFIGS"): lambda a, w: a.topic(w.source),
    ("TOPIC", "{source}", "DELETE"): lambda a, w: a.delete_topic(w.source, id_of(w, w.source)),
    ("TOPIC", "{target}", "CREATE"): lambda a, w: a.create_topic(w.target, 1, 1, {}),
    ("TOPIC", "{target}", "READ"): lambda a, w: a.alter_commits(w.group, w.target, {0: 0}),
    ("TOPIC", "{target}", "DESCRIBE_CONFIGS"): lambda a, w: a.topic(w.target),
    ("TOPIC", "{target}", "DELETE"): lambda a, w: a.delete_topic(w.target, id_of(w, w.target)),
    ("GROUP", "*", "READ"): lambda a, w: a.alter_commits(w.group, w.target, {0: 0}),
    ("TRANSACTIONAL_ID", "*", "DESCRIBE"): _open_transaction,
    ("TOPIC", ROUTES_TOPIC, "READ"): _with_store(lambda s, w: s.read_all()),
    ("TOPIC", ROUTES_TOPIC, "WRITE"): _with_store(_next_route),
    ("TOPIC", ROUTES_TOPIC, "DESCRIBE_CONFIGS"): _with_store(lambda s, w: s.check()),
    ("TOPIC", ACKS_TOPIC, "READ"): _with_store(lambda s, w: s.all_acks()),
    ("TOPIC", ACKS_TOPIC, "WRITE"): _with_store(lambda s, w: s.broker_now()),
    ("TOPIC", ACKS_TOPIC, "DESCRIBE_CONFIGS"): _with_store(lambda s, w: s.check()),
    ("TRANSACTIONAL_ID", "topicshift-route-", "WRITE"): _with_store(_next_route),
}


@pytest.mark.parametrize("right", ORCHESTRATOR, ids=lambda r: f"{r.resource}-{r.name}-{r.operation}")
def test_without_one_right_of_the_orchestrator_its_error_names_it(world: World, right: Right) -> None:
    probe = PROBES[right.resource, right.name, right.operation]
    if right.operation != "CREATE":
        make_target(world)
    store = RouteStore(world.broker.superuser_config())
    _next_route(store, world)
    store.close()
    open_: Producer | None = None
    if right.resource == "TRANSACTIONAL_ID" and right.name == "*":
        open_ = Producer({**world.broker.superuser_config(), "transactional.id": f"{world.source}-tx"})
        open_.init_transactions(WAIT_S)
        open_.begin_transaction()
        open_.produce(world.source, "v")
        assert open_.flush(WAIT_S) == 0
    world.grant("topicshift", ORCHESTRATOR)
    world.revoke("topicshift", right)
    with KafkaAdmin(world.broker.config("topicshift"), timeout_s=5) as admin:
        with pytest.raises(TopicshiftError) as caught:
            probe(admin, world)
        assert world.fill(right).without in str(caught.value)
        world.grant("topicshift", [right])
        probe(admin, world)
    if open_ is not None:
        open_.abort_transaction(WAIT_S)


# ------------------------------------------------------------------------------------------------ applications


def config(world: World, user: str, **more: Any) -> dict[str, Any]:
    return {**world.broker.config(user), "log_level": 0, **more}


def write(world: World, user: str, topic: str) -> str | None:
    """Write one record as this user; the name of the broker's error, if any."""
    producer = Producer(config(world, user, **{"delivery.timeout.ms": 5000, "linger.ms": 0}))
    errors: list[str | None] = []
    producer.produce(topic, '{"v": 1}', CLOCK_KEY, on_delivery=lambda e, _: errors.append(e and e.name()))
    assert producer.flush(WAIT_S) == 0
    return errors[0]


def join(world: World, user: str, topic: str) -> str | None:
    """Join the group, read one record of the topic and commit; the name of the broker's error, if any."""
    more = {"group.id": world.group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(config(world, user, **more))
    try:
        consumer.subscribe([topic])
        for message in consumer.consume(1, WAIT_S):
            if message.error() is not None:
                return str(message.error().name())
            consumer.commit(message, asynchronous=False)
            return None
        raise AssertionError("no record and no error")
    finally:
        consumer.close()


def follow(world: World, user: str, topic: str) -> str | None:
    """Read one record of a topic without a group; the broker's error, if any."""
    connection = Connection(world.broker.config(user), timeout_s=5)
    asked = connection.native.describe_topics(TopicCollection([topic]), request_timeout=5)
    try:  # a consumer that may not even DESCRIBE what it is assigned hears nothing at all
        connection.result(asked[topic], operation="DESCRIBE", resource=f"topic {topic}")
    except AccessDenied as exc:
        return str(exc)
    finally:
        connection.close()
    consumer = Consumer(config(world, user, **{"group.id": "not-joined", "enable.auto.commit": False}))
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        for _ in range(10):
            for message in consumer.consume(1, WAIT_S / 10):
                # librdkafka looks for the coordinator of a group that is never joined; clients pass over that.
                if message.error() is None:
                    return None
                if message.error().name() != "GROUP_AUTHORIZATION_FAILED":
                    return str(message.error().name())
        raise AssertionError("no record and no error")
    finally:
        consumer.close()


def prepare(world: World) -> None:
    make_target(world)
    assert write(world, "admin", world.source) is None
    assert write(world, "admin", world.target) is None
    store = RouteStore(world.broker.superuser_config())
    _next_route(store, world)
    store.close()


def test_the_clients_rights_are_enough_to_follow_the_route(world: World) -> None:
    prepare(world)
    world.grant("checkout", PRODUCER)
    world.grant("ledger", CONSUMER)
    producer = RoutedProducer(world.broker.config("checkout"), world.source, "checkout")
    consumer = RoutedConsumer(
        {**world.broker.config("ledger"), "auto.offset.reset": "earliest"}, world.source, world.group
    )
    try:
        producer.wait_ready(WAIT_S)
        producer.produce(b"k", b"v")
        assert producer.flush(WAIT_S) == 0
        got: list[Any] = []
        until(lambda: bool(got.append(m) or got) if (m := consumer.poll(0.2)) else len(got) > 1, "records arrive")
        store = RouteStore(world.broker.superuser_config())
        until(
            lambda: {a.role for a in store.all_acks()[0] if a.logical == world.source} == {"producer", "consumer"},
            "both acknowledge",
        )
        store.close()
    finally:
        producer.close()
        consumer.close()


@pytest.mark.parametrize(
    ("user", "rights", "right"),
    [("checkout", PRODUCER, r) for r in PRODUCER] + [("ledger", CONSUMER, r) for r in CONSUMER],
    ids=lambda v: f"{v.resource}-{v.name}-{v.operation}" if isinstance(v, Right) else "",
)
def test_without_one_right_a_client_is_refused(world: World, user: str, rights: list[Right], right: Right) -> None:
    prepare(world)
    filled = world.fill(right)
    probe, place = follow, filled.name
    if right.operation == "WRITE":
        probe = write
    elif right.resource == "GROUP":
        probe, place = join, world.source
    world.grant(user, rights)
    world.revoke(user, right)
    assert right.without in str(probe(world, user, place))
    world.grant(user, [right])
    assert probe(world, user, place) is None


def test_the_rights_for_a_replay_are_enough_and_each_is_needed(world: World) -> None:
    make_target(world)
    for topic in (world.source, world.target):
        assert write(world, "admin", topic) is None
    order = ReplayOrder("m", world.source, world.target, (Wanted(0, 0, 0),), {0: 0})

    def replay() -> int:
        replayer = KafkaReplayer.from_config(world.broker.config("topicshift"))
        try:
            return len(replayer.replay(order, timeout_s=5.0))
        finally:
            replayer.close()

    world.grant("topicshift", REPLAY)
    for right in REPLAY:
        world.revoke("topicshift", right)
        with pytest.raises(TopicshiftError, match=re.escape(world.fill(right).without)):
            replay()
        world.grant("topicshift", [right])
    assert replay() == 1


def test_the_rights_for_a_rehearsal_are_enough_for_a_whole_one(world: World) -> None:
    writer = Acl("TOPIC", world.source, "LITERAL", "User:checkout", "*", "WRITE", "ALLOW")
    world.super.create_acls([writer])
    world.given.add(writer)
    world.super.alter_commits(world.group, world.source, {0: 0})
    assert write(world, "admin", world.source) is None
    world.grant("topicshift", [*ORCHESTRATOR, *REHEARSAL])
    before = {name for name in world.super.topic_names() if not name.startswith("__")}
    with KafkaAdmin(world.broker.config("topicshift"), timeout_s=5) as admin:
        run = RealWorld(
            world.broker,
            admin,
            world.source,
            user="topicshift",
            target=world.target,
            partitions=2,
            mode="rehearse",
            producers=[{"name": "checkout", "principal": "User:checkout"}],
            consumers=[{"name": "c", "group": world.group}],
        )
        run.advanced()
        assert run.journal.current(run.claim.migration_id).state == "rehearsed"
        run.close()
    assert {name for name in world.super.topic_names() if not name.startswith("__")} == before


REHEARSAL_PROBES: dict[tuple[str, str], Callable[[KafkaAdmin, KafkaRehearser, str, str], object]] = {
    ("TOPIC", "CREATE"): lambda a, r, source, shadow: a.create_topic(shadow, 1, 1, {}),
    ("TOPIC", "READ"): lambda a, r, source, shadow: a.alter_commits(shadow, shadow, {0: 0}),
    ("TOPIC", "WRITE"): lambda a, r, source, shadow: r.copy(source, shadow, most=9, timeout_s=10.0),
    ("TOPIC", "ALTER_CONFIGS"): lambda a, r, source, shadow: a.topic(shadow),
    ("TOPIC", "DELETE"): lambda a, r, source, shadow: a.delete_topic(shadow),
    ("GROUP", "DELETE"): lambda a, r, source, shadow: r.forget([shadow]),
    ("TRANSACTIONAL_ID", "WRITE"): lambda a, r, source, shadow: r.copy(source, shadow, most=9, timeout_s=10.0),
}


@pytest.mark.parametrize("right", REHEARSAL, ids=lambda r: f"{r.resource}-{r.operation}")
def test_without_one_right_of_a_rehearsal_its_error_names_it(world: World, right: Right) -> None:
    probe, shadow = REHEARSAL_PROBES[right.resource, right.operation], shadow_name(world.source, "0" * 8)
    assert write(world, "admin", world.source) is None
    if right.operation != "CREATE":
        world.super.create_topic(shadow, 1, 1, {})
        world.super.alter_commits(shadow, shadow, {0: 0})
    world.grant("topicshift", [*ORCHESTRATOR, *REHEARSAL])
    world.revoke("topicshift", right)
    rehearser = KafkaRehearser.from_config(world.broker.config("topicshift"), timeout_s=5)
    with KafkaAdmin(world.broker.config("topicshift"), timeout_s=5) as admin:
        try:
            with pytest.raises(TopicshiftError) as caught:
                probe(admin, rehearser, world.source, shadow)
            assert right.without in str(caught.value)
            world.grant("topicshift", [right])
            probe(admin, rehearser, world.source, shadow)
        finally:
            rehearser.close()
            if world.super.topic(shadow) is not None:
                world.super.delete_topic(shadow)


@pytest.mark.spark
def test_sparks_rights_are_enough_and_each_is_needed(world: World, spark: Any) -> None:
    prepare(world)
    options = {f"kafka.{k}": v for k, v in java_properties(world.broker.config("search")).items()}

    def count(topic: str) -> int:
        frame = spark.read.format("kafka").options(**options).option("subscribe", topic)
        frame = frame.option("startingOffsets", f'{{"{topic}": {{"0": 0}}}}')
        return int(frame.option("endingOffsets", f'{{"{topic}": {{"0": 1}}}}').load().count())

    for right in SPARK:
        topic = world.fill(right).name
        with pytest.raises(Exception, match=right.without):
            count(topic)
        world.grant("search", [right])
        assert count(topic) == 1
