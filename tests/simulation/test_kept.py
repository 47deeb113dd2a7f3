"""A campaign that was broken off goes on where it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simulation.campaign import Tally, campaign
from tests.simulation.kept import Kept
from tests.simulation.scenario import ANY, Wish

CALM = Wish(calm=True)


class Broken(Exception):
    """Somebody ends the campaign."""


def figures(tally: Tally) -> tuple[object, ...]:
    """What a campaign has found, without the time that it took."""
    return tally.runs, tally.outcomes, tally.kinds, tally.calls, tally.faults, tally.failed


def test_a_campaign_that_was_broken_off_finds_the_same(tmp_path: Path) -> None:
    file = tmp_path / "new" / "a1.jsonl"

    def end(tally: Tally) -> None:
        if tally.runs == 20:
            raise Broken

    with pytest.raises(Broken):
        campaign(1, 30, kept=Kept(file, ANY), told=end)
    file.write_text(file.read_text()[:-9])  # the second piece was torn off
    kept, ran = Kept(file, ANY), list[int]()
    assert kept.of([*range(1, 11)]) is not None and kept.of([*range(11, 21)]) is None
    tally = campaign(1, 30, kept=kept, told=lambda so_far: ran.append(so_far.runs))
    assert (ran, tally.before) == ([20, 30], 10)
    assert figures(tally) == figures(campaign(1, 30)) == figures(campaign(1, 30, kept=Kept(file, ANY)))


def test_what_broke_a_promise_is_kept(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "a1.jsonl", ANY)
    kept.keep([1, 2], Tally(2, failed={2: "loss: of a record"}))
    again = Kept(tmp_path / "a1.jsonl", ANY).of([1, 2])
    assert again is not None and (again.runs, again.failed) == (2, {2: "loss: of a record"})


def test_seeds_of_another_wish_or_of_a_broken_product_are_passed_by(tmp_path: Path) -> None:
    file = tmp_path / "a1.jsonl"
    Kept(file, CALM).keep([1], Tally(1))
    Kept(file, CALM, "no DENY").keep([2], Tally(1))
    assert Kept(file, CALM).of([1]) and Kept(file, CALM, "no DENY").of([2])
    assert Kept(file, CALM).of([2]) is None and Kept(file, ANY).of([1]) is None
