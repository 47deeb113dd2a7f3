"""``topicshift postpone``: begin no freeze before a given time, or the next window."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from topicshift.commands.common import EXIT_OK, answer, journal_option, kafka_options, reason_option, tell
from topicshift.commands.migration import announce, open_context, say_what, what_option
from topicshift.core.errors import SpecError


@click.command(
    help="Begin no freeze of MIGRATION before --until, or before its next window. What comes before the freeze goes "
    "on. Airflow's tasks obey it."
)
@click.argument("migration")
@click.option("--until", metavar="TIME", help="ISO 8601 with a time zone: 2026-03-01T02:00+01:00.")
@click.option("--next-window", is_flag=True, help="The beginning of the next window of the spec.")
@click.option("--off", is_flag=True, help="End the postponement.")
@reason_option("no reason given", help="Why, for the audit trail and for who looks next.")
@what_option
@kafka_options
@journal_option
def command(
    migration: str,
    until: str | None,
    next_window: bool,
    off: bool,
    reason: str,
    what: bool,
    kafka_config: dict[str, Any],
    as_json: bool,
    journal_url: str | None,
) -> int:
    """Postpone the freeze of one migration. See the help text."""
    from topicshift.acts import orders

    if [until is not None, next_window, off].count(True) != 1:
        raise SpecError("Give one of --until TIME, --next-window and --off.")
    given = moment(until) if until is not None else None
    with open_context(migration, journal_url, kafka_config) as ctx:
        record, name = ctx.refresh(), ctx.row.migration_id
        wanted = orders.next_window(ctx) if next_window else given
        if wanted is None:
            prospect = orders.Prospect(("the freeze begins as soon as its gate opens",))
        else:
            prospect = orders.postpone_prospect(record, wanted, ctx.clock.now())
        if what:
            return say_what(ctx, prospect, as_json=as_json)
        announce(ctx, prospect)
        if wanted is None:
            orders.no_longer_postponed(ctx)
        else:
            orders.postpone(ctx, wanted, reason)
        if as_json:
            answer({"migration": name, "postponed_until": wanted.isoformat() if wanted else None})
        else:
            tell(f"{name}: " + (f"postponed until {wanted.isoformat()}" if wanted else "not postponed"))
        return EXIT_OK


def moment(text: str) -> datetime:
    """A moment with a time zone, in UTC. Raises ``SpecError``."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise SpecError(f"--until: {text!r} is no time. Write it as 2026-03-01T02:00+01:00.") from None
    if found.tzinfo is None:
        raise SpecError(f"--until: {text!r} names no time zone. Write it as {text}+00:00, for UTC.")
    return found.astimezone(UTC)
