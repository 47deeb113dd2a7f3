"""``topicshift answer``: answer the open question of a migration from a terminal."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from topicshift.commands.common import EXIT_OK, answer, journal_option, kafka_options, tell
from topicshift.commands.migration import open_context, person
from topicshift.core.errors import Refused

GATE_PATIENCE = timedelta(seconds=15)
"""How long the command waits for the gate, behind which a question may stand."""


@click.command(
    help="Answer QUESTION of MIGRATION with yes or no. It is asked anew first, so that the answer is for what holds "
    "now; --about must then be the value that was shown, if it is given. Recorded as the user of the operating system, "
    "unverified; refused where the spec or the installation policy says who may answer."
)
@click.argument("migration")
@click.argument("question")
@click.argument("said", type=click.Choice(["yes", "no"]))
@click.option("--of", "subject", default="", help="The consumer group, where the question is about one.")
@click.option("--about", metavar="HASH", help="What was shown (its mark, or a plan hash); refused if it differs.")
@kafka_options
@journal_option
def command(
    migration: str,
    question: str,
    said: str,
    subject: str,
    about: str | None,
    kafka_config: dict[str, Any],
    as_json: bool,
    journal_url: str | None,
) -> int:
    """Record one answer. See the help text."""
    from topicshift.acts.observe import observe
    from topicshift.acts.questions import about_of, record_answer, record_question
    from topicshift.core.engine.decision import Kind
    from topicshift.core.engine.engine import next_act
    from topicshift.core.engine.words import mark_of

    with open_context(migration, journal_url, kafka_config) as ctx:
        record = ctx.refresh()
        until = ctx.clock.now() + GATE_PATIENCE
        while True:
            view = observe(ctx, record)
            decision = next_act(view)
            # The gate measures rates, which takes more than one look.
            if decision.kind is not Kind.WAIT or decision.rule != "gate" or ctx.clock.now() >= until:
                break
            ctx.clock.sleep(0.5)
        if decision.kind is not Kind.ASK or decision.ask is None:
            raise Refused(f"{ctx.row.migration_id} asks nothing now. It goes on with: {decision.why}.")
        if (decision.ask.value, decision.subject) != (question, subject):
            of = f" --of {decision.subject}" if decision.subject else ""
            raise Refused(
                f"{ctx.row.migration_id} asks {decision.ask.value}{of} now, not {question}. Nothing was said."
            )
        now = about_of(decision.ask, decision.subject, record, view)
        mark = mark_of(now)
        if about is not None and about not in (mark, *map(str, now.values())):
            raise Refused(f"What is asked has changed: it is about {now} now [{mark}], not {about}. Nothing was said.")
        record_question(ctx, decision.ask, decision.subject, now, decision.why)
        record_answer(ctx, decision.ask, decision.subject, now, "yes" if said == "yes" else "no", actor=person())
        result = {"migration": ctx.row.migration_id, "question": question, "of": subject, "said": said, "about": now}
        if as_json:
            answer({**result, "by": person()})
        else:
            tell(f"{ctx.row.migration_id}: {question}: {said} by {person()}, about {now}")
        return EXIT_OK
