"""Who may answer a question, in the words that a spec and the installation policy share."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from topicshift.core.base import Model
from topicshift.core.spec.fields import did_you_mean, problem

QUESTIONS = (
    "plan",
    "abort_transactions",
    "freeze",
    "stop_by_hand",
    "certificate",
    "start_by_hand",
    "stop_group",
    "strays",
    "rollback",
    "retire",
)
"""Every question that a migration may ask: the names of :class:`topicshift.core.engine.words.Ask` in small letters."""

ROLE = "role:"
"""What stands before the name of a role of the installation policy, in place of a person's name."""


def _question(value: str) -> str:
    if value not in QUESTIONS:
        raise problem(
            f"{value!r} is no question", "The rule would never be asked for.", did_you_mean(value, list(QUESTIONS))
        )
    return value


Question = Annotated[str, AfterValidator(_question), Field(json_schema_extra={"enum": list(QUESTIONS)})]
Person = Annotated[str, Field(min_length=1)]


class AnswerRule(Model):
    """Who may answer one question, and how many people it takes."""

    question: Question = Field(description="The question.")
    people: list[Person] | None = Field(
        default=None,
        min_length=1,
        description=(
            "Names of Airflow users, as Airflow's pages show them; `id:7` is a user by its id, `role:NAME` "
            "everybody of a role of the installation policy. Left out: everybody whom Airflow lets answer."
        ),
    )
    two_people: bool = Field(
        default=False,
        description=(
            "Two different people have to stand behind a yes: the one who triggered the run and the one who answers, "
            "or, in a run that nobody triggered, two who answer."
        ),
    )


def double(rules: list[AnswerRule]) -> list[tuple[int, str]]:
    """Rules for a question that has one already, each by its number."""
    names = [rule.question for rule in rules]
    return [(i, name) for i, name in enumerate(names) if name in names[:i]]
