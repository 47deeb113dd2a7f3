"""TS307: who may write to the source, against who is declared."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.fence.acls import concerning, writers
from topicshift.core.findings import CodeDoc, Finding, Level, find


@check(
    Scope.PARTICIPANTS,
    CodeDoc(
        "TS307",
        (Level.WARNING,),
        "The writers cannot be enumerated (everybody may write, or a declared producer names no principal), or a "
        "principal that no producer names may write to the source.",
        "Name the principal of each producer; take the right to write from those that do not need it.",
    ),
    needs=("cluster", "acls"),
)
def run(facts: Facts) -> Iterator[Finding]:
    """Compares ALLOW WRITE on the source with the declared principals."""
    cluster, acls = facts.snapshot.cluster, facts.snapshot.acls
    if cluster is None or acls is None or cluster.authorizer is False:
        return
    source = facts.spec.source
    allowed = set(writers(acls, source))
    nameless = [
        f"producers[{i}]" for i, p in enumerate(facts.spec.producers) if p.kind == "route" and p.principal is None
    ]
    if not concerning(acls, source):
        yield find(
            "TS307",
            Level.WARNING,
            "source",
            "no ACL covers the source, so who may write to it cannot be listed.",
            "The fence sets no DENY on such a topic (a first ACL could lock its consumers out); observation alone "
            "shows a stray writer.",
            "Make sure that every writer is declared under `producers`.",
        )
        return
    if "User:*" in allowed:
        yield find(
            "TS307",
            Level.WARNING,
            "source",
            "an ACL lets everybody (User:*) write to the source.",
            "The writers cannot be enumerated; an undeclared one shows only when the source grows after the fence.",
            "Replace it by one ALLOW for each producer's principal.",
        )
    if nameless:
        yield find(
            "TS307",
            Level.WARNING,
            ", ".join(nameless),
            "no principal is named.",
            "A DENY could hit such a producer and outlive its lease, so the fence denies nobody and observation alone "
            "shows a stray writer.",
            "Add `principal: User:...` as the broker's authorizer log shows it.",
        )
    declared = {p.principal for p in facts.spec.producers if p.principal}
    for stranger in sorted(allowed - declared - {"User:*"}):
        if nameless:
            break
        yield find(
            "TS307",
            Level.WARNING,
            stranger,
            "it may write to the source, and no producer names it.",
            "An application of which nobody thought would be cut off by the fence, in the middle of its work.",
            "Declare its application under `producers`, or take the right from it.",
        )
