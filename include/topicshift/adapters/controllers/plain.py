"""What controllers share whose applications report to nobody: nothing to arm, and groups that Kafka alone judges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from topicshift.adapters.controllers.groups import GroupWatch
from topicshift.core.errors import Transient
from topicshift.ports import ClusterAdmin, ControlContext, Follower, Participant

_T = TypeVar("_T")


class PlainController:
    """The part of a :class:`~topicshift.ports.Controller` that needs no word of the applications themselves."""

    seeded = True

    def __init__(self, admin: ClusterAdmin) -> None:
        self._groups = GroupWatch(admin)

    def side_by_side(self, who: Sequence[Participant], ask: Callable[[Participant], _T]) -> list[_T]:
        """The answer for each participant, in their order, asked in parallel; the first error is raised."""
        if len(who) < 2:
            return [ask(p) for p in who]
        with ThreadPoolExecutor(max_workers=min(len(who), 16)) as pool:
            return list(pool.map(ask, who))

    def each(
        self, ctx: ControlContext, who: Sequence[Participant], act: Callable[[ControlContext, Participant], None]
    ) -> None:
        """Act on each in parallel; one that cannot be moved now keeps no other from it.

        Raises ``Transient`` with what was said of all that could not be moved now; any other error comes first.
        """
        heard: list[tuple[str, Mapping[str, Any]]] = []
        beside = replace(ctx, say=lambda name, data: heard.append((name, data)))

        def tried(p: Participant) -> str:
            try:
                act(beside, p)
            except Transient as error:
                return f"{p.name}: {error}"
            return ""

        try:
            late = [line for line in self.side_by_side(who, tried) if line]
        finally:  # the journal is written by the caller's own thread
            for name, data in heard:
                ctx.say(name, data)
        if late:
            raise Transient("; ".join(late))

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
