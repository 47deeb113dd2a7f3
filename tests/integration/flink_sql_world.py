"""A live flow through jobs of Flink SQL, which a real SQL Gateway executes from their compiled plans."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.integration.flink_world import Flow, Jobs

from lab.flink_sql import SqlGateway as Gateway
from topicshift.adapters.clock import SystemClock
from topicshift.adapters.flink_gateway import Session, SqlGateway
from topicshift.core.flink.plan import sources, with_other_source

STARTS_S = 120.0
"""Bound of a session that begins a job, in seconds: a gateway that has just started loads its planner first."""

CHECKPOINTS = "SET 'execution.checkpointing.interval' = '500 ms'"


def table(name: str, topic: str, servers: str, **options: str) -> str:
    """The statement that makes a table of keys and values known; underscores of an option stand for dots."""
    told = {"connector": "kafka", "topic": topic, "properties.bootstrap.servers": servers}
    told |= {"key.format": "raw", "key.fields": "k", "value.format": "raw", "value.fields-include": "EXCEPT_KEY"}
    text = ", ".join(f"'{key}' = '{value}'" for key, value in {**told, **options}.items())
    return f"CREATE TABLE {name} (k STRING, v STRING, seen AS PROCTIME()) WITH ({text})"


def reads(group: str) -> dict[str, str]:
    """Options of a table that is read exactly once, by a group."""
    told = {"properties.group.id": group, "properties.auto.offset.reset": "earliest"}
    return {**told, "properties.isolation.level": "read_committed", "scan.startup.mode": "group-offsets"}


def writes(prefix: str) -> dict[str, str]:
    """Options of a table that is written exactly once."""
    told = {"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": prefix}
    return {**told, "properties.transaction.timeout.ms": "60000"}


def counts(source: str, sink: str) -> str:
    """What writes behind each value the number of records of its key so far."""
    window = "PARTITION BY k ORDER BY seen ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    return f"INSERT INTO {sink} SELECT k, v || ' ' || CAST(COUNT(*) OVER ({window}) AS STRING) FROM {source}"


class SqlFlow(Flow):
    """The same flow, by jobs that count in SQL."""

    def __init__(
        self, gateway: Gateway, home: Path, jobs: Jobs, config: Mapping[str, Any], admin: Any, topic: str
    ) -> None:
        self.home = home
        self.gateway = SqlGateway(gateway.ask, SystemClock(), STARTS_S)
        servers = str(config["bootstrap.servers"])
        intake, scorer = f"{topic}-intake", f"{topic}-scorer"
        group = reads(f"{topic}-scores")
        self.statements = {
            intake: [
                CHECKPOINTS,
                table("ups", f"{topic}-up", servers, **reads(f"{topic}-ups")),
                table("payments", "{topic}", servers, **writes(intake)),
            ],
            scorer: [
                CHECKPOINTS,
                table("payments", "{topic}", servers, **group),
                table("scored", f"{topic}-scored", servers, **writes(scorer)),
            ],
        }
        self.uids = ("", "")
        super().__init__(jobs, config, admin, topic)

    def begin(self) -> None:
        """Compile the plans, with another one for the target of the job that reads, and execute those of today."""
        for name, sql, parallelism in (
            (self.intake, counts("ups", "payments"), 1),
            (self.scorer, counts("payments", "scored"), 2),
        ):
            told = {"pipeline.name": name, "parallelism.default": str(parallelism)}
            with self.gateway.session(told) as session:
                self.known(session, name)
                session.run(f"COMPILE PLAN '{self.plan(name)}' FOR {sql}", "COMPILE PLAN")
                self.plans(name)
                session.run(f"EXECUTE PLAN '{self.plan(name)}'", "EXECUTE PLAN")
            self.jobs.cluster.until(lambda name=name: self.jobs.runs(name), f"{name} runs and completes a checkpoint")

    def known(self, session: Session, name: str) -> None:
        """Make the tables of a job known, on the source."""
        for statement in self.statements[name]:
            session.run(statement.replace("{topic}", self.topic), statement)

    def plan(self, name: str) -> Path:
        """Where the plan of a job is compiled to."""
        return self.home / f"{name}.json"

    def plans(self, name: str) -> None:
        """What the job that reads needs: a plan by each uid of its source."""
        if name == self.scorer:
            there = json.loads(self.plan(name).read_text())
            made, after = with_other_source(there, "payments")
            self.uids = (sources(there)[0].uid, after.uid)
            for uid, plan in zip(self.uids, (there, made), strict=True):
                (self.home / f"{name}-{uid}.json").write_text(json.dumps(plan))

    def producer(self, **more: Any) -> dict[str, Any]:
        """The spec's word for the job that writes the topic."""
        return self._told(super().producer(**more), self.intake, f"{self.plan(self.intake)}")

    def consumer(self, **more: Any) -> dict[str, Any]:
        """The spec's word for the job that reads the topic."""
        made = self._told(super().consumer(**more), self.scorer, str(self.home / f"{self.scorer}-{{uid}}.json"))
        made["settings"] |= {"source_uid": self.uids[0], "target_uid": self.uids[1]}
        return made

    def _told(self, made: dict[str, Any], name: str, plan: str) -> dict[str, Any]:
        settings = {key: value for key, value in made["settings"].items() if key not in ("jar", "args")}
        return {**made, "settings": {**settings, "plan": plan, "statements": self.statements[name]}}
