"""Kind ``http`` through a real scheduler: Spring Boot applications, moved by their own interface under live load."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.kinds import Applications, aborted_then_moved, connection
from tests.e2e.small import until
from tests.integration.host_world import by_key
from tests.integration.http_world import PASSWORD, SpringApp, application, compiled
from tests.unit.http_contract import SETTINGS

from lab.rights import allow, grant
from lab.stack import Stack
from topicshift.adapters.kafka.admin import KafkaAdmin

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800), pytest.mark.long]
TOPIC, LEDGER = "lettings", "lettings-ledger"


@pytest.fixture
def apps(stack: Stack, tmp_path: Path) -> Iterator[Lettings]:
    """Both applications, run as users with no more rights than they need, and Airflow's connections to them."""
    rights = [
        *allow("checkout", "TOPIC", TOPIC, "WRITE", "DESCRIBE"),
        *allow("checkout", "CLUSTER", "kafka-cluster", "IDEMPOTENT_WRITE"),
        *allow("ledger", "TOPIC", TOPIC, "READ", "DESCRIBE"),
        *allow("ledger", "GROUP", LEDGER, "READ", "DESCRIBE"),
    ]
    grant(stack.broker.superuser_config(), rights)
    with KafkaAdmin(stack.broker.superuser_config()) as admin:
        admin.create_topic(TOPIC, 3, 1, {})
        # Its listener begins at `latest`: without offsets it would skip what was written before it came.
        admin.alter_commits(LEDGER, TOPIC, dict.fromkeys(range(3), 0))
    classes, made = compiled(tmp_path), dict[str, SpringApp]()
    with ExitStack() as open_:
        for name, role in (("checkout", "producer"), ("ledger", "consumer")):
            one = application(stack.broker, classes, tmp_path / name, role, TOPIC, user=name, group=LEDGER)
            made[name] = open_.enter_context(one)
            log_in = {"host": "127.0.0.1", "port": made[name].port, "login": "topicshift", "password": PASSWORD}
            open_.enter_context(connection(stack, f"lettings_{name}", **log_in))
        until(lambda: len(by_key(made["ledger"].seen())) == 12, "every key is read")
        yield Lettings(made)


class Lettings(Applications):
    """A producer and a listener."""

    topic, named, secrets = TOPIC, "lettings_checkout", (PASSWORD,)

    def __init__(self, apps: dict[str, SpringApp]) -> None:
        self.apps = apps

    def members(self) -> dict[str, Any]:
        def told(name: str, **more: Any) -> dict[str, Any]:
            return {"name": name, "kind": "http", "settings": {**SETTINGS, "connections": [f"lettings_{name}"]}, **more}

        return {
            "producers": [told("checkout", principal="User:checkout")],
            "consumers": [told("ledger", group=LEDGER, stored_offsets="none")],
        }

    def shape(self) -> list[Any]:
        """What each shows of itself."""
        return [app.state() for app in self.apps.values()]

    def is_moved(self) -> bool:
        return self.shape() == [{"state": "running", "topic": self.target, "configured": self.target}] * 2

    def counts(self) -> list[int]:
        return [len(self.apps["ledger"].seen())]

    def proven(self) -> None:
        """The listener ends its batch, commits and leaves when it is stopped, so it gives no record twice."""
        self.apps["checkout"].stand()
        self.each_once(by_key(self.apps["checkout"].seen()), self.apps["ledger"].seen)


def test_spring_applications_go_on_after_an_abort_and_are_moved(stack: Stack, apps: Lettings) -> None:
    aborted_then_moved(stack, apps)
