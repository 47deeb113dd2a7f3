"""What controllers share whose applications report to nobody: nothing to arm, and groups that Kafka alone judges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any, Final, TypeVar

from topicshift.adapters.controllers.groups import GroupWatch
from topicshift.core.errors import (
    AccessDenied,
    NotFound,
    OwnershipLost,
    Refused,
    SpecError,
    TopicshiftError,
    Transient,
    Unreadable,
)
from topicshift.ports import Clock, ClusterAdmin, ControlContext, Follower, Participant, ParticipantState

_T = TypeVar("_T")
_W = TypeVar("_W")

TRIES: Final = 4
"""So often whoever moves an application is asked before the plan says that there is no answer."""

PAUSE_S: Final = 1.0
"""Seconds between two of them."""

MEND: Final = (
    "Nothing else of it is changed until that is put right. Then `topicshift advance` goes on. `topicshift "
    "resume-on-source` ends a freeze, and `topicshift rollback` goes back after the switch."
)
"""What is said where a right is missing, or something is gone: nobody retries that."""

SAYS_NO: Final[tuple[type[TopicshiftError], ...]] = (SpecError, NotFound, AccessDenied)
"""Errors that are an answer: nobody has to ask again."""


class PlainController:
    """The part of a :class:`~topicshift.ports.Controller` that needs no word of the applications themselves."""

    seeded = True

    def __init__(self, admin: ClusterAdmin) -> None:
        self._groups = GroupWatch(admin)

    def side_by_side(self, who: Sequence[_W], ask: Callable[[_W], _T]) -> list[_T]:
        """The answer for each (a participant, a connection), in their order, in parallel.

        The first error is raised once all were asked.
        """
        if len(who) < 2:
            return [ask(p) for p in who]
        with ThreadPoolExecutor(max_workers=min(len(who), 16)) as pool:
            asked = [pool.submit(ask, p) for p in who]
            wait(asked)
            return [one.result() for one in asked]

    def each(
        self, ctx: ControlContext, who: Sequence[Participant], act: Callable[[ControlContext, Participant], None]
    ) -> None:
        """Act on each in parallel; one that cannot be moved now keeps no other from it.

        Raises ``Transient`` with what was said of all that could not be moved now; any other error comes first, with
        the participant's name and the way back.
        """
        heard: list[tuple[str, Mapping[str, Any]]] = []
        beside = replace(ctx, say=lambda name, data: heard.append((name, data)))

        def tried(p: Participant) -> str:
            try:
                act(beside, p)
            except Transient as error:
                return f"{p.name}: {error}"
            except OwnershipLost:
                raise
            except (AccessDenied, NotFound, Refused) as error:
                raise type(error)(f"{p.name}: {error} {MEND}") from None
            return ""

        try:
            late = [line for line in self.side_by_side(who, tried) if line]
        finally:  # the journal is written by the caller's own thread
            for name, data in heard:
                ctx.say(name, data)
        if late:
            raise Transient("; ".join(late))

    def lines_of(self, who: Sequence[Participant], ask: Callable[[Participant], list[str]]) -> list[str]:
        """What is said of each participant, asked in parallel; each line begins with its name."""
        found = self.side_by_side(who, ask)
        return [f"{p.name}: {line}" for p, lines in zip(who, found, strict=True) for line in lines]

    def beside_groups(
        self,
        ctx: ControlContext,
        participants: Sequence[Participant],
        look: Callable[[Participant, ParticipantState | None], ParticipantState],
    ) -> list[ParticipantState]:
        """One state for each participant, in parallel; ``look`` is given a consumer's group as Kafka shows it."""
        groups = self._groups.observe(ctx, [p for p in participants if p.role == "consumer"])
        of = {g.participant: g for g in groups}
        return self.side_by_side(participants, lambda p: look(p, of.get(p)))

    def check(self, ctx: ControlContext) -> list[str]:
        """Nothing that all participants share."""
        return []

    def prepare(self, ctx: ControlContext) -> list[str]:
        """Nothing to make."""
        return []

    def followers(self, ctx: ControlContext) -> list[Follower]:
        """Nobody reports."""
        return []

    def arm(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Nothing: these participants need no arming."""

    def disarm(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing to let go: the admin client belongs to the caller."""


def patiently(
    name: str, ask: Callable[[], list[str]], clock: Clock, says_no: tuple[type[TopicshiftError], ...] = SAYS_NO
) -> list[str]:
    """What ``ask`` answers, or the error that is an answer, as a line; asked again for a few seconds without one.

    Raises ``Unreadable``, with the participant's name, where there is none in the end.
    """
    for left in reversed(range(TRIES)):
        try:
            return ask()
        except says_no as error:
            return [str(error)]
        except Unreadable as error:
            if not left or not isinstance(error, Transient):
                raise Unreadable(f"{name}: {error}") from None
            clock.sleep(PAUSE_S)
    raise AssertionError("the last try answers or raises")
