"""An application under chaos, a process of its own: it follows the route and writes its own history.

    python -m tests.chaos.app producer --config-file F --topic T --name checkout --instance checkout-0 --history H
    python -m tests.chaos.app consumer --config-file F --topic T --name ledger --instance ledger-0 --history H

A key is written by one start of one instance, one record at a time, and header ``seq`` counts its records. A key of
which a record has failed is given up for a new one: so what was never written is the last of its key, and no gap for
the order proof. Exit code 0 after SIGTERM, 75 where the client library said
that it cannot go on (whoever supervises it starts it again).
"""

from __future__ import annotations

import argparse
import itertools
import logging
import queue
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.history import Writer

from lab.signals import ended_on_signal
from topicshift.adapters.kafka.connection import client_config
from topicshift.core.errors import TopicshiftError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from topicshift.core.route.records import Status

AGAIN = 75
"""Exit code of an application that its supervisor should start again (``EX_TEMPFAIL``)."""

SEQ = "seq"


def produce(args: argparse.Namespace, history: Writer) -> None:
    """Produce at a steady rate until SIGTERM."""
    from topicshift.client import RoutedProducer, RoutePaused

    stop = ended_on_signal()
    seqs: dict[str, int] = {}
    names = (f"{args.history.stem}/{n}" for n in itertools.count())
    free: queue.SimpleQueue[str] = queue.SimpleQueue()
    for _ in range(args.keys):
        free.put(next(names))

    def changed(status: Status, topic: str, epoch: int) -> None:
        history.add("says", status=status.value, topic=topic, epoch=epoch)

    def done(key: str, seq: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            history.add("unknown", key=key, seq=seq, error=error.str())
            free.put(next(names))
        else:
            place = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
            history.add("ack", key=key, seq=seq, **place)
            free.put(key)

    config = {**client_config(properties_file=args.config_file), "linger.ms": 20, "client.id": args.instance}
    producer = RoutedProducer(config, args.topic, args.name, max_block_s=0.5, on_change=changed)
    try:
        producer.wait_ready(60)
        history.add("ready")
        while not stop.wait(1 / args.rate):
            try:
                key = free.get(timeout=0.5)
            except queue.Empty:  # all of them wait for their acknowledgement
                continue
            seqs[key] = seq = seqs.get(key, -1) + 1
            history.add("try", key=key, seq=seq)
            while not stop.is_set():
                try:
                    producer.produce(key, b"x" * 20, {SEQ: str(seq)}, partial(done, key, seq))
                    break
                except RoutePaused:
                    continue
    finally:
        producer.close()


def consume(args: argparse.Namespace, history: Writer) -> None:
    """Process every record of the group until SIGTERM."""
    from topicshift.client import RoutedConsumer

    stop = ended_on_signal()

    def changed(status: Status, topic: str, epoch: int) -> None:
        history.add("says", status=status.value, topic=topic, epoch=epoch)

    def handle(message: Message) -> None:
        headers = {name: value for name, value in message.headers() or [] if isinstance(value, bytes)}
        place = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
        key, seq = (message.key() or b"").decode(), int(headers.get(SEQ, b"-1"))
        history.add("got", group=args.name, key=key, seq=seq, **place)

    config = {
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 500,
        "session.timeout.ms": 6_000,
        "fetch.wait.max.ms": 300,
        "client.id": args.instance,
        **client_config(properties_file=args.config_file),
    }
    with RoutedConsumer(config, args.topic, args.name, participant=args.name, on_change=changed) as consumer:
        history.add("ready")
        consumer.run(handle, stop)


def main(argv: list[str] | None = None) -> int:
    """Run one instance."""
    from confluent_kafka import KafkaException

    from topicshift.client.follower import RouteError

    parser = argparse.ArgumentParser(prog="python -m tests.chaos.app", description=__doc__)
    parser.add_argument("role", choices=("producer", "consumer"))
    parser.add_argument("--config-file", type=Path, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--instance", required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--rate", type=float, default=12.0, help="records a second of a producer")
    parser.add_argument("--keys", type=int, default=15)
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", stream=sys.stderr)
    history = Writer(args.history, args.instance)
    history.add("started", name=args.name, role=args.role)
    try:
        (produce if args.role == "producer" else consume)(args, history)
    except (TopicshiftError, RouteError, KafkaException) as error:
        history.add("gave_up", error=f"{type(error).__name__}: {error}"[:500])
        print(f"{time.strftime('%H:%M:%S')} gave up: {error}", file=sys.stderr)
        return AGAIN
    history.add("closed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
