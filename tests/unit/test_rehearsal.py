"""A rehearsal: every name it acts on is its own, and a spec says where one makes no sense."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.airflow_world import Airflow
from tests.unit.test_go import go_task
from tests.unit.world import AUTO, OWNER, SOURCE, SPEC, TARGET, World, said

from topicshift.acts.close import close
from topicshift.acts.open import REHEARSAL_OF
from topicshift.adapters.kafka.rehearse import _whole_keys
from topicshift.core.engine.words import Row, Step
from topicshift.core.errors import AccessDenied, PreflightFailed, Refused, SpecError, Unreadable
from topicshift.core.kafka.cluster import Acl
from topicshift.core.policy.model import Installation
from topicshift.core.rehearsal import rehearsed_spec, shadow_spec
from topicshift.core.spec.io import spec_from_params
from topicshift.core.spec.model import Mode
from topicshift.core.spec.shadows import mark_of_run, real_name, shadow_name, side_group
from topicshift.testing.fake_ports import FakeVerifier
from topicshift_airflow import abandoned
from topicshift_airflow.operators.freeze import ResumeAbandoned

MARK = "0a1b2c3d"


def spec_of(**changes: Any) -> Any:
    return spec_from_params(SPEC | {"mode": "rehearse"} | changes)


def test_the_shadow_has_no_topic_and_no_group_of_the_migration() -> None:
    real = spec_of(
        readers=[{"name": "lake", "kind": "evidence_file", "location": "/data/lake.json"}],
        ignore_groups=[{"group": "console", "reason": "a look by hand"}],
        lost_records_accepted=[{"group": "fraud-g", "reason": "restored"}],
        answers=[{"question": "freeze", "people": ["ada"]}],
        approvals=AUTO | {"freeze": "required"},
    )
    shadow = shadow_spec(real, "payments-v2", MARK)
    before = f"topicshift-rehearsal-{MARK}."
    assert (shadow.source, shadow.target) == (f"{before}payments", f"{before}payments-v2")
    names = {shadow.source, shadow.target, *(c.group for c in shadow.consumers)}
    names |= {g.group for g in shadow.ignore_groups}
    assert all(name.startswith(before) for name in names)
    assert not shadow.readers and not shadow.lost_records_accepted and not shadow.answers
    assert rehearsed_spec(real, "payments-v2") == real.model_copy(update={"mode": Mode.MIGRATE})
    assert [c.name for c in shadow.consumers] == [c.name for c in real.consumers]
    assert [p.principal for p in shadow.producers] == [p.principal for p in real.producers]
    assert (shadow.partitions, shadow.cutover, shadow.freeze_budget) == (
        real.partitions,
        real.cutover,
        real.freeze_budget,
    )
    assert {str(a) for a in shadow.approvals.model_dump().values()} == {"auto"}
    assert spec_from_params(shadow.model_dump(mode="json")) == shadow, "the journal keeps it as plain values"


@given(st.text(min_size=1, max_size=200), st.text(max_size=30))
def test_a_shadows_name_says_what_it_is_the_shadow_of(name: str, owner: str) -> None:
    mark = mark_of_run(owner)
    assert real_name(shadow_name(name, mark)) == name
    assert side_group(shadow_name(name, mark), "producer", name) != side_group(
        shadow_name(name, mark), "consumer", name
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"window": {"cron": "0 2 * * SUN"}}, "a rehearsal has a window"),
        ({"source": "p" * 220}, "a name of 220 characters is too long for a rehearsal"),
        ({"target": "p" * 220}, "a name of 220 characters is too long for a rehearsal"),
        ({"mode": "rehears"}, "mode"),
        ({"mode": "migrate", "source": f"topicshift-rehearsal-{MARK}.payments"}, "Name the topic itself: payments"),
        ({"mode": "migrate", "target": "topicshift-rehearsal-mine"}, "Name the topic itself: one of another name"),
    ],
)
def test_a_rehearsal_that_makes_no_sense_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        spec_of(**changes)


def test_the_longest_name_that_may_be_rehearsed_is_one_that_kafka_takes() -> None:
    assert len(shadow_name(str(spec_of(source="p" * 219).source), MARK)) == 249


class Message:
    """A record as the client gives it."""

    def __init__(self, key: bytes | None, offset: int) -> None:
        self.key, self.partition, self.offset = (lambda: key), (lambda: 0), (lambda: offset)


@given(st.lists(st.none() | st.binary(max_size=1), max_size=60), st.integers(1, 40))
def test_a_sample_is_of_whole_keys_and_of_one_at_least(keys: list[bytes | None], most: int) -> None:
    records = [Message(key, at) for at, key in enumerate(keys)]
    taken = _whole_keys(records, most)
    assert len(taken) <= most and bool(taken) == bool(records)
    assert taken == [m for m in records if m in taken], "in their order"
    whole = all(keys.count(m.key()) == [t.key() for t in taken].count(m.key()) for m in taken if m.key() is not None)
    assert whole or (len({m.key() for m in taken}) == 1 and all(keys.count(k) > most for k in keys))


# ------------------------------------------------------------------------------------------------ a whole rehearsal

ORDERS = pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])


def real(w: World) -> Any:
    """All that the migration itself is made of, as the cluster and the controllers have it."""
    groups = [c["group"] for c in SPEC["consumers"]]
    return (
        w.cluster.topic_names(),
        w.cluster.topic(SOURCE),
        w.cluster.offsets(SOURCE),
        frozenset(w.cluster._acls),
        {g: dict(w.cluster._groups[g].commits) for g in groups},
        {g: w.cluster.describe_groups([g])[g] for g in groups},
        w.where(),
        {n: (dict(a.topic), dict(a.running), dict(a.armed)) for n, a in w.controllers.items()},
    )


def groups_of(w: World) -> set[str]:
    return {g.group for g in w.cluster.groups()}


@ORDERS
def test_a_whole_rehearsal_runs_every_step_and_leaves_the_cluster_as_it_was(cutover: str) -> None:
    w = World(cutover=cutover, mode="rehearse")
    before, groups = real(w), groups_of(w)
    w.advanced()
    row = w.journal.current(w.claim.migration_id)
    assert row.state == "rehearsed" and real_name(row.source) == SOURCE and real_name(row.target) == TARGET
    assert real(w) == before and groups_of(w) == groups
    states = {s.step: s.state for s in w.journal.steps(row.migration_id)}
    assert states["shadow"] == "undone"
    assert {"fence", "switch_producers", "freeze"} <= states.keys()
    mark = mark_of_run(row.owner)
    assert all(states[f"switch_consumer:{shadow_name(g, mark)}"] == "done" for g in ("ledger-g", "fraud-g"))
    assert not any(c.acts for c in w.controllers.values()), "no application is told anything"


@ORDERS
@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 120), max_size=3))
def test_killed_anywhere_it_ends_and_nothing_is_left(cutover: str, at: list[int]) -> None:
    w = World(cutover=cutover, mode="rehearse")
    before, groups = real(w), groups_of(w)
    w.until_done(at)
    assert w.journal.current(w.claim.migration_id).state == "rehearsed"
    assert real(w) == before and groups_of(w) == groups


@ORDERS
@pytest.mark.parametrize("until", [Step.PLAN, Step.CREATE_TARGET, Step.SWITCH_PRODUCERS, Step.SWITCH_CONSUMERS])
@pytest.mark.parametrize("ending", ["close", "abort"])
def test_it_leaves_nothing_from_wherever_it_is_ended(cutover: str, until: Step, ending: str) -> None:
    w = World(cutover=cutover, mode="rehearse")
    before, groups = real(w), groups_of(w)
    w.advanced(until=until)
    if ending == "abort" and until in (Step.PLAN, Step.CREATE_TARGET):
        w.advanced(wanted="rollback")
    else:
        if ending == "abort":
            with pytest.raises(Refused, match="it is a rehearsal, and ends with: topicshift close"):
                w.advance(wanted="rollback")
        close(w.context(), "enough", even_frozen=True)
    assert w.journal.current(w.claim.migration_id).state in ("failed", "rolled_back", "rehearsed")
    assert real(w) == before and groups_of(w) == groups


# --------------------------------------------------------------------------------------- what keeps it from beginning

KINDS: dict[str, Any] = {
    "producers": [
        {"name": "checkout", "principal": "User:checkout"},
        {"name": "billing", "kind": "manual"},
        {"name": "batch", "kind": "command", "settings": {"hook": "batch"}},
    ],
}


def untouched(w: World, before: Any) -> None:
    """Nothing of the migration has changed, and nothing was made."""
    assert real(w) == before
    assert not w.journal.step(w.claim.migration_id, Row.SHADOW)


def test_every_kind_is_rehearsed_and_nobody_is_asked_or_moved() -> None:
    w = World(mode="rehearse", **KINDS)
    before = real(w)
    asked: list[tuple[str, str, list[str]]] = []
    for kind, controller in w.controllers.items():
        controller.can_i = lambda ctx, who, kind=kind: (
            asked.append(  # type: ignore[method-assign]
                (kind, ctx.source, [p.name for p in who])
            )
            or []
        )
    assert w.advance(until=Step.VERIFY), "no person is asked for anything"
    assert w.journal.current(w.claim.migration_id).state == "rehearsed"
    assert asked == [("command", SOURCE, ["batch"])], "of itself, and of no shadow; the others have nothing to try"
    assert real(w) == before and not any(c.acts for c in w.controllers.values())


def test_who_cannot_be_moved_blocks_the_rehearsal_by_name() -> None:
    w = World(mode="rehearse", **KINDS)
    before = real(w)
    w.controllers["command"].cannot = ["batch: its hook is not there"]
    with pytest.raises(PreflightFailed, match=r"block the migration of payments.*\n.*TS325.*batch: its hook"):
        w.advance()
    untouched(w, before)


def test_a_controller_that_cannot_tell_is_unknown_and_blocks() -> None:
    w = World(mode="rehearse", **KINDS)
    before = real(w)

    def dead(*_: Any) -> list[str]:
        raise Unreadable("the hook does not answer")

    w.controllers["command"].can_i = dead  # type: ignore[method-assign]
    with pytest.raises(Unreadable, match="the hook does not answer"):
        w.advance()
    untouched(w, before)


def test_the_migration_is_judged_by_its_own_groups_and_its_own_readers() -> None:
    """An undeclared group blocks it, and one that the spec ignores does not: as in the plan of the migration."""
    w = World(mode="rehearse")
    w.join("console", SOURCE)
    before = real(w)
    with pytest.raises(PreflightFailed, match="console"):
        w.advance()
    untouched(w, before)
    ignored = World(mode="rehearse", ignore_groups=[{"group": "console", "reason": "a look by hand"}])
    ignored.join("console", SOURCE)
    ignored.advanced()
    assert ignored.journal.current(ignored.claim.migration_id).state == "rehearsed"


@pytest.mark.parametrize("what", ["source", "target", "group"])
def test_what_has_the_name_of_a_shadow_and_is_not_ours_is_left_alone(what: str) -> None:
    w = World(mode="rehearse")
    row = w.journal.current(w.claim.migration_id)
    if what == "group":
        w.join(shadow_name("ledger-g", mark_of_run(OWNER)), SOURCE + "-other")
    else:
        w.cluster.create_topic({"source": row.source, "target": row.target}[what], 1, 1, {})
    names, before = w.cluster.topic_names(), groups_of(w)
    with pytest.raises(Refused, match="exists, and this rehearsal has not made it"):
        w.advance()
    close(w.context(), "enough")
    assert (w.cluster.topic_names(), groups_of(w)) == (names, before)
    assert w.journal.current(w.claim.migration_id).state == "failed"


def test_one_that_was_killed_while_it_was_opened_says_so_and_its_next_try_opens_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    w = World(mode="rehearse")
    with monkeypatch.context() as patched:
        patched.setattr(w.journal, "events", lambda *_: [])
        with pytest.raises(Refused, match="Clear its first task"):
            w.advance()
    w.open()
    assert len(w.journal.events(w.claim.migration_id, (REHEARSAL_OF,))) == 1, "once"
    w.advanced()


def test_a_topic_without_records_is_no_sample() -> None:
    w = World(mode="rehearse")
    w.cluster.delete_topic(SOURCE)
    w.cluster.create_topic(SOURCE, 3, 1, {})
    for consumer in w.spec.consumers:
        w.drain(consumer.group)
    before, groups = real(w), groups_of(w)
    with pytest.raises(Refused, match="None of the 0 latest record"):
        w.advance()
    close(w.context(), "enough")
    assert real(w) == before and groups_of(w) == groups


def governing(**rules: Any) -> Installation:
    return Installation(apiVersion="topicshift-policy/v1", **rules)


def test_an_installation_policy_judges_the_topic_that_is_rehearsed_and_asks_nobody() -> None:
    w = World(mode="rehearse", approvals=AUTO | {"plan": "required", "freeze": "required"})
    w.policy = governing(topics=["payments*"], approvals={"plan": "required", "freeze": "required"})
    w.advance()
    assert w.journal.current(w.claim.migration_id).state == "rehearsed"
    other = World(mode="rehearse")
    other.policy = governing(topics=["orders*"])
    with pytest.raises(PreflightFailed, match="TS802"):
        other.advance()
    lax = World(mode="rehearse")
    lax.policy = governing(topics=["payments*"], approvals={"freeze": "required"})
    with pytest.raises(PreflightFailed, match="TS803"):
        lax.advance()


def test_everybodys_rights_to_the_source_hold_for_the_shadow_and_go_with_it() -> None:
    w = World(mode="rehearse")
    w.cluster.create_acls([Acl("TOPIC", "pay", "PREFIXED", "User:audit", "*", "READ", "ALLOW")])
    before = frozenset(w.cluster._acls)
    w.advance(until=Step.PLAN)
    shadow = w.journal.current(w.claim.migration_id).source
    assert {(a.principal, a.operation, a.pattern) for a in w.acls(shadow)} == {
        *((a.principal, a.operation, "LITERAL") for a in w.acls(SOURCE)),
        ("User:audit", "READ", "LITERAL"),
    }
    w.advanced()
    assert frozenset(w.cluster._acls) == before


# ------------------------------------------------------------------------------------------------------- its clean-up


def cannot_delete(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(name: str) -> None:
        raise AccessDenied(f"DELETE on topic {name} is missing.")

    monkeypatch.setattr(w.cluster, "delete_topic", denied)


def test_what_cannot_be_deleted_keeps_it_open_until_a_person_closes_it_and_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    w = World(mode="rehearse")
    before, groups = real(w), groups_of(w)
    row = w.journal.current(w.claim.migration_id)
    with monkeypatch.context() as patched:
        cannot_delete(w, patched)
        with pytest.raises(AccessDenied, match=f"DELETE on topic {row.source}"):
            w.advance()
        assert w.journal.current(row.migration_id).state == "open"
        left = close(w.context(), "enough", even_frozen=True)["left"]
    assert [line.partition(":")[0] for line in left] == [f"topic {row.source}", f"topic {row.target}"]
    assert all("delete by hand" in line and "is missing" in line for line in left)
    assert w.journal.current(row.migration_id).state == "failed"
    (closed,) = w.journal.events(row.migration_id, ("closed",))
    assert closed.data["left"] == left
    for name in (row.source, row.target):
        w.cluster.delete_topic(name)
    assert real(w) == before and groups_of(w) == groups, "all else is gone"


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    """A rehearsal whose run has died in its freeze."""
    made = Airflow(monkeypatch, mode="rehearse")
    monkeypatch.setattr(abandoned, "owner_alive", lambda _: False)
    made.until(Step.STOP_PRODUCERS)
    return made


def test_a_rehearsal_whose_run_has_ended_is_closed_and_its_shadow_deleted(airflow: Airflow) -> None:
    w = airflow.world
    row = w.journal.current(w.claim.migration_id)
    assert row.source in w.cluster.topic_names()
    assert airflow.run(ResumeAbandoned(task_id="watch"), params={}) == {row.migration_id: "its shadow is deleted"}
    assert w.cluster.topic_names() == {SOURCE}
    assert w.journal.current(row.migration_id).state == "failed"


def test_one_that_cannot_be_cleaned_up_is_tried_again(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    w = airflow.world
    row = w.journal.current(w.claim.migration_id)
    watch = ResumeAbandoned(task_id="watch")
    with monkeypatch.context() as patched:
        cannot_delete(w, patched)
        with pytest.raises(Exception, match=f"DELETE on topic.*topicshift close {row.migration_id}"):
            airflow.run(watch, params={})
        assert w.journal.current(row.migration_id).state == "open"
    airflow.run(watch, params={})
    assert w.cluster.topic_names() == {SOURCE}


# ----------------------------------------------------------------------------------------------------- the prediction


def then_migrate(airflow: Airflow, **changes: Any) -> None:
    """A migration of the same topic, by another run."""
    w = airflow.world
    w.spec = spec_from_params(said(SPEC | {"approvals": AUTO | {"freeze": "required"}} | changes))
    w.verifier = FakeVerifier()
    w.claim = w.open("topic_migration/run-2")


def go_body(airflow: Airflow) -> str:
    airflow.until(Step.CREATE_TARGET)
    airflow.world.verifier.start()
    return airflow.asked(go_task()).body


@pytest.mark.parametrize(("cutover", "measured"), [("drain_first", True), ("producers_first", False)])
def test_the_go_tells_what_a_rehearsal_of_this_order_has_measured_from_what_is_estimated(
    monkeypatch: pytest.MonkeyPatch, cutover: str, measured: bool
) -> None:
    airflow = Airflow(monkeypatch, mode="rehearse")
    w = airflow.world
    w.advanced()
    freeze_s = float(w.data(Row.SWITCH_PRODUCERS)["freeze_seconds"])
    then_migrate(airflow, cutover=cutover)
    body = go_body(airflow)
    row = "| of it, measured: the product's own acts | "
    assert (row in body) is measured and ("not rehearsed, so not in it" in body) is not measured
    assert "| only estimated, not in it | how long applications take to stop and to start" in body
    if measured:
        forecast = w.asks().view.gate.forecast  # type: ignore[union-attr]
        assert forecast.own_s == max(0.0, freeze_s - forecast.settle_s)
        assert forecast.seconds == forecast.settle_s + forecast.drain_s + forecast.own_s
        assert f"{row}{forecast.own_s:.1f} s in the rehearsal that ended {w.clock.now():%Y-%m-%d}" in body


def test_a_rehearsal_that_did_not_end_well_has_measured_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = Airflow(monkeypatch, mode="rehearse")
    airflow.until(Step.SWITCH_PRODUCERS)
    close(airflow.world.context(), "enough", even_frozen=True)
    then_migrate(airflow)
    assert "not rehearsed, so not in it" in go_body(airflow)
