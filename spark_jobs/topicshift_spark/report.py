"""``impact.html`` for a job that has just written impact.json.

The one module of the jobs that reaches into :mod:`topicshift.reporting`, and only when it is called: a driver without
Plotly still writes its figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def render_impact(impact: Mapping[str, Any]) -> str:
    """The report as HTML. Raises ``ImportError`` where Plotly or Jinja2 is not installed."""
    from topicshift.reporting.impact import render

    return render(impact)
