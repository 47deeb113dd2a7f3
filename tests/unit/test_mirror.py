"""What MirrorMaker 2 copies, and where it begins, by its settings and offsets alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicshift.core.drain.evidence import ReaderEvidence, as_group
from topicshift.core.kafka import mirror
from topicshift.core.kafka.mirror import Flow, read_flow

SOURCE, TARGET = "payments", "payments-v2"
CLASS = {"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector"}
ALIASES = {"source.cluster.alias": "here", "target.cluster.alias": "there"}


def flow(**config: str) -> Flow:
    found = read_flow("w", "c", "m", {**CLASS, **ALIASES, **{k.replace("_", "."): v for k, v in config.items()}})
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("config", "topic", "copies"),
    [
        ({}, SOURCE, True),  # .* by default
        ({"topics": "payments"}, SOURCE, True),
        ({"topics": "payments"}, TARGET, False),
        ({"topics": "orders, payments.*"}, TARGET, True),
        ({"topics": "pay"}, SOURCE, False),  # whole
        ({"topics": ""}, SOURCE, False),
        ({"topics": ".*", "topics_exclude": "payments-v2"}, TARGET, False),
        ({"topics": ".*", "topics_exclude": "payments-v[0-9]"}, SOURCE, True),
        ({}, "mm2-status.here.internal", False),
        ({}, "orders-internal", False),
        ({}, "__consumer_offsets", False),
        ({}, "old.replica", False),
        ({}, "there.payments", False),  # it came from there
        ({}, "else.there.payments", False),
        ({}, "else.payments", True),
        ({"replication_policy_class": "x.IdentityReplicationPolicy"}, "there.payments", True),
        ({"topics": r"\Qpayments\E"}, SOURCE, None),  # Java's alone
        ({"topics": "[a-z&&[^q]]*"}, SOURCE, None),
        ({"topics": r"payments,\Qx\E"}, SOURCE, True),
        ({"topics_exclude": r"\Qx\E"}, SOURCE, None),
        ({"topic_filter_class": "x.Mine"}, SOURCE, None),
        ({"topic_filter_class": "org.apache.kafka.connect.mirror.DefaultTopicFilter"}, SOURCE, True),
        ({"enabled": "false"}, SOURCE, False),
    ],
)
def test_what_it_copies_is_told_by_its_patterns(config: dict[str, str], topic: str, copies: bool | None) -> None:
    assert flow(**config).copies(topic) is copies


def test_patterns_that_cover_a_topic_are_named_and_its_own_name_is_none() -> None:
    mirrors = flow(topics=r"payments, pay.*, orders, \Qa\E")
    assert mirrors.patterns(SOURCE) == ["pay.*", r"\Qa\E"] and mirrors.by_name(SOURCE)
    assert flow(topics="pay.ments").patterns("pay.ments") == []
    assert flow(topics="pay.ments").patterns("payXments") == ["pay.ments"]


@pytest.mark.parametrize(
    ("policy", "remote", "writes"),
    [
        ({}, "here.payments", "here.payments"),
        ({"replication_policy_separator": "_"}, "here_payments", "here_payments"),
        ({"replication_policy_class": "a.IdentityReplicationPolicy"}, SOURCE, SOURCE),
    ],
)
def test_the_name_of_its_copy_is_told_by_its_policy(policy: dict[str, str], remote: str, writes: str) -> None:
    mirrors = flow(topics=SOURCE, **policy)
    assert mirrors.remote(SOURCE) == remote and mirrors.writes(writes)
    assert not mirrors.writes("here.orders") and not mirrors.writes("payments2")
    assert flow(replication_policy_class="a.Mine").remote(SOURCE) is None


def test_connectors_of_other_kinds_are_no_flows() -> None:
    assert read_flow("w", "c", "x", {"connector.class": "FileStreamSource", "topic": SOURCE}) is None
    for short in ("MirrorSourceConnector", "MirrorSource"):
        assert mirror.kind_of({"connector.class": short}) == "source"
    assert mirror.kind_of({"connector.class": "a.MirrorCheckpointConnector"}) == "checkpoint"
    assert mirror.kind_of({"connector.class": "a.MirrorHeartbeatConnector"}) == ""


def test_which_cluster_it_copies_is_told_by_an_address_alone() -> None:
    mirrors = flow(source_cluster_bootstrap_servers="B1:9092, b2:9092")
    assert mirrors.reads_from(["b0:9092", "b1:9092"]) and not mirrors.reads_from(["b1:9093"])


def test_an_offset_that_is_reset_to_the_latest_is_found() -> None:
    assert mirror.begins_elsewhere({}) == "" == mirror.begins_elsewhere({"consumer.auto.offset.reset": "Earliest"})
    for key in ("source.cluster", "consumer", "source.consumer"):
        assert mirror.begins_elsewhere({f"{key}.auto.offset.reset": "latest"}) == f"{key}.auto.offset.reset=latest"


# ------------------------------------------------------------------------------------------------------- offsets


def entry(partition: int, offset: Any, topic: str = SOURCE, cluster: str = "here") -> dict[str, Any]:
    return {"partition": {"cluster": cluster, "topic": topic, "partition": partition}, "offset": offset}


def test_a_position_is_the_offset_after_the_last_one_copied_under_the_present_alias() -> None:
    answer = {
        "offsets": [entry(0, {"offset": 4}), entry(1, {"offset": 9}, cluster="old"), entry(0, {"offset": 7}, TARGET)]
    }
    assert mirror.positions(answer, "here", SOURCE) == {0: 5}
    for wrong in ({}, None, {"offsets": [{"partition": {}}]}, {"offsets": 3}):
        with pytest.raises(ValueError, match="not the offsets"):
            mirror.positions(wrong, "here", SOURCE)


@given(st.dictionaries(st.integers(0, 9), st.integers(0, 1000)))
def test_what_is_set_is_what_is_read_after_it(offsets: dict[int, int]) -> None:
    entries = mirror.change("here", SOURCE, offsets)
    now = [e for e in entries if e["offset"] is not None]
    assert mirror.positions({"offsets": now}, "here", SOURCE) == {p: o for p, o in offsets.items() if o}
    assert all(e["offset"] is None or e["offset"]["offset"] >= 0 for e in entries), "Connect refuses a negative one"


@pytest.mark.parametrize(
    ("own", "kept", "starts", "set_"),
    [
        ({}, {0: 0, 1: 0}, {0: 0, 1: 0}, {}),  # a new target: it has none, and begins at the log start
        ({0: 7}, {0: 0}, {0: 0}, {0: 0}),  # of an earlier topic of that name
        ({0: 7, 9: 3}, {0: 0}, {0: 0}, {0: 0, 9: 0}),  # which had more partitions
        ({}, {0: 5}, {0: 5}, {0: 5}),
        ({0: 5}, {0: 5}, {0: 5}, {}),
        ({0: 8}, {0: 8, 1: None}, {0: 0, 1: 0}, {}),  # on its way back: its own word stands
        ({0: 8}, {0: 9}, {0: 0}, {}),  # up to the fence there was a marker
        ({}, {0: 9}, {0: 0}, {0: 9}),  # its offsets are gone
    ],
)
def test_which_offsets_have_to_be_set(own: Any, kept: Any, starts: Any, set_: Any) -> None:
    assert mirror.to_set(own, kept, starts) == set_


def test_what_is_gone_before_it_was_copied_is_found() -> None:
    assert mirror.skips({0: 3, 1: 5, 2: 0}, {0: 5, 1: 5, 2: 0, 3: 9}) == {0: (3, 5)}


def test_of_a_partition_without_an_offset_nothing_was_copied() -> None:
    """An empty partition never gets an offset, and is no missing evidence."""
    told = ReaderEvidence(reader="dr", kind="connect", topic=SOURCE, offsets={1: 4})
    assert as_group(told, topic=SOURCE, topic_id=None, partitions=3).committed == {1: 4}
    whole = told.model_copy(update={"from_start": True})
    assert as_group(whole, topic=SOURCE, topic_id=None, partitions=3).committed == {0: 0, 1: 4, 2: 0}
