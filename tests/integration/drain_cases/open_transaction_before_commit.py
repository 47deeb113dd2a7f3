"""A group that reads uncommitted stands behind an open transaction: its end is not the end."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    kit.produce(topic, 3)
    kit.transaction(topic, 2, end="open")
    kit.commit("g-" + topic, topic, kit.ends(topic))
    return Scenario(topic, groups=("g-" + topic,))


CASE = Case(build, "not_drained", 3, rows={("g", 0): ("open_transaction", 0)})
