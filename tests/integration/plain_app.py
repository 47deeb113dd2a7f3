"""An application that knows nothing of routes: it works on the topic that a file, or KAFKA_TOPIC, names when it starts.

    python plain_app.py producer|consumer|both FOLDER CLIENT_CONFIG

A producer writes some keys in turn, with a sequence number for each in the value, and keeps what was acknowledged in
``FOLDER/seen``; a consumer keeps there what it has processed. One that is both reads IN_TOPIC, and writes a record of a
key of its own to OUT_TOPIC for each that it has not written itself; what was acknowledged is in ``FOLDER/wrote``. Each
ends cleanly on SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

KEYS = 12


def main(role: str, folder: Path, config: dict[str, Any]) -> None:
    """Run until SIGTERM."""
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: ending.append(1))
    with (folder / "seen").open("a", buffering=1) as seen:
        if role == "both":
            with (folder / "wrote").open("a", buffering=1) as wrote:
                writer = Writer(os.environ["OUT_TOPIC"], folder, config, wrote)
                _consume(os.environ["IN_TOPIC"], config, seen, ending, writer)
            return
        topic = os.environ.get("KAFKA_TOPIC") or (folder / "topic").read_text()
        if role == "producer":
            _produce(Writer(topic, folder, config, seen), ending)
        else:
            _consume(topic, config, seen, ending)


class Writer:
    """Writes the next number of a key, and keeps what was acknowledged; which one is next outlives it."""

    def __init__(self, topic: str, folder: Path, config: dict[str, Any], kept: Any) -> None:
        self.topic, self.kept, self.numbers = topic, kept, folder / "numbers"
        self.done: dict[str, int] = json.loads(self.numbers.read_text()) if self.numbers.exists() else {}
        own = {key: value for key, value in config.items() if key not in ("group.id", "session.timeout.ms")}
        more = {"enable.idempotence": True, "linger.ms": 1, "partitioner": "murmur2_random"}
        self.producer = Producer({**own, **more})

    def write(self, key: str) -> None:
        """The next one."""
        self.done[key] = self.done.get(key, -1) + 1
        self.producer.produce(self.topic, str(self.done[key]), key, on_delivery=self._keep)
        self.producer.poll(0)

    def _keep(self, error: Any, message: Any) -> None:
        if error is not None:
            raise SystemExit(f"not delivered: {error}")
        self.kept.write(f"{message.key().decode()},{message.value().decode()},{message.topic()}\n")

    def flush(self) -> None:
        """Everything is acknowledged."""
        if self.producer.flush(20):
            raise SystemExit("records are left")
        self.numbers.write_text(json.dumps(self.done))


def _produce(writer: Writer, ending: list[int]) -> None:
    count = 0
    while not ending:
        writer.write(f"k{count % KEYS}")
        count += 1
        time.sleep(0.005)
    writer.flush()


def _consume(topic: str, config: dict[str, Any], seen: Any, ending: list[int], writer: Writer | None = None) -> None:
    more = {"auto.offset.reset": "latest", "enable.auto.commit": False}
    consumer = Consumer({**config, **more})
    consumer.subscribe([topic])
    while not ending:
        batch = [m for m in consumer.consume(50, 0.1) if m.error() is None]
        for message in batch:
            seen.write(f"{message.key().decode()},{message.value().decode()},{message.topic()}\n")
        if batch and writer is not None:
            for key in (message.key().decode() for message in batch):
                if key.startswith("k"):
                    writer.write(f"of-{key}")
            writer.flush()
        if batch:
            consumer.commit(asynchronous=False)
    consumer.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(Path(sys.argv[3]).read_text()))
