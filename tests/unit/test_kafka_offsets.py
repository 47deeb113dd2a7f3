"""End offsets of a topic that is written to while they are asked."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from tests.unit.plan_world import spec, world

from topicshift.adapters.kafka.connection import Connection
from topicshift.adapters.kafka.offsets import OffsetsReader
from topicshift.adapters.kafka.whole import EARLIEST
from topicshift.core.plan.model import make_plan


class Log:
    """Brokers on which every answer finds the log one record longer."""

    def __init__(self, open_at: int | None = None) -> None:
        self.end, self.open_at = 100, open_at

    def list_offsets(
        self, _: Any, topic: str, partitions: list[int], which: int, *, isolation: Any, timeout_s: float
    ) -> Any:
        """One answer for each partition asked, in the shape of librdkafka's."""
        committed = isolation == IsolationLevel.READ_COMMITTED

        def look() -> int:
            self.end += 1
            if which == EARLIEST:
                return 0
            return self.open_at if committed and self.open_at is not None else self.end

        return answered({TopicPartition(topic, p): SimpleNamespace(offset=look()) for p in partitions})


def answered(result: Any) -> Future[Any]:
    """A request that has this answer."""
    future: Future[Any] = Future()
    future.set_result(result)
    return future


def seen_by(monkeypatch: pytest.MonkeyPatch, request: Any, timeout_s: float = 5.0) -> Any:
    """What the reader makes of answers of this kind, by partition."""
    monkeypatch.setattr("topicshift.adapters.kafka.offsets.list_offsets", request)
    connection: Any = Connection({"bootstrap.servers": "localhost:1"}, timeout_s)
    monkeypatch.setattr(Connection, "native", None)
    return OffsetsReader(connection).offsets("payments", range(6))


def warned(monkeypatch: pytest.MonkeyPatch, log: Log) -> list[str]:
    offsets = seen_by(monkeypatch, log.list_offsets)
    return [f.seen for f in make_plan(spec(), world(offsets=offsets)).findings if f.code == "TS306"]


def test_a_log_that_grows_between_two_questions_is_no_open_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    assert warned(monkeypatch, Log()) == []
    (seen,) = warned(monkeypatch, Log(open_at=90))
    assert "holds back 6 partition(s)" in seen


def test_a_partition_that_the_answer_names_as_failed_or_leaves_out_is_not_read_and_the_others_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def request(_: Any, topic: str, partitions: list[int], which: int, **__: Any) -> Any:
        rows: dict[Any, Any] = {TopicPartition(topic, p): SimpleNamespace(offset=7) for p in partitions if p != 2}
        if TopicPartition(topic, 4) in rows:
            rows[TopicPartition(topic, 4)] = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        return answered(rows)

    seen = seen_by(monkeypatch, request, timeout_s=0.1)
    assert {p: o.end for p, o in seen.items()} == {0: 7, 1: 7, 2: None, 3: 7, 4: None, 5: 7}
    assert "gave no" in seen[2].error and "TOPIC_AUTHORIZATION_FAILED" in seen[4].error
    assert not seen[0].error


def test_a_request_that_fails_or_is_not_answered_is_an_error_of_every_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(*_: Any, **__: Any) -> Any:
        future: Future[Any] = Future()
        future.set_exception(KafkaException(KafkaError(KafkaError._TRANSPORT)))
        return future

    def silent(*_: Any, **__: Any) -> Any:
        return Future()

    for request, code in ((failing, "_TRANSPORT"), (silent, "_TIMED_OUT")):
        seen = seen_by(monkeypatch, request, timeout_s=0.0)
        assert sorted(seen) == list(range(6)) and all(code in o.error and o.end is None for o in seen.values())
