"""Airflow's pages as a person uses them, in a real Chromium."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from playwright.sync_api import Browser, FrameLocator, Locator, Page, Playwright, expect, sync_playwright

from lab.stack import Stack

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""A container has no sandbox; a test talks to loopback and to nobody else."""

PATIENCE_MS = 60_000.0
expect.set_options(timeout=PATIENCE_MS)


def browser_binary(playwright: Playwright) -> str:
    """The system's Chromium, else the one that Playwright fetches for itself (once, into its cache).

    Raises:
        FileNotFoundError: there is none and none can be fetched; says what to install.
    """
    for name in NAMES:
        path = shutil.which(name)
        if path:
            return path
    own = playwright.chromium.executable_path
    if not Path(own).exists():
        command = [sys.executable, "-m", "playwright", "install", "--no-shell", "chromium"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode or not Path(own).exists():
            why = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise FileNotFoundError(
                "There is no Chromium on this machine and Playwright could not fetch its own "
                f"({why[0] if why else 'no reason given'}), so the form cannot be tested in a browser. Install one "
                "(Debian: apt install chromium)."
            )
    return own


@contextmanager
def logged_in(url: str, user: str, password: str) -> Iterator[Ui]:
    """A browser with this user logged in."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_binary(playwright), args=list(QUIET))
        try:
            yield log_in(browser, url, user, password)
        finally:
            browser.close()


@contextmanager
def as_admin(stack: Stack) -> Iterator[Ui]:
    """A browser in which ``admin`` is logged in."""
    with logged_in(stack.services.url, "admin", stack.services.password("admin")) as made:
        yield made


def log_in(browser: Browser, url: str, user: str, password: str) -> Ui:
    """Log this user in, beside whoever else is in the same browser."""
    page = browser.new_context(viewport={"width": 1400, "height": 1000}).new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(url, wait_until="domcontentloaded")
    page.fill("input[name=username]", user)
    page.fill("input[type=password]", password)
    page.keyboard.press("Enter")
    page.wait_for_url(lambda at: "login" not in at)
    return Ui(page, url)


class Ui:
    """One logged-in page.

    Args:
        page: the page.
        url: where Airflow answers.
    """

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url

    # ------------------------------------------------------------------------------------------------ the form

    @property
    def dialog(self) -> Locator:
        """The trigger form."""
        return self.page.get_by_role("dialog")

    def open_form(self, dag_id: str) -> None:
        """Open a DAG's trigger form."""
        self.page.goto(f"{self.url}/dags/{dag_id}", wait_until="domcontentloaded")
        self.page.get_by_role("button", name="Trigger").first.click()
        self.dialog.get_by_test_id("config-form").wait_for()

    def open_section(self, name: str) -> None:
        """Open one of the closed sections; the one that was open closes."""
        header = self.dialog.get_by_test_id("config-form").get_by_role("button", name=name, exact=True)
        header.click()
        expect(header).to_have_attribute("aria-expanded", "true")

    def type_in(self, field: str, value: str) -> None:
        """Type into a field for text or a number that is visible, and leave it."""
        box = self.dialog.locator(f"[name='element_{field}']")
        expect(box).to_be_visible()
        box.fill(value)
        box.press("Tab")

    def choose(self, field: str, option: str) -> None:
        """Choose from a drop-down that is visible."""
        self.dialog.locator(f"#element_{field}").get_by_role("combobox").click()
        self.page.get_by_role("option", name=option, exact=True).click()

    def submit(self) -> None:
        """Press the form's button."""
        self.dialog.get_by_role("button", name="Trigger").click()

    def answer_of_the_form(self) -> Mapping[str, Any]:
        """Press the form's button and return what Airflow answers: ``status`` and ``body``."""
        with self.page.expect_response(lambda r: r.request.method == "POST" and "/dagRuns" in r.url) as caught:
            self.submit()
        return {"status": caught.value.status, "body": caught.value.json()}

    # ------------------------------------------------------------------------------------------------ people

    def open_question(self, dag_id: str, run_id: str, task_id: str, option: str) -> Locator:
        """Open the page of a question that waits for an answer; returns the button of this one."""
        path = f"/dags/{dag_id}/runs/{quote(run_id, safe='')}/tasks/{task_id}/required_actions"
        self.page.goto(self.url + path, wait_until="domcontentloaded")
        button = self.page.get_by_test_id(f"hitl-option-{option}")
        expect(button).to_be_enabled()
        return button

    def answer(self, dag_id: str, run_id: str, task_id: str, option: str) -> str:
        """Answer a question on its page; returns what the page said before."""
        button = self.open_question(dag_id, run_id, task_id, option)
        said = self.page.inner_text("body")
        button.click()
        expect(button).to_be_disabled()
        return said

    def open_run(self, dag_id: str, run_id: str, task_id: str = "") -> None:
        """Open the page of a run, or of a task in it (``task_id/details`` for one of its tabs)."""
        path = f"/dags/{dag_id}/runs/{quote(run_id, safe='')}" + (f"/tasks/{task_id}" if task_id else "")
        self.page.goto(self.url + path, wait_until="domcontentloaded")

    # ------------------------------------------------------------------------------------------- migrations' pages

    def opened(self, path: str) -> Page:
        """A page of the plugin alone, as a link to it opens it."""
        self.page.goto(f"{self.url}/topicshift/{path}", wait_until="domcontentloaded")
        return self.page


def order(page: Page | FrameLocator, label: str) -> Locator:
    """Open the dialog of an order on a migration's page."""
    page.locator(".orders").get_by_role("button", name=label, exact=True).click()
    dialog = page.locator("dialog[open]")
    expect(dialog).to_contain_text("What will happen")
    return dialog


def give(dialog: Locator, reason: str) -> str:
    """Give the order, and wait for what came of it."""
    dialog.locator("input[name=reason]").fill(reason)
    dialog.locator("button[type=submit]").click()
    said = dialog.locator(".said")
    expect(said).to_contain_text(re.compile("Done: |Refused: |It failed"))
    text = said.inner_text()
    dialog.get_by_role("button", name="Close", exact=True).click()
    return text


def run_of(dialog: Locator) -> str:
    """The id of the run that a dialog has begun."""
    link = dialog.get_by_role("link", name="Its run in Airflow")
    return unquote(str(link.get_attribute("href")).rpartition("/")[2])


def verified_bundle(page: Page, migration: str, folder: Path) -> dict[str, Any]:
    """Download the audit bundle on a migration's page; what the command that it names finds, without the journal."""
    with page.expect_download() as caught:
        page.get_by_role("link", name="Download the audit bundle").click()
    assert caught.value.suggested_filename == f"{migration}-audit.zip"
    caught.value.save_as(folder / "audit.zip")
    command = [sys.executable, "-m", "topicshift.cli", "audit", "verify", str(folder / "audit.zip"), "--json"]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    found = json.loads(done.stdout)
    assert (done.returncode, found["broken"], found["missing"]) == (0, [], []), done.stdout + done.stderr
    assert found["migration"] == migration
    return dict(found)
