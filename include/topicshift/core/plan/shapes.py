"""The parts of a plan: the two topics, ACLs and actions, as ``plan.json`` holds them."""

from __future__ import annotations

from pydantic import Field

from topicshift.core.base import Model
from topicshift.core.kafka.cluster import Acl


class AclBinding(Model):
    """One ACL, as :class:`topicshift.core.kafka.cluster.Acl`."""

    resource_type: str
    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str

    @classmethod
    def of(cls, acl: Acl) -> AclBinding:
        """From the plain value."""
        return cls(**{f: getattr(acl, f) for f in cls.model_fields})

    def to_acl(self) -> Acl:
        """Back to the plain value."""
        return Acl(**self.model_dump())

    def __str__(self) -> str:
        host = "" if self.host == "*" else f" from {self.host}"
        return f"{self.permission} {self.principal} {self.operation}{host}"


class SourceFacts(Model):
    """The source as it was described. ``partitions`` is its count."""

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    configs: dict[str, str]
    """What was set on the topic itself."""


class TargetShape(Model):
    """The target as ``create_target`` makes it. ``exists`` is true when an empty topic of that shape is used."""

    name: str
    partitions: int
    replication_factor: int
    configs: dict[str, str]
    acls: list[AclBinding]
    notes: list[str] = Field(default=[])
    """What of the source is not copied, and why."""
    exists: bool = False


class Action(Model):
    """One thing that the migration will do. ``step`` is the task group; ``text`` is for a person."""

    step: str
    text: str
