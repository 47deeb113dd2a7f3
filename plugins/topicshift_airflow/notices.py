"""What people are told of a migration (:mod:`topicshift.core.notices`), through whatever notifiers are configured.

Tasks tell outside of a freeze. While producers stand still the watch in the triggerer does, so that a notifier that
does not answer lengthens no freeze. By the audit trail each notice has one teller.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from topicshift.core.engine.words import Row, StepState
from topicshift.core.errors import TopicshiftError

if TYPE_CHECKING:
    from datetime import datetime

    from topicshift.acts.context import MigrationContext
    from topicshift.core.notices import Notice, Seen
    from topicshift.ports import Journal, MigrationRow

log = logging.getLogger("topicshift")
WAIT_S = 10.0
"""Longest time, in seconds, for which a task waits for its notifiers; the migration goes on then."""


def seen_of(journal: Journal, row: MigrationRow) -> Seen:
    """The migration as notices are made from it."""
    from topicshift.core.engine.view import StepRecord
    from topicshift.core.notices import FAILED, NOTICE, Seen
    from topicshift.core.spec.model import Spec

    spec = Spec.model_validate(dict(row.spec))
    steps = {s.step: StepRecord(StepState(s.state), s.data, s.finished_at) for s in journal.steps(row.migration_id)}
    events = journal.events(row.migration_id, (NOTICE, FAILED))
    return Seen(row.source, row.target, steps, events, spec.freeze_alarm_after or spec.freeze_budget)


def waiting(journal: Journal, row: MigrationRow, now: datetime) -> list[Notice]:
    """What nobody has told yet. Of a rehearsal that is nothing: it stops nobody, and who started it sees its run."""
    from topicshift.core.notices import untold
    from topicshift.core.spec.model import Mode

    return [] if row.spec.get("mode") == Mode.REHEARSE else untold(seen_of(journal, row), now)


@contextmanager
def news_told(ctx: MigrationContext) -> Iterator[None]:
    """At the end of a task, well or not: tell what has happened, unless producers stand still."""
    try:
        yield
    finally:
        _quietly(ctx)


def _quietly(ctx: MigrationContext) -> None:
    try:
        freeze = ctx.journal.step(ctx.row.migration_id, ctx.named(Row.FREEZE))
        if freeze is None or freeze.state not in (StepState.INTENDED, StepState.UNDOING):
            tell_untold(ctx.journal, ctx.row.migration_id, ctx.clock.now(), wait_s=WAIT_S)
    except TopicshiftError as error:
        log.warning("what has happened could not be told to people: %s", error)
    except Exception as error:  # noqa: BLE001 - telling people must not fail a step
        log.warning("what has happened could not be told to people: %s", type(error).__name__)


def tell_untold(journal: Journal, migration_id: str, now: datetime, *, wait_s: float | None = None) -> list[Notice]:
    """Tell everything that nobody has told yet; what was told. ``wait_s`` bounds the time for each notice.

    Raises ``TopicshiftError`` where the journal cannot be read or written.
    """
    from topicshift.core.notices import NOTICE, teller_of
    from topicshift.ports import Claim
    from topicshift_airflow.notifiers import anybody

    row = journal.current(migration_id)
    open_ = waiting(journal, row, now)
    if not open_ or not anybody():
        return []
    told = []
    for notice in open_:
        claim, me = Claim(row.migration_id, row.epoch, row.owner), uuid4().hex
        mark = {"key": notice.key, "kind": notice.kind.value, "by": me}
        journal.event(claim, NOTICE, "topicshift", {**mark, "state": "telling"})
        if teller_of(journal.events(migration_id, (NOTICE,)), notice.key) != me:
            continue
        who, failed = _tell(_message(notice, row), wait_s)
        data = {**mark, "state": "told", "told": who, "text": notice.text}
        journal.event(claim, NOTICE, "topicshift", {**data, "not_told": failed} if failed else data)
        told.append(notice)
    return told


def _message(notice: Notice, row: MigrationRow) -> dict[str, Any]:
    """What notifiers get: the fields of an alarm, and ``id``, ``title`` and ``at``."""
    return {
        "migration": row.migration_id,
        "run": row.owner,
        "topic": row.source,
        "group": "",
        "code": notice.kind.value,
        "lag": None,
        "text": notice.text,
        "title": notice.title,
        "at": notice.at.isoformat(),
        "id": f"{row.migration_id}/{notice.key}",
    }


def _tell(message: Mapping[str, Any], wait_s: float | None) -> tuple[list[str], list[str]]:
    from topicshift_airflow.notifiers import tell

    if wait_s is None:
        return tell(message)
    answers: list[tuple[list[str], list[str]]] = []
    # A daemon: a notifier that hangs must keep neither the task nor its process.
    thread = threading.Thread(target=lambda: answers.append(tell(message)), daemon=True)
    thread.start()
    thread.join(wait_s)
    return answers[0] if answers else ([], [f"no answer within {wait_s:g} s"])
