"""The first spec of a cluster like the demo's is valid without an edit: init, lint and plan on a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.route_world import eventually

from lab.broker import EmbeddedBroker, new_password
from lab.load_life import App, Life
from lab.rights import allow, consumer_rights, grant, producer_rights
from topicshift import cli
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.adapters.route_store import RouteStore

pytestmark = pytest.mark.broker
TOPIC = "payments"
PRODUCERS, CONSUMERS = (App("checkout", 1), App("billing", 1)), (App("ledger", 1), App("search", 1))
USERS = (*(a.name for a in (*PRODUCERS, *CONSUMERS)), "legacy")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """Applications on the route, each with a principal of its own; somebody else may write, and does not."""
    with EmbeddedBroker(authorizer=True, users={user: new_password() for user in USERS}) as running:
        rights = [acl for app in PRODUCERS for acl in producer_rights(app.name, TOPIC)]
        rights += [acl for app in CONSUMERS for acl in consumer_rights(app.name, TOPIC, app.name)]
        grant(running.superuser_config(), [*rights, *allow("legacy", "TOPIC", TOPIC, "WRITE", "DESCRIBE")])
        with KafkaAdmin(running.superuser_config()) as admin:
            admin.create_topic(TOPIC, 3, 1, {})
        store = RouteStore(running.superuser_config())
        store.ensure_topics()
        store.close()
        yield running


def properties(folder: Path, config: dict[str, Any], name: str) -> Path:
    file = folder / f"{name}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    return file


def test_the_first_spec_is_valid_without_an_edit_and_planned(
    broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    config = str(properties(tmp_path, broker.superuser_config(), "admin"))
    files = {user: properties(tmp_path, broker.config(user), user) for user in USERS}
    life = Life(tmp_path / "logs", files.__getitem__, topic=TOPIC, keys=50, producers=PRODUCERS, consumers=CONSUMERS)
    spec = tmp_path / "payments.yaml"

    def run(*words: str) -> tuple[int, str]:
        code = cli.run([*words, "--kafka-config", config] if words[0] != "lint" else list(words))
        return code, capsys.readouterr().out

    try:
        life.start()

        def whole() -> dict[str, Any] | None:
            """The draft once every group has committed: the applications have only just begun."""
            code, out = run("init", TOPIC, "--json")
            found = json.loads(out)
            rows = found["from"]["consumers"]
            return found if code == 0 and len(rows) == 2 and all("has commits" in r["why"] for r in rows) else None

        eventually("both groups have read", whole)
        code, _ = run("init", TOPIC, "--output", str(spec), "--partitions", "6")
        assert code == 0
        read = yaml.safe_load(spec.read_text())
        on_route = {p["name"]: p.get("principal") for p in read["producers"] if p["kind"] == "route"}
        assert on_route == {"checkout": "User:checkout", "billing": "User:billing"}
        assert {(c["name"], c["kind"], c["group"]) for c in read["consumers"]} == {
            ("ledger", "route", "ledger"),
            ("search", "route", "search"),
        }
        assert "User:legacy may write" in spec.read_text(), "whoever may write is named, whether it does or not"
        assert run("lint", str(spec))[0] == 0
        code, out = run("plan", str(spec), "--without-impact", "--json")
        assert code == 0, out
        assert run("init", TOPIC, "--output", str(spec))[0] == 2, "nothing is overwritten"
        assert run("init", "paymnts")[0] == 2
    finally:
        life.stop()
