"""docs/participants: the examples are specs, and the numbers and names are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from topicshift.adapters.controllers import KINDS, hooks
from topicshift.adapters.controllers.command import NOT_NOW, _told
from topicshift.adapters.controllers.flink_deployment_able import DRAINS
from topicshift.adapters.controllers.flink_sql import LEAVES, NAME, RECOVERS
from topicshift.core.flink.job import FLINK_FROM
from topicshift.core.kafka.connect import STOPS_FROM
from topicshift.core.kubernetes.owners import SKIPPED
from topicshift.core.kubernetes.scalers import PAUSED
from topicshift.core.kubernetes.workload import BEFORE, RESOURCES
from topicshift.core.spec.flink import (
    FlinkDeploymentSettings,
    FlinkJob,
    FlinkSession,
    FlinkSettings,
    FlinkSqlSettings,
)
from topicshift.core.spec.http import MAX_ACT_S, MAX_REQUEST_S, HttpSettings
from topicshift.core.spec.io import load_spec
from topicshift.core.spec.kinds import (
    MAX_HOOK_S,
    SETTINGS,
    ConnectSettings,
    HookSettings,
    KubernetesSettings,
    SparkSettings,
)
from topicshift.ports import ControlContext, Participant

PAGES = Path(__file__).parents[2] / "docs" / "participants"
COMMAND = (PAGES / "command.md").read_text()
WITH_EXAMPLE = sorted(p for p in PAGES.glob("*.md") if "```yaml" in p.read_text())


@pytest.mark.parametrize("page", WITH_EXAMPLE, ids=lambda p: p.name)
def test_the_example_of_a_page_is_a_spec(page: Path, tmp_path: Path) -> None:
    for number, text in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text)
        spec = load_spec(path)
        producers, consumers = {p.kind for p in spec.producers}, {c.kind for c in spec.consumers}
        both = page.stem != "spark_streaming" and number == 0
        assert page.stem in (producers & consumers if both else producers | consumers)


def test_every_kind_that_ships_is_in_the_table() -> None:
    rows = re.findall(r"^\| \[?`(\w+)`", (PAGES / "README.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(KINDS) == sorted(SETTINGS)


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md", "docs/spec.md"])
def test_every_kind_that_ships_is_named_where_people_look_first(page: str) -> None:
    text = (PAGES.parents[1] / page).read_text()
    assert [kind for kind in KINDS if not re.search(rf"`{kind}`|\({kind},|, {kind}[,)]", text)] == []


def test_the_page_names_what_a_hook_is_told_and_its_numbers() -> None:
    told = _told(ControlContext("m", "s", "t", 1), Participant("p", "producer", "command"), "stop", "")
    assert all(name in COMMAND or f"`_{name.removeprefix('TOPICSHIFT_')}`" in COMMAND for name in told)
    assert all(f"`{name}`" in COMMAND for name in hooks._INHERITED)
    usual = HookSettings(hook="x").timeout.total_seconds()
    assert f"`timeout` ({usual:g} s; at most {MAX_HOOK_S:g} s)" in COMMAND
    assert f"{hooks.KEPT:,} characters" in COMMAND and f"code\n{NOT_NOW} says *not yet*" in COMMAND


def test_the_page_of_connectors_names_every_setting_and_what_it_is_where_left_out() -> None:
    page = (PAGES / "connect.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE))
    assert list(rows) == list(ConnectSettings.model_fields)
    usual = ConnectSettings(connector="x")
    assert f"`{usual.connection}` where it is left out" in rows["connection"]
    assert f"`{usual.topic_setting}` where it is left out" in rows["topic_setting"]
    assert f"Kafka {STOPS_FROM[0]}.{STOPS_FROM[1]} or\nlater" in page


def test_the_page_of_workloads_names_every_setting_and_what_is_written() -> None:
    page = (PAGES / "kubernetes.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE))
    assert list(rows) == list(KubernetesSettings.model_fields)
    usual = KubernetesSettings(workload="Deployment/x", namespace="y", topic_in="args").connection
    assert f"`{usual}` where it is left out" in rows["connection"]
    assert f"AIRFLOW_CONN_{usual.upper()}" in page
    assert all(f"`{kind}/NAME`" in rows["workload"] for kind in RESOURCES)
    assert all(f"`{word}" in page for word in (BEFORE, SKIPPED, PAUSED))


def test_the_page_of_interfaces_names_every_setting_and_its_bounds() -> None:
    page = (PAGES / "http.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE))
    fields = HttpSettings.model_fields
    assert list(rows) == list(fields)
    assert f"`{fields['connections'].default[0]}` where it is left out" in rows["connections"]
    usual = fields["timeout"].default.total_seconds()
    assert f"{usual:g}s where it is left out, at most {MAX_REQUEST_S:g} s" in rows["timeout"]
    assert f"end within {MAX_ACT_S:g} s" in rows["timeout"]


def test_the_page_of_flink_jobs_names_every_setting_and_what_it_is_where_left_out() -> None:
    page = (PAGES / "flink.md").read_text().split("## Jobs from SQL")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE))
    assert sorted(rows) == sorted(FlinkSettings.model_fields)
    usual = FlinkSettings(job="j", jar="j.jar", args=["{topic}"])
    assert f"`{usual.connection}` where it is left out" in rows["connection"]
    assert f"AIRFLOW_CONN_{usual.connection.upper()}" in page
    assert f"`{usual.raise_below}` where it is left out" in rows["raise_below"]
    assert f"`{usual.raise_after.total_seconds():g}s` where it is left out" in rows["raise_after"]
    starts = FlinkSettings.model_json_schema()["properties"]["starts_at"]["anyOf"][0]["enum"]
    assert all(f"`{word}`" in rows["starts_at"] for word in starts)
    assert f"Flink {FLINK_FROM[0]}.{FLINK_FROM[1]} or\nlater" in page


def test_the_page_of_flink_jobs_names_every_setting_of_one_from_sql_and_what_is_set_for_it() -> None:
    page = (PAGES / "flink.md").read_text().split("## Jobs from SQL")[1].split("## A FlinkDeployment")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE))
    assert list(rows) == [name for name in FlinkSqlSettings.model_fields if name not in FlinkSession.model_fields]
    usual = FlinkSqlSettings(job="j", plan="/p.json", statements=["{topic}"])
    assert f"`{usual.gateway}` where it is left out" in rows["gateway"]
    assert all(f"`{word}" in page for word in (NAME, RECOVERS, LEAVES))


def test_the_page_of_flink_jobs_names_every_setting_of_a_deployment_and_what_is_written() -> None:
    page = (PAGES / "flink.md").read_text().split("## A FlinkDeployment")[1]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE))
    assert list(rows) == [name for name in FlinkDeploymentSettings.model_fields if name not in FlinkJob.model_fields]
    assert all(f"`{name}`" in page for name in FlinkJob.model_fields)
    usual = FlinkDeploymentSettings(deployment="d", namespace="n", topic_in="args")
    assert f"`{usual.connection}` where it is left out" in rows["connection"]
    assert all(f"`{word}" in page for word in (BEFORE, DRAINS, "upgradeMode", "allowNonRestoredState"))


def test_the_page_of_queries_names_every_setting() -> None:
    page = (PAGES / "spark_streaming.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE))
    assert list(rows)[: len(SparkSettings.model_fields)] == list(SparkSettings.model_fields)
    assert f"{SparkSettings.model_fields['timeout'].default.total_seconds():g}s where it is left out" in rows["timeout"]
