"""Consumer groups of every kind: list, describe, commits by explicit partition, set commits.

kafka-python lists groups with their type (share and streams groups too) and describes many in one request a
coordinator; confluent-kafka reads commits, with a bounded number of requests in flight.
"""

from __future__ import annotations

import asyncio
import re
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from topicshift.adapters.kafka.connect import Connection
from topicshift.adapters.kafka.futures import outcome, run, settle
from topicshift.adapters.kafka.offsets import observe_offsets
from topicshift.core.cluster import GroupCommits, GroupInfo, GroupMember
from topicshift.core.discovery import GroupListing
from topicshift.core.errors import Refused, TopicshiftError, Unreadable

IN_FLIGHT = 128
"""Requests for commits that are under way at the same time."""
_DESCRIBE_AT_ONCE = 250
_PAUSE_S = 0.2
_RETRY = frozenset({14, 15, 16, 7, 13})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, REQUEST_TIMED_OUT, NETWORK_EXCEPTION."""
_NOT_FOUND = 69
_MOVING = frozenset({"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "_WAIT_COORD"})


def state_name(text: str) -> str:
    """A group's state in Kafka's upper-case spelling: ``PreparingRebalance`` becomes ``PREPARING_REBALANCE``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text or "Unknown").upper()


# ------------------------------------------------------------------------------------------------------------ list


async def observe_listing(conn: Connection) -> GroupListing:
    """Every group that the brokers list, and whether ACLs can be ruled out to have hidden some.

    A broker lists every group to a client with DESCRIBE on the cluster, and to another only those with DESCRIBE on the
    group. DescribeCluster says which operations this client may do. Raises ``Unreadable`` without an answer.
    """
    future = conn.native.describe_cluster(include_authorized_operations=True, request_timeout=conn.timeout_s)
    listed, _ = await asyncio.gather(asyncio.to_thread(_list, conn), settle([future], conn.timeout_s + 1.0))
    cluster, error, _ = outcome(conn, future, operation="DESCRIBE", resource="the cluster")
    if error is not None or cluster is None:
        raise error or Unreadable("The cluster could not be described, so its list of groups cannot be trusted.")
    allowed = {o.name for o in cluster.authorized_operations or ()}
    complete = bool(allowed & {"DESCRIBE", "ALL"})
    why = "" if complete else "this client has no DESCRIBE on the cluster, so groups may be hidden from it"
    return GroupListing(tuple(listed), complete, why)


def _list(conn: Connection) -> list[GroupInfo]:
    rows = _python(conn, lambda admin: admin.list_groups(), operation="DESCRIBE", resource="the cluster's groups")
    out: dict[str, GroupInfo] = {}
    for row in rows:
        kind = str(row.get("group_type") or row.get("protocol_type") or "classic").lower()
        kind = "classic" if kind in ("unknown", "") else kind
        out[row["group_id"]] = GroupInfo(row["group_id"], kind, state_name(row.get("group_state") or ""))
    return [out[g] for g in sorted(out)]


def _python(conn: Connection, ask: Callable[[Any], Any], *, operation: str, resource: str) -> Any:
    """One call of kafka-python, tried again while a coordinator moves; typed errors."""
    from kafka.errors import KafkaError

    deadline = time.monotonic() + conn.timeout_s
    while True:
        try:
            return ask(conn.kafka_python)
        except (KafkaError, OSError, ValueError) as exc:
            passing = getattr(exc, "errno", None) in _RETRY or type(exc).__name__ == "NodeNotReadyError"
            if passing and time.monotonic() + _PAUSE_S < deadline:
                time.sleep(_PAUSE_S)
                continue
            raise conn.error(exc, operation=operation, resource=resource) from None


# -------------------------------------------------------------------------------------------------------- describe


async def observe_groups(
    conn: Connection, groups: Sequence[str], kinds: Mapping[str, str] | None = None
) -> dict[str, GroupInfo]:
    """Kind, state, members, assignments and subscriptions of each group asked; one that fails carries its error.

    ``kinds``: group -> kind where a listing gave it; without it, each kind is tried in turn. A group that the broker
    does not know comes back with state DEAD.
    """
    return await asyncio.to_thread(read_groups, conn, groups, kinds)


def read_groups(
    conn: Connection, groups: Sequence[str], kinds: Mapping[str, str] | None = None
) -> dict[str, GroupInfo]:
    """:func:`observe_groups` from plain code."""
    wanted = list(dict.fromkeys(groups))
    found: dict[str, GroupInfo] = {}
    known = dict(kinds or {})
    # The second round is for a group that changed its kind since the listing, or that no kind knows.
    for told in (known, {}):
        for kind in ("classic", "consumer", "share", "streams"):
            found |= _describe_all(conn, kind, [g for g in wanted if g not in found and told.get(g, kind) == kind])
    return {g: found.get(g) or GroupInfo(g, known.get(g, "classic"), "DEAD") for g in wanted}


def _describe_all(conn: Connection, kind: str, groups: list[str]) -> dict[str, GroupInfo]:
    found: dict[str, GroupInfo] = {}
    for start in range(0, len(groups), _DESCRIBE_AT_ONCE):
        found |= _describe(conn, kind, groups[start : start + _DESCRIBE_AT_ONCE])
    return found


def _describe(conn: Connection, kind: str, groups: list[str]) -> dict[str, GroupInfo]:
    """The groups of this kind among those asked. One that is of another kind, or not known, is left out."""
    if not groups:
        return {}
    try:
        rows = _ask_groups(conn, kind, groups)
    except TopicshiftError as exc:
        return {g: GroupInfo(g, kind, "UNKNOWN", error=str(exc)) for g in groups}
    return {g: info for g, info in rows.items() if info is not None}


def _ask_groups(conn: Connection, kind: str, groups: list[str]) -> dict[str, GroupInfo | None]:
    from kafka import errors
    from kafka.protocol.admin import DescribeGroupsRequest

    from topicshift.adapters.kafka import messages

    request: Any = {
        "classic": lambda ids: DescribeGroupsRequest(groups=ids, include_authorized_operations=False),
        "consumer": lambda ids: messages.ConsumerGroupDescribeRequest(group_ids=ids),
        "share": lambda ids: messages.ShareGroupDescribeRequest(group_ids=ids, min_version=1),
        "streams": lambda ids: messages.StreamsGroupDescribeRequest(group_ids=ids),
    }[kind]
    out: dict[str, GroupInfo | None] = {}

    def ask(admin: Any) -> dict[str, GroupInfo | None]:
        left = [g for g in groups if g not in out]
        again: list[str] = []
        for row in _at_coordinators(admin, left, request):
            name, code = row.group_id, row.error_code
            if code in _RETRY:
                again.append(name)
            elif code == _NOT_FOUND or (kind == "classic" and code == 0 and _foreign(row)):
                out[name] = None
            elif code:
                word = errors.for_code(code).__name__
                what = f"{word}: {getattr(row, 'error_message', None) or 'no DESCRIBE on the group, or not readable'}"
                out[name] = GroupInfo(name, kind, "UNKNOWN", error=what)
            else:
                out[name] = _info(kind, row)
        if again:
            admin._manager.cluster._coordinators.clear()
            raise errors.NotCoordinatorError(f"coordinator of {again[0]} moves")
        return out

    answer: dict[str, GroupInfo | None] = _python_known(conn, ask, groups)
    return answer


def _python_known(conn: Connection, ask: Callable[[Any], Any], groups: list[str]) -> Any:
    from kafka.errors import IncompatibleBrokerVersion

    def guarded(admin: Any) -> Any:
        try:
            return ask(admin)
        except IncompatibleBrokerVersion:
            return dict.fromkeys(groups)  # this broker is older than this kind of group

    return _python(conn, guarded, operation="DESCRIBE", resource=f"group {groups[0]}")


def _foreign(row: Any) -> bool:
    """DescribeGroups answers for a group that is not classic, or not known, with state Dead and no error."""
    return str(row.group_state) == "Dead" and not row.members


def _at_coordinators(admin: Any, groups: list[str], request: Callable[[list[str]], Any]) -> list[Any]:
    """Send one request to each coordinator, all at once, and return the rows of their answers."""

    async def go() -> list[Any]:
        by_node: dict[Any, list[str]] = {}
        for group, node in (await admin._find_coordinator_ids(groups)).items():
            by_node.setdefault(node, []).append(group)
        sent = [admin._manager.send(request(ids), node_id=node) for node, ids in by_node.items()]
        rows: list[Any] = []
        for answer in sent:
            rows.extend((await answer).groups)
        return rows

    return list(admin._manager.run(go))


def _info(kind: str, row: Any) -> GroupInfo:
    if kind == "classic":
        members = tuple(_classic_member(m) for m in row.members)
    elif kind == "streams":
        subtopologies = row.topology.subtopologies if row.topology is not None else None
        sources = {
            s.subtopology_id: (*s.source_topics, *(t.name for t in s.repartition_source_topics))
            for s in subtopologies or ()
        }
        members = tuple(_streams_member(m, sources) for m in row.members)
    else:
        members = tuple(_member(m) for m in row.members)
    return GroupInfo(row.group_id, kind, state_name(str(row.group_state)), members)


def _member(m: Any) -> GroupMember:
    topics = list(m.subscribed_topic_names or ())
    pattern = getattr(m, "subscribed_topic_regex", None)
    if pattern:
        topics.append(f"^(?:{pattern})$")
    assignment = {tp.topic_name: tuple(tp.partitions) for tp in m.assignment.topic_partitions}
    instance = getattr(m, "instance_id", None)
    return GroupMember(m.member_id, m.client_id, m.client_host.lstrip("/"), instance, assignment, tuple(topics))


def _streams_member(m: Any, sources: Mapping[str, tuple[str, ...]]) -> GroupMember:
    assignment: dict[str, set[int]] = {}
    for task in m.assignment.active_tasks:
        for topic in sources.get(task.subtopology_id, ()):
            assignment.setdefault(topic, set()).update(task.partitions)
    topics = tuple(sorted({t for topics in sources.values() for t in topics}))
    held = {t: tuple(sorted(p)) for t, p in assignment.items()}
    return GroupMember(m.member_id, m.client_id, m.client_host.lstrip("/"), m.instance_id, held, topics)


def _classic_member(m: Any) -> GroupMember:
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

    # A group of another protocol (Connect's workers) packs something else in there: not a reader of a topic.
    topics: tuple[str, ...] = ()
    assignment: dict[str, tuple[int, ...]] = {}
    try:
        if m.member_metadata:
            topics = tuple(ConsumerProtocolSubscription.decode(m.member_metadata).topics)
        if m.member_assignment:
            decoded = ConsumerProtocolAssignment.decode(m.member_assignment)
            assignment = {a.topic: tuple(a.partitions) for a in decoded.assigned_partitions}
    except (ValueError, AttributeError, TypeError, struct.error):
        topics, assignment = (), {}
    instance = getattr(m, "group_instance_id", None)
    return GroupMember(m.member_id, m.client_id, m.client_host.lstrip("/"), instance, assignment, topics)


# --------------------------------------------------------------------------------------------------------- commits


async def observe_commits(
    conn: Connection,
    groups: Sequence[str],
    topic: str,
    partitions: Iterable[int],
    *,
    kinds: Mapping[str, str] | None = None,
    in_flight: int = IN_FLIGHT,
    timeout_s: float | None = None,
) -> dict[str, GroupCommits]:
    """Committed offsets of each group on each partition asked, with pending ones told apart (``require_stable``).

    ``kinds``: group -> kind where it is known. Share groups keep share-partition offsets instead, see
    :func:`_share_commits`; OffsetFetch answers *never committed* for them, so a group of unknown kind without any
    commit is asked whether it is one.
    At most ``in_flight`` requests are under way. A group or partition that fails carries its error.
    """
    from confluent_kafka import TopicPartition

    bound = conn.timeout_s if timeout_s is None else timeout_s
    wanted = sorted(set(partitions))
    known = kinds or {}
    shared = [g for g in dict.fromkeys(groups) if known.get(g) == "share"]
    others = [g for g in dict.fromkeys(groups) if known.get(g) != "share"]
    tps = [TopicPartition(topic, p) for p in wanted]
    out: dict[str, GroupCommits] = {}
    jobs: list[Any] = [_plain_commits(conn, others, tps, bound, in_flight, out)]
    if shared:
        jobs.append(_share_commits(conn, shared, topic, wanted, out))
    await asyncio.gather(*jobs)
    maybe = [g for g in others if g not in known and _empty(out[g])]
    if maybe:
        described = await asyncio.to_thread(_describe_all, conn, "share", maybe)
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


async def _plain_commits(
    conn: Connection,
    groups: list[str],
    tps: list[Any],
    bound: float,
    in_flight: int,
    out: dict[str, GroupCommits],
) -> None:
    """Groups in batches of ``in_flight``; those whose coordinator moves once more, then they carry the error."""
    left = groups
    for attempt in range(2):
        again: list[str] = []
        for start in range(0, len(left), in_flight):
            batch = left[start : start + in_flight]
            futures = {g: _ask_commits(conn, g, tps, bound, stable=True) for g in batch}
            await settle([f for f in futures.values() if not isinstance(f, str)], bound + 1.0)
            for group, future in futures.items():
                found, error, code = _answer(conn, group, future)
                if found is None and code in _MOVING:
                    again.append(group)
                out[group] = _parse(group, tps, found, f"{code}: {error}")
        left = again
        if not left or attempt:
            break
        await asyncio.sleep(_PAUSE_S)
    pending = {g: c.unstable for g, c in out.items() if c.unstable}
    for group, unstable in pending.items():
        # What stands beside the pending commit, for showing the lag; the verdict does not depend on it.
        future = _ask_commits(conn, group, [tp for tp in tps if tp.partition in unstable], bound, stable=False)
        if not isinstance(future, str):
            await settle([future], bound + 1.0)
        found, _, _ = _answer(conn, group, future)
        shown = {tp.partition: tp.offset if tp.error is None and tp.offset >= 0 else None for tp in found or ()}
        out[group] = replace(out[group], offsets={**out[group].offsets, **shown})


def _ask_commits(conn: Connection, group: str, tps: list[Any], bound: float, *, stable: bool) -> Any:
    """The future of one request, or why it cannot even be sent."""
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException

    try:
        return conn.native.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, tps)], require_stable=stable, request_timeout=bound
        )[group]
    except (KafkaException, ValueError, TypeError) as exc:
        return str(exc)


def _answer(conn: Connection, group: str, future: Any) -> tuple[list[Any] | None, str, str]:
    if isinstance(future, str):
        return None, future, "INVALID_GROUP_ID"
    result, error, code = outcome(conn, future, operation="DESCRIBE", resource=f"group {group}")
    return (None, str(error), code) if result is None else (list(result.topic_partitions), "", "")


def _parse(group: str, tps: list[Any], found: list[Any] | None, failure: str) -> GroupCommits:
    if found is None:
        return GroupCommits(group, {}, error=failure)
    offsets: dict[int, int | None] = {}
    errors: dict[int, str] = {}
    unstable: set[int] = set()
    for tp in found:
        wrong = tp.error
        if wrong is None:
            offset = tp.offset
            offsets[tp.partition] = offset if offset >= 0 else None
        elif wrong.name() == "UNSTABLE_OFFSET_COMMIT":
            unstable.add(tp.partition)
        else:
            errors[tp.partition] = f"{wrong.name()}: {wrong.str()}"
    if len(offsets) + len(errors) + len(unstable) < len(tps):
        for p in {tp.partition for tp in tps} - offsets.keys() - errors.keys() - unstable:
            errors[p] = "the coordinator did not answer for this partition"
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
            out[group] = GroupCommits(group, {}, error=str(row or "the coordinator did not answer"))
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
        for row in _at_coordinators(admin, groups, request):
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
        answer = _python_known(conn, ask, groups)
    except TopicshiftError as exc:
        return dict.fromkeys(groups, exc)
    unsupported = Unreadable("this broker does not tell the offsets of share groups (DescribeShareGroupOffsets)")
    return {g: (unsupported if r is None else r) for g, r in answer.items()}


def alter_commits(conn: Connection, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Set a group's offsets. Raises ``Refused`` while the group has members; any partition that fails raises."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    if not offsets:
        return
    tps = [TopicPartition(topic, p, o) for p, o in sorted(offsets.items())]
    future = conn.native.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, tps)], request_timeout=conn.timeout_s
    )[group]
    result = conn.result(future, operation="READ", resource=f"group {group}")
    bad = {tp.partition: f"{tp.error.name()}: {tp.error.str()}" for tp in result.topic_partitions if tp.error}
    if bad:
        raise Refused(
            f"The offsets of group {group} on {topic} were not all set: {bad}. Set them again once it is stopped."
        )


class GroupsReader:
    """The group methods of :class:`topicshift.ports.ClusterAdmin`, from plain code."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def groups(self) -> list[GroupInfo]:
        """Every group that the brokers list, of every kind, without members. Raises ``Unreadable``."""
        return _list(self._connection)

    def describe_groups(self, groups: Sequence[str]) -> dict[str, GroupInfo]:
        """See :func:`read_groups`."""
        return read_groups(self._connection, groups)

    def commits(self, groups: Sequence[str], topic: str, partitions: Sequence[int]) -> dict[str, GroupCommits]:
        """See :func:`observe_commits`."""
        return run(observe_commits(self._connection, groups, topic, partitions))

    def alter_commits(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """See :func:`alter_commits`."""
        alter_commits(self._connection, group, topic, offsets)
