"""``topicshift replay``: write records that came to the source too late to the target, one by one or all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from topicshift.commands.common import journal_option, kafka_options, reason_option
from topicshift.commands.migration import carry_out, open_context, what_option
from topicshift.core.drain.replay import place_of

if TYPE_CHECKING:
    from topicshift.acts.advance import Outcome


@click.command(
    help="Write records that came to the source of MIGRATION after its fence to its target, where released groups can "
    "read them. Only once every group is released, and never by itself. --what lists each record by key, partition and "
    "offset, with where it would go, a warning where its key has later records in the target, and the groups that "
    "would get it a second time. Each gets the header topicshift-replayed; the order proof is made anew and counts "
    "them apart. Needs WRITE on the target. Exit code 3 when a person still has to accept the others."
)
@click.argument("migration")
@click.option("--record", "records", metavar="PARTITION:OFFSET", multiple=True, help="Only this one. May be repeated.")
@reason_option("no reason given")
@click.option("--patience", type=click.FloatRange(min=0), default=300.0, show_default=True, help="Seconds to wait.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@what_option
@kafka_options
@journal_option
def command(
    migration: str,
    records: tuple[str, ...],
    reason: str,
    patience: float,
    yes: bool,
    what: bool,
    kafka_config: dict[str, Any],
    as_json: bool,
    journal_url: str | None,
) -> int:
    """Replay late records. See the help text."""
    from topicshift.acts.advance import advance
    from topicshift.acts.replay_order import order_replay, replay_prospect

    places = [place_of(text) for text in records] or None
    with open_context(migration, journal_url, kafka_config) as ctx:

        def do() -> Outcome:
            order_replay(ctx, places, reason)
            return advance(ctx, patience_s=patience)

        prospect = replay_prospect(ctx, ctx.refresh(), places)
        return carry_out(ctx, "replay", prospect, do, what=what, yes=yes, as_json=as_json)
