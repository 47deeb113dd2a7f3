"""What controllers share whose applications report to nobody: nothing to arm, and groups that Kafka alone judges."""

from __future__ import annotations

from collections.abc import Sequence

from topicshift.adapters.controllers.groups import GroupWatch
from topicshift.ports import ClusterAdmin, ControlContext, Follower, Participant


class PlainController:
    """The part of a :class:`~topicshift.ports.Controller` that needs no word of the applications themselves."""

    seeded = True

    def __init__(self, admin: ClusterAdmin) -> None:
        self._groups = GroupWatch(admin)

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
