"""Going back after the switch on a real broker, under live load: nothing is lost or out of order, twice in a row."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.real_world import RealWorld
from tests.integration.route_world import eventually

from lab.broker import EmbeddedBroker
from lab.load_life import App, Life
from lab.load_proof import prove
from lab.traffic import start_traffic
from topicshift.adapters.controllers import ControllerEnv, controller
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.adapters.kafka.reader import KafkaDrainReader
from topicshift.core.engine.words import Row
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

    def goes_there_and_back(self, life: Life) -> None:
        """Everybody moves to the target, works there for a while, and goes back."""
        before = self.acls()
        self.advanced()
        life.check_alive()
        self._works(life)
        asking = self.asks(wanted="rollback")
        assert asking.about["rollback"] == "drain_back", asking
        self.advanced(wanted="rollback")
        assert self.journal.current(self.claim.migration_id).state == "rolled_back"
        assert self.data(Row.ROLLBACK)["not_restored"] == []
        assert self.acls() == before
        restored = json.loads(self.evidence.read(self.claim.migration_id, "restored.json") or b"")
        assert f"the configs of {self.source} are as they were" in restored["equal"]
        self._works(life)

    def _works(self, life: Life) -> None:
        life.check_alive()
        now = life.counts()
        eventually("records that are sent and read", lambda: all(n > now[k] + 50 for k, n in life.counts().items()))


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_under_load_everybody_goes_back_twice_and_nothing_is_lost(
    cutover: str, secure_broker: EmbeddedBroker, topic_name: Callable[..., str], tmp_path: Path
) -> None:
    source = topic_name()
    admin = KafkaAdmin(secure_broker.superuser_config())
    life = Life(
        tmp_path / "logs",
        lambda user: secure_broker.write_client_properties(user, tmp_path / f"{user}.properties"),
        topic=source,
        keys=50,
        rate=40,
        producers=(App("checkout", 1),),
        consumers=(App("ledger", 2),),
    )
    worlds: list[LiveWorld] = []
    try:
        start_traffic(secure_broker.superuser_config(), life, print, backlog=300)
        for target in (f"{source}-v2", f"{source}-v3"):
            changes = {"target": target, "partitions": 9, "cutover": cutover}
            consumers = [{"name": "ledger", "group": "ledger"}]
            worlds.append(LiveWorld(secure_broker, admin, source, consumers=consumers, **changes))
            worlds[-1].goes_there_and_back(life)
        life.finish()
    finally:
        life.stop()
        for world in worlds:
            world.close()
        admin.close()
    proof = prove(tmp_path / "logs")
    assert set(proof["sent_by_topic"]) == {source, f"{source}-v2", f"{source}-v3"}
    ledger = proof["groups"]["ledger"]
    assert (ledger["lost"], ledger["out_of_order"], ledger["duplicated"]) == (0, 0, 0), ledger
    assert ledger["processed"] == proof["sent"]
