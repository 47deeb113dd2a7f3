"""An end below the fence means that the log was truncated: nothing is sure any more."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    kit.produce(topic, 3)
    kit.commit("g-" + topic, topic, {0: 3})
    return Scenario(topic, groups=("g-" + topic,), fence={0: 5})


CASE = Case(build, "unknown", 4, rows={("g", 0): ("end_below_fence", None)})
