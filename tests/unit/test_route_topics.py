"""The configs on which the protocol relies: each that is wrong is named, with why and what mends it."""

from __future__ import annotations

from typing import Any

import pytest

from topicshift.core.kafka.cluster import ConfigEntry, TopicInfo
from topicshift.core.route.records import ACKS_TOPIC, ROUTES_TOPIC
from topicshift.core.route.topics import CONFIGS, topic_problems


def topic(name: str, *, partitions: int = 1, replicas: int = 1, **configs: Any) -> TopicInfo:
    right = {"retention.bytes": "-1", "retention.ms": "604800000", "min.insync.replicas": "1", **CONFIGS[name]}
    right |= {"max.message.bytes": "1048588"}
    right |= {k.replace("_", "."): v for k, v in configs.items()}
    entries = {k: ConfigEntry(k, v, True) for k, v in right.items()}
    brokers = tuple(range(replicas))
    return TopicInfo(name, "id", dict.fromkeys(range(partitions), brokers), {}, {}, entries)


@pytest.mark.parametrize("name", [ROUTES_TOPIC, ACKS_TOPIC])
def test_topics_as_they_are_made_are_right(name: str) -> None:
    assert topic_problems(topic(name), 1) == []
    assert topic_problems(topic(name, replicas=3, min_insync_replicas="2"), 5) == []


@pytest.mark.parametrize(
    ("name", "wrong", "setting", "mend"),
    [
        (ROUTES_TOPIC, {"cleanup_policy": "delete"}, "cleanup.policy", "compact"),
        (ROUTES_TOPIC, {"cleanup_policy": "compact,delete"}, "cleanup.policy", "compact"),
        (ACKS_TOPIC, {"cleanup_policy": "delete"}, "cleanup.policy", "compact,delete"),
        (ACKS_TOPIC, {"message_timestamp_type": "CreateTime"}, "message.timestamp.type", "LogAppendTime"),
        (ROUTES_TOPIC, {"message_timestamp_type": "CreateTime"}, "message.timestamp.type", "LogAppendTime"),
        (ROUTES_TOPIC, {"message_timestamp_type": None}, "message.timestamp.type", "LogAppendTime"),
        (ACKS_TOPIC, {"retention_ms": "60000"}, "retention.ms", "604800000"),
        (ACKS_TOPIC, {"retention_bytes": "1024"}, "retention.bytes", "-1"),
        (ROUTES_TOPIC, {"replicas": 3, "brokers": 3}, "min.insync.replicas", "2"),
        (ROUTES_TOPIC, {"min_insync_replicas": "2"}, "min.insync.replicas", "1"),
        (ACKS_TOPIC, {"replicas": 3, "brokers": 3, "min_insync_replicas": "4"}, "min.insync.replicas", "2"),
        (ROUTES_TOPIC, {"max_message_bytes": "200"}, "max.message.bytes", "1048588"),
        (ACKS_TOPIC, {"max_message_bytes": "100"}, "max.message.bytes", "1048588"),
        (ACKS_TOPIC, {"max_message_bytes": None}, "max.message.bytes", "1048588"),
        (ROUTES_TOPIC, {"partitions": 6}, "partitions", None),
        (ROUTES_TOPIC, {"brokers": 3}, "replication factor", None),
    ],
)
def test_what_is_wrong_is_named_with_what_mends_it(
    name: str, wrong: dict[str, Any], setting: str, mend: str | None
) -> None:
    brokers = wrong.pop("brokers", 1)
    (problem,) = topic_problems(topic(name, **wrong), brokers)
    assert problem.setting == setting
    assert problem.mend == (None if mend is None else (setting, mend))
    assert name in problem.text and setting in problem.text
    assert ("topicshift route init" in problem.text) is (mend is not None)


def test_acknowledgements_may_be_kept_for_ever() -> None:
    assert topic_problems(topic(ACKS_TOPIC, cleanup_policy="compact", retention_ms="1"), 1) == []
    assert topic_problems(topic(ACKS_TOPIC, cleanup_policy="delete, compact", retention_ms="-1"), 1) == []
