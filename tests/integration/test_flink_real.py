"""Kind ``flink`` on a real broker and a real Flink cluster: exactly-once jobs, moved under live load."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.integration.flink_world import JAR, Flow, Jobs, compiled, readable, words
from tests.integration.real_world import RealWorld
from tests.integration.reaper import Reaper
from tests.unit.flink_contract import CONTRACT, Case, Known

from lab.broker import EmbeddedBroker
from lab.flink import FlinkCluster
from topicshift.adapters.clock import SystemClock
from topicshift.adapters.controllers.flink import FlinkController
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.adapters.rest import Ask
from topicshift.core.engine.words import Row, Step
from topicshift.core.errors import DrainTimedOut, Transient
from topicshift.core.flink import ids
from topicshift.core.flink.job import read_vertices
from topicshift.ports import ControlContext, Participant, ParticipantState

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    folder = tmp_path_factory.mktemp("flink")
    with FlinkCluster(folder / "cluster", slots=8) as cluster:
        cluster.upload(compiled(folder))
        yield Jobs(cluster)


@pytest.fixture(scope="module")
def admin(broker: EmbeddedBroker) -> Iterator[KafkaAdmin]:
    with KafkaAdmin(broker.config()) as made:
        yield made


class Migration(RealWorld):
    """A job that writes the topic and one that reads it."""

    def __init__(self, jobs: Jobs, broker: EmbeddedBroker, admin: KafkaAdmin, topic: str, **changes: Any) -> None:
        self.jobs, self.reaper = jobs, Reaper()
        self.flow = self.flows(broker.config(), admin, topic)
        producer = self.flow.producer(**changes.pop("of_producer", {}))
        consumer = self.flow.consumer(**changes.pop("of_consumer", {}))
        super().__init__(broker, admin, topic, producers=[producer], consumers=[consumer], **changes)
        self.before = {name: self.shape(name) for name in (self.flow.intake, self.flow.scorer)}

    def context(self, *args: Any, **how: Any) -> Any:
        """Each process has a controller of its own, which remembers nothing."""
        self.controllers["flink"] = FlinkController(self.cluster, self.ask_of, SystemClock())  # type: ignore[assignment]
        return super().context(*args, **how)

    def flows(self, config: Mapping[str, Any], admin: KafkaAdmin, topic: str) -> Flow:
        """Both jobs, running."""
        return Flow(self.jobs, config, admin, topic)

    def ask_of(self, connection: str) -> Ask:
        """What asks the service of a connection."""
        return self.reaper.asking(self.jobs.cluster.ask)

    def shape(self, name: str) -> set[tuple[str, int]]:
        """Id and parallelism of each vertex of the job that runs."""
        (job,) = [j for j in self.jobs.named(name) if j.live]
        found = read_vertices(self.jobs.ask("GET", f"/jobs/{job.jid}", None))
        return {(v.vid, v.parallelism) for v in found}

    def as_before(self) -> bool:
        """Whether both jobs have the vertices of before, with the same parallelism."""
        return all(self.shape(name) == before for name, before in self.before.items())

    def goes_back(self) -> None:
        """After the switch, with the target's records read: every job is as it was, and everything comes out."""
        self.advanced(wanted="rollback")
        assert self.journal.current(self.claim.migration_id).state == "rolled_back"
        assert self.as_before()
        self.flow.goes_on()
        self.flow.proven()

    def is_taken_back(self) -> None:
        """In its freeze: every job is as it was, and everything comes out."""
        self.advanced(until=Step.STOP_PRODUCERS)
        assert self.jobs.state(self.flow.intake) == "FINISHED"
        self.advanced(wanted="resume")
        assert self.state(Row.FREEZE) == "undone" and self.as_before()
        self.flow.goes_on()
        self.flow.proven()

    def drain(self, group: str = "", topic: str = "") -> None:
        """The job does."""

    def close(self) -> None:
        self.flow.close()
        super().close()


@pytest.fixture
def migrate(
    jobs: Jobs, broker: EmbeddedBroker, admin: KafkaAdmin, topic_name: Callable[..., str]
) -> Iterator[Callable[..., Migration]]:
    made: list[Migration] = []

    def make(**changes: Any) -> Migration:
        made.append(Migration(jobs, broker, admin, topic_name(), **changes))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_exactly_once_jobs_are_moved_and_go_on(migrate: Callable[..., Migration]) -> None:
    """The one that reads starts narrow, with another source, and is as wide as before in the end."""
    w = migrate(of_consumer={"start_parallelism": 1, "raise_after": "1s", "raise_below": 100000})
    w.advanced()
    w.flow.goes_on()
    (name,) = {v for v, _ in w.before[w.flow.scorer]} - {v for v, _ in w.shape(w.flow.scorer)}
    assert name and w.shape(w.flow.intake) == w.before[w.flow.intake]
    assert {n for _, n in w.shape(w.flow.scorer)} == {2}, "it is as wide as before"
    said = [e for e in w.journal.events(w.claim.migration_id) if e.kind == "participant"]
    assert [e.data["parallelism"] for e in said if e.data["moment"] == "start"] == [1, 1, 2]


@pytest.mark.long
def test_everything_comes_out_once_and_in_order_there_and_back_with_records_in_the_target(
    migrate: Callable[..., Migration],
) -> None:
    """Both jobs go to the target, work there, and come back with its records read; no transaction is left open."""
    w = migrate(of_consumer={"start_parallelism": 1, "raise_after": "1s", "raise_below": 100000})
    w.advanced()
    w.flow.goes_on()
    w.goes_back()


def test_a_free_way_back_in_the_middle_of_the_switch_brings_everything_out_once(
    migrate: Callable[..., Migration],
) -> None:
    """A job that takes its time to run on the source again is not stopped a second time."""
    w = migrate()
    w.flow.quiet()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    assert w.jobs.state(w.flow.intake) == "RUNNING"
    w.advanced(wanted="rollback")
    assert w.journal.current(w.claim.migration_id).state == "rolled_back"
    assert w.as_before()
    starts = [e.data for e in w.journal.events(w.claim.migration_id) if e.kind == "participant"]
    assert [e["topic"] for e in starts if e["moment"] == "start" and e["name"] == "intake"] == [w.target, w.source]
    w.flow.writer.going.set()
    w.flow.goes_on()
    w.flow.proven()


def test_a_freeze_that_is_taken_back_leaves_every_job_as_it_was(migrate: Callable[..., Migration]) -> None:
    migrate(cutover="producers_first").is_taken_back()


@pytest.mark.long
def test_killed_before_and_after_every_request_on_every_way_every_job_is_as_it_must_be(
    migrate: Callable[..., Migration],
) -> None:
    """A freeze that is taken back, the whole way there, and back with records in the target: all comes out once."""
    w = migrate()

    def kills(**how: Any) -> list[str]:
        return [effect.split()[1].rpartition("/")[2] for effect in w.reaper.driven(w, **how)]

    assert kills(until=Step.STOP_PRODUCERS) == ["stop"]
    assert kills(wanted="resume") == ["run"]
    assert w.as_before()
    w.flow.goes_on()
    assert kills() == ["stop", "run"] * 2
    w.flow.goes_on()
    assert kills(wanted="rollback") == ["stop", "run"] * 2
    assert w.as_before()
    w.flow.goes_on()
    w.flow.proven()


def test_a_savepoint_that_fails_ends_the_freeze_and_the_job_runs_on(migrate: Callable[..., Migration]) -> None:
    w = migrate(of_producer={"savepoints": "file:///proc/none"}, freeze_budget="12s")
    with pytest.raises(DrainTimedOut, match="the freeze budget is used up"):
        w.advanced()
    assert any("a stop of it failed" in line for line in w.said), w.said[-20:]
    assert w.as_before() and len(w.jobs.named(w.flow.intake)) == 1
    w.flow.goes_on()
    w.flow.proven()


class Dynamic(Migration):
    """The same jobs with a `DynamicKafkaSource` each, and a stream for every topic in its metadata."""

    def flows(self, config: Mapping[str, Any], admin: KafkaAdmin, topic: str) -> Flow:
        """Both jobs, running."""
        folder = Path(str(self.jobs.cluster.folder)) / f"{topic}-streams"
        folder.mkdir()
        for name in (f"{topic}-up", topic, f"{topic}-v2"):
            (folder / name).write_text(name)
        return Flow(self.jobs, config, admin, topic, streams=folder)


@pytest.mark.long
def test_jobs_with_a_dynamic_source_are_moved_there_and_back_by_another_uid(
    jobs: Jobs, broker: EmbeddedBroker, admin: KafkaAdmin, topic_name: Callable[..., str]
) -> None:
    w = Dynamic(jobs, broker, admin, topic_name())
    try:
        w.advanced()
        w.flow.goes_on()
        w.advanced(wanted="rollback")
        assert w.as_before()
        w.flow.goes_on()
        w.flow.proven()
    finally:
        w.close()


class Alone:
    """One job from ``topic`` to ``out``, moved by the controller alone, with a trail of its own."""

    def __init__(self, jobs: Jobs, broker: EmbeddedBroker, admin: KafkaAdmin, topic: str, home: Path) -> None:
        self.jobs, self.config, self.admin, self.topic = jobs, broker.config(), admin, topic
        self.target, self.out, self.fail = f"{topic}-v2", f"{topic}-out", home / "fail"
        for name, partitions in ((topic, 1), (self.target, 2), (self.out, 1)):
            admin.create_topic(name, partitions, 1, {})
        admin.alter_commits(f"{topic}-g", topic, {0: 0})
        options = {"name": f"{topic}-j", "to": self.out, "group": f"{topic}-g", "fail": self.fail}
        args = words(broker.bootstrap, **options, **{"from": "{topic}", "uid": "{uid}", "prefix": "{prefix}"})
        self.settings = {
            "job": options["name"],
            "jar": JAR,
            "args": [a.replace("{prefix}", topic) for a in args],
            "source_uid": "in",
            "starts_at": "committed_or_earliest",
            "sinks": [self.out],
            "transactional_id_prefix": topic,
        }
        self.words = [a.replace("{prefix}", topic).replace("{topic}", topic).replace("{uid}", "in") for a in args]
        self.name = str(options["name"])
        self.who = Participant("job", "consumer", "flink", f"{topic}-g", None, self.settings, "none")
        self.trail: list[dict[str, Any]] = []
        self.ctx = ControlContext("m", topic, self.target, 1, say=self.say, told=lambda name: self.trail)
        self.controller = FlinkController(admin, lambda _: jobs.cluster.ask, SystemClock())

    def say(self, name: str, data: Mapping[str, Any]) -> None:
        self.trail.append(dict(data))

    def write(self, topic: str, *numbers: int) -> None:
        producer = Producer(self.config)
        for n in numbers:
            producer.produce(topic, str(n), "k", partition=0)
        assert producer.flush(10) == 0

    def came(self) -> list[int]:
        """Numbers that came out, readable for everybody."""
        return [n[0] for n in readable(self.config, self.out, 1).get("k", [])]

    def until_came(self, *numbers: int) -> None:
        self.jobs.cluster.until(lambda: self.came() == list(numbers), f"{numbers} come out")

    def state(self) -> ParticipantState:
        (found,) = self.controller.observe(self.ctx, [self.who])
        return found

    def until(self, status: str, topic: str | None) -> None:
        self.jobs.cluster.until(lambda: (self.state().status, self.state().topic) == (status, topic), status)

    def able(self) -> list[str]:
        return self.controller.can_i(self.ctx, [self.who])

    def act(self, name: str, *topic: str) -> None:
        """One act; what cannot be done now is done at another time."""
        with suppress(Transient):
            getattr(self.controller, name)(self.ctx, [self.who], *topic)


@pytest.fixture
def alone(
    jobs: Jobs, broker: EmbeddedBroker, admin: KafkaAdmin, topic_name: Callable[..., str], tmp_path: Path
) -> Iterator[Alone]:
    made = Alone(jobs, broker, admin, topic_name(), tmp_path)
    yield made
    made.fail.unlink(missing_ok=True)
    jobs.cancel(made.name)


def test_a_savepoint_that_is_complete_is_no_stop_where_the_job_failed(alone: Alone) -> None:
    """What its savepoint holds is committed first, from where it was; then it is stopped anew, and moved."""
    alone.jobs.start(alone.words)
    alone.write(alone.topic, 1)
    alone.until_came(1)
    alone.fail.touch()
    alone.act("stop")
    alone.jobs.cluster.until(lambda: "its savepoint is complete" in alone.state().reason, f"it failed: {alone.state()}")
    assert alone.state().status != "stopped" and alone.jobs.state(alone.name) != "FINISHED", alone.state()
    alone.fail.unlink()

    def stands() -> bool:
        alone.act("stop")
        return alone.state().status == "stopped"

    alone.jobs.cluster.until(stands, "it stands")
    alone.write(alone.target, 2)
    alone.act("point", alone.target)
    alone.act("start")
    alone.until("running", alone.target)
    alone.until_came(1, 2)


def test_a_prefix_that_changed_leaves_transactions_open_that_hold_back_readers(alone: Alone) -> None:
    """What ``can_i`` refuses, and what an arrival waits for, seen."""
    slow = [*alone.words, "--interval", "8000", "--timeout", "600000"]
    alone.jobs.start(slow)
    alone.write(alone.topic, 1)
    alone.jobs.cluster.until(lambda: alone.admin.transactions(alone.out), "a transaction is open")
    alone.jobs.cluster.kill_worker()
    alone.jobs.cluster.until(lambda: alone.jobs.state(alone.name) == "FAILED", "it failed")
    if not alone.admin.transactions(alone.out):
        pytest.fail("the checkpoint came before the kill")
    alone.write(alone.out, 99)
    at = alone.words.index("--prefix") + 1
    other = [*alone.words[:at], f"{alone.topic}-other", *alone.words[at + 1 :]]
    jid = ids.family("m", "job", alone.topic) + "0" * 16
    alone.trail.append({"moment": "start", "flink": alone.name, "home": alone.topic})
    alone.jobs.start(other, jobId=jid)
    assert alone.came() == [], "nobody reads past the open transaction, neither 99 nor what was committed since"
    found = alone.state()
    assert found.status == "unknown" and "transactions from before its start are open" in found.reason, found


def test_a_job_that_starts_at_latest_never_gets_what_lay_there(alone: Alone) -> None:
    """Why ``starts_at: latest`` is refused: the group's offsets do not count, and nothing shows it."""
    alone.write(alone.topic, 1)
    alone.jobs.start([*alone.words, "--start", "latest"])
    alone.write(alone.topic, 2)
    alone.until_came(2)
    alone.who = replace(alone.who, settings={**alone.settings, "starts_at": "latest"})
    assert any("it starts at latest" in line for line in alone.able())


def test_a_dynamic_source_reads_all_of_a_topic_again_that_was_taken_away_and_came_back(
    alone: Alone, tmp_path: Path
) -> None:
    """Why no job is moved by its metadata: on the way back the group's offsets do not count."""
    stream = tmp_path / "streams" / alone.topic
    stream.parent.mkdir()

    def names(topic: str) -> None:
        (tmp_path / "new").write_text(topic)
        (tmp_path / "new").replace(stream)

    names(alone.topic)
    alone.jobs.start([*alone.words, "--streams", str(stream.parent)])
    alone.write(alone.topic, 1)
    alone.until_came(1)
    names(alone.target)
    alone.write(alone.target, 2)
    alone.until_came(1, 2)
    names(alone.topic)
    alone.write(alone.topic, 3)
    alone.until_came(1, 2, 1, 3)


@pytest.mark.parametrize("case", CONTRACT, ids=lambda c: c.__name__)
def test_the_job_manager_in_memory_and_the_real_one_do_alike(case: Case, alone: Alone) -> None:
    alone.jobs.start(alone.words)
    case(alone.jobs.ask, Known(alone.name, "in", JAR, 1, alone.words), alone.jobs.cluster.until)
