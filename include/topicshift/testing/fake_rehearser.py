"""A rehearser over a cluster in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topicshift.core.errors import Refused
from topicshift.core.spec.shadows import real_name
from topicshift.ports import Sample
from topicshift.testing.fakes import FakeCluster


class FakeRehearser:
    """:class:`topicshift.ports.Rehearser` over a :class:`FakeCluster`, whose records have no keys.

    ``on_write`` is called before and after each effect.
    """

    def __init__(self, cluster: FakeCluster, on_write: Callable[[str], None] = lambda _: None) -> None:
        self._cluster = cluster
        self._on_write = on_write

    def copy(self, source: str, shadow: str, *, most: int, timeout_s: float, keyed: bool = False) -> Sample:
        """As many records as each partition has, once."""
        _shadows(shadow)
        ends = self._cluster.offsets(shadow)
        if not any(o.end for o in ends.values()):
            self._on_write("copy")
            for p, o in self._cluster.offsets(source).items():
                self._cluster.produce(shadow, p, min(most, (o.end or 0) - (o.log_start or 0)))
            self._on_write("copied")
        records = sum(o.end or 0 for o in self._cluster.offsets(shadow).values())
        return Sample(records, records)

    def go_on(self, shadow: str, target: str) -> None:
        """One record, where there is none."""
        _shadows(shadow, target)
        if not any(o.end for o in self._cluster.offsets(target).values()):
            self._on_write("go on")
            self._cluster.produce(target, 0, 1)
            self._on_write("gone on")

    def forget(self, groups: Sequence[str]) -> None:
        """Delete them."""
        _shadows(*groups)
        self._on_write("forget")
        for group in groups:
            self._cluster._groups.pop(group, None)
        self._on_write("forgotten")

    def close(self) -> None:
        """Nothing is open."""


def _shadows(*names: str) -> None:
    for name in names:
        if real_name(name) is None:
            raise Refused(f"{name} is no topic or group of a rehearsal. Nothing was done.")
