"""TS307: who may write to the source, against who is declared."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.fence.acls import ANYBODY, concerning, doubtful, exempt_of, writers
from topicshift.core.findings import Code, Finding, Level

TS307 = Code(
    "TS307",
    (Level.WARNING,),
    "The writers cannot be enumerated (everybody may write, or neither the spec nor a running instance tells a "
    "producer's principal), or a principal that no producer names may write to the source.",
    "Name the principal of each producer; take the right to write from those that do not need it.",
)


@check(Scope.PARTICIPANTS, TS307, needs=("cluster", "acls"))
def run(facts: Facts) -> Iterator[Finding]:
    """Compares ALLOW WRITE on the source with the principals of the declared producers."""
    cluster, acls = facts.snapshot.cluster, facts.snapshot.acls
    if cluster is None or acls is None or cluster.authorizer is False:
        return
    source = facts.spec.source
    allowed = set(writers(acls, source))
    nameless = {p.name for p in facts.route_producers if not p.claimed}
    if not concerning(acls, source):
        yield TS307.warning(
            "source",
            "no ACL covers the source, so who may write to it cannot be listed.",
            "The fence sets no DENY on such a topic (a first ACL could lock its consumers out); observation alone "
            "shows a stray writer.",
            "Make sure that every writer is declared under `producers`.",
        )
        return
    if ANYBODY in allowed:
        yield TS307.warning(
            "source",
            "an ACL lets everybody (User:*) write to the source.",
            "The writers cannot be enumerated; an undeclared one shows only when the source grows after the fence.",
            "Replace it by one ALLOW for each producer's principal.",
        )
    if nameless:
        yield TS307.warning(
            ", ".join(f"producers[{i}]" for i, p in enumerate(facts.spec.producers) if p.name in nameless),
            "no principal is named, and no running instance reports one.",
            "A DENY could hit such a producer and outlive its lease, so the fence denies nobody and observation alone "
            "shows a stray writer.",
            "Add `principal: User:...` as the broker's authorizer log shows it.",
        )
    yield from _strangers(facts, allowed)


def _strangers(facts: Facts, allowed: set[str]) -> Iterator[Finding]:
    """Writers of whom nobody says that they are a producer of this topic."""
    acls, source = facts.snapshot.acls or frozenset(), facts.spec.source
    ours = exempt_of(facts.route_producers) | {p.principal for p in facts.spec.producers if p.principal} | {ANYBODY}
    denied = {a.principal for a in facts.deny.bindings}
    for stranger in sorted(allowed - ours - set(doubtful(acls, source, facts.route_producers))):
        now = denied & {stranger, ANYBODY}
        yield TS307.warning(
            stranger,
            "it may write to the source, and no producer names it.",
            "An application of which nobody thought would be cut off by the fence, in the middle of its work."
            if now
            else "The freeze does not deny it, so it can keep the fence from being proven; the switch cuts it off.",
            "Declare its application under `producers`, or take the right from it.",
        )
