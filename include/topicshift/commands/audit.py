"""``topicshift audit``: is the audit trail of a migration intact, and what does it say?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topicshift.commands.common import (
    EXIT_NO,
    EXIT_OK,
    EXIT_UNKNOWN,
    answer,
    file_option,
    journal_option,
    json_option,
    open_journal,
    say,
    tell,
)
from topicshift.commands.migration import rows_of
from topicshift.core.errors import NotFound, SpecError, Transient
from topicshift.core.text import one_line

if TYPE_CHECKING:
    from topicshift.adapters.journal import SqlJournal
    from topicshift.core.proof.audit import ChainHead
    from topicshift.ports import EventRow, MigrationRow, StepRow


@click.group(help="Verify or export the audit trail of a migration. See docs/audit.md for what a trail proves.")
def command() -> None:
    """The two subcommands are below."""


@command.command(
    help="Check every row of a trail, and the steps against it: of a MIGRATION in the journal (its id, or one of its "
    "topics: the latest of them), or of a BUNDLE, a file that audit export --out made, for which neither journal nor "
    "Airflow is needed. Exit code 0 intact, 3 broken."
)
@click.argument("migration", metavar="MIGRATION|BUNDLE")
@click.option(
    "--head",
    "known_head",
    metavar="COUNT:HASH",
    help="The end of the trail as it was noted elsewhere earlier; everything up to it must still be as it was.",
)
@file_option("--public-key", help="PEM file with the key by which the bundle must be signed.")
@journal_option
@json_option
def verify(
    migration: str, known_head: str | None, public_key: Path | None, journal_url: str | None, as_json: bool
) -> int:
    """Name every broken row, and every file of a bundle that is not what was exported."""
    noted = None if known_head is None else _head(known_head)
    if _is_file(migration):
        from topicshift.commands.bundle import judge

        found = judge(Path(migration), public_key, noted)
    elif public_key is not None:
        raise NotFound(f"{migration}: there is no such file, and --public-key is for a bundle. Name the bundle.")
    else:
        found = _judge(migration, journal_url, noted)
        migration = found["migration"]
    if as_json:
        answer(found)
        return _code(found)
    lines = found["broken"]
    if lines:
        tell(f"{migration}: BROKEN: {len(lines)} place{'' if len(lines) == 1 else 's'}")
        for line in lines:
            tell(f"  {one_line(line)}")
        kept = "the database" if "problems" in found else "the file"
        say(f"Keep {kept} as it is and compare it with a backup; docs/audit.md says what each kind means.")
        return EXIT_NO
    word = "NOT WHOLE, intact as far as it goes" if found.get("missing") else "intact"
    tell(f"{migration}: {word}: {found['events']} events, head {found['head']}")
    for line in found.get("notes", ()):
        tell(f"  {one_line(line)}")
    return _code(found)


def _code(found: dict[str, Any]) -> int:
    """Evidence that is missing is unknown: what was in it can be told by nobody."""
    return EXIT_NO if found["broken"] else EXIT_UNKNOWN if found.get("missing") else EXIT_OK


def _judge(migration: str, journal_url: str | None, noted: ChainHead | None) -> dict[str, Any]:
    from topicshift.core.proof import audit

    journal = open_journal(journal_url)
    try:
        migration = rows_of(journal, migration)[-1].migration_id
        row, head, events, steps = snapshot(journal, migration)
    finally:
        journal.close()
    problems = audit.verify(events, head, migration_id=migration)
    lines = [p.line() for p in problems] + audit.verify_steps(steps, events)
    lines += [f"the migration's row: {line}" for line in audit.verify_row(row, events)]
    if noted is not None:
        lines += audit.verify_noted(events, noted)
    return {
        "migration": migration,
        "intact": not lines,
        "events": len(events),
        "head": f"{head.count}:{head.hash}",
        "problems": [p.model_dump(mode="json") for p in problems],
        "broken": lines,
    }


def snapshot(journal: SqlJournal, migration: str) -> tuple[MigrationRow, ChainHead, list[EventRow], list[StepRow]]:
    """Row, trail and steps of one moment, also while the migration runs."""
    for _ in range(20):
        head, events = journal.trail(migration)
        row, steps = journal.current(migration), journal.steps(migration)
        if journal.trail(migration)[0] == head:
            return row, head, events, steps
    raise Transient(f"The trail of {migration} grows faster than it can be read. Try again.")


@command.command(
    help="Print the trail of MIGRATION (its id, or one of its topics: the latest of them): one JSON object a "
    "line, or as text for people. Verified first. With --out: one archive with "
    "trail, evidence and report, which audit verify checks without a journal."
)
@click.argument("migration")
@click.option("--format", "form", type=click.Choice(["jsonl", "text"]), default="jsonl", show_default=True)
@file_option("--out", help="Write a bundle, a ZIP archive, instead of printing the trail.")
@file_option("--key", help="PEM file with the Ed25519 key that signs the bundle.")
@click.option(
    "--key-conn-id", metavar="ID", help="Airflow connection with that key, as its password or in extra.key_file."
)
@journal_option
@click.option("--json", "as_json", is_flag=True, help="The same as --format jsonl.")
def export(
    migration: str,
    form: str,
    out: Path | None,
    key: Path | None,
    key_conn_id: str | None,
    journal_url: str | None,
    as_json: bool,
) -> int:
    """A trail that is broken is exported all the same, with exit code 3; one without all its evidence with 4."""
    from topicshift.core.proof import audit
    from topicshift.core.proof.bundle import trail_lines

    if out is None and (key or key_conn_id):
        raise SpecError("--key and --key-conn-id sign a bundle. Give --out FILE as well.")
    missing: list[str] = []
    journal = open_journal(journal_url)
    try:
        migration = rows_of(journal, migration)[-1].migration_id
        row, head, events, steps = snapshot(journal, migration)
        if out is None:
            lines = as_json or form == "jsonl"
            click.echo(trail_lines(head, events) if lines else to_text(migration, head, events), nl=False)
        else:
            from topicshift.commands.bundle import make

            missing = make(row, head, events, steps, out, key, key_conn_id)
    finally:
        journal.close()
    problems = audit.verify(events, head, migration_id=migration)
    for problem in problems:
        say(f"BROKEN: {problem.line()}")
    return EXIT_NO if problems else EXIT_UNKNOWN if missing else EXIT_OK


def to_text(migration: str, head: ChainHead, events: list[EventRow]) -> str:
    """The events for people: one paragraph each."""
    out = [f"Audit trail of {migration}", f"{head.count} events, head {head.hash}", ""]
    for event in events:
        out.append(f"{event.seq:>5}  {event.at}  {event.kind}  by {event.actor}, epoch {event.epoch}")
        out += [f"       {line}" for line in _flat(event.data)]
    return "\n".join(map(one_line, out)) + "\n"


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


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False
