"""Jobs of a FlinkDeployment over an API server and an operator in memory: what is done, said, and never done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.flink_deployment_place import INTAKE, SCORER, Place, deployment, intake, scorer, told, writes
from tests.unit.flink_place import GROUP, SOURCE, TARGET
from tests.unit.flink_place import scorer as jar_job

from topicshift.core.errors import AccessDenied, Transient
from topicshift.core.flink.deployment import Shown, kept_of
from topicshift.core.kafka.cluster import GroupMember
from topicshift.core.kubernetes.workload import BEFORE
from topicshift.ports import Participant


@pytest.fixture
def place() -> Place:
    return Place()


def consumer(**changes: Any) -> Participant:
    return Participant("scorer", "consumer", "flink", GROUP, None, told("scorer", **changes), "none")


# ------------------------------------------------------------------------------------------------ there and back


def test_deployments_that_run_as_they_are_declared_can_be_moved(place: Place) -> None:
    heard = place.writes()
    assert place.controller.can_i(place.ctx, [scorer, intake]) == []
    assert not heard and not place.trail


def test_a_consumer_goes_on_with_its_state_and_reads_the_target_alone(place: Place) -> None:
    place.moved()
    now = place.job()
    assert (now.args, now.reads) == (["scorer", "scorer-in-payments-v2", TARGET, "--all"], {TARGET})
    assert place.where() == ("running", TARGET)
    args = {"scorer spec.job.args.1": "scorer-in-payments-v2", "scorer spec.job.args.2": TARGET}
    assert place.differs() == args, "its words alone have changed"
    assert "5 ms each, 0 failed (before: 1 checkpoint(s), 5 ms each, 0 failed)" in place.state().reason


def test_a_consumer_that_comes_back_has_every_field_of_before_and_none_of_its_old_positions(place: Place) -> None:
    place.moved()
    place.stand()
    place.go(SOURCE)
    assert place.job().state_of == {} and place.job().reads == {SOURCE}
    assert (place.where(), place.differs()) == (("running", SOURCE), {})


def test_a_consumer_that_never_left_goes_on_where_its_savepoint_is(place: Place) -> None:
    place.stand()
    place.controller.point(place.ctx, [scorer], TARGET)
    assert place.api.objects[SCORER]["spec"]["job"]["allowNonRestoredState"] is True
    place.go(SOURCE)
    assert place.job().state_of == {"scorer-in": SOURCE}
    assert (place.where(), place.differs()) == (("running", SOURCE), {})


def test_a_producer_keeps_its_source_and_all_its_state(place: Place) -> None:
    place.stand(intake)
    place.controller.point(place.ctx, [intake], TARGET)
    assert "allowNonRestoredState" not in place.api.objects[INTAKE]["spec"]["job"]
    place.go(TARGET, intake)
    assert place.job("intake").args == ["intake", "intake-in", TARGET, "--all"]
    assert place.where(intake) == ("running", TARGET)
    assert place.differs() == {"intake spec.job.args.2": TARGET}


def test_its_checkpoints_are_those_of_the_job_that_runs(place: Place) -> None:
    found = place.controller.checkpoints(place.ctx, [scorer, intake])
    assert {name: one.text() for name, one in found.items() if not isinstance(one, Exception)} == dict.fromkeys(
        ("scorer", "intake"), "1 checkpoint(s), 5 ms each, 0 failed"
    )
    place.stand()
    assert "it is SUSPENDED" in str(place.controller.checkpoints(place.ctx, [scorer])["scorer"])


def test_an_act_that_is_done_already_changes_nothing(place: Place) -> None:
    place.moved(scorer, intake)
    heard, before = place.writes(), len(place.trail)
    place.go(TARGET, scorer, intake)
    assert heard == [] and len(place.trail) == before


def test_a_deployment_and_a_job_from_a_jar_are_moved_by_one_controller(place: Place) -> None:
    """What cannot be done in one way keeps nobody from being moved in the other."""
    jar = replace(jar_job, name="jar")
    place.session.upload("jobs.jar")
    for n in "ab":
        place.session.submit(n * 32, ["scorer", "scorer-in", SOURCE, "--all"], 1)
    with pytest.raises(Transient, match=r"^jar: 2 jobs are named 'scorer'"):
        place.controller.stop(place.ctx, [jar, scorer])
    assert place.where()[0] == "stopped"
    place.session.jobs["a" * 32].state = "CANCELED"
    place.controller.stop(place.ctx, [jar, scorer])
    found = place.controller.observe(place.ctx, [scorer, jar])
    assert [(s.participant.name, s.status) for s in found] == [("scorer", "stopped"), ("jar", "stopped")]


def test_the_topic_and_the_uid_may_be_in_the_pods_environment_and_in_flinks_configuration(place: Place) -> None:
    one = deployment("scorer")
    env = [{"name": "TOPIC", "value": SOURCE}]
    one["spec"]["podTemplate"] = {"spec": {"containers": [{"name": "flink-main-container", "env": env}]}}
    one["spec"]["flinkConfiguration"] |= {"shop": {"uid": "scorer-in"}, "shop.flat": f"a={SOURCE}"}
    place.api.create(SCORER, one)
    who = consumer(topic_in="env:TOPIC", uid_in="config:shop.uid")
    place.stand(who)
    place.controller.point(place.ctx, [who], TARGET)
    spec = place.api.objects[SCORER]["spec"]
    assert spec["podTemplate"]["spec"]["containers"][0]["env"] == [{"name": "TOPIC", "value": TARGET}]
    assert spec["flinkConfiguration"]["shop"] == {"uid": "scorer-in-payments-v2"}
    assert spec["job"]["args"] == place.before[SCORER]["spec"]["job"]["args"]
    other = consumer(topic_in="config:shop.flat", uid_in="args")
    place.api.create(SCORER, one)
    place.stand(other)
    place.controller.point(place.ctx, [other], TARGET)
    spec = place.api.objects[SCORER]["spec"]
    assert spec["flinkConfiguration"]["shop.flat"] == f"a={TARGET}"
    assert spec["job"]["args"][1] == "scorer-in-payments-v2"


# ----------------------------------------------------------------------------------------------------- its traps


@pytest.mark.parametrize("older", [False, True])
def test_the_savepoint_may_be_in_either_of_two_fields(place: Place, older: bool) -> None:
    place.operator.older = older
    place.moved()
    assert place.where() == ("running", TARGET)
    status = place.api.objects[SCORER]["status"]["jobStatus"]
    assert ("upgradeSavepointPath" in status, "savepointInfo" in status) == (not older, older)


def test_suspended_without_a_savepoint_is_no_success_and_is_never_started(place: Place) -> None:
    place.operator.blind = True
    place.stand()
    found = place.state()
    assert found.status == "unknown" and "has no savepoint that was taken since it was stopped" in found.reason
    heard = place.writes()
    with pytest.raises(Transient, match=r"is not pointed to payments-v2: .* has no savepoint"):
        place.controller.point(place.ctx, [scorer], TARGET)
    with pytest.raises(Transient, match="it would begin without its state"):
        place.controller.start(place.ctx, [scorer])
    assert heard == []


def test_a_savepoint_of_an_earlier_stop_is_none_of_this_one(place: Place) -> None:
    """The operator would start it from there, and it would write again what it has written."""
    place.api.objects[SCORER]["status"]["jobStatus"]["upgradeSavepointPath"] = "s3://saved/old"
    place.operator.blind = True
    place.stand()
    assert place.state().status == "unknown" and "taken since it was stopped" in place.state().reason


def test_a_snapshot_resource_that_names_one_is_named_for_a_person(place: Place) -> None:
    place.operator.blind = True
    place.stand()
    path = SCORER.replace("flinkdeployments/scorer", "flinkstatesnapshots/s1")
    spec = {"jobReference": {"kind": "FlinkDeployment", "name": "scorer"}, "savepoint": {"path": "s3://saved"}}
    made = place.api.create(path, {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec})
    made["status"] = {"state": "COMPLETED", "path": "s3://saved/savepoint-7"}
    assert "FlinkStateSnapshot s1 names s3://saved/savepoint-7" in place.state().reason


def test_a_job_that_does_not_run_is_not_suspended(place: Place) -> None:
    """Its operator would fall back to its latest checkpoint."""
    place.job().state = "RESTARTING"
    place.reconcile()
    heard = place.writes()
    with pytest.raises(Transient, match=r"is stopped with a savepoint once it runs: .*its job RESTARTING"):
        place.stand()
    assert heard == []


def test_one_that_its_operator_stopped_without_a_savepoint_goes_on_where_it_was_and_nowhere_else(place: Place) -> None:
    place.operator.asleep = True
    place.stand()
    place.job().state = "RESTARTING"
    place.operator.asleep = False
    place.reconcile()
    found = place.state()
    assert found.status == "unknown" and "without a savepoint (last-state)" in found.reason
    with pytest.raises(Transient, match="is not pointed to payments-v2"):
        place.controller.point(place.ctx, [scorer], TARGET)
    place.go(SOURCE)
    assert (place.where(), place.differs()) == (("running", SOURCE), {})
    assert place.job().state_of == {"scorer-in": SOURCE}


def test_a_savepoint_that_fails_leaves_a_job_that_runs_on_and_is_put_back_as_it_was(place: Place) -> None:
    place.manager.saves = False
    place.stand()
    found = place.state()
    assert (found.status, found.topic) == ("unknown", SOURCE)
    assert "has not suspended it yet" in found.reason
    assert "org.apache.flink.UpgradeFailureException" in found.reason and "hush" not in found.reason
    place.go(SOURCE)
    assert (place.where(), place.differs(), place.live()) == (("running", SOURCE), {}, ["intake", "scorer"])
    assert len(place.manager.jobs) == 2


def test_one_that_is_about_to_be_suspended_is_not_taken_for_one_that_runs(place: Place) -> None:
    place.operator.asleep = True
    place.stand()
    assert place.where() == ("unknown", SOURCE)
    with pytest.raises(Transient, match="it is pointed to payments-v2 once it stands"):
        place.controller.point(place.ctx, [scorer], TARGET)
    place.operator.asleep = False
    place.reconcile()
    assert place.where() == ("stopped", SOURCE)


def test_one_that_is_started_runs_once_its_operator_has_deployed_it_and_it_is_put_back(place: Place) -> None:
    place.stand()
    place.cluster.commit(GROUP, TARGET, dict.fromkeys(range(6), 0))
    place.controller.point(place.ctx, [scorer], TARGET)
    place.operator.asleep = True
    place.controller.start(place.ctx, [scorer])
    assert place.where() == ("unknown", TARGET)
    place.operator.asleep = False
    place.reconcile()
    assert "is started, and not as before yet" in place.state().reason
    place.controller.start(place.ctx, [scorer])
    assert kept_of(place.api.objects[SCORER]) is None
    assert place.where() == ("running", TARGET)


def test_a_job_that_ignores_its_new_uid_has_not_arrived(place: Place) -> None:
    place.moved()
    place.job().uid = "scorer-in"
    found = place.state()
    assert found.status == "unknown" and "may read payments and payments-v2 together" in found.reason


def test_a_job_that_fails_on_the_target_goes_back_from_the_savepoint_of_its_stop(place: Place) -> None:
    place.manager.starts = False
    place.moved()
    found = place.state()
    assert found.status == "unknown" and "FAILED" in found.reason
    place.manager.starts = True
    place.stand()
    place.go(SOURCE)
    assert (place.where(), place.differs()) == (("running", SOURCE), {})
    assert place.job().state_of == {"scorer-in": SOURCE}


def test_an_open_transaction_of_its_sink_keeps_it_from_standing(place: Place) -> None:
    """A savepoint can be complete while its job failed behind it: its operator tells the same of both."""
    place.cluster.create_topic("scored", 1, 1, {})
    who = consumer(sinks=["scored"], transactional_id_prefix="sc")
    place.cluster.begin("sc-1").produce("scored", 0)
    place.stand(who)
    found = place.state(who)
    assert found.status == "unknown" and "transactions of it are open: sc-1 on scored" in found.reason


def test_what_another_migration_has_stopped_is_left_alone(place: Place) -> None:
    place.stand()
    other = replace(place.ctx, migration="n")
    with pytest.raises(Transient, match="migration m has stopped it and not put it back"):
        place.controller.stop(other, [scorer])
    assert any("migration m has stopped it" in line for line in place.controller.can_i(other, [scorer]))


def test_one_that_somebody_has_suspended_is_left_alone(place: Place) -> None:
    place.stand()
    del place.api.objects[SCORER]["metadata"]["annotations"][BEFORE]
    for act in (place.controller.stop, place.controller.start):
        with pytest.raises(Transient, match="it is suspended"):
            act(place.ctx, [scorer])


def test_a_right_that_is_missing_names_the_participant(place: Place) -> None:
    place.api.denied = {("update", "flinkdeployments")}
    with pytest.raises(AccessDenied, match=r"^scorer: PUT .*flinkdeployments/scorer.*HTTP 403.*Nothing else"):
        place.stand()


def test_somebody_elses_write_at_the_same_time_is_decided_anew(place: Place) -> None:
    place.api.conflicts = 2
    place.moved()
    assert place.where() == ("running", TARGET)


# ------------------------------------------------------------------------------------------------------ before


def _spec(place: Place) -> dict[str, Any]:
    spec: dict[str, Any] = place.api.objects[SCORER]["spec"]
    return spec


def _labelled(place: Place, **labels: str) -> None:
    place.api.objects[SCORER]["metadata"]["labels"] = labels


FLUX = {"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux"}


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        (
            lambda p: p.api.denied.add(("update", "flinkdeployments")),
            "may not update flinkdeployments.flink.apache.org",
        ),
        (lambda p: p.api.denied.add(("get", "services/proxy")), "may not get services/proxy scorer-rest:8081"),
        (lambda p: p.api.objects.pop(SCORER), "knows no FlinkDeployment/scorer in namespace shop"),
        (lambda p: _spec(p).pop("job"), "runs no job of its own (spec.job)"),
        (lambda p: _spec(p)["job"].update(upgradeMode="stateless"), "its upgradeMode is stateless"),
        (lambda p: _spec(p)["job"].update(state="suspended"), "it has to run before it can be moved"),
        (lambda p: p.api.objects[SCORER]["metadata"].update(generation=9), "has not acted on its spec as it is now"),
        (
            lambda p: p.api.objects[SCORER]["status"].pop("reconciliationStatus"),
            "lastReconciledSpec) is not on payments",
        ),
        (lambda p: _spec(p)["job"].update(args=["scorer", "scorer-in", "orders"]), "has to name 'payments' once"),
        (lambda p: _spec(p)["job"].update(args=["scorer", "x", SOURCE]), "has to name 'scorer-in' once"),
        (lambda p: _spec(p)["flinkConfiguration"].clear(), "names no folder for savepoints"),
        (
            lambda p: _spec(p)["flinkConfiguration"].update(
                {"kubernetes.operator.job.drain-on-savepoint-deletion": "true"}
            ),
            "a suspend would end it for good",
        ),
        (lambda p: setattr(p.job(), "uid", "other"), "none of its vertices begins with an operator of the uid"),
        (lambda p: setattr(p.job(), "failing", True), "its latest checkpoint failed"),
        (lambda p: p.cluster.join(GROUP, GroupMember("m", "m", "h")), "has 1 member(s), and a Flink job joins none"),
        (lambda p: _labelled(p, **FLUX), "is kept as Git has it by Flux Kustomization flux/apps"),
        (
            lambda p: p.api.objects[SCORER]["metadata"].update(
                ownerReferences=[{"kind": "FlinkBlueGreenDeployment", "name": "s", "controller": True}]
            ),
            "is controlled by FlinkBlueGreenDeployment/s",
        ),
    ],
)
def test_what_would_keep_a_deployment_from_being_moved_is_said_by_name(
    place: Place, change: Callable[[Place], object], seen: str
) -> None:
    change(place)
    assert place.able().startswith("scorer: ") and seen in place.able(), place.able()


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        ({"starts_at": "latest"}, "it starts at latest"),
        ({"source_uid": None}, "which uid its source has is not said"),
        ({"target_uid": "scorer-in"}, "has the same uid on both topics"),
        ({"topic_in": "env:TOPIC"}, "environment variable TOPIC is not there"),
        ({"uid_in": "config:shop.uid"}, "key shop.uid of flinkConfiguration is not there"),
        ({"transactional_id_prefix": "sc"}, "and where to is not said; see `sinks`"),
    ],
)
def test_what_is_declared_otherwise_than_it_is_is_said(place: Place, changes: dict[str, Any], seen: str) -> None:
    assert seen in place.able(consumer(**changes))


def test_a_deployment_that_is_declared_twice_is_named(place: Place) -> None:
    twice = Participant("again", "producer", "flink", settings=writes("scorer"))
    lines = place.controller.can_i(place.ctx, [scorer, twice])
    assert sum("FlinkDeployment/scorer is declared more than once" in line for line in lines) == 2


def test_a_status_of_older_operators_is_understood() -> None:
    one = deployment("scorer")
    one["status"] = {"reconciliationStatus": {"lastReconciledSpec": '{"job": {"upgradeMode": "savepoint"}}'}}
    seen = Shown.of(one)
    assert (seen.mode, seen.references, seen.runs) == ("savepoint", (), False)
    one["status"]["reconciliationStatus"]["lastReconciledSpec"] = "{"
    assert Shown.of(one).last is None
