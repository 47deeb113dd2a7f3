"""Which DENY bindings belong to a fence, from the ACLs of the cluster alone.

A DENY beats every ALLOW, so one binding a principal is enough. What it must never do is to stop somebody for ever
who goes on by himself when the orchestrator is dead: a producer that follows the route does so when its lease runs
out, and is therefore never denied, under whatever name the broker knows it. END_U that stays still is the judge for
everybody whom no DENY can hold. Once every producer has acknowledged the target, one DENY for everybody takes over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from topicshift.core.kafka.cluster import Acl

ANYBODY = "User:*"
"""Kafka's authorizer takes it for every principal, of whatever type."""

_OPAQUE = re.compile(r"\d+|(sa|u|pool)-[a-z0-9]{4,}|[A-Z0-9]{16}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
"""Names that services give out: numbers, ids of service accounts, API keys, UUIDs. One account may have several."""


class Grant(StrEnum):
    """How the broker lets a principal write to a topic."""

    BY_NAME = "by_name"
    BY_EVERYBODY = "by_everybody"
    DENIED = "denied"
    NONE = "none"


@dataclass(frozen=True)
class RouteProducer:
    """A producer on the route: the principal that the spec declares, and those that its instances report."""

    name: str
    declared: str | None
    reported: tuple[str, ...] = ()

    @property
    def claimed(self) -> tuple[str, ...]:
        """The principals that must be the broker's own: the declared one, else the reported ones. Empty: unknown."""
        return (self.declared,) if self.declared else tuple(sorted(set(self.reported)))


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
    return sorted(_covering(acls, topic))


def _covering(acls: Iterable[Acl], topic: str) -> list[Acl]:
    return [a for a in acls if covers(a, "TOPIC", topic)]


def writers(acls: Iterable[Acl], topic: str) -> list[str]:
    """The principals that some binding (literal, prefixed, ``*``) allows to write to the topic, sorted."""
    return sorted(
        {a.principal for a in _covering(acls, topic) if a.permission == "ALLOW" and a.operation in ("WRITE", "ALL")}
    )


def grant(acls: Iterable[Acl], topic: str, principal: str) -> Grant:
    """How the broker answers when this principal writes to the topic: names are compared letter by letter.

    A binding for certain hosts counts as if it were for all: where a producer runs cannot be told from here.
    """
    found = [a for a in _covering(acls, topic) if a.operation in ("WRITE", "ALL")]
    if any(a.permission == "DENY" and a.principal in (principal, ANYBODY) and a.host == "*" for a in found):
        return Grant.DENIED
    allowed = {a.principal for a in found if a.permission == "ALLOW"}
    if principal in allowed:
        return Grant.BY_NAME
    return Grant.BY_EVERYBODY if ANYBODY in allowed else Grant.NONE


def unsure(acls: Iterable[Acl], topic: str, producers: Iterable[RouteProducer]) -> list[str]:
    """The producers on the route whose principal is not sure.

    Not sure is a principal that nobody tells, and one that no ALLOW names: the broker may know the producer by
    another name (an API key, a token, another spelling), and a DENY of that one would outlive an expired lease.
    """
    acls = frozenset(acls)
    return [
        each.name
        for each in producers
        if not each.claimed or any(grant(acls, topic, p) is not Grant.BY_NAME for p in each.claimed)
    ]


def exempt_of(producers: Iterable[RouteProducer]) -> frozenset[str]:
    """The principals that no DENY may hit: all that are declared for producers on the route, or reported by them."""
    return frozenset(p for each in producers for p in (each.declared, *each.reported) if p)


def doubtful(acls: Iterable[Acl], topic: str, producers: Sequence[RouteProducer]) -> dict[str, str]:
    """Writers that may be another name of a producer on the route, each with why (words that follow ``it``)."""
    exempt, claimed = exempt_of(producers), {p for each in producers for p in each.claimed}
    if not claimed:
        return {}
    return {
        p: why
        for p in writers(acls, topic)
        if p not in exempt and p != ANYBODY and (why := _why_doubtful(p, claimed)) is not None
    }


def _why_doubtful(principal: str, known: set[str]) -> str | None:
    kind, _, name = principal.partition(":")
    if kind != "User":
        return f"is a {kind}, and which applications act under it cannot be seen"
    same = sorted(e for e in known if e.casefold() == principal.casefold())
    if same:
        return f"differs from {same[0]} by upper and lower case alone"
    if _OPAQUE.fullmatch(name):
        return "is an id and no name, and may belong to the account of a producer on the route"
    ids = sorted(e for e in known if _OPAQUE.fullmatch(e.partition(":")[2]))
    return f"may be the account to which {ids[0]} belongs" if ids else None


def deny_write(topic: str, principal: str) -> Acl:
    """The binding that keeps one principal from writing to the topic. Reading and describing stay as they are."""
    return Acl("TOPIC", topic, "LITERAL", principal, "*", "WRITE", "DENY")


DROPPED = (
    "Under a DENY a producer with acks=0 is told that each record was written, and every one is dropped; an idempotent "
    "producer that starts under it and may write to no other topic ends with error 31 for good."
)
"""What a DENY does that its producers may not notice."""


def deny_bindings(
    acls: Iterable[Acl],
    source: str,
    producers: Sequence[RouteProducer],
    approved: Iterable[Acl] | None = None,
) -> DenyPlan:
    """The DENY WRITE bindings of the freeze of ``source``, without those that are there already.

    ``producers`` are those that follow the route: they are never denied, nor is a writer that may be one of them by
    another name; where the principal of one is not sure, nobody is. ``approved``: the bindings that a person has
    accepted; no other is given.

    A topic that no binding covers gets none either: with ``allow.everyone.if.no.acl.found`` the first binding
    would take the right to read from everybody else, and the drain with it.
    """
    acls = frozenset(acls)
    exempt = sorted(exempt_of(producers))
    if not _covering(acls, source):
        return DenyPlan((), (_uncovered(source, "ACL"),))
    if doubts := unsure(acls, source, producers):
        return DenyPlan(
            (),
            (
                f"The principal under which the brokers know {', '.join(doubts)} is not sure. A DENY that hit a "
                "producer on the route would outlive an expired lease, so no DENY is set and END_U that stays still is "
                "the judge. Give `principal` to these producers in the spec, each with an ALLOW WRITE of its own, to "
                "have the others denied.",
            ),
        )
    notes: list[str] = []
    allowed = writers(acls, source)
    unclear = doubtful(acls, source, producers)
    denied = [p for p in allowed if p != ANYBODY and p not in exempt and p not in unclear]
    if ANYBODY in allowed:
        if exempt:
            notes.append(
                f"An ACL lets {ANYBODY} write to {source}, and a DENY for {ANYBODY} would also hold "
                f"{', '.join(exempt)}, who must go on when a lease runs out. No such DENY is set; END_U that stays "
                "still is the judge for writers without an ACL of their own."
            )
        else:
            denied = [ANYBODY]
    notes += [
        f"{principal} is not denied: it {why}. END_U that stays still is the judge for it."
        for principal, why in unclear.items()
    ]
    left_out = [p for p in allowed if p in exempt]
    if left_out:
        notes.append(
            f"{', '.join(left_out)} may write and follow the route, so they are stopped by it and not by a DENY: when "
            "a lease runs out they must be able to go on."
        )
    notes.append("Super users of the cluster cannot be denied; END_U that stays still is the judge for them.")
    wanted = [a for a in (deny_write(source, p) for p in denied) if a not in acls]
    late = set(wanted) - set(wanted if approved is None else approved)
    notes += [
        f"{a.principal} may write since the plan was approved, and is not denied: nobody has accepted that."
        for a in sorted(late)
    ]
    given = tuple(a for a in wanted if a not in late)
    return DenyPlan(given, (*notes, *([DROPPED] if given else [])))


def wide_deny(acls: Iterable[Acl], source: str) -> DenyPlan:
    """The one DENY WRITE for everybody, for the time after the switch: from when every live producer has
    acknowledged the target until the source is retired or the migration goes back.

    Only where an ALLOW covers the topic: on a topic without ACLs it would be the first one, and take the right to
    read from its consumers where ``allow.everyone.if.no.acl.found`` is set. Empty where it is there already.
    """
    acls = frozenset(acls)
    if not any(a.permission == "ALLOW" for a in concerning(acls, source)):
        return DenyPlan((), (_uncovered(source, "ALLOW"),))
    wanted = deny_write(source, ANYBODY)
    notes = ("Super users of the cluster cannot be denied; a write of theirs shows in the ends of the source.", DROPPED)
    return DenyPlan(() if wanted in acls else (wanted,), notes)


def _uncovered(source: str, what: str) -> str:
    return (
        f"No {what} covers topic {source} (or the brokers run without an authorizer), so who may write cannot be "
        "listed and no DENY is set: the first ACL on the topic could take the right to read from its consumers. "
        "END_U that stays still is the only judge of the fence."
    )


def added_by(row: Mapping[str, Any]) -> list[Acl]:
    """The bindings that a journal row says were added."""
    return [Acl(**a) for a in row.get("acls_added", ())]
