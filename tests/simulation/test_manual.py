"""People at applications that do not follow the route: what they put back when their yes counts for nothing."""

from __future__ import annotations

import random

from tests.simulation.kernel import Kernel
from tests.simulation.manual import ManualConsumer, ManualProducer, do_by_hand, start_group
from tests.simulation.world import SOURCE, TARGET, Shape, World

STOP = {"stop_group": "g1", "target": TARGET}


def made() -> tuple[World, ManualProducer, ManualConsumer]:
    """A world whose second producer and second group are moved by a person."""
    world = World(Kernel("1"), random.Random(1), Shape(manual_producers=1, manual_groups=1))
    producer, group = world.producers[1], world.consumers[1]
    assert isinstance(producer, ManualProducer) and isinstance(group, ManualConsumer)
    return world, producer, group


def test_a_group_that_was_stopped_for_nothing_runs_again_where_it_ran() -> None:
    world, _, group = made()
    put_back = do_by_hand(world, STOP)
    assert not group.running
    put_back()
    assert (group.topic, group.running) == (SOURCE, True)


def test_a_producer_that_was_started_for_nothing_is_back_where_it_was() -> None:
    world, producer, _ = made()
    do_by_hand(world, {"stop": ["p1"]})
    put_back = do_by_hand(world, {"start": ["p1"], "target": TARGET})
    assert (producer.topic, producer.running) == (TARGET, True)
    put_back()
    assert (producer.topic, producer.running) == (SOURCE, False)


def test_a_second_yes_to_a_question_puts_nothing_back() -> None:
    world, _, group = made()
    do_by_hand(world, STOP)
    put_back = do_by_hand(world, STOP)
    put_back()
    assert not group.running


def test_what_somebody_else_has_touched_since_is_left_alone() -> None:
    world, _, group = made()
    for_nothing = do_by_hand(world, STOP)
    do_by_hand(world, STOP)  # for the question as it is now
    for_nothing()
    assert not group.running
    start_group(world, "g1", TARGET)
    for_nothing()
    assert (group.topic, group.running) == (TARGET, True)
