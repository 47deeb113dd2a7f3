"""Live traffic as real separate processes that follow the route and keep a log each of what they sent or processed.

    python -m lab.load backlog  --config-file F --topic T --records N --keys K --seqs S --log L
    python -m lab.load producer --config-file F --topic T --name checkout --index 0 --of 3 --log L ...
    python -m lab.load consumer --config-file F --topic T --name ledger --log L ...

Every record has a key, owned by exactly one process, and a header ``seq``: the number of that record among those of
its key, from 0. A log is CSV (``key,seq,topic,partition,offset,t``; ``t`` from the monotonic clock, in ns, which all
processes of a machine share), one row written before anything is acknowledged or committed, so that not even SIGKILL
loses one. What a client did (paused, running, ...) goes into ``<log>.events``, one JSON object a line.
:mod:`lab.load_proof` computes the proof from these files alone; :class:`Life` starts them all.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from lab.signals import Ended, ended_on_signal
from topicshift.adapters.kafka.connection import client_config

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from topicshift.core.route.records import Status

COLUMNS = "key,seq,topic,partition,offset,t"
SEQ_HEADER = "seq"
_VALUE = b'{"amount": 12.5, "currency": "EUR", "note": "' + b"x" * 60 + b'"}'


class Journal:
    """The log of one process. ``kind`` is ``sent`` or ``processed``; ``name`` the application or the group."""

    def __init__(self, path: Path, kind: str, name: str, *, buffered: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Line by line into the page cache: it survives SIGKILL, and costs about 2 us a row.
        self._rows: TextIO = path.open("w", buffering=1 << 20 if buffered else 1)
        self._events: TextIO = path.with_name(path.name + ".events").open("w", buffering=1)
        self._rows.write(f"# {json.dumps({'kind': kind, 'name': name, 'process': path.stem})}\n{COLUMNS}\n")

    def row(self, key: str, seq: int, topic: str | None, partition: int | None, offset: int | None) -> None:
        """One record sent and acknowledged, or processed."""
        self._rows.write(f"{key},{seq},{topic},{partition},{offset},{time.monotonic_ns()}\n")

    def event(self, what: str, **more: Any) -> None:
        """Something that happened to this process."""
        self._events.write(json.dumps({"event": what, "t": time.monotonic_ns(), "at": time.time(), **more}) + "\n")

    def close(self) -> None:
        """Write what is buffered."""
        self._rows.close()
        self._events.close()


def key_name(index: int) -> str:
    """The key of this index."""
    return f"key-{index:05d}"


def zipf_choice(indices: list[int], seed: int, skew: float = 0.8) -> Iterator[int]:
    """Endless indices, the first ones more often: the weight of the n-th is 1 / n**skew."""
    weights = list(accumulate(1.0 / (n + 1) ** skew for n in range(len(indices))))
    chooser = random.Random(seed)  # noqa: S311 - test traffic
    while True:
        yield from chooser.choices(indices, cum_weights=weights, k=1000)


# ------------------------------------------------------------------------------------------------ processes


def run_backlog(args: argparse.Namespace) -> int:
    """Write ``--records`` records as fast as the broker takes them; leave the next sequence numbers in ``--seqs``."""
    from confluent_kafka import Producer

    journal = Journal(args.log, "sent", "backlog", buffered=True)
    failed: list[str] = []
    producer = Producer(
        {
            **client_config(properties_file=args.config_file),
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 20,
            "queue.buffering.max.messages": 50_000,
        }
    )

    def done(key: str, seq: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error.str())
        else:
            journal.row(key, seq, message.topic(), message.partition(), message.offset())

    seqs: dict[str, int] = {}
    for index, _ in zip(zipf_choice(list(range(args.keys)), args.seed), range(args.records), strict=False):
        key = key_name(index)
        seq = seqs.get(key, 0)
        seqs[key] = seq + 1
        while True:
            try:
                producer.produce(
                    args.topic, _VALUE, key, headers=[(SEQ_HEADER, str(seq))], on_delivery=partial(done, key, seq)
                )
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    left = producer.flush(120)
    journal.event("done", failed=len(failed), left=left)
    journal.close()
    if args.seqs:
        args.seqs.write_text(json.dumps(seqs))
    if failed or left:
        sys.stderr.write(f"{len(failed)} records failed ({failed[:1]}), {left} are undelivered\n")
        return 1
    return 0


def seq_of(message: Message) -> int:
    """The record's sequence number as it stands in its header."""
    headers: list[tuple[str, bytes | None]] = message.headers() or []  # type: ignore[assignment]
    value = dict(headers).get(SEQ_HEADER)
    return int(value) if value is not None else -1


def run_producer(args: argparse.Namespace) -> int:
    """Produce ``--rate`` records/s for the keys of this process until SIGTERM, following the route."""
    stop = ended_on_signal()
    if args.instances == 1:
        return produce(args, stop)
    each = [
        {"log": numbered(args.log, n), "index": args.index * args.instances + n, "of": args.of * args.instances}
        for n in range(args.instances)
    ]
    return side_by_side([partial(produce, argparse.Namespace(**{**vars(args), **own}), stop) for own in each])


def numbered(log: Path, n: int) -> Path:
    """The log of one of several instances that share a process."""
    return log.with_name(f"{log.stem}-{n}{log.suffix}")


def side_by_side(runs: list[Callable[[], int]]) -> int:
    """Run every one in a thread of its own; the worst exit code. Raises what the first of them that failed raised."""
    with ThreadPoolExecutor(len(runs)) as pool:
        return max(done.result() for done in [pool.submit(run) for run in runs])


def produce(args: argparse.Namespace, stop: Ended) -> int:
    """One instance of a producer."""
    from topicshift.client import RoutedProducer, RoutePaused

    journal = Journal(args.log, "sent", args.name)
    seqs: dict[str, int] = json.loads(args.seqs.read_text()) if args.seqs else {}
    mine = [i for i in range(args.keys) if i % args.of == args.index]

    def changed(status: Status, topic: str, epoch: int) -> None:
        journal.event(status.value, topic=topic, epoch=epoch)

    def done(key: str, seq: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            journal.event("failed", key=key, seq=seq, error=error.str())
        else:
            journal.row(key, seq, message.topic(), message.partition(), message.offset())

    config = {**client_config(properties_file=args.config_file), "linger.ms": 40, "client.id": args.log.stem}
    producer = RoutedProducer(config, args.topic, args.name, max_block_s=0.5, on_change=changed)
    producer.wait_ready(60)
    journal.event("ready", instance=producer.instance)
    choice = zipf_choice(mine, args.seed + args.index)
    due = time.monotonic()
    while not stop.is_set():
        key = key_name(next(choice))
        seq = seqs.get(key, 0)
        while not stop.is_set():
            try:
                producer.produce(key, _VALUE, {SEQ_HEADER: str(seq)}, partial(done, key, seq))
            except RoutePaused:
                continue
            seqs[key] = seq + 1
            break
        due += 1.0 / args.rate
        behind = time.monotonic() - due
        if behind > 1.0:  # after a pause: go on at the rate, do not make up for it
            due = time.monotonic()
        elif behind < 0:
            stop.wait(-behind)
    left = producer.close()
    journal.event("closed", left=left)
    journal.close()
    return 0 if left == 0 else 1


def run_consumer(args: argparse.Namespace) -> int:
    """Process every record of the group, ``--delay-ms`` each, until SIGTERM, following the route."""
    stop = ended_on_signal()
    groups = (args.group or args.name).split(",")
    if len(groups) == 1:
        return consume(args, stop)
    each = [{"log": args.log.with_name(f"processed-{g}-0.csv"), "group": g, "name": g} for g in groups]
    return side_by_side([partial(consume, argparse.Namespace(**{**vars(args), **own}), stop) for own in each])


def consume(args: argparse.Namespace, stop: Ended) -> int:
    """One member of a group."""
    from topicshift.client import RoutedConsumer

    journal = Journal(args.log, "processed", args.group or args.name)

    def changed(status: Status, topic: str, epoch: int) -> None:
        journal.event(status.value, topic=topic, epoch=epoch)

    config = {
        "auto.offset.reset": args.offset_reset,
        "heartbeat.interval.ms": 500,
        "session.timeout.ms": 10_000,
        # By default: a fetch for each single record would keep a broker of a small machine busy for nothing.
        "fetch.min.bytes": args.fetch_min_bytes,
        "fetch.wait.max.ms": args.fetch_wait_ms,
        "client.id": args.log.stem,
        **client_config(properties_file=args.config_file),
    }
    debt = 0.0

    def handle(message: Message) -> None:
        nonlocal debt
        journal.row(
            (message.key() or b"").decode(), seq_of(message), message.topic(), message.partition(), message.offset()
        )
        if args.delay_ms:
            debt += args.delay_ms / 1000
            if debt >= 0.002:  # a sleep per record would cost more than the delay itself
                time.sleep(debt)
                debt = 0.0

    with RoutedConsumer(config, args.topic, args.group or args.name, participant=args.name, on_change=changed) as c:
        journal.event("ready", instance=c.instance)
        c.run(handle, stop)
    journal.event("closed")
    journal.close()
    return 0


def main(argv: list[str] | None = None) -> int:
    """One process of the load; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m lab.load", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for name, run in (("backlog", run_backlog), ("producer", run_producer), ("consumer", run_consumer)):
        command = commands.add_parser(name, help=run.__doc__)
        command.set_defaults(run=run)
        command.add_argument("--config-file", type=Path, required=True, help="Kafka client properties")
        command.add_argument("--topic", required=True, help="the logical topic")
        command.add_argument("--log", type=Path, required=True, help="the log of this process")
        command.add_argument("--keys", type=int, default=2000, help="how many keys there are in all")
        command.add_argument("--seed", type=int, default=1, help="of the choice of keys")
        command.add_argument("--seqs", type=Path, help="the next sequence number of each key, as JSON")
        command.add_argument("--name", default=name, help="the participant's name")
        if name == "backlog":
            command.add_argument("--records", type=int, default=200_000)
        elif name == "producer":
            command.add_argument("--rate", type=float, default=100.0, help="records a second")
            command.add_argument("--index", type=int, default=0, help="which of the producer processes this is")
            command.add_argument("--of", type=int, default=1, help="how many producer processes there are")
            command.add_argument("--instances", type=int, default=1, help="producers in this process, each with a log")
        else:
            command.add_argument("--group", help="the group; the name by default; several with commas between")
            command.add_argument("--delay-ms", type=float, default=0.0, help="work per record")
            command.add_argument("--fetch-min-bytes", type=int, default=16_384, help="fetch.min.bytes")
            command.add_argument("--fetch-wait-ms", type=int, default=100, help="fetch.wait.max.ms")
            command.add_argument("--offset-reset", default="earliest", choices=("earliest", "latest"))
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", stream=sys.stderr)
    return int(args.run(args))


if __name__ == "__main__":
    sys.exit(main())
