"""What the pages promise: each promise has a test, those of docs/drain.md ask a real broker through the command."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.drain_cases import Kit, iter_cases

from lab.broker import EmbeddedBroker
from topicshift import cli
from topicshift.adapters.kafka.admin import KafkaAdmin

ROOT = Path(__file__).parents[2]
CASES, FAULTS, HERE = "tests/integration/test_drain_cases.py", "tests/integration/test_drain_faults.py", __file__

PROMISES: dict[str, tuple[str, ...]] = {
    "**enumerated from the partitions times the": ("case never_committed_with_records", "case no_groups"),
    "Groups of every kind (classic, consumer, share, streams)": (
        "case classic_group",
        "case consumer_group",
        "case share_group_discovered",
        "case streams_group_discovered",
    ),
    "with `require_stable`, so that a commit inside an unfinished transaction shows as one": ("case pending_commit",),
    "**These tails are read**": ("case markers_at_tail", "case aborted_at_tail", "case holes_after_compaction"),
    "joins no group and commits nothing": ("test_asking_leaves_no_trace",),
    "Unknown beats not drained beats drained": ("case filtered_listing",),
    "their state is `SELF_ASSIGNING`": ("case self_assigning",),
    "| - | 2 | Wrong use": ("case group_not_found", "case topic_not_found"),
    "the answer comes within 60 seconds, with what did not answer": (
        "test_a_dead_address_is_unknown_within_the_bound",
        "test_an_address_that_says_nothing_is_unknown_within_the_bound",
    ),
    "`--group G` certifies only these groups and looks for no others": ("test_a_named_group_is_asked_about_alone",),
    "any other reader blocks by name until it is declared, or ignored with a reason": (
        "case undeclared_group",
        "case ignored_group",
    ),
    "`--fence FILE` takes the `fence_offsets`": ("case source_grew", "case end_below_fence", "case topic_remade"),
    "`--accept-lost GROUP` accepts a loss by name": ("case lost_accepted", "case lost_and_unread"),
    "`--wait 15m` waits, and says how far each group is": (
        "test_wait_ends_when_the_group_has_read",
        "test_wait_ends_with_its_time",
    ),
    "`--alarm-after 2m` is when": ("test_a_group_that_stands_still_raises_an_alarm",),
    "`--json` prints the certificate": ("test_case",),
    "whatever the text tells": ("case group_denied", "test_a_group_that_stands_still_raises_an_alarm"),
    "names its producer id, its transactional id": ("test_who_holds_an_open_transaction_is_said",),
    "`--spark-checkpoint NAME=FOLDER`": ("case checkpoint_drained", "case checkpoint_behind"),
    "`--connector NAME=URL`": ("test_a_connectors_offsets_are_asked_of_its_worker",),
    "it must be younger than the fence": ("case person_statement", "case person_statement_old"),
    "One that does not gives a file of kind `flink`": ("test_offsets_of_a_flink_job_come_in_a_file",),
    "READ on the topic for\nreading tails": ("case least_rights", "case read_denied"),
    "raises an alarm that says why it may be stuck": ("test_a_group_that_stands_still_raises_an_alarm",),
    "Who was told stands in the audit trail": ("test_a_stuck_group_is_told_to_people_and_the_end_of_it_as_well",),
    "never ends the wait": ("test_a_stuck_group_is_told_to_people_and_the_end_of_it_as_well",),
    "**offered to a person to abort**": ("test_a_hanging_transaction_is_explained_and_ends_on_a_yes_to_exactly_it",),
    "**Lost unread is not drained.**": ("case delete_records_past_commit", "case never_committed_expired"),
    "**A topic that nobody reads is unknown,**": ("case no_groups",),
    "**A commit beyond the end is unknown:**": ("case committed_beyond_end",),
    "**An open transaction blocks every group,**": (
        "case open_transaction_before_commit",
        "case open_transaction_after_commit",
    ),
    "**Growth after the fence voids all,**": ("case source_grew",),
    "**at most 60 seconds old**": ("test_a_certificate_is_taken_anew_where_it_is_old_or_of_the_future",),
    "One whose file is another than the one\nthat was written is void": (
        "test_a_certificate_whose_file_somebody_changed_is_void",
    ),
    "so is each one of a freeze that has ended": ("test_a_yes_to_one_cut_over_is_none_to_the_next",),
    "**verified against the fence stays verified**": (
        "test_a_group_that_was_verified_stays_so_when_the_brokers_forget_its_commits",
        "test_a_group_that_was_reset_or_never_read_is_not_taken_for_one_that_has_drained",
    ),
    "**lengthens the retention**": (
        "test_retention_is_lengthened_for_a_group_that_is_behind_and_put_back",
        "test_a_migration_goes_from_its_plan_to_its_end",
    ),
    "**Share groups** keep no commits": ("case share_group_drained", "case share_group_unread"),
}


PROOFS: dict[str, tuple[str, ...]] = {
    "write one JSON file atomically into `--output DIR`": ("test_bad_input_is_named_and_leaves_no_result",),
    "Executors need nothing of this": (
        "test_the_order_proof_needs_no_python_on_the_executors",
        "test_the_impact_hashes_its_keys_on_the_executors",
    ),
    "asks the broker afresh for log start": (
        "test_on_its_own_it_verifies_one_certificate",
        "test_what_happens_to_the_source_while_it_is_read_shows",
    ),
    "each offset is read once": ("test_ranges_are_merged_and_each_offset_is_read_once",),
    "| `fence_broken` | the source ends below the fence, or has another topic id | 4 |": (
        "test_what_happens_to_the_source_while_it_is_read_shows",
        "test_another_topic_id_breaks_the_fence",
    ),
    "| `unknown` | something could not be read": ("test_a_broker_that_is_away_is_unknown_in_bounded_time",),
    "it starts before the fence": ("test_armed_it_answers_each_certificate_until_it_is_told_that_all_is_done",),
    "`done` in the folder ends it with 0": ("test_abort_the_deadline_and_a_dead_owner_end_the_wait",),
    "Gone in the freeze, the task that asks reads what is left by": (
        "test_where_the_verifier_has_died_this_process_reads_what_is_left",
    ),
    "`--fence` takes the run's `fence.json` as it is": (
        "test_the_order_proof_and_the_drain_take_the_runs_own_files_as_they_are",
    ),
    "one of another topic is refused": ("test_bad_input_is_named_and_leaves_no_result",),
    "| check | fails when |": ("test_every_fault_is_found_and_named", "test_a_clean_migration_is_proven"),
    "`partly_proven` (nothing speaks against it": ("test_without_a_header_it_says_what_it_could_not_prove",),
    "What it cannot show is in `not_proven` of the result": ("test_limits_name_expired_records_and_null_keys",),
}

AUDIT: dict[str, tuple[str, ...]] = {
    "exit code 0 intact, 3 broken; names every broken row": (
        "test_audit_of_an_intact_trail",
        "test_audit_of_a_broken_trail_names_the_row",
    ),
    "JSON lines, the last one is the head": ("test_audit_export",),
    "a key such as `password`, a password in a URL": ("test_secrets_are_masked_wherever_they_stand",),
    "Anybody can check": ("test_the_recipe_accepts_an_export_and_refuses_a_changed_one",),
    "| kind | what it means |": ("test_each_kind_of_problem_names_its_row",),
    "What finds that is a head that was noted elsewhere": (
        "test_a_noted_head_finds_a_trail_that_was_rewritten_whole",
        "test_a_trail_rewritten_from_some_row_on_is_found_by_the_head",
    ),
    "a step's name | the row of a step is not what the trail says": ("test_ways_in_which_a_step_and_the_trail_differ",),
}

ROUTE: dict[str, tuple[str, ...]] = {
    "**`topicshift route init`**": (
        "test_both_topics_are_made_once_and_as_the_protocol_says",
        "test_wrong_configs_are_found_before_they_are_relied_on_and_mended",
    ),
    "**not understood**": ("test_no_bytes_in_the_route_topics_harm_anybody_but_their_own_key",),
    "**The record with the highest epoch is the truth, wherever it lies in the log.**": (
        "test_a_higher_epoch_wins_and_a_lower_one_in_the_log_is_ignored",
    ),
    "starts at the **log start**, whatever `auto.offset.reset` says": (
        "test_a_group_is_switched_and_loses_nothing_with_latest",
    ),
    "whose stamp is not lower is **void**": (
        "test_a_point_that_was_stamped_too_late_is_void_for_all_and_the_orchestrator_starts_over",
    ),
    "the logical topic's own name is the active": ("test_without_a_record_the_logical_topic_is_written_to",),
    "once it has made a **settled look past its end**": (
        "test_a_point_that_was_stamped_in_time_is_obeyed_by_all_however_late_it_is_committed",
    ),
    "a wall clock that jumped all make the contact old": (
        "test_a_process_that_slept_through_the_switch_writes_nothing_to_the_old_topic",
        "test_elapsed_is_the_larger_of_the_two_clocks",
    ),
    "The bound is **10 s while the route is armed, else 15": (
        "test_an_unreadable_route_stops_nobody_until_it_is_armed",
        "test_an_armed_producer_goes_blind_after_10_s_without_contact_and_an_unarmed_one_after_15_min",
    ),
    "**Everything it accepted is delivered or has failed for good, and it writes nothing.**": (
        "test_a_pause_is_acknowledged_by_all_and_nothing_is_written_after_it",
    ),
    "a member that runs **stays where it is**": ("test_a_consumer_that_cannot_read_the_route_goes_on",),
    "**is out of the group**": ("test_a_stopped_group_leaves_and_goes_on_where_it_is_pointed",),
    "A static member (`group.instance.id`) sends no LeaveGroup": (
        "test_a_static_member_says_paused_only_once_its_group_counts_it_no_more",
    ),
    "**by a thread that no flush holds up**": ("test_callbacks_of_the_application_never_hold_up_the_pause",),
    "**It is no proof that nothing is written.**": (
        "test_what_was_taken_before_a_sleep_is_caught_by_the_moving_ends",
        "test_what_was_taken_before_a_sleep_is_held_by_the_deny",
    ),
    "and the migration waits and names the instance": (
        "test_a_killed_client_is_unknown_by_name",
        "test_an_instance_with_a_wrong_picture_of_the_brokers_clock_blocks_by_name",
    ),
    "- **left out**: silent, and its last word was `paused`": (
        "test_one_that_is_killed_after_it_paused_holds_up_nothing",
    ),
    "- **gone**: it said so": ("test_good_bye_counts_as_stopped_and_a_closed_producer_takes_nothing",),
    "makes that instance": ("test_a_bad_acknowledgement_of_this_topic_is_unknown_by_name_until_it_is_dismissed",),
    "**The write fence spares route producers.**": (
        "test_a_producer_on_the_route_is_never_denied_and_that_is_said",
        "test_a_producer_that_the_brokers_know_by_another_name_blocks_by_name",
    ),
    "**An instance that starts while the route cannot be": ("test_an_unreadable_route_stops_nobody_until_it_is_armed",),
    "**up to the high watermark**": ("test_a_transaction_left_open_hides_nothing_and_is_ended",),
}

PAGES = {"drain.md": PROMISES, "proofs.md": PROOFS, "audit.md": AUDIT, "route-protocol.md": ROUTE}


@pytest.mark.parametrize("name", PAGES)
def test_every_promise_has_its_test(name: str) -> None:
    page, promises = (ROOT / "docs" / name).read_text("utf-8"), PAGES[name]
    assert [words for words in promises if words not in page] == [], "the page says it otherwise now"
    known = {f"case {case.name}" for case in iter_cases()}
    for file in (ROOT / "tests").rglob("test_*.py"):
        known |= {n.name for n in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(n, ast.FunctionDef)}
    assert {t for tests in promises.values() for t in tests} - known == set()


Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> Ask:
    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.run(["drain", *words, "--bootstrap-server", broker.bootstrap])
        out, err = capsys.readouterr()
        return code, " ".join(out.split()), err

    return call


def test_asking_leaves_no_trace(broker: EmbeddedBroker, tmp_path: Path, ask: Ask) -> None:
    with Kit(broker, tmp_path) as kit, KafkaAdmin(broker.config()) as admin:
        topic = kit.topic()
        kit.transaction(topic, 2)
        kit.commit("g-" + topic, topic, {0: 2})

        def world() -> Any:
            groups = sorted(g.group for g in admin.groups())
            return groups, admin.commits(groups, topic, [0]), admin.offsets(topic), admin.topic_names()

        before = world()
        code, out, _ = ask("--topic", topic, "--json")
        assert (code, "nothing_readable" in out) == (0, True), "the tail was read"
        assert world() == before


def test_a_named_group_is_asked_about_alone(broker: EmbeddedBroker, tmp_path: Path, ask: Ask) -> None:
    with Kit(broker, tmp_path) as kit:
        topic = kit.topic()
        kit.produce(topic, 2)
        kit.commit("g-" + topic, topic, {0: 2})
        kit.commit("behind-" + topic, topic, {0: 1})
        assert ask("--topic", topic)[0] == 3
        code, out, _ = ask("--topic", topic, "--group", "g-" + topic)
        assert (code, "behind-" in out) == (0, False)


def test_a_group_that_stands_still_raises_an_alarm(broker: EmbeddedBroker, tmp_path: Path, ask: Ask) -> None:
    with Kit(broker, tmp_path) as kit:
        topic = kit.topic()
        kit.produce(topic, 2)
        kit.commit("g-" + topic, topic, {0: 1})
        words = ("--topic", topic, "--group", "g-" + topic, "--wait", "2s", "--alarm-after")
        code, text, _ = ask(*words, "500ms")
        assert (code, "no_members" in text) == (3, True)
        code, out, _ = ask(*words, "500ms", "--json")
        (alarm,) = json.loads(out)["alarms"]
        assert (alarm["group"], alarm["code"]) == ("g-" + topic, "no_members")
        assert " ".join(alarm["text"].split()) in text, "a script is told what a person is told"
        assert json.loads(ask(*words, "1m", "--json")[1])["alarms"] == []


def test_offsets_of_a_flink_job_come_in_a_file(broker: EmbeddedBroker, tmp_path: Path, ask: Ask) -> None:
    with Kit(broker, tmp_path) as kit:
        topic = kit.topic()
        kit.produce(topic, 3)
        kit.commit("g-" + topic, topic, {0: 3})
        file = tmp_path / "flink.json"
        words = ("--topic", topic, "--group", "g-" + topic, "--evidence", str(file))
        told = {"reader": "enrich", "kind": "flink", "topic": topic}
        for offset, code, reason in ((3, 0, "at_end"), (2, 3, "unread")):
            file.write_text(json.dumps({**told, "offsets": {"0": offset}}))
            got, out, _ = ask(*words, "--json")
            rows = {g["group"]: g["partitions"][0]["reason"] for g in json.loads(out)["groups"]}
            assert (got, rows["enrich"]) == (code, reason)
