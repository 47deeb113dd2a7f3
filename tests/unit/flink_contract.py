"""What a Flink JobManager does, as the controller relies on it: run on the fake one and on a real one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

import pytest

from topicshift.adapters.rest import Ask
from topicshift.core.errors import NotFound, TopicshiftError
from topicshift.core.flink import ids
from topicshift.core.flink.job import (
    Job,
    jobs_named,
    newest_jar,
    read_checkpoints,
    read_stop,
    read_vertices,
    version_of,
)

Until = Callable[[Callable[[], Any], str], Any]


@dataclass(frozen=True)
class Known:
    """A job that runs: its name, its source's uid, its jar, its parallelism and its arguments."""

    name: str
    uid: str
    jar: str
    parallelism: int
    args: Sequence[str]


class Case(Protocol):
    """One truth of a job that runs and has completed a checkpoint. ``until`` waits for a condition."""

    __name__: str

    def __call__(self, ask: Ask, known: Known, until: Until) -> None: ...


def newest(ask: Ask, known: Known) -> Job:
    return jobs_named(ask("GET", "/jobs/overview", None), known.name)[-1]


def stopped(ask: Ask, known: Known, until: Until) -> tuple[Job, str]:
    """Stopped with its first savepoint; where that is."""
    job = newest(ask, known)
    ask("POST", f"/jobs/{job.jid}/stop", {"drain": False, "triggerId": ids.trigger_id(job.jid, 0)})
    path = f"/jobs/{job.jid}/savepoints/{ids.trigger_id(job.jid, 0)}"
    until(lambda: read_stop(ask("GET", path, None)).over, "the stop is over")
    until(lambda: newest(ask, known).state == "FINISHED", "the job has finished")
    found = read_stop(ask("GET", path, None))
    assert found.good, found
    return newest(ask, known), found.location


def run(ask: Ask, known: Known, jid: str, savepoint: str, **more: Any) -> None:
    jar = newest_jar(ask("GET", "/jars", None), known.jar)
    assert jar is not None
    body = {"programArgsList": list(known.args), "parallelism": known.parallelism, "savepointPath": savepoint}
    body |= {"allowNonRestoredState": False, "jobId": jid}
    ask("POST", f"/jars/{quote(jar[0], safe='')}/run", body | more)


def it_says_what_it_is_and_what_runs(ask: Ask, known: Known, until: Until) -> None:
    config = ask("GET", "/config", None)
    assert version_of(config) == (2, 3) and config["features"]["web-submit"] is True
    keys = {one["key"]: one["value"] for one in ask("GET", "/jobmanager/config", None)}
    assert keys["execution.checkpointing.savepoint-dir"].startswith("file:")
    jar = newest_jar(ask("GET", "/jars", None), known.jar)
    assert jar is not None and jar[1]
    job = newest(ask, known)
    assert job.live and job.began > 0
    assert jobs_named(ask("GET", "/jobs/overview", None), f"{known.name}x") == []


def a_vertex_has_the_id_of_the_uid_of_its_source(ask: Ask, known: Known, until: Until) -> None:
    vertices = read_vertices(ask("GET", f"/jobs/{newest(ask, known).jid}", None))
    assert ids.vertex_id(known.uid) in {v.vid for v in vertices}
    assert {v.parallelism for v in vertices} == {known.parallelism} and {v.state for v in vertices} == {"RUNNING"}


def it_tells_its_checkpoints(ask: Ask, known: Known, until: Until) -> None:
    jid = newest(ask, known).jid
    seen = read_checkpoints(ask("GET", f"/jobs/{jid}/checkpoints", None))
    assert seen.completed and not seen.failing and seen.ms is not None and seen.savepoint == ""
    assert ask("GET", f"/jobs/{jid}/checkpoints/config", None)["mode"] == "exactly_once"


def nobody_is_told_of_what_is_not_there(ask: Ask, known: Known, until: Until) -> None:
    jid = newest(ask, known).jid
    for path in (f"/jobs/{'0' * 32}", f"/jobs/{jid}/savepoints/{ids.trigger_id(jid, 0)}"):
        with pytest.raises(NotFound):
            ask("GET", path, None)


def a_stop_that_is_asked_for_twice_is_one(ask: Ask, known: Known, until: Until) -> None:
    jid = newest(ask, known).jid
    body = {"drain": False, "triggerId": ids.trigger_id(jid, 0)}
    first = ask("POST", f"/jobs/{jid}/stop", body)
    assert first == {"request-id": body["triggerId"]}
    try:
        ask("POST", f"/jobs/{jid}/stop", body)
    except TopicshiftError:
        pass  # it has ended meanwhile
    assert stopped_already(ask, known, until)
    with pytest.raises(NotFound):
        ask("GET", f"/jobs/{jid}/savepoints/{ids.trigger_id(jid, 1)}", None)


def stopped_already(ask: Ask, known: Known, until: Until) -> str:
    """Where the savepoint is with which it was stopped."""
    until(lambda: newest(ask, known).state == "FINISHED", "the job has finished")
    jid = newest(ask, known).jid
    path = f"/jobs/{jid}/savepoints/{ids.trigger_id(jid, 0)}"
    until(lambda: read_stop(ask("GET", path, None)).over, "the stop is over")
    return read_stop(ask("GET", path, None)).location


def one_that_ended_is_still_told_of(ask: Ask, known: Known, until: Until) -> None:
    job, path = stopped(ask, known, until)
    assert path.startswith("file:")
    assert {v.parallelism for v in read_vertices(ask("GET", f"/jobs/{job.jid}", None))} == {known.parallelism}


def it_goes_on_from_a_savepoint_once_under_the_id_that_it_is_given(ask: Ask, known: Known, until: Until) -> None:
    _, path = stopped(ask, known, until)
    jid = ids.job_id(ids.family("contract", known.name, "t"), path, 0)
    run(ask, known, jid, path)
    until(lambda: newest(ask, known).jid == jid and newest(ask, known).state == "RUNNING", "it runs")
    with pytest.raises(TopicshiftError):
        run(ask, known, jid, path)
    assert [j.jid for j in jobs_named(ask("GET", "/jobs/overview", None), known.name) if j.live] == [jid]


def nothing_starts_from_a_savepoint_that_is_not_there(ask: Ask, known: Known, until: Until) -> None:
    _, path = stopped(ask, known, until)
    jid = ids.job_id(ids.family("contract", known.name, "t"), "gone", 0)
    with pytest.raises(TopicshiftError):
        run(ask, known, jid, f"{path}-gone")
        until(lambda: newest(ask, known).jid == jid and newest(ask, known).state == "FAILED", "it failed at once")
        raise NotFound("said by the job's state")


CONTRACT: list[Case] = [
    it_says_what_it_is_and_what_runs,
    a_vertex_has_the_id_of_the_uid_of_its_source,
    it_tells_its_checkpoints,
    nobody_is_told_of_what_is_not_there,
    a_stop_that_is_asked_for_twice_is_one,
    one_that_ended_is_still_told_of,
    it_goes_on_from_a_savepoint_once_under_the_id_that_it_is_given,
    nothing_starts_from_a_savepoint_that_is_not_there,
]
