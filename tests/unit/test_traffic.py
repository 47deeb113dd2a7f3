"""The traffic of ``make up`` reports on the route before any migration has written one."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from lab import traffic
from lab.load_life import Life
from topicshift.core.route.records import Status


class Did(list[str]):
    """What was done, in order; stands for the cluster, the route and the traffic."""

    topic = "payments"
    producers = (SimpleNamespace(name="checkout"),)
    consumers = (SimpleNamespace(name="ledger"),)

    acks: tuple[SimpleNamespace, ...] = ()

    def all_acks(self) -> tuple[tuple[SimpleNamespace, ...], tuple[()]]:
        return self.acks, ()

    def dismiss(self, logical: str, instance: str) -> None:
        self.append(f"dismiss {logical} {instance}")

    def __enter__(self) -> Did:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self.append(name)


def test_the_topics_of_the_route_are_made_before_an_application_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    did = Did()

    def given(_: Mapping[str, str]) -> Did:
        return did

    monkeypatch.setattr(traffic, "grant", lambda *_: did.append("grant"))
    monkeypatch.setattr(traffic, "RouteStore", given)
    monkeypatch.setattr(traffic, "KafkaAdmin", MagicMock())
    traffic.start_traffic({}, cast(Life, did), lambda _: None)
    assert did.index("grant") < did.index("ensure_topics") < did.index("start")


def test_instances_of_a_start_that_was_killed_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def ack(instance: str, participant: str, status: Status, logical: str = "payments") -> SimpleNamespace:
        return SimpleNamespace(logical=logical, instance=instance, participant=participant, status=status)

    did = Did()
    did.acks = (
        ack("killed", "checkout", Status.RUNNING),
        ack("said-good-bye", "checkout", Status.GONE),
        ack("of-somebody-else", "shop", Status.RUNNING),
        ack("of-another-topic", "ledger", Status.RUNNING, "orders"),
    )

    def given(_: Mapping[str, str]) -> Did:
        return did

    monkeypatch.setattr(traffic, "grant", lambda *_: None)
    monkeypatch.setattr(traffic, "RouteStore", given)
    monkeypatch.setattr(traffic, "KafkaAdmin", MagicMock())
    traffic.start_traffic({}, cast(Life, did), lambda _: None)
    assert [one for one in did if one.startswith("dismiss")] == ["dismiss payments killed"]
    assert did.index("dismiss payments killed") < did.index("start")
