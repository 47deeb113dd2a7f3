"""Records lost unread, and more left: acceptance of the loss does not cover what is left."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    kit.produce(topic, 6)
    kit.commit("g-" + topic, topic, {0: 2})
    kit.delete_records(topic, 0, 4)
    return Scenario(topic, groups=("g-" + topic,), accept_lost=("g-" + topic,))


CASE = Case(build, "not_drained", 3, rows={("g", 0): ("lost_and_unread", 2)})
