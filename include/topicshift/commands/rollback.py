"""``topicshift rollback``: go back to the source, by the type of rollback that holds now."""

from __future__ import annotations

from typing import Any

import click

from topicshift.commands.common import journal_option, kafka_options, reason_option
from topicshift.commands.migration import carry_out, open_context, what_option


@click.command(
    help="Roll MIGRATION back to its source, and say first of which type that is now, why, and what it does. `free`: "
    "nothing was written to the target. `drain_back`: every group reads the target, then producers and groups go back, "
    "with the order of each key kept. `forward_only`: refused, with the reason. A rollback that was begun goes on. "
    "Exit code 0 when it is rolled back, 3 when it cannot or a person is needed, 4 when that is not known or it still "
    "waits: say it again then, or trigger topic_rollback."
)
@click.argument("migration")
@reason_option()
@click.option("--patience", type=click.FloatRange(min=0), default=600.0, show_default=True, help="Seconds to wait.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@what_option
@kafka_options
@journal_option
def command(
    migration: str,
    reason: str,
    patience: float,
    yes: bool,
    what: bool,
    kafka_config: dict[str, Any],
    as_json: bool,
    journal_url: str | None,
) -> int:
    """Roll one migration back. See the help text."""
    from topicshift.acts.going_back import go_back, way_back

    with open_context(migration, journal_url, kafka_config) as ctx:
        prospect = way_back(ctx, ctx.refresh())
        return carry_out(
            ctx,
            "rollback",
            prospect,
            lambda: go_back(ctx, reason, prospect, patience),
            what=what,
            yes=yes,
            as_json=as_json,
        )
