"""Open transactions on the source before the freeze: observed, and aborted on a person's word alone."""

from __future__ import annotations

from topicshift.acts.context import MigrationContext
from topicshift.core.engine.decision import Decision
from topicshift.core.engine.view import Unknown, View
from topicshift.core.engine.words import Ask
from topicshift.core.errors import NotFound, Refused
from topicshift.core.fence import hanging
from topicshift.core.fence.decision import FenceSample, FenceSettings, OpenTransaction, find_open_transactions
from topicshift.ports import Clock, ClusterAdmin


def open_transactions(admin: ClusterAdmin, topic: str, clock: Clock) -> list[OpenTransaction]:
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
    return find_open_transactions(sample, FenceSettings(), int(at * 1000))


def abort_transactions(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Abort those transactions that a person agreed to abort and that hang unchanged.

    One that has ended meanwhile, or to which a record was added, is left alone. Each abort is in the audit trail before
    it is done.
    """
    assert not isinstance(view.transactions, Unknown)
    wanted, topic = set(view.transactions.hanging), ctx.row.source
    actor = view.answer(Ask.ABORT_TRANSACTIONS).by
    for t in hanging.abortable(open_transactions(ctx.admin, topic, ctx.clock)):
        if hanging.key(t) not in wanted or t.producer_id is None or t.producer_epoch is None:
            continue
        what = {
            "topic": topic,
            "partition": t.partition,
            "producer_id": t.producer_id,
            "producer_epoch": t.producer_epoch,
            "start_offset": t.start_offset,
        }
        ctx.event("transaction_abort_begun", what, actor=actor)
        ctx.check_seat()
        try:
            ctx.admin.abort_transaction(topic, t.partition, t.producer_id, t.producer_epoch)
        except Refused as refused:
            ctx.log(f"not aborted: {refused}")
            continue
        ctx.event("transaction_aborted", {"topic": topic, "transaction": hanging.key(t)}, actor=actor)
        ctx.log(f"aborted on the word of {actor}: {t.line(topic, int(ctx.clock.now().timestamp() * 1000))}")
