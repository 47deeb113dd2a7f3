"""A statement from before the fence says nothing about what came until then."""

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
        statement="done",
        by="on-call",
        taken_at=(at - timedelta(minutes=5)).isoformat(),
    )
    return Scenario(topic, groups=("g-" + topic,), fence=kit.ends(topic), fence_at=at, evidence=(word,))


CASE = Case(build, "unknown", 4, rows={("batch", 0): ("evidence_outdated", None)})
