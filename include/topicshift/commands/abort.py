"""``topicshift abort``: end a migration in the way that holds now."""

from __future__ import annotations

from typing import Any

import click

from topicshift.commands.common import journal_option, kafka_options, reason_option
from topicshift.commands.migration import carry_out, open_context, what_option


@click.command(
    help="End MIGRATION in the way that holds now, and say first which that is. Before its target was made there is "
    "nothing to undo. As long as nothing was written to the target, producers resume on the source, the empty target "
    "is deleted and participants are disarmed. After that it is refused, with the ways that are left. Exit code 0 when "
    "it has ended, 3 when it cannot, 4 when that is not known or it still waits."
)
@click.argument("migration")
@reason_option()
@click.option("--patience", type=click.FloatRange(min=0), default=120.0, show_default=True, help="Seconds to wait.")
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
    """Abort one migration. See the help text."""
    from topicshift.acts.orders import abort, abort_prospect

    with open_context(migration, journal_url, kafka_config) as ctx:
        prospect = abort_prospect(ctx, ctx.refresh())
        return carry_out(
            ctx, "abort", prospect, lambda: abort(ctx, reason, patience), what=what, yes=yes, as_json=as_json
        )
