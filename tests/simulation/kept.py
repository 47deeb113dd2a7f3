"""What a long campaign has found so far, kept in a file, so that one that was broken off goes on where it was.

One file a commit of the product; each of its lines is a piece of seeds, and what came of them.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .campaign import Tally
from .scenario import Wish


class Kept:
    """The pieces that campaigns have done, in a file; those of another wish or another broken product are passed by."""

    def __init__(self, file: Path, wish: Wish, mutant: str = "") -> None:
        self._file, self._done = file, dict[tuple[int, int], Tally]()
        self._about = json.loads(json.dumps({"wish": asdict(wish), "mutant": mutant}))
        file.parent.mkdir(parents=True, exist_ok=True)
        for line in _read(file):
            if line["about"] == self._about:
                self._done[line["first"], line["last"]] = _tally(line["tally"])

    def of(self, piece: list[int]) -> Tally | None:
        """What came of these seeds, None where they were not run yet."""
        return self._done.get((piece[0], piece[-1]))

    def keep(self, piece: list[int], tally: Tally) -> None:
        """Write down what came of these seeds."""
        line = {"about": self._about, "first": piece[0], "last": piece[-1], "tally": vars(tally)}
        with self._file.open("a") as out:
            out.write(json.dumps(line) + "\n")


def commit_of_the_product() -> str:
    """The commit that is checked out here; empty where files differ from it, or outside of a repository."""

    def git(*args: str) -> str:
        return subprocess.run(["git", *args], capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--", "include", "plugins", "spark_jobs", "tests")
    return "" if changed else git("rev-parse", "--short", "HEAD")


def _read(file: Path) -> Iterator[dict[str, Any]]:
    """Each whole line. One that was torn off by the end of its process is cut away."""
    text = file.read_text() if file.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        file.write_text(whole)
    yield from map(json.loads, whole.splitlines())


def _tally(data: dict[str, Any]) -> Tally:
    tally = Tally(**{**data, "failed": {int(seed): text for seed, text in data["failed"].items()}})
    tally.outcomes, tally.kinds = Counter(data["outcomes"]), Counter(data["kinds"])
    return tally
