"""The audit trail for a person: what each of its rows says, and whether its chain holds."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from topicshift.core.engine.words import label
from topicshift.core.proof.audit import ChainHead, verify
from topicshift.core.rows import EventRow
from topicshift.reporting.run_people import BAD, GOOD
from topicshift.reporting.values import clock, when

EVENTS = {
    "abort": "ordered to abort",
    "approved": "said yes",
    "asked": "was asked",
    "claimed": "claimed both topics",
    "closed": "closed the migration",
    "evidence": "wrote evidence",
    "first_yes": "said the first of two yes",
    "refused": "said no",
    "unanswered": "did not answer in time",
    "freeze_begun": "began the freeze",
    "window_missed": "missed the window",
    "fenced": "proved the fence",
    "fence_broken": "found the source written to after the fence",
    "fence_not_proven": "could not prove the fence",
    "drained": "certified the drain",
    "alarm": "raised an alarm",
    "alarm_over": "saw an alarm end",
    "transaction_abort_begun": "began to abort a hanging transaction",
    "transaction_aborted": "aborted a hanging transaction",
    "verified": "verified the drain by reading",
    "spark_job": "ran a Spark job",
    "keys_shown": "asked for a report that names keys themselves",
    "planned": "made the plan",
    "producers_switched": "switched the producers",
    "producers_resumed": "let the producers resume on the source",
    "resume_called_off": "left the producers on the target",
    "answer_ignored": "answered what is asked no longer",
    "deny_repaired": "put a removed DENY back",
    "group_switched": "switched a group",
    "proof": "judged the proof",
    "step_intended": "began",
    "step_finished": "wrote down",
    "step_failed": "failed in a step",
    "went_on": "went on",
    "run_ended": "saw that the run has ended",
    "impact_taken_over": "took over a fresh impact",
    "rolled_back": "rolled back",
    "restored": "compared the source with what was there before",
    "scream_test_begun": "began the scream test",
    "source_deleted": "deleted the source",
    "source_written": "found records on the source that came after the fence",
    "source_read": "found a group that reads the source",
    "source_replaced": "found another topic of the source's name",
    "source_missing": "found the source deleted by somebody else",
    "source_back": "found the deleted source there again",
    "commits_expired": "found commits on the source expired",
    "deny_late": "found a DENY in force that had been lifted",
    "commits_set_back": "found commits on the source set back",
    "watch_over": "saw a finding of the watch end",
    "rehearsal_of": "began a rehearsal",
    "rehearsal_begun": "filled the shadow topic with a sample of the source",
    "rehearsal_over": "deleted the shadow topics, their ACLs and groups",
}
"""What a kind of event says that its actor did."""

_WHOLE: Final = frozenset({"view", "spec"})
"""Parts of an event that are too long for a line; ``audit.jsonl`` has them whole."""


def row_shown(event: Mapping[str, Any]) -> dict[str, Any]:
    """One row of an audit trail as evidence has it, for a person: when, who, did what, in one line each."""
    kind = str(event.get("kind"))
    data = event.get("data") if isinstance(event.get("data"), dict) else {}
    return {
        "seq": event.get("seq"),
        "at": clock(when(event.get("at"))),
        "actor": event.get("actor"),
        "did": EVENTS.get(kind, kind.replace("_", " ")),
        "kind": kind,
        "what": _what(kind, data or {}),
        "tone": BAD if kind in ("refused", "fence_broken", "step_failed", "alarm") else "",
    }


def event_shown(event: EventRow) -> dict[str, Any]:
    """One event of an audit trail for a person: when, who, did what, in one line each."""
    return row_shown(vars(event))


def _what(kind: str, data: Mapping[str, Any]) -> str:
    """The details of an event, in one line of at most 300 characters."""
    if kind in ("approved", "asked", "refused", "unanswered"):
        about = data.get("about") if isinstance(data.get("about"), dict) else {}
        names = ", ".join(f"{k} {str(v)[:12]}" for k, v in (about or {}).items())
        parts = [str(data.get("act", "")), names, f"({data['how']})" if data.get("how") else ""]
        return " ".join(p for p in parts if p)
    if kind == "act":
        act, of = str(data.get("act")).replace("_", " "), f" of {data['subject']}" if data.get("subject") else ""
        return f"{act}{of}: {data.get('why') or data.get('rule') or 'no reason is kept'}"
    if kind == "evidence":
        return _files(data.get("evidence"))
    if kind == "fenced":
        offsets = data.get("fence_offsets") if isinstance(data.get("fence_offsets"), dict) else {}
        return f"{len(offsets or {})} partitions, fence offsets add up to {sum((offsets or {}).values()):,}"
    if kind == "alarm":
        told = data.get("told")
        names = ", ".join(str(t) for t in told) if isinstance(told, list) and told else "nobody is configured"
        return f"{data.get('text', '')} Told: {names}."
    if kind in ("step_intended", "step_finished"):
        return f"{label(str(data.get('step')))} {data.get('state') or ''}".rstrip()
    if kind == "proof":
        return str(data.get("verdict", ""))
    said = (f"{k}: {_files(v) if k == 'evidence' else _short(v)}" for k, v in data.items() if k not in _WHOLE)
    text = ", ".join(said)
    return text if len(text) <= 300 else text[:297] + "..."


def _files(evidence: Any) -> str:
    """Names of files with the beginning of their hashes."""
    given = evidence if isinstance(evidence, Mapping) else {}
    return ", ".join(f"{name} (SHA-256 {str(hash_)[:12]})" for name, hash_ in given.items())


def _short(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value):
        return value[:12]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def chain_shown(events: Sequence[Mapping[str, Any]], migration: Mapping[str, Any]) -> dict[str, Any] | None:
    """Whether the trail's hash chain holds from its first event to the last one shown."""
    if not events:
        return None
    try:
        rows = [EventRow(**e) for e in events]
        head = ChainHead(count=rows[-1].seq, hash=rows[-1].hash)
        problems = verify(rows, head, migration_id=str(migration.get("migration_id") or rows[0].migration_id))
    except (TypeError, ValueError) as error:
        return {"tone": BAD, "text": f"The audit trail cannot be checked: {error}", "count": 0, "head": ""}
    seen = {"count": head.count, "head": head.hash}
    if problems:
        first = problems[0]
        text = f"The hash chain is broken at row {first.seq}: {first.kind.value}, {first.seen}."
        return {"tone": BAD, "text": text, **seen}
    return {"tone": GOOD, "text": f"The hash chain of {len(rows)} events holds.", **seen}
