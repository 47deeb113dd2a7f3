"""What the ways of moving a Flink job share: whom they ask, and how each job is looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Generic, TypeVar

from topicshift.adapters.controllers.flink_access import Running
from topicshift.adapters.controllers.plain import PlainController, patiently
from topicshift.adapters.rest import Ask
from topicshift.core.errors import TopicshiftError
from topicshift.core.flink.job import Checkpoints
from topicshift.ports import Clock, ClusterAdmin, ControlContext, Participant, ParticipantState

_A = TypeVar("_A", bound=Running)


class FlinkWay(PlainController, Generic[_A]):
    """One way of moving Flink jobs. ``ask_of`` gives what asks the service of a connection."""

    kind = "flink"
    needs_person = False

    def __init__(self, admin: ClusterAdmin, ask_of: Callable[[str], Ask], clock: Clock) -> None:
        super().__init__(admin)
        self._admin = admin
        self._clock = clock
        self._ask_of = cache(ask_of)

    def _access(self, who: Participant, ctx: ControlContext) -> _A:
        """Called in the caller's own thread, since it reads the journal."""
        raise NotImplementedError

    def _unable(self, access: _A) -> list[str]:
        """What would keep one from being moved."""
        raise NotImplementedError

    def _seen(self, access: _A, group: ParticipantState | None) -> ParticipantState:
        """The state of one. Raises where it cannot be told."""
        raise NotImplementedError

    def _checkpoints_now(self, access: _A) -> Checkpoints:
        """Those of the job that one has now. Raises ``NotFound`` where none runs."""
        raise NotImplementedError

    def _each_unable(self, access: Mapping[Participant, _A]) -> list[str]:
        """What would keep each from being moved; a service that does not answer is asked again for a few seconds."""
        return self.lines_of(list(access), lambda p: patiently(p.name, lambda: self._unable(access[p]), self._clock))

    def observe(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[ParticipantState]:
        """One state for each participant; what nobody tells is unknown."""
        access = {p: self._access(p, ctx) for p in participants}

        def looked(who: Participant, group: ParticipantState | None) -> ParticipantState:
            try:
                return self._seen(access[who], group)
            except TopicshiftError as error:
                return ParticipantState(who, "unknown", None, reason=str(error))

        return self.beside_groups(ctx, participants, looked)

    def checkpoints(
        self, ctx: ControlContext, participants: Sequence[Participant]
    ) -> dict[str, Checkpoints | TopicshiftError]:
        """Those of the job that each has now; an error for one that could not be read, or of which no job lives."""
        access = {p: self._access(p, ctx) for p in participants}

        def read(who: Participant) -> Checkpoints | TopicshiftError:
            try:
                return self._checkpoints_now(access[who])
            except TopicshiftError as error:
                return error

        found = self.side_by_side(participants, read)
        return {p.name: told for p, told in zip(participants, found, strict=True)}
