"""Lengthen the retention of the source where records could expire before they are read, and put it back exactly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topicshift.acts.context import MigrationContext
from topicshift.acts.drain import DrainTaker
from topicshift.acts.drain_inputs import DrainInputs
from topicshift.core.drain.certificate import DrainCertificate
from topicshift.core.drain.progress import DrainProgress, Tracker, row_lag
from topicshift.core.drain.retention import RetentionRisk, Unread, retention_risk
from topicshift.core.engine.decision import Decision
from topicshift.core.engine.view import View
from topicshift.core.engine.words import Row, StepState
from topicshift.core.errors import Unreadable
from topicshift.ports import ClusterAdmin, ConfigEntry

GATE_S = 12 * 3600.0
"""How long a run may wait for its freeze: records that are unread now must live until then, in seconds."""
_LOOKS = 3
_BETWEEN_S = 0.5


def lengthen_retention(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Lengthen ``retention.ms`` and ``retention.bytes`` of the source where records could expire before they are read.

    What was there before is journalled before anything is changed. A repeated act applies what was journalled, and
    forecasts nothing anew.
    """
    source, row = ctx.row.source, view.record.step(Row.LENGTHEN_RETENTION)
    if row is None or not row.state.in_effect:
        risk = forecast_retention(ctx)
        change = dict(risk.change) if risk.at_risk else {}
        before = {name: _set_here(ctx.admin, source, name) for name in change}
        data = ctx.intend(
            Row.LENGTHEN_RETENTION, {"source": source, "set": change, "before": before, "why": list(risk.why[:20])}
        )
    else:
        data = row.data
    wanted = {str(k): str(v) for k, v in data["set"].items()}
    missing = {k: v for k, v in wanted.items() if _set_here(ctx.admin, source, k) != v}
    if missing:
        ctx.event("retention_lengthened", {**data, "set_now": missing})
        ctx.check_seat()
        ctx.admin.alter_topic_configs(source, set_=missing)
        ctx.log(f"retention of {source} lengthened: {missing}; {'; '.join(map(str, data['why']))}")
    ctx.finish(Row.LENGTHEN_RETENTION, {})


def restore_retention(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """The exact inverse: what was set on the topic before is set again, what was not set is unset.

    A config that somebody else has changed since is left as it is, and said.
    """
    row = view.record.step(Row.LENGTHEN_RETENTION)
    if row is not None and row.state.in_effect:
        lines = put_back(ctx, ctx.row.source, row.data)
        ctx.finish(Row.LENGTHEN_RETENTION, {"restored": lines}, state=StepState.UNDONE)


def put_back(ctx: MigrationContext, source: str, kept: Mapping[str, Any]) -> list[str]:
    """Put back what ``kept`` (a row's data) says was set on the topic before; what was done, a line for each config."""
    lines, set_, unset = list[str](), dict[str, str](), list[str]()
    for name, ours in kept["set"].items():
        now, before = _set_here(ctx.admin, source, name), kept["before"].get(name)
        if now == before:
            continue
        if now != ours:
            lines.append(f"{name} of {source} is {now} now, not what this run set ({ours}): left as it is")
        elif before is None:
            unset.append(name)
            lines.append(f"{name} of {source} is inherited again")
        else:
            set_[name] = str(before)
            lines.append(f"{name} of {source} is {before} again")
    if set_ or unset:
        ctx.check_seat()
        ctx.admin.alter_topic_configs(source, set_=set_, unset=unset)
    for line in lines:
        ctx.log(line)
    if lines:
        ctx.event("retention_restored", {"lines": lines})
    return lines


def _entries(admin: ClusterAdmin, source: str) -> Mapping[str, ConfigEntry]:
    info = admin.topic(source)
    if info is None:
        raise Unreadable(f"Topic {source} does not exist (any more), so its retention cannot be told.")
    return info.configs


def _set_here(admin: ClusterAdmin, source: str, name: str) -> str | None:
    entry = _entries(admin, source).get(name)
    return entry.value if entry is not None and entry.set_here else None


def _number(configs: Mapping[str, ConfigEntry], name: str) -> int:
    entry = configs.get(name)
    if entry is None or entry.value is None:
        raise Unreadable(f"{name} of the source cannot be read (DESCRIBE_CONFIGS), so nobody can tell what may expire.")
    return int(entry.value)


def forecast_retention(ctx: MigrationContext) -> RetentionRisk:
    """Whether records of the source could expire before every declared group has read them. Read-only.

    Looks three times in a second for the groups' rates. Raises ``Unreadable`` when topic or groups cannot be read.
    """
    configs = _entries(ctx.admin, ctx.row.source)
    policy = configs.get("cleanup.policy")
    unread, rates = _unread(ctx)
    return retention_risk(
        cleanup_policy=(policy.value if policy else None) or "delete",
        retention_ms=_number(configs, "retention.ms"),
        retention_bytes=_number(configs, "retention.bytes"),
        unread=unread,
        now_ms=int(ctx.clock.now().timestamp() * 1000),
        extra_s=GATE_S + ctx.spec.freeze_budget.total_seconds(),
        write_bytes_per_s=rates,
    )


def _unread(ctx: MigrationContext) -> tuple[list[Unread], dict[int, float]]:
    """Each group's oldest unread record of each partition, and what producers write, in bytes per second."""
    clock, reader, run, source = ctx.clock, ctx.ports.reader, ctx.ports.executor.run, ctx.row.source
    inputs = DrainInputs.from_spec(ctx.spec)
    inputs = DrainInputs(source, declared=inputs.declared, compare=False, accepted_lost=inputs.accepted_lost)
    taker = DrainTaker(reader, inputs, now=clock.now)
    tracker = Tracker()
    progress: DrainProgress | None = None
    first: tuple[float, dict[int, int]] | None = None
    for look in range(_LOOKS):
        if look:
            clock.sleep(_BETWEEN_S)
        at = clock.now().timestamp()
        certificate = run(lambda: taker.take(second_sample=False))
        progress = tracker.add(certificate, at)
        first = first or (at, _ends(certificate))
    assert progress is not None and first is not None
    ends, starts = _ends(progress.certificate), _starts(progress.certificate)
    sizes = run(lambda: reader.sizes(source))
    span = max(progress.at - first[0], 1e-3)
    per_record = {p: sizes[p] / (ends[p] - starts[p]) for p in sizes if ends.get(p, 0) > starts.get(p, 0)}
    written = {p: (e - first[1].get(p, e)) / span * per_record.get(p, 0.0) for p, e in ends.items()}
    oldest: dict[int, int] = {}
    for group in progress.certificate.groups:
        for row in group.partitions:
            if row_lag(row) != 0 and row.log_start is not None:
                at_offset = max(row.log_start, row.committed or 0)
                oldest[row.partition] = min(at_offset, oldest.get(row.partition, at_offset))
    stamps = run(lambda: reader.timestamps(source, oldest)) if oldest else {}
    left = {g.group: g.left for g in progress.groups}
    return [
        Unread(
            group.group,
            row.partition,
            stamps.get(row.partition),
            1 if (lag := row_lag(row)) is None else lag,
            left[group.group].high,
            sizes.get(row.partition),
        )
        for group in progress.certificate.groups
        for row in group.partitions
        if row_lag(row) != 0
    ], written


def _ends(certificate: DrainCertificate) -> dict[int, int]:
    return {r.partition: r.end for g in certificate.groups for r in g.partitions if r.end is not None}


def _starts(certificate: DrainCertificate) -> dict[int, int]:
    return {r.partition: r.log_start for g in certificate.groups for r in g.partitions if r.log_start is not None}
