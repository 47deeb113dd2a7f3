"""Many seeds: run side by side in processes, added up, and reported."""

from __future__ import annotations

import gc
import multiprocessing
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol

from . import mutants, quick
from .run import simulate
from .scenario import ANY, Wish, draw

CHUNK = 10


@dataclass
class Tally:
    """What came of a range of seeds."""

    runs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    calls: list[int] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)
    cpu_s: float = 0.0
    wall_s: float = 0.0
    before: int = 0
    """So many of the runs are kept from an earlier campaign, and took none of this one's time."""

    def add(self, other: Tally) -> None:
        """Add another range."""
        self.runs += other.runs
        self.outcomes += other.outcomes
        self.kinds += other.kinds
        self.calls += other.calls
        self.faults += other.faults
        self.failed |= other.failed
        self.cpu_s += other.cpu_s

    def lines(self) -> list[str]:
        """The figures, for a person."""
        rate = (self.runs - self.before) / (self.wall_s or 1.0) * 60
        kept = f" ({self.before} of them kept from before)" if self.before else ""
        by_cpu = self.runs / (self.cpu_s or 1.0) * 120
        return [
            f"{self.runs} migrations{kept} in {self.wall_s:.0f} s: {rate:.0f} a minute "
            f"({by_cpu:.0f} a minute on two idle cores, by {self.cpu_s / max(self.runs, 1) * 1000:.0f} ms of CPU each)",
            f"port calls: median {statistics.median(self.calls or [0]):.0f}, most {max(self.calls or [0])}",
            f"faults: median {statistics.median(self.faults or [0]):.0f}, most {max(self.faults or [0])}",
            "outcomes: " + ", ".join(f"{k} {n}" for k, n in self.outcomes.most_common()),
            "faults by kind: " + ", ".join(f"{k} {n}" for k, n in sorted(self.kinds.items())),
            f"seeds that broke a promise: {len(self.failed)}",
        ]


class Keeps(Protocol):
    """Keeps what came of pieces of seeds, see :class:`tests.simulation.kept.Kept`."""

    def of(self, piece: list[int]) -> Tally | None:
        """What came of these seeds, None where they were not run yet."""

    def keep(self, piece: list[int], tally: Tally) -> None:
        """Write down what came of these seeds."""


def spare_the_collector() -> None:
    """Before many runs in one process: what was imported stays, and most of what a run makes lives as long as it.

    So the collector looks after each run (:func:`one`), at what that run made, and hardly ever inside of one.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)


def _begin() -> None:
    """A process that does nothing but seeds."""
    quick.thaw()
    spare_the_collector()


def one(seed: int, wish: Wish) -> Tally:
    """Run one seed."""
    began = time.process_time()
    try:
        result = simulate(draw(seed, wish))
    except Exception as error:
        error.add_note(f"in the run of seed {seed}")
        raise
    tally = Tally(1)
    tally.outcomes[result.outcome] += 1
    tally.kinds = result.faults
    tally.calls, tally.faults = [result.calls], [sum(result.faults.values())]
    if result.violations:
        tally.failed[seed] = "; ".join(sorted({str(v) for v in result.violations})[:3])
    del result
    gc.collect()
    tally.cpu_s = time.process_time() - began
    return tally


def _chunk(work: tuple[list[int], Wish, str]) -> Tally:
    """Run some seeds; with a mutant no further than to the first that it, and nothing else, makes fail."""
    seeds, wish, mutant = work
    tally = Tally()
    for seed in seeds:
        with mutants.applied(mutant):
            found = one(seed, wish)
        if mutant and found.failed and one(seed, wish).failed:
            found.failed.clear()
        tally.add(found)
        if mutant and found.failed:
            break
    return tally


def chunks(first: int, count: int, size: int = CHUNK) -> Iterator[list[int]]:
    """The seeds in pieces."""
    for start in range(first, first + count, size):
        yield list(range(start, min(start + size, first + count)))


def campaign(
    first: int,
    count: int,
    *,
    wish: Wish = ANY,
    jobs: int = 1,
    mutant: str = "",
    stop_at: int = 0,
    kept: Keeps | None = None,
    told: Callable[[Tally], None] = lambda tally: None,
) -> Tally:
    """Run the seeds ``first`` to ``first + count - 1``; with ``stop_at`` no longer than until so many have failed.

    Pieces that ``kept`` holds are not run again, and each that is run is given to it. ``told`` hears what came of all
    so far, after each piece.
    """
    tally, began = Tally(), time.monotonic()
    left = list[list[int]]()
    for piece in chunks(first, count, 4 if mutant else CHUNK):
        if kept is not None and (known := kept.of(piece)) is not None:
            tally.add(known)
        else:
            left.append(piece)
    tally.before = tally.runs
    work = ((piece, wish, mutant) for piece in left)
    with ExitStack() as stack:
        if jobs > 1:
            pool = stack.enter_context(multiprocessing.get_context("fork").Pool(jobs, _begin))
            parts: Iterable[Tally] = pool.imap(_chunk, work)
        else:
            spare_the_collector()
            parts = map(_chunk, work)
        for piece, part in zip(left, parts, strict=False):
            tally.add(part)
            tally.wall_s = time.monotonic() - began
            if kept is not None:
                kept.keep(piece, part)
            told(tally)
            if stop_at and len(tally.failed) >= stop_at:
                break
    tally.wall_s = time.monotonic() - began
    return tally
