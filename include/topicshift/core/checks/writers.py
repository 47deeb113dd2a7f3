"""TS307: who may write to the source, against who is declared."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import CodeDoc, Facts, Scope, check, find
from topicshift.core.findings import Finding, Level
from topicshift.core.target import covers


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
    allowed = {
        a.principal for a in acls if a.permission == "ALLOW" and a.operation in ("WRITE", "ALL") and covers(a, source)
    }
    nameless = [f"producers[{i}]" for i, p in enumerate(facts.spec.producers) if p.principal is None]
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
            "The fence denies writes to every principal that no route producer names: such a producer stays denied "
            "while the fence stands, also when its lease has run out.",
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
