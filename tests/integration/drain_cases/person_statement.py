"""A reader that commits nothing, and a person's word given after the fence."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    from datetime import timedelta

    from tests.integration.drain_cases.kit import now

    from topicshift.core.drain.evidence import ReaderEvidence

    topic = kit.topic()
    kit.produce(topic, 2)
    kit.commit("g-" + topic, topic, {0: 2})
    at = now()
    word = ReaderEvidence(
        reader="batch",
        kind="person",
        topic=topic,
        statement="the nightly load has run over everything",
        by="on-call",
        taken_at=(at + timedelta(seconds=1)).isoformat(),
    )
    return Scenario(topic, groups=("g-" + topic,), fence=kit.ends(topic), fence_at=at, evidence=(word,))


CASE = Case(build, "drained", 0, rows={("batch", 0): ("attested", None)}, state={"batch": "ATTESTED"})
