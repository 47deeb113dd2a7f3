"""What each Spark job of a migration is told, and how its result becomes evidence. Submitting is the caller's."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topicshift.acts.context import MigrationContext
from topicshift.acts.replay import replayed_in_all
from topicshift.core.drain.names import STRAYS, verification_name
from topicshift.core.drain.replay import mark_of_place
from topicshift.core.drain.strays import Strays
from topicshift.core.engine.view import Record
from topicshift.core.engine.words import Act, Row
from topicshift.core.errors import Unreadable
from topicshift.core.proof.verification import DrainVerification

ARMED_FOR_S = 13 * 3600
"""Seconds after which the armed verifier ends by itself: it outlasts the gate's patience."""


@dataclass(frozen=True)
class Job:
    """One job: script, arguments without ``--output`` and ``--kafka-config``, and files that it is given."""

    script: str
    arguments: list[str]
    given: Mapping[str, Any]


def impact_job(ctx: MigrationContext, record: Record) -> Job:
    """Which keys move: the counts come from the check, the groups' offsets from now."""
    check = record.step(Row.CHECK)
    counts = ",".join(map(str, check.data["candidates"] if check is not None else ()))
    given = {"groups.json": groups_at(ctx)}
    arguments = ["--topic", record.source, "--candidates", counts, "--groups-file", "groups.json"]
    return Job("key_rehash_impact", arguments, given)


def order_proof_job(ctx: MigrationContext, record: Record) -> Job:
    """Both topics: the fence bounds the source; the spec names the sequence header if records carry one."""
    fence = ctx.fence_of(record)
    header = ctx.spec.ordering.sequence_header
    arguments = ["--source", record.source, "--target", record.target, "--fence", "fence.json"]
    given: dict[str, Any] = {"fence.json": fence.point.model_dump(mode="json")}
    if tails := _read_by_tasks(ctx, record):
        arguments += ["--tails", "tails.json"]
        given["tails.json"] = tails
    if record.done(Row.FENCE_AGAIN):
        arguments += ["--strays", "strays.json"]
        given["strays.json"] = _named(ctx)
    if replayed_in_all(record):
        arguments += ["--replayed", "replayed.json"]
        given["replayed.json"] = _replayed(ctx)
    return Job("order_proof", [*arguments, *(["--sequence-header", header] if header else [])], given)


def _named(ctx: MigrationContext) -> dict[str, Any]:
    """Where records of the source count as strays, and how many of them were named, by partition."""
    strays = Strays.model_validate_json(ctx.read(STRAYS))
    return {
        "from": strays.generations[0].from_offsets,
        "named": dict(Counter(r.partition for g in strays.generations for r in g.records)),
        "complete": all(g.complete for g in strays.generations),
    }


def _replayed(ctx: MigrationContext) -> dict[str, Any]:
    """The marks that replayed records bear in the target."""
    strays = Strays.model_validate_json(ctx.read(STRAYS))
    return {"marks": [mark_of_place(strays.topic, r.partition, r.offset).decode() for r in strays.replayed]}


def _read_by_tasks(ctx: MigrationContext, record: Record) -> dict[int, int]:
    """From which offset of each partition a task read up to the fence by itself, where the armed verifier had ended.

    Raises ``Unreadable`` where the evidence of that is not there any more, or was changed.
    """
    starts: dict[int, int] = {}
    for subject in ("", *record.policy.groups):
        row = record.step(Row.VERIFICATION, subject)
        if row is None or row.data.get("reader") != "task":
            continue
        name = verification_name(ctx.consumer(subject).name if subject else "")
        data = ctx.ports.evidence.read(record.migration_id, name)
        if data is None or hashlib.sha256(data).hexdigest() != row.data["sha256"]:
            raise Unreadable(
                f"{name} is not in the evidence store as the task wrote it, so what a task read there cannot be read "
                "again. Put it back from a backup, and clear this task."
            )
        for group in DrainVerification.model_validate_json(data).groups:
            for found in group.partitions:
                if found.start is not None:
                    starts[found.partition] = min(found.start, starts.get(found.partition, found.start))
    return starts


def armed_job(record: Record, requests: Path) -> Job:
    """The armed drain verification, which waits for certificates in ``requests``."""
    arguments = ["--armed", "--topic", record.source, "--requests", str(requests), "--deadline", str(ARMED_FOR_S)]
    return Job("drain_verification", arguments, {})


def groups_at(ctx: MigrationContext) -> dict[str, dict[str, int | None]]:
    """Where every declared group stands on the source, by partition."""
    source = ctx.admin.topic(ctx.row.source)
    partitions = sorted(source.replicas) if source else []
    commits = ctx.admin.commits([c.group for c in ctx.spec.consumers], ctx.row.source, partitions)
    return {
        name: {str(p): answer.offsets.get(p) for p in partitions}
        for name, answer in commits.items()
        if not answer.error and not answer.errors
    }


def give(job: Job, folder: Path) -> list[str]:
    """Write the files that the job is given into ``folder``; returns its arguments with their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in job.given.items():
        (folder / name).write_text(json.dumps(data))
    return [str(folder / a) if a in job.given else a for a in job.arguments]


def keep(write: Callable[[str, bytes], str], folder: Path, result: str) -> dict[str, str]:
    """Make evidence of what a job left in ``folder``, ``result`` last: with it the job counts as done.

    ``write`` stores one file by its name and returns its URL. Returns the URLs by name.
    """
    files = [f for f in sorted(folder.iterdir()) if f.suffix in (".json", ".html")]
    return {f.name: write(f.name, f.read_bytes()) for f in sorted(files, key=lambda f: f.name == result)}


RESULTS: Mapping[Act, str] = {Act.MEASURE_IMPACT: "impact.json", Act.PROVE_ORDER: "order_proof.json"}
"""The result file of each job that leaves evidence."""
