"""TS320: subjects of a Schema Registry that carry the topic's name."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level

STORE = "_schemas"
"""The topic in which registries keep their schemas."""


TS320 = Code(
    "TS320",
    (Level.WARNING, Level.INFO),
    "Schema Registry subjects were not checked: by default they carry the topic's name, and the target has none. A "
    "warning where the cluster holds a registry's topic.",
    "Register the schemas under `<target>-key` and `<target>-value` with the same compatibility before the run, "
    "or let the producers name subjects by record.",
)


@check(Scope.PARTICIPANTS, TS320, needs=("topics",))
def run(facts: Facts) -> Iterator[Finding]:
    """Says that it was not checked; weighs more where a registry shows."""
    source, target = facts.spec.source, facts.shape.name
    used = STORE in (facts.snapshot.topics or ())
    yield TS320.at(
        Level.WARNING if used else Level.INFO,
        "schemas",
        f"the subjects {source}-key and {source}-value of a Schema Registry were not checked"
        + (f" (the topic {STORE} shows that there is one)." if used else "."),
        f"Subjects carry the topic's name by default. Without {target}-value a producer that may not register schemas "
        "cannot write to the target, inside the freeze; one that may starts it without the compatibility rule of the "
        "old one.",
        f"If the records have schemas: register them under {target}-key and {target}-value, with the same "
        "compatibility, before the run.",
    )
