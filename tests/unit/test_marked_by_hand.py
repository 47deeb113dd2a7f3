"""A task that somebody marks as success proves nothing: what follows looks for the evidence, and refuses without it."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from topicshift.acts.approvals import record_approval
from topicshift.acts.fence import STEP as FENCE
from topicshift.acts.on_record import require_approval, require_screamed
from topicshift.acts.participants import SWITCH_PRODUCERS, Cast, begin_freeze, switch_step
from topicshift.acts.retire import SCREAM
from topicshift.acts.target import create_target
from topicshift.core.errors import Refused
from topicshift.core.fence.decision import FenceSettings
from topicshift.core.fence.record import FenceRecord
from topicshift.core.spec.model import Spec
from topicshift.ports import Claim, Participant, ParticipantState
from topicshift.testing.fake_journal import FakeEvidence, FakeJournal, ManualClock
from topicshift.testing.fakes import FakeCluster
from topicshift_airflow.operators import retire
from topicshift_airflow.operators.cutover import StartByHand, StopAndFence, SwitchGroup, SwitchProducers
from topicshift_airflow.operators.drain import ReadyToFence
from topicshift_airflow.operators.jobs import KeyRehashImpact
from topicshift_airflow.operators.names import certificate_name, verification_name
from topicshift_airflow.operators.plan import APPROVE_PLAN, CreateTarget
from topicshift_airflow.operators.verify import FinishMigration

SOURCE, TARGET = "payments", "payments-v2"
SPEC = {
    "source": SOURCE,
    "target": TARGET,
    "partitions": 4,
    "approvals": {"plan": "required", "cutover": "auto", "retire": "required"},
    "producers": [{"name": "checkout"}],
    "consumers": [{"name": "ledger", "group": "ledger-g"}, {"name": "fraud", "group": "fraud-g"}],
}


class Applications:
    """Participants that are where they are said to be."""

    kind, needs_person, leased = "route", False, True

    def __init__(self) -> None:
        self.topic = TARGET

    def observe(self, _: Any, participants: list[Participant]) -> list[ParticipantState]:
        return [ParticipantState(p, "running", self.topic) for p in participants]


class World:
    """Everything that a run has up to the fence; what comes after is for the test to put there."""

    def __init__(self, **spec: Any) -> None:
        self.clock = ManualClock()
        self.journal, self.evidence, self.cluster = FakeJournal(self.clock), FakeEvidence(), FakeCluster()
        self.topic_id = self.cluster.create_topic(SOURCE, 2, 1, {})
        self.claim: Claim = self.journal.claim(
            cluster_id="c", source=SOURCE, target=TARGET, owner="o", spec={}, owner_alive=lambda _: True
        )
        self.id = self.claim.migration_id
        self.spec = Spec.model_validate(SPEC | spec)
        self.applications = Applications()

    def make_target(self) -> None:
        create_target(
            self.cluster, self.journal, self.claim, name=TARGET, partitions=4, replication_factor=1, configs={}, acls=[]
        )

    def fence(self, offsets: dict[int, int] | None = None) -> None:
        record = FenceRecord(
            topic=SOURCE,
            topic_id=self.topic_id,
            partitions=2,
            fence_offsets=offsets or {0: 0, 1: 0},
            began_at="2026-01-01T00:00:00Z",
            taken_at="2026-01-01T00:00:01Z",
            settings=FenceSettings(),
            samples=[],
            acls_before=[],
            acls_added=[],
        )
        self.evidence.write(self.id, "fence.json", record.model_dump_json())
        self.did(FENCE)

    def certify(self, consumer: str = "", *, fence: dict[int, int] | None = None, **change: Any) -> None:
        groups = [c.group for c in self.spec.consumers if consumer in ("", c.name)]
        paper = {
            "topic": SOURCE,
            "topic_id": self.topic_id,
            "taken_at": "2026-01-01T00:00:02Z",
            "fence_offsets": fence or {0: 0, 1: 0},
            "verdict": "drained",
            "groups": [
                {"group": g, "kind": "classic", "state": "STABLE", "verdict": "drained", "partitions": []}
                for g in groups
            ],
            **change,
        }
        self.evidence.write(self.id, certificate_name(consumer), json.dumps(paper))

    def verify(self, consumer: str = "", **change: Any) -> None:
        question = hashlib.sha256(self.evidence.read(self.id, certificate_name(consumer)) or b"").hexdigest()
        said = {"verdict": "verified", "question": question, **change}
        self.evidence.write(self.id, verification_name(consumer), json.dumps(said))

    def did(self, step: str, state: str = "done", **data: Any) -> None:
        self.journal.intend(self.claim, step, data)
        if state != "intended":
            self.journal.finish(self.claim, step, {}, state=state)

    @property
    def run(self) -> Any:
        row = self.journal.current(self.id)
        context: Any = SimpleNamespace(target=TARGET, source=SOURCE)
        return SimpleNamespace(
            journal=self.journal,
            evidence=self.evidence,
            claim=self.claim,
            clock=self.clock,
            admin=self.cluster,
            row=row,
            spec=self.spec,
            progress=lambda _: None,
            event=lambda kind, data, actor="o": self.journal.event(self.claim, kind, actor, data),
            read=lambda name: self.evidence.read(self.id, name),
            write=lambda name, data: self.evidence.write(self.id, name, data),
            cast=lambda *_: Cast({"route": self.applications, "manual": Person()}, context),  # type: ignore[dict-item]
        )


class Person(Applications):
    """Participants that a person moves."""

    kind, needs_person, leased = "manual", True, False


@pytest.fixture
def world() -> World:
    """Fenced, certified and verified: the switch may come."""
    made = World()
    made.make_target()
    begin_freeze(made.journal, made.claim, made.clock, timedelta(seconds=60))
    made.fence()
    made.certify()
    made.verify()
    return made


# -------------------------------------------------------------------------------------------- approve, create_target


def test_no_target_is_made_for_a_plan_that_nobody_approved(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    plan = SimpleNamespace(plan_hash="h1")
    monkeypatch.setattr("topicshift.core.plan.model.Plan.model_validate_json", lambda _: plan)
    with pytest.raises(Refused, match=r"approval of approve\.plan for plan_hash h1"):
        CreateTarget(task_id="create").step(world.run, {})
    assert world.cluster.topic(TARGET) is None
    record_approval(world.journal, world.claim, APPROVE_PLAN, {"plan_hash": "h0"}, actor="user:a", how="person")
    with pytest.raises(Refused, match="approval"):
        require_approval(world.journal, world.id, APPROVE_PLAN, {"plan_hash": "h1"})
    record_approval(world.journal, world.claim, APPROVE_PLAN, {"plan_hash": "h1"}, actor="user:a", how="person")
    require_approval(world.journal, world.id, APPROVE_PLAN, {"plan_hash": "h1"})


def test_a_target_that_is_there_is_not_used_for_a_plan_that_nobody_approved(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made for an earlier plan: a new one is asked about again, and marking approve.plan is no answer."""
    target = SimpleNamespace(name=TARGET, partitions=4, replication_factor=1, configs={}, acls=[])
    plan = SimpleNamespace(plan_hash="h2", source=SimpleNamespace(), target=target)
    monkeypatch.setattr("topicshift.core.plan.model.Plan.model_validate_json", lambda _: plan)
    record_approval(world.journal, world.claim, APPROVE_PLAN, {"plan_hash": "h1"}, actor="user:a", how="person")
    with pytest.raises(Refused, match=r"approval of approve\.plan for plan_hash h2"):
        CreateTarget(task_id="create").step(world.run, {})
    record_approval(world.journal, world.claim, APPROVE_PLAN, {"plan_hash": "h2"}, actor="user:a", how="person")
    assert CreateTarget(task_id="create").step(world.run, {})["topic_id"]


def test_nobody_is_stopped_for_a_target_that_was_not_made() -> None:
    world = World()
    with pytest.raises(Refused, match="was not made by this migration"):
        StopAndFence(task_id="fence").question(world.run, {})
    assert world.journal.step(world.id, "freeze") is None
    event = {"status": "ready"}
    context: Any = {"dag_run": SimpleNamespace(run_type="manual", start_date=world.clock.now(), run_after=None)}
    world.spec = Spec.model_validate(SPEC | {"producers": [{"name": "checkout"}]})
    with pytest.raises(Refused, match="was not made by this migration"):
        ReadyToFence(task_id="ready").woken(world.run, context, event)


def test_a_target_that_was_deleted_or_made_again_gets_no_producer(world: World) -> None:
    assert SwitchProducers(task_id="switch").question(world.run, {}) is None
    world.cluster.delete_topic(TARGET)
    with pytest.raises(Refused, match="does not exist any more"):
        SwitchProducers(task_id="switch").question(world.run, {})
    world.cluster.create_topic(TARGET, 1, 1, {})
    with pytest.raises(Refused, match="is another topic now"):
        SwitchProducers(task_id="switch").question(world.run, {})


# ------------------------------------------------------------------------------------------------ drain, confirm


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda w: w.evidence.files.pop((w.id, "drain_certificate.json")), "there is no drain certificate"),
        (lambda w: w.evidence.write(w.id, "drain_certificate.json", "{}"), "cannot be read"),
        (lambda w: w.certify(fence={0: 7, 1: 0}), "another fence"),
        (lambda w: w.certify(topic_id="other"), "another topic"),
        (lambda w: w.certify(verdict="unknown"), "says unknown"),
        (lambda w: w.certify("ledger") or w.certify(groups=[]), "does not say so of ledger-g, fraud-g"),
        (lambda w: w.evidence.files.pop((w.id, "drain_verification.json")), "has not answered"),
        (lambda w: w.certify(taken_at="2026-01-01T00:00:09Z"), "another certificate"),
        (lambda w: w.verify(verdict="not_drained"), "says not_drained"),
        (lambda w: w.evidence.write(w.id, "drain_verification.json", "[1]"), "cannot be read"),
    ],
)
def test_producers_go_nowhere_without_a_verified_certificate_for_this_fence(
    world: World, spoil: Any, said: str
) -> None:
    assert SwitchProducers(task_id="switch").question(world.run, {}) is None
    spoil(world)
    with pytest.raises(Refused, match=said):
        SwitchProducers(task_id="switch").question(world.run, {})


def test_with_producers_first_the_certificate_comes_after_the_switch() -> None:
    world = World(cutover="producers_first")
    world.make_target()
    begin_freeze(world.journal, world.claim, world.clock, timedelta(seconds=60))
    world.fence()
    assert SwitchProducers(task_id="switch").question(world.run, {}) is None
    world.did(SWITCH_PRODUCERS)
    group = SwitchGroup(task_id="group", consumer="ledger")
    with pytest.raises(Refused, match="no drain certificate"):
        group.question(world.run, {})
    world.certify("ledger")
    world.verify("ledger")
    assert group.question(world.run, {}) is None
    with pytest.raises(Refused, match="fraud-g"):
        SwitchGroup(task_id="group", consumer="fraud").question(world.run, {})


# ------------------------------------------------------------------------------------------------ switch, report


@pytest.mark.parametrize("state", [None, "undone"])
def test_no_group_leaves_the_source_before_the_producers_have(world: World, state: str | None) -> None:
    if state:
        world.did(SWITCH_PRODUCERS, state)
    with pytest.raises(Refused, match="The producers were not switched"):
        SwitchGroup(task_id="group", consumer="ledger").question(world.run, {})
    world.did(SWITCH_PRODUCERS)
    assert SwitchGroup(task_id="group", consumer="ledger").question(world.run, {}) is None


def test_a_switch_that_was_begun_counts_only_where_the_producers_run_there(world: World) -> None:
    world.did(SWITCH_PRODUCERS, "intended")
    group = SwitchGroup(task_id="group", consumer="ledger")
    assert group.question(world.run, {}) is None, "a person still starts the rest of the producers"
    world.applications.topic = SOURCE
    with pytest.raises(Refused, match="producer checkout running on payments"):
        group.question(world.run, {})


@pytest.mark.parametrize("state", [None, "intended", "undone"])
def test_a_switch_that_was_only_marked_fails_inside_the_freeze_so_that_producers_are_given_back(
    world: World, state: str | None
) -> None:
    if state:
        world.did(SWITCH_PRODUCERS, state)
    with pytest.raises(Refused, match="not on the target"):
        StartByHand(task_id="by_hand").question(world.run, {})


def test_a_person_is_not_asked_to_start_producers_before_the_switch(world: World) -> None:
    world.spec = Spec.model_validate(SPEC | {"producers": [{"name": "checkout", "kind": "manual"}]})
    with pytest.raises(Refused, match="not on the target"):
        StartByHand(task_id="by_hand").question(world.run, {})
    world.did(SWITCH_PRODUCERS, "intended")
    asked = StartByHand(task_id="by_hand").question(world.run, {})
    assert asked is not None and "checkout" in asked.subject


@pytest.mark.parametrize("left", [SWITCH_PRODUCERS, switch_step("fraud-g")])
def test_a_migration_is_not_closed_while_anybody_is_on_the_source(world: World, left: str) -> None:
    world.evidence.write(world.id, "order_proof.json", json.dumps({"verdict": "proven"}))
    steps = [SWITCH_PRODUCERS, switch_step("ledger-g"), switch_step("fraud-g")]
    for step in steps:
        world.did(step, "intended" if step == left else "done")
    with pytest.raises(Refused, match=r"group fraud-g \(intended\)|the producers \(intended\)"):
        FinishMigration(task_id="report").step(world.run, {})
    assert world.journal.current(world.id).state == "open"


# ------------------------------------------------------------------------------------------------ retire, other


def test_no_source_is_denied_or_deleted_without_an_answer_on_record(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextlib import nullcontext

    monkeypatch.setattr(retire, "named_migration", lambda *_: nullcontext(world.run))
    with pytest.raises(Refused, match=r"approval of retire\.approve for topic payments"):
        retire.ScreamTest(task_id="scream", migration="m").execute({})
    assert not world.cluster.acls()
    with pytest.raises(Refused, match=r"approval of retire\.approve"):
        retire.DeleteSource(task_id="delete", migration="m").execute({})
    about = {"topic": SOURCE, "topic_id": world.topic_id}
    record_approval(world.journal, world.claim, retire.APPROVE, about, actor="user:a", how="person")
    with pytest.raises(Refused, match="No scream test is running"):
        retire.DeleteSource(task_id="delete", migration="m").execute({})
    assert world.cluster.topic(SOURCE) is not None


def test_a_scream_test_counts_only_when_its_time_has_passed(world: World) -> None:
    until = world.clock.now() + timedelta(minutes=10)
    world.journal.intend(world.claim, SCREAM, {"until": until.isoformat()})
    with pytest.raises(Refused, match="goes on until"):
        require_screamed(world.journal, world.id, SCREAM, world.clock)
    world.clock.advance(601)
    require_screamed(world.journal, world.id, SCREAM, world.clock)


def test_a_spark_task_without_its_input_says_which_task_left_none(world: World) -> None:
    task = KeyRehashImpact(task_id="t", candidates_from="plan.check")
    with pytest.raises(Refused, match=r"plan\.check left no answer"):
        task.prepare(world.run, {"ti": SimpleNamespace(try_number=1, xcom_pull=lambda **_: None)})
