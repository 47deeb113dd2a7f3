"""The hash chain: any change of any row is found, and its row named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicshift.core.proof import audit
from topicshift.core.proof.audit import ChainHead, ProblemKind
from topicshift.ports import EventRow, StepRow

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
payloads = st.dictionaries(st.text(max_size=6), json_values, max_size=3)


def trail(migration_id: str, datas: list[dict[str, Any]]) -> tuple[list[EventRow], ChainHead]:
    rows: list[EventRow] = []
    prev = audit.genesis_hash(migration_id)
    for n, data in enumerate(datas, 1):
        bare = EventRow(n, migration_id, 1, f"2026-01-01T00:00:{n:02}+00:00", "me", "note", audit.plain(data), prev, "")
        row = replace(bare, hash=audit.hash_of(bare))
        rows.append(row)
        prev = row.hash
    return rows, ChainHead(count=len(rows), hash=prev)


def kinds(rows: list[EventRow], head: ChainHead, migration_id: str = "m") -> list[tuple[int, ProblemKind]]:
    return [(p.seq, p.kind) for p in audit.verify(rows, head, migration_id=migration_id)]


@given(st.lists(payloads, max_size=5))
def test_an_untouched_trail_is_intact(datas: list[dict[str, Any]]) -> None:
    rows, head = trail("m", datas)
    assert kinds(rows, head) == []


@given(st.lists(payloads, min_size=1, max_size=5), st.data())
def test_a_change_of_any_field_of_any_row_is_found(datas: list[dict[str, Any]], data: st.DataObject) -> None:
    rows, head = trail("m", datas)
    at = data.draw(st.integers(0, len(rows) - 1))
    change = data.draw(
        st.sampled_from(
            [
                {"epoch": 2},
                {"at": "2026-01-01"},
                {"actor": "you"},
                {"kind": "note2"},
                {"prev_hash": "f" * 64},
                {"hash": "f" * 64},
                {"data": {**rows[at].data, "extra": 1}},
            ]
        )
    )
    rows[at] = replace(rows[at], **change)
    problems = kinds(rows, head)
    assert problems
    assert problems[0][0] in {at + 1, at + 2}


@given(st.lists(payloads, min_size=1, max_size=6), st.data())
def test_any_missing_rows_are_found(datas: list[dict[str, Any]], data: st.DataObject) -> None:
    rows, head = trail("m", datas)
    gone = data.draw(st.sets(st.integers(1, len(rows)), min_size=1))
    found = kinds([r for r in rows if r.seq not in gone], head)
    first = min(gone)
    assert (first, ProblemKind.MISSING) in found or (first, ProblemKind.TRUNCATED) in found


@given(st.lists(payloads, min_size=2, max_size=6), st.data())
def test_any_other_order_is_found(datas: list[dict[str, Any]], data: st.DataObject) -> None:
    rows, head = trail("m", datas)
    shuffled = data.draw(st.permutations(rows))
    assert bool(kinds(list(shuffled), head)) == (list(shuffled) != rows)


def test_renumbering_after_a_removal_is_found() -> None:
    rows, head = trail("m", [{"n": n} for n in range(4)])
    forged = [replace(r, seq=n) for n, r in enumerate([rows[0], *rows[2:]], 1)]
    assert (2, ProblemKind.CHANGED) in kinds(forged, head)


def test_a_trail_rewritten_from_some_row_on_is_found_by_the_head() -> None:
    rows, head = trail("m", [{"n": n} for n in range(4)])
    forged, _ = trail("m", [{"n": 0}, {"n": 1}, {"n": 99}, {"n": 3}])
    assert kinds(forged, head) == [(4, ProblemKind.CHANGED)]
    assert rows != forged


def test_each_kind_of_problem_names_its_row() -> None:
    rows, head = trail("m", [{"n": n} for n in range(4)])
    other, _ = trail("other", [{}])
    assert kinds([rows[0], rows[2], rows[1], rows[3]], head) == [
        (2, ProblemKind.MISSING),
        (2, ProblemKind.REORDERED),
    ]
    assert kinds(rows[:2], head) == [(3, ProblemKind.TRUNCATED)]
    assert kinds([], head) == [(1, ProblemKind.TRUNCATED)]
    assert kinds(rows, ChainHead(count=2, hash=rows[1].hash)) == [(3, ProblemKind.EXTRA)]
    assert (1, ProblemKind.FOREIGN) in kinds([other[0], *rows[1:]], head)
    assert kinds([replace(rows[0], data={"x": {1, 2}}), *rows[1:]], head)[0] == (1, ProblemKind.UNREADABLE)


def test_a_trail_belongs_to_one_migration() -> None:
    rows, head = trail("m", [{}, {}])
    assert kinds([replace(r, migration_id="n") for r in rows], head, "n")


@given(payloads)
def test_the_canonical_spelling_survives_storage(data: dict[str, Any]) -> None:
    import json

    plain = audit.plain(data)
    assert audit.canonical_json(json.loads(audit.canonical_json(plain))) == audit.canonical_json(plain)


@given(st.text())
def test_secrets_are_masked_wherever_they_stand(secret: str) -> None:
    data = {"a": [{"ssl.key.password": secret}], "AWS_SECRET": secret, "oauth-token": secret, "private_key": secret}
    plain = audit.plain(data)
    mask = audit.MASK if secret else ""
    assert plain == {
        "a": [{"ssl.key.password": mask}],
        "AWS_SECRET": mask,
        "oauth-token": mask,
        "private_key": mask,
    }


@pytest.mark.parametrize("text", ["https://host/path", "plain", "a@b", "http://host:80/x@y", "user:pw"])
def test_texts_without_a_password_stay_as_they_are(text: str) -> None:
    assert audit.plain(text) == text


def test_ways_in_which_a_step_and_the_trail_differ() -> None:
    def event(kind: str, **data: Any) -> EventRow:
        return EventRow(1, "m", 1, "", "me", kind, data, "", "")

    told = [
        event("step_intended", step="a", data={"x": 1}),
        event("step_finished", step="a", state="done", data={"y": 2}),
        event("step_intended", step="b", data={}),
        event("note", step=7),
    ]
    a = StepRow("a", "done", 1, {"x": 1, "y": 2}, "", "")
    b = StepRow("b", "intended", 1, {}, "", None)
    assert audit.verify_steps([a, b], told) == []
    assert len(audit.verify_steps([replace(a, state="undone"), b], told)) == 1
    assert len(audit.verify_steps([replace(a, data={"x": 1}), b], told)) == 1
    assert len(audit.verify_steps([a], told)) == 1
    assert len(audit.verify_steps([a, b, replace(b, step="c")], told)) == 1
