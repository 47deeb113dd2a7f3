"""Kind ``http`` with a real Unleash server: applications follow a flag by Unleash's own client, and are moved by it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.reaper import Reaper
from tests.integration.unleash_world import FLAG, ROOT, WHERE, FlagApp, Unleash, plain, running, until
from tests.unit.world import SOURCE, TARGET, World

from topicshift.adapters.controllers.http import HttpController, RestServices
from topicshift.adapters.rest import Endpoint
from topicshift.core.engine.words import Step
from topicshift.core.errors import AccessDenied, PreflightFailed, SpecError
from topicshift.testing.fake_journal import ManualClock

PAGE = Path(__file__).parents[2] / "docs" / "participants" / "http.md"
pytestmark = [pytest.mark.unleash, pytest.mark.postgres, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def unleash(tmp_path_factory: pytest.TempPathFactory, postgres_url: str) -> Iterator[Unleash]:
    made = Unleash(tmp_path_factory.mktemp("unleash"), postgres_url)
    with running(made):
        made.flag(SOURCE)
        yield made


class Clock(ManualClock):
    """Real applications need real time: what is slept here goes by there."""

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
        super().sleep(seconds)


class Flagged(World):
    """A producer of two instances that follow a flag, beside applications on the route."""

    def __init__(self, unleash: Unleash, apps: dict[str, FlagApp], **changes: Any) -> None:
        self.unleash, self.apps_of, self.reaper = unleash, apps, Reaper()
        super().__init__(producers=[self.checkout(**changes.pop("more", {})), {"name": "billing"}], **changes)
        self.clock.__class__ = Clock
        services = self.reaper.serving(RestServices(self.endpoint))
        self.controllers["http"] = HttpController(self.cluster, services, self.clock)  # type: ignore[assignment]

    def checkout(self, **more: Any) -> dict[str, Any]:
        """The spec's word for it: the example of the page, with the names of this server."""
        (example,) = [e for e in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL) if "unleash" in e]
        here = example.replace("projects/shop", "projects/default").replace("production", "development")
        here = re.sub("(?<=strategies/)[0-9A-Z]+", self.unleash.strategy, here)
        (told,) = yaml.safe_load(here)["producers"]
        return {**told, "settings": {**told["settings"], **more}}

    def endpoint(self, name: str) -> Endpoint:
        if name == "unleash":
            return self.unleash.endpoint()
        if name not in self.apps_of:
            raise SpecError(f"There is no connection {name!r}.")
        return self.apps_of[name].endpoint()

    def are_on(self, topic: str) -> None:
        """Every instance runs on the topic, and the flag names it."""
        assert [app.state() for app in self.apps_of.values()] == [{"state": "running", "topic": topic}] * 2
        assert self.unleash.rule()["variants"][0]["payload"]["value"] == topic


@pytest.fixture
def apps(unleash: Unleash, tmp_path: Path) -> Iterator[dict[str, FlagApp]]:
    unleash.ask("PUT", f"{ROOT}/{FLAG}/{WHERE}/{unleash.strategy}", unleash.names(SOURCE))
    made = {f"checkout_{n}": FlagApp(tmp_path, f"checkout_{n}", unleash, SOURCE) for n in (0, 1)}
    with running(*made.values()):
        yield made


def test_instances_that_follow_a_flag_are_moved_and_killed_at_each_request_all_is_as_it_must_be(
    unleash: Unleash, apps: dict[str, FlagApp]
) -> None:
    """A freeze that is taken back, the whole way there, and back: the flag's rule is as before, field by field."""
    w = Flagged(unleash, apps)
    before = plain(unleash.rule())

    def kills(**how: Any) -> list[str]:
        return [effect.split(":")[0] for effect in w.reaper.driven(w, **how)]

    stop = start = ["checkout_0", "checkout_1"]
    assert kills(until=Step.STOP_PRODUCERS) == stop
    assert kills(wanted="resume") == ["unleash", *start]
    w.are_on(SOURCE)
    assert plain(unleash.rule()) == before
    assert kills() == [*stop, "unleash", *start]
    w.are_on(TARGET)
    assert kills(wanted="rollback") == [*stop, "unleash", *start]
    w.are_on(SOURCE)
    assert plain(unleash.rule()) == before
    heard = "".join(w.said) + str([e.data for e in w.journal.events(w.claim.migration_id)])
    assert unleash.secret not in heard and unleash.client not in heard


def test_what_its_flag_says_is_not_what_an_instance_does(unleash: Unleash, apps: dict[str, FlagApp]) -> None:
    """200, the flag names the target, and one instance no longer hears of it: nobody is started, and it is named."""
    w = Flagged(unleash, apps)
    w.advanced(until=Step.DRAIN)
    deaf = apps["checkout_1"]
    deaf.kill()
    alone = Unleash.__new__(Unleash)
    alone.url, alone.client = "http://127.0.0.1:1", unleash.client
    deaf._unleash, heard = alone, deaf._unleash
    deaf.start()
    deaf.tell(False)
    until(lambda: deaf.state()["state"] == "stopped", "it stands")
    assert "checkout is stopped" in w.waits(patience_s=5)
    assert any(f"checkout_1 still shows {SOURCE}" in line for line in w.said)
    assert apps["checkout_0"].state() == {"state": "stopped", "topic": TARGET}
    deaf.kill()
    deaf._unleash = heard
    deaf.start()
    deaf.tell(False)
    w.advanced()
    w.are_on(TARGET)


def test_a_process_that_starts_while_its_flag_service_is_down_is_held_by_the_deny(
    unleash: Unleash, apps: dict[str, FlagApp]
) -> None:
    """It takes the topic that its code has, which is the old one. Without a DENY the plan refuses it."""
    with pytest.raises(PreflightFailed, match=r"TS325.*checkout.*restarts_on: source"):
        Flagged(unleash, apps, authorizer=False).advanced()
    w = Flagged(unleash, apps)
    w.advanced()
    w.are_on(TARGET)
    apps["checkout_0"].kill()
    unleash.kill()
    try:
        apps["checkout_0"].start()
        assert apps["checkout_0"].state() == {"state": "running", "topic": SOURCE}
        assert "User:*" in w.denied(), "nothing that it writes reaches the source"
    finally:
        unleash.start()
    apps["checkout_0"].kill()
    apps["checkout_0"].start()
    until(lambda: apps["checkout_0"]._unleash.ask("GET", "/health", None), "it is there again")
    apps["checkout_0"].tell(False)
    until(lambda: apps["checkout_0"].state() == {"state": "stopped", "topic": TARGET}, "it hears of the flag")


def test_wrong_rights_and_rules_are_told_before_anything_is_touched(unleash: Unleash, apps: dict[str, FlagApp]) -> None:
    w = Flagged(unleash, apps, more={"can_i": {"path": f"{ROOT}/{FLAG}-gone", "connections": ["unleash"]}})
    with pytest.raises(PreflightFailed, match=r"TS325.*checkout.*404"):
        w.advanced()
    w = Flagged(unleash, apps)
    right, unleash._admin = unleash._admin, "*:*.not-the-one"
    try:
        with pytest.raises(PreflightFailed, match=r"TS325.*checkout.*401"):
            w.advanced()
    finally:
        unleash._admin = right
    w.are_on(SOURCE)


def test_a_rule_that_the_server_refuses_names_the_participant_and_the_way_back(
    unleash: Unleash, apps: dict[str, FlagApp]
) -> None:
    """Variants of a whole environment, which the server takes no more: it says so with 403."""
    path = f"{ROOT}/{FLAG}/environments/development/variants"
    old = {"path": path, "method": "PUT", "connections": ["unleash"], "body": unleash.names("${topic}")["variants"]}
    w = Flagged(unleash, apps, more={"point": old})
    with pytest.raises(AccessDenied, match=r"checkout: .*HTTP 403.*resume-on-source"):
        w.advanced()
    assert [app.state()["state"] for app in apps.values()] == ["stopped"] * 2
    w.advanced(wanted="resume")
    w.are_on(SOURCE)
