"""An audit trail verified a part at a time: what was verified is kept, and only later rows are looked at. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from topicshift.core.proof import audit
from topicshift.core.proof.audit import ChainHead
from topicshift.core.rows import EventRow, StepRow

AGAIN_S: Final = 600.0
"""Seconds after which a trail is verified from its first row again: rows that were verified may be changed later."""


@dataclass(frozen=True)
class Chain:
    """How far a trail was verified: ``count`` rows, the last of which has ``hash``.

    ``steps``: what those rows say of each step. ``problems``: what is wrong, in words; once there are some nothing
    further is read until it is begun anew. ``from_s``: when its first row was verified, in seconds since the epoch.
    """

    migration_id: str
    count: int = 0
    hash: str = ""
    from_s: float = 0.0
    steps: audit.Told = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def begun_anew(self, now_s: float) -> Chain:
        """The same, or an empty one where the first row was verified too long ago, or something was wrong."""
        if self.count and not self.problems and 0 <= now_s - self.from_s < AGAIN_S:
            return self
        return Chain(self.migration_id, from_s=now_s)


def read_on(chain: Chain, head: ChainHead, rows: Sequence[EventRow], steps: Sequence[StepRow], *, whole: bool) -> Chain:
    """Verify the rows that follow. ``whole``: they are the last ones, so the head and the steps have to agree."""
    problems = [problem.line() for problem in audit.verify_part(rows, chain.migration_id, chain.count, chain.hash)]
    told = audit.steps_told(rows, chain.steps)
    end = ChainHead(count=rows[-1].seq, hash=rows[-1].hash) if rows else ChainHead(count=chain.count, hash=chain.hash)
    if whole and not problems:
        problems += _end(end, head)
        problems += audit.compare_steps(steps, told)
    return replace(chain, count=end.count, hash=end.hash, steps=told, problems=tuple(problems))


def _end(end: ChainHead, head: ChainHead) -> list[str]:
    if end.count != head.count:
        return [f"row {end.count}: the trail ends here, the migration counts {head.count} events"]
    if end.count and end.hash != head.hash:
        return [f"row {end.count}: its hash is {end.hash[:12]}..., the migration names {head.hash[:12]}..."]
    return []
