"""Fixtures of more than one module of these tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.impact_topics import N

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from pyspark.sql import SparkSession
    from tests.integration.route_world import RouteWorld

    from lab.broker import EmbeddedBroker


@pytest.fixture(scope="session")
def job(spark: SparkSession) -> Any:
    """The module of the impact job, with the project's code on the executors."""
    import key_rehash_impact
    from topicshift_spark.session import ship_code

    ship_code(spark)
    return key_rehash_impact


@pytest.fixture
def world(broker: EmbeddedBroker, topic_name: Callable[..., str]) -> Iterator[RouteWorld]:
    """A source, its target, a route between them, and applications that follow it."""
    from tests.integration.route_world import RouteWorld

    made = RouteWorld(broker.config(), topic_name())
    yield made
    made.close()


@pytest.fixture
def make_topic(admin_client: AdminClient, topic_name: Callable[..., str]) -> Callable[..., str]:
    """A factory of topics that keep records of long ago."""
    from confluent_kafka.admin import NewTopic

    def make(partitions: int = N) -> str:
        name = topic_name()
        new = NewTopic(name, partitions, 1, config={"retention.ms": "-1"})
        admin_client.create_topics([new])[name].result(20)
        return name

    return make
