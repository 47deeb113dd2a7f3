"""Jobs from SQL: what a spec says of them, and a gateway in memory that has their plans."""

from __future__ import annotations

from typing import Any

from topicshift.testing.fake_flink import FakeJobManager
from topicshift.testing.fake_flink_gateway import FakeGateway

TABLE = "CREATE TABLE t (k STRING) WITH ('connector' = 'kafka', 'topic' = '{topic}')"
GATEWAY = "flink_sql_default"


def told_sql(name: str, **more: Any) -> dict[str, Any]:
    """Settings of a consumer from SQL."""
    usual = {"job": name, "plan": f"/plans/{name}-{{uid}}.json", "statements": ["SET 'a' = 'b'", TABLE]}
    return {**usual, "source_uid": "1_kafka", "target_uid": "101_kafka", "starts_at": "committed_or_earliest", **more}


def writes_sql(name: str, **more: Any) -> dict[str, Any]:
    """Settings of a producer from SQL."""
    return {"job": name, "plan": f"/plans/{name}.json", "statements": [TABLE], **more}


def gateway(manager: FakeJobManager) -> FakeGateway:
    """With the plans of ``scorer`` on both topics and the one of ``intake``."""
    made = FakeGateway(manager)
    made.plans = {
        "/plans/scorer-1_kafka.json": "1_kafka",
        "/plans/scorer-101_kafka.json": "101_kafka",
        "/plans/intake.json": "3_kafka",
    }
    return made
