"""``report.html``: the whole run on one page, from its evidence alone. One file, no network, no script."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from topicshift.ports import EvidenceStore, Journal
from topicshift.reporting.run_view import build


@cache
def _template() -> Template:
    folder = Path(__file__).with_name("templates")
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("run_report.html")


def render(evidence: Mapping[str, bytes]) -> str:
    """The report as HTML.

    ``evidence`` maps file names (``plan.json``, ``fence.json``, ``drain_certificate*.json``,
    ``drain_verification*.json``, ``order_proof.json``, ``audit.jsonl``) to their content; ``steps.json`` and
    ``migration.json`` are the journal's rows as JSON. Each may be missing: the page says what is not known. A file
    that cannot be read is named on the page; nothing is raised for it.
    """
    return _template().render(view=build(evidence))


def write_report(journal: Journal, evidence: EvidenceStore, migration_id: str, write: Callable[[str, str], str]) -> str:
    """Write ``audit.jsonl`` and ``report.html`` from what is in the evidence store, and return the report's URL.

    ``write`` stores one file of this migration by its name and returns its URL.
    """
    events = journal.events(migration_id)
    trail = "".join(json.dumps(asdict(e), sort_keys=True) + "\n" for e in events)
    write("audit.jsonl", trail)
    names = [n for n in evidence.names(migration_id) if not n.endswith(".html")]
    found = {n: data for n in names if (data := evidence.read(migration_id, n)) is not None}
    steps = json.dumps([asdict(s) for s in journal.steps(migration_id)], default=str)
    migration = json.dumps(asdict(journal.current(migration_id)), default=str)
    page = render(found | {"steps.json": steps.encode(), "migration.json": migration.encode()})
    return write("report.html", page)
