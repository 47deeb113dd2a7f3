"""A connector that keeps its offsets elsewhere: its own offsets are judged like commits."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    from topicshift.core.drain.evidence import ReaderEvidence, connect_offsets

    topic = kit.topic(2)
    kit.produce(topic, 3, 0)
    kit.produce(topic, 2, 1)
    answer = {
        "offsets": [
            {"partition": {"cluster": "a", "topic": topic, "partition": 0}, "offset": {"offset": 2}},
            {"partition": {"cluster": "a", "topic": topic, "partition": 1}, "offset": {"offset": 0}},
        ]
    }
    mirror = ReaderEvidence(
        reader="mirror",
        kind="connect",
        topic=topic,
        topic_id=kit.topic_id(topic),
        offsets=connect_offsets(answer, topic),
    )
    return Scenario(topic, evidence=(mirror,))


CASE = Case(build, "not_drained", 3, rows={("mirror", 0): ("at_end", 0), ("mirror", 1): ("unread", 1)})
