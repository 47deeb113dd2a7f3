"""`topicshift audit` and `topicshift status`: what they read from a journal."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.cli.parts import Admin, claimed

from topicshift.adapters.journal import SqlJournal
from topicshift.core import errors
from topicshift.ports import Claim


@pytest.fixture
def migration(journal: SqlJournal) -> Claim:
    claim = claimed(journal, spec={"cutover": "drain_first", "consumers": [{"name": "l", "group": "ledger"}]})
    journal.set_plan(claim, "ab" * 32)
    journal.event(claim, "approved", "user:ann", {"act": "approve.plan", "about": {"plan_hash": "ab" * 32}})
    journal.intend(claim, "create_target", {"configs": {"a": "b"}})
    journal.finish(claim, "create_target", {"topic_id": "xyz"})
    return claim


def another(journal: SqlJournal) -> Claim:
    """A later migration of the same topic, by another run."""
    return journal.claim(
        cluster_id="c",
        source="payments",
        target="payments-v2",
        owner="topic_migration/manual__2",
        spec={"cutover": "drain_first"},
        owner_alive=lambda _: False,
    )


def _break(tmp_path: Path, statement: str) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "airflow/topicshift/journal.db") as connection:
        connection.execute("DROP TRIGGER topicshift_events_no_update")
        connection.execute("DROP TRIGGER topicshift_events_no_delete")
        connection.execute(statement)


def test_audit_of_an_intact_trail(migration: Claim, run: Any) -> None:
    code, out, _ = run("audit", "verify", migration.migration_id)
    assert code == 0
    assert "intact: 5 events" in out
    code, out, _ = run("audit", "verify", migration.migration_id, "--json")
    found = json.loads(out)
    assert (code, found["intact"], found["events"], found["problems"]) == (0, True, 5, [])
    assert run("audit", "verify", migration.migration_id, "--head", found["head"])[0] == 0


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE topicshift_events SET actor = 'x' WHERE seq = 3", "row 3: changed"),
        ("DELETE FROM topicshift_events WHERE seq = 2", "row 2: missing"),
        ("DELETE FROM topicshift_events WHERE seq = 5", "row 5: truncated"),
        ("UPDATE topicshift_steps SET state = 'undone'", "step create_target: it is undone"),
    ],
)
def test_audit_of_a_broken_trail_names_the_row(
    statement: str, said: str, migration: Claim, tmp_path: Path, run: Any
) -> None:
    _break(tmp_path, statement)
    code, out, _ = run("audit", "verify", migration.migration_id)
    assert code == 3
    assert said in out
    code, out, _ = run("audit", "verify", migration.migration_id, "--json")
    found = json.loads(out)
    assert (code, found["intact"]) == (3, False)
    assert any(said in line for line in found["broken"])


def test_a_noted_head_finds_a_trail_that_was_rewritten_whole(journal: SqlJournal, migration: Claim, run: Any) -> None:
    other = "f" * 64
    for head, said in ((f"3:{other}", "row 3: changed"), (f"9:{other}", "row 9: truncated")):
        code, out, _ = run("audit", "verify", migration.migration_id, "--head", head)
        assert code == 3
        assert said in out
    assert run("audit", "verify", migration.migration_id, "--head", "nonsense")[0] == 2


def test_audit_export(migration: Claim, tmp_path: Path, run: Any) -> None:
    code, out, _ = run("audit", "export", migration.migration_id)
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [line["kind"] for line in lines[:-1]] == ["claimed", "plan", "approved", "step_intended", "step_finished"]
    assert lines[-1]["head"] == {"count": 5, "hash": lines[-2]["hash"]}
    code, out, _ = run("audit", "export", migration.migration_id, "--format", "text")
    assert code == 0
    assert "approved  by user:ann" in out
    assert "about.plan_hash: abab" in out
    _break(tmp_path, "DELETE FROM topicshift_events WHERE seq = 2")
    code, out, err = run("audit", "export", migration.migration_id)
    assert code == 3
    assert len(out.splitlines()) == 5
    assert "row 2: missing" in err


@pytest.mark.parametrize("topic", ["payments", "payments-v2"])
def test_audit_takes_a_topic_as_the_other_commands_do(
    topic: str, journal: SqlJournal, migration: Claim, run: Any, tmp_path: Path
) -> None:
    code, out, _ = run("audit", "verify", topic)
    assert code == 0 and out.startswith(f"{migration.migration_id}: intact: 5 events")
    assert run("audit", "export", topic)[1] == run("audit", "export", migration.migration_id)[1]
    journal.set_state(migration, "rolled_back", active=False)
    later = another(journal)
    assert json.loads(run("audit", "verify", topic, "--json")[1])["migration"] == later.migration_id


@pytest.mark.parametrize("words", [["audit", "verify", "m"], ["audit", "export", "m"], ["status"], ["status", "m"]])
def test_without_a_journal_it_says_so_and_makes_none(words: list[str], tmp_path: Path, run: Any) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert "no journal" in err
    assert not (tmp_path / "airflow").exists()


@pytest.mark.parametrize("words", [["audit", "verify"], ["audit", "export"], ["status"]])
def test_an_unknown_migration_is_2(words: list[str], migration: Claim, run: Any) -> None:
    code, out, err = run(*words, "paymnts")
    assert (code, out) == (2, "")
    assert "paymnts" in err


def test_status_shows_what_the_watch_has_found(journal: SqlJournal, migration: Claim, run: Any) -> None:
    assert json.loads(run("status", migration.migration_id, "--json")[1])["migrations"][0]["watch"] == []
    found = {"key": "TS605 nightly", "code": "TS605", "level": "error", "subject": "nightly", "since": "2026-01-02"}
    found |= {"seen": "It reads on [bold]payments.", "do": "Point it to the target."}
    journal.finish(migration, "watch", {"found": [found], "at": "2026-01-02"})
    code, out, _ = run("status", migration.migration_id)
    assert code == 0
    assert "TS605 since 2026-01-02: It reads on [bold]payments." in out and "do: Point it to the target." in out
    [one] = json.loads(run("status", migration.migration_id, "--json")[1])["migrations"][0]["watch"]
    assert one == {k: v for k, v in found.items() if k != "key"}


def test_status_tells_step_owner_freeze_and_what_it_waits_for(journal: SqlJournal, migration: Claim, run: Any) -> None:
    code, out, _ = run("status", "--json")
    [one] = json.loads(out)["migrations"]
    assert code == 0
    assert (one["step"], one["owner"], one["epoch"]) == ("stop_producers", "topic_migration/manual__1", 1)
    assert one["freeze"] is None
    assert one["rollback"]["type"] is None
    assert "--bootstrap-server" in one["rollback"]["why"]
    assert [s["state"] for s in one["steps"][:4]] == ["done", "done", "done", "running"]
    freeze = {
        "started_at": "2026-01-01T00:00:00+00:00",
        "lease_until": "2026-01-01T00:02:00+00:00",
        "act_until": "2026-01-01T00:01:54+00:00",
    }
    journal.intend(migration, "freeze", freeze)
    question = {"about": {"plan_hash": "ab" * 32}, "subject": "Switch the producers?"}
    journal.intend(migration, "ask:switch_producers.switch", question)
    [one] = json.loads(run("status", "payments-v2", "--json")[1])["migrations"]
    assert one["freeze"]["running"]
    assert one["freeze"]["seconds_left"] < 0
    assert one["waits_for"] == "a person to answer: Switch the producers?"
    journal.finish(migration, "freeze", {**freeze, "ended_at": "2026-01-01T00:00:07.5+00:00", "how": "switched"})
    [one] = json.loads(run("status", migration.migration_id, "--json")[1])["migrations"]
    assert (one["freeze"]["running"], one["freeze"]["seconds"], one["freeze"]["how"]) == (False, 7.5, "switched")
    for words in (["status"], ["status", "payments"]):
        code, out, _ = run(*words)
        assert code == 0
        assert "payments" in out
        assert "7.5 s" in out


def test_status_shows_open_ones_unless_asked_for_all(journal: SqlJournal, migration: Claim, run: Any) -> None:
    journal.set_state(migration, "done", active=False)
    code, out, _ = run("status")
    assert code == 0
    assert "No migration is open" in out
    [one] = json.loads(run("status", "--all", "--json")[1])["migrations"]
    assert one["state"] == "done"
    assert one["waits_for"].startswith("its retirement")


def test_status_of_a_topic_shows_what_is_open_else_the_latest(journal: SqlJournal, migration: Claim, run: Any) -> None:
    def seen(*words: str) -> list[str]:
        found = json.loads(run("status", "payments", "--json", *words)[1])["migrations"]
        return sorted(one["migration"] for one in found)

    journal.set_state(migration, "rolled_back", active=False)
    later = another(journal)
    assert seen() == [later.migration_id]
    assert seen("--all") == sorted([migration.migration_id, later.migration_id])
    assert "1 more of payments is closed; --all shows them too" in run("status", "payments")[2]
    journal.set_state(later, "rolled_back", active=False)
    assert seen() == [later.migration_id]
    assert seen("--all") == sorted([migration.migration_id, later.migration_id])
    _, out, err = run("status", migration.migration_id)
    assert migration.migration_id in out and err == ""


def test_what_waits_for_a_person_does_not_act(journal: SqlJournal, migration: Claim, run: Any) -> None:
    assert "open, acting" in run("status", "payments")[1]
    journal.intend(migration, "ask:approve.plan", {"about": {}, "subject": "Move payments?"})
    out = run("status", "payments")[1]
    assert "a person to answer" in out and "acting" not in out


class _Cluster(Admin):
    records: int | None = 0
    source: object | None = object()
    target: object | None = SimpleNamespace(topic_id="xyz")

    def cluster(self) -> object:
        return object()

    def topic(self, name: str) -> object | None:
        if self.records is None:
            raise errors.Unreadable("the broker does not answer")
        return self.source if name == "payments" else self.target

    def offsets(self, _topic: str) -> dict[int, Any]:
        from topicshift.ports import PartitionOffsets

        return {0: PartitionOffsets(0, self.records, self.records)}


@pytest.mark.parametrize(
    ("records", "source", "target", "kind", "wanted"),
    [
        (0, object(), "xyz", "free", 0),
        (7, object(), "xyz", "forward_only", 0),
        (7, None, "xyz", "forward_only", 0),
        (None, object(), "xyz", None, 4),
        (0, object(), "another", "forward_only", 0),
        (0, object(), None, "forward_only", 0),
    ],
)
def test_status_computes_the_type_of_rollback_live(
    records: int | None,
    source: object | None,
    target: str | None,
    kind: str | None,
    wanted: int,
    journal: SqlJournal,
    migration: Claim,
    run: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from topicshift.adapters.kafka import admin

    journal.intend(migration, "switch_producers", {})
    monkeypatch.setattr(_Cluster, "records", records)
    monkeypatch.setattr(_Cluster, "source", source)
    monkeypatch.setattr(_Cluster, "target", None if target is None else SimpleNamespace(topic_id=target))
    monkeypatch.setattr(admin, "KafkaAdmin", _Cluster)
    code, out, _ = run("status", "payments", "--json", "--bootstrap-server", "b:1")
    [one] = json.loads(out)["migrations"]
    assert (code, one["rollback"]["type"]) == (wanted, kind)


@pytest.mark.parametrize(("fence", "kind"), [(7, "drain_back"), (6, "forward_only")])
def test_status_offers_to_drain_back_once_everybody_is_on_the_target(
    fence: int, kind: str, journal: SqlJournal, migration: Claim, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from topicshift.adapters.kafka import admin

    monkeypatch.setattr(_Cluster, "records", 7)
    monkeypatch.setattr(_Cluster, "source", object())
    monkeypatch.setattr(admin, "KafkaAdmin", _Cluster)
    groups = [c["group"] for c in journal.current(migration.migration_id).spec.get("consumers", ())]
    rows = ["fence", "verification", "switch_producers", *(f"switch_consumer:{g}" for g in groups)]
    for row in rows:
        journal.intend(migration, row, {"record": {"fence_offsets": {"0": fence}}} if row == "fence" else {})
        journal.finish(migration, row, {})
    _, out, _ = run("status", "payments", "--json", "--bootstrap-server", "b:1")
    [one] = json.loads(out)["migrations"]
    assert one["rollback"]["type"] == kind, one["rollback"]


def test_status_names_the_later_migration_that_is_in_the_way_of_going_back(
    journal: SqlJournal, migration: Claim, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from topicshift.adapters.kafka import admin

    monkeypatch.setattr(_Cluster, "records", 7)
    monkeypatch.setattr(_Cluster, "source", object())
    monkeypatch.setattr(admin, "KafkaAdmin", _Cluster)
    row = journal.current(migration.migration_id)
    journal.intend(migration, "switch_producers", {})
    journal.finish(migration, "switch_producers", {})
    journal.set_state(migration, "done", active=False)
    later = journal.claim(
        cluster_id=row.cluster_id,
        source=row.target,
        target="payments-v9",
        owner="o",
        spec={},
        owner_alive=lambda _: True,
    )
    _, out, _ = run("status", migration.migration_id, "--json", "--bootstrap-server", "b:1")
    [one] = json.loads(out)["migrations"]
    assert one["rollback"]["type"] == "forward_only"
    assert later.migration_id in one["rollback"]["why"] and "holds payments-v2, owned by o" in one["rollback"]["why"]
