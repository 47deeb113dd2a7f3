"""DESCRIBE on cluster, topic and group is enough where no tail has to be read."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    kit.produce(topic, 2)
    kit.commit("g-" + topic, topic, {0: 2})
    kit.allow("search", "TOPIC", topic, "DESCRIBE")
    kit.allow("search", "GROUP", "g-" + topic, "DESCRIBE")
    return Scenario(topic, groups=("g-" + topic,), user="search")


CASE = Case(build, "drained", 0, rows={("g", 0): ("at_end", 0)}, secure=True)
