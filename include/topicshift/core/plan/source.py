"""Whether the source is still the topic that the plan was made for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topicshift.core.kafka.cluster import TopicInfo
from topicshift.core.plan.shapes import SourceFacts
from topicshift.core.plan.target import NOT_COPIED, target_configs
from topicshift.core.proof.verification import same_topic_id

_LOOKED_AFTER = ("retention.ms", "retention.bytes")
"""Configs that the run lengthens and puts back itself, by rules of their own."""


def planned_source(source: SourceFacts | None) -> dict[str, Any]:
    """What the row of the target keeps of the source: ``source_id``, ``source_partitions`` and ``source_configs``."""
    if source is None:
        return {"source_id": None}
    return {
        "source_id": source.topic_id,
        "source_partitions": source.partitions,
        "source_configs": _compared(source.configs),
    }


def source_differs(source: TopicInfo | None, planned: Mapping[str, Any]) -> str:
    """What is no longer as it was when the target was made, as the end of a sentence; empty where nothing is.

    ``planned`` is what ``planned_source`` gave; what it does not say is not compared.
    """
    if source is None:
        return "does not exist any more"
    known = planned.get("source_id")
    if known is not None and not same_topic_id(source.topic_id, str(known)):
        return f"was deleted and made again since the plan was made: its id is {source.topic_id}, and was {known}"
    count = planned.get("source_partitions", source.partitions)
    if source.partitions != count:
        return f"has {source.partitions} partitions now, and had {count} when the plan was made"
    now = _compared(target_configs(source).configs)
    then = planned.get("source_configs", now)
    other = [
        f"{name} {now.get(name, 'not set')} (was {then.get(name, 'not set')})"
        for name in sorted(now.keys() | then.keys())
        if now.get(name) != then.get(name)
    ]
    return f"has other configs than those that the target was made with: {', '.join(other)}" if other else ""


def _compared(configs: Mapping[str, str]) -> dict[str, str]:
    left_out = {*_LOOKED_AFTER, *NOT_COPIED}
    return {name: value for name, value in sorted(configs.items()) if value and name not in left_out}
