"""``topicshift resume-on-source``: end the freeze of a migration; producers go on with the source."""

from __future__ import annotations

from typing import Any

import click

from topicshift.commands import no_journal
from topicshift.commands.common import journal_option, kafka_options, say
from topicshift.commands.migration import finish, open_context, say_what, what_option
from topicshift.commands.no_journal import lost_option


@click.command(
    help="End the freeze of MIGRATION: producers resume on the source and the DENY is lifted, as long as it is certain "
    "that nobody is on the target. The journal's epoch rises, so that whatever acted before is refused from then on. "
    "Exit code 0 when no freeze runs any more, 3 when a person has to look. Where the journal cannot be read, "
    "or is lost (--without-journal), producers on the route go on with the source by what the route's record says."
)
@click.argument("migration")
@click.option("--patience", type=click.FloatRange(min=0), default=120.0, show_default=True, help="Seconds to wait.")
@what_option
@lost_option
@kafka_options
@journal_option
def command(
    migration: str,
    patience: float,
    what: bool,
    lost: bool,
    kafka_config: dict[str, Any],
    as_json: bool,
    journal_url: str | None,
) -> int:
    """End one freeze. See the help text."""
    from topicshift.acts.orders import resume_on_source, resume_prospect

    dead = no_journal.why_dead(journal_url, lost=lost)
    if dead is not None:
        return no_journal.resume_on_source(kafka_config, migration, dead, what=what, as_json=as_json)
    with open_context(migration, journal_url, kafka_config) as ctx:
        prospect = resume_prospect(ctx, ctx.refresh())
        if what:
            return say_what(ctx, prospect, as_json=as_json)
        # What cannot be done, or told, at this moment may be a moment later: the command waits, or says why by itself.
        for line in (*prospect.does, *([f"not now: {prospect.cannot}"] if prospect.cannot else [])):
            say(f"{ctx.row.migration_id}: {line}")
        with ctx.recorded("topicshift resume-on-source"):
            return finish(ctx, resume_on_source(ctx, patience), as_json=as_json)
