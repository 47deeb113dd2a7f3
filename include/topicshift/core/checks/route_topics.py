"""TS324: the topics of the route, as they are configured."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level
from topicshift.core.route.topics import topic_problems

TS324 = Code(
    "TS324",
    (Level.ERROR, Level.WARNING),
    "A topic of the route is not configured as the protocol needs it: its records could expire, or be stamped by "
    "clients' clocks. A warning where the run sets the config itself before it begins; an error where no config "
    "mends it.",
    "Run `topicshift route init`, or make the topic anew as docs/route-protocol.md says.",
)


@check(Scope.PARTICIPANTS, TS324, needs=("route_topics", "cluster"))
def run(facts: Facts) -> Iterator[Finding]:
    """Looks at those that exist; missing ones are made by the run."""
    brokers = len(facts.snapshot.cluster.brokers) if facts.snapshot.cluster else 0
    for topic in facts.snapshot.route_topics or ():
        for problem in topic_problems(topic, brokers):
            yield TS324.at(
                Level.WARNING if problem.mend else Level.ERROR,
                problem.topic,
                f"it has {problem.setting} {problem.found}, not {problem.wanted}.",
                f"The route is relied on in the freeze, and {problem.why}.",
                f"Run `topicshift route init`, or let the run set {problem.setting}={problem.mend[1]} first."
                if problem.mend
                else "Make the topic anew without losing a route, as docs/route-protocol.md says.",
            )
