"""Consumer groups of every kind: list and describe.

All that goes to a group's coordinator goes through kafka-python: it lists groups with their type (share and streams
groups too) and asks for many groups in one request a coordinator. librdkafka sends one request a group, and its admin
calls to coordinators end the whole process (assertion ``eonce->refcnt > 0``) when a connection drops meanwhile.
"""

from __future__ import annotations

import asyncio
import re
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

from topicshift.adapters.kafka.connection import Connection, OfConnection
from topicshift.adapters.kafka.coordinators import PAUSE_S, ask_known, ask_python
from topicshift.adapters.kafka.futures import outcome, run, settle
from topicshift.adapters.kafka.python_client import RETRY, at_coordinators, forget_coordinators
from topicshift.core.drain.discovery import GroupListing
from topicshift.core.errors import AccessDenied, NotFound, TopicshiftError, Transient, Unreadable
from topicshift.core.kafka.cluster import GroupCommits, GroupInfo, GroupMember

_DESCRIBE_AT_ONCE = 250
_NOT_FOUND = 69


def state_name(text: str) -> str:
    """A group's state in Kafka's upper-case spelling: ``PreparingRebalance`` becomes ``PREPARING_REBALANCE``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text or "Unknown").upper()


# ------------------------------------------------------------------------------------------------------------ list


async def observe_listing(conn: Connection) -> GroupListing:
    """Every group that the brokers list, and whether ACLs can be ruled out to have hidden some.

    A broker lists every group to a client with DESCRIBE on the cluster, and to another only those with DESCRIBE on the
    group. DescribeCluster says which operations this client may do. A broker answers for the groups that it coordinates
    at that moment, so a list taken while a coordinator moves may lack some without an error: each broker of a fresh
    description is asked, and the leaders of ``__consumer_offsets`` must all be there and be the same before and after
    (where this client may describe that topic). Raises ``Unreadable`` when no such list can be had in time.
    """
    deadline = time.monotonic() + conn.timeout_s
    while True:
        future = conn.native.describe_cluster(include_authorized_operations=True, request_timeout=conn.timeout_s)
        before, _, _ = await asyncio.gather(
            _offsets_leaders(conn),
            settle([future], conn.timeout_s + 1.0),
            asyncio.to_thread(lambda: conn.kafka_python),  # connects while the native client is waited for
        )
        cluster, error, _ = outcome(conn, future, operation="DESCRIBE", resource="the cluster")
        if error is not None or cluster is None:
            raise error or Unreadable("The cluster could not be described, so its list of groups cannot be trusted.")
        nodes = sorted(n.id for n in cluster.nodes or ())
        listed = await asyncio.to_thread(_list, conn, nodes) if nodes else []
        after = await _offsets_leaders(conn)
        if nodes and before == after and (after is None or None not in after.values()):
            break
        if time.monotonic() + PAUSE_S >= deadline:
            raise Transient(
                f"The brokers at {conn.bootstrap} do not agree on who coordinates the groups (a broker is away or has "
                "just come), so a list of groups may lack some. Wait until every partition of __consumer_offsets has "
                "a leader, and ask again."
            )
        await asyncio.sleep(PAUSE_S)
    allowed = {o.name for o in cluster.authorized_operations or ()}
    complete = bool(allowed & {"DESCRIBE", "ALL"})
    why = "" if complete else "this client has no DESCRIBE on the cluster, so groups may be hidden from it"
    return GroupListing(tuple(listed), complete, why)


async def _offsets_leaders(conn: Connection) -> dict[int, int | None] | None:
    """Leader of each partition of ``__consumer_offsets``; None where it does not exist yet or may not be described."""
    from confluent_kafka import TopicCollection

    name = "__consumer_offsets"
    future = conn.native.describe_topics(TopicCollection([name]), request_timeout=conn.timeout_s)[name]
    await settle([future], conn.timeout_s + 1.0)
    found, error, _ = outcome(conn, future, operation="DESCRIBE", resource=f"topic {name}")
    if isinstance(error, NotFound | AccessDenied):
        return None
    if error is not None or found is None:
        raise error or Unreadable(f"{name} could not be described.")
    return {p.id: None if p.leader is None or p.leader.id < 0 else p.leader.id for p in found.partitions}


def _list(conn: Connection, nodes: list[int]) -> list[GroupInfo]:
    what = "the cluster's groups"
    rows = ask_python(conn, lambda admin: admin.list_groups(broker_ids=nodes), operation="DESCRIBE", resource=what)
    out: dict[str, GroupInfo] = {}
    for row in rows:
        kind = str(row.get("group_type") or row.get("protocol_type") or "classic").lower()
        kind = "classic" if kind in ("unknown", "") else kind
        out[row["group_id"]] = GroupInfo(row["group_id"], kind, state_name(row.get("group_state") or ""))
    return [out[g] for g in sorted(out)]


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
            found |= describe_all(conn, kind, [g for g in wanted if g not in found and told.get(g, kind) == kind])
    return {g: found.get(g) or GroupInfo(g, known.get(g, "classic"), "DEAD") for g in wanted}


def describe_all(conn: Connection, kind: str, groups: list[str]) -> dict[str, GroupInfo]:
    """Those of ``groups`` that are of this kind, or that could not be described."""
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
        return {g: GroupInfo(g, kind, "UNKNOWN", error=str(exc), passing=exc.retryable) for g in groups}
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
        rows, denied = at_coordinators(admin, left, request)
        for name, why in denied.items():
            out[name] = GroupInfo(name, kind, "UNKNOWN", error=f"{why}: no DESCRIBE on the group")
        for row in rows:
            name, code = row.group_id, row.error_code
            if code in RETRY:
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
            forget_coordinators(admin)
            raise errors.NotCoordinatorError(f"coordinator of {again[0]} moves")
        return out

    answer: dict[str, GroupInfo | None] = ask_known(conn, ask, groups)
    return answer


def _foreign(row: Any) -> bool:
    """DescribeGroups answers for a group that is not classic, or not known, with state Dead and no error."""
    return str(row.group_state) == "Dead" and not row.members


def _info(kind: str, row: Any) -> GroupInfo:
    assignor = None
    if kind == "classic":
        members = tuple(_classic_member(m) for m in row.members)
        assignor = row.protocol_data if row.protocol_type == "consumer" else None
    elif kind == "streams":
        subtopologies = row.topology.subtopologies if row.topology is not None else None
        sources = {
            s.subtopology_id: (*s.source_topics, *(t.name for t in s.repartition_source_topics))
            for s in subtopologies or ()
        }
        members = tuple(_streams_member(m, sources) for m in row.members)
    else:
        members = tuple(_member(m) for m in row.members)
        assignor = row.assignor_name
    return GroupInfo(row.group_id, kind, state_name(str(row.group_state)), members, assignor=assignor or None)


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


class GroupsReader(OfConnection):
    """The group methods of :class:`topicshift.ports.ClusterAdmin`, from plain code."""

    def groups(self) -> list[GroupInfo]:
        """Every group that the brokers list, of every kind, without members. Raises ``Unreadable``."""
        return list(run(observe_listing(self.connection)).groups)

    def describe_groups(self, groups: Sequence[str]) -> dict[str, GroupInfo]:
        """See :func:`read_groups`."""
        return read_groups(self.connection, groups)

    def commits(self, groups: Sequence[str], topic: str, partitions: Sequence[int]) -> dict[str, GroupCommits]:
        """See :func:`topicshift.adapters.kafka.commits.observe_commits`."""
        from topicshift.adapters.kafka.commits import observe_commits

        return run(observe_commits(self.connection, groups, topic, partitions))

    def committed_topics(self, groups: Sequence[str]) -> dict[str, frozenset[str]]:
        """See :func:`topicshift.adapters.kafka.commits.committed_topics`."""
        from topicshift.adapters.kafka.commits import committed_topics

        return committed_topics(self.connection, groups)

    def alter_commits(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """See :func:`topicshift.adapters.kafka.commits.alter_commits`."""
        from topicshift.adapters.kafka.commits import alter_commits

        alter_commits(self.connection, group, topic, offsets)
