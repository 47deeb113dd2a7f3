"""Which unit tests are for `make test` alone."""

from __future__ import annotations

import pytest

FILES = ("test_engine_model.py", "test_close_everywhere.py", "test_impact_sampling_time.py")
NAMES = ("test_killed_", "test_each_file_is_in_the_trail_wherever_")
"""Those that try every moment of a migration, or every state of it: a third of the time of all."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them ``thorough``, which `make check` leaves out."""
    for item in items:
        if item.path.name in FILES or item.name.startswith(NAMES):
            item.add_marker(pytest.mark.thorough)
