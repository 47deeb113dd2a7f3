"""What happened in a run, written down by those to whom it happened. The checker and the story read nothing else.

Applications write ``produce`` and ``deliver`` with outcomes ``ok``, ``fail`` or ``info`` (not known), as in Jepsen's
workload for Kafka; the world writes what became true of it; the proxies write each call of the product that changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Event:
    """One line: the time in seconds, who, what, and its particulars."""

    at: float
    who: str
    what: str
    data: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.data[name]

    def get(self, name: str, default: Any = None) -> Any:
        """A particular of the event."""
        return self.data.get(name, default)


class History:
    """The events of one run in the order of time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.events: list[Event] = []

    def add(self, who: str, what: str, **data: Any) -> None:
        """Write a line."""
        self.events.append(Event(self._now(), who, what, data))

    def of(self, *whats: str) -> Iterator[Event]:
        """The events of these kinds."""
        return (e for e in self.events if e.what in whats)
