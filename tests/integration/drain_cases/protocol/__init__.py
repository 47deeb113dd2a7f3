"""The heartbeat of Kafka's streams protocol (API 88, KIP-1071), so that a case can be a member of such a group."""

from kafka.protocol.api_message import ApiMessage


class StreamsGroupHeartbeatRequest(ApiMessage, load_json=__name__):
    """Join a streams group, and stay in it."""


class StreamsGroupHeartbeatResponse(ApiMessage, load_json=__name__):
    """The tasks that the member is given."""
