"""The controller for Structured Streaming queries: moved by a hook, believed by their checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from topicshift.adapters.controllers import hooks
from topicshift.adapters.controllers.command import HookController
from topicshift.adapters.spark_checkpoint import Checkpoint, look_at_checkpoint
from topicshift.core.errors import Transient, Unreadable
from topicshift.core.kafka.cluster import error_of_unread
from topicshift.core.spec.kinds import HookSettings, SparkSettings
from topicshift.ports import ClusterAdmin, ControlContext, Participant, ParticipantState

Allowed = Callable[[str], str | None]
"""Why a location may not be opened here; None where it may."""


class SparkStreamingController(HookController):
    """Stops a query, gives it the checkpoint and the first offsets of the other topic, and starts it there.

    A query commits nothing to Kafka and joins no group. Its checkpoint proves what it has read: the drain certificate
    is made of it, and on the target it has arrived once its new checkpoint holds a finished batch that began at the
    offsets that it was given. These are kept as commits of the group that the spec names, which nobody joins.
    """

    kind = "spark_streaming"
    model: type[HookSettings] = SparkSettings

    def __init__(self, admin: ClusterAdmin, folder: Path | None, allowed: Allowed = lambda _: None) -> None:
        super().__init__(admin, hooks.caller(folder))
        self._admin, self._allowed = admin, allowed

    # ------------------------------------------------------------------------------------------------ before

    def _able(self, ctx: ControlContext, who: Participant) -> str:
        if who.role == "producer":
            return "a streaming query is moved as a consumer; declare what writes to the source as another kind"
        missing = [t for t in (ctx.source, ctx.target) if t not in self._folders(who)]
        if missing:
            return f"its `checkpoints` name no folder for {missing[0]}"
        return super()._able(ctx, who) or "; ".join(self._wrong(ctx, who))

    def _wrong(self, ctx: ControlContext, who: Participant) -> Iterator[str]:
        seen = self.observed(ctx, who)
        if (seen.status, seen.topic) != ("running", ctx.source):
            on = f" on {seen.topic}" if seen.topic else ""
            why = f" ({seen.reason})" if seen.reason else ""
            yield f"it is {seen.status}{on}{why}; it has to run on {ctx.source} before it is moved"
        try:
            now, new = self._look(who, ctx.source), self._look(who, ctx.target)
        except Unreadable as error:
            yield str(error)
            return
        at = self._folders(who)
        if now.finished is None or ctx.source not in now.topics:
            yield f"{at[ctx.source]} holds no finished batch of {ctx.source}; name the query's checkpointLocation"
        others = sorted(now.topics - {ctx.source})
        if others:
            yield f"the query reads {', '.join(others[:3])} as well, whose offsets would not come along; split it"
        if new.begun:
            yield f"{at[ctx.target]} has been used already, so the query would go on from there; name a new folder"
        yield from self._in_the_group(ctx, who)

    def _in_the_group(self, ctx: ControlContext, who: Participant) -> Iterator[str]:
        group = str(who.group)
        info = self._admin.describe_groups([group]).get(group)
        if info is None or info.error:
            raise error_of_unread(info)(
                f"{who.name}: group {group} cannot be described: {info.error if info else 'no answer'}"
            )
        if info.members:
            yield f"group {group} has members, and it keeps the offsets of this query alone; name one that nobody uses"

    # ------------------------------------------------------------------------------------------------ acts

    def point(self, ctx: ControlContext, participants: Sequence[Participant], topic: str) -> None:
        """Call *point* with the topic, its checkpoint, and the offsets to begin at where that was never begun.

        Raises ``Transient`` while the query does not stand, and where its offsets on the topic are not all there.
        """
        self.each(ctx, participants, lambda c, p: self._point(c, p, topic))

    def _point(self, ctx: ControlContext, who: Participant, topic: str) -> None:
        seen = self.observed(ctx, who)
        if (seen.status, seen.topic) == ("running", topic):
            return
        if seen.status != "stopped":
            raise Transient(f"it is pointed to {topic} once it stands ({seen.reason or f'it is {seen.status}'})")
        folder, first = self._folders(who)[topic], ""
        if not self._look(who, topic).begun:
            offsets = self._kept(who, topic)
            missing = [p for p, at in offsets.items() if at is None]
            if missing or not offsets:
                raise Transient(f"group {who.group} keeps no offset on {len(missing)} partition(s) of {topic}")
            first = json.dumps({topic: {str(p): at for p, at in sorted(offsets.items())}})
        more = {"TOPICSHIFT_CHECKPOINT": folder, "TOPICSHIFT_STARTING_OFFSETS": first}
        ctx.still()
        answer = self._call(ctx, who, "point", topic, more)
        said = {"moment": "point", "hook": self.settings_of(who).hook, "answer": answer.text()}
        ctx.say(who.name, {**said, "checkpoint": folder, "starting_offsets": first})
        if answer.code != 0:
            raise Transient(f"its hook failed at point ({answer.text()})")

    # --------------------------------------------------------------------------------------------- observing

    def observe(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[ParticipantState]:
        """One state for each query. On the target it has to show by its checkpoint that it left nothing out."""
        return self.side_by_side(participants, lambda p: self._observed(ctx, p))

    def _observed(self, ctx: ControlContext, who: Participant) -> ParticipantState:
        seen = self.observed(ctx, who)
        if (seen.status, seen.topic) != ("running", ctx.target):
            return seen
        try:
            why = self._not_arrived(who, ctx.target)
        except Unreadable as error:
            why = str(error)
        return ParticipantState(who, "unknown", ctx.target, seen.instances, why) if why else seen

    def _not_arrived(self, who: Participant, topic: str) -> str:
        """Why its checkpoint does not show that it reads the topic from the offsets that are kept for it, or nothing.

        A checkpoint is without gaps from where it began to where its newest finished batch ends.
        """
        found, kept = self._look(who, topic), self._kept(who, topic)
        folder = self._folders(who)[topic]
        if found.finished is None:
            return f"its checkpoint {folder} holds no finished batch yet"
        odd = []
        for partition, first in kept.items():
            began, reached = found.starts.get(partition), found.offsets.get(partition)
            if first is None or began is None or reached is None:
                return f"where it began on {topic}[{partition}], or is to begin, cannot be read from {folder}"
            if not began <= first <= reached:
                odd.append(f"{topic}[{partition}] at {began} and is at {reached}, and {first} was the next to read")
        if odd:
            return (
                f"it began on {', '.join(odd[:3])}: records are left out. Stop it, delete {folder}, and point it again "
                "with the starting offsets that the audit trail has"
            )
        return "" if kept else f"{topic} shows no partitions"

    # ------------------------------------------------------------------------------------------------- parts

    def _folders(self, who: Participant) -> Mapping[str, str]:
        settings = self.settings_of(who)
        assert isinstance(settings, SparkSettings)
        return settings.checkpoints

    def _look(self, who: Participant, topic: str) -> Checkpoint:
        """Its checkpoint on this topic. Raises ``Unreadable``: of an unknown format, not there to be read, or not
        allowed."""
        folder = self._folders(who).get(topic)
        if folder is None:
            raise Unreadable(f"its `checkpoints` name no folder for {topic}")
        denied = self._allowed(folder)
        if denied:
            raise Unreadable(denied)
        try:
            return look_at_checkpoint(folder, topic)
        except ValueError as error:
            raise Unreadable(str(error)) from None

    def _kept(self, who: Participant, topic: str) -> dict[int, int | None]:
        """The offsets that are kept for it on the topic, by partition. Raises ``Unreadable``."""
        group, info = str(who.group), self._admin.topic(topic)
        if info is None:
            raise Unreadable(f"there is no topic {topic}")
        partitions = sorted(info.replicas)
        commits = self._admin.commits([group], topic, partitions).get(group)
        if commits is None or commits.error or commits.errors:
            raise error_of_unread(commits)(f"the offsets that group {group} keeps on {topic} cannot be read")
        return {p: commits.offsets.get(p) for p in partitions}
