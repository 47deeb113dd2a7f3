"""What the commands share that act on one migration: find it, open its context, say what comes next."""

from __future__ import annotations

import difflib
import getpass
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click

from topicshift.commands.common import EXIT_NO, EXIT_OK, EXIT_UNKNOWN, answer, open_journal, say, tell
from topicshift.core.errors import NotFound, Refused, SpecError

if TYPE_CHECKING:
    from topicshift.acts.advance import Outcome
    from topicshift.acts.context import MigrationContext
    from topicshift.acts.orders import Prospect
    from topicshift.core.engine.decision import Decision
    from topicshift.ports import Journal, MigrationRow


def rows_of(journal: Journal, wanted: str) -> list[MigrationRow]:
    """The migrations of this id, or those that touch a topic of this name. Raises ``NotFound`` with a suggestion."""
    return named(journal.find(), wanted)


def named(rows: Sequence[MigrationRow], wanted: str) -> list[MigrationRow]:
    """Those of these migrations that have this id, or that touch a topic of this name.

    Raises ``NotFound`` with a suggestion.
    """
    found = [r for r in rows if r.migration_id == wanted] or [r for r in rows if wanted in (r.source, r.target)]
    if not found:
        names = {n for r in rows for n in (r.migration_id, r.source, r.target)}
        near = difflib.get_close_matches(wanted, sorted(names), n=1)
        hint = f"Did you mean {near[0]}?" if near else "topicshift status --all lists every migration."
        raise NotFound(f"The journal has no migration {wanted!r} and none that touches such a topic. {hint}")
    return found


def person() -> str:
    """Who runs this command, as the operating system says; nobody has verified it."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = f"uid {os.getuid()}"
    return f"os:{name} (unverified)"


@contextmanager
def open_context(
    wanted: str, journal_url: str | None, kafka_config: Mapping[str, Any] | None
) -> Iterator[MigrationContext]:
    """The context of the newest migration of this name, on behalf of the run that owns it."""
    from topicshift.acts.context import MigrationContext
    from topicshift.commands.spark import JobRunner
    from topicshift.commands.wiring import make_ports
    from topicshift.ports import Claim

    def config() -> Mapping[str, Any]:
        if kafka_config is None:
            raise SpecError("No Kafka cluster was named. Give --kafka-config FILE, or --bootstrap-server HOST:PORT.")
        return kafka_config

    with ExitStack() as stack:
        journal = open_journal(journal_url)
        stack.callback(journal.close)
        row = rows_of(journal, wanted)[-1]
        jobs = JobRunner(kafka_config or {})
        stack.callback(jobs.close)
        ports = make_ports(journal, row, config, stack, run_job=jobs)
        ctx = MigrationContext(
            ports,
            row,
            Claim(row.migration_id, row.epoch, row.owner),
            f"command:{getpass.getuser()}@{socket.gethostname()}/{os.getpid()}",
            say,
            began_at=ports.clock.now(),
            actor=person(),
        )
        stack.callback(ctx.close)
        yield ctx


what_option = click.option(
    "--what", is_flag=True, help="Only say what it would do, and why it cannot. Changes nothing."
)


def say_what(ctx: MigrationContext, prospect: Prospect, *, as_json: bool) -> int:
    """Print what an order would do: exit code 0, 3 where it cannot, 4 where that is not known."""
    if as_json:
        answer({"migration": ctx.row.migration_id, **prospect.values()})
    else:
        for line in prospect.does:
            tell(f"{ctx.row.migration_id} would do: {line}")
        if prospect.cannot:
            tell(f"{ctx.row.migration_id} cannot: {prospect.cannot}")
    if not prospect.cannot:
        return EXIT_OK
    return EXIT_UNKNOWN if prospect.unknown else EXIT_NO


def announce(ctx: MigrationContext, prospect: Prospect) -> None:
    """Say on stderr what is about to be done. Raises the prospect's error where it cannot be done."""
    prospect.require()
    for line in prospect.does:
        say(f"{ctx.row.migration_id}: {line}")


def confirm(name: str) -> None:
    """Ask for the migration's name. Raises ``SpecError`` where nobody can be asked, ``Refused`` for another answer."""
    if not sys.stdin.isatty():
        raise SpecError("There is no terminal to ask at. Nothing was changed. Give --yes to confirm.")
    if click.prompt(f"Type the migration's id ({name}) to confirm", err=True) != name:
        raise Refused("Not confirmed. Nothing was changed.")


def carry_out(
    ctx: MigrationContext,
    order: str,
    prospect: Prospect,
    do: Callable[[], Outcome],
    *,
    what: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Say what an order would do (``what``), or say it, ask unless ``yes``, and do it; returns the exit code."""
    if what:
        return say_what(ctx, prospect, as_json=as_json)
    announce(ctx, prospect)
    if not yes:
        confirm(ctx.row.migration_id)
    with ctx.recorded(f"topicshift {order}"):
        return finish(ctx, do(), as_json=as_json)


def say_report(ctx: MigrationContext) -> None:
    """Say on stderr where the report lies, where this command has drawn it."""
    if ctx.reported:
        say(f"{ctx.row.migration_id}: report: {ctx.reported}")


def told(decision: Decision) -> dict[str, Any]:
    """A decision as plain values."""
    return {
        "kind": decision.kind.value,
        "act": decision.act.value if decision.act else None,
        "question": decision.ask.value if decision.ask else None,
        "of": decision.subject,
        "step": decision.step.value if decision.step else None,
        "why": decision.why,
        "do": decision.do,
        "rule": decision.rule,
    }


def finish(ctx: MigrationContext, outcome: Outcome, *, as_json: bool) -> int:
    """Print how an advance ended and return the exit code: 0 done, 3 a person is needed, 4 it still waits."""
    from topicshift.acts.advance import Asking, Done

    name, row = ctx.row.migration_id, ctx.journal.current(ctx.row.migration_id)
    say_report(ctx)
    said: dict[str, Any] = {"migration": name, "state": row.state}
    if isinstance(outcome, Done):
        said |= {"outcome": "done", "why": outcome.why}
        text, code = f"{name}: done: {outcome.why}", EXIT_OK
    elif isinstance(outcome, Asking):
        subject = f" --of {outcome.subject}" if outcome.subject else ""
        said |= {"outcome": "asks", "question": outcome.ask.value, "of": outcome.subject, "about": outcome.about}
        said |= {"why": outcome.decision.why}
        text = (
            f"{name} asks: {outcome.decision.why}\n  about: {outcome.about}\n"
            f"Answer with: topicshift answer {name} {outcome.ask.value}{subject} yes|no"
        )
        code = EXIT_NO
    else:
        said |= {"outcome": "waits", "why": outcome.why}
        text, code = f"{name} waits: {outcome.why}", EXIT_UNKNOWN
    if as_json:
        answer(said)
    else:
        tell(text)
    return code
