"""The spec: one file, one migration. Strict; unknown keys are refused with a suggestion."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Literal

from pydantic import Field

from topicshift.core.base import Model
from topicshift.core.duration import Duration


class Cutover(StrEnum):
    """The order of the cut-over."""

    DRAIN_FIRST = "drain_first"
    PRODUCERS_FIRST = "producers_first"


class Approval(StrEnum):
    """Whether a person must answer."""

    REQUIRED = "required"
    AUTO = "auto"


class Sizing(Model):
    """Wanted rates in records per second: the count becomes max(T/Cp, T/Pp) with headroom (FIELD: sizing)."""

    throughput: float = Field(gt=0)
    per_consumer: float = Field(gt=0)
    per_partition: float | None = Field(default=None, gt=0)
    headroom: float = Field(default=0.25, ge=0, le=5)
    multiple_of: int | None = Field(default=None, ge=1)


class Window(Model):
    """When a scheduled migration may start, and for how long."""

    cron: str
    timezone: str = "UTC"
    duration: Duration = timedelta(hours=2)


class Approvals(Model):
    """Who must say yes, per act."""

    plan: Approval = Approval.REQUIRED
    cutover: Approval = Approval.REQUIRED
    retire: Approval = Approval.REQUIRED


class Producer(Model):
    """An application that writes to the source."""

    name: str = Field(min_length=1)
    kind: str = "route"
    principal: str | None = None
    """Kafka principal (``User:checkout``). A route producer's principal is left out of the DENY, so that an expired lease ends its freeze."""


class Consumer(Model):
    """An application that reads the source."""

    name: str = Field(min_length=1)
    kind: str = "route"
    group: str = Field(min_length=1)


class IgnoredGroup(Model):
    """A group that reads the source and does not matter, with the reason (it goes into the audit trail)."""

    group: str = Field(min_length=1)
    reason: str = Field(min_length=3)


class Ordering(Model):
    """How the order of a key can be checked from the records themselves."""

    sequence_header: str | None = None


class Retire(Model):
    """When the source may go."""

    after: Duration = timedelta(days=7)
    scream_test: Duration = timedelta(hours=1)


class Spec(Model):
    """One migration: see ``docs/spec.md``, which is generated from this model."""

    apiVersion: Literal["topicshift/v1"] = "topicshift/v1"  # noqa: N815
    source: str
    target: str | None = None
    partitions: int | Sizing
    kafka_conn_id: str = "kafka_default"
    cutover: Cutover = Cutover.DRAIN_FIRST
    freeze_budget: Duration = timedelta(seconds=120)
    window: Window | None = None
    approvals: Approvals = Approvals()
    producers: list[Producer] = Field(min_length=1)
    consumers: list[Consumer] = Field(min_length=1)
    ignore_groups: list[IgnoredGroup] = []
    ordering: Ordering = Ordering()
    history: Literal["none"] | None = None
    replication_factor: int | None = Field(default=None, ge=1)
    retire: Retire = Retire()
