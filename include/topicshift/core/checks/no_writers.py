"""TS316: a topic to which no ACL lets anybody write."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.fence.acls import concerning, writers
from topicshift.core.findings import Code, Finding, Level

TS316 = Code(
    "TS316",
    (Level.ERROR,),
    "ACLs cover the source, and none lets anybody write to it: its producers are super users, or write by a rule "
    "that ACLs do not show. Nobody can be denied, so whether the fence can hold is unknown.",
    "Give the principal of each producer an ALLOW WRITE of its own on the source.",
)


@check(Scope.PARTICIPANTS, TS316, needs=("cluster", "acls"))
def run(facts: Facts) -> Iterator[Finding]:
    """Fires where an authorizer is on and no ALLOW WRITE is found on a topic that other ACLs cover."""
    cluster, acls = facts.snapshot.cluster, facts.snapshot.acls
    if cluster is None or acls is None or cluster.authorizer is False:
        return
    if concerning(acls, facts.spec.source) and not writers(acls, facts.spec.source):
        yield TS316.error(
            "source",
            "ACLs cover the source, and none of them lets anybody write to it.",
            "Whoever writes is a super user or is let in by another rule: he cannot be listed, and no DENY holds him.",
            unknown=True,
        )
