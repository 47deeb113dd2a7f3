"""The Spring Boot example of the route protocol's page, compiled and run with Boot's defaults against a real broker."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.route_world import CHECKOUT, RouteWorld, eventually, life

from lab.java import find_java
from topicshift.core.route.records import Ack, Status

pytestmark = pytest.mark.broker
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "PaymentsRoute.java"
JARS = ROOT / "build" / "jars" / "spring"


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example as it is printed, and the application around it, compiled with every warning an error."""
    beside = find_java(for_spark=False).home / "bin" / "javac"
    javac = str(beside) if beside.exists() else shutil.which("javac")
    assert javac, "these tests compile the Spring Boot example: install a JDK (javac), not only a Java runtime"
    assert list(JARS.glob("spring-kafka-*.jar")), f"the jars of Spring are not in {JARS}. Run make setup."
    out = tmp_path_factory.mktemp("spring")
    app = Path(__file__).parent / "spring" / "App.java"
    command = [javac, "--release", "17", "-Xlint:all", "-Werror", "-cp", f"{JARS}/*", "-d", str(out)]
    done = subprocess.run([*command, str(EXAMPLE), str(app)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


class App:
    """The application in a JVM of its own. ``lines`` is all that it prints."""

    def __init__(self, classes: Path, world: RouteWorld) -> None:
        self.lines: list[str] = []
        self._world = world
        command = [
            str(find_java(for_spark=False).binary),
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{classes}:{JARS}/*",
            "App",
        ]
        command += [
            f"--spring.kafka.bootstrap-servers={world.config['bootstrap.servers']}",
            f"--route.topic={world.source}",
        ]
        command += [f"--spring.kafka.consumer.group-id={self.group(world)}", "--spring.main.banner-mode=off"]
        pipe = subprocess.PIPE
        self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        eventually("the application is up", lambda: "> ready" in self.lines or self._child.poll() is not None)
        assert self._child.poll() is None, "\n".join(self.lines)

    @staticmethod
    def group(world: RouteWorld) -> str:
        return f"{world.source}-app"

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self.lines.append(line.rstrip())

    def order(self, line: str) -> None:
        """Send a record of this value, or ``kill`` the thread that follows the route."""
        assert self._child.stdin is not None
        self._child.stdin.write(line + "\n")
        self._child.stdin.flush()

    def said(self, word: str) -> list[str]:
        return [line[2:] for line in list(self.lines) if line.startswith(f"> {word}")]

    def send(self, value: str) -> str:
        """Send one record, and wait until it is delivered; its topic."""
        self.order(value)
        eventually(f"{value} is delivered", lambda: self.said(f"sent {value} "))
        return self.said(f"sent {value} ")[0].split()[-1]

    def ack(self) -> Ack | None:
        """Its latest acknowledgement."""
        acks, _ = self._world.store.all_acks()
        mine = [a for a in acks if a.logical == self._world.source]
        return mine[0] if mine else None

    def says(self, status: Status) -> bool:
        ack = self.ack()
        return ack is not None and ack.status is status

    def signal(self, number: int) -> None:
        self._child.send_signal(number)

    def ended(self) -> int:
        return self._child.wait(60)

    def stop(self) -> None:
        self._child.kill()
        self._child.wait(10)
        self._reader.join(10)
        for end in (self._child.stdin, self._child.stdout):
            if end is not None:
                end.close()


@pytest.fixture
def app(classes: Path, world: RouteWorld) -> Iterator[App]:
    running = App(classes, world)
    with life(running):
        yield running


def test_it_moves_with_the_route_and_says_good_bye_when_it_is_told_to_end(world: RouteWorld, app: App) -> None:
    assert app.send("one") == world.source
    world.arm(CHECKOUT)
    world.controller.stop(world.ctx(), [CHECKOUT])
    world.wait(CHECKOUT, "stopped", world.source)
    fence = world.ends(world.source)
    assert sum(fence.values()) == 1
    app.order("two")
    world.controller.point(world.ctx(), [CHECKOUT], world.target)
    assert not app.said("sent two") and world.ends(world.source) == fence
    world.controller.start(world.ctx(), [CHECKOUT])
    world.wait(CHECKOUT, "running", world.target)
    eventually("the record that waited is delivered", lambda: app.said("sent two"))
    assert app.send("three") == world.target and world.ends(world.source) == fence
    app.signal(signal.SIGTERM)
    app.ended()
    assert "good-bye" in (world.state(CHECKOUT).reason or ""), "a restart holds no migration up"


def test_nothing_of_boots_defaults_is_in_force_where_it_would_be_unsafe(world: RouteWorld, app: App) -> None:
    app.send("one")
    text = "\n".join(app.lines)
    made = [dict(re.findall(r"\t([\w.]+) = (.*)", part)) for part in text.split("ProducerConfig values:")[1:]]
    assert len(made) == 2, "acknowledgements never queue behind records"
    for producer in made:
        assert (producer["acks"], producer["enable.idempotence"]) == ("-1", "true")
    records = max(made, key=lambda p: int(p["delivery.timeout.ms"]))
    ack = app.ack()
    assert ack is not None
    longest = int(records["delivery.timeout.ms"]) + int(records["max.block.ms"])
    assert (longest, ack.armed_gone_ms, ack.gone_ms) == (35_000, 50_000, 940_000)
    (reader,) = [dict(re.findall(r"\t([\w.]+) = (.*)", part)) for part in text.split("ConsumerConfig values:")[1:]]
    assert (reader["group.id"], reader["enable.auto.commit"]) == ("null", "false")
    assert reader["isolation.level"] == "read_committed"
    groups = world.admin.list_consumer_groups(request_timeout=20).result()
    assert App.group(world) not in {g.group_id for g in groups.valid}


def test_heartbeats_go_on_while_a_record_cannot_be_delivered(world: RouteWorld, app: App) -> None:
    app.send("one")
    world.arm(CHECKOUT)
    world.admin.delete_topics([world.source])[world.source].result(20)
    app.order("two")  # its partition is known to the producer, and nobody leads it any more
    world.controller.stop(world.ctx(), [CHECKOUT])
    eventually("it flushes", lambda: app.says(Status.FLUSHING))
    seen: set[int] = set()

    def beats() -> bool:
        ack = app.ack()
        assert ack is not None and ack.status is Status.FLUSHING, ack
        seen.add(ack.broker_ms or 0)
        return len(seen) > 3

    eventually("it repeats itself", beats)
    assert world.state(CHECKOUT).status == "running", "and is not taken for a silent one"
    eventually("the record has failed", lambda: app.said("lost two"))
    world.wait(CHECKOUT, "stopped", world.source)


def test_a_sender_is_told_at_once_when_nobody_follows_the_route_any_more(world: RouteWorld, app: App) -> None:
    app.send("one")
    world.controller.prepare(world.ctx())
    world.controller.stop(world.ctx(), [CHECKOUT])
    world.wait(CHECKOUT, "stopped", world.source)
    app.order("two")
    app.order("kill")
    eventually("the one that waits is told", lambda: app.said("refused two"), 10)
    app.order("three")
    eventually("and so is the next", lambda: app.said("refused three"), 10)
    assert "nobody follows the route any more" in app.said("refused three")[0]


def test_a_pause_that_is_long_over_stops_nobody_who_starts(world: RouteWorld, classes: Path) -> None:
    world.controller.prepare(world.ctx())
    world.controller.stop(world.ctx(lease_s=3), [CHECKOUT])
    began = time.monotonic()
    eventually("the pause is over", lambda: time.monotonic() - began > 3.5)
    app = App(classes, world)
    with life(app):
        assert app.send("one") == world.source
        eventually("it says so", lambda: app.says(Status.LEASE_EXPIRED))


def test_one_that_slept_through_the_switch_writes_nothing_to_the_source(world: RouteWorld, app: App) -> None:
    app.send("one")
    world.arm(CHECKOUT)
    app.signal(signal.SIGSTOP)
    began = time.monotonic()
    for n in range(20):
        app.order(f"late{n}")
    eventually("its contact is over", lambda: time.monotonic() - began > 11)
    world.controller.stop(world.ctx(), [CHECKOUT])
    world.controller.point(world.ctx(), [CHECKOUT], world.target)
    world.controller.start(world.ctx(), [CHECKOUT])
    fence = world.ends(world.source)
    app.signal(signal.SIGCONT)
    eventually("all are delivered", lambda: len(app.said("sent late")) == 20)
    assert {line.split()[-1] for line in app.said("sent late")} == {world.target}
    assert world.ends(world.source) == fence
