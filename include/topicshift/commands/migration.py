"""What the commands share that act on one migration: find it, open its context, say what comes next."""

from __future__ import annotations

import difflib
import getpass
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from topicshift.commands.common import EXIT_NO, EXIT_OK, EXIT_UNKNOWN, answer, open_journal, say, tell
from topicshift.core.errors import NotFound

if TYPE_CHECKING:
    from topicshift.acts.advance import Outcome
    from topicshift.acts.context import MigrationContext
    from topicshift.core.engine.decision import Decision
    from topicshift.ports import Journal, MigrationRow


def rows_of(journal: Journal, wanted: str) -> list[MigrationRow]:
    """The migrations of this id, or those that touch a topic of this name. Raises ``NotFound`` with a suggestion."""
    rows = journal.find()
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
    from topicshift.core.errors import SpecError
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
