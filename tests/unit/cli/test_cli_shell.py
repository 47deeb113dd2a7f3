"""The command line itself: help, exit codes, what goes to stdout and what to stderr, signals, and no traceback ever."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from topicshift import cli
from topicshift.commands.common import json_option
from topicshift.core import errors

INCLUDE = Path(__file__).parents[3] / "include"


def test_help_names_every_command_and_imports_none_of_them() -> None:
    script = (
        "import sys; from topicshift import cli; code = cli.run(['--help']); "
        "print([m for m in sys.modules if m.split('.')[0] in "
        "('pydantic', 'sqlalchemy', 'confluent_kafka', 'kafka', 'rich', 'airflow', 'pyspark', 'pandas')], code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(INCLUDE)}
    )
    assert done.stdout.endswith("[] 0\n"), done.stdout + done.stderr
    for name in cli.COMMANDS:
        assert f"  {name} " in done.stdout


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_that_is_there_describes_itself(name: str, run: Any) -> None:
    code, out, err = run(name, "--help")
    if code == errors.Unreadable.exit_code:  # written by others, and told so when it is missing
        assert f"no '{name}' command" in err
    else:
        assert code == 0
        assert "Usage: topicshift" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lnt"], "Did you mean 'lint'?"),
        (["xyzzy"], "There are: init"),
        (["--nonsense"], "No such option"),
        (["lint"], "Missing argument"),
        (["audit", "verify"], "Missing argument"),
        (["plan", "a.yaml"], "No Kafka cluster was named"),
        (["plan", "a.yaml", "--kafka-config", "nowhere.properties"], "nowhere.properties"),
        (["plan", "a.yaml", "--bootstrap-server", ""], "bootstrap"),
    ],
)
def test_wrong_use_is_2(words: list[str], said: str, run: Any) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert said in err


def test_nothing_at_all_shows_the_help_and_is_2(run: Any) -> None:
    code, out, err = run()
    assert code == 2
    assert "Commands:" in out + err


@pytest.mark.parametrize(
    ("exc", "wanted"),
    [
        (errors.SpecError("bad"), 2),
        (errors.NotFound("bad"), 2),
        (errors.PreflightFailed("bad"), 3),
        (errors.Refused("bad"), 3),
        (errors.OwnershipLost("bad"), 3),
        (errors.FenceBroken("bad"), 3),
        (errors.Unreadable("bad"), 4),
        (errors.Transient("bad"), 4),
        (errors.AccessDenied("bad"), 4),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (ZeroDivisionError("bad"), 4),
        (SystemError("bad"), 4),
        (SystemExit(3), 3),
    ],
)
def test_errors_become_exit_codes_and_one_message(
    exc: BaseException, wanted: int, run: Any, with_command: Callable[[click.Command], None]
) -> None:
    @click.command()
    @json_option
    def command(as_json: bool) -> None:
        raise exc

    with_command(command)
    code, out, err = run("size")
    assert (code, out) == (wanted, "")
    assert len(err.splitlines()) == (0 if isinstance(exc, SystemExit) else 1)
    code, out, told = run("size", "--json")
    assert (code, told) == (wanted, err)
    if isinstance(exc, Exception) and not isinstance(exc, click.Abort):
        error = json.loads(out)["error"]
        assert (error["kind"], error["exit_code"]) == (type(exc).__name__, wanted)
        assert err == f"topicshift: {error['message']}\n", "a script is told what a person is told"


def test_a_returned_number_is_the_exit_code(run: Any, with_command: Callable[[click.Command], None]) -> None:
    @click.command()
    def command() -> int:
        return 3

    with_command(command)
    assert run("size")[0] == 3


def test_the_shell_can_complete_commands(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TOPICSHIFT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "topicshift au")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert run() == (0, "plain,audit\n", "")


def test_the_debug_variable_shows_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], with_command: Any
) -> None:
    @click.command()
    def command() -> None:
        raise ZeroDivisionError

    with_command(command)
    monkeypatch.setenv("TOPICSHIFT_DEBUG", "1")
    assert cli.run(["size"]) == 4
    assert "Traceback" in capsys.readouterr().err


def test_a_missing_module_is_named(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli.COMMANDS, "ghost", "A command that is not there.")
    code, out, err = run("ghost")
    assert (code, out) == (4, "")
    assert "no 'ghost' command" in err


def test_a_missing_package_is_named(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_name: str) -> None:
        raise ModuleNotFoundError("No module named 'left_pad'", name="left_pad")

    monkeypatch.setattr(cli.importlib, "import_module", fail)
    code, _, err = run("size")
    assert code == 4
    assert "'left_pad'" in err


def _start(script: str) -> subprocess.Popen[str]:
    """A process that a terminal could have started: where the tests run in the background, SIGINT is ignored there."""
    return subprocess.Popen(
        [sys.executable, "-c", "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n" + script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(INCLUDE)},
    )


# A command that swallows whatever a Python signal handler could raise, as a call of a C library may.
DEAF = """
import os, sys, time, click
from topicshift import cli
from topicshift.commands.common import json_option
tests = os.getppid()

@click.command()
def command():
    while os.getppid() == tests:  # it does not outlive them
        try:
            print("ready", flush=True)
            time.sleep(600)
        except BaseException:
            pass

cli.LazyGroup.get_command = lambda *_: command
cli._GRACE_S = 0.2
cli.main(["size"])
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_it_even_where_a_handlers_exception_is_swallowed(number: int, code: int) -> None:
    process = _start(DEAF)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == code
    assert signal.Signals(number).name in err


def test_ctrl_c_lets_a_command_clean_up_first() -> None:
    script = """
import time, click
from topicshift import cli
from topicshift.commands.common import json_option

@click.command()
def command():
    try:
        print("ready", flush=True)
        time.sleep(600)
    finally:
        print("cleaned up", flush=True)

cli.LazyGroup.get_command = lambda *_: command
cli.main(["size"])
"""
    process = _start(script)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, "cleaned up\n")
    assert "Interrupted" in err
    assert "Traceback" not in err


def test_a_reader_that_goes_away_is_no_traceback_and_no_yes() -> None:
    script = """
import click
from topicshift import cli
from topicshift.commands.common import json_option

@click.command()
def command():
    for n in range(200000):
        click.echo("line %d" % n)

cli.LazyGroup.get_command = lambda *_: command
cli.main(["size"])
"""
    process = _start(script)
    assert process.stdout is not None
    assert process.stdout.readline() == "line 0\n"
    process.stdout.close()
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.returncode == 141
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
