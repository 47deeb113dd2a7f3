"""Spring Boot applications with an interface of their own (``spring/Toggled.java``), compiled and run as processes."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.integration.host_world import Line, seen

from lab.broker import EmbeddedBroker
from lab.java import find_java
from lab.ports_free import claim, release
from lab.runfolder import write_private
from topicshift.adapters.controllers.http import Call, RestServices
from topicshift.adapters.rest import Endpoint
from topicshift.core.errors import TopicshiftError

ROOT = Path(__file__).parents[2]
JARS = ROOT / "build" / "jars" / "spring"
PASSWORD = "canary-of-the-interface"


def compiled(out: Path) -> Path:
    """The folder with the application's classes, every warning an error."""
    beside = find_java(for_spark=False).home / "bin" / "javac"
    javac = str(beside) if beside.exists() else shutil.which("javac")
    assert javac, "these tests compile a Spring Boot application: install a JDK (javac), not only a Java runtime"
    assert list(JARS.glob("spring-kafka-*.jar")), f"the jars of Spring are not in {JARS}. Run make setup."
    source = Path(__file__).parent / "spring" / "Toggled.java"
    command = [javac, "--release", "17", "-Xlint:all", "-Werror", "-cp", f"{JARS}/*", "-d", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


class SpringApp:
    """One application in a JVM of its own. ``flags``: the address of the service that it asks for its topic."""

    def __init__(
        self, broker: EmbeddedBroker, classes: Path, folder: Path, role: str, topic: str, *, user: str, group: str = ""
    ) -> None:
        folder.mkdir(parents=True)
        self.folder, self.user, (self.port,) = folder, user, claim()
        self._classes, self._child = classes, None
        lines = [
            f"app.role={role}",
            f"app.folder={folder}",
            f"app.port={self.port}",
            f"app.password={PASSWORD}",
            f"payments.topic={topic}",
            "spring.main.banner-mode=off",
            "spring.kafka.consumer.auto-offset-reset=latest",
            "spring.kafka.producer.properties.delivery.timeout.ms=10000",
            "spring.kafka.producer.properties.request.timeout.ms=5000",
            "spring.kafka.producer.properties.max.block.ms=5000",
            f"spring.kafka.consumer.group-id={group}",
        ]
        found = [line.split("=", 1) for line in broker.client_properties(user).splitlines() if "=" in line]
        lines += [f"spring.kafka.bootstrap-servers={v}" for k, v in found if k == "bootstrap.servers"]
        lines += [f"spring.kafka.properties.{k}={v}" for k, v in found if k != "bootstrap.servers"]
        write_private(folder / "application.properties", "\n".join(lines) + "\n")

    def start(self, flags: str = "") -> None:
        """Begin a process, and wait until its interface answers."""
        command = [str(find_java(for_spark=False).binary), "-XX:TieredStopAtLevel=1", "-Xmx160m"]
        command += ["-cp", f"{self._classes}:{JARS}/*", "Toggled"]
        command += [f"--spring.config.location=file:{self.folder}/application.properties", f"--app.flags={flags}"]
        with (self.folder / "log").open("ab") as out:
            self._child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=self.folder)  # type: ignore[assignment]
        self.until(lambda: self._answers() or self._child.poll() is not None, "its interface answers", 90)  # type: ignore[attr-defined]
        assert self._child.poll() is None, (self.folder / "log").read_text()[-3000:]  # type: ignore[attr-defined]

    def _answers(self) -> bool:
        try:
            return bool(self.state())
        except TopicshiftError:
            return False

    def endpoint(self) -> Endpoint:
        """Where it is asked, and as whom."""
        return Endpoint(f"http://127.0.0.1:{self.port}", "topicshift", PASSWORD)

    def send(self, call: Call) -> Any:
        """Ask it."""
        return RestServices(lambda _: self.endpoint()).send("", call)

    def tell(self, path: str, body: Any = None) -> None:
        """Ask it something, outside of any migration."""
        self.send(Call("POST", path, body, "application/json", 5.0, False))

    def state(self) -> dict[str, str]:
        """What it says of itself."""
        found: dict[str, str] = self.send(Call("GET", "/actuator/payments", None, "application/json", 5.0, True))
        return found

    def stand(self) -> None:
        """Stop its work, and wait until it stands."""
        self.tell("/actuator/payments", {"run": False})
        self.until(lambda: self.state()["state"] == "stopped", "it stands", 30)

    def seen(self) -> list[Line]:
        """What it has had acknowledged, or was given, in order."""
        return seen(self.folder / "seen")

    def refused(self) -> list[str]:
        """The topics to which records of it were refused."""
        file = self.folder / "refused"
        return [line.split(",", 1)[0] for line in file.read_text().splitlines()] if file.exists() else []

    def until(self, holds: Callable[[], Any], what: str, seconds: float = 30) -> None:
        """Wait for a condition."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, (
                f"{self.folder.name}: {what}: {(self.folder / 'log').read_text()[-2000:]}"
            )
            time.sleep(0.05)

    def kill(self) -> None:
        """End the process, as a crash does."""
        if self._child is not None:
            self._child.kill()
            self._child.wait(20)
            self._child = None

    def close(self) -> None:
        """End it, and give its port back."""
        self.kill()
        release([self.port])


@contextlib.contextmanager
def application(*args: Any, flags: str = "", **more: Any) -> Iterator[SpringApp]:
    """A running one, ended afterwards."""
    made = SpringApp(*args, **more)
    try:
        made.start(flags)
        yield made
    finally:
        made.close()
