"""Whether records of the source could expire before they are read, and which configs to lengthen. Pure.

Kafka deletes whole segments: by age, when the newest record of a segment is older than ``retention.ms``; by size,
while the log without its oldest segment is still at least ``retention.bytes``. The forecast takes the earliest moment
at which that can happen: each record alone in its segment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_MARGIN = 2.0
"""The time left is doubled: rates fall when a group restarts or a partition is hot."""


@dataclass(frozen=True)
class Unread:
    """The oldest unread record of one group on one partition.

    ``timestamp_ms``: its timestamp (ms since the epoch), None if it is not known. ``lag``: offsets left.
    ``seconds_left``: until the group has read them, the high bound; None if that cannot be told.
    ``bytes_unread``: size of the log from that record on; None if it is not known.
    """

    group: str
    partition: int
    timestamp_ms: int | None
    lag: int
    seconds_left: float | None
    bytes_unread: int | None = None


@dataclass(frozen=True)
class RetentionRisk:
    """``change``: config -> value to set, empty when nothing can expire in time; ``why``: lines for a person."""

    change: Mapping[str, str] = field(default_factory=dict)
    why: tuple[str, ...] = ()

    @property
    def at_risk(self) -> bool:
        """Whether records could expire before they are read."""
        return bool(self.change)


def retention_risk(  # noqa: PLR0913 - the facts of one forecast, by keyword
    *,
    cleanup_policy: str,
    retention_ms: int,
    retention_bytes: int,
    unread: Sequence[Unread],
    now_ms: int,
    extra_s: float,
    write_bytes_per_s: Mapping[int, float] | None = None,
    unknown_left_s: float = 86_400.0,
) -> RetentionRisk:
    """Compare the earliest possible deletion with the latest time of reading.

    ``cleanup_policy``, ``retention_ms`` and ``retention_bytes`` are the topic's effective configs (-1: no limit).
    ``extra_s`` is time that passes before reading can end anyway (freeze budget, approvals), in seconds.
    ``write_bytes_per_s``: what producers still write to each partition. ``unknown_left_s``, in seconds, stands in for a
    time left that cannot be told. Where a timestamp or a size is not known, a set limit counts as a risk: unknown
    is never OK. With cleanup.policy ``compact`` alone nothing expires. Lengthened values keep a margin of twice the
    time left, and one day more.
    """
    if "delete" not in cleanup_policy or not unread:
        return RetentionRisk()
    rates = write_bytes_per_s or {}
    change: dict[str, str] = {}
    why: list[str] = []
    need_ms = need_bytes = 0
    for u in unread:
        if u.lag <= 0:
            continue
        left_s = (unknown_left_s if u.seconds_left is None else u.seconds_left) * _MARGIN + extra_s
        if retention_ms >= 0:
            age_ms = None if u.timestamp_ms is None else max(0, now_ms - u.timestamp_ms)
            if age_ms is None or age_ms + left_s * 1000 >= retention_ms:
                used = retention_ms if age_ms is None else age_ms
                need_ms = max(need_ms, int(used + left_s * 1000) + _DAY_MS)
                why.append(_said(u, "retention.ms", retention_ms, "ms", left_s, age_ms))
        if retention_bytes >= 0:
            rate = rates.get(u.partition, 0.0)
            then = None if u.bytes_unread is None else int(u.bytes_unread + rate * left_s)
            if then is None or then >= retention_bytes:
                need_bytes = max(need_bytes, 2 * (then or retention_bytes))
                why.append(_said(u, "retention.bytes", retention_bytes, "bytes", left_s, then))
    if need_ms:
        change["retention.ms"] = str(max(need_ms, retention_ms + _DAY_MS))
    if need_bytes:
        change["retention.bytes"] = str(max(need_bytes, 2 * retention_bytes))
    return RetentionRisk(change, tuple(why))


_DAY_MS = 86_400_000


def _said(u: Unread, config: str, limit: int, unit: str, left_s: float, at: int | None) -> str:
    left = f"up to {left_s:.0f} s" + (" (assumed: its rate is not known)" if u.seconds_left is None else "")
    used = "a part of it that cannot be told" if at is None else f"{at} {unit} of it"
    return (
        f"{u.group} on partition {u.partition} needs {left} for {u.lag} offsets; {config} is {limit} {unit}, "
        f"and the oldest unread record uses {used}."
    )
