"""The controller for applications that a person stops and starts: it only observes, and believes Kafka's offsets."""

from __future__ import annotations

from collections.abc import Sequence

from topicshift.adapters.controllers.plain import PlainController
from topicshift.ports import ControlContext, Participant, ParticipantState


class ManualController(PlainController):
    """Observes participants that a person moves; stop, point and start do nothing, because the person does them.

    Consumer groups are judged by Kafka alone. A producer cannot be seen, so it is unknown: the run asks a person, and
    the fence judges by the ends of the source.
    """

    kind = "manual"
    needs_person = True

    def can_i(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[str]:
        """Nothing that could be tried: a person does the acts."""
        return []

    def stop(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Nothing: a person stops these participants. Observe until it shows."""

    def point(self, ctx: ControlContext, participants: Sequence[Participant], topic: str) -> None:
        """Nothing: a person changes the topic's name in these applications."""

    def start(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Nothing: a person starts these participants. Observe until it shows."""

    def observe(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[ParticipantState]:
        """One state for each participant; what cannot be read is unknown, with the reason."""
        seen = {s.participant: s for s in self._groups.observe(ctx, [p for p in participants if p.role == "consumer"])}
        return [
            seen.get(p)
            or ParticipantState(p, "unknown", None, reason=f"nothing in Kafka says what producer {p.name} does")
            for p in participants
        ]
