"""What Kafka allows in names, and which topics belong to Kafka itself or to its tools.

Sources: ``org.apache.kafka.common.internals.Topic`` (legal characters, 249, ``.`` and ``..``, collision of ``.``
and ``_``, internal topics), KIP-382 (MirrorMaker 2), the worker defaults of Kafka Connect, Kafka Streams' naming
of changelog and repartition topics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_NAME = 249
"""The longest topic name: a folder ``<name>-<partition>`` must fit into 255 bytes."""

ROUTES_TOPIC = "__topicshift_routes"
ACKS_TOPIC = "__topicshift_acks"

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_VERSION = re.compile(r"(?P<stem>.+?)(?P<sep>[-._])v(?P<n>[1-9]\d{0,5})$")
_PRINCIPAL = re.compile(r"[A-Za-z][A-Za-z0-9]*:.+", re.DOTALL)
_KAFKA_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})


def topic_name_problem(name: str) -> str | None:
    """Say what is wrong with a topic's name, or None when Kafka takes it."""
    if not name:
        return "it is empty"
    if name in (".", ".."):
        return f"{name!r} is not a name, it is a folder"
    if len(name) > MAX_NAME:
        return f"it has {len(name)} characters, the most is {MAX_NAME}"
    if _LEGAL.fullmatch(name):
        return None
    bad = sorted({c for c in name if not _LEGAL.fullmatch(c)})
    shown = ", ".join(repr(c) for c in bad[:5])
    return f"it holds {shown}; allowed are letters a-z and A-Z, digits, '.', '_' and '-'"


def metric_name(name: str) -> str:
    """The name under which Kafka's metrics know the topic: ``.`` becomes ``_``."""
    return name.replace(".", "_")


def collides(name: str, others: Iterable[str]) -> list[str]:
    """Those of ``others`` that are not ``name`` but become equal to it once ``.`` is read as ``_``; sorted."""
    mine = metric_name(name)
    return sorted({o for o in others if o != name and metric_name(o) == mine})


def principal_problem(principal: str) -> str | None:
    """Say what is wrong with a principal such as ``User:checkout``, or None."""
    if _PRINCIPAL.fullmatch(principal):
        return None
    return "a principal is written Type:name, for instance User:checkout"


def next_target_name(source: str, taken: Iterable[str]) -> str:
    """The default target: ``payments`` -> ``payments-v2``, ``payments-v2`` -> ``payments-v3``; the first free one.

    ``taken`` are the names that exist or that another migration has claimed; a name that would collide on ``.``
    and ``_`` counts as taken. A source whose name is too long for a suffix is cut to fit.
    """
    found = _VERSION.fullmatch(source)
    stem, sep, n = (found["stem"], found["sep"], int(found["n"]) + 1) if found else (source, "-", 2)
    used = {metric_name(t) for t in taken} | {metric_name(source)}
    while True:
        suffix = f"{sep}v{n}"
        name = stem[: MAX_NAME - len(suffix)] + suffix
        if metric_name(name) not in used:
            return name
        n += 1


def owner_of(name: str) -> tuple[str, bool] | None:
    """Who a topic belongs to when it is not an application's: ``(owner, certain)``, or None.

    ``certain`` is true for the fixed names of Kafka and Topicshift; the others follow a naming habit and may be an
    application's after all.
    """
    if name in _KAFKA_INTERNAL:
        return ("Kafka itself", True)
    if name.startswith("__topicshift"):
        return ("Topicshift itself", True)
    if re.fullmatch(r"mm2-(offset-syncs|offsets|configs|status)(\..+)?|.+\.checkpoints\.internal|heartbeats", name):
        return ("MirrorMaker 2", False)
    if re.fullmatch(r"(.*[-_.])?connect[-_.](.*[-_.])?(configs?|offsets?|status(es)?)", name):
        return ("Kafka Connect", False)
    if name in ("_schemas", "_schemas_temp", "__schemas"):
        return ("the Schema Registry", False)
    if name.endswith(("-changelog", "-repartition")):
        return ("Kafka Streams", False)
    return None
