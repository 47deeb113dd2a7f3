"""What the README says "with you in the chair": everything by buttons, in a real browser, under live load."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.e2e.small import Run, pair, trail_is_intact, works
from tests.e2e.ui import Ui, as_admin, give, order, run_of, verified_bundle

from lab.load_proof import prove
from lab.stack import Stack
from lab.traffic import start_traffic
from topicshift.adapters.journal import SqlJournal
from topicshift.core.health import FILE, Health, compare

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800), pytest.mark.long]

DAG, BACK, TOPIC = "topic_migration", "topic_rollback", "berths"
PLAN, GO = "approve.plan", "stop_producers.go"
NAMES = {PLAN: "approval", GO: "go"}
"""Pictures of questions."""


def test_a_newcomer_starts_approves_aborts_migrates_and_goes_back_by_buttons_alone(
    stack: Stack, pictures: Path, tmp_path: Path
) -> None:
    life = pair(stack, tmp_path / "life", TOPIC)
    journal = SqlJournal(stack.journal_url)
    try:
        start_traffic(stack.broker.superuser_config(), life, lambda _: None, backlog=300)
        with as_admin(stack) as ui:
            look(ui)
            first = begin(ui, stack, 12)
            on_a_phone(ui, first, PLAN, pictures)
            approve(ui, first, PLAN, f"Move {TOPIC}")
            on_a_phone(ui, first, GO, pictures)
            aborted = journal.find(source=TOPIC)[-1].migration_id
            assert "Done: " in give(order(ui.opened(f"migrations/{aborted}"), "Abort"), "I change my mind")
            expect(ui.page.locator(".asof")).to_contain_text("rolled back")
            assert journal.current(aborted).state == "rolled_back"
            works(life)

            second = begin(ui, stack, 12)
            approve(ui, second, PLAN, f"Move {TOPIC}")
            approve(ui, second, GO, "Stop the producers")
            second.wait("success")
            works(life)
            done = journal.find(source=TOPIC)[-1].migration_id
            assert done != aborted and journal.current(done).state == "done"

            before_and_after(ui, stack, done)
            roll_back(ui, stack, done)
            works(life)
            assert journal.current(done).state == "rolled_back"
            ui.page.locator("details[data-key=trail] summary").click()
            verified_bundle(ui.page, done, tmp_path)
        assert all(trail_is_intact(journal, name) for name in (aborted, done))
        life.finish()
    finally:
        life.stop()
        journal.close()
    proof = prove(tmp_path / "life")
    assert set(proof["sent_by_topic"]) == {TOPIC, f"{TOPIC}-v2"}
    ledger = proof["groups"]["ledger"]
    assert (ledger["lost"], ledger["out_of_order"], ledger["duplicated"]) == (0, 0, 0), ledger
    assert ledger["processed"] == proof["sent"]
    with as_admin(stack) as ui:
        ui.open_run(DAG, second.run_id, "verify.report/details")
        ui.page.get_by_role("link", name="Topic migration", exact=True).last.click()
        expect(ui.page).to_have_url(re.compile(r"/topicshift/run\?dag_id="))
        expect(ui.page.locator("h1")).to_have_text(f"{TOPIC} → {TOPIC}-v2")


def look(ui: Ui) -> None:
    """*Start a migration*, the topic's name, *Look*: its draft appears by itself."""
    ui.opened("").get_by_role("link", name="Start a migration").click()
    ui.page.get_by_label("Topic", exact=True).fill(TOPIC)
    ui.page.get_by_role("button", name="Look", exact=True).click()
    dialog = ui.page.locator("dialog[open]")
    dialog.get_by_role("button", name="Look").click()
    expect(dialog.locator(".said")).to_contain_text("A run of topic_assessment has begun")
    dialog.get_by_role("button", name="Close").click()
    expect(ui.page.get_by_role("button", name=f"Migrate {TOPIC}", exact=True)).to_be_enabled(timeout=600_000)


def begin(ui: Ui, stack: Stack, partitions: int) -> Run:
    """*Migrate*, with another count than the draft's."""
    ui.opened("start").get_by_role("button", name=f"Migrate {TOPIC}", exact=True).click()
    dialog = ui.page.locator("dialog[open]")
    dialog.get_by_label("Partitions of the target").fill(str(partitions))
    dialog.get_by_role("button", name="Begin").click()
    return Run(stack.airflow, DAG, run_of(dialog))


def approve(ui: Ui, run: Run, task_id: str, said: str) -> None:
    """Yes, under *Required Actions*."""
    question = run.question(task_id)
    assert said in ui.answer(run.dag_id, run.run_id, task_id, question["options"][0])


def before_and_after(ui: Ui, stack: Stack, migration: str) -> None:
    """The source before, the target after: kept by the run, looked at again by the watch, compared in the report."""
    Run.start(stack.airflow, "topic_source_watch", {"migration": migration}).wait("success")
    found = Health.model_validate_json((stack.evidence / migration / FILE).read_text())
    before, after = found.before, found.after[-1]
    assert (before.topic, before.partitions, after.topic, after.partitions) == (TOPIC, 6, f"{TOPIC}-v2", 12)
    for sample in (before, after):
        assert sample.end and sample.sizes and sum(sample.sizes.values()) > 0 and sample.under_replicated == []
        assert sample.groups["ledger"].lag is not None and sample.groups["ledger"].members
    told = {change.name: change.verdict for change in compare(found)}
    assert {"lag of ledger", "rebalances of ledger", "under-replicated partitions"} <= set(told)
    report = ui.opened(f"evidence/{migration}/report.html").locator("body")
    expect(report).to_contain_text("Before and after")
    expect(report).to_contain_text("lag of ledger")


def on_a_phone(ui: Ui, run: Run, task_id: str, pictures: Path) -> None:
    """The question is read and answered on a narrow screen: how Airflow lays its own page out is Airflow's."""
    ui.page.set_viewport_size({"width": 390, "height": 844})
    question = run.question(task_id)
    button = ui.open_question(run.dag_id, run.run_id, task_id, question["options"][0])
    button.scroll_into_view_if_needed()
    expect(button).to_be_in_viewport()
    ui.page.screenshot(path=pictures / f"{NAMES[task_id]}-phone.png")
    ui.page.set_viewport_size({"width": 1400, "height": 1000})


def roll_back(ui: Ui, stack: Stack, migration: str) -> None:
    """*Roll back*, and the yes to exactly the type that holds."""
    dialog = order(ui.opened(f"migrations/{migration}"), "Roll back")
    expect(dialog).to_contain_text("you are asked for exactly that before it begins")
    dialog.locator("input[name=reason]").fill("the sink is too slow")
    dialog.locator("button[type=submit]").click()
    expect(dialog.locator(".said")).to_contain_text("topic_rollback has begun")
    back = Run(stack.airflow, BACK, run_of(dialog))
    approve(ui, back, "roll_back", "(drain_back)")
    back.wait("success")
    expect(ui.opened(f"migrations/{migration}").locator(".asof")).to_contain_text("rolled back")
