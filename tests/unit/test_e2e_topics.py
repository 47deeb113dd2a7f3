"""The end-to-end tests share one cluster, so each names topics and groups of its own."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import yaml

TESTS = Path(__file__).parents[1]


def _made(file: Path) -> list[str]:
    """Names of topic and group in each ``Topic(stack, "name", "group")`` of a file."""
    calls = [n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.Call)]
    mine = [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "Topic"]
    return [a.value for c in mine for a in c.args[1:3] if isinstance(a, ast.Constant) and isinstance(a.value, str)]


def test_no_two_end_to_end_tests_make_one_topic_or_group() -> None:
    """Tests pass alone and fail together where two of them make a topic of one name."""
    made = Counter(name for file in sorted((TESTS / "e2e").glob("*.py")) for name in _made(file))
    assert len(made) > 10, "the calls are no longer found: mend this test"
    for file in (TESTS / "specs").glob("*.yaml"):
        made[yaml.safe_load(file.read_text()).get("source")] += 1
    assert {name: times for name, times in made.items() if times > 1} == {}
