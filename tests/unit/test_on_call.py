"""docs/on-call.md: each of its rows promises what is seen and what helps, and has tests that show it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from tests.unit.world import SOURCE, TARGET, World

from topicshift.core.engine.words import Step
from topicshift.core.errors import AmbiguousState

ROOT = Path(__file__).parents[2]
RUN_IN_PLAN = "test_what_blocks_the_plan_stops_the_run_before_spark_is_started_and_changes_nothing"
SIMULATED = "test_no_promise_is_broken"
"""The simulator: whole migrations with kills of every process, dead brokers and an Airflow that is away."""

TERMINAL = ("test_a_migration_goes_to_its_end_from_a_terminal", "test_a_freeze_is_ended_from_a_terminal")

PROMISES: dict[str, tuple[str, ...]] = {
    "The run failed in `plan`": (RUN_IN_PLAN,),
    "A second run says *held by ...*": (
        "test_a_topic_of_a_running_migration_is_refused_with_the_owners_name",
        "test_a_rollback_before_the_first_record_puts_everything_back",
    ),
    "The run failed, and says *producers are back on the source*": (
        "test_the_run_itself_resumes_when_a_task_of_its_freeze_has_failed",
        "test_killed_anywhere_producers_resume_on_the_source",
    ),
    "The run failed with `AmbiguousState`": (
        "test_what_a_person_must_look_at_makes_the_run_red_and_changes_nothing",
        "test_a_switch_that_died_half_way_is_never_undone_blindly",
    ),
    "The run failed with `FenceBroken` after the switch": (
        "test_a_source_that_does_not_stand_still_leaves_the_run_standing_with_the_writer_named",
        "test_a_source_that_is_another_one_after_the_switch_stops_the_run_where_it_is",
        "test_what_a_command_fails_with_is_a_failed_step",
    ),
    "The run failed, and says that the source *has 4 partitions now* (or other configs, or was made again)": (
        "test_nobody_is_stopped_for_a_source_that_is_not_as_it_was_planned",
    ),
    "*came to the source too late*": (
        "test_what_a_released_group_cannot_see_is_named_and_accepted_by_name",
        "test_a_late_record_is_read_by_who_can_and_accepted_by_name_for_who_cannot",
        "test_a_yes_is_for_exactly_these_records",
        "test_replayed_records_are_in_the_target_once_and_nobody_is_asked_about_them",
    ),
    "`verify.report` runs a Spark job": ("test_the_last_task_of_a_run_makes_the_proof_anew_after_a_replay",),
    "Nobody answered a question": (
        "test_no_and_silence_end_the_task",
        "test_without_a_yes_to_the_cut_over_producers_resume_on_the_source",
    ),
    "The freeze must end now": ("test_a_freeze_is_ended_from_a_terminal",),
    "A run was marked as failed or success in the freeze": (
        "test_a_rollback_before_the_first_record_puts_everything_back",
        "test_when_a_freeze_counts_as_abandoned",
    ),
    "A task was marked as success": ("test_a_task_that_is_marked_as_success_proves_nothing_and_is_done_by_the_next",),
    "A task stays `running` and its worker is dead": ("test_killed_anywhere_it_ends_the_same", SIMULATED),
    "`stop_producers.go` asks again, with another mark": (
        "test_a_question_that_has_changed_is_a_new_one_and_looks_new",
        "test_a_no_stops_nobody_and_a_go_that_has_changed_is_asked_anew",
    ),
    "Somebody said *Not now*": (
        "test_without_a_go_nobody_is_ever_stopped_and_it_is_asked_again",
        "test_a_no_stops_nobody_and_a_go_that_has_changed_is_asked_anew",
    ),
    "A task waits and says *the window is closed*": (
        "test_a_missed_window_is_said_and_what_was_prepared_is_put_back_until_the_next",
    ),
    "A question says one thing, and `topic_question` asks another": (
        "test_a_question_that_has_changed_is_asked_anew_in_a_run_of_its_own",
        "test_a_rollback_before_the_first_record_puts_everything_back",
    ),
    "A task says *... is at ...*": (
        "test_a_second_advancer_waits_while_another_acts_and_takes_over_when_its_time_is_over",
    ),
    "The scheduler or the triggerer died": (TERMINAL[0], SIMULATED),
    "All of Airflow is down in a freeze": (
        "test_a_lease_that_runs_out_lets_producers_go_on_where_they_were",
        "test_a_dead_orchestrator_does_not_stop_the_business",
        *TERMINAL,
    ),
    "A task says that the clock of its machine is off the brokers'": (
        "test_an_orchestrator_whose_clock_is_wrong_stops_nobody",
    ),
    "A broker died": ("test_a_broker_that_died_is_waited_for_until_the_cluster_knows", SIMULATED),
    "An instance of a producer died": (
        "test_one_that_is_killed_after_it_paused_holds_up_nothing",
        "test_a_killed_client_is_unknown_by_name",
        "test_a_person_who_knows_that_an_instance_is_dead_ends_the_wait",
    ),
    "The gate says of a principal that *an ACL that was made after the plan lets it write*": (
        "test_who_may_write_since_the_plan_keeps_the_gate_shut_by_name",
    ),
    "The gate says of an application that it *follows the route of this topic*": (
        "test_an_application_that_joins_the_route_after_the_plan_keeps_the_gate_shut_by_name",
    ),
    "An instance is *not understood*": (
        "test_a_bad_acknowledgement_of_this_topic_is_unknown_by_name_until_it_is_dismissed",
    ),
    "The plan or `prepare` names a config of `__topicshift_routes` or `__topicshift_acks`": (
        "test_wrong_configs_are_found_before_they_are_relied_on_and_mended",
    ),
    "A member of a group died": (SIMULATED,),
    "The DAG was paused in a freeze": ("test_when_a_freeze_counts_as_abandoned", SIMULATED),
    "`topic_rollback` says that it was *called off*": (
        "test_a_rollback_stops_producers_for_the_freeze_budget_at_most_and_is_called_off_then",
        "test_records_that_come_while_producers_are_stopped_call_the_rollback_off",
        "test_a_freeze_that_outlasts_its_budget_leaves_everybody_on_the_target_and_the_source_shut",
        "test_a_rollback_that_was_called_off_is_asked_about_anew",
    ),
    "`topic_rollback` or `topic_resume_on_source` says that the target holds records that came while producers": (
        "test_records_that_came_while_producers_went_back_are_named_and_everybody_is_on_the_source",
    ),
    "`topic_rollback` asks about `drain_back`": (
        "test_everybody_goes_back_and_nothing_is_left_unread",
        "test_status_offers_to_drain_back_once_everybody_is_on_the_target",
        "test_after_the_switch_everybody_goes_back_and_nothing_is_lost",
    ),
    "`topic_rollback` is done, and the target is still there": (
        "test_everybody_goes_back_and_nothing_is_left_unread",
        "test_after_the_switch_everybody_goes_back_and_nothing_is_lost",
    ),
    "`topic_rollback` says `forward_only`": (
        "test_no_way_back_past_a_later_migration_which_is_named",
        "test_records_in_the_target_are_never_left_behind",
        "test_no_way_back_before_every_group_reads_the_target",
        "test_no_way_back_where_the_source_was_written_to",
        "test_status_computes_the_type_of_rollback_live",
    ),
    "Everybody is to go back, and Airflow is down": (
        "test_a_migration_goes_back_from_a_terminal_and_says_first_which_type_that_is",
        "test_a_rollback_that_was_begun_goes_on_from_a_terminal",
    ),
    "A migration will not go on, and holds its topics": (
        "test_a_freeze_is_ended_from_a_terminal",
        "test_what_a_person_closed_is_not_opened_again_by_the_run_that_is_cleared",
    ),
    "After the end, a group still reads the source": ("test_every_kind_of_reader_shows_and_old_commits_do_not",),
    "An answer has no effect, and the question is asked again": (
        "test_who_triggered_the_run_may_not_answer_alone",
        "test_who_triggered_a_run_may_not_answer_alone_and_people_are_told_once",
    ),
    "The run failed with *the installation policy does not allow it*": (
        "test_a_plan_below_the_policy_is_refused_and_nothing_is_made",
        "test_a_policy_that_was_tightened_after_the_plan_stops_the_run_before_the_freeze",
    ),
    "You are told `freeze_overlong`": ("test_a_freeze_that_ends_on_the_source_says_why_and_a_run_that_stands_too",),
    "The journal's database is down in a freeze": (
        "test_status_says_what_the_route_says",
        "test_producers_resume_under_the_next_claim_of_their_migration",
        "test_nobody_goes_back_where_somebody_may_be_on_the_target",
        "test_everything_else_is_unknown",
    ),
    "The gate says of a group `lost_unread`": ("test_a_group_that_cannot_drain_keeps_the_gate_shut_by_name",),
    "A migration is to wait": (
        "test_a_pause_says_what_it_does_and_is_seen_in_the_status",
        "test_a_pause_in_a_freeze_is_refused_with_the_way_out",
        "test_a_freeze_is_postponed_to_a_time_or_the_next_window",
        "test_after_the_switch_a_pause_holds_groups_and_the_proof_but_not_the_watch_over_the_fence",
    ),
    "A migration is not wanted any more": (
        "test_an_abort_before_anything_was_changed_asks_and_ends_it",
        "test_an_abort_leaves_what_was_there_before",
        "test_after_the_switch_an_abort_says_which_way_is_left",
    ),
    "`topic_source_watch` is red in `look`": (
        "test_a_stray_write_is_told_once_and_changes_nothing",
        "test_a_group_that_comes_back_is_named_and_so_is_its_end",
        "test_a_source_that_was_deleted_or_replaced_by_somebody_else",
        "test_the_task_is_red_while_somebody_has_to_see_to_it_and_people_are_told_once",
    ),
    "`status` says that commits have expired (TS611)": (
        "test_commits_that_expire_are_told_and_the_certificate_keeps_them",
    ),
    "`topic_source_watch` names a DENY that had been lifted (TS615)": (
        "test_a_deny_that_a_late_request_sets_after_the_end_is_named_with_what_lifts_it",
        "test_a_deny_of_the_scream_test_that_comes_when_it_is_over_is_named_and_the_fence_is_not",
        "test_one_that_was_rolled_back_is_watched_for_late_requests_for_a_day",
    ),
    "The deleted source is there again (TS614)": ("test_a_topic_that_comes_back_is_named_as_well_as_kafka_allows",),
    "Tasks may be cleared at any time, twice too": (
        "test_every_task_may_run_twice",
        "test_tasks_cleared_twice_after_the_end_change_nothing",
    ),
}


def test_every_promise_has_its_test() -> None:
    page = (ROOT / "docs" / "on-call.md").read_text("utf-8")
    assert [words for words in PROMISES if words not in page] == [], "the page says it otherwise now"
    rows = [line for line in page.split("\n") if line.startswith("| ") and not line.startswith("| what you see")]
    assert [row[:80] for row in rows if not any(words in row for words in PROMISES)] == [], "rows without a test"
    known = set[str]()
    for file in (ROOT / "tests").rglob("test_*.py"):
        known |= {n.name for n in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(n, ast.FunctionDef)}
    assert {t for tests in PROMISES.values() for t in tests} - known == set()


def test_records_that_came_while_producers_went_back_are_named_and_everybody_is_on_the_source() -> None:
    w = World()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    start = w.apps.start

    def wakes(ctx: Any, participants: Any) -> None:
        start(ctx, participants)
        w.write(SOURCE)
        if not w.cluster.offsets(TARGET)[0].end:
            w.write(TARGET)

    w.apps.start = wakes  # type: ignore[method-assign]
    with pytest.raises(AmbiguousState, match=r"holds 1 record\(s\) that came while producers went back"):
        w.advanced(wanted="rollback")
    assert w.where() == {(SOURCE, True)}
