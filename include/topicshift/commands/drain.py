"""``topicshift drain``: has every consumer group read everything? Read-only."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topicshift.commands.common import (
    EXIT_NO,
    EXIT_OK,
    EXIT_UNKNOWN,
    EXIT_USAGE,
    console,
    duration_option,
    escape,
    file_option,
    kafka_options,
    say,
)
from topicshift.commands.drain_options import fence_of_file, inputs_of_options
from topicshift.core.errors import TopicshiftError, Unreadable
from topicshift.core.kafka.partitions import listed
from topicshift.core.text import printable_json

if TYPE_CHECKING:
    from topicshift.acts.drain import DrainTaker
    from topicshift.adapters.kafka.connection import Connection
    from topicshift.core.drain.certificate import DrainCertificate, GroupEvidence
    from topicshift.core.drain.progress import DrainProgress

REQUEST_S = 8.0
"""Seconds for one request, and below what one look may take in all: 60 s against a cluster that is half dead."""
LOOK_S = 50.0
_SAY_EVERY_S = 5.0
_ERRORS = 20


@click.command("drain")
@click.option("--topic", metavar="T", help="The topic. With --spec it is the spec's source.")
@click.option("--group", "groups", multiple=True, metavar="G", help="Certify this group only (may be repeated).")
@file_option(
    "--spec",
    "spec_file",
    metavar="SPEC",
    help="Take topic, groups, ignored groups and accepted losses from a spec; an undeclared reader blocks.",
)
@file_option(
    "--fence",
    "fence_file",
    help="fence.json of a run: certify up to its offsets, and say so if the topic has grown since.",
)
@click.option("--wait", "wait", metavar="DURATION", help="Wait so long for drained, for instance 90s or 15m.")
@click.option(
    "--alarm-after",
    default="60s",
    show_default=True,
    metavar="DURATION",
    help="While waiting: say why a group may be stuck once it has not come nearer for so long.",
)
@click.option("--accept-lost", multiple=True, metavar="GROUP", help="Accept records that this group lost unread.")
@click.option("--ignore-group", multiple=True, metavar="G=REASON", help="Leave a group out, with a reason.")
@file_option(
    "--evidence",
    "evidence_files",
    multiple=True,
    help="JSON of readers that commit nothing (reader, kind, topic, offsets or statement).",
)
@click.option(
    "--spark-checkpoint",
    "checkpoints",
    multiple=True,
    metavar="NAME=FOLDER",
    help="A Spark Structured Streaming query that reads the topic, and its checkpoint folder.",
)
@click.option(
    "--connector",
    "connectors",
    multiple=True,
    metavar="NAME=URL",
    help="A Kafka Connect connector that reads the topic: http://worker:8083/connectors/NAME.",
)
@kafka_options
def command(
    topic: str | None,
    groups: tuple[str, ...],
    spec_file: Path | None,
    fence_file: Path | None,
    wait: str | None,
    alarm_after: str,
    accept_lost: tuple[str, ...],
    ignore_group: tuple[str, ...],
    evidence_files: tuple[Path, ...],
    checkpoints: tuple[str, ...],
    connectors: tuple[str, ...],
    kafka_config: dict[str, Any],
    as_json: bool,
) -> int:
    """Has every consumer group read everything in a topic?

    Each partition of the topic is looked at for each group, never only what happens to be committed. Where arithmetic
    cannot tell (transaction markers, aborted records, compaction), the tail is read. Without --group every group that
    reads the topic is certified. docs/drain.md explains each reason and its remedy.

    Exit codes: 0 drained; 3 not drained; 4 unknown (something could not be read); 2 wrong use, or a topic or group
    that does not exist.
    """
    from topicshift.acts.drain import DrainTaker
    from topicshift.acts.drain_inputs import DrainConfig
    from topicshift.adapters.executor import run_async
    from topicshift.adapters.kafka.reader import KafkaDrainReader

    wait_s = duration_option("--wait", wait, zero=True) if wait is not None else None
    stuck_after_s = duration_option("--alarm-after", alarm_after)
    inputs = inputs_of_options(
        topic, groups, spec_file, accept_lost, ignore_group, evidence_files, checkpoints, connectors
    )
    fence = fence_of_file(fence_file, inputs.topic) if fence_file is not None else None
    reader = KafkaDrainReader.from_config(kafka_config, timeout_s=REQUEST_S)
    taker = DrainTaker(reader, inputs, fence=fence, config=DrainConfig(stuck_after_s=stuck_after_s))
    try:
        certificate = with_transactions(run_async(lambda: _run(taker, wait_s)), reader.connection)
    finally:
        reader.connection.close()
    if as_json:
        print_json(certificate)
    else:
        print_text(certificate)
    return _exit_code(certificate)


async def _run(taker: DrainTaker, wait_s: float | None) -> DrainCertificate:
    from topicshift.acts.drain_watch import DrainWatch
    from topicshift.core.drain.certificate import Raised

    if wait_s is None:
        try:
            async with asyncio.timeout(LOOK_S):
                return await taker.take()
        except TimeoutError:
            raise Unreadable(
                f"The cluster did not answer everything within {LOOK_S:.0f} s. Unknown is never taken as a yes. "
                "Look at the brokers and at the network, and ask again."
            ) from None
    watch = DrainWatch(taker, timeout_s=wait_s)
    said_at = 0.0
    alarms: list[Raised] = []
    async for progress in watch:
        alarms = [Raised(group=g.group, code=str(g.alarm), text=g.alarm_text) for g in progress.alarms]
        if progress.at - said_at >= _SAY_EVERY_S:
            said_at = progress.at
            _say(progress)
    assert watch.certificate is not None
    return watch.certificate.model_copy(update={"alarms": alarms})


def _say(progress: DrainProgress) -> None:
    say(progress.line())
    for group in progress.alarms:
        say(f"  {group.alarm_text}")


# --------------------------------------------------------------------------------------------------------- answers


def _exit_code(certificate: DrainCertificate) -> int:
    from topicshift.core.drain.certificate import Verdict
    from topicshift.core.drain.reasons import Reason

    if Reason.TOPIC_NOT_FOUND in certificate.reasons:
        say(f"Topic {certificate.topic} does not exist, or this client may not see it. Check its name and the cluster.")
        return EXIT_USAGE
    missing = [g.group for g in certificate.groups if any(r.reason == Reason.GROUP_NOT_FOUND for r in g.partitions)]
    if missing:
        say(
            f"The brokers know no group {', '.join(missing)}: it has no members and no commits. Correct the name, or "
            "start it once so that it commits."
        )
        return EXIT_USAGE
    return {Verdict.DRAINED: EXIT_OK, Verdict.NOT_DRAINED: EXIT_NO, Verdict.UNKNOWN: EXIT_UNKNOWN}[certificate.verdict]


def with_transactions(certificate: DrainCertificate, connection: Connection) -> DrainCertificate:
    """The certificate with who holds the open transactions that it speaks of."""
    import time

    from topicshift.adapters.kafka.transactions import TransactionsAdmin
    from topicshift.core.drain.certificate import Unread
    from topicshift.core.drain.reasons import Reason
    from topicshift.core.fence.decision import FenceSample, FenceSettings, find_open_transactions

    held = {r.partition for g in certificate.groups for r in g.partitions if r.reason == Reason.OPEN_TRANSACTION}
    if not held:
        return certificate
    admin, at = TransactionsAdmin(connection), time.time()
    try:
        producers = tuple(admin.producers(certificate.topic, sorted(held)))
        known = tuple(admin.transactions(certificate.topic))
    except TopicshiftError as exc:
        unread = Unread(partitions=sorted(held), error=f"Who holds the open transaction(s) cannot be told: {exc}")
        return certificate.model_copy(update={"errors": [*certificate.errors, unread]})
    sample = FenceSample(at, at, certificate.topic_id, None, producers, known, ())
    found = [t for t in find_open_transactions(sample, FenceSettings(), int(at * 1000)) if t.partition in held]
    return certificate.model_copy(update={"transactions": found})


def print_json(certificate: DrainCertificate) -> None:
    """The certificate as ``model_dump_json(indent=2)`` has it, a group at a time, so that memory stays bounded."""
    if not certificate.groups:
        click.echo(printable_json(certificate.model_dump_json(indent=2)))
        return
    before, after = _halves(certificate, "groups")
    click.echo(printable_json(before) + "[", nl=False)
    # Groups share their rows (nearly all stand at the end), so each row is written out once.
    rows: dict[int, str] = {}
    for number, group in enumerate(certificate.groups):
        for row in group.partitions:
            if id(row) not in rows:
                rows[id(row)] = row.model_dump_json(indent=2).replace("\n", "\n" + " " * 8)
        head, tail = _halves(group, "partitions")
        separator = ",\n" + " " * 8
        inner = "\n" + " " * 8 + separator.join([rows[id(r)] for r in group.partitions]) + "\n      "
        text = head.replace("\n", "\n    ") + "[" + (inner if group.partitions else "") + "]"
        text += tail.replace("\n", "\n    ")
        click.echo((",\n    " if number else "\n    ") + printable_json(text), nl=False)
    click.echo("\n  ]" + after)


def _halves(model: DrainCertificate | GroupEvidence, field: str) -> tuple[str, str]:
    """The JSON before and after the list in ``field``: quotes in strings are escaped, so its words are unique."""
    text = model.model_copy(update={field: []}).model_dump_json(indent=2)
    before, after = text.split(f'"{field}": []', 1)
    return f'{before}"{field}": ', after


_COLOUR = {"drained": "bold green", "not_drained": "bold yellow", "unknown": "bold red"}


def print_text(certificate: DrainCertificate) -> None:
    """A table of the groups, and below it every reason with its remedy. It tells nothing that the JSON does not."""
    import time

    from rich.table import Table

    from topicshift.core.drain.certificate import Verdict
    from topicshift.core.drain.decision import summary
    from topicshift.core.drain.progress import row_lag
    from topicshift.core.drain.reasons import REASONS, Reason, explain

    out = console()
    up_to = "the fence" if certificate.fence_offsets is not None else "the end offsets of this moment"
    verdict = certificate.verdict.value
    out.print(
        f"[{_COLOUR[verdict]}]{verdict.replace('_', ' ')}[/] {escape(certificate.topic)} up to {up_to}, "
        f"{certificate.taken_at}"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("group", "kind", "state", "verdict"):
        table.add_column(column, overflow="fold")
    table.add_column("drained", justify="right")
    table.add_column("lag", justify="right")
    table.add_column("reasons (partitions)", overflow="fold")
    codes = summary(certificate)
    used: dict[str, None] = {}
    for group in certificate.groups:
        done = sum(1 for r in group.partitions if r.verdict is Verdict.DRAINED)
        lags = [row_lag(r) for r in group.partitions]
        lag = "?" if None in lags else str(sum(v for v in lags if v is not None))
        said = "; ".join(f"{code} ({listed(ps)})" for code, ps in sorted(codes[group.group].items()))
        used |= dict.fromkeys(sorted(codes[group.group]))
        table.add_row(
            escape(group.group),
            group.kind,
            group.state,
            f"[{_COLOUR[group.verdict.value]}]{group.verdict.value.replace('_', ' ')}[/]",
            f"{done}/{len(group.partitions)}",
            lag,
            escape(said),
        )
    if certificate.groups:
        out.print(table)
    for code in used:
        told = REASONS[Reason(code)]
        out.print(f"[bold]{code}[/]: {escape(told.meaning)}\n  do: {escape(told.remedy)}")
    for entry in certificate.reasons:
        reason, subject, told = explain(entry)
        why = certificate.ignored.get(subject, "") if reason is Reason.IGNORED_GROUP else ""
        of = f" {escape(subject)}" if subject else ""
        out.print(f"[bold]{reason.value}[/]{of}: {escape(why or told.meaning)}\n  do: {escape(told.remedy)}")
    for unread in certificate.errors[:_ERRORS]:
        where = [unread.group] if unread.group else []
        where += [f"partitions {listed(unread.partitions)}"] if unread.partitions else []
        out.print(f"[bold]not read[/] {escape(', '.join(where) or certificate.topic)}: {escape(unread.error)}")
    if len(certificate.errors) > _ERRORS:
        out.print(f"and {len(certificate.errors) - _ERRORS} more; --json has all of them")
    for transaction in certificate.transactions:
        out.print(escape(transaction.line(certificate.topic, int(time.time() * 1000))))
    for alarm in certificate.alarms:
        out.print(f"[bold]{alarm.code}[/] {escape(alarm.group)}: {escape(alarm.text)}")
