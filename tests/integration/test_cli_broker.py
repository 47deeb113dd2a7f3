"""The command line against a real broker: plan and status, with and without rights, and a broker that is not there."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from topicshift import cli
from topicshift.adapters.journal import SqlJournal
from topicshift.adapters.kafka.admin import KafkaAdmin

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from lab.broker import EmbeddedBroker

pytestmark = pytest.mark.broker

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    for name in [n for n in os.environ if n.startswith("TOPICSHIFT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))

    def call(*words: str) -> tuple[int, str, str]:
        code = cli.run(words)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    return call


def _topic(admin: AdminClient, config: dict[str, str], name: str, partitions: int, records: int = 1) -> None:
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    producer = Producer(config)
    for n in range(records):
        producer.produce(name, key=str(n), value=b"x")
    assert producer.flush(30) == 0


def _spec(tmp_path: Path, source: str, **changes: Any) -> Path:
    spec = {
        "apiVersion": "topicshift/v1",
        "source": source,
        "target": f"{source}-v2",
        "partitions": 4,
        "producers": [{"name": "checkout", "kind": "route"}],
        "consumers": [{"name": "ledger", "kind": "route", "group": "no-such-group"}],
        **changes,
    }
    file = tmp_path / "spec.yaml"
    file.write_text(json.dumps(spec))  # JSON is YAML
    return file


def test_plan_names_a_group_that_is_not_there(
    broker: EmbeddedBroker, admin_client: AdminClient, topic_name: Callable[..., str], run: Run, tmp_path: Path
) -> None:
    source = topic_name()
    _topic(admin_client, broker.config(), source, 2, records=20)
    words = ("plan", str(_spec(tmp_path, source)), "--without-impact", "--bootstrap-server", broker.bootstrap)
    code, out, _ = run(*words, "--json")
    plan = json.loads(out)
    assert code == 3
    assert (plan["source"]["partitions"], plan["target"]["partitions"]) == (2, 4)
    assert any("no-such-group" in f["seen"] + f["subject"] + f["why"] for f in plan["findings"])
    code, out, _ = run(*words)
    assert code == 3
    assert f"create {source}-v2: 4 partitions" in out
    assert "no-such-group" in out
    # Without saying so, keys that nobody measured are unknown, which weighs more than no.
    assert run("plan", str(_spec(tmp_path, source)), "--bootstrap-server", broker.bootstrap)[0] == 4


def test_plan_with_properties_of_a_user_without_rights_is_unknown_and_names_what_is_missing(
    secure_broker: EmbeddedBroker,
    secure_admin_client: AdminClient,
    topic_name: Callable[..., str],
    run: Run,
    tmp_path: Path,
) -> None:
    source = topic_name()
    _topic(secure_admin_client, secure_broker.superuser_config(), source, 2)
    properties = secure_broker.write_client_properties("rogue", tmp_path / "client.properties")
    code, out, err = run("plan", str(_spec(tmp_path, source)), "--kafka-config", str(properties))
    assert code in (3, 4)
    assert source in out + err
    assert properties.read_text().split('password="')[1].split('"')[0] not in out + err


def test_plan_without_a_broker_is_unknown_within_a_minute(run: Run, tmp_path: Path) -> None:
    code, out, err = run("plan", str(_spec(tmp_path, "payments")), "--bootstrap-server", "127.0.0.1:1")
    assert (code, out) == (4, "")
    assert "127.0.0.1:1" in err


def test_status_says_live_what_the_way_back_is(
    broker: EmbeddedBroker, admin_client: AdminClient, topic_name: Callable[..., str], run: Run, tmp_path: Path
) -> None:
    source = topic_name()
    _topic(admin_client, broker.config(), source, 2)
    journal = SqlJournal(f"sqlite:///{tmp_path}/topicshift/journal.db")
    claim = journal.claim(
        cluster_id="c", source=source, target=f"{source}-v2", owner="run", spec={}, owner_alive=lambda _: True
    )

    def kind() -> Any:
        code, out, _ = run("status", source, "--bootstrap-server", broker.bootstrap, "--json")
        assert code == 0
        return json.loads(out)["migrations"][0]["rollback"]["type"]

    assert kind() == "free"
    journal.intend(claim, "create_target", {"ours": True})
    _topic(admin_client, broker.config(), f"{source}-v2", 2, records=3)
    assert kind() == "forward_only", "records came, and nobody was switched"
    admin_client.delete_topics([source])[source].result(30)
    assert kind() == "forward_only"

    def nobody_there() -> tuple[int, Any, str]:
        code, out, err = run("status", source, "--bootstrap-server", "127.0.0.1:1", "--json")
        return code, json.loads(out)["migrations"][0]["rollback"], err

    code, way_back, err = nobody_there()
    assert (code, way_back["type"]) == (4, None)
    assert "127.0.0.1:1" in way_back["why"] and way_back["why"] in err, "a script is told what a person is told"
    journal.finish(claim, "create_target", {}, state="undone")
    journal.set_state(claim, "failed", active=False)
    journal.close()
    code, way_back, err = nobody_there()
    assert (code, way_back["type"]) == (0, "free"), "it put back all that it did, and no cluster need say so"


def test_a_bootstrap_broker_that_says_nothing_costs_seconds_and_no_answer(
    broker: EmbeddedBroker, admin_client: AdminClient, topic_name: Callable[..., str]
) -> None:
    """It takes connections, as a stopped process does; librdkafka and kafka-python are both asked."""
    name = topic_name()
    _topic(admin_client, broker.config(), name, 1)
    with contextlib.ExitStack() as silent:
        ports = []
        for _ in range(3):
            listening = silent.enter_context(socket.create_server(("127.0.0.1", 0)))
            ports.append(listening.getsockname()[1])
        addresses = ",".join([*(f"127.0.0.1:{port}" for port in ports), broker.bootstrap])
        began = time.monotonic()
        with KafkaAdmin({"bootstrap.servers": addresses}) as admin:
            assert admin.transactions(name) == []
            asked = time.monotonic() - began
            assert admin.topic(name) is not None
        both = time.monotonic() - began
        # Three silent ones, 3 s each, in the worst order.
        assert asked < 12, f"kafka-python took {asked:.1f} s"
        assert both < 20, f"librdkafka took {both - asked:.1f} s"
