"""Scenarios that once broke a promise, made small; each is run by ``test_simulation.py``."""

from __future__ import annotations

from .faults import Fault
from .scenario import Mood, Scenario
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
    "the fence is lifted for a resume that is called off": Scenario(
        8394,
        Shape(source_partitions=2, target_partitions=4, instances=(2,), resets=("earliest",)),
        faults=(
            Fault("lost", "routes", "write", 3, 0.5689218906675662),
            Fault("kill_after", "journal", "finish", 6),
            Fault("partial", "reader", "*", 31),
        ),
        hands=(Hand("route_unreadable", 9.148366165509747, "", 24.23245186651251),),
        moods=(Mood(4.516465635970091),),
        approvals="auto",
    ),
}
"""What went wrong, and the scenario that shows it."""
