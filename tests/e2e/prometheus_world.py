"""A real Prometheus with the configuration of docker-compose.yml, and the real statsd_exporter that it scrapes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from lab import ports_free
from lab.airflow_api import wait_until
from lab.process import GuardedProcess
from lab.runfolder import ROOT

CONFIG = ROOT / "deploy/prometheus/prometheus.yml"


def program(name: str) -> str:
    """One of the programs of the folder that ``TOPICSHIFT_PROMETHEUS`` names. Raises ``FileNotFoundError``."""
    found = shutil.which(name, path=os.environ["TOPICSHIFT_PROMETHEUS"])
    if found is None:
        raise FileNotFoundError(f"TOPICSHIFT_PROMETHEUS ({os.environ['TOPICSHIFT_PROMETHEUS']}) holds no {name}.")
    return found


def promtool(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """What promtool says."""
    command = [program("promtool"), *words]
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)


@dataclass
class Prometheus:
    """``url``: where it answers; ``scraped``: what it scrapes."""

    url: str
    scraped: str

    def ask(self, path: str, **params: Any) -> Any:
        """One answer of its API. Raises ``AssertionError`` where it refuses the question."""
        answer = httpx.get(f"{self.url}/api/v1/{path}", params=params, timeout=10, trust_env=False)
        assert answer.status_code == 200, f"{path} {params}: {answer.text}"
        return answer.json()["data"]

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The series that an expression gives now."""
        return list(self.ask("query", query=expr)["result"])

    def firing(self, source: str) -> set[str]:
        """Names of the alerts that fire for this topic."""
        alerts = self.ask("alerts")["alerts"]
        mine = (a for a in alerts if a["labels"].get("source") == source and a["state"] == "firing")
        return {a["labels"]["alertname"] for a in mine}

    def exposition(self) -> str:
        """The text that it scrapes, as it is at this moment."""
        return httpx.get(self.scraped, timeout=10, trust_env=False).raise_for_status().text


@contextmanager
def scraping(folder: Path, statsd_port: int) -> Iterator[Prometheus]:
    """Both run, in the settings of docker-compose.yml: only addresses are this machine's, and it looks every second."""
    exporter, server = ports_free.claim(2)
    text = CONFIG.read_text()
    assert text.count("statsd:9102") == 1 and text.count(": 5s") == 2
    folder.mkdir(exist_ok=True)
    (folder / "prometheus.yml").write_text(text.replace("statsd:9102", f"127.0.0.1:{exporter}").replace(": 5s", ": 1s"))
    shutil.copy(CONFIG.with_name("alerts.yml"), folder)
    commands = {
        "statsd_exporter": [
            f"--statsd.listen-udp=127.0.0.1:{statsd_port}",
            "--statsd.listen-tcp=",
            f"--web.listen-address=127.0.0.1:{exporter}",
        ],
        "prometheus": [
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{server}",
        ],
    }
    made = Prometheus(f"http://127.0.0.1:{server}", f"http://127.0.0.1:{exporter}/metrics")
    with ExitStack() as ends:
        ends.callback(ports_free.release, [exporter, server])
        for name, arguments in commands.items():
            process = GuardedProcess(
                name, [program(name), *arguments], log=folder / f"{name}.log", env=dict(os.environ)
            )
            ends.callback(process.start().stop)
        wait_until(lambda: _ready(made), 60, "Prometheus to be ready", every=0.2)
        yield made


def _ready(made: Prometheus) -> bool:
    try:
        return httpx.get(f"{made.url}/-/ready", timeout=2, trust_env=False).status_code == 200 and bool(
            made.exposition()
        )
    except httpx.HTTPError:
        return False
