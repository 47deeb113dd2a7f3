"""docs/what-if.md and docs/runbook.md: each row of the one has a test, and the other names what is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from topicshift.cli import COMMANDS

ROOT = Path(__file__).parents[2]
SIMULATED = "test_no_promise_is_broken"
"""The simulator: whole migrations with kills of every process, dead brokers and an Airflow that is away."""

SHOWN: dict[str, tuple[str, ...]] = {
    # plan and approve
    "something speaks against the migration": (
        "test_what_blocks_the_plan_stops_the_run_before_spark_is_started_and_changes_nothing",
        "test_bad_input_gets_a_clear_error_and_leaves_nothing",
    ),
    "a partition, a group or an ACL cannot be read": ("test_what_could_not_be_read_blocks_by_name",),
    "another run has the source or the target": (
        "test_a_topic_of_a_running_migration_is_refused_with_the_owners_name",
        "test_a_rollback_before_the_first_record_puts_everything_back",
    ),
    "the plan changes while a person reads it": (
        "test_a_plan_that_has_changed_since_it_was_accepted_is_asked_about_again",
        "test_a_question_that_has_changed_is_asked_anew_in_a_run_of_its_own",
    ),
    "the person who answers may not, or not alone": (
        "test_who_triggered_a_run_may_not_answer_alone_and_people_are_told_once",
    ),
    "you go back, and a broker is late with the end of the DENY for everybody": (
        "test_no_producer_goes_back_to_a_source_that_is_shut_for_everybody",
        "test_they_stand_still_for_a_late_broker_no_longer_than_a_freeze_may_last",
    ),
    "you go back, and a group does not read the source again": (
        "test_a_group_that_does_not_read_the_source_again_is_named_and_the_target_stays",
    ),
    "you go back, and a group's offsets on the source have expired": (
        "test_offsets_that_went_are_set_at_the_certificate_before_a_group_is_let_go",
        "test_a_group_that_a_person_moves_is_named_with_the_offsets_that_it_lacks",
    ),
    "another topic is written in one transaction with the source, or a group may join the two": (
        "test_topics_that_are_coupled_with_the_source_are_found_and_can_be_acknowledged",
    ),
    "one application writes the source and reads it": (
        "test_one_that_could_not_be_moved_whole_is_refused_before_anything_is_changed",
        "test_an_application_of_two_roles_goes_on_reading_the_source_until_its_group_has_drained",
    ),
    "a Kafka Streams application reads the source": (
        "test_kafka_streams_that_nobody_declared_is_named_with_its_way",
        "test_fires",
    ),
    "the plan is wrong": (
        "test_no_and_silence_end_the_task",
        "test_nothing_is_changed_for_a_plan_that_nobody_accepted",
    ),
    # the target
    "the task dies in the middle": ("test_killed_anywhere_it_is_finished_by_the_next",),
    "a topic of the target's name is there already": (
        "test_an_empty_target_of_the_same_shape_is_used_and_never_deleted",
        "test_only_an_empty_target_of_the_planned_shape_is_said_to_be_used",
    ),
    "you want to stop here": ("test_an_abort_leaves_what_was_there_before",),
    # the freeze
    "the window closes before the go": (
        "test_a_missed_window_is_said_and_what_was_prepared_is_put_back_until_the_next",
    ),
    "a group would not drain within the budget": ("test_a_group_that_cannot_drain_keeps_the_gate_shut_by_name",),
    "the migration has to wait": (
        "test_no_freeze_begins_before_its_time",
        "test_a_pause_begins_nothing_new_until_it_is_ended",
    ),
    "somebody says no, or nobody answers": (
        "test_without_a_go_nobody_is_ever_stopped_and_it_is_asked_again",
        "test_a_no_stops_nobody_and_a_go_that_has_changed_is_asked_anew",
    ),
    "the source is altered after the plan was made": (
        "test_nobody_is_stopped_for_a_source_that_is_not_as_it_was_planned",
    ),
    "a producer does not stop": ("test_a_producer_that_does_not_stop_is_named_and_the_freeze_ends_at_its_budget",),
    "an instance dies before it has acknowledged the pause": (
        "test_a_killed_client_is_unknown_by_name",
        "test_a_person_who_knows_that_an_instance_is_dead_ends_the_wait",
    ),
    "a transaction hangs on the source": (
        "test_a_person_is_asked_before_a_hanging_transaction_is_aborted",
        "test_without_a_yes_nothing_is_aborted_and_nobody_is_stopped",
    ),
    "a writer goes round the route": (
        "test_a_principal_is_denied_while_fenced_and_may_write_again_after",
        "test_a_writer_that_no_deny_holds_is_caught_by_the_offsets",
    ),
    "the freeze has to end now": ("test_a_freeze_is_ended_from_a_terminal",),
    # the drain
    "a group stands still": ("test_a_group_that_stands_still_raises_an_alarm", SIMULATED),
    "a record is written to the source after the fence": (
        "test_a_write_after_the_fence_is_named_and_ends_the_freeze",
        "test_a_write_after_the_fence_ends_the_freeze_and_names_the_partition",
    ),
    "somebody removes the DENY": ("test_a_deny_that_somebody_removed_is_put_back_and_said",),
    "the verifier dies": (
        "test_a_verifier_that_was_killed_before_the_freeze_is_started_anew",
        "test_where_the_verifier_has_died_this_process_reads_what_is_left",
    ),
    "reading finds a record that the commits passed over": ("test_a_verifier_that_finds_records_left_ends_the_freeze",),
    "a certificate gets old, or its file is changed": (
        "test_a_certificate_is_taken_anew_where_it_is_old_or_of_the_future",
        "test_a_certificate_whose_file_somebody_changed_is_void",
    ),
    # the switch of producers
    "the budget ends before anybody is pointed": ("test_nobody_is_pointed_to_the_target_after_the_budget",),
    "the run dies half way": ("test_a_switch_that_died_half_way_is_never_undone_blindly",),
    "a person has to start a producer on the target and takes long": (
        "test_a_person_who_starts_producers_on_the_target_has_time_and_no_timer_takes_it_back",
    ),
    "a process slept through the switch": (
        "test_a_process_that_slept_through_the_switch_writes_nothing_to_the_old_topic",
        "test_what_was_taken_before_a_sleep_is_held_by_the_deny",
        "test_what_was_taken_before_a_sleep_is_caught_by_the_moving_ends",
    ),
    "you want to go back": (
        "test_killed_anywhere_a_free_rollback_puts_everything_back",
        "test_after_the_switch_an_abort_says_which_way_is_left",
        "test_status_computes_the_type_of_rollback_live",
    ),
    # the switch of groups
    "a record comes to the source now": ("test_nobody_has_left_yet_so_everybody_drains_to_the_new_fence",),
    "a released group cannot see that record": (
        "test_what_a_released_group_cannot_see_is_named_and_accepted_by_name",
        "test_a_late_record_is_read_by_who_can_and_accepted_by_name_for_who_cannot",
        "test_a_migration_ends_with_its_late_record_replayed",
    ),
    "the source goes on being written to": (
        "test_a_source_that_does_not_stand_still_leaves_the_run_standing_with_the_writer_named",
    ),
    "more came than can be named": ("test_more_than_can_be_named_is_for_a_person",),
    "a group has commits on the target already": (
        "test_a_group_that_would_skip_records_of_the_target_stays_on_the_source",
    ),
    "a group that a person moves is said to be stopped and is not": (
        "test_a_group_that_is_said_to_be_stopped_and_is_not_is_waited_for",
    ),
    "one group has to wait": (
        "test_after_the_switch_a_pause_holds_groups_and_the_proof_but_not_the_watch_over_the_fence",
    ),
    # the proof
    "the proof finds a record lost or out of order": (
        "test_every_fault_is_found_and_named",
        "test_the_order_proof_closes_the_migration_or_leaves_it_open",
    ),
    "a replay dies in the middle": (
        "test_killed_at_any_call_each_record_is_replayed_once",
        "test_what_an_earlier_try_has_written_is_found_and_not_written_again",
        "test_what_an_earlier_try_still_holds_back_never_appears",
    ),
    "a late record has expired on the source": (
        "test_a_record_that_has_expired_on_the_source_leaves_the_order_standing_with_the_reason",
        "test_a_record_that_has_expired_and_a_target_that_is_held_write_nothing",
    ),
    # the retirement
    "somebody still reads or writes it": (
        "test_every_kind_of_reader_shows_and_old_commits_do_not",
        "test_written_to_or_made_again_it_stays",
    ),
    "somebody screams": ("test_a_reader_that_screams_ends_the_test_and_keeps_the_source",),
    "it was made again under its name": ("test_another_topic_under_the_same_name_is_not_deleted",),
    "it comes back after its deletion": ("test_a_topic_that_comes_back_is_named_as_well_as_kafka_allows",),
    # at any time
    "any process is killed, or tasks are cleared or run twice": (
        "test_killed_anywhere_it_ends_the_same",
        "test_every_task_may_run_twice",
        SIMULATED,
    ),
    "Airflow is down": (
        "test_a_lease_that_runs_out_lets_producers_go_on_where_they_were",
        "test_a_migration_goes_to_its_end_from_a_terminal",
    ),
    "a newer version wrote to the journal": (
        "test_it_is_unknown_by_name_with_the_reason_and_exit_code_4",
        "test_a_migration_that_is_not_understood_is_shown_by_name_and_hides_no_other",
    ),
    "the journal is down": (
        "test_status_says_what_the_route_says",
        "test_producers_resume_under_the_next_claim_of_their_migration",
        "test_everything_else_is_unknown",
    ),
    "the journal is lost": ("test_a_journal_that_is_lost_is_gone_without_only_where_a_person_says_so",),
    "the journal is down in the freeze of a way back": ("test_nobody_goes_back_where_somebody_may_be_on_the_target",),
    "a run is marked, deleted or paused in the freeze": (
        "test_when_a_freeze_counts_as_abandoned",
        "test_a_rollback_before_the_first_record_puts_everything_back",
    ),
    "a migration is not wanted any more": ("test_an_abort_leaves_what_was_there_before",),
    "it was aborted, closed or rolled back, and its run goes on": (
        "test_a_run_whose_migration_was_ended_by_a_person_is_red",
        "test_a_failed_step_cannot_leave_a_migrations_run_green",
        "test_a_person_follows_a_migration_and_ends_it_from_the_page",
    ),
    "nothing goes on any more": (
        "test_close_ends_every_state",
        "test_close_at_each_act_of_a_way_back_says_where_everybody_is",
        "test_close_puts_a_lengthened_retention_back",
    ),
    "somebody doubts what was done": ("test_audit_of_a_broken_trail_names_the_row",),
}


def rows() -> list[str]:
    text = (ROOT / "docs" / "what-if.md").read_text("utf-8")
    cells = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    return [cell for cell in cells if cell != "what if ..."]


def test_every_row_has_its_test() -> None:
    assert sorted(rows()) == sorted(SHOWN), "the page has other rows"
    known = set[str]()
    for file in (ROOT / "tests").rglob("test_*.py"):
        known |= {n.name for n in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(n, ast.FunctionDef)}
    assert {test for tests in SHOWN.values() for test in tests} - known == set()


@pytest.mark.parametrize("page", ["what-if.md", "runbook.md", "on-call.md"])
def test_every_command_dag_and_page_that_is_named_is_there(page: str) -> None:
    text = (ROOT / "docs" / page).read_text("utf-8")
    named = set(re.findall(r"`topicshift ([a-z-]+)", text))
    assert named and named - set(COMMANDS) == set()
    dags = {path.stem for path in (ROOT / "dags").glob("*.py")} | {"topic_migration", "topic_migration_producers_first"}
    assert set(re.findall(r"`(topic_[a-z_]+)`", text)) - dags == set()
    links = {link.split("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text)}
    assert [link for link in links if not (ROOT / "docs" / link).resolve().exists()] == []
