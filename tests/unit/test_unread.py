"""What passes by itself is tried again; a missing right, or an answer that is not there at all, is final."""

from __future__ import annotations

import pytest

from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.core.errors import Transient, Unreadable
from topicshift.core.kafka.cluster import GroupCommits, GroupInfo, PartitionOffsets, error_of_unread

ELECTION = PartitionOffsets(None, None, None, "NOT_LEADER_FOR_PARTITION", passing=True)
DENIED = PartitionOffsets(None, None, None, "TOPIC_AUTHORIZATION_FAILED")
MOVES = GroupCommits("g", {}, error="coordinator of g moves", passing=True)
LATE = GroupInfo("g", "classic", "UNKNOWN", error="no answer now", passing=True)


@pytest.mark.parametrize(
    ("unread", "kind"),
    [
        ([ELECTION], Transient),
        ([ELECTION, MOVES, LATE], Transient),
        ([ELECTION, DENIED], Unreadable),
        ([None], Unreadable),
        ([GroupInfo("g", "classic", "UNKNOWN", error="no DESCRIBE on the group")], Unreadable),
        ([GroupCommits("g", {0: 1}, {1: "TopicAuthorizationFailedError"})], Unreadable),
    ],
)
def test_the_kind_of_error_says_whether_it_is_tried_again(unread: list, kind: type[Unreadable]) -> None:  # type: ignore[type-arg]
    assert error_of_unread(*unread) is kind


def test_what_no_broker_answers_passes() -> None:
    """By the real client: a cluster whose brokers are all away for a moment ends no act for good."""
    with KafkaAdmin({"bootstrap.servers": "127.0.0.1:1"}, timeout_s=1.0) as admin:
        commits = admin.commits(["g"], "payments", [0])["g"]
        group = admin.describe_groups(["g"])["g"]
    assert commits.error and error_of_unread(commits) is Transient
    assert group.error and error_of_unread(group) is Transient
