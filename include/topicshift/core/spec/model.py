"""The spec: one file, one migration. Strict; unknown keys are refused with a suggestion.

Descriptions, titles and sections written here are the help texts of the trigger form (:mod:`topicshift.core.spec.form`)
and of ``docs/spec.md``. Errors of validators are those of :func:`topicshift.core.spec.fields.problem`;
:mod:`topicshift.core.spec.io` turns all of them into one :class:`~topicshift.core.errors.SpecError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from topicshift.core.base import Model
from topicshift.core.sizing.sizing import MOST, SizingInput, least
from topicshift.core.spec.answers import AnswerRule, double
from topicshift.core.spec.cutover import Cutover
from topicshift.core.spec.duration import Duration, format_duration
from topicshift.core.spec.fields import (
    ConnectionId,
    Header,
    Topic,
    did_you_mean,
    problem,
    raise_all,
)
from topicshift.core.spec.locations import connection_of
from topicshift.core.spec.participants import Consumer, Coupling, IgnoredGroup, NamedGroup, Producer, Reader
from topicshift.core.spec.shadows import rehearsal_problems

MIN_FREEZE, MAX_FREEZE = timedelta(seconds=5), timedelta(days=1)

_TOPICS, _SIZE, _CUTOVER, _PEOPLE, _PROOF, _LATER = (
    "Topics",
    "Partitions",
    "Cut-over",
    "Participants",
    "Proof",
    "Afterwards",
)


class Approval(StrEnum):
    """Whether a person must answer."""

    REQUIRED = "required"
    AUTO = "auto"


class Mode(StrEnum):
    """Whether topics and applications are moved, or a shadow of them."""

    MIGRATE = "migrate"
    REHEARSE = "rehearse"


class Sizing(Model):
    """Wanted rates in records per second: the count becomes max(T/Cp, T/Pp) with headroom, rounded up."""

    throughput: float = Field(
        gt=0,
        title="Wanted records/s",
        description="T: records per second the topic must carry at its peak.",
        examples=[100000],
    )
    per_consumer: float = Field(
        gt=0,
        title="One consumer, records/s",
        description="Cp: records per second that one consumer instance can work through.",
        examples=[5000],
    )
    per_partition: float | None = Field(
        default=None,
        gt=0,
        title="One producer into one partition, records/s",
        description="Pp: records per second that one producer can write to one partition. Left out: not the limit.",
        examples=[20000],
    )
    headroom: float = Field(
        default=0.25,
        ge=0,
        le=5,
        title="Headroom",
        description="Share added on top: 0.2 to 0.5 where peaks are known; 1 or 2 (a factor of 2 or 3) where not.",
    )
    multiple_of: int | None = Field(
        default=None,
        ge=1,
        title="Multiple of",
        description="Round up to a multiple of this number, for instance the parallelism of a Flink source.",
    )

    @model_validator(mode="after")
    def _check(self) -> Sizing:
        try:
            least(SizingInput(**self.model_dump()))
        except ValueError as error:
            raise problem(
                f"{error}",
                "A plan could not name a count.",
                "Write both rates in records per second, and see which of them is wrong.",
            ) from None
        return self


class Window(Model):
    """When a scheduled migration starts, and when a freeze may begin."""

    cron: str = Field(
        description="Five cron fields: when a run starts, and the window opens.", examples=["0 2 * * SUN"]
    )
    timezone: str = Field(
        default="UTC", description="IANA time zone in which the cron is read.", examples=["Europe/Berlin"]
    )
    duration: Duration = Field(
        default=timedelta(hours=2),
        description=(
            "How long the window stays open. A freeze begins only where its whole budget ends before that; a run that "
            "misses the window waits for the next one."
        ),
        examples=["2h"],
        json_schema_extra={"default": "2h"},
    )

    @model_validator(mode="after")
    def _check(self) -> Window:
        raise_all(self._problems())
        return self

    def _problems(self) -> Iterator[PydanticCustomError]:
        from topicshift.core.spec.windows import cron_problem, timezone_problem

        wrong = cron_problem(self.cron)
        if wrong:
            yield problem(
                f"{self.cron!r} is no usable cron: {wrong}",
                "The scheduled run would never start, or start at another time.",
                "Write five fields: minute, hour, day of month, month, day of week, such as `0 2 * * SUN`.",
                ("cron",),
            )
        zone = timezone_problem(self.timezone)
        if zone:
            yield problem(
                f"{self.timezone!r} is no known time zone",
                "The window would open at another hour than meant.",
                zone,
                ("timezone",),
            )
        if self.duration <= timedelta(0):
            yield problem(
                "the window lasts no time",
                "No fence could ever be set in it.",
                "Write for instance `2h`.",
                ("duration",),
            )


class Approvals(Model):
    """Who must say yes, per act."""

    plan: Approval = Field(
        default=Approval.REQUIRED,
        title="Approve the plan",
        description="A person accepts exactly this plan (its hash) before anything is changed.",
    )
    freeze: Approval = Field(
        default=Approval.REQUIRED,
        title="Approve the freeze",
        description=(
            "A person says go before anybody is stopped, knowing the predicted freeze, the budget, and who is denied."
        ),
    )
    certificate: Approval = Field(
        default=Approval.AUTO,
        title="Approve the certificate",
        description=(
            "A person also accepts the drain certificate (or the fence, in `producers_first`) while producers stand "
            "still. The freeze lasts until the answer, and the budget ends it without one."
        ),
    )
    retire: Approval = Field(
        default=Approval.REQUIRED,
        title="Approve the deletion",
        description="A person says go before the source is deleted.",
    )


class Ordering(Model):
    """How the order of a key can be checked from the records themselves."""

    sequence_header: Header | None = Field(
        default=None,
        title="Sequence header",
        description=(
            "Header that holds a number growing by one with each record of a key. With it the order proof also finds "
            "gaps and swaps within a key; without it, it compares what the two topics hold."
        ),
        examples=["seq"],
    )


class Retire(Model):
    """When the source may go."""

    after: Duration = Field(
        default=timedelta(days=7),
        title="Keep the source for",
        description="Time since the switch before the source may be deleted; its retention must have passed too.",
        examples=["7d"],
        json_schema_extra={"default": "7d"},
    )
    scream_test: Duration = Field(
        default=timedelta(hours=1),
        title="Scream test",
        description="Reads and writes are denied for this long before the deletion, so that a forgotten client shows.",
        examples=["1h"],
        json_schema_extra={"default": "1h"},
    )


def _partitions_kind(value: Any) -> str:
    return "sizing" if isinstance(value, dict | Sizing) else "count"


Count = Annotated[int, Field(ge=1, le=MOST)]
Partitions = Annotated[
    Annotated[Count, Tag("count")] | Annotated[Sizing, Tag("sizing")], Discriminator(_partitions_kind)
]


class Spec(Model):
    """One migration: see ``docs/spec.md``, which is generated from this model."""

    apiVersion: Literal["topicshift/v1"] = Field(  # noqa: N815
        default="topicshift/v1", description="The version of this format.", json_schema_extra={"section": _TOPICS}
    )
    source: Topic = Field(
        title="Source topic",
        description="The topic to move away from. It must exist.",
        examples=["payments"],
        json_schema_extra={"section": _TOPICS},
    )
    target: Topic | None = Field(
        default=None,
        title="Target topic",
        description="The new topic. Left out: the next free `-vN` (`payments` gives `payments-v2`).",
        examples=["payments-v2"],
        json_schema_extra={"section": _TOPICS},
    )
    kafka_conn_id: ConnectionId = Field(
        default="kafka_default",
        min_length=1,
        title="Kafka connection",
        description="The Airflow connection whose extra holds the client properties.",
        json_schema_extra={"section": _TOPICS},
    )
    partitions: Partitions = Field(
        title="Partitions",
        description=(
            "Partitions of the target: a number, or a sizing block (`throughput`, `per_consumer`, ...) from which "
            "the plan works it out."
        ),
        examples=[30],
        json_schema_extra={
            "section": _SIZE,
            "form_help": "Partitions of the target. Or leave it empty, and give rates in the partitions section.",
        },
    )
    replication_factor: int | None = Field(
        default=None,
        ge=1,
        le=32767,
        title="Replication factor",
        description="Replicas of each partition of the target. Left out: as many as the source has.",
        json_schema_extra={"section": _SIZE},
    )
    broker_cores: int | None = Field(
        default=None,
        ge=1,
        title="Cores per broker",
        description=(
            "Processor cores of one broker. With it the plan refuses a count above 2 x brokers x cores; Kafka does "
            "not tell this number."
        ),
        json_schema_extra={"section": _SIZE},
    )
    mode: Mode = Field(
        default=Mode.MIGRATE,
        title="Mode",
        description=(
            "`migrate`: move the topic. `rehearse`: run every step on a shadow topic with sampled keys, and touch no "
            "topic, group or application of the migration (docs/rehearsal.md)."
        ),
        json_schema_extra={"section": _CUTOVER},
    )
    cutover: Cutover = Field(
        default=Cutover.DRAIN_FIRST,
        title="Order of the cut-over",
        description=(
            "`drain_first`: producers wait until every group has read the source to its end. `producers_first`: "
            "they go on with the target right after the fence, and each group follows once it has drained."
        ),
        json_schema_extra={"section": _CUTOVER},
    )
    freeze_budget: Duration = Field(
        default=timedelta(seconds=120),
        title="Freeze budget",
        description="The longest time in which producers may not write. At its end they go back to the source.",
        json_schema_extra={"section": _CUTOVER, "default": "120s"},
    )
    alarm_after: Duration = Field(
        default=timedelta(seconds=60),
        gt=timedelta(0),
        title="Alarm after",
        description=(
            "A group that has not come nearer to the end for so long while the run waits for it raises an alarm that "
            "says why."
        ),
        json_schema_extra={"section": _CUTOVER, "default": "60s"},
    )
    freeze_alarm_after: Duration | None = Field(
        default=None,
        title="Freeze alarm after",
        description="A freeze that lasts longer is told to people. Left out: the freeze budget.",
        examples=["30s"],
        json_schema_extra={"section": _CUTOVER},
    )
    window: Window | None = Field(
        default=None,
        description=(
            "When a freeze may begin, whoever starts the run; left out, at any time. It makes a scheduled DAG of its "
            "own for this file."
        ),
        json_schema_extra={"section": _CUTOVER, "form": False},
    )
    approvals: Approvals = Field(
        default=Approvals(),
        description="Which acts wait for a person: `required` or `auto`.",
        json_schema_extra={"section": _CUTOVER},
    )
    answers: list[AnswerRule] = Field(
        default=[],
        title="Who may answer",
        description=(
            "Who may answer which question, and which take two people. Left out: everybody whom Airflow and the "
            "installation policy let answer."
        ),
        examples=[[{"question": "freeze", "people": ["ada", "grace"], "two_people": True}]],
        json_schema_extra={"section": _CUTOVER},
    )
    producers: list[Producer] = Field(
        min_length=1,
        title="Producers",
        description="Every application that writes to the source.",
        examples=[[{"name": "checkout", "kind": "route"}]],
        json_schema_extra={"section": _PEOPLE},
    )
    consumers: list[Consumer] = Field(
        min_length=1,
        title="Consumers",
        description="Every application that reads the source, with its group. A reader that is not named blocks.",
        examples=[[{"name": "ledger", "kind": "route", "group": "ledger"}]],
        json_schema_extra={"section": _PEOPLE},
    )
    readers: list[Reader] = Field(
        default=[],
        title="Readers without commits",
        description=(
            "Readers of the source that commit nothing to Kafka, each with its own evidence. They are waited for; "
            "moving them to the target is left to their owners."
        ),
        examples=[[{"name": "enrich", "kind": "spark_checkpoint", "location": "s3://checkpoints/enrich"}]],
        json_schema_extra={"section": _PEOPLE},
    )
    ignore_groups: list[IgnoredGroup] = Field(
        default=[],
        title="Groups to ignore",
        description="Groups that have read the source and do not matter: they are neither waited for nor switched.",
        examples=[[{"group": "console-consumer-1", "reason": "a look by hand in March"}]],
        json_schema_extra={"section": _PEOPLE},
    )
    lost_records_accepted: list[NamedGroup] = Field(
        default=[],
        title="Lost records accepted",
        description=(
            "Groups whose committed offset retention or DeleteRecords has passed: records were lost unread before "
            "this migration, and somebody accepts that. Without it such a group blocks."
        ),
        examples=[[{"group": "ledger", "reason": "restored from the archive on 3 May"}]],
        json_schema_extra={"section": _PEOPLE},
    )
    coupled: list[Coupling] = Field(
        default=[],
        title="Coupled topics acknowledged",
        description=(
            "Topics that are written in one transaction with the source, or that one application may join with it by "
            "partition, and what becomes of that at the switch. Without it such a topic blocks (docs/coupling.md)."
        ),
        examples=[[{"topic": "refunds", "reason": "both are read one by one, nobody joins them"}]],
        json_schema_extra={"section": _PEOPLE},
    )
    ordering: Ordering = Field(
        default=Ordering(),
        description="How the order of a key is checked from the records themselves.",
        json_schema_extra={"section": _PROOF},
    )
    history: Literal["none"] | None = Field(
        default=None,
        title="History",
        description=(
            "Needed for a compacted source: `none` says that its history may stay behind, so that the target starts "
            "empty."
        ),
        json_schema_extra={"section": _PROOF},
    )
    retire: Retire = Field(
        default=Retire(),
        description="When the source may be deleted.",
        json_schema_extra={"section": _LATER},
    )

    @model_validator(mode="after")
    def _check(self) -> Spec:
        raise_all(self._problems())
        return self

    def _problems(self) -> Iterator[PydanticCustomError]:
        if self.target == self.source:
            yield problem(
                f"the target is the source ({self.source!r})",
                "A keyed topic is never altered in place: its keys would change partition.",
                "Name another topic, or leave `target` out for the next free -vN.",
                ("target",),
            )
        yield from rehearsal_problems(
            self.source, self.target, rehearse=self.mode is Mode.REHEARSE, windowed=self.window is not None
        )
        if self.freeze_budget < MIN_FREEZE:
            yield problem(
                f"a freeze budget of {format_duration(self.freeze_budget)} is too short",
                "Setting and proving the fence alone takes seconds; every run would go back.",
                f"Allow at least {format_duration(MIN_FREEZE)}; 120s is the default.",
                ("freeze_budget",),
            )
        if self.freeze_budget > MAX_FREEZE:
            yield problem(
                f"a freeze budget of {format_duration(self.freeze_budget)} is too long",
                "It is the lease as well: producers stand still for all of it where Airflow dies in the freeze.",
                f"Allow at most {format_duration(MAX_FREEZE)}; 120s is the default.",
                ("freeze_budget",),
            )
        if self.freeze_alarm_after is not None and self.freeze_alarm_after <= timedelta(0):
            yield problem(
                "the freeze alarm waits for no time",
                "Every freeze would be told as too long.",
                "Write for instance `30s`, or leave it out.",
                ("freeze_alarm_after",),
            )
        if self.window and self.window.duration <= self.freeze_budget:
            yield problem(
                f"the window ({format_duration(self.window.duration)}) is no longer than the freeze budget "
                f"({format_duration(self.freeze_budget)})",
                "No freeze could start and end inside it.",
                "Lengthen the window or shorten the budget.",
                ("window", "duration"),
            )
        for i, question in double(self.answers):
            yield problem(
                f"there are two rules for {question!r}",
                "Which one holds would be a guess.",
                "Write them as one.",
                ("answers", i, "question"),
            )
        yield from _unique([p.name for p in self.producers], "producers", "name", "producer")
        yield from _unique([c.name for c in self.consumers], "consumers", "name", "consumer")
        yield from _unique([c.group for c in self.consumers], "consumers", "group", "group")
        yield from _unique([g.group for g in self.ignore_groups], "ignore_groups", "group", "ignored group")
        yield from _unique([r.name for r in self.readers], "readers", "name", "reader")
        groups = {c.group for c in self.consumers}
        yield from self._named_twice()
        yield from self._order()
        for i, g in enumerate(self.ignore_groups):
            if g.group in groups:
                yield problem(
                    f"group {g.group!r} is both declared and ignored",
                    "It cannot be waited for and passed over at once.",
                    "Take it out of `consumers` or out of `ignore_groups`.",
                    ("ignore_groups", i, "group"),
                )
        yield from self._accepted_in_vain(groups)

    def _accepted_in_vain(self, groups: set[str]) -> Iterator[PydanticCustomError]:
        lost = [("lost_records_accepted", i, a.group) for i, a in enumerate(self.lost_records_accepted)]
        coupled = [("coupled", i, c.group) for i, c in enumerate(self.coupled) if c.group is not None]
        for section, i, group in [*lost, *coupled]:
            if group not in groups:
                what = "lost records are accepted" if section == "lost_records_accepted" else "a coupling is accepted"
                yield problem(
                    f"{what} for {group!r}, which no consumer declares",
                    "The acceptance would have no effect.",
                    did_you_mean(group, sorted(groups)),
                    (section, i, "group"),
                )

    def _order(self) -> Iterator[PydanticCustomError]:
        """What is wrong with the order of the groups: a name that nobody has, or a ring."""
        after = {c.name: list(c.after) for c in self.consumers}
        for i, consumer in enumerate(self.consumers):
            for name in consumer.after:
                if name not in after:
                    yield problem(
                        f"{consumer.name!r} is switched after {name!r}, which no consumer is called",
                        "It would be waited for in vain.",
                        did_you_mean(name, sorted(after)),
                        ("consumers", i, "after"),
                    )
            seen, ahead = set[str](), list(consumer.after)
            while ahead:
                name = ahead.pop()
                ahead += [] if name in seen else after.get(name, [])
                seen.add(name)
            if consumer.name in seen:
                yield problem(
                    f"{consumer.name!r} is switched after itself, by way of {', '.join(sorted(seen))}",
                    "None of them would ever be switched.",
                    "Take one `after` of this ring out.",
                    ("consumers", i, "after"),
                )

    def groups_before(self, consumer: Consumer) -> tuple[str, ...]:
        """The groups that read the target before that of this consumer is switched."""
        return tuple(c.group for c in self.consumers if c.name in consumer.after)

    def _named_twice(self) -> Iterator[PydanticCustomError]:
        for i, reader in enumerate(self.readers):
            if reader.name in {c.group for c in self.consumers if c.reader(self.source) is not None}:
                yield problem(
                    f"{reader.name!r} is both a reader and a consumer that is certified by its own offsets",
                    "A certificate would show two rows of this name.",
                    "Take it out of `readers`: its consumer's settings say the same.",
                    ("readers", i, "name"),
                )

    def readers_of(self, consumer: str = "") -> list[Reader]:
        """The readers whose own evidence a certificate is made of, beside what groups commit.

        Consumers that commit nothing to Kafka are among them, by the name of their group. ``consumer`` names one of the
        consumers: then, of the consumers, none but this one.
        """
        mine = [c for c in self.consumers if not consumer or c.name == consumer]
        own = [reader for c in mine if (reader := c.reader(self.source)) is not None]
        return [*self.readers, *own]

    def opened(self) -> list[tuple[str, str]]:
        """Every place that is opened to look for evidence: the field with the name of whom it is, and the location."""
        found = [
            (f"readers[{i}].location of {r.name}", r.location)
            for i, r in enumerate(self.readers)
            if connection_of(r.location) is None  # the installation itself says where that is
        ]
        for i, consumer in enumerate(self.consumers):
            folders = consumer.settings.get("checkpoints") if consumer.kind == "spark_streaming" else None
            for folder in folders.values() if isinstance(folders, dict) else ():
                found.append((f"consumers[{i}].settings.checkpoints of {consumer.name}", str(folder)))
        return found


def _unique(values: list[str], section: str, key: str, what: str) -> Iterator[PydanticCustomError]:
    seen: dict[str, int] = {}
    for i, value in enumerate(values):
        if value in seen:
            yield problem(
                f"{what} {value!r} is named twice ({section}[{seen[value]}] and {section}[{i}])",
                "One of the two would be waited for in vain or stopped twice.",
                "Name each once.",
                (section, i, key),
            )
        seen[value] = i
