"""Whose answer counts: a person that Airflow has identified, named people, and two different people for one yes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from topicshift.core.policy.who import Who


@dataclass(frozen=True)
class Person:
    """A user as Airflow has identified it."""

    name: str
    id: str = ""

    def among(self, people: frozenset[str]) -> bool:
        """Whether the person is named there, by name or as ``id:`` and the id."""
        # A user may choose a name, not an id: a name that looks like an id is none.
        return (self.name in people and not self.name.startswith("id:")) or f"id:{self.id}" in people

    def values(self) -> dict[str, str]:
        """Plain values."""
        return asdict(self)


def person_of(values: Any) -> Person | None:
    """The inverse of :meth:`Person.values`; None for anything else."""
    return Person(str(values["name"]), str(values.get("id", ""))) if isinstance(values, Mapping) else None


def who_text(who: Who) -> str:
    """Who may answer, in a sentence for the text of a question; empty where Airflow's rights alone decide."""
    named = f"Only {', '.join(sorted(who.people)) or 'nobody'} may answer." if who.people is not None else ""
    two = (
        "It takes two different people: whoever triggered the run is one of them, and in a run that nobody triggered "
        "two have to say yes."
        if who.two
        else ""
    )
    return " ".join(text for text in (named, two) if text)


def objection(who: Who, person: Person | None, said: str, row: Mapping[str, Any]) -> str:
    """Why this person's answer counts for nothing; empty where it counts. ``row``: the question's journal row."""
    if who == Who():
        return ""
    if person is None:
        return "who answers must be known to Airflow, and an answer from a terminal is of nobody that it knows"
    if who.people is not None and not person.among(who.people):
        return f"{person.name} is not among those who may answer ({', '.join(sorted(who.people)) or 'nobody'})"
    if said != "yes" or not who.two:
        return ""
    first = person_of(row.get("first"))
    if first is not None and same(first, person):
        return f"{first.name} was the first of the two who have to say yes; another one has to be the second"
    if first is None and row.get("triggered_by") == person.name:
        return f"{person.name} triggered the run; under the two-person rule another one has to answer"
    return ""


def same(one: Person, other: Person) -> bool:
    """Whether two answers are of one person."""
    return one.name == other.name or bool(one.id and one.id == other.id)


def second_wanted(who: Who, row: Mapping[str, Any]) -> bool:
    """Whether a yes that counts is only the first of two."""
    return who.two and person_of(row.get("first")) is None and not row.get("triggered_by")


def still_counts(who: Who, row: Mapping[str, Any]) -> bool:
    """Whether a yes on record counts under what the policy says now."""
    person, first = person_of(row.get("user")), person_of(row.get("first"))
    if objection(who, person, "yes", row):
        return False
    if not who.two:
        return True
    if first is None:
        return bool(row.get("triggered_by"))
    return who.people is None or first.among(who.people)
