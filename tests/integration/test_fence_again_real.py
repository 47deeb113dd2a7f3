"""A super user's record on the source after the switch, on a real broker, in both orders."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.integration.test_fence_real import Migration

from lab.broker import SUPERUSER, EmbeddedBroker
from topicshift.acts.advance import Asking, Done
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.core.drain.strays import Strays
from topicshift.core.engine.words import Ask, Row, Step

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def admin(secure_broker: EmbeddedBroker) -> Iterator[KafkaAdmin]:
    with KafkaAdmin(secure_broker.superuser_config()) as made:
        yield made


def late(migration: Migration, key: bytes | None) -> None:
    """Whom no DENY reaches writes one record."""
    producer = migration.producer(SUPERUSER)
    producer.produce(migration.source, b"late", key=key, partition=1)
    assert producer.flush(15.0) == 0


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_a_late_record_is_read_by_who_can_and_accepted_by_name_for_who_cannot(
    secure_broker: EmbeddedBroker, admin: KafkaAdmin, topic_name: Callable[..., str], cutover: str
) -> None:
    name = topic_name()
    consumers = [{"name": "ledger", "group": f"g-{name}"}, {"name": "fraud", "group": f"h-{name}"}]
    migration = Migration(secure_broker, admin, name, cutover=cutover, consumers=consumers)
    first, second = f"g-{name}", f"h-{name}"
    try:
        admin.alter_commits(second, name, dict.fromkeys(range(3), 0))
        assert isinstance(migration.advance(until=Step.SWITCH_PRODUCERS, patience_s=60.0), Done)
        assert isinstance(migration.advance(focus=first, patience_s=30.0), Done)
        late(migration, b"order-7")
        assert "has not drained" in migration.waits(patience_s=20.0)
        assert migration.context().fence_of(migration.record()).fence_offsets == {0: 0, 1: 1, 2: 0}
        assert migration.state(Row.SWITCH_GROUP, second) is None
        admin.alter_commits(second, name, {0: 0, 1: 1, 2: 0})
        asking = migration.advance(patience_s=60.0)
        assert isinstance(asking, Asking) and asking.ask is Ask.STRAYS
        assert asking.about["unseen_by"] == [first]
        strays = Strays.model_validate_json(migration.evidence.read(migration.claim.migration_id, "strays.json") or b"")
        assert [r.line(name) for r in strays.unseen] == [f"{name}[1] offset 0, key 'order-7'"]
        assert strays.unseen[0].timestamp_ms is not None
        migration.answer(asking)
        assert isinstance(migration.advance(patience_s=60.0), Done)
        assert migration.journal.current(migration.claim.migration_id).state == "done"
    finally:
        migration.clean()
