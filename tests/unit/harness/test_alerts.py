"""Alert rules and dashboard: they name metrics that there are, and fire when, and only when, they should."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from topicshift.core.metrics import METRICS, PREFIX

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "deploy/prometheus/alerts.yml"
CONFIG = ROOT / "deploy/prometheus/prometheus.yml"
DASHBOARD = ROOT / "deploy/grafana/topicshift.json"
NAMES = {f"airflow_{PREFIX}_{m.name.replace('.', '_')}": m for m in METRICS}


def promtools() -> list[str]:
    """The promtool of this machine, or the one that TOPICSHIFT_PROMTOOL names; the tests of names hold without."""
    found = os.environ.get("TOPICSHIFT_PROMTOOL") or shutil.which("promtool")
    return [found] if found else []


def metrics_of(text: str) -> set[str]:
    return set(re.findall(r"airflow_topicshift_[a-z_]+", text))


def alerts() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def test_rules_and_dashboard_name_metrics_that_there_are() -> None:
    expressions = [rule["expr"] for rule in alerts().values()]
    panels = json.loads(DASHBOARD.read_text())["panels"]
    expressions += [target["expr"] for panel in panels for target in panel["targets"]]
    used = {name for text in expressions for name in metrics_of(text)}
    assert used <= set(NAMES), used - set(NAMES)
    for text in expressions:
        for labels in re.findall(r"(airflow_topicshift_[a-z_]+)\{([^}]*)\}", text):
            assert set(re.findall(r"(\w+)[=!]~?", labels[1])) <= set(NAMES[labels[0]].labels)


def test_every_alert_says_what_to_do_and_is_in_the_docs() -> None:
    page = (ROOT / "docs/metrics.md").read_text()
    for name, rule in alerts().items():
        assert rule["annotations"]["summary"] and rule["annotations"]["do"]
        assert rule["labels"]["severity"] in ("page", "warn")
        assert f"`{name}`" in page
    assert set(re.findall(r"^\| `(\w+)` \| ", page, re.MULTILINE)) == set(alerts())


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    inside = ", ".join(f'{key}="{value}"' for key, value in labels.items())
    return {"series": f"airflow_topicshift_{name}{{{inside}}}", "values": values}


FREEZE = [
    series("freeze_running", "0x5 1x35 0x20", source="payments"),
    series("freeze_began_timestamp_seconds", "0x5 30x55", source="payments"),
    series("freeze_budget_seconds", "120x60", source="payments"),
]
LEDGER = {"source": "payments", "group": "ledger"}
CASES: list[tuple[str, list[dict[str, str]], str, str]] = [
    # alert, series by steps of 5 s, a moment at which it is quiet, one at which it fires
    ("TopicshiftFreezeNearBudget", FREEZE, "100s", "118s"),
    ("TopicshiftFreezeNearBudget", [series("freeze_running", "1x30 0x30", source="payments"), *FREEZE[1:]], "250s", ""),
    ("TopicshiftFreezeOverBudget", [series("freeze_running", "1x90", source="payments"), *FREEZE[1:]], "200s", "215s"),
    ("TopicshiftDrainStuck", [series("group_stuck", "0x10 1x10", **LEDGER)], "40s", "60s"),
    ("TopicshiftGroupUnreadable", [series("group_unreadable", "0x2 1x40", **LEDGER)], "60s", "80s"),
    ("TopicshiftLagHigh", [series("group_lag", "100001x100", **LEDGER)], "280s", "310s"),
    ("TopicshiftLagHigh", [series("group_lag", "100000x100", **LEDGER)], "310s", ""),
    ("TopicshiftWriteAfterFence", [series("fence_broken", "0x5 1x20", source="payments")], "20s", "40s"),
    ("TopicshiftWriteAfterFence", [series("fence_violations", "_x5 1x20", source="payments")], "20s", "40s"),
    ("TopicshiftWriteAfterFence", [series("fence_violations_total", "1x200 2x20", source="payments")], "900s", "1020s"),
    ("TopicshiftSourceResurrected", [series("source_back", "_x5 1x20", source="payments")], "20s", "40s"),
    ("TopicshiftStepFailed", [series("step_failures", "_x5 1x20", source="payments", task="check")], "20s", "40s"),
    ("KafkaRebalanceSlow", [{"series": 'kafka_consumer_consumer_coordinator_metrics_rebalance_latency_avg{client_id="a"}', "values": "40000x40"}], "50s", "70s"),  # noqa: E501
    ("FlinkCheckpointsFail", [{"series": 'flink_jobmanager_job_numberOfFailedCheckpoints{job_name="j"}', "values": "3x60 5x60"}], "290s", "400s"),  # noqa: E501
]  # fmt: skip


def test_each_alert_has_a_case() -> None:
    assert {name for name, _, _, fires in CASES if fires} == set(alerts())


@pytest.mark.parametrize("promtool", [*promtools(), None], ids=str)
def test_promtool_takes_the_rules_and_they_fire_when_they_should(promtool: str | None, tmp_path: Path) -> None:
    tests = []
    for alert, given, quiet, fires in CASES:
        firing = (
            [] if not fires else [{"eval_time": fires, "alertname": alert, "exp_alerts": [_expected(alert, given)]}]
        )
        silent = {"eval_time": quiet, "alertname": alert, "exp_alerts": []}
        tests.append({"interval": "5s", "input_series": given, "alert_rule_test": [silent, *firing]})
    path = tmp_path / "rules_test.yml"
    plain = yaml.safe_load(RULES.read_text())
    for group in plain["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]  # promtool would want each text as it is filled in
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(plain))
    path.write_text(
        yaml.safe_dump({"rule_files": [str(tmp_path / "rules.yml")], "evaluation_interval": "5s", "tests": tests})
    )
    assert all(s["values"] for _, given, _, _ in CASES for s in given)
    if promtool is not None:
        for command in (["check", "rules", str(RULES)], ["check", "config", "--syntax-only", str(CONFIG)]):
            run(promtool, *command)
        run(promtool, "test", "rules", str(path))


def _expected(alert: str, given: list[dict[str, str]]) -> dict[str, Any]:
    found = dict(re.findall(r'(\w+)="([^"]*)"', given[0]["series"]))
    return {"exp_labels": {**found, "severity": alerts()[alert]["labels"]["severity"]}}


def run(promtool: str, *words: str) -> None:
    done = subprocess.run([promtool, *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
