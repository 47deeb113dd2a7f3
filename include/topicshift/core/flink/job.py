"""A Flink job, its checkpoints and the savepoint that ends it, from the answers of its JobManager. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ENDED = frozenset({"FINISHED", "FAILED", "CANCELED"})
"""States of a job that nobody goes on with."""

LEFT = "SUSPENDED"
"""State of a job that its JobManager has let go of, and that another one may go on with."""

FLINK_FROM = (1, 17)
"""First version whose JobManager takes the ids of jobs, savepoints and checkpoints from whoever asks."""


@dataclass(frozen=True)
class Job:
    """One job as ``/jobs/overview`` lists it. ``began``: ms since the epoch."""

    jid: str
    name: str
    state: str
    began: int

    @property
    def live(self) -> bool:
        """Whether it runs, or its JobManager tries to run or end it."""
        return self.state not in ENDED and self.state != LEFT

    def text(self) -> str:
        """Its id and its state, in words."""
        return f"job {self.jid} is {self.state}"


@dataclass(frozen=True)
class Stop:
    """One stop with savepoint. ``over``: its JobManager has an outcome; ``failure``: the class of its failure."""

    over: bool
    location: str = ""
    failure: str = ""

    @property
    def good(self) -> bool:
        """Whether the savepoint is complete and all of the job has finished."""
        return self.over and bool(self.location) and not self.failure


@dataclass(frozen=True)
class Checkpoints:
    """Of one job. ``ms``: mean duration of those that completed; ``savepoint``: its latest snapshot, if that is one.

    ``failing``: the latest that ended has failed.
    """

    completed: int
    failed: int
    running: int
    ms: int | None
    savepoint: str
    failing: bool

    def text(self) -> str:
        """Their number, failures and duration, in words."""
        took = f", {self.ms} ms each" if self.ms is not None else ""
        return f"{self.completed} checkpoint(s){took}, {self.failed} failed"


@dataclass(frozen=True)
class Vertex:
    """One vertex of a job's graph."""

    vid: str
    name: str
    state: str
    parallelism: int


def jobs_of(overview: Any) -> list[Job]:
    """All jobs, oldest first, from ``GET /jobs/overview``. Raises ``ValueError`` for what is none."""
    try:
        found = [Job(str(j["jid"]), str(j["name"]), str(j["state"]), int(j["start-time"])) for j in overview["jobs"]]
    except (KeyError, TypeError, ValueError) as error:
        raise _strange(error) from None
    return sorted(found, key=lambda j: j.began)


def jobs_named(overview: Any, name: str) -> list[Job]:
    """Those of this name."""
    return [j for j in jobs_of(overview) if j.name == name]


def read_stop(answer: Any) -> Stop:
    """From ``GET /jobs/ID/savepoints/TRIGGER``. Raises ``ValueError`` for what is none."""
    try:
        state, said = answer["status"]["id"], answer.get("operation") or {}
        failure = said.get("failure-cause")
        if state not in ("IN_PROGRESS", "COMPLETED"):
            raise ValueError(f"status {state!r}")
        why = _class(failure) if failure else ""
        return Stop(state == "COMPLETED", str(said.get("location") or ""), why)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _strange(error) from None


def _class(failure: Any) -> str:
    """The class of a failure: its message may quote a setting or a record."""
    name = str(failure.get("class") or "") if isinstance(failure, Mapping) else ""
    return re.split(r"[:\s]", name, maxsplit=1)[0][:120] or "a failure without a name"


def read_checkpoints(answer: Any) -> Checkpoints:
    """From ``GET /jobs/ID/checkpoints``. Raises ``ValueError`` for what is none."""
    try:
        counts, latest = answer["counts"], answer["latest"]
        ends = {kind: latest.get(kind) or {} for kind in ("completed", "savepoint", "failed")}
        last = {kind: int(one.get("id") or 0) for kind, one in ends.items()}
        # A stop's savepoint may be listed as the latest checkpoint as well, with the same id.
        saved = ends["savepoint"].get("external_path") if last["savepoint"] >= last["completed"] else None
        taken = int(counts["completed"])
        mean = answer["summary"]["end_to_end_duration"]["avg"] if taken else None
        return Checkpoints(
            taken,
            int(counts["failed"]),
            int(counts["in_progress"]),
            None if mean is None else int(mean),
            str(saved or ""),
            last["failed"] > max(last["completed"], last["savepoint"]),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _strange(error) from None


def read_vertices(detail: Any) -> list[Vertex]:
    """From ``GET /jobs/ID``. Raises ``ValueError`` for what is none."""
    try:
        return [
            Vertex(str(v["id"]), str(v["name"]), str(v["status"]), int(v["parallelism"])) for v in detail["vertices"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise _strange(error) from None


def newest_jar(listing: Any, name: str) -> tuple[str, list[str]] | None:
    """Id and entry classes of the jar of this name that was uploaded last, from ``GET /jars``; None without one."""
    try:
        named = [j for j in listing["files"] if j["name"] == name]
        found = max(named, key=lambda j: int(j["uploaded"]), default=None)
        return None if found is None else (str(found["id"]), [str(e["name"]) for e in found.get("entry") or []])
    except (KeyError, TypeError, ValueError) as error:
        raise _strange(error) from None


def version_of(config: Any) -> tuple[int, int] | None:
    """The version that a JobManager says of itself (``GET /config``), None where it says none."""
    found = re.match(r"(\d+)\.(\d+)", str(config.get("flink-version", ""))) if isinstance(config, Mapping) else None
    return (int(found[1]), int(found[2])) if found is not None else None


def filled(args: list[str], topic: str, uid: str) -> list[str]:
    """Program arguments with the topic and the source's uid in the places that are kept for them."""
    return [a.replace("{topic}", topic).replace("{uid}", uid) for a in args]


def _strange(error: Exception) -> ValueError:
    return ValueError(f"not the answer of a JobManager ({type(error).__name__}: {error})")
