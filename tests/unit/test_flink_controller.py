"""The controller of kind ``flink`` over a JobManager in memory: what it does, what it says, and never does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.flink_contract import CONTRACT, Case, Known
from tests.unit.flink_place import GROUP, SOURCE, TARGET, Place, intake, scorer, told, writes

from topicshift.adapters.controllers.flink import FlinkController
from topicshift.core.errors import AccessDenied, NotFound, Transient
from topicshift.core.kafka.cluster import GroupMember
from topicshift.ports import Participant
from topicshift.testing.fake_journal import ManualClock

PREFIXED = Participant(
    "scorer", "consumer", "flink", GROUP, None, told("scorer", sinks=["scored"], transactional_id_prefix="sc"), "none"
)


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.mark.parametrize("case", CONTRACT, ids=lambda c: c.__name__)
def test_the_job_manager_in_memory_keeps_the_contract(case: Case, place: Place) -> None:
    def until(holds: Any, what: str) -> Any:
        found = holds()
        assert found, what
        return found

    case(place.manager, Known("scorer", "scorer-in", "jobs.jar", 4, place.first.args), until)


# ------------------------------------------------------------------------------------------------ there and back


def test_a_consumer_goes_on_with_its_state_and_reads_the_target_alone(place: Place) -> None:
    place.moved()
    now = place.job()
    assert now.args == ["scorer", "scorer-in-payments-v2", TARGET, "--all"]
    assert (now.parallelism, now.reads, place.where()) == (4, {TARGET}, ("running", TARGET))
    assert place.manager.jobs[place.first.jid].state == "FINISHED"
    assert "1 checkpoint(s), 5 ms each, 0 failed (before: 1 checkpoint(s), 5 ms each, 0 failed)" in place.state().reason


def test_a_consumer_that_comes_back_has_the_uid_of_before_and_none_of_its_old_positions(place: Place) -> None:
    """A source that kept its state would not read a topic again that was taken away and comes back."""
    place.moved()
    place.stand()
    place.go(SOURCE)
    now = place.job()
    assert (now.args, now.parallelism) == (place.first.args, 4)
    assert now.state_of == {} and now.reads == {SOURCE}
    assert place.where() == ("running", SOURCE)


def test_a_consumer_that_never_left_goes_on_where_its_savepoint_is(place: Place) -> None:
    place.stand()
    place.go(TARGET)
    place = Place()
    place.stand()
    place.controller.point(place.ctx, [scorer], TARGET)
    place.go(SOURCE)
    assert place.job().args == place.first.args and place.job().state_of == {"scorer-in": SOURCE}
    assert place.where() == ("running", SOURCE)


def test_a_producer_keeps_its_source_and_all_its_state(place: Place) -> None:
    asked: list[Any] = []
    real = place.manager

    def hears(method: str, path: str, body: Any = None) -> Any:
        asked.append((method, path, body))
        return real(method, path, body)

    place.controller = FlinkController(place.cluster, lambda _: hears, place.clock)
    place.stand(intake)
    place.go(TARGET, intake)
    assert place.job("intake").args == ["intake", "intake-in", TARGET]
    (run,) = [body for method, path, body in asked if method == "POST" and path.endswith("/run")]
    assert run["allowNonRestoredState"] is False
    assert place.where(intake) == ("running", TARGET)


def test_an_act_that_is_done_already_changes_nothing(place: Place) -> None:
    place.moved(scorer, intake)
    heard, before = place.effects(), len(place.trail)
    place.go(TARGET, scorer, intake)
    assert heard == [] and len(place.trail) == before


def test_one_that_runs_is_not_pointed_elsewhere(place: Place) -> None:
    with pytest.raises(Transient, match=r"scorer: it is pointed to payments-v2 once it has ended: .*; intake: "):
        place.controller.point(place.ctx, [scorer, intake], TARGET)
    place.controller.point(place.ctx, [scorer], SOURCE)
    assert place.trail == []


def test_nothing_is_sent_once_the_time_of_the_act_is_over(place: Place) -> None:
    def over() -> None:
        raise Transient("held up")

    late, heard = replace(place.ctx, still=over), place.effects()
    with pytest.raises(Transient, match="held up"):
        place.controller.stop(late, [scorer])
    assert heard == [] and place.where() == ("running", SOURCE)
    place.stand()
    heard.clear()
    place.controller.point(place.ctx, [scorer], TARGET)
    with pytest.raises(Transient, match="held up"):
        place.controller.start(late, [scorer])
    assert heard == [] and place.where() == ("stopped", TARGET)


def test_secrets_in_a_failure_are_never_repeated(place: Place) -> None:
    place.manager.saves = False
    place.stand()
    assert "CompletionException" in place.state().reason and "hush" not in str(place.trail) + place.state().reason


# ------------------------------------------------------------------------------------------------------- the traps


def test_a_savepoint_that_failed_leaves_a_job_that_runs_on_and_is_stopped_anew(place: Place) -> None:
    place.manager.saves = False
    place.stand()
    assert place.where() == ("running", SOURCE) and "a stop of it failed" in place.state().reason
    place.manager.saves = True
    heard = place.effects()
    place.stand()
    assert len(heard) == 2 and place.where() == ("stopped", SOURCE)


def test_a_savepoint_that_is_complete_is_no_stop_where_the_job_failed(place: Place) -> None:
    """What its savepoint holds is not committed: it is started from it where it was, and stopped anew."""
    place.manager.finishes = False
    place.stand(scorer, intake)
    for who in (scorer, intake):
        assert place.where(who) == ("unknown", SOURCE), "neither one that runs nor one that stands"
        assert "its savepoint is complete, and job" in place.state(who).reason
        assert "is FAILED: it did not finish" in place.state(who).reason
    with pytest.raises(Transient, match="not known"):
        place.manager.jobs[place.first.jid].savepoint = ""
        place.controller.point(place.ctx, [scorer], TARGET)
    place.manager.finishes = True
    place.stand(intake)
    assert place.job("intake").args == place.other.args and place.trail[-1]["moment"] == "restart"
    assert place.where(intake) == ("running", SOURCE)
    place.stand(intake)
    assert place.where(intake) == ("stopped", SOURCE)


def test_a_job_that_failed_and_was_recovered_is_stopped_with_another_savepoint(place: Place) -> None:
    place.manager.finishes = False
    place.stand()
    place.first.state = "RUNNING"
    assert place.where() == ("running", SOURCE) and "and it runs on" in place.state().reason
    place.manager.finishes = True
    place.stand()
    assert len(place.first.stops) == 2 and place.where() == ("stopped", SOURCE)


@pytest.mark.parametrize("known", [True, False])
def test_a_job_that_is_suspended_is_not_started_again_by_anybody(place: Place, known: bool) -> None:
    """Another JobManager may go on with it; without a snapshot it would begin anew."""
    if known:
        place.stand()
    place.first.state = "SUSPENDED"
    heard = place.effects()
    place.stand()
    assert place.where() == ("unknown", SOURCE) and "SUSPENDED" in place.state().reason
    for act in (lambda: place.controller.point(place.ctx, [scorer], TARGET), lambda: place.go(SOURCE)):
        with pytest.raises(Transient, match="SUSPENDED, so somebody may go on with it"):
            act()
    assert heard == []


def test_a_savepoint_without_a_reference_is_none(place: Place) -> None:
    place.manager.slow = True
    place.stand()
    place.manager.settle()
    for said in place.first.stops.values():
        said["operation"] = {}
    place.first.savepoint = ""
    assert (
        place.where() == ("unknown", None) and "what it would have to go on from is not known" in place.state().reason
    )
    with pytest.raises(
        Transient, match=r"start it from there on payments with a job id that begins with [0-9a-f]{16} "
    ):
        place.go(TARGET)
    assert len([j for j in place.manager.jobs.values() if j.name == "scorer"]) == 1


def test_transactions_of_its_sink_have_to_end_before_it_stands(place: Place) -> None:
    place.cluster.create_topic("scored", 1, 1, {})
    place.stand(PREFIXED)
    assert place.where(PREFIXED) == ("stopped", SOURCE)
    left = place.open("sc-0-7", "scored")
    found = place.state(PREFIXED)
    assert found.status == "unknown" and "transactions of it are open: sc-0-7 on scored" in found.reason
    left.abort()
    place.open("another-0", "scored")
    assert place.where(PREFIXED) == ("stopped", SOURCE)


def test_a_producers_transactions_on_the_source_have_to_end_too(place: Place) -> None:
    who = Participant("intake", "producer", "flink", settings=writes("intake", transactional_id_prefix="in"))
    place.stand(who)
    place.open("in-0-1", SOURCE)
    assert "in-0-1 on payments" in place.state(who).reason and place.state(who).status == "unknown"


def test_a_prefix_that_changed_leaves_transactions_open_and_they_are_named(place: Place) -> None:
    """They hold back whoever reads the sink's topics: the job runs, and has not arrived."""
    place.cluster.create_topic("scored", 1, 1, {})
    place.moved(PREFIXED)
    left = place.open("sc-0-7", "scored", place.first.began)
    found = place.state(PREFIXED)
    assert found.status == "unknown" and "transactions from before its start are open: sc-0-7" in found.reason
    left.abort()
    place.open("sc-0-8", "scored", place.job().began + 1)
    assert place.where(PREFIXED) == ("running", TARGET)


def test_a_source_that_kept_its_uid_reads_both_topics_and_has_not_arrived(place: Place) -> None:
    who = Participant(
        "scorer", "consumer", "flink", GROUP, None, told("scorer", args=["scorer", "scorer-in", "{topic}"]), "none"
    )
    place.moved(who)
    assert place.job().reads == {SOURCE, TARGET}
    found = place.state(who)
    assert found.status == "unknown" and "its source has not the uid 'scorer-in-payments-v2'" in found.reason


# ------------------------------------------------------------------------------------------------------- arriving


def test_it_has_arrived_once_a_checkpoint_is_complete_and_every_commit_moves(place: Place) -> None:
    place.manager.checkpoints = False
    place.cluster.produce(TARGET, 2, 5)
    place.moved()
    assert place.where() == ("unknown", TARGET) and "its latest checkpoint is not complete" in place.state().reason
    place.job().completed = 1
    assert "its commits do not move on payments-v2[2] (at 0 of 5)" in place.state().reason
    place.cluster.commit(GROUP, TARGET, {2: 1})
    assert place.where() == ("running", TARGET)
    place.job().failing, place.job().failed = True, 1
    assert place.where() == ("unknown", TARGET) and "1 failed" in place.state().reason


def test_one_that_fails_at_its_start_is_started_again_from_the_same_savepoint(place: Place) -> None:
    place.manager.starts = False
    place.moved()
    assert place.where() == ("unknown", TARGET) and "is FAILED" in place.state().reason
    first = place.job().jid
    place.manager.starts = True
    place.go(TARGET)
    assert place.job().jid != first and place.where() == ("running", TARGET)
    assert {t["savepoint"] for t in place.trail if "savepoint" in t} == {place.first.savepoint}


def test_one_that_failed_at_its_start_needs_no_stop_to_go_back(place: Place) -> None:
    place.manager.starts = False
    place.moved()
    place.stand()
    place.manager.starts = True
    place.go(SOURCE)
    assert place.job().args == place.first.args and place.where() == ("running", SOURCE)
    assert place.job().state_of == {"scorer-in": SOURCE}


def test_one_that_fails_after_it_has_written_is_never_started_from_an_old_savepoint(place: Place) -> None:
    place.moved()
    place.job().state, place.job().completed = "FAILED", 3
    count = len(place.manager.jobs)
    for act in (lambda: place.controller.start(place.ctx, [scorer]), place.stand):
        with pytest.raises(Transient, match="is FAILED, and what it would have to go on from is not known"):
            act()
    assert len(place.manager.jobs) == count and place.where() == ("unknown", TARGET)


def test_it_is_not_started_for_ever(place: Place) -> None:
    place.manager.starts = False
    place.moved()
    with pytest.raises(Transient, match="it ended 20 times after it was started from file:/saved"):
        for _ in range(30):
            place.go(TARGET)


def test_a_job_that_somebody_else_started_is_on_no_topic_that_is_known(place: Place) -> None:
    place.moved()
    place.job().state = "CANCELED"
    place.manager.submit("f" * 32, place.first.args, 4)
    assert place.where() == ("running", None)
    assert "was not started by this migration" in place.state().reason


def test_two_of_the_same_name_are_neither_stopped_nor_believed(place: Place) -> None:
    place.manager.submit("f" * 32, place.first.args, 4)
    assert place.state().status == "unknown" and "cancel all but one" in place.state().reason
    with pytest.raises(Transient, match="2 jobs are named 'scorer'"):
        place.stand()


# ------------------------------------------------------------------------------------------------- a stop takes time


def test_while_its_savepoint_is_taken_it_neither_runs_nor_stands(place: Place) -> None:
    """Nobody may take it for one that runs, on a way back either: it is about to stand."""
    place.manager.slow = True
    place.stand()
    heard = place.effects()
    place.stand()
    place.controller.point(place.ctx, [scorer], SOURCE)
    place.controller.start(place.ctx, [scorer])
    assert place.where() == ("unknown", SOURCE) and "its savepoint is being taken" in place.state().reason
    assert heard == []
    place.manager.settle()
    assert place.where() == ("unknown", SOURCE) and "its savepoint is not noted yet" in place.state().reason
    place.stand()
    assert place.where() == ("stopped", SOURCE) and place.trail[-1]["moment"] == "saved"
    place.go(SOURCE)
    assert place.where() == ("running", SOURCE)


def test_another_consumer_in_its_group_keeps_it_from_standing(place: Place) -> None:
    place.cluster.join(GROUP, GroupMember("m", "m", "h", assignment={SOURCE: (0,)}))
    place.stand()
    assert place.state().status == "running" and "its job has finished" in place.state().reason


# ---------------------------------------------------------------------------------------------------- its JobManager


def test_a_job_manager_that_has_forgotten_everything_loses_nothing_that_was_pointed(place: Place) -> None:
    place.stand()
    place.manager.forget()
    assert place.where() == ("stopped", SOURCE)
    place.controller.point(place.ctx, [scorer], TARGET)
    assert place.where() == ("stopped", TARGET)
    place.cluster.commit(GROUP, TARGET, dict.fromkeys(range(6), 0))
    place.controller.start(place.ctx, [scorer])
    assert (place.job().parallelism, place.where()) == (4, ("running", TARGET))


@pytest.mark.parametrize("after", ["nothing", "slow stop", "start"])
def test_one_of_which_neither_knows_is_started_by_nobody(place: Place, after: str) -> None:
    if after == "slow stop":
        place.manager.slow = True
        place.stand()
    if after == "start":
        place.moved()
    place.manager.forget()
    assert place.state().status == "unknown" and "its JobManager knows no job of that name" in place.state().reason
    with pytest.raises(Transient, match="knows no job of that name"):
        place.controller.start(place.ctx, [scorer])


def test_a_job_manager_that_does_not_answer_leaves_it_unknown(place: Place) -> None:
    def dead(*_: Any) -> Any:
        raise Transient("GET /jobs/overview at http://m: no answer (refused)")

    controller = FlinkController(place.cluster, lambda _: dead, ManualClock())
    for who in (scorer, intake):
        (state,) = controller.observe(place.ctx, [who])
        assert state.status == "unknown" and "no answer" in state.reason


def test_a_job_manager_that_says_no_is_asked_again_and_keeps_nobody_else(place: Place) -> None:
    place.stand(scorer, intake)
    place.manager.saved.pop(place.first.savepoint)
    with pytest.raises(Transient, match=r"^scorer: .*was refused"):
        place.go(TARGET, scorer, intake)
    assert place.where(intake) == ("running", TARGET) and place.where() == ("stopped", TARGET)


@pytest.mark.parametrize(
    ("error", "raised", "said"),
    [
        (AccessDenied, AccessDenied, r"scorer: .*Nothing else of it is changed until that is put right"),
        (NotFound, Transient, "scorer: POST"),
    ],
)
def test_a_right_that_is_missing_stops_the_run_by_name_and_a_job_that_has_gone_is_looked_at_again(
    place: Place, error: type[Exception], raised: type[Exception], said: str
) -> None:
    real = place.manager

    def ask(method: str, path: str, body: Any = None) -> Any:
        if method == "POST":
            raise error("POST /jobs/x/stop is not allowed.")
        return real(method, path, body)

    place.controller = FlinkController(place.cluster, lambda _: ask, place.clock)
    with pytest.raises(raised, match=said):
        place.stand()


def test_a_jar_that_is_gone_is_asked_for(place: Place) -> None:
    place.stand()
    place.manager.jars.clear()
    with pytest.raises(Transient, match=r"no jar 'jobs.jar' \(any more\): upload it again"):
        place.go(TARGET)
    place.manager.upload("jobs.jar")
    place.go(TARGET)
    assert place.job().topic == TARGET


# --------------------------------------------------------------------------------------------------- parallelism


def test_it_starts_narrow_and_is_widened_once_its_lag_has_stayed_small_for_long_enough(place: Place) -> None:
    who = Participant("scorer", "consumer", "flink", GROUP, None, told("scorer", start_parallelism=1, raise_below=10))
    place.cluster.produce(TARGET, 0, 100)
    place.moved(who)
    place.cluster.commit(GROUP, TARGET, {0: 1})
    assert place.job().parallelism == 1 and place.where(who) == ("unknown", TARGET)
    assert "at parallelism 1 of 4 until its lag has stayed below 10 for 60 s (now 99)" in place.state(who).reason
    for at, seconds in ((95, 1), (95, 40), (80, 30), (95, 1), (95, 50)):
        place.cluster.commit(GROUP, TARGET, {0: at})
        place.clock.advance(seconds)
        place.controller.start(place.ctx, [who])
        assert place.job().state == "RUNNING" and place.job().parallelism == 1
    assert [t["below"] for t in place.trail if t["moment"] == "lag"] == [True, False, True]
    place.clock.advance(11)
    place.controller.start(place.ctx, [who])
    assert place.job().state == "FINISHED"
    place.controller.start(place.ctx, [who])
    now = place.job()
    assert (now.parallelism, now.args[1:3]) == (4, ["scorer-in-payments-v2", TARGET])
    assert now.state_of == {"scorer-in-payments-v2": TARGET}, "it goes on where it was"
    assert place.where(who) == ("running", TARGET)
    place.stand(who)
    place.go(SOURCE, who)
    assert place.job().parallelism == 4
