"""Wrong use of the impact job: said before Spark starts, with the thing that is wrong, and nothing is written."""

from __future__ import annotations

import json
import os
import pwd
from itertools import pairwise
from pathlib import Path

import pytest

import key_rehash_impact as job
from topicshift.core.errors import SpecError
from topicshift_spark.impact_query import RECORDS_PER_TASK, shuffle_partitions
from topicshift_spark.impact_ranges import between, parse_sample, slice_edges
from topicshift_spark.source import Range, client_properties

GOOD = {"--topic": "t", "--candidates": "12", "--bootstrap-server": "localhost:1", "--output": ""}


def parse(tmp_path: Path, **changes: str) -> job.Request:
    options = {**GOOD, "--output": str(tmp_path / "out"), **{f"--{k.replace('_', '-')}": v for k, v in changes.items()}}
    return job.parse([x for pair in options.items() for x in pair])


@pytest.mark.parametrize(
    "text",
    ["", "x", "12,x", "0", "-3", "1.5", "12;24", "100001", "9" * 5000, "١٢", "²", ",".join(map(str, range(1, 60)))],
)
def test_candidates_that_make_no_sense(tmp_path: Path, text: str) -> None:
    with pytest.raises(SpecError, match="--candidates"):
        parse(tmp_path, candidates=text)


def test_counts_that_no_report_could_hold_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    assert sum(parse(tmp_path, candidates="50000,99999,100000").candidates) == 249_999
    with pytest.raises(SpecError, match="together these counts are 299,997 partitions"):
        parse(tmp_path, candidates="100000,99999,99998")


def test_candidates_are_sorted_and_distinct(tmp_path: Path) -> None:
    assert parse(tmp_path, candidates="30, 12,24,12").candidates == (12, 24, 30)


@pytest.mark.parametrize(
    ("option", "value", "say"),
    [
        ("sample", "0", "--sample"),
        ("sample", "120%", "more than everything"),
        ("sample", "many", "--sample"),
        ("sample", "1.5", "--sample"),
        ("from", "yesterday", "--from"),
        ("from", "1969-12-31T23:59:59.999Z", "before 1970"),
        ("top", "0", "--top"),
        ("timeout", "0", "--timeout"),
        ("max_unexplained", "1.5", "--max-unexplained"),
        ("kafka_config", "/nowhere/client.properties", "client properties"),
        ("hash_key_file", "/nowhere/key", "--hash-key-file"),
        ("groups_file", "/nowhere/groups.json", "--groups-file"),
        ("output", "s3://bucket/x", "local folder"),
        ("output", " ", "empty name"),
        ("output", "/proc/impact", "cannot be written"),
    ],
)
def test_each_option_names_itself(tmp_path: Path, option: str, value: str, say: str) -> None:
    with pytest.raises(SpecError, match=say):
        parse(tmp_path, **{option: value})
    assert not any(tmp_path.rglob("*.json"))


def test_times_in_the_wrong_order(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is not before"):
        parse(tmp_path, **{"from": "2026-02-01T00:00:00Z", "to": "2026-01-01"})


def test_unknown_options_end_with_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse(tmp_path, password="hunter2")
    assert end.value.code == 2
    capsys.readouterr()


@pytest.mark.parametrize(
    "groups",
    [
        "[]",
        "{",
        '{"g": 3}',
        '{"g": {"zero": 1}}',
        '{"g": {"0": -1}}',
        '{"g": {"0": true}}',
        '{"g": {"0": "5"}}',
        '{"g": {"²": 1}}',
        '{"g": {"%s": 1}}' % ("9" * 5000),
    ],
)
def test_groups_files_that_make_no_sense(tmp_path: Path, groups: str) -> None:
    file = tmp_path / "groups.json"
    file.write_text(groups)
    with pytest.raises(SpecError, match="--groups-file"):
        parse(tmp_path, groups_file=str(file))


def test_a_short_hash_key_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("short\n")
    with pytest.raises(SpecError, match="16 bytes"):
        parse(tmp_path, hash_key_file=str(file))
    file.write_text("a" * 32)
    names = parse(tmp_path, hash_key_file=str(file)).names
    assert names(b"customer-1") == parse(tmp_path, hash_key_file=str(file)).names(b"customer-1")
    assert "customer" not in names(b"customer-1")
    assert parse(tmp_path).names(b"customer-1") != parse(tmp_path).names(b"customer-1")


def test_keys_are_shown_only_when_asked(tmp_path: Path) -> None:
    shown = job.parse([*(x for pair in {**GOOD, "--output": str(tmp_path)}.items() for x in pair), "--show-keys"]).names
    assert shown("straße".encode()) == "straße"
    assert shown(b"\x00\xff") == "0x00ff"
    assert len(shown(b"k" * 1_000_000)) < 1000


def test_who_saw_keys_is_not_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "mallory")
    assert job._user() == pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.setattr(job.os, "getuid", lambda: 4_000_000_000)
    assert job._user() == "uid 4000000000"


def test_no_report_of_an_earlier_run_stays_beside_new_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "impact.html").write_text("of other figures")
    job._write_report(tmp_path, {"topic": "cannot be drawn"})
    assert list(tmp_path.iterdir()) == []
    assert "impact.html was not written" in capsys.readouterr().err


def test_credentials_come_from_the_file_and_are_translated(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# comment\nbootstrap.servers = b:9092\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanisms=SCRAM-SHA-512\n"
        'sasl.username=jo"e\nsasl.password=pass=word\\\n  more\ngroup.id=mine\n'
    )
    found = client_properties(str(file), None)
    assert found["sasl.mechanism"] == "SCRAM-SHA-512"
    assert found["sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="jo\\"e" password="pass=wordmore";'
    )
    assert "group.id" not in found
    assert "sasl.password" not in found
    with pytest.raises(SpecError, match="No broker address"):
        client_properties(None, None)
    file.write_text("sasl.username=x\nbootstrap.servers=b:1\n")
    with pytest.raises(SpecError, match=r"sasl\.mechanism"):
        client_properties(str(file), None)


def test_samples_as_shares_and_counts() -> None:
    assert [parse_sample(t) for t in (None, "0.05", "5%", "1000000", "1")] == [None, 0.05, 0.05, 1_000_000, 1]


def test_ranges_between_two_times() -> None:
    whole = {0: Range(10, 100), 1: Range(0, 50), 2: Range(5, 5)}
    assert between(whole, None, None) == whole
    # Partition 1 has no record as young as the start, partition 2 none at all.
    assert between(whole, {0: 40}, {0: 60}) == {0: Range(40, 60), 1: Range(50, 50), 2: Range(5, 5)}
    assert between(whole, {0: 60, 1: 1}, {0: 40}) == {0: Range(60, 60), 1: Range(1, 50), 2: Range(5, 5)}


def test_slices_are_equally_wide_and_zoom_past_stray_timestamps() -> None:
    even = slice_edges(0, 799, lambda t: t, 800)
    assert even == [0, 100, 200, 300, 400, 500, 600, 700, 800]
    start = 1_760_000_000_000
    times = [0, *(start + i * 1000 for i in range(1000)), 4_000_000_000_000]
    edges = slice_edges(0, times[-1], lambda t: sum(x < t for x in times), len(times))
    counts = [sum(a <= x < b for x in times) for a, b in pairwise(edges)]
    assert sum(counts) == len(times)
    assert max(counts) < 0.7 * len(times)
    assert slice_edges(5, 5, lambda _: 0, 10) == [5, 6]


def test_the_shuffle_derives_from_records_and_cores() -> None:
    assert shuffle_partitions(0, 2) == 2
    assert shuffle_partitions(5 * RECORDS_PER_TASK, 2) == 6
    assert shuffle_partitions(1_000 * RECORDS_PER_TASK, 64) == 1024
    assert json.dumps(shuffle_partitions(10**15, 64))
