"""TS502: rights that this client will need later."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.fence.acls import covers
from topicshift.core.findings import Code, Finding, Level

ON_SOURCE = frozenset({"DESCRIBE", "READ", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"})
ON_CLUSTER = frozenset({"DESCRIBE", "ALTER", "CREATE"})
"""ALTER makes and removes the DENY; CREATE makes the target (a CREATE on the topic's name does as well)."""


TS502 = Code(
    "TS502",
    (Level.ERROR,),
    "This client lacks rights that the migration needs later: on the source, or on the cluster.",
    "Give its principal the operations named; docs/least-privilege.md lists them all.",
)


@check(Scope.RIGHTS, TS502, needs=("cluster",))
def run(facts: Facts) -> Iterator[Finding]:
    """Compares the operations that the broker says are allowed with those needed. Says nothing where it is not told."""
    snapshot = facts.snapshot
    cluster, source = snapshot.cluster, snapshot.source
    if cluster is None or cluster.authorizer is False:
        return
    for subject, have, need in (
        ("cluster", cluster.authorized, ON_CLUSTER),
        (f"topic {facts.spec.source}", source.authorized if source else None, ON_SOURCE),
    ):
        if have is None or "ALL" in have:
            continue
        missing = sorted(need - have - ({"CREATE"} if subject == "cluster" and _may_create_by_name(facts) else set()))
        if missing:
            yield TS502.error(
                subject,
                f"this client may not {', '.join(missing)}.",
                "The run would stop half-way, with the producers waiting.",
                f"Allow {', '.join(missing)} on the {subject} for its principal.",
            )


def _may_create_by_name(facts: Facts) -> bool:
    """Whether an ACL allows somebody to create the target by its name; whose right it is cannot be told from here."""
    return any(
        a.permission == "ALLOW" and a.operation in ("CREATE", "ALL") and covers(a, "TOPIC", facts.shape.name)
        for a in facts.snapshot.acls or ()
    )
