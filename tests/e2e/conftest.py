"""End-to-end tests in an order that is kind to a small machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that bring a stack of their own come first: two stacks never share the cores."""
    items.sort(key=lambda item: "e2e" in item.keywords and "stack" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pictures are written: the folder that ``TOPICSHIFT_PICTURES`` names, or one that passes."""
    named = os.environ.get("TOPICSHIFT_PICTURES")
    return Path(named) if named else tmp_path_factory.mktemp("pictures")
