"""MirrorMaker 2, which joins no group and commits nothing to Kafka: its offsets, asked of a real Connect worker."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from tests.integration.drain_cases import Kit
from tests.integration.drain_cases.kit import wait_for

from lab.broker import EmbeddedBroker, kafka_jars
from lab.java import find_java
from lab.ports_free import claim, release
from topicshift import cli
from topicshift.adapters.connectors import read_connector

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def world(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kit, str, str]]:
    """A standalone worker with MirrorMaker 2's source on a topic of two partitions; kit, topic, the connector's URL."""
    folder = tmp_path_factory.mktemp("connect")
    with Kit(broker, folder) as kit:
        topic, (port,) = kit.topic(2), claim()
        kit.at_exit(lambda: release([port]))
        kit.produce(topic, 3, 0)
        kit.produce(topic, 2, 1)
        bytes_ = "org.apache.kafka.connect.converters.ByteArrayConverter"
        worker = {
            "bootstrap.servers": broker.bootstrap,
            "listeners": f"http://127.0.0.1:{port}",
            "key.converter": bytes_,
            "value.converter": bytes_,
            "offset.storage.file.filename": folder / "offsets",
            "offset.flush.interval.ms": 200,
            "plugin.discovery": "service_load",
            "plugin.path": folder,
        }
        mirror = {
            "name": "mirror",
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "tasks.max": 1,
            "topics": topic,
            "source.cluster.alias": "here",
            "target.cluster.alias": "there",
            "source.cluster.bootstrap.servers": broker.bootstrap,
            "target.cluster.bootstrap.servers": broker.bootstrap,
            "replication.factor": 1,
            "offset-syncs.topic.replication.factor": 1,
            "sync.topic.acls.enabled": "false",
        }
        files = []
        for name, values in (("worker.properties", worker), ("mirror.properties", mirror)):
            (folder / name).write_text("".join(f"{k}={v}\n" for k, v in values.items()))
            files.append(str(folder / name))
        java = find_java(for_spark=False)
        command = [str(java.binary), "-Xmx256m", "-cp", f"{kafka_jars()}/*"]
        command += ["org.apache.kafka.connect.cli.ConnectStandalone", *files]
        url = f"http://127.0.0.1:{port}/connectors/mirror"
        log = folder / "worker.log"
        with log.open("wb") as out:
            child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=folder)
        try:

            def answers() -> bool:
                assert child.poll() is None, log.read_text()[-3000:]
                try:
                    with urlopen(url + "/offsets", timeout=5) as answer:
                        return len(json.loads(answer.read())["offsets"]) == 2
                except (URLError, OSError):
                    return False

            wait_for("the connector has stored offsets", answers, 90)
            yield kit, topic, url
        finally:
            child.kill()
            child.wait(20)


def test_a_connectors_offsets_are_asked_of_its_worker(
    world: tuple[Kit, str, str], broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    kit, topic, url = world

    def read() -> dict[int, int]:
        return read_connector("mirror", url, topic).offsets

    wait_for("it has read all", lambda: read() == {0: 3, 1: 2})
    words = ["drain", "--topic", topic, "--connector", f"mirror={url}", "--bootstrap-server", broker.bootstrap]
    assert cli.run(words) == 0
    assert "mirror" in capsys.readouterr().out
    kit.produce(topic, 1, 1)
    wait_for("it goes on", lambda: read() == {0: 3, 1: 3})
    assert read_connector("mirror", url, "another").error is not None


def test_what_is_no_connector_is_said(world: tuple[Kit, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    kit, topic, url = world
    for location, said in (
        (url.replace("mirror", "nobody"), "knows no such connector (HTTP 404)"),
        ("http://127.0.0.1:1/connectors/x", "does not answer"),
        (url.rsplit("/", 2)[0], "is not of the form"),
        ("file:///etc/passwd", "is not of the form"),
        (url.replace("http://", "http://me:hush@"), "holds credentials"),
    ):
        error = read_connector("mirror", location, topic).error or ""
        assert said in error, error
        assert "hush" not in error
    gone = ["--connector", "mirror=http://127.0.0.1:1/connectors/mirror"]
    code = cli.run(["drain", "--topic", topic, *gone, "--bootstrap-server", kit.broker.bootstrap])
    assert code == 4
    out, _ = capsys.readouterr()
    assert "evidence_missing" in out
