"""Every command that a message, a draft or a page in Airflow names is one that the command line takes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.test_docs import PLACES, ROOT, TARGETS, parse

from topicshift.cli import COMMANDS

SOURCES = sorted(
    path
    for folder in ("include", "plugins", "dags", "lab", "deploy")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".js", ".html", ".yaml", ".yml", ".env"} and "node_modules" not in path.parts
)
VALUE = "VALUE"
"""Stands in a text for what the program fills in."""

_WORD = re.compile(r"--?[a-z][a-z-]*(=\S+)?$|[A-Z][A-Z0-9_:.|\[\]-]*$")
_GROUPS = {"audit": {"verify", "export"}, "route": {"show", "set", "init", "dismiss"}}


def texts(path: Path) -> Iterator[str]:
    """The texts that a file holds for people: literals, with ``VALUE`` for what is filled in; other files whole."""
    if path.suffix != ".py":
        yield re.sub(r"\$?\{[^{}\n]*\}", VALUE, path.read_text())
        return
    tree = ast.parse(path.read_text())
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(p.value) if isinstance(p, ast.Constant) else VALUE for p in node.values)


def commands(text: str) -> Iterator[list[str]]:
    """The words of each ``topicshift COMMAND ...`` in a text, up to the first word that can only be prose."""
    for found in re.finditer(r"(?<![\w./-])topicshift ((?:[a-z][a-z-]*)(?: [^\n]*)?)", text):
        name, *rest = found[1].split()
        bare = name.rstrip(".,;:)`'\"")
        if bare not in COMMANDS:
            continue
        words = [bare]
        for word in rest if bare == name else ():
            clean = word.rstrip(".,;:)`'\"")
            if not (_WORD.match(clean) or (len(words) == 1 and clean in _GROUPS.get(bare, ()))):
                break
            words.append(clean)
            if clean != word:
                break
        yield [PLACES.get(word, word) for word in words]


NAMED = sorted({(str(p.relative_to(ROOT)), *w) for p in SOURCES for text in texts(p) for w in commands(text)})


@pytest.mark.parametrize("named", NAMED, ids=" ".join)
def test_a_command_that_is_named_is_taken(named: tuple[str, ...]) -> None:
    _, *words = named
    parse(words, f"topicshift {' '.join(words)}", whole=False)


def test_a_target_of_make_that_is_named_is_there() -> None:
    told = {
        (str(path.relative_to(ROOT)), target)
        for path in SOURCES
        for text in texts(path)
        for target in re.findall(r"(?:Run |`)make ([a-z][a-z0-9-]*)", text)
    }
    assert {target for _, target in told} >= {"setup"}
    assert not [one for one in told if one[1] not in TARGETS]


def test_they_are_found_and_a_wrong_one_is_seen() -> None:
    assert len(NAMED) > 40 and {"status", "abort", "advance", "size"} <= {words[1] for words in NAMED}
    assert list(commands("see topicshift abort --what VALUE says how")) == [["abort", "--what", "VALUE"]]
    for text in ("a guess: topicshift size VALUE works it out", "topicshift route shows", "topicshift plan --imp FILE"):
        with pytest.raises(AssertionError):
            for words in commands(text):
                parse(words, text, whole=False)
                assert words != ["route"]
