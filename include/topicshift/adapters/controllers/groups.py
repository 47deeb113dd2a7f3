"""A consumer group as Kafka itself shows it: members, assignments, and commits that move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topicshift.core.drain.discovery import moved
from topicshift.core.errors import Unreadable
from topicshift.core.kafka.cluster import error_of_unread
from topicshift.ports import (
    ClusterAdmin,
    ControlContext,
    GroupCommits,
    GroupInfo,
    InstanceState,
    Participant,
    ParticipantState,
)


class GroupWatch:
    """Judges consumer groups by Kafka alone, whatever moves their applications.

    No members is stopped (unless its commits move between two observations: a consumer that assigns partitions
    itself), members run on the topics they are assigned.
    """

    def __init__(self, admin: ClusterAdmin) -> None:
        self._admin = admin
        self._commits: dict[tuple[str, str], GroupCommits] = {}

    def observe(self, ctx: ControlContext, consumers: Sequence[Participant]) -> list[ParticipantState]:
        """One state for each consumer; what cannot be read is unknown, with the reason."""
        groups = sorted({p.group for p in consumers if p.group})
        described: Mapping[str, GroupInfo] = self._admin.describe_groups(groups) if groups else {}
        return [self._consumer(ctx, p, described.get(p.group or "")) for p in consumers]

    def _consumer(self, ctx: ControlContext, who: Participant, info: GroupInfo | None) -> ParticipantState:
        def unknown(reason: str) -> ParticipantState:
            return ParticipantState(who, "unknown", None, reason=reason)

        if info is None or info.error:
            return unknown(f"group {who.group} could not be described: {info.error if info else 'no answer'}")
        if not info.members:
            if info.state not in ("EMPTY", "DEAD"):
                return unknown(f"group {who.group} is {info.state} and shows no members; ask again when it is stable")
            try:
                where = self._moved(info.group, ctx.source) or self._moved(info.group, ctx.target)
            except Unreadable as exc:
                return unknown(str(exc))
            if where:
                return ParticipantState(
                    who,
                    "running",
                    None,
                    reason=f"group {who.group} has no members, yet its commits move ({where}): a consumer assigns "
                    "partitions itself. Stop that one too",
                )
            return ParticipantState(who, "stopped", None, reason=f"group {who.group} has no members ({info.state})")
        instances = tuple(
            InstanceState(
                m.instance_id or m.member_id or m.client_id,
                "running",
                next(iter(m.assignment)) if len(m.assignment) == 1 else None,
                None,
            )
            for m in info.members
        )
        reads = {t for m in info.members for t in (*m.assignment, *m.topics)} & {ctx.source, ctx.target}
        if len(reads) == 1:
            return ParticipantState(who, "running", reads.pop(), instances)
        where = f"both {ctx.source} and {ctx.target}" if reads else f"neither {ctx.source} nor {ctx.target}"
        names = ", ".join(f"{m.client_id} on {m.host}" for m in info.members[:5])
        return ParticipantState(
            who,
            "running",
            None,
            instances,
            f"the {len(info.members)} members of group {who.group} ({info.state}) read {where}: {names}",
        )

    def _moved(self, group: str, topic: str) -> str:
        """How the group's commits on the topic moved since the last look; empty if they did not."""
        described = self._admin.topic(topic)
        if described is None:
            return ""
        commits = self._admin.commits([group], topic, sorted(described.replicas)).get(group)
        if commits is None or commits.error or commits.errors:
            why = "no answer" if commits is None else commits.error or dict(commits.errors)
            raise error_of_unread(commits)(f"the commits of group {group} on {topic} could not be read: {why}")
        before = self._commits.get((group, topic), commits)
        self._commits[group, topic] = commits
        changed = sorted(moved(before, commits))[:3]
        return ", ".join(f"{topic}[{p}] {before.offsets[p]} -> {commits.offsets[p]}" for p in changed)
