"""The controller for applications that a person stops and starts: it only observes, and believes Kafka's offsets."""

from __future__ import annotations

from collections.abc import Sequence

from topicshift.adapters.controllers.groups import GroupWatch
from topicshift.ports import ClusterAdmin, ControlContext, Follower, Participant, ParticipantState


class ManualController:
    """Observes participants that a person moves; stop, point and start do nothing, because the person does them.

    Consumer groups are judged by Kafka alone. A producer cannot be seen, so it is unknown: the run asks a person, and
    the fence judges by the ends of the source.
    """

    kind = "manual"
    needs_person = True
    seeded = True

    def __init__(self, admin: ClusterAdmin) -> None:
        self._groups = GroupWatch(admin)

    def can_i(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[str]:
        """Nothing that could be tried: a person does the acts."""
        return []

    def check(self, ctx: ControlContext) -> list[str]:
        """Nothing that could be wrong."""
        return []

    def prepare(self, ctx: ControlContext) -> list[str]:
        """Nothing to make."""
        return []

    def followers(self, ctx: ControlContext) -> list[Follower]:
        """Nobody reports to a person."""
        return []

    def arm(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Nothing: these participants need no arming."""

    def disarm(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Nothing."""

    def stop(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Nothing: a person stops these participants. Observe until it shows."""

    def point(self, ctx: ControlContext, participants: Sequence[Participant], topic: str) -> None:
        """Nothing: a person changes the topic's name in these applications."""

    def start(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Nothing: a person starts these participants. Observe until it shows."""

    def close(self) -> None:
        """Nothing to let go: the admin client belongs to the caller."""

    def observe(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[ParticipantState]:
        """One state for each participant; what cannot be read is unknown, with the reason."""
        seen = {s.participant: s for s in self._groups.observe(ctx, [p for p in participants if p.role == "consumer"])}
        return [
            seen.get(p)
            or ParticipantState(p, "unknown", None, reason=f"nothing in Kafka says what producer {p.name} does")
            for p in participants
        ]
