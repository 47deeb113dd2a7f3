"""A declared streaming query whose checkpoint is not there is unknown."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    kit.produce(topic, 2)
    kit.commit("g-" + topic, topic, {0: 2})
    return Scenario(topic, groups=("g-" + topic,), checkpoints={"enrich": str(kit.folder / "nothing")})


CASE = Case(build, "unknown", 4, rows={("enrich", 0): ("evidence_missing", None)})
