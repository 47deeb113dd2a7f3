"""Kind ``spark_streaming`` on a real query and a real broker, moved by the hook of docs/examples, under load."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.integration.host_world import Host, by_key
from tests.integration.real_world import RealWorld
from tests.integration.reaper import Reaper
from tests.integration.stream_world import Stream
from tests.unit.spark_contract import CONTRACT

from lab.broker import EmbeddedBroker
from topicshift.acts.context import MigrationContext
from topicshift.adapters.controllers.command import CommandController
from topicshift.adapters.controllers.hooks import Answer
from topicshift.adapters.controllers.spark_streaming import SparkStreamingController
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.adapters.readers import evidence_source
from topicshift.adapters.spark_checkpoint import look_at_checkpoint
from topicshift.core.engine.words import Step

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]
_count = itertools.count()


@pytest.fixture(scope="module")
def admin(broker: EmbeddedBroker) -> Iterator[KafkaAdmin]:
    with KafkaAdmin(broker.config()) as made:
        yield made


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory, broker: EmbeddedBroker, admin: KafkaAdmin) -> Iterator[Stream]:
    """One driver for all tests of this module: a JVM takes long to start."""
    made = Stream(tmp_path_factory.mktemp("stream"), broker, "stats")
    idle = "stream-idle"
    admin.create_topic(idle, 1, 1, {})
    made.begin(idle, made.home / "idle", json.dumps({idle: {"0": 0}}))
    yield made
    made.close()


class RealQuery:
    """The query of :mod:`tests.unit.spark_contract`, on topics and folders of its own."""

    def __init__(self, stream: Stream, broker: EmbeddedBroker, admin: KafkaAdmin) -> None:
        self.stream, self.home = stream, stream.home / f"case-{next(_count)}"
        self.topic, self.other = f"{self.home.name}-topic", f"{self.home.name}-other"
        for topic in (self.topic, self.other):
            admin.create_topic(topic, 2, 1, {})
        self.producer = Producer(broker.config())
        file = stream.app / "offsets"
        self.since = len(file.read_text().splitlines()) if file.exists() else 0
        told = {"topic": self.topic, "checkpoint": self.folder("old")}
        first = json.dumps({self.topic: {"0": 0, "1": 0}})
        assert self.call("stop").code == 0
        stream.until(lambda: stream.status()[0] == "stopped", "it stands")
        assert self.call("point", **told, starting_offsets=first).code == self.call("start").code == 0
        stream.until(lambda: stream.status() == ("running", self.topic), "it runs")

    def call(self, moment: str, **told: str) -> Answer:
        return self.stream.call(moment, **told)

    def produce(self, topic: str, partition: int, records: int) -> None:
        for n in range(records):
            self.producer.produce(topic, str(n), "k", partition=partition)
        assert self.producer.flush(20) == 0

    def given(self) -> list[tuple[str, int, int]]:
        file = self.stream.app / "offsets"
        lines = file.read_text().splitlines()[self.since :] if file.exists() else []
        return [(t, int(p), int(o)) for t, p, o in (line.split(",") for line in lines)]

    def folder(self, name: str) -> str:
        return str(self.home / name)


@pytest.mark.parametrize("case", CONTRACT, ids=lambda c: c.__name__)
def test_a_real_query_keeps_the_contract(case: Any, stream: Stream, broker: EmbeddedBroker, admin: KafkaAdmin) -> None:
    case(RealQuery(stream, broker, admin), stream.until)


class Migration(RealWorld):
    """A producer that a hook moves, and a streaming query."""

    def __init__(self, host: Host, stream: Stream, admin: KafkaAdmin, source: str, **changes: Any) -> None:
        self.host, self.stream = host, stream
        admin.create_topic(source, 3, 1, {})
        self.since = len(stream.seen())
        self.folders = {source: str(stream.home / source), f"{source}-v2": str(stream.home / f"{source}-v2")}
        stream.call("stop")
        stream.until(lambda: stream.status()[0] == "stopped", "it stands")
        stream.begin(source, Path(self.folders[source]), json.dumps({source: dict.fromkeys("012", 0)}))
        host.install("producer", "checkout", source)
        super().__init__(
            host.broker,
            admin,
            source,
            producers=[{"name": "checkout", "kind": "command", "settings": {"hook": "checkout"}}],
            consumers=[
                {
                    "name": "stats",
                    "group": f"g-{source}",
                    "kind": "spark_streaming",
                    "settings": {"hook": "stats", "checkpoints": self.folders, "timeout": "9s"},
                }
            ],
            **changes,
        )
        self.controllers["command"] = CommandController(admin, host.hooks)  # type: ignore[assignment]
        self.reaper = Reaper()
        controller = SparkStreamingController(admin, stream.hooks)
        controller._call_hook = self.reaper.calling(controller._call_hook)
        self.controllers["spark_streaming"] = controller  # type: ignore[assignment]
        self.until(lambda: len(self.seen()) > 100, "the query processes records", 60)

    def context(self, *args: Any, **kwargs: Any) -> MigrationContext:
        """With its checkpoint as evidence, as the product has it."""
        ctx = super().context(*args, **kwargs)
        ctx.ports.reader_evidence = lambda spec, consumer: evidence_source(
            [r.model_dump(mode="json") for r in spec.readers_of(consumer)], spec.source
        )
        return ctx

    def drain(self, group: str = "", topic: str = "") -> None:
        """The query does."""

    def seen(self) -> list[Any]:
        return self.stream.seen()[self.since :]

    def goes_on(self, topic: str) -> None:
        """Everything that was acknowledged is given once, each key in order, and more of this topic."""
        before = len(self.seen())
        self.until(lambda: len(self.seen()) > before + 50, "it goes on", 60)
        self.host.stand("checkout")
        self.until(lambda: not self.host.running("checkout")[1], "the producer has ended")
        sent = by_key(self.host.seen("checkout"))
        self.until(lambda: by_key(self.seen()) == sent, "each record is given once and in order", 60)
        assert self.seen()[-1][2] == topic


@pytest.fixture
def migrate(
    tmp_path: Path, broker: EmbeddedBroker, stream: Stream, admin: KafkaAdmin, topic_name: Callable[..., str]
) -> Iterator[Callable[..., Migration]]:
    made: list[Migration] = []
    host = Host(tmp_path, broker)

    def make(**changes: Any) -> Migration:
        made.append(Migration(host, stream, admin, topic_name(), **changes))
        return made[-1]

    yield make
    host.close()
    for one in made:
        one.close()


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_a_query_is_moved_and_nothing_is_lost_or_given_twice(migrate: Callable[..., Migration], cutover: str) -> None:
    w = migrate(cutover=cutover)
    w.advanced()
    assert w.stream.status() == ("running", w.target)
    w.goes_on(w.target)
    assert {topic for _, _, topic in w.seen()} == {w.source, w.target}
    assert look_at_checkpoint(w.folders[w.target], w.target).starts == dict.fromkeys(range(6), 0)


def test_a_freeze_that_is_taken_back_leaves_the_query_as_it_was(migrate: Callable[..., Migration]) -> None:
    w = migrate()
    before = w.stream.wanted()
    w.advanced(until=Step.STOP_PRODUCERS)
    w.advanced(wanted="resume")
    assert w.stream.wanted() == before and w.stream.status() == ("running", w.source)
    w.goes_on(w.source)


def test_one_that_goes_back_with_records_in_the_target_goes_on_in_its_old_checkpoint(
    migrate: Callable[..., Migration],
) -> None:
    """Its new checkpoint certifies it on the target, under load; nothing is left out, or given twice."""
    w = migrate()
    w.advanced()
    before = len(w.seen())
    w.until(lambda: len(w.seen()) > before + 50, "records of the target are given", 60)
    w.advanced(wanted="rollback")
    assert w.stream.status() == ("running", w.source)
    assert w.stream.wanted()["checkpoint"] == w.folders[w.source]
    w.goes_on(w.source)


def test_one_that_is_started_without_its_offsets_is_found(migrate: Callable[..., Migration]) -> None:
    """A hook that drops them: the query begins at the latest, so what came before it would be left out."""
    w = migrate()
    w.stream.break_hook("point", 'os.environ["TOPICSHIFT_STARTING_OFFSETS"] = ""')
    try:
        w.advanced(until=Step.SWITCH_PRODUCERS)
        w.until(lambda: any((o.end or 0) > 20 for o in w.cluster.offsets(w.target).values()), "records are there", 30)
        w.until(lambda: "records are left out" in w.waits(patience_s=5), "it is named", 60)
    finally:
        w.stream.mend_hook()


@pytest.mark.long
def test_killed_before_and_after_every_call_of_its_hook_on_every_way_it_is_as_it_must_be(
    migrate: Callable[..., Migration],
) -> None:
    """A freeze that is taken back, the whole way there, and back with records in the target."""
    w = migrate()
    before = w.stream.wanted()
    kills = w.reaper.driven
    assert kills(w, until=Step.STOP_PRODUCERS) == kills(w, wanted="resume") == [], "only producers stand in a freeze"
    assert w.stream.wanted() == before
    assert kills(w) == ["stats stop", f"stats point {w.target}", "stats start"]
    assert w.stream.status() == ("running", w.target)
    seen = len(w.seen())
    w.until(lambda: len(w.seen()) > seen + 50, "records of the target are given", 60)
    assert kills(w, wanted="rollback") == ["stats stop", f"stats point {w.source}", "stats start"]
    assert w.stream.status() == ("running", w.source)
    assert w.stream.wanted() == {**before, "starting_offsets": ""}, "it goes on in its old checkpoint"
    w.goes_on(w.source)
