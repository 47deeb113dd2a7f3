"""A change is made when every broker shows it: two real brokers, each asked alone, one of them late or dead."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lab.broker import EmbeddedBroker
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.adapters.kafka.propagation import (
    Shows,
    conn_asks,
    shows_acls,
    shows_configs,
    shows_no_topic,
    shows_topic,
    until_everywhere,
)
from topicshift.core.errors import Transient
from topicshift.core.kafka.cluster import Acl

pytestmark = pytest.mark.broker
WAIT_S = 20.0
LATE = 2  # a broker that is no controller: the change is committed without it
ROUNDS = 15


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    # Long enough for a busy machine: the broker that is held must not be taken for dead.
    with EmbeddedBroker(brokers=2, authorizer=True, server_properties={"broker.session.timeout.ms": 8_000}) as running:
        yield running


@pytest.fixture
def admin(two: EmbeddedBroker) -> Iterator[KafkaAdmin]:
    with KafkaAdmin(two.config(), 30.0) as made:
        yield made


class Eyes:
    """Looks at single brokers, with connections of its own."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._admin = KafkaAdmin(broker.config())
        for node in broker.nodes:  # connected to each before any is held
            self.see(node, shows_topic("none", 1))

    def see(self, node: int, shows: Shows) -> bool:
        return conn_asks(self._admin.connection, shows, node, "DESCRIBE", "the test's things")

    def close(self) -> None:
        self._admin.close()


@pytest.fixture
def eyes(two: EmbeddedBroker) -> Iterator[Eyes]:
    made = Eyes(two)
    yield made
    made.close()


def deny(topic: str, principal: str) -> Acl:
    return Acl("TOPIC", topic, "LITERAL", f"User:{principal}", "*", "WRITE", "DENY")


def changes(admin: KafkaAdmin, topic: str) -> list[tuple[str, Callable[[], object], Shows]]:
    """Every kind of change, in an order in which each finds what it needs, and what a broker shows after it."""
    acls = [deny(topic, "late"), Acl("TOPIC", topic, "PREFIXED", "User:late", "*", "READ", "ALLOW")]
    value = {"retention.ms": "7200000"}
    topic_id: list[str] = []
    return [
        ("create", lambda: topic_id.append(admin.create_topic(topic, 4, 1, {})), shows_topic(topic, 4)),
        ("set", lambda: admin.alter_topic_configs(topic, set_=value), shows_configs(topic, value, [])),
        ("unset", lambda: admin.alter_topic_configs(topic, unset=value), shows_configs(topic, {}, value)),
        ("grant", lambda: admin.create_acls(acls), shows_acls(acls, there=True)),
        ("revoke", lambda: admin.delete_acls(acls), shows_acls(acls, there=False)),
        ("delete", lambda: admin.delete_topic(topic), lambda a, n: shows_no_topic(topic, topic_id[0])(a, n)),
    ]


def test_each_broker_shows_each_change_at_the_first_look(
    admin: KafkaAdmin, eyes: Eyes, two: EmbeddedBroker, topic_name: Callable[..., str]
) -> None:
    for _ in range(ROUNDS):
        for kind, act, shows in changes(admin, topic_name()):
            act()
            assert {n: eyes.see(n, shows) for n in two.nodes} == dict.fromkeys(two.nodes, True), kind


# A client may send its change to the very broker that is held, so here it goes to the other one by hand.


def set_config(admin: KafkaAdmin, topic: str) -> Shows:
    from kafka.admin import AlterConfigOp, ConfigResourceType
    from kafka.protocol.admin import IncrementalAlterConfigsRequest

    one = [("retention.ms", AlterConfigOp.SET, "7200000")]
    send(admin, IncrementalAlterConfigsRequest(resources=[(ConfigResourceType.TOPIC, topic, one)], validate_only=False))
    return shows_configs(topic, {"retention.ms": "7200000"}, [])


def unset_config(admin: KafkaAdmin, topic: str) -> Shows:
    from kafka.admin import AlterConfigOp, ConfigResourceType
    from kafka.protocol.admin import IncrementalAlterConfigsRequest

    one = [("segment.ms", AlterConfigOp.DELETE, None)]
    send(admin, IncrementalAlterConfigsRequest(resources=[(ConfigResourceType.TOPIC, topic, one)], validate_only=False))
    return shows_configs(topic, {}, ["segment.ms"])


def grant(admin: KafkaAdmin, topic: str) -> Shows:
    from kafka.admin import ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourceType
    from kafka.protocol.admin import CreateAclsRequest

    row = (ResourceType.TOPIC, topic, ACLResourcePatternType.LITERAL, "User:nobody", "*")
    send(admin, CreateAclsRequest(creations=[(*row, ACLOperation.WRITE, ACLPermissionType.DENY)], min_version=1))
    return shows_acls([deny(topic, "nobody")], there=True)


def revoke(admin: KafkaAdmin, topic: str) -> Shows:
    from kafka.admin import ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourceType
    from kafka.protocol.admin import DeleteAclsRequest

    row = (ResourceType.TOPIC, topic, ACLResourcePatternType.LITERAL, "User:late", "*")
    send(admin, DeleteAclsRequest(filters=[(*row, ACLOperation.WRITE, ACLPermissionType.DENY)], min_version=1))
    return shows_acls([deny(topic, "late")], there=False)


def send(admin: KafkaAdmin, request: Any) -> None:
    manager = admin.connection.kafka_python._manager
    answer = manager.run(manager.send, request, 1)
    rows = next(rows for name in ("responses", "results", "filter_results") if (rows := getattr(answer, name, None)))
    assert [row.error_code for row in rows] == [0], rows


@pytest.fixture
def topic(admin: KafkaAdmin, topic_name: Callable[..., str]) -> Iterator[str]:
    """A topic with a config and an ACL."""
    name = topic_name()
    admin.create_topic(name, 1, 1, {"segment.ms": "60000"})
    admin.create_acls([deny(name, "late")])
    yield name
    admin.delete_acls([deny(name, "late"), deny(name, "nobody")])
    admin.delete_topic(name)


@contextlib.contextmanager
def held(broker: EmbeddedBroker) -> Iterator[Callable[[], None]]:
    """The late broker takes nothing over until it is let go."""
    os.kill(broker.pid(LATE), signal.SIGSTOP)
    try:
        yield lambda: os.kill(broker.pid(LATE), signal.SIGCONT)
    finally:
        os.kill(broker.pid(LATE), signal.SIGCONT)


@pytest.mark.parametrize("change", [set_config, unset_config, grant, revoke])
def test_a_broker_that_is_late_is_waited_for(
    admin: KafkaAdmin, eyes: Eyes, two: EmbeddedBroker, topic: str, change: Callable[[KafkaAdmin, str], Shows]
) -> None:
    with held(two) as let_go, concurrent.futures.ThreadPoolExecutor(1) as pool:
        shows = change(admin, topic)
        waiting = pool.submit(wait_everywhere, admin, shows)
        until(lambda: eyes.see(1, shows), "the change on the first broker")
        with pytest.raises(TimeoutError):
            waiting.result(1.0)
        let_go()
        waiting.result(WAIT_S)
    assert eyes.see(LATE, shows)


def wait_everywhere(admin: KafkaAdmin, shows: Shows) -> None:
    until_everywhere(admin.connection, shows, what="The change", operation="DESCRIBE", resource="the test's things")


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, f"not in {WAIT_S:g} s: {what}"
        time.sleep(0.02)


def test_a_broker_that_stays_late_is_named(admin: KafkaAdmin, two: EmbeddedBroker, topic: str) -> None:
    with KafkaAdmin(two.config(), 2.0) as hasty:
        hasty.acls()  # connected before the broker is held
        with held(two), pytest.raises(Transient, match=rf"The change was accepted.* within 2 s: {LATE} \("):
            wait_everywhere(hasty, grant(admin, topic))


def test_a_broker_that_died_is_waited_for_until_the_cluster_knows(
    admin: KafkaAdmin, two: EmbeddedBroker, topic: str
) -> None:
    admin.topic(topic)
    two.kill(LATE)
    try:
        wait_everywhere(admin, set_config(admin, topic))
        assert [broker.id for broker in admin.cluster().brokers] == [1]
    finally:
        two.restart(LATE)
