"""TS119: brokers that would not make the target."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level

TS119 = Code(
    "TS119",
    (Level.ERROR,),
    "The brokers, asked without making anything (`validate_only`), refuse the planned target: a policy or a limit "
    "of theirs forbids its name, its count, its replicas or one of its configs.",
    "Do what the brokers' reason says: change the spec, or the config on the source from which it is copied.",
)


@check(Scope.TOPIC, TS119, needs=("create",))
def run(facts: Facts) -> Iterator[Finding]:
    """Repeats the brokers' own reason, with the config's name."""
    dry = facts.snapshot.create
    shape = facts.shape
    for refused in dry.refused if dry else ():
        what = (
            f"{refused.config}={refused.value}"
            if refused.config
            else f"{shape.name!r} with {shape.partitions} partitions and {shape.replication_factor} replicas"
        )
        yield TS119.error(
            f"target {refused.config}" if refused.config else "target",
            f"the brokers would refuse {what}: {refused.reason.rstrip('.')}.",
            "The target could not be made after the plan was approved.",
            f"Change {refused.config} on the source, from which it is copied, or have the rule of the brokers changed."
            if refused.config
            else "Change `target`, `partitions` or `replication_factor`, or have the rule of the brokers changed.",
        )
