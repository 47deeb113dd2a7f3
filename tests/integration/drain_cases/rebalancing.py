"""A group in the middle of a rebalance: its commits still count."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    from confluent_kafka import Consumer
    from tests.integration.drain_cases.kit import wait_for

    topic = kit.topic(2)
    group = "g-" + topic
    kit.produce(topic, 3, 0)
    first = kit.consumer(group, [topic], read=3)
    first.commit(asynchronous=False)
    # The first member does not poll, so it does not join again; the group waits for it.
    second = Consumer({**kit.config, "group.id": group, "auto.offset.reset": "earliest"})
    kit.at_exit(second.close)
    second.subscribe([topic])
    wait_for("a rebalance", lambda: second.poll(0.05) is None and kit.state(group).startswith("PREPARING"))
    return Scenario(topic, groups=(group,))


CASE = Case(build, "drained", 0, rows={("g", 0): ("at_end", 0)}, state={"g": "PREPARING_REBALANCE"})
