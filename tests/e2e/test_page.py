"""The page "Topic migrations" in a real Airflow and a real browser: what is seen, what is done, and by whom.

With ``TOPICSHIFT_PICTURES`` set to a folder, the pictures of the docs are written there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import FrameLocator, Locator, Page, expect
from tests.e2e.small import Run, Topic, trail_is_intact, until
from tests.e2e.ui import Ui, as_admin, give, log_in, order, run_of, verified_bundle

from lab.stack import Stack
from topicshift.adapters.journal import SqlJournal
from topicshift.core.spec.io import load_spec

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800), pytest.mark.long]

SPECS = Path(__file__).parents[1] / "specs"
DAG, FENCE = "topic_migration", "stop_producers.fence"
NAV, TAB = "Migrations", "Topic migration"
LAG = 400
"""Records that the group has to read while producers stand still, at a few a second."""


@dataclass
class Seen:
    """What the browser had to complain about, and whom it talked to."""

    errors: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    def watch(self, page: Page) -> None:
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self._asked(request.url))

    def _asked(self, url: str) -> None:
        if not url.startswith(("data:", "blob:", "about:")):
            self.hosts.add(urlsplit(url).netloc)

    def _said(self, message: Any) -> None:
        if message.type == "error" and "/topicshift/" in str(message.location.get("url")):
            self.errors.append(message.text)


@pytest.fixture(scope="module")
def seen() -> Seen:
    return Seen()


@pytest.fixture(scope="module")
def ui(stack: Stack, seen: Seen) -> Iterator[Ui]:
    """A browser in which ``admin`` is logged in."""
    with as_admin(stack) as made:
        seen.watch(made.page)
        yield made


def inside(ui: Ui, title: str) -> FrameLocator:
    """The page in the frame in which Airflow shows it."""
    return ui.page.frame_locator(f"iframe[title='{title}']")


def test_a_person_follows_a_migration_and_ends_it_from_the_page(
    ui: Ui, stack: Stack, seen: Seen, pictures: Path, tmp_path: Path
) -> None:
    topic = Topic(stack, "credits", "credits-ledger").make()
    run = Run.start(stack.airflow, DAG, topic.values(approvals_plan="required", freeze_budget="120s"))
    journal = SqlJournal(stack.journal_url)
    try:
        until(lambda: bool(journal.find(source=topic.name)), "the migration in the journal", 120.0)
        (row,) = journal.find(source=topic.name)
        spark_says_how_far_it_is(ui, run, row.migration_id)
        option = run.question("approve.plan")["options"][0]
        asked_and_answered(ui, run, row.migration_id, option)
        paused_and_gone_on(ui, journal, row.migration_id)
        with topic.reading(topic.name, pause_s=0.2):
            run.question(FENCE)
            topic.write(topic.name, LAG)
            run.answer(FENCE)
            until(lambda: journal.step(row.migration_id, "freeze") is not None, "the freeze")
            in_the_freeze(ui, row.migration_id, pictures)
            without_rights(ui, stack, row.migration_id)
            page = ui.opened(f"migrations/{row.migration_id}")
            said = give(order(page, "Abort"), "a test")
        assert "Done: " in said, said
        expect(page.locator(".asof")).to_contain_text("rolled back", timeout=120_000)
        assert journal.current(row.migration_id).state == "rolled_back"
        run.wait("failed")  # aborted is no success
        (abort,) = journal.events(row.migration_id, {"abort"})
        assert abort.data == {"reason": "a test", "by": "user:admin"}
        assert trail_is_intact(journal, row.migration_id)
        page.locator("details[data-key=trail] summary").click()
        expect(page.locator("details[data-key=trail]")).to_contain_text("chain holds")
        found = verified_bundle(page, row.migration_id, tmp_path)
        assert found["events"] > 20 and found["files"] > 5
    finally:
        journal.close()
    assert seen.errors == []
    assert seen.hosts == {urlsplit(ui.url).netloc}, "nothing comes from elsewhere"


def test_a_topic_is_looked_at_and_its_draft_begins_a_migration(ui: Ui, stack: Stack) -> None:
    """From a topic's name alone to a run with the draft's values; who may only read is offered nothing.

    The target of the spec file, which somebody else has made, is said once it has been looked for; before that it is
    the migration's plan that finds it.
    """
    spec = load_spec(SPECS / "dues.yaml")
    topic = Topic(stack, spec.source, "dues-ledger").make()
    with topic.admin() as admin:
        admin.create_topic(topic.target, 2, 1, {})
    refused_by_its_plan(ui, topic)
    page = ui.opened("start")
    page.get_by_label("Topic", exact=True).fill(topic.name)
    page.get_by_role("button", name="Look", exact=True).click()
    look = page.locator("dialog[open]")
    look.get_by_role("button", name="Look").click()
    expect(look.locator(".said")).to_contain_text("A run of topic_assessment has begun")
    look.get_by_role("button", name="Close").click()
    migrate = page.get_by_role("button", name=f"Migrate {topic.name}", exact=True)
    expect(migrate).to_be_enabled(timeout=600_000)
    expect(by_file(page, topic)).to_contain_text(f"{topic.target} existed already at the last look at {topic.name} (")
    nothing_but_looking(ui, stack, topic.name)
    migrate.click()
    begin = page.locator("dialog[open]")
    expect(begin).to_contain_text("before any producer is stopped")
    passed = f"{topic.target} existed already at this look"
    expect(begin).to_contain_text(f"the target will be called {topic.name}-v3, the next free name: {passed}")
    begin.get_by_label("Partitions of the target").fill("9")
    begin.get_by_role("button", name="Begin").click()
    run_id = run_of(begin)
    run = stack.airflow.request("GET", f"/dags/{DAG}/dagRuns/{quote(run_id, safe='')}")
    assert run["triggering_user_name"] == "admin"
    assert (run["conf"]["source"], run["conf"]["partitions"]) == (topic.name, 9)
    assert topic.group in {c["group"] for c in run["conf"]["consumers"]}
    closed_from_the_page(ui, stack, topic.name)
    Run(stack.airflow, DAG, run_id).wait("failed")


def by_file(page: Page, topic: Topic) -> Locator:
    """The card of a topic's spec file."""
    return page.locator("section.draft", has=page.get_by_role("button", name=f"Migrate by {topic.name}.yaml"))


def refused_by_its_plan(ui: Ui, topic: Topic) -> None:
    """Nobody has looked, and the page says so; the run ends before anything is made, with what to do."""
    page = ui.opened("start")
    card = by_file(page, topic)
    expect(card).to_contain_text(f"Whether a topic {topic.target} exists already has not been looked at")
    card.get_by_role("button", name=f"Migrate by {topic.name}.yaml").click()
    dialog = page.locator("dialog[open]")
    expect(dialog).to_contain_text(f"Look at {topic.name} above says so, and the plan does")
    dialog.get_by_role("button", name="Begin").click()
    Run(topic.stack.airflow, DAG, run_of(dialog)).wait("failed")
    dialog.get_by_role("button", name="Close").click()
    begun = page.locator("#begun")
    expect(begun).to_contain_text(f"The migration of {topic.name} has failed: its page says why.", timeout=120_000)
    begun.get_by_role("link", name="Its migration").click()
    finding = page.locator(".now .finding", has_text="TS103")
    expect(finding).to_contain_text(f"'{topic.target}' exists with another shape")
    expect(finding).to_contain_text("Choose another “target”, leave it out for the next free -vN")


def closed_from_the_page(ui: Ui, stack: Stack, topic: str) -> None:
    """The migration ends whatever its run does: that finds itself without one at its next act."""
    journal = SqlJournal(stack.journal_url)
    try:
        until(lambda: len(journal.find(source=topic)) == 2, "the migration in the journal", 120.0)
        row = journal.find(source=topic)[-1]
        page = ui.opened(f"migrations/{row.migration_id}")
        dialog = order(page, "Close the migration")
        expect(dialog).to_contain_text("it ends as failed, moves nobody, and both topics are free")
        assert "Done: failed" in give(dialog, "a test")
        expect(page.locator(".asof")).to_contain_text("failed", timeout=120_000)
        assert (journal.current(row.migration_id).state, journal.current(row.migration_id).active) == ("failed", False)
        (closed,) = journal.events(row.migration_id, {"closed"})
        assert (closed.actor, closed.data["reason"]) == ("user:admin", "a test")
    finally:
        journal.close()


def viewer(ui: Ui, stack: Stack) -> Ui:
    """Who may only read, beside ``admin`` in the same browser."""
    browser = ui.page.context.browser
    assert browser is not None
    return log_in(browser, ui.url, "viewer", stack.services.password("viewer"))


def nothing_but_looking(ui: Ui, stack: Stack, topic: str) -> None:
    """What a user sees who may read and not trigger; Airflow itself refuses what is forged."""
    page = viewer(ui, stack).opened("start")
    for label in (f"Migrate {topic}", "Look"):
        expect(page.get_by_role("button", name=label, exact=True)).to_be_disabled()
    assert page.locator("dialog").count() == 0
    for dag in (DAG, "topic_assessment"):
        forged = """async dag => (await fetch(`/api/v2/dags/${dag}/dagRuns`, {method: 'POST',
            headers: {'Content-Type': 'application/json'},
            body: JSON.stringify({logical_date: null, conf: {source: 'dues'}})})).status"""
        assert page.evaluate(forged, dag) == 403
    page.context.close()


def asked_and_answered(ui: Ui, run: Run, migration: str, option: str) -> None:
    """From the navigation over the list to the question, and to the answer."""
    ui.page.goto(ui.url, wait_until="domcontentloaded")
    ui.page.get_by_role("link", name=NAV).first.click()
    listed = inside(ui, NAV)
    row = listed.locator("tr", has_text=migration)
    expect(row).to_contain_text("a person to answer")
    row.get_by_role("link").first.click()
    one = inside(ui, NAV)
    expect(one.locator(".now")).to_contain_text("A person has to act")
    expect(ui.page).to_have_url(re.compile(f"/plugin/topic-migrations/topicshift/migrations/{migration}"))
    one.get_by_role("link", name="Answer in Airflow").click()
    expect(ui.page).to_have_url(re.compile(r"/dags/topic_migration/runs/.*required_actions"))
    expect(ui.page.locator("body")).to_contain_text("Move credits")
    ui.open_run(run.dag_id, run.run_id)
    ui.page.get_by_role("link", name=TAB, exact=True).click()
    expect(inside(ui, TAB).locator("h1")).to_contain_text("credits → credits-v2")
    ui.answer(run.dag_id, run.run_id, "approve.plan", option)


def paused_and_gone_on(ui: Ui, journal: SqlJournal, migration: str) -> None:
    """What an order would do is asked first; then it is given, and the audit trail names who gave it."""
    page = ui.opened(f"migrations/{migration}")
    said = give(order(page, "Pause"), "lunch")
    assert "nothing new is begun" in said and "Done: paused" in said
    expect(page.locator(".now")).to_contain_text("paused by user:admin")
    looked = order(page, "Abort")
    looked.get_by_role("button", name="Look first").click()
    expect(looked.locator(".said")).to_contain_text("What would happen now, by what the cluster shows:")
    looked.get_by_role("button", name="Do nothing").click()
    assert journal.current(migration).state == "open"
    assert "goes on" in give(order(page, "Go on"), "")
    expect(page.locator(".now")).not_to_contain_text("paused")


def spark_says_how_far_it_is(ui: Ui, run: Run, migration: str) -> None:
    """What the impact job itself has written; the paused DAG keeps the migration at this step until it was seen."""
    job = "plan.key_rehash_impact"
    run.wait_state(job, "running", "success")
    run.api.set_paused(run.dag_id, True)
    try:
        page = ui.opened(f"migrations/{migration}")
        figures = r"Spark: Reading 60 offsets of credits.*: (\d+ s, \d+ of \d+ tasks of|done in [\d.]+ s)"
        expect(page.locator(".now [data-job]")).to_have_text(re.compile(figures), timeout=300_000)
    finally:
        run.api.set_paused(run.dag_id, False)
    run.wait_state(job, "success")


def in_the_freeze(ui: Ui, migration: str, pictures: Path) -> None:
    """The clock runs by itself, the chart follows the drain; light, dark and narrow."""
    page = ui.opened(f"migrations/{migration}")
    clock = page.locator(".freeze b").first
    expect(page.locator(".freeze")).to_contain_text(re.compile(r"Producers have stood still for .* of 2 min 00 s"))
    before = clock.inner_text()
    expect(clock).not_to_have_text(before)
    expect(page.locator("svg.lag .forecast")).to_have_count(1)
    expect(page.locator("table", has_text="signal")).to_contain_text("offsets left")
    looks: list[tuple[str, str, str, int]] = [
        ("page-freeze.png", f"migrations/{migration}", "light", 1400),
        ("page-freeze-dark.png", f"migrations/{migration}", "dark", 1400),
        ("page-freeze-phone.png", f"migrations/{migration}", "dark", 390),
        ("page-list.png", "", "light", 1400),
        ("page-list-phone.png", "", "light", 390),
    ]
    for name, path, theme, width in looks:
        page.set_viewport_size({"width": width, "height": 1000 if width > 390 else 844})
        page.evaluate("theme => localStorage.setItem('theme', theme)", theme)
        page = ui.opened(path)
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
        page.locator("main .card").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), f"{name} is too wide"
        page.screenshot(path=pictures / name, full_page=path != "" and width > 390)
    page.set_viewport_size({"width": 1400, "height": 1000})
    ui.page.goto(f"{ui.url}/plugin/topic-migrations", wait_until="domcontentloaded")
    expect(inside(ui, NAV).locator("html")).to_have_attribute("data-theme", re.compile("light|dark"))
    expect(inside(ui, NAV).locator("tr", has_text=migration)).to_contain_text("drain")
    ui.page.screenshot(path=pictures / "page-airflow.png")


def without_rights(ui: Ui, stack: Stack, migration: str) -> None:
    """Who may read and not trigger sees everything and is offered nothing; an order that is forged is refused."""
    page = viewer(ui, stack).opened(f"migrations/{migration}")
    expect(page.locator(".now")).to_contain_text("lag")
    buttons = page.locator(".orders button")
    assert buttons.count() >= 2 and all(b.is_disabled() for b in buttons.all())
    assert page.locator("dialog").count() == 0
    forged = """async () => (await fetch('/api/v2/dags/topic_control/dagRuns', {method: 'POST',
        headers: {'Content-Type': 'application/json'},
        body: JSON.stringify({logical_date: null, conf: {migration: 'credits', order: 'abort'}})})).status"""
    assert page.evaluate(forged) == 403
    page.context.clear_cookies()
    assert page.request.get(f"{ui.url}/topicshift/migrations/{migration}").status == 401
    page.context.close()
