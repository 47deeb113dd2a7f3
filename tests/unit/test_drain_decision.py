"""The drain decision on plain values: what the property test does not name one by one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from topicshift.core.drain.certificate import DrainCertificate, Verdict
from topicshift.core.drain.decision import (
    GroupView,
    Snapshot,
    Tail,
    TailRange,
    certify,
    in_doubt,
    lost_now,
    summary,
)
from topicshift.core.drain.reasons import ALARMS, REASONS, Alarm, Reason, explain, tagged
from topicshift.core.kafka.cluster import PartitionOffsets

NOW = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)


def snap(
    offsets: tuple[int, int, int] = (0, 10, 10), committed: int | None = 10, tail: Tail | None = None, **changes: object
) -> Snapshot:
    start, stable, end = offsets
    tails = {}
    if tail is not None:
        lowest = start if committed is None else max(committed, start)
        tails = {TailRange(0, lowest, min(end, stable)): tail}
    base = Snapshot(
        topic="t",
        topic_id="id",
        partitions=1,
        offsets={0: PartitionOffsets(*offsets)},
        groups=[GroupView("g", committed={0: committed})],
        taken_at=NOW,
        tails=tails,
    )
    return replace(base, **changes)


def reason(snapshot: Snapshot) -> str:
    return certify(snapshot).groups[0].partitions[0].reason


FOUND = Tail(found=True, complete=True, records=2)
NOTHING = Tail(found=False, complete=True, records=0)


@pytest.mark.parametrize(
    ("snapshot", "wanted"),
    [
        (snap(), "at_end"),
        (snap(committed=8), "behind"),
        (snap(committed=8, tail=FOUND), "unread"),
        (snap(committed=8, tail=NOTHING), "nothing_readable"),
        (snap(committed=8, tail=Tail(found=False, complete=False)), "tail_unfinished"),
        (snap(committed=8, tail=Tail(found=False, complete=False, error="denied")), "tail_unreadable"),
        (snap(committed=8, tail=Tail(found=True, complete=False, error="timed out")), "unread"),
        (snap(committed=8, tail=Tail(found=False, complete=True, records=3)), "tail_unfinished"),
        (snap((0, 7, 10), committed=8), "open_transaction"),
        (snap((0, 7, 10), committed=10), "open_transaction"),
        (snap((4, 10, 10), committed=2, tail=NOTHING), "lost_unread"),
        (snap((4, 10, 10), committed=2, tail=FOUND), "lost_and_unread"),
        (snap((4, 10, 10), committed=2), "lost_and_unread"),
        (snap((10, 10, 10), committed=2, accepted_lost=frozenset({"g"})), "lost_accepted"),
        (snap((0, 0, 0), committed=None), "empty"),
        (snap((5, 5, 5), committed=None), "never_committed_expired"),
        (snap(committed=None), "never_committed"),
        (snap(committed=None, tail=NOTHING), "nothing_readable"),
        (snap(committed=11), "committed_beyond_end"),
        (snap(committed=-5), "commit_unreadable"),
        (snap(fence={0: 10}), "at_end"),
        (snap(fence={0: 9}), "source_grew"),
        (snap(fence={0: 11}), "end_below_fence"),
        (snap(fence={1: 10}), "fence_incomplete"),
        (snap(fence={0: 10}, fence_topic_id="other"), "topic_remade"),
        (snap(fence={0: 10}, fence_topic_id="id"), "at_end"),
        (snap(offsets=(0, 10, 10), known_lost=frozenset({("g", 0)})), "lost_unread"),
    ],
)
def test_one_partition(snapshot: Snapshot, wanted: str) -> None:
    assert reason(snapshot) == wanted


def test_ends_read_one_after_the_other_on_a_growing_log_hold_together() -> None:
    # END_C was read after END_U, while producers wrote: the higher answer is as true.
    assert reason(snap((0, 12, 10), committed=12)) == "at_end"
    assert reason(snap((0, 12, 10), committed=11, tail=FOUND)) == "behind"


def test_every_partition_has_a_row_even_when_nothing_was_read() -> None:
    certificate = certify(replace(snap(), partitions=3))
    assert [(r.partition, r.reason) for r in certificate.groups[0].partitions] == [
        (0, "at_end"),
        (1, "partition_unreadable"),
        (2, "partition_unreadable"),
    ]
    assert certificate.verdict is Verdict.UNKNOWN


def test_no_group_is_no_yes() -> None:
    certificate = certify(snap(groups=[]))
    assert (certificate.verdict, certificate.reasons) == (Verdict.UNKNOWN, ["no_groups"])


def test_topic_level_reasons_weigh_on_the_whole() -> None:
    drained = snap()
    for change, verdict, entry in [
        ({"undeclared": frozenset({"x"})}, Verdict.NOT_DRAINED, "undeclared_group:x"),
        ({"listing_complete": False}, Verdict.UNKNOWN, "listing_incomplete"),
        ({"ignored": {"x": "a test"}}, Verdict.DRAINED, "ignored_group:x"),
        ({"topic_id": None}, Verdict.UNKNOWN, "topic_not_found"),
        ({"fence": {0: 10, 5: 1}}, Verdict.UNKNOWN, "fence_incomplete:5"),
    ]:
        certificate = certify(replace(drained, **change))
        assert (certificate.verdict, certificate.reasons) == (verdict, [entry])


def test_a_loss_is_remembered_when_the_commit_has_moved_on() -> None:
    before = snap((4, 10, 10), committed=2)
    known = lost_now(before)
    assert known == {("g", 0)}
    after = snap((4, 10, 10), committed=10, known_lost=known)
    assert reason(after) == "lost_unread"
    assert lost_now(after) == known


def test_drained_groups_share_their_rows() -> None:
    groups = [GroupView(f"g{i}", committed={0: 10}) for i in range(3)]
    rows = [g.partitions[0] for g in certify(snap(groups=groups)).groups]
    assert rows[0] is rows[1] is rows[2]


def test_doubt_is_asked_once_for_all_groups_at_the_same_place() -> None:
    groups = [GroupView(f"g{i}", committed={0: 7}) for i in range(3)]
    doubts = in_doubt(snap(groups=groups))
    assert [d.group for d in doubts] == ["g0", "g1", "g2"]
    assert {d.range for d in doubts} == {TailRange(0, 7, 10)}


def test_summary_names_what_is_left_and_what_a_person_vouched_for() -> None:
    groups = [
        GroupView("a", committed={0: 10}),
        GroupView("b", committed={0: 3}),
        GroupView("c", attested=True, evidence=True),
    ]
    assert summary(certify(snap(groups=groups))) == {"a": {}, "b": {"behind": [0]}, "c": {"attested": [0]}}


def test_json_round_trip() -> None:
    certificate = certify(snap(fence={0: 10}), issued_by="run:1")
    assert DrainCertificate.model_validate_json(certificate.model_dump_json()) == certificate


# ------------------------------------------------------------------------------------------------------------- codes


def test_every_code_has_meaning_and_remedy() -> None:
    assert set(REASONS) == set(Reason)
    assert set(ALARMS) == set(Alarm)
    for told in [*REASONS.values(), *ALARMS.values()]:
        assert told.meaning.endswith((".", "?")) and told.remedy.endswith(".")


def test_entries_are_taken_apart_again() -> None:
    assert explain(tagged(Reason.UNDECLARED_GROUP, "a:b"))[:2] == (Reason.UNDECLARED_GROUP, "a:b")
    assert explain("no_groups")[:2] == (Reason.NO_GROUPS, "")
    with pytest.raises(ValueError, match="nonsense"):
        explain("nonsense")
