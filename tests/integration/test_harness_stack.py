"""The stack from the command line and side by side: it starts, is found again, and leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from lab.process import marked
from lab.runfolder import FolderInUse, RunFolder
from lab.stack import Stack
from topicshift.adapters.kafka.client_config import load_client_properties

pytestmark = pytest.mark.broker


def stack_command(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lab.stack", *words, "--run-folder", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)


def of_owner(pid: int) -> list[psutil.Process]:
    """What the process with this id has started, watcher aside."""
    return marked(f"{pid}-")


def runs(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be reaped does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_two_stacks_side_by_side_do_not_meet(tmp_path: Path) -> None:
    first, second = Stack(tmp_path / "a"), Stack(tmp_path / "b")
    try:
        first.start(airflow=False)
        second.start(airflow=False)
        assert first.broker.bootstrap != second.broker.bootstrap
        with pytest.raises(FolderInUse):
            Stack(tmp_path / "a").start(airflow=False)
        assert first.broker.alive(), "a refused second start must not end the first"
        second.stop()
        assert AdminClient(first.broker.superuser_config()).list_topics(timeout=20).brokers
        for user in ("admin", "topicshift", "checkout"):
            assert first.properties_file(user).stat().st_mode & 0o777 == 0o600
    finally:
        second.stop()
        first.stop()
    assert not (tmp_path / "a" / "state.json").exists()


def test_up_status_down(tmp_path: Path) -> None:
    folder = tmp_path / "up"
    assert stack_command("status", folder=folder).returncode == 3
    try:
        done = stack_command("up", "--no-airflow", folder=folder)
        assert done.returncode == 0, done.stderr
        assert "Kafka      127.0.0.1:" in done.stdout
        assert f"Shell      . {folder / 'env'}" in done.stdout
        assert (folder / "env").stat().st_mode & 0o777 == 0o600
        words = f". {folder / 'env'}; printenv TOPICSHIFT_KAFKA_CONFIG"
        seen = subprocess.run(["/bin/sh", "-c", words], capture_output=True, text=True, timeout=60, check=True)
        assert seen.stdout.strip() == str(folder / "clients" / "admin.properties")
        state = json.loads((folder / "state.json").read_text())
        assert of_owner(state["pid"]), "the broker runs"
        again = stack_command("up", "--no-airflow", folder=folder)
        assert again.returncode == 0 and f"already up (process {state['pid']})" in again.stderr
        assert stack_command("status", folder=folder).returncode == 0
    finally:
        down = stack_command("down", folder=folder)
    assert down.returncode == 0 and "stopped" in down.stderr
    assert RunFolder(folder).owner() is None and not runs(state["pid"])
    assert of_owner(state["pid"]) == []
    assert stack_command("down", folder=folder).stderr.startswith("nothing runs in ")


def test_a_killed_owner_leaves_nothing_and_up_works_again(tmp_path: Path) -> None:
    folder = tmp_path / "up"
    assert stack_command("up", "--no-airflow", folder=folder).returncode == 0
    pid = json.loads((folder / "state.json").read_text())["pid"]
    children = of_owner(pid)
    assert children
    psutil.Process(pid).kill()
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive
    assert stack_command("status", folder=folder).returncode == 3
    assert stack_command("up", "--no-airflow", folder=folder).returncode == 0
    assert stack_command("down", folder=folder).returncode == 0


@pytest.mark.long
def test_a_killed_broker_is_started_again_and_the_next_stack_goes_on_with_its_topics(tmp_path: Path) -> None:
    folder = tmp_path / "up"

    def admin() -> AdminClient:
        return AdminClient(load_client_properties(folder / "clients" / "admin.properties"))

    try:
        assert stack_command("up", "--no-airflow", folder=folder).returncode == 0
        client = admin()
        client.create_topics([NewTopic("kept", 3, 1)])["kept"].result(30)
        owner = json.loads((folder / "state.json").read_text())["pid"]
        [broker] = [p for p in of_owner(owner) if "kafka.Kafka" in p.cmdline()]
        broker.kill()
        deadline = time.monotonic() + 60
        while not json.loads((folder / "state.json").read_text())["again"]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        said = stack_command("status", folder=folder)
        assert "kafka node 1 had ended and was started again 1 time" in said.stdout
        assert "kept" in admin().list_topics(timeout=20).topics
        psutil.Process(owner).kill()
        psutil.wait_procs([psutil.Process(owner)] if runs(owner) else [], timeout=30)
        deadline = time.monotonic() + 30
        while of_owner(owner):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert "is gone without a word" in stack_command("status", folder=folder).stderr
        again = stack_command("up", "--no-airflow", folder=folder)
        assert again.returncode == 0 and "going on with the topics" in again.stderr
        assert len(admin().list_topics(timeout=20).topics["kept"].partitions) == 3
        assert stack_command("down", folder=folder).returncode == 0
        fresh = stack_command("up", "--no-airflow", "--fresh", folder=folder)
        assert fresh.returncode == 0 and "kept" not in admin().list_topics(timeout=20).topics
    finally:
        stack_command("down", folder=folder)


def test_a_java_that_does_not_fit_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    done = stack_command("up", "--no-airflow", folder=tmp_path / "up")
    assert done.returncode == 1
    assert "error: no Java was found in JAVA_HOME or on PATH. Install Java 17 or 21" in done.stderr
    assert "Traceback" not in done.stderr
