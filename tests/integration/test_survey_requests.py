"""What a survey of many groups costs the brokers: requests that grow with the coordinators, not with the groups."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.integration.drain_cases import Kit

from lab.broker import EmbeddedBroker
from topicshift.acts.drain import DrainTaker
from topicshift.acts.drain_inputs import DrainInputs
from topicshift.acts.drain_watch import DrainWatch
from topicshift.adapters.kafka import commits
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.adapters.kafka.python_client import CONNECT_MS, admin_client
from topicshift.adapters.kafka.reader import KafkaDrainReader
from topicshift.core.drain.certificate import Verdict
from topicshift.core.fence.point import FencePoint

pytestmark = pytest.mark.broker

GROUPS, PARTITIONS = 40, 3


class Counting:
    """Counts the requests that kafka-python sends, by kind, and the rows each OffsetFetch asks for."""

    def __init__(self, asker: KafkaDrainReader | KafkaAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: Counter[str] = Counter()
        self.rows: list[int] = []
        manager = asker.connection.kafka_python._manager
        send = manager.send

        def counted(request: Any, *args: Any, **kwargs: Any) -> Any:
            self.sent[type(request).__name__] += 1
            if type(request).__name__ == "OffsetFetchRequest":
                self.rows.append(sum(len(t.partition_indexes) for g in request.groups for t in g.topics))
            return send(request, *args, **kwargs)

        monkeypatch.setattr(manager, "send", counted)


@pytest.fixture
def surveyed(broker: EmbeddedBroker, tmp_path: Path) -> Any:
    """A topic that forty groups have read, but one."""
    with Kit(broker, tmp_path) as kit:
        topic = kit.topic(PARTITIONS)
        for p in range(PARTITIONS):
            kit.produce(topic, 2, p)
        names = [f"g{n:02}-{topic}" for n in range(GROUPS)]
        for name in names:
            kit.commit(name, topic, dict.fromkeys(range(PARTITIONS), 2))
        kit.commit(names[7], topic, {0: 2, 1: 1, 2: 2})
        yield kit, topic, names


def test_one_request_a_coordinator_for_all_groups(
    broker: EmbeddedBroker, surveyed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, topic, names = surveyed
    reader = KafkaDrainReader.from_config(broker.config())
    counting = Counting(reader, monkeypatch)

    async def look() -> None:
        found = await reader.describe(names)
        assert {g.state for g in found.values()} == {"EMPTY"}
        answer = await reader.commits(names, topic, range(PARTITIONS))
        assert [p for p, o in answer[names[7]].offsets.items() if o == 1] == [1]

    asyncio.run(look())
    reader.connection.close()
    assert counting.sent["OffsetFetchRequest"] == 1
    # These groups are of no known kind here: classic is tried, and consumer, share and streams where that fails.
    assert counting.sent["DescribeGroupsRequest"] == 1
    assert counting.sent["FindCoordinatorRequest"] <= 2
    assert counting.rows == [GROUPS * PARTITIONS]


def test_rounds_bound_what_is_under_way(broker: EmbeddedBroker, surveyed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, topic, names = surveyed
    reader = KafkaDrainReader.from_config(broker.config())
    counting = Counting(reader, monkeypatch)
    kinds = dict.fromkeys(names, "classic")
    answer = asyncio.run(
        commits.observe_commits(
            reader.connection, names, topic, range(PARTITIONS), kinds=kinds, rows_at_once=PARTITIONS * 15
        )
    )
    reader.connection.close()
    assert list(answer) == names
    assert counting.rows == [45, 45, 30]


def test_while_waiting_only_the_open_group_is_asked(
    broker: EmbeddedBroker, surveyed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit, topic, names = surveyed
    reader = KafkaDrainReader.from_config(broker.config())
    counting = Counting(reader, monkeypatch)
    fence = FencePoint(topic=topic, topic_id=kit.topic_id(topic), fence_offsets=kit.ends(topic, PARTITIONS))
    taker = DrainTaker(reader, DrainInputs(topic, declared=tuple(names), compare=False), fence=fence)

    async def follow() -> Verdict:
        verdict = Verdict.UNKNOWN
        looks = 0
        async for progress in DrainWatch(taker, timeout_s=60):
            looks += 1
            verdict = progress.certificate.verdict
            if looks == 2:
                kit.commit(names[7], topic, {1: 2})
        return verdict

    assert asyncio.run(follow()) is Verdict.DRAINED
    reader.connection.close()
    whole = GROUPS * PARTITIONS
    assert counting.rows[0] == counting.rows[-1] == whole, "all of it first, and once more before the yes"
    assert set(counting.rows[1:-1]) == {1}, "one partition of one group in between"


def test_transactions_of_other_topics_cost_no_request_each(
    broker: EmbeddedBroker, topic_name: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fence looks again and again; whatever else is written to the cluster must not slow it."""
    topic, other = topic_name(), topic_name("other")
    with KafkaAdmin(broker.config()) as admin, contextlib.ExitStack() as open_ones:
        for name in (topic, other):
            admin.create_topic(name, 1, 1, {})
        for n in range(12):
            producer = Producer({**broker.config(), "transactional.id": f"{topic}-{n:02}"})
            producer.init_transactions(20)
            producer.begin_transaction()
            producer.produce(topic if n == 7 else other, b"v")
            assert producer.flush(20) == 0
            open_ones.callback(producer.abort_transaction, 20)
        counting = Counting(admin, monkeypatch)
        assert [t.transactional_id for t in admin.transactions(topic)] == [f"{topic}-07"]
        assert len(admin.transactions(other)) == 11
        assert counting.sent == {"ListTransactionsRequest": 2, "DescribeTransactionsRequest": 2}


def test_brokers_that_accept_connections_and_say_nothing_do_not_use_up_the_time(broker: EmbeddedBroker) -> None:
    """A bootstrap list of mostly stalled brokers: each is given up soon, and the one that answers is found."""
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(4)]
        servers = [f"127.0.0.1:{s.getsockname()[1]}" for s in silent]
        config = broker.config()
        config["bootstrap.servers"] = ",".join([*servers, config["bootstrap.servers"]])
        began = time.monotonic()
        admin = stack.enter_context(closing(admin_client(config, timeout_s=30.0)))
        assert admin.describe_cluster()["brokers"]
        assert time.monotonic() - began < 4 * CONNECT_MS / 1000 + 10
