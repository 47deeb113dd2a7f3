"""Scenarios that once broke a promise, made small; each is run by ``test_simulation.py``."""

from __future__ import annotations

from .scenario import Scenario

KEPT: dict[str, Scenario] = {}
"""What went wrong, and the scenario that shows it."""
