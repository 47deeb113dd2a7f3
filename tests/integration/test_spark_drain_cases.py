"""The Spark job on every drain case: it must answer as the library does, from a reading of its own."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.drain_cases import Case, Kit, iter_cases
from tests.integration.test_drain_cases import fence_of, inputs_of

import drain_verification
from lab.broker import EmbeddedBroker
from topicshift.acts.drain import DrainTaker
from topicshift.adapters.executor import run_async
from topicshift.adapters.kafka.reader import KafkaDrainReader
from topicshift.adapters.spark_checkpoint import read_checkpoint
from topicshift.core.drain.certificate import DrainCertificate
from topicshift.core.proof.verification import Answer, DrainVerification
from topicshift_spark.source import client_properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = list(iter_cases())
ALLOWED = {
    "drained": {Answer.VERIFIED},
    "not_drained": {Answer.NOT_DRAINED, Answer.FENCE_BROKEN},
    "unknown": {Answer.UNKNOWN, Answer.FENCE_BROKEN},
}


@pytest.fixture(scope="module", autouse=True)
def quick_cleaner(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> None:
    with Kit(broker, tmp_path_factory.mktemp("cleaner")) as kit:
        kit.quick_cleaner()


def forgotten(certificate: DrainCertificate) -> DrainCertificate:
    """The certificate with what the library found by reading taken out: the job has to find it again."""
    found = {"nothing_readable": "behind", "unread": "behind"}
    groups = [
        g.model_copy(
            update={
                "partitions": [
                    r.model_copy(update={"reason": found.get(r.reason, r.reason), "records_left": None})
                    for r in g.partitions
                ]
            }
        )
        for g in certificate.groups
    ]
    return certificate.model_copy(update={"groups": groups})


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_spark_agrees(case: Case, spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    broker: EmbeddedBroker = request.getfixturevalue("secure_broker" if case.secure else "broker")
    with Kit(broker, tmp_path) as kit:
        scenario = case.build(kit)
        reader = KafkaDrainReader.from_config(broker.config(scenario.user))
        certificate = run_async(DrainTaker(reader, inputs_of(scenario), fence=fence_of(scenario)).take)
        asked = forgotten(certificate).model_dump_json().encode()
        config = broker.write_client_properties(scenario.user, tmp_path / "client.properties")
        question = drain_verification.parse_question(asked, "certificate.json")
        properties = client_properties(str(config), None)
        answer = drain_verification.answer(spark, properties, question, timeout_s=60)
    assert answer.verdict in ALLOWED[case.verdict], answer.reason
    # What is wrong use on the command line comes to the job as a certificate that says unknown.
    assert answer.exit_code == (4 if case.exit_code == 2 else case.exit_code), answer.reason
    assert DrainVerification.model_validate_json(answer.model_dump_json()) == answer
    if not answer.groups:
        assert answer.exit_code == 4
        return
    told = {(g.group, r.partition): (r.reason, r.records_left) for g in certificate.groups for r in g.partitions}
    read = {(g.group, r.partition): (r.reason, r.records_left) for g in answer.groups for r in g.partitions}
    assert read.keys() == told.keys()
    for place, (reason, left) in told.items():
        assert read[place][0] == reason, f"{place}: {read[place]}, the library says {told[place]}"
        # The library stops at a first record where that is enough; the job counts them all.
        assert left is None or read[place][1] in (left, None), f"{place}: {read[place]}, the library says {told[place]}"


EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
LOG_FORMAT = "spark.sql.streaming.offsetLog.formatVersion"


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize(("log_format", "source_name"), [("1", ""), ("2", ""), ("2", "payments_in")])
def test_the_checkpoint_of_a_real_query_is_read(
    log_format: str, source_name: str, broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path
) -> None:
    with Kit(broker, tmp_path) as kit, ExitStack() as after:
        for name, value in ((LOG_FORMAT, log_format), (EVOLUTION, "true" if source_name else "false")):
            spark.conf.set(name, value)
            after.callback(spark.conf.unset, name)
        topic = kit.topic(2)
        kit.produce(topic, 3, 0)
        kit.produce(topic, 2, 1)
        checkpoint = tmp_path / "checkpoint"

        def run() -> None:
            source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
            source = source.name(source_name) if source_name else source
            read = source.option("subscribe", topic).option("startingOffsets", "earliest").load()
            query = (
                read.writeStream.format("noop")
                .option("checkpointLocation", str(checkpoint))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(120)

        run()
        assert (checkpoint / "offsets" / "0").read_text().splitlines()[0] == f"v{log_format}"
        found = read_checkpoint("enrich", str(checkpoint), topic)
        assert (found.error, found.offsets) == (None, {0: 3, 1: 2})
        kit.produce(topic, 1, 1)
        assert read_checkpoint("enrich", str(checkpoint), topic).offsets == {0: 3, 1: 2}
        run()
        assert read_checkpoint("enrich", str(checkpoint), topic).offsets == {0: 3, 1: 3}
