"""Kind ``http`` on real Spring Boot applications and a real broker: toggled by property and refresh, under load."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.integration.host_world import by_key
from tests.integration.http_world import PASSWORD, SpringApp, application, compiled
from tests.integration.real_world import RealWorld
from tests.integration.reaper import Reaper
from tests.unit.http_contract import CONTRACT, SETTINGS

from lab.broker import EmbeddedBroker
from lab.rights import allow, grant
from topicshift.adapters.controllers.http import Call, HttpController, RestServices
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.adapters.rest import Endpoint
from topicshift.core.engine.words import Row, Step
from topicshift.core.errors import AccessDenied, DrainTimedOut, SpecError

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]
TOPICS = "spring"


@pytest.fixture(scope="module")
def admin(secure_broker: EmbeddedBroker) -> Iterator[KafkaAdmin]:
    with KafkaAdmin(secure_broker.config()) as made:
        yield made


@pytest.fixture(scope="module")
def apps(
    secure_broker: EmbeddedBroker, admin: KafkaAdmin, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, SpringApp]]:
    """A producer and a consumer, for all tests of this module: a JVM takes long to start."""
    classes, home = compiled(tmp_path_factory.mktemp("classes")), tmp_path_factory.mktemp("apps")
    rights = [
        *allow("checkout", "TOPIC", TOPICS, "WRITE", "DESCRIBE", prefixed=True),
        *allow("ledger", "TOPIC", TOPICS, "READ", "DESCRIBE", prefixed=True),
        *allow("ledger", "GROUP", TOPICS, "READ", "DESCRIBE", prefixed=True),
    ]
    grant(secure_broker.superuser_config(), rights)
    admin.create_topic(f"{TOPICS}-idle", 3, 1, {})
    with ExitStack() as open_:
        yield {
            name: open_.enter_context(
                application(
                    secure_broker, classes, home / name, role, f"{TOPICS}-idle", user=name, group=f"{TOPICS}-{name}"
                )
            )
            for name, role in (("checkout", "producer"), ("ledger", "consumer"))
        }


def to(app: SpringApp, topic: str) -> None:
    """Let it work on the topic, outside of any migration."""
    app.stand()
    app.tell("/actuator/env", {"name": "payments.topic", "value": topic})
    app.tell("/actuator/refresh")
    app.tell("/actuator/payments", {"run": True})


def settings(app: str, **changes: Any) -> dict[str, Any]:
    return {"kind": "http", "settings": {**SETTINGS, "connections": [app], **changes}}


class Migration(RealWorld):
    """One producer and one group, both Spring Boot applications."""

    def __init__(
        self, apps: dict[str, SpringApp], broker: EmbeddedBroker, admin: KafkaAdmin, source: str, **changes: Any
    ):
        self.apps_of = apps
        group = f"{TOPICS}-ledger"
        admin.create_topic(source, 3, 1, {})
        admin.create_acls(
            [*allow("checkout", "TOPIC", source, "WRITE", "DESCRIBE"), *allow("ledger", "TOPIC", source, "READ")]
        )
        for app in apps.values():
            app.stand()
        admin.alter_commits(group, source, dict.fromkeys(range(3), 0))
        self.since = {name: len(app.seen()) for name, app in apps.items()}
        for app in apps.values():
            to(app, source)
        super().__init__(
            broker,
            admin,
            source,
            producers=[
                {"name": "checkout", "principal": "User:checkout", **settings("checkout", **changes.pop("more", {}))}
            ],
            consumers=[{"name": "ledger", "group": group, **settings("ledger")}],
            **changes,
        )
        self.reaper = Reaper()
        services = self.reaper.serving(RestServices(self.endpoint))
        self.controllers["http"] = HttpController(admin, services, self.clock)  # type: ignore[assignment]
        self.until(lambda: len(self.seen("ledger")) > 50, "records are processed", 60)

    def endpoint(self, name: str) -> Endpoint:
        if name not in self.apps_of:
            raise SpecError(f"There is no connection {name!r}.")
        return self.apps_of[name].endpoint()

    def seen(self, name: str) -> list[Any]:
        return self.apps_of[name].seen()[self.since[name] :]

    def drain(self, group: str = "", topic: str = "") -> None:
        """The application does."""

    def is_on(self, topic: str) -> None:
        for app in self.apps_of.values():
            assert app.state() == {"state": "running", "topic": topic, "configured": topic}

    def goes_on(self, topic: str) -> None:
        """Everything that was acknowledged is processed once, and each key in order; more comes on this topic."""
        before = len(self.seen("ledger"))
        self.until(lambda: len(self.seen("ledger")) > before + 50, "it goes on", 30)
        self.apps_of["checkout"].stand()
        sent = by_key(self.seen("checkout"))
        self.until(lambda: by_key(self.seen("ledger")) == sent, "each record is processed once and in order", 30)
        assert self.seen("ledger")[-1][2] == topic


@pytest.fixture
def migrate(
    apps: dict[str, SpringApp], secure_broker: EmbeddedBroker, admin: KafkaAdmin, topic_name: Callable[..., str]
) -> Iterator[Callable[..., Migration]]:
    made: list[Migration] = []

    def make(**changes: Any) -> Migration:
        made.append(Migration(apps, secure_broker, admin, f"{TOPICS}-{topic_name()[-16:]}", **changes))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_real_application_keeps_the_contract(apps: dict[str, SpringApp], admin: KafkaAdmin) -> None:
    app = apps["checkout"]
    topic = f"{TOPICS}-contract"
    for name in (topic, f"{topic}-v2"):
        admin.create_topic(name, 1, 1, {})
    for case in CONTRACT:
        to(app, topic)
        case(app.send, topic, app.until)
    wrong = RestServices(lambda _: Endpoint(app.endpoint().url, "topicshift", "not the one"))
    with pytest.raises(AccessDenied) as error:
        wrong.send("", Call("GET", "/actuator/payments", None, "application/json", 5.0, True))
    assert "not the one" not in str(error.value)


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_applications_are_moved_by_their_interface_and_nothing_is_lost(
    migrate: Callable[..., Migration], cutover: str
) -> None:
    """The consumer starts at ``latest``: without its offsets it would skip what came before it."""
    w = migrate(cutover=cutover)
    w.advanced()
    w.is_on(w.target)
    w.goes_on(w.target)
    assert {topic for _, _, topic in w.seen("ledger")} == {w.source, w.target}
    events = [e.data for e in w.journal.events(w.claim.migration_id) if e.kind == "participant"]
    once = ["stop", "point", "point", "start"]
    assert [e["moment"] for e in events] == once * 2
    assert PASSWORD not in str([e.data for e in w.journal.events(w.claim.migration_id)]) + "".join(w.said)


def test_a_freeze_that_is_taken_back_leaves_everything_as_it_was(migrate: Callable[..., Migration]) -> None:
    w = migrate()
    w.advanced(until=Step.STOP_PRODUCERS)
    assert w.apps_of["checkout"].state()["state"] == "stopped"
    w.advanced(wanted="resume")
    assert w.state(Row.FREEZE) == "undone"
    w.is_on(w.source)
    w.goes_on(w.source)


@pytest.mark.long
def test_killed_before_and_after_every_request_on_every_way_every_field_is_as_it_must_be(
    migrate: Callable[..., Migration],
) -> None:
    """A freeze that is taken back, the whole way there, and back with records in the target."""
    w = migrate()

    def kills(**how: Any) -> list[tuple[str, str]]:
        told = [effect.split(maxsplit=3) for effect in w.reaper.driven(w, **how)]
        return [(app.rstrip(":"), path.rpartition("/")[2]) for app, _, path, *_ in told]

    def there(*apps: str) -> list[tuple[str, str]]:
        return [(app, part) for app in apps for part in ("payments", "env", "refresh", "payments")]

    assert kills(until=Step.STOP_PRODUCERS) == [("checkout", "payments")]
    assert kills(wanted="resume") == there("checkout")[1:]
    w.is_on(w.source)
    assert kills() == there("checkout", "ledger")
    w.is_on(w.target)
    before = len(w.seen("ledger"))
    w.until(lambda: len(w.seen("ledger")) > before + 50, "records of the target are processed", 30)
    assert kills(wanted="rollback") == there("checkout", "ledger")
    w.is_on(w.source)
    w.goes_on(w.source)


def test_a_listener_that_starts_again_by_itself_is_stopped_again(migrate: Callable[..., Migration]) -> None:
    """Its auto-start is off, and something starts it all the same, once it stands: nothing is seeded under it."""
    w = migrate()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    app, woken = w.apps_of["ledger"], []
    send = w.controllers["http"]._services.send  # type: ignore[attr-defined]

    def sent(connection: str, call: Call) -> Any:
        if connection == "ledger" and call.path == "/actuator/env" and not woken:
            woken.append(app.state())
            app.tell("/actuator/payments", {"run": True})
        return send(connection, call)

    w.controllers["http"]._services.send = sent  # type: ignore[attr-defined]
    w.advanced()
    assert [s["state"] for s in woken] == ["stopped"]
    w.is_on(w.target)
    w.goes_on(w.target)


def test_a_point_without_its_refresh_starts_nobody_on_the_source(migrate: Callable[..., Migration]) -> None:
    """200, and nothing happened: the property is set, and nobody has taken it."""
    w = migrate(more={"point": SETTINGS["point"][0]})
    w.advanced(until=Step.DRAIN)
    assert "not on the target yet: checkout is stopped" in w.waits(patience_s=6)
    assert any(f"checkout still shows {w.source}" in line for line in w.said)
    assert w.apps_of["checkout"].state() == {"state": "stopped", "topic": w.source, "configured": w.target}
    w.apps_of["checkout"].tell("/actuator/refresh")
    w.advanced()
    w.is_on(w.target)
    w.goes_on(w.target)


def test_a_process_whose_flag_service_is_down_when_it_starts_is_held_by_the_deny(
    migrate: Callable[..., Migration], admin: KafkaAdmin
) -> None:
    """Its code's default is the old topic. It reaches nobody there, and nothing of the source moves."""
    w = migrate(more={"restarts_on": "source"})
    w.advanced()
    app = w.apps_of["checkout"]
    properties = app.folder / "application.properties"
    kept = properties.read_text()
    properties.write_text(kept.replace(f"payments.topic={TOPICS}-idle", f"payments.topic={w.source}"))
    ends = {p: o.end for p, o in admin.offsets(w.source).items()}
    app.kill()
    try:
        app.start("http://127.0.0.1:1/flag")
        assert app.state() == {"state": "running", "topic": w.source, "configured": w.source}
        app.until(lambda: w.source in app.refused(), "its records are refused")
        assert {p: o.end for p, o in admin.offsets(w.source).items()} == ends
        app.kill()
        with flag_service(w.target) as url:
            app.start(url)
        assert app.state()["topic"] == w.target
        w.goes_on(w.target)
    finally:
        properties.write_text(kept)


def test_one_that_does_not_stop_ends_the_freeze_with_everybody_on_the_source(migrate: Callable[..., Migration]) -> None:
    stop = {"path": "/actuator/env", "body": {"name": "run", "value": "false"}, "repeatable": True}
    w = migrate(more={"stop": stop}, freeze_budget="12s")
    with pytest.raises(DrainTimedOut, match="producers are back on the source"):
        w.advance(patience_s=60)
    w.is_on(w.source)
    w.goes_on(w.source)


class _Flag(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.says.encode())  # type: ignore[attr-defined]

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def flag_service(topic: str) -> Iterator[str]:
    """The address of a service that says which topic is the one."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Flag)
    server.says = topic  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/flag"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
