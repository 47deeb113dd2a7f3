"""Transactions that stand still before the freeze: which to wait for, which to offer to a person. Pure.

Kafka ends a transaction by itself at its time-out. One that is still open after that hangs (KIP-664): no coordinator
will ever end it, the last stable offset stays below the end, and no fence can hold. Only a person may have it aborted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topicshift.core.fence.decision import OpenTransaction

QUIET_S = 10.0
"""A transaction without a new record for so long is waited for before the freeze: its producer may be gone."""


def key(transaction: OpenTransaction) -> str:
    """One open transaction at one state: it changes with every record that its producer adds."""
    t = transaction
    return f"{t.partition}:{t.producer_id}:{t.producer_epoch}:{t.start_offset}:{t.last_sequence}"


def abortable(transactions: Sequence[OpenTransaction]) -> list[OpenTransaction]:
    """Those past every time-out that a partition's leader holds open: an abort marker ends them."""
    return [t for t in transactions if t.hanging and t.start_offset is not None]


def standing(transactions: Sequence[OpenTransaction], now_ms: int) -> list[OpenTransaction]:
    """Those that had no record for :data:`QUIET_S` and that Kafka will end by itself at a known time."""
    out = []
    for t in transactions:
        last = t.last_timestamp_ms if t.last_timestamp_ms is not None else t.started_ms
        quiet = last is None or now_ms - last >= QUIET_S * 1000
        if quiet and not t.hanging and t.ends_by_ms is not None:
            out.append(t)
    return out


def about(topic: str, transactions: Sequence[OpenTransaction]) -> dict[str, Any]:
    """What a person's yes is for: exactly these transactions, with nothing added to them since."""
    return {"topic": topic, "abort": sorted(key(t) for t in transactions)}


def explain(topic: str, transactions: Sequence[OpenTransaction], now_ms: int) -> str:
    """The question to a person, as Markdown."""
    rows = [
        f"| {t.partition} | {t.producer_id}, epoch {t.producer_epoch} | {t.transactional_id or 'not shown'} "
        f"| {t.start_offset} | {_ago(t.last_timestamp_ms, now_ms)} |"
        for t in transactions
    ]
    return "\n".join(
        [
            f"**{len(transactions)}** transaction(s) on `{topic}` are past every time-out and still open. No "
            "coordinator will end them: read_committed groups stand before them for ever, and no fence can hold.",
            "",
            "| partition | producer id | transactional id | begins at offset | last record |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "Look first whether such a producer lives (a coordinator may also be hidden from this client, which needs "
            "DESCRIBE on the transactional ids). **Abort** writes an abort marker for exactly these: their records are "
            "then lost to read_committed readers. **Leave them** ends this run; nobody was stopped. Without an answer "
            "nothing is aborted.",
        ]
    )


def _ago(timestamp_ms: int | None, now_ms: int) -> str:
    return "not known" if timestamp_ms is None else f"{max(0, now_ms - timestamp_ms) / 1000:,.0f} s ago"
