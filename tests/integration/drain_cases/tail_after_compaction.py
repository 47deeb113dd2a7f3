"""Between the commit and the end compaction and an abort left nothing: drained, with a lag for ever."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.compacted()
    kit.produce(topic, 1, key="a")
    kit.tombstone(topic, "b")
    kit.tombstone(topic, "b")
    kit.roll(topic, aborted=True)
    kit.cleaned(topic, up_to=3, left=1, nudge=True)
    kit.commit("g-" + topic, topic, {0: 1})
    return Scenario(topic, groups=("g-" + topic,), fence=kit.ends(topic))


CASE = Case(build, "drained", 0, rows={("g", 0): ("nothing_readable", 0)})
