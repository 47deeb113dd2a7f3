"""TS318: what a DENY does to producers that do not look, or cannot start."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.fence.acls import ANYBODY, Grant, grant, writers
from topicshift.core.findings import Code, Finding, Level

TS318 = Code(
    "TS318",
    (Level.WARNING, Level.INFO),
    "What a DENY on the source does that its producers may not notice: with acks=0 each dropped record is reported "
    "as written; an idempotent producer that starts under it, and may write to no other topic, ends with error 31 "
    "(CLUSTER_AUTHORIZATION_FAILED) for good. A warning where a writer will have no right to write to the target.",
    "Use acks=all; see that every producer may write to the target before the fence.",
)


@check(Scope.PARTICIPANTS, TS318, needs=("cluster", "acls"))
def run(facts: Facts) -> Iterator[Finding]:
    """Fires where the fence, or the DENY after the switch, denies somebody."""
    cluster, acls = facts.snapshot.cluster, facts.snapshot.acls
    denied = [a.principal for a in facts.deny.bindings]
    if cluster is None or acls is None or cluster.authorizer is False:
        return
    if not denied and not facts.deny_after_switch.bindings:
        return
    then = acls | set(facts.shape.acls)
    target = facts.shape.name
    for principal in writers(acls, facts.spec.source):
        granted = grant(then, target, principal)
        if principal != ANYBODY and granted in (Grant.NONE, Grant.DENIED):
            yield TS318.warning(
                principal,
                f"it may write to the source, and will not be allowed to write to {target!r}.",
                "After the switch its records are refused. An idempotent producer of it that starts while the source "
                "is denied ends with error 31 (CLUSTER_AUTHORIZATION_FAILED) and does not recover.",
                f"Give it WRITE on {target!r} before the run, if its application moves along.",
            )
    yield TS318.info(
        "fence",
        f"{', '.join(denied) or 'nobody'} is denied WRITE on the source in the freeze, and everybody after the switch.",
        "A producer with acks=0 is told that a record was written when the DENY has dropped it, and an idempotent one "
        "that starts under the DENY needs WRITE on another topic, or ends with error 31 for good.",
        "Let no producer of this topic run with acks=0; the rights on the target are made before the fence.",
    )
