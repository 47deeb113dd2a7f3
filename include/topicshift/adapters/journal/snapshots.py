"""What pages show of a journal, kept between two requests: only migrations that were written to are read again.

Nothing can be written to a migration without moving the head of its audit trail, so a head that stands still means that
what was read of it still holds.
"""

from __future__ import annotations

import threading

from topicshift.adapters.journal.overview import Overview
from topicshift.core.page.chain import Chain, read_on
from topicshift.core.page.listing import Shown, Unclear, shown
from topicshift.core.proof.audit import ChainHead

PART = 2000
"""Rows of a trail that are verified at a time."""


class Snapshots:
    """The migrations of one journal. Threads may share one."""

    def __init__(self, overview: Overview) -> None:
        self.overview = overview
        self._kept: dict[str, tuple[ChainHead, Shown | Unclear]] = {}
        self._chains: dict[str, Chain] = {}
        self._verifying = threading.Lock()

    def all(self) -> list[Shown | Unclear]:
        """Every migration, as it is now."""
        heads = self.overview.heads()
        changed = [name for name, head in heads.items() if self._old(name, head)]
        self._read(changed)
        for gone in self._kept.keys() - heads.keys():
            self._kept.pop(gone, None)
        # Read once: another thread may take one away.
        return [kept[1] for kept in (self._kept.get(name) for name in heads) if kept is not None]

    def one(self, migration_id: str) -> Shown | Unclear | None:
        """One migration as it is now, None where there is none of this id."""
        self._read([migration_id])
        kept = self._kept.get(migration_id)
        return kept[1] if kept is not None else None

    def chain(self, migration_id: str, now_s: float) -> Chain:
        """Its audit trail, verified up to its last row; what was verified before is not read again for a while.

        ``now_s``: seconds since the epoch.
        """
        with self._verifying:
            chain = self._chains.get(migration_id, Chain(migration_id))
            chain = chain.begun_anew(now_s)
            while True:
                head, rows, steps = self.overview.events_after(migration_id, chain.count, PART)
                chain = read_on(chain, head, rows, steps, whole=len(rows) < PART)
                if len(rows) < PART or chain.problems:
                    break
            self._chains[migration_id] = chain
            return chain

    def _old(self, name: str, head: ChainHead) -> bool:
        kept = self._kept.get(name)
        return kept is None or kept[0] != head

    def _read(self, wanted: list[str]) -> None:
        found = self.overview.found(wanted) if wanted else {}
        for name, one in found.items():
            self._kept[name] = one.head, shown(one.row, one.steps, one.events, one.owners, one.unread)
        for gone in set(wanted) - found.keys():
            self._kept.pop(gone, None)
