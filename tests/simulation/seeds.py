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
    "the source gets a partition before the freeze": Scenario(
        1106,
        Shape("producers_first", producers=1, groups=1),
        hands=(Hand("partition_added_source", 2.5, "create_target"),),
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
    "the route's record is lost while its only producer is stalled": Scenario(
        121,
        Shape("producers_first", source_partitions=1, target_partitions=5, producers=1, groups=1),
        hands=(
            Hand("route_gone", 0.0, "switch_producers"),
            Hand("producer_stall", 2.4437222194123542, "create_target", 225.15204363366163),
        ),
        moods=(Mood(2.6627508571776186), Mood(5.7399181847403815), Mood(2.388986430658435), Mood(6.059960407476627)),
        approvals="auto",
    ),
    "a stalled producer wakes on the target in a rollback": Scenario(
        45,
        Shape(
            source_partitions=3,
            target_partitions=4,
            producers=1,
            instances=(1,),
            groups=1,
            members=(2, 1),
            resets=("latest",),
        ),
        hands=(
            Hand("partition_added_source", 0.3478996514258843, "wide_deny"),
            Hand("producer_stall", 1.2761471915074465, "freeze", 77.79254531303323),
            Hand("producer_stall", 1.7368470983371584, "fence", 257.8545728244354),
            Hand("producer_stall", 0.16582644089959886, "freeze", 80.79745070287927),
            Hand("producer_stall", 0.2126095934484029, "freeze", 51.877927636052334),
            Hand("producer_stall", 2.416311339569918, "create_target", 68.57246621582958),
            Hand("producer_stall", 2.8915243815420206, "freeze", 77.16012223765516),
        ),
        moods=(
            Mood(6.961510013244817),
            Mood(2.7061917426564097),
            Mood(5.658532328580625),
            Mood(2.644781089949509),
            Mood(4.2952023125772705),
            Mood(4.291851842748359),
        ),
        approvals="auto",
    ),
    "the target's ACL is removed while another run has the topics, which it never began to use": Scenario(
        40359,
        Shape("producers_first", source_partitions=2, target_partitions=5, producers=1, groups=1, budget_s=120),
        hands=(
            Hand("target_acl_removed", 14.396254596842311, "wide_deny"),
            Hand("triggered_twice", 0.0, "freeze"),
        ),
        approvals="auto",
    ),
    "a producer goes on with the target while its word does not come through": Scenario(
        40824,
        Shape("producers_first", source_partitions=1, instances=(2,), groups=1, resets=("earliest",), budget_s=30),
        hands=(Hand("route_unreadable", 0.09049077436033887, "fence", 6.8504178287189195),),
        approvals="auto",
    ),
    "a process is stalled in the middle of a controller's act": Scenario(
        41609,
        Shape(target_partitions=4, producers=1, instances=(1,), groups=1, members=(2, 1), resets=("latest",)),
        faults=(Fault("stall", "*", "*", 259, 106.99000413303455),),
        approvals="auto",
    ),
    "an intent reaches the journal when the migration is done": Scenario(
        42130,
        Shape("producers_first", source_partitions=1, producers=1, instances=(1,), members=(2, 1), budget_s=120),
        faults=(Fault("late", "*", "*", 314, 27.665377450334137),),
        hands=(Hand("consumer_stall", 0.24648759483702293, "create_target", 2.5373662426224888),),
        approvals="auto",
    ),
    "a group has many records left to read when the run ends": Scenario(
        42373,
        Shape("producers_first", instances=(2,), members=(1,), resets=("latest",), manual_producers=1),
        hands=(Hand("marked_failed", 0.0, "wide_deny"),),
        moods=(Mood(3.2084229580269126), Mood(2.8071587154834075)),
        approvals="auto",
    ),
    "the target's ACL is removed, and it has more partitions than planned": Scenario(
        60034,
        Shape("producers_first", target_partitions=5, members=(1, 2)),
        hands=(Hand("target_acl_removed", 46.4), Hand("partition_added_target", 0.1, "wide_deny")),
        approvals="auto",
    ),
}
"""What went wrong, and the scenario that shows it."""
