"""The impact job as ``spark-submit`` runs it, and what it does when topic, broker or rights are not there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.testing import assertDataFrameEqual

from lab.broker import EmbeddedBroker
from lab.java import find_java
from lab.runfolder import ROOT
from lab.spark import spark_jars
from topicshift.core.errors import AccessDenied, NotFound, SpecError, Unreadable
from topicshift.core.impact.report import Impact
from topicshift_spark.progress import progress
from topicshift_spark.result import first_cause

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark]


PROGRESS = (r"^Asking .* for the offsets of", r"^Reading 300 offsets of .* \.\.\.$", r"^Reading .* done in [\d.]+ s$")


def filled(admin: AdminClient, config: dict[str, str], topic: str, records: int = 300) -> None:
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(20)
    producer = Producer({**config, "partitioner": "murmur2_random", "enable.idempotence": True})
    for i in range(records):
        producer.produce(topic, b"secret value", b"customer-%d" % (i % 40))
    assert producer.flush(30) == 0


def arguments(topic: str, bootstrap: str, folder: Path, *more: str) -> list[str]:
    where = ["--topic", topic, "--bootstrap-server", bootstrap, "--output", str(folder)]
    return [*where, "--candidates", "6,7", "--timeout", "6", *more]


def test_spark_submit_writes_result_and_report(
    admin_client: AdminClient, broker: EmbeddedBroker, topic_name: Callable[..., str], tmp_path: Path
) -> None:
    topic = topic_name()
    filled(admin_client, broker.config(), topic)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [
        *(str(submit), "--master", "local[1]", "--driver-memory", "1g"),
        *("--jars", ",".join(map(str, spark_jars()))),
        str(ROOT / "spark_jobs" / "key_rehash_impact.py"),
        *arguments(topic, broker.bootstrap, tmp_path / "out"),
    ]
    env = {**os.environ, "JAVA_HOME": str(find_java().home), "PYTHONPATH": str(ROOT / "include")}
    env |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    # spark-submit gives the driver's stderr out as stdout; the answer is the last line.
    *log, answer = done.stdout.strip().splitlines()
    assert answer == str(tmp_path / "out" / "impact.json")
    for wanted in PROGRESS:
        assert any(re.search(wanted, line) for line in log), log
    found = Impact.model_validate_json((tmp_path / "out" / "impact.json").read_text())
    assert (found.records, found.distinct_keys, found.partitioner.name) == (300, 40, "murmur2")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["impact.html", "impact.json"]
    everything = (tmp_path / "out" / "impact.html").read_text() + (tmp_path / "out" / "impact.json").read_text()
    assert "customer-" not in everything
    assert "secret value" not in everything


def test_a_topic_that_is_not_there(job: Any, broker: EmbeddedBroker, admin_client: AdminClient, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such topic") as error:
        job.main(arguments("no-such-topic", broker.bootstrap, tmp_path))
    assert error.value.exit_code == 2
    with pytest.raises(SpecError, match="not a legal topic name"):
        job.main(arguments("a/b", broker.bootstrap, tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert "no-such-topic" not in admin_client.list_topics(timeout=10).topics


def test_a_broker_that_is_not_there(job: Any, tmp_path: Path) -> None:
    with pytest.raises(Unreadable) as error:
        job.main(arguments("t", "127.0.0.1:1", tmp_path))
    assert error.value.exit_code == 4
    assert "127.0.0.1:1" in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_broker_that_goes_away_in_the_middle(
    job: Any, topic_name: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedBroker() as broker:
        topic = topic_name()
        filled(AdminClient(broker.config()), broker.config(), topic)
        freeze = job.freeze

        def freeze_then_die(*args: Any) -> Any:
            frozen = freeze(*args)
            broker.kill()
            return frozen

        monkeypatch.setattr(job, "freeze", freeze_then_die)
        with pytest.raises(Unreadable, match="could not be read to the end") as error:
            job.main(arguments(topic, broker.bootstrap, tmp_path))
    assert error.value.exit_code == 4
    assert list(tmp_path.iterdir()) == []


def test_records_that_expire_in_the_middle(
    job: Any,
    admin_client: AdminClient,
    broker: EmbeddedBroker,
    topic_name: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from confluent_kafka import OFFSET_END, TopicPartition

    topic = topic_name()
    filled(admin_client, broker.config(), topic)
    freeze = job.freeze

    def freeze_then_expire(*args: Any) -> Any:
        frozen = freeze(*args)
        for future in admin_client.delete_records([TopicPartition(topic, p, OFFSET_END) for p in range(3)]).values():
            future.result(20)
        return frozen

    monkeypatch.setattr(job, "freeze", freeze_then_expire)
    with pytest.raises(Unreadable):
        job.main(arguments(topic, broker.bootstrap, tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_rights_that_are_missing(
    job: Any,
    secure_broker: EmbeddedBroker,
    secure_admin_client: AdminClient,
    topic_name: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic = topic_name()
    filled(secure_admin_client, secure_broker.superuser_config(), topic)
    config = secure_broker.write_client_properties("rogue", tmp_path / "rogue.properties")
    out = tmp_path / "out"
    options = ["--topic", topic, "--kafka-config", str(config), "--candidates", "6", "--output", str(out)]
    with pytest.raises((AccessDenied, NotFound)) as error:
        job.main([*options, "--timeout", "6"])
    assert secure_broker.users["rogue"] not in str(error.value)
    assert list(out.iterdir()) == []
    admin = secure_broker.write_client_properties(None, tmp_path / "admin.properties")
    options[3] = str(admin)
    assert job.main(options) == 0
    assert Impact.model_validate(json.loads((out / "impact.json").read_text())).records == 300


def test_groups_that_name_a_partition_that_is_not_there(
    job: Any, admin_client: AdminClient, broker: EmbeddedBroker, topic_name: Callable[..., str], tmp_path: Path
) -> None:
    topic = topic_name()
    filled(admin_client, broker.config(), topic, 20)
    file = tmp_path / "groups.json"
    file.write_text('{"ledger": {"7": 1}}')
    with pytest.raises(SpecError, match="ledger"):
        job.main(arguments(topic, broker.bootstrap, tmp_path / "out", "--groups-file", str(file)))


def test_a_long_read_says_how_far_it_is(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    def slowly(batches: Any) -> Any:
        for batch in batches:
            time.sleep(0.5)
            yield batch

    with progress(spark, "Reading 4 offsets", every_s=0.1):
        spark.range(0, 4, 1, 4).mapInArrow(slowly, "id bigint").collect()
    said = capsys.readouterr().err
    assert re.search(r"^Reading 4 offsets: \d+ s, [0-3] of 4 tasks", said, re.MULTILINE), said
    assert said.rstrip().splitlines()[-1].startswith("Reading 4 offsets: done in")


def test_a_failed_task_is_told_by_its_cause(spark: SparkSession) -> None:
    def broken(batches: Any) -> Any:
        raise RuntimeError("the disk is full")
        yield from batches

    with pytest.raises(Exception, match="the disk is full") as caught:
        spark.range(4).mapInArrow(broken, "id bigint").collect()
    assert "the disk is full" in first_cause(caught.value)[:200]


def test_the_native_half_groups_and_counts(spark: SparkSession) -> None:
    """The transformations on plain rows; counters are unpacked here by hand."""
    from pyspark.sql import functions as F  # noqa: N812

    from topicshift_spark.impact_query import grouped, packing, with_measures

    rows = [
        (b"a", b"12345", 0, 1000, 0),
        (b"a", None, 0, 2000, 0),
        (b"a", b"1", 1, 1500, 0),
        (b"", b"", 1, 5000, 0),
        (None, b"123", 1, 0, 0),
        (None, None, 1, 1999, 0),
    ]
    schema = "key binary, value binary, partition int, millis bigint, replicate int"
    records = spark.createDataFrame(rows, schema).withColumn("timestamp", F.timestamp_millis("millis"))
    measures = with_measures(records, [1500, 2000])
    assertDataFrameEqual(
        measures.select("key", "partition", "size", "tombstone", "slice"),
        spark.createDataFrame(
            [
                (b"a", 0, 5, False, 0),
                (b"a", 0, 0, True, 2),
                (b"a", 1, 1, False, 1),
                (b"", 1, 0, False, 2),
                (None, 1, 3, False, 0),
                (None, 1, 0, True, 1),
            ],
            "key binary, partition int, size bigint, tombstone boolean, slice int",
        ),
    )
    pack = packing(3, 255)
    assert (pack.bits, pack.longs) == (8, 1)
    one = [1 << 8 * i for i in range(4)]
    assertDataFrameEqual(
        grouped(measures, pack, 1).select("key", "partition", "value_bytes", "counters_0"),
        spark.createDataFrame(
            [
                (b"a", 0, 5, one[0] + one[2] + one[3]),
                (b"a", 1, 1, one[1]),
                (b"", 1, 0, one[2]),
                (None, 1, 3, one[0] + one[1] + one[3]),
            ],
            "key binary, partition int, value_bytes bigint, counters_0 bigint",
        ),
    )
