"""``report.html``: the whole run on one page, from its evidence alone. One file, no network, no script."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

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
