"""A person migrates a live topic from Airflow's pages: the form, the approvals, the result, in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect
from tests.e2e.small import Run
from tests.e2e.ui import Ui, as_admin

from lab.load_life import Life
from lab.load_proof import prove
from lab.stack import Stack
from lab.traffic import start_traffic
from topicshift.core.sizing.sizing import MOST

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800)]

DAG_ID = "topic_migration_producers_first"
GO = "stop_producers.go"


@pytest.fixture(scope="module")
def ui(stack: Stack) -> Iterator[Ui]:
    """A browser in which ``admin`` is logged in."""
    with as_admin(stack) as made:
        yield made


def test_what_is_typed_wrong_is_said_in_words_where_the_person_looks(ui: Ui, stack: Stack) -> None:
    """Airflow's page itself says "Bad Request" and no more: so nothing that is typed may be refused by the page."""
    ui.open_form(DAG_ID)
    ui.type_in("source", "pay/ments")
    ui.type_in("partitions", "30")
    ui.type_in("producers", '[{"nam": "checkout"}]')
    ui.type_in("consumers", "- {name: ledger}")
    answer = ui.answer_of_the_form()
    assert answer["status"] == 200
    run = Run(stack.airflow, DAG_ID, answer["body"]["dag_run_id"]).wait("failed")
    ui.open_run(DAG_ID, run.run_id, "plan.read_spec")
    page = ui.page.locator("body")
    for said in ("is no topic name", "Did you mean `name`", "consumers[0].group: it is missing"):
        expect(page).to_contain_text(said)
    assert run.states()["resume_on_source"] == "skipped"


@pytest.mark.parametrize(("typed", "held"), [("0", "1"), ("-3", "1"), ("1000000000000", str(MOST))])
def test_a_count_that_no_topic_can_have_does_not_stay_in_the_form(ui: Ui, typed: str, held: str) -> None:
    ui.open_form(DAG_ID)
    ui.type_in("partitions", typed)
    field = ui.dialog.locator("[name='element_partitions']")
    assert field.input_value().replace(",", "") == held
    replaced = "Airflow's form puts the nearest one in the place of another: look at the field again."
    expect(ui.dialog).to_contain_text(f"A number: 1 to {MOST:,}. {replaced}")


def test_what_is_typed_into_a_list_stays_as_it_is_typed(ui: Ui) -> None:
    """Airflow's JSON editor would close the brackets by itself, and leave one too many."""
    ui.open_form(DAG_ID)
    field = ui.dialog.locator("[name='element_consumers']")
    field.press_sequentially('[{"name": "ledger", "group": "ledger"}]')
    expect(field).to_have_value('[{"name": "ledger", "group": "ledger"}]')


def test_the_form_moves_a_live_topic_and_nothing_is_lost(ui: Ui, stack: Stack, pictures: Path, tmp_path: Path) -> None:
    life = Life(tmp_path / "life", stack.properties_file, topic="orders", keys=500, rate=30.0)
    try:
        start_traffic(stack.broker.superuser_config(), life, lambda _: None, backlog=2000)
        run = fill_in(ui, stack, life, pictures)
        option = run.question("approve.plan")["options"][0]
        said = ui.answer(DAG_ID, run.run_id, "approve.plan", option)
        assert "Move orders (6 partitions) to orders-v2 (30)?" in said and "keys that change their partition" in said
        option = run.question(GO)["options"][0]
        said = ui.answer(DAG_ID, run.run_id, GO, option)
        assert "Stop the producers of orders and move to orders-v2?" in said and "freeze budget" in said
        run.wait("success")
        said = run.api.xcom(DAG_ID, run.run_id, "verify.order_proof", "progress")
        assert re.fullmatch(r"Reading [\d,]+ offsets of orders and orders-v2: done in [\d.]+ s", said), said
        dags_that_follow_the_topic_are_told(stack, run)
        report_in_browser(ui, run)
        life.finish()
    finally:
        life.stop()
    proof = prove(tmp_path / "life")
    assert set(proof["groups"]) == {"ledger", "fraud", "search"}
    for group in proof["groups"].values():
        assert (group["lost"], group["duplicated"], group["out_of_order"]) == (0, 0, 0)
        assert group["processed"] == proof["sent"] > 2000
    assert proof["sent_by_topic"]["orders-v2"] > 0, "producers must have gone on with the target"
    assert len(proof["freezes"]) == 1


def dags_that_follow_the_topic_are_told(stack: Stack, run: Run) -> None:
    """The switch is one event of the target's asset in Airflow."""
    asked = {"source_dag_id": run.dag_id, "source_run_id": run.run_id}
    (event,) = stack.airflow.request("GET", "/assets/events", params=asked)["asset_events"]
    assert event["uri"] == f"kafka://{stack.broker.bootstrap}/orders-v2"
    assert event["source_task_id"].startswith("switch_producers.") and event["extra"]["source"] == "orders"


def fill_in(ui: Ui, stack: Stack, life: Life, pictures: Path) -> Run:
    """The form as a person fills it in: what is needed stands open, the rest is opened section by section."""
    ui.open_form(DAG_ID)
    ui.type_in("source", "orders")
    ui.type_in("partitions", "30")
    ui.page.screenshot(path=pictures / "form.png")
    ui.type_in("producers", "\n".join(app.name for app in life.producers))
    ui.type_in("consumers", json.dumps([{"name": group, "group": group} for group in life.groups]))
    ui.open_section("Options: Proof")
    ui.type_in("ordering_sequence_header", "seq")
    answer = ui.answer_of_the_form()
    assert answer["status"] == 200, answer
    return Run(stack.airflow, DAG_ID, answer["body"]["dag_run_id"])


def report_in_browser(ui: Ui, run: Run) -> None:
    """The last task links to the report, which opens in the browser and says that it is proven."""
    ui.open_run(DAG_ID, run.run_id, "verify.report/details")
    link = ui.page.get_by_role("link", name="Evidence")
    expect(link).to_be_visible()
    link.click()
    expect(ui.page).to_have_url(re.compile(r"/topicshift/evidence/orders-[^/]+/report\.html$"))
    expect(ui.page.locator("body")).to_contain_text("orders-v2")
    expect(ui.page.locator("body")).to_contain_text(re.compile("proven", re.IGNORECASE))
    url = ui.page.url
    assert httpx.get(url, trust_env=False).status_code == 401, "evidence is for those who are logged in"
    assert ui.page.request.get(url.replace("report.html", "no.html")).status == 404
    assert ui.page.request.get(url.replace("report.html", "..%2f..%2f..%2fpasswords.json")).status == 404
