"""What the target gets from the source: the configs set on it and the rights to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from topicshift.core.fence.acls import covers
from topicshift.core.kafka.cluster import Acl, TopicInfo

NOT_COPIED = {
    "leader.replication.throttled.replicas": "it names partitions of a reassignment of the source",
    "follower.replication.throttled.replicas": "it names partitions of a reassignment of the source",
}
"""Configs that make no sense on another topic, each with why."""


@dataclass(frozen=True)
class TargetConfigs:
    """The configs to set on the target, and those left out with why."""

    configs: dict[str, str]
    notes: tuple[str, ...]


def target_configs(source: TopicInfo) -> TargetConfigs:
    """What was set on the source topic itself, without what it inherits and what makes no sense elsewhere."""
    configs: dict[str, str] = {}
    notes: list[str] = []
    for entry in sorted(source.configs.values(), key=lambda e: e.name):
        if not entry.set_here:
            continue
        if entry.name in NOT_COPIED:
            notes.append(f"{entry.name} is not copied: {NOT_COPIED[entry.name]}.")
        elif entry.sensitive or entry.value is None:
            notes.append(
                f"{entry.name} is not copied: the brokers do not show its value. Set it on the target by hand."
            )
        else:
            configs[entry.name] = entry.value
    return TargetConfigs(configs, tuple(notes))


@dataclass(frozen=True)
class TargetAcls:
    """The bindings that the target still lacks, and what a person should know."""

    acls: tuple[Acl, ...]
    notes: tuple[str, ...]


def target_acls(acls: Iterable[Acl], source: str, target: str, own: Iterable[Acl] = ()) -> TargetAcls:
    """The bindings to make so that everybody has on the target the rights he has on the source.

    A literal binding of the source is made again for the target; a prefixed or ``*`` binding that covers the
    target already is not; a prefixed one that covers only the source becomes a literal one. ``own`` are the DENY
    bindings of a fence, which are never copied. What is there already is left out.
    """
    acls = frozenset(acls)
    ours = frozenset(own)
    wanted: set[Acl] = set()
    notes: list[str] = []
    for acl in sorted(acls - ours):
        if not covers(acl, "TOPIC", source):
            continue
        if covers(acl, "TOPIC", target):
            continue
        if "UNKNOWN" in (acl.operation, acl.permission):
            notes.append(
                f"A binding of {acl.principal} on {acl.name} has an operation that this client does not know, and is "
                "not copied. Make it by hand where it is needed."
            )
            continue
        wanted.add(Acl("TOPIC", target, "LITERAL", acl.principal, acl.host, acl.operation, acl.permission))
    return TargetAcls(tuple(sorted(wanted - acls)), tuple(notes))
