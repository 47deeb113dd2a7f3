"""A bounded part of the simulator: seeds of both orders, the seeds that once failed, and a few broken products."""

from __future__ import annotations

import pytest
from tests.simulation import mutants
from tests.simulation.campaign import campaign
from tests.simulation.run import simulate
from tests.simulation.scenario import Wish, draw
from tests.simulation.seeds import KEPT


@pytest.mark.parametrize(("retire", "outcome"), [(False, "done"), (True, "retired")])
@pytest.mark.parametrize("order", ["drain_first", "producers_first"])
def test_a_calm_migration_is_done(order: str, retire: bool, outcome: str) -> None:
    tally = campaign(1, 8, wish=Wish(order=order, calm=True, retire=retire))
    assert (tally.failed, dict(tally.outcomes)) == ({}, {outcome: 8})


def test_a_calm_migration_waits_for_its_window() -> None:
    """Also for one at an hour that summer time leaves out."""
    tally = campaign(1, 8, wish=Wish(calm=True, window=True, retire=False))
    assert (tally.failed, dict(tally.outcomes)) == ({}, {"done": 8})


@pytest.mark.parametrize("first", range(1, 201, 40))
def test_no_promise_is_broken(first: int) -> None:
    assert campaign(first, 40).failed == {}


@pytest.mark.parametrize("name", KEPT)
def test_what_once_failed_holds(name: str) -> None:
    assert [str(v) for v in simulate(KEPT[name]).violations] == []


def test_a_seed_is_the_whole_run() -> None:
    first, second = simulate(draw(7)), simulate(draw(7))
    assert [(e.at, e.who, e.what) for e in first.history.events] == [
        (e.at, e.who, e.what) for e in second.history.events
    ]


CAUGHT = [
    "grown source not seen",
    "no rule forward.fence_holds",
    "stale view admitted",
    "void point obeyed",
    "route producers denied",
    "unarmed goes blind",
    "wall clocks believed",
    "seeded once",
    "strangers not looked for",
]


@pytest.mark.parametrize("name", CAUGHT)
def test_a_broken_product_is_caught(name: str) -> None:
    mutant = mutants.MUTANTS[name]
    with mutants.applied(name):
        assert campaign(1, mutant.bound, wish=mutant.wish, stop_at=1).failed


def test_every_broken_product_can_still_be_made() -> None:
    """A name that a patch looks for is gone after a move: then nobody would notice that nothing is broken."""
    for name in mutants.MUTANTS:
        with mutants.applied(name):
            pass
