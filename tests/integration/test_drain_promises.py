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

PAGES = {"drain.md": PROMISES, "proofs.md": PROOFS, "audit.md": AUDIT}


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
