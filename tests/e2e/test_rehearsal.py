"""A rehearsal through Airflow: every step on a shadow, the source untouched, and its measurement in the next go."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.small import Run, Topic, trail_is_intact, until

from lab.stack import Stack
from topicshift.adapters.journal import SqlJournal
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.core.engine.words import Row
from topicshift.core.kafka.rules import ROUTES_TOPIC
from topicshift.core.spec.shadows import PREFIX, real_name

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800), pytest.mark.long]

DAG, GO = "topic_migration", "stop_producers.go"


@pytest.fixture
def journal(stack: Stack) -> Iterator[SqlJournal]:
    opened = SqlJournal(stack.journal_url)
    yield opened
    opened.close()


def made(admin: KafkaAdmin) -> Any:
    """All that could be left behind: topics with their configs, ACLs, groups, and what was said on the route."""
    topics = {n: t for n in admin.topic_names() if (t := admin.topic(n)) is not None}
    return (
        {n: (t.topic_id, t.partitions, t.configs) for n, t in topics.items() if not n.startswith("__")},
        admin.acls(),
        {g.group for g in admin.groups()},
        {p: o.end for p, o in admin.offsets(ROUTES_TOPIC).items()} if ROUTES_TOPIC in topics else {},
    )


def test_a_rehearsal_touches_nothing_and_the_next_go_shows_what_it_measured(stack: Stack, journal: SqlJournal) -> None:
    topic = Topic(stack, "rehearsed", "rehearsed-ledger").make()
    with topic.admin() as admin, topic.reading(topic.name) as seen:
        until(lambda: topic.group in {g.group for g in admin.groups()}, "the group is there")
        before = made(admin)
        with topic.writing(user="checkout"):
            run = Run.start(stack.airflow, DAG, topic.values(mode="rehearse", approvals_freeze="required"))
            run.wait("success")
        assert made(admin) == before, "every shadow is gone, and the source has its configs and rights"
        sent = sum(topic._seqs.values())
        assert sum(o.end or 0 for o in admin.offsets(topic.name).values()) == sent, "only its producer has written"
        until(lambda: len(seen) == sent - 60, "its group goes on reading")
    (row,) = [r for r in journal.find() if real_name(r.source) == topic.name]
    assert (row.state, row.active) == ("rehearsed", False) and row.target.startswith(PREFIX)
    events = {e.kind: e.data for e in journal.events(row.migration_id)}
    assert events["rehearsal_begun"]["keys"] == 10 and events["rehearsal_over"]["left"] == []
    assert events["proof"]["verdict"] == "proven"
    steps = {s.step: s for s in journal.steps(row.migration_id)}
    assert {Row.FENCE, Row.VERIFICATION, Row.FREEZE, Row.SWITCH_PRODUCERS, Row.ORDER_PROOF} <= steps.keys()
    assert trail_is_intact(journal, row.migration_id)

    go = Run.start(stack.airflow, DAG, topic.values(approvals_freeze="required"))
    body = go.answer(GO, option=1)["body"]
    measured = re.search(r"of it, measured: the product's own acts \| ([\d.]+) s in the rehearsal that ended", body)
    assert measured is not None, body
    freeze_s = float(steps[Row.SWITCH_PRODUCERS].data["freeze_seconds"])
    assert 0 < float(measured[1]) <= freeze_s
    assert "only estimated, not in it | how long applications take to stop and to start" in body
    go.wait("failed")
