"""The driver of a Structured Streaming query that the hook ``streaming-query`` can stop, point and start.

``follow(spark, folder, options, write)`` runs the query that ``FOLDER/wanted.json`` asks for, and says in
``FOLDER/state.json`` what it does. ``write(batch, number)`` is what the application does with a batch of records.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

POLL_S = 0.2


class Stopping(Exception):
    """A batch that was about to begin when the query was told to stop: it is done when the query starts again."""


def follow(
    spark: Any, folder: Path, options: Mapping[str, str], write: Callable[[Any, int], None], poll_s: float = POLL_S
) -> None:
    """Do what the file asks for, for ever. ``options``: of the Kafka source, without topic and offsets."""
    while True:
        wanted = _wanted(folder)
        if wanted.get("run"):
            _run(spark, folder, wanted, options, write, poll_s)
        else:
            _say(folder, status="stopped")
        time.sleep(poll_s)


def _run(
    spark: Any,
    folder: Path,
    wanted: Mapping[str, Any],
    options: Mapping[str, str],
    write: Callable[[Any, int], None],
    poll_s: float,
) -> None:
    stopping = threading.Event()

    def batch(records: Any, number: int) -> None:
        if stopping.is_set():
            raise Stopping
        write(records, number)

    source = spark.readStream.format("kafka").options(**options).option("subscribe", wanted["topic"])
    if wanted.get("starting_offsets"):
        source = source.option("startingOffsets", wanted["starting_offsets"])
    query = (
        source.option("failOnDataLoss", "true")
        .load()
        .writeStream.foreachBatch(batch)
        .option("checkpointLocation", wanted["checkpoint"])
        .start()
    )
    _say(folder, status="running", topic=wanted["topic"])
    while query.isActive and _wanted(folder).get("run"):
        time.sleep(poll_s)
    # From here on no batch begins; one that is being written ends, and is committed, before the query is stopped.
    stopping.set()
    while query.isActive and query.status["isTriggerActive"]:
        time.sleep(poll_s)
    query.stop()
    _say(folder, status="stopped")


def _wanted(folder: Path) -> dict[str, Any]:
    file = folder / "wanted.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found


def _say(folder: Path, **state: str) -> None:
    (folder / "state.new").write_text(json.dumps(state))
    (folder / "state.new").replace(folder / "state.json")
