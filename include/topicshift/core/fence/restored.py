"""Whether a topic is as it was before a migration touched it: by name, from plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from topicshift.core.kafka.cluster import Acl


@dataclass(frozen=True)
class State:
    """What a migration may change on its source: partitions, configs that are set on the topic, and its ACLs."""

    partitions: int
    configs: Mapping[str, str]
    acls: frozenset[Acl]


@dataclass(frozen=True)
class Restored:
    """What is as it was, what is not, and what could not be read; one line each, for a person."""

    equal: tuple[str, ...]
    differs: tuple[str, ...]
    unknown: tuple[str, ...]


def compare(topic: str, before: State, now: State, *, still_ours: frozenset[str] = frozenset()) -> Restored:
    """Compare two states of a topic. ``still_ours``: configs that the migration holds on purpose until it ends."""
    equal, differs = list[str](), list[str]()
    if now.partitions != before.partitions:
        differs.append(f"{topic} has {now.partitions} partitions, and had {before.partitions}")
    other = [
        f"{name} of {topic} is {now.configs.get(name, 'inherited')}, and was {before.configs.get(name, 'inherited')}"
        + (" (kept so until the migration ends)" if name in still_ours else "")
        for name in sorted(before.configs.keys() | now.configs.keys())
        if now.configs.get(name) != before.configs.get(name)
    ]
    gone = [f"the ACL {_text(a)} was there, and is not" for a in sorted(before.acls - now.acls)]
    new = [f"the ACL {_text(a)} is there, and was not" for a in sorted(now.acls - before.acls)]
    equal += [] if other else [f"the configs of {topic} are as they were"]
    equal += [] if gone or new else [f"the ACLs of {topic} are as they were"]
    return Restored(tuple(equal), (*differs, *other, *gone, *new), ())


def _text(acl: Acl) -> str:
    return f"{acl.permission} {acl.operation} for {acl.principal} from {acl.host} on {acl.pattern} {acl.name}"
