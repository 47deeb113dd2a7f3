"""TS314: whether the brokers know the producers by the principals that are claimed for them."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.fence.acls import ANYBODY, Grant, grant, writers
from topicshift.core.findings import Code, Finding, Level

TS314 = Code(
    "TS314",
    (Level.ERROR, Level.WARNING),
    "No ALLOW lets the principal that is declared for a producer, or that its instances report, write to the "
    "source: the brokers know the producer by another name. An error for a producer on the route, whom the fence "
    "must never deny. A warning for one of kind `manual`, and for one that may write only because everybody may.",
    "Write the principal as the broker's authorizer log shows it (letter by letter), and give it an ALLOW WRITE of "
    "its own on the source, also where it is a super user.",
)


@check(Scope.PARTICIPANTS, TS314, needs=("cluster", "acls"))
def run(facts: Facts) -> Iterator[Finding]:
    """Looks every claimed principal up as the broker's authorizer would."""
    cluster, acls = facts.snapshot.cluster, facts.snapshot.acls
    if cluster is None or acls is None or cluster.authorizer is False:
        return
    source = facts.spec.source
    allowed = writers(acls, source)
    if not allowed:
        return
    route = {p.name: p for p in facts.route_producers}
    for i, producer in enumerate(facts.spec.producers):
        on_route = route.get(producer.name)
        claims = on_route.claimed if on_route else tuple(p for p in (producer.principal,) if p)
        for principal in claims:
            granted = grant(acls, source, principal)
            where = f"producers[{i}].principal"
            who = f"{producer.name!r} {'is declared as' if producer.principal else 'reports to be'} {principal}"
            fence = next((m for m in facts.snapshot.moved if principal in m.denied), None)
            if granted is Grant.DENIED and fence is not None:
                yield TS314.at(
                    Level.ERROR if on_route else Level.WARNING,
                    where,
                    f"{who}, and the fence of {fence.owner}, which moved the source to {fence.target!r}, denies it "
                    "WRITE on the source.",
                    "It belongs on that target, and the DENY of Topicshift keeps it there.",
                    "See to TS117 first: the DENY goes when that migration is rolled back.",
                )
            elif granted in (Grant.NONE, Grant.DENIED):
                yield _not_known(where, who, granted, principal, allowed, on_route is not None)
            elif granted is Grant.BY_EVERYBODY and on_route and len(allowed) > 1:
                others = ", ".join(p for p in allowed if p != ANYBODY)
                yield TS314.warning(
                    where,
                    f"{who}, which may write only because everybody may, while {others} may by name.",
                    "One of these may be the name by which the brokers know that producer, so the freeze denies nobody "
                    "and observation alone shows a stray writer.",
                    f"Give {principal} an ALLOW WRITE of its own.",
                )


def _not_known(where: str, who: str, granted: Grant, principal: str, allowed: list[str], on_route: bool) -> Finding:
    same = [p for p in allowed if p.casefold() == principal.casefold()] or get_close_matches(principal, allowed, n=1)
    hint = f"Is it {same[0]}? Names are compared letter by letter. " if same else f"Those who may: {_some(allowed)}. "
    return TS314.at(
        Level.ERROR if on_route else Level.WARNING,
        where,
        f"{who}, and "
        + ("an ACL denies it WRITE on the source." if granted is Grant.DENIED else "no ALLOW WRITE covers it."),
        f"{_guess(granted)}, and the fence would deny that one: its producers would stand still beyond the end of "
        "their lease."
        if on_route
        else f"{_guess(granted)}, and the DENY of the freeze does not hold it.",
        f"{hint}Write the principal as the broker's authorizer log shows it, or give it an ALLOW WRITE of its own.",
    )


def _guess(granted: Grant) -> str:
    if granted is Grant.DENIED:
        return "If it writes all the same, the brokers know the application by another name"
    return "So the brokers know the application by another name"


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
