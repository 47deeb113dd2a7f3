"""Compaction left holes: what is left is counted by reading, not by subtraction."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.compacted()
    for _ in range(9):
        kit.produce(topic, 1, key="a")
    kit.produce(topic, 1, key="b")
    kit.roll(topic)
    kit.cleaned(topic, up_to=10, left=2)
    kit.commit("g-" + topic, topic, {0: 0})
    return Scenario(topic, groups=("g-" + topic,))


# a@8 and b@9 are left of ten, then the record that rolled the segment.
CASE = Case(build, "not_drained", 3, rows={("g", 0): ("unread", 3)})
