"""Who may answer a question."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Who:
    """Who may answer one question. ``people`` None: everybody whom Airflow lets. ``two``: it takes two people."""

    people: frozenset[str] | None = None
    two: bool = False
