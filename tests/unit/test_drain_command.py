"""``topicshift drain`` with wrong words: an answer that names them, exit code 2, and nothing on stdout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from topicshift import cli
from topicshift.commands.drain import print_json
from topicshift.core.drain.certificate import DrainCertificate

NOWHERE = ["--bootstrap-server", "127.0.0.1:1"]
SPEC = {
    "source": "payments",
    "partitions": 30,
    "producers": [{"name": "checkout"}],
    "consumers": [{"name": "ledger", "group": "ledger"}],
}


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    code = cli.run(["drain", *words])
    out, err = capsys.readouterr()
    assert (code, out) == (2, ""), err
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "No Kafka cluster"),
        (tuple(NOWHERE), "No topic was named"),
        (("--topic", " ", *NOWHERE), "--topic is empty"),
        (("--topic", "t", "--group", "", *NOWHERE), "--group is empty"),
        (("--topic", "t", "--wait", "soon", *NOWHERE), "--wait"),
        (("--topic", "t", "--ignore-group", "g", *NOWHERE), "GROUP=REASON"),
        (("--topic", "t", "--ignore-group", "g=", *NOWHERE), "GROUP=REASON"),
        (("--topic", "t", "--spark-checkpoint", "/tmp/x", *NOWHERE), "NAME=FOLDER"),
        (("--topic", "t", "--group", "g", "--ignore-group", "g=why", *NOWHERE), "to be certified and to be ignored"),
        (("--topic", "t", "--bootstrap-server", "nonsense:port"), "not host:port"),
        (("--topic", "t", "--kafka-config", "missing.properties"), "missing.properties"),
        (("--topic", "t", "--fence", "missing.json", *NOWHERE), "missing.json"),
        (("--topic", "t", "--evidence", "missing.json", *NOWHERE), "missing.json"),
        (("--spec", "missing.yaml", *NOWHERE), "missing.yaml"),
        (("--topik", "t", *NOWHERE), "--topik"),
    ],
)
def test_wrong_words(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str) -> None:
    assert said in refused(capsys, *words)


def test_spec_and_words_must_agree(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(json.dumps(SPEC))
    assert "is not the spec's source" in refused(capsys, "--spec", str(spec), "--topic", "other", *NOWHERE)
    assert "exclude each other" in refused(capsys, "--spec", str(spec), "--group", "g", *NOWHERE)
    spec.write_text(json.dumps({**SPEC, "consumer": []}))
    assert "consumer" in refused(capsys, "--spec", str(spec), *NOWHERE)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "Invalid JSON"),
        ("[]", "no fence"),
        ('{"topic": "t"}', "fence_offsets: Field required"),
        ('{"topic": "t", "offsets": {"0": 1}}', "fence_offsets: Field required"),
        ('{"topic": "t", "fence_offsets": {"x": 1}}', "fence_offsets.x"),
        ('{"topic": "other", "fence_offsets": {"0": 1}}', "is of topic other"),
        ('{"topic": "t", "fence_offsets": {}}', "at least 1"),
        ('{"topic": "t", "fence_offsets": {"0": -1}}', "greater than or equal to 0"),
        ('{"topic": "t", "fence_offsets": null, "verdict": "drained"}', "up to a fence"),
    ],
)
def test_a_file_that_is_no_fence(capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "fence.json"
    file.write_text(content)
    assert said in refused(capsys, "--topic", "t", "--fence", str(file), *NOWHERE)


def test_evidence_that_is_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "evidence.json"
    file.write_text('{"reader": "r"}')
    assert "kind" in refused(capsys, "--topic", "t", "--evidence", str(file), *NOWHERE)


@pytest.mark.parametrize("groups", [0, 1, 3])
def test_the_json_is_that_of_the_model(capsys: pytest.CaptureFixture[str], groups: int) -> None:
    row = {"partition": 0, "log_start": 0, "committed": 1, "end_committed": 1, "end": 1, "records_left": 0}
    rows = [{**row, "partition": p, "verdict": "drained", "reason": "at_end"} for p in range(groups - 1)]
    certificate = DrainCertificate.model_validate(
        {
            "topic": "t",
            "topic_id": "id",
            "taken_at": "2026-03-01T00:00:00+00:00",
            "fence_offsets": {"0": 1},
            "verdict": "drained",
            "groups": [
                {"group": f'g"groups": []{n}', "kind": "classic", "state": "EMPTY", "verdict": "drained"}
                | {"partitions": rows}
                for n in range(groups)
            ],
            "reasons": ["ignored_group:x"],
        }
    )
    print_json(certificate)
    assert capsys.readouterr().out == certificate.model_dump_json(indent=2) + "\n"
