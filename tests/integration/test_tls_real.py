"""SASL_SSL with SCRAM, and mutual TLS: the admin client, the drain reader, the route's clients and Spark over both."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.integration.route_world import QUICK, eventually

from lab.broker_tls import TlsBroker
from topicshift.adapters.executor import run_async
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.adapters.kafka.client_config import load_client_properties
from topicshift.adapters.kafka.reader import KafkaDrainReader
from topicshift.adapters.route_store import RouteStore
from topicshift.adapters.spark import write_secrets
from topicshift.client import RoutedConsumer, RoutedProducer
from topicshift.core.errors import TopicshiftError, Unreadable
from topicshift.core.kafka.cluster import Acl
from topicshift.core.route.records import Route, State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broker
USER = "topicshift"


@pytest.fixture(scope="module")
def tls_broker() -> Iterator[TlsBroker]:
    """A broker with both doors, at which the user may do everything."""
    with TlsBroker([USER]) as running:
        with KafkaAdmin(running.config()) as admin:
            kinds = (("TOPIC", "*"), ("GROUP", "*"), ("TRANSACTIONAL_ID", "*"), ("CLUSTER", "kafka-cluster"))
            admin.create_acls(Acl(k, n, "LITERAL", f"User:{USER}", "*", "ALL", "ALLOW") for k, n in kinds)
        yield running


@pytest.fixture(params=["scram", "mtls", "mtls, locked key"])
def config(request: pytest.FixtureRequest, tls_broker: TlsBroker) -> dict[str, str]:
    """Client properties of the user, over one of the doors."""
    if request.param == "scram":
        return tls_broker.scram(USER)
    return tls_broker.mtls(USER, passphrase="hush-hush" if "locked" in request.param else None)


@pytest.fixture
def filled(config: dict[str, str], topic_name: Callable[..., str]) -> str:
    """A topic of two partitions with 20 records, made and written over the same door."""
    name = topic_name()
    with KafkaAdmin(config) as admin:
        admin.create_topic(name, 2, 1, {})
    producer = Producer({**config, "log_level": 0, "enable.idempotence": True})
    for n in range(20):
        producer.produce(name, f"v{n}", f"k{n}")
    assert producer.flush(30) == 0
    return name


def test_the_cluster_is_asked_and_changed(config: dict[str, str], filled: str) -> None:
    with KafkaAdmin(config) as admin:
        info = admin.topic(filled)
        assert info is not None and len(info.replicas) == 2 and admin.cluster().authorizer is True
        assert sum(o.end or 0 for o in admin.offsets(filled).values()) == 20
        # Through kafka-python, which has a TLS of its own.
        assert admin.producers(filled, [0, 1]) and admin.transactions(filled) == []
        admin.alter_commits(f"{filled}-g", filled, {0: 1, 1: 1})
        assert admin.commits([f"{filled}-g"], filled, [0, 1])[f"{filled}-g"].offsets == {0: 1, 1: 1}
        deny = Acl("TOPIC", filled, "LITERAL", "User:somebody", "*", "WRITE", "DENY")
        admin.create_acls([deny])
        assert deny in admin.acls()
        admin.delete_acls([deny])
    reader = KafkaDrainReader.from_config(config)
    try:
        found = run_async(lambda: reader.topic(filled))
        listing = run_async(reader.listing)
    finally:
        reader.connection.close()
    assert found is not None and found[1] == 2
    assert f"{filled}-g" in {g.group for g in listing.groups}


def test_applications_follow_the_route(config: dict[str, str], filled: str) -> None:
    store = RouteStore(config)
    store.ensure_topics()
    store.write(Route(filled, filled, State.OPEN, 1), None)
    producer = RoutedProducer(config, filled, "checkout", principal=f"User:{USER}", timing=QUICK)
    consumer = RoutedConsumer(
        {**config, "group.id": f"{filled}-app", "auto.offset.reset": "earliest"}, filled, "ledger", timing=QUICK
    )
    try:
        producer.produce("k", b"routed")
        assert producer.flush(30) == 0
        seen: list[bytes | None] = []

        def routed() -> bool:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                seen.append(message.value())
            return b"routed" in seen

        eventually("the routed record is read", routed)
        eventually("both have acknowledged", lambda: len({a.participant for a in store.all_acks()[0]}) >= 2)
    finally:
        consumer.close()
        producer.close()
        store.close()


@pytest.mark.spark
def test_spark_reads_it(config: dict[str, str], filled: str, spark: SparkSession, tmp_path: Path) -> None:
    """With the very file that a Spark task writes, and with the file that a person has, in librdkafka's names."""
    from topicshift_spark.source import Cluster, client_properties, read

    ours = write_secrets(config)
    mine = tmp_path / "client.properties"
    mine.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    try:
        for file in (ours, mine):
            assert file.stat().st_mode & 0o777 == 0o600 or file == mine
            properties = client_properties(str(file), None)
            with Cluster(spark, properties) as cluster:
                ranges = cluster.ranges(cluster.topic(filled))
            assert read(spark, properties, filled, ranges).count() == 20
    finally:
        shutil.rmtree(ours.parent)
    assert load_client_properties(mine) == config


def _without(config: dict[str, str], *keys: str, **changes: str) -> dict[str, str]:
    return {k: v for k, v in config.items() if k not in keys} | {k.replace("_", "."): v for k, v in changes.items()}


def test_who_is_not_known_is_told_so_and_no_secret(tls_broker: TlsBroker, tmp_path: Path) -> None:
    from lab.certificates import Authority

    scram, mtls = tls_broker.scram(USER), tls_broker.mtls(USER)
    stranger = Authority(tmp_path / "other")
    chain, key = stranger.issue(USER)
    cases: list[dict[str, Any]] = [
        _without(scram, sasl_password="wrong-canary"),
        _without(scram, "ssl.ca.location"),
        _without(scram, ssl_ca_location=str(stranger.ca)),
        _without(mtls, "ssl.certificate.location", "ssl.key.location"),
        _without(mtls, ssl_certificate_location=str(chain), ssl_key_location=str(key)),
        _without(mtls, security_protocol="PLAINTEXT"),
    ]
    for config in cases:
        with pytest.raises(TopicshiftError) as caught:
            _names(config)
        assert isinstance(caught.value, Unreadable), config["security.protocol"]
        said = str(caught.value)
        assert "wrong-canary" not in said and scram["sasl.password"] not in said and "PRIVATE KEY" not in said


def _names(config: dict[str, Any]) -> None:
    with KafkaAdmin(config, timeout_s=4) as admin:
        admin.topic_names()
