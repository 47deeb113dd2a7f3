"""What the target gets from the source: the configs that were set on it and the rights on it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from topicshift.core.cluster import Acl, TopicInfo

NOT_COPIED: dict[str, str] = {
    "leader.replication.throttled.replicas": "it names partitions and brokers of the source",
    "follower.replication.throttled.replicas": "it names partitions and brokers of the source",
}
"""Configs set on a topic that make no sense on another one, with the reason."""


def target_configs(source: TopicInfo) -> dict[str, str]:
    """The configs that were set on the source topic itself; what it inherits from the brokers stays inherited."""
    return {
        name: entry.value
        for name, entry in sorted(source.configs.items())
        if entry.set_here and entry.value is not None and name not in NOT_COPIED
    }


def left_out_configs(source: TopicInfo) -> dict[str, str]:
    """Configs set on the source that the target does not get, with the reason."""
    out = {n: why for n, why in NOT_COPIED.items() if n in source.configs and source.configs[n].set_here}
    for name, entry in source.configs.items():
        if entry.set_here and entry.value is None and name not in NOT_COPIED:
            out[name] = "the broker does not show its value"
    return out


def covers(acl: Acl, topic: str) -> bool:
    """Whether an ACL on topics applies to this one: literal, ``*``, or prefixed."""
    if acl.resource_type != "TOPIC":
        return False
    if acl.pattern == "PREFIXED":
        return topic.startswith(acl.name)
    return acl.pattern == "LITERAL" and acl.name in (topic, "*")


def target_acls(acls: Iterable[Acl], source: str, target: str, *, without: Iterable[Acl] = ()) -> tuple[Acl, ...]:
    """The ACLs to create so that the target has the rights that the source has; sorted.

    A literal ACL on the source is repeated for the target. A prefixed or ``*`` ACL that covers the target as well needs
    nothing; a prefixed one that covers the source alone becomes a literal one. Those that exist are left out, and so
    are ``without``: the DENY that a fence has set on the source is no right to copy.
    """
    have = frozenset(acls)
    skip = frozenset(without)
    wanted = set()
    for acl in have - skip:
        if covers(acl, source) and not covers(acl, target):
            wanted.add(Acl("TOPIC", target, "LITERAL", acl.principal, acl.host, acl.operation, acl.permission))
    return tuple(sorted(wanted - have))
