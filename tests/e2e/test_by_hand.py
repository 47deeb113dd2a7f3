"""Applications that a person moves: answers are checked against Kafka, and a cleared task changes nothing.

Two records come to the source when the group has left it: one is replayed by a person's order, the other is given up.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psutil
import pytest
from tests.e2e.prometheus_world import Prometheus, scraping
from tests.e2e.small import PATIENCE_S, Run, Topic, alarms, trail_is_intact, until, web_hook
from tests.unit.test_notifiers import Hook

from lab.broker import SUPERUSER
from lab.rights import allow, grant
from lab.stack import ORCHESTRATOR, Stack
from topicshift.adapters.journal import SqlJournal
from topicshift.adapters.kafka.replay import TRANSACTIONAL_ID
from topicshift.core.drain.replay import HEADER
from topicshift.core.drain.strays import Stray, Strays
from topicshift.ports import Acl

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800), pytest.mark.long]

FENCE, BY_HAND, SWITCH = "stop_producers.fence", "switch_producers.by_hand", "switch_consumers.switch"
VERIFIER = "verify_drain.drain_verification"
WRITTEN_LATE, IS_BACK = "TopicshiftWriteAfterFence", "TopicshiftSourceResurrected"
AFTER = 20
"""Records that are written to the target after the switch."""


@dataclass
class Late:
    """What came of two records that were written to the source after the group had left it."""

    shown: list[str]
    """The texts of the question about both, and of the one about the record that was not replayed."""
    said: str
    replayed: Stray
    left: Stray


@dataclass
class Moved:
    """What came of a migration by hand."""

    topic: Topic
    run: Run
    acls_before: frozenset[Acl]
    acls_after_lie: frozenset[Acl]
    said_to_lie: str
    verifiers: int
    resumed: Any
    member_is_waited_for: bool
    seeded: dict[int, int | None]
    read_on_target: list[Any]
    late: Late
    told: list[str]
    fired: set[str]
    """Alerts of a real Prometheus that fired when the late records had been found; none where none is there."""


@pytest.fixture(scope="module")
def prometheus(statsd_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus | None]:
    """What looks at the metrics of these runs, where its programs are there."""
    if not os.environ.get("TOPICSHIFT_PROMETHEUS"):
        yield None
        return
    with scraping(tmp_path_factory.mktemp("prometheus"), statsd_port) as made:
        yield made


@pytest.fixture(scope="module")
def moved(stack: Stack, prometheus: Prometheus | None) -> Moved:
    """A person confirms what is not true, is refused, mends it and goes on; twice. A web hook is told."""
    with web_hook(stack) as hook:
        return by_hand(stack, hook, prometheus)


def by_hand(stack: Stack, hook: Hook, prometheus: Prometheus | None) -> Moved:
    topic = Topic(stack, "invoices", "invoices-ledger").make()
    with topic.admin() as admin:
        acls_before = admin.acls()
        values = topic.values(freeze_budget="30s", freeze_alarm_after="5s", retire_after="1s", retire_scream_test="2s")
        run = Run.start(stack.airflow, "topic_migration", values)
        run.question(FENCE)
        kill_verifier(topic)
        with topic.writing(user=SUPERUSER):  # whom no DENY reaches
            run.answer(FENCE)
            run.wait("failed")
        said_to_lie, verifiers = run.log(FENCE), run.tries(VERIFIER)
        resumed = stack.airflow.xcom("topic_migration", run.run_id, "resume_on_source")
        acls_after_lie = admin.acls()
        with topic.reading(topic.name):
            until(lambda: left(admin, topic) == 0, "the group to read what the liar wrote")
        run.clear("create_target.create")
        run.answer_anew()
        run.question(BY_HAND)
        topic.write(topic.target, AFTER)
        run.answer(BY_HAND)
        run.question(SWITCH, map_index=0)
        with topic.reading(topic.name):
            until(lambda: bool(admin.describe_groups([topic.group])[topic.group].members), "a member of the group")
            run.answer(SWITCH, map_index=0)
            said = "still has 1 member(s)"
            until(lambda: said in run.log(SWITCH, map_index=0), "the group's task to wait for its member")
            member_is_waited_for = run.states()[f"{SWITCH}[0]"] not in ("success", "failed")
        until(lambda: None not in commits(admin, topic).values(), "the group's offsets on the target")
        seeded = commits(admin, topic)
        topic.write(topic.name, 2, user=SUPERUSER)
        with topic.reading(topic.target) as seen:
            late = replay_one_of_two(stack, topic, run)
            fired = alarmed(prometheus, topic.name, WRITTEN_LATE) if prometheus else set[str]()
            run.wait("success")
            until(lambda: len(seen) > AFTER, "the group to read the target, and what was replayed")
    return Moved(
        topic,
        run,
        acls_before,
        acls_after_lie,
        said_to_lie,
        verifiers,
        resumed,
        member_is_waited_for,
        seeded,
        read_on_target=list(seen),
        late=late,
        told=alarms(hook, topic.name),
        fired=fired,
    )


def alarmed(prometheus: Prometheus, source: str, alert: str) -> set[str]:
    """The alerts that fire for this topic as soon as this one does."""
    until(lambda: alert in prometheus.firing(source), f"{alert} to fire")
    return prometheus.firing(source)


def replay_one_of_two(stack: Stack, topic: Topic, run: Run) -> Late:
    """A person is asked about both records, has the first one replayed, and gives the other up."""
    asked = list[dict[str, Any]]()

    def pending() -> bool:
        found = run.api.hitl_pending(run.dag_id, run.run_id)
        asked[:] = [each for each in found if "too late" in each["subject"]]
        return bool(asked)

    until(pending, "the question about the late records", PATIENCE_S)
    migration = run.api.xcom(run.dag_id, run.run_id, "plan.read_spec", "migration")["id"]
    first, other = Strays.model_validate_json((stack.evidence / migration / "strays.json").read_bytes()).unseen
    rights = allow(ORCHESTRATOR, "TOPIC", topic.target, "WRITE")
    rights += allow(ORCHESTRATOR, "TRANSACTIONAL_ID", TRANSACTIONAL_ID, "WRITE", prefixed=True)
    grant(stack.broker.superuser_config(), rights)
    place = f"{first.partition}:{first.offset}"
    values = {"migration": topic.name, "order": "replay", "records": place, "reason": "it is an invoice"}
    order = Run.start(run.api, "topic_control", values).wait("success")
    about_the_other = run.answer_anew()
    shown = [asked[0]["subject"] + asked[0]["body"], about_the_other["subject"] + about_the_other["body"]]
    return Late(shown, order.log("give_order"), first, other)


def kill_verifier(topic: Topic) -> None:
    """The armed verifier is killed, as a kernel that is out of memory does it."""
    found = [
        process
        for process in psutil.process_iter(["cmdline"])
        if {"--armed", topic.name} <= set(process.info["cmdline"] or ())
    ]
    assert found, "the verifier is armed before a person stops anybody"
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def commits(admin: Any, topic: Topic) -> dict[int, int | None]:
    """Where the group stands on the target."""
    return dict(admin.commits([topic.group], topic.target, range(6))[topic.group].offsets)


def left(admin: Any, topic: Topic) -> int:
    """Records of the source that the group has not read."""
    at = admin.commits([topic.group], topic.name, range(topic.partitions))[topic.group].offsets
    return sum(o.end - (at[p] or 0) for p, o in admin.offsets(topic.name).items())


def test_after_a_stop_that_the_offsets_contradict_the_producer_is_started_on_the_source(moved: Moved) -> None:
    assert "DrainTimedOut" in moved.said_to_lie and "START BY HAND on invoices: checkout" in moved.said_to_lie
    assert moved.resumed["freeze"] == "undone" and moved.resumed["start_by_hand"] == ["checkout"]
    assert "the freeze budget is used up" in moved.resumed["why"]
    created = {a for a in moved.acls_after_lie - moved.acls_before if a.name != moved.topic.target}
    assert not created and moved.acls_before <= moved.acls_after_lie, "the fence must be gone to the last binding"


def test_a_web_hook_is_told_of_each_freeze_and_how_it_ended(moved: Moved) -> None:
    told = [code for code in moved.told if code.startswith("freeze_") or code == "producers_resumed"]
    ended = [code for code in told if code != "freeze_overlong"]
    assert ended == ["freeze_begun", "producers_resumed", "freeze_begun", "freeze_ended"], moved.told
    assert told[:3] == ["freeze_begun", "freeze_overlong", "producers_resumed"], "while it lasts, and once"


def test_a_verifier_that_was_killed_before_the_freeze_is_started_anew(moved: Moved) -> None:
    assert moved.verifiers == 2


def test_a_group_that_is_said_to_be_stopped_and_is_not_is_waited_for(moved: Moved) -> None:
    assert moved.member_is_waited_for


def test_the_honest_answers_move_it(moved: Moved) -> None:
    assert set(moved.seeded.values()) == {0}, "seeded at the log start, so that auto.offset.reset=latest loses nothing"
    assert len(moved.read_on_target) == AFTER + 1
    with pytest.raises(RuntimeError):
        moved.topic.write(moved.topic.name, 1)


@pytest.fixture
def journal(stack: Stack) -> Iterator[SqlJournal]:
    opened = SqlJournal(stack.journal_url)
    yield opened
    opened.close()


def test_a_late_record_is_replayed_by_order_and_the_proof_counts_it_apart(
    moved: Moved, stack: Stack, journal: SqlJournal
) -> None:
    late, (row,) = moved.late, journal.find(source=moved.topic.name)
    places = [r.line(moved.topic.name) for r in (late.replayed, late.left)]
    assert all(place in late.shown[0] for place in places)
    assert places[0] not in late.shown[1] and places[1] in late.shown[1], "what is replayed is asked about no more"
    assert places[0] in late.said
    marked = [m for m in moved.read_on_target if HEADER in dict(m.headers())]
    assert [m.key().hex() for m in marked] == [late.replayed.key_hex]
    proof = json.loads((stack.evidence / row.migration_id / "order_proof.json").read_text())
    assert (proof["verdict"], proof["replayed"]) == ("proven", 1)
    assert trail_is_intact(journal, row.migration_id)


@pytest.mark.prometheus
def test_a_real_prometheus_alarms_of_records_behind_the_fence(moved: Moved) -> None:
    assert WRITTEN_LATE in moved.fired and IS_BACK not in moved.fired


def test_tasks_cleared_twice_after_the_end_change_nothing(moved: Moved, journal: SqlJournal) -> None:
    (row,) = journal.find(source=moved.topic.name)

    def world() -> Any:
        with moved.topic.admin() as admin:
            topics = {n: admin.topic(n) for n in (moved.topic.name, moved.topic.target)}
            return topics, admin.acls(), commits(admin, moved.topic), journal.steps(row.migration_id)

    before = world()
    tasks = ["plan.decide", "create_target.create", "stop_producers.ready", FENCE, "drain.certificate", SWITCH]
    for _ in range(2):
        moved.run.api.clear("topic_migration", moved.run.run_id, ["plan.read_spec", *tasks], downstream=False)
        moved.run.wait("success")
        states = moved.run.states()
        assert [states.get(task) or states[f"{task}[0]"] for task in tasks] == ["skipped"] * len(tasks)
        assert world() == before
    assert journal.current(row.migration_id).state == "done"


def test_the_source_is_retired_only_when_it_is_due_unread_and_approved(moved: Moved, journal: SqlJournal) -> None:
    topic, api = moved.topic, moved.run.api
    (row,) = journal.find(source=topic.name)
    api.unpause("topic_retirement")
    try:
        # Its own retention of seven days has not passed: the daily run leaves it alone, and is no failure.
        early = Run.start(api, "topic_retirement", {}).wait("success")
        assert {s for t, s in early.states().items() if t.startswith("retire.")} == {"skipped"}
        with topic.admin() as admin:
            admin.alter_topic_configs(topic.name, set_={"retention.ms": "1000"})
            with topic.reading("^invoice.*", group="invoices-nightly", user=SUPERUSER):
                nightly = "invoices-nightly"
                until(lambda: bool(admin.describe_groups([nightly])[nightly].members), "a reader by pattern")
                read = Run.start(api, "topic_retirement", {"migration": topic.name}).wait("failed")
                assert f"These groups still read it: {nightly}" in read.log("retire.check", map_index=0)
            asked = Run.start(api, "topic_retirement", {"migration": row.migration_id})
            question = asked.answer("retire.approve", map_index=0)
            assert [o.partition(" [")[0] for o in question["options"]] == ["Delete it", "Keep it"]
            assert "cannot be undone" in question["body"]
            asked.wait("success")
            assert admin.topic(topic.name) is None and admin.topic(topic.target) is not None
            assert not [a for a in admin.acls() if a.name == topic.name and a.permission == "DENY"]
        assert journal.current(row.migration_id).state == "retired"
        again = Run.start(api, "topic_retirement", {"migration": row.migration_id}).wait("failed")
        assert "is retired, not done" in again.log("find_due")
    finally:
        api.set_paused("topic_retirement", True)


def test_the_watch_names_a_source_that_comes_back(
    moved: Moved, journal: SqlJournal, prometheus: Prometheus | None
) -> None:
    topic, api = moved.topic, moved.run.api
    (row,) = journal.find(source=topic.name)
    assert row.state == "retired"
    only = {"migration": row.migration_id}
    Run.start(api, "topic_source_watch", only).wait("success")
    with topic.admin() as admin:
        admin.create_topic(topic.name, 1, 1, {})
        looked = Run.start(api, "topic_source_watch", only).wait("failed")
        assert "TS614 error" in looked.log("look", map_index=0)
        if prometheus:
            alarmed(prometheus, topic.name, IS_BACK)
        admin.delete_topic(topic.name)
    assert [e.kind for e in journal.events(row.migration_id)].count("source_back") == 1
