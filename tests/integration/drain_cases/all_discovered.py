"""Without --group every group that reads the topic is certified, and no other."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic, elsewhere = kit.topic(), kit.topic()
    kit.produce(topic, 2)
    kit.commit("a-" + topic, topic, {0: 2})
    kit.commit("b-" + topic, topic, {0: 1})
    kit.commit("c-" + topic, elsewhere, {0: 0})
    return Scenario(topic)


CASE = Case(build, "not_drained", 3, rows={("a", 0): ("at_end", 0), ("b", 0): ("unread", 1)})
