"""Lengthen the retention of the source where records could expire before they are read, and put it back exactly."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from topicshift.acts.drain import DrainTaker, run_async
from topicshift.acts.drain_inputs import DrainInputs
from topicshift.core.drain.certificate import DrainCertificate
from topicshift.core.drain.progress import DrainProgress, Tracker, row_lag
from topicshift.core.drain.retention import RetentionRisk, Unread, retention_risk
from topicshift.core.errors import Unreadable
from topicshift.core.spec.model import Spec
from topicshift.ports import Claim, Clock, ClusterAdmin, ConfigEntry, DrainReader, Journal

STEP = "lengthen_retention"
"""The journal's name of the step."""
GATE_S = 12 * 3600.0
"""How long a run may wait for its freeze: records that are unread now must live until then, in seconds."""
_LOOKS = 3
_BETWEEN_S = 0.5


def lengthen_retention(
    admin: ClusterAdmin,
    reader: DrainReader,
    journal: Journal,
    claim: Claim,
    source: str,
    spec: Spec,
    clock: Clock,
    *,
    gate_s: float = GATE_S,
) -> list[str]:
    """Lengthen ``retention.ms`` and ``retention.bytes`` of the source where the forecast says so; lines for a person.

    What was there before is journalled before anything is changed. A repeated call applies what was journalled and
    forecasts nothing anew. Returns no line when nothing is at risk.
    """
    row = journal.step(claim.migration_id, STEP)
    if row is None or row.state not in ("intended", "done"):
        risk = _forecast(admin, reader, source, spec, clock, gate_s)
        if not risk.at_risk:
            return []
        before = {name: _set_here(admin, source, name) for name in risk.change}
        row = journal.intend(
            claim,
            STEP,
            {"source": source, "set": dict(risk.change), "before": before, "why": list(risk.why[:20])},
        )
    wanted = {str(k): str(v) for k, v in row.data["set"].items()}
    missing = {k: v for k, v in wanted.items() if _set_here(admin, source, k) != v}
    if missing:
        admin.alter_topic_configs(source, set_=missing)
    if row.state != "done":
        journal.finish(claim, STEP, {"at": clock.now().isoformat()})
        journal.event(claim, "retention_lengthened", claim.owner, dict(row.data))
    said = ", ".join(f"{k}={v}" for k, v in sorted(wanted.items()))
    return [f"retention of {source} lengthened: {said}", *(str(line) for line in row.data.get("why", []))]


def restore_retention(admin: ClusterAdmin, journal: Journal, claim: Claim, source: str) -> list[str]:
    """The exact inverse: what was set on the topic before is set again, what was not set is unset; lines for a person.

    A config that somebody else has changed since is left as it is, and said. Does nothing when nothing was lengthened.
    """
    row = journal.step(claim.migration_id, STEP)
    if row is None or row.state not in ("intended", "done"):
        return []
    lines, set_, unset = [], {}, []
    for name, ours in row.data["set"].items():
        now, before = _set_here(admin, source, name), row.data["before"].get(name)
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
        admin.alter_topic_configs(source, set_=set_, unset=unset)
    journal.finish(claim, STEP, {"restored": lines}, state="undone")
    journal.event(claim, "retention_restored", claim.owner, {"lines": lines})
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


def _forecast(
    admin: ClusterAdmin, reader: DrainReader, source: str, spec: Spec, clock: Clock, gate_s: float
) -> RetentionRisk:
    configs = _entries(admin, source)
    policy = configs.get("cleanup.policy")
    unread, rates = run_async(lambda: _unread(reader, source, spec, clock))
    return retention_risk(
        cleanup_policy=(policy.value if policy else None) or "delete",
        retention_ms=_number(configs, "retention.ms"),
        retention_bytes=_number(configs, "retention.bytes"),
        unread=unread,
        now_ms=int(clock.now().timestamp() * 1000),
        extra_s=gate_s + spec.freeze_budget.total_seconds(),
        write_bytes_per_s=rates,
    )


async def _unread(reader: DrainReader, source: str, spec: Spec, clock: Clock) -> tuple[list[Unread], dict[int, float]]:
    """Each group's oldest unread record of each partition, and what producers write, in bytes per second."""
    inputs = DrainInputs.from_spec(spec)
    inputs = DrainInputs(source, declared=inputs.declared, compare=False, accepted_lost=inputs.accepted_lost)
    taker = DrainTaker(reader, inputs, now=clock.now)
    tracker = Tracker()
    progress: DrainProgress | None = None
    first: tuple[float, dict[int, int]] | None = None
    for look in range(_LOOKS):
        if look:
            await asyncio.sleep(_BETWEEN_S)
        at = clock.now().timestamp()
        certificate = await taker.take(second_sample=False)
        progress = tracker.add(certificate, at)
        first = first or (at, _ends(certificate))
    assert progress is not None and first is not None
    ends, starts, sizes = _ends(progress.certificate), _starts(progress.certificate), await reader.sizes(source)
    span = max(progress.at - first[0], 1e-3)
    per_record = {p: sizes[p] / (ends[p] - starts[p]) for p in sizes if ends.get(p, 0) > starts.get(p, 0)}
    written = {p: (e - first[1].get(p, e)) / span * per_record.get(p, 0.0) for p, e in ends.items()}
    oldest: dict[int, int] = {}
    for group in progress.certificate.groups:
        for row in group.partitions:
            if row_lag(row) != 0 and row.log_start is not None:
                at_offset = max(row.log_start, row.committed or 0)
                oldest[row.partition] = min(at_offset, oldest.get(row.partition, at_offset))
    stamps = await reader.timestamps(source, oldest) if oldest else {}
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
