"""Looks at a topic before and after its migration, for the report. Read-only; what cannot be read ends nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from topicshift.acts.context import MigrationContext
from topicshift.core.engine.words import MigrationState, Row
from topicshift.core.errors import TopicshiftError
from topicshift.core.health import FILE, WATCHED, CheckpointSample, GroupSample, Health, Rate, Sample, lag_of, rate
from topicshift.core.kafka.cluster import GroupCommits, GroupInfo
from topicshift.ports import TellsCheckpoints


def look_before(ctx: MigrationContext) -> None:
    """Keep the source as it is before anybody is stopped. Not of a way back, nor of a rehearsal."""
    if ctx.way or ctx.policy.rehearsal:
        return
    sample = _sample(ctx, ctx.row.source)
    if sample is not None:
        _keep(ctx, Health(before=sample, rate_before=_rate_before(ctx, sample)))


def look_after(ctx: MigrationContext) -> bool:
    """Keep the target as it is now beside what was before; whether that was done."""
    health = _kept(ctx) if not ctx.way and not ctx.policy.rehearsal else None
    sample = _sample(ctx, ctx.row.target) if health is not None else None
    if health is None or sample is None:
        return False
    freeze = ctx.record().step(Row.FREEZE)
    _keep(ctx, health.with_after(sample, freeze.data.get("ended_at") if freeze is not None else None))
    return True


def watch_after(ctx: MigrationContext) -> None:
    """Look after a migration that is done, for a day, and draw its report anew."""
    record = ctx.record()
    proof = record.step(Row.ORDER_PROOF)
    ended = proof.finished_at if proof is not None else None
    if record.state is not MigrationState.DONE or ended is None:
        return
    if ctx.clock.now() - datetime.fromisoformat(ended) <= WATCHED and look_after(ctx):
        ctx.report()


def _keep(ctx: MigrationContext, health: Health) -> None:
    try:
        ctx.keep(FILE, health.model_dump_json(indent=2))
    except TopicshiftError as error:
        ctx.log(f"{FILE} could not be written: {error}")


def _kept(ctx: MigrationContext) -> Health | None:
    try:
        data = ctx.ports.evidence.read(ctx.row.migration_id, FILE)
        return None if data is None else Health.model_validate_json(data)
    except (TopicshiftError, ValueError) as error:
        ctx.log(f"{FILE} cannot be read, so nothing is compared with it: {type(error).__name__}")
        return None


def _rate_before(ctx: MigrationContext, sample: Sample) -> Rate | None:
    """Since the keys were measured: the impact has the ends of the moment at which it began to read.

    ``taken_at`` is when it was done, a long while later, in which producers went on. None where it read no further than
    to some time: those are no ends.
    """
    try:
        data = ctx.ports.evidence.read(ctx.row.migration_id, "impact.json")
        impact = json.loads(data) if data is not None else {}
        measured = impact.get("measured") or {}
        ends = [int(end) for _, end in measured.get("ranges", {}).values()]
        if not ends or measured.get("until") is not None:
            return None
        began = datetime.fromisoformat(str(impact["taken_at"])) - timedelta(seconds=float(measured["seconds"]))
        return rate(sample.end, sample.at, sum(ends), began.isoformat())
    except (TopicshiftError, ValueError, TypeError, AttributeError, KeyError, OverflowError):
        return None


def _sample(ctx: MigrationContext, topic: str) -> Sample | None:
    groups = sorted({c.group for c in ctx.consumers if c.group is not None})
    calls: dict[str, Any] = {
        "topic": lambda: ctx.admin.topic(topic),
        "offsets": lambda: ctx.admin.offsets(topic),
        "groups": lambda: ctx.admin.describe_groups(groups) if groups else {},
    }
    try:
        found = ctx.ask_all(calls)
        info, offsets = found["topic"], found["offsets"]
        if info is None:
            return None
        commits = ctx.admin.commits(groups, topic, sorted(info.replicas)) if groups else {}
        sizes = ctx.ports.executor.run(lambda: ctx.ports.reader.sizes(topic))
    except TopicshiftError as error:
        ctx.log(f"{topic} was not looked at for the report's before and after: {error}")
        return None
    ends = {p: o.end for p, o in offsets.items()}
    known = [end for end in ends.values() if end is not None]
    return Sample(
        at=ctx.clock.now().isoformat(),
        topic=topic,
        partitions=info.partitions,
        end=sum(known) if len(known) == info.partitions else None,
        sizes=dict(sizes) or None,
        under_replicated=sorted(p for p, r in info.replicas.items() if len(info.isr.get(p, ())) < len(r)),
        groups={
            g: _group(found["groups"].get(g), commits.get(g), ends, {p: o.log_start for p, o in offsets.items()})
            for g in groups
        },
        checkpoints=_checkpoints(ctx),
    )


def _checkpoints(ctx: MigrationContext) -> dict[str, CheckpointSample | None]:
    """Of each participant whose controller can tell; None, and a line of the log, for one that could not be read."""
    found: dict[str, CheckpointSample | None] = {}
    for controller, members in ctx.by_kind([*ctx.producers, *ctx.consumers]):
        if not isinstance(controller, TellsCheckpoints):
            continue
        for name, told in controller.checkpoints(ctx.control(), members).items():
            if isinstance(told, TopicshiftError):
                ctx.log(f"the checkpoints of {name} were not read for the report's before and after: {told}")
                found[name] = None
            else:
                found[name] = CheckpointSample(
                    completed=told.completed, failed=told.failed, ms=told.ms, failing=told.failing
                )
    return found


def _group(
    info: GroupInfo | None,
    commits: GroupCommits | None,
    ends: Mapping[int, int | None],
    starts: Mapping[int, int | None],
) -> GroupSample:
    unread = commits is None or commits.error is not None or bool(commits.errors)
    lag = None if commits is None or unread else lag_of(ends, starts, commits.offsets)
    seen = info is not None and info.error is None
    return GroupSample(
        lag=lag,
        state=info.state if info is not None and seen else "unknown",
        members=len(info.members) if info is not None and seen else None,
    )
