"""Late records are replayed on a person's order alone: after every release, one by one, marked, and counted apart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.airflow_world import Airflow
from tests.unit.test_fence_again import half, is_over, kills, strays
from tests.unit.world import SOURCE, TARGET, World

from topicshift import cli
from topicshift.acts.jobs import order_proof_job
from topicshift.acts.replay_order import order_replay, replay_prospect
from topicshift.core.drain.replay import (
    KeySeen,
    Offer,
    mark_of_place,
    offer,
    place_of,
    place_of_mark,
    rule_of,
)
from topicshift.core.drain.strays import Generation, Stray, Strays
from topicshift.core.engine.words import Ask, Row
from topicshift.core.errors import Refused, SpecError, Unreadable
from topicshift.core.impact.partitioning import partition_of
from topicshift.core.policy.model import Installation
from topicshift_airflow.operators import end
from topicshift_airflow.operators import orders as operators
from topicshift_airflow.operators.jobs import OrderProof
from topicshift_airflow.operators.orders import PATIENCE_S, GiveOrder
from topicshift_airflow.operators.tasks import report
from topicshift_airflow.questions import question_of

ORDERS = pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])


def asked(cutover: str = "producers_first", records: int = 2) -> World:
    """Every group is moved, and a person is asked about records that ledger-g cannot see."""
    w = half(cutover)
    w.write(partition=1, records=records)
    w.waits(patience_s=30.0)
    w.drain("fraud-g")
    asking = w.asks()
    assert asking.ask is Ask.STRAYS
    w.show(asking)
    return w


def end_of(w: World, partition: int) -> int:
    return w.cluster.offsets(TARGET)[partition].end or 0


# ------------------------------------------------------------------------------------------------- the order


@ORDERS
def test_replayed_records_are_in_the_target_once_and_nobody_is_asked_about_them(cutover: str) -> None:
    w = asked(cutover)
    before = end_of(w, 1)
    does = order_replay(w.context(), None, "they are payments").does
    assert does[0] == f"{SOURCE}[1] offset 10, no key -> {TARGET}[1]; a second time for fraud-g"
    assert "topicshift-replayed" in does[-1]
    w.advanced()
    is_over(w)
    assert end_of(w, 1) == before + 2
    assert [(r.offset, r.to_partition, r.to_offset) for r in strays(w).replayed] == [
        (10, 1, before),
        (11, 1, before + 1),
    ]
    assert strays(w).unseen == []
    (told,) = w.events("replayed")
    assert (len(told["records"]), told["left"]) == (2, 0)
    assert w.events("replay_ordered")[0]["reason"] == "they are payments"
    assert w.state(Row.QUESTION, Ask.STRAYS) == "undone", "the task that waits for an answer wakes up"


@ORDERS
def test_after_a_replay_nobody_goes_back_where_he_would_get_these_records_again(cutover: str) -> None:
    w = asked(cutover)
    order_replay(w.context(), None, "they are payments")
    w.advanced()
    for group in ("ledger-g", "fraud-g"):
        w.drain(group, TARGET)
    before = w.where(), w.acls()
    with pytest.raises(
        Refused, match=r"forward_only.*replayed into it: a group that goes back would get them a second"
    ):
        w.advance(wanted="rollback")
    assert (w.where(), w.acls(), w.state(Row.ROLLBACK)) == (*before, None)


def test_an_order_to_replay_ends_with_a_rollback_before_the_first_record() -> None:
    w = asked()
    order_replay(w.context(), None, "they are payments")
    w.advanced(wanted="rollback")
    assert w.journal.current(w.claim.migration_id).state == "rolled_back"
    assert w.state(Row.REPLAY) == "undone", "nobody carries it out when the migration is opened again"
    assert w.where() == {(SOURCE, True)}


def test_what_is_not_replayed_is_still_put_to_a_person_as_a_new_question() -> None:
    w = asked(records=3)
    before = w.data(Row.FENCE_AGAIN)["sha256"]
    order_replay(w.context(), [(1, 11)], "x")
    asking = w.asks()
    assert (asking.ask, asking.about["unseen"], asking.about["unseen_by"]) == (Ask.STRAYS, 2, ["ledger-g"])
    assert asking.about["sha256"] == strays(w).mark != before
    assert [r.offset for r in strays(w).unseen] == [10, 12]
    order_replay(w.context(), [(1, 10)], "x")
    asking = w.asks()
    assert [r.offset for r in strays(w).replayed] == [10, 11], "the first one is not written again"
    w.answer(asking)
    w.advanced()
    is_over(w)
    assert w.data(Row.FENCE_AGAIN)["replayed"] == 2


def test_a_replay_is_refused_before_every_group_is_released_and_where_there_is_nothing_to_replay() -> None:
    w = half("producers_first")
    assert "No record has come" in replay_prospect(w.context(), w.record(), None).cannot
    w.write(partition=1)
    w.waits(patience_s=30.0)
    assert "after every group is released" in replay_prospect(w.context(), w.record(), None).cannot
    with pytest.raises(Refused, match=r"fraud-g\. Nothing was changed"):
        order_replay(w.context(), None, "x")
    w.drain("fraud-g")
    w.asks()
    with pytest.raises(SpecError, match=r"payments\[0\] offset 3 is none of the records"):
        order_replay(w.context(), [(0, 3)], "x")
    order_replay(w.context(), None, "x")
    assert "under way already" in replay_prospect(w.context(), w.record(), None).cannot
    w.advanced()
    assert "has ended" in replay_prospect(w.context(), w.record(), None).cannot
    assert w.events("replay_ordered")[0]["records"] == [[1, 10, 1]]


def test_a_record_that_has_expired_on_the_source_leaves_the_order_standing_with_the_reason() -> None:
    w = asked()
    order_replay(w.context(), None, "x")
    w.cluster.delete_records(SOURCE, 1, 11)
    with pytest.raises(Unreadable, match=r"payments\[1\] has no record at offset 10 any more"):
        w.advance()
    assert w.state(Row.REPLAY) == "intended"
    assert w.replayer.written == {}


def test_a_later_record_is_another_generation_and_what_was_replayed_stays_so() -> None:
    w = asked()
    order_replay(w.context(), [(1, 10)], "x")
    w.asks()
    w.write(partition=0)
    asking = w.asks(patience_s=30.0)
    assert asking.about["unseen"] == 2, "the one that was left, and the new one"
    assert [(r.partition, r.offset) for r in strays(w).replayed] == [(1, 10)]


@ORDERS
@given(where=kills)
@settings(max_examples=12, deadline=None)
def test_killed_at_any_call_each_record_is_replayed_once(cutover: str, where: list[int]) -> None:
    w = asked(cutover)
    before = end_of(w, 1)
    order_replay(w.context(), None, "x")
    w.until_done(where)
    is_over(w)
    assert end_of(w, 1) == before + 2


def test_the_order_proof_is_made_anew_and_told_which_records_were_replayed() -> None:
    w = asked()
    old = {"verdict": "proven", "checks": [], "replayed": None}
    w.evidence.write(w.claim.migration_id, "order_proof.json", json.dumps(old))
    order_replay(w.context(), None, "x")
    w.advanced()
    proof = json.loads(w.evidence.read(w.claim.migration_id, "order_proof.json") or b"{}")
    assert "replayed" not in proof, "it was made anew"
    job = order_proof_job(w.context(), w.record())
    assert job.given["replayed.json"] == {"marks": ["payments/1/10", "payments/1/11"]}
    assert job.arguments[-2:] == ["--replayed", "replayed.json"]


def test_where_named_people_decide_about_late_records_only_they_replay() -> None:
    w = asked()
    w.policy = answers("strays", "ada")
    for by in ("", "carl"):
        ctx = w.context()
        ctx.triggered_by = by
        with pytest.raises(Refused, match=r"not counted: .*can accept the records, or trigger topic_control"):
            order_replay(ctx, None, "x")
    assert w.state(Row.REPLAY) is None
    ctx = w.context()
    ctx.triggered_by = "ada"
    order_replay(ctx, None, "x")
    w.advanced()
    is_over(w)


def test_where_two_people_decide_about_late_records_nobody_replays_alone() -> None:
    w = asked()
    w.policy = answers("strays", two_people=True)
    for by in ("", "ada"):
        ctx = w.context()
        ctx.triggered_by = by
        assert "can accept the records." in replay_prospect(ctx, ctx.refresh(), None).cannot
    w.policy = Unreadable("the policy cannot be read")
    with pytest.raises(Unreadable, match="policy"):
        order_replay(w.context(), None, "x")
    assert w.state(Row.REPLAY) is None


def answers(question: str, *people: str, two_people: bool = False) -> Installation:
    rule = {"question": question, "people": list(people) or None, "two_people": two_people}
    return Installation.model_validate({"apiVersion": "topicshift-policy/v1", "answers": [rule]})


def test_the_question_names_the_way_to_replay() -> None:
    w = asked()
    asking = w.asks()
    ctx = w.context()
    ctx.refresh()
    assert f"topicshift replay {w.claim.migration_id} --what" in question_of(ctx, asking).body


# ------------------------------------------------------------------------------------------ a terminal, a form


def test_a_replay_from_a_terminal_says_first_what_it_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    w = asked(records=2)

    @contextmanager
    def opened(*_: Any) -> Iterator[Any]:
        yield w.context()

    monkeypatch.setattr("topicshift.commands.replay.open_context", opened)

    def run(*words: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = cli.run(["replay", SOURCE, *words, "--bootstrap-server", "b:9092", "--json"])
        return code, json.loads(capsys.readouterr().out)

    code, said = run("--what", "--record", "1:11")
    assert (code, len(said["would"]), said["cannot"]) == (0, 2, None)
    assert w.state(Row.REPLAY) is None
    code, said = run("--record", "1-11", "--yes")
    assert code == 2 and "no place of a record" in said["error"]["message"]
    code, said = run("--record", "1:11")
    assert code == 2 and "--yes" in said["error"]["message"], "nobody can be asked here"
    code, said = run("--record", "1:11", "--yes")
    assert (code, said["question"]) == (3, "verify.strays")
    assert run("--yes")[1]["state"] == "done"


def test_a_replay_from_a_form_is_only_said_or_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = Airflow(monkeypatch)
    airflow.world = w = asked()
    monkeypatch.setattr(operators, "open_context", end.open_context)
    monkeypatch.setattr(operators, "find_migration", lambda _: w.journal.current(w.claim.migration_id))

    def order(**more: Any) -> Any:
        params = {"migration": SOURCE, "order": "replay", "reason": "r", "records": "", **more}
        task = GiveOrder(task_id="give_order")
        return task.execute(airflow.context(task) | {"params": params, "dag_run": SimpleNamespace()})

    assert len(order(only_say=True, records="1:10, 1:11")["would"]) == 3
    with pytest.raises(AirflowFailException, match="no place of a record"):
        order(records="ten")
    assert order(records="1:10")["outcome"] == "the records are in the target"
    assert [r.offset for r in strays(w).replayed] == [10]


@pytest.mark.parametrize("already", [False, True])
def test_the_last_task_of_a_run_makes_the_proof_anew_after_a_replay(
    monkeypatch: pytest.MonkeyPatch, already: bool
) -> None:
    airflow = Airflow(monkeypatch)
    airflow.world = w = asked()
    proof = {"verdict": "proven", "checks": [], "replayed": None}
    w.context().write("order_proof.json", json.dumps(proof))  # its own task is over
    monkeypatch.setattr(operators, "open_context", end.open_context)
    monkeypatch.setattr(operators, "find_migration", lambda _: w.journal.current(w.claim.migration_id))
    began = w.clock.now()
    params = {"migration": SOURCE, "order": "replay", "reason": "r", "records": ""}
    task = GiveOrder(task_id="give_order")
    assert task.execute(airflow.context(task) | {"params": params, "dag_run": SimpleNamespace()})["outcome"]
    assert (w.clock.now() - began).total_seconds() < PATIENCE_S, "an order does not wait for a proof"
    made = []

    def execute(job: OrderProof, context: Any) -> None:
        made.append(job.task_id)
        w.context().write("order_proof.json", json.dumps({**proof, "replayed": 2}))
        if already:
            raise AirflowSkipException("it has happened")

    monkeypatch.setattr(OrderProof, "execute", execute)
    last = report()
    airflow.run(last)
    assert made == [last.task_id]
    assert w.journal.current(w.claim.migration_id).state == "done"


# ------------------------------------------------------------------------------------------------- the rules


def stray(partition: int = 0, offset: int = 1, key: bytes | None = b"k") -> Stray:
    text = key.decode() if key is not None else None
    return Stray(partition=partition, offset=offset, key=text, key_hex=key.hex() if key is not None else None)


def of(records: list[Stray], unseen_by: list[str]) -> Strays:
    made = Generation(
        generation=1,
        taken_at="t",
        why="w",
        from_offsets={0: 0},
        to_offsets={0: 9},
        unseen_by=unseen_by,
        records=records,
        complete=True,
    )
    return Strays(topic="s", topic_id="i", generations=[made])


def offered(record: Stray, seen: KeySeen | None = None, partitioner: str | None = "murmur2") -> Offer:
    known = {str(record.key_hex): seen} if seen is not None else {}
    (made,) = offer(of([record], ["a"]), [record], seen=known, partitions=6, partitioner=partitioner, groups=["a", "b"])
    return made


def test_an_offer_warns_of_later_records_of_its_key_and_goes_where_the_key_lies() -> None:
    made = offered(stray(), KeySeen(frozenset({4}), 3))
    assert made.line("s", "t") == (
        "s[0] offset 1, key 'k' -> t[4]; WARNING: t has 3 later record(s) of its key, and it would come after them; "
        "a second time for b"
    )


def test_a_key_that_the_target_does_not_have_goes_where_its_producers_put_it() -> None:
    assert offered(stray()).to == partition_of("murmur2", b"k", 6)
    assert offered(stray(partition=8, key=None), partitioner=None).to == 2
    for seen, rule in ((None, None), (KeySeen(frozenset({1, 2}), 2), "murmur2")):
        made = offered(stray(), seen, rule)
        assert made.to is None and "cannot be replayed" in made.line("s", "t")


def test_a_record_whose_partition_is_not_known_is_not_replayed_on_a_guess() -> None:
    w = asked()
    known = strays(w)
    text = known.model_dump_json().replace('"key":null,"key_hex":null', f'"key":"k","key_hex":"{b"k".hex()}"')
    w.evidence.write(w.claim.migration_id, "strays.json", text.encode())
    w.evidence.write(w.claim.migration_id, "impact.json", json.dumps({"partitioner": {"name": None}}))
    prospect = replay_prospect(w.context(), w.record(), None)
    assert "is not known and 1 more" in prospect.cannot and len(prospect.does) == 2
    w.replayer.known[b"k"] = KeySeen(frozenset({5}), 7)
    assert "7 later record(s)" in replay_prospect(w.context(), w.record(), None).does[0]


def test_a_rule_that_counts_on_the_old_number_of_partitions_is_none() -> None:
    assert rule_of({"partitioner": {"name": "murmur2", "verdict": "as_named"}}) == "murmur2"
    assert rule_of({"partitioner": {"name": "murmur2", "verdict": "fixed_count"}}) is None
    assert rule_of({"partitioner": {"name": "nobody's"}}) is None
    assert rule_of({}) is None


@given(st.integers(0, 10**6), st.integers(0, 2**60))
def test_a_mark_tells_its_place(partition: int, offset: int) -> None:
    mark = mark_of_place("orders.eu-1_x", partition, offset)
    assert place_of_mark(mark, "orders.eu-1_x") == (partition, offset)
    assert place_of_mark(mark, "orders.eu-1") is None
    assert place_of(f" {partition}:{offset}") == (partition, offset)


@given(st.binary(max_size=30))
def test_what_is_no_mark_is_nobodys_place(mark: bytes) -> None:
    found = place_of_mark(mark, "t")
    assert found is None or mark_of_place("t", *found).decode() == mark.decode() or b"/0" in mark


@pytest.mark.parametrize("text", ["", "1", "1:", ":1", "a:1", "1:-1", "1:1:1", "²:1"])
def test_a_place_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="no place of a record"):
        place_of(text)
