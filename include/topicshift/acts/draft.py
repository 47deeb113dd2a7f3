"""Take one look at a topic and everybody on it, for a first spec. Read-only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from topicshift.acts.plan import take_snapshot
from topicshift.core.errors import NotFound, TopicshiftError, Unreadable
from topicshift.core.kafka.connect import Connector, read_connector
from topicshift.core.plan.draft import Connectors, Draft, Wish, draft
from topicshift.core.spec.io import spec_from_params
from topicshift.ports import ClusterAdmin, Controller

Ask = Callable[..., Any]
"""Asks a Connect worker: method and path to its answer."""

_SEEN_FOR_A_PLAN = ("create", "lengthen", "unable", "policy", "migrations", "target_offsets", "target")
"""Parts of a snapshot that a draft does not need."""


def connectors_of(connection: str, ask: Ask) -> Connectors:
    """Every connector of one worker. What cannot be read is named, and hides nothing that could be."""
    try:
        names = [str(n) for n in ask("GET", "/connectors")]
    except TopicshiftError as error:
        return Connectors(connection, unread=" ".join(str(error).split()))
    found: list[Connector] = []
    unread: list[str] = []
    for name in sorted(names):
        try:
            path = f"/connectors/{quote(name, safe='')}"
            found.append(read_connector(ask("GET", f"{path}/status"), ask("GET", f"{path}/config")))
        except NotFound:
            continue  # it was deleted since the list was made
        except (TopicshiftError, ValueError) as error:
            unread.append(f"{name}: {' '.join(str(error).split())}")
    return Connectors(connection, tuple(found), "; ".join(unread))


def draft_spec(
    topic: str,
    admin: ClusterAdmin,
    route: Controller,
    connectors: Sequence[Connectors] | None,
    *,
    wish: Wish,
    impact: Mapping[str, Any] | None = None,
) -> Draft:
    """A first spec for this topic. Raises ``NotFound`` where it does not exist, ``Unreadable`` where that is not known.

    ``impact`` is impact.json, where the keys were measured: its advice is the draft's partition count.
    """
    nobody = {"name": "topicshift-draft", "kind": "route"}
    asking = {
        "source": topic,
        "partitions": 1,
        "producers": [nobody],
        "consumers": [{**nobody, "group": nobody["name"]}],
    }
    seen = take_snapshot(admin, spec_from_params(asking), route=route)
    if seen.source is None or seen.cluster is None:
        why = seen.unread.get("cluster") or seen.unread.get("source")
        if why:
            raise Unreadable(f"{topic} could not be looked at: {why}")
        raise _missing(topic, seen.topics)
    unread = {part: why for part, why in seen.unread.items() if part not in _SEEN_FOR_A_PLAN}
    return draft(topic, replace(seen, unread=unread), connectors, _advised(wish, impact))


def _advised(wish: Wish, impact: Mapping[str, Any] | None) -> Wish:
    from topicshift.core.impact.report import Impact
    from topicshift.core.sizing.choice import choose

    if impact is None or wish.partitions is not None:
        return wish
    choice = choose(Impact.model_validate(dict(impact)))
    if choice.partitions is None:
        return wish
    return replace(wish, partitions=choice.partitions, why="the impact report's advice, by skew alone")


def _missing(topic: str, topics: frozenset[str] | None) -> NotFound:
    from topicshift.acts.open import near_names

    near = ", ".join(near_names(topic, topics or ()))
    hint = f" There are: {near}." if near else ""
    return NotFound(f"Topic {topic!r} does not exist on this cluster (or this principal may not see it).{hint}")
