"""docker-compose.yml without a Docker engine: what it names exists, what it pins is pinned, and no secret is in it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import compose_init, ready
from lab.airflow_services import SERVICES, read_env_file

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
RUNNING: dict[str, dict[str, Any]] = COMPOSE["services"]
ONCE = {"init"}
OF_OTHERS = {"postgres", "statsd", "prometheus", "grafana"}
WITHOUT_CHECK = {"init", "spark-worker", "traffic"}  # they serve nobody


def load_tool(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


compose_env = load_tool("compose_env")


def test_every_part_of_the_stack_is_there() -> None:
    assert {"kafka", "spark-master", "spark-worker", "traffic", *OF_OTHERS, *SERVICES} <= set(RUNNING)


@pytest.mark.parametrize("name", RUNNING)
def test_images_are_pinned(name: str) -> None:
    image = RUNNING[name]["image"]
    assert image == "topicshift:local" or re.match(r"v?\d+\.\d+", image.rpartition(":")[2]), f"{image} is not pinned"


def test_the_base_image_is_pinned_to_a_python_that_is_supported() -> None:
    base = re.findall(r"^FROM (\S+)", (ROOT / "deploy/Dockerfile").read_text(), re.MULTILINE)
    assert len(base) == 1
    version = re.fullmatch(r"python:3\.(\d+)\.\d+-slim-bookworm", base[0])
    assert version is not None and 11 <= int(version[1]) <= 13


@pytest.mark.parametrize("name", sorted(set(RUNNING) - OF_OTHERS))
def test_commands_are_entry_points_that_exist(name: str) -> None:
    command = RUNNING[name]["command"]
    assert isinstance(command, list), "a shell would stand between the signal and the service"
    if command[:2] == ["python", "-m"]:
        assert importlib.util.find_spec(command[2]) is not None
        assert command[2].partition(".")[0] in ("lab", "deploy")
    else:
        assert command[0] == "spark-class" and (Path(sys.executable).parent / "spark-class").exists()


def test_airflows_services_run_the_commands_of_the_local_stack() -> None:
    for name, arguments in SERVICES.items():
        assert RUNNING[name]["command"] == ["python", "-m", "deploy.airflow_main", *arguments]
        assert RUNNING[name]["env_file"] == ["deploy/airflow.env", "deploy/compose.env"]


@pytest.mark.parametrize("name", ["broker", "traffic", "stack"])
def test_the_options_are_those_of_the_entry_point(name: str) -> None:
    done = subprocess.run([sys.executable, "-m", f"lab.{name}", "--help"], capture_output=True, text=True, check=True)
    for service in RUNNING.values():
        command = service.get("command", [])
        if command[2:3] == [f"lab.{name}"]:
            for word in command[3:]:
                assert word.split("=")[0] in done.stdout


@pytest.mark.parametrize("name", sorted(set(RUNNING) - WITHOUT_CHECK))
def test_what_serves_has_a_health_check(name: str) -> None:
    check = RUNNING[name]["healthcheck"]
    assert check["test"][0] in ("CMD", "CMD-SHELL") and check["retries"] and check["timeout"] and check["interval"]


def test_health_checks_of_ours_are_checks_that_exist() -> None:
    ours = [s["healthcheck"]["test"] for s in RUNNING.values() if "deploy.ready" in str(s.get("healthcheck"))]
    assert len(ours) == 3
    for test in ours:
        assert test[:4] == ["CMD", "python", "-m", "deploy.ready"]
        assert callable(getattr(ready, test[4])) and len(test) == 6


def test_nobody_waits_for_a_check_that_is_not_there() -> None:
    for name, service in RUNNING.items():
        for other, how in service.get("depends_on", {}).items():
            assert other in RUNNING, f"{name} waits for {other}"
            if how["condition"] == "service_healthy":
                assert "healthcheck" in RUNNING[other]
            if how["condition"] == "service_completed_successfully":
                assert other in ONCE and RUNNING[other]["restart"] == "no"


def test_metrics_go_from_airflow_through_statsd_and_prometheus_to_the_dashboard() -> None:
    settings = read_env_file(ROOT / "deploy/compose.env", {})
    assert settings["AIRFLOW__METRICS__STATSD_HOST"] in RUNNING and settings["AIRFLOW__METRICS__STATSD_ON"] == "True"
    assert settings["AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED"] == "True", "labels would be lost"
    scraped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())["scrape_configs"]
    assert scraped[0]["static_configs"][0]["targets"] == ["statsd:9102"]
    source = yaml.safe_load((ROOT / "deploy/grafana/datasource.yml").read_text())["datasources"][0]
    assert source["url"] == "http://prometheus:9090"
    panels = json.loads((ROOT / "deploy/grafana/topicshift.json").read_text())["panels"]
    assert {p["datasource"]["uid"] for p in panels} == {source["uid"]}
    path = yaml.safe_load((ROOT / "deploy/grafana/dashboards.yml").read_text())["providers"][0]["options"]["path"]
    assert any(f":{path}/topicshift.json:" in volume for volume in RUNNING["grafana"]["volumes"])


def test_volumes_are_named_and_declared() -> None:
    used = {v.partition(":")[0] for s in RUNNING.values() for v in s.get("volumes", [])}
    assert {name for name in used if not name.startswith("./")} == set(COMPOSE["volumes"])
    for path in (name for name in used if name.startswith("./")):
        assert (ROOT / path).is_file(), path


def test_ports_are_published_on_loopback_alone() -> None:
    published = [port for service in RUNNING.values() for port in service.get("ports", [])]
    assert published and all(port.startswith("127.0.0.1:") for port in published)


def test_no_secret_is_in_the_files() -> None:
    for name in (
        "docker-compose.yml",
        "deploy/airflow.env",
        "deploy/compose.env",
        "deploy/Dockerfile",
        "deploy/postgres-init.sql",
        "deploy/grafana/datasource.yml",
        "deploy/prometheus/prometheus.yml",
    ):
        for line in (ROOT / name).read_text().splitlines():
            found = re.match(r"\s*\w*(PASSWORD|FERNET_KEY|SECRET(?:_KEY)?)\s*[:=]\s*(\S.*)", line)
            if found:
                assert found[2].startswith("${") or found[2].startswith("/"), f"{name}: {line.strip()}"
    assert not re.search(r"://[^$\s:@]+:[^$@\s]+@", TEXT), "a URL with a password"


def test_every_variable_is_made_by_compose_env(tmp_path: Path) -> None:
    wanted = set(re.findall(r"\$\{([A-Z_]+)", TEXT + (ROOT / "deploy/airflow.env").read_text()))
    path = tmp_path / ".env"
    assert set(compose_env.make(path)) >= wanted
    assert path.stat().st_mode & 0o777 == 0o600


def test_compose_env_keeps_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("POSTGRES_PASSWORD=mine\nOTHER=kept\n")
    added = compose_env.make(path)
    settings = compose_env.settings_of(path)
    assert settings["POSTGRES_PASSWORD"] == "mine" and settings["OTHER"] == "kept"
    assert "POSTGRES_PASSWORD" not in added
    assert compose_env.make(path) == []
    assert len({settings[name] for name in compose_env.MADE}) == len(compose_env.MADE)
    assert path.stat().st_mode & 0o777 == 0o600


def test_git_ignores_the_file_with_the_secrets() -> None:
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()
    assert ".env" in (ROOT / ".dockerignore").read_text().splitlines()


def test_connections_of_compose_are_json_without_secrets() -> None:
    settings = read_env_file(ROOT / "deploy/compose.env", {})
    kafka = json.loads(settings["AIRFLOW_CONN_KAFKA_DEFAULT"].strip("'"))
    assert set(kafka["extra"]) == {"bootstrap.servers", "topicshift.properties.file"}
    folder = next(word for word in RUNNING["kafka"]["command"] if word.startswith("--run-folder=")).split("=")[1]
    assert kafka["extra"]["topicshift.properties.file"] == f"{folder}/clients/topicshift.properties"
    assert json.loads(settings["AIRFLOW_CONN_SPARK_DEFAULT"].strip("'"))["host"] == "spark://spark-master"


def test_the_env_files_do_not_contradict_each_other() -> None:
    shared = read_env_file(ROOT / "deploy/airflow.env", {"TOPICSHIFT_ROOT": "/r"})
    assert set(shared) & set(read_env_file(ROOT / "deploy/compose.env", {})) == set()


def test_init_writes_the_log_ins_privately(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "airflow" / "passwords.json"
    monkeypatch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE", str(path))
    monkeypatch.setenv("AIRFLOW_ADMIN_PASSWORD", "a")
    monkeypatch.setenv("AIRFLOW_VIEWER_PASSWORD", "v")
    compose_init.write_passwords()
    assert json.loads(path.read_text()) == {"admin": "a", "viewer": "v"}
    assert path.stat().st_mode & 0o777 == 0o600
    monkeypatch.delenv("AIRFLOW_VIEWER_PASSWORD")
    assert compose_init.main() == 2


@pytest.mark.parametrize("words", [[], ["kafka"], ["nothing", "x"], ["port", "x", "y"]])
def test_a_health_check_that_is_used_wrongly_is_not_ready(words: list[str]) -> None:
    assert ready.main(words) == 2


def test_a_port_where_nobody_listens_is_not_ready() -> None:
    assert ready.main(["port", "127.0.0.1:1"]) == 1
    assert ready.main(["port", "127.0.0.1:x"]) == 1


def composes() -> list[list[str]]:
    """The docker compose of this machine, or the one that TOPICSHIFT_COMPOSE names; the tests above hold without."""
    named = os.environ.get("TOPICSHIFT_COMPOSE")
    if named:
        return [[named]]
    docker = shutil.which("docker")
    if docker and subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode == 0:
        return [[docker, "compose"]]
    return []


@pytest.mark.parametrize("compose", [*composes(), None], ids=str)
def test_docker_compose_takes_the_file(compose: list[str] | None, tmp_path: Path) -> None:
    env = tmp_path / ".env"
    compose_env.make(env)
    settings = compose_env.settings_of(env)
    unset = set(re.findall(r"\$\{([A-Z_]+)", TEXT)) - set(settings)
    assert unset == set()
    if compose is not None:
        command = [*compose, "--env-file", str(env), "--file", str(ROOT / "docker-compose.yml"), "config", "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
