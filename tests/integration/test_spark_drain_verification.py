"""The drain verification: armed before the fence, and on its own; what ends it, and what it says then."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import drain_verification
from lab.broker import EmbeddedBroker
from topicshift.adapters.clock import SystemClock
from topicshift.adapters.verifier import FileVerifier
from topicshift.core.errors import NotFound, SpecError, TopicshiftError
from topicshift.core.proof.verification import DrainVerification
from topicshift_spark.files import Folder
from topicshift_spark.requests import End, serve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]


def wait_for(what: str, ready: Callable[[], Any], timeout_s: float = 120.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (value := ready()):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return value


def certificate(topic: str, topic_id: str, commits: dict[str, dict[int, int]], fence: dict[int, int]) -> bytes:
    groups = [
        {
            "group": name, "kind": "classic", "state": "STABLE", "verdict": "not_drained",
            "partitions": [
                {"partition": p, "log_start": 0, "committed": committed[p], "end_committed": end, "end": end,
                 "records_left": None, "verdict": "not_drained", "reason": "behind"} for p, end in fence.items()
            ],
        }
        for name, committed in commits.items()
    ]  # fmt: skip
    value = {"topic": topic, "topic_id": topic_id, "taken_at": datetime.now(UTC).isoformat(), "fence_offsets": fence,
             "verdict": "not_drained", "groups": groups}  # fmt: skip
    return json.dumps(value).encode()


class Source:
    """A topic of two partitions, ten records each."""

    def __init__(self, broker: EmbeddedBroker, admin: AdminClient, name: str) -> None:
        self.name, self._broker = name, broker
        admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
        self.write(10)
        from confluent_kafka import TopicCollection

        self.topic_id = str(admin.describe_topics(TopicCollection([name]))[name].result(10).topic_id)

    def write(self, records: int) -> None:
        producer = Producer(self._broker.config())
        for _ in range(records):
            for p in (0, 1):
                producer.produce(self.name, b"v", b"k", p)
        assert producer.flush(30) == 0

    def ask(self, *commits: int, fence: int = 10) -> bytes:
        groups = {f"g{n}": {0: c, 1: fence} for n, c in enumerate(commits)}
        return certificate(self.name, self.topic_id, groups, {0: fence, 1: fence})


@pytest.fixture
def source(broker: EmbeddedBroker, admin_client: AdminClient, topic_name: Callable[..., str]) -> Source:
    return Source(broker, admin_client, topic_name())


@pytest.mark.broker
def test_armed_it_answers_each_certificate_until_it_is_told_that_all_is_done(
    spark: SparkSession,
    broker: EmbeddedBroker,
    source: Source,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOPICSHIFT_WORK", str(tmp_path))
    verifier = FileVerifier("m", SystemClock())
    requests, answers = verifier.requests, verifier.answers
    assert verifier.state()[0] == "absent"
    verifier.arm()
    assert verifier.state()[0] == "starting"
    words = ["--armed", "--topic", source.name, "--requests", str(requests), "--deadline", "300"]
    words += ["--output", str(answers), "--bootstrap-server", broker.bootstrap]
    code: list[int] = []
    thread = threading.Thread(target=lambda: code.append(drain_verification.main(words)), daemon=True)
    thread.start()
    ready = json.loads(wait_for("it is ready", lambda: (requests / "ready.json").exists() and _read(requests, "ready")))
    assert (ready["topic"], ready["records_read"]) == (source.name, 20)
    assert verifier.state() == ("ready", "")

    def ask(name: str, content: bytes) -> DrainVerification:
        (requests / f"{name}.certificate.json").write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()

        def answered() -> DrainVerification | None:
            path = answers / f"{name}.verification.json"
            found = DrainVerification.model_validate_json(path.read_bytes()) if path.exists() else None
            return found if found is not None and found.question == digest else None

        answer: DrainVerification = wait_for(f"an answer to {name}", answered)
        return answer

    assert ask("ledger", source.ask(10)).verdict == "verified"
    behind = ask("all", source.ask(10, 7, 4))
    assert behind.verdict == "not_drained"
    left = {g.group: (g.partitions[0].records_left, g.partitions[0].first_unread_offset) for g in behind.groups}
    assert left == {"g0": (0, None), "g1": (3, 7), "g2": (6, 4)}
    assert (behind.offsets_read, behind.records_read) == (6, 6)
    assert ask("all", source.ask(10, 10)).verdict == "verified"  # the same name, another content
    assert ask("half", b'{"topic": ').verdict == "unknown"
    source.write(1)
    grown = ask("fraud", source.ask(10))
    assert (grown.verdict, grown.exit_code) == ("fence_broken", 3)
    assert thread.is_alive()
    (requests / "done").touch()
    thread.join(60)
    assert code == [0]
    ended = json.loads((answers / "verifier.json").read_bytes())
    assert ended["verdict"] == "done"
    assert verifier.state() == ("gone", "it has ended (done)")
    assert verifier.answer("fraud") == json.loads((answers / "fraud.verification.json").read_bytes())
    assert ended["answers"] == {"ledger": "verified", "all": "verified", "half": "unknown", "fraud": "fence_broken"}


def _read(folder: Path, name: str) -> bytes:
    return (folder / f"{name}.json").read_bytes()


@pytest.mark.broker
def test_on_its_own_it_verifies_one_certificate(
    spark: SparkSession, broker: EmbeddedBroker, source: Source, tmp_path: Path
) -> None:
    asked = tmp_path / "drain_certificate.json"
    asked.write_bytes(source.ask(8))
    words = ["--certificate", str(asked), "--output", str(tmp_path), "--bootstrap-server", broker.bootstrap]
    assert drain_verification.main(words) == 3
    answer = DrainVerification.model_validate_json((tmp_path / "drain_verification.json").read_bytes())
    assert answer.groups[0].partitions[0].records_left == 2
    asked.write_bytes(source.ask(10))
    assert drain_verification.main(words) == 0


def test_a_broker_that_is_away_is_unknown_in_bounded_time(spark: SparkSession, tmp_path: Path) -> None:
    asked = tmp_path / "drain_certificate.json"
    asked.write_bytes(certificate("t", "AAAAAAAAAAAAAAAAAAAAAg", {"g": {0: 1}}, {0: 1}))
    words = ["--certificate", str(asked), "--output", str(tmp_path), "--bootstrap-server", "127.0.0.1:1"]
    assert drain_verification.main([*words, "--timeout", "2"]) == 4
    answer = DrainVerification.model_validate_json((tmp_path / "drain_verification.json").read_bytes())
    assert (answer.verdict, answer.groups) == ("unknown", [])
    assert "127.0.0.1:1" in (answer.reason or "")


@pytest.mark.broker
def test_a_missing_topic_ends_the_armed_job_before_it_says_ready(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    words = ["--armed", "--topic", "nowhere", "--requests", str(tmp_path), "--deadline", "60"]
    with pytest.raises(NotFound, match="nowhere"):
        drain_verification.main([*words, "--output", str(tmp_path / "a"), "--bootstrap-server", broker.bootstrap])
    assert not (tmp_path / "ready.json").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--certificate FILE"),
        (["--armed"], "--topic, --requests, --deadline"),
        (["--armed", "--topic", "t", "--requests", "r", "--deadline", "0"], "--deadline 0"),
        (["--armed", "--topic", "t", "--requests", "r", "--deadline", "9", "--certificate", "c"], "exclude"),
        (["--certificate", "missing.json"], "missing.json"),
        (["--certificate", "x", "--timeout", "0"], "--timeout 0"),
    ],
)
def test_wrong_use_is_named(words: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=said):
        drain_verification.main([*words, "--output", str(tmp_path / "out"), "--bootstrap-server", "127.0.0.1:1"])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"topic": 1}'])
def test_what_is_no_certificate_is_refused_by_place(text: str, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    words = ["--certificate", str(path), "--output", str(tmp_path), "--bootstrap-server", "127.0.0.1:1"]
    with pytest.raises(SpecError, match="not a drain certificate"):
        drain_verification.main(words)


class Answers:
    def __init__(self, *refuse: str) -> None:
        self.seen: list[tuple[str, bytes]] = []
        self._refuse = refuse

    def __call__(self, name: str, content: bytes, last_try: bool) -> bool:
        if name in self._refuse and not last_try:
            return False
        self.seen.append((name, content))
        return True


def test_abort_the_deadline_and_a_dead_owner_end_the_wait(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    assert serve(folder, Answers(), seconds=0.1, alive=lambda: True) is End.DEADLINE
    assert serve(folder, Answers(), seconds=60, alive=lambda: False) is End.ORPHANED
    (tmp_path / "abort").touch()
    (tmp_path / "a.certificate.json").write_bytes(b"1")
    answers = Answers()
    assert serve(folder, answers, seconds=60, alive=lambda: True) is End.ABORTED
    assert answers.seen == []
    assert [e.exit_code for e in (End.DONE, End.ABORTED, End.DEADLINE, End.ORPHANED)] == [0, 4, 4, 4]


def test_done_waits_for_what_is_still_unanswered(tmp_path: Path) -> None:
    for name, content in (("done", b""), ("b.certificate.json", b"1"), ("half.certificate.json", b"{"), ("x", b"")):
        (tmp_path / name).write_bytes(content)
    answers = Answers("half")
    assert serve(Folder(str(tmp_path)), answers, seconds=60, alive=lambda: True) is End.DONE
    assert sorted(answers.seen) == [("b", b"1"), ("half", b"{")]


def test_a_folder_is_read_and_written_whole(tmp_path: Path) -> None:
    folder = Folder((tmp_path / "new").as_uri())
    assert folder.marks() == {}
    folder.write("a.json", "1")
    before = folder.marks()
    folder.write("a.json", "2")
    assert folder.marks() != before
    assert (folder.read("a.json"), list(folder.marks())) == (b"2", ["a.json"])
    with pytest.raises(TopicshiftError, match="missing"):
        folder.read("missing")
    with pytest.raises(SpecError, match="local folder"):
        Folder("hdfs://h/x")


def test_a_folder_of_hadoops_file_system_serves_as_well(spark: SparkSession, tmp_path: Path) -> None:
    # viewfs: goes the way that hdfs: and s3a: go, without their servers.
    context: Any = spark.sparkContext
    link = f"fs.viewfs.mounttable.{tmp_path.name}.link./mount"
    context._jsc.hadoopConfiguration().set(link, tmp_path.as_uri())
    folder = Folder(f"viewfs://{tmp_path.name}/mount/shared", spark)
    assert not folder.local
    assert folder.marks() == {}
    folder.write("a.json", "one")
    folder.write("a.json", "two")
    assert folder.read("a.json") == b"two"
    assert list(folder.marks()) == ["a.json"]
