"""TS306: transactions on the source."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level

TS306 = Code(
    "TS306",
    (Level.WARNING,),
    "The source is written in transactions. The fence waits for each to end; one that hangs holds it up to its "
    "time-out.",
    "Keep transaction.timeout.ms below the freeze budget; look at hanging ones before the cut-over.",
    of_a_moment=True,
)


@check(Scope.PARTICIPANTS, TS306, needs=("transactions", "offsets"))
def run(facts: Facts) -> Iterator[Finding]:
    """Fires on unfinished transactions now, and where the last stable offset lies below the end."""
    budget = facts.spec.freeze_budget.total_seconds() * 1000
    open_now = facts.snapshot.transactions or ()
    for txn in open_now:
        long = txn.timeout_ms is not None and txn.timeout_ms > budget
        yield TS306.warning(
            f"transaction {txn.transactional_id}",
            f"it is {txn.state.lower()} on {len(txn.partitions)} partition{'' if len(txn.partitions) == 1 else 's'}"
            + (f", with a time-out of {txn.timeout_ms / 1000:g} s" if txn.timeout_ms is not None else "")
            + ".",
            "The fence and the drain wait until it ends"
            + (
                "; its time-out is longer than the freeze budget, so a hanging one would void the run." if long else "."
            ),
            "See that it ends before the cut-over; keep transaction.timeout.ms below the freeze budget.",
        )
    if not open_now:
        held = sorted(
            p
            for p, o in (facts.snapshot.offsets or {}).items()
            if o.end is not None and o.end_committed is not None and o.end_committed < o.end
        )
        if held:
            yield TS306.warning(
                "source",
                f"an open transaction holds back {len(held)} partition(s): {', '.join(map(str, held[:10]))}.",
                "A read_committed group cannot pass it; the fence and the drain wait for its end.",
                "Look again; if it stays, find it with `kafka-transactions.sh find-hanging`.",
            )
