"""What the page "Topic migrations" costs with many migrations, on PostgreSQL.

Usage: ``python -m benchmarks.pages [--migrations 500] [--rows 400] [--requests 60]``. A migration is led to its end by
the engine over fakes, and its journal copied that many times, with a chain of its own each, padded to so many rows of
audit trail; one in ten is still open, at some step of the way. Then the list and one migration are asked for through
the application that Airflow mounts, in one process: permissions, journal, view and JSON (or HTML) are in the time, the
network and the log-in are not. Prints JSON: milliseconds by the clock and of this process at work, the first request
(which reads everything) apart.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.postgres import embedded_postgres

GOAL_MS = 100.0

Took = tuple[float, float]
"""Milliseconds of a request, and those in which this process was at work."""


def main() -> None:
    """Seed and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--migrations", type=int, default=500)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--requests", type=int, default=60)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, embedded_postgres() as url:
        _environment(Path(folder))
        names = seed(url, wanted.migrations, wanted.rows)
        found = measure(url, names, wanted.requests)
    found = {"migrations": wanted.migrations, "audit_rows": wanted.migrations * wanted.rows, **found}
    print(json.dumps(found, indent=2))
    if found["list"]["median"] > GOAL_MS or found["one"]["median"] > GOAL_MS:
        sys.exit(f"slower than {GOAL_MS:g} ms")


def _environment(folder: Path) -> None:
    """An Airflow of its own, before anything of Airflow is imported."""
    os.environ |= {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "TOPICSHIFT_HOME": str(folder),
        "TOPICSHIFT_EVIDENCE": str(folder / "evidence"),
    }
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=True, capture_output=True)


def seed(url: str, migrations: int, rows: int) -> list[str]:
    """Fill the journal; returns the ids of the migrations."""
    from dataclasses import replace

    from tests.unit.page_world import keep, renamed
    from tests.unit.world import World

    from topicshift.adapters.journal import SqlJournal
    from topicshift.core.engine.words import ORDER
    from topicshift.core.spec.cutover import Cutover

    world = World()
    states = [_state(world)]
    for step in ORDER[Cutover.DRAIN_FIRST]:
        world.advanced(until=step)
        states.append(_state(world))
    journal, names = SqlJournal(url), list[str]()
    for n in range(migrations):
        row, steps, trail = states[n // 10 % (len(states) - 1)] if n % 10 == 0 else states[-1]
        # As of an engine that performs an act again and again: every third row has all that it saw then.
        told = [e for e in trail if e.kind == "spark_job" or e.kind == "asked"] or trail[:1]
        acts = [e for e in trail if e.kind == "act"] or trail[:1]
        more = (acts[i % len(acts)] if i % 3 == 0 else told[i % len(told)] for i in range(rows - len(trail)))
        padded = [*trail[:-1], *more, trail[-1]]
        padded = [replace(event, seq=seq) for seq, event in enumerate(padded, 1)]
        name = f"payments-{n:04d}"
        owner = f"topic_migration__{n % 40}/scheduled__{n}"
        made, chain = renamed(row, padded, name, source=f"payments-{n}", target=f"payments-{n}-v2", owner=owner)
        keep(journal, made, steps, [*chain])
        names.append(name)
        if n % 50 == 49:
            print(f"{n + 1} migrations", file=sys.stderr)
    journal.close()
    return names


def _state(world: Any) -> Any:
    name = world.claim.migration_id
    return world.journal.current(name), world.journal.steps(name), world.journal.events(name)


def measure(url: str, names: list[str], requests: int) -> dict[str, Any]:
    """Milliseconds of the list and of one migration after the other."""
    from airflow.api_fastapi import app as airflow_app
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.api_fastapi.core_api import security
    from fastapi.testclient import TestClient

    from topicshift_airflow.page import data
    from topicshift_airflow.web import app

    vars(airflow_app)["get_auth_manager"] = SimpleAuthManager
    vars(data)["journal_url"] = lambda: url
    app.dependency_overrides[security.get_user] = lambda: SimpleAuthManagerUser(username="ada", role="ADMIN")
    client = TestClient(app)

    def asked(path: str) -> Took:
        began, busy = time.perf_counter(), time.process_time()
        answer = client.get(path)
        answer.raise_for_status()
        return (time.perf_counter() - began) * 1000, (time.process_time() - busy) * 1000

    first = asked("/api/migrations?state=all")
    assert client.get("/api/migrations?state=all").json()["of"] == len(names)
    return {
        "first_list": round(first[0], 1),
        "list": _many(lambda n: asked("/api/migrations?state=all"), requests),
        "list_page": _many(lambda n: asked("/"), requests),
        "one_first": _many(lambda n: asked(f"/api/migrations/{names[n]}"), requests),
        "one": _many(lambda n: asked(f"/api/migrations/{names[n]}"), requests),
        "one_page": _many(lambda n: asked(f"/migrations/{names[n]}"), requests),
    }


def _many(ask: Callable[[int], Took], requests: int) -> dict[str, float]:
    took, busy = zip(*(ask(n) for n in range(requests)), strict=True)
    return {
        "median": round(statistics.median(took), 1),
        "worst": round(max(took), 1),
        "processor": round(statistics.median(busy), 1),
    }


if __name__ == "__main__":
    main()
