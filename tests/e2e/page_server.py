"""The plugin's pages in a real browser without the stack: a journal that is made, and a stand-in for Airflow's own API.

What the browser asks of Airflow is written down, and answered as Airflow answers a user with, or without, the right.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.api_fastapi.core_api import security
from fastapi import FastAPI, HTTPException, Request
from tests.unit.api_server import READS, TRIGGERS, Right, rights_of, serve
from tests.unit.impact_sample import impact
from tests.unit.page_world import REQUIRED, change, drain_progress, keep, leave_draft, publish, renamed
from tests.unit.test_draft import on_route
from tests.unit.test_run_report import order_proof, side
from tests.unit.world import World

from topicshift.adapters.evidence import FsspecEvidence
from topicshift.adapters.journal import SqlJournal
from topicshift.adapters.journal.tables import migrations
from topicshift.core.engine.words import Step
from topicshift.reporting.impact import render
from topicshift.reporting.run_report import write_report
from topicshift_airflow import runtime
from topicshift_airflow.page import start
from topicshift_airflow.questions import Question, question_of
from topicshift_airflow.web import app as pages

DAGS = ("topic_migration", "topic_migration_producers_first", "topic_assessment", "topic_control", "topic_rollback")
SEES: set[Right] = {("topic_migration", READS), ("topic_assessment", READS)}
USERS: Mapping[str, set[Right]] = {"on-call": SEES | {(dag, TRIGGERS) for dag in DAGS}, "viewer": SEES}
START_S = 30.0


@dataclass
class Served:
    """``asked``: each run that the browser had Airflow begin, as DAG and ``conf``. ``ids``: migrations by a word.

    ``state``: of every run; ``looked``: XComs of an assessment by ``task/key``.
    """

    url: str = ""
    user: str = "on-call"
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)
    paused: bool = False
    state: str = "success"
    looked: dict[str, Any] = field(default_factory=dict)
    questions: dict[str, Question] = field(default_factory=dict)


@contextmanager
def served(home: Path) -> Iterator[Served]:
    """The pages over a journal below ``home``; the user is changed by :attr:`Served.user`."""
    found = Served()
    with pytest.MonkeyPatch.context() as patch:
        serve(home, patch, rights_of(USERS))
        patch.setattr(start, "_read", {})
        pages.dependency_overrides[security.get_user] = lambda: SimpleAuthManagerUser(username=found.user, role=None)
        server = uvicorn.Server(uvicorn.Config(_airflow(found), host="127.0.0.1", port=0, log_level="warning"))
        thread = threading.Thread(target=server.run, daemon=True)
        try:
            found.ids, found.questions = fill(home / "evidence"), questions()
            thread.start()
            until = time.monotonic() + START_S
            while not server.started:
                assert thread.is_alive() and time.monotonic() < until, "the server of the pages did not start"
                time.sleep(0.02)
            found.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
            yield found
        finally:
            server.should_exit = True
            if thread.is_alive():
                thread.join(START_S)
            pages.dependency_overrides.clear()


def _airflow(found: Served) -> FastAPI:
    app = FastAPI()

    @app.post("/api/v2/dags/{dag_id}/dagRuns")
    async def begin(dag_id: str, request: Request) -> dict[str, Any]:
        if (dag_id, TRIGGERS) not in USERS[found.user]:
            raise HTTPException(403, "Forbidden")
        found.asked.append((dag_id, (await request.json())["conf"]))
        return {"dag_run_id": f"manual__{len(found.asked)}"}

    @app.get("/api/v2/dags/{dag_id}")
    def dag(dag_id: str) -> dict[str, Any]:
        return {"dag_id": dag_id, "is_paused": found.paused}

    @app.get("/api/v2/dags/{dag_id}/dagRuns/{run_id}")
    def run(dag_id: str, run_id: str) -> dict[str, Any]:
        return {"dag_id": dag_id, "dag_run_id": run_id, "state": found.state}

    @app.get("/api/v2/dags/topic_assessment/dagRuns/{run_id}/taskInstances/{task}/xcomEntries/{key}")
    @app.get("/api/v2/dags/topic_migration/dagRuns/{run_id}/taskInstances/{task}/xcomEntries/{key}")
    def looked(task: str, key: str) -> dict[str, Any]:
        if (name := f"{task}/{key}") not in found.looked:
            raise HTTPException(404, "no such XCom")
        return {"key": key, "value": found.looked[name]}

    @app.get("/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/give_order/xcomEntries/{key}")
    def said(key: str) -> dict[str, Any]:
        order = found.asked[-1][1]["order"]
        left = ["topic orders-v2 was made for this migration"] if order == "close" else []
        return {"key": key, "value": {"would": ["nothing new"], "outcome": f"{order}: as ordered", "left": left}}

    @app.get("/api/v2/dags/topic_rollback/dagRuns/{run_id}/taskInstances/observe/xcomEntries/{key}")
    def way_back(key: str) -> dict[str, Any]:
        if key != "said":
            raise HTTPException(404, "a task that is skipped returns nothing")
        return {"key": key, "value": {"would": ["drain_back: the target holds records"], "cannot": None}}

    app.mount("/topicshift", pages)
    return app


# ------------------------------------------------------------------------------------------------------- the journal


def fill(evidence: Path) -> dict[str, str]:
    """Migrations in their freeze, before an answer, with late records, done and not understood, and a draft.

    Returns their ids by those words.
    """
    journal = runtime.open_journal()
    assert isinstance(journal, SqlJournal)
    now, found = datetime.now(UTC), dict[str, str]()
    try:
        found["frozen"] = publish(_frozen(now - timedelta(seconds=55)), journal, evidence)
        found["late"] = publish(_late(now - timedelta(minutes=20)), journal, evidence)
        found["proving"] = publish(_proving(now - timedelta(minutes=14)), journal, evidence)
        found["asking"] = publish(_asking(now - timedelta(minutes=9)), journal, evidence)
        done = _done(now - timedelta(hours=3))
        found["done"] = publish(done, journal, evidence)
        name = done.claim.migration_id
        row, steps, trail = journal.current(name), journal.steps(name), journal.events(name)
        other, told = renamed(row, trail, "carts-newer", source="carts", target="carts-v2", state="hovering")
        keep(journal, other, steps, told)
        change(journal, migrations, migrations.c.migration_id == "carts-newer", active=True)
        found["unknown"] = "carts-newer"
    finally:
        journal.close()
    store = FsspecEvidence(str(evidence))
    store.write(found["frozen"], "impact.html", render(impact(keys=600)))
    drafted = _dated(now - timedelta(hours=1))
    leave_draft(evidence, "manual__1", drafted)
    found["draft"] = drafted.topic
    return found


def _dated(at: datetime) -> Any:
    return replace(on_route(), topic="clicks", cluster_id="fake-cluster", taken_at=at.isoformat(timespec="seconds"))


def _world(at: datetime, topic: str) -> World:
    return World(at=at, approvals=REQUIRED, source=topic, target=f"{topic}-v2", freeze_budget="10m")


def _frozen(at: datetime) -> World:
    world = _world(at, "payments")
    world.answer(world.asks())
    world.answer(world.asks())
    world.advanced(until=Step.STOP_PRODUCERS)
    world.evidence.write(world.claim.migration_id, "drain_progress.json", drain_progress(time.time()))
    return world


def _late(at: datetime) -> World:
    """A person is asked about two records that a released group cannot see."""
    world = World(at=at, source="invoices", target="invoices-v2", cutover="producers_first")
    world.advance(until=Step.SWITCH_PRODUCERS)
    world.advance(focus="ledger-g")
    world.write("invoices", partition=1, records=2)
    world.waits(patience_s=30.0)
    world.drain("fraud-g", "invoices")
    world.show(world.asks())
    return world


def _proving(at: datetime) -> World:
    """Everybody is on the target, and the order is being proven."""
    world = World(at=at, source="ratings", target="ratings-v2")
    world.advanced(until=Step.SWITCH_CONSUMERS)
    return world


def _asking(at: datetime) -> World:
    world = _world(at, "orders")
    world.show(world.asks())
    return world


def _done(at: datetime) -> World:
    world = _world(at, "refunds")
    sides = {"source": side("refunds", 3, 30), "target": side("refunds-v2", 6, 42)}
    world.order_proof = order_proof(**sides, fence=dict.fromkeys(range(3), 10))
    world.answer(world.asks())
    world.clock.advance(70)
    world.answer(world.asks())
    world.advanced()
    ctx = world.context()
    write_report(ctx.journal, world.evidence, world.claim.migration_id, ctx.keep)
    return world


# ----------------------------------------------------------------------------------------------------- the questions


def questions() -> dict[str, Question]:
    """What people are asked, in the words that Airflow shows: the plan, the go, and records that came too late."""
    world, found = World(approvals=REQUIRED), dict[str, Question]()
    file = world.claim.migration_id, "impact.json"
    for name in ("plan", "go"):
        asking = world.asks()
        own = world.evidence.read(*file) or b""
        world.evidence.write(*file, impact(keys=600).model_dump_json().encode())  # the world's own says next to nothing
        found[name] = question_of(world.context(), asking)
        world.evidence.write(*file, own)
        world.answer(asking)
    late = _late(datetime.now(UTC))
    found["late"] = question_of(late.context(), late.asks())
    return found
