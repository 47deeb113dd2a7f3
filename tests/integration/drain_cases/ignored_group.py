"""A group that is ignored with a reason does not block, and is named."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    kit.produce(topic, 2)
    kit.commit("g-" + topic, topic, {0: 2})
    kit.commit("other-" + topic, topic, {0: 0})
    return Scenario(topic, spec_groups=("g-" + topic,), ignored={"other-" + topic: "a look by hand in March"})


CASE = Case(build, "drained", 0, rows={("g", 0): ("at_end", 0)}, topic_reasons=("ignored_group:other",))
