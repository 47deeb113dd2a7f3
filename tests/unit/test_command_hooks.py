"""Kind ``command`` with real executables: what they are told, what counts of what they answer, and what never does."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from topicshift.adapters.controllers.command import CommandController
from topicshift.core.errors import Transient
from topicshift.core.kafka.cluster import GroupMember
from topicshift.ports import ControlContext, Participant
from topicshift.testing.fakes import FakeCluster

MAKE = Callable[[str], CommandController]
CHECKOUT = Participant("checkout", "producer", "command", settings={"hook": "checkout", "timeout": "2s"})
LEDGER = Participant("ledger", "consumer", "command", "ledger-g", settings={"hook": "ledger", "timeout": "2s"})
UNTIL = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def hooks(tmp_path: Path) -> Path:
    folder = tmp_path / "hooks"
    folder.mkdir()
    return folder


@pytest.fixture
def heard() -> list[tuple[str, Any]]:
    return []


@pytest.fixture
def ctx(heard: list[tuple[str, Any]]) -> Iterator[ControlContext]:
    yield ControlContext("m-1", "payments", "payments-v2", 3, UNTIL, say=lambda name, data: heard.append((name, data)))


def write(folder: Path, text: str, name: str = "checkout") -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def controller(folder: Path | None) -> CommandController:
    return CommandController(FakeCluster(), folder)


def state(folder: Path, ctx: ControlContext, who: Participant = CHECKOUT) -> tuple[str, str | None, str]:
    (found,) = controller(folder).observe(ctx, [who])
    return found.status, found.topic, found.reason


def test_a_hook_is_told_the_moment_and_nothing_of_this_process(
    hooks: Path, ctx: ControlContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", "kafka://u:hush-hush@h")
    write(hooks, f'echo "$1" >> {tmp_path}/seen; env >> {tmp_path}/seen')
    controller(hooks).point(ctx, [CHECKOUT], "payments-v2")
    moment, *env = (tmp_path / "seen").read_text().splitlines()
    assert moment == "point"
    told = dict(line.split("=", 1) for line in env if line.startswith("TOPICSHIFT_"))
    assert told == {
        "TOPICSHIFT_MOMENT": "point",
        "TOPICSHIFT_PARTICIPANT": "checkout",
        "TOPICSHIFT_ROLE": "producer",
        "TOPICSHIFT_GROUP": "",
        "TOPICSHIFT_MIGRATION": "m-1",
        "TOPICSHIFT_EPOCH": "3",
        "TOPICSHIFT_SOURCE": "payments",
        "TOPICSHIFT_TARGET": "payments-v2",
        "TOPICSHIFT_TOPIC": "payments-v2",
        "TOPICSHIFT_LEASE_UNTIL": "2026-01-01T00:00:00+00:00",
    }
    assert "hush-hush" not in "".join(env)


def test_what_it_says_is_in_the_audit_trail(hooks: Path, ctx: ControlContext, heard: list[tuple[str, Any]]) -> None:
    write(hooks, 'echo "scaled to 0"; printf "\\033[2J" >&2; echo careful >&2')
    controller(hooks).stop(ctx, [CHECKOUT])
    assert heard == [
        ("checkout", {"moment": "stop", "hook": "checkout", "answer": "exit code 0: \\x1b[2Jcareful"}),
    ]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo no such deployment >&2; exit 1", r"checkout failed at stop \(exit code 1: no such deployment\)"),
        ("exit 75", r"checkout cannot do it yet at stop \(exit code 75\)"),
        ("kill -9 $$", r"failed at stop \(exit code -9\)"),
        ("sleep 60", r"had not ended after 2 s and was killed"),
    ],
)
def test_a_hook_that_fails_or_hangs_is_called_again_and_named(
    hooks: Path, ctx: ControlContext, script: str, said: str
) -> None:
    write(hooks, script)
    with pytest.raises(Transient, match=said):
        controller(hooks).stop(ctx, [CHECKOUT])


def test_one_that_fails_does_not_keep_others_from_being_stopped(
    hooks: Path, ctx: ControlContext, tmp_path: Path
) -> None:
    write(hooks, "exit 1")
    write(hooks, f"touch {tmp_path}/stopped", "billing")
    billing = replace(CHECKOUT, name="billing", settings={"hook": "billing"})
    with pytest.raises(Transient, match="the hook of checkout failed") as raised:
        controller(hooks).stop(ctx, [CHECKOUT, billing])
    assert (tmp_path / "stopped").exists() and "billing" not in str(raised.value)


def test_a_hook_that_hangs_takes_its_children_with_it(hooks: Path, ctx: ControlContext, tmp_path: Path) -> None:
    write(hooks, f"sleep 60 & echo $! > {tmp_path}/child; wait")
    with pytest.raises(Transient):
        controller(hooks).start(ctx, [CHECKOUT])
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 5
    while Path(f"/proc/{child}/cmdline").exists() and Path(f"/proc/{child}/cmdline").read_bytes():
        assert time.monotonic() < deadline, "the child still runs"
        time.sleep(0.02)


def test_an_application_that_a_hook_starts_lives_on_and_is_not_waited_for(
    hooks: Path, ctx: ControlContext, tmp_path: Path
) -> None:
    """It holds the hook's output open for as long as it runs."""
    write(hooks, f"sleep 60 & echo $! > {tmp_path}/child")
    began = time.monotonic()
    controller(hooks).start(ctx, [CHECKOUT])
    assert time.monotonic() - began < 1.9
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    ("says", "found"),
    [
        ('{"status": "running", "topic": "payments"}', ("running", "payments", "")),
        ('{"status": "stopped", "reason": "0 of 3 pods"}', ("stopped", None, "0 of 3 pods")),
    ],
)
def test_a_producer_is_what_its_hook_observes(
    hooks: Path, ctx: ControlContext, says: str, found: tuple[str, str | None, str]
) -> None:
    write(hooks, f"echo '{says}'")
    assert state(hooks, ctx) == found


@pytest.mark.parametrize(
    "script",
    [
        "true",
        "echo stopped",
        "echo '[]'",
        "echo '{}'",
        'echo \'{"status": "done"}\'',
        'echo \'{"status": "running"}\'',
        'echo \'{"status": "running", "topic": 7}\'',
        'echo \'{"status": "stopped", "reason": {}}\'',
        'echo \'{"status": "stopped"}\'; exit 1',
        "sleep 60",
        "head -c 3000000 /dev/zero",
        "printf '[%.0s' $(seq 1 1900)",
    ],
)
def test_what_a_hook_does_not_say_clearly_is_unknown(hooks: Path, ctx: ControlContext, script: str) -> None:
    write(hooks, script)
    status, topic, reason = state(hooks, ctx)
    assert (status, topic) == ("unknown", None) and reason.startswith("the answer of its hook to observe")


def test_a_consumer_is_what_kafka_shows_whatever_its_hook_says(hooks: Path, ctx: ControlContext) -> None:
    write(hooks, 'echo \'{"status": "stopped"}\'', "ledger")
    cluster = FakeCluster()
    cluster.create_topic("payments", 1, 1, {})
    cluster.join("ledger-g", GroupMember("m", "c", "h", assignment={"payments": (0,)}, topics=("payments",)))
    made = CommandController(cluster, hooks)
    made.stop(ctx, [LEDGER])
    (found,) = made.observe(ctx, [LEDGER])
    assert (found.status, found.topic) == ("running", "payments")
    cluster.leave("ledger-g", "m")
    (found,) = made.observe(ctx, [LEDGER])
    assert found.status == "stopped"


def test_who_cannot_be_moved_is_said_by_name_before_anything_is_touched(
    hooks: Path, ctx: ControlContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    able = controller(hooks).can_i
    assert able(ctx, [CHECKOUT])[0].startswith(f"checkout: {hooks}/checkout cannot be opened: No such file")
    write(hooks, "true").chmod(0o644)
    assert able(ctx, [CHECKOUT]) == [f"checkout: {hooks}/checkout is no executable file"]
    write(hooks, '[ "$1" = can_i ] && { echo may not scale >&2; exit 1; }')
    assert able(ctx, [CHECKOUT]) == ["checkout: its hook checkout says no to can_i (exit code 1: may not scale)"]
    write(hooks, "true")
    assert able(ctx, [CHECKOUT]) == []
    assert controller(None).can_i(ctx, [CHECKOUT]) == [
        "checkout: TOPICSHIFT_HOOKS names no folder of hooks on this host"
    ]


def test_nothing_outside_the_folder_is_run(hooks: Path, ctx: ControlContext, tmp_path: Path) -> None:
    outside = write(tmp_path, f"touch {tmp_path}/ran", "outside")
    (hooks / "checkout").symlink_to(outside)
    assert controller(hooks).can_i(ctx, [CHECKOUT]) == [f"checkout: {hooks}/checkout leads out of {hooks}"]
    with pytest.raises(Transient, match="leads out of"):
        controller(hooks).stop(ctx, [CHECKOUT])
    (hooks / "checkout").unlink()
    (hooks / "checkout").mkdir()
    assert controller(hooks).can_i(ctx, [CHECKOUT]) == [f"checkout: {hooks}/checkout is no executable file"]
    assert not (tmp_path / "ran").exists()
