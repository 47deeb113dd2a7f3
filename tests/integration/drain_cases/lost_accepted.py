"""The same loss, accepted for this group by name."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    kit.produce(topic, 6)
    kit.commit("g-" + topic, topic, {0: 2})
    kit.delete_records(topic, 0, 6)
    return Scenario(topic, groups=("g-" + topic,), accept_lost=("g-" + topic,))


CASE = Case(build, "drained", 0, rows={("g", 0): ("lost_accepted", 0)})
