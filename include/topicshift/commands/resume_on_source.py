"""``topicshift resume-on-source``: end the freeze of a migration; producers go on with the source."""

from __future__ import annotations

from typing import Any

import click

from topicshift.commands.common import journal_option, kafka_options
from topicshift.commands.migration import finish, open_context


@click.command(
    help="End the freeze of MIGRATION: producers resume on the source and the DENY is lifted, as long as it is certain "
    "that nobody is on the target. The journal's epoch rises, so that whatever acted before is refused from then on. "
    "Exit code 0 when no freeze runs any more, 3 when a person has to look."
)
@click.argument("migration")
@click.option("--patience", type=click.FloatRange(min=0), default=120.0, show_default=True, help="Seconds to wait.")
@kafka_options
@journal_option
def command(
    migration: str, patience: float, kafka_config: dict[str, Any], as_json: bool, journal_url: str | None
) -> int:
    """End one freeze. See the help text."""
    from topicshift.acts.advance import Done, advance
    from topicshift.core.engine.decision import over
    from topicshift.core.engine.words import Row, StepState
    from topicshift.core.errors import TopicshiftError

    with open_context(migration, journal_url, kafka_config) as ctx, ctx.recorded("topicshift resume-on-source"):
        frozen = ctx.refresh().freeze is not None
        try:
            outcome = advance(ctx, wanted="resume", patience_s=patience)
        except TopicshiftError as error:
            record = ctx.refresh()
            if not frozen or record.at(Row.FREEZE) is not StepState.UNDONE:
                raise
            # Producers are back: for a run that is the failure it has to end with, for this command the answer.
            outcome = Done(str(error), record, over(str(error)))
        return finish(ctx, outcome, as_json=as_json)
