"""The drain against clusters that are dead, half dead or in the middle of an election, and signals to the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec
from tests.integration.drain_cases import Kit
from tests.integration.drain_cases.kit import wait_for
from tests.integration.real_world import RealWorld

from lab.broker import EmbeddedBroker
from topicshift import cli
from topicshift.acts.drain import DrainTaker
from topicshift.acts.drain_inputs import DrainInputs
from topicshift.adapters.executor import run_async
from topicshift.adapters.kafka.reader import KafkaDrainReader
from topicshift.core.drain.certificate import DrainCertificate, Verdict
from topicshift.core.engine.words import Row, Step

ROOT = Path(__file__).parents[2]
BOUND_S = 60

pytestmark = pytest.mark.broker


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "topicshift.cli", "drain", *words]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "include")}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words), capture_output=True, text=True, env=environment(), timeout=BOUND_S, check=False
    )


def test_a_dead_address_is_unknown_within_the_bound() -> None:
    done = run("--topic", "payments", "--bootstrap-server", "127.0.0.1:1", "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["exit_code"]) == (4, 4)
    assert "127.0.0.1:1" in error["message"] and error["message"] in done.stderr
    assert "Traceback" not in done.stderr


def test_an_address_that_says_nothing_is_unknown_within_the_bound() -> None:
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        address = "127.0.0.1:%d" % silent.getsockname()[1]  # noqa: UP031
        done = run("--topic", "payments", "--group", "g", "--bootstrap-server", address)
    assert (done.returncode, done.stdout) == (4, "")
    assert address in done.stderr
    assert "Traceback" not in done.stderr


def test_sigterm_ends_a_wait(broker: EmbeddedBroker, tmp_path: Path) -> None:
    with Kit(broker, tmp_path) as kit:
        topic = kit.topic()
        kit.produce(topic, 2)
        kit.commit("g-" + topic, topic, {0: 1})
        words = ["--topic", topic, "--group", "g-" + topic, "--bootstrap-server", broker.bootstrap, "--wait", "10m"]
        child = subprocess.Popen(
            command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        )
        try:
            assert child.stderr is not None
            assert "1 to go" in child.stderr.readline()
            child.send_signal(signal.SIGTERM)
            out, err = child.communicate(timeout=20)
        finally:
            child.kill()
    assert child.returncode == 143
    assert out == ""
    assert "Traceback" not in err


def test_wait_ends_when_the_group_has_read(broker: EmbeddedBroker, tmp_path: Path) -> None:
    with Kit(broker, tmp_path) as kit:
        topic = kit.topic()
        kit.produce(topic, 5)
        group = "g-" + topic
        kit.commit(group, topic, {0: 1})

        def catch_up(stop: Any) -> None:
            stop.wait(0.5)
            kit.commit(group, topic, {0: 5})

        kit.in_thread(catch_up)
        code = cli.run(["drain", "--topic", topic, "--group", group, "--wait", "60s", *address(broker)])
        assert code == 0
        assert cli.run(["drain", "--topic", topic, "--group", group, "--wait", "1s", *address(broker)]) == 0


def test_wait_ends_with_its_time(broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Kit(broker, tmp_path) as kit:
        topic = kit.topic()
        kit.produce(topic, 5)
        kit.commit("g-" + topic, topic, {0: 1})
        words = ["drain", "--topic", topic, "--group", "g-" + topic, "--wait", "500ms", *address(broker)]
        assert cli.run(words) == 3
        out, err = capsys.readouterr()
        assert "unread" in out and "4 to go" in err


def test_who_holds_an_open_transaction_is_said(
    broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Kit(broker, tmp_path) as kit:
        topic = kit.topic()
        kit.transaction(topic, 1, end="open")
        kit.commit("g-" + topic, topic, {0: 0})
        words = ["drain", "--topic", topic, "--group", "g-" + topic, *address(broker)]
        assert cli.run(words) == 3
        text = " ".join(capsys.readouterr().out.split())
        assert cli.run([*words, "--json"]) == 3
        (told,) = json.loads(capsys.readouterr().out)["transactions"]
    assert "open_transaction" in text
    assert f"open transaction on {topic}[0] (producer id {told['producer_id']}" in text
    assert "Kafka ends it by itself in at most" in text and told["ends_by_ms"] and not told["hanging"]


def address(broker: EmbeddedBroker) -> list[str]:
    return ["--bootstrap-server", broker.bootstrap]


# -------------------------------------------------------------------------------------- a cluster of two, one goes


@pytest.fixture(scope="module")
def pair() -> Iterator[EmbeddedBroker]:
    properties = {"broker.session.timeout.ms": 6000, "log.retention.check.interval.ms": 300}
    properties["log.initial.task.delay.ms"] = 500
    with EmbeddedBroker(brokers=2, server_properties=properties) as running:
        yield running


def placed(kit: Kit, *replicas: list[int]) -> str:
    """A topic with its replicas where they are wanted, the first of each being the leader."""
    topic = kit.name("t")
    kit.admin.create_topics([NewTopic(topic, len(replicas), replica_assignment=list(replicas))])[topic].result(30)
    wait_for("leaders", lambda: kit._has_leaders(topic, len(replicas)))
    return topic


def test_retention_passed_the_commit(pair: EmbeddedBroker, tmp_path: Path) -> None:
    with Kit(pair, tmp_path) as kit:
        topic = kit.topic(retention_ms=1000, segment_ms=100, file_delete_delay_ms=0)
        producer = Producer({**kit.config, "linger.ms": 0, "enable.idempotence": True})
        for i in range(3):
            producer.produce(topic, value=b"old", partition=0, timestamp=1_600_000_000_000 + i)
        producer.flush(30)
        kit.commit("g-" + topic, topic, {0: 1})
        tp = TopicPartition(topic, 0)
        wait_for("retention", lambda: kit.admin.list_offsets({tp: OffsetSpec.earliest()})[tp].result(10).offset == 3)
        reader = KafkaDrainReader.from_config(kit.config)
        certificate = run_async(DrainTaker(reader, DrainInputs(topic, declared=("g-" + topic,), compare=False)).take)
        reader.connection.close()
        assert certificate.groups[0].partitions[0].reason == "lost_unread"


def test_retention_is_lengthened_for_a_group_that_is_behind_and_put_back(pair: EmbeddedBroker, tmp_path: Path) -> None:
    from topicshift.adapters.kafka.admin import KafkaAdmin

    with Kit(pair, tmp_path) as kit, KafkaAdmin(kit.config) as admin:
        topic = kit.topic(retention_ms=3_600_000)
        kit.produce(topic, 4)
        world = RealWorld(pair, admin, topic)
        kit.commit(world.group, topic, {0: 1})
        world.advanced(until=Step.CREATE_TARGET)
        world.advance(until=Step.STOP_PRODUCERS, patience_s=1)
        info = admin.topic(topic)
        assert info is not None and int(info.configs["retention.ms"].value or 0) > 86_400_000
        row = world.data(Row.LENGTHEN_RETENTION)
        assert row["before"] == {"retention.ms": "3600000"} and "partition 0" in row["why"][0]
        world.advanced(wanted="rollback")
        assert world.data(Row.LENGTHEN_RETENTION)["restored"] == [f"retention.ms of {topic} is 3600000 again"]
        info = admin.topic(topic)
        assert info is not None and info.configs["retention.ms"].value == "3600000"
        world.close()


def test_a_broker_goes_and_comes_back(pair: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Kit(pair, tmp_path) as kit:
        lonely = placed(kit, [1], [2])
        elected = placed(kit, [2, 1])
        for topic, partitions in ((lonely, 2), (elected, 1)):
            for p in range(partitions):
                kit.produce(topic, 3, p)
            kit.commit("g-" + topic, topic, dict.fromkeys(range(partitions), 3))
        pair.kill(2)

        def ask(topic: str) -> DrainCertificate:
            capsys.readouterr()
            began = time.monotonic()
            code = cli.run(["drain", "--topic", topic, "--group", "g-" + topic, "--json", *address(pair)])
            assert time.monotonic() - began < BOUND_S
            out, err = capsys.readouterr()
            assert "Traceback" not in err
            assert code in (0, 4), f"{out} {err}"
            said = json.loads(out) if out else {}
            if code == 4 and (not out or "error" in said):
                assert err or said["error"]["message"]
                return DrainCertificate(
                    topic=topic, topic_id=None, taken_at="", fence_offsets=None, verdict=Verdict.UNKNOWN, groups=[]
                )
            certificate = DrainCertificate.model_validate(said)
            assert (code == 0) == (certificate.verdict is Verdict.DRAINED)
            return certificate

        # In the middle of the election the answer is the truth or unknown; after it, the truth.
        wait_for("the new leader", lambda: ask(elected).verdict is Verdict.DRAINED, 90)
        half = ask(lonely)
        assert half.verdict is Verdict.UNKNOWN
        assert [r.reason for r in half.groups[0].partitions] == ["at_end", "partition_unreadable"]
        pair.restart(2)
        wait_for("the old leader is back", lambda: ask(lonely).verdict is Verdict.DRAINED, 90)
