"""What the route's clients take over from an application's config, and how they name themselves."""

from __future__ import annotations

import pytest

from topicshift.client import RoutedConsumer, RoutedProducer, RouteError
from topicshift.client.follower import connection_config, instance_name, own_principal


def test_only_what_says_how_to_reach_the_brokers_is_taken_over() -> None:
    config = {
        "bootstrap.servers": "b:9092",
        "security.protocol": "SASL_SSL",
        "sasl.username": "checkout",
        "ssl.ca.location": "/ca.pem",
        "group.id": "ledger",
        "transactional.id": "t",
        "linger.ms": 50,
        "enable.idempotence": True,
        "auto.offset.reset": "latest",
    }
    assert connection_config(config) == {
        "bootstrap.servers": "b:9092",
        "security.protocol": "SASL_SSL",
        "sasl.username": "checkout",
        "ssl.ca.location": "/ca.pem",
    }
    assert own_principal(config) == "User:checkout"
    assert own_principal({"bootstrap.servers": "b:9092"}) is None


def test_every_instance_has_a_name_of_its_own() -> None:
    one, two = instance_name("checkout"), instance_name("checkout")
    assert one != two
    assert one.startswith("checkout.")


def test_what_a_route_client_cannot_do_is_refused_at_once() -> None:
    with pytest.raises(RouteError, match="transactions"):
        RoutedProducer({"bootstrap.servers": "b:9092", "transactional.id": "t"}, "payments", "checkout")
    with pytest.raises(RouteError, match="group"):
        RoutedConsumer({"bootstrap.servers": "b:9092"}, "payments")
