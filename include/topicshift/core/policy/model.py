"""The installation policy as a file: strict, every key optional. What it leaves out is not restricted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from topicshift.core.base import Model
from topicshift.core.spec.answers import ROLE, AnswerRule, Person, double
from topicshift.core.spec.duration import Duration
from topicshift.core.spec.fields import ConnectionId, did_you_mean, problem, raise_all
from topicshift.core.spec.model import Approval, Approvals


def _approvals(value: dict[str, Approval]) -> dict[str, Approval]:
    known = list(Approvals.model_fields)
    raise_all(
        problem(f"there is no approval {name!r}", "It would ask for nothing.", did_you_mean(name, known), (name,))
        for name in value
        if name not in known
    )
    return value


class LeastRetire(Model):
    """The shortest times before a source may be deleted."""

    after: Duration = Field(default=timedelta(0), description="Least `retire.after` of a spec.", examples=["7d"])
    scream_test: Duration = Field(
        default=timedelta(0), description="Least `retire.scream_test` of a spec.", examples=["1h"]
    )


class Installation(Model):
    """What no spec, form or command line of this installation may go below. See ``docs/policy.md``."""

    apiVersion: Literal["topicshift-policy/v1"] = Field(  # noqa: N815
        description="The version of this format: `topicshift-policy/v1`."
    )
    connections: list[Person] | None = Field(
        default=None,
        description="Patterns of the Kafka connections that a spec may name (`kafka_conn_id`). Left out: any.",
        examples=[["kafka_default", "kafka_eu_*"]],
    )
    topics: list[Person] | None = Field(
        default=None,
        description=(
            "Patterns of the topics that may be a source or a target (`*` any characters, `?` one). Left out: any."
        ),
        examples=[["payments*", "orders*"]],
    )
    approvals: Annotated[dict[str, Approval], AfterValidator(_approvals)] = Field(
        default={},
        description="Approvals that no spec may set to `auto`.",
        examples=[{"plan": "required", "retire": "required"}],
    )
    retire: LeastRetire = Field(default=LeastRetire(), description="The shortest times before a source may be deleted.")
    reader_locations: list[Person] | None = Field(
        default=None,
        description=(
            "Folders (absolute) and URLs below which the evidence of a spec's `readers` may lie. Where given, it "
            "stands in place of TOPICSHIFT_READER_LOCATIONS, and holds for `topicshift advance` too."
        ),
        examples=[["s3://checkpoints/", "/mnt/flink-evidence"]],
    )
    connect_workers: list[ConnectionId] = Field(
        default=[],
        description=(
            "Connections of Connect workers on which every plan looks for connectors of MirrorMaker 2 that copy its "
            "topics, beside those that the spec names."
        ),
        examples=[["connect_dr"]],
    )
    roles: dict[str, Annotated[list[Person], Field(min_length=1)]] = Field(
        default={},
        description="Roles of this policy, each with the names of Airflow users; named as `role:NAME` in `answers`.",
        examples=[{"oncall": ["ada", "grace"]}],
    )
    answers: list[AnswerRule] = Field(
        default=[],
        description=(
            "Who may answer which question, and which take two people. A question that is named here is always asked: "
            "no spec may set its approval to `auto`."
        ),
        examples=[[{"question": "retire", "people": ["role:oncall"], "two_people": True}]],
    )

    @model_validator(mode="after")
    def _check(self) -> Installation:
        raise_all(self._problems())
        return self

    def _problems(self) -> Iterator[PydanticCustomError]:
        for i, name in double(self.answers):
            yield problem(
                f"there are two rules for {name!r}",
                "Which one holds would be a guess.",
                "Write them as one.",
                ("answers", i, "question"),
            )
        for i, rule in enumerate(self.answers):
            for j, name in enumerate(rule.people or ()):
                role = name.removeprefix(ROLE)
                if name.startswith(ROLE) and role not in self.roles:
                    known = list(self.roles)
                    yield problem(
                        f"there is no role {role!r}",
                        "Nobody could answer that question.",
                        did_you_mean(role, known) if known else "Add it to `roles`.",
                        ("answers", i, "people", j),
                    )
            if rule.people is not None and rule.two_people and len(self.members(rule.people)) < 2:
                yield problem(
                    f"one person alone may answer {rule.question!r}, and it takes two",
                    "Nobody could be the second one where nobody triggered the run.",
                    "Name another one, or take `two_people` out.",
                    ("answers", i, "people"),
                )

    def members(self, people: list[str]) -> frozenset[str]:
        """Names without roles: every role is replaced by its people."""
        found: set[str] = set()
        for name in people:
            found |= set(self.roles.get(name.removeprefix(ROLE), ())) if name.startswith(ROLE) else {name}
        return frozenset(found)

    def rule(self, question: str) -> AnswerRule | None:
        """The rule for a question, None where there is none."""
        return next((r for r in self.answers if r.question == question), None)

    @property
    def floor(self) -> frozenset[str]:
        """Approvals that are required: those that are listed, and those of questions whose people are named."""
        listed = {name for name, wanted in self.approvals.items() if wanted is Approval.REQUIRED}
        return frozenset(listed | {r.question for r in self.answers if r.question in Approvals.model_fields})

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that differ as soon as the policy says something else."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:12]
