"""Who follows a route."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Follower:
    """An application that follows a route, by principal: its instances that are not gone."""

    logical: str
    role: str
    participant: str
    group: str | None
    principal: str | None
    instances: tuple[str, ...]
