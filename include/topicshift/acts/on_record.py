"""What must be on record before an act, whatever Airflow says of the tasks before it.

A person can mark any task as success, and Airflow then runs the next one. So an act that could lose records does not
take the order of the tasks for a proof: it looks for the evidence itself, and says which task left none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from topicshift.acts.approvals import find_approval
from topicshift.acts.participants import SWITCH_PRODUCERS, switch_step
from topicshift.acts.target import STEP as CREATE_TARGET
from topicshift.core.drain.certificate import DrainCertificate, Verdict
from topicshift.core.errors import Refused
from topicshift.core.fence.record import FenceRecord
from topicshift.core.proof.verification import same_topic_id
from topicshift.ports import Clock, ClusterAdmin, Journal, MigrationRow

_BY_HAND = "A task that was marked as success by hand proves nothing."


def require_approval(journal: Journal, migration_id: str, act: str, about: Mapping[str, Any]) -> None:
    """Raises ``Refused`` unless somebody said yes to ``act`` (a task's id) for exactly ``about``."""
    if find_approval(journal, migration_id, act, about) is None:
        what = ", ".join(f"{k} {v}" for k, v in about.items())
        raise Refused(
            f"Nobody's approval of {act} for {what} is on record, so nothing is done. {_BY_HAND} Clear {act}, and "
            "answer it."
        )


def require_target(admin: ClusterAdmin, journal: Journal, row: MigrationRow) -> None:
    """Raises ``Refused`` unless the target is there, made (or taken) by this migration, and the same topic still."""
    step = journal.step(row.migration_id, CREATE_TARGET)
    if step is None or step.state != "done":
        raise Refused(
            f"{row.target} was not made by this migration (create_target: {step.state if step else 'not begun'}), so "
            f"nobody is stopped for it and nobody is sent to it. {_BY_HAND} Clear create_target.create."
        )
    seen, known = admin.topic(row.target), str(step.data.get("topic_id"))
    if seen is None or not same_topic_id(seen.topic_id, known):
        found = "does not exist any more" if seen is None else f"is another topic now (id {seen.topic_id}, was {known})"
        raise Refused(
            f"{row.target} {found}: somebody deleted it. Nobody is sent there. Find out who did; then trigger "
            f"topic_rollback for {row.migration_id}, and start a new migration."
        )


def require_drained(
    fence: FenceRecord, groups: Sequence[str], certificate: bytes | None, answer: bytes | None, *, suffix: str = ""
) -> None:
    """Raises ``Refused`` unless all ``groups`` have drained the source up to this very fence, verified by reading.

    ``certificate`` and ``answer`` are the files of the certificate and of its verification, None where there is none;
    ``suffix`` is what their names end with (``-ledger`` for one consumer).
    """
    wrong = _drain_gap(fence, groups, certificate, answer)
    if wrong:
        raise Refused(
            f"It is not proven that {', '.join(groups)} read {fence.topic} up to the fence: {wrong}. Nobody goes on "
            f"with the target on the strength of that, for records could be left behind. {_BY_HAND} Clear "
            f"create_target.create and what follows (wanted: drain_certificate{suffix}.json and its verification)."
        )


def _drain_gap(
    fence: FenceRecord, groups: Sequence[str], certificate: bytes | None, answer: bytes | None
) -> str | None:
    """What is missing, in words; None when nothing is."""
    if certificate is None:
        return "there is no drain certificate"
    try:
        paper = DrainCertificate.model_validate_json(certificate)
    except ValidationError:
        return "the drain certificate cannot be read"
    if paper.topic != fence.topic or not same_topic_id(paper.topic_id, fence.topic_id):
        return f"the drain certificate speaks of another topic ({paper.topic}, id {paper.topic_id})"
    if paper.fence_offsets != fence.fence_offsets:
        return f"the drain certificate of {paper.taken_at} speaks of another fence than the one of {fence.taken_at}"
    verdicts = {g.group: g.verdict for g in paper.groups}
    if paper.verdict is not Verdict.DRAINED:
        return f"the drain certificate says {paper.verdict.value}"
    left = [g for g in groups if verdicts.get(g) is not Verdict.DRAINED]
    if left or not groups:
        return f"the drain certificate does not say so of {', '.join(left) or 'any group'}"
    if answer is None:
        return "the armed verifier has not answered"
    try:
        said = json.loads(answer)
        verdict, question = said.get("verdict"), said.get("question")
    except (ValueError, AttributeError):
        return "the verifier's answer cannot be read"
    if question != hashlib.sha256(certificate).hexdigest():
        return "the verifier's answer is to another certificate"
    return None if verdict == "verified" else f"the armed verifier says {verdict}"


def require_switch_begun(journal: Journal, migration_id: str) -> bool:
    """Whether every producer is on the target; False while a person starts the rest there.

    Raises ``Refused`` where the switch was never begun, or was taken back.
    """
    row = journal.step(migration_id, SWITCH_PRODUCERS)
    if row is None or row.state not in ("intended", "done"):
        raise Refused(
            f"The producers were not switched to the target (switch_producers: {row.state if row else 'not begun'}). "
            f"{_BY_HAND} A group that left the source now would miss what is written there. Clear "
            "create_target.create and what follows."
        )
    return row.state == "done"


def require_all_switched(journal: Journal, migration_id: str, groups: Sequence[str]) -> None:
    """Raises ``Refused``, naming them, while the producers or some of ``groups`` are not on the target."""
    wanted = {"the producers": SWITCH_PRODUCERS} | {f"group {g}": switch_step(g) for g in groups}
    rows = {who: journal.step(migration_id, step) for who, step in wanted.items()}
    left = [
        f"{who} ({row.state if row else 'not begun'})" for who, row in rows.items() if not row or row.state != "done"
    ]
    if left:
        raise Refused(
            f"Not switched to the target: {', '.join(left)}. The migration stays open, so that nobody takes the source "
            f"for finished. {_BY_HAND} Clear the tasks that switch them."
        )


def require_screamed(journal: Journal, migration_id: str, step: str, clock: Clock) -> None:
    """Raises ``Refused`` unless the scream test was begun, and its time has passed."""
    row = journal.step(migration_id, step)
    if row is None or row.state != "intended":
        raise Refused(f"No scream test is running, so nothing is deleted. {_BY_HAND} Clear retire.scream_test.")
    until = datetime.fromisoformat(str(row.data["until"]))
    if clock.now() < until:
        raise Refused(
            f"The scream test goes on until {until:%Y-%m-%d %H:%M:%S} UTC, so nothing is deleted yet. {_BY_HAND} "
            "Clear retire.scream_test; it goes on where it was."
        )
