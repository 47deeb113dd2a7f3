"""The DAGs of a folder of specs: a fault of one file is that file's own, and no task pays for specs of others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = (
    "source: {source}\npartitions: 12\nwindow: {{cron: '0 2 * * SUN', timezone: Europe/Berlin}}\n"
    "producers: [{{name: a}}]\nconsumers: [{{name: b, group: b}}]\n"
)
# What Airflow itself makes of the folder dags/, and which specs were read for it. Airflow is imported once; each look
# is a process of its own, as each parsing of the folder is.
PROBE = """
import json, multiprocessing, os, sys
from airflow.dag_processing.dagbag import DagBag

def look(specs, dag_id):
    os.environ["TOPICSHIFT_SPECS"] = specs
    if dag_id:
        os.environ["_AIRFLOW_PARSING_CONTEXT_DAG_ID"] = dag_id
    from topicshift.core.spec import scheduled
    read = []
    load = scheduled.load_spec
    scheduled.load_spec = lambda path: (read.append(path.name), load(path))[1]
    bag = DagBag(dag_folder=sys.argv[1], bundle_name="dags")
    broken = {d.dag_id: d.task_dict["read_spec"].message for d in bag.dags.values() if "invalid-spec" in d.tags}
    return {"dags": sorted(bag.dags), "errors": bag.import_errors, "broken": broken, "read": sorted(read)}

with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
    print(json.dumps(pool.starmap(look, json.loads(sys.argv[2]), chunksize=1)))
"""


@pytest.fixture(scope="module")
def bags(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What Airflow finds in ``dags/`` with each folder of specs; with the many ones also in tasks of two DAGs."""
    home = tmp_path_factory.mktemp("home")
    odd, many = home / "odd", home / "many"
    (odd / "folder.yaml").mkdir(parents=True)
    for name in (
        "good.yaml",
        "my_nightly.yaml",
        "my nightly.yaml",
        "a.yaml",
        "a.yml",
        "é.yaml",
        "LOUD.YAML",
        ".hidden.yaml",
    ):
        spec(odd, name)
    spec(odd, b"latin\xff.yaml")
    (odd / "dangling.yaml").symlink_to("nothing.yaml")
    (odd / "loop.yaml").symlink_to("loop.yaml")
    os.mkfifo(odd / "pipe.yaml")
    (odd / "deep.yaml").write_text("source: " + "[" * 5000)
    (odd / "binary.yaml").write_bytes(b"\x00\xff\xfe")
    (home / "none").write_text("a file where a folder should be")
    many.mkdir()
    for i in range(60):
        spec(many, f"s{i}.yaml")
    asked = {"odd": (odd, ""), "none": (home / "none", "")}
    asked |= {dag_id: (many, dag_id) for dag_id in ("topic_migration", "topic_migration__s7")}
    env = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'include'}{os.pathsep}{ROOT / 'plugins'}",
        "AIRFLOW_HOME": str(home),
    }
    command = [sys.executable, "-c", PROBE, str(ROOT / "dags")]
    command.append(json.dumps([(str(specs), dag_id) for specs, dag_id in asked.values()]))
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(zip(asked, json.loads(done.stdout.splitlines()[-1]), strict=True))


def spec(folder: Path, name: str | bytes) -> None:
    (folder / os.fsdecode(name)).write_text(SPEC.format(source="clicks"))


def test_a_file_that_cannot_be_scheduled_says_why_and_hides_no_other(bags: dict[str, Any]) -> None:
    found = bags["odd"]
    assert found["errors"] == {}
    broken = {dag_id.removeprefix("topic_migration__"): why for dag_id, why in found["broken"].items()}
    good = set(found["dags"]) - set(found["broken"])
    assert {
        "topic_migration",
        "topic_assessment",
        "topic_rollback",
        "topic_resume_on_source",
        "topic_retirement",
        "topic_source_watch",
        "topic_doctor",
    } <= good
    assert {d for d in good if "__" in d} == {f"topic_migration__{n}" for n in ("good", "my_nightly", "é", "LOUD")}
    assert "a.yaml" in broken["a"] and "a.yml" in broken["a"] and "Rename one" in broken["a"]
    for stem, why in {
        "folder": "a folder",
        "dangling": "a link to nothing",
        "loop": "symbolic links",
        "pipe": "a pipe",
    }.items():
        assert f"{stem}.yaml" in broken[stem] and why in broken[stem]
    assert "nested too deeply" in broken["deep"] and "UTF-8" in broken["binary"]
    odd = [why for why in broken.values() if "Rename it" in why]
    assert sorted(why.split(" has ")[0] for why in odd) == ["'latin\\xff.yaml'", "'my nightly.yaml'"]
    assert len(broken) == 1 + 4 + 2 + 2


def test_a_folder_that_cannot_be_listed_is_not_an_empty_one(bags: dict[str, Any]) -> None:
    found = bags["none"]
    assert found["errors"] == {} and "topic_migration" in found["dags"]
    [(dag_id, why)] = found["broken"].items()
    assert dag_id.startswith("topic_migration__") and "cannot be listed" in why and "TOPICSHIFT_SPECS" in why


@pytest.mark.parametrize(("dag_id", "read"), [("topic_migration", []), ("topic_migration__s7", ["s7.yaml"])])
def test_a_task_reads_no_spec_but_its_own(bags: dict[str, Any], dag_id: str, read: list[str]) -> None:
    found = bags[dag_id]
    assert found["read"] == read and dag_id in found["dags"]
    assert [d for d in found["dags"] if d.startswith("topic_migration")] == [dag_id]
