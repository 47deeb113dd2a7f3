"""``topicshift audit``: is the audit trail of a migration intact, and what does it say?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topicshift.commands.common import (
    EXIT_NO,
    EXIT_OK,
    answer,
    journal_option,
    json_option,
    open_journal,
    say,
)
from topicshift.core.errors import SpecError, Unreadable
from topicshift.core.files import write_whole

if TYPE_CHECKING:
    from topicshift.core.proof.audit import ChainHead
    from topicshift.ports import EventRow


@click.group(help="Verify or export the audit trail of a migration. See docs/audit.md for what a trail proves.")
def command() -> None:
    """The two subcommands are below."""


@command.command(help="Check every row of a trail, and the steps against it. Exit code 0 intact, 3 broken.")
@click.argument("migration")
@click.option(
    "--head",
    "known_head",
    metavar="COUNT:HASH",
    help="The end of the trail as it was noted elsewhere earlier; everything up to it must still be as it was.",
)
@journal_option
@json_option
def verify(migration: str, known_head: str | None, journal_url: str | None, as_json: bool) -> int:
    """Name every broken row."""
    from topicshift.core.proof import audit

    noted = None if known_head is None else _head(known_head)
    journal = open_journal(journal_url)
    try:
        head, events = journal.trail(migration)
        steps = journal.steps(migration)
    finally:
        journal.close()
    problems = audit.verify(events, head, migration_id=migration)
    lines = [p.line() for p in problems] + audit.verify_steps(steps, events)
    if noted is not None:
        lines += audit.verify_noted(events, noted)
    if as_json:
        answer(
            {
                "migration": migration,
                "intact": not lines,
                "events": len(events),
                "head": f"{head.count}:{head.hash}",
                "problems": [p.model_dump(mode="json") for p in problems],
                "broken": lines,
            }
        )
    elif lines:
        click.echo(f"{migration}: BROKEN: {len(lines)} place{'' if len(lines) == 1 else 's'}")
        for line in lines:
            click.echo(f"  {line}")
        say("Keep the database as it is and compare it with a backup; docs/audit.md says what each kind means.")
    else:
        click.echo(f"{migration}: intact: {len(events)} events, head {head.count}:{head.hash}")
    return EXIT_NO if lines else EXIT_OK


@command.command(help="Print a trail: one JSON object a line, or as text for people. Verified first.")
@click.argument("migration")
@click.option("--format", "form", type=click.Choice(["jsonl", "text"]), default="jsonl", show_default=True)
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Instead of stdout.")
@journal_option
@click.option("--json", "as_json", is_flag=True, help="The same as --format jsonl.")
def export(migration: str, form: str, output: Path | None, journal_url: str | None, as_json: bool) -> int:
    """A trail that is broken is exported all the same, with exit code 3."""
    from topicshift.core.proof import audit

    journal = open_journal(journal_url)
    try:
        head, events = journal.trail(migration)
    finally:
        journal.close()
    text = to_jsonl(head, events) if as_json or form == "jsonl" else to_text(migration, head, events)
    if output is None:
        click.echo(text, nl=False)
    else:
        _write(output, text)
        say(f"{len(events)} events written to {output}")
    problems = audit.verify(events, head, migration_id=migration)
    for problem in problems:
        say(f"BROKEN: {problem.line()}")
    return EXIT_NO if problems else EXIT_OK


def to_jsonl(head: ChainHead, events: list[EventRow]) -> str:
    """The events as JSON lines, and a last line with the head, so that a cut file shows."""
    lines = [json.dumps(asdict(event), ensure_ascii=False) for event in events]
    lines.append(json.dumps({"head": {"count": head.count, "hash": head.hash}}))
    return "\n".join(lines) + "\n"


def to_text(migration: str, head: ChainHead, events: list[EventRow]) -> str:
    """The events for people: one paragraph each."""
    out = [f"Audit trail of {migration}", f"{head.count} events, head {head.hash}", ""]
    for event in events:
        out.append(f"{event.seq:>5}  {event.at}  {event.kind}  by {event.actor}, epoch {event.epoch}")
        out += [f"       {line}" for line in _flat(event.data)]
    return "\n".join(out) + "\n"


def _flat(data: Mapping[str, Any], before: str = "") -> list[str]:
    lines: list[str] = []
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            lines += _flat(value, f"{before}{key}.")
        else:
            said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            lines.append(f"{before}{key}: {' '.join(said.splitlines())}")
    return lines


def _head(text: str) -> ChainHead:
    from topicshift.core.proof.audit import ChainHead

    count, _, digest = text.partition(":")
    if not count.isdigit() or len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise SpecError(f"--head {text!r} is not COUNT:HASH as audit verify prints it. Copy it whole.")
    return ChainHead(count=int(count), hash=digest)


def _write(output: Path, text: str) -> None:
    try:
        write_whole(output, text)
    except OSError as exc:
        raise Unreadable(f"{output} cannot be written: {exc.strerror}. Name a file in a folder of yours.") from None
