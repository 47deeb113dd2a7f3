"""A Structured Streaming query under the driver of ``docs/examples``: it keeps what it is given.

    python stream_app.py FOLDER

``FOLDER/client.properties`` is how it reaches Kafka; ``FOLDER/seen`` gets a line a record, by batch.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from lab.spark import local_spark, quick_start_options

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "streaming_query.py"


def main(folder: Path) -> None:
    """Follow what the hook wants, for ever."""
    found = importlib.util.spec_from_file_location("streaming_query", EXAMPLE)
    assert found is not None and found.loader is not None
    example = importlib.util.module_from_spec(found)
    found.loader.exec_module(example)
    lines = (folder / "client.properties").read_text().splitlines()
    properties = dict(line.split("=", 1) for line in lines if "=" in line)
    options = {f"kafka.{name}": value for name, value in properties.items()}
    quick = {"spark.driver.extraJavaOptions": f"{quick_start_options()} -Dlog4j2.level=WARN"}
    quick |= {"spark.sql.streaming.pollingDelay": "50ms"}
    spark = local_spark("streaming", cores=1, memory="512m", conf=quick)

    def keep(records: Any, number: int) -> None:
        rows = records.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "topic", "partition", "offset")
        with (folder / "seen").open("a") as seen, (folder / "offsets").open("a") as offsets:
            for key, value, topic, partition, offset in sorted(rows.collect(), key=lambda r: (r[2], r[3], r[4])):
                seen.write(f"{key},{value},{topic}\n")
                offsets.write(f"{topic},{partition},{offset}\n")

    example.follow(spark, folder, options, keep)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
