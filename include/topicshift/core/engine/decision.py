"""What the engine decides, and the rules that it decides by.

A rule is a small function from a view to a decision, or None where it has nothing to say. Rules stand in one order;
the first that speaks decides. ``when`` looks at the journal alone and says whether the rule is in play; ``needs`` are
the facts that it may look at then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from topicshift.core.engine.view import Record, View, key_of
from topicshift.core.engine.words import OF_A_MOMENT, Act, Ask, Fact, Step


class Kind(StrEnum):
    """What a decision asks of the advancer."""

    ACT = "act"
    ASK = "ask"
    WAIT = "wait"
    STOP = "stop"
    """Nothing further is done before a person has looked; ``error`` names the type of the error to raise."""
    OVER = "over"
    """There is nothing left to do."""


@dataclass(frozen=True)
class Decision:
    """One decision, with its reason in words; ``do`` says what a person should do.

    ``subject`` is a consumer group where the act concerns one.

    ``rule`` is the rule that decided, ``step`` the step that it belongs to (None: at any step). ``until`` is the moment
    (ISO 8601) at which a wait ends by itself, if known.
    """

    kind: Kind
    why: str
    act: Act | None = None
    ask: Ask | None = None
    subject: str = ""
    error: str = ""
    do: str = ""
    until: str = ""
    rule: str = ""
    step: Step | None = None


Decide = Callable[[View], Decision | None]


@dataclass(frozen=True)
class Rule:
    """One rule of a table; ``name`` is unique in it. ``step`` is None for a rule that holds at any step."""

    name: str
    step: Step | None
    when: Callable[[Record], bool]
    needs: frozenset[Fact]
    decide: Decide


class Table:
    """Rules in their order. Rules add themselves with :meth:`rule`."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []

    def rule(
        self, when: Callable[[Record], bool], *needs: Fact, step: Step | None = None
    ) -> Callable[[Decide], Decide]:
        """Decorator: add a function as the next rule, under its own name."""

        def add(decide: Decide) -> Decide:
            self.rules.append(Rule(decide.__name__, step, when, frozenset(needs), decide))
            return decide

        return add


def act(what: Act, why: str, subject: str = "") -> Decision:
    """Do this now."""
    return Decision(Kind.ACT, why, act=what, subject=subject)


def wait(why: str, until: str = "") -> Decision:
    """Nothing can be done now; look again."""
    return Decision(Kind.WAIT, why, until=until)


def stop(error: str, why: str, do: str = "") -> Decision:
    """Go no further; ``error`` is the name of a type in :mod:`topicshift.core.errors`, ``do`` is the advice."""
    return Decision(Kind.STOP, why, error=error, do=do)


def over(why: str) -> Decision:
    """The end."""
    return Decision(Kind.OVER, why)


RETELL_S = 5.0
"""Seconds after which an act whose effect does not show is performed once more by the same advancer."""

RETELL_MOST_S = 600.0
"""The longest such time: it doubles with each repetition, so that a wait of hours does not fill the audit trail."""


def due(view: View, what: Act, subject: str = "") -> bool:
    """Whether an act whose effect does not show is to be performed (once more)."""
    age, times = view.age(what.value, subject), view.times.get(key_of(what.value, subject), 1)
    return age is None or age >= min(RETELL_S * 2 ** max(0, times - 2), max(RETELL_S, RETELL_MOST_S))


def retell(view: View, what: Act, why: str, waits: str, subject: str = "") -> Decision:
    """Perform an act whose effect does not show yet; wait while it was performed a moment ago."""
    return act(what, why, subject) if due(view, what, subject) else wait(waits)


def _ask_again(error: str, why: str) -> Decision:
    return stop(error, why, "Clear the task, or run topicshift advance, to be asked again once it can be done.")


def answered(
    view: View, question: Ask, why: str, subject: str = "", *, refused: Callable[[str, str], Decision] = stop
) -> Decision | None:
    """None once a person said yes (or the spec wants no person). ``refused`` decides after a no, or silence."""
    answer = view.answer(question, subject)
    if question in OF_A_MOMENT:
        refused = _ask_again
    if answer.said == "yes":
        return None
    if answer.said == "no":
        return refused("Refused", f"{answer.by or 'a person'} said no: {why}")
    if answer.said == "silence":
        return refused("DrainTimedOut", f"nobody answered in time, and silence is no yes: {why}")
    return Decision(Kind.ASK, why, ask=question, subject=subject)
