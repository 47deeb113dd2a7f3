"""The rights on Kafka that Topicshift itself and the applications of a demo need: no more than what they do.

The list of docs/least-privilege.md is this one; the stack runs with it, so a right that is missing shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from topicshift.core.kafka.rules import ACKS_TOPIC, ROUTES_TOPIC
from topicshift.core.spec.shadows import PREFIX as SHADOWS
from topicshift.ports import Acl

EVERY = "*"


def allow(principal: str, resource: str, name: str, *operations: str, prefixed: bool = False) -> list[Acl]:
    """ALLOW bindings for a user: resource type and operations in Kafka's upper-case names."""
    pattern = "PREFIXED" if prefixed else "LITERAL"
    user = principal if ":" in principal else f"User:{principal}"
    return [Acl(resource, name, pattern, user, "*", operation, "ALLOW") for operation in operations]


def orchestrator_rights(user: str) -> list[Acl]:
    """What the user needs with whom Airflow's tasks log in.

    On every topic and every group, since undeclared readers can only be seen so.
    """
    rights = allow(user, "CLUSTER", "kafka-cluster", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER", "IDEMPOTENT_WRITE")
    migrate = ("DESCRIBE", "DESCRIBE_CONFIGS", "READ", "CREATE", "DELETE", "ALTER_CONFIGS")
    rights += allow(user, "TOPIC", EVERY, *migrate)
    for topic in (ROUTES_TOPIC, ACKS_TOPIC):
        rights += allow(user, "TOPIC", topic, "WRITE", "CREATE", "READ", "DESCRIBE", "DESCRIBE_CONFIGS")
    rights += allow(user, "GROUP", EVERY, "DESCRIBE", "READ")
    rights += allow(user, "TRANSACTIONAL_ID", "topicshift-route-", "WRITE", prefixed=True)
    rights += [
        *allow(user, "TOPIC", SHADOWS, *migrate, "WRITE", prefixed=True),
        *allow(user, "GROUP", SHADOWS, "READ", "DELETE", prefixed=True),
        *allow(user, "TRANSACTIONAL_ID", SHADOWS, "WRITE", prefixed=True),
    ]
    return rights + allow(user, "TRANSACTIONAL_ID", EVERY, "DESCRIBE")


def producer_rights(user: str, topic: str) -> list[Acl]:
    """What an application needs that produces to ``topic`` (and its successors) and follows the route."""
    return [
        *allow(user, "TOPIC", topic, "WRITE", "DESCRIBE", prefixed=True),
        *allow(user, "CLUSTER", "kafka-cluster", "IDEMPOTENT_WRITE"),
        *_route_rights(user),
    ]


def consumer_rights(user: str, topic: str, group: str) -> list[Acl]:
    """What an application needs that consumes ``topic`` (and its successors) as ``group`` and follows the route."""
    return [
        *allow(user, "TOPIC", topic, "READ", "DESCRIBE", prefixed=True),
        *allow(user, "GROUP", group, "READ", "DESCRIBE"),
        *_route_rights(user),
    ]


def _route_rights(user: str) -> list[Acl]:
    return [
        *allow(user, "TOPIC", ROUTES_TOPIC, "READ", "DESCRIBE"),
        *allow(user, "TOPIC", ACKS_TOPIC, "WRITE", "DESCRIBE"),
    ]


def grant(config: Mapping[str, str], rights: Iterable[Acl]) -> None:
    """Create these ACLs, as the superuser of this librdkafka config; every broker knows them then.

    Raises:
        TopicshiftError: the broker refused one, or does not show it.
    """
    from topicshift.adapters.kafka.admin import KafkaAdmin

    with KafkaAdmin(config, 60.0) as admin:
        admin.create_acls(rights)
