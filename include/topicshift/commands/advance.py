"""``topicshift advance``: go on with a migration from a terminal, when Airflow is down or in the way."""

from __future__ import annotations

from typing import Any

import click

from topicshift.commands.common import (
    EXIT_NO,
    EXIT_OK,
    EXIT_UNKNOWN,
    answer,
    journal_option,
    kafka_options,
    say,
    tell,
)
from topicshift.commands.migration import finish, open_context, told
from topicshift.core.engine.decision import Decision, Kind
from topicshift.core.engine.words import ORDER, Step
from topicshift.core.spec.cutover import Cutover

_CODES = {Kind.ASK: EXIT_NO, Kind.STOP: EXIT_NO, Kind.WAIT: EXIT_UNKNOWN}
"""Exit codes of what would come next, as of an advance that ends with it."""

STEPS = [step.value for step in ORDER[Cutover.DRAIN_FIRST]]


def _lines(name: str, decision: Decision) -> list[str]:
    what = " ".join(word for word in (decision.kind, decision.act or decision.ask or "", decision.subject) if word)
    return [f"{name}: {what}: {decision.why}", *([f"  do: {decision.do}"] if decision.do else [])]


@click.command(
    help="Go on with MIGRATION (its id, or one of its topics) as Airflow's tasks do: one and the same engine decides. "
    "Acts of several advancers are serialised by the journal, so this may run beside Airflow. Ends when the step "
    "UNTIL is done, when a person is needed (exit code 3), or after --patience seconds of waiting (exit code 4). Ends "
    "a pause first; a postponed freeze keeps its time."
)
@click.argument("migration")
@click.option("--until", type=click.Choice(STEPS), help="The last step to do; by default to the end.")
@click.option("--patience", type=click.FloatRange(min=0), default=600.0, show_default=True, help="Seconds to wait.")
@click.option("--what", is_flag=True, help="Only say what comes next, and why. Changes nothing. Same exit codes.")
@kafka_options
@journal_option
def command(
    migration: str,
    until: str | None,
    patience: float,
    what: bool,
    kafka_config: dict[str, Any],
    as_json: bool,
    journal_url: str | None,
) -> int:
    """Advance one migration. See the help text."""
    from topicshift.acts.advance import advance
    from topicshift.acts.observe import observe
    from topicshift.acts.orders import unpause
    from topicshift.core.engine.engine import next_act
    from topicshift.core.engine.hold import paused, why_paused

    with open_context(migration, journal_url, kafka_config) as ctx:
        if what:
            record = ctx.refresh()
            decision = next_act(observe(ctx, record))
            if as_json:
                answer({"migration": record.migration_id, **told(decision)})
            else:
                for line in _lines(record.migration_id, decision):
                    tell(line)
                if paused(record):
                    tell(f"{record.migration_id} would end this first: {why_paused(record)}")
            return EXIT_OK if paused(record) else _CODES.get(decision.kind, EXIT_OK)
        was = unpause(ctx)
        if was:
            say(f"{ctx.row.migration_id} goes on: it was {was}")
        for line in _lines(ctx.row.migration_id, next_act(observe(ctx, ctx.refresh()))):
            say(line)
        with ctx.recorded("topicshift advance"):
            outcome = advance(ctx, until=Step(until) if until else None, patience_s=patience)
        return finish(ctx, outcome, as_json=as_json)
