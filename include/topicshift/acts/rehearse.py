"""The shadow of a rehearsal: made before anything else, and gone before the rehearsal ends, however it ends."""

from __future__ import annotations

from functools import partial

from topicshift.acts.context import MigrationContext
from topicshift.acts.open import REHEARSAL_OF
from topicshift.acts.plan import make_plan
from topicshift.core.engine.decision import Decision
from topicshift.core.engine.view import View
from topicshift.core.engine.words import Row, StepState
from topicshift.core.errors import PreflightFailed, Refused, TopicshiftError, Transient, Unreadable
from topicshift.core.kafka.cluster import TopicInfo
from topicshift.core.plan.model import Plan
from topicshift.core.plan.target import target_acls, target_configs
from topicshift.core.rehearsal import rehearsed_spec
from topicshift.core.spec.model import Mode, Spec
from topicshift.core.spec.shadows import real_name, side_group
from topicshift.ports import Controller, Sample

MOST = 20_000
"""Records that are copied from the source at most."""

COPY_S = 20.0
"""Bound, in seconds, of reading and copying them."""


def make_shadow(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Make the shadow source like the source, with a sample of its keys, and groups that have read it all.

    The plan of the migration itself comes first, with each participant's ``can_i``: where that is blocked, so is its
    rehearsal, and nothing is made. The source is read, and nothing else of the migration is touched. Killed in between,
    it is done again. Raises ``PreflightFailed`` or ``Unreadable`` with the findings that block, ``Refused`` where the
    source is gone or holds no key, and where something else has the name of a shadow.
    """
    shadow, source = ctx.row.source, _real(ctx.row.source)
    real = ctx.admin.topic(source)
    if real is None:
        raise Refused(f"Topic {source} is gone. Nothing was made.")
    findings = _plan_itself(ctx, source)
    begun = ctx.journal.step(ctx.row.migration_id, Row.SHADOW)
    if begun is None or begun.state == StepState.UNDONE.value:
        _nobody_has_the_names(ctx)
    ctx.intend(Row.SHADOW, {"of": source, "topics": [shadow, ctx.row.target], "groups": groups_of(ctx)})
    _like_the_source(ctx, real, shadow)
    began = ctx.clock.now()
    sample = _sampled(ctx, real, shadow)
    took = (ctx.clock.now() - began).total_seconds()
    data = {"records": sample.records, "keys": sample.keys, "copied_in_s": took}
    ctx.event("rehearsal_begun", {"of": source, **data, "findings": findings})
    ctx.finish(Row.SHADOW, data)


def remove_shadow(ctx: MigrationContext, *, anyway: bool = False) -> list[str]:
    """Delete every topic, ACL and group of the shadow; what is gone already is passed over. Nothing for a migration.

    Returns what could not be deleted, one line each, where it has to end ``anyway``; else the first error is raised.
    """
    if ctx.spec.mode is not Mode.REHEARSE:
        return []
    row = ctx.journal.step(ctx.row.migration_id, Row.SHADOW)
    if row is None or row.state == StepState.UNDONE.value:
        return []
    topics, groups = [str(name) for name in row.data["topics"]], [str(g) for g in row.data["groups"]]
    if strange := [name for name in (*topics, *groups) if real_name(name) is None]:
        raise Refused(f"{strange[0]} is no topic or group of a rehearsal, so it is left alone.")
    left: list[str] = []
    for named, remove in (
        *((f"topic {name}", partial(_delete_topic, ctx, name)) for name in topics),
        (f"the ACLs of {' and '.join(topics)}", partial(_delete_acls, ctx, topics)),
        (f"groups of the rehearsal ({', '.join(groups)})", partial(_forget, ctx, groups)),
    ):
        ctx.check_seat()
        try:
            remove()
        except TopicshiftError as error:
            if not anyway:
                raise
            left.append(f"{named}: delete by hand what is left ({error})")
    ctx.event("rehearsal_over", {"deleted": topics, "left": left})
    ctx.finish(Row.SHADOW, {"left": left}, state=StepState.UNDONE)
    return left


def groups_of(ctx: MigrationContext) -> list[str]:
    """Every group of the shadow."""
    home = ctx.row.source
    sides = [side_group(home, p.role, p.name) for p in (*ctx.producers, *ctx.consumers)]
    return [*(str(c.group) for c in ctx.consumers), *sides]


def _real(shadow: str) -> str:
    real = real_name(shadow)
    if real is None:
        raise Refused(f"{shadow} is no topic of a rehearsal. Nothing was done.")
    return real


def _plan_itself(ctx: MigrationContext, source: str) -> list[str]:
    """The codes of the findings on the migration itself. Raises with those that block it."""
    plan = _planned(ctx, rehearsed_spec(_spec_itself(ctx), _real(ctx.row.target)))
    for finding in plan.findings:
        ctx.log(f"{source}: {finding.line()}")
    if not plan.ok:
        blocking = plan.blocking()
        raise (Unreadable if plan.unknown else PreflightFailed)(
            f"{len(blocking)} finding(s) block the migration of {source}, and so its rehearsal; nothing was made:\n"
            + "\n".join(f"- {f.line()}" for f in blocking)
        )
    return sorted({f.code for f in plan.findings})


def _planned(ctx: MigrationContext, spec: Spec) -> Plan:
    """The plan of the migration itself, by the controllers of its own participants. Changes nothing."""
    made: dict[str, Controller] = {}

    def mover(kind: str) -> Controller:
        if kind not in made:
            made[kind] = ctx.ports.make_controller(kind, ctx.admin)
        return made[kind]

    try:
        return make_plan(
            spec,
            ctx.admin,
            no_impact="a rehearsal measures the keys of its sample",
            journal=ctx.journal,
            route=mover("route"),
            movers=mover,
            policy=ctx.installation,
            now=ctx.clock.now(),
        )
    finally:
        for controller in made.values():
            controller.close()


def _spec_itself(ctx: MigrationContext) -> Spec:
    kept = ctx.journal.events(ctx.row.migration_id, (REHEARSAL_OF,))
    if not kept:
        raise Refused(
            f"{ctx.row.migration_id} was not opened to its end: the spec that it rehearses is not in its trail. Clear "
            "its first task, or close it and start another."
        )
    return Spec.model_validate(dict(kept[0].data["spec"]))


def _nobody_has_the_names(ctx: MigrationContext) -> None:
    """Raise ``Refused`` for a topic or group of the shadow's name that this rehearsal has not made."""
    topics, groups = ctx.admin.topic_names(), {g.group for g in ctx.admin.groups()}
    found = [f"topic {t}" for t in (ctx.row.source, ctx.row.target) if t in topics]
    found += [f"group {g}" for g in groups_of(ctx) if g in groups]
    if found:
        raise Refused(
            f"{found[0]} exists, and this rehearsal has not made it. It could be somebody's, so nothing was written. "
            f"If nobody needs them, delete: {', '.join(found)}. Then start the rehearsal again."
        )


def _like_the_source(ctx: MigrationContext, real: TopicInfo, shadow: str) -> None:
    """The shadow source, with the configs that are set on the source, and everybody's rights to it."""
    acls = target_acls(ctx.admin.acls(), real.name, shadow).acls
    if ctx.admin.topic(shadow) is None:
        ctx.check_seat()
        ctx.admin.create_topic(shadow, real.partitions, real.replication_factor, target_configs(real).configs)
    if acls:
        ctx.check_seat()
        ctx.admin.create_acls(acls)


def _sampled(ctx: MigrationContext, real: TopicInfo, shadow: str) -> Sample:
    """Copy the sample, and let every group of the shadow have read it."""
    policy = real.configs.get("cleanup.policy")
    compacted = policy is not None and "compact" in str(policy.value)
    ctx.check_seat()
    sample = ctx.ports.rehearser.copy(real.name, shadow, most=MOST, timeout_s=COPY_S, keyed=compacted)
    if not sample.keys:
        raise Refused(
            f"None of the {sample.records} latest record(s) of {real.name} has a key, so there is no order of keys to "
            "rehearse. Rehearse with a topic that holds keyed records; one without keys needs no migration."
        )
    ends = {p: o.end for p, o in ctx.admin.offsets(shadow).items()}
    if any(end is None for end in ends.values()):
        raise Transient(f"Where {shadow} ends cannot be read.")
    for consumer in ctx.consumers:
        assert consumer.group is not None
        ctx.check_seat()
        ctx.admin.alter_commits(consumer.group, shadow, {p: end for p, end in ends.items() if end is not None})
    return sample


def _delete_topic(ctx: MigrationContext, name: str) -> None:
    if ctx.admin.topic(name) is not None:
        ctx.admin.delete_topic(name)


def _delete_acls(ctx: MigrationContext, topics: list[str]) -> None:
    held = sorted(a for a in ctx.admin.acls() if a.resource_type == "TOPIC" and a.name in topics)
    if held:
        ctx.admin.delete_acls(held)


def _forget(ctx: MigrationContext, groups: list[str]) -> None:
    ctx.ports.rehearser.forget(groups)
