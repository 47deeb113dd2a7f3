"""Who reads a topic, and evidence of readers that commit nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from topicshift.adapters.readers import evidence_source
from topicshift.adapters.spark_checkpoint import read_checkpoint
from topicshift.core.drain.discovery import GroupListing, discover, subscribes
from topicshift.core.drain.evidence import (
    ReaderEvidence,
    as_group,
    connect_offsets,
    parse_evidence,
    spark_batch_offsets,
)
from topicshift.core.drain.reasons import Reason
from topicshift.core.errors import SpecError
from topicshift.core.kafka.cluster import GroupCommits, GroupInfo, GroupMember

T = "payments"


def member(topics: tuple[str, ...] = (), assignment: dict[str, tuple[int, ...]] | None = None) -> GroupMember:
    return GroupMember("m", "client", "host", assignment=assignment or {}, topics=topics)


def info(group: str, *members: GroupMember, state: str = "STABLE", error: str | None = None) -> GroupInfo:
    return GroupInfo(group, "classic", state, members, error)


NO_COMMITS = {0: None, 1: None}


def test_commits_members_subscriptions_and_doubt_make_a_reader() -> None:
    described = {
        "commits": info("commits", state="EMPTY"),
        "assigned": info("assigned", member(assignment={T: (0,)})),
        "subscribed": info("subscribed", member(topics=(T,))),
        "pattern": info("pattern", member(topics=("^pay.*",))),
        "elsewhere": info("elsewhere", member(topics=("other",), assignment={"other": (0,)})),
        "hidden": info("hidden", error="GROUP_AUTHORIZATION_FAILED"),
        "pending": info("pending"),
        "unread": info("unread"),
        "idle": info("idle", state="EMPTY"),
    }
    commits = {g: GroupCommits(g, NO_COMMITS) for g in described}
    commits["commits"] = GroupCommits("commits", {0: 0, 1: None})
    commits["pending"] = GroupCommits("pending", NO_COMMITS, unstable=frozenset({1}))
    commits["unread"] = GroupCommits("unread", {0: None}, errors={1: "NOT_COORDINATOR"})
    listing = GroupListing(tuple(described.values()), complete=True)
    found = discover(T, listing, described, commits, declared=None)
    assert set(found.readers) == {"commits", "assigned", "subscribed", "pattern", "hidden", "pending", "unread"}
    assert found.undeclared == frozenset()
    declared = discover(T, listing, described, commits, declared=["commits"], ignored={"pattern": "a test"})
    assert declared.undeclared == {"assigned", "subscribed", "hidden", "pending", "unread"}
    assert declared.ignored == {"pattern": "a test"}


def test_a_declared_group_that_nobody_knows_is_not_found() -> None:
    described = {"gone": info("gone", state="DEAD"), "here": info("here", state="EMPTY")}
    commits = {g: GroupCommits(g, NO_COMMITS) for g in described}
    found = discover(T, GroupListing((), True), described, commits, declared=["gone", "here"])
    assert found.not_found == {"gone"}
    with_commits = {**commits, "gone": GroupCommits("gone", {0: 3})}
    assert discover(T, None, described, with_commits, declared=["gone"]).not_found == frozenset()
    in_doubt = {"gone": info("gone", state="UNKNOWN", error="timed out")}
    assert discover(T, None, in_doubt, {}, declared=["gone"]).not_found == frozenset()


def test_the_listing_is_gone_through_a_fixed_number_of_times() -> None:
    walks = 0

    class Listed(tuple[GroupInfo, ...]):
        def __iter__(self) -> Iterator[GroupInfo]:
            nonlocal walks
            walks += 1
            return super().__iter__()

    names = [f"g{n}" for n in range(50)]
    commits = {g: GroupCommits(g, {0: 1}) for g in names}
    found = discover(T, GroupListing(Listed(info(g) for g in names), True), {}, commits, declared=None)
    assert len(found.readers) == 50
    assert walks <= 2, "for each group it would cost the square of their number"


def test_a_filtered_listing_is_passed_on() -> None:
    found = discover(T, GroupListing((), False, "no DESCRIBE"), {}, {}, declared=[])
    assert (found.complete, found.why_incomplete) == (False, "no DESCRIBE")


def test_patterns() -> None:
    assert subscribes("^pay.*", T)
    assert subscribes("^(?:(^pay.*))$", T)
    assert not subscribes("^pay", T)
    assert not subscribes("pay.*", T)
    assert subscribes("^(unclosed", T), "a pattern that cannot be read may cover the topic"


# ---------------------------------------------------------------------------------------------------------- evidence


def group_of(evidence: ReaderEvidence, fence_at: datetime | None = None) -> Reason | None:
    return as_group(evidence, topic=T, topic_id="id", partitions=2, fence_at=fence_at).problem


def test_evidence_must_be_of_this_topic_and_name_offsets() -> None:
    good = ReaderEvidence(reader="r", kind="flink", topic=T, topic_id="id", offsets={0: 5})
    view = as_group(good, topic=T, topic_id="id", partitions=2)
    assert (view.problem, view.committed, view.evidence) == (None, {0: 5}, True)
    assert group_of(good.model_copy(update={"topic_id": "old"})) is Reason.EVIDENCE_OUTDATED
    assert group_of(good.model_copy(update={"topic": "other"})) is Reason.EVIDENCE_OUTDATED
    assert group_of(good.model_copy(update={"offsets": {}})) is Reason.EVIDENCE_MISSING
    assert group_of(good.model_copy(update={"error": "gone"})) is Reason.EVIDENCE_MISSING


def test_a_statement_needs_a_name_a_time_and_a_fence_before_it() -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    word = ReaderEvidence(reader="r", kind="person", topic=T, statement="done", by="ops", taken_at=at.isoformat())
    assert group_of(word, at - timedelta(seconds=1)) is None
    assert group_of(word, at + timedelta(seconds=1)) is Reason.EVIDENCE_OUTDATED
    assert group_of(word, None) is Reason.EVIDENCE_OUTDATED
    assert group_of(word.model_copy(update={"by": None}), at) is Reason.EVIDENCE_MISSING
    assert group_of(word.model_copy(update={"taken_at": "2026-03-01T00:00:00"}), at) is Reason.EVIDENCE_MISSING


def test_evidence_files_say_what_is_wrong() -> None:
    with pytest.raises(SpecError, match="line 1"):
        parse_evidence("{", name="e.json")
    with pytest.raises(SpecError, match="nested too deeply"):
        parse_evidence("[" * 100_000, name="e.json")
    with pytest.raises(ValueError, match="nested too deeply"):
        spark_batch_offsets("v1\n{}\n" + "[" * 100_000, "t")
    with pytest.raises(SpecError, match="kind"):
        parse_evidence('{"reader": "r", "topic": "t"}', name="e.json")
    assert len(parse_evidence('[{"reader": "r", "kind": "flink", "topic": "t", "offsets": {"0": 1}}]', name="e")) == 1


BATCH = 'v1\n{"batchWatermarkMs":0,"conf":{}}\n'


def test_spark_offsets_take_the_lowest_of_several_sources() -> None:
    text = BATCH + f'{{"{T}":{{"0":5,"1":2}}}}\n-\n{{"other":{{"0":1}},"{T}":{{"1":1}}}}\n{{"logOffset":3}}'
    assert spark_batch_offsets(text, T) == {0: 5, 1: 1}
    with pytest.raises(LookupError):
        spark_batch_offsets(BATCH + '{"other":{"0":1}}', T)
    for torn in ("", "v1", "v1\n{}", "{}", BATCH + f'{{"{T}":{{"0":null}}}}', BATCH + f'{{"{T}":{{"x":1}}}}'):
        with pytest.raises(ValueError):
            spark_batch_offsets(torn, T)


def test_spark_offsets_of_the_second_format_stand_behind_the_id_or_name_of_their_source() -> None:
    head = 'v2\n{"batchWatermarkMs":0,"conf":{"a:b":"c"},"sourceMetadataInfo":{}}\n'
    text = head + f'0:{{"{T}":{{"0":5,"1":2}}}}\norders_in:-\nlate:{{"other":{{"0":1}},"{T}":{{"1":1}}}}\n3:7'
    assert spark_batch_offsets(text, T) == {0: 5, 1: 1}
    with pytest.raises(LookupError):
        spark_batch_offsets(head + '0:{"other":{"0":1}}', T)
    with pytest.raises(ValueError, match="not JSON"):
        spark_batch_offsets(head + f'{{"{T}":{{"0":5}}}}', T)


def test_a_format_of_spark_that_is_not_known_is_named(tmp_path: Path) -> None:
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "0").write_text(f'v3\n{{}}\n{{"{T}":{{"0":5}}}}')
    found = read_checkpoint("q", str(tmp_path), T)
    assert found.offsets == {} and "format v3, and this version of Topicshift reads v1 and v2" in (found.error or "")


def test_a_checkpoint_counts_up_to_its_last_finished_batch(tmp_path: Path) -> None:
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    for batch, offset in enumerate((3, 7, 9)):
        (tmp_path / "offsets" / str(batch)).write_text(BATCH + json.dumps({T: {"0": offset}}))
    (tmp_path / "offsets" / ".2.crc").write_text("x")
    assert "no finished batch" in (read_checkpoint("q", str(tmp_path), T).error or "")
    for batch in (0, 1):
        (tmp_path / "commits" / str(batch)).write_text("v1\n{}")
    assert read_checkpoint("q", str(tmp_path), T).offsets == {0: 7}
    assert read_checkpoint("q", f"file://{tmp_path}", T).offsets == {0: 7}
    assert "no source" in (read_checkpoint("q", str(tmp_path), "other").error or "")
    assert "missing" in (read_checkpoint("q", str(tmp_path / "no"), T).error or "")
    (tmp_path / "offsets" / "1").write_text("broken")
    assert "batch 1" in (read_checkpoint("q", str(tmp_path), T).error or "")


def test_connect_offsets_of_sinks_and_of_mirrors() -> None:
    sink = {"partition": {"kafka_topic": T, "kafka_partition": 1}, "offset": {"kafka_offset": 4}}
    mirror = {"partition": {"cluster": "a", "topic": T, "partition": 0}, "offset": {"offset": 4}}
    other = {"partition": {"kafka_topic": "other", "kafka_partition": 0}, "offset": {"kafka_offset": 9}}
    assert connect_offsets({"offsets": [sink, mirror, other]}, T) == {1: 4, 0: 5}
    with pytest.raises(ValueError, match="offsets"):
        connect_offsets({}, T)


def test_declared_readers_are_read_anew_each_time(tmp_path: Path) -> None:
    file = tmp_path / "flink.json"
    readers = [
        {"name": "job", "kind": "evidence_file", "location": str(file)},
        {"name": "query", "kind": "spark_checkpoint", "location": str(tmp_path / "no")},
    ]
    read = evidence_source(readers, T)
    assert read is not None
    assert [bool(e.error) for e in read()] == [True, True]
    file.write_text(json.dumps([{"reader": "job", "kind": "flink", "topic": T, "offsets": {"0": 5}}]))
    assert read()[0].offsets == {0: 5}
    file.write_text(json.dumps([{"reader": "other", "kind": "flink", "topic": T, "offsets": {"0": 5}}]))
    assert "nothing of job" in (read()[0].error or "")
    file.write_text("{")
    assert "not JSON" in (read()[0].error or "")
    assert evidence_source([], T) is None
