"""One record behind aborted ones is left, however large the lag looks."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    kit.transaction(topic, 20, end="abort")
    kit.produce(topic, 1)
    kit.transaction(topic, 5, end="abort")
    kit.commit("g-" + topic, topic, {0: 0})
    return Scenario(topic, groups=("g-" + topic,))


CASE = Case(build, "not_drained", 3, rows={("g", 0): ("unread", 1)})
