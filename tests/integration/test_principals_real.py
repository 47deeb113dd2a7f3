"""Rights to write and what a DENY does, asked of a real broker with its authorizer on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from lab.broker import EmbeddedBroker, new_password
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.core.fence.acls import Grant, deny_write, grant, wide_deny
from topicshift.core.kafka.cluster import Acl

pytestmark = pytest.mark.broker
WAIT_S = 20.0


@pytest.fixture(scope="module")
def secure_broker() -> Iterator[EmbeddedBroker]:
    """A broker of this file's own: any right that another test left to these users would change the answers here."""
    with EmbeddedBroker(authorizer=True, users={user: new_password() for user in ("checkout", "legacy")}) as running:
        yield running


@pytest.fixture(scope="module")
def admin(secure_broker: EmbeddedBroker) -> Iterator[KafkaAdmin]:
    with KafkaAdmin(secure_broker.superuser_config()) as made:
        yield made


class Source:
    """A topic whose ACLs a test sets, and producers of the user checkout."""

    def __init__(self, broker: EmbeddedBroker, admin: KafkaAdmin, name: str) -> None:
        self.broker, self.admin, self.name = broker, admin, name
        self.added: set[Acl] = set()
        admin.create_topic(name, 1, 1, {})

    def allow(self, *acls: Acl) -> None:
        self.admin.create_acls(acls)
        self.added |= set(acls)

    def take(self, *acls: Acl) -> None:
        self.admin.delete_acls(acls)

    def of(self, principal: str = "User:checkout", topic: str | None = None, **changes: str) -> Acl:
        fields = {"pattern": "LITERAL", "host": "*", "operation": "WRITE", "permission": "ALLOW"} | changes
        return Acl("TOPIC", self.name if topic is None else topic, principal=principal, **fields)

    def producer(self, user: str = "checkout", **settings: Any) -> Producer:
        config = {**self.broker.config(user), "linger.ms": 0, "delivery.timeout.ms": 3000, "log_level": 0}
        return Producer({**config, "topic.metadata.refresh.interval.ms": 200, **settings})

    def write(self, producer: Producer, topic: str | None = None) -> str | None:
        """Write one record; the name of the error, None where it was reported as written."""
        said: list[str | None] = []
        try:
            producer.produce(
                topic or self.name, b"x", partition=0, on_delivery=lambda e, _: said.append(e.name() if e else None)
            )
            assert producer.flush(WAIT_S) == 0
        except KafkaException as exc:  # after a fatal error it takes nothing any more
            return str(exc.args[0].name())
        return said[0]

    def end(self) -> int | None:
        return self.admin.offsets(self.name)[0].end


@pytest.fixture
def source(secure_broker: EmbeddedBroker, admin: KafkaAdmin, topic_name: Callable[..., str]) -> Iterator[Source]:
    made = Source(secure_broker, admin, topic_name())
    before = admin.acls()
    yield made
    admin.delete_acls(made.added - before)


CASES: list[tuple[dict[str, str], Grant]] = [
    ({}, Grant.BY_NAME),
    ({"operation": "ALL"}, Grant.BY_NAME),
    ({"pattern": "PREFIXED"}, Grant.BY_NAME),
    ({"host": "127.0.0.1"}, Grant.BY_NAME),
    ({"principal": "User:*"}, Grant.BY_EVERYBODY),
    ({"principal": "User:Checkout"}, Grant.NONE),
    ({"principal": "Group:checkout"}, Grant.NONE),
    ({"operation": "READ"}, Grant.NONE),
]


@pytest.mark.parametrize(("fields", "wanted"), CASES)
def test_the_broker_looks_a_right_up_as_the_plan_does(fields: dict[str, str], wanted: Grant, source: Source) -> None:
    acl = source.of(**fields)
    source.allow(acl, source.of("User:ledger", operation="READ"))
    assert grant(source.admin.acls(), source.name, "User:checkout") is wanted
    refused = source.write(source.producer(**{"enable.idempotence": False}))
    assert refused == (None if wanted in (Grant.BY_NAME, Grant.BY_EVERYBODY) else "TOPIC_AUTHORIZATION_FAILED")


def test_one_deny_after_the_switch_holds_everybody_and_leaves_reading_alone(source: Source) -> None:
    source.allow(source.of(), source.of("User:legacy", topic=source.name[:8], pattern="PREFIXED", operation="ALL"))
    source.allow(source.of("User:legacy", operation="READ"))
    writers = [source.producer(u, **{"enable.idempotence": False}) for u in ("checkout", "legacy")]
    assert [source.write(p) for p in writers] == [None, None]
    (deny,) = wide_deny(source.admin.acls(), source.name).bindings
    source.allow(deny)
    assert [source.write(p) for p in writers] == ["TOPIC_AUTHORIZATION_FAILED"] * 2
    assert source.end() == 2
    with KafkaAdmin(source.broker.config("legacy")) as reading:
        assert reading.offsets(source.name)[0].end == 2
    assert wide_deny(source.admin.acls(), source.name).bindings == (), "it is there already"
    source.take(deny)
    assert [source.write(source.producer(u)) for u in ("checkout", "legacy")] == [None, None]


def test_a_producer_with_acks_0_is_told_that_dropped_records_were_written(source: Source) -> None:
    """What TS318 says, and why the ends of the source are the judge of nothing that such a producer claims."""
    source.allow(source.of())
    producer = source.producer(acks=0, **{"enable.idempotence": False})
    assert source.write(producer) is None
    deadline = time.monotonic() + WAIT_S
    while source.end() != 1:
        assert time.monotonic() < deadline
    source.allow(deny_write(source.name, "User:checkout"))
    assert source.write(producer) is None
    assert source.write(producer) is None
    assert source.end() == 1


def test_an_idempotent_producer_that_starts_under_the_deny_needs_another_topic_to_write_to(
    source: Source, topic_name: Callable[..., str]
) -> None:
    """TS318: with WRITE on the target, which is made before the fence, it gets a plain error and recovers."""
    target = topic_name("target")
    source.admin.create_topic(target, 1, 1, {})
    deny = deny_write(source.name, "User:checkout")
    source.allow(source.of(), deny)
    alone = source.producer(**{"enable.idempotence": True})
    assert source.write(alone) == "CLUSTER_AUTHORIZATION_FAILED"
    source.take(deny)
    assert source.write(alone) is not None, "it never recovers"
    source.allow(deny, source.of(topic=target))
    with_target = source.producer(**{"enable.idempotence": True})
    assert source.write(with_target) == "TOPIC_AUTHORIZATION_FAILED"
    assert source.write(with_target, target) is None
    source.take(deny)
    deadline = time.monotonic() + WAIT_S
    while source.write(with_target) is not None:
        assert time.monotonic() < deadline, "it did not recover"
