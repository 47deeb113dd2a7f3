"""The example of docs/notifications.md, against a real mail server, a real web hook and a real journal."""

from __future__ import annotations

import asyncore
import html
import json
import os
import smtpd
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.test_notifiers import Hook, connect
from tests.unit.world import SOURCE, World

from lab.airflow_api import wait_until
from topicshift.adapters.journal import SqlJournal
from topicshift.core.engine.freeze import Freeze
from topicshift.core.engine.words import Ask, Row, Step, StepState
from topicshift.core.errors import DrainTimedOut
from topicshift.core.notices import NOTICE, Told
from topicshift.core.rows import Claim
from topicshift_airflow.notices import tell_untold

ROOT = Path(__file__).resolve().parents[2]
SPEC = {
    "source": "payments",
    "target": "payments-v2",
    "partitions": 6,
    "freeze_budget": 120.0,
    "producers": [{"name": "checkout"}],
    "consumers": [{"name": "ledger", "group": "ledger"}],
}


class MailServer(smtpd.SMTPServer):
    """An SMTP server on a free port, and the mails that it took."""

    def __init__(self) -> None:
        self.map: dict[int, Any] = {}
        super().__init__(("127.0.0.1", 0), None, map=self.map)
        self.mails: list[tuple[list[str], EmailMessage]] = []
        self.running = True
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    @property
    def port(self) -> int:
        assert self.socket is not None
        return int(self.socket.getsockname()[1])

    def _serve(self) -> None:
        while self.running:
            asyncore.loop(timeout=0.05, map=self.map, count=1)

    def process_message(self, peer: Any, mailfrom: str, rcpttos: list[str], data: Any, **_: Any) -> None:
        self.mails.append((rcpttos, cast(EmailMessage, message_from_bytes(data, policy=policy.default))))

    def stop(self) -> None:
        self.running = False
        self.thread.join(5)
        asyncore.close_all(self.map)


@pytest.fixture
def mail(monkeypatch: pytest.MonkeyPatch) -> Iterator[MailServer]:
    server = MailServer()
    extra = {"disable_ssl": True, "disable_tls": True, "timeout": 2, "retry_limit": 1}
    value = {"conn_type": "smtp", "host": "127.0.0.1", "port": server.port, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(value))
    page = (ROOT / "docs" / "notifications.md").read_text("utf-8")
    monkeypatch.setenv("AIRFLOW_VAR_TOPICSHIFT_NOTIFIERS", page.split("```json\n")[1].split("```")[0])
    yield server
    server.stop()


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    with Hook() as running:
        connect(monkeypatch, running)
        yield running
        running.shutdown()


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqlJournal]:
    made = SqlJournal(f"sqlite:///{tmp_path / 'journal.db'}")
    yield made
    made.close()


def opened(journal: SqlJournal) -> Claim:
    """A migration in the journal."""
    return journal.claim(
        cluster_id="c",
        source="payments",
        target="payments-v2",
        owner="dag/run-1",
        spec=SPEC,
        owner_alive=lambda _: True,
    )


def test_the_example_of_the_page_sends_mails_and_posts(journal: SqlJournal, mail: MailServer, hook: Hook) -> None:
    claim = opened(journal)
    now, budget = datetime.now(UTC), SPEC["freeze_budget"]
    at = now.isoformat()
    journal.intend(claim, "ask:approve.plan", {"about": {}, "subject": "Move <payments>? [1234]", "asked_at": at})
    freeze = Freeze.begin(now, timedelta(seconds=cast(float, budget)))
    journal.intend(claim, Row.FREEZE, {**freeze.to_data(), "attempt": 1})
    told = tell_untold(journal, claim.migration_id, datetime.now(UTC))
    assert {n.kind.value for n in told} == {"person_wanted", "freeze_begun"}
    ended = {"ended_at": datetime.now(UTC).isoformat(), "why": "the budget is over", "start_by_hand": ["legacy"]}
    journal.finish(claim, Row.FREEZE, ended, state=StepState.UNDONE.value)
    tell_untold(journal, claim.migration_id, datetime.now(UTC))
    assert tell_untold(journal, claim.migration_id, datetime.now(UTC)) == [], "each of them once"
    until = time.monotonic() + 10
    while len(mail.mails) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    wanted, resumed = mail.mails
    assert [m[1]["Subject"] for m in (wanted, resumed)] == [
        "payments: a person has to answer",
        "payments: producers are back on the source",
    ], "the page's mail is kept to what somebody has to do"
    assert wanted[0] == ["oncall@example.com"]
    body = wanted[1].get_body(("html",))
    assert body is not None and "Move &lt;payments&gt;? [1234]" in body.get_content()
    assert [post[2]["alarm"]["code"] for post in hook.posts] == ["person_wanted", "freeze_begun", "producers_resumed"]
    assert "START BY HAND on payments: legacy" in hook.posts[-1][2]["text"]
    states = [e.data["state"] for e in journal.events(claim.migration_id, (NOTICE,))]
    assert states == ["telling", "told"] * 3
    assert all(e.data.get("not_told") is None for e in journal.events(claim.migration_id, (NOTICE,)))


def test_the_end_of_a_freeze_and_a_retirement_that_is_due_reach_both_servers(
    journal: SqlJournal, mail: MailServer, hook: Hook
) -> None:
    claim = opened(journal)
    now = datetime.now(UTC)
    freeze = Freeze.begin(now, timedelta(seconds=120))
    journal.intend(claim, Row.FREEZE, {**freeze.to_data(), "attempt": 1})
    journal.finish(claim, Row.FREEZE, {"ended_at": (now + timedelta(seconds=2)).isoformat()})
    asked = {"about": {}, "subject": "Delete payments? [1234]", "asked_at": (now + timedelta(seconds=3)).isoformat()}
    journal.intend(claim, f"{Row.QUESTION}:{Ask.RETIRE}", asked)
    began, until = now + timedelta(seconds=4), now + timedelta(hours=1)
    journal.intend(claim, Row.SCREAM_TEST, {"began_at": began.isoformat(), "until": until.isoformat()})
    tell_untold(journal, claim.migration_id, now + timedelta(seconds=5))
    posted = [(post[2]["alarm"]["code"], post[2]["text"]) for post in hook.posts]
    assert [code for code, _ in posted] == ["freeze_begun", "freeze_ended", "retirement_due", "retirement_due"]
    assert "Producers write to payments-v2 after 2.0 s" in posted[1][1]
    wait_until(lambda: len(mail.mails) == 2, 10, "both mails")
    assert [m[1]["Subject"] for m in mail.mails] == [
        "payments: a person has to answer",
        "payments: the scream test runs",
    ], "a freeze that ended well wakes nobody by mail"


def test_every_event_of_a_migration_is_mailed_and_posted(
    mail: MailServer, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first question to the deletion of the source, and a run whose freeze lasts too long and ends on it."""
    (row,) = json.loads(os.environ["AIRFLOW_VAR_TOPICSHIFT_NOTIFIERS"])
    monkeypatch.setenv("AIRFLOW_VAR_TOPICSHIFT_NOTIFIERS", json.dumps([{**row, "only": list(Told)}]))
    asked = {"plan": "required", "freeze": "auto", "retire": "required"}

    def tell(w: World) -> None:
        tell_untold(w.journal, w.claim.migration_id, w.clock.now())

    well = World(approvals=asked)
    asking = well.asks()
    well.show(asking)
    tell(well)
    well.answer_late(asking)
    well.advance(until=Step.STOP_PRODUCERS)
    tell(well)
    well.advanced()
    tell(well)
    well.clock.advance(8 * 86_400)
    asking = well.asks(wanted="retire")
    well.show(asking)
    tell(well)
    well.answer_late(asking)
    well.waits(wanted="retire", patience_s=0)
    tell(well)
    well.clock.advance(3600)
    well.advance(wanted="retire")
    tell(well)
    ill = World(freeze_alarm_after="30s")
    ill.advance(until=Step.STOP_PRODUCERS, leave=frozenset({"gate"}))
    ill.cluster.commit("fraud-g", SOURCE, {0: 9})
    ill.advance(until=Step.STOP_PRODUCERS)
    tell(ill)
    ill.clock.advance(31)
    tell(ill)
    ill.clock.advance(120)
    ctx = ill.context()
    with pytest.raises(DrainTimedOut), ctx.recorded("drain.wait"):
        ill.advance(ctx)
    tell(ill)
    told = [
        *("person_wanted", "freeze_begun", "freeze_ended", "retirement_due", "retirement_due", "source_deleted"),
        *("freeze_begun", "freeze_overlong", "producers_resumed", "run_stands"),
    ]
    alarms = [post[2]["alarm"] for post in hook.posts]
    assert [alarm["code"] for alarm in alarms] == told
    wait_until(lambda: len(mail.mails) == len(told), 20, "every mail")
    for alarm, (to, mailed) in zip(alarms, mail.mails, strict=True):
        body = mailed.get_body(("html",))
        assert (to, mailed["Subject"]) == (["oncall@example.com"], alarm["title"])
        assert body is not None and alarm["text"] in html.unescape(body.get_content())
    assert {*Told} - {*told} == {"source_watched"}


def test_a_mail_server_that_is_down_is_named_and_the_hook_is_told(
    journal: SqlJournal, mail: MailServer, hook: Hook
) -> None:
    mail.stop()
    claim = opened(journal)
    journal.event(claim, "step_failed", "topicshift", {"task": "drain", "error": "Refused", "message": "no"})
    (told,) = tell_untold(journal, claim.migration_id, datetime.now(UTC))
    assert told.kind == "run_stands" and len(hook.posts) == 1
    (event,) = [e for e in journal.events(claim.migration_id, (NOTICE,)) if e.data["state"] == "told"]
    assert event.data["told"] == ["WebhookNotifier(topicshift_alarms)"]
    assert len(event.data["not_told"]) == 1 and event.data["not_told"][0].startswith("SmtpNotifier: ")
