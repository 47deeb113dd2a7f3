"""Without DESCRIBE on the cluster a broker hides groups: the list is not taken as complete."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    kit.produce(topic, 2)
    kit.commit("g-" + topic, topic, {0: 2})
    kit.commit("hidden-" + topic, topic, {0: 0})
    kit.allow("search", "TOPIC", topic, "DESCRIBE", "READ")
    kit.allow("search", "GROUP", "g-" + topic, "DESCRIBE")
    return Scenario(topic, spec_groups=("g-" + topic,), user="search")


CASE = Case(build, "unknown", 4, rows={("g", 0): ("at_end", 0)}, topic_reasons=("listing_incomplete",), secure=True)
