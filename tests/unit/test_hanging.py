"""Which transactions are waited for before the freeze, and which are offered to a person."""

from __future__ import annotations

import pytest

from topicshift.core.fence import hanging
from topicshift.core.fence.decision import FenceSample, FenceSettings, OpenTransaction, find_open_transactions
from topicshift.core.kafka.cluster import ActiveProducer, Transaction

NOW = 10_000_000_000
MINUTE = 60_000


def leader(last_ms: int, start: int | None = 5) -> ActiveProducer:
    return ActiveProducer(
        partition=1,
        producer_id=7,
        producer_epoch=0,
        last_sequence=3,
        last_timestamp_ms=last_ms,
        txn_start_offset=start,
    )


def coordinator(started_ms: int, timeout_ms: int = 15 * MINUTE) -> Transaction:
    return Transaction(
        transactional_id="checkout-1",
        producer_id=7,
        producer_epoch=0,
        state="Ongoing",
        started_ms=started_ms,
        timeout_ms=timeout_ms,
        partitions=(1,),
    )


def seen(
    *, producers: tuple[ActiveProducer, ...] = (), transactions: tuple[Transaction, ...] = ()
) -> list[OpenTransaction]:
    sample = FenceSample(0, 0, "id", None, producers, transactions, ())
    return find_open_transactions(sample, FenceSettings(), NOW)


@pytest.mark.parametrize(
    ("producers", "transactions", "waits", "offered"),
    [
        pytest.param((leader(NOW - 1000),), (coordinator(NOW - MINUTE),), 0, 0, id="a live one: the fence waits"),
        pytest.param((leader(NOW - MINUTE),), (coordinator(NOW - MINUTE),), 1, 0, id="still, before its time-out"),
        pytest.param((leader(NOW - 20 * MINUTE),), (coordinator(NOW - 20 * MINUTE),), 0, 1, id="past its time-out"),
        pytest.param((leader(NOW - MINUTE),), (), 1, 0, id="no coordinator shows it: up to the longest time-out"),
        pytest.param((leader(NOW - 60 * MINUTE),), (), 0, 1, id="no coordinator shows it, and it is old"),
        pytest.param((), (coordinator(NOW - MINUTE),), 1, 0, id="only its coordinator knows it"),
        pytest.param((), (coordinator(NOW - 60 * MINUTE),), 0, 0, id="no leader holds it: no marker ends it"),
        pytest.param((leader(NOW - 60 * MINUTE, None),), (), 0, 0, id="an idle producer without a transaction"),
    ],
)
def test_what_is_waited_for_and_what_is_offered(
    producers: tuple[ActiveProducer, ...], transactions: tuple[Transaction, ...], waits: int, offered: int
) -> None:
    found = seen(producers=producers, transactions=transactions)
    assert (len(hanging.standing(found, NOW)), len(hanging.abortable(found))) == (waits, offered)


def test_a_yes_is_for_a_transaction_as_it_was() -> None:
    (old,) = seen(producers=(leader(NOW - 60 * MINUTE),))
    grown = old.model_copy(update={"last_sequence": 4})
    assert hanging.about("t", [old]) != hanging.about("t", [grown])
    assert hanging.about("t", [old]) != hanging.about("other", [old])


def test_the_question_says_who_what_and_that_silence_aborts_nothing() -> None:
    text = hanging.explain("payments", seen(producers=(leader(NOW - 60 * MINUTE),)), NOW)
    assert "| 1 | 7, epoch 0 | not shown | 5 | 3,600 s ago |" in text
    assert "Without an answer nothing is aborted" in text
