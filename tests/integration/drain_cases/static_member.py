"""A static member that is away keeps its partitions; the commits tell what is read."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic(2)
    group = "g-" + topic
    kit.produce(topic, 3, 0)
    consumer = kit.consumer(group, [topic], read=3, group_instance_id="one", session_timeout_ms=45000)
    consumer.commit(asynchronous=False)
    consumer.close()  # a static member does not leave: the group stays STABLE until its session ends
    return Scenario(topic, groups=(group,))


CASE = Case(build, "drained", 0, rows={("g", 0): ("at_end", 0)}, state={"g": "STABLE"})
