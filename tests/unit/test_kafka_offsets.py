"""End offsets of a topic that is written to while they are asked."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any

from confluent_kafka import IsolationLevel
from confluent_kafka.admin import OffsetSpec
from tests.unit.plan_world import spec, world

from topicshift.adapters.kafka.offsets import OffsetsReader
from topicshift.core.plan.model import make_plan


class Late(Future):  # type: ignore[type-arg]
    """An answer whose content is what the broker finds when it gives it."""

    def __init__(self, look: Callable[[], int]) -> None:
        super().__init__()
        self.look = look
        self.set_result(None)

    def result(self, timeout: float | None = None) -> Any:
        """The offset, in the shape of librdkafka's answer."""
        return SimpleNamespace(offset=self.look())


class Log:
    """An admin client of brokers on which every answer finds the log one record longer."""

    def __init__(self, open_at: int | None = None) -> None:
        self.end, self.open_at = 100, open_at

    def list_offsets(self, asked: dict[Any, Any], isolation_level: Any = None, **_: Any) -> dict[Any, Late]:
        """One answer for each partition asked."""
        committed = isolation_level == IsolationLevel.READ_COMMITTED

        def look(wanted: Any) -> int:
            self.end += 1
            if wanted is OffsetSpec.earliest():
                return 0
            return self.open_at if committed and self.open_at is not None else self.end

        return {tp: Late(partial(look, wanted)) for tp, wanted in asked.items()}


def warned(log: Log) -> list[str]:
    connection: Any = SimpleNamespace(native=log, timeout_s=5.0)
    offsets = OffsetsReader(connection).offsets("payments", range(6))
    return [f.seen for f in make_plan(spec(), world(offsets=offsets)).findings if f.code == "TS306"]


def test_a_log_that_grows_between_two_questions_is_no_open_transaction() -> None:
    assert warned(Log()) == []
    (seen,) = warned(Log(open_at=90))
    assert "holds back 6 partition(s)" in seen
