"""``topicshift plan``: what a migration would do, and what speaks against it. Read-only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topicshift.commands.common import (
    EXIT_NO,
    EXIT_OK,
    EXIT_UNKNOWN,
    answer,
    console,
    escape,
    file_option,
    journal_option,
    kafka_options,
    open_journal,
    read_impact,
    say,
    show_findings,
)
from topicshift.core.errors import NotFound, SpecError

if TYPE_CHECKING:
    from topicshift.adapters.journal import SqlJournal
    from topicshift.core.plan.model import Plan


OPTIONS = {
    "TS118": "give the journal that Airflow uses with --journal URL",
    "TS401": "give an impact.json with --impact FILE, or say --without-impact if the keys need not be known",
}
"""What this command's own options can do about a finding. The findings themselves are read in Airflow, too."""


@click.command(help="Print what a migration would do, and what speaks against it. Nothing is changed.")
@click.argument("spec", metavar="SPEC", type=click.Path(path_type=Path, dir_okay=False))
@file_option(
    "--impact", "impact_file", help="impact.json of the key-rehash report: its findings, and its skew for sizing."
)
@click.option(
    "--without-impact",
    is_flag=True,
    help="The keys need not be known: without this, a plan without --impact ends with exit code 4 (unknown).",
)
@journal_option
@kafka_options
def command(
    spec: Path,
    impact_file: Path | None,
    without_impact: bool,
    journal_url: str | None,
    kafka_config: dict[str, Any],
    as_json: bool,
) -> int:
    """Exit code 0 if nothing blocks, 3 if a finding of level error does, 4 if something is unknown.

    Unknown is what could not be read, and the keys where no impact was measured (TS401).
    """
    from topicshift.acts.plan import make_plan
    from topicshift.adapters.controllers import ControllerEnv, controllers
    from topicshift.adapters.kafka.admin import KafkaAdmin
    from topicshift.adapters.policy import policy_from_env
    from topicshift.adapters.readers import refused
    from topicshift.core.spec.io import load_spec

    loaded = load_spec(spec)
    if impact_file is not None and without_impact:
        raise SpecError("--impact and --without-impact contradict each other. Give one of them.")
    policy = policy_from_env()
    impact = read_impact(impact_file) if impact_file is not None else None
    journal = _journal(journal_url)
    admin = KafkaAdmin(kafka_config)
    try:
        with controllers(ControllerEnv(kafka_config, admin)) as movers:
            plan = make_plan(
                loaded,
                admin,
                impact=impact,
                no_impact="left out by --without-impact" if without_impact else None,
                journal=journal,
                route=movers("route"),
                movers=movers,
                policy=policy,
            )
    finally:
        admin.close()
        if journal is not None:
            journal.close()
    if as_json:
        answer(plan)
    else:
        _show(plan)
    # What somebody has excused already (TS401 is a warning then) needs no option.
    for code in dict.fromkeys(f.code for f in plan.findings if f.code in OPTIONS and (f.blocks or f.code != "TS401")):
        say(f"{code}: {OPTIONS[code]}")
    found = policy()
    places = found.reader_locations if found is not None else None
    for line in refused(loaded.opened(), places):
        say(f"A DAG refuses this spec, unless its workers list other places than this shell: {line}")
    if plan.unknown:
        return EXIT_UNKNOWN
    return EXIT_OK if plan.ok else EXIT_NO


def _journal(url: str | None) -> SqlJournal | None:
    """The journal, to see which topics other migrations hold; a default one that was never made is not missed."""
    journal = open_journal(url)
    try:
        journal.find()
    except NotFound:
        if url is not None:
            raise
        return None  # the plan says so (TS118)
    return journal


def _show(plan: Plan) -> None:
    from rich.table import Table

    from topicshift.core.spec.model import Mode

    out = console()
    head = f"[bold]{escape(plan.spec.source)}[/] to [bold]{escape(str(plan.spec.target))}[/]"
    if plan.source and plan.target:
        head += f": {plan.source.partitions} to {plan.target.partitions} partitions"
    out.print(f"{head}, {plan.spec.cutover.value}")
    if plan.spec.mode is Mode.REHEARSE:
        out.print(
            "[bold]a rehearsal[/]: these steps run on shadow topics that are deleted at its end, and no application"
        )
        out.print("is moved. What is found below is about the migration itself, and blocks its rehearsal too.")
    out.print(f"plan {plan.plan_hash[:12]}, taken {plan.taken_at}, cluster {escape(str(plan.cluster_id))}")
    for text in plan.why:
        out.print(f"  {escape(text)}")
    for text in plan.unchecked:
        out.print(f"  [yellow]not checked:[/] {escape(text)}")
    if plan.actions:
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(overflow="fold")
        before = ""
        for action in plan.actions:
            table.add_row(action.step if action.step != before else "", escape(action.text))
            before = action.step
        out.print()
        out.print(table)
    if plan.findings:
        out.print()
        show_findings(plan.findings, out)
    out.print()
    if plan.ok:
        out.print("[green]ok[/]: nothing blocks")
    else:
        blocking = plan.blocking()
        out.print(f"[bold red]blocked[/] by {len(blocking)} finding{'' if len(blocking) == 1 else 's'}")
