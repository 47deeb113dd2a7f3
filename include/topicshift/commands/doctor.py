"""``topicshift doctor``: whether an installation is fit for a migration, row by row, with what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from topicshift.commands.common import (
    EXIT_NO,
    EXIT_OK,
    EXIT_UNKNOWN,
    answer,
    console,
    escape,
    journal_option,
    kafka_options_if_wanted,
)

if TYPE_CHECKING:
    from topicshift.core.doctor import Row


_ENVIRONMENT = (
    "Run this where Airflow's scheduler and workers run, with their environment. For the stack of make up: "
    "`. build/up/env` in this shell first."
)


@click.command(
    help="Check this installation: Airflow's DAGs, plugin, connections and the settings that lengthen a freeze, Kafka "
    "and the rights on it, journal, evidence store, Spark. Run it where the scheduler and the workers run, with their "
    "environment. Writes one probe file into the evidence store, and changes nothing else. Exit code 0 where all is "
    "OK, 3 where something is not, 4 where something could not be told."
)
@click.option(
    "--connection", "conn_id", default="kafka_default", show_default=True, help="The Airflow Kafka connection."
)
@journal_option
@kafka_options_if_wanted
def command(conn_id: str, journal_url: str | None, kafka_config: dict[str, Any] | None, as_json: bool) -> int:
    """Look at everything, and print one row for each. See the help text."""
    from topicshift.adapters import airflow_here
    from topicshift.commands.installation import AREAS, look
    from topicshift.core.doctor import Row, overall

    why = airflow_here.missing()
    rows: list[Row] = []
    areas: tuple[str, ...] = AREAS
    if why is not None:
        rows = [Row("airflow", "environment", "unknown", f"{why}; what it has is not looked at", _ENVIRONMENT)]
        given = {"kafka": kafka_config, "journal": journal_url}
        areas = tuple(area for area in AREAS if given.get(area))
    rows += look(areas, airflow_here, conn_id, kafka_config=kafka_config, journal_url=journal_url)
    verdict = overall(rows)
    if as_json:
        answer({"verdict": verdict, "rows": [row.values() for row in rows]})
    else:
        _show(rows)
    return {"ok": EXIT_OK, "not_ok": EXIT_NO, "unknown": EXIT_UNKNOWN}[verdict]


_STYLE = {"ok": "green", "not_ok": "bold red", "unknown": "bold yellow"}


def _show(rows: list[Row]) -> None:
    from rich.table import Table

    out = console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("", "what", "seen"):
        table.add_column(name, no_wrap=name != "seen", overflow="fold")
    for row in rows:
        seen = escape(row.seen) + (f"\n[dim]do:[/] {escape(row.do)}" if row.do else "")
        verdict = row.verdict.replace("_", " ")
        table.add_row(f"[{_STYLE[row.verdict]}]{verdict}[/]", escape(f"{row.area}: {row.name}"), seen)
    out.print(table)
