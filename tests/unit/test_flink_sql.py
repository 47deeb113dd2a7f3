"""Flink jobs from SQL: their plans, what is asked before they are touched, and how a gateway starts them."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.unit.flink_place import GROUP, SOURCE, TARGET, JobsPlace
from tests.unit.flink_sql_contract import a_gateway_keeps_to
from tests.unit.flink_sql_place import GATEWAY, TABLE, gateway, told_sql, writes_sql

from topicshift import cli
from topicshift.adapters.controllers.flink import FlinkController
from topicshift.adapters.controllers.flink_sql import JOB_ID, LEAVES, RECOVERS
from topicshift.adapters.flink_gateway import SqlGateway
from topicshift.core.errors import Transient
from topicshift.core.flink.plan import Source, source_of, sources, with_other_source
from topicshift.core.spec.flink import FlinkSqlSettings
from topicshift.core.spec.kinds import settings_of_kind
from topicshift.ports import Participant
from topicshift.testing.fake_flink import FakeJobManager

PLAN = {
    "flinkVersion": "2.3",
    "nodes": [
        {
            "id": 1,
            "type": "stream-exec-table-source-scan_2",
            "scanTableSource": {"table": {"identifier": "`c`.`d`.`payments`"}},
        },
        {
            "id": 2,
            "type": "stream-exec-table-source-scan_2",
            "scanTableSource": {"table": {"identifier": "`c`.`d`.`old_payments`"}},
        },
        {"id": 3, "type": "stream-exec-join_1", "joinSpec": {"id": 1}},
        {"id": 4, "type": "stream-exec-sink_2"},
    ],
    "edges": [
        {"source": 1, "target": 3, "shuffle": {"type": "FORWARD"}},
        {"source": 2, "target": 3},
        {"source": 3, "target": 4},
    ],
}


# ------------------------------------------------------------------------------------------------------ plans


def test_the_source_of_a_table_gets_another_id_and_nothing_else_is_touched() -> None:
    before = json.dumps(PLAN)
    made, after = with_other_source(PLAN, "payments")
    assert json.dumps(PLAN) == before, "the plan that was given stays as it was"
    assert (after.number, after.uid) == (101, "101_kafka")
    assert [n["id"] for n in made["nodes"]] == [101, 2, 3, 4]
    assert [(e["source"], e["target"]) for e in made["edges"]] == [(101, 3), (2, 3), (3, 4)]
    made["nodes"][0]["id"] = made["edges"][0]["source"] = 1
    assert made == PLAN
    assert with_other_source(made, "`c`.`d`.`old_payments`", 7)[1].uid == "7_kafka"
    assert with_other_source(with_other_source(PLAN, "payments")[0], "payments")[1].number == 201


def test_what_is_no_plan_or_names_no_single_source_is_refused() -> None:
    assert sources(PLAN) == [Source(1, "`c`.`d`.`payments`"), Source(2, "`c`.`d`.`old_payments`")]
    for plan, table, number, said in (
        ({}, "payments", None, "not a compiled plan"),
        ([], "payments", None, "not a compiled plan"),
        ({"nodes": [{"id": 1, "type": "stream-exec-table-source-scan_2"}]}, "t", None, "not a compiled plan"),
        (PLAN, "pay", None, "0 of its sources read 'pay', and it has to be one; it reads `c`.`d`.`payments`"),
        ({**PLAN, "nodes": [PLAN["nodes"][0], {**PLAN["nodes"][0], "id": 5}]}, "payments", None, "2 of its sources"),
        (PLAN, "payments", 4, "a node of the plan has the id 4 already"),
    ):
        with pytest.raises(ValueError, match=re.escape(said)):
            with_other_source(plan, table, number)
    assert source_of(PLAN, "d.payments").number == 1


def test_the_command_writes_the_plan_for_those_who_may_read_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, out = tmp_path / "p.json", tmp_path / "p-{uid}.json"
    plan.write_text(json.dumps(PLAN))
    plan.chmod(0o640)
    args = ["flink-plan", str(plan), "--table", "payments", "--out", str(out)]
    assert cli.run([*args, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    made = tmp_path / "p-101_kafka.json"
    assert said == {
        "table": "`c`.`d`.`payments`",
        "source_uid": "1_kafka",
        "target_uid": "101_kafka",
        "file": str(made),
    }
    assert json.loads(made.read_text()) == with_other_source(PLAN, "payments")[0]
    assert stat.S_IMODE(made.stat().st_mode) == 0o640
    assert cli.run(args) == 2, "nothing is overwritten"
    assert "cannot be written" in capsys.readouterr().err
    assert cli.run(args[:-2]) == 0
    heard = capsys.readouterr()
    assert heard.out == "source_uid: 1_kafka\ntarget_uid: 101_kafka\n" and "not written" in heard.err
    plan.write_text("[]")
    assert cli.run(args) == 2 and cli.run(["flink-plan", str(tmp_path / "none"), "--table", "t"]) == 2


# --------------------------------------------------------------------------------------------------- settings


def test_the_gateway_in_memory_keeps_the_contract(place: SqlPlace) -> None:
    statements = [TABLE.replace("{topic}", SOURCE)]
    a_gateway_keeps_to(place.gateway, SqlGateway(place.gateway, place.clock), statements, "/plans/intake.json")
    assert place.gateway.open == {}


def test_settings_that_could_not_be_pointed_or_would_end_the_statement_are_refused() -> None:
    told: dict[str, Any] = {"job": "j", "plan": "/p.json", "statements": [TABLE]}
    assert settings_of_kind("flink", told) is FlinkSqlSettings
    assert FlinkSqlSettings(**told).gateway == GATEWAY
    for wrong, said in (
        ({"statements": ["CREATE TABLE t"]}, "statements has {topic} nowhere"),
        ({"plan": "/p'; DROP TABLE t"}, "match pattern"),
        ({"parallelism": 2, "start_parallelism": 2}, "has to be lower"),
        ({"jar": "j.jar"}, "Extra inputs"),
        ({"statements": [TABLE, "CREATE TABLE u WITH ('properties.sasl.jaas.config' = 'x')"]}, "looks like a secret"),
        ({"statements": [TABLE, "SET 'a.password' = 'x'"]}, "'a.password' looks like a secret"),
    ):
        with pytest.raises(ValidationError, match=re.escape(said)):
            FlinkSqlSettings(**told | wrong)


# ------------------------------------------------------------------------------------------------------ moving

scorer = Participant("scorer", "consumer", "flink", GROUP, None, told_sql("scorer"), "none")
intake = Participant("intake", "producer", "flink", settings=writes_sql("intake"))


class SqlPlace(JobsPlace):
    """Both jobs run on the source, from their plans."""

    scorer = scorer

    def __init__(self) -> None:
        super().__init__()
        self.manager = FakeJobManager(lambda args: (args[0], args[1], args[2]))
        self.gateway = gateway(self.manager)
        self.first = self.manager.submit("a" * 32, ["scorer", "1_kafka", SOURCE], 4)
        self.other = self.manager.submit("b" * 32, ["intake", "3_kafka", SOURCE], 2)
        self.told_of: list[tuple[str, Any]] = []
        self.controller = FlinkController(self.cluster, self.ask_of, self.clock)

    def ask_of(self, name: str) -> Callable[..., Any]:
        def ask(method: str, path: str, body: Any = None) -> Any:
            self.told_of.append((path, body))
            return self.gateway(method, path, body)

        return ask if name == GATEWAY else self.manager


@pytest.fixture
def place() -> SqlPlace:
    return SqlPlace()


def consumer(**changes: Any) -> Participant:
    return replace(scorer, settings=told_sql("scorer", **changes))


def test_a_consumer_reads_the_target_alone_and_comes_back_with_the_plan_of_before(place: SqlPlace) -> None:
    place.moved()
    now = place.manager.job("scorer")
    assert (now.args, now.parallelism, now.reads) == (["scorer", "101_kafka", TARGET], 4, {TARGET})
    assert place.where() == ("running", TARGET)
    (session,) = [b["properties"] for p, b in place.told_of if p == "/v1/sessions"]
    assert session[JOB_ID] == now.jid and session[LEAVES] == "true" and session[RECOVERS] == place.first.savepoint
    said = [b["statement"] for p, b in place.told_of if p.endswith("/statements")]
    made = [s.replace("{topic}", TARGET) for s in told_sql("scorer")["statements"]]
    assert said == [*made, "EXECUTE PLAN '/plans/scorer-101_kafka.json'"]
    place.stand()
    place.go(SOURCE)
    assert place.manager.job("scorer").args == place.first.args
    assert place.manager.job("scorer").reads == {SOURCE} and place.where() == ("running", SOURCE)


def test_one_that_was_never_started_elsewhere_goes_on_with_all_of_its_state(place: SqlPlace) -> None:
    place.stand()
    place.go(SOURCE)
    now = place.manager.job("scorer")
    assert now.state_of == {"1_kafka": SOURCE} and now.jid != place.first.jid
    assert place.told_of[0][1]["properties"][LEAVES] == "false"


def test_a_producer_has_one_plan_and_keeps_its_state(place: SqlPlace) -> None:
    place.stand(intake)
    place.go(TARGET, intake)
    now = place.manager.job("intake")
    assert (now.args, now.state_of) == (["intake", "3_kafka", TARGET], {"3_kafka": SOURCE})
    assert place.told_of[0][1]["properties"][LEAVES] == "false"


def test_a_gateway_that_hangs_or_refuses_is_asked_again_and_names_what_failed(place: SqlPlace) -> None:
    place.stand()
    place.controller.point(place.ctx, [scorer], TARGET)
    for how, said in (
        ("hangs", "statement 2 of 2 has not ended 20 s after its session began"),
        ("refuses", "statement 2 of 2 failed"),
    ):
        setattr(place.gateway, how, lambda statement: statement.startswith("CREATE"))
        with pytest.raises(Transient, match=f"scorer: {said} at its SQL Gateway"):
            place.controller.start(place.ctx, [scorer])
        setattr(place.gateway, how, lambda _: False)
        assert place.manager.live() == ["intake"] and place.gateway.open == {}, "no session is left open"
    place.controller.start(place.ctx, [scorer])
    assert place.where() == ("running", TARGET)


# ----------------------------------------------------------------------------------------------------- before


def test_a_prefix_beside_the_topic_is_one_that_does_not_change_with_it(place: SqlPlace) -> None:
    sink = "CREATE TABLE s WITH ('topic' = '{topic}', 'sink.transactional-id-prefix' = 'in-')"
    told = writes_sql("intake", statements=[sink], transactional_id_prefix="in-")
    assert place.able(replace(intake, settings=told)) == ""


def test_jobs_from_sql_that_run_as_they_are_declared_can_be_moved(place: SqlPlace) -> None:
    place.manager.submits = False
    assert place.controller.can_i(place.ctx, [scorer, intake]) == [], "nobody uploads a jar"
    assert place.manager.live() == ["intake", "scorer"] and len(place.manager.jobs) == 2 and place.gateway.open == {}


@pytest.mark.parametrize(
    ("change", "who", "seen"),
    [
        (
            lambda p: setattr(p.gateway, "version", "2.2.1"),
            scorer,
            "Gateway is of Flink 2.2, and its JobManager of 2.3",
        ),
        (lambda p: setattr(p.gateway, "version", None), scorer, "of Flink a version that it does not say"),
        (
            lambda p: p.gateway.plans.pop("/plans/scorer-101_kafka.json"),
            scorer,
            f"not be started on {TARGET}: the plan",
        ),
        (lambda p: p.gateway.plans.pop("/plans/intake.json"), intake, f"not be started on {SOURCE}: the plan"),
        (lambda p: setattr(p.gateway, "refuses", lambda s: "CREATE" in s), scorer, "statement 2 of 2 failed"),
        (lambda p: None, consumer(target_uid=None), "see `target_uid`"),
        (lambda p: None, consumer(target_uid="1_kafka"), "has the same uid on both topics"),
        (lambda p: None, consumer(statements=[TABLE, "SET 'pipeline.name'='x'"]), "set 'pipeline.name', which is set"),
        (lambda p: setattr(p.first, "uid", "9_kafka"), scorer, "where it runs from a compiled plan"),
        (
            lambda p: None,
            consumer(
                statements=[TABLE, "CREATE TABLE s WITH ('sink.transactional-id-prefix' = 'sc-{topic}')"],
                transactional_id_prefix="sc-",
                sinks=["s"],
            ),
            "the prefix 'sc-' of its transactional ids changes with the topic",
        ),
    ],
)
def test_what_would_keep_one_from_being_moved_is_said_by_name(
    place: SqlPlace, change: Callable[[SqlPlace], object], who: Participant, seen: str
) -> None:
    change(place)
    found = place.able(who)
    assert found.startswith(f"{who.name}: ") and seen in found
