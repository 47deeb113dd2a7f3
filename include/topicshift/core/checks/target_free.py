"""TS103: a target that exists already."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level

TS103 = Code(
    "TS103",
    (Level.ERROR, Level.WARNING),
    "The target exists already: with another shape or with records in it (error), or empty and of the planned "
    "shape (warning: it is used as it is, and a way back does not delete it).",
    "Choose another `target`, leave it out for the next free -vN, or delete the topic if nobody needs it.",
)


@check(Scope.TOPIC, TS103, needs=("target",))
def run(facts: Facts) -> Iterator[Finding]:
    """Fires unless the existing target is the one that this migration made before."""
    target, shape, snapshot = facts.snapshot.target, facts.shape, facts.snapshot
    if target is None or (snapshot.own_target_id is not None and target.topic_id == snapshot.own_target_id):
        return
    differs = []
    if shape.partitions is not None and target.partitions != shape.partitions:
        differs.append(f"{target.partitions} partitions instead of {shape.partitions}")
    if shape.replication_factor is not None and target.replication_factor != shape.replication_factor:
        differs.append(f"{target.replication_factor} replicas instead of {shape.replication_factor}")
    wanted = dict(shape.configs)
    have = {n: e.value for n, e in target.configs.items() if e.set_here}
    for name in sorted(set(wanted) | set(have)):
        if wanted.get(name) != have.get(name):
            differs.append(f"{name}={have.get(name, 'not set')} instead of {wanted.get(name, 'not set')}")
    holds = [p for p, o in (snapshot.target_offsets or {}).items() if (o.end or 0) > 0]
    do = "Choose another `target`, leave it out for the next free -vN, or delete that topic if nobody needs it."
    if differs:
        yield TS103.error(
            "target",
            f"{target.name!r} exists with another shape: {'; '.join(differs)}.",
            "It is not this plan's topic, and a topic is never reshaped.",
            do,
        )
    elif holds:
        yield TS103.error(
            "target",
            f"{target.name!r} exists and has held records (partition {holds[0]} and {len(holds) - 1} others).",
            "Records of another origin would mix with those of the migration, and the proof could not tell them apart.",
            do,
        )
    else:
        yield TS103.warning(
            "target",
            f"{target.name!r} exists already, empty and of the planned shape.",
            "It is used as it is. A way back does not delete it, because this migration did not make it.",
            "Make sure that nobody else is about to use it.",
        )
