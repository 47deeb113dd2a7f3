"""The report as Markdown: what came of a range of seeds, and which broken products were caught."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from .campaign import Tally
from .mutants import Mutant


def seeds(first: int, count: int, tally: Tally) -> str:
    """What came of a range of seeds."""
    lines = [
        "# What the simulator found",
        "",
        f"Seeds {first} to {first + count - 1}: {tally.runs} whole migrations; {len(tally.failed)} broke a promise.",
        f"Port calls of one: median {statistics.median(tally.calls):.0f}, most {max(tally.calls)}. Things that went "
        f"wrong in one: median {statistics.median(tally.faults):.0f}, most {max(tally.faults)}.",
        "",
        "| outcome | migrations |",
        "|---|---|",
        *(f"| {name} | {n} |" for name, n in tally.outcomes.most_common()),
        "",
        "| what went wrong | times |",
        "|---|---|",
        *(f"| {kind} | {n} |" for kind, n in sorted(tally.kinds.items())),
        "",
    ]
    if tally.failed:
        lines += ["| seed | promise |", "|---|---|"]
        lines += [f"| {seed} | {text[:160]} |" for seed, text in sorted(tally.failed.items())] + [""]
    return "\n".join(lines)


def mutants(rows: Sequence[tuple[str, Mutant, int | None]]) -> str:
    """Which broken products were caught."""
    caught = sum(runs is not None for _, _, runs in rows)
    lines = [
        f"## Broken products: {caught} of {len(rows)} caught",
        "",
        "| broken | how | caught within (seeds) | bound |",
        "|---|---|---|---|",
        *(f"| {name} | {m.what} | {'not caught' if runs is None else runs} | {m.bound} |" for name, m, runs in rows),
        "",
    ]
    return "\n".join(lines)
