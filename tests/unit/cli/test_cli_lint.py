"""`topicshift lint`: every problem of a spec is named."""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.parts import SPEC

from topicshift.core.spec.io import load_spec


def test_lint_of_good_specs(tmp_path: Path, run: Any) -> None:
    (tmp_path / "a.yaml").write_text(SPEC.format(source="payments"))
    (tmp_path / "b.yml").write_text(SPEC.format(source="orders"))
    (tmp_path / "notes.txt").write_text("no spec")
    code, out, err = run("lint", str(tmp_path))
    assert code == 0
    assert len(out.splitlines()) == 2
    assert "payments to payments-v2, 30 partitions, drain_first" in out
    assert "2 specs, 0 with problems" in err
    code, out, _ = run("lint", str(tmp_path / "a.yaml"), "--json")
    [told] = json.loads(out)["files"]
    assert (told["file"], told["ok"], told["problems"]) == (str(tmp_path / "a.yaml"), True, [])
    assert told["message"] in run("lint", str(tmp_path / "a.yaml"))[1], "a script is told what a person is told"


def test_lint_says_what_needs_no_cluster_to_be_known(tmp_path: Path, run: Any) -> None:
    many, internal = tmp_path / "many.yaml", tmp_path / "internal.yaml"
    consumers = ", ".join(f"{{name: c{i}, group: g{i}}}" for i in range(1025))
    many.write_text(SPEC.format(source="payments").replace("{name: ledger, kind: route, group: ledger}", consumers))
    code, out, _ = run("lint", str(many))
    assert code == 0
    assert "TS321 warning: consumers: 1,025 consumers" in out and "AIRFLOW__CORE__MAX_MAP_LENGTH" in out
    many.write_text(many.read_text().replace(", {name: c1024, group: g1024}", ""))
    assert "TS321" not in run("lint", str(many))[1]
    internal.write_text(SPEC.format(source="__consumer_offsets"))
    code, out, _ = run("lint", str(internal), "--json")
    (found,) = json.loads(out)["files"]
    assert (code, found["ok"], found["findings"][0]["code"]) == (3, False, "TS102")
    code, out, _ = run("lint", str(internal))
    assert code == 3 and "cannot run" in out and "TS102 error" in out


def test_lint_names_every_problem(tmp_path: Path, run: Any) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(SPEC.format(source="payments") + "cutovr: drain_first\nfreeze_budget: soon\n")
    code, out, _ = run("lint", str(bad))
    assert code == 2
    assert "cutovr" in out
    assert "cutover" in out
    assert "freeze_budget" in out
    code, out, _ = run("lint", str(bad), "--json")
    found = json.loads(out)
    assert (code, found["ok"]) == (2, False)
    assert {p["path"] for p in found["files"][0]["problems"]} == {"cutovr", "freeze_budget"}
    assert all(p["seen"] and p["do"] for p in found["files"][0]["problems"])


def test_lint_of_what_is_not_there(tmp_path: Path, run: Any) -> None:
    code, out, _ = run("lint", str(tmp_path / "nothing.yaml"))
    assert code == 2
    assert "nothing.yaml" in out
    (tmp_path / "empty").mkdir()
    code, out, err = run("lint", str(tmp_path / "empty"))
    assert (code, out) == (2, "")
    assert "no .yaml file" in err


def test_lint_finds_two_specs_for_one_topic(tmp_path: Path, run: Any) -> None:
    (tmp_path / "a.yaml").write_text(SPEC.format(source="payments"))
    (tmp_path / "b.yaml").write_text(SPEC.format(source="payments").replace("target: payments-v2", "target: other"))
    code, out, _ = run("lint", str(tmp_path))
    assert code == 2
    for name, other in (("a", "b"), ("b", "a")):
        assert f"{tmp_path}/{name}.yaml: source: payments is also a topic of {tmp_path}/{other}.yaml" in out
    assert ": ok:" not in out


@pytest.mark.parametrize(("partitions", "fits"), [(100_000, True), (100_001, False), (150_000, False)])
def test_no_count_passes_that_the_client_of_kafka_does_not_create(
    partitions: int, fits: bool, tmp_path: Path, run: Any
) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    (tmp_path / "a.yaml").write_text(SPEC.format(source="payments").replace("30", str(partitions)))
    code, out, _ = run("lint", str(tmp_path))
    assert (code == 0) is fits
    assert ("creates no topic with more than 100,000 partitions. Write a number at most 100,000" in out) is not fits
    client = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})  # nobody is there to be asked
    with nullcontext() if fits else pytest.raises(ValueError, match="range"):
        client.create_topics([NewTopic("t", num_partitions=partitions)], request_timeout=0.1)


WINDOW = "window: {cron: '0 2 * * *', timezone: Europe/Berlin, duration: 2h}\n"


def test_the_fault_of_one_file_stays_its_own(tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever reading it raises: the others are reported, and quickly."""
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    good = SPEC.format(source="payments")
    Path("good.yaml").write_text(good)
    Path("digits.yaml").write_text(good.replace("partitions: 30", f"partitions: {'9' * 6000}"))
    Path("infinite.yaml").write_text(good.replace("partitions: 30", f"partitions: {'9' * 400}.5"))
    Path("deep.yaml").write_text("source: " + "[" * 100_000)
    Path("blocks.yaml").write_text("source:\n  " + "- " * 100_000)
    Path("many.yaml").write_text("source: [" + "a," * 400_000 + "]")
    Path("big.yaml").write_text("#" * 1_000_001)
    Path("folder.yaml").mkdir()
    os.mkfifo("pipe.yaml")
    Path("nothing.yaml").symlink_to("nowhere")
    Path("loop.yaml").symlink_to("loop.yaml")
    Path("device.yaml").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as end:
        end.bind("socket.yaml")
        began = time.process_time()
        code, out, err = run("lint", ".", "--json")
        assert time.process_time() - began < 20
        found = {Path(f["file"]).stem: f["message"] for f in json.loads(out)["files"]}
        assert (code, "13 specs, 12" in run("lint", ".")[2]) == (2, True), err
        for name in set(found) - {"folder"}:  # one that is named itself is looked into
            assert f"{name}.yaml" in run("lint", f"{name}.yaml")[1]
    for name, why in {
        "digits": "line 5: this is not YAML: a value of 6,000 characters cannot be read as int",
        "infinite": "partitions",
        "deep": "nested too deeply",
        "blocks": "nested too deeply",
        "many": "too large",
        "big": "over 1 MB",
        "folder": "a folder",
        "pipe": "a pipe",
        "nothing": "a link to nothing",
        "loop": "symbolic links",
        "device": "a device",
        "socket": "a socket",
        "good": "payments to payments-v2",
    }.items():
        assert why in found[name], found[name]


def test_what_nobody_foresaw_in_one_file_hides_no_other(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.yaml").write_text(SPEC.format(source="payments"))
    (tmp_path / "b.yaml").write_text(SPEC.format(source="orders"))

    def load(path: Path) -> Any:
        if path.name == "a.yaml":
            raise ZeroDivisionError("never thought of")
        return load_spec(path)

    monkeypatch.setattr("topicshift.core.spec.io.load_spec", load)
    code, out, _ = run("lint", str(tmp_path))
    assert code == 2
    assert "a.yaml: ZeroDivisionError: never thought of" in out and "b.yaml: ok" in out


def test_lint_says_what_the_dags_say(tmp_path: Path, run: Any) -> None:
    """A file that no DAG would be made of is not fine, also where it alone is named."""
    odd, one, other = tmp_path / "my nightly.yaml", tmp_path / "b.yaml", tmp_path / "b.yml"
    for file, source in ((odd, "payments"), (one, "orders"), (other, "clicks")):
        file.write_text(SPEC.format(source=source))
    assert run("lint", str(tmp_path))[0] == 0, "without a window there is no DAG that could be missing"
    for file in (odd, one):
        file.write_text(file.read_text() + WINDOW)
    code, out, _ = run("lint", str(tmp_path))
    assert code == 2
    assert "'my nightly.yaml' has a window, and its name would be a part of its DAG's. Rename it" in out
    assert out.count("'b.yaml' and 'b.yml' would both be the DAG topic_migration__b") == 2
    for file in (odd, one, other):
        assert run("lint", str(file))[0] == 2
    other.unlink()
    assert run("lint", str(one))[0] == 0


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("name: checkout", f"name: {'a' * 501}", "the name has 501 characters, the most is 500"),
        ("name: ledger", f"name: {'a' * 501}", "the name has 501 characters, the most is 500"),
        ("name: checkout", "name: checkout, principal: 'User:*'", "is everybody, not the principal of one application"),
        ("group: ledger", 'group: "led\\nger"', "a character that cannot be seen"),
        ("partitions: 30", "partitions: 30\nkafka_conn_id: ../../x", "is no name of an Airflow connection"),
        ("group: ledger", "group: 017", "Write text in quotation marks, with every digit"),
        (
            "partitions: 30",
            "partitions: 30\nalarm_after: 0s",
            "'0s' is out of range. It would make no sense. Write a dur",
        ),
    ],
)
def test_what_the_cluster_or_the_route_would_refuse(old: str, new: str, says: str, tmp_path: Path, run: Any) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(SPEC.format(source="payments").replace(old, new, 1))
    code, out, _ = run("lint", str(file))
    assert code == 2
    assert says in out and "timedelta" not in out, out
