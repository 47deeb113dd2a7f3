"""Which groups read a topic, and whether the spec knows all of them. Pure.

A group reads the topic when it has a commit on it, when a member has one of its partitions, or when a member subscribes
to it (by name or by a pattern). What could not be read about a group makes it a reader until shown otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from topicshift.core.kafka.cluster import GroupCommits, GroupInfo


@dataclass(frozen=True)
class GroupListing:
    """The groups as listed. ``complete``: whether ACLs can be ruled out to have filtered the list; ``why`` if not."""

    groups: tuple[GroupInfo, ...]
    complete: bool
    why: str = ""


@dataclass(frozen=True)
class Discovery:
    """``readers``: group -> how it is known to read the topic. ``undeclared``: those that nobody declared or ignored.

    ``not_found``: declared groups that the broker does not know and that have no commit. ``ignored``: group -> reason,
    of those that do read the topic. ``complete``: see :class:`GroupListing`.
    """

    readers: Mapping[str, str]
    undeclared: frozenset[str]
    not_found: frozenset[str]
    ignored: Mapping[str, str] = field(default_factory=dict)
    complete: bool = True
    why_incomplete: str = ""


def subscribes(subscription: str, topic: str) -> bool:
    """Whether one entry of a member's subscription covers the topic; ``^...`` is a pattern, as in librdkafka."""
    if not subscription.startswith("^"):
        return subscription == topic
    try:
        return re.fullmatch(subscription.removeprefix("^").removesuffix("$"), topic) is not None
    except re.error:
        return True  # a pattern that cannot be understood may cover it


def reads(topic: str, info: GroupInfo | None, commits: GroupCommits | None) -> str | None:
    """How this group is known to read the topic (words for a person), None if nothing says that it does."""
    if commits is not None:
        if commits.error is not None:
            return f"its commits could not be read ({commits.error})"
        if any(o is not None for o in commits.offsets.values()):
            return "it has commits on the topic"
        if commits.unstable:
            return "it has a commit pending on the topic"
        if commits.errors:
            return "some of its commits could not be read"
    if info is None:
        return None
    if info.error is not None:
        return f"it could not be described ({info.error})"
    for member in info.members:
        if member.assignment.get(topic):
            return f"its member {member.client_id or member.member_id} has partitions of the topic"
        if any(subscribes(t, topic) for t in member.topics):
            return f"its member {member.client_id or member.member_id} subscribes to the topic"
    return None


def moved(before: GroupCommits | None, after: GroupCommits | None) -> frozenset[int]:
    """Partitions on which a group has committed between two looks: somebody reads, even where no member shows.

    Consumers that assign partitions themselves leave their group without members; only this gives them away. A
    partition that one of the looks could not read tells nothing.
    """
    if before is None or after is None or before.error is not None or after.error is not None:
        return frozenset()
    seen = set(before.offsets) & set(after.offsets) - set(before.errors) - set(after.errors)
    return frozenset(p for p in seen if before.offsets[p] != after.offsets[p])


def discover(
    topic: str,
    listing: GroupListing | None,
    described: Mapping[str, GroupInfo],
    commits: Mapping[str, GroupCommits],
    *,
    declared: Iterable[str] | None,
    ignored: Mapping[str, str] | None = None,
) -> Discovery:
    """Compare the groups that read the topic with the declared ones.

    ``declared`` None: nobody declared anything, so every reader is certified and none counts as undeclared.
    ``listing`` None: the broker was not asked for its groups, only the declared ones are known.
    """
    ignored = dict(ignored or {})
    listed = {g.group for g in listing.groups} if listing is not None else set()
    names = set(described) | set(commits) | listed
    readers = {}
    for name in sorted(names):
        how = reads(topic, described.get(name), commits.get(name))
        if how is not None:
            readers[name] = how
    wanted = set(declared) if declared is not None else set(readers) - set(ignored)
    not_found = {g for g in wanted if g not in listed and not _exists(described.get(g), commits.get(g))}
    return Discovery(
        readers=readers,
        undeclared=frozenset(set(readers) - wanted - set(ignored)),
        not_found=frozenset(not_found),
        ignored={g: why for g, why in ignored.items() if g in readers and g not in wanted},
        complete=listing.complete if listing is not None else True,
        why_incomplete=listing.why if listing is not None else "",
    )


def _exists(info: GroupInfo | None, commits: GroupCommits | None) -> bool:
    """A group that does not exist is described as DEAD, without an error; doubt counts as existing."""
    if commits is not None and (
        commits.error or commits.errors or commits.unstable or any(o is not None for o in commits.offsets.values())
    ):
        return True
    return info is not None and (info.error is not None or bool(info.members) or info.state not in ("DEAD", "UNKNOWN"))
