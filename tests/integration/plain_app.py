"""An application that knows nothing of routes: it works on the topic that a file, or KAFKA_TOPIC, names when it starts.

    python plain_app.py producer|consumer FOLDER CLIENT_CONFIG

A producer writes some keys in turn, with a sequence number for each in the value, and keeps what was acknowledged in
``FOLDER/seen``; a consumer keeps there what it has processed. Each ends cleanly on SIGTERM.
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
    topic = os.environ.get("KAFKA_TOPIC") or (folder / "topic").read_text()
    with (folder / "seen").open("a", buffering=1) as seen:
        if role == "producer":
            _produce(topic, folder, config, seen, ending)
        else:
            _consume(topic, config, seen, ending)


def _produce(topic: str, folder: Path, config: dict[str, Any], seen: Any, ending: list[int]) -> None:
    numbers = folder / "numbers"
    done: dict[str, int] = json.loads(numbers.read_text()) if numbers.exists() else {}
    producer = Producer({**config, "enable.idempotence": True, "linger.ms": 1, "partitioner": "murmur2_random"})

    def kept(error: Any, message: Any) -> None:
        if error is not None:
            raise SystemExit(f"not delivered: {error}")
        seen.write(f"{message.key().decode()},{message.value().decode()},{message.topic()}\n")

    count = 0
    while not ending:
        key = f"k{count % KEYS}"
        done[key] = done.get(key, -1) + 1
        producer.produce(topic, str(done[key]), key, on_delivery=kept)
        producer.poll(0)
        count += 1
        time.sleep(0.005)
    if producer.flush(20):
        raise SystemExit("records are left")
    numbers.write_text(json.dumps(done))


def _consume(topic: str, config: dict[str, Any], seen: Any, ending: list[int]) -> None:
    more = {"auto.offset.reset": "latest", "enable.auto.commit": False}
    consumer = Consumer({**config, **more})
    consumer.subscribe([topic])
    while not ending:
        batch = [m for m in consumer.consume(50, 0.1) if m.error() is None]
        for message in batch:
            seen.write(f"{message.key().decode()},{message.value().decode()},{message.topic()}\n")
        if batch:
            consumer.commit(asynchronous=False)
    consumer.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(Path(sys.argv[3]).read_text()))
