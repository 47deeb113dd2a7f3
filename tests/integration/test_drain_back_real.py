"""Going back after the switch on a real broker, under live load: nothing is lost or out of order, twice in a row."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from tests.integration.real_world import RealWorld
from tests.integration.route_world import eventually

from lab.broker import EmbeddedBroker
from lab.load_life import App, Life
from lab.load_proof import prove
from lab.traffic import start_traffic
from topicshift import cli
from topicshift.acts import orders
from topicshift.acts.advance import Done
from topicshift.adapters.controllers import ControllerEnv, controller
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.adapters.kafka.reader import KafkaDrainReader
from topicshift.core.engine.words import Row, Step
from topicshift.core.errors import Refused
from topicshift.ports import DrainReader

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]


class LiveWorld(RealWorld):
    """A migration of applications that follow the route for real; Spark's part is a fake."""

    def __init__(self, broker: EmbeddedBroker, admin: KafkaAdmin, source: str, **changes: Any) -> None:
        super().__init__(broker, admin, source, **changes)
        config = broker.superuser_config()
        self.controllers = {"route": controller("route", ControllerEnv(dict(config), admin, self.clock))}  # type: ignore[assignment]

    def reader(self) -> DrainReader:
        self.readers.append(KafkaDrainReader.from_config(self.broker.superuser_config()))
        return self.readers[-1]

    def close(self) -> None:
        self.controllers["route"].close()
        super().close()

    def forgets(self) -> None:
        """The brokers forget where the group stood on the source, as they do of what nobody commits for a while."""
        config, places = self.broker.superuser_config(), range(len(self.stands()))
        with_rights = {
            "security_protocol": config["security.protocol"],
            "sasl_mechanism": config["sasl.mechanism"],
            "sasl_plain_username": config["sasl.username"],
            "sasl_plain_password": config["sasl.password"],
        }
        client = KafkaAdminClient(bootstrap_servers=config["bootstrap.servers"], **with_rights)
        try:
            found = client.delete_group_offsets(self.group, [TopicPartition(self.source, p) for p in places])
        finally:
            client.close()
        assert {error.__name__ for error in found.values()} == {"NoError"}, found
        assert set(self.stands().values()) == {None}

    def stands(self) -> dict[int, int | None]:
        """Where the group stands on the source."""
        places = sorted(self.cluster.offsets(self.source))
        held = self.cluster.commits([self.group], self.source, places)[self.group]
        return {p: held.offsets.get(p) for p in places}

    def goes_there(self, life: Life) -> None:
        """Everybody moves to the target, and works there for a while."""
        self.advanced()
        self._works(life)

    def goes_back(self, life: Life) -> None:
        """Everybody goes back, and works there for a while."""
        asking = self.asks(wanted="rollback")
        assert asking.about["rollback"] == "drain_back", asking
        self.advanced(wanted="rollback")
        assert self.journal.current(self.claim.migration_id).state == "rolled_back"
        assert self.data(Row.ROLLBACK)["not_restored"] == []
        self.is_as_before("rolled back (drain_back)", life)

    def is_as_before(self, how: str, life: Life, *, but: str = "") -> None:
        """By the report of the ending: ACLs, configs, commits, and the route, open on the source at a higher epoch.

        ``but``: the one config that the migration still holds.
        """
        said = json.loads(self.evidence.read(self.claim.migration_id, "restored.json") or b"")
        assert (said["how"], said["unknown"]) == (how, [])
        held = [
            line.startswith(but) and line.endswith("(kept so until the migration ends)") for line in said["differs"]
        ]
        assert held == [True] * bool(but), said["differs"]
        same = {f"the ACLs of {self.source} are as they were"}
        same |= set() if but else {f"the configs of {self.source} are as they were"}
        assert same | {f"no commit on {self.source} is lower than it was"} <= set(said["equal"])
        (line,) = (line for line in said["equal"] if line.startswith("producer checkout is on "))
        found = re.fullmatch(
            rf"producer checkout is on {self.source} at epoch (\d+) of its route(?: \(was (\d+)\))?", line
        )
        assert found is not None and int(found[1]) > int(found[2] or 0), line
        self._works(life)

    def _works(self, life: Life) -> None:
        life.check_alive()
        now = life.counts()
        eventually("records that are sent and read", lambda: all(n > now[k] + 50 for k, n in life.counts().items()))


@pytest.fixture
def worlds() -> Iterator[list[LiveWorld]]:
    made: list[LiveWorld] = []
    yield made
    for world in made:
        world.close()


@pytest.fixture
def admin(secure_broker: EmbeddedBroker) -> Iterator[KafkaAdmin]:
    made = KafkaAdmin(secure_broker.superuser_config())
    yield made
    made.close()


@pytest.fixture
def life(secure_broker: EmbeddedBroker, topic_name: Callable[..., str], tmp_path: Path) -> Iterator[Life]:
    """Applications under load on a topic of their own."""
    made = Life(
        tmp_path / "logs",
        lambda user: secure_broker.write_client_properties(user, tmp_path / f"{user}.properties"),
        topic=topic_name(),
        keys=50,
        rate=40,
        producers=(App("checkout", 1),),
        consumers=(App("ledger", 2),),
    )
    try:
        start_traffic(secure_broker.superuser_config(), made, print, backlog=300)
        yield made
    finally:
        made.stop()


LEDGER = [{"name": "ledger", "group": "ledger"}]


def nothing_is_lost(life: Life, logs: Path, topics: set[str]) -> None:
    life.finish()
    life.stop()
    proof = prove(logs)
    assert set(proof["sent_by_topic"]) == topics
    ledger = proof["groups"]["ledger"]
    assert (ledger["lost"], ledger["out_of_order"], ledger["duplicated"]) == (0, 0, 0), ledger
    assert ledger["processed"] == proof["sent"]


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_under_load_everybody_goes_back_twice_and_nothing_is_lost(
    cutover: str, secure_broker: EmbeddedBroker, admin: KafkaAdmin, life: Life, worlds: list[LiveWorld], tmp_path: Path
) -> None:
    source = life.topic
    for target in (f"{source}-v2", f"{source}-v3"):
        changes = {"target": target, "partitions": 9, "cutover": cutover}
        worlds.append(w := LiveWorld(secure_broker, admin, source, consumers=LEDGER, **changes))
        before = w.acls()
        w.goes_there(life)
        stood = w.stands()
        if target.endswith("-v2"):
            w.forgets()
        w.goes_back(life)
        assert w.acls() == before
        assert all((at or 0) >= (was or 0) for at, was in zip(w.stands().values(), stood.values(), strict=True))
    nothing_is_lost(life, tmp_path / "logs", {source, f"{source}-v2", f"{source}-v3"})


def test_of_two_migrations_in_a_row_the_later_one_goes_back_first_and_the_earlier_one_names_it(
    secure_broker: EmbeddedBroker, admin: KafkaAdmin, life: Life, worlds: list[LiveWorld], tmp_path: Path
) -> None:
    names = [life.topic, f"{life.topic}-v2", f"{life.topic}-v3"]
    changes = {"partitions": 9, "cutover": "producers_first", "consumers": LEDGER}
    worlds.append(first := LiveWorld(secure_broker, admin, names[0], target=names[1], **changes))
    before = first.acls()
    first.goes_there(life)
    worlds.append(
        second := LiveWorld(
            secure_broker, admin, names[1], target=names[2], journal=first.journal, **changes | {"partitions": 12}
        )
    )
    newer = second.claim.migration_id
    with pytest.raises(Refused, match=rf"forward_only.*{newer} .*open\) holds {names[1]}"):
        first.advance(wanted="rollback")
    second.goes_there(life)
    with pytest.raises(Refused, match=rf"forward_only.*{newer} .*done\) came after it and has moved {names[1]} on"):
        first.advance(wanted="rollback")
    second.goes_back(life)
    first.goes_back(life)
    assert first.acls() == before
    nothing_is_lost(life, tmp_path / "logs", set(names))


@contextmanager
def stalled(life: Life) -> Iterator[None]:
    """The consumers stand still for a moment, so that records are there that they have not read."""
    pids = [pid for name, pid in life.pids().items() if name.startswith("processed-")]
    sent = life.counts()["sent"]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        eventually("records that nobody has read", lambda: life.counts()["sent"] > sent + 20)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_under_load_an_abort_and_a_freeze_that_has_failed_leave_everything_as_it_was(
    secure_broker: EmbeddedBroker, admin: KafkaAdmin, life: Life, worlds: list[LiveWorld], tmp_path: Path
) -> None:
    def retention() -> str | None:
        info = admin.topic(life.topic)
        return info.configs["retention.ms"].value if info is not None else None

    admin.alter_topic_configs(life.topic, set_={"retention.ms": "600000"})
    for ending in ("aborted", "failed"):
        changes = {"target": f"{life.topic}-{ending}", "partitions": 9, "freeze_budget": "60s"}
        worlds.append(w := LiveWorld(secure_broker, admin, life.topic, consumers=LEDGER, **changes))
        before = w.acls()
        w.advance(until=Step.STOP_PRODUCERS, patience_s=60.0, leave=frozenset({"retention_long_enough"}))
        with stalled(life):
            w.advance(until=Step.STOP_PRODUCERS, patience_s=60.0, leave=frozenset({"verifier_started", "gate"}))
        w.advance(until=Step.STOP_PRODUCERS, patience_s=60.0)
        assert w.record().freeze is not None, "producers stand still"
        assert retention() == w.data(Row.LENGTHEN_RETENTION)["set"]["retention.ms"] != "600000"
        if ending == "aborted":
            assert isinstance(orders.abort(w.context(), "not today", 120.0), Done)
        else:
            w.advanced(wanted="resume")  # as the task of a run does that has failed in its freeze
            w.is_as_before("producers resumed on the source", life, but="retention.ms of ")
            w.advanced(wanted="rollback")
        w.is_as_before("rolled back", life)
        assert w.acls() == before and w.target not in admin.topic_names()
        assert retention() == "600000"
    nothing_is_lost(life, tmp_path / "logs", {life.topic})


def test_in_a_freeze_without_a_journal_status_and_resume_on_source_go_by_the_route(
    secure_broker: EmbeddedBroker,
    admin: KafkaAdmin,
    life: Life,
    worlds: list[LiveWorld],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    worlds.append(
        w := LiveWorld(
            secure_broker,
            admin,
            life.topic,
            consumers=LEDGER,
            partitions=9,
            freeze_budget="60s",
            target=f"{life.topic}-v2",
        )
    )
    before = w.acls()
    w.advance(until=Step.STOP_PRODUCERS, patience_s=60.0)
    assert w.record().freeze is not None, "producers stand still"
    dead = tmp_path / "journal.db"
    dead.write_text("this is no database, and it is long enough to be looked at as one " * 20)
    properties = str(secure_broker.write_client_properties(None, tmp_path / "superuser.properties"))

    def topicshift(*words: str) -> tuple[int, str]:
        with monkeypatch.context() as patch:
            patch.setenv("TOPICSHIFT_JOURNAL", f"sqlite:///{dead}")
            code = cli.run([*words, "--kafka-config", properties])
        out, err = capsys.readouterr()
        assert "The journal cannot be read" in err, err
        return code, out

    name = w.claim.migration_id
    code, out = topicshift("status", life.topic)
    assert code == 0 and f"{name}: producers of {life.topic} are on {life.topic}, paused until " in out
    code, out = topicshift("resume-on-source", name)
    assert code == 0 and f"{name}: producers go on with {life.topic}" in out
    w._works(life)
    assert "not paused" in topicshift("status", name)[1]
    w.advanced(wanted="resume")  # the journal is back, and the run does what the watch or a person asks it to
    assert w.acls() == before
    w.is_as_before("producers resumed on the source", life)
    w.goes_there(life)
    assert w.journal.current(name).state == "done"
    nothing_is_lost(life, tmp_path / "logs", {life.topic, f"{life.topic}-v2"})
