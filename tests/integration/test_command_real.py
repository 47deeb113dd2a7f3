"""Kind ``command`` on a real broker: real applications, moved by the hook of docs/examples, under live load."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.host_world import Host
from tests.integration.real_world import RealWorld
from tests.integration.reaper import Reaper

from lab.broker import EmbeddedBroker
from topicshift.adapters.controllers.command import CommandController
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.core.engine.words import Row, Step
from topicshift.core.errors import DrainTimedOut

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]


@pytest.fixture
def admin(broker: EmbeddedBroker) -> Iterator[KafkaAdmin]:
    with KafkaAdmin(broker.config()) as made:
        yield made


@pytest.fixture
def host(tmp_path: Path, broker: EmbeddedBroker) -> Iterator[Host]:
    made = Host(tmp_path, broker)
    yield made
    made.close()


class Migration(RealWorld):
    """One producer and one group, both moved by hooks."""

    def __init__(self, host: Host, admin: KafkaAdmin, source: str, **changes: Any) -> None:
        admin.create_topic(source, 3, 1, {})
        admin.alter_commits(f"g-{source}", source, dict.fromkeys(range(3), 0))
        host.install("producer", "checkout", source)
        host.install("consumer", "ledger", source, f"g-{source}")
        self.host = host
        hook = {"kind": "command", "settings": {"hook": "checkout", "timeout": "5s"}}
        super().__init__(
            host.broker,
            admin,
            source,
            producers=[{"name": "checkout", **hook}],
            consumers=[{"name": "ledger", "group": f"g-{source}", **hook, "settings": {"hook": "ledger"}}],
            **changes,
        )
        self.reaper = Reaper()
        controller = CommandController(admin, host.hooks)
        controller._call_hook = self.reaper.calling(controller._call_hook)
        self.controllers["command"] = controller  # type: ignore[assignment]
        self.until(lambda: len(host.seen("ledger")) > 100, "the application processes records", 60)

    def drain(self, group: str = "", topic: str = "") -> None:
        """The application does."""

    def proven(self) -> None:
        """Everything that was acknowledged was processed once, and each key in order, by the applications' own logs."""
        self.until(lambda: len(self.host.seen("ledger")) >= len(self.host.seen("checkout")), "all is processed", 30)
        by_key: dict[str, list[int]] = defaultdict(list)
        for key, number, _ in self.host.seen("ledger"):
            by_key[key].append(number)
        sent: dict[str, list[int]] = defaultdict(list)
        for key, number, _ in self.host.seen("checkout"):
            sent[key].append(number)
        assert all(numbers == list(range(len(numbers))) for numbers in sent.values())
        assert all(by_key[key][: len(numbers)] == numbers for key, numbers in sent.items())

    def stand(self) -> None:
        """Stop the producer, so that what it has sent can be counted."""
        self.host.stand("checkout")
        self.until(lambda: not self.host.running("checkout")[1], "the producer has ended")


@pytest.fixture
def migrate(host: Host, admin: KafkaAdmin, topic_name: Callable[..., str]) -> Iterator[Callable[..., Migration]]:
    made: list[Migration] = []

    def make(**changes: Any) -> Migration:
        made.append(Migration(host, admin, topic_name(), **changes))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_applications_are_moved_by_their_hooks_and_nothing_is_lost(
    migrate: Callable[..., Migration], host: Host, cutover: str
) -> None:
    """The consumer starts at ``latest``: without its offsets it would skip what came before it."""
    w = migrate(cutover=cutover)
    w.advanced()
    assert host.running("checkout") == (w.target, True) and host.running("ledger") == (w.target, True)
    before = len(host.seen("ledger"))
    w.until(lambda: len(host.seen("ledger")) > before + 100, "records of the target are processed", 30)
    w.stand()
    w.proven()
    assert {topic for _, _, topic in host.seen("ledger")} == {w.source, w.target}
    moments = [e.data["moment"] for e in w.journal.events(w.claim.migration_id) if e.kind == "participant"]
    assert moments == ["stop", "point", "start", "stop", "point", "start"]


@pytest.mark.parametrize(
    ("instead", "waits"),
    [
        ("exit 0", "checkout is running"),
        ("sleep 60", "had not ended after 5 s"),
        ("echo may not >&2; exit 1", "exit code 1: may not"),
    ],
)
def test_a_hook_that_does_not_stop_its_application_stops_the_run_on_the_source(
    migrate: Callable[..., Migration], host: Host, instead: str, waits: str
) -> None:
    """It answers 0 and did nothing, hangs, or fails: everything is as before at the end of the budget."""
    w = migrate(freeze_budget="12s")
    host.break_hook("checkout", "stop", instead)
    with pytest.raises(DrainTimedOut, match="producers are back on the source"):
        w.advance(patience_s=60)
    assert any(waits in line for line in w.said)
    assert host.running("checkout") == (w.source, True) and host.running("ledger") == (w.source, True)
    assert (host.home / "applications/checkout/topic").read_text() == w.source
    before = len(host.seen("ledger"))
    w.until(lambda: len(host.seen("ledger")) > before + 50, "it goes on as before", 30)


def test_a_freeze_that_is_taken_back_leaves_everything_as_it_was(migrate: Callable[..., Migration], host: Host) -> None:
    w = migrate()
    w.advanced(until=Step.STOP_PRODUCERS)
    assert host.running("checkout") == (w.source, False)
    w.advanced(wanted="resume")
    assert w.state(Row.FREEZE) == "undone"
    assert host.running("checkout") == (w.source, True) and host.running("ledger") == (w.source, True)
    before = len(host.seen("ledger"))
    w.until(lambda: len(host.seen("ledger")) > before + 50, "it goes on as before", 30)
    w.stand()
    w.proven()


def test_a_hook_whose_application_does_not_start_on_the_target_is_waited_for_by_name(
    migrate: Callable[..., Migration], host: Host
) -> None:
    """It answers 0 to start, and its consumers never join: the group is not finished, and nothing was skipped."""
    w = migrate()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    host.break_hook("ledger", "start", "exit 0")
    why = w.waits(patience_s=8)
    assert w.group in why and "stopped" in why
    host.mend_hook("ledger")
    deadline = time.monotonic() + 60
    w.advanced()
    assert time.monotonic() < deadline
    w.stand()
    w.proven()


@pytest.mark.long
def test_killed_before_and_after_every_call_of_a_hook_on_every_way_everything_is_as_it_must_be(
    migrate: Callable[..., Migration], host: Host
) -> None:
    """A freeze that is taken back, the whole way there, and back with records in the target."""
    w = migrate()
    before = host.fields()
    kills = w.reaper.driven
    assert kills(w, until=Step.STOP_PRODUCERS) == ["checkout stop"]
    assert kills(w, wanted="resume") == [f"checkout point {w.source}", "checkout start"]
    assert host.fields() == before

    def there(topic: str) -> list[str]:
        return [f"{name} {act}" for name in ("checkout", "ledger") for act in ("stop", f"point {topic}", "start")]

    assert kills(w) == there(w.target)
    assert host.fields() == {name: {**f, "topic": w.target, "running": w.target} for name, f in before.items()}
    seen = len(host.seen("ledger"))
    w.until(lambda: len(host.seen("ledger")) > seen + 50, "records of the target are processed", 30)
    assert kills(w, wanted="rollback") == there(w.source)
    assert host.fields() == before
    w.stand()
    w.proven()
