"""The report of a run that the product has run: written at every ending, with the journal's own figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import pytest
from tests.unit.test_acts_drain_back import moved
from tests.unit.test_evidence_named import _unnamed
from tests.unit.test_run_report import HOSTILE, read
from tests.unit.world import SOURCE, TARGET, World

from topicshift.acts import orders
from topicshift.acts.close import close
from topicshift.acts.finish import fail_unbegun
from topicshift.core.engine.words import Row, Step, mark_of
from topicshift.core.errors import PreflightFailed, Unreadable
from topicshift.reporting.run_report import write_report
from topicshift.reporting.values import seconds_text


class Reported(World):
    """A world in which reports are drawn."""

    report = staticmethod(write_report)

    def raw(self) -> str:
        """The report that the product has left."""
        data = self.evidence.read(self.claim.migration_id, "report.html")
        assert data is not None, "no report was written"
        assert HOSTILE not in data.decode()
        return data.decode()

    def page(self) -> str:
        """The same, as its reader sees it."""
        return read(self.raw())

    def data_of(self, row: str) -> Mapping[str, Any]:
        """Data of a journal row, by its name."""
        step = self.journal.step(self.claim.migration_id, row)
        assert step is not None
        return step.data

    def freeze_s(self, row: str = "freeze") -> float:
        """Seconds of a freeze, by the journal."""
        began, ended = (datetime.fromisoformat(self.data_of(row)[k]) for k in ("started_at", "ended_at"))
        return (ended - began).total_seconds()


def done(w: Reported) -> str:
    w.advanced()
    assert w.state(Row.FREEZE) == "done"
    return "Proven"


def aborted_in_the_freeze(w: Reported) -> str:
    w.cluster.commit("fraud-g", SOURCE, {0: 9})
    w.advance(until=Step.STOP_PRODUCERS)
    w.clock.advance(3)
    orders.abort(w.context(), f"wrong night {HOSTILE}", 10)
    return "Aborted"


def closed(w: Reported) -> str:
    w.advance(until=Step.CREATE_TARGET)
    close(w.context(), f"not today {HOSTILE}")
    return "Closed before the proof"


def resumed(w: Reported) -> str:
    w.cluster.commit("fraud-g", SOURCE, {0: 9})
    w.advance(until=Step.STOP_PRODUCERS)
    w.clock.advance(2)
    orders.resume_on_source(w.context(), 10)
    return "Not finished"


def failed_in_the_plan(w: Reported) -> str:
    w.cluster.create_topic(w.spec.target, 3, 1, {})
    w.write(w.spec.target)
    ctx = w.context()
    with pytest.raises(PreflightFailed), ctx.recorded("plan.check"):
        w.advance(ctx)
    fail_unbegun(ctx, ctx.refresh())
    return "Failed before the proof"


def gone_back(w: Reported) -> str:
    moved(w)
    w.advanced(wanted="rollback")
    return "Rolled back"


ENDINGS = [done, aborted_in_the_freeze, closed, resumed, failed_in_the_plan, gone_back]


@pytest.mark.parametrize("end", ENDINGS)
def test_every_ending_leaves_a_report_with_the_journals_figures(end: Callable[[Reported], str]) -> None:
    w = Reported()
    headline = end(w)
    text, row = w.page(), w.journal.current(w.claim.migration_id)
    assert headline in text and f"{SOURCE} → {TARGET}" in text
    assert f"migration is {row.state}" in text or row.plan_hash is None
    for participant in ("checkout", "billing", "ledger", "fraud", "group ledger-g", "User:billing"):
        assert participant in text
    # The page itself is named in the trail, by one more event.
    events = w.journal.events(row.migration_id)
    assert events[-1].kind == "evidence"
    shown = next(e for e in reversed(events) if f"{e.seq}:{e.hash}" in text)
    assert events[-1].seq - shown.seq <= 3 and f"The hash chain of {shown.seq} events holds" in text
    for name in ("freeze", "back1.freeze"):
        if w.journal.step(row.migration_id, name) is not None:
            assert f"{seconds_text(max(w.freeze_s(name), 0.001))} , from" in text
    assert _unnamed(w) == []


def test_who_said_yes_to_what_is_told_with_the_mark_that_was_shown() -> None:
    w = Reported(approvals={"plan": "required", "freeze": "required"})
    asking = w.asks()
    w.show(asking)
    w.clock.advance(90)
    w.answer_late(asking, "yes", actor=f"user:ada {HOSTILE}")
    w.advanced()
    text = w.page()
    hash_ = w.journal.current(w.claim.migration_id).plan_hash
    assert f"yes accept the plan [{mark_of(asking.about)}]" in text
    assert f"plan hash {hash_}" in text and "1 min 30 s after it was asked" in text
    assert "yes stop the producers, and move (the go)" in text and "freeze at most 10 s" in text
    assert "Shown before the go: at most" in text


def test_where_each_participant_is_follows_the_run() -> None:
    w = Reported()
    moved(w)
    assert w.page().count(f"{TARGET} since") == 4
    w.advanced(wanted="rollback")
    text = w.page()
    assert f"{TARGET} since" not in text and text.count(f"{SOURCE} since") == 4
    assert "The freeze of the way back" in text and "Left to do by hand" in text
    assert f"topic {TARGET} keeps 4 record(s)" in text


def test_a_report_that_cannot_be_kept_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    w = Reported()

    def broken(*_: Any) -> str:
        raise Unreadable("the evidence store is full")

    monkeypatch.setattr(Reported, "report", staticmethod(broken))
    w.advanced()
    assert w.journal.current(w.claim.migration_id).state == "done"
    assert any("report.html" in line and "the evidence store is full" in line for line in w.said)


def test_no_report_is_drawn_while_producers_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    w = Reported()
    seen: list[Any] = []

    def draw(journal: Any, store: Any, migration: str, write: Any) -> str:
        seen.append(w.record().freeze)
        return str(write_report(journal, store, migration, write))

    monkeypatch.setattr(Reported, "report", staticmethod(draw))
    moved(w)
    w.advanced(wanted="rollback")
    assert seen and set(seen) == {None}
