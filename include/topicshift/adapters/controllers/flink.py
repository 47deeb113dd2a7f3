"""The controller for Flink jobs: each is moved in the way that its settings choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topicshift.adapters.controllers.flink_deployments import Deployments
from topicshift.adapters.controllers.flink_jobs import SessionJobs
from topicshift.adapters.controllers.plain import PlainController
from topicshift.adapters.rest import Ask
from topicshift.core.errors import TopicshiftError, Transient
from topicshift.core.flink.job import Checkpoints
from topicshift.ports import Clock, ClusterAdmin, ControlContext, Participant, ParticipantState


class FlinkController(PlainController):
    """Moves Flink jobs: those of a session cluster by their JobManager, those of a FlinkDeployment by their API server.

    ``ask_of`` gives what asks the service of a connection.
    """

    kind = "flink"
    needs_person = False

    def __init__(self, admin: ClusterAdmin, ask_of: Callable[[str], Ask], clock: Clock) -> None:
        super().__init__(admin)
        self._jobs = SessionJobs(admin, ask_of, clock)
        self._deployments = Deployments(admin, ask_of, clock)

    def _ways(self, participants: Sequence[Participant]) -> list[tuple[SessionJobs | Deployments, list[Participant]]]:
        """Who is moved in which way; ways in which nobody is are left out."""
        operated = [p for p in participants if "deployment" in p.settings]
        ways = ((self._jobs, [p for p in participants if p not in operated]), (self._deployments, operated))
        return [(way, who) for way, who in ways if who]

    def _act(
        self, participants: Sequence[Participant], act: Callable[[SessionJobs | Deployments, list[Participant]], None]
    ) -> None:
        """Act in both ways at once; what cannot be moved now in one keeps nobody from being moved in the other."""

        def tried(one: tuple[SessionJobs | Deployments, list[Participant]]) -> str:
            try:
                act(*one)
            except Transient as error:
                return str(error)
            return ""

        late = [text for text in self.side_by_side(self._ways(participants), tried) if text]
        if late:
            raise Transient("; ".join(late))

    def can_i(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[str]:
        """What would keep each job from being moved; changes nothing."""
        return [line for way, who in self._ways(participants) for line in way.can_i(ctx, who)]

    def stop(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Stop each job with a savepoint. Raises ``Transient`` where that cannot be done now."""
        self._act(participants, lambda way, who: way.stop(ctx, who))

    def point(self, ctx: ControlContext, participants: Sequence[Participant], topic: str) -> None:
        """Point each job to the topic. Raises ``Transient`` while one has not ended."""
        self._act(participants, lambda way, who: way.point(ctx, who, topic))

    def start(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Start each job from its savepoint where it was pointed. Raises as ``stop`` does."""
        self._act(participants, lambda way, who: way.start(ctx, who))

    def observe(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[ParticipantState]:
        """One state for each participant, in their order."""
        told = self.side_by_side(self._ways(participants), lambda one: one[0].observe(ctx, one[1]))
        seen = {s.participant: s for states in told for s in states}
        return [seen[p] for p in participants]

    def checkpoints(
        self, ctx: ControlContext, participants: Sequence[Participant]
    ) -> dict[str, Checkpoints | TopicshiftError]:
        """Those of the job that each has now; an error for one that could not be read, or of which no job lives."""
        return {name: told for way, who in self._ways(participants) for name, told in way.checkpoints(ctx, who).items()}
