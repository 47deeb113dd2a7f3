"""The plan: everything that a migration would do, as data that prints itself. Pure: same input, same output.

``plan.json`` is the JSON of :class:`Plan`. ``plan_hash`` covers what an approver accepts: the resolved spec, the shape
of both topics, the participants, the actions and what was found; not offsets, times or the state of groups, which move
by themselves.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field, ValidationError

from topicshift.core.base import Model
from topicshift.core.checks import Facts, Shape, run_checks, sort_findings
from topicshift.core.checks.snapshot import OtherMigration, Snapshot
from topicshift.core.fence.acls import deny_bindings
from topicshift.core.findings import Finding, Level
from topicshift.core.kafka.cluster import Acl, TopicInfo
from topicshift.core.kafka.rules import next_target_name
from topicshift.core.plan.target import target_acls, target_configs
from topicshift.core.sizing.sizing import (
    CORES_UNKNOWN,
    SizingInput,
    SizingResult,
    recommend,
    record_bytes_from_impact,
    skew_from_impact,
)
from topicshift.core.spec.duration import format_duration
from topicshift.core.spec.model import Approval, Cutover, Sizing, Spec

_SAID_BY_THE_PLAN = frozenset({"TS708", "TS709", "TS711"})
"""What the impact report says of keys in general; TS401 to TS403 say what it means for a migration."""

__all__ = ["AclBinding", "Action", "OtherMigration", "Plan", "Snapshot", "make_plan", "resolve_target"]

VOLATILE = frozenset({"TS115", "TS304", "TS306", "TS309", "TS310"})
"""Findings that speak of the moment (an idle group, an open transaction): shown, but no reason to ask again."""


class AclBinding(Model):
    """One ACL, as :class:`topicshift.core.kafka.cluster.Acl`."""

    resource_type: str
    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str

    @classmethod
    def of(cls, acl: Acl) -> AclBinding:
        """From the plain value."""
        return cls(**{f: getattr(acl, f) for f in cls.model_fields})

    def to_acl(self) -> Acl:
        """Back to the plain value."""
        return Acl(**self.model_dump())

    def __str__(self) -> str:
        host = "" if self.host == "*" else f" from {self.host}"
        return f"{self.permission} {self.principal} {self.operation}{host}"


class SourceFacts(Model):
    """The source as it was described. ``partitions`` is its count."""

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    configs: dict[str, str]
    """What was set on the topic itself."""


class TargetShape(Model):
    """The target as ``create_target`` makes it. ``exists`` is true when an empty topic of that shape is used."""

    name: str
    partitions: int
    replication_factor: int
    configs: dict[str, str]
    acls: list[AclBinding]
    notes: list[str] = Field(default=[])
    """What of the source is not copied, and why."""
    exists: bool = False


class Action(Model):
    """One thing that the migration will do. ``step`` is the task group; ``text`` is for a person."""

    step: str
    text: str


class Plan(Model):
    """The JSON contract of ``plan.json``.

    ``spec`` is resolved: ``target`` and ``partitions`` (a number) are filled in. ``source`` and ``target`` are null
    when the world did not allow to work them out; then a finding blocks. ``taken_at`` is ISO 8601, UTC.
    """

    version: Literal[1] = 1
    taken_at: str
    cluster_id: str | None
    spec: Spec
    source: SourceFacts | None
    target: TargetShape | None
    sizing: SizingResult | None = None
    readers: dict[str, str] = Field(default={})
    """Groups found to read the source, with how that is known."""
    findings: list[Finding]
    actions: list[Action]
    plan_hash: str

    @property
    def ok(self) -> bool:
        """Whether the migration may go on: nothing of level error, nothing unknown."""
        return self.source is not None and self.target is not None and not any(f.blocks for f in self.findings)

    @property
    def unknown(self) -> bool:
        """Whether something could not be read (exit code 4)."""
        return any(f.unknown for f in self.findings)

    def blocking(self) -> list[Finding]:
        """The findings that block."""
        return [f for f in self.findings if f.blocks]

    @property
    def why(self) -> list[str]:
        """Why this count, where it was worked out from rates: reasons and runner-up."""
        return list(self.sizing.reasons) if self.sizing else []

    @property
    def unchecked(self) -> list[str]:
        """Bounds of the count that could not be checked, and what is missing for it."""
        if self.sizing is not None:
            return list(self.sizing.unchecked)
        known = self.target is None or self.spec.broker_cores is not None
        return [] if known else [CORES_UNKNOWN]

    def lines(self) -> list[str]:
        """The plan as lines of plain text: what is there, what will be done, what was found."""
        out = [f"{self.spec.source} -> {self.spec.target}"]
        if self.source and self.target:
            out[0] += f": {self.source.partitions} -> {self.target.partitions} partitions"
        out += [f"plan {self.plan_hash[:12]}, taken {self.taken_at}", ""]
        out += [f"{'' if i else 'sizing':<18}{text}" for i, text in enumerate(self.why)]
        out += [f"{'' if i else 'not checked':<18}{text}" for i, text in enumerate(self.unchecked)]
        step = ""
        for action in self.actions:
            out.append(f"{action.step if action.step != step else '':<18}{action.text}")
            step = action.step
        if self.findings:
            out += ["", *(f.line() for f in self.findings)]
        out += ["", "ok: nothing blocks" if self.ok else f"blocked by {len(self.blocking())} finding(s)"]
        return out

    def __str__(self) -> str:
        return "\n".join(self.lines())


def resolve_target(spec: Spec, topics: frozenset[str] | None, taken: Iterable[str] = ()) -> str:
    """The target's name: as the spec has it, else the next free ``-vN``.

    ``taken`` are names that other migrations have claimed. Topics that could not be listed count as none: the name
    is then only a proposal, and the plan is blocked by the unread listing anyway.
    """
    return spec.target or next_target_name(spec.source, {*(topics or ()), *taken})


def make_plan(spec: Spec, snapshot: Snapshot, *, target: str | None = None) -> Plan:
    """Plan one migration from one snapshot. Never raises for what the world looks like: that becomes findings.

    ``target`` is the name under which ``snapshot.target`` was looked up; by default :func:`resolve_target`.
    """
    name = target or resolve_target(
        spec, snapshot.topics, [t for m in snapshot.migrations for t in (m.source, m.target)]
    )
    shape = _shape(spec, snapshot, name)
    facts = Facts(spec, snapshot, shape)
    findings = sort_findings([*run_checks(facts), *_from_impact(snapshot)])
    source = _source_facts(snapshot.source) if snapshot.source else None
    resolved = spec.model_copy(
        update={"target": name, **({"partitions": shape.partitions} if shape.partitions is not None else {})}
    )
    refused = any(f.code == "TS103" and f.blocks for f in findings)
    planned = _target(snapshot, shape, refused=refused)
    actions = _actions(resolved, source, planned, _denies(spec, snapshot), refused=refused)
    return Plan(
        taken_at=snapshot.taken_at,
        cluster_id=snapshot.cluster.cluster_id if snapshot.cluster else None,
        spec=resolved,
        source=source,
        target=planned,
        sizing=shape.sizing,
        readers=_readers(facts),
        findings=findings,
        actions=actions,
        plan_hash=_hash(snapshot, resolved, source, planned, actions, findings),
    )


# ------------------------------------------------------------------------------------------------ parts


def _shape(spec: Spec, snapshot: Snapshot, name: str) -> Shape:
    source = snapshot.source
    factor = spec.replication_factor or (source.replication_factor if source else None)
    sizing = None
    partitions: int | None
    if isinstance(spec.partitions, Sizing):
        partitions = None
        if source is not None and snapshot.cluster is not None:
            sizing = _sized(spec, spec.partitions, snapshot, source, factor or 1)
            partitions = sizing.recommended
    else:
        partitions = spec.partitions
    configs = target_configs(source) if source else None
    acls = target_acls(snapshot.acls or (), spec.source, name)
    return Shape(
        name=name,
        partitions=partitions,
        replication_factor=factor,
        configs=tuple(configs.configs.items()) if configs else (),
        acls=acls.acls,
        notes=(*(configs.notes if configs else ()), *acls.notes),
        sizing=sizing,
    )


def _sized(spec: Spec, block: Sizing, snapshot: Snapshot, source: TopicInfo, factor: int) -> SizingResult:
    curve, hottest = skew_from_impact(snapshot.impact) if snapshot.impact else ({}, None)
    return recommend(
        SizingInput(
            throughput=block.throughput,
            per_consumer=block.per_consumer,
            per_partition=block.per_partition,
            headroom=block.headroom,
            multiple_of=block.multiple_of,
            source_partitions=source.partitions,
            brokers=len(snapshot.cluster.brokers) if snapshot.cluster else None,
            cores_per_broker=spec.broker_cores,
            replication_factor=factor,
            skew=curve,
            hottest_key_share=hottest,
            record_bytes=record_bytes_from_impact(snapshot.impact) if snapshot.impact else None,
        )
    )


def _source_facts(info: TopicInfo) -> SourceFacts:
    return SourceFacts(
        name=info.name,
        topic_id=info.topic_id,
        partitions=info.partitions,
        replication_factor=info.replication_factor,
        configs={n: e.value or "" for n, e in sorted(info.configs.items()) if e.set_here and not e.sensitive},
    )


def _target(snapshot: Snapshot, shape: Shape, *, refused: bool) -> TargetShape | None:
    if shape.partitions is None or shape.replication_factor is None or snapshot.source is None:
        return None
    target = snapshot.target
    return TargetShape(
        name=shape.name,
        partitions=shape.partitions,
        replication_factor=shape.replication_factor,
        configs=dict(shape.configs),
        acls=[AclBinding.of(a) for a in shape.acls],
        notes=list(shape.notes),
        exists=target is not None and target.topic_id != snapshot.own_target_id and not refused,
    )


def _readers(facts: Facts) -> dict[str, str]:
    from topicshift.core.drain.discovery import discover

    snapshot = facts.snapshot
    if snapshot.groups is None or snapshot.described is None or snapshot.commits is None:
        return {}
    found = discover(
        facts.spec.source, snapshot.groups, snapshot.described, snapshot.commits, declared=None, ignored=None
    )
    return dict(found.readers)


def _from_impact(snapshot: Snapshot) -> list[Finding]:
    """The findings that the impact report brings along. One that cannot be read as a finding is an error itself."""
    out = []
    for raw in (snapshot.impact or {}).get("findings", []):
        try:
            finding = Finding.model_validate(raw)
            if finding.code not in _SAID_BY_THE_PLAN:
                out.append(finding)
        except ValidationError as err:
            out.append(
                Finding(
                    code="TS501",
                    level=Level.ERROR,
                    subject="impact.json",
                    seen=f"a finding in it cannot be read: {err.error_count()} fields are wrong.",
                    why="It may be one that blocks.",
                    do="Make the report again with this version.",
                    unknown=True,
                )
            )
    return out


def _denies(spec: Spec, snapshot: Snapshot) -> list[AclBinding]:
    """The DENY bindings that the fence will set as the ACLs are now."""
    route = [p for p in spec.producers if p.kind == "route"]
    plan = deny_bindings(
        snapshot.acls or (),
        spec.source,
        [p.principal for p in route if p.principal],
        [p.name for p in route if not p.principal],
    )
    return [AclBinding.of(a) for a in plan.bindings]


def _actions(  # noqa: C901 - a plan prints itself: a branch is a line of it
    spec: Spec, source: SourceFacts | None, target: TargetShape | None, denies: list[AclBinding], *, refused: bool
) -> list[Action]:
    if source is None or target is None:
        return []
    out: list[Action] = []

    def add(step: str, text: str) -> None:
        out.append(Action(step=step, text=text))

    if spec.approvals.plan is Approval.REQUIRED:
        add("approve", "wait for a person to accept exactly this plan")
    if refused:
        add("create_target", f"not possible: {target.name} is there already and cannot be used (TS103)")
    elif target.exists:
        add("create_target", f"use the existing, empty {target.name}")
    else:
        add(
            "create_target",
            f"create {target.name}: {target.partitions} partitions, replication factor {target.replication_factor}",
        )
        for key, value in target.configs.items():
            add("create_target", f"set {key}={value}")
    for note in target.notes:
        add("create_target", f"note: {note}")
    for acl in target.acls:
        add("create_target", f"create ACL {acl} on {target.name}")
    if spec.approvals.cutover is Approval.REQUIRED:
        add("stop_producers", "wait for a person to say go")
    for producer in spec.producers:
        add("stop_producers", f"stop producer {producer.name} ({producer.kind})")
    for acl in denies:
        add("stop_producers", f"create ACL {acl} on {acl.name}, until the migration ends or goes back")
    add("stop_producers", f"prove that nothing is written to {source.name} any more")
    groups = ", ".join(c.group for c in spec.consumers)

    def switch_producers() -> None:
        for producer in spec.producers:
            add("switch_producers", f"point producer {producer.name} to {target.name} and start it")

    def drain() -> None:
        add(
            "drain",
            f"wait until {groups} {'has' if len(spec.consumers) == 1 else 'have'} read {source.name} to its end",
        )
        for reader in spec.readers:
            add("drain", f"wait until {reader.name}'s own evidence ({reader.kind}, {reader.location}) says the same")
        add("verify_drain", "read what is in doubt, and compare the end of the source with the fence")

    if spec.cutover is Cutover.PRODUCERS_FIRST:
        switch_producers()
        drain()
    else:
        drain()
        switch_producers()
    add(
        "stop_producers",
        f"give the producers back to {source.name} if they are not switched within the freeze budget of "
        f"{format_duration(spec.freeze_budget)}",
    )
    out.sort(key=lambda a: _ORDER[spec.cutover].index(a.step))
    for consumer in spec.consumers:
        add(
            "switch_consumers",
            f"set the offsets of {consumer.group} on {target.name} to its log start; point {consumer.name} to it",
        )
    for reader in spec.readers:
        add("switch_consumers", f"note: {reader.name} commits nothing, so its owner moves it to {target.name}")
    add("verify", f"count both topics, and check the order of every key over {source.name} and {target.name}")
    return out


_ORDER = {
    Cutover.DRAIN_FIRST: ["approve", "create_target", "stop_producers", "drain", "verify_drain", "switch_producers"],
    Cutover.PRODUCERS_FIRST: [
        "approve",
        "create_target",
        "stop_producers",
        "switch_producers",
        "drain",
        "verify_drain",
    ],
}


def _hash(
    snapshot: Snapshot,
    spec: Spec,
    source: SourceFacts | None,
    target: TargetShape | None,
    actions: list[Action],
    findings: list[Finding],
) -> str:
    accepted: dict[str, Any] = {
        "version": 1,
        "cluster_id": snapshot.cluster.cluster_id if snapshot.cluster else None,
        "spec": spec.model_dump(mode="json"),
        "source": source.model_dump(mode="json") if source else None,
        "target": target.model_dump(mode="json") if target else None,
        "actions": [a.model_dump(mode="json") for a in actions],
        "findings": sorted({(f.code, f.level.value, f.subject) for f in findings if f.code not in VOLATILE}),
    }
    return canonical_hash(accepted)


def canonical_hash(value: Any) -> str:
    """SHA-256 over canonical JSON (sorted keys, no spaces, UTF-8), in hexadecimal."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
