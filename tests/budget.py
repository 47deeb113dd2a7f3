"""Tests until a moment is reached: what CI could not run in its time is named, where it would end without an answer.

A pytest plugin; ``tests/conftest.py`` registers it. Without its variables it does nothing.
"""

from __future__ import annotations

import os
import time
from collections import Counter

import pytest

UNTIL = "TOPICSHIFT_TESTS_UNTIL"
"""No test begins at or after this moment, in seconds since the epoch."""

FIRST = "TOPICSHIFT_TESTS_FIRST"
"""A number that says which file comes first, the others after it in a circle: a machine that is slow for days runs
other ones each time."""

NO_TIME = "no time was left"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave the test out once the moment has passed; what its file has started ends in the usual way."""
    until = os.environ.get(UNTIL)
    if until and time.time() >= float(until):
        pytest.skip(NO_TIME)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Turn the circle of files."""
    first = int(os.environ.get(FIRST) or 0)
    files = list(dict.fromkeys(item.path for item in items))
    if first and files:
        place = {file: (index - first) % len(files) for index, file in enumerate(files)}
        items.sort(key=lambda item: place[item.path])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The files of tests that were left out, in lines that nobody misses."""
    left = Counter(
        report.nodeid.split("::")[0]
        for report in terminalreporter.stats.get("skipped", ())
        if isinstance(report.longrepr, tuple) and report.longrepr[2] == f"Skipped: {NO_TIME}"
    )
    if left:
        terminalreporter.write_sep("=", f"NOT RUN, {NO_TIME}: {left.total()} tests", red=True)
        for file, count in sorted(left.items()):
            terminalreporter.write_line(f"{file}: {count}")
