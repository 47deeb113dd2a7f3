"""The options that name a cluster: what becomes of them, and that no secret is taken on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from topicshift.commands.common import kafka_options, kafka_options_if_wanted


def test_kafka_options_give_a_librdkafka_config(tmp_path: Path, run: Any, with_command: Any) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=one:9092\nsecurity.protocol=PLAINTEXT\n")
    seen: list[Any] = []

    @click.command()
    @kafka_options
    def command(kafka_config: dict[str, Any], as_json: bool) -> None:
        seen.append((kafka_config["bootstrap.servers"], kafka_config.get("security.protocol"), as_json))

    with_command(command)
    assert run("size", "--bootstrap-server", "two:9092")[0] == 0
    assert run("size", "--kafka-config", str(file), "--json")[0] == 0
    assert run("size", "--kafka-config", str(file), "--bootstrap-server", "two:9092")[0] == 0
    assert seen == [("two:9092", None, False), ("one:9092", "PLAINTEXT", True), ("two:9092", "PLAINTEXT", False)]


def test_a_cluster_can_be_left_out_where_it_is_not_needed(run: Any, with_command: Any) -> None:
    seen: list[Any] = []

    @click.command()
    @kafka_options_if_wanted
    def command(kafka_config: dict[str, Any] | None, as_json: bool) -> None:
        seen.append(kafka_config)

    with_command(command)
    assert run("size")[0] == 0
    assert seen == [None]


def test_a_password_on_the_command_line_is_refused(run: Any) -> None:
    code, out, err = run("status", "--journal", "postgresql://me:hunter2@db/journal")
    assert (code, out) == (2, "")
    assert "TOPICSHIFT_JOURNAL" in err
    assert "hunter2" not in err


def test_a_password_in_the_environment_is_used_and_not_shown(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICSHIFT_JOURNAL", "postgresql://me:hunter2@127.0.0.1:1/journal")
    code, out, err = run("status")
    assert (code, out) == (4, "")
    assert "127.0.0.1:1" in err
    assert "hunter2" not in err
