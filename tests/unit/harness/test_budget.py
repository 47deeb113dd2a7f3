"""What CI has no time for is left out by name, and other files come first at another commit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.budget import FIRST, UNTIL

from lab.runfolder import ROOT

FILES = ("test_a.py", "test_b.py", "test_c.py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(
        "from tests import budget\n\n\ndef pytest_configure(config):\n    config.pluginmanager.register(budget)\n"
    )
    for name in FILES:
        (tmp_path / name).write_text("def test_one():\n    pass\n\n\ndef test_two():\n    pass\n")
    return tmp_path


def told(folder: Path, *more: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *more, str(folder)]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("workers", [[], ["-n", "2", "--dist", "loadfile"]])
def test_what_no_time_is_left_for_is_named_and_is_no_failure(folder: Path, workers: list[str]) -> None:
    done = told(folder, *workers, **{UNTIL: str(time.time() - 1)})
    assert done.returncode == 0, done.stdout
    assert "6 skipped" in done.stdout and "NOT RUN, no time was left: 6 tests" in done.stdout
    assert [f"{name}: 2" in done.stdout for name in FILES] == [True] * 3


def test_with_time_left_everything_runs(folder: Path) -> None:
    done = told(folder, **{UNTIL: str(time.time() + 600)})
    assert done.returncode == 0 and "6 passed" in done.stdout and "NOT RUN" not in done.stdout, done.stdout


@pytest.mark.parametrize(("first", "begins"), [("0", "a"), ("1", "b"), ("5", "c"), (str(0xFFFFFF), "a")])
def test_the_circle_of_files_begins_where_it_is_told(folder: Path, first: str, begins: str) -> None:
    ran = re.findall(r"test_(\w)\.py::test_one PASSED", told(folder, **{FIRST: first}).stdout)
    assert ran == {"a": ["a", "b", "c"], "b": ["b", "c", "a"], "c": ["c", "a", "b"]}[begins]
