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
from topicshift.core.checks import TS501, Facts, Scope, Shape, all_codes, run_checks
from topicshift.core.checks.snapshot import OtherMigration, Snapshot
from topicshift.core.fence.acls import writers
from topicshift.core.findings import Finding, sort_findings
from topicshift.core.kafka.cluster import TopicInfo
from topicshift.core.kafka.rules import next_target_name
from topicshift.core.plan.actions import actions
from topicshift.core.plan.shapes import AclBinding, Action, SourceFacts, TargetShape
from topicshift.core.plan.target import target_acls, target_configs
from topicshift.core.policy.model import Installation
from topicshift.core.sizing.sizing import (
    CORES_UNKNOWN,
    SizingInput,
    SizingResult,
    recommend,
    record_bytes_from_impact,
    skew_from_impact,
)
from topicshift.core.spec.model import Sizing, Spec

_SAID_BY_THE_PLAN = frozenset({"TS708", "TS709", "TS711"})
"""What the impact report says of keys in general; TS401 to TS403 say what it means for a migration."""

__all__ = [
    "AclBinding",
    "Action",
    "OtherMigration",
    "Plan",
    "Snapshot",
    "SourceFacts",
    "TargetShape",
    "make_plan",
    "resolve_target",
]

_LINTED = frozenset({Scope.TOPIC, Scope.PARTICIPANTS, Scope.POLICY})


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
    writers: list[str] | None = None
    """Principals that an ACL allows to write to the source; null where the brokers have no authorizer."""
    deny: list[AclBinding] = Field(default=[])
    """Exactly those whom the fence denies in the freeze."""
    deny_after_switch: list[AclBinding] = Field(default=[])
    """The DENY that takes over when every producer has acknowledged the target."""
    findings: list[Finding]
    actions: list[Action]
    plan_hash: str

    @property
    def intact(self) -> bool:
        """Whether its content still gives its hash."""
        return self.plan_hash == _hash(self)

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
    shape = shape_of(spec, snapshot, name)
    facts = Facts(spec, snapshot, shape)
    findings = sort_findings([*run_checks(facts), *_from_impact(snapshot, shape.partitions)])
    source = _source_facts(snapshot.source) if snapshot.source else None
    resolved = spec.model_copy(
        update={"target": name, **({"partitions": shape.partitions} if shape.partitions is not None else {})}
    )
    refused = any(f.code == "TS103" and f.blocks for f in findings)
    planned = _target(snapshot, shape, refused=refused)
    deny, then = facts.deny, facts.deny_after_switch
    steps = actions(resolved, source, planned, deny, then, refused=refused) if source and planned else []
    plan = Plan(
        taken_at=snapshot.taken_at,
        cluster_id=snapshot.cluster.cluster_id if snapshot.cluster else None,
        spec=resolved,
        source=source,
        target=planned,
        sizing=shape.sizing,
        readers=_readers(facts),
        writers=_writers(facts),
        deny=[AclBinding.of(a) for a in deny.bindings],
        deny_after_switch=[AclBinding.of(a) for a in then.bindings],
        findings=findings,
        actions=steps,
        plan_hash="",
    )
    return plan.model_copy(update={"plan_hash": _hash(plan)})


# ------------------------------------------------------------------------------------------------ parts


def _writers(facts: Facts) -> list[str] | None:
    cluster, acls = facts.snapshot.cluster, facts.snapshot.acls
    if cluster is None or cluster.authorizer is False or acls is None:
        return None
    return writers(acls, facts.spec.source)


def shape_of(spec: Spec, snapshot: Snapshot, name: str) -> Shape:
    """The target under this name as the plan would make it."""
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


def _from_impact(snapshot: Snapshot, partitions: int | None) -> list[Finding]:
    """The findings that the impact report brings along. One that cannot be read as a finding is an error itself.

    What it says of in-place increases is said of ``partitions``, the count that is planned.
    """
    out = list[Finding]()
    for raw in (snapshot.impact or {}).get("findings", []):
        try:
            finding = Finding.model_validate(raw)
            if finding.code not in _SAID_BY_THE_PLAN:
                out += _of_count(finding, snapshot.impact, partitions)
        except ValidationError as err:
            seen = f"a finding in it cannot be read: {err.error_count()} fields are wrong."
            do = "Make the report again with this version."
            out.append(TS501.error("impact.json", seen, "It may be one that blocks.", do, unknown=True))
    return out


def _of_count(finding: Finding, impact: Any, partitions: int | None) -> list[Finding]:
    from topicshift.core.impact.findings import in_place
    from topicshift.core.impact.report import Impact

    if finding.code != "TS713" or partitions is None:
        return [finding]
    try:
        read = Impact.model_validate(impact)
    except ValidationError:
        return [finding]  # of another version: each count stands beside its figures
    if not any(o.partitions == partitions for g in read.groups for o in g.overtaken):
        return [finding]
    of_it = in_place(read, partitions)
    return [of_it] if of_it is not None else []


def _hash(plan: Plan) -> str:
    accepted = plan.model_dump(
        mode="json",
        include={
            "version",
            "cluster_id",
            "spec",
            "source",
            "target",
            "writers",
            "deny",
            "deny_after_switch",
            "actions",
        },
    )
    passing = {c.code for c in all_codes() if c.of_a_moment}
    accepted["findings"] = sorted({(f.code, f.level.value, f.subject) for f in plan.findings if f.code not in passing})
    return canonical_hash(accepted)


def canonical_hash(value: Any) -> str:
    """SHA-256 over canonical JSON (sorted keys, no spaces, UTF-8), in hexadecimal."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def lint(spec: Spec, policy: Installation | None = None) -> list[Finding]:
    """What can be said about a spec without a cluster: the checks that need no part of a snapshot but the policy."""
    shape = Shape(
        resolve_target(spec, None),
        spec.partitions if isinstance(spec.partitions, int) else None,
        spec.replication_factor,
    )
    found = run_checks(Facts(spec, Snapshot(taken_at="", policy=policy), shape), scopes=_LINTED)
    return [f for f in found if not f.unknown]
