"""Flink jobs from SQL in a migration: killed at any call, each job goes on as it must, from the snapshot it must."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.flink_sql_place import GATEWAY, gateway, told_sql, writes_sql
from tests.unit.test_acts_flink import GROUP, MIXED, Streaming, few, fields
from tests.unit.ways import ALL, killed_at, killed_at_each_effect
from tests.unit.world import SOURCE, TARGET

from topicshift.adapters.controllers.flink import FlinkController
from topicshift.core.engine.words import Step

FROM_SQL: dict[str, Any] = {
    "producers": [
        {"name": "intake", "kind": "flink", "settings": writes_sql("intake"), "principal": "User:checkout"},
        *MIXED["producers"][1:],
    ],
    "consumers": [
        {"name": "scorer", "kind": "flink", "settings": told_sql("scorer"), "group": GROUP},
        *MIXED["consumers"][1:],
    ],
}


class FromSql(Streaming):
    """Both jobs come from SQL: the one that reads has a plan for each topic, the one that writes a single one."""

    def __init__(self, **changes: Any) -> None:
        super().__init__(**{**FROM_SQL, **changes})

    def submitted(self) -> None:
        self.gateway = gateway(self.manager)
        self.manager.jars.clear()
        self.manager.submit("a" * 32, ["scorer", "1_kafka", SOURCE], 4)
        self.manager.submit("b" * 32, ["intake", "3_kafka", SOURCE], 2)

    def controller(self) -> FlinkController:
        return FlinkController(self.cluster, lambda name: self.gateway if name == GATEWAY else self.manager, self.clock)

    moved_args = {"scorer": ["scorer", "101_kafka", TARGET], "intake": ["intake", "3_kafka", TARGET]}


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_jobs_from_sql_move_beside_other_kinds(cutover: str) -> None:
    w = FromSql(cutover=cutover)
    w.advanced()
    w.arrived()
    assert w.job("scorer").state_of == {}, "the positions on the source stay behind"
    assert len(w.manager.jobs) == 4 and w.gateway.open == {}


@ALL
def test_killed_before_or_after_every_effect_it_ends_where_it_would(way: str) -> None:
    """At each stop and each submission, on the way there and on both ways back."""
    count = {"forward": 8, "resume": 2, "rollback": 8, "drain_back": 8}[way]
    killed_at_each_effect(FromSql, way, lambda call: call.startswith(("POST /jobs", "submit")), count)


@ALL
@few
@given(at=st.lists(st.integers(0, 500), min_size=1, max_size=3))
def test_killed_anywhere_it_ends_where_it_would(way: str, at: list[int]) -> None:
    killed_at(FromSql, way, at)


def test_a_gateway_that_fails_in_the_switch_is_waited_for() -> None:
    w = FromSql()
    w.advanced(until=Step.VERIFY_DRAIN)
    w.gateway.refuses = lambda statement: statement.startswith("EXECUTE")
    assert "intake is stopped on the target" in w.waits(patience_s=30)
    assert any("EXECUTE PLAN /plans/intake.json failed at its SQL Gateway (org.apache.flink" in line for line in w.said)
    assert [fields(j)["state"] for j in w.manager.jobs.values()][1] == "FINISHED", "nobody has started it elsewhere"
    w.gateway.refuses = lambda _: False
    w.advanced()
    w.arrived()
