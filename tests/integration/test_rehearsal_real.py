"""A rehearsal on a real broker: every step runs on shadow topics, and the migration's own objects stay as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.integration.test_fence_real import Migration, until

from lab.broker import EmbeddedBroker
from topicshift.acts.advance import Done
from topicshift.acts.close import close
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.adapters.kafka.rehearse import KafkaRehearser
from topicshift.core.engine.words import Row, Step
from topicshift.core.errors import Refused
from topicshift.core.spec.shadows import shadow_name

pytestmark = pytest.mark.broker
WAIT_S = 20.0


@pytest.fixture(scope="module")
def admin(secure_broker: EmbeddedBroker) -> Iterator[KafkaAdmin]:
    with KafkaAdmin(secure_broker.superuser_config()) as made:
        yield made


@pytest.fixture
def rehearser(secure_broker: EmbeddedBroker) -> Iterator[KafkaRehearser]:
    made = KafkaRehearser.from_config(secure_broker.superuser_config())
    yield made
    made.close()


def keyed(broker: EmbeddedBroker, topic: str, records: int, keys: int) -> None:
    producer = Producer({**broker.superuser_config(), "linger.ms": 5})
    for n in range(records):
        producer.produce(topic, b"v%d" % n, b"k%d" % (n % keys), n % keys % 3, headers=[("seq", str(n).encode())])
    assert producer.flush(WAIT_S) == 0


def others(admin: KafkaAdmin, name: str) -> frozenset[str]:
    """Groups of earlier tests: brokers forget them some time after their topics were deleted."""
    return frozenset(g.group for g in admin.groups() if name not in g.group)


def cluster(admin: KafkaAdmin, without: frozenset[str]) -> Any:
    """Everything there is on it: topics with configs and ids, ACLs, offsets, groups and their commits."""
    names = sorted(n for n in admin.topic_names() if not n.startswith("__"))
    groups = sorted({g.group for g in admin.groups()} - without)
    topics = {n: admin.topic(n) for n in names}
    return (
        {n: (t.topic_id, t.partitions, t.configs) for n, t in topics.items() if t is not None},
        admin.acls(),
        {n: {p: (o.log_start, o.end) for p, o in admin.offsets(n).items()} for n in names},
        groups,
        {n: {g: dict(c.offsets) for g, c in admin.commits(groups, n, range(3)).items()} for n in names},
    )


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
@pytest.mark.parametrize("ends", ["by itself", "closed in the freeze", "closed after the switch"])
def test_the_cluster_is_afterwards_as_it_was_before(
    secure_broker: EmbeddedBroker, admin: KafkaAdmin, topic_name: Callable[..., str], cutover: str, ends: str
) -> None:
    name = topic_name()
    migration = Migration(secure_broker, admin, name, cutover=cutover, mode="rehearse")
    keyed(secure_broker, name, 300, 10)
    try:
        earlier = others(admin, name)
        before = cluster(admin, earlier)
        if ends == "by itself":
            assert isinstance(migration.advance(patience_s=60.0), Done)
            assert migration.journal.current(migration.claim.migration_id).state == "rehearsed"
            (told,) = migration.events("rehearsal_begun")
            assert (told["of"], told["records"], told["keys"]) == (name, 300, 10)
            assert migration.journal.step(migration.claim.migration_id, Row.FENCE)
            assert migration.events("producers_switched")[0]["freeze_seconds"] > 0
        else:
            until = Step.STOP_PRODUCERS if ends == "closed in the freeze" else Step.SWITCH_PRODUCERS
            assert isinstance(migration.advance(until=until, patience_s=60.0), Done)
            assert cluster(admin, earlier) != before
            close(migration.context(), "enough", even_frozen=True)
        assert cluster(admin, earlier) == before
    finally:
        migration.clean()


def test_a_compacted_source_with_tombstones_and_old_records_is_rehearsed(
    secure_broker: EmbeddedBroker, admin: KafkaAdmin, topic_name: Callable[..., str]
) -> None:
    name = topic_name()
    migration = Migration(secure_broker, admin, name, mode="rehearse", history="none")
    producer = Producer({**secure_broker.superuser_config(), "linger.ms": 5})
    for key, value in ((b"a", b"1"), (b"", b"2"), (b"a", None), (None, b"3")):
        producer.produce(name, value, key, 0, timestamp=1_000_000_000_000)
    assert producer.flush(WAIT_S) == 0
    kept = {"cleanup.policy": "compact", "message.timestamp.before.max.ms": "3600000"}
    try:
        admin.alter_topic_configs(name, set_=kept)
        earlier = others(admin, name)
        before = cluster(admin, earlier)
        assert isinstance(migration.advance(until=Step.PLAN, patience_s=60.0), Done)
        (told,) = migration.events("rehearsal_begun")
        assert (told["records"], told["keys"]) == (3, 2), "a tombstone and an empty key are records of a key"
        shadow = admin.topic(migration.journal.current(migration.claim.migration_id).source)
        assert shadow is not None
        assert {n: shadow.configs[n].value for n in kept} == kept
        assert isinstance(migration.advance(patience_s=60.0), Done)
        assert migration.journal.current(migration.claim.migration_id).state == "rehearsed"
        assert cluster(admin, earlier) == before
    finally:
        migration.clean()


@pytest.mark.parametrize("records", [0, 5])
def test_a_source_without_a_keyed_record_is_refused_and_nothing_is_left(
    secure_broker: EmbeddedBroker, admin: KafkaAdmin, topic_name: Callable[..., str], records: int
) -> None:
    name = topic_name()
    migration = Migration(secure_broker, admin, name, mode="rehearse")
    assert not migration.write(migration.producer("checkout"), 0, records)
    try:
        earlier = others(admin, name)
        before = cluster(admin, earlier)
        with pytest.raises(Refused, match=f"None of the {records} latest record.s. of {name} has a key"):
            migration.advance(patience_s=60.0)
        close(migration.context(), "enough", leave_nothing=True)
        assert cluster(admin, earlier) == before
    finally:
        migration.clean()


def test_a_copy_that_was_killed_half_way_is_made_by_the_next_try(
    secure_broker: EmbeddedBroker, admin: KafkaAdmin, topic_name: Callable[..., str], rehearser: KafkaRehearser
) -> None:
    name = topic_name()
    shadow = shadow_name(name, "0" * 8)
    admin.create_topic(name, 3, 1, {})
    admin.create_topic(shadow, 3, 1, {})
    keyed(secure_broker, name, 60, 6)
    killed = Producer({**secure_broker.superuser_config(), "transactional.id": shadow})
    killed.init_transactions(WAIT_S)
    killed.begin_transaction()
    killed.produce(shadow, b"half", b"k0", 0)
    assert killed.flush(WAIT_S) == 0
    made = rehearser.copy(name, shadow, most=100, timeout_s=WAIT_S)
    assert (made.records, made.keys) == (60, 6)
    # The broker lists a transaction that is committed until its markers are written.
    until(lambda: not admin.transactions(shadow), "no transaction is open on the shadow")
    admin.delete_topic(shadow)


def test_a_copy_is_of_whole_keys_in_their_order_and_made_once(
    secure_broker: EmbeddedBroker, admin: KafkaAdmin, topic_name: Callable[..., str], rehearser: KafkaRehearser
) -> None:
    name = topic_name()
    shadow = shadow_name(name, "0" * 8)
    admin.create_topic(name, 3, 1, {})
    admin.create_topic(shadow, 3, 1, {})
    keyed(secure_broker, name, 400, 40)
    made = rehearser.copy(name, shadow, most=100, timeout_s=WAIT_S)
    assert 0 < made.keys < 40 and made.records == made.keys * 10
    # The ends go on until the markers of the commit are written in every partition.
    until(lambda: not admin.transactions(shadow), "no transaction is open on the shadow")
    ends = admin.offsets(shadow)
    assert rehearser.copy(name, shadow, most=100, timeout_s=WAIT_S) == made
    until(lambda: not admin.transactions(shadow), "no transaction is open on the shadow")
    assert {p: o.end_committed for p, o in admin.offsets(shadow).items()} == {
        p: o.end_committed for p, o in ends.items()
    }
    admin.delete_topic(shadow)


def test_nothing_is_written_to_or_forgotten_of_what_is_no_shadow(
    admin: KafkaAdmin, topic_name: Callable[..., str], rehearser: KafkaRehearser
) -> None:
    name = topic_name()
    for act in (
        lambda: rehearser.copy(name, f"{name}-v2", most=1, timeout_s=1.0),
        lambda: rehearser.go_on(name, f"{name}-v2"),
        lambda: rehearser.forget(["ledger"]),
    ):
        with pytest.raises(Refused, match="is no topic or group of a rehearsal"):
            act()
