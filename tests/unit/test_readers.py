"""Where tasks and triggers may read the evidence of a spec's readers, and what becomes of whatever goes wrong there."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException

from topicshift.adapters import readers
from topicshift.adapters.readers import evidence_source, refusal
from topicshift.core.drain.evidence import ReaderEvidence
from topicshift.core.errors import SpecError, Transient
from topicshift.core.rehearsal import shadow_spec
from topicshift.core.spec.cutover import Cutover
from topicshift.core.spec.io import spec_from_params
from topicshift.core.spec.locations import by_connection
from topicshift_airflow.operators.open import OpenMigration
from topicshift_airflow.triggers.drain import endpoints_of, inputs_of

T = "payments"
PLACES = (
    "/data/checkpoints",
    "file:///data/evidence/",
    "s3://bucket/evidence",
    "https://connect.example:8083/connectors",
)


@pytest.mark.parametrize(
    "location",
    [
        "/data/checkpoints/enrich",
        "/data/checkpoints",
        "file:///data/checkpoints/enrich",
        "/data/evidence/a.json",
        "s3://bucket/evidence/a.json",
        "https://connect.example:8083/connectors/sink",
        "HTTPS://Connect.example:8083/connectors/my%20sink",
    ],
)
def test_what_lies_below_a_listed_place_is_opened(location: str) -> None:
    assert refusal(location, PLACES) is None


@pytest.mark.parametrize(
    "location",
    [
        "/etc/passwd",
        "/data/checkpoints-of-others/a",
        "/data/checkpoints/../../etc/passwd",
        "/data/checkpoints/a?/../../../etc/passwd",
        "/data/checkpoints/a#/../../../etc/passwd",
        "file:///data/checkpoints/%2e%2e/%2e%2e/etc/passwd",
        "file://elsewhere/data/checkpoints/a",
        "checkpoints/enrich",
        "local:///data/checkpoints/a",
        "simplecache::s3://bucket/evidence/a.json",
        "zip://a::/data/checkpoints/a.zip",
        "s3://bucket/evidence-of-others/a.json",
        "s3://bucket/evidence/../secret",
        "s3://other/evidence/a.json",
        "gs://bucket/evidence/a.json",
        "http://connect.example:8083/connectors/sink",
        "https://connect.example:8083@evil.example/connectors/sink",
        "https://connect.example:8083\\@evil.example/connectors/sink",
        "https://connect.example:8084/connectors/sink",
        "https://connect.example:8083/connectors%2F..%2Fadmin",
        "https://connect.example:8083/connectors/sink?x=y",
        "https://[connect.example:8083/connectors/sink",
        "http://169.254.169.254/connectors/sink",
        "",
    ],
)
def test_nothing_else_is(location: str) -> None:
    why = refusal(location, PLACES)
    assert why is not None and "TOPICSHIFT_READER_LOCATIONS" in why and "s3://bucket/evidence" in why
    assert "allows none" in (refusal("/data/checkpoints/enrich", ()) or "")


def test_a_link_out_of_a_listed_folder_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "in" / "link").symlink_to(tmp_path / "out")
    assert refusal(f"{tmp_path}/in/a", [str(tmp_path / "in")]) is None
    assert refusal(f"{tmp_path}/in/link/a", [str(tmp_path / "in")]) is not None


SPEC = {
    "source": T,
    "partitions": 12,
    "producers": [{"name": "a"}],
    "consumers": [{"name": "b", "group": "b"}],
}


@pytest.mark.parametrize("listed", [False, True])
def test_a_task_refuses_a_spec_that_would_make_it_read_elsewhere_before_anything_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    location = str(tmp_path / "checkpoint")
    spec = {**SPEC, "readers": [{"name": "enrich", "kind": "spark_checkpoint", "location": location}]}
    monkeypatch.setenv("TOPICSHIFT_READER_LOCATIONS", f"s3://elsewhere {tmp_path}" if listed else "")
    monkeypatch.setattr("topicshift_airflow.operators.open.journal", _next_act)
    with pytest.raises(_Asked if listed else AirflowFailException) as told:
        OpenMigration(task_id="read_spec", cutover=Cutover.DRAIN_FIRST).execute({"params": spec, "ti": Mock()})
    assert listed or f"location of enrich: {location} may not be opened" in str(told.value)


@pytest.mark.parametrize("listed", [False, True])
def test_the_places_of_the_policy_stand_before_those_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    location = str(tmp_path / "checkpoint")
    policy = tmp_path / "policy.yaml"
    place = str(tmp_path) if listed else "s3://elsewhere"
    policy.write_text(f"apiVersion: topicshift-policy/v1\nreader_locations: ['{place}']\n")
    monkeypatch.setenv("TOPICSHIFT_READER_LOCATIONS", "" if listed else str(tmp_path))
    monkeypatch.setenv("AIRFLOW_VAR_TOPICSHIFT_POLICY", str(policy))
    spec = {**SPEC, "readers": [{"name": "enrich", "kind": "spark_checkpoint", "location": location}]}
    monkeypatch.setattr("topicshift_airflow.operators.open.journal", _next_act)
    with pytest.raises(_Asked if listed else AirflowFailException) as told:
        OpenMigration(task_id="read_spec", cutover=Cutover.DRAIN_FIRST).execute({"params": spec, "ti": Mock()})
    assert listed or f"{location} may not be opened" in str(told.value)


class _Asked(Exception):
    """It went on to ask somebody."""


def _next_act() -> Any:
    raise _Asked


def evidence(kind: str, location: str, monkeypatch: pytest.MonkeyPatch, places: str) -> ReaderEvidence:
    """What the task and the trigger make of one reader."""
    monkeypatch.setenv("TOPICSHIFT_READER_LOCATIONS", places)
    values = {"topic": T, "declared": ["g"], "compare": True, "ignored": {}, "accepted_lost": []}
    asked = inputs_of(values | {"readers": [{"name": "enrich", "kind": kind, "location": location}]}, readers=True)
    (found,) = asked.evidence()
    return found


def test_a_trigger_opens_what_the_policy_of_its_task_lists_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "evidence.json"
    file.write_text(json.dumps({"reader": "enrich", "kind": "flink", "topic": T, "offsets": {"0": 5}}))
    monkeypatch.setenv("TOPICSHIFT_READER_LOCATIONS", str(tmp_path))
    reader = {"name": "enrich", "kind": "evidence_file", "location": str(file)}
    values = {"topic": T, "declared": ["g"], "compare": True, "ignored": {}, "accepted_lost": [], "readers": [reader]}
    for places, offsets in (([], None), ([str(tmp_path)], {0: 5})):
        (found,) = inputs_of({**values, "places": places}, readers=True).evidence()
        assert (found.offsets or None) == offsets


def test_a_place_that_is_not_listed_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "evidence.json"
    file.write_text(json.dumps({"reader": "enrich", "kind": "flink", "topic": T, "offsets": {"0": 5}}))
    assert evidence("evidence_file", str(file), monkeypatch, str(tmp_path)).offsets == {0: 5}
    opened: list[str] = []
    monkeypatch.setattr(readers, "_READ", {"evidence_file": lambda *a: opened.append(a[1])})
    denied = evidence("evidence_file", str(file), monkeypatch, "/elsewhere")
    assert denied.offsets == {} and "may not be opened" in (denied.error or "") and opened == []


class Strange(Exception):
    """As a store's client raises it: neither an OSError nor a ValueError."""


def test_whatever_a_store_raises_is_evidence_with_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise Strange("the token has expired")

    for kind in ("evidence_file", "spark_checkpoint", "connect"):
        monkeypatch.setattr(readers, "_READ", {kind: broken})
        found = evidence(kind, f"{tmp_path}/x", monkeypatch, str(tmp_path))
        assert "Strange: the token has expired" in (found.error or "") and found.offsets == {}


def test_a_store_that_hangs_holds_up_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    good = ReaderEvidence(reader="good", kind="flink", topic=T, offsets={0: 1})
    monkeypatch.setattr(readers, "WAIT_S", 0.3)
    monkeypatch.setattr(readers, "_READ", {"connect": lambda *_: over.wait(30), "evidence_file": lambda *_: good})
    rows = [
        {"name": "slow", "kind": "connect", "location": "http://w/connectors/c"},
        {"name": "good", "kind": "evidence_file", "location": "/x"},
    ]
    read = evidence_source(rows, T)
    assert read is not None
    slow, other = read()
    over.set()
    assert "did not answer within 0.3 s" in (slow.error or "") and other == good


@pytest.fixture
def redirecting(tmp_path: Path) -> Iterator[str]:
    """A server that sends whoever asks to a file that looks like evidence."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/secret":
                self.send_response(200)
                self.end_headers()
                told = {"reader": "enrich", "kind": "flink", "topic": T, "offsets": {"0": 5}}
                self.wfile.write(json.dumps(told).encode())
            else:
                self.send_response(302)
                self.send_header("Location", "/secret")
                self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("kind", ["connect", "evidence_file"])
def test_a_server_cannot_send_the_reader_elsewhere(
    redirecting: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = evidence(kind, f"{redirecting}/connectors/sink", monkeypatch, f"{redirecting}/connectors")
    assert found.error and found.offsets == {}


def test_a_trigger_asks_the_worker_of_a_connection_with_its_log_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks connections up at once, on its own loop; a missing one ends the wait, which is tried again."""
    known = {
        "connect_dr": Connection(conn_id="connect_dr", conn_type="http", host="w", port=8083, password="hush"),
        "connect_x": Connection(conn_id="connect_x", conn_type="kafka"),
    }

    async def found(name: str) -> Connection:
        if name not in known:
            raise AirflowNotFoundException(name)
        return known[name]

    monkeypatch.setattr("topicshift_airflow.triggers.drain.BaseHook.aget_connection", found)
    named = [("dr", by_connection("connect_dr", "dr")), ("x", by_connection("connect_x", "x")), ("file", "/a")]
    values = {"readers": [{"name": n, "kind": "connect", "location": at} for n, at in named]}
    endpoint_of = asyncio.run(endpoints_of(values))
    assert endpoint_of("connect_dr").url == "http://w:8083"
    assert endpoint_of("connect_dr").headers() == {"Authorization": "Bearer hush"}
    for name, why in (("connect_x", "is no HTTP address"), ("connect_other", "does not exist")):
        with pytest.raises(SpecError, match=f"connection '{name}' {why}"):
            endpoint_of(name)
    known.clear()
    with pytest.raises(Transient, match="connection 'connect_dr' does not exist"):
        asyncio.run(endpoints_of(values))


def test_a_mirror_is_certified_by_its_worker_and_its_shadow_is_not() -> None:
    told = {"connector": "dr", "connection": "connect_dr", "mirror": True}
    dr = {"name": "dr", "group": "mirror-dr", "kind": "connect", "settings": told}
    spec = spec_from_params({**SPEC, "consumers": [dr]})
    (reader,) = spec.readers_of()
    assert (reader.name, reader.kind, reader.location) == ("mirror-dr", "connect", "connection:connect_dr/dr")
    read = spec_from_params({**SPEC, "readers": [reader.model_dump()]})
    assert spec.opened() == read.opened() == [], "a connection is no place that a spec chooses"
    assert shadow_spec(spec, "payments-v2", "ab12cd34").readers_of() == []
    assert spec_from_params({**SPEC, "consumers": [dr | {"settings": {"connector": "dr"}}]}).readers_of() == []
