"""The end-to-end tests share one cluster, so each names topics and groups of its own."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import yaml

TESTS = Path(__file__).parents[1]


CONSTANTS = {"TOPIC", "GROUP", "LEDGER", "ARCHIVE"}


def _made(file: Path) -> list[str]:
    """Names of topics and groups: in each ``Topic(stack, "name", "group")`` of a file, and of its ``Applications``."""
    tree = ast.parse(file.read_text())
    kinds = _kinds(tree)
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    told = [a for c in calls if c.func.id in {"Topic", *kinds} for a in c.args]  # type: ignore[attr-defined]
    constants = {v for n in tree.body if isinstance(n, ast.Assign) for v in _named(n) if kinds}
    return [a.value for a in told if isinstance(a, ast.Constant) and isinstance(a.value, str)] + sorted(constants)


def _kinds(tree: ast.Module) -> set[str]:
    """Classes of applications, and what is derived from them."""
    found = {"Applications"}
    for c in tree.body:  # a class stands after those that it is derived from
        if isinstance(c, ast.ClassDef) and any(isinstance(base, ast.Name) and base.id in found for base in c.bases):
            found.add(c.name)
    return found - {"Applications"}


def _named(assign: ast.Assign) -> list[str]:
    """The texts that a module gives to the names of its topic and its groups."""
    (left,), right = assign.targets, assign.value
    names = left.elts if isinstance(left, ast.Tuple) else [left]
    values = right.elts if isinstance(right, ast.Tuple) else [right]
    return [
        v.value
        for n, v in zip(names, values, strict=False)
        if isinstance(n, ast.Name) and n.id in CONSTANTS and isinstance(v, ast.Constant) and isinstance(v.value, str)
    ]


def test_no_two_end_to_end_tests_make_one_topic_or_group() -> None:
    """Tests pass alone and fail together where two of them make a topic of one name."""
    made = Counter(name for file in sorted((TESTS / "e2e").glob("*.py")) for name in _made(file))
    assert len(made) > 10 and "lettings" in made, "what they make is no longer found: mend this test"
    for file in (TESTS / "specs").glob("*.yaml"):
        made[yaml.safe_load(file.read_text()).get("source")] += 1
    assert {name: times for name, times in made.items() if times > 1} == {}
