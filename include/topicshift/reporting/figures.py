"""The figures of the impact report as Plotly JSON. Colours are named after their role; the page fills them in."""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from topicshift.core.impact.report import Candidate, Impact, RuleShare, ends_of
from topicshift.core.impact.skew import hot_partitions, shares

NOW, THEN, HOT, LINE, BAND, INK = "#000001", "#000002", "#000003", "#000004", "#000005", "#000006"
"""Stand-ins that the page's script replaces by the colours of the light or the dark theme."""


_CURVE_POINTS = 500


def figure_json(figure: go.Figure) -> str:
    """The figure's data and layout, safe inside a ``<script>`` element."""
    plain = json.loads(figure.to_json())
    text = json.dumps({"data": plain["data"], "layout": _trim(plain["layout"])}, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _trim(layout: dict[str, Any]) -> dict[str, Any]:
    """Without the default template, which is larger than the figure."""
    return {k: v for k, v in layout.items() if k != "template"}


def _base(figure: go.Figure, height: int, **layout: Any) -> go.Figure:
    return figure.update_layout(
        height=height,
        margin={"l": 48, "r": 8, "t": 28, "b": 36},
        showlegend=False,
        dragmode=False,
        hoverlabel={"namelength": -1},
        **layout,
    )


def _interval(candidate: Candidate) -> dict[str, Any] | None:
    """Error bars of a sampled candidate, in per cent of the keyed records."""
    mid, ends = candidate.partition_records, ends_of(candidate, "partition_records")
    if ends is None:
        return None
    low, high = ends
    total = sum(mid) or 1
    return {
        "type": "data",
        "symmetric": False,
        "array": [100 * (h - m) / total for m, h in zip(mid, high, strict=True)],
        "arrayminus": [100 * (m - x) / total for m, x in zip(mid, low, strict=True)],
        "color": INK,
        "thickness": 1,
        "width": 2,
    }


def before_after(impact: Impact, candidate: Candidate) -> go.Figure:
    """Two rows of bars: the share of the keyed records in each partition now, and under the candidate."""
    now, then = (
        [100 * x for x in shares(c)] for c in (impact.source.keyed_partition_records, candidate.partition_records)
    )
    figure = make_subplots(
        rows=2,
        cols=1,
        vertical_spacing=0.24,
        subplot_titles=(f"now: {len(now)} partitions", f"then: {len(then)} partitions"),
        shared_yaxes="all",
    )
    # Of the keyed records, as the bars are: a partition may be hot by records without a key.
    hot = set(hot_partitions(impact.source.keyed_partition_records)), set(candidate.hot_partitions)
    for row, (values, colour) in enumerate(((now, NOW), (then, THEN)), 1):
        error = _interval(candidate) if row == 2 else None
        figure.add_trace(
            go.Bar(
                x=list(range(len(values))),
                y=[round(v, 4) for v in values],
                marker={"color": [HOT if p in hot[row - 1] else colour for p in range(len(values))]},
                error_y=error,
                hovertemplate="partition %{x}: %{y:.2f} %<extra></extra>",
            ),
            row=row,
            col=1,
        )
        even = 100 / len(values)
        figure.add_hline(y=even, line={"color": LINE, "width": 1, "dash": "dot"}, row=row, col=1)
        figure.update_xaxes(tickformat="d", nticks=min(13, len(values) + 1), row=row, col=1)
    figure.update_yaxes(ticksuffix=" %", rangemode="tozero", nticks=5)
    return _base(figure, 380, bargap=0.15)


def skew_curve(impact: Impact, chosen: int | None) -> go.Figure:
    """Largest partition's share against the count, with the even share and the hottest key's bound."""
    points = sorted((c for c in impact.candidates if c.max_partition_share is not None), key=lambda c: c.partitions)
    xs = [c.partitions for c in points]
    ys = [100 * (c.max_partition_share or 0) for c in points]
    figure = go.Figure()
    ends = [found for c in points if (found := ends_of(c, "max_partition_share"))]
    if points and len(ends) == len(points):
        figure.add_trace(
            go.Scatter(
                x=[*xs, *reversed(xs)],
                y=[100 * high for _, high in ends] + [100 * low for low, _ in reversed(ends)],
                mode="lines",
                fill="toself",
                fillcolor=BAND,
                line={"width": 0},
                hoverinfo="skip",
                name="95 % interval",
            )
        )
    if xs:
        smooth = sorted({*range(min(xs), max(xs) + 1, 1 + (max(xs) - min(xs)) // _CURVE_POINTS), max(xs)})
        figure.add_trace(
            go.Scatter(
                x=smooth,
                y=[100 / m for m in smooth],
                mode="lines",
                line={"color": LINE, "dash": "dot", "width": 1.5},
                name="even share",
                hovertemplate="even over %{x}: %{y:.2f} %<extra></extra>",
            )
        )
    figure.add_trace(
        go.Scatter(
            x=xs,
            y=ys,
            mode="lines+markers",
            line={"color": THEN, "width": 2},
            marker={"size": [13 if x == chosen else 8 for x in xs], "color": THEN},
            name="hottest partition",
            hovertemplate="%{x} partitions: %{y:.2f} % in the hottest<extra></extra>",
        )
    )
    bound = impact.limits.hottest_key_share
    if bound and xs:
        figure.add_hline(
            y=100 * bound,
            line={"color": HOT, "width": 1.5, "dash": "dash"},
            annotation={"text": f"hottest key {bound:.1%}", "font": {"color": HOT}},
            annotation_position="bottom right",
        )
    figure.update_yaxes(ticksuffix=" %", rangemode="tozero")
    figure.update_xaxes(title={"text": "partitions"}, tickformat="d", nticks=8)
    return _base(figure, 320)


def slice_strip(impact: Impact, rules: list[RuleShare]) -> go.Figure:
    """Rules by time slice: the share of the slice's keyed records that each rule explains."""
    seconds = impact.slices[0].start[:16] == impact.slices[-1].start[:16]
    labels = [s.start[: 19 if seconds else 16].replace("T", " ") for s in impact.slices]
    step = max(1, -(-len(labels) // 3))
    figure = go.Figure(
        go.Heatmap(
            x=list(range(len(labels))),
            y=[r.name for r in reversed(rules)],
            z=[[None if v is None else round(100 * v, 2) for v in r.by_slice] for r in reversed(rules)],
            customdata=[labels] * len(rules),
            zmin=0,
            zmax=100,
            xgap=2,
            ygap=2,
            colorscale=[[0, BAND], [1, THEN]],
            colorbar={"ticksuffix": " %", "thickness": 10, "outlinewidth": 0, "nticks": 3},
            hovertemplate="%{y}, from %{customdata}: %{z:.1f} %<extra></extra>",
        )
    )
    figure.update_yaxes(automargin=True, ticklabelposition="outside")
    figure.update_xaxes(
        tickvals=list(range(0, len(labels), step)),
        ticktext=[t.replace(" ", "<br>") for t in labels[::step]],
        tickangle=0,
        automargin=True,
    )
    return _base(figure, 120 + 34 * len(rules))
