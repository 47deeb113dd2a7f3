"""Switch one consumer group: seed its offsets on the target, release it, and see it read there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from topicshift.acts.participants import POLL_S, Cast, Progress, describe, switch_step, wait_for
from topicshift.core.errors import DrainTimedOut, Refused, Unreadable
from topicshift.ports import Claim, Clock, ClusterAdmin, Journal, Participant


def seed_offsets(admin: ClusterAdmin, group: str, topic: str) -> dict[int, int]:
    """Commit the log start for every partition of ``topic`` where the group has no commit yet.

    So that ``auto.offset.reset=latest`` loses nothing. Commits that exist are left alone. Raises ``Refused``
    while the group has members (Kafka refuses it) and ``Unreadable`` where a partition cannot be read.
    Returns the offsets that were set.
    """
    offsets = admin.offsets(topic)
    bad = {p: o.error or "no log start" for p, o in offsets.items() if o.log_start is None}
    commits = admin.commits([group], topic, sorted(offsets)).get(group)
    if commits is None or commits.error or commits.errors:
        why = commits.error or str(dict(commits.errors)) if commits else "no answer"
        raise Unreadable(f"The commits of group {group} on {topic} cannot be read: {why}.")
    if bad:
        raise Unreadable(f"The log start of {topic} cannot be read: {bad}. Group {group} was not seeded.")
    missing = {p: o.log_start for p, o in offsets.items() if commits.offsets.get(p) is None and o.log_start is not None}
    if missing:
        admin.alter_commits(group, topic, missing)
    return missing


def require_unread(admin: ClusterAdmin, group: str, topic: str) -> None:
    """Raises ``Refused`` where the group has a commit beyond the log start of ``topic``, which it was not let read yet.

    It would go on from there and skip what lies before. Raises ``Unreadable`` where it cannot be told.
    """
    offsets = admin.offsets(topic)
    commits = admin.commits([group], topic, sorted(offsets)).get(group)
    if commits is None or commits.error or commits.errors:
        why = commits.error or str(dict(commits.errors)) if commits else "no answer"
        raise Unreadable(f"The commits of group {group} on {topic} cannot be read: {why}.")
    beyond = []
    for p, seen in sorted(offsets.items()):
        at = commits.offsets.get(p)
        if at is None:
            continue
        if seen.log_start is None:
            raise Unreadable(f"The log start of {topic}[{p}] cannot be read: {seen.error or 'no answer'}.")
        if at > seen.log_start:
            beyond.append(f"{topic}[{p}] at {at}, where the log starts at {seen.log_start}")
    if beyond:
        raise Refused(
            f"Group {group} has commits on {topic} before it was released to it ({', '.join(beyond[:5])}): it would "
            f"skip the records before them. Somebody set them, or a member reads {topic} already. It stays on the "
            f"source. Delete them (kafka-consumer-groups.sh --delete-offsets --group {group} --topic {topic}); then "
            "clear this task."
        )


def unseeded(admin: ClusterAdmin, group: str, topic: str) -> list[int]:
    """Partitions of ``topic`` on which the group has no commit. Raises ``Unreadable`` if that cannot be told."""
    info = admin.topic(topic)
    if info is None:
        raise Unreadable(f"Topic {topic} does not exist any more; group {group} cannot be switched to it.")
    partitions = sorted(info.replicas)
    commits = admin.commits([group], topic, partitions)[group]
    if commits.error or commits.errors:
        raise Unreadable(f"The commits of group {group} on {topic} cannot be read: {commits.error or commits.errors}.")
    return [p for p in partitions if commits.offsets.get(p) is None]


def require_empty(admin: ClusterAdmin, group: str) -> None:
    """Raises ``Refused``, naming the members, while a group that must be stopped still has some."""
    info = admin.describe_groups([group])[group]
    if info.error:
        raise Unreadable(f"Group {group} cannot be described: {info.error}.")
    if info.members:
        who = ", ".join(f"{m.client_id} on {m.host}" for m in info.members[:5])
        raise Refused(
            f"Group {group} still has {len(info.members)} members ({who}). Its offsets on the target can only be set "
            "while it is stopped. Stop them, then confirm again."
        )


def switch_group(
    cast: Cast,
    consumer: Participant,
    *,
    admin: ClusterAdmin,
    journal: Journal,
    claim: Claim,
    clock: Clock,
    recheck: Callable[[], None],
    progress: Progress,
    wait: timedelta = timedelta(minutes=5),
) -> dict[str, Any]:
    """Release one group to the target and wait until it reads there. Safe to repeat.

    A group under a controller moves by itself and seeds its own offsets. A group that a person moves must be
    stopped at this point; it is seeded here, and the person then starts it on the target.
    """
    ctx = cast.context
    group = consumer.group
    assert group is not None
    step = switch_step(group)
    row = journal.step(claim.migration_id, step)
    if row is not None and row.state == "done":
        return dict(row.data)
    controller = cast.controllers[consumer.kind]
    recheck()
    seeded: dict[int, int] = {}
    if row is None or row.state != "intended":
        require_unread(admin, group, ctx.target)
        if controller.needs_person:
            require_empty(admin, group)
        journal.intend(claim, step, {"group": group, "target": ctx.target, "at": clock.now().isoformat()})
    if controller.needs_person and unseeded(admin, group, ctx.target):
        require_empty(admin, group)
        seeded = seed_offsets(admin, group, ctx.target)
    controller.point(ctx, [consumer], ctx.target)
    controller.start(ctx, [consumer])
    deadline = clock.now() + wait
    if controller.needs_person:
        progress(f"group {group} is seeded on {ctx.target}: point its consumers to {ctx.target} and start them now")
    states = wait_for(
        cast,
        [consumer],
        lambda s: s.status == "running" and s.topic == ctx.target,
        what=f"group {group} runs on {ctx.target}",
        clock=clock,
        deadline=deadline,
        progress=progress,
    )
    _wait_seeded(admin, group, ctx.target, clock=clock, deadline=deadline, progress=progress)
    data = {
        "group": group,
        "target": ctx.target,
        "seeded": {str(p): o for p, o in seeded.items()},
        "finished_at": clock.now().isoformat(),
    }
    journal.finish(claim, step, data)
    journal.event(claim, "group_switched", "topicshift", {**data, "states": describe(states)})
    return data


def _wait_seeded(
    admin: ClusterAdmin, group: str, topic: str, *, clock: Clock, deadline: datetime, progress: Progress
) -> None:
    said: list[int] = []
    while missing := unseeded(admin, group, topic):
        if missing != said:
            progress(f"waiting until group {group} has an offset on every partition of {topic}; missing: {missing}")
            said = missing
        if clock.now() >= deadline:
            raise DrainTimedOut(
                f"Group {group} runs on {topic} but has no committed offset on partitions {missing}: with "
                "auto.offset.reset=latest it could skip records there. Look at its members."
            )
        clock.sleep(POLL_S)
