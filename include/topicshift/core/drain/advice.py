"""Client settings after a change of the partition count, each with the figure it follows from. Pure."""

from __future__ import annotations

from topicshift.core.base import Model

MAX_POLL_RECORDS, MAX_POLL_INTERVAL_S, BATCH_BYTES = 500, 300, 16_384
"""Defaults of Kafka's clients: ``max.poll.records``, ``max.poll.interval.ms`` in seconds, ``batch.size``."""


class Advice(Model):
    """One client setting after the change."""

    client: str
    setting: str
    value: str
    why: str


def client_advice(source: int | None, count: int) -> list[Advice]:
    """What follows from the two counts alone, whatever the rates are."""
    out = [
        Advice(
            client="consumer",
            setting="partition.assignment.strategy",
            value="cooperative-sticky (or group.protocol=consumer)",
            why="A rebalance moves only the partitions that change hands; the eager one stops every consumer.",
        ),
        Advice(
            client="consumer",
            setting="group.instance.id",
            value="one fixed id an instance",
            why="A restart within the session time-out does not start a rebalance.",
        ),
    ]
    if source and count >= 2 * source:
        times = f"{count / source:.2g}"
        out += [
            Advice(
                client="consumer",
                setting="max.poll.interval.ms",
                value="600000",
                why=f"{times} times the partitions can mean longer polls at first; slow consumers stay in.",
            ),
            Advice(
                client="consumer",
                setting="session.timeout.ms / heartbeat.interval.ms",
                value="30000 / 10000",
                why="A pause during the first big rebalance does not throw a consumer out.",
            ),
            Advice(
                client="producer",
                setting="linger.ms",
                value=f"about {times} times today's, if throughput matters; 0 to 5 if latency does",
                why=f"The same records spread over {times} times the partitions fill a batch that much slower.",
            ),
        ]
    return out


def polls(per_consumer: float) -> Advice:
    """How many records a poll may bring, from what one consumer works through: half the interval is left as room."""
    seconds = MAX_POLL_RECORDS / per_consumer
    fits = max(1, int(per_consumer * MAX_POLL_INTERVAL_S / 2))
    return Advice(
        client="consumer",
        setting="max.poll.records",
        value=str(MAX_POLL_RECORDS if fits >= MAX_POLL_RECORDS else fits),
        why=f"At {per_consumer:,.4g} records/s a poll of {MAX_POLL_RECORDS} takes {seconds:,.3g} s of the "
        f"{MAX_POLL_INTERVAL_S} s that max.poll.interval.ms allows by default.",
    )


def batches(throughput: float, record_bytes: float | None, count: int) -> list[Advice]:
    """Batches against latency, from the bytes that one partition gets; nothing without the size of a record."""
    if not record_bytes:
        return []
    rate = throughput / count * record_bytes
    fill_ms = 1000 * BATCH_BYTES / rate
    return [
        Advice(
            client="producer",
            setting="batch.size",
            value=f"{BATCH_BYTES} (the default) fills in {fill_ms:,.3g} ms a partition",
            why=f"{throughput / count:,.4g} records/s of {record_bytes:,.0f} bytes reach a partition, from all "
            "producers together; a linger.ms below that sends batches part full, and a larger batch.size does nothing.",
        )
    ]
