"""A KIP-848 member that subscribes by a pattern reads every topic that fits."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    kit.produce(topic, 1)
    kit.commit("g-" + topic, topic, {0: 1})
    consumer = kit.consumer("live-" + topic, [f"^{topic[:-1]}.*"], read=1, group_protocol="consumer")
    consumer.commit(asynchronous=False)
    return Scenario(topic, spec_groups=("g-" + topic,))


CASE = Case(build, "not_drained", 3, rows={("live", 0): ("at_end", 0)}, topic_reasons=("undeclared_group:live",))
