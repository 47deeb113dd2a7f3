"""A group that committed the end of every partition has drained the topic."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic(2)
    kit.produce(topic, 3, 0)
    kit.produce(topic, 2, 1)
    kit.commit("g-" + topic, topic, {0: 3, 1: 2})
    return Scenario(topic, groups=("g-" + topic,))


CASE = Case(build, "drained", 0, rows={("g", 0): ("at_end", 0), ("g", 1): ("at_end", 0)})
