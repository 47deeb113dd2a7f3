"""The page in Airflow: who sees what, what a hostile name can do, and what a person is offered."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.api_server import READS, TRIGGERS, Right, journal_served, logged_in
from tests.unit.page_world import REQUIRED, change, drain_progress, keep, publish, renamed
from tests.unit.test_fence_again import half
from tests.unit.test_names_fuzzed import anything
from tests.unit.test_page_model import WAITING, page
from tests.unit.test_replay import asked
from tests.unit.world import OWNER, TARGET, World

from topicshift.acts.orders import close_prospect
from topicshift.acts.replay_order import replay_prospect
from topicshift.adapters.journal import SqlJournal
from topicshift.adapters.journal.tables import migrations, steps
from topicshift.cli import cli
from topicshift.core.engine.words import Step
from topicshift.core.errors import Unreadable
from topicshift.core.page.listing import Wanted
from topicshift_airflow.page import data
from topicshift_airflow.page.view import rendered
from topicshift_airflow.web import app
from topicshift_plugin import TopicshiftPlugin

RIGHTS: dict[str, set[Right]] = {
    "on-call": {("topic_migration", READS), ("topic_control", TRIGGERS), ("topic_rollback", TRIGGERS)},
    "viewer": {("topic_migration", READS)},
    "other-team": {("topic_migration__orders", READS), ("topic_control", TRIGGERS)},
    "stranger": set(),
}


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlJournal]:
    with journal_served(tmp_path, monkeypatch, RIGHTS) as opened:
        yield opened


@pytest.fixture
def client() -> Iterator[Callable[[str], TestClient]]:
    with logged_in() as made:
        yield made


@pytest.fixture
def frozen(journal: SqlJournal, tmp_path: Path) -> str:
    """A migration whose producers stand still."""
    world = World(approvals=REQUIRED)
    world.answer(world.asks())
    world.answer(world.asks())
    world.advanced(until=Step.STOP_PRODUCERS)
    world.evidence.write(world.claim.migration_id, "drain_progress.json", drain_progress(world.clock.now().timestamp()))
    return publish(world, journal, tmp_path / "evidence")


# ----------------------------------------------------------------------------------------------------- permission


def test_a_migration_is_shown_to_those_who_may_read_the_dag_of_its_run(client: Any, frozen: str) -> None:
    def seen(user: str) -> set[int]:
        asked = client(user)
        owner = {"dag_id": OWNER.partition("/")[0], "run_id": OWNER.partition("/")[2]}
        listed = asked.get("/api/migrations", params={"state": "all"}).json()["migrations"]
        assert bool(listed) == (frozen in asked.get("/").text) == (frozen in asked.get("/run", params=owner).text)
        paths = (f"/migrations/{frozen}", f"/api/migrations/{frozen}", f"/api/migrations/{frozen}/trail")
        return {asked.get(path).status_code for path in paths} | {len(listed)}

    assert seen("on-call") == seen("viewer") == {200, 1}
    assert seen("other-team") == seen("stranger") == {404, 0}


def test_a_migration_that_is_not_there_looks_like_one_that_may_not_be_seen(client: Any, frozen: str) -> None:
    def answer(user: str, name: str) -> tuple[int, str]:
        found = client(user).get(f"/migrations/{name}")
        return found.status_code, found.text

    assert answer("stranger", frozen) == answer("stranger", "none") == answer("on-call", "none")


def test_an_order_is_offered_to_those_who_may_trigger_its_dag(client: Any, frozen: str) -> None:
    def offered(user: str) -> dict[str, bool]:
        return {o["order"]: o["may"] for o in client(user).get(f"/api/migrations/{frozen}").json()["orders"]}

    orders = {"pause", "resume on source", "abort", "roll back", "close"}
    assert offered("on-call") == dict.fromkeys(orders, True)
    assert offered("viewer") == dict.fromkeys(orders, False)
    text = client("viewer").get(f"/migrations/{frozen}").text
    assert "<dialog" not in text and text.count("disabled title=") == len(orders)
    assert client("on-call").get(f"/migrations/{frozen}").text.count("<dialog") == len(orders)


def offered(client: Any, migration: str) -> dict[str, dict[str, Any]]:
    return {o["order"]: o for o in client("on-call").get(f"/api/migrations/{migration}").json()["orders"]}


def test_a_replay_is_offered_where_records_came_too_late_and_says_which(
    client: Any, journal: SqlJournal, tmp_path: Path
) -> None:
    """The same words as the command's, as far as the journal and the evidence tell them without a cluster."""
    world = asked(records=3)
    name = publish(world, journal, tmp_path / "evidence")
    found = offered(client, name)["replay"]
    assert found["grave"] and found["looks"] and found["cannot"] == "" and found["dag_id"] == "topic_control"
    said = "\n".join(found["does"])
    assert "3 records that came to payments too late for ledger-g go to payments-v2" in said
    assert "payments[1] offset 10, no key" in said and "payments[1] offset 12, no key" in said
    assert "cannot be taken back" in said and "topicshift-replayed" in said
    text = unescape(client("on-call").get(f"/migrations/{name}").text)
    assert 'name="records"' in text and "1:10; empty: all of them" in text


def test_a_replay_is_refused_on_the_page_for_the_reason_of_the_command(
    client: Any, journal: SqlJournal, tmp_path: Path
) -> None:
    world = half("producers_first")
    assert "replay" not in offered(client, publish(world, journal, tmp_path / "evidence")), "no record came too late"
    world.write(partition=1)
    world.waits(patience_s=30.0)
    name = world.claim.migration_id
    row, rows, trail = world.journal.current(name), world.journal.steps(name), world.journal.events(name)
    keep(journal, row, rows, trail, instead=True)
    cannot = offered(client, name)["replay"]["cannot"]
    assert cannot == replay_prospect(world.context(), world.record(), None).cannot and "fraud-g" in cannot


def test_what_is_done_is_neither_replayed_nor_closed(client: Any, journal: SqlJournal, tmp_path: Path) -> None:
    world = asked()
    world.answer(world.asks())
    world.advanced()
    assert set(offered(client, publish(world, journal, tmp_path / "evidence"))) == {"roll back"}


@pytest.mark.parametrize("until", [Step.PLAN, Step.CREATE_TARGET, Step.SWITCH_PRODUCERS])
def test_a_close_says_what_the_command_says_of_it(
    until: Step, client: Any, journal: SqlJournal, tmp_path: Path
) -> None:
    world = World()
    world.advanced(until=until)
    found = offered(client, publish(world, journal, tmp_path / "evidence"))["close"]
    assert tuple(found["does"][:-1]) == close_prospect(world.context(), world.record()).does
    assert "ends red (failed)" in found["does"][-1]
    assert found["does"][0] == "it ends as failed, moves nobody, and both topics are free"
    assert (found["cannot"], found["grave"], found["looks"]) == ("", True, True)
    assert any("left to do by hand" in line for line in found["does"]) == (until is not Step.PLAN)


def test_nothing_is_closed_while_producers_may_stand_still(client: Any, frozen: str) -> None:
    found = offered(client, frozen)["close"]
    assert "end the freeze first" in found["cannot"] and found["does"] == []


def test_an_order_that_is_refused_now_cannot_be_given_and_says_nothing_of_what_would_happen(
    client: Any, journal: SqlJournal, tmp_path: Path
) -> None:
    """With records in the target the way back is no abort any more; the button that gives it is shut."""
    world = World()
    world.advanced(until=Step.SWITCH_PRODUCERS)
    world.write(TARGET, 1, 4)
    world.advanced(until=Step.SWITCH_CONSUMERS)
    name = publish(world, journal, tmp_path / "evidence")
    found = offered(client, name)
    assert "drain_back" in found["abort"]["cannot"] and found["abort"]["does"] == []
    assert all(not (o["cannot"] and o["does"]) for o in found.values())
    text = client("on-call").get(f"/migrations/{name}").text
    (dialog,) = re.findall(r"<dialog(?:(?!<dialog).)*data-give=.abort.*?</dialog>", text, re.S)
    assert "It would be refused now" in dialog and "What will happen" not in dialog
    assert "disabled data-refused>Abort</button>" in dialog
    assert re.search(r'class="refused"[^>]*title="It would be refused now[^>]*>Abort<', text)


def test_an_abort_says_that_the_run_ends_red(client: Any, journal: SqlJournal, tmp_path: Path) -> None:
    world = World()
    world.advanced(until=Step.CREATE_TARGET)
    found = offered(client, publish(world, journal, tmp_path / "evidence"))["abort"]
    assert found["cannot"] == "" and "ends red (failed)" in found["does"][-1]


def test_a_browser_is_told_on_a_page_that_nothing_is_shown_and_a_script_in_json(client: Any, frozen: str) -> None:
    def got(path: str, accept: str = "text/html,*/*") -> Any:
        return client("on-call").get(path, headers={"Accept": accept})

    gone = got("/migrations/none-123")
    assert gone.status_code == 404 and "There is no such migration that you may see." in gone.text
    assert 'href="../page.css"' in gone.text and '<a href="../">All migrations</a>' in gone.text
    assert "Content-Security-Policy" in gone.headers
    assert 'href="../../"' in got("/migrations/none-123/audit.zip").text
    for told in (got("/api/migrations/none-123"), got("/migrations/none-123", "application/json")):
        assert told.status_code == 404 and told.json() == {"detail": "There is no such migration that you may see."}
    assert got("/evidence/none-123/").status_code == 403 and "All migrations" in got("/evidence/none-123/").text


def test_no_address_of_the_page_changes_anything(client: Any, frozen: str) -> None:
    """Orders go to Airflow's own API, which checks rights and origin; so there is nothing here to forge."""
    assert {m for route in app.routes for m in route.methods} == {"GET"}  # type: ignore[attr-defined]
    assert client("on-call").post(f"/migrations/{frozen}").status_code == 405


def test_the_entry_in_the_navigation_and_the_view_of_a_run_lead_to_pages(client: Any, frozen: str) -> None:
    nav, run = TopicshiftPlugin.external_views
    assert (nav["destination"], run["destination"]) == ("nav", "dag_run")
    dag_id, _, run_id = OWNER.partition("/")
    paths = [nav["href"], nav["icon"], nav["icon_dark_mode"], run["href"]]
    for path in paths:
        path = path.replace("{DAG_ID}", dag_id).replace("{RUN_ID}", run_id)
        assert path.startswith("/topicshift/")
        assert client("viewer").get(path.removeprefix("/topicshift")).status_code == 200
    assert client("viewer").get("/run", params={"dag_id": "other", "run_id": "1"}).text.count("owns no topic") == 1


# -------------------------------------------------------------------------------------------------------- content


def test_the_freeze_is_the_first_thing_that_is_said(client: Any, frozen: str) -> None:
    text = client("on-call").get(f"/migrations/{frozen}").text
    said = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", text))
    assert re.search(r"Producers have stood still for [\d.]+ \w+.* of 2 min 00 s", said)
    assert text.index('class="freeze') < text.index(">Steps<") and "data-budget" in text
    for told in ("checkout", "stopped", "ledger-g", "400 offsets left", "chain holds", "plan.json", "forecast"):
        assert told in text, told
    listed = client("on-call").get("/").text
    assert 'class=" frozen"' in listed and "data-since" in listed


def test_a_question_leads_to_where_it_is_answered(client: Any, journal: SqlJournal, tmp_path: Path) -> None:
    world = World(approvals=REQUIRED)
    world.show(world.asks())
    name = publish(world, journal, tmp_path / "evidence")
    text = client("on-call").get(f"/migrations/{name}").text
    assert "A person has to act" in text and "Answer in Airflow" in text
    assert 'href="/dags/topic_migration/runs/run-1/required_actions"' in text
    assert "1 waits for a person" in re.sub("<[^>]+>", "", client("on-call").get("/").text)


def test_the_style_is_strict_and_everything_comes_from_here(client: Any, frozen: str) -> None:
    asked = client("on-call")
    for path in ("/", f"/migrations/{frozen}"):
        answer = asked.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
        assert "frame-ancestors 'self'" in policy and answer.headers["cache-control"] == "no-store"
        assert not re.search(r'<[^>]*\s(style|on\w+)="', answer.text), "inline styles and scripts would be refused"
        assert re.findall(r'(?:src|href)="(https?:)?//', answer.text) == []
        assert re.findall("<script[^>]*>", answer.text) == [
            f'<script src="{"../" if "migrations" in path else ""}page.js" defer>'
        ]
    for name in ("page.js", "page.css"):
        text = asked.get(f"/{name}").text
        assert not re.search(r"https?://|innerHTML|eval\(|@import|url\(", text)


def test_it_says_so_when_the_journal_cannot_be_read(client: Any, frozen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable() -> str:
        raise Unreadable("the journal does not answer")

    monkeypatch.setattr(data, "journal_url", unreadable)
    for path in ("/", "/api/migrations", f"/migrations/{frozen}", "/run?dag_id=a&run_id=b"):
        answer = client("on-call").get(path)
        assert answer.status_code == 502 and "does not answer" in answer.text


def test_without_evidence_the_journal_is_shown_all_the_same(
    client: Any, frozen: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Silent:
        def names(self, _: str) -> list[str]:
            raise Unreadable("the store does not answer")

    monkeypatch.setattr(data, "evidence_from_env", Silent)
    text = client("on-call").get(f"/migrations/{frozen}").text
    assert "The evidence could not be read: the store does not answer" in text and "have stood still" in text


def test_before_the_first_migration_the_list_is_empty(client: Any, journal: SqlJournal, tmp_path: Path) -> None:
    assert "There is no migration that you may see." in client("on-call").get("/").text
    assert client("on-call").get("/api/migrations").json()["migrations"] == []


def test_a_broken_trail_is_said_on_the_page(client: Any, frozen: str, journal: SqlJournal) -> None:
    row, steps, trail = journal.current(frozen), journal.steps(frozen), journal.events(frozen)
    keep(journal, row, steps, [*trail[:4], replace(trail[4], actor="mallory"), *trail[5:]], instead=True)
    text = client("on-call").get(f"/migrations/{frozen}").text
    assert "chain broken" in text and "row 5: changed" in text


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"state": "hovering"}, "this version does not know its state 'hovering'"),
        ({"spec": '{"cutover": "sideways"}'}, "this version does not know its order of the cut-over 'sideways'"),
        ({"spec": "[]"}, "does not understand (AttributeError"),
        ({"spec": "{"}, "its spec is no JSON"),
    ],
)
def test_a_migration_that_is_not_understood_is_shown_by_name_and_hides_no_other(
    client: Any, frozen: str, journal: SqlJournal, changes: dict[str, str], why: str
) -> None:
    row, steps, trail = journal.current(frozen), journal.steps(frozen), journal.events(frozen)
    other, told = renamed(row, trail, "other-1", source="refunds", target="refunds-v2")
    keep(journal, other, steps, told)
    change(journal, migrations, migrations.c.migration_id == "other-1", **changes)
    listed = {m["migration"]: m for m in client("on-call").get("/api/migrations?state=open").json()["migrations"]}
    assert set(listed) == {frozen, "other-1"}
    assert (listed["other-1"]["state"], listed["other-1"]["waits_on"]) == ("unknown", "person")
    assert why in listed["other-1"]["waits_for"]
    text = unescape(client("on-call").get("/").text)
    assert "refunds-v2" in text and why in text and "have" not in listed[frozen]["waits_for"]
    answer = client("on-call").get("/migrations/other-1")
    assert answer.status_code == 200 and why in unescape(answer.text) and "data-order" not in answer.text
    assert client("on-call").get("/api/migrations/other-1").json()["unclear"] in unescape(answer.text)
    assert client("stranger").get("/migrations/other-1").status_code == 404


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"state": "wobbling"}, "the state 'wobbling' of its step freeze"),
        ({"data": "no JSON"}, "the data of its step freeze is no JSON"),
        ({"data": '{"freeze": "long ago"}'}, "does not understand"),
    ],
)
def test_neither_does_a_step_that_is_not_understood(
    client: Any, frozen: str, journal: SqlJournal, changes: dict[str, str], why: str
) -> None:
    row, steps_, trail = journal.current(frozen), journal.steps(frozen), journal.events(frozen)
    keep(journal, *(_with_steps(steps_, *renamed(row, trail, "other-1"))))
    change(journal, steps, (steps.c.migration_id == "other-1") & (steps.c.step == "freeze"), **changes)
    listed = {m["migration"]: m for m in client("on-call").get("/api/migrations").json()["migrations"]}
    assert why in listed["other-1"]["waits_for"] and listed[frozen]["freeze"]["running"]
    assert why in unescape(client("on-call").get("/migrations/other-1").text)


def _with_steps(rows: Any, row: Any, trail: Any) -> tuple[Any, Any, Any]:
    return row, rows, trail


def test_the_audit_bundle_is_downloaded_and_holds_and_shows_a_change(client: Any, frozen: str, tmp_path: Path) -> None:
    assert f"../migrations/{frozen}/audit.zip" in client("viewer").get(f"/migrations/{frozen}").text
    answer = client("viewer").get(f"/migrations/{frozen}/audit.zip")
    assert answer.headers["content-disposition"].startswith("attachment") and "-audit.zip" in str(answer.headers)
    file = tmp_path / "audit.zip"
    file.write_bytes(answer.content)
    verified = CliRunner().invoke(cli, ["audit", "verify", str(file), "--json"], standalone_mode=False)
    found = json.loads(verified.stdout)
    assert (found["migration"], found["broken"]) == (frozen, []) and found["events"] > 10 and found["files"] > 5
    assert verified.return_value == (4 if found["missing"] else 0)
    changed = tmp_path / "changed.zip"
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(changed, "w") as new:
        for entry in old.namelist():
            new.writestr(entry, old.read(entry).replace(b"user:ada", b"user:eve"))
    broken = CliRunner().invoke(cli, ["audit", "verify", str(changed), "--json"], standalone_mode=False)
    assert broken.return_value == 3 and any("changed" in line for line in json.loads(broken.stdout)["broken"])


def test_the_audit_bundle_is_for_those_who_may_see_the_migration(client: Any, frozen: str) -> None:
    assert {client(u).get(f"/migrations/{frozen}/audit.zip").status_code for u in ("other-team", "stranger")} == {404}


def test_earlier_rows_of_the_trail_can_be_asked_for(client: Any, frozen: str) -> None:
    text = client("on-call").get(f"/api/migrations/{frozen}").json()
    assert [e["seq"] for e in text["trail"]] == sorted((e["seq"] for e in text["trail"]), reverse=True)
    earlier = client("on-call").get(f"/api/migrations/{frozen}/trail", params={"before": 4}).json()
    assert [e["seq"] for e in earlier] == [3, 2, 1]


def test_the_pages_know_nothing_of_kafka() -> None:
    """The API server never asks a cluster, so it need not even load a client."""
    code = (
        "import sys, topicshift_airflow.page.routes\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('confluent_kafka', 'kafka', 'pyspark')])"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


# --------------------------------------------------------------------------------------------------- hostile names


class Tags(HTMLParser):
    """The tags of a page with the names of their attributes, and where its links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]


def _one(name: str) -> dict[str, Any]:
    found = page(WAITING)
    text = dict.fromkeys(("source", "target", "migration", "cluster_id", "waits_for", "cutover", "rehearses"), name)
    person = {"name": name, "role": name, "status": name, "topic": name, "reason": name, "at": None, "members": 1}
    return found | text | {
        "files": [name], "job": {"dag_id": name, "run_id": name, "task_id": name},
        "findings": [dict.fromkeys(("code", "level", "subject", "seen", "why", "do"), name)],
        "participants": [person],
        "questions": [{"ask": name, "subject": name, "until": name, "asked_at": name, "first": name}],
        "signals": [{"signal": name, "observed": name, "wanted": name, "good": False, "at": None, "age_s": 100.0}],
        "orders": [{"order": name, "label": name, "dag_id": name, "does": [name], "cannot": name, "looks": True,
                    "may": True, "grave": False, "reasoned": True}],
        "watch": [{"code": name, "level": name, "seen": name, "do": name, "since": name, "subject": name}],
        "answers": [{"at": name, "by": name, "said": name, "ask": name, "of": name, "about": {name: name}}],
        "trail": [{"seq": 2, "at": name, "actor": name, "did": name, "what": name, "tone": "bad"}],
        "chain": {"holds": False, "rows": 1, "problems": [name], "ends_in": name, "from_its_first_row_at": name},
        "late": {"unseen": 1, "groups": [name], "records": [{"place": name, "line": name}], "complete": True},
        "unread": [name], "run_page": "/dags/x", "answer_page": "/dags/x", "state": name, "step": name,
        "rollback": {"kind": name, "why": name, "does": name, "at": None, "past": False},
    }  # fmt: skip


def _list(name: str) -> dict[str, Any]:
    row = {
        "migration": name, "source": name, "target": name, "rehearses": name, "cluster_id": name, "state": name,
        "active": True, "going_back": False, "step": name, "steps_done": 1, "steps": 9, "owner": name,
        "window": {"text": name, "opens": name, "closes": name}, "waits_on": "person", "waits_for": name,
        "freeze": None, "created_at": name, "updated_at": name,
    }  # fmt: skip
    asked = Wanted(name, name, name, name, name)
    return {
        "asked": asked,
        "migrations": [row],
        "of": 1,
        "as_of": name,
        "choices": {"clusters": [name], "owners": [name]},
    }


@settings(max_examples=60, deadline=None)
@given(name=anything | st.sampled_from(["javascript:alert(1)", "' onclick='x", "</script><script>x", "<!--", "&lt;"]))
def test_a_hostile_name_is_text_wherever_it_stands(name: str) -> None:
    name = name.encode("utf-8", "replace").decode() or "x"  # a database holds nothing else
    for template, values in (("one.html.j2", lambda n: {"m": _one(n)}), ("list.html.j2", _list)):
        plain, hostile = (
            Tags(rendered(template, root="../", airflow="/prod", **values(n))) for n in ("payments", name)
        )
        assert [t for t, _ in plain.tags if t != "b"] == [t for t, _ in hostile.tags if t != "b"]
        assert {a for _, a in hostile.tags} <= {a for _, a in plain.tags} | {("class",)}
        assert all(re.match(r"(\.\./|\?|/dags/|migrations/|page\.|start)", link) for link in hostile.links), (
            hostile.links
        )
