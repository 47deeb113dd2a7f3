"""The topic was deleted and made again under its name: the fence speaks of another topic."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    kit.produce(topic, 3)
    fence, old = kit.ends(topic), kit.topic_id(topic)
    kit.delete_topic(topic)
    kit.topic(name=topic)
    kit.produce(topic, 3)
    kit.commit("g-" + topic, topic, {0: 3})
    return Scenario(topic, groups=("g-" + topic,), fence=fence, fence_topic_id=old)


CASE = Case(build, "unknown", 4, rows={("g", 0): ("topic_remade", None)}, topic_reasons=("topic_remade",))
