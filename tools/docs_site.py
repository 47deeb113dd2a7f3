"""Hooks of mkdocs: the pages as they are in the repository, links between them as the built pages need them.

The front page is README.md. Other pages of the repository that the navigation names lie under ``project``. A link to a
file that is no page becomes plain text, so that nothing in the built pages points to where nothing is.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
FRONT = "README.md"
PROJECT = "project/"
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_ITEM = re.compile(r"^( *)([-*]|\d+\.) ")
_FENCE = re.compile(r"^ *```")


def on_config(config: Any) -> Any:
    """Kinds and decisions are in the navigation as they lie in their folders; what it does not name stands last."""
    _fill(config["nav"], "Kinds of participants", "participants")
    _fill(config["nav"], "Decisions", "decisions")
    docs = ROOT / "docs"
    left = {p.relative_to(docs).as_posix() for p in docs.rglob("*.md")} - _named(config["nav"])
    if left:
        config["nav"].append({"More": sorted(left)})
    return config


def _fill(nav: Any, title: str, folder: str) -> None:
    """The section of this title gets the pages of a folder, its README first."""
    for part in nav:
        for name, inner in part.items() if isinstance(part, dict) else ():
            if name == title:
                pages = sorted(p.name for p in (ROOT / "docs" / folder).glob("*.md") if p.name != "README.md")
                part[name] = [f"{folder}/{page}" for page in ("README.md", *pages)]
            elif isinstance(inner, list):
                _fill(inner, title, folder)


def _named(nav: Any) -> set[str]:
    """Every page of the navigation."""
    if isinstance(nav, str):
        return {nav}
    parts = nav.values() if isinstance(nav, dict) else nav
    return set().union(*(_named(part) for part in parts)) if parts else set()


def on_files(files: Files, config: Any) -> Files:
    """The front page, and the pages of the repository that lie elsewhere."""
    files.append(File.generated(config, "index.md", content=(ROOT / FRONT).read_text("utf-8")))
    for name in sorted(n for n in _named(config["nav"]) if n.startswith(PROJECT)):
        text = (ROOT / name.removeprefix(PROJECT)).read_text("utf-8")
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links as the built pages need them, and lists as this Markdown wants them."""
    here = page.file.src_uri
    known = {f.src_uri for f in files}
    return "\n".join(lists(linked(markdown, here, known).split("\n")))


def origin(src_uri: str) -> str:
    """Where a page lies in the repository."""
    if src_uri == "index.md":
        return FRONT
    return src_uri.removeprefix(PROJECT) if src_uri.startswith(PROJECT) else f"docs/{src_uri}"


def built(name: str) -> str:
    """The page or file of the site that a file of the repository becomes."""
    if name == FRONT:
        return "index.md"
    if name == "docs/decisions":
        return "decisions/README.md"
    return name.removeprefix("docs/") if name.startswith("docs/") else f"{PROJECT}{name}"


def linked(markdown: str, here: str, known: set[str]) -> str:
    """The text of a page with its links; code stays as it is."""

    def link(found: re.Match[str]) -> str:
        bang, text, target = found.groups()
        if re.match(r"[a-z]+:|#", target):
            return found.group(0)
        path, _, anchor = target.partition("#")
        there = built(posixpath.normpath(posixpath.join(posixpath.dirname(origin(here)), path)))
        if there not in known:
            return text
        short = posixpath.relpath(there, posixpath.dirname(here) or ".")
        return f"{bang}[{text}]({short}{'#' + anchor if anchor else ''})"

    lines, fenced = markdown.split("\n"), False
    prose: list[str] = []
    out: list[str] = []
    for line in [*lines, None]:
        fence = line is not None and _FENCE.match(line) is not None
        if line is None or fence or fenced or line.startswith("    "):
            if prose:
                out.append(_LINK.sub(link, "\n".join(prose)))
                prose = []
            if line is not None:
                out.append(line)
            fenced = fenced != fence
        else:
            prose.append(line)
    return "\n".join(out)


def lists(lines: list[str]) -> list[str]:
    """Lists with a blank line before them, and those inside an item four columns deeper: GitHub wants neither."""
    out: list[str] = []
    fenced = listed = False
    for line in lines:
        if _FENCE.match(line):
            fenced = not fenced
        item = None if fenced else _ITEM.match(line)
        if item and not listed and out and out[-1].strip():
            out.append("")
        if item and listed and len(item[1]) in (2, 3):
            line = f"    {line.lstrip()}"
        listed = (bool(item) or (listed and bool(line.strip()))) and not fenced
        out.append(line)
    return out
