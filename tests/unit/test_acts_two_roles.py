"""One Deployment that writes the source and reads it, with a setting for each topic: moved whole, and back."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.test_acts_kubernetes import SHOP
from tests.unit.world import SOURCE, TARGET, World

from topicshift.acts.advance import Asking, Waiting
from topicshift.adapters.controllers.kubernetes import KubernetesController
from topicshift.core.engine.words import Step
from topicshift.core.errors import PreflightFailed
from topicshift.core.kubernetes.workload import path_of
from topicshift.testing.fake_kubernetes import FakeApiServer, workload

ETL, GROUP = path_of("Deployment", SHOP, "etl"), "ledger-g"


def part(place: str) -> dict[str, Any]:
    return {
        "name": "etl",
        "kind": "kubernetes",
        "settings": {"workload": "Deployment/etl", "namespace": SHOP, "topic_in": place},
    }


class Etl(World):
    """A migration of that Deployment, beside applications on the route. Its group reads as long as its pods run."""

    def __init__(self, **changes: Any) -> None:
        self.api = FakeApiServer()
        self.seen: list[tuple[str, str]] = []
        """Where its pods wrote and read, each time that it changed."""
        spec: dict[str, Any] = {
            "producers": [{**part("env:OUT"), "principal": "User:checkout"}, {"name": "billing"}],
            "consumers": [{**part("env:IN"), "group": GROUP}, {"name": "fraud", "group": "fraud-g"}],
        }
        super().__init__(**{"cutover": "producers_first", **spec, **changes})
        self.api.on_change = self.changed
        env = [{"name": name, "value": SOURCE} for name in ("OUT", "IN")]
        self.api.create(ETL, workload("Deployment", SOURCE, 2, container={"env": env}))
        self.controllers["kubernetes"] = KubernetesController(self.cluster, lambda _: self.api, self.clock)  # type: ignore[assignment]

    def changed(self) -> None:
        if ETL not in self.api.objects:
            return
        self.leave(GROUP)
        ready = [
            p for p in self.api.pods(ETL) if p.get("status", {}).get("conditions", [{}])[0].get("status") == "True"
        ]
        if ready:
            out, into = (e["value"] for e in ready[0]["spec"]["containers"][0]["env"])
            self.join(GROUP, into)
            if self.seen[-1:] != [(out, into)]:
                self.seen.append((out, into))


def test_an_application_of_two_roles_goes_on_reading_the_source_until_its_group_has_drained() -> None:
    w = Etl()
    w.cluster.produce(SOURCE, 0, 3)
    held = w.advance(until=Step.SWITCH_CONSUMERS)
    assert isinstance(held, Waiting) and f"group {GROUP} has not drained" in held.why
    assert w.seen[-1] == (TARGET, SOURCE), "it writes to the target, and reads what is left of the source"
    w.drain(GROUP)
    w.drain("fraud-g")
    w.advanced()
    assert w.journal.current(w.claim.migration_id).state == "done"
    assert w.seen == [(SOURCE, SOURCE), (TARGET, SOURCE), (TARGET, TARGET)], "never on the target before its group is"
    assert set(w.cluster.commits([GROUP], TARGET, range(6))[GROUP].offsets.values()) == {0}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cutover": "drain_first"}, "its group never drains"),
        ({"consumers": [{**part("env:OUT"), "group": GROUP}]}, "names the topic of several parts"),
    ],
)
def test_one_that_could_not_be_moved_whole_is_refused_before_anything_is_changed(
    changes: dict[str, Any], said: str
) -> None:
    w = Etl(**changes)
    with pytest.raises(PreflightFailed, match=said):
        w.advanced()
    assert w.seen == [(SOURCE, SOURCE)]


def test_it_goes_back_the_same_way() -> None:
    w = Etl()
    w.advanced()
    w.write(TARGET, 1, 4)
    w.drain("fraud-g", TARGET)
    asked = w.advance(wanted="rollback")
    assert isinstance(asked, Asking)
    w.answer(asked)
    held = w.advance(wanted="rollback")
    assert isinstance(held, Waiting) and f"group {GROUP} has not drained" in held.why, held
    assert w.seen[-1] == (SOURCE, TARGET)
    w.drain(GROUP, TARGET)
    w.advanced(wanted="rollback")
    assert w.seen[-1] == (SOURCE, SOURCE)
    assert w.journal.current(w.claim.migration_id).state == "rolled_back"
