"""What a real run sends is scraped by a real Prometheus: names and labels, alerts that fire, panels that show it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.prometheus_world import Prometheus, promtool, scraping
from tests.e2e.small import Run, Topic, until

from lab.runfolder import ROOT
from lab.stack import Stack
from topicshift.core.metrics import METRICS, PREFIX

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.prometheus,
    pytest.mark.timeout(1800),
    pytest.mark.long,
]

FENCE = "stop_producers.fence"
LAG = 400
"""Records that the group has to read while producers stand still: more than it can in the freeze budget."""

NAMES = {f"airflow_{PREFIX}_{m.name.replace('.', '_')}": m for m in METRICS}
DASHBOARD = json.loads((ROOT / "deploy/grafana/topicshift.json").read_text())


def test_a_freeze_that_lasts_too_long_is_scraped_shown_and_alarmed(
    stack: Stack, statsd_port: int, tmp_path: Path
) -> None:
    topic = Topic(stack, "levies", "levies-ledger").make()
    with scraping(tmp_path / "prometheus", statsd_port) as prometheus:
        run = Run.start(stack.airflow, "topic_migration", topic.values(freeze_budget="30s"))
        run.question(FENCE)
        shown = dict[str, list[Any]]()
        with topic.reading(topic.name, pause_s=0.3):
            topic.write(topic.name, LAG)
            run.answer(FENCE)
            stands = f'airflow_topicshift_freeze_running{{source="{topic.name}"}}'
            until(lambda: bool(prometheus.query(f"{stands} == 1")), "the freeze to be scraped")
            lag = f'airflow_topicshift_group_lag{{source="{topic.name}", group="{topic.group}"}} > 0'
            until(lambda: bool(prometheus.query(lag)), "the lag of the drain")
            until(lambda: "TopicshiftFreezeNearBudget" in prometheus.firing(topic.name), "the alert of the freeze")
            shown = panels(prometheus, topic.name)
            run.wait("failed")
        until(lambda: bool(prometheus.query(f"{stands} == 0")), "the end of the freeze to be scraped")
        until(lambda: "TopicshiftStepFailed" in prometheus.firing(topic.name), "the alert of the failed step")
        until(lambda: "TopicshiftFreezeNearBudget" not in prometheus.firing(topic.name), "the end of the first alert")
        assert not {"TopicshiftWriteAfterFence", "TopicshiftSourceResurrected"} & prometheus.firing(topic.name)
        after = panels(prometheus, topic.name)
        text = prometheus.exposition()
        choices = prometheus.ask("label/source/values", **{"match[]": "airflow_topicshift_migration_state"})
    assert topic.name in choices, "the dashboard's list of topics"
    assert {title for title in DASHBOARD_TITLES if not (shown[title] or after[title])} == set()
    named_as_documented(text, topic.name)
    checked_by_promtool(text)


DASHBOARD_TITLES = [panel["title"] for panel in DASHBOARD["panels"]]


def panels(prometheus: Prometheus, source: str) -> dict[str, list[Any]]:
    """What each panel of the dashboard shows of this topic now. Raises where Prometheus refuses its expression."""
    return {
        panel["title"]: [
            series
            for target in panel["targets"]
            for series in prometheus.query(target["expr"].replace("$source", source))
        ]
        for panel in DASHBOARD["panels"]
    }


def named_as_documented(text: str, source: str) -> None:
    """Every name of ours that was scraped is in docs/metrics.md, with exactly its labels and its kind."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    seen = set()
    for name, labels in re.findall(r"^(airflow_topicshift_\w+)\{([^}]*)\}", text, re.MULTILINE):
        found = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        assert set(found) == set(NAMES[name].labels), (name, labels)
        assert kinds[name] == NAMES[name].kind.value, name
        seen |= {name} if found["source"] == source else set()
    lacking = {name.removeprefix("airflow_topicshift_") for name in set(NAMES) - seen}
    assert lacking <= {"fence_violations", "source_back"}, lacking


def checked_by_promtool(text: str) -> None:
    """It reads what was scraped; all that it finds fault with is that StatsD's counters have no ``_total``."""
    ours = "".join(line for line in text.splitlines(keepends=True) if "airflow_topicshift" in line)
    done = promtool("check", "metrics", given=ours)
    faults = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    assert [f for f in faults if '"_total" suffix' not in f] == [], faults
    assert done.returncode in (0, 3), done.stdout + done.stderr
    rules = promtool("check", "rules", str(ROOT / "deploy/prometheus/alerts.yml"))
    assert rules.returncode == 0, rules.stdout + rules.stderr
