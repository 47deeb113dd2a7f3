"""``topicshift pause``: begin nothing new in a migration until it is told to go on."""

from __future__ import annotations

from typing import Any

import click

from topicshift.commands.common import EXIT_OK, answer, journal_option, kafka_options, reason_option, tell
from topicshift.commands.migration import announce, open_context, say_what, what_option


@click.command(
    help="Begin nothing new in MIGRATION until `topicshift advance`, or --off. What has begun is finished; after the "
    "switch the fence and its DENY are looked after in a pause too. Refused while producers stand still: end the "
    "freeze with resume-on-source first. Airflow's tasks obey it."
)
@click.argument("migration")
@reason_option("no reason given", help="Why, for the audit trail and for who looks next.")
@click.option("--off", is_flag=True, help="End the pause, and leave it to Airflow to go on.")
@what_option
@kafka_options
@journal_option
def command(
    migration: str,
    reason: str,
    off: bool,
    what: bool,
    kafka_config: dict[str, Any],
    as_json: bool,
    journal_url: str | None,
) -> int:
    """Pause one migration. See the help text."""
    from topicshift.acts.orders import Prospect, pause, pause_prospect, unpause
    from topicshift.core.engine.hold import paused, why_paused

    with open_context(migration, journal_url, kafka_config) as ctx:
        record = ctx.refresh()
        prospect = pause_prospect(record)
        if off:
            prospect = Prospect((f"it goes on: {why_paused(record)}" if paused(record) else "nothing: no pause",))
        if what:
            return say_what(ctx, prospect, as_json=as_json)
        announce(ctx, prospect)
        if off:
            unpause(ctx)
        else:
            pause(ctx, reason)
        if as_json:
            answer({"migration": record.migration_id, "paused": not off})
        else:
            tell(f"{record.migration_id}: {'not paused' if off else 'paused'}")
        return EXIT_OK
