"""The controller of a rehearsal, in place of every kind: it moves commits of the shadow's own groups alone."""

from __future__ import annotations

from collections.abc import Sequence

from topicshift.adapters.controllers.plain import PlainController
from topicshift.core.errors import Refused
from topicshift.core.kafka.cluster import error_of_unread
from topicshift.core.spec.shadows import real_name, side_group
from topicshift.ports import ClusterAdmin, ControlContext, InstanceState, Participant, ParticipantState, Rehearser

RUNS_ON_SOURCE, STOPPED_ON_SOURCE, STOPPED_ON_TARGET, RUNS_ON_TARGET = range(4)


class ShadowController(PlainController):
    """Where a shadow participant is, is the one commit of a group of its own: so it survives every process.

    A shadow participant is no process: it stops and starts at once, and the times of real ones stay estimates.
    Producers that start on the target write there, by ``rehearser``. Every act raises ``Refused`` for topics that are
    none of a rehearsal.
    """

    needs_person = False

    def __init__(self, kind: str, admin: ClusterAdmin, rehearser: Rehearser) -> None:
        super().__init__(admin)
        self.kind = kind
        self._admin = admin
        self._rehearser = rehearser

    def can_i(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[str]:
        """Nothing keeps a shadow from being moved; what the real controllers say is asked when it is made."""
        return []

    def stop(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """They stop where they are."""
        for who in participants:
            self._set(ctx, who, {RUNS_ON_SOURCE: STOPPED_ON_SOURCE, RUNS_ON_TARGET: STOPPED_ON_TARGET})

    def point(self, ctx: ControlContext, participants: Sequence[Participant], topic: str) -> None:
        """They are stopped on this topic, or run on it where they ran."""
        there = topic == ctx.target
        for who in participants:
            runs = self._side(ctx, who) in (RUNS_ON_SOURCE, RUNS_ON_TARGET)
            side = {(True, True): RUNS_ON_TARGET, (True, False): STOPPED_ON_TARGET}.get((there, runs))
            side = side if side is not None else RUNS_ON_SOURCE if runs else STOPPED_ON_SOURCE
            self._set(ctx, who, dict.fromkeys(range(4), side))

    def start(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """They run where they were pointed; producers write to the target from then on."""
        for who in participants:
            if who.role == "producer" and self._side(ctx, who) in (STOPPED_ON_TARGET, RUNS_ON_TARGET):
                self._of_a_rehearsal(ctx)
                ctx.still()
                self._rehearser.go_on(ctx.source, ctx.target)
            self._set(ctx, who, {STOPPED_ON_SOURCE: RUNS_ON_SOURCE, STOPPED_ON_TARGET: RUNS_ON_TARGET})

    def observe(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[ParticipantState]:
        """Where each is, by its commit."""
        return [self._state(ctx, who, self._side(ctx, who)) for who in participants]

    # ------------------------------------------------------------------------------------------------- parts

    def _state(self, ctx: ControlContext, who: Participant, side: int) -> ParticipantState:
        topic = ctx.source if side in (RUNS_ON_SOURCE, STOPPED_ON_SOURCE) else ctx.target
        if side in (STOPPED_ON_SOURCE, STOPPED_ON_TARGET):
            return ParticipantState(who, "stopped", None)
        return ParticipantState(who, "running", topic, (InstanceState(who.name, "running", topic, None),))

    def _side(self, ctx: ControlContext, who: Participant) -> int:
        group, home = _home(ctx, who)
        found = self._admin.commits([group], home, [0]).get(group)
        if found is None or found.error or found.errors:
            raise error_of_unread(found)(f"Where the shadow of {who.name} is cannot be read (group {group}).")
        return found.offsets.get(0) or RUNS_ON_SOURCE

    def _set(self, ctx: ControlContext, who: Participant, to: dict[int, int]) -> None:
        self._of_a_rehearsal(ctx)
        now = self._side(ctx, who)
        side = to.get(now, now)
        if side != now:
            group, home = _home(ctx, who)
            ctx.still()
            self._admin.alter_commits(group, home, {0: side})

    @staticmethod
    def _of_a_rehearsal(ctx: ControlContext) -> None:
        if not (real_name(ctx.source) and real_name(ctx.target)):
            raise Refused(f"{ctx.source} and {ctx.target} are no topics of a rehearsal. Nothing was done.")


def _home(ctx: ControlContext, who: Participant) -> tuple[str, str]:
    """The group of this participant, and the topic on which its commit is: a rehearsal never goes back (mirrored)."""
    return side_group(ctx.source, who.role, who.name), ctx.source
