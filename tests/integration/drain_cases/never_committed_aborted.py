"""Never committed, and nothing but aborted records: a reader would find nothing."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic(2)
    kit.produce(topic, 1, 0)
    kit.transaction(topic, 3, partition=1, end="abort")
    kit.commit("g-" + topic, topic, {0: 1})
    return Scenario(topic, groups=("g-" + topic,), fence=kit.ends(topic, 2))


CASE = Case(build, "drained", 0, rows={("g", 1): ("nothing_readable", 0)})
