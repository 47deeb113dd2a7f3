"""The page to begin from: drafts with their values filled in, who may begin, and what an order may be given to."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from tests.unit.api_server import READS, TRIGGERS, Right, journal_served, logged_in
from tests.unit.page_world import keep, leave_draft
from tests.unit.test_draft import on_route
from tests.unit.test_names_fuzzed import anything
from tests.unit.world import World

from topicshift.adapters.evidence import FsspecEvidence
from topicshift.adapters.journal import SqlJournal
from topicshift.core.errors import Unreadable
from topicshift.core.page.drafts import draft_seen, latest
from topicshift.core.plan.draft import Draft
from topicshift.core.spec.form import form_fields, spec_from_form
from topicshift_airflow.links import ASSESSMENT
from topicshift_airflow.page import start
from topicshift_airflow.page.view import rendered

SEES: set[Right] = {("topic_assessment", READS), ("topic_migration", READS)}
RIGHTS: dict[str, set[Right]] = {
    "planner": {*SEES, ("topic_migration", TRIGGERS), ("topic_assessment", TRIGGERS)},
    "viewer": SEES,
    "stranger": set(),
}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(start, "_read", {})
    monkeypatch.setattr(start, "SPEC_FOLDER", tmp_path / "no-specs")


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlJournal]:
    with journal_served(tmp_path, monkeypatch, RIGHTS) as opened:
        yield opened


@pytest.fixture
def client(journal: SqlJournal) -> Iterator[Callable[[str], TestClient]]:
    with logged_in() as made:
        yield made


def asked(client: Any, user: str = "planner") -> dict[str, Any]:
    found: dict[str, Any] = client(user).get("/api/start").json()
    return found


def test_a_draft_triggers_a_migration_that_is_valid_without_an_edit(client: Any, tmp_path: Path) -> None:
    leave_draft(tmp_path / "evidence", "manual__1", on_route())
    (draft,) = asked(client)["drafts"]
    assert (draft["source"], draft["partitions"], draft["cannot"]) == ("payments", 12, "")
    assert [p["name"] for p in draft["consumers"]] == ["ledger-app"] and "before any producer" in " ".join(
        draft["does"]
    )
    form = {name: f["default"] for name, f in form_fields("include/migrations").items()}
    spec = spec_from_form({**form, **draft["conf"]}, "include/migrations")
    assert (spec.source, spec.partitions, [p.name for p in spec.producers]) == ("payments", 12, ["checkout"])
    sent = Dialogs(client("planner").get("/start").text).forms["topic_migration"]
    assert json.loads(sent) == draft["conf"]


def test_a_spec_file_of_the_installation_is_begun_as_it_is_before_any_draft(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "specs"
    folder.mkdir()
    kept = Path("include/migrations/payments.yaml").read_text()
    (folder / "payments.yaml").write_text(kept)
    (folder / "later.yaml").write_text(kept.replace("drain_first", "producers_first"))
    (folder / "broken.yaml").write_text("source: payments")
    monkeypatch.setattr(start, "SPEC_FOLDER", folder)
    broken, later, found = asked(client)["specs"]
    assert (found["file"], found["source"], found["target"], found["partitions"]) == (
        "payments.yaml", "payments", "payments-v2", 30)  # fmt: skip
    assert {p["kind"] for p in (*found["producers"], *found["consumers"])} == {"route"}
    assert broken["problems"] and (broken["dag_id"], later["dag_id"]) == ("", ""), "no right to the other DAG, no spec"
    text = client("planner").get("/start").text
    assert json.loads(Dialogs(text).forms["topic_migration"]) == {"spec_file": "payments.yaml"}
    assert text.index("Spec files</h2>") < text.index("Drafts</h2>") and "Migrate by payments.yaml" in text
    form = {name: f["default"] for name, f in form_fields(folder).items()}
    assert spec_from_form({**form, **found["conf"]}, folder).target == "payments-v2"
    assert asked(client, "viewer")["specs"] == [] == asked(client, "stranger")["specs"]


def test_a_spec_file_whose_topics_are_held_is_not_begun_and_one_whose_target_is_there_says_so(
    client: Any, journal: SqlJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "specs"
    folder.mkdir()
    (folder / "payments.yaml").write_text(Path("include/migrations/payments.yaml").read_text())
    monkeypatch.setattr(start, "SPEC_FOLDER", folder)
    world, name = World(), ""

    def seen() -> tuple[dict[str, Any], str]:
        keep(journal, world.journal.current(name), world.journal.steps(name), world.journal.events(name), instead=True)
        return asked(client)["specs"][0], client("planner").get("/start").text

    name = world.claim.migration_id
    held, text = seen()
    assert (held["held_by"], "is not over" in held["cannot"], held["warns"]) == (name, True, "")
    assert "topic_migration" not in Dialogs(text).forms
    assert re.search("disabled title=[^>]*>Migrate by payments.yaml", text)
    world.advanced()
    done, text = seen()
    assert (done["cannot"], "TS103" in done["warns"], name in done["warns"]) == ("", True, True)
    assert "topic_migration" in Dialogs(text).forms and text.count("may hold its records") == 2


def test_a_target_that_somebody_else_has_made_is_said_before_a_migration_begins(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as the last look at the source knows it; what nobody has looked at is not called free."""
    folder = tmp_path / "specs"
    folder.mkdir()
    (folder / "payments.yaml").write_text(Path("include/migrations/payments.yaml").read_text())
    monkeypatch.setattr(start, "SPEC_FOLDER", folder)

    def seen(run: str, minute: int, *topics: str, **more: Any) -> tuple[dict[str, Any], str]:
        start._read.clear()  # what was read is kept for seconds
        found = on_route(topics=frozenset({"payments", *topics}))
        leave_draft(tmp_path / "evidence", run, replace(found, taken_at=f"2026-03-01T02:{minute:02}:00+00:00", **more))
        found_page = asked(client)
        does = " ".join(found_page["drafts"][0]["does"])
        spec = found_page["specs"][0]
        text = client("planner").get("/start").text
        assert all(text.count(said) == 2 for said in (spec["warns"], spec["looked"]) if said), "on its card and asked"
        return spec, does

    alone = asked(client)["specs"][0]
    assert alone["warns"] == "" and "has not been looked at: Look at payments above says so" in alone["looked"]
    other, _ = seen("manual__0", 1, "payments-v2", connection="kafka_other")
    assert (other["warns"], other["looked"]) == ("", alone["looked"]), "a look at another cluster tells nothing"
    free, does = seen("manual__1", 2)
    assert (free["warns"], free["cannot"]) == ("", "")
    assert free["looked"] == "There was no topic payments-v2 at the last look at payments (2026-03-01 02:02 UTC)."
    assert "the target will be called payments-v2, the next free name" in does
    there, does = seen("manual__2", 3, "payments-v2")
    assert there["warns"].startswith("payments-v2 existed already at the last look at payments (2026-03-01 02:03 UTC).")
    assert "TS103" in there["warns"] and "Name another target in the file" in there["warns"] and there["looked"] == ""
    assert "called payments-v3, the next free name: payments-v2 existed already at this look" in does
    gone, _ = seen("manual__3", 4)
    assert gone["warns"] == "" and "02:04" in gone["looked"], "the last look counts"
    moved, _ = seen("manual__4", 5, "payments-v2", cluster_id="the one that the connection leads to since")
    assert "02:05" in moved["warns"]


def test_a_name_that_an_open_migration_holds_is_not_the_next_free_one(
    client: Any, journal: SqlJournal, tmp_path: Path
) -> None:
    world = World(source="orders", target="payments-v2")
    name = world.claim.migration_id
    keep(journal, world.journal.current(name), world.journal.steps(name), world.journal.events(name))
    here = world.journal.current(name).cluster_id
    leave_draft(tmp_path / "evidence", "manual__1", replace(on_route(), cluster_id=here))
    assert "called payments-v3, the next free name" in " ".join(asked(client)["drafts"][0]["does"])


def test_where_no_draft_is_the_page_says_where_one_would_come_from(client: Any) -> None:
    text = client("planner").get("/start").text
    assert "writes the same to a file" in text and "include/migrations/" in text


def test_who_may_not_trigger_is_shown_the_draft_and_offered_nothing(client: Any, tmp_path: Path) -> None:
    folder = leave_draft(tmp_path / "evidence", "manual__1", on_route())
    mine, theirs, nobodys = (client(u).get("/start").text for u in ("planner", "viewer", "stranger"))
    assert set(Dialogs(mine).forms) == {"topic_assessment", "topic_migration"}
    assert Dialogs(theirs).forms == {} and theirs.count("disabled title=") == 2 and "payments" in theirs
    assert Dialogs(nobodys).forms == {} and folder not in nobodys and "who may read topic_assessment" in nobodys
    assert asked(client, "stranger")["drafts"] == [] == asked(client, "viewer")["dags"]
    assert [d["dag_id"] for d in asked(client)["dags"]] == ["topic_migration"]


def test_a_draft_that_is_no_valid_spec_says_why_and_is_not_begun(client: Any, tmp_path: Path) -> None:
    leave_draft(tmp_path / "evidence", "manual__1", replace(on_route(), consumers=()))
    (draft,) = asked(client)["drafts"]
    assert draft["cannot"].startswith("the draft is no valid spec yet: ") and "consumers" in draft["cannot"]
    text = client("planner").get("/start").text
    assert "topic_migration" not in Dialogs(text).forms and "It would be refused now:" in text


def test_what_holds_the_topic_already_is_named(client: Any, journal: SqlJournal, tmp_path: Path) -> None:
    world = World()
    row = world.journal.current(world.claim.migration_id)
    keep(journal, row, world.journal.steps(row.migration_id), world.journal.events(row.migration_id))
    leave_draft(tmp_path / "evidence", "1", replace(on_route(), topic=row.source, cluster_id=row.cluster_id))
    leave_draft(tmp_path / "evidence", "2", replace(on_route(), topic=row.source, cluster_id="elsewhere"))
    here, there = sorted(asked(client)["drafts"], key=lambda d: str(d["cluster_id"] == "elsewhere"))
    assert f"{row.source} to {row.target} is not over" in here["cannot"] and here["held_by"] == row.migration_id
    assert there["cannot"] == ""
    text = client("planner").get("/start").text
    assert f'href="migrations/{row.migration_id}"' in text
    assert f'href="migrations/{row.migration_id}#orders"' in text, "an order is chosen, not typed"


def test_people_who_are_asked_are_named_before_it_begins(client: Any, tmp_path: Path) -> None:
    found = on_route()
    line = found.consumers[0]
    by_hand = replace(line, values={**line.values, "kind": "manual"})
    leave_draft(tmp_path / "evidence", "1", replace(found, consumers=(by_hand,)))
    (draft,) = asked(client)["drafts"]
    assert any("people move ledger-app" in text for text in draft["does"])


def test_the_last_draft_of_each_topic_is_shown_the_newest_first() -> None:
    def seen(folder: str, topic: str, at: str) -> dict[str, Any]:
        return draft_seen(folder, replace(on_route(), topic=topic, taken_at=at).yaml())

    drafts = [seen("c", "a", "2026-03-02T00:00:00+00:00"), seen("b", "b", "2026-03-03T00:00:00+00:00"),
              seen("d", "a", "2026-03-01T00:00:00+00:00"), draft_seen("e", "no head: 1")]  # fmt: skip
    assert [d["folder"] for d in latest(drafts, 9)] == ["b", "c", "e"]
    assert len(latest(drafts, 1)) == 1


def test_a_file_that_is_no_draft_hides_no_other(client: Any, tmp_path: Path) -> None:
    store = FsspecEvidence(str(tmp_path / "evidence"))
    for n, text in enumerate((b"{", b"- 1", b"\xff\xfe", b"source: 3", b"")):
        store.write(f"{ASSESSMENT}{n}", "draft.yaml", text)
    store.write("payments-20260301T000000-abc", "draft.yaml", "source: not-an-assessment")
    leave_draft(tmp_path / "evidence", "manual__1", on_route())
    drafts = asked(client)["drafts"]
    assert [d["source"] for d in drafts if not d["cannot"]] == ["payments"]
    assert "not-an-assessment" not in {d["source"] for d in drafts}
    assert client("planner").get("/start").status_code == 200


def test_evidence_that_cannot_be_read_is_said_and_the_open_migrations_stay(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent:
        base_url = "file:///nowhere"

        def folders(self, _: str) -> list[str]:
            raise Unreadable("the store does not answer")

    monkeypatch.setattr(start, "evidence_from_env", Silent)
    assert asked(client)["unread"] == ["Not every draft could be read: the store does not answer"]
    assert "the store does not answer" in client("planner").get("/start").text
    assert "the store does not answer" not in client("stranger").get("/start").text


def test_folders_of_evidence_are_found_by_their_beginning(tmp_path: Path) -> None:
    store = FsspecEvidence(str(tmp_path / "evidence"))
    assert store.folders("a") == []
    for folder in ("a-2", "a-1", "b"):
        store.write(folder, "x.json", "{}")
    (tmp_path / "evidence" / "a-file").write_text("x")
    assert store.folders("a-") == ["a-1", "a-2"]


class Dialogs(HTMLParser):
    """The tags of a page, and the values with which each of its forms triggers its DAG."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.forms: dict[str, str] = {}
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        found = dict(attrs)
        if found.get("data-start"):
            self.forms[str(found["data-start"])] = str(found["data-conf"])


def _page(name: str, found: Draft) -> str:
    seen = draft_seen("assessment-1", found.yaml())
    texts = {"does": [name], "cannot": "", "held_by": None, "source": name, "cluster_id": name}
    entry = {"migration": name, "source": name, "target": name, "state": name, "step": name, "waits_for": name}
    values = {"as_of": name, "unread": [name], "may_look": True, "may_read": True, "most": 9, "open": [entry]}
    dags = [{"cutover": name, "dag_id": name}]
    conf = {"source": name, "producers": [{"name": name}]}
    drafts = [{**seen, **texts, "conf": conf, "problems": [name], "notes": [{"title": name, "lines": [name]}]}]
    spec = {"file": name, "source": name, "target": name, "partitions": 3, "scheduled": True, "problems": [name]}
    spec |= {"dag_id": name, "text": name, "conf": {"spec_file": name}, "producers": [{"name": name, "kind": name}]}
    spec |= {"cannot": "", "held_by": name, "warns": name, "looked": name}
    values |= {"specs": [{**spec, "consumers": []}, {**spec, "consumers": [], "cannot": name}]}
    return rendered("start.html.j2", root="", airflow="/prod", s={**values, "dags": dags, "drafts": drafts})


@settings(max_examples=60, deadline=None)
@given(name=anything)
def test_a_hostile_name_is_text_here_as_well(name: str) -> None:
    name = name.encode("utf-8", "replace").decode() or "x"
    plain, hostile = Dialogs(_page("payments", on_route())), Dialogs(_page(name, on_route()))
    assert plain.tags == hostile.tags
    assert json.loads(list(hostile.forms.values())[-1])["source"] == name
