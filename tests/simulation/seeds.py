"""Scenarios that once broke a promise, made small; each is run by ``test_simulation.py``."""

from __future__ import annotations

from .faults import Fault
from .scenario import WINDOWS, Mood, Scenario
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
    "a DENY of the scream test arrives when the scream test is over": Scenario(
        5992,
        Shape(
            source_partitions=3,
            target_partitions=4,
            producers=1,
            instances=(1,),
            groups=1,
            members=(1,),
            resets=("earliest",),
            retire_after_s=20,
            scream_s=10,
            retention_ms=40000,
        ),
        (Fault("stall", "admin", "create_acls", 4, 263.23582245833694),),
        moods=(Mood(2.0),),
        approvals="auto",
    ),
    "a group sleeps while the source is made again": Scenario(
        5163,
        Shape(
            source_partitions=3,
            target_partitions=4,
            producers=1,
            instances=(1,),
            groups=1,
            members=(1,),
            manual_groups=1,
            retire_after_s=60,
            scream_s=25,
            retention_ms=-1,
        ),
        hands=(
            Hand("consumer_stall", 0.08232862585231673, "freeze", 162.6646849638729),
            Hand("source_remade", 93.09217932730024),
        ),
        moods=(
            Mood(2.54616003059943),
            Mood(65.41489386508876),
            Mood(5.282529148691549),
            Mood(4.8900349902845015),
            Mood(3.65367684085927),
            Mood(4.404124725840031),
        ),
    ),
    "the go gets a second answer, which counts for nothing": Scenario(
        5470,
        Shape(
            "producers_first",
            producers=1,
            instances=(1,),
            groups=1,
            members=(1,),
            resets=("earliest",),
            retire_after_s=5,
            scream_s=10,
            retention_ms=-1,
        ),
        (
            Fault("slow", "journal", "intend", 6, 9.615687058103621),
            Fault("kill_after", "*", "writes", 20),
            Fault("slow", "routes", "write", 1, 28.805932849122396),
        ),
        (Hand("second_advancer", 82.3860548486492),),
        (
            Mood(4.265904809700434),
            Mood(6.142561721825985, "no"),
            Mood(4.8799065348822035),
            Mood(5.778319388329634),
            Mood(1.4125303495208328),
            Mood(2.5244607619244706),
        ),
    ),
    "the source grows under a group that begins at the latest record": Scenario(
        5867,
        Shape("producers_first", producers=1, instances=(2,), members=(1, 2), resets=("latest",), budget_s=120),
        (Fault("stall", "journal", "*", 18, 44.54827924411439),),
        (
            Hand("producer_crash", 0.23598721162866815, "freeze", 6.3081155029950775),
            Hand("partition_added_source", 0.5964111474015701, "fence"),
            Hand("marked_failed", 0.097996080189507, "fence"),
        ),
        (
            Mood(6.050948729958737),
            Mood(5.599231171470217),
            Mood(7.548821315383573),
            Mood(5.088277875514101),
            Mood(6.593607887107149),
            Mood(4.57388176259566),
        ),
        "auto",
    ),
    "a dead instance keeps the gate shut from one window to the next": Scenario(
        11177,
        Shape(instances=(1,), members=(2, 1), manual_groups=1, budget_s=120, window=WINDOWS[0]),
        hands=(Hand("producer_crash", 0.6821073241097476, "create_target", 259.8346219687473),),
        approvals="auto",
    ),
    "the plan gets a yes, and then a no to the same question, which counts for nothing": Scenario(
        11274,
        Shape(source_partitions=3, target_partitions=4, instances=(2,), groups=1, members=(1,), resets=("earliest",)),
        hands=(Hand("command_line", 6.7144397535696),),
        moods=(Mood(4.487018556939713), Mood(3.550849653410696, "no"), Mood(2.0)),
    ),
    "a command comes before there is a migration": Scenario(
        5878,
        Shape("producers_first", producers=1, instances=(1,), groups=1, members=(1,), manual_groups=1),
        (Fault("stall", "*", "reads", 1, 285.0377166380244),),
        moods=(Mood(2.0),),
        approvals="auto",
    ),
    "a member wakes with a batch of the source, which was retired meanwhile": Scenario(
        4891,
        Shape(
            "producers_first",
            source_partitions=3,
            target_partitions=4,
            instances=(1,),
            groups=1,
            members=(2, 1),
            resets=("earliest",),
            budget_s=120,
            retire_after_s=5,
            scream_s=10,
            retention_ms=-1,
        ),
        hands=(Hand("consumer_stall", 0.745422789028236, "create_target", 167.7402423316439),),
        approvals="auto",
    ),
    "a member wakes with a batch of the source, which was made again meanwhile": Scenario(
        5975,
        Shape(
            "producers_first",
            source_partitions=1,
            target_partitions=5,
            instances=(1, 2),
            members=(2, 1),
            resets=("latest",),
            budget_s=30,
        ),
        faults=(
            Fault("slow", "admin", "*", 121, 0.5754954678808848),
            Fault("kill_after", "admin", "create_acls", 1),
        ),
        hands=(
            Hand("consumer_stall", 0.0, "create_target", 89.05919210025284),
            Hand("source_remade", 0.04040519467643413, "switch_consumer:g1"),
        ),
        moods=(Mood(2.0),),
        approvals="required",
    ),
    "a person stops a group for a question that was answered long ago": Scenario(
        5241,
        Shape(
            source_partitions=2,
            target_partitions=4,
            producers=1,
            instances=(1,),
            members=(1,),
            resets=("latest",),
            manual_groups=1,
            retire_after_s=5,
            scream_s=10,
            retention_ms=-1,
        ),
        hands=(
            Hand("second_advancer", 0.5879678159769861, "switch_consumer:g0"),
            Hand("rollback_asked", 1.6171185274022957, "order_proof"),
        ),
        moods=(Mood(86.76624634471207), Mood(7.2743450250587935), Mood(2.919144923234898), Mood(6.587065326349034)),
        approvals="auto",
    ),
}
"""What went wrong, and the scenario that shows it."""
