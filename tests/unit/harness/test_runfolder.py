"""Run folders and ports: two runs never meet, secrets are private, only the recorded process is ended."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from lab import demo, ports_free, stack_cli
from lab.airflow_services import ENV_FILE, read_env_file
from lab.runfolder import FolderInUse, FolderUnusable, RunFolder, write_private


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_secret_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    secret = folder.secret("jwt", 40)
    assert len(secret) == 40 and secret.isalnum()
    assert RunFolder(tmp_path / "run").secret("jwt", 40) == secret
    assert folder.secret("other", 40) != secret
    assert mode(folder / "secrets/jwt") == 0o600
    assert mode(folder.path) == 0o700


def test_a_private_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("readable by all")
    write_private(path, "new")
    assert path.read_text() == "new" and mode(path) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_second_run_in_the_same_folder_is_refused_with_the_owners_pid(tmp_path: Path) -> None:
    first, second = RunFolder(tmp_path), RunFolder(tmp_path)
    first.lock()
    first.write_state(status="ready")
    with pytest.raises(FolderInUse, match=rf"a run \(process {psutil.Process().pid}\) already lives in .*make down"):
        second.lock()
    first.unlock()
    second.lock()
    second.unlock()


@pytest.mark.parametrize("second", ["demo", "run"])
def test_a_second_run_leaves_the_first_ones_state_alone(
    second: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    first = RunFolder(tmp_path)
    first.lock()
    first.write_state(status="ready")
    if second == "demo":
        code = demo.main(["--run-folder", str(tmp_path)])
    else:
        code = stack_cli.main(["run", "--run-folder", str(tmp_path)])
    said = capsys.readouterr()
    assert code == 1 and "already lives in" in said.out + said.err
    assert first.read_state()["status"] == "ready", "make down would not find the first one any more"
    first.unlock()


def test_the_owner_is_the_process_that_wrote_the_state(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.owner() is None
    folder.write_state(status="ready")
    owner = folder.owner()
    assert owner is not None and owner.pid == psutil.Process().pid


def test_down_never_ends_a_process_that_only_has_the_recorded_pid(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as stranger:
        started = psutil.Process(stranger.pid).create_time()
        state = {"pid": stranger.pid, "started": started - 100, "status": "ready"}
        (tmp_path / "state.json").write_text(json.dumps(state))
        assert stack_cli.down(tmp_path) == 0
        assert stranger.poll() is None, "a stranger with a reused pid was ended"
        assert not (tmp_path / "state.json").exists()
        stranger.kill()


@pytest.mark.parametrize("state", ["", "[]", "{", '{"pid": 1}', '{"pid": "x", "started": 1}'])
def test_a_broken_state_file_names_nobody(tmp_path: Path, state: str) -> None:
    (tmp_path / "state.json").write_text(state)
    assert RunFolder(tmp_path).owner() is None


def test_claimed_ports_are_free_and_given_to_nobody_else() -> None:
    first, second = ports_free.claim(3), ports_free.claim(3)
    try:
        assert len({*first, *second}) == 6
        assert all(ports_free.is_free(port) for port in first + second)
        code = f"from lab import ports_free; print(*ports_free.claim(500), sep='\\n')"  # noqa: F541
        others = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert not set(map(int, others.split())) & {*first, *second}, "another process was given the same port"
    finally:
        ports_free.release(first + second)


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not ports_free.is_free(server.getsockname()[1])


def test_the_env_file_is_filled_in(tmp_path: Path) -> None:
    path = tmp_path / "x.env"
    path.write_text("# a comment\n\nA=${ROOT}/dags\nB=x=y\n")
    assert read_env_file(path, {"ROOT": "/r"}) == {"A": "/r/dags", "B": "x=y"}
    with pytest.raises(KeyError):
        read_env_file(path, {})
    path.write_text("A\n")
    with pytest.raises(ValueError, match=r"x\.env, line 1: not NAME=value"):
        read_env_file(path, {})


def test_the_shared_env_file_has_no_secret_and_no_address() -> None:
    settings = read_env_file(ENV_FILE, {"TOPICSHIFT_ROOT": "/r"})
    assert settings["AIRFLOW__CORE__LOAD_EXAMPLES"] == "False"
    assert settings["AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME"] == "0.1"
    words = {"PASSWORD", "SECRET", "KEY", "HOST", "PORT", "URL", "CONN"}
    assert [name for name in settings if words & set(name.split("_"))] == []


def test_what_is_up_is_shown_with_the_call_that_looks_at_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.write_state(bootstrap="h:1", kafka_config="/k.properties", logs="/logs", journal="sqlite:////j.db")
    stack_cli.show(folder)
    shown = capsys.readouterr().out
    assert "topicshift status --journal sqlite:////j.db --kafka-config /k.properties" in shown


def test_a_folder_with_anything_else_in_it_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home"
    (home / "airflow").mkdir(parents=True)
    home.chmod(0o755)
    for command in ("up", "run", "down"):
        stack_cli.main([command, "--run-folder", str(home)])
        assert "a folder of its own" in capsys.readouterr().err
    assert (home / "airflow").is_dir() and mode(home) == 0o755
    assert sorted(p.name for p in home.iterdir()) == ["airflow"]


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_run_folder_that_cannot_be_made_is_said_in_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderUnusable, match="cannot be a run folder: "):
        RunFolder(tmp_path / name)


def test_an_empty_folder_and_an_earlier_run_are_taken(tmp_path: Path) -> None:
    RunFolder(tmp_path)
    (tmp_path / "kafka").mkdir()
    assert RunFolder(tmp_path).folder("logs").is_dir()
