"""Scenarios that once broke a promise, made small; each is run by ``test_simulation.py``."""

from __future__ import annotations

from .scenario import Scenario
from .world import Hand, Shape

_SMALL = Shape(producers=1, groups=1)

KEPT: dict[str, Scenario] = {
    "the route's record is lost between two releases": Scenario(
        6, Shape(producers=1), hands=(Hand("route_gone", 0.05, "switch_consumer:g0"),)
    ),
    "the source is made again before the freeze": Scenario(
        1106, Shape("producers_first", producers=1, groups=1), hands=(Hand("source_remade", 2.5, "create_target"),)
    ),
    "the source is made again in the freeze, which is tried again": Scenario(
        3031, Shape("producers_first", producers=1, groups=1), hands=(Hand("source_remade", 0.3, "fence"),)
    ),
    "the target's ACL is removed after the last group": Scenario(
        1094, _SMALL, hands=(Hand("target_acl_removed", 4.0, "switch_consumer:g0"),)
    ),
}
"""What went wrong, and the scenario that shows it."""
