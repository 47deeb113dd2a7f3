"""What the counts of the order proof mean: each fault turns its check, and nothing unproven passes for proven."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topicshift.core.proof.order import Example, Facts, OrderProof, Side, State, Verdict, prove

NOW = datetime(2026, 1, 4, 2, 0, tzinfo=UTC)


def side(name: str, partitions: int, **change: Any) -> Side:
    values: dict[str, Any] = {
        "topic": name, "topic_id": f"id-{name}", "partitions": partitions,
        "ranges": dict.fromkeys(range(partitions), (0, 10)), "records": 10 * partitions, "null_keys": 0, "keys": 7,
        "keys_in_several_partitions": 0, "without_sequence": 0, "unreadable_sequence": 0, "duplicates": 0,
        "out_of_order": 0, "misplaced_records": 0, "misplaced_keys": 0,
    }  # fmt: skip
    return Side(**{**values, **change})


def facts(source: dict[str, Any] | None = None, target: dict[str, Any] | None = None, **change: Any) -> Facts:
    values: dict[str, Any] = {
        "source": side("payments", 2, **(source or {})), "target": side("payments-v2", 4, **(target or {})),
        "keys": 7, "keys_in_both": 6, "fence": {0: 10, 1: 10}, "duplicates_across": 0, "missing": 0,
        "keys_with_gaps": 0, "crossing_keys": 0, "crossing_repeats": 0,
    }  # fmt: skip
    return Facts(**{**values, **change})


def without_header(**change: Any) -> Facts:
    none = {"without_sequence": None, "unreadable_sequence": None, "duplicates": None, "out_of_order": None}
    unknown = dict.fromkeys(("duplicates_across", "missing", "keys_with_gaps", "crossing_keys", "crossing_repeats"))
    return facts(none, none, **{**unknown, **change})


def judge(seen: Facts, header: str | None = "seq") -> OrderProof:
    return prove(seen, header=header, now=NOW, seconds=1.5)


def states(proof: OrderProof) -> dict[str, State]:
    return {c.name: c.state for c in proof.checks}


def test_a_clean_run_is_proven() -> None:
    proof = judge(facts())
    assert (proof.verdict, proof.verdict.exit_code) == (Verdict.PROVEN, 0)
    assert set(states(proof).values()) == {State.PASSED}
    assert proof.records_after_fence == 0
    assert len(proof.not_proven) == 1  # the tail of a key leaves no gap


@pytest.mark.parametrize(
    ("seen", "check"),
    [
        (facts(after_fence={1: 2}), "fence"),
        (facts(tails={0: 0, 1: 2}, tails_expired=[0]), "drain"),
        (facts(source={"keys_in_several_partitions": 1}), "one_partition_per_key_source"),
        (facts(target={"keys_in_several_partitions": 1}), "one_partition_per_key_target"),
        (facts(source={"out_of_order": 1}), "order_source"),
        (facts(target={"out_of_order": 1}), "order_target"),
        (facts(crossing_keys=1), "crossing"),
        (facts(crossing_keys=1, crossing_repeats=1), "crossing"),
        (facts(missing=1, keys_with_gaps=1), "loss"),
        (facts(target={"misplaced_records": 1, "misplaced_keys": 1}), "placement"),
    ],
)
def test_each_fault_is_a_violation_by_name(seen: Facts, check: str) -> None:
    proof = judge(seen)
    assert (proof.verdict, proof.verdict.exit_code) == (Verdict.VIOLATED, 3)
    assert [name for name, state in states(proof).items() if state is State.FAILED] == [check]
    assert check in proof.reason


@pytest.mark.parametrize(
    ("seen", "check"),
    [
        (facts(source={"records": 0}), "records"),
        (facts(target={"records": 0}), "records"),
        (facts(fence={0: 10}), "fence"),
        (facts(below_fence=[1]), "fence"),
        (facts(target={"without_sequence": 3}), "sequence"),
        (facts(source={"unreadable_sequence": 1}), "sequence"),
    ],
)
def test_what_could_not_be_read_is_unknown_and_never_a_yes(seen: Facts, check: str) -> None:
    proof = judge(seen)
    assert (proof.verdict, proof.verdict.exit_code) == (Verdict.UNKNOWN, 4)
    assert [name for name, state in states(proof).items() if state is State.UNKNOWN] == [check]


def test_what_a_task_read_by_itself_is_confirmed_by_reading_it_once_more() -> None:
    confirmed = judge(facts(tails={0: 0, 1: 0}))
    (check,) = [c for c in confirmed.checks if c.name == "drain"]
    assert (confirmed.verdict, check.count) == (Verdict.PROVEN, 0) and "partitions 0-1, as the task said" in check.seen
    expired = judge(facts(tails={0: 0, 1: 0}, tails_expired=[1]))
    assert expired.verdict is Verdict.PARTLY_PROVEN and any("drain:" in text for text in expired.not_proven)
    assert "drain" not in states(judge(facts())), "the armed verifier, which is Spark, has read it"


def test_the_empty_key_is_split_for_sure_only_where_the_clients_hash_it() -> None:
    split = {"target": {"keys_in_several_partitions": 1}, "empty_key_split": True}
    for misplaced, count, state in ((0, 1, State.FAILED), (9, 1, State.NOT_PROVEN), (9, 2, State.FAILED)):
        target = {"keys_in_several_partitions": count}
        proof = judge(facts(**{**split, "target": target}, source={"misplaced_records": misplaced}))
        check = next(c for c in proof.checks if c.name == "one_partition_per_key_target")
        assert (check.state, "the empty key" in check.seen) == (state, True)


def test_a_fault_weighs_more_than_something_unknown() -> None:
    assert judge(facts(target={"without_sequence": 3}, missing=1, keys_with_gaps=1)).verdict is Verdict.VIOLATED


def test_how_many_records_lack_the_header_is_said() -> None:
    proof = judge(facts(source={"without_sequence": 12}, target={"unreadable_sequence": 3}))
    seen = next(c.seen for c in proof.checks if c.name == "sequence")
    assert "12 records of payments" in seen
    assert "3 of payments-v2" in seen


def test_without_a_header_it_says_what_it_could_not_prove() -> None:
    proof = judge(without_header(time_reversed_keys=2), header=None)
    assert (proof.verdict, proof.verdict.exit_code) == (Verdict.PARTLY_PROVEN, 0)
    unproven = {name for name, state in states(proof).items() if state is State.NOT_PROVEN}
    assert unproven == {"order_source", "order_target", "crossing", "loss", "duplicates"}
    assert "sequence" not in states(proof)
    assert any("2 of 6 keys" in text for text in proof.not_proven)


def test_without_a_fence_that_check_is_not_proven() -> None:
    proof = judge(facts(fence=None))
    assert states(proof)["fence"] is State.NOT_PROVEN
    assert (proof.verdict, proof.records_after_fence) == (Verdict.PARTLY_PROVEN, None)


def test_duplicates_are_counted_and_explained_but_do_not_fail() -> None:
    proof = judge(facts(source={"duplicates": 1}, target={"duplicates": 2}, duplicates_across=4))
    check = next(c for c in proof.checks if c.name == "duplicates")
    assert (check.state, check.count, proof.verdict) == (State.PASSED, 7, Verdict.PROVEN)
    assert "1 in payments (" in check.seen
    assert "4 in both" in check.seen


def test_a_compacted_topic_cannot_prove_loss_either_way() -> None:
    proof = judge(facts(missing=5, keys_with_gaps=2, compacted=frozenset({"source"})))
    assert states(proof)["loss"] is State.NOT_PROVEN
    assert judge(facts(compacted=frozenset({"source"}))).verdict is Verdict.PROVEN


def test_placement_is_compared_with_the_sources_own() -> None:
    misplaced = {"misplaced_records": 4, "misplaced_keys": 2}
    assert states(judge(facts(source=misplaced, target=misplaced)))["placement"] is State.NOT_PROVEN
    empty = facts(source={"records": 5, "null_keys": 5}, target=misplaced)
    assert states(judge(empty))["placement"] is State.NOT_PROVEN


def test_limits_name_expired_records_and_null_keys() -> None:
    proof = judge(facts(source={"ranges": {0: (5, 10), 1: (0, 10)}, "null_keys": 2}))
    assert any("expired" in text and "payments" in text for text in proof.not_proven)
    assert any(text.startswith("2 records have no key") for text in proof.not_proven)


def test_examples_stand_with_the_check_that_they_speak_of() -> None:
    worst = Example(key="a1b2", count=3, seen="3 missing")
    proof = judge(facts(missing=3, keys_with_gaps=1, examples={"loss": [worst], "crossing": [worst]}))
    found = {c.name: c.examples for c in proof.checks}
    assert found["loss"] == [worst]
    assert found["crossing"] == []


def test_the_json_is_the_contract() -> None:
    proof = judge(facts())
    value = json.loads(proof.model_dump_json())
    assert value["schema"] == "topicshift/order-proof/v1"
    assert value["source"]["ranges"]["0"] == [0, 10]
    assert OrderProof.model_validate(value) == proof
    for field in ("verdict", "missing", "crossing_keys", "duplicates_across", "records_after_fence", "checks"):
        assert field in value


COUNT = st.integers(0, 2)


@settings(max_examples=200, deadline=None)
@given(
    source=st.fixed_dictionaries(
        {"out_of_order": COUNT, "keys_in_several_partitions": COUNT, "without_sequence": COUNT}
    ),
    target=st.fixed_dictionaries({"out_of_order": COUNT, "misplaced_records": COUNT, "records": st.integers(0, 9)}),
    change=st.fixed_dictionaries(
        {"missing": COUNT, "crossing_keys": COUNT, "after_fence": st.dictionaries(st.integers(0, 1), COUNT)}
    ),
)
def test_proven_only_when_every_count_is_zero(source: Any, target: Any, change: Any) -> None:
    proof = judge(facts(source, target, keys_with_gaps=change["missing"], **change))
    clean = (
        not any(source.values())
        and target["records"]
        and not target["out_of_order"]
        and not target["misplaced_records"]
        and not change["missing"]
        and not change["crossing_keys"]
        and not sum(change["after_fence"].values())
    )
    assert (proof.verdict is Verdict.PROVEN) == bool(clean)
    assert (proof.verdict.exit_code == 0) == bool(clean)


@pytest.mark.parametrize(
    ("between", "named", "complete", "state"),
    [
        ({1: 2}, {1: 2}, True, State.PASSED),
        ({}, {}, True, State.PASSED),
        ({1: 2}, {1: 1}, True, State.FAILED),
        ({1: 2}, {0: 2}, True, State.FAILED),
        ({}, {0: 1}, True, State.FAILED),
        ({1: 20_000}, {1: 10_000}, False, State.NOT_PROVEN),
    ],
)
def test_what_came_after_the_first_fence_is_what_was_named(
    between: dict[int, int], named: dict[int, int], complete: bool, state: State
) -> None:
    proof = judge(facts(between=between, strays=named, strays_complete=complete))
    assert states(proof)["strays"] is state
    assert "strays" not in states(judge(facts()))


def test_a_number_that_may_have_come_too_late_is_not_called_lost() -> None:
    late = {"between": {1: 2}, "strays": {1: 2}}
    assert states(judge(facts(missing=2, keys_with_gaps=1, **late)))["loss"] is State.NOT_PROVEN
    assert states(judge(facts(missing=3, keys_with_gaps=1, **late)))["loss"] is State.FAILED
