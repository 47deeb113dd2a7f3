"""What an earlier run left in a run folder: whether a new one can go on with it, else where its evidence is kept."""

from __future__ import annotations

import json
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lab.runfolder import RunFolder, write_private

MARK = "kept.json"
"""Written when a run is ready: only what has once been ready can be gone on with."""

DATA = ("kafka", "airflow", "topicshift", "life")
BEFORE = "before"
"""Sub-folder that takes journal and evidence of the run before, where a new one cannot go on with them."""


def mark(folder: RunFolder, *, airflow: bool, postgres: bool) -> None:
    """Note that this run is ready, and of what it consists."""
    write_private(folder / MARK, json.dumps(_kind(airflow=airflow, postgres=postgres)))


def _kind(*, airflow: bool, postgres: bool) -> dict[str, Any]:
    return {"airflow": version("apache-airflow-core") if airflow else None, "postgres": postgres}


def why_not(folder: RunFolder, *, airflow: bool, postgres: bool) -> str | None:
    """Why a new run cannot go on with what is there, None where it can. An empty text where nothing is there."""
    if not any((folder / name).exists() for name in DATA):
        return ""
    try:
        kind = json.loads((folder / MARK).read_text())
    except (OSError, ValueError):
        return "the run before never became ready"
    if postgres or kind.get("postgres"):
        return "a PostgreSQL of the lab ends with its run, and so does what is in it"
    if kind != _kind(airflow=airflow, postgres=postgres):
        return "the run before had another version of Airflow, or none"
    needed = ["kafka/cluster.id", "kafka/node-1/meta.properties", *(["airflow/airflow.db"] if airflow else [])]
    missing = [name for name in needed if not (folder / name).exists()]
    return f"{', '.join(missing)} is missing" if missing else None


def begin_afresh(folder: RunFolder) -> Path | None:
    """Remove topics, Airflow's data and logs of the traffic; journal and evidence, where there are any, are put aside.

    Returns:
        Where they lie now, None where there was no evidence. What had been put aside earlier is replaced.
    """
    (folder / MARK).unlink(missing_ok=True)
    home, aside = folder / "topicshift", folder / BEFORE
    evidence = home / "evidence"
    worth = evidence.is_dir() and any(evidence.iterdir())
    if worth:
        shutil.rmtree(aside, ignore_errors=True)
        home.rename(aside)
    for name in DATA:
        shutil.rmtree(folder / name, ignore_errors=True)
    return aside if worth else None
