"""What the controller of kind ``flink`` reads and computes, as plain values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from topicshift.core.flink import ids, job
from topicshift.core.spec.kinds import FlinkSettings


@pytest.mark.parametrize(
    ("uid", "vertex"),
    [
        ("", "0" * 32),
        ("The quick brown fox jumps over the lazy dog", "6c1b07bc7bbc4be347939ac4a93c437a"),
    ],
)
def test_a_vertex_has_the_id_that_flink_makes_of_a_uid(uid: str, vertex: str) -> None:
    assert ids.vertex_id(uid) == vertex


@given(st.text(max_size=70), st.text(max_size=70))
def test_other_uids_give_other_vertices(one: str, other: str) -> None:
    assert (ids.vertex_id(one) == ids.vertex_id(other)) == (one == other)
    assert len(ids.vertex_id(one)) == 32


@given(*[st.text(max_size=20)] * 3, st.integers(0, 99))
def test_the_id_of_a_job_says_what_it_was_started_for(migration: str, who: str, path: str, n: int) -> None:
    begins = ids.family(migration, who, "payments")
    made = ids.job_id(begins, path, n)
    assert made.startswith(begins) and not made.startswith(ids.family(migration, who, "payments-v2"))
    assert len(made) == len(ids.trigger_id(made, n)) == 32 and int(made, 16) >= 0
    assert made != ids.job_id(begins, path, n + 1) and made != ids.job_id(begins, f"{path}x", n)
    assert ids.trigger_id(made, n) != ids.trigger_id(made, n + 1)


def outcome(status: str, **said: Any) -> dict[str, Any]:
    return {"status": {"id": status}, "operation": said or None}


def test_a_stop_is_good_only_with_a_location_and_without_a_failure() -> None:
    cause = {"class": "org.x.StopException: hush", "stack-trace": "hush"}
    assert job.read_stop(outcome("COMPLETED", location="file:/s")).good
    for said in (outcome("IN_PROGRESS"), outcome("COMPLETED"), outcome("COMPLETED", location="")):
        assert not job.read_stop(said).good
    failed = job.read_stop({**outcome("COMPLETED"), "operation": {"location": "file:/s", "failure-cause": cause}})
    assert not failed.good and failed.failure == "org.x.StopException"
    nameless = job.read_stop({**outcome("COMPLETED"), "operation": {"failure-cause": {"stack-trace": "hush"}}})
    assert nameless.failure and not nameless.good


def checkpoints(**latest: Any) -> dict[str, Any]:
    counts = {"completed": len(latest), "failed": 0, "in_progress": 0}
    return {"counts": counts, "latest": latest, "summary": {"end_to_end_duration": {"avg": 7}}}


def test_a_savepoint_counts_only_as_the_latest_snapshot() -> None:
    saved = {"id": 4, "external_path": "file:/s"}
    assert job.read_checkpoints(checkpoints(savepoint=saved, completed={"id": 3})).savepoint == "file:/s"
    assert job.read_checkpoints(checkpoints(savepoint=saved, completed=saved)).savepoint == "file:/s"
    assert job.read_checkpoints(checkpoints(savepoint=saved, completed={"id": 5})).savepoint == ""
    assert job.read_checkpoints(checkpoints(savepoint=saved, failed={"id": 5})).failing
    assert not job.read_checkpoints(checkpoints(completed={"id": 5}, failed={"id": 4})).failing
    none = job.read_checkpoints({**checkpoints(), "latest": {"completed": None, "savepoint": None, "failed": None}})
    assert (none.completed, none.ms, none.savepoint, none.failing) == (0, None, "", False)


@pytest.mark.parametrize("answer", [None, [], {}, {"jobs": [{}]}, {"status": {"id": "ODD"}}, "text", {"files": [1]}])
def test_what_is_no_answer_of_a_job_manager_is_said(answer: Any) -> None:
    for reads in (lambda a: job.jobs_named(a, "x"), job.read_stop, job.read_checkpoints, job.read_vertices):
        with pytest.raises(ValueError, match="not the answer of a JobManager"):
            reads(answer)
    with pytest.raises(ValueError, match="not the answer of a JobManager"):
        job.newest_jar(answer, "x")
    assert job.version_of(answer) is None


def test_the_jar_that_was_uploaded_last_is_taken() -> None:
    files = [{"id": f"{n}_x.jar", "name": "x.jar", "uploaded": n, "entry": [{"name": f"C{n}"}]} for n in (2, 9, 4)]
    assert job.newest_jar({"files": files}, "x.jar") == ("9_x.jar", ["C9"])
    assert job.newest_jar({"files": files}, "y.jar") is None


def test_topic_and_uid_are_put_where_they_stand_and_nothing_else_is_touched() -> None:
    args = ["--in", "{topic}", "--uid={uid}", '{"a": "{topic}.x"}', "{other}"]
    assert job.filled(args, "t", "u") == ["--in", "t", "--uid=u", '{"a": "t.x"}', "{other}"]


def test_settings_that_could_not_be_pointed_are_refused() -> None:
    told: dict[str, Any] = {"job": "j", "jar": "j.jar", "args": ["{topic}"]}
    assert FlinkSettings(**told).connection == "flink_default"
    for wrong, said in (
        ({"args": ["payments"]}, "has {topic} nowhere"),
        ({"parallelism": 2, "start_parallelism": 2}, "has to be lower"),
        ({"starts_at": "now"}, "committed_or_earliest"),
    ):
        with pytest.raises(ValidationError, match=said):
            FlinkSettings(**told | wrong)
