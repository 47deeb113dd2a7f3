"""The target: made as planned, mended, and deleted again while it is empty and this migration's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from topicshift.acts.context import MigrationContext
from topicshift.acts.fence import late_denies
from topicshift.acts.planning import accepted_plan
from topicshift.acts.questions import about_of, approve_by_spec
from topicshift.core.engine.decision import Decision
from topicshift.core.engine.view import View
from topicshift.core.engine.words import Ask, Row, StepState
from topicshift.core.errors import Refused, Transient
from topicshift.core.fence.acls import Grant, added_by, grant
from topicshift.core.kafka.cluster import TopicInfo, error_of_unread
from topicshift.core.plan.source import planned_source
from topicshift.core.plan.target import NOT_COPIED
from topicshift.core.proof.verification import same_topic_id


def create_target(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Make topic, configs and ACLs of the approved plan.

    An empty topic of exactly this shape that is there already is used, and never deleted by the way back. After a kill
    the topic is recognised as this migration's own by the intent. Raises ``Refused`` for a topic of another shape, one
    that holds records, or one that was deleted or made again.
    """
    name, row = ctx.row.target, view.record.step(Row.CREATE_TARGET)
    seen = ctx.admin.topic(name)
    if row is None or not row.state.in_effect:
        approve_by_spec(ctx, Ask.PLAN, about_of(Ask.PLAN, "", view.record, view))
        order = ctx.intend(Row.CREATE_TARGET, _order(ctx, seen))
    else:
        order = row.data
    known = order["topic_id"]
    if seen is None and known is not None:
        raise Refused(
            f"topic {name} (id {known}) was there before and is gone. Somebody deleted it. Nothing is made in its "
            "place; find out who did, and plan again."
        )
    if seen is None:
        ctx.check_seat()
        ctx.admin.create_topic(name, order["partitions"], order["replication_factor"], order["configs"])
        seen = ctx.admin.topic(name)
        if seen is None:
            raise Transient(f"topic {name} was created and is not shown by the brokers yet.")
    _require_same(seen, known)
    _require_shape(seen, order)
    _require_empty(ctx, seen)
    _create_acls(ctx, order)
    ctx.finish(Row.CREATE_TARGET, {"topic_id": seen.topic_id})


def repair_target(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Put back the ACLs of the target that somebody removed, and lift a DENY on it that a late request set again."""
    row, here = view.record.step(Row.CREATE_TARGET), ctx.admin.acls()
    late = late_denies(view.record, here, ctx.row.target)
    if late:
        ctx.event("late_denies_lifted", {"set_by_a_late_request": [str(a) for a in late]})
        ctx.check_seat()
        ctx.admin.delete_acls(late)
    missing = [] if row is None else sorted(set(added_by(row.data)) - here)
    if missing:
        ctx.event("target_acls_repaired", {"removed_by_somebody": [str(a) for a in missing]})
        ctx.check_seat()
        ctx.admin.create_acls(missing)


def delete_target(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Delete the target that this migration made, and the ACLs that it added; a topic that was there before stays.

    Raises ``Refused`` where it holds or has held records, or is not the topic that was made, and ``Unreadable`` where
    that cannot be told.
    """
    row = view.record.step(Row.CREATE_TARGET)
    if row is None or not row.state.in_effect:
        return
    seen = ctx.admin.topic(ctx.row.target) if row.data["ours"] else None
    if seen is not None:
        _require_same(seen, row.data["topic_id"])
        if row.data["topic_id"] is None:
            _require_shape(seen, row.data)  # killed between the act and its record
        _require_empty(ctx, seen)
        ctx.check_seat()
        ctx.admin.delete_topic(seen.name, seen.topic_id)
    added = added_by(row.data)
    if added:
        ctx.check_seat()
        ctx.admin.delete_acls(added)
    deleted = seen.topic_id if seen is not None else None
    ctx.finish(Row.CREATE_TARGET, {"deleted": deleted}, state=StepState.UNDONE)


def _order(ctx: MigrationContext, seen: TopicInfo | None) -> dict[str, Any]:
    """What is to be made, from the plan that was approved."""
    plan = accepted_plan(ctx)
    assert plan.target is not None, "one without a target is never accepted"
    shape = {
        "name": ctx.row.target,
        "partitions": plan.target.partitions,
        "replication_factor": plan.target.replication_factor,
        "configs": dict(sorted(plan.target.configs.items())),
    }
    if seen is not None:
        _require_shape(seen, shape)
        _require_empty(ctx, seen)
    wanted = sorted({a.to_acl() for a in plan.target.acls})
    before = ctx.admin.acls()
    then = before | set(wanted)
    known = {p.principal for p in ctx.producers if p.principal}
    return {
        **shape,
        **planned_source(plan.source),
        "ours": seen is None,
        "topic_id": seen.topic_id if seen is not None else None,
        "acls_added": [asdict(a) for a in wanted if a not in before],
        "may_write": sorted(p for p in known if grant(then, ctx.row.target, p) in (Grant.BY_NAME, Grant.BY_EVERYBODY)),
    }


def _create_acls(ctx: MigrationContext, order: Mapping[str, Any]) -> None:
    added = added_by(order)
    if added:
        ctx.check_seat()
        ctx.admin.create_acls(added)


def _require_same(seen: TopicInfo, known: str | None) -> None:
    if known is not None and not same_topic_id(known, seen.topic_id):
        raise Refused(
            f"topic {seen.name} was deleted and made again: its id is {seen.topic_id}, and was {known}. It is not the "
            "topic that this migration uses, so it is left alone. Find out who did this, and plan again."
        )


def _require_shape(seen: TopicInfo, shape: Mapping[str, Any]) -> None:
    found = {e.name: e.value for e in seen.configs.values() if e.set_here}
    wanted = dict(shape["configs"])
    differing = []
    if seen.partitions != shape["partitions"]:
        differing.append(f"{seen.partitions} partitions (planned {shape['partitions']})")
    if seen.replication_factor != shape["replication_factor"]:
        differing.append(f"replication factor {seen.replication_factor} (planned {shape['replication_factor']})")
    for key in sorted((found.keys() | wanted.keys()) - NOT_COPIED.keys()):
        if found.get(key) != wanted.get(key):
            differing.append(f"{key}={found.get(key, 'not set')} (planned {wanted.get(key, 'not set')})")
    if differing:
        raise Refused(
            f"topic {seen.name} is not what was planned: {', '.join(differing)}. Nothing is changed on a topic "
            "that is there. Choose another target, or delete or correct this one by hand and plan again."
        )


def _require_empty(ctx: MigrationContext, seen: TopicInfo) -> None:
    rows = ctx.admin.offsets(seen.name)
    found = {p: rows.get(p) for p in range(seen.partitions)}
    unread = {p: row for p, row in found.items() if row is None or row.error or row.end is None}
    if unread:
        said = [f"[{p}] {row.error if row is not None else 'no answer'}" for p, row in unread.items()]
        raise error_of_unread(*unread.values())(
            f"Whether topic {seen.name} is empty cannot be told: {_first(said)}. Unknown never counts as empty. "
            "Run it again once its partitions can be read."
        )
    used = [f"[{p}] ends at {row.end}" for p, row in found.items() if row is not None and row.end]
    if used:
        raise Refused(
            f"topic {seen.name} holds or has held records ({_first(used)}). "
            "Only an empty topic is used as a target or deleted. Choose another target, or go on forward."
        )


def _first(texts: list[str], most: int = 5) -> str:
    return ", ".join([*texts[:most], *(["..."] if len(texts) > most else [])])
