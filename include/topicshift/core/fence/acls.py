"""Which DENY bindings belong to a fence, from the ACLs of the cluster alone.

A DENY beats every ALLOW, so one binding a principal is enough. What it must never do is to stop somebody for ever
who goes on by himself when the orchestrator is dead: a producer that follows the route does so when its lease runs
out, and is therefore never denied. END_U that stays still is the judge for everybody whom no DENY can hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topicshift.core.kafka.cluster import Acl

ANYBODY = "User:*"


@dataclass(frozen=True)
class DenyPlan:
    """The bindings to add, and what a person should know about them (whom they cannot hold, and why)."""

    bindings: tuple[Acl, ...]
    notes: tuple[str, ...]


def covers(acl: Acl, resource_type: str, name: str) -> bool:
    """Whether the binding's pattern covers the resource (literal, ``*``, or prefix)."""
    if acl.resource_type != resource_type:
        return False
    if acl.pattern == "LITERAL":
        return acl.name in (name, "*")
    return acl.pattern == "PREFIXED" and name.startswith(acl.name)


def concerning(acls: Iterable[Acl], topic: str) -> list[Acl]:
    """The bindings that cover the topic, sorted."""
    return sorted(a for a in acls if covers(a, "TOPIC", topic))


def writers(acls: Iterable[Acl], topic: str) -> list[str]:
    """The principals that some binding (literal, prefixed, ``*``) allows to write to the topic, sorted."""
    return sorted(
        {
            a.principal
            for a in acls
            if covers(a, "TOPIC", topic) and a.permission == "ALLOW" and a.operation in ("WRITE", "ALL")
        }
    )


def deny_write(topic: str, principal: str) -> Acl:
    """The binding that keeps one principal from writing to the topic. Reading and describing stay as they are."""
    return Acl("TOPIC", topic, "LITERAL", principal, "*", "WRITE", "DENY")


def deny_bindings(
    acls: Iterable[Acl],
    source: str,
    exempt_principals: Iterable[str],
    unnamed_route_producers: Sequence[str] = (),
) -> DenyPlan:
    """The DENY WRITE bindings for the fence of ``source``, without those that are there already.

    ``exempt_principals`` are those of producers that follow the route. ``unnamed_route_producers`` are such
    producers whose principal is not known: then anybody might be one, and nobody is denied.

    A topic that no binding covers gets none either: with ``allow.everyone.if.no.acl.found`` the first binding
    would take the right to read from everybody else, and the drain with it.
    """
    acls = frozenset(acls)
    exempt = sorted(set(exempt_principals))
    covering = concerning(acls, source)
    notes: list[str] = []
    if not covering:
        notes.append(
            f"No ACL covers topic {source} (or the brokers run without an authorizer), so who may write cannot be "
            "listed and no DENY is set: the first ACL on the topic could take the right to read from its consumers. "
            "END_U that stays still is the only judge of the fence."
        )
        return DenyPlan((), tuple(notes))
    if unnamed_route_producers:
        notes.append(
            f"The principal of {', '.join(unnamed_route_producers)} is not known. A DENY that hit a producer on the "
            "route would outlive an expired lease, so no DENY is set and END_U that stays still is the judge. Give "
            "`principal` to these producers in the spec to have the others denied."
        )
        return DenyPlan((), tuple(notes))
    allowed = writers(acls, source)
    denied = [p for p in allowed if p != ANYBODY and p not in exempt]
    if ANYBODY in allowed:
        if exempt:
            notes.append(
                f"An ACL lets {ANYBODY} write to {source}, and a DENY for {ANYBODY} would also hold "
                f"{', '.join(exempt)}, who must go on when a lease runs out. No such DENY is set; END_U that stays "
                "still is the judge for writers without an ACL of their own."
            )
        else:
            denied = [ANYBODY]
    left_out = [p for p in allowed if p in exempt]
    if left_out:
        notes.append(
            f"{', '.join(left_out)} may write and follow the route, so they are stopped by it and not by a DENY: when "
            "a lease runs out they must be able to go on."
        )
    notes.append("Super users of the cluster cannot be denied; END_U that stays still is the judge for them.")
    wanted = [deny_write(source, p) for p in denied]
    return DenyPlan(tuple(a for a in wanted if a not in acls), tuple(notes))


def wide_deny(acls: Iterable[Acl], source: str) -> DenyPlan:
    """The one DENY WRITE for everybody, from when every producer is on the target.

    Only where an ALLOW covers the topic: its first ACL would take the right to read from its consumers.
    """
    acls = frozenset(acls)
    if not any(a.permission == "ALLOW" for a in concerning(acls, source)):
        note = (
            f"No ALLOW covers topic {source}, so no DENY is set; END_U that stays still is the only judge of the fence."
        )
        return DenyPlan((), (note,))
    wanted = deny_write(source, ANYBODY)
    return DenyPlan(() if wanted in acls else (wanted,), ())


def added_by(row: Mapping[str, Any]) -> list[Acl]:
    """The bindings that a journal row says were added."""
    return [Acl(**a) for a in row.get("acls_added", ())]
