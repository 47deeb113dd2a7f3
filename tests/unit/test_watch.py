"""The watch over a source: everything that happens to it after the end is named once, and so is its end."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.airflow_world import Airflow
from tests.unit.test_acts_retire import DAY, done, member, screaming
from tests.unit.world import SOURCE, TARGET, World

from topicshift.acts.fence import scream_acls
from topicshift.acts.last_look import LAST_LOOK
from topicshift.acts.watch import gone_at, over, watch
from topicshift.core.engine.words import Row, Step
from topicshift.core.errors import Refused, Transient, Unreadable
from topicshift.core.findings import Finding
from topicshift.core.kafka.cluster import Acl
from topicshift.core.notices import Told, notices
from topicshift.core.proof import audit
from topicshift.core.proof.watch import CODES, KINDS, OVER, TS605, TS611, TS614, Sighting, change
from topicshift.testing.fake_journal import ManualClock
from topicshift_airflow.notices import seen_of
from topicshift_airflow.operators import watch as operators
from topicshift_airflow.operators.watch import FindWatched, WatchSource


def look(w: World) -> list[str]:
    """The codes of what one look finds."""
    return sorted(f.code for f in watch(w.context()))


def retired(**changes: Any) -> World:
    """A migration whose source is deleted."""
    w = done(**changes)
    screaming(w)
    w.clock.advance(3600)
    w.advanced(wanted="retire")
    assert w.cluster.topic(SOURCE) is None
    return w


def kept(w: World) -> list[tuple[str, str]]:
    return [(row["code"], row["subject"]) for row in w.data(Row.WATCH)["found"]]


def test_a_quiet_source_leaves_no_trace() -> None:
    w = done()
    before = w.kinds()
    assert look(w) == []
    assert w.kinds() == before and w.state(Row.WATCH) is None


def test_a_stray_write_is_told_once_and_changes_nothing() -> None:
    w = done()
    acls, state = w.acls(), w.journal.current(w.claim.migration_id).state
    w.write(records=2)
    assert look(w) == ["TS603"]
    w.write(records=3)
    assert look(w) == ["TS603"]
    [told] = w.events("source_written")
    assert f"{SOURCE}[0] +2" in told["seen"]
    assert kept(w) == [("TS603", SOURCE)]
    row = w.journal.current(w.claim.migration_id)
    assert (w.acls(), row.state, row.active) == (acls, state, False), "a watch changes nothing"
    head, events = w.journal.trail(w.claim.migration_id)
    assert audit.verify(events, head, migration_id=w.claim.migration_id) == []


def test_a_group_that_comes_back_is_named_and_so_is_its_end() -> None:
    w = done()
    group = w.spec.consumers[0].group
    w.leave(group)
    w.join(group, SOURCE)
    w.cluster.join("nightly", member(topics=("^pay.*",)))
    assert look(w) == ["TS605", "TS605"]
    told = {t["subject"]: t["seen"] for t in w.events("source_read")}
    assert set(told) == {group, "nightly"}
    assert "was released to the target, and is back" in told[group] and "is back" not in told["nightly"]
    w.leave(group)
    w.cluster.leave("nightly", "m1")
    assert look(w) == []
    assert {t["subject"] for t in w.events(OVER)} == {group, "nightly"} and kept(w) == []
    w.join(group, SOURCE)
    look(w)
    assert len(w.events("source_read")) == 3, "a second time is another matter"


def test_commits_that_expire_are_told_and_the_certificate_keeps_them() -> None:
    w = done()
    group = w.spec.consumers[0].group
    for key in [k for k in w.cluster._groups[group].commits if k[0] == SOURCE]:
        del w.cluster._groups[group].commits[key]
    [finding] = [f for f in watch(w.context()) if f.subject == group]
    assert (finding.code, finding.blocks) == ("TS611", False)
    [told] = w.events("commits_expired")
    assert "partitions [0, 1, 2]" in told["seen"]
    certificate = json.loads(w.evidence.read(w.claim.migration_id, "drain_certificate.json") or b"")
    [kept_commits] = [g for g in certificate["groups"] if g["group"] == group]
    assert [p["committed"] for p in kept_commits["partitions"]] == [10, 10, 10]
    # It holds nothing up: the retirement counts by the certificate, too.
    screaming(w)
    w.clock.advance(3600)
    w.advanced(wanted="retire")
    assert w.journal.current(w.claim.migration_id).state == "retired"


def test_a_commit_that_was_set_back_is_named_with_both_offsets() -> None:
    w = done()
    group = w.spec.consumers[0].group
    w.cluster.commit(group, SOURCE, {1: 4})
    [finding] = watch(w.context())
    assert finding.code == "TS612" and f"{SOURCE}[1] 4 instead of 10" in finding.seen
    assert w.events("commits_set_back")


def test_a_source_that_was_deleted_or_replaced_by_somebody_else() -> None:
    w = done()
    w.cluster.delete_topic(SOURCE)
    assert look(w) == ["TS613"] and w.events("source_missing")
    w.cluster.create_topic(SOURCE, 1, 1, {})
    assert look(w) == ["TS602"] and w.events("source_replaced")


def test_what_cannot_be_read_ends_nothing_and_is_no_news() -> None:
    w = done()
    w.write()
    look(w)
    w.cluster.unreadable(SOURCE, 0, "leader not available")
    w.cluster.unreadable(SOURCE, 1, "leader not available")
    before = w.kinds()
    found = watch(w.context())
    assert [f.code for f in found if f.unknown] == ["TS604"]
    assert w.kinds() == before and kept(w) == [("TS603", SOURCE)]
    w.cluster.fail("commits", Transient("no answer"))
    with pytest.raises(Transient):
        watch(w.context())
    assert w.kinds() == before


def test_a_certificate_that_is_none_any_more_is_unknown() -> None:
    w = done()
    w.evidence.write(w.claim.migration_id, "drain_certificate.json", "{}")
    with pytest.raises(Unreadable, match="no drain certificate"):
        watch(w.context())


def test_a_migration_without_a_fence_has_nothing_to_watch() -> None:
    with pytest.raises(Refused, match="never proved a fence"):
        watch(World().context())


# ------------------------------------------------------------------------------------------------ late requests


def opened_again(until: Step, topic: str) -> tuple[World, Acl]:
    """A migration on its way, which has shut a topic for everybody and opened it again."""
    w = World()
    w.advanced(until=until)
    shut = Acl("TOPIC", topic, "LITERAL", "User:*", "*", "WRITE", "DENY")
    claim = w.context().claim
    w.journal.intend(claim, Row.TARGET_DENY, {"topic": topic, "acls_added": [asdict(shut)]})
    w.journal.finish(claim, Row.TARGET_DENY, {}, state="undone")
    return w, shut


@pytest.mark.parametrize("retire", [False, True])
def test_a_deny_that_a_late_request_sets_after_the_end_is_named_with_what_lifts_it(retire: bool) -> None:
    w, shut = opened_again(Step.SWITCH_PRODUCERS, TARGET)
    w.advanced()
    if retire:
        w.clock.advance(8 * DAY)
        screaming(w)
        w.clock.advance(3600)
        w.advanced(wanted="retire")
    assert look(w) == []
    w.cluster.create_acls([shut])
    [finding] = watch(w.context())
    assert (finding.code, finding.subject, finding.blocks) == ("TS615", TARGET, True)
    assert f"--remove --force --topic {TARGET} --deny-principal 'User:*' --operation Write" in finding.do
    assert shut in w.acls(TARGET), "a watch changes nothing"
    assert look(w) == ["TS615"] and len(w.events("deny_late")) == 1
    w.cluster.delete_acls([shut])
    assert look(w) == [] and len(w.events(OVER)) == 1


def test_a_deny_that_somebody_else_set_and_one_that_still_holds_are_not_late() -> None:
    w = done()
    theirs = Acl("TOPIC", TARGET, "LITERAL", "User:*", "*", "WRITE", "DENY")
    w.cluster.create_acls([theirs])
    assert look(w) == []
    w, shut = opened_again(Step.CREATE_TARGET, SOURCE)
    w.advanced()
    assert shut in w.acls(SOURCE), "the fence has it by now"
    assert look(w) == []


def test_a_deny_of_the_scream_test_that_comes_when_it_is_over_is_named_and_the_fence_is_not() -> None:
    w = done()
    screaming(w)
    assert look(w) == [], "it is under way"
    w.advanced(wanted="cancel_retirement")
    w.cluster.create_acls(scream_acls(SOURCE))
    [finding] = watch(w.context())
    assert finding.code == "TS615" and "DENY READ for User:*" in finding.seen
    assert finding.do.endswith("--operation Read")


@pytest.mark.parametrize("state", ["open", "failed"])
def test_a_deny_of_a_later_migration_of_the_target_is_its_own(state: str) -> None:
    w, shut = opened_again(Step.SWITCH_PRODUCERS, TARGET)
    w.advanced()
    w.clock.advance(DAY)
    row = w.journal.current(w.claim.migration_id)
    later = w.journal.claim(
        cluster_id=row.cluster_id, source=TARGET, target="payments-v3", owner="o", spec={}, owner_alive=lambda _: True
    )
    w.cluster.create_acls([shut])
    if state != "open":
        w.journal.set_state(later, state, active=False)
    assert look(w) == ([] if state == "open" else ["TS615"])


def test_one_that_was_rolled_back_is_watched_for_late_requests_for_a_day() -> None:
    w, shut = opened_again(Step.CREATE_TARGET, SOURCE)
    w.advanced(wanted="rollback")
    row = w.journal.current(w.claim.migration_id)
    assert row.state == "rolled_back" and over(row, [row], None, w.clock.now()) is None
    assert look(w) == []
    w.cluster.create_acls([shut])
    assert look(w) == ["TS615"]
    row = w.journal.current(w.claim.migration_id)
    assert "nothing of it can be late" in (over(row, [row], None, w.clock.now() + timedelta(days=1.1)) or "")


# ------------------------------------------------------------------------------------------------ after the deletion


def test_a_topic_that_comes_back_is_named_as_well_as_kafka_allows() -> None:
    w = retired()
    assert look(w) == []
    w.cluster.create_topic(SOURCE, 1, 1, {})
    w.cluster.create_acls([Acl("TOPIC", SOURCE, "LITERAL", "User:forgotten", "*", "WRITE", "ALLOW")])
    producer = w.cluster.new_producer_id()
    w.cluster.produce(SOURCE, 0, 7, producer_id=producer)
    w.cluster.join("old-app", member(topics=(SOURCE,), assignment={SOURCE: (0,)}))
    [finding] = watch(w.context())
    assert finding.code == "TS614" and finding.blocks
    for said in ("1 partition,", "7 offsets", "no config of its own", f"Producer ids [{producer}]", "User:forgotten"):
        assert said in finding.seen, said
    assert "Group old-app is on it: app at /10.0.0.1." in finding.seen
    assert "auto" in finding.seen or "created it" in finding.seen
    w.cluster.produce(SOURCE, 0, 7, producer_id=producer)
    look(w)
    assert len(w.events("source_back")) == 1
    w.cluster.delete_topic(SOURCE)
    assert look(w) == [] and len(w.events(OVER)) == 1
    w.cluster.create_topic(SOURCE, 1, 1, {})
    look(w)
    assert len(w.events("source_back")) == 2, "another topic id is another matter"
    assert w.journal.current(w.claim.migration_id).state == "retired"


def test_offsets_configs_and_commits_are_kept_before_the_deletion() -> None:
    w = done()
    w.cluster.alter_topic_configs(SOURCE, set_={"retention.ms": "1000"})
    screaming(w)
    w.clock.advance(3600)
    w.advanced(wanted="retire")
    last = json.loads(w.evidence.read(w.claim.migration_id, LAST_LOOK) or b"")
    assert last["topic"] == SOURCE and last["configs"]["retention.ms"] == "1000"
    assert [p["end"] for p in last["partitions"].values()] == [10, 10, 10]
    assert last["commits"][w.spec.consumers[0].group] == {"0": 10, "1": 10, "2": 10}
    assert any(a["operation"] == "WRITE" and a["permission"] == "ALLOW" for a in last["acls"])


def test_a_source_whose_offsets_cannot_be_kept_is_not_deleted() -> None:
    w = done()
    screaming(w)
    w.clock.advance(3600)

    def meanwhile(method: str) -> None:
        if method == "topic" and w.state(Row.DELETE_SOURCE) == "intended":
            w.cluster.unreadable(SOURCE, 2, "leader not available")

    w.cluster.on_call = meanwhile
    with pytest.raises(Unreadable, match=r"could not be kept as evidence \(partition 2\)"):
        w.advance(wanted="retire")
    w.cluster.on_call = None
    assert w.cluster.topic(SOURCE) is not None
    w.cluster.unreadable(SOURCE, 2, None)
    w.clock.advance(31)
    w.advanced(wanted="retire")
    assert w.cluster.topic(SOURCE) is None


# -------------------------------------------------------------------------------------------------- the DAG's tasks


def test_the_task_is_red_while_somebody_has_to_see_to_it_and_people_are_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    airflow = Airflow(monkeypatch)
    w = airflow.world
    w.advanced()
    w.clock.advance(DAY)
    found = airflow.run(FindWatched(task_id="find_watched"))
    assert found == [w.claim.migration_id]
    task = WatchSource(task_id="look", migration=found[0])
    assert airflow.run(task) == []
    w.write()
    for _ in range(2):
        with pytest.raises(AirflowFailException, match="TS603"):
            airflow.run(task)
    told = [n for n in notices(seen_of(w.journal, w.context().row), w.clock.now()) if n.kind is Told.SOURCE_WATCHED]
    assert len(told) == 1 and "payments[0] +1" in told[0].text
    w.cluster.unreadable(SOURCE, 1, "leader not available")
    with pytest.raises(AirflowFailException, match="Unreadable: TS604"):
        airflow.run(task)


def test_a_run_without_a_finished_migration_is_skipped_and_one_that_is_named_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    airflow = Airflow(monkeypatch)
    with pytest.raises(AirflowSkipException):
        airflow.run(FindWatched(task_id="find_watched"))
    monkeypatch.setattr(operators, "find_migration", lambda _: airflow.world.context().row)
    with pytest.raises(AirflowFailException, match="it is open; only the source of a finished migration"):
        airflow.run(FindWatched(task_id="find_watched"), params={"migration": "payments"})


# ------------------------------------------------------------------------------------------------- who is watched


def test_until_when_a_source_is_watched() -> None:
    w = done()
    row, now = w.journal.current(w.claim.migration_id), w.clock.now()

    def why(world: World, days: float = 0.0) -> str | None:
        mine = world.journal.current(world.claim.migration_id)
        gone = gone_at(world.journal.step(mine.migration_id, "delete_source"))
        return over(mine, world.journal.find(), gone, world.clock.now() + timedelta(days=days))

    assert why(w) is None and why(w, 400) is None, "until it is retired"
    fresh = World()
    assert "it is open" in (over(fresh.journal.current(fresh.claim.migration_id), [], None, now) or "")
    gone = retired()
    assert why(gone) is None and why(gone, 29) is None
    assert "was deleted 31 days ago" in (why(gone, 31.5) or "")
    gone.clock.advance(DAY)
    again = gone.journal.claim(
        cluster_id=row.cluster_id, source="orders", target=SOURCE, owner="o", spec={}, owner_alive=lambda _: True
    )
    assert f"belongs to {again.migration_id}" in (why(gone) or "")
    assert TARGET != SOURCE


# ------------------------------------------------------------------------------------------------ what is news

sightings = st.lists(
    st.builds(
        lambda code, subject, unknown: Sighting.of(
            Finding(code=code, level="error", subject=subject, seen="s", why="w", do="d", unknown=unknown)
        ),
        st.sampled_from(sorted(KINDS)),
        st.sampled_from("abc"),
        st.booleans(),
    ),
    max_size=5,
)


@given(st.lists(sightings, max_size=6))
def test_every_matter_has_one_beginning_and_one_end(looks: list[list[Sighting]]) -> None:
    clock, row, standing = ManualClock(), list[dict[str, Any]](), set[tuple[str, str]]()
    for now in looks:
        news = change(row, now, clock.now())
        seen = {(s.finding.code, s.finding.subject) for s in now if not s.finding.unknown}
        blind = any(s.finding.unknown for s in now)
        begun = {(d["code"], d["subject"]) for k, d in (news.events if news else ()) if k != OVER}
        ended = {(d["code"], d["subject"]) for k, d in (news.events if news else ()) if k == OVER}
        assert begun == seen - standing
        assert ended == (set() if blind else standing - seen)
        standing = (standing | begun) - ended
        row = news.found if news else row
        assert {(r["code"], r["subject"]) for r in row} == standing
        clock.advance(60)


def test_every_code_of_the_watch_has_a_kind_of_event() -> None:
    assert {c.code for c in CODES} | {TS605.code} <= set(KINDS)
    assert TS611.code in KINDS and TS614.code in KINDS
