"""What a campaign's own processes find is what every other process finds."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace
from typing import TypeVar

import pytest
from tests.simulation import quick
from tests.simulation.campaign import campaign
from tests.simulation.run import simulate
from tests.simulation.scenario import draw

from topicshift.core.kafka.cluster import Acl
from topicshift.ports import ControlContext

T = TypeVar("T")


def elsewhere(work: Callable[[], T]) -> T:
    """Do it in a process that builds the product's values as a campaign does."""
    with multiprocessing.get_context("fork").Pool(1, quick.thaw) as pool:
        return pool.apply(work)


def told() -> list[tuple[float, str, str]]:
    return [(e.at, e.who, e.what) for e in simulate(draw(7)).history.events]


def test_a_seed_is_the_same_run_in_a_process_of_a_campaign() -> None:
    assert elsewhere(told) == told()


def test_seeds_come_to_the_same_side_by_side() -> None:
    alone, beside = campaign(1, 12), campaign(1, 12, jobs=2)
    assert (alone.outcomes, alone.calls, alone.kinds) == (beside.outcomes, beside.calls, beside.kinds)


def values() -> list[str]:
    acl = Acl("TOPIC", "t", "LITERAL", "User:p", "*", "WRITE", "ALLOW")
    other = replace(acl, name="u")
    control = ControlContext("m", "s", "t", epoch=3)
    assert acl != other
    assert {acl, Acl(*(getattr(acl, f.name) for f in fields(acl)))} == {acl}
    assert sorted([other, acl]) == [acl, other]
    with pytest.raises(TypeError, match="missing 1 required"):
        Acl("TOPIC", "t", "LITERAL", "User:p", "*", "WRITE")  # type: ignore[call-arg]
    return [repr(acl), repr(other), control.migration, str(control.lease_until), *map(str, vars(acl).items())]


def test_values_look_the_same() -> None:
    assert elsewhere(values) == values()


def left_frozen() -> list[str]:
    acl = Acl("TOPIC", "t", "LITERAL", "User:p", "*", "WRITE", "ALLOW")
    acl.name = "u"  # type: ignore[misc]
    return [acl.name]


def test_only_a_process_of_a_campaign_builds_them_so() -> None:
    assert elsewhere(left_frozen) == ["u"]
    with pytest.raises(FrozenInstanceError):
        left_frozen()
