"""The fence: DENY on the source, its proof on record, its repair, its widening, and its exact inverse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from topicshift.acts.context import MigrationContext
from topicshift.acts.planning import accepted_plan
from topicshift.acts.questions import shown_of
from topicshift.core.engine.decision import Decision
from topicshift.core.engine.view import Record, StepRecord, View
from topicshift.core.engine.words import DENIES, Ask, Row, StepState, plain_name
from topicshift.core.errors import Transient
from topicshift.core.fence.acls import (
    DenyPlan,
    RouteProducer,
    added_by,
    concerning,
    deny_bindings,
    exempt_of,
    wide_deny,
    writers,
)
from topicshift.core.fence.decision import settings_of, settled_tail
from topicshift.core.fence.record import FenceRecord, evidence
from topicshift.core.kafka.cluster import Acl
from topicshift.core.plan.source import source_differs
from topicshift.ports import ParticipantState

FENCE_ROWS = (Row.FENCE, Row.WIDE_DENY)


def deny(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Set the DENY bindings of the freeze. Those of producers on the route are never denied."""
    if view.record.at(Row.STOP_PRODUCERS) is StepState.INTENDED:
        ctx.finish(Row.STOP_PRODUCERS, {"stopped_at": ctx.clock.now().isoformat()})
    row = view.record.step(Row.FENCE)
    data = row.data if row is not None and row.state.in_effect else ctx.intend(Row.FENCE, _order(ctx, view.record))
    for note in data["notes"]:
        ctx.log(f"fence of {ctx.row.source}: {note}")
    _create(ctx, added_by(data))


def _order(ctx: MigrationContext, record: Record) -> dict[str, Any]:
    driven = ctx.driven(ctx.producers)
    answers = ctx.ask_all(
        {
            "topic": lambda: ctx.admin.topic(ctx.row.source),
            "acls": ctx.admin.acls,
            "states": lambda: ctx.observe(driven),
        }
    )
    topic, acls, states = answers["topic"], answers["acls"], answers["states"]
    made = record.step(Row.CREATE_TARGET)
    differs = source_differs(topic, made.data if made is not None else {})
    if topic is None or differs:
        raise Transient(f"topic {ctx.row.source} {differs}; it is not fenced, and looked at anew")
    # Nobody is denied who was not named in the go for this freeze, or in the question of the rollback.
    late = late_denies(record, acls, ctx.row.source)
    asked = Ask.ROLLBACK if record.mirrored else Ask.FREEZE
    plan = deny_of(ctx, acls, states, only=shown_of(record, asked).get("deny"))
    return {
        "topic": ctx.row.source,
        "topic_id": topic.topic_id,
        "partitions": topic.partitions,
        "acls_before": [asdict(a) for a in concerning(acls, ctx.row.source)],
        "acls_added": [asdict(a) for a in (*plan.bindings, *late)],
        "exempt_principals": sorted(exempt_of([_route_producer(s) for s in states])),
        "notes": [*plan.notes, *map(_said, late)],
    }


def deny_of(
    ctx: MigrationContext, acls: Iterable[Acl], states: Sequence[ParticipantState], only: Iterable[str] | None = None
) -> DenyPlan:
    """The DENY of a freeze that began now, no more than the accepted plan has, and for these principals alone."""
    approved = [replace(a.to_acl(), name=ctx.row.source) for a in accepted_plan(ctx).deny]  # on a way back: the target
    named = None if only is None else frozenset(only)
    approved = [a for a in approved if named is None or a.principal in named]
    return deny_bindings(acls, ctx.row.source, [_route_producer(s) for s in states], approved)


def new_writers(ctx: MigrationContext, acls: Iterable[Acl], states: Sequence[ParticipantState]) -> list[str]:
    """Principals that may write to the source, could not when the plan was accepted, and that no producer names."""
    known = accepted_plan(ctx).writers
    if known is None:
        return []
    declared = {p.principal for p in ctx.producers if p.principal}
    ours = exempt_of([_route_producer(s) for s in states]) | declared
    return sorted(set(writers(acls, ctx.row.source)) - set(known) - ours)


def _route_producer(state: ParticipantState) -> RouteProducer:
    who = state.participant
    return RouteProducer(who.name, who.principal, tuple(i.principal for i in state.instances if i.principal))


def late_denies(record: Record, acls: Iterable[Acl], topic: str) -> list[Acl]:
    """Bindings that are in force although this migration had lifted them on any of its ways: a request was late."""
    first = record.step(Row.FIRST_DENY)
    lifted = _lifted([*_denies(record), *([(first, added_by(first.data))] if first is not None else [])])
    return sorted(a for a in lifted.intersection(acls) if a.name == topic)


def _denies(record: Record) -> list[tuple[StepRecord, list[Acl]]]:
    """The rows of every way that set a DENY, each with its bindings."""
    return [(row, added_by(row.data)) for name, row in record.steps.items() if plain_name(name) in DENIES]


def lifted_denies(record: Record) -> set[Acl]:
    """Every DENY binding that this migration has set on any of its ways and lifted, the scream test's too."""
    rows = [(plain_name(name), row) for name, row in record.steps.items()]
    screams = [
        (row, scream_acls(record.source, row.data.get("acls", ()))) for step, row in rows if step == Row.SCREAM_TEST
    ]
    return _lifted([*_denies(record), *screams])


def _lifted(set_by: Iterable[tuple[StepRecord, Iterable[Acl]]]) -> set[Acl]:
    """Bindings of rows that are in effect no more, but for those that another row holds."""
    lifted, held = set[Acl](), set[Acl]()
    for row, acls in set_by:
        (held if row.state.in_effect else lifted).update(acls)
    return lifted - held


def scream_acls(source: str, operations: Iterable[str] = ("READ", "WRITE")) -> list[Acl]:
    """DENY READ and WRITE on the source for everybody: who still needs it gets an error, and screams."""
    return [Acl("TOPIC", source, "LITERAL", "User:*", "*", op, "DENY") for op in ("READ", "WRITE") if op in operations]


def _said(late: Acl) -> str:
    return (
        f"{late.permission} {late.operation} for {late.principal} is in force again although this migration had lifted "
        "it: a late request set it, so it is lifted with the others."
    )


def _create(ctx: MigrationContext, acls: list[Acl]) -> None:
    if acls:
        ctx.check_seat()
        ctx.admin.create_acls(acls)


def record_fence(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Write down the fence that the samples of this advancer prove."""
    row = view.record.step(Row.FENCE)
    samples = ctx.memory.samples
    tail = settled_tail(samples, int(row.data["partitions"])) if row is not None else []
    if row is None or not tail:
        return
    last, began = tail[-1], samples[0].began
    data = row.data
    record = FenceRecord(
        topic=data["topic"],
        topic_id=data["topic_id"],
        partitions=data["partitions"],
        fence_offsets={p: o.end for p, o in sorted((last.offsets or {}).items()) if o.end is not None},
        began_at=datetime.fromtimestamp(began, UTC).isoformat(),
        taken_at=datetime.fromtimestamp(last.ended, UTC).isoformat(),
        settings=settings_of(added_by(data)),
        samples=evidence(tail, began),
        acls_before=[Acl(**a) for a in data["acls_before"]],
        acls_added=added_by(data),
        exempt_principals=data["exempt_principals"],
        notes=data["notes"],
        producers=list(last.producers or ()),
        stopped=[s.name for s in last.stops or ()],
    )
    ctx.check_seat()
    ctx.write("fence.json", record.model_dump_json(indent=2))
    ctx.event("fenced", {"fence_offsets": record.fence_offsets, "topic_id": record.topic_id})
    ctx.finish(Row.FENCE, {"record": record.model_dump(mode="json")})


def repair_deny(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Put back the DENY bindings of this migration that somebody removed."""
    missing = sorted(_added(view.record) - ctx.admin.acls())
    if missing:
        ctx.event("deny_repaired", {"removed_by_somebody": [str(a) for a in missing]})
        _create(ctx, missing)


def widen_deny(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """One DENY for everybody, now that every producer writes to the target."""
    _shut(ctx, view.record, Row.WIDE_DENY, ctx.row.source)


def _shut(ctx: MigrationContext, record: Record, row: Row, topic: str) -> None:
    """Deny everybody to write to a topic, on record in ``row``."""
    held = record.step(row)
    if held is not None and held.state.in_effect:
        data = held.data
    else:
        # The brokers' ACLs need no look where the freeze found none in force: without an authorizer there are none.
        here = ctx.admin.acls()
        plan, late = wide_deny(here, topic), late_denies(record, here, topic)
        added = [asdict(a) for a in (*plan.bindings, *late)]
        data = ctx.intend(row, {"topic": topic, "acls_added": added, "notes": [*plan.notes, *map(_said, late)]})
    _create(ctx, added_by(data))
    ctx.finish(row, {})


def unfence(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Remove exactly the bindings that this migration added. The rows are undone once no binding is shown any more."""
    lift(ctx, view.record)


def lift(ctx: MigrationContext, record: Record) -> bool:
    """The inverse of :func:`deny` and :func:`widen_deny`; whether nothing of them is shown any more. Idempotent."""
    return _open(ctx, record, FENCE_ROWS)


def _open(ctx: MigrationContext, record: Record, rows: tuple[Row, ...]) -> bool:
    """Remove what these rows added, and undo them once no binding is shown any more; whether none is."""
    added = _added(record, rows)
    if added:
        ctx.check_seat()
        ctx.admin.delete_acls(added)
        if added & ctx.admin.acls():
            return False
    for row in rows:
        if record.in_effect(row):
            ctx.finish(row, {"lifted_at": ctx.clock.now().isoformat()}, state=StepState.UNDONE)
    return True


def restore(ctx: MigrationContext, record: Record) -> None:
    """The fence counts again: a way back that had lifted it is called off, and the source stands where it stood.

    The DENY bindings are put back by the rule that looks after them.
    """
    for row in FENCE_ROWS:
        if record.at(row) is StepState.UNDONE:
            ctx.finish(row, {"restored_at": ctx.clock.now().isoformat()})


def open_source(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """On a way back: lift the DENYs of the way forward, so that producers may write to the source again."""
    held = ctx.record_as_held()
    added = _added(held)
    if added:
        ctx.check_seat()
        ctx.admin.delete_acls(added)
        if added & ctx.admin.acls():
            return
    for row in FENCE_ROWS:
        if held.in_effect(row):
            data = {"lifted_at": ctx.clock.now().isoformat(), "how": "going back"}
            ctx.journal.finish(ctx.claim, row.value, data, state=StepState.UNDONE.value)


def shut_source(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """The inverse of :func:`open_source`: a way back is called off, and the source is shut as it was."""
    held = ctx.record_as_held()
    rows = [row for row in FENCE_ROWS if held.at(row) is StepState.UNDONE]
    steps = [held.step(row) for row in rows]
    _create(ctx, sorted({a for step in steps if step is not None for a in added_by(step.data)}))
    for row in rows:
        ctx.journal.finish(ctx.claim, row.value, {"restored_at": ctx.clock.now().isoformat()})


def deny_target(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Shut the target for everybody while producers go back, for a process that slept wakes up with records for it."""
    _shut(ctx, view.record, Row.TARGET_DENY, ctx.row.target)


def open_target(ctx: MigrationContext, record: Record) -> None:
    """The inverse of :func:`deny_target`. Idempotent. Raises ``Transient`` while a binding is still shown."""
    if not _open(ctx, record, (Row.TARGET_DENY,)):
        raise Transient(f"the DENY on {record.target} is still shown, so it is not open yet.")


def _added(record: Record, rows: tuple[Row, ...] = FENCE_ROWS) -> set[Acl]:
    steps = [record.step(row) for row in rows]
    return {acl for step in steps if step is not None and step.state.in_effect for acl in added_by(step.data)}
