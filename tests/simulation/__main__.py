"""Simulate whole migrations. Exit code 0: no promise was broken; 3: one was.

Example: ``python -m tests.simulation --seeds 2000 --from 1 --jobs 2``
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from . import mutants, quick, report
from .campaign import Tally, campaign
from .kept import Kept, commit_of_the_product
from .minimise import same_rule, smaller, story
from .run import simulate
from .scenario import Wish, draw

SAID_EVERY_S = 30.0
"""How often a long campaign says how far it is."""


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many migrations")
    parser.add_argument("--from", dest="first", type=int, default=1, help="the first seed")
    parser.add_argument("--order", choices=("drain_first", "producers_first"), help="only this order of the cut-over")
    parser.add_argument("--calm", action="store_true", help="nothing goes wrong")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--story", action="store_true", help="tell each of the seeds, whatever came of it")
    parser.add_argument("--mutant", default="", help="break the product in this way first")
    parser.add_argument("--mutants", action="store_true", help="look until each broken product is caught")
    parser.add_argument("--bound", type=int, default=10_000, help="with --mutants: at most so many seeds each")
    parser.add_argument("--only", default="", help="with --mutants: only those whose name holds this text")
    parser.add_argument("--report", default="", metavar="FILE", help="write what was found as Markdown, too")
    parser.add_argument("--keep", default="", metavar="FOLDER", help="keep what is found, and go on from there")
    parser.add_argument("--stories", type=int, default=2, help="so many failing seeds are made small and told")
    args = parser.parse_args(argv)
    wish = Wish(order=args.order, calm=args.calm)
    if args.mutants:
        return _mutants(args.only, args.first, args.jobs, args.bound, args.report)
    if args.story:
        with mutants.applied(args.mutant):
            for seed in range(args.first, args.first + args.seeds):
                print(story(simulate(draw(seed, wish)), lines=400))
        return 0
    kept = _kept(args.keep, wish, args.mutant)
    told = _Progress(args.seeds)
    tally = campaign(args.first, args.seeds, wish=wish, jobs=args.jobs, mutant=args.mutant, kept=kept, told=told)
    print(f"seeds {args.first} to {args.first + args.seeds - 1}")
    print("\n".join(tally.lines()))
    if args.report:
        Path(args.report).write_text(report.seeds(args.first, args.seeds, tally))
    _tell(tally, wish, args.mutant, args.stories)
    return 3 if tally.failed else 0


def _kept(folder: str, wish: Wish, mutant: str) -> Kept | None:
    """What was found on this commit before; nothing is kept of files that no commit holds."""
    commit = commit_of_the_product() if folder else ""
    if folder and not commit:
        print("Files differ from the commit that is checked out: what is found is not kept.", file=sys.stderr)
    return Kept(Path(folder) / f"{commit}.jsonl", wish, mutant) if commit else None


class _Progress:
    """Says on stderr, twice a minute, how far a campaign is."""

    def __init__(self, seeds: int) -> None:
        self._seeds = seeds
        self._said = time.monotonic()

    def __call__(self, tally: Tally) -> None:
        now = time.monotonic()
        if now - self._said < SAID_EVERY_S:
            return
        self._said = now
        left_s = (self._seeds - tally.runs) * tally.wall_s / (tally.runs - tally.before)
        failed = ", ".join(str(seed) for seed in sorted(tally.failed)) or "none"
        print(
            f"{tally.runs} of {self._seeds} seeds; broke a promise: {failed}; about {left_s / 60:.0f} min left",
            file=sys.stderr,
            flush=True,
        )


def _tell(tally: Tally, wish: Wish, mutant: str, stories: int) -> None:
    for seed, text in sorted(tally.failed.items())[:20]:
        print(f"seed {seed}: {text[:300]}")
    with mutants.applied(mutant):
        for seed in sorted(tally.failed)[:stories]:
            scenario = draw(seed, wish)
            first = simulate(scenario).violations
            if first:
                small = smaller(scenario, same_rule(first[0]))
                print("\n" + story(simulate(small)))


def _mutants(only: str, first: int, jobs: int, most: int, file: str) -> int:
    missed, rows = 0, []
    for name, mutant in mutants.MUTANTS.items():
        if only not in name:
            continue
        tally = campaign(first, min(mutant.bound, most), wish=mutant.wish, jobs=jobs, mutant=name, stop_at=1)
        caught = min(tally.failed, default=None)
        missed += caught is None
        found = f"caught at seed {caught} ({tally.failed[caught][:110]})" if caught is not None else "NOT CAUGHT"
        print(f"{name:<40} {found} within {tally.runs} of {mutant.bound} seeds", flush=True)
        rows.append((name, mutant, tally.runs if caught is not None else None))
        if file:
            Path(file).write_text(report.mutants(rows))
    return 3 if missed else 0


if __name__ == "__main__":
    quick.thaw()
    sys.exit(main())
