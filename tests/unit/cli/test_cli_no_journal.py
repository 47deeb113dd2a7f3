"""Commands while the journal is dead: status and resume-on-source work from the route, all else is unknown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from topicshift.adapters.journal import SqlJournal
from topicshift.core.errors import OwnershipLost
from topicshift.core.kafka.cluster import Acl, PartitionOffsets
from topicshift.core.route.acts import Act, open_producers
from topicshift.core.route.records import GroupRoute, Route, State

WHERE = ("--bootstrap-server", "localhost:1")
SPEC = """
apiVersion: topicshift/v1
source: payments
target: payments-v2
partitions: 6
producers: [{name: checkout, kind: route}]
consumers: [{name: ledger, kind: route, group: ledger}]
"""
PAUSED = Route(
    "payments",
    "payments",
    State.PAUSED,
    7,
    pause=7,
    until_ms=2_000_000,
    groups={"ledger": GroupRoute("payments")},
    source="payments",
    target="payments-v2",
    migration="payments-1",
    claim=3,
    armed=6,
)

BACK = replace(PAUSED, active="payments-v2", source="payments-v2", target="payments")
"""In the freeze of a way back."""


class Store:
    routes: dict[str, Route] = {}
    bad: dict[str, str] = {}
    written: list[tuple[Route, int | None]] = []

    def __init__(self, config: Any) -> None: ...

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None: ...

    def read_all(self) -> tuple[dict[str, Route], dict[str, str]]:
        return dict(self.routes), dict(self.bad)

    def broker_now(self) -> tuple[int, int]:
        return 1_000_000, 1_000_010

    def write(self, route: Route, expect: int | None) -> Route:
        self.written.append((route, expect))
        return route


class Admin(Store):
    ends: int | None = 0

    def topic(self, name: str) -> object:
        return object()

    def offsets(self, topic: str) -> dict[int, PartitionOffsets]:
        return {0: PartitionOffsets(0, self.ends, self.ends)}

    def close(self) -> None: ...

    def acls(self) -> frozenset[Acl]:
        return frozenset({Acl("TOPIC", "payments", "LITERAL", "User:batch", "*", "WRITE", "DENY")})


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Store]]:
    dead = tmp_path / "journal.db"
    dead.write_text("this is no database, and it is long enough to be looked at as one " * 20)
    monkeypatch.setenv("TOPICSHIFT_JOURNAL", f"sqlite:///{dead}")
    monkeypatch.setattr("topicshift.adapters.route_store.RouteStore", Store)
    monkeypatch.setattr("topicshift.adapters.kafka.admin.KafkaAdmin", Admin)
    monkeypatch.setattr(Store, "routes", {"payments": PAUSED})
    monkeypatch.setattr(Store, "written", [])
    yield Store


def test_status_says_what_the_route_says(run: Any) -> None:
    code, out, err = run("status", "payments", *WHERE)
    assert code == 0
    assert "payments-1: producers of payments are on payments, paused until 1970-01-01T00:33:20" in out
    assert "group ledger reads payments" in out
    assert "The journal cannot be read" in err
    [one] = json.loads(run("status", "payments-1", "--json", *WHERE)[1])["routes"]
    assert (one["migration"], one["claim"], one["producers_on"]) == ("payments-1", 3, "payments")
    assert json.loads(run("status", "orders", "--json", *WHERE)[1])["routes"] == []


def test_producers_resume_under_the_next_claim_of_their_migration(run: Any, world: type[Store]) -> None:
    code, out, _ = run("resume-on-source", "payments", "--what", *WHERE)
    assert (code, world.written) == (0, [])
    assert "would do: producers go on with payments" in out
    code, out, _ = run("resume-on-source", "payments-1", "--json", *WHERE)
    assert code == 0
    [(written, expected)] = world.written
    assert (written.state, written.active, written.epoch, expected) == (State.OPEN, "payments", 8, 7)
    assert (written.migration, written.claim) == ("payments-1", 4)
    left = json.loads(out)["left"]
    assert "denied for User:batch" in left[0] and "once the journal is back" in left[-1]
    late = Act("payments", "payments", "payments-v2", "payments-1", 3, (1, 1))
    with pytest.raises(OwnershipLost):
        open_producers(written, late)


def test_a_journal_that_is_lost_is_gone_without_only_where_a_person_says_so(
    run: Any, world: type[Store], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TOPICSHIFT_JOURNAL", f"sqlite:///{tmp_path}/gone.db")
    for words in (["status", "payments"], ["resume-on-source", "payments"]):
        code, _, err = run(*words, *WHERE)
        assert code == 2 and "There is no journal at" in err and "go by the route with --without-journal" in err
    assert run("status", "--without-journal")[0] == 2, "by the route of which cluster?"
    code, out, _ = run("status", "payments", "--without-journal", *WHERE)
    assert code == 0 and "payments-1: producers of payments are on payments, paused until" in out
    assert world.written == []
    assert run("resume-on-source", "payments-1", "--without-journal", *WHERE)[0] == 0
    [(written, expected)] = world.written
    assert (written.state, written.migration, written.claim, expected) == (State.OPEN, "payments-1", 4, 7)
    made = SqlJournal(f"sqlite:///{tmp_path}/gone.db")
    made.find()
    made.close()
    code, _, err = run("resume-on-source", "payments-1", "--without-journal", *WHERE)
    assert code == 2 and "The journal can be read" in err and len(world.written) == 1


def test_where_nobody_is_paused_there_is_nothing_to_do(run: Any, world: type[Store]) -> None:
    world.routes["payments"] = replace(PAUSED, state=State.OPEN, until_ms=None)
    code, out, _ = run("resume-on-source", "payments", *WHERE)
    assert (code, world.written) == (0, [])
    assert "nothing: producers are not paused" in out


@pytest.mark.parametrize(
    ("route", "ends", "code", "said"),
    [
        (replace(PAUSED, active="payments-v2"), 0, 3, "were pointed to payments-v2 already"),
        (PAUSED, 5, 3, "payments-v2 holds 5 record(s). Somebody may be on it already"),
        (BACK, 5, 3, "freeze of a way back to payments, which held records before"),
        (BACK, 5, 3, "The pause ends by itself, at 1970-01-01T00:33:20"),
        (BACK, 5, 3, "producers that follow the route go on with payments-v2 then"),
        (PAUSED, None, 4, "cannot be told"),
    ],
)
def test_nobody_goes_back_where_somebody_may_be_on_the_target(
    route: Route,
    ends: int | None,
    code: int,
    said: str,
    run: Any,
    world: type[Store],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Admin, "ends", ends)
    world.routes["payments"] = route
    found, _, err = run("resume-on-source", "payments", *WHERE)
    assert (found, world.written) == (code, [])
    assert said in err


def test_a_route_that_is_not_understood_is_unknown(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "bad", {"payments": "no epoch"})
    assert run("resume-on-source", "payments", *WHERE)[0] == 4


@pytest.mark.parametrize(
    "words",
    [
        ["advance", "payments"],
        ["pause", "payments"],
        ["postpone", "payments", "--off"],
        ["abort", "payments", "--reason", "x", "--yes"],
        ["rollback", "payments", "--reason", "x", "--yes"],
        ["close", "payments", "--reason", "x"],
        ["answer", "payments", "approve.plan", "yes"],
        ["status", "payments"],
        ["replay", "payments", "--reason", "x", "--yes"],
        ["audit", "verify", "payments"],
        ["audit", "export", "payments", "--out", "payments.zip"],
        ["plan", "SPEC"],
    ],
)
def test_everything_else_is_unknown(words: list[str], run: Any, tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC)
    words = [str(spec) if word == "SPEC" else word for word in words]
    cluster = () if words[0] in ("status", "audit") else WHERE
    code, _, err = run(*words, *cluster)
    assert code == 4, err
