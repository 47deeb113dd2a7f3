"""The embedded broker, PostgreSQL and Spark themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
)

from lab.broker import EmbeddedBroker, kafka_command
from lab.process import MARK, marked
from lab.rights import grant
from topicshift.core.kafka.cluster import Acl

pytestmark = pytest.mark.broker


def make_topic(admin: AdminClient, name: str, partitions: int = 1) -> None:
    for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        future.result(timeout=30)


def write(config: dict[str, str], topic: str) -> KafkaError | None:
    """Write one record; the error that came back, or None."""
    errors: list[KafkaError | None] = []
    producer = Producer({**config, "message.timeout.ms": "15000", "log_level": "0"})
    producer.produce(topic, b"value", b"key", on_delivery=lambda error, _: errors.append(error))
    producer.flush(20)
    return errors[0]


def test_a_topic_is_written_and_never_made_by_itself(
    broker: EmbeddedBroker, admin_client: AdminClient, topic_name: Callable[..., str]
) -> None:
    name = topic_name()
    make_topic(admin_client, name, 3)
    assert write(broker.config(), name) is None
    assert len(admin_client.list_topics(name, timeout=10).topics[name].partitions) == 3
    missing = topic_name("missing")
    admin_client.list_topics(missing, timeout=10)
    assert missing not in admin_client.list_topics(timeout=10).topics


def test_what_no_acl_allows_is_denied(
    secure_broker: EmbeddedBroker, secure_admin_client: AdminClient, topic_name: Callable[..., str]
) -> None:
    name = topic_name()
    make_topic(secure_admin_client, name)
    denied = write(secure_broker.config("checkout"), name)
    assert denied is not None and denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    grant(secure_broker.config(), [Acl("TOPIC", name, "LITERAL", "User:checkout", "*", "WRITE", "ALLOW")])
    assert write(secure_broker.config("checkout"), name) is None
    still = write(secure_broker.config("rogue"), name)
    assert still is not None and still.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_wrong_password_does_not_log_in(secure_broker: EmbeddedBroker) -> None:
    config = {**secure_broker.config("checkout"), "sasl.password": "wrong", "log_level": "0"}
    with pytest.raises(KafkaException):
        AdminClient(config).list_topics(timeout=3)


def test_kafkas_own_tools_read_the_client_properties(secure_broker: EmbeddedBroker, tmp_path: Path) -> None:
    properties = secure_broker.write_client_properties(None, tmp_path / "admin.properties")
    assert properties.stat().st_mode & 0o777 == 0o600
    command = kafka_command(
        "org.apache.kafka.tools.FeatureCommand",
        *("--bootstrap-server", secure_broker.bootstrap, "--command-config", str(properties), "describe"),
    )
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    levels = {line.split()[1]: line.split("FinalizedVersionLevel:")[1].split()[0] for line in said.splitlines() if line}
    assert int(levels["group.version"]) >= 1, "the consumer protocol"
    assert int(levels["share.version"]) >= 1, "share groups"
    assert int(levels["streams.version"]) >= 1, "streams groups"


def test_no_password_is_in_an_argument_list(secure_broker: EmbeddedBroker) -> None:
    arguments = " ".join(psutil.Process(secure_broker.pid()).cmdline())
    for password in secure_broker.users.values():
        assert password not in arguments


def test_a_killed_broker_comes_back_with_its_records(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "kafka") as broker:
        admin = AdminClient({**broker.config(), "log_level": "0"})
        make_topic(admin, "kept")
        assert write(broker.config(), "kept") is None
        broker.kill()
        assert not broker.alive()
        broker.restart()
        consumer = Consumer({**broker.config(), "group.id": "reader", "log_level": "0"})
        try:
            assert consumer.get_watermark_offsets(TopicPartition("kept", 0), timeout=30) == (0, 1)
        finally:
            consumer.close()
    assert (tmp_path / "kafka" / "node-1.log").exists()


def test_the_broker_ends_when_its_owner_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lab.broker", "--run-folder", str(tmp_path / "kafka")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline().startswith("bootstrap.servers=127.0.0.1:")
        children = [each for each in psutil.process_iter() if _belongs_to(each, owner.pid)]
        assert children, "the broker runs"
        os.kill(owner.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive


def _belongs_to(process: psutil.Process, owner: int) -> bool:
    try:
        return process.environ().get(MARK, "").startswith(f"{owner}-")
    except (psutil.Error, OSError):
        return False


def test_ctrl_c_ends_the_broker_in_an_orderly_way(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "lab.broker",
        "--run-folder",
        str(tmp_path / "kafka"),
        "--authorizer",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        assert owner.stdout.readline().startswith("admin: ")
        owner.send_signal(signal.SIGINT)
        deadline = time.monotonic() + 30
        while owner.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert owner.returncode == 0
    assert marked(f"{owner.pid}-") == []


@pytest.mark.postgres
def test_postgres_answers(postgres_url: str) -> None:
    import sqlalchemy

    engine = sqlalchemy.create_engine(postgres_url)
    with engine.connect() as connection:
        assert connection.execute(sqlalchemy.text("select 6 * 5")).scalar_one() == 30
    engine.dispose()
