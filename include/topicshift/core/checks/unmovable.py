"""TS325: participants that their controller could not move."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level
from topicshift.core.spec.kinds import BY_OTHER_CHECKS

TS325 = Code(
    "TS325",
    (Level.ERROR,),
    "The controller of a participant says that it could not move it: a hook is missing or says no, a right or a "
    "setting is wrong; or nobody has asked. The run would stop in the middle, with producers standing still.",
    "Do what the controller says; docs/participants says what each kind needs.",
)


@check(Scope.PARTICIPANTS, TS325)
def run(facts: Facts) -> Iterator[Finding]:
    """Repeats what each controller says to ``can_i``."""
    spec, unable = facts.spec, facts.snapshot.unable
    kinds = [(p.name, p.kind) for p in spec.producers] + [(c.name, c.kind) for c in spec.consumers]
    asked = [name for name, kind in kinds if kind not in BY_OTHER_CHECKS]
    if unable is None:
        if asked and facts.snapshot.source is not None and "unable" not in facts.snapshot.unread:
            yield TS325.error(
                "participants",
                f"nobody has asked whether {', '.join(asked)} can be moved.",
                "The run could stop in the middle, with producers standing still.",
                "Plan where the controllers of these kinds can be reached.",
                unknown=True,
            )
        return
    for line in unable:
        name, _, why = line.partition(": ")
        yield TS325.error(
            name,
            f"{why.rstrip('.')}.",
            "The run would stop where it has to be moved, with producers standing still.",
            "Mend that, then plan again. docs/participants says what this kind needs.",
        )
