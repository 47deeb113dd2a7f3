"""Never committed, and all records gone: whether they were read cannot be told, so a person decides."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic(2)
    kit.produce(topic, 1, 0)
    kit.produce(topic, 3, 1)
    kit.commit("g-" + topic, topic, {0: 1})
    kit.delete_records(topic, 1, 3)
    return Scenario(topic, groups=("g-" + topic,))


CASE = Case(build, "not_drained", 3, rows={("g", 0): ("at_end", 0), ("g", 1): ("never_committed_expired", 0)})
