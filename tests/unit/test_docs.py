"""The pages: links and anchors lead somewhere, commands are the command's, specs are valid, Python compiles."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
import yaml

from topicshift.cli import COMMANDS
from topicshift.cli import cli as command_line
from topicshift.core.impact.partitioning import partition_of
from topicshift.core.spec.io import load_spec

ROOT = Path(__file__).parents[2]
FILES = subprocess.run(
    ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"],
    cwd=ROOT, capture_output=True, check=True, text=True,
).stdout.split("\0")  # fmt: skip
PAGES = sorted(ROOT / name for name in FILES if name and (ROOT / name).is_file())
FENCED = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:(?<=\n\n)|\A)((?:    [^\n]*\n|\n(?=    ))+)")
PLACES = {"TIME": "2026-01-04T02:00:00+00:00", "N": "12"}
"""What stands for a value that the command reads by itself."""


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(text: str) -> str:
    """A page without its blocks of code and its spans of code."""
    text = INDENTED.sub("\n", FENCED.sub("\n", text))
    return re.sub(r"`[^`\n]*`", lambda found: "x" * len(found[0]), text)


# ------------------------------------------------------------------------------------------------ links


@cache
def anchors(page: Path) -> frozenset[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    seen: Counter[str] = Counter()
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", FENCED.sub("\n", page.read_text()), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return frozenset(found)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    """Files and anchors of the repository; what another host has is not asked."""
    for target in re.findall(r"\]\(([^()\s]+)\)", prose(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, left = set(), [ROOT / "README.md"]
    while left:
        page = left.pop()
        if page in reached:
            continue
        reached.add(page)
        for target in re.findall(r"\]\(([^()\s#]+)", page.read_text()):
            there = (page.parent / target).resolve()
            pages = there.glob("*.md") if there.is_dir() else [there]
            left += [page for page in pages if page.suffix == ".md" and page.is_file()]
    assert [named(p) for p in PAGES if (ROOT / "docs") in p.parents and p not in reached] == []


# ------------------------------------------------------------------------------------------------ blocks of code


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Language (``""`` without one) and text of each block of code."""
    text = page.read_text()
    for _, language, body in FENCED.findall(text):
        yield language, body
    for body in INDENTED.findall(FENCED.sub("\n", text)):
        yield "", "\n".join(line[4:] for line in body.splitlines())


def commands(page: Path) -> Iterator[tuple[str, bool]]:
    """``topicshift ...`` and ``make ...``: lines of blocks, which a reader types, and spans of code in the text.

    True: a whole command; a span may be the name of one, without what it needs.
    """
    for _, body in blocks(page):
        for line in body.replace("\\\n", " ").splitlines():
            line = line.strip().removeprefix("$ ")
            if line.startswith(("topicshift ", "make ")):
                yield re.split(r" #|   ", line)[0].strip(), True
    text = FENCED.sub("\n", page.read_text())
    for span in re.findall(r"`((?:topicshift|make) [^`\n]+)`", text):
        if "..." not in span and "|" not in span:
            yield span, False


WITH_COMMANDS = [page for page in PAGES if any(commands(page)) and page.name != "CHANGELOG.md"]
TARGETS = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "GNUmakefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=named)
def test_commands_are_those_of_the_command_and_the_makefile(page: Path) -> None:
    for line, whole in commands(page):
        words = [PLACES.get(word, word) for word in shlex.split(line)]
        if words[0] == "make":
            wanted = [word for word in words[1:] if "=" not in word]
            assert set(wanted) <= TARGETS, line
        else:
            parse(words[1:], line, whole)


def parse(words: list[str], line: str, whole: bool) -> None:
    """Parse a command as the real one does, down to its subcommand, without running it."""
    command: click.Command = command_line
    parent = None
    while True:
        try:
            name = command.name or "topicshift"
            parent = command.make_context(name, words, parent=parent)
            if not isinstance(command, click.Group):
                return
            rest = [*parent._protected_args, *parent.args]
            _, found, words = command.resolve_command(parent, rest)
        except click.exceptions.NoArgsIsHelpError:
            return  # a group, named alone
        except click.exceptions.Exit:
            return  # --help
        except click.UsageError as error:
            if not whole and isinstance(error, (click.MissingParameter, click.BadOptionUsage)):
                return
            raise AssertionError(f"{line}: {error.format_message()}") from None
        assert found is not None, line
        command = found


def test_a_wrong_command_would_be_seen() -> None:
    for line in ("topicshift drain --topics t", "topicshift nothing", "topicshift audit verified m"):
        with pytest.raises(AssertionError):
            parse(shlex.split(line)[1:], line, whole=False)
    with pytest.raises(AssertionError):
        parse(["abort"], "topicshift abort", whole=True)
    assert set(COMMANDS) >= {"drain", "audit"}


@pytest.mark.parametrize("page", [p for p in PAGES if any(lang for lang, _ in blocks(p))], ids=named)
def test_blocks_are_what_they_say(page: Path, tmp_path: Path) -> None:
    for number, (language, body) in enumerate(blocks(page)):
        if language == "python":
            compile(body, f"{named(page)}, block {number}", "exec")
        elif language == "json":
            json.loads(body)
        elif language in ("yaml", "yml"):
            found = yaml.safe_load(body)
            if isinstance(found, dict) and "source" in found:
                file = tmp_path / f"{number}.yaml"
                file.write_text(body)
                load_spec(file)


def test_the_spec_of_the_readme_is_valid(tmp_path: Path) -> None:
    (body,) = [b for _, b in blocks(ROOT / "README.md") if "apiVersion" in b]
    (tmp_path / "readme.yaml").write_text(body)
    load_spec(tmp_path / "readme.yaml")


def test_the_partitions_in_the_order_of_keys_are_those_of_the_formula() -> None:
    page = (ROOT / "docs/explanation/order-of-keys.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` \| (\d+) \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    assert len(rows) == 5
    for key, *said in rows:
        assert [int(n) for n in said] == [partition_of("murmur2", key.encode(), n) for n in (6, 12, 30)], key


# ------------------------------------------------------------------------------------------------ the built pages


@pytest.mark.thorough
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 50
    loads = re.compile(
        r"<(?:script|img|iframe|source|video|audio|embed)[^>]*\ssrc=\"?(?:https?:)?//|<link[^>]*href=\"?https?:"
    )
    for page in pages:
        text = page.read_text()
        assert not loads.search(text), page
        assert 'class="mermaid"' not in text, "the theme would fetch a script for it"
    for sheet in (tmp_path / "site").rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", sheet.read_text()), sheet
