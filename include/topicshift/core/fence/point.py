"""The fence offsets, as every file and every job names them: one type, one JSON name (``fence_offsets``).

Light on purpose: the certificate, the command line and the Spark jobs need it without the rest of a fence.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from pydantic import ConfigDict, Field, NonNegativeInt, ValidationError

from topicshift.core.base import Model
from topicshift.core.errors import SpecError

if TYPE_CHECKING:
    from topicshift.core.kafka.cluster import PartitionOffsets

FenceOffsets = dict[NonNegativeInt, NonNegativeInt]
"""END_U of every partition at the fence, by partition."""


def ends_elsewhere(
    topic: str, fence: Mapping[int, int], seen: Mapping[int, PartitionOffsets]
) -> tuple[list[int], list[str]]:
    """Partitions whose END_U cannot be told, and one line for each that does not end at its fence."""
    ends = {p: seen[p].end if p in seen else None for p in sorted(fence)}
    unread = [p for p, end in ends.items() if end is None]
    return unread, [
        f"{topic}[{p}] ends at {end}, fence {fence[p]}" for p, end in ends.items() if end not in (None, fence[p])
    ]


class FencePoint(Model):
    """What a fence says to those that rely on it. ``fence.json`` and a certificate up to a fence can be read as one."""

    model_config = ConfigDict(extra="ignore")

    topic: str
    topic_id: str | None = None
    taken_at: datetime | None = None
    fence_offsets: Annotated[FenceOffsets, Field(min_length=1)]

    @classmethod
    def read(cls, data: str | bytes, *, where: str, topic: str) -> FencePoint:
        """The fence of ``topic`` in a file. Raises ``SpecError`` that names the place and what is wrong."""
        try:
            found = cls.model_validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(p) for p in first["loc"]) or "the file"
            raise SpecError(
                f"{where} is no fence: {place}: {first['msg']}. Give fence.json as the fence step wrote it (an object "
                "with topic, topic_id, taken_at and fence_offsets, partition -> END_U), or a drain certificate that "
                "was taken up to a fence."
            ) from None
        if found.topic != topic:
            raise SpecError(f"{where} is of topic {found.topic}, not {topic}. Give the fence of this topic.")
        return found
