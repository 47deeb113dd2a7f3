"""The applications that a spec names: producers, consumers, readers without commits, groups that do not matter."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from topicshift.core.base import Model
from topicshift.core.spec.fields import Kind, Location, Name, Participant, Principal, Topic, problem, raise_all
from topicshift.core.spec.kinds import ConnectSettings, participant_problems
from topicshift.core.spec.locations import by_connection
from topicshift.core.spec.shadows import real_name


class Application(Model):
    """What a spec says of every application that is moved."""

    name: Participant = Field(min_length=1, description="The application's name; a route client uses it as its own.")
    kind: Kind = Field(
        default="route",
        description=(
            "Who stops and starts it: `route` (it follows the route topic), `manual` (a person), `command` (a hook of "
            "the installation), `connect` (a Kafka Connect connector), `kubernetes` (a Deployment, StatefulSet or "
            "Rollout), `http` (requests to an interface of its own), `flink` (a Flink job), `spark_streaming` (a "
            "Structured Streaming query, by a hook and its checkpoint), or a kind that an installed package offers."
        ),
    )
    settings: Annotated[dict[str, JsonValue], Field(max_length=50)] = Field(
        default={},
        description=(
            "What its kind takes: see docs/participants. Shown in journal and evidence, so no secret belongs here."
        ),
        examples=[{"hook": "checkout"}],
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        raise_all(participant_problems(self.kind, self.settings))
        return self


class Producer(Application):
    """An application that writes to the source."""

    principal: Principal | None = Field(
        default=None,
        description=(
            "Kafka principal (`User:checkout`). A route producer's principal is left out of the DENY, "
            "so that an expired lease ends its freeze."
        ),
    )


class Consumer(Application):
    """An application that reads the source."""

    group: Name = Field(
        min_length=1,
        description=(
            "The consumer group whose commits prove what was read. Of a `spark_streaming` query and of MirrorMaker 2, "
            "which have none: a name of its own, under which the offsets are kept at which it begins."
        ),
    )
    stored_offsets: Literal["none", "handled"] | None = Field(
        default=None,
        description=(
            "Whether it stores the offset of a record as a version, an id or to skip duplicates; on the target offsets "
            "start at 0 again. `none`: it does not. `handled`: it does, and its owner sees to it. Left out: the plan "
            "asks, and refuses the group of a sink connector, and everybody's where no person approves it."
        ),
    )

    after: Annotated[list[Participant], Field(max_length=100)] = Field(
        default=[],
        description=(
            "Names of consumers whose groups read the target before this one is switched. Left out: it is switched as "
            "soon as it may be, beside others. A way back has no order."
        ),
        examples=[["ledger"]],
    )

    def reader(self, topic: str) -> Reader | None:
        """Where it keeps itself what it has read of the topic; None for a group that commits, and for a shadow."""
        if self.kind == "spark_streaming":
            folders = self.settings.get("checkpoints")
            found = folders.get(topic) if isinstance(folders, dict) else None
            return Reader(name=self.group, kind="spark_checkpoint", location=found) if isinstance(found, str) else None
        if self.kind == "connect" and real_name(topic) is None:
            at = ConnectSettings.model_validate(self.settings)
            location = by_connection(at.connection, at.connector)
            return Reader(name=self.group, kind="connect", location=location) if at.mirror else None
        return None


class Reader(Model):
    """A reader of the source that commits nothing to Kafka, and where its own evidence lies."""

    name: Name = Field(min_length=1, description="The reader's name, as certificates show it.")
    kind: Literal["spark_checkpoint", "connect", "evidence_file"] = Field(
        description=(
            "`spark_checkpoint`: the checkpoint folder of a Structured Streaming query. `connect`: a connector of a "
            "Kafka Connect worker. `evidence_file`: JSON with the offsets of a Flink job or another reader, or with a "
            "person's statement (docs/drain.md)."
        ),
    )
    location: Location = Field(
        min_length=1,
        description=(
            "The folder or file (a path or an fsspec URL), or the connector: `http://worker:8083/connectors/NAME`, "
            "without credentials. It must lie below a place that the installation lists "
            "(its policy, or TOPICSHIFT_READER_LOCATIONS). Or `connection:connect_default/NAME`: a connector whose "
            "worker, and the log-in there, a connection names."
        ),
    )


class NamedGroup(Model):
    """A group, and the reason why it is named here (it goes into the audit trail)."""

    group: Name = Field(min_length=1, description="The group's id.")
    reason: str = Field(min_length=3, description="Why, for the audit trail.")


class Coupling(Model):
    """A topic that is joined with the source or written with it in one transaction, or a group that reads several."""

    topic: Topic | None = Field(default=None, description="The other topic. Either this or `group`.")
    group: Name | None = Field(
        default=None, min_length=1, description="A consumer group of this spec: whatever it reads beside the source."
    )
    reason: str = Field(min_length=3, description="What becomes of it at the switch, for the audit trail.")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.topic is None) == (self.group is None):
            raise problem(
                "an entry of `coupled` names a topic or a group, and one of them alone",
                "What is acknowledged by it would be a guess.",
                "Write `{topic: NAME, reason: ...}` or `{group: NAME, reason: ...}`.",
            )
        return self


class IgnoredGroup(NamedGroup):
    """A group that reads the source and does not matter, with the reason (it goes into the audit trail)."""
