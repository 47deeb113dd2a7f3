"""The proof on tampered logs: a removed line is lost, a doubled one a duplicate, a swapped pair out of order."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import murmur2

from lab.load import COLUMNS, Journal, key_name, zipf_choice
from lab.load_proof import find_freezes, frozen_now, placement, prove, stops, total_freeze
from topicshift.core.errors import NotFound, Unreadable

Row = tuple[str, int, str, int]


def write(folder: Path, name: str, kind: str, who: str, rows: list[Row]) -> None:
    head = json.dumps({"kind": kind, "name": who, "process": name})
    lines = [f"{key},{seq},{topic},0,{n},{t}" for n, (key, seq, topic, t) in enumerate(rows)]
    (folder / f"{name}.csv").write_text("\n".join([f"# {head}", COLUMNS, *lines]) + "\n")


def rows(keys: int = 5, each: int = 40) -> list[Row]:
    """Records of several keys, the first half on the source, in the order of time."""
    return [
        (key_name(k), seq, "payments" if seq < each // 2 else "payments-v2", seq * keys + k)
        for seq in range(each)
        for k in range(keys)
    ]


@pytest.fixture
def logs(tmp_path: Path) -> tuple[Path, list[Row]]:
    sent = rows()
    write(tmp_path, "sent-checkout-0", "sent", "checkout", sent[::2])
    write(tmp_path, "sent-backlog", "sent", "backlog", sent[1::2])
    done = [(k, s, topic, t + 1000) for k, s, topic, t in sent]
    # Two processes of the group, each with some of the keys until they swap in the middle.
    half = len(done) // 2
    write(
        tmp_path,
        "processed-ledger-0",
        "processed",
        "ledger",
        [r for r in done[:half] if r[0] < key_name(2)] + done[half::2],
    )
    rest = [r for r in done[:half] if r[0] >= key_name(2)] + done[half + 1 :: 2]
    write(tmp_path, "processed-ledger-1", "processed", "ledger", rest)
    return tmp_path, done


def ledger(folder: Path) -> dict[str, Any]:
    proof: dict[str, Any] = prove(folder)["groups"]["ledger"]
    return proof


def figures(folder: Path) -> tuple[int, int, int, int, int]:
    got = ledger(folder)
    return got["processed"], got["lost"], got["duplicated"], got["out_of_order"], got["unacknowledged"]


def tamper(folder: Path, done: list[Row]) -> None:
    write(folder, "processed-ledger-0", "processed", "ledger", done)
    (folder / "processed-ledger-1.csv").unlink()


def test_untouched_logs_are_clean(logs: tuple[Path, list[Row]]) -> None:
    folder, _ = logs
    proof = prove(folder)
    assert (proof["sent"], proof["keys"], proof["freeze_seconds"]) == (200, 5, 0)
    assert proof["sent_by_topic"] == {"payments": 100, "payments-v2": 100}
    assert figures(folder) == (200, 0, 0, 0, 0)


def test_a_removed_line_is_lost(logs: tuple[Path, list[Row]]) -> None:
    folder, done = logs
    tamper(folder, done[:77] + done[78:])
    assert figures(folder) == (199, 1, 0, 0, 0)
    key, seq, *_ = done[77]
    assert ledger(folder)["examples"]["lost"] == [f"{key}/{seq}"]


def test_a_doubled_line_is_duplicated_and_not_out_of_order(logs: tuple[Path, list[Row]]) -> None:
    folder, done = logs
    key, seq, topic, _ = done[50]
    tamper(folder, [*done, (key, seq, topic, 5000), (key, seq, topic, 5001)])
    assert figures(folder) == (200, 0, 2, 0, 0)
    assert ledger(folder)["examples"]["duplicated"] == [f"{key}/{seq}"] * 2


def test_a_swapped_pair_is_one_out_of_order(logs: tuple[Path, list[Row]]) -> None:
    folder, done = logs
    one, two = done[20], done[25]  # the same key, one after the other
    assert (one[0], one[1] + 1) == (two[0], two[1])
    swapped = list(done)
    swapped[20], swapped[25] = (*one[:3], two[3]), (*two[:3], one[3])
    tamper(folder, swapped)
    assert figures(folder) == (200, 0, 0, 1, 0)
    assert ledger(folder)["examples"]["out_of_order"] == [f"{one[0]}/{one[1]}"]


def test_the_target_read_before_the_source_is_out_of_order(logs: tuple[Path, list[Row]]) -> None:
    folder, done = logs
    early = [(k, s, topic, t - 5000 if topic == "payments-v2" else t) for k, s, topic, t in done]
    tamper(folder, early)
    assert figures(folder) == (200, 0, 0, 100, 0)


def test_a_redelivered_run_of_records_is_duplicates_alone(logs: tuple[Path, list[Row]]) -> None:
    folder, done = logs
    again = [(k, s, topic, t + 1) for k, s, topic, t in done[40:60]]
    tamper(folder, sorted([*done, *((k, s, o, t + 9000) for k, s, o, t in again)], key=lambda r: r[3]))
    assert figures(folder) == (200, 0, 20, 0, 0)


def test_a_record_nobody_acknowledged_is_counted_apart(logs: tuple[Path, list[Row]]) -> None:
    folder, done = logs
    tamper(folder, [*done, (key_name(0), 40, "payments-v2", 9000)])
    assert figures(folder) == (201, 0, 0, 0, 1)


def test_a_group_without_rows_lost_everything(logs: tuple[Path, list[Row]]) -> None:
    folder, _ = logs
    tamper(folder, [])
    assert figures(folder) == (0, 200, 0, 0, 0)


def test_no_logs_are_no_proof(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="Was the load started"):
        prove(tmp_path)
    (tmp_path / "sent-x.csv").write_text("key,seq\n")
    with pytest.raises(Unreadable, match=r"sent-x\.csv"):
        prove(tmp_path)


@pytest.mark.parametrize("seed", range(5))
def test_figures_agree_with_a_slow_count(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    sent = rows(keys=4, each=30)
    write(tmp_path, "sent-backlog", "sent", "backlog", sent)
    seen: list[Row] = []
    for key, seq, topic, t in sent:
        for _ in range(chance.choice([0, 1, 1, 1, 1, 2])):
            seen.append((key, seq, topic, t * 10 + chance.randrange(200)))
    chance.shuffle(seen)
    write(tmp_path, "processed-ledger-0", "processed", "ledger", seen[::2])
    write(tmp_path, "processed-ledger-1", "processed", "ledger", seen[1::2])
    stable = sorted([*seen[::2], *seen[1::2]], key=lambda r: r[3])
    first: list[tuple[str, int]] = []
    for key, seq, _, _ in stable:
        if (key, seq) not in first:
            first.append((key, seq))
    late = sum(any(k == key and s > seq for k, s in first[:n]) for n, (key, seq) in enumerate(first))
    lost = len({(k, s) for k, s, *_ in sent} - set(first))
    assert figures(tmp_path) == (len(first), lost, len(seen) - len(first), late, 0)


# ------------------------------------------------------------------------------------------------ the freeze


def log(*pairs: tuple[str, float]) -> list[dict[str, Any]]:
    return [{"event": event, "t": int(t * 1e9)} for event, t in pairs]


def test_a_freeze_is_from_the_first_stopped_to_the_last_running_again() -> None:
    events = {
        "a": log(("running", 1), ("ready", 1), ("flushing", 10), ("paused", 10.2), ("paused", 13), ("running", 14)),
        "b": log(("running", 1), ("flushing", 10.5), ("paused", 10.6), ("running", 14.75)),
    }
    freezes = find_freezes(events)
    assert freezes == [{"seconds": 4.75, "producers": ["a", "b"]}]
    assert total_freeze(freezes) == 4.75


def test_separate_freezes_add_up_and_one_that_has_not_ended_is_no_number() -> None:
    one = log(("running", 1), ("paused", 2), ("lease_expired", 5), ("flushing", 9), ("running", 10))
    assert total_freeze(find_freezes({"a": one})) == 4
    open_ = find_freezes({"a": one, "b": log(("running", 1), ("paused", 9.5))})
    assert total_freeze(open_) is None
    assert frozen_now({"b": log(("running", 1), ("paused", 9.5))}, int(12e9)) == (["b"], 2.5)
    assert frozen_now({"a": one}, int(12e9)) == ([], 0.0)


def test_starting_up_is_no_freeze_and_closing_ends_one() -> None:
    assert stops(log(("paused", 1), ("running", 5))) == []
    assert stops(log(("running", 1), ("paused", 2), ("closed", 4))) == [(int(2e9), int(4e9))]


# ------------------------------------------------------------------------------------------------ the load


def test_a_log_survives_and_is_read_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "sent-checkout-0.csv", "sent", "checkout")
    journal.row("key-1", 0, "payments", 2, 17)
    journal.event("running", topic="payments", epoch=0)
    # Nothing was closed: every line is on disk all the same.
    assert prove(tmp_path)["sent"] == 1
    journal.close()


def test_keys_are_skewed_and_owned_by_one_process() -> None:
    mine = [i for i in range(100) if i % 3 == 1]
    drawn = [index for index, _ in zip(zipf_choice(mine, 7), range(5000), strict=False)]
    assert set(drawn) <= set(mine)
    assert drawn.count(mine[0]) > 3 * drawn.count(mine[-1])
    again = [index for index, _ in zip(zipf_choice(mine, 7), range(5000), strict=False)]
    assert drawn == again


def test_where_the_records_were_met_against_the_prediction(tmp_path: Path) -> None:
    head = "# " + json.dumps({"kind": "sent", "name": "checkout", "process": "p"})
    where = {key_name(k): murmur2(key_name(k).encode(), 30) for k in range(40)}
    lines = [f"{key},{seq},payments-v2,{where[key]},{seq},1" for key in where for seq in range(3)]
    lines += [f"{key},9,payments,0,9,1" for key in where]
    (tmp_path / "sent-checkout-0.csv").write_text("\n".join([head, COLUMNS, *lines]) + "\n")
    wanted = {"records": 120, "keys": 40, "misplaced_records": 0, "misplaced_keys": 0}
    assert placement(tmp_path, "payments-v2", 30) == wanted
    lines[0] = f"{key_name(0)},0,payments-v2,{(where[key_name(0)] + 1) % 30},0,1"
    (tmp_path / "sent-checkout-0.csv").write_text("\n".join([head, COLUMNS, *lines]) + "\n")
    assert placement(tmp_path, "payments-v2", 30) == {**wanted, "misplaced_records": 1, "misplaced_keys": 1}
    assert placement(tmp_path, "payments-v3", 30)["records"] == 0
