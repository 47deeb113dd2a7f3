"""DeleteRecords passed the commit: nothing left to read, and records lost unread. Both block."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    kit.produce(topic, 6)
    kit.commit("g-" + topic, topic, {0: 2})
    kit.delete_records(topic, 0, 6)
    return Scenario(topic, groups=("g-" + topic,))


CASE = Case(build, "not_drained", 3, rows={("g", 0): ("lost_unread", 0)})
