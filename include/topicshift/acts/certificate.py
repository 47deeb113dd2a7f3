"""Drain certificates, and their verification by reading."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from topicshift.acts.context import MigrationContext
from topicshift.core.drain.certificate import DrainCertificate, Verdict
from topicshift.core.drain.decision import Tail, in_doubt
from topicshift.core.drain.names import certificate_name, verification_name
from topicshift.core.engine.decision import Decision
from topicshift.core.engine.view import Record, View
from topicshift.core.engine.words import Row, StepState
from topicshift.core.errors import FenceBroken, GuardViolated, Transient
from topicshift.core.proof.verification import (
    Answer,
    DrainVerification,
    decide,
    read_plans,
    snapshot_of,
    with_later_ends,
)
from topicshift.ports import DrainReader

READ_S = 15.0
"""Bound, in seconds, of reading what a certificate leaves in doubt."""


def certify(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Make evidence of the certificate that was just taken; it is taken anew where only parts of it are fresh."""
    subject = decision.subject
    fence = ctx.fence_of(view.record)
    key = f"{subject}@{fence.taken_at}"
    taker, certificate = ctx.memory.takers.get(key), ctx.memory.certificates.get(key)
    if taker is None or certificate is None:
        return
    if not taker.whole:
        certificate = ctx.ports.executor.run(lambda: taker.take(second_sample=False))
        ctx.memory.certificates[key] = certificate
    if certificate.verdict is not Verdict.DRAINED:
        return
    data = certificate.model_dump_json(indent=2).encode()
    ctx.check_seat()
    ctx.write(certificate_name(_consumer(ctx, subject)), data)
    groups = [g.group for g in certificate.groups]
    ctx.event("drained", {"groups": groups, "taken_at": certificate.taken_at})
    row = {
        "substance": certificate.substance,
        "taken_at": certificate.taken_at,
        "sha256": hashlib.sha256(data).hexdigest(),
        "fence": fence.taken_at,
        "groups": groups,
    }
    ctx.finish(Row.CERTIFICATE, row, subject)


def request_verification(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Hand the certificate to the armed verifier."""
    subject = decision.subject
    paper = _paper(ctx, view.record, subject)
    if paper is not None:
        _ask(ctx, view.record, subject, paper)
        ctx.check_seat()
        ctx.ports.verifier.request(subject, paper)


def record_verification(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Make evidence of the verifier's answer, and let the verifier end once nothing is left to ask."""
    answer = heard(ctx, view.record, decision.subject)
    if answer is not None:
        _record(ctx, view.record, decision.subject, answer)


def heard(ctx: MigrationContext, record: Record, subject: str) -> Mapping[str, Any] | None:
    """The verifier's answer to the question that is on record, None where there is none yet."""
    row = record.step(Row.VERIFICATION, subject)
    answer = ctx.ports.verifier.answer(subject) if row is not None else None
    if row is None or answer is None or answer.get("question") != row.data.get("question"):
        return None
    return answer


def read_tails(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Read here what the certificate leaves in doubt, where no armed verifier does.

    Raises ``FenceBroken``, ``GuardViolated`` (records are left) or ``Transient`` (it could not be read).
    """
    subject = decision.subject
    paper = _paper(ctx, view.record, subject)
    if paper is None:
        return
    certificate = DrainCertificate.model_validate_json(paper)
    question = _ask(ctx, view.record, subject, paper)
    began = ctx.clock.now()
    found = ctx.ports.executor.run(lambda: _read(ctx.ports.reader, certificate, question, began))
    if found.verdict is Answer.FENCE_BROKEN:
        raise FenceBroken(f"The source was written to after the fence: {found.reason}")
    if found.verdict is Answer.NOT_DRAINED:
        raise GuardViolated(f"The certificate says drained, but reading found records left: {found.reason}")
    if found.verdict is not Answer.VERIFIED:
        raise Transient(f"The drain could not be verified by reading: {found.reason}")
    seconds = round((ctx.clock.now() - began).total_seconds(), 3)
    answer = found.model_copy(update={"seconds": seconds}).model_dump(mode="json", by_alias=True)
    _record(ctx, view.record, subject, answer)


async def _read(reader: DrainReader, certificate: DrainCertificate, question: str, now: datetime) -> DrainVerification:
    """The verification of a certificate by a read_committed reader of this process."""
    topic = certificate.topic
    topic_id, partitions = await reader.topic(topic) or (None, 0)
    offsets = await reader.offsets(topic, range(partitions)) if partitions else {}
    snapshot = snapshot_of(certificate, topic_id=topic_id, partitions=partitions, offsets=offsets, now=now)
    doubts = in_doubt(snapshot)
    ranges = sorted({d.range for d in doubts})
    tails = await reader.tails(topic, ranges, timeout_s=READ_S) if ranges else {}
    left = [f"{topic}[{r.partition}] from {r.start}" for r, tail in tails.items() if tail.found]
    if left:
        raise GuardViolated(f"The certificate says drained, but reading found records left: {', '.join(left[:5])}.")
    nothing = Tail(found=False, complete=False, error="no answer")
    unread = [t.error or "not read to the end" for r in ranges if not (t := tails.get(r, nothing)).complete]
    later_id, later = await reader.topic(topic) or (None, 0)
    ends = await reader.offsets(topic, range(later)) if later else {}
    return decide(
        with_later_ends(snapshot, later_id, ends),
        doubts,
        read_plans(doubts),
        {},
        error=unread[0] if unread else None,
        question=question,
        certificate_taken_at=certificate.taken_at,
    ).model_copy(update={"reader": "task"})


def _consumer(ctx: MigrationContext, subject: str) -> str:
    return ctx.consumer(subject).name if subject else ""


def _paper(ctx: MigrationContext, record: Record, subject: str) -> bytes | None:
    """The certificate as it is on record. One whose file is another by now is void, and is taken anew."""
    row = record.step(Row.CERTIFICATE, subject)
    data = ctx.ports.evidence.read(ctx.row.migration_id, ctx.file(certificate_name(_consumer(ctx, subject))))
    if row is not None and data is not None and hashlib.sha256(data).hexdigest() == row.data["sha256"]:
        return data
    ctx.finish(Row.CERTIFICATE, {"void": "its file is not the one that was written"}, subject, StepState.UNDONE)
    return None


def _ask(ctx: MigrationContext, record: Record, subject: str, paper: bytes) -> str:
    """Write down which certificate is to be verified; returns the question, the SHA-256 of its file."""
    certificate, row = record.step(Row.CERTIFICATE, subject), record.step(Row.VERIFICATION, subject)
    assert certificate is not None
    question = hashlib.sha256(paper).hexdigest()
    wanted = {"substance": certificate.data["substance"], "question": question}
    if row is not None and row.state.in_effect and {k: row.data.get(k) for k in wanted} != wanted:
        ctx.finish(Row.VERIFICATION, {}, subject, StepState.UNDONE)
    ctx.intend(Row.VERIFICATION, wanted, subject)
    return question


def _record(ctx: MigrationContext, record: Record, subject: str, answer: Mapping[str, Any]) -> None:
    consumer = _consumer(ctx, subject)
    said = {k: answer.get(k) for k in ("verdict", "seconds", "reader")}
    data = json.dumps(answer, indent=2).encode()
    ctx.check_seat()
    ctx.write(verification_name(consumer), data)
    ctx.event("verified", {**said, "consumer": consumer or "all"})
    ctx.finish(Row.VERIFICATION, {**said, "sha256": hashlib.sha256(data).hexdigest()}, subject)
    if all(s == subject or record.done(Row.VERIFICATION, s) for s in record.certificates):
        ctx.ports.verifier.release()
