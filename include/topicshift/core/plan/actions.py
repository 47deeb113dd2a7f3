"""What a migration will do, step by step, in words for a person. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.engine.words import ORDER, Step
from topicshift.core.fence.acls import DenyPlan
from topicshift.core.plan.shapes import AclBinding, Action, SourceFacts, TargetShape
from topicshift.core.spec.duration import format_duration
from topicshift.core.spec.model import Approval, Spec


def actions(
    spec: Spec, source: SourceFacts, target: TargetShape, deny: DenyPlan, then: DenyPlan, *, refused: bool
) -> list[Action]:
    """Every action, in the order of the cut-over.

    ``deny`` is the DENY of the freeze, ``then`` the one after the switch. ``refused``: the target cannot be used.
    """
    found = [
        *_prepare(spec, target, refused=refused),
        *_stop(spec, source, deny),
        *_drain(spec, source),
        *_switch(spec, source, target, then),
        Action(
            step="verify",
            text=f"count both topics, and check the order of every key over {source.name} and {target.name}",
        ),
    ]
    return sorted(found, key=lambda a: ORDER[spec.cutover].index(Step(a.step)))


def _prepare(spec: Spec, target: TargetShape, *, refused: bool) -> Iterator[Action]:
    if spec.approvals.plan is Approval.REQUIRED:
        yield Action(step="approve", text="wait for a person to accept exactly this plan")
    texts = []
    if refused:
        texts.append(f"not possible: {target.name} is there already and cannot be used (TS103)")
    elif target.exists:
        texts.append(f"use the existing, empty {target.name}")
    else:
        texts.append(
            f"create {target.name}: {target.partitions} partitions, replication factor {target.replication_factor}"
        )
        texts += [f"set {key}={value}" for key, value in target.configs.items()]
    texts += [f"note: {note}" for note in target.notes]
    texts += [f"create ACL {acl} on {target.name}" for acl in target.acls]
    yield from (Action(step="create_target", text=text) for text in texts)


def _stop(spec: Spec, source: SourceFacts, deny: DenyPlan) -> Iterator[Action]:
    asks = spec.approvals.freeze is Approval.REQUIRED
    w = spec.window
    texts = [f"wait for the window ({w.cron} {w.timezone}, {format_duration(w.duration)})"] if w is not None else []
    texts += ["wait for a person to say go, before anybody is stopped"] if asks else []
    texts += [f"stop producer {producer.name} ({producer.kind})" for producer in spec.producers]
    texts += [
        f"create ACL {AclBinding.of(acl)} on {acl.name}, until the migration ends or goes back" for acl in deny.bindings
    ]
    if not deny.bindings:
        texts.append(f"note: nobody is denied. {deny.notes[0]}")
    texts += [
        f"prove that nothing is written to {source.name} any more",
        f"give the producers back to {source.name} if they are not switched within the freeze budget of "
        f"{format_duration(spec.freeze_budget)}",
    ]
    yield from (Action(step="stop_producers", text=text) for text in texts)


def _drain(spec: Spec, source: SourceFacts) -> Iterator[Action]:
    groups = ", ".join(c.group for c in spec.consumers)
    has = "has" if len(spec.consumers) == 1 else "have"
    yield Action(step="drain", text=f"wait until {groups} {has} read {source.name} to its end")
    for reader in spec.readers:
        text = f"wait until {reader.name}'s own evidence ({reader.kind}, {reader.location}) says the same"
        yield Action(step="drain", text=text)
    yield Action(step="verify_drain", text="read what is in doubt, and compare the end of the source with the fence")


def _switch(spec: Spec, source: SourceFacts, target: TargetShape, then: DenyPlan) -> Iterator[Action]:
    if spec.approvals.certificate is Approval.REQUIRED:
        yield Action(step="switch_producers", text="wait for a person to accept the certificate, in the freeze")
    for producer in spec.producers:
        yield Action(step="switch_producers", text=f"point producer {producer.name} to {target.name} and start it")
    for acl in then.bindings:
        yield Action(
            step="switch_producers",
            text=f"once all of them write to {target.name}: create ACL {AclBinding.of(acl)} on {acl.name}, "
            f"until {source.name} is retired or the migration goes back",
        )
    for consumer in spec.consumers:
        text = f"set the offsets of {consumer.group} on {target.name} to its log start; point {consumer.name} to it"
        if consumer.after:
            text += f", once {' and '.join(consumer.after)} {'reads' if len(consumer.after) == 1 else 'read'} it"
        yield Action(step="switch_consumers", text=text)
    for reader in spec.readers:
        folder = ", with a new checkpoint folder" if reader.kind == "spark_checkpoint" else ""
        text = f"note: {reader.name} commits nothing, so its owner moves it to {target.name}{folder}"
        yield Action(step="switch_consumers", text=text)
