"""`topicshift status --watch`: the same snapshot, again and again, with the time at which it was true."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest
from rich.console import Console
from tests.unit.cli.parts import claimed

from topicshift.adapters.journal import SqlJournal
from topicshift.adapters.journal.overview import Overview
from topicshift.commands import status_view
from topicshift.core.errors import Unreadable
from topicshift.ports import Claim


@pytest.fixture
def migration(journal: SqlJournal) -> tuple[SqlJournal, Claim]:
    return journal, claimed(journal)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a terminal would get."""
    out = io.StringIO()
    monkeypatch.setattr(status_view, "console", lambda: Console(file=out, force_terminal=True, width=120))
    return out


def naps(monkeypatch: pytest.MonkeyPatch, *between: Any) -> None:
    """Each is called in place of one pause; then somebody presses Ctrl-C."""
    left = list(between)

    def sleep(_: float) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop(0)()

    monkeypatch.setattr(status_view, "time", type("Time", (), {"sleep": staticmethod(sleep), "time": time.time}))


def test_it_shows_what_has_changed_until_ctrl_c(
    migration: tuple[SqlJournal, Claim], screen: io.StringIO, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, claim = migration

    def asks() -> None:
        assert "as of " in screen.getvalue() and "Move payments?" not in screen.getvalue()
        journal.intend(claim, "ask:approve.plan", {"about": {}, "subject": "Move payments?"})

    naps(monkeypatch, asks)
    assert run("status", "--watch")[0] == 0
    last = screen.getvalue().split("as of ")[-1]
    assert "Move payments?" in last and "Ctrl-C ends" in last


def test_what_cannot_be_read_keeps_the_last_picture_and_says_so(
    migration: tuple[SqlJournal, Claim], screen: io.StringIO, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies() -> None:
        def unreadable(*_: Any, **__: Any) -> None:
            raise Unreadable("the journal does not answer")

        monkeypatch.setattr(Overview, "heads", unreadable)

    naps(monkeypatch, dies)
    assert run("status", migration[1].migration_id, "--watch")[0] == 0
    last = screen.getvalue().split("as of ")[-1]
    assert "not read since: the journal does not answer" in last and "payments-v2" in last


@pytest.mark.parametrize("height", [12, 60])
def test_what_a_low_terminal_cannot_show_is_counted(
    height: int, migration: tuple[SqlJournal, Claim], run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    screen = Console(file=out, force_terminal=True, width=80, height=height)
    monkeypatch.setattr(status_view, "console", lambda: screen)
    naps(monkeypatch)
    assert run("status", migration[1].migration_id, "--watch")[0] == 0
    last = out.getvalue().split("as of ")[-1]
    assert ("more lines: a higher terminal shows them" in last) is (height == 12)
    assert ("last event" in last) is (height == 60)
    assert last.count("\n") <= height


@pytest.mark.parametrize(("more", "said"), [((), "needs a terminal"), (("--json",), "--json for a script")])
def test_without_a_terminal_it_is_refused(
    more: tuple[str, ...], said: str, migration: tuple[SqlJournal, Claim], run: Any
) -> None:
    code, out, err = run("status", "--watch", *more)
    assert code == 2 and said in out + err
