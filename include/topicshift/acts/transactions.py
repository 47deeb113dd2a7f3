"""Open transactions on the source before the freeze: observed, and aborted on a person's word alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from topicshift.core.errors import NotFound, Refused, Transient
from topicshift.core.fence import hanging
from topicshift.core.fence.decision import FenceSample, FenceSettings, OpenTransaction, find_open_transactions
from topicshift.ports import Claim, Clock, ClusterAdmin, Journal

_GONE_TRIES = 100


def open_transactions(
    admin: ClusterAdmin, topic: str, clock: Clock, settings: FenceSettings | None = None
) -> list[OpenTransaction]:
    """Every transaction open on the topic: what the leaders hold open, joined with what the coordinators know.

    Raises ``NotFound`` for a missing topic, ``AccessDenied`` without READ on it, ``Unreadable`` without an answer.
    """
    info = admin.topic(topic)
    if info is None:
        raise NotFound(f"Topic {topic} does not exist, so its transactions cannot be looked at. Check the name.")
    at = clock.now().timestamp()
    sample = FenceSample(
        began=at,
        ended=at,
        topic_id=info.topic_id,
        offsets=None,
        producers=tuple(admin.producers(topic, range(info.partitions))),
        transactions=tuple(admin.transactions(topic)),
        stops=(),
    )
    return find_open_transactions(sample, settings or FenceSettings(), int(at * 1000))


def abort_approved(
    admin: ClusterAdmin,
    journal: Journal,
    claim: Claim,
    clock: Clock,
    topic: str,
    approved: Mapping[str, Any],
    *,
    actor: str,
    progress: Callable[[str], None],
    settings: FenceSettings | None = None,
) -> list[str]:
    """Abort those of the approved transactions that still hang, unchanged; returns their keys.

    ``approved`` is :func:`topicshift.core.fence.hanging.about` as the person saw it, ``actor`` who said yes. One
    that has ended meanwhile, or to which a record was added, is left alone. Each abort is in the audit trail before it
    is done.
    """
    wanted = set(approved.get("abort", ())) if approved.get("topic") == topic else set()
    done = []
    for t in hanging.abortable(open_transactions(admin, topic, clock, settings)):
        if hanging.key(t) not in wanted or t.producer_id is None or t.producer_epoch is None:
            continue
        what = {
            "topic": topic,
            "partition": t.partition,
            "producer_id": t.producer_id,
            "producer_epoch": t.producer_epoch,
            "start_offset": t.start_offset,
        }
        journal.event(claim, "transaction_abort_begun", actor, what)
        try:
            admin.abort_transaction(topic, t.partition, t.producer_id, t.producer_epoch)
        except Refused as refused:
            progress(f"not aborted: {refused}")
            continue
        done.append(t)
        progress(f"aborted on the word of {actor}: {t.line(topic, int(clock.now().timestamp() * 1000))}")
    _wait_gone(admin, topic, clock, done, settings)
    for t in done:
        journal.event(claim, "transaction_aborted", actor, {"topic": topic, "transaction": hanging.key(t)})
    return [hanging.key(t) for t in done]


def _wait_gone(
    admin: ClusterAdmin,
    topic: str,
    clock: Clock,
    aborted: Sequence[OpenTransaction],
    settings: FenceSettings | None,
) -> None:
    left = {(t.partition, t.producer_id, t.start_offset) for t in aborted}
    for _ in range(_GONE_TRIES if left else 0):
        seen = {(t.partition, t.producer_id, t.start_offset) for t in open_transactions(admin, topic, clock, settings)}
        left &= seen
        if not left:
            return
        clock.sleep(0.05)
    if left:
        raise Transient(
            f"Abort markers were written on {topic}, but its leaders still show open transactions: {sorted(left)}. "
            "Look again."
        )
