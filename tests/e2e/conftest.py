"""End-to-end tests in an order that is kind to a small machine."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that bring a stack of their own come first: two stacks never share the cores."""
    items.sort(key=lambda item: "e2e" in item.keywords and "stack" in getattr(item, "fixturenames", ()))
