"""TS315: writers that may be another name of a producer on the route."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.fence.acls import doubtful
from topicshift.core.findings import Code, Finding, Level

TS315 = Code(
    "TS315",
    (Level.WARNING,),
    "A principal that may write to the source may be another name of a producer on the route: it is no `User:`, "
    "an id of a service, or differs by upper and lower case alone. The freeze does not deny it.",
    "Declare the application that uses it under `producers`, or take the right to write from it.",
)


@check(Scope.PARTICIPANTS, TS315, needs=("cluster", "acls"))
def run(facts: Facts) -> Iterator[Finding]:
    """Names each of them."""
    cluster, acls = facts.snapshot.cluster, facts.snapshot.acls
    if cluster is None or acls is None or cluster.authorizer is False:
        return
    for principal, why in doubtful(acls, facts.spec.source, facts.route_producers).items():
        yield TS315.warning(
            principal,
            f"it may write to the source, and {why}.",
            "A DENY of it could hold a producer on the route beyond the end of its lease, so the freeze does not deny "
            "it: if another application writes under it, the fence cannot be proven. After the switch it is cut off.",
            "Find out who writes under it; take the right from it where nobody does.",
        )
