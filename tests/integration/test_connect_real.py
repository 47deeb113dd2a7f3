"""Kind ``connect`` on a real broker and a real Connect worker: real connectors, moved under live load."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from tests.integration.connect_world import ConnectWorker, Migration, sink
from tests.integration.host_world import Host, seen
from tests.integration.real_world import RealWorld
from tests.unit.connect_contract import CONTRACT, Case

from lab.broker import EmbeddedBroker
from topicshift import cli
from topicshift.adapters.clock import SystemClock
from topicshift.adapters.controllers.connect import ConnectController
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.adapters.rest import Endpoint, asker
from topicshift.core.engine.words import Row, Step
from topicshift.core.errors import PreflightFailed, Refused, Transient, Unreadable
from topicshift.ports import ControlContext, Participant

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def worker(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectWorker]:
    with ConnectWorker(broker, tmp_path_factory.mktemp("connect")) as running:
        yield running


@pytest.fixture
def admin(broker: EmbeddedBroker) -> Iterator[KafkaAdmin]:
    with KafkaAdmin(broker.config()) as made:
        yield made


Migrate = Callable[..., Migration]


@pytest.fixture
def migrate(
    worker: ConnectWorker, broker: EmbeddedBroker, admin: KafkaAdmin, topic_name: Callable[..., str], tmp_path: Path
) -> Iterator[Migrate]:
    made: list[Migration] = []

    def make(**changes: Any) -> Migration:
        made.append(Migration(worker, broker, admin, topic_name(), tmp_path, **changes))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_connectors_are_moved_and_nothing_is_lost(migrate: Migrate, cutover: str) -> None:
    w = migrate(cutover=cutover)
    w.advanced()
    assert w.differs() == w.moved()
    w.goes_on()
    w.proven()
    assert {topic for _, _, topic in seen(w.kept)} == {w.source, w.target}
    said = [e.data for e in w.journal.events(w.claim.migration_id) if e.kind == "participant"]
    assert [e["moment"] for e in said] == ["stop", "point", "start"] * 2
    assert {"setting": "topics", "before": f"{w.source}, other", "after": f"{w.target}, other"}.items() <= said[
        4
    ].items()


def test_a_freeze_that_is_taken_back_leaves_every_setting_as_it_was(migrate: Migrate) -> None:
    w = migrate()
    w.advanced(until=Step.STOP_PRODUCERS)
    assert w.worker.status(w.source_name) == ("STOPPED", [])
    w.advanced(wanted="resume")
    assert w.state(Row.FREEZE) == "undone" and w.differs() == {}
    w.goes_on()
    w.proven()


@pytest.mark.long
def test_killed_before_and_after_every_request_on_every_way_every_setting_is_as_it_must_be(migrate: Migrate) -> None:
    """A freeze that is taken back, the whole way there, and back with records in the target."""
    w = migrate()

    def kills(**how: Any) -> list[str]:
        return [effect.split()[1].removeprefix("/connectors/") for effect in w.reaper.driven(w, **how)]

    def there(*names: str) -> list[str]:
        return [f"{name}/{act}" for name in names for act in ("stop", "config", "resume")]

    assert kills(until=Step.STOP_PRODUCERS) == [f"{w.source_name}/stop"]
    assert kills(wanted="resume") == [f"{w.source_name}/resume"]
    assert w.differs() == {}
    w.goes_on()
    assert kills() == there(w.source_name, w.sink_name)
    assert w.differs() == w.moved()
    w.goes_on()
    assert kills(wanted="rollback") == there(w.source_name, w.sink_name)
    assert w.differs() == {}
    w.goes_on()
    w.proven()


class FileStream(RealWorld):
    """The connectors that ship with Kafka, from lines of one file to lines of another."""

    def __init__(
        self, worker: ConnectWorker, broker: EmbeddedBroker, admin: KafkaAdmin, topic: str, home: Path
    ) -> None:
        admin.create_topic(topic, 3, 1, {})
        self.lines, self.copied = home / "lines", home / "copied"
        self.write(range(100))
        text = "org.apache.kafka.connect.storage.StringConverter"
        more = {"tasks.max": "1", "key.converter": text, "value.converter": text}
        for role, setting, file in (("Source", "topic", self.lines), ("Sink", "topics", self.copied)):
            kind = f"org.apache.kafka.connect.file.FileStream{role}Connector"
            worker.create(f"{topic}_{role}", {**more, "connector.class": kind, "file": str(file), setting: topic})
        names = {role: {"kind": "connect", "settings": {"connector": f"{topic}_{role}"}} for role in ("Source", "Sink")}
        consumers = [{"name": "to-file", "group": f"connect-{topic}_Sink", **names["Sink"]}]
        super().__init__(
            broker, admin, topic, producers=[{"name": "from-file", **names["Source"]}], consumers=consumers
        )
        self.controllers["connect"] = ConnectController(admin, lambda _: worker.ask, SystemClock())  # type: ignore[assignment]

    def write(self, numbers: range) -> None:
        with self.lines.open("a") as out:
            out.writelines(f"{n}\n" for n in numbers)

    def came(self, most: int) -> bool:
        """Whether each line came once."""
        return self.copied.exists() and sorted(map(int, self.copied.read_text().split())) == list(range(most))

    def drain(self, group: str = "", topic: str = "") -> None:
        """The connector does."""


def test_the_connectors_that_ship_with_kafka_are_moved_there_and_back(
    worker: ConnectWorker, broker: EmbeddedBroker, admin: KafkaAdmin, topic_name: Callable[..., str], tmp_path: Path
) -> None:
    topic = topic_name()
    w = FileStream(worker, broker, admin, topic, tmp_path)
    try:
        before = [worker.config(f"{topic}_{role}") for role in ("Source", "Sink")]
        w.until(lambda: w.came(100), "each line comes once", 30)
        w.advanced()
        assert worker.config(f"{topic}_Source")["topic"] == worker.config(f"{topic}_Sink")["topics"] == w.target
        w.write(range(100, 200))
        w.until(lambda: w.came(200), "each line comes once over the target", 30)
        w.advanced(wanted="rollback")
        w.write(range(200, 300))
        w.until(lambda: w.came(300), "each line comes once over the source again", 30)
        assert [worker.config(f"{topic}_{role}") for role in ("Source", "Sink")] == before
    finally:
        for role in ("Source", "Sink"):
            worker.delete(f"{topic}_{role}")
        w.close()


@pytest.fixture
def host(tmp_path: Path, broker: EmbeddedBroker) -> Iterator[Host]:
    made = Host(tmp_path, broker)
    yield made
    made.close()


def test_several_kinds_whose_freeze_is_taken_back_are_all_as_before(migrate: Migrate, host: Host) -> None:
    w = migrate(host=host)
    w.advanced(until=Step.STOP_PRODUCERS)
    assert w.worker.status(w.source_name) == ("STOPPED", []) and not host.running("checkout")[1]
    w.advanced(wanted="resume")
    assert w.state(Row.FREEZE) == "undone" and w.differs() == {}
    assert host.running("checkout") == host.running("ledger") == (w.source, True)
    w.goes_on()
    w.proven()


def test_several_kinds_go_back_after_the_switch_and_nothing_is_lost(migrate: Migrate, host: Host) -> None:
    w = migrate(host=host)
    w.advanced()
    assert w.differs() == w.moved()
    w.goes_on()
    w.advanced(wanted="rollback")
    assert w.differs() == {}
    assert host.running("checkout") == host.running("ledger") == (w.source, True)
    w.goes_on()
    w.proven()


def test_a_rollback_after_the_switch_was_begun_puts_every_setting_back(migrate: Migrate) -> None:
    """Both connectors are on the target, the source held before its first record there."""
    w = migrate()
    w.advanced(until=Step.VERIFY_DRAIN)
    ctx = w.context()
    ctx.refresh()
    settings = w.controllers["connect"]

    def done(act: Callable[..., Any], *who_and_where: Any) -> None:
        def tried() -> bool:
            act(ctx.control(), *who_and_where)
            return True

        w.worker.until(tried, f"{act.__name__} is done")  # a worker that assigns its tasks anew is asked again

    done(settings.point, ctx.producers, w.target)
    done(settings.stop, ctx.consumers)
    w.until(lambda: settings.observe(ctx.control(), ctx.consumers)[0].status == "stopped", "the sink stands", 30)
    done(settings.point, ctx.consumers, w.target)
    assert w.differs() == w.moved()
    done(settings.point, ctx.consumers, w.source)
    done(settings.start, ctx.consumers)
    w.advanced(wanted="resume")
    assert w.differs() == {}
    w.goes_on()
    w.proven()


def test_a_worker_that_is_gone_blocks_by_name_and_in_the_freeze_its_connector_resumes_once_it_is_back(
    migrate: Migrate, admin: KafkaAdmin
) -> None:
    w = migrate(freeze_budget="12s")
    dead, alive = asker(Endpoint("http://127.0.0.1:1")), w.worker.ask
    now = [dead]
    w.controllers["connect"] = ConnectController(  # type: ignore[assignment]
        admin, lambda _: lambda method, path, body: now[0](method, path, body), SystemClock()
    )
    with pytest.raises(Unreadable, match=r"TS501.*intake: GET .*127\.0\.0\.1:1"):
        w.advanced()
    now[0] = alive
    w.advanced(until=Step.STOP_PRODUCERS)
    now[0] = dead
    w.until(lambda: "not on the source" in w.waits(patience_s=3, wanted="resume"), "the budget ends the freeze", 60)
    why = w.waits(patience_s=1, wanted="resume")
    assert "intake" in why and "127.0.0.1:1: no answer" in why
    now[0] = alive
    w.advanced(wanted="resume")
    assert w.state(Row.FREEZE) == "undone" and w.differs() == {}
    w.goes_on()


def test_a_member_that_lingers_in_the_sinks_group_keeps_its_offsets_from_being_set(
    migrate: Migrate, broker: EmbeddedBroker, admin: KafkaAdmin
) -> None:
    """Connect itself refuses to change the offsets then; here the group is waited for by name, and goes on."""
    w = migrate()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    other = Consumer({**broker.config(), "group.id": w.group, "session.timeout.ms": 6000})
    other.subscribe([w.source])
    try:
        w.until(lambda: other.poll(0.1) is None and other.assignment(), "another member of the group", 30)
        why = w.waits(patience_s=6)
        assert w.group in why and ("members" in why or "still reads the source" in why), why
        assert set(admin.commits([w.group], w.target, range(6))[w.group].offsets.values()) == {None}
        with pytest.raises(Refused):
            admin.alter_commits(w.group, w.target, {0: 0})
    finally:
        other.close()
    w.advanced()
    assert w.differs() == w.moved()
    w.proven()


def test_a_connector_that_failed_while_its_task_runs_is_neither_moved_nor_taken_for_one_that_stands(
    migrate: Migrate,
) -> None:
    w = migrate()
    ctx = w.context()
    ctx.refresh()
    for name, file, who in (
        (w.source_name, w.wrote, ctx.producers),
        (w.sink_name, w.kept, ctx.consumers),
    ):
        broken = Path(f"{file}.broken")
        broken.touch()
        with suppress(Transient):  # its worker says 500
            w.worker.ask("POST", f"/connectors/{name}/restart", None)
        w.worker.until(partial(w.is_in, name, "FAILED"), "the connector failed")
        assert "RUNNING" in w.worker.status(name)[1], "its task runs on"
        (seen,) = w.controllers["connect"].observe(ctx.control(), who)
        assert seen.status == "running" and seen.topic in (w.source, None)
        with pytest.raises(PreflightFailed, match=r"TS325.*the connector is FAILED"):
            w.advanced()
        broken.unlink()
        w.worker.ask("POST", f"/connectors/{name}/restart", None)
        w.worker.until(partial(w.worker.running, name), "it runs")
    w.advanced()
    w.goes_on()
    w.proven()


def test_one_that_is_stopped_stands_only_once_no_task_of_it_is_listed(migrate: Migrate) -> None:
    w = migrate()
    ctx = w.context()
    ctx.refresh()
    slow = Path(f"{w.kept}.slow")
    slow.touch()
    w.controllers["connect"].stop(ctx.control(), ctx.consumers)
    w.worker.until(partial(w.is_in, w.sink_name, "STOPPED"), "it is STOPPED")
    state, tasks = w.worker.status(w.sink_name)
    (seen,) = w.controllers["connect"].observe(ctx.control(), ctx.consumers)
    assert (state, bool(tasks)) == ("STOPPED", True), (state, tasks)
    assert seen.status in ("running", "unknown"), (
        f"unknown where its worker waits for the task, and does not answer: {seen}"
    )
    slow.unlink()
    w.until(lambda: w.controllers["connect"].observe(ctx.control(), ctx.consumers)[0].status == "stopped", "it stands")
    assert w.worker.status(w.sink_name) == ("STOPPED", [])
    w.controllers["connect"].start(ctx.control(), ctx.consumers)
    assert w.differs() == {}
    w.goes_on()


def test_a_sink_that_runs_and_reads_nothing_has_not_arrived(migrate: Migrate) -> None:
    """All its tasks are RUNNING, and no commit moves."""
    w = migrate()
    hold = Path(f"{w.kept}.hold")
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.until(lambda: sum(o.end for o in w.cluster.offsets(w.target).values()) > 12, "records on the target", 30)
    hold.touch()
    w.until(lambda: "its commits do not move" in w.waits(patience_s=5), "it is seen", 60)
    assert w.worker.running(w.sink_name) and w.state(Row.SWITCH_GROUP, w.group) == "intended"
    hold.unlink()
    w.advanced()
    w.proven()


def test_a_task_that_failed_on_the_target_is_restarted(migrate: Migrate) -> None:
    w = migrate()
    fail = Path(f"{w.kept}.fail")
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.until(lambda: sum(o.end for o in w.cluster.offsets(w.target).values()) > 12, "records on the target", 30)
    fail.touch()
    w.until(lambda: "task 0 is FAILED" in w.waits(patience_s=5), "it is seen", 60)
    assert not any("hush" in line for line in w.said)
    fail.unlink()
    w.advanced()
    assert any(e.data.get("moment") == "restart" for e in w.journal.events(w.claim.migration_id))
    w.goes_on()
    w.proven()


def test_a_sink_that_keeps_the_highest_offset_drops_updates_which_is_why_the_plan_asks(migrate: Migrate) -> None:
    """What the page warns of, seen: lag 0, nothing failed, and old keys are not updated."""
    highest = {"highest": "true"}
    with pytest.raises(PreflightFailed, match=r"TS319.*sink connector"):
        migrate(settings_of_sink=highest, says=None).advanced()
    w = migrate(settings_of_sink=highest)
    w.advanced()
    w.until(lambda: sum(o.end for o in w.cluster.offsets(w.target).values()) > 24, "records on the target", 30)
    w.worker.ask("PUT", f"/connectors/{w.source_name}/stop", None)
    w.worker.until(lambda: w.worker.status(w.source_name) == ("STOPPED", []), "the source stands")

    def lag() -> int:
        held = w.cluster.commits([w.group], w.target, range(6))[w.group].offsets
        return sum(o.end - (held[p] or 0) for p, o in w.cluster.offsets(w.target).items())

    w.until(lambda: lag() == 0, "it has read all", 30)
    dropped = len(seen(w.wrote)) - len(seen(w.kept))
    assert dropped > 12 and w.worker.running(w.sink_name)


def test_what_cannot_be_moved_is_said_before_anything_is_touched(
    worker: ConnectWorker, admin: KafkaAdmin, topic_name: Callable[..., str], tmp_path: Path
) -> None:
    topic = topic_name()
    admin.create_topic(topic, 1, 1, {})
    controller = ConnectController(admin, lambda _: worker.ask, SystemClock())
    ctx = ControlContext("m", topic, f"{topic}-v2", 1)

    def unable(role: Any = "consumer", group: str = "", **settings: Any) -> str:
        told = {"connector": f"{topic}_c", **settings}
        who = Participant("archive", role, "connect", group or f"connect-{topic}_c", None, told)
        return "\n".join(controller.can_i(ctx, [who]))

    assert "knows no connector" in unable()
    try:
        made = worker.create(f"{topic}_c", sink(tmp_path / "kept", topic))
        assert unable() == ""
        assert "is a sink, no source" in unable(role="producer")
        assert f"reads as group connect-{topic}_c" in unable(group="another")
        worker.ask("PUT", f"/connectors/{topic}_c/pause", None)
        worker.until(lambda: worker.status(f"{topic}_c")[0] == "PAUSED", "it is paused")
        assert "is PAUSED" in unable()
        worker.ask("PUT", f"/connectors/{topic}_c/resume", None)
        for more, said in (
            ({"topics": "others"}, "it has to name"),
            ({"topics": f"{topic},{topic}-v2"}, "and not"),
            ({"notes": f"of {topic}"}, "its setting notes names"),
        ):
            worker.create(f"{topic}_c", {**made, **more})
            assert said in unable(), more
        assert unable(keep=["notes"]) == ""
        regex = {k: v for k, v in made.items() if k != "topics"} | {"topics.regex": f"{topic}.*"}
        worker.create(f"{topic}_c", regex)
        assert "topics.regex" in unable()
    finally:
        worker.delete(f"{topic}_c")


def test_a_plan_in_a_terminal_asks_the_worker_of_a_connection_in_the_environment(
    migrate: Migrate,
    broker: EmbeddedBroker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    w = migrate()
    path = tmp_path / "spec.json"
    path.write_text(w.spec.model_dump_json(exclude_defaults=True))
    words = ["plan", str(path), "--bootstrap-server", broker.bootstrap, "--without-impact", "--json"]

    def found() -> list[str]:
        cli.run(words)
        return [f["seen"] for f in json.loads(capsys.readouterr().out)["findings"] if f["code"] == "TS325"]

    assert len(found()) == 2 and all("no connection 'connect_default'" in line for line in found())
    monkeypatch.setenv("AIRFLOW_CONN_CONNECT_DEFAULT", f"http://127.0.0.1:{w.worker.port}")
    assert found() == []
    w.worker.ask("PUT", f"/connectors/{w.sink_name}/pause", None)
    w.worker.until(lambda: w.worker.status(w.sink_name)[0] == "PAUSED", "it is paused")
    (line,) = found()
    assert "the connector is PAUSED" in line


@pytest.mark.parametrize("case", CONTRACT, ids=lambda c: c.__name__)
def test_the_fake_worker_and_the_real_one_do_alike(
    case: Case, worker: ConnectWorker, admin: KafkaAdmin, topic_name: Callable[..., str], tmp_path: Path
) -> None:
    topic = topic_name()
    admin.create_topic(topic, 2, 1, {})
    name = f"{topic}_c"
    try:
        case(worker.ask, name, worker.create(name, sink(tmp_path / "kept", topic)), worker.until)
    finally:
        worker.delete(name)
