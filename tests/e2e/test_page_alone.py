"""The pages in a real browser without the stack: what a person may begin, what is downloaded, and who can use them.

With ``TOPICSHIFT_PICTURES`` set to a folder, the pictures of the docs are written there (``make screenshots``).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from markdown_it import MarkdownIt
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright
from tests.e2e.page_server import Served, served
from tests.e2e.ui import QUIET, browser_binary

from topicshift.core.sizing.sizing import MOST

pytestmark = [pytest.mark.e2e]

WIDE, NARROW = (1400, 1000), (390, 844)
LOOKS = [(theme, size) for theme in ("light", "dark") for size in (WIDE, NARROW)]
GRAVE = {"serious", "critical"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("pages")) as found:
        yield found


@pytest.fixture(scope="module")
def browser(site: Served) -> Iterator[Browser]:
    """After the site: Playwright's own event loop bears no other one beside it, and the journal is made with one."""
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser_binary(playwright), args=list(QUIET))
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser, site: Served) -> Iterator[Page]:
    """A page for ``on-call``; what the browser complains about fails the test."""
    site.user, site.paused, errors = "on-call", False, list[str]()
    site.state, site.looked = "success", {}
    site.asked.clear()
    context = browser.new_context(viewport={"width": WIDE[0], "height": WIDE[1]}, accept_downloads=True)
    made = context.new_page()
    made.set_default_timeout(15_000)
    made.on("pageerror", lambda error: errors.append(str(error)))
    made.on("console", lambda said: errors.append(f"{said.text} {said.location}") if said.type == "error" else None)
    yield made
    context.close()
    # The browser asks for a favicon by itself; refusals, and a server in need, are what tests are about.
    assert [e for e in errors if not re.search(r"/favicon\.ico|403|502|xcomEntries|nope-123", e)] == []


def opened(page: Page, site: Served, path: str) -> Page:
    page.goto(f"{site.url}/topicshift/{path}", wait_until="domcontentloaded")
    return page


def dialog(page: Page, label: str) -> Locator:
    page.get_by_role("button", name=label, exact=True).click()
    found = page.locator("dialog[open]")
    expect(found).to_contain_text(re.compile("What will happen|It would be refused now"))
    return found


# --------------------------------------------------------------------------------------------- before the first run


def test_a_draft_begins_a_migration_with_its_values(page: Page, site: Served) -> None:
    opened(page, site, "")
    page.get_by_role("link", name="Start a migration").click()
    found = dialog(page, "Migrate clicks")
    expect(found).to_contain_text("before any producer is stopped")
    assert site.asked == [], "a dialog asks; it does nothing"
    found.get_by_label("Partitions of the target").fill("24")
    found.get_by_role("button", name="Begin").click()
    expect(found.locator(".said")).to_contain_text("A run of topic_migration has begun")
    expect(found.get_by_role("link", name="Its run in Airflow")).to_have_attribute(
        "href", "/dags/topic_migration/runs/manual__1"
    )
    ((dag, conf),) = site.asked
    assert (dag, conf["source"], conf["partitions"]) == ("topic_migration", "clicks", 24)
    assert [p["name"] for p in conf["producers"]] == ["checkout"] and conf["consumers"][0]["group"] == "ledger"
    expect(found.get_by_role("button", name="Begin")).to_be_disabled()
    expect(found.get_by_role("link", name="Its migration")).to_have_attribute(
        "href", "run?dag_id=topic_migration&run_id=manual__1"
    )


def migrated(page: Page, site: Served) -> Locator:
    """A migration is begun from the draft of clicks; what *Start* says of it since."""
    found = dialog(opened(page, site, "start"), "Migrate clicks")
    found.get_by_role("button", name="Begin").click()
    found.get_by_role("button", name="Close").click()
    return page.locator("#begun")


def test_a_migration_that_was_refused_says_so_where_it_was_begun_and_on_the_tab_of_its_run(
    page: Page, site: Served
) -> None:
    site.state, site.looked = "failed", {"plan.read_spec/said": {"cannot": "clicks is held by x.", "again": False}}
    begun = migrated(page, site)
    expect(begun).to_contain_text("The migration of clicks was refused: clicks is held by x.")
    begun.get_by_role("link", name="Its migration").click()
    expect(page.locator("#main")).to_contain_text("It was refused: clicks is held by x.")
    opened(page, site, "start")
    begun.get_by_role("button", name="Dismiss").click()
    expect(begun).to_be_empty()


def test_a_migration_that_was_begun_leads_to_its_page(page: Page, site: Served) -> None:
    site.state, site.looked = "running", {"plan.read_spec/migration": {"id": site.ids["frozen"]}}
    begun = migrated(page, site)
    expect(begun).to_contain_text("The migration of clicks goes on: its page says how far it is.")
    begun.get_by_role("link", name="Its migration").click()
    expect(page).to_have_url(f"{site.url}/topicshift/migrations/{site.ids['frozen']}")


def test_a_spark_job_says_how_far_it_is_on_the_page_of_its_migration(page: Page, site: Served) -> None:
    site.looked = {"verify.order_proof/progress": "reading both topics: 40 s, 3 of 12 tasks of count"}
    opened(page, site, f"migrations/{site.ids['proving']}")
    expect(page.locator(".now")).to_contain_text("Spark: reading both topics: 40 s, 3 of 12 tasks of count")
    site.looked = {"verify.order_proof/progress": "reading both topics: 50 s, 9 of 12 tasks of count"}
    expect(page.locator(".now")).to_contain_text("50 s, 9 of 12")


def test_an_address_without_a_migration_is_a_page_that_leads_to_the_list(page: Page, site: Served) -> None:
    opened(page, site, "migrations/nope-123")
    expect(page.get_by_role("heading")).to_have_text("Nothing is shown here")
    assert findings(page) == []
    page.get_by_role("link", name="All migrations").click()
    expect(page).to_have_url(f"{site.url}/topicshift/")


def test_an_order_that_is_refused_now_cannot_be_given(page: Page, site: Served) -> None:
    found = dialog(opened(page, site, f"migrations/{site.ids['frozen']}"), "Close the migration")
    give = found.get_by_role("button", name="Close the migration")
    expect(give).to_be_disabled()
    expect(found).not_to_contain_text("What will happen")
    found.get_by_role("button", name="Look first").click()
    expect(give).to_be_enabled()  # the cluster says that it can be done after all


@pytest.mark.parametrize("how", ["Escape", "Do nothing"])
def test_a_page_is_refreshed_when_a_dialog_over_it_is_closed(page: Page, site: Served, how: str) -> None:
    found = dialog(opened(page, site, f"migrations/{site.ids['asking']}"), "Pause")
    with page.expect_response(re.compile("/migrations/")) as answered:
        if how == "Escape":
            page.keyboard.press("Escape")
        else:
            found.get_by_role("button", name=how).click()
    assert answered.value.ok


def test_the_other_order_of_the_cut_over_is_its_own_dag_and_a_paused_one_says_so(page: Page, site: Served) -> None:
    site.paused = True
    found = dialog(opened(page, site, "start"), "Migrate clicks")
    found.get_by_label("Order of the cut-over").select_option("producers first")
    found.get_by_role("button", name="Begin").click()
    expect(found.locator(".said")).to_contain_text("topic_migration_producers_first is paused, so the run waits")
    assert [dag for dag, _ in site.asked] == ["topic_migration_producers_first"]


@pytest.mark.parametrize("count", ["0", "-3", "1000000000000", "2.5", ""])
def test_a_count_that_no_topic_can_have_is_refused_in_words_and_not_sent(page: Page, site: Served, count: str) -> None:
    found = dialog(opened(page, site, "start"), "Migrate clicks")
    field, begin = found.get_by_label("Partitions of the target"), found.get_by_role("button", name="Begin")
    field.fill(count)
    begin.click()
    said = f"{count or 'This'} is no count of partitions. Write a whole number from 1 to {MOST:,}. Nothing was begun."
    expect(found.locator(".said")).to_have_text(said)
    expect(field).to_be_focused()
    assert site.asked == [] and field.input_value() == count, "what was typed stays as it was typed"
    field.fill("24")
    expect(found.locator(".said")).to_be_empty()
    begin.click()
    expect(found.locator(".said")).to_contain_text("A run of topic_migration has begun")
    assert site.asked[0][1]["partitions"] == 24


def test_a_topic_is_looked_at_by_its_name_alone(page: Page, site: Served) -> None:
    opened(page, site, "start")
    page.get_by_label("Topic", exact=True).fill("  invoices ")
    found = dialog(page, "Look")
    expect(found.get_by_role("heading")).to_have_text("Look at invoices")
    found.get_by_role("button", name="Look").click()
    expect(found.locator(".said")).to_contain_text("A run of topic_assessment has begun")
    assert site.asked == [("topic_assessment", {"source": "invoices", "kafka_conn_id": "kafka_default"})]
    found.get_by_role("button", name="Close").click()
    expect(page.get_by_label("Topic", exact=True)).to_have_value("")


def test_a_look_says_how_far_it_is_and_why_it_failed(page: Page, site: Served) -> None:
    opened(page, site, "start")
    site.state = "running"
    page.get_by_label("Topic", exact=True).fill("no-such")
    found = dialog(page, "Look")
    found.get_by_role("button", name="Look").click()
    looks = page.locator("#looks")
    expect(looks).to_contain_text("The look at no-such is running")
    found.get_by_role("button", name="Close").click()
    site.looked = {"check/said": {"cannot": "Topic 'no-such' does not exist on this cluster.", "again": False}}
    site.state = "failed"
    said = "The look at no-such failed: Topic 'no-such' does not exist on this cluster. Mend that, then look again."
    expect(looks).to_contain_text(said)
    expect(looks.get_by_role("link", name="Its run in Airflow")).to_be_visible()
    page.reload()
    expect(looks).to_contain_text(said)
    looks.get_by_role("button", name="Dismiss").click()
    expect(looks).to_be_empty()


@pytest.mark.parametrize(
    ("state", "report", "text"),
    [
        ("success", None, "The look at clicks is done: its draft is below."),
        ("failed", {"ok": False, "blocking": ["TS103 error"]}, "A migration by it would be refused: TS103 error"),
    ],
)
def test_a_look_that_leaves_a_draft_says_so(page: Page, site: Served, state: str, report: Any, text: str) -> None:
    site.state, site.looked = state, {"report/return_value": report} if report else {}
    opened(page, site, "start")
    page.get_by_label("Topic", exact=True).fill("clicks")
    dialog(page, "Look").get_by_role("button", name="Look").click()
    expect(page.locator("#looks")).to_contain_text(text)


def test_a_look_without_a_topic_opens_no_dialog(page: Page, site: Served) -> None:
    opened(page, site, "start")
    page.get_by_role("button", name="Look", exact=True).click()
    expect(page.get_by_role("alert")).to_have_text("Name the topic first.")
    expect(page.get_by_label("Topic", exact=True)).to_be_focused()
    assert page.locator("dialog[open]").count() == 0
    page.get_by_label("Topic", exact=True).fill("x")
    expect(page.get_by_text("Name the topic first.")).to_be_hidden()


def test_who_may_not_trigger_is_offered_nothing_and_airflow_refuses_what_is_forged(page: Page, site: Served) -> None:
    opened(page, site, "start")
    dialog(page, "Migrate clicks")
    site.user = "viewer"  # the right was taken away while the dialog was open
    page.locator("dialog[open]").get_by_role("button", name="Begin").click()
    expect(page.locator("dialog[open] .said")).to_contain_text("Airflow does not let you do this")
    opened(page, site, "start")
    for label in ("Migrate clicks", "Look"):
        expect(page.get_by_role("button", name=label, exact=True)).to_be_disabled()
    assert page.locator("dialog").count() == 0 and site.asked == []


def test_an_order_is_given_to_a_migration_that_is_chosen_from_the_list(page: Page, site: Served) -> None:
    opened(page, site, "start")
    page.get_by_role("link", name="Choose an order for orders").click()
    expect(page).to_have_url(f"{site.url}/topicshift/migrations/{site.ids['asking']}#orders")
    found = dialog(page, "Pause")
    found.get_by_role("button", name="Pause").click()
    expect(found.locator(".said")).to_contain_text("Done: pause: as ordered")
    ((dag, conf),) = site.asked
    assert (dag, conf["migration"], conf["order"]) == ("topic_control", site.ids["asking"], "pause")


def test_late_records_are_replayed_by_name_from_the_page(page: Page, site: Served) -> None:
    found = dialog(opened(page, site, f"migrations/{site.ids['late']}"), "Replay late records")
    expect(found).to_contain_text("2 records that came to invoices too late for ledger-g go to invoices-v2")
    expect(found).to_contain_text("invoices[1] offset 10")
    found.get_by_role("button", name="Look first").click()
    expect(found.locator(".said")).to_contain_text("What would happen now, by what the cluster shows:nothing new")
    found.get_by_label("Only these").fill("1:11")
    found.get_by_label("Why").fill("a payment")
    found.get_by_role("button", name="Replay late records").click()
    expect(found.locator(".said")).to_contain_text("Done: replay: as ordered")
    (_, looked), (dag, given) = site.asked
    assert dag == "topic_control" and {**given, "only_say": True, "records": "", "reason": ""} == looked
    assert (given["migration"], given["order"], given["records"]) == (site.ids["late"], "replay", "1:11")
    assert (given["reason"], given["only_say"]) == ("a payment", False)


def test_a_migration_is_closed_from_the_page_and_what_is_left_is_said(page: Page, site: Served) -> None:
    found = dialog(opened(page, site, f"migrations/{site.ids['asking']}"), "Close the migration")
    expect(found).to_contain_text("it ends as failed, moves nobody, and both topics are free")
    found.get_by_label("Why").fill("not today")
    found.locator("[type=submit]").click()
    expect(found.locator(".said")).to_contain_text("Done: close: as ordered")
    expect(found.locator(".said")).to_contain_text("Left to do by hand: topic orders-v2 was made for this migration")
    ((dag, conf),) = site.asked
    assert (dag, conf["order"], conf["reason"]) == ("topic_control", "close", "not today") and "records" not in conf


def test_abort_and_close_look_different_and_say_what_sets_them_apart(page: Page, site: Served) -> None:
    opened(page, site, f"migrations/{site.ids['asking']}")
    expect(page.get_by_text("Close puts nothing back: it frees both topics")).to_be_visible()
    look = "button => getComputedStyle(button).borderStyle + getComputedStyle(button).color"
    found = [page.get_by_role("button", name=n, exact=True).evaluate(look) for n in ("Abort", "Close the migration")]
    assert len(set(found)) == 2


def test_an_order_that_failed_is_not_said_to_be_done(page: Page, site: Served) -> None:
    site.state = "failed"
    found = dialog(opened(page, site, f"migrations/{site.ids['asking']}"), "Pause")
    found.get_by_role("button", name="Pause", exact=True).click()
    expect(found.locator(".said")).to_contain_text("What was to be done:nothing newIt failed")


@pytest.mark.parametrize(
    ("which", "label"), [("asking", "Abort"), ("asking", "Close the migration"), ("done", "Roll back")]
)
def test_who_ends_or_rolls_back_says_why(page: Page, site: Served, which: str, label: str) -> None:
    found = dialog(opened(page, site, f"migrations/{site.ids[which]}"), label)
    act = found.get_by_role("button", name=label, exact=True)
    act.click()
    expect(found.locator(".said")).to_have_text("Say why first, for whoever reads the audit trail. Nothing was done.")
    expect(found.get_by_label("Why")).to_be_focused()
    assert site.asked == []
    found.get_by_label("Why").fill("only trying")
    act.click()
    expect(found.get_by_role("link", name="Its run in Airflow")).to_be_visible()
    assert site.asked[0][1]["reason"] == "only trying"


def test_roll_back_names_its_type_and_can_be_looked_at_first(page: Page, site: Served) -> None:
    found = dialog(opened(page, site, f"migrations/{site.ids['done']}"), "Roll back")
    expect(found).to_contain_text(re.compile(r"(free|drain_back|forward_only), as the engine saw the cluster last"))
    found.get_by_role("button", name="Look first").click()
    expect(found.locator(".said")).to_contain_text("by what the cluster shows:drain_back: the target holds records")
    ((dag, conf),) = site.asked
    assert (dag, conf["only_say"]) == ("topic_rollback", True)


def test_a_freeze_is_postponed_to_the_time_that_a_person_gives(page: Page, site: Served) -> None:
    found = dialog(opened(page, site, f"migrations/{site.ids['asking']}"), "Postpone")
    expect(found).to_contain_text("the freeze does not begin before the time that you give")
    found.get_by_label("Not before").fill("2030-01-02T03:04")
    found.locator("[type=submit]").click()
    expect(found.locator(".said")).to_contain_text("Done: postpone: as ordered")
    ((_, conf),) = site.asked
    wanted = page.evaluate("new Date('2030-01-02T03:04').toISOString()")
    assert (conf["order"], conf["until"]) == ("postpone", wanted), "the browser's own time, with its zone"


# ------------------------------------------------------------------------------------------------------- staleness


def test_a_page_that_is_not_refreshed_says_since_when(page: Page, site: Served) -> None:
    opened(page, site, f"migrations/{site.ids['frozen']}")
    as_of = page.locator(".asof time").inner_text()
    expect(page.locator(".asof time")).not_to_have_text(as_of)  # it refreshes by itself
    page.route("**/topicshift/**", lambda route: route.fulfill(status=502, body="the journal cannot be read"))
    expect(page.locator(".stale")).to_have_text("Not refreshed since then: the server answers 502")
    kept = page.locator(".asof time").inner_text()
    clock = page.locator(".freeze b").first
    before = clock.inner_text()
    expect(clock).not_to_have_text(before)
    assert page.locator(".asof time").inner_text() == kept, "the clock runs on; what was seen keeps its time"
    page.unroute("**/topicshift/**")
    expect(page.locator(".stale")).to_be_hidden()
    expect(page.locator(".asof time")).not_to_have_text(kept)


# ------------------------------------------------------------------------------------------------- evidence, on paper


def test_each_file_of_evidence_is_opened_or_downloaded(page: Page, site: Served, tmp_path: Path) -> None:
    opened(page, site, f"migrations/{site.ids['done']}")
    page.locator("details[data-key=evidence] summary").click()
    files = page.locator("details[data-key=evidence] li")
    plan = files.filter(has=page.get_by_role("link", name="plan.json", exact=True))
    with page.expect_download() as caught:
        plan.get_by_role("link", name="download").click()
    caught.value.save_as(tmp_path / "plan.json")
    assert caught.value.suggested_filename == "plan.json"
    assert json.loads((tmp_path / "plan.json").read_text())["source"]["name"] == "refunds"
    plan.get_by_role("link", name="plan.json", exact=True).click()
    expect(page).to_have_url(f"{site.url}/topicshift/evidence/{site.ids['done']}/plan.json")
    expect(page.locator("body")).to_contain_text("refunds-v2")


def test_a_report_is_whole_on_paper(page: Page, site: Served) -> None:
    """What is folded on a screen is printed, and nothing is wider than the sheet (A4 at 96 dots an inch)."""
    page.set_viewport_size({"width": 794, "height": 1123})
    opened(page, site, f"evidence/{site.ids['done']}/report.html")
    folded = (
        "[...document.querySelectorAll('details:not([open]) > :not(summary)')].filter(e => !e.checkVisibility()).length"
    )
    assert page.evaluate(folded) > 0, "on a screen something is folded"
    page.emulate_media(media="print")
    assert page.evaluate(folded) == 0
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.pdf(format="A4")[:5] == b"%PDF-"


# ------------------------------------------------------------------------------------------------- the audit bundle


def test_the_audit_bundle_is_downloaded_and_verified_by_the_command(page: Page, site: Served, tmp_path: Path) -> None:
    opened(page, site, f"migrations/{site.ids['done']}")
    page.locator("details[data-key=trail] summary").click()
    with page.expect_download() as caught:
        page.get_by_role("link", name="Download the audit bundle").click()
    assert caught.value.suggested_filename == f"{site.ids['done']}-audit.zip"
    file = tmp_path / "audit.zip"
    caught.value.save_as(file)
    command = [sys.executable, "-m", "topicshift.cli", "audit", "verify", str(file)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert "intact" in done.stdout and "BROKEN" not in done.stdout, done.stdout + done.stderr
    assert done.returncode in (0, 4), "4: evidence of Spark jobs is not there in this world, and it says so"


# ------------------------------------------------------------------------------------------------- texts of questions


@pytest.mark.parametrize("ask", ["plan", "go", "late"])
def test_what_a_person_is_asked_fits_a_phone(page: Page, site: Served, ask: str) -> None:
    """The text as Airflow shows it (Markdown with tables), 390 dots wide: nothing has to be scrolled sideways."""
    question = site.questions[ask]
    text = MarkdownIt("commonmark").enable("table").render(question.body)
    page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    page.set_content(f"<style>body{{margin:16px;font:16px sans-serif}}</style><h4>{question.subject}</h4>{text}")
    assert "undefined" not in text and len(question.body) > 300
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW[0], question.body
    assert page.locator("body").bounding_box()["height"] < 4 * NARROW[1], "more than four screens"  # type: ignore[index]


# ---------------------------------------------------------------------------------------------------- accessibility


def paths(site: Served) -> dict[str, str]:
    ids = site.ids
    evidence = f"evidence/{ids['frozen']}"
    return {
        "list": "",
        "start": "start",
        "freeze": f"migrations/{ids['frozen']}",
        "question": f"migrations/{ids['asking']}",
        "late": f"migrations/{ids['late']}",
        "done": f"migrations/{ids['done']}",
        "unknown": f"migrations/{ids['unknown']}",
        "files": f"{evidence}/",
        "impact": f"{evidence}/impact.html",
        "report": f"evidence/{ids['done']}/report.html",
        "index": "evidence/",
    }


PLACES = ("list", "start", "freeze", "question", "late", "done", "unknown", "files", "impact", "report", "index")


def findings(page: Page) -> list[dict[str, Any]]:
    """What axe finds that is serious or critical, with where."""
    found = Axe().run(page).response["violations"]
    return [
        {
            "rule": v["id"],
            "says": v["help"],
            "where": [(n["target"], n["html"][:160], n["failureSummary"]) for n in v["nodes"]][:4],
        }
        for v in found
        if v["impact"] in GRAVE
    ]


def looked_at(page: Page, site: Served, place: str, theme: str, size: tuple[int, int]) -> Page:
    """A place in one look; reports of evidence follow the system's colours, pages Airflow's."""
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    opened(page, site, paths(site)[place])
    page.locator("h1").first.wait_for()
    return page


@pytest.mark.parametrize("place", PLACES)
def test_everybody_can_use_the_pages(page: Page, site: Served, place: str) -> None:
    for theme, size in LOOKS:
        looked_at(page, site, place, theme, size)
        page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
        assert findings(page) == [], (place, theme, size)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), f"{place} is too wide"


PICTURES: list[tuple[str, str, str, tuple[int, int]]] = [
    (f"{name}{'-dark' * (theme == 'dark')}{'-phone' * (size == NARROW)}.png", place, theme, size)
    for name, place in (("page-list", "list"), ("page-start", "start"), ("page-freeze", "freeze"), ("report", "report"))
    for theme, size in (("light", WIDE), ("dark", WIDE), ("light", NARROW))
]


@pytest.mark.parametrize(("name", "place", "theme", "size"), PICTURES, ids=[p[0] for p in PICTURES])
def test_pictures(
    page: Page, site: Served, pictures: Path, name: str, place: str, theme: str, size: tuple[int, int]
) -> None:
    """What the docs show is what a browser shows now."""
    looked_at(page, site, place, theme, size)
    page.screenshot(path=pictures / name, full_page=size == WIDE and place != "report")
    assert (pictures / name).stat().st_size > 10_000, "an empty picture"


@pytest.mark.parametrize(
    ("name", "theme", "size"),
    [
        ("page-order.png", "light", WIDE),
        ("page-order-dark.png", "dark", WIDE),
        ("page-order-phone.png", "light", NARROW),
    ],
)
def test_pictures_of_an_order(
    page: Page, site: Served, pictures: Path, name: str, theme: str, size: tuple[int, int]
) -> None:
    looked_at(page, site, "late", theme, size)
    found = dialog(page, "Replay late records")
    expect(found.get_by_role("button", name="Do nothing")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.screenshot(path=pictures / name)
    assert (pictures / name).stat().st_size > 10_000, "an empty picture"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_use_the_dialogs_of_orders(page: Page, site: Served, theme: str) -> None:
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    ids = site.ids
    for path, labels in (
        (f"migrations/{ids['frozen']}", ("Pause", "End the freeze", "Abort", "Roll back", "Close the migration")),
        (f"migrations/{ids['late']}", ("Replay late records", "Close the migration")),
        ("start", ("Look", "Migrate clicks")),
    ):
        opened(page, site, path)
        for label in labels:
            if label == "Look":
                page.get_by_label("Topic", exact=True).fill("clicks")
            found = dialog(page, label)
            assert findings(page) == [], label
            found.get_by_role("button", name="Do nothing").click()
            expect(page.get_by_role("button", name=label, exact=True)).to_be_focused()
