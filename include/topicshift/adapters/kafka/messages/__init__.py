"""Messages of Kafka's protocol that kafka-python 3.0 does not bring: the describes of newer kinds of group.

The JSON files beside this one state names, types and versions of the fields, in the form in which kafka-python reads
Kafka's own protocol (APIs 69, 77, 89 and 90 of Kafka 4.3; KIP-848, KIP-932, KIP-1071, KIP-1226).
"""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage

_HERE = __name__


class ConsumerGroupDescribeRequest(ApiMessage, load_json=_HERE):  # type: ignore[misc, call-arg]
    """Describe groups of the KIP-848 consumer protocol."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=_HERE):  # type: ignore[misc, call-arg]
    """Its answer: members with subscription and assignment."""


class ShareGroupDescribeRequest(ApiMessage, load_json=_HERE):  # type: ignore[misc, call-arg]
    """Describe share groups."""


class ShareGroupDescribeResponse(ApiMessage, load_json=_HERE):  # type: ignore[misc, call-arg]
    """Its answer: members with subscription and assignment."""


class StreamsGroupDescribeRequest(ApiMessage, load_json=_HERE):  # type: ignore[misc, call-arg]
    """Describe groups of the streams protocol."""


class StreamsGroupDescribeResponse(ApiMessage, load_json=_HERE):  # type: ignore[misc, call-arg]
    """Its answer: the topology's source topics, and members with their tasks."""


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=_HERE):  # type: ignore[misc, call-arg]
    """Ask for the share-partition start offsets of share groups."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=_HERE):  # type: ignore[misc, call-arg]
    """Its answer: per partition the first offset that is not finally dealt with."""


__all__ = [
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    "DescribeShareGroupOffsetsRequest",
    "DescribeShareGroupOffsetsResponse",
    "ShareGroupDescribeRequest",
    "ShareGroupDescribeResponse",
    "StreamsGroupDescribeRequest",
    "StreamsGroupDescribeResponse",
]
