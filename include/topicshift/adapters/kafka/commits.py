"""Committed offsets by explicit partition, for many groups at once, pending ones told apart; and setting them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from topicshift.adapters.kafka.connection import Connection
from topicshift.adapters.kafka.coordinators import ask_known, ask_python
from topicshift.adapters.kafka.groups import describe_all
from topicshift.adapters.kafka.offsets import observe_offsets
from topicshift.adapters.kafka.python_client import RETRY, at_coordinators, error_name, forget_coordinators
from topicshift.core.errors import AccessDenied, Refused, TopicshiftError, Unreadable
from topicshift.core.kafka.cluster import GroupCommits

ROWS_AT_ONCE = 50_000
"""Group-partition pairs of one round of requests, one request a coordinator: it bounds memory and what is in flight."""
_NOT_FOUND = 69
_UNSTABLE = 88


async def observe_commits(
    conn: Connection,
    groups: Sequence[str],
    topic: str,
    partitions: Iterable[int],
    *,
    kinds: Mapping[str, str] | None = None,
    rows_at_once: int = ROWS_AT_ONCE,
) -> dict[str, GroupCommits]:
    """Committed offsets of each group on each partition asked, with pending ones told apart (``require_stable``).

    ``kinds``: group -> kind where it is known. Share groups keep share-partition offsets instead, see
    :func:`_share_commits`; OffsetFetch answers *never committed* for them, so a group of unknown kind without any
    commit is asked whether it is one. A group or partition that fails carries its error.
    """
    wanted = sorted(set(partitions))
    known = kinds or {}
    shared = [g for g in dict.fromkeys(groups) if known.get(g) == "share"]
    others = [g for g in dict.fromkeys(groups) if known.get(g) != "share"]
    out: dict[str, GroupCommits] = {}
    jobs: list[Any] = [asyncio.to_thread(_plain_commits, conn, others, topic, wanted, rows_at_once, out)]
    if shared:
        jobs.append(_share_commits(conn, shared, topic, wanted, out))
    await asyncio.gather(*jobs)
    maybe = [g for g in others if g not in known and _empty(out[g])]
    if maybe:
        described = await asyncio.to_thread(describe_all, conn, "share", maybe)
        found = [g for g, info in described.items() if info.error is None]
        if found:
            await _share_commits(conn, found, topic, wanted, out)
    return {g: out[g] for g in dict.fromkeys(groups)}


def _empty(commits: GroupCommits) -> bool:
    """Whether nothing at all is committed (or the group is of a kind for which that cannot be asked)."""
    missing = (commits.error or "").startswith("GROUP_ID_NOT_FOUND")
    return missing or (
        commits.error is None
        and not commits.errors
        and not commits.unstable
        and all(o is None for o in commits.offsets.values())
    )


def _plain_commits(
    conn: Connection,
    groups: list[str],
    topic: str,
    partitions: list[int],
    rows_at_once: int,
    out: dict[str, GroupCommits],
) -> None:
    """OffsetFetch for all groups, in rounds of ``rows_at_once`` pairs; fills ``out``."""
    size = max(1, rows_at_once // max(1, len(partitions)))
    for start in range(0, len(groups), size):
        some = groups[start : start + size]
        try:
            out.update(_fetch(conn, some, topic, partitions, stable=True))
        except TopicshiftError as exc:
            out.update({g: GroupCommits(g, {}, error=str(exc), passing=exc.retryable) for g in some})
    for group in [g for g in groups if out[g].unstable]:
        # What stands beside the pending commit, for showing the lag; the verdict does not depend on it.
        try:
            shown = _fetch(conn, [group], topic, sorted(out[group].unstable), stable=False)[group].offsets
        except TopicshiftError:
            shown = {}
        out[group] = replace(out[group], offsets={**out[group].offsets, **shown})


def committed_topics(conn: Connection, groups: Sequence[str]) -> dict[str, frozenset[str]]:
    """The topics on which each group has a commit; those without DESCRIBE are left out by the broker.

    Raises the typed error where a group cannot be asked.
    """
    from kafka import errors
    from kafka.protocol.consumer import OffsetFetchRequest

    if not groups:
        return {}
    asked = OffsetFetchRequest.OffsetFetchRequestGroup

    def many(ids: list[str]) -> Any:
        rows = [asked(group_id=g, topics=None) for g in ids]
        return OffsetFetchRequest(groups=rows, require_stable=False, min_version=8, max_version=9)

    def one(ids: list[str]) -> Any:
        return OffsetFetchRequest(group_id=ids[0], topics=None, require_stable=False, min_version=7, max_version=7)

    def ask(admin: Any) -> dict[str, frozenset[str]]:
        rows, denied = _rows(admin, list(dict.fromkeys(groups)), many, one)
        for name, why in denied.items():
            raise AccessDenied(f"{why}: no DESCRIBE on group {name}")
        found: dict[str, frozenset[str]] = {}
        for row, name in rows:
            if row.error_code in RETRY:
                forget_coordinators(admin)
                raise errors.NotCoordinatorError(f"coordinator of {name} moves")
            if row.error_code not in (0, _NOT_FOUND):
                raise errors.for_code(row.error_code)(f"the commits of group {name}")
            found[name] = frozenset(t.name for t in row.topics if any(p.committed_offset >= 0 for p in t.partitions))
        return found

    answer: dict[str, frozenset[str]] = ask_python(conn, ask, operation="DESCRIBE", resource=f"group {groups[0]}")
    missing = sorted(set(groups) - set(answer))
    if missing:
        raise Unreadable(f"The topics of group {missing[0]} cannot be read: its coordinator did not answer for it.")
    return {g: answer[g] for g in groups}


def _fetch(
    conn: Connection, groups: list[str], topic: str, partitions: list[int], *, stable: bool
) -> dict[str, GroupCommits]:
    """One round: a request to each coordinator. Raises the typed error when one does not answer in time."""
    from kafka import errors
    from kafka.protocol.consumer import OffsetFetchRequest

    asked = OffsetFetchRequest.OffsetFetchRequestGroup
    topics = [asked.OffsetFetchRequestTopics(name=topic, partition_indexes=partitions)]
    plain = [OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=partitions)]
    found: dict[str, GroupCommits] = {}

    def many(ids: list[str]) -> Any:
        # Version 8 brings many groups in one request; 10 would want topic ids instead of names.
        rows = [asked(group_id=g, topics=topics) for g in ids]
        return OffsetFetchRequest(groups=rows, require_stable=stable, min_version=8, max_version=9)

    def one(ids: list[str]) -> Any:
        return OffsetFetchRequest(group_id=ids[0], topics=plain, require_stable=stable, min_version=7, max_version=7)

    def ask(admin: Any) -> dict[str, GroupCommits]:
        left = [g for g in groups if g not in found]
        again = ""
        rows, denied = _rows(admin, left, many, one)
        found.update({g: GroupCommits(g, {}, error=f"{why}: no DESCRIBE on the group") for g, why in denied.items()})
        for row, name in rows:
            if row.error_code in RETRY:
                again = name
            else:
                found[name] = _parse(name, row, partitions)
        if again:
            forget_coordinators(admin)
            raise errors.NotCoordinatorError(f"coordinator of {again} moves")
        return found

    ask_python(conn, ask, operation="DESCRIBE", resource=f"group {groups[0]}")
    silent = "its coordinator did not answer for it"
    return {g: found.get(g) or GroupCommits(g, {}, error=silent, passing=True) for g in groups}


def _rows(
    admin: Any, groups: list[str], many: Callable[[list[str]], Any], one: Callable[[list[str]], Any]
) -> tuple[list[tuple[Any, str]], dict[str, str]]:
    """Rows of the answers, each with its group; brokers before Kafka 3.0 are asked for one group at a time."""
    from kafka.errors import IncompatibleBrokerVersion

    try:
        rows, denied = at_coordinators(admin, groups, many)
        return [(row, row.group_id) for row in rows], denied
    except IncompatibleBrokerVersion:
        found: list[tuple[Any, str]] = []
        refused: dict[str, str] = {}
        for group in groups:
            answers, denied = at_coordinators(admin, [group], one, whole=True)
            found += [(answer, group) for answer in answers]
            refused |= denied
        return found, refused


def _parse(group: str, row: Any, partitions: list[int]) -> GroupCommits:
    if row.error_code:
        return GroupCommits(group, {}, error=f"{error_name(row.error_code)}: the broker refuses its commits")
    offsets: dict[int, int | None] = {}
    errors: dict[int, str] = {}
    unstable: set[int] = set()
    for topic in row.topics:
        for p in topic.partitions:
            code = p.error_code
            if code == 0:
                offset = p.committed_offset
                offsets[p.partition_index] = offset if offset >= 0 else None
            elif code == _UNSTABLE:
                unstable.add(p.partition_index)
            else:
                errors[p.partition_index] = error_name(code)
    if len(offsets) + len(errors) + len(unstable) < len(partitions):
        for index in set(partitions) - offsets.keys() - errors.keys() - unstable:
            errors[index] = "the coordinator did not answer for this partition"
    return GroupCommits(group, offsets, errors, frozenset(unstable))


async def _share_commits(
    conn: Connection, groups: list[str], topic: str, partitions: list[int], out: dict[str, GroupCommits]
) -> None:
    """What share groups have dealt with, in the form of commits.

    The share-partition start offset may stay behind although everything is acknowledged; ``lag`` (KIP-1226) counts what
    is not. Lag 0 seen *after* an end offset means that everything up to this end is dealt with, so that end stands for
    the commit; otherwise the start offset does. A broker that gives no lag leaves it at the start offset.
    """
    ends = await observe_offsets(conn, topic, partitions)
    rows = await asyncio.to_thread(_ask_share, conn, groups, topic, partitions)
    for group in groups:
        row = rows.get(group)
        if isinstance(row, TopicshiftError) or row is None:
            late = row is None or row.retryable
            out[group] = GroupCommits(group, {}, error=str(row or "the coordinator did not answer"), passing=late)
            continue
        offsets: dict[int, int | None] = {}
        errors: dict[int, str] = {}
        for p in partitions:
            start, lag, wrong = row.get(p, (-1, -1, "the coordinator did not answer for this partition"))
            end = ends[p].end
            if wrong:
                errors[p] = wrong
            elif start < 0:
                offsets[p] = None
            elif lag == 0 and end is not None:
                offsets[p] = max(start, end)
            else:
                offsets[p] = start
        out[group] = GroupCommits(group, offsets, errors)


def _ask_share(
    conn: Connection, groups: list[str], topic: str, partitions: list[int]
) -> dict[str, dict[int, tuple[int, int, str]] | TopicshiftError]:
    from kafka import errors

    from topicshift.adapters.kafka.messages import DescribeShareGroupOffsetsRequest as Request

    asked = Request.DescribeShareGroupOffsetsRequestGroup
    asked_topic = asked.DescribeShareGroupOffsetsRequestTopic

    def request(ids: list[str]) -> Any:
        return Request(
            groups=[asked(group_id=g, topics=[asked_topic(topic_name=topic, partitions=partitions)]) for g in ids]
        )

    def ask(admin: Any) -> dict[str, dict[int, tuple[int, int, str]] | TopicshiftError]:
        out: dict[str, dict[int, tuple[int, int, str]] | TopicshiftError] = {}
        rows, denied = at_coordinators(admin, groups, request)
        for group, why in denied.items():
            out[group] = Unreadable(f"{why}: no DESCRIBE on share group {group}")
        for row in rows:
            if row.error_code:
                exc = errors.for_code(row.error_code)(row.error_message)
                out[row.group_id] = conn.error(exc, operation="DESCRIBE", resource=f"share group {row.group_id}")
                continue
            found: dict[int, tuple[int, int, str]] = {}
            for t in row.topics:
                for p in t.partitions:
                    wrong = f"{errors.for_code(p.error_code).__name__}: {p.error_message}" if p.error_code else ""
                    found[p.partition_index] = (p.start_offset, -1 if p.lag is None else p.lag, wrong)
            out[row.group_id] = found
        return out

    try:
        answer = ask_known(conn, ask, groups)
    except TopicshiftError as exc:
        return dict.fromkeys(groups, exc)
    unsupported = Unreadable("this broker does not tell the offsets of share groups (DescribeShareGroupOffsets)")
    return {g: (unsupported if r is None else r) for g, r in answer.items()}


def alter_commits(conn: Connection, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Set a group's offsets. Raises ``Refused`` while the group has members; any partition that fails raises."""
    from kafka import TopicPartition, errors
    from kafka.structs import OffsetAndMetadata

    if not offsets:
        return
    wanted = {TopicPartition(topic, p): OffsetAndMetadata(o, "", -1) for p, o in sorted(offsets.items())}

    def ask(admin: Any) -> dict[Any, Any]:
        answer: dict[Any, Any] = admin.alter_group_offsets(group, wanted)
        for wrong in answer.values():
            if wrong.errno in RETRY:
                forget_coordinators(admin)
                raise wrong(f"coordinator of {group} moves")
        return answer

    answer = ask_python(conn, ask, operation="READ", resource=f"group {group}")
    bad = {tp.partition: wrong for tp, wrong in answer.items() if wrong is not errors.NoError}
    if not bad:
        return
    first = next(iter(bad.values()))
    # Setting offsets takes READ on the group and on the topic.
    resource = f"topic {topic}" if first is errors.TopicAuthorizationFailedError else f"group {group}"
    typed = conn.error(first(f"partitions {sorted(bad)}"), operation="READ", resource=resource)
    if isinstance(typed, Refused):
        raise Refused(
            f"The offsets of group {group} on {topic} were not all set: partitions {sorted(bad)}: "
            f"{error_name(first.errno)}. Kafka refuses it while the group has members. Set them once it is stopped."
        )
    raise typed
