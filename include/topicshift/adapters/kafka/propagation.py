"""Wait until every live broker shows a change.

The controller answers as soon as a change is committed. Each broker takes it over a moment later, and a reading goes
to whichever broker the client happens to choose: right after an accepted change it may still tell the old state, and a
broker that lags still serves by it (a DENY that it does not know yet denies nobody). So brokers are asked one by one.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from topicshift.adapters.kafka.connection import Connection
from topicshift.adapters.kafka.python_client import ask_node, live_brokers
from topicshift.core.errors import AccessDenied, TopicshiftError, Transient
from topicshift.core.kafka.cluster import Acl

Shows = Callable[[Any, int], bool]
"""Asks one broker (kafka-python's admin client, node id) whether it shows the change."""

_FIRST_PAUSE_S = 0.01
_PAUSE_S = 0.2
_LIVE_S = 0.5
_ADDED_BY_ALTER_CONFIGS = 1  # DescribeConfigs: source DYNAMIC_TOPIC_CONFIG


def until_everywhere(conn: Connection, shows: Shows, *, what: str, operation: str, resource: str) -> None:
    """Return once every live broker has shown the change; all are asked at the same time.

    ``what`` says what was accepted (``The deletion of topic a``), ``operation`` and ``resource`` what a look takes.
    A broker that leaves the cluster meanwhile is not waited for. Raises ``Transient`` with the brokers that do not
    show it within the connection's time-out, ``AccessDenied`` where looking is not allowed.
    """
    Watch(
        lambda node: _live(conn, node, operation, resource),
        lambda node: conn_asks(conn, shows, node, operation, resource),
        time_out_s=conn.timeout_s,
    ).wait(what)


def conn_asks(conn: Connection, shows: Shows, node: int, operation: str, resource: str) -> bool:
    """One look at one broker. Raises typed errors."""
    from kafka.errors import KafkaError

    try:
        return shows(conn.kafka_python, node)
    except (KafkaError, OSError, ValueError) as exc:
        raise conn.error(exc, operation=operation, resource=resource) from None


class Watch:
    """Looks at brokers until each live one has shown what is waited for.

    Args:
        live: the ids of the brokers that are live, as the given one tells; of None: as they are known, asking nobody.
        look: whether a broker shows it. Raises ``AccessDenied`` to end all, any other typed error to be asked again.
        time_out_s: how long all of it may take, in seconds.
    """

    def __init__(
        self, live: Callable[[int | None], Iterable[int]], look: Callable[[int], bool], *, time_out_s: float
    ) -> None:
        self._live = live
        self._look = look
        self._deadline = time.monotonic() + time_out_s
        self._time_out_s = time_out_s
        self._changed = threading.Condition()
        self._asked: set[int] = set()
        self._shown: set[int] = set()
        self._why: dict[int, str] = {}
        self._refused: TopicshiftError | None = None

    def wait(self, what: str) -> None:
        """Wait for all of them; ``what`` is for the message."""
        live, fresh = set(self._live(None)), False
        while True:
            for node in sorted(live - self._asked):
                self._asked.add(node)
                threading.Thread(target=self._until, args=(node,), name=f"topicshift-look-{node}", daemon=True).start()
            with self._changed:
                self._changed.wait_for(lambda live=live: self._refused is not None or live <= self._shown, _LIVE_S)  # type: ignore[misc]
                refused, missing, shown = self._refused, live - self._shown, sorted(self._shown)
            if refused is not None:
                raise refused
            if fresh and not missing:
                return
            if time.monotonic() >= self._deadline:
                raise Transient(self._late(what, missing))
            try:
                # Asked of one that has just answered: any other may hang.
                live, fresh = set(self._live(shown[0] if shown else None)), bool(shown)
            except TopicshiftError:
                fresh = False
                time.sleep(_PAUSE_S)

    def _late(self, what: str, missing: Iterable[int]) -> str:
        nodes = ", ".join(f"{node} ({self._why.get(node, 'still the old state')})" for node in sorted(missing))
        return (
            f"{what} was accepted, but these brokers do not show it within {self._time_out_s:g} s: {nodes}. Until they "
            "do, they serve by the old state. Look after them, and run it again: nothing is done twice."
        )

    def _until(self, node: int) -> None:
        pause = _FIRST_PAUSE_S
        while time.monotonic() < self._deadline:
            try:
                shown, why = self._look(node), "still the old state"
            except AccessDenied as exc:
                self._tell(refused=exc)
                return
            except TopicshiftError as exc:
                shown, why = False, str(exc)
            if shown:
                self._tell(shown=node)
                return
            self._why[node] = why
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_S)

    def _tell(self, *, shown: int | None = None, refused: TopicshiftError | None = None) -> None:
        with self._changed:
            if shown is not None:
                self._shown.add(shown)
            self._refused = self._refused or refused
            self._changed.notify_all()


def _live(conn: Connection, node: int | None, operation: str, resource: str) -> list[int]:
    return conn.bounded(lambda: live_brokers(conn.kafka_python, node), operation=operation, resource=resource)


# ------------------------------------------------------------------------------------------------ what brokers show


def shows_configs(topic: str, set_: Mapping[str, str], unset: Iterable[str]) -> Shows:
    """Whether a broker shows each of ``set_`` as set on the topic, and none of ``unset``."""
    unset = set(unset)
    names = sorted(set(set_) | unset)

    def look(admin: Any, node: int) -> bool:
        from kafka.admin import ConfigResourceType
        from kafka.errors import for_code
        from kafka.protocol.admin import DescribeConfigsRequest

        asked = [(ConfigResourceType.TOPIC, topic, names)]
        request = DescribeConfigsRequest(resources=asked, include_synonyms=False, min_version=1)
        row = ask_node(admin, request, node).results[0]
        if row.error_code:
            raise for_code(row.error_code)(row.error_message)
        here = {c.name: c.value for c in row.configs if c.config_source == _ADDED_BY_ALTER_CONFIGS}
        return all(here.get(k) == v for k, v in set_.items()) and not unset & set(here)

    return look


def shows_acls(acls: Iterable[Acl], *, there: bool) -> Shows:
    """Whether a broker knows every one of these bindings (``there``), or none of them."""
    wanted = set(acls)
    places = sorted({(a.resource_type, a.name, a.pattern) for a in wanted})

    def look(admin: Any, node: int) -> bool:
        known = {acl for place in places for acl in _bindings(admin, node, *place)}
        return wanted <= known if there else not wanted & known

    return look


def _bindings(admin: Any, node: int, resource_type: str, name: str, pattern: str) -> list[Acl]:
    from kafka.admin import ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourceType
    from kafka.errors import for_code
    from kafka.protocol.admin import DescribeAclsRequest

    request = DescribeAclsRequest(
        resource_type_filter=ResourceType[resource_type],
        resource_name_filter=name,
        pattern_type_filter=ACLResourcePatternType[pattern],
        principal_filter=None,
        host_filter=None,
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
        min_version=1,
    )
    answer = ask_node(admin, request, node)
    if answer.error_code:
        raise for_code(answer.error_code)(answer.error_message)
    operations = {op.value: op.name for op in ACLOperation}
    permissions = {p.value: p.name for p in ACLPermissionType}
    return [
        Acl(
            resource_type,
            resource.resource_name,
            pattern,
            acl.principal,
            acl.host,
            operations.get(acl.operation, "UNKNOWN"),
            permissions.get(acl.permission_type, "UNKNOWN"),
        )
        for resource in answer.resources
        for acl in resource.acls
    ]


def shows_topic(name: str, partitions: int) -> Shows:
    """Whether a broker shows the topic with that many partitions, each of them with a leader."""

    def look(admin: Any, node: int) -> bool:
        from kafka.errors import for_code

        row = _described(admin, node, name)
        if row.error_code in (3, 5):  # UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE: not yet
            return False
        if row.error_code:
            raise for_code(row.error_code)(name)
        return len(row.partitions) == partitions and all(not p.error_code for p in row.partitions)

    return look


def shows_no_topic(name: str, topic_id: str) -> Shows:
    """Whether a broker no longer shows this very topic; one made anew under its name does not count."""

    def look(admin: Any, node: int) -> bool:
        from kafka.errors import for_code

        row = _described(admin, node, name)
        if row.error_code == 3:
            return True
        if row.error_code and row.error_code != 5:
            raise for_code(row.error_code)(name)
        # Brokers before Kafka 2.8 name no id.
        found = row.topic_id
        return found is not None and id_text(found.bytes) != topic_id

    return look


def id_text(raw: bytes) -> str:
    """A topic id as Java's tools print it: URL-safe base64 of its 16 bytes, without padding (22 characters)."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def id_bytes(text: str) -> bytes:
    """The 16 bytes of a topic id; the inverse of :func:`id_text`."""
    return base64.urlsafe_b64decode(text + "==")


def _described(admin: Any, node: int, name: str) -> Any:
    from kafka.protocol.metadata import MetadataRequest

    Topic = MetadataRequest.MetadataRequestTopic  # noqa: N806 - the library's name of a class
    request = MetadataRequest(topics=[Topic(name=name)], allow_auto_topic_creation=False, min_version=4)
    return ask_node(admin, request, node).topics[0]
