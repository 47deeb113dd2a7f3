"""MirrorMaker 2 between two real brokers, moved under live load: what the other cluster gets, and misses not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from tests.integration.connect_world import ConnectWorker
from tests.integration.host_world import Host, by_key
from tests.integration.mirror_world import Copy, copied_once, copies, mirror
from tests.integration.real_world import RealWorld
from tests.integration.reaper import Reaper
from tests.unit.connect_contract import a_mirror_is_a_source_whose_offsets_are_read_and_set as contract

from lab.broker import EmbeddedBroker
from topicshift.acts.context import MigrationContext
from topicshift.adapters.clock import SystemClock
from topicshift.adapters.controllers.command import CommandController
from topicshift.adapters.controllers.connect import ConnectController
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.adapters.readers import evidence_source
from topicshift.core.engine.words import Row, Step
from topicshift.core.errors import PreflightFailed, Transient
from topicshift.core.kafka.mirror import change, positions
from topicshift.ports import ControlContext, Participant

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[EmbeddedBroker]:
    """The other cluster, which writes down when each record was appended."""
    with EmbeddedBroker(server_properties={"log.message.timestamp.type": "LogAppendTime"}) as running:
        yield running


@pytest.fixture(scope="module")
def worker(elsewhere: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectWorker]:
    with ConnectWorker(elsewhere, tmp_path_factory.mktemp("mirrors")) as running:
        yield running


@pytest.fixture
def admin(broker: EmbeddedBroker) -> Iterator[KafkaAdmin]:
    with KafkaAdmin(broker.config()) as made:
        yield made


class Migration(RealWorld):
    """A producer that a hook moves, and a mirror of its topic."""

    def __init__(
        self,
        worker: ConnectWorker,
        elsewhere: EmbeddedBroker,
        host: Host,
        admin: KafkaAdmin,
        topic: str,
        **changes: Any,
    ) -> None:
        self.worker, self.elsewhere, self.host, self.name = worker, elsewhere, host, f"{topic}_dr"
        admin.create_topic(topic, 3, 1, {})
        host.install("producer", "checkout", topic)
        self.before = worker.create(self.name, mirror(host.broker, elsewhere, f"other,{topic}"))
        dr = {"connector": self.name, "mirror": True}
        super().__init__(
            host.broker,
            admin,
            topic,
            producers=[{"name": "checkout", "kind": "command", "settings": {"hook": "checkout"}}],
            consumers=[{"name": "dr", "group": f"mirror-{topic}", "kind": "connect", "settings": dr}],
            **changes,
        )
        self.old, self.new = f"here.{self.source}", f"here.{self.target}"
        self.there = KafkaAdmin(elsewhere.config())
        self.controllers["command"] = CommandController(admin, host.hooks)  # type: ignore[assignment]
        self.reaper = Reaper()
        ask = self.reaper.asking(worker.ask)
        self.controllers["connect"] = ConnectController(admin, lambda _: ask, SystemClock())  # type: ignore[assignment]
        self.until(lambda: len(self.own(topic)) == 3, "it has copied of each partition", 60)

    def context(self, *args: Any, **kwargs: Any) -> MigrationContext:
        """With its offsets as evidence, as the product has them."""
        ctx = super().context(*args, **kwargs)
        ctx.ports.reader_evidence = lambda spec, consumer: evidence_source(
            [r.model_dump(mode="json") for r in spec.readers_of(consumer)],
            spec.source,
            ask_of=lambda _: self.worker.ask,
        )
        return ctx

    def drain(self, group: str = "", topic: str = "") -> None:
        """The mirror does."""

    def own(self, topic: str) -> dict[int, int]:
        """How far it has copied the topic, as its worker has written down."""
        answer = self.worker.until(
            lambda: self.worker.ask("GET", f"/connectors/{self.name}/offsets", None), "its offsets"
        )
        return positions(answer, "here", topic)

    def count(self, *copies: str) -> int:
        """Records in these copies."""
        there = [c for c in copies if self.there.topic(c) is not None]
        return sum(o.end or 0 for c in there for o in self.there.offsets(c).values())

    def goes_on(self, copy: str) -> None:
        """It runs, and more comes to this copy."""
        self.until(lambda: self.worker.running(self.name), "the mirror runs", 30)
        before = self.count(copy)
        self.until(lambda: self.count(copy) > before + 50, f"more in {copy}", 60)

    def proven(self) -> list[Copy]:
        """Everything acknowledged was copied once, and each key in order: over both copies, by when it came."""
        self.host.stand("checkout")
        self.until(lambda: not self.host.running("checkout")[1], "the producer has ended")
        sent = by_key(self.host.seen("checkout"))
        count = sum(map(len, sent.values()))
        self.until(lambda: self.count(self.old, self.new) >= count, "all is copied", 60)
        found = copies(self.elsewhere, self.old, self.new)
        copied_once(sent, found)
        return found

    def close(self) -> None:
        self.worker.delete(self.name)
        self.there.close()
        super().close()


Migrate = Callable[..., Migration]


@pytest.fixture
def migrate(
    worker: ConnectWorker,
    broker: EmbeddedBroker,
    elsewhere: EmbeddedBroker,
    admin: KafkaAdmin,
    topic_name: Callable[..., str],
    tmp_path: Path,
) -> Iterator[Migrate]:
    made: list[Migration] = []
    host = Host(tmp_path, broker)

    def make(**changes: Any) -> Migration:
        made.append(Migration(worker, elsewhere, host, admin, topic_name(), **changes))
        return made[-1]

    yield make
    host.close()
    for one in made:
        one.close()


@pytest.mark.parametrize("cutover", ["drain_first", pytest.param("producers_first", marks=pytest.mark.long)])
def test_a_mirror_is_moved_and_the_other_cluster_misses_nothing(migrate: Migrate, cutover: str) -> None:
    """Also where its worker has offsets of an earlier topic of the target's name."""
    w = migrate(cutover=cutover)
    ask, path = w.worker.ask, f"/connectors/{w.name}"
    ask("PUT", f"{path}/stop", None)
    w.worker.until(lambda: w.worker.status(w.name) == ("STOPPED", []), "it stands")
    stale = {"offsets": change("here", w.target, {0: 30, 5: 30, 9: 30})}
    w.worker.until(lambda: ask("PATCH", f"{path}/offsets", stale), "offsets of an earlier topic")
    ask("PUT", f"{path}/resume", None)
    w.worker.until(lambda: w.worker.running(w.name), "it runs")
    w.advanced()
    assert w.worker.config(w.name) == w.before | {"topics": f"other,{w.target}"}
    w.goes_on(w.new)
    found = w.proven()
    last, first = (f(c.at for c in found if c.topic == t) for f, t in ((max, w.old), (min, w.new)))
    assert last <= first, "all of the source lies there before the first record of the target"
    assert {c.partition for c in found if c.topic == w.new} <= set(range(6)), "with the partitions of the target"
    (said,) = [e.data for e in w.journal.events(w.claim.migration_id) if e.kind == "participant" and "copied" in e.data]
    assert said["home"] == w.source and set(said["copied"]) == {"0", "1", "2"}


def test_a_freeze_that_is_taken_back_leaves_the_mirror_as_it_was(migrate: Migrate) -> None:
    w = migrate()
    w.advanced(until=Step.STOP_PRODUCERS)
    w.advanced(wanted="resume")
    assert w.state(Row.FREEZE) == "undone" and w.worker.config(w.name) == w.before
    assert w.own(w.target) == {}
    w.goes_on(w.old)
    assert {c.topic for c in w.proven()} == {w.old}


def test_a_mirror_goes_back_with_records_in_the_target_and_forgets_its_offsets_there(migrate: Migrate) -> None:
    w = migrate()
    w.advanced()
    w.goes_on(w.new)
    w.advanced(wanted="rollback")
    assert w.worker.config(w.name) == w.before and w.own(w.target) == {}
    w.goes_on(w.old)
    assert {c.topic for c in w.proven()} == {w.old, w.new}


@pytest.mark.long
def test_killed_before_and_after_every_request_on_every_way_the_mirror_is_as_it_must_be(migrate: Migrate) -> None:
    """A freeze that is taken back, the whole way there, and back with records in the target."""
    w = migrate()

    def kills(**how: Any) -> list[str]:
        return [effect.split()[1].rpartition("/")[2] for effect in w.reaper.driven(w, **how)]

    assert kills(until=Step.STOP_PRODUCERS) == kills(wanted="resume") == [], "only producers stand in a freeze"
    assert w.worker.config(w.name) == w.before and w.own(w.target) == {}
    assert kills() == ["stop", "config", "resume"]
    assert w.worker.config(w.name) == w.before | {"topics": f"other,{w.target}"}
    w.goes_on(w.new)
    assert kills(wanted="rollback") == ["stop", "offsets", "config", "resume"]
    assert w.worker.config(w.name) == w.before and w.own(w.target) == {}
    w.goes_on(w.old)
    assert {c.topic for c in w.proven()} == {w.old, w.new}


@pytest.mark.long
def test_one_that_copies_nothing_on_the_target_has_not_arrived(migrate: Migrate, broker: EmbeddedBroker) -> None:
    """RUNNING, with all its tasks, and its offsets do not move: its own filter leaves the target out."""
    w = migrate()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.until(lambda: sum(o.end for o in w.cluster.offsets(w.target).values()) > 12, "records on the target", 30)
    changed = {**w.before, "topics.exclude": w.target, "topics": f"other.*,{w.source}"}
    w.cluster.create_topic(f"other-{w.source}", 1, 1, {})
    w.worker.ask("PUT", f"/connectors/{w.name}/config", changed)
    w.until(lambda: "its offsets do not move" in w.waits(patience_s=5), "it is seen", 60)
    assert w.worker.running(w.name) and w.state(Row.SWITCH_GROUP, w.group) == "intended"
    w.worker.ask("PUT", f"/connectors/{w.name}/config", {**w.before, "topics": f"other,{w.target}"})
    w.advanced()
    w.proven()


@pytest.mark.long
def test_a_pattern_copies_the_target_unasked_and_the_plan_names_it(
    migrate: Migrate, elsewhere: EmbeddedBroker, broker: EmbeddedBroker
) -> None:
    w = migrate()
    try:
        every = {"refresh.topics.interval.seconds": "1", "source.cluster.alias": "all"}
        w.worker.create(f"{w.name}_all", mirror(broker, elsewhere, f"{w.source}.*", **every))
        w.advanced(until=Step.STOP_PRODUCERS)
        said = [line for line in w.said if "TS329" in line]
        assert said and all(f"({w.source}.*) cover both" in x and f"'all.{w.target}'" in x for x in said), said
        w.until(lambda: w.there.topic(f"all.{w.target}") is not None, "the new topic is copied unasked", 30)
        w.advanced(wanted="resume")
    finally:
        w.worker.delete(f"{w.name}_all")


def test_a_second_flow_of_the_source_blocks_the_plan(
    migrate: Migrate, elsewhere: EmbeddedBroker, broker: EmbeddedBroker
) -> None:
    w = migrate()
    try:
        w.worker.create(f"{w.name}_2", mirror(broker, elsewhere, w.source, **{"source.cluster.alias": "second"}))
        with pytest.raises(PreflightFailed, match=rf"TS329.*connector {w.name}_2"):
            w.advanced()
    finally:
        w.worker.delete(f"{w.name}_2")


@pytest.mark.long
def test_paused_beyond_retention_it_would_resume_at_the_earliest_so_it_is_not_started(
    migrate: Migrate, broker: EmbeddedBroker, elsewhere: EmbeddedBroker
) -> None:
    """What the page says of it is seen on the real one: it goes on behind what is gone, and nothing failed."""
    w = migrate()
    controller = w.controllers["connect"]
    dr = Participant("dr", "consumer", "connect", w.group, None, {"connector": w.name, "mirror": True})
    ctx = ControlContext("m", w.source, w.target, 1)
    controller.stop(ctx, [dr])
    w.worker.until(lambda: w.worker.status(w.name) == ("STOPPED", []), "it stands")
    at = w.own(w.source)
    w.until(lambda: w.cluster.offsets(w.source)[0].end > at[0] + 40, "more is written", 30)
    gone = [c for c in copies(broker, w.source) if c.partition == 0][at[0] : at[0] + 20]
    _delete_records(broker, w.source, 0, at[0] + 20)
    with pytest.raises(Transient, match=rf"{w.source}\[0\] from {at[0]} to {at[0] + 19} is gone"):
        controller.start(ctx, [dr])
    assert w.worker.status(w.name) == ("STOPPED", [])
    w.worker.ask("PUT", f"/connectors/{w.name}/resume", None)
    w.until(lambda: w.own(w.source)[0] > at[0] + 40, "it has gone on without a word", 60)
    assert w.worker.running(w.name)
    held = {(c.key, c.number) for c in copies(elsewhere, w.old)}
    assert len(gone) == 20 and not held & {(c.key, c.number) for c in gone}, "and the other cluster lacks them"


def _delete_records(broker: EmbeddedBroker, topic: str, partition: int, before: int) -> None:
    from confluent_kafka.admin import AdminClient

    client = AdminClient(broker.config())
    (done,) = client.delete_records([TopicPartition(topic, partition, before)]).values()
    done.result(20)


def test_the_fake_worker_and_the_real_one_do_alike(
    worker: ConnectWorker,
    broker: EmbeddedBroker,
    elsewhere: EmbeddedBroker,
    admin: KafkaAdmin,
    topic_name: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic = topic_name()
    admin.create_topic(topic, 2, 1, {})
    host = Host(tmp_path, broker)
    name = f"{topic}_c"
    try:
        host.install("producer", "checkout", topic)
        config = worker.create(name, mirror(broker, elsewhere, topic))
        contract(worker.ask, name, config, partial(worker.until, seconds=60))
    finally:
        host.close()
        worker.delete(name)
