"""What is kept of the acks topic while it is read to its end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME

from topicshift.adapters import route_log
from topicshift.adapters.route_log import TopicLog
from topicshift.core.route.records import ACKS_TOPIC, Ack, BadAck, read_ack, serialise_ack

ACK = Ack("orders", "producer", "checkout", "one", "running", 1, "orders")


@dataclass(frozen=True)
class Record:
    """A record of the acks topic, as the client gives it."""

    its_key: str
    its_value: bytes | None
    at: int = 1_700_000_000_000

    def key(self) -> bytes:
        """Its key."""
        return self.its_key.encode()

    def value(self) -> bytes | None:
        """Its value, None for a tombstone."""
        return self.its_value

    def timestamp(self) -> tuple[int, int]:
        """The broker's stamp."""
        return TIMESTAMP_LOG_APPEND_TIME, self.at


def taken(*records: Record) -> TopicLog:
    """A log that has taken these records in and worked out what they say."""
    log: Any = TopicLog(ACKS_TOPIC)
    for record in records:
        log.take(record)
    log.judge()
    return log  # type: ignore[no-any-return]


def beat(instance: str, epoch: int) -> Record:
    """A heartbeat of an instance."""
    return Record(f"orders/{instance}", serialise_ack(replace(ACK, instance=instance, epoch=epoch)))


def test_of_thousands_of_heartbeats_the_newest_of_each_instance_alone_is_worked_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[bytes | None] = []

    def counted(key: bytes | None, value: bytes, stamp: int | None) -> Ack | BadAck | None:
        read.append(key)
        return read_ack(key, value, stamp)

    monkeypatch.setattr(route_log, "read_ack", counted)
    log = taken(*(beat(f"i{n % 3}", n) for n in range(3000)))
    assert sorted(read) == [b"orders/i0", b"orders/i1", b"orders/i2"]
    assert {a.instance: a.epoch for a in log.acks.values() if isinstance(a, Ack)} == {
        "i0": 2997, "i1": 2998, "i2": 2999,
    }  # fmt: skip
    log.judge()
    assert len(read) == 3


def test_the_last_word_of_an_instance_counts_whatever_it_is() -> None:
    gone, back = Record("orders/one", None), beat("one", 5)
    assert not taken(beat("one", 1), gone).acks
    assert [a.epoch for a in taken(beat("one", 1), gone, back).acks.values() if isinstance(a, Ack)] == [5]
    (bad,) = taken(beat("one", 1), Record("orders/one", b"{")).acks.values()
    assert isinstance(bad, BadAck)
    (mended,) = taken(Record("orders/one", b"{"), beat("one", 2)).acks.values()
    assert isinstance(mended, Ack)
    assert not taken(Record("no instance", b"{}")).acks
