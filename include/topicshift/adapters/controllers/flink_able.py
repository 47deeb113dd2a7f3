"""What would keep a Flink job from being moved, asked before anything is touched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from topicshift.adapters.controllers.flink_access import Access, Running
from topicshift.adapters.controllers.flink_proof import never_committed
from topicshift.core.errors import NotFound, Unreadable
from topicshift.core.flink.ids import vertex_id
from topicshift.core.flink.job import FLINK_FROM, Job, version_of
from topicshift.core.kafka.cluster import error_of_unread
from topicshift.ports import ClusterAdmin

_OPERATED = ("kubernetes.operator.", "$internal.application.")
_BEGINS = {
    "latest": "it starts at latest where it has no state, so it would lose what lies on the target already, and on the "
    "way back what has come to a partition that was empty at its savepoint",
    "earliest": "it starts at earliest where it has no state, so on the way back it would read all of the source again",
    "": "where it starts without state is not said, and a job can start at latest",
}


def unable(access: Access, admin: ClusterAdmin) -> list[str]:
    """One line a fault. Raises ``Unreadable`` where it cannot be told."""
    return [*_manager(access), *_prefix(access), *declared(access), *_job(access), *group(access, admin)]


def _manager(access: Access) -> Iterator[str]:
    config, settings = access.ask("GET", "/config", None), _settings(access)
    version = version_of(config)
    if version is None:
        yield "its JobManager does not say its version"
    elif version < FLINK_FROM:
        least = ".".join(map(str, FLINK_FROM))
        yield f"its JobManager is of Flink {version[0]}.{version[1]}, which cannot be moved ({least} and later can)"
    operated = settings.get("execution.target", "").startswith("kubernetes-application")
    if operated or any(key.startswith(_OPERATED) for key in settings):
        yield (
            "its JobManager runs this one job for an operator (FlinkDeployment) or as an application, which would "
            "start it again as it was; move it by kind `command`, with a hook that changes that resource"
        )
        return
    yield from access.cannot_begin(config, version or FLINK_FROM)
    folder = settings.get("execution.checkpointing.savepoint-dir") or settings.get("state.savepoints.dir")
    if not (folder or access.settings.savepoints):
        yield "its JobManager has no folder for savepoints (execution.checkpointing.savepoint-dir); see `savepoints`"


def _settings(access: Access) -> dict[str, str]:
    answer = access.ask("GET", "/jobmanager/config", None)
    try:
        return {str(one["key"]): str(one["value"]) for one in answer}
    except (KeyError, TypeError):
        raise Unreadable("the configuration of its JobManager is not understood") from None


def _prefix(access: Access) -> Iterator[str]:
    settings = access.settings
    prefix = settings.transactional_id_prefix
    if prefix and any(prefix in a and ("{topic}" in a or "{uid}" in a) for a in settings.values):
        yield (
            f"the prefix {prefix!r} of its transactional ids changes with the topic: what the run before left open "
            "would stay open and hold back whoever reads its sink. Keep it the same"
        )


def declared(access: Running) -> Iterator[str]:
    """What is wrong with what the spec says of the job itself."""
    settings = access.settings
    prefix = settings.transactional_id_prefix
    if access.who.role == "producer":
        return
    if prefix and not settings.sinks:
        yield "it writes in transactions, and where to is not said; see `sinks`"
    if settings.starts_at not in ("committed", "committed_or_earliest"):
        yield f"{_BEGINS[settings.starts_at or '']}. It has to start at committed offsets; see `starts_at`"
    if settings.source_uid is None:
        yield "which uid its source has is not said; see `source_uid`"
    elif access.uid(access.ctx.source) == access.uid(access.ctx.target):
        yield "its source has the same uid on both topics, so it would go on with its partitions of the other one"


def _job(access: Access) -> Iterator[str]:
    seen, name = access.seen(), access.settings.job
    if len(seen.live) != 1:
        yield f"{len(seen.live)} jobs named {name!r} run; it has to be one, before it can be moved and put back"
        return
    yield from runs(access, seen.live[0])


def runs(access: Running, job: Job) -> Iterator[str]:
    """What is wrong with the job that runs: its vertices, the uid of its source, its checkpoints."""
    vertices = access.vertices(job.jid)
    late = [v.name for v in vertices if v.state != "RUNNING"]
    if job.state != "RUNNING" or late:
        yield f"{job.text()}; not running: {', '.join(late)[:300] or 'the job'}; it has to run before it can be moved"
    uid = access.settings.source_uid
    if access.who.role == "consumer" and uid is not None and vertex_id(uid) not in {v.vid for v in vertices}:
        yield (
            f"none of its vertices begins with an operator of the uid {uid!r}, so the state of its source could not be "
            "left behind; give the source a uid (`.uid(...)`), or name the one it has. A job from SQL has one "
            "where it runs from a compiled plan"
        )
    yield from _checkpoints(access, job)


def _checkpoints(access: Running, job: Job) -> Iterator[str]:
    try:
        config = access.ask("GET", f"/jobs/{job.jid}/checkpoints/config", None)
    except NotFound:
        yield "it takes no checkpoints, so neither its state nor its position would come along"
        return
    mode = str(config.get("mode") if isinstance(config, Mapping) else None)
    if access.settings.transactional_id_prefix and mode != "exactly_once":
        yield f"its checkpoints are {mode}, and it writes in transactions; it has to be exactly_once"
    taken = access.checkpoints(job.jid)
    if not taken.completed:
        yield f"no checkpoint of it is complete yet ({taken.text()}); it has to be before it is stopped with one"
    elif taken.failing:
        yield f"its latest checkpoint failed ({taken.text()}), so a savepoint would; see its exceptions"


def group(access: Running, admin: ClusterAdmin) -> Iterator[str]:
    """What is wrong with a consumer's group. Raises ``Unreadable`` where it cannot be told."""
    who = access.who
    if who.role == "producer" or who.group is None:
        return
    info = admin.describe_groups([who.group]).get(who.group)
    if info is None or info.error:
        raise error_of_unread(info)(f"group {who.group} could not be described: {info.error if info else 'no answer'}")
    if info.members:
        yield f"group {who.group} has {len(info.members)} member(s), and a Flink job joins none: they are somebody else"
    missing = never_committed(admin, who.group, access.ctx.source)
    if missing and access.settings.starts_at != "committed_or_earliest":
        named: Any = ", ".join(f"{access.ctx.source}[{p}]" for p in missing[:5])
        yield (
            f"its group {who.group} has committed nothing in {named}. Back on the source it would begin there as its "
            "reset strategy says, and at latest lose what has come meanwhile; see `starts_at`"
        )
