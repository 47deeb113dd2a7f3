"""``impact.html``: the key-rehash report as one file that needs no network, in light and dark, on a phone too.

Plotly draws the figures. Its script travels inside the file, compressed, and is unpacked by the browser; every figure
has its numbers in a table beside it, which show without any script.
"""

from __future__ import annotations

import base64
import functools
import gzip
import re
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from pydantic import ValidationError

from topicshift.core.drain.advice import Advice, client_advice
from topicshift.core.errors import SpecError
from topicshift.core.findings import sort_findings
from topicshift.core.impact.report import Impact, Kind, ends_of
from topicshift.core.sizing.choice import Choice, choose
from topicshift.core.sizing.sizing import SizingResult
from topicshift.core.text import bytes_text
from topicshift.reporting.figures import before_after, figure_json, skew_curve, slice_strip

_RULES_SHOWN = 8
_CODE = re.compile(r"`([^`]+)`")


def render(impact: Mapping[str, Any] | Impact, sizing: SizingResult | None = None) -> str:
    """The report as HTML.

    ``impact`` is impact.json; ``sizing`` the recommendation for wanted rates, which then goes before the one by skew.
    Raises ``SpecError`` when it is not an impact report of this version.
    """
    report = _checked(impact)
    choice = choose(report)
    if sizing is not None:
        choice = Choice(
            partitions=sizing.recommended,
            runner_up=sizing.runner_up,
            reasons=[*sizing.reasons, *sizing.warnings, *(f"Not checked: {bound}" for bound in sizing.unchecked)],
        )
    candidates = sorted(report.candidates, key=lambda c: (c.partitions != choice.partitions, c.partitions))
    rules = sorted(report.partitioner.rules, key=lambda r: -r.records_share)[:_RULES_SHOWN]
    drawn = {f"bars-{c.partitions}": figure_json(before_after(report, c)) for c in candidates if report.keyed_records}
    if report.keyed_records and candidates:
        drawn["curve"] = figure_json(skew_curve(report, choice.partitions))
    if rules and len(report.slices) > 1:
        drawn["slices"] = figure_json(slice_strip(report, rules))
    return (
        _templates()
        .get_template("impact.html.j2")
        .render(
            i=report,
            verdict=_verdict(report),
            choice=choice,
            candidates=candidates,
            rules=rules,
            findings=sort_findings(report.findings),
            advice=_advice(report, choice.partitions, sizing),
            figures=drawn,
            figures_script=plotly_script() if drawn else "",
            Kind=Kind,
        )
    )


@functools.cache
def _templates() -> Environment:
    """The templates, each compiled once."""
    env = Environment(
        loader=PackageLoader("topicshift.reporting", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    env.filters.update(soft=_soft, n=_number, pct=_percent, size=_bytes, interval=_interval, words=_words)
    return env


def _checked(impact: Mapping[str, Any] | Impact) -> Impact:
    if isinstance(impact, Impact):
        return impact
    try:
        return Impact.model_validate(dict(impact))
    except ValidationError as err:
        first = err.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise SpecError(
            f"This is no impact report of this version: {where}: {first['msg']} ({err.error_count()} problems). Make "
            "impact.json again with the key_rehash_impact of the same installation."
        ) from None


@functools.cache
def plotly_script() -> str:
    """Plotly's script, compressed with gzip, as base64 text."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), 9, mtime=0)).decode()


def _verdict(impact: Impact) -> tuple[str, str, str]:
    """(tone, headline, one sentence). Tone is good, warn or bad."""
    errors = [f for f in impact.findings if f.blocks]
    if impact.kind is Kind.EMPTY:
        return "warn", "Nothing to judge by", "The range that was read holds no record."
    if impact.kind is Kind.UNKEYED:
        return "good", "No keys: increase it in place", impact.in_place.reason
    kind = "Every record has a key" if impact.kind is Kind.KEYED else "Some records have a key, some have none"
    rule = impact.partitioner.name
    placed = f"the keys are placed by {rule}" if rule else "no single rule explains where the keys lie"
    sentence = f"{kind}; {placed}. {impact.in_place.reason}"
    if errors:
        return "bad", f"Move it only after {len(errors)} finding{'' if len(errors) == 1 else 's'}", sentence
    return "good", "Keyed: move it to a new topic", sentence


def _advice(impact: Impact, count: int | None, sizing: SizingResult | None) -> list[Advice]:
    """Client settings for the count to take; those that need rates only where rates were given."""
    if sizing is not None:
        return sizing.advice
    return client_advice(impact.source.partitions, count) if count else []


# ------------------------------------------------------------------------------------------------ filters


def _words(text: str) -> Markup:
    """Text with `names` in backticks set as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped just here


def _soft(text: str) -> Markup:
    """A long name that may break after its dots."""
    return Markup(str(escape(text)).replace(".", ".<wbr>"))  # noqa: S704 - escaped just here


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if isinstance(value, int) or value == round(value) else f"{value:,.2f}"


def _percent(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def _bytes(value: float | None) -> str:
    return "–" if value is None else bytes_text(value)


def _interval(owner: Any, name: str, form: str = "n", at: int | None = None) -> str:
    """`` (low – high)`` for a figure out of a sample (the one ``at`` this place in a list), else nothing."""
    ends = ends_of(owner, name)
    if ends is None:
        return ""
    low, high = ends if at is None else (ends[0][at], ends[1][at])
    show = _percent if form == "pct" else _bytes if form == "size" else _number
    return f" ({show(low)} – {show(high)})"
