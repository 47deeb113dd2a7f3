"""The first offsets of a group on the topic that it was released to. Pure.

A partition without a committed offset begins at its log start, and nothing of it is delivered before that offset is
committed: a member that came after this one and had ``auto.offset.reset=latest`` would skip what lies there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

Partition = tuple[str, int]
"""Topic and partition."""


class Seeds:
    """The assigned partitions that must not be read yet.

    :meth:`ask` names those whose committed offset is to be asked for; :meth:`told`, :meth:`starts` and
    :meth:`committed` take in what was learnt, and return what to do next. What could not be learnt is asked again.
    """

    def __init__(self) -> None:
        self._held: set[Partition] = set()
        self._committing: set[Partition] = set()

    def __bool__(self) -> bool:
        return bool(self._held)

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._held

    def hold(self, partitions: Iterable[Partition]) -> None:
        """These were assigned: deliver nothing of them."""
        self._held |= set(partitions)

    def forget(self, partitions: Collection[Partition]) -> None:
        """These were taken away."""
        self._held -= set(partitions)
        self._committing -= set(partitions)

    def ask(self) -> list[Partition]:
        """The partitions whose committed offset is to be asked for."""
        return sorted(self._held - self._committing)

    def told(self, offsets: Mapping[Partition, int | None]) -> tuple[dict[Partition, int], list[Partition]]:
        """Committed offsets, None where there is none; those that could not be read are left out.

        Returns what may be read from which offset, and the partitions whose log start is to be found.
        """
        ready = {p: o for p, o in offsets.items() if o is not None and p in self._held}
        self.forget(ready)
        return ready, sorted(p for p, o in offsets.items() if o is None and p in self._held)

    def starts(self, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
        """The log starts that were found: returns the offsets to commit."""
        wanted = {p: o for p, o in offsets.items() if p in self._held}
        self._committing |= set(wanted)
        return wanted

    def committed(self, partition: Partition, offset: int, *, ok: bool) -> dict[Partition, int]:
        """What became of a commit: returns what may be read from which offset."""
        if partition not in self._committing:
            return {}
        self._committing.discard(partition)
        if not ok:
            return {}
        self._held.discard(partition)
        return {partition: offset}
