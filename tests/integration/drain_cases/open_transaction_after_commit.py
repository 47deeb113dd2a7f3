"""An open transaction behind the commit: a reader cannot see what is in it yet."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    kit.produce(topic, 3)
    kit.transaction(topic, 2, end="open")
    kit.commit("g-" + topic, topic, {0: 3})
    return Scenario(topic, groups=("g-" + topic,))


CASE = Case(build, "not_drained", 3, rows={("g", 0): ("open_transaction", 0)})
