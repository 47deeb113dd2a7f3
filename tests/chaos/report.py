"""What a run came to, as Markdown: seed, counts, each class, every failure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.worlds import ALL_CLASSES, WORLDS

FOUND = Path(__file__).with_name("FOUND.md")
"""What runs have found so far, and what was mended; written by hand."""

FAULTS, MIGRATIONS, AFTER, EACH = 200, 30, 20, 5
"""A full run: faults, migrations, faults after the switch, and how often each class has struck."""

RULES = {"lost": "lost", "out of order": "order", "producers left stopped beyond the budget": "stopped"}
"""The promises that are counted in the first lines, by the judge's name of their rule."""

Result = Mapping[str, Any]


def latest(parts: Iterable[Any]) -> list[Any]:
    """Of each part its last result, in the order of their numbers."""
    last = {(int(p["seed"]), int(p["part"])): p for p in parts}
    return [last[at] for at in sorted(last)]


def write_report(parts: Sequence[Result], path: Path) -> str:
    """Write the report of these migrations, and return it."""
    struck: Counter[str] = Counter()
    for part in parts:
        struck.update(part["struck"])
    broken = [(p, v) for p in parts for v in p["violations"]]
    rules = Counter(str(v).partition(":")[0] for _, v in broken)
    seeds = ", ".join(str(s) for s in sorted({int(p["seed"]) for p in parts}))
    numbers = [int(p["part"]) for p in parts]
    lines = [
        "# Chaos on real parts: what it came to",
        "",
        f"Seed {seeds}, {len(parts)} migrations (parts {min(numbers, default=0)} to {max(numbers, default=0)}), "
        f"{struck.total()} faults, {sum(int(p['after_switch']) for p in parts)} of them after the switch. "
        + ", ".join(f"{rules[rule]} {words}" for words, rule in RULES.items())
        + f"; {len(broken)} broken promises of any kind.",
        "",
        *_missing(parts, struck),
        *_outcomes(parts),
        "",
        "| class | struck | what it is |",
        "|---|---|---|",
    ]
    for name, one in ALL_CLASSES.items():
        text = " ".join((one.strike.__doc__ or "").split()).replace("``", "`")
        lines.append(f"| `{name}` | {struck[name]} | {text} |")
    lines += ["", "## Broken promises", ""]
    lines += [f"- {_name(p)}: {_words(v)}" for p, v in broken] or ["None."]
    lines += ["", "## Migrations that did not end as done", ""]
    lines += [f"- {_name(p)}: {_state(p)}: {_why(p)}" for p in parts if p["state"] != "done"] or ["None."]
    lines += ["", "## Every migration", "", "| part | world | order | commit | ended as | seconds | faults |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for p in parts:
        names = ", ".join(f"{name} {n}" if n > 1 else name for name, n in p["struck"].items())
        what = f"{p['world']} | `{p['cutover']}` | {p['commit']} | {_state(p)} | {p['seconds']}"
        lines.append(f"| {p['part']} | {what} | {names} |")
    text = "\n".join(lines) + "\n"
    if FOUND.exists():
        text += "\n" + FOUND.read_text()
    path.write_text(text)
    return text


def _missing(parts: Sequence[Result], struck: Counter[str]) -> list[str]:
    """How far it is from a full run, in words; nothing for one."""
    after = sum(int(p["after_switch"]) for p in parts)
    short = [
        f"{have} of {wanted} {what}"
        for what, have, wanted in (
            ("faults", struck.total(), FAULTS),
            ("migrations", len(parts), MIGRATIONS),
            ("faults after the switch", after, AFTER),
        )
        if have < wanted
    ]
    rare = [name for name in ALL_CLASSES if struck[name] < EACH]
    if rare:
        short.append(f"{len(ALL_CLASSES) - len(rare)} of {len(ALL_CLASSES)} classes have struck {EACH} times")
    if not short:
        return []
    return [f"**This is no full run yet**: {', '.join(short)}. `make chaos FAULTS={FAULTS}` goes on with it.", ""]


def _outcomes(parts: Sequence[Result]) -> list[str]:
    count = Counter((str(p["world"]), str(p["cutover"]), _state(p)) for p in parts)
    lines = ["| driven by | order | ended as | migrations |", "|---|---|---|---|"]
    for (world, cutover, state), n in sorted(count.items()):
        lines.append(f"| {WORLDS[world].text} | `{cutover}` | {state} | {n} |")
    return lines


def _state(part: Result) -> str:
    return str(part["state"]) or "open"


def _name(part: Result) -> str:
    return f"part {part['part']} ({part['world']}, {part['cutover']})"


def _why(part: Result) -> str:
    struck = [name for name in part["struck"] if ALL_CLASSES[name].last]
    return _words(part["why"] or ", ".join(struck) or ", ".join(part["struck"]))[:400]


def _words(text: object) -> str:
    """On one line; where a run lay on somebody's machine says nothing."""
    return re.sub(r"/(?:[^\s/]+/)+(?=[^\s/]+/[^\s/]+/)", "", " ".join(str(text).split()))
