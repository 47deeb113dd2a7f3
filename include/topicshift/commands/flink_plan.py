"""``topicshift flink-plan``: the compiled plan of a Flink SQL job, given another source for the target."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from topicshift.commands.common import EXIT_OK, answer, json_option, say, tell
from topicshift.core.errors import SpecError


@click.command(
    "flink-plan",
    help="Make the compiled plan with which a Flink SQL job reads the target: PLAN with another id for the source "
    "that reads a table. Touches no cluster.",
)
@click.argument("plan", metavar="PLAN", type=click.Path(path_type=Path))
@click.option("--table", required=True, metavar="NAME", help="The table that reads the topic.")
@click.option("--id", "number", type=click.IntRange(1), metavar="N", help="The source's id; a free one by default.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where it is written; {uid} in its name is replaced. It is not overwritten.",
)
@json_option
def command(plan: Path, table: str, number: int | None, out: Path | None, as_json: bool) -> int:
    """Exit code 0 once it is written, or shown without ``--out``."""
    from topicshift.core.flink.plan import source_of, with_other_source
    from topicshift.core.text import parse_json

    try:
        there = parse_json(plan.read_text())
        before, (made, after) = source_of(there, table), with_other_source(there, table, number)
    except OSError as error:
        raise SpecError(f"{plan} cannot be read ({error.strerror}). Name the file that COMPILE PLAN wrote.") from None
    except ValueError as error:
        raise SpecError(f"{plan}: {error}. Name the file that COMPILE PLAN wrote, and a table that it reads.") from None
    file = None if out is None else Path(str(out).replace("{uid}", after.uid))
    if file is not None:
        _write(file, json.dumps(made, indent=2) + "\n", plan.stat().st_mode & 0o777)
    found = {"table": before.table, "source_uid": before.uid, "target_uid": after.uid}
    if as_json:
        answer({**found, "file": None if file is None else str(file)})
        return EXIT_OK
    tell(f"source_uid: {before.uid}\ntarget_uid: {after.uid}")
    where = f"written to {file}" if file is not None else "not written; name a file with --out"
    say(f"the source of {before.table} has the id {after.number} now: {where}")
    return EXIT_OK


def _write(file: Path, text: str, mode: int) -> None:
    """A new file that the same people may read as the plan, since both hold the settings of its tables."""
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as out:
            out.write(text)
    except OSError as error:
        raise SpecError(f"{file} cannot be written ({error.strerror}). Name a file that is not there yet.") from None
