"""Who may import whom, where import-linter does not look: files that belong to no package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOT_PRODUCT = {"lab", "deploy", "tests", "tools", "benchmarks"}


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def files(*folders: str) -> list[Path]:
    return sorted(file for folder in folders for file in (ROOT / folder).rglob("*.py"))


def test_the_product_imports_neither_the_laboratory_nor_the_tests() -> None:
    product = files("include", "plugins", "dags", "spark_jobs")
    assert len(product) > 100
    assert [f.name for f in product if NOT_PRODUCT & {name.partition(".")[0] for name in imported(f)}] == []


def test_spark_jobs_import_core_alone() -> None:
    jobs = sorted((ROOT / "spark_jobs").glob("*.py"))
    assert len(jobs) == 3
    ours = {name for file in jobs for name in imported(file) if name.partition(".")[0].startswith("topicshift")}
    # The HTML of the impact is made where the figures are, so that a job run by hand leaves it too.
    other = {name for name in ours if not name.startswith(("topicshift.core", "topicshift_spark"))}
    assert other == {"topicshift.reporting.impact"}


def test_one_file_touches_what_kafka_python_keeps_to_itself() -> None:
    private = re.compile(r"\._manager|\._net\b|kafka\.net\b|\._coordinators")
    product = files("include", "plugins", "dags", "spark_jobs")
    assert {f.name for f in product if private.search(f.read_text("utf-8"))} == {"python_client.py"}
