"""``topicshift close``: end a migration that will not go on, so that its topics are free again."""

from __future__ import annotations

from typing import Any

import click

from topicshift.commands.common import EXIT_NO, EXIT_OK, answer, journal_option, kafka_options, reason_option, tell
from topicshift.commands.migration import announce, open_context, say_report


@click.command(
    help="End MIGRATION as failed, from any state, and name what it leaves to be done by hand. Its topics are free for "
    "another migration from then on. Moves nobody: end a running freeze with resume-on-source first."
)
@click.argument("migration")
@reason_option()
@click.option("--what", is_flag=True, help="Only say what would be left to do, and why it cannot. Changes nothing.")
@click.option("--even-frozen", is_flag=True, help="Also while a freeze runs, once you know where every producer is.")
@kafka_options
@journal_option
def command(
    migration: str,
    reason: str,
    what: bool,
    even_frozen: bool,
    kafka_config: dict[str, Any],
    as_json: bool,
    journal_url: str | None,
) -> int:
    """Close one migration. See the help text."""
    from topicshift.acts.close import all_leftovers, close
    from topicshift.acts.orders import close_prospect

    with open_context(migration, journal_url, kafka_config) as ctx:
        record = ctx.refresh()
        prospect = close_prospect(ctx, record, even_frozen=even_frozen)
        if what:
            left = all_leftovers(ctx.record_as_held(), record)
            said = {"migration": record.migration_id, "state": record.state.value, "left": left}
            said |= prospect.values()
        else:
            announce(ctx, prospect)
            said = close(ctx, reason, even_frozen=even_frozen)
            say_report(ctx)
        if as_json:
            answer(said)
        else:
            tell(f"{said['migration']}: {said['state']}")
            for line in said["left"]:
                tell(f"  left to do: {line}")
            if prospect.cannot:
                tell(f"{said['migration']} cannot: {prospect.cannot}")
        return EXIT_NO if prospect.cannot else EXIT_OK
