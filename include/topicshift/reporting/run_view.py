"""What a run's report shows, worked out from the files of evidence and nothing else.

Every file may be missing or broken: then the report says so, and shows the rest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from topicshift.core.drain.reasons import explain
from topicshift.core.engine.words import label, told
from topicshift.core.impact.placement import placement
from topicshift.core.proof.audit import ChainHead, verify
from topicshift.core.rows import EventRow
from topicshift.core.spec.shadows import real_name
from topicshift.reporting.drain_charts import chart

GOOD, WARN, BAD, OPEN = "good", "warn", "bad", "open"

EVENTS = {
    "approved": "said yes",
    "asked": "was asked",
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
    "commits_set_back": "found commits on the source set back",
    "watch_over": "saw a finding of the watch end",
    "rehearsal_of": "began a rehearsal",
    "rehearsal_begun": "filled the shadow topic with a sample of the source",
    "rehearsal_over": "deleted the shadow topics, their ACLs and groups",
}

_PROOF = {
    "proven": (GOOD, "Proven: nothing lost, nothing out of order"),
    "partly_proven": (WARN, "Moved, and proven in part"),
    "violated": (BAD, "Violated: the records do not bear the proof out"),
    "unknown": (BAD, "Unknown: the proof could not be made"),
}
_STATES = {"passed": GOOD, "not_proven": WARN, "unknown": BAD, "failed": BAD}
_VERDICTS = {
    "drained": GOOD, "verified": GOOD, "not_drained": BAD, "unknown": BAD, "fence_broken": BAD, "aborted": WARN,
}  # fmt: skip


@dataclass
class View:
    """Everything that the template shows, in the order of the page."""

    source: str = "?"
    target: str = "?"
    migration_id: str = ""
    owner: str = ""
    state: str = ""
    tone: str = OPEN
    headline: str = "Not finished"
    reason: str = ""
    numbers: list[dict[str, Any]] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    placement: dict[str, Any] | None = None
    steps: list[dict[str, Any]] = field(default_factory=list)
    freeze: dict[str, Any] | None = None
    certificates: list[dict[str, Any]] = field(default_factory=list)
    drains: list[dict[str, Any]] = field(default_factory=list)
    people: list[dict[str, Any]] = field(default_factory=list)
    trail: list[dict[str, Any]] = field(default_factory=list)
    chain: dict[str, Any] | None = None
    findings: list[dict[str, Any]] = field(default_factory=list)
    plan: dict[str, Any] | None = None
    files: list[dict[str, Any]] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def build(evidence: Mapping[str, bytes]) -> View:
    """The view of these files, by name."""
    view = View()
    read = _Reader(evidence, view.unreadable)
    migration, steps = read.object("migration.json"), read.rows("steps.json")
    events, proof, plan = read.lines("audit.jsonl"), read.object("order_proof.json"), read.object("plan.json")
    fence = read.object("fence.json")
    view.source = str(migration.get("source") or _in(plan, "spec", "source") or fence.get("topic") or "?")
    view.target = str(migration.get("target") or _in(plan, "spec", "target") or "?")
    view.migration_id = str(migration.get("migration_id", ""))
    view.owner, view.state = str(migration.get("owner", "")), str(migration.get("state", ""))
    view.freeze = _freeze(steps, events)
    _proof(view, proof)
    view.placement = read.placement(proof)
    _verdict(view, proof, migration)
    view.steps = _steps(steps)
    for name in sorted(evidence):
        if name.startswith("drain_certificate") and name.endswith(".json"):
            answer = name.replace("drain_certificate", "drain_verification")
            verification = read.object(answer) if answer in evidence else {}
            view.certificates.append(_certificate(name, read.object(name), verification))
        elif name.startswith("drain_progress") and name.endswith(".json"):
            drawn = chart(name, read.object(name))
            if drawn is not None:
                for group in drawn["groups"]:
                    group["took"] = seconds_text(group["seconds"])
                view.drains.append(drawn)
    view.people = [_event(e) for e in events if e.get("kind") in ("asked", "approved", "refused", "unanswered")]
    view.trail = [_event(e) for e in events]
    view.chain = _chain(events, migration)
    order = {"error": 0, "warning": 1, "info": 2}
    findings = [f for f in plan.get("findings", []) if isinstance(f, dict)]
    view.findings = sorted(findings, key=lambda f: order.get(str(f.get("level")), 3))
    view.plan = _plan(plan) if plan else None
    view.files = [
        {"name": n, "size": len(d), "sha256": hashlib.sha256(d).hexdigest()}
        for n, d in sorted(evidence.items())
        if n not in ("steps.json", "migration.json")  # made for this page from the journal
    ]
    return view


class _Reader:
    """JSON out of the evidence; what cannot be read is noted once, and counts as missing."""

    def __init__(self, evidence: Mapping[str, bytes], unreadable: list[str]) -> None:
        self._evidence, self._unreadable = evidence, unreadable

    def _load(self, name: str, kind: type) -> Any:
        data = self._evidence.get(name)
        if data is None:
            return kind()
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            self._note(f"{name} is not JSON ({error})")
            return kind()
        if not isinstance(value, kind):
            self._note(f"{name} does not hold what it should")
            return kind()
        return value

    def _note(self, text: str) -> None:
        if text not in self._unreadable:
            self._unreadable.append(text)

    def object(self, name: str) -> dict[str, Any]:
        value: dict[str, Any] = self._load(name, dict)
        return value

    def placement(self, proof: Mapping[str, Any]) -> dict[str, Any] | None:
        """The target's partitions as the proof read them, beside the shares that the impact predicted."""
        impact, ranges = self.object("impact.json"), _in(proof, "target", "ranges")
        if not impact or not ranges:
            return None
        try:
            found = placement(impact, {int(p): end - start for p, (start, end) in ranges.items()})
        except (AttributeError, KeyError, TypeError, ValueError):
            self._note("impact.json or the proof's ranges do not hold what they should")
            return None
        tone = OPEN if found.holds is None else GOOD if found.holds else WARN
        return {"tone": tone, "text": found.sentence(), "rows": found.shares, "odd": {*found.missed, *found.off}}

    def rows(self, name: str) -> list[dict[str, Any]]:
        return [x for x in self._load(name, list) if isinstance(x, dict)]

    def lines(self, name: str) -> list[dict[str, Any]]:
        out = []
        for number, line in enumerate(self._evidence.get(name, b"").splitlines(), 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                self._note(f"{name}, line {number} is not JSON")
                continue
            if isinstance(value, dict):
                out.append(value)
        return out


def _in(value: Mapping[str, Any], *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None  # type: ignore[assignment]
    return value


def when(text: Any) -> datetime | None:
    """A time of the evidence (ISO 8601), None if it is none."""
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None


def seconds_text(seconds: float | None) -> str:
    """A duration for a person: ``0.42 s``, ``3.1 s``, ``2 min 05 s``, ``3 h 20 min``, ``2 d 4 h``."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def _verdict(view: View, proof: Mapping[str, Any], migration: Mapping[str, Any]) -> None:
    state, rehearsed = migration.get("state"), real_name(str(migration.get("source", "")))
    if state == "rolled_back":
        view.tone, view.headline = WARN, "Rolled back: producers and groups are on the source"
        view.reason = f"The order proof of the way forward says: {proof.get('verdict')}." if proof else ""
        return
    if proof:
        view.tone, view.headline = _PROOF.get(str(proof.get("verdict")), (BAD, f"Verdict: {proof.get('verdict')}"))
        view.reason = str(proof.get("reason") or "")
        if rehearsed:
            view.headline = f"A rehearsal, with a sample of {rehearsed}. {view.headline}"
        return
    if state == "failed":
        view.tone, view.headline = BAD, "Failed before the proof"
    else:
        view.reason = "There is no order proof yet, so nothing is claimed."


def _number(label: str, value: Any, *, bad: bool = False, note: str = "") -> dict[str, Any]:
    text = f"{value:,}" if isinstance(value, int) else str(value)
    if value is None:
        text = "not counted"
    return {"label": label, "value": text, "tone": BAD if bad else GOOD if value == 0 else "", "note": note}


def _proof(view: View, proof: Mapping[str, Any]) -> None:
    if view.freeze and view.freeze["seconds"] is not None:
        view.numbers.append(_number("freeze", seconds_text(view.freeze["seconds"]), note="producers could not write"))
    if not proof:
        return
    source, target = proof.get("source") or {}, proof.get("target") or {}
    zero = [
        ("missing", proof.get("missing"), "numbers between seen ones that are in neither topic"),
        ("out of order", _sum(source.get("out_of_order"), target.get("out_of_order")), "per key, in each topic"),
        ("crossing keys", proof.get("crossing_keys"), "older in the target than the source's last"),
        ("after the fence", proof.get("records_after_fence"), "records of the source"),
    ]
    view.numbers += [_number(name, value, bad=bool(value), note=note) for name, value, note in zero]
    repeats = _sum(source.get("duplicates"), target.get("duplicates"), proof.get("duplicates_across"))
    view.numbers += [
        _number("duplicates", repeats, note="same key and number twice"),
        _number("records in the source", source.get("records"), note=f"{source.get('partitions')} partitions"),
        _number("records in the target", target.get("records"), note=f"{target.get('partitions')} partitions"),
        _number("keys", proof.get("keys"), note=f"{proof.get('keys_in_both')} in both topics"),
    ]
    view.checks = [
        {**c, "tone": _STATES.get(str(c.get("state")), BAD), "title": str(c.get("name", "")).replace("_", " ")}
        for c in proof.get("checks", [])
        if isinstance(c, dict)
    ]
    view.limits = [str(x) for x in proof.get("not_proven", [])]


def _sum(*parts: Any) -> int | None:
    known = [p for p in parts if isinstance(p, int)]
    return sum(known) if len(known) == len(parts) else None


def _steps(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    out = []
    for row in rows:
        began, ended = when(row.get("started_at")), when(row.get("finished_at"))
        took = (ended - began).total_seconds() if began and ended else None
        tone = {"done": GOOD, "undone": WARN, "undoing": BAD}.get(str(row.get("state")), OPEN)
        name, words = told(str(row.get("step")))
        shown: dict[str, Any] = {
            "step": name,
            "words": words,
            "state": row.get("state"),
            "tone": tone,
            "clock": _clock(began),
        }
        out.append({**shown, "seconds": took, "took": seconds_text(took)})
    longest = max((s["seconds"] or 0 for s in out), default=0) or 1
    for step in out:
        step["share"] = round(100 * (step["seconds"] or 0) / longest, 1)
    return out


def _clock(time: datetime | None) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}" if time else ""


_MARKS = {
    "fenced": "fence proven",
    "drained": "drained",
    "verified": "verified",
    "approved": "approved",
    "producers_switched": "producers on the target",
    "producers_resumed": "resumed on the source",
}


def _freeze(steps: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The freeze as a line: its bounds, and what happened inside it, by share of its length."""
    row = next((s for s in steps if s.get("step") == "freeze"), None)
    data = row.get("data") if row else None
    began = when(_in(data or {}, "started_at"))
    if began is None or data is None:
        return None
    ended = when(data.get("ended_at"))
    budget = when(data.get("lease_until"))
    last = ended or budget or began
    length = max((last - began).total_seconds(), 0.001)
    marks = []
    for event in events:
        at = when(event.get("at"))
        label = _MARKS.get(str(event.get("kind")))
        if at is None or label is None or not began <= at <= last + timedelta(seconds=1):
            continue
        passed = (at - began).total_seconds()
        marks.append({"label": label, "at": f"+{passed:.2f} s", "share": round(min(100.0, 100 * passed / length), 2)})
    for number, mark in enumerate(marks):
        mark["row"] = number
    return {
        "began": _clock(began),
        "seconds": length if ended else None,
        "length": seconds_text(length),
        "how": str(data.get("how") or "still running"),
        "budget": seconds_text((budget - began).total_seconds()) if budget else "",
        "used": round(100 * length / max((budget - began).total_seconds(), 0.001)) if budget and ended else None,
        "marks": marks,
        "earlier": _earlier_freezes(events, began),
    }


def _earlier_freezes(events: Sequence[Mapping[str, Any]], last: datetime) -> list[dict[str, str]]:
    """The freezes of this migration before the last one: when each began, and how long it was at most."""
    found: list[dict[str, str]] = []
    open_: datetime | None = None
    for event in events:
        kind, at = str(event.get("kind")), when(event.get("at"))
        if kind == "freeze_begun":
            open_ = when(_in(event.get("data") or {}, "started_at")) or at
            if open_ is None or open_ >= last:
                break
            found.append({"began": _clock(open_), "length": "of unknown length"})
        elif kind in ("producers_resumed", "rolled_back") and open_ is not None and at is not None:
            found[-1]["length"] = seconds_text((at - open_).total_seconds())
            open_ = None
    return found


def _certificate(name: str, certificate: Mapping[str, Any], verification: Mapping[str, Any]) -> dict[str, Any]:
    read = {
        (g.get("group"), p.get("partition")): p for g in verification.get("groups", []) for p in g.get("partitions", [])
    }
    groups = []
    for group in certificate.get("groups", []):
        rows = []
        for row in group.get("partitions", []):
            seen = read.get((group.get("group"), row.get("partition")), {})
            rows.append(
                {
                    **row,
                    "tone": _VERDICTS.get(str(row.get("verdict")), BAD),
                    "read": f"[{seen['from']}, {seen['to']})" if seen.get("from") is not None else "",
                    "found": seen.get("records_left"),
                }
            )
        done = sum(r["verdict"] == "drained" for r in rows)
        codes = sorted({str(r.get("reason")) for r in rows})
        groups.append(
            {
                "group": group.get("group"),
                "kind": group.get("kind"),
                "state": group.get("state"),
                "verdict": group.get("verdict"),
                "tone": _VERDICTS.get(str(group.get("verdict")), BAD),
                "done": f"{done} of {len(rows)}",
                "reasons": [{"code": c, "meaning": _meaning(c)} for c in codes],
                "rows": rows,
            }
        )
    return {
        "name": name,
        "verdict": certificate.get("verdict"),
        "tone": _VERDICTS.get(str(certificate.get("verdict")), BAD),
        "taken_at": _clock(when(certificate.get("taken_at"))),
        "reasons": [{"code": c, "meaning": _meaning(str(c))} for c in certificate.get("reasons", [])],
        "groups": groups,
        "verified": verification.get("verdict"),
        "verified_tone": _VERDICTS.get(str(verification.get("verdict")), BAD),
        "offsets_read": verification.get("offsets_read"),
        "records_read": verification.get("records_read"),
        "seconds": seconds_text(verification.get("seconds")),
    }


def _meaning(code: str) -> str:
    try:
        return explain(code)[2].meaning
    except ValueError:
        return ""


def _event(event: Mapping[str, Any]) -> dict[str, Any]:
    kind = str(event.get("kind"))
    data = event.get("data") if isinstance(event.get("data"), dict) else {}
    return {
        "seq": event.get("seq"),
        "at": _clock(when(event.get("at"))),
        "actor": event.get("actor"),
        "did": EVENTS.get(kind, kind.replace("_", " ")),
        "kind": kind,
        "what": _what(kind, data or {}),
        "tone": BAD if kind in ("refused", "fence_broken", "step_failed", "alarm") else "",
    }


def _what(kind: str, data: Mapping[str, Any]) -> str:
    """The details of an event, in one line of at most 300 characters."""
    if kind in ("approved", "asked", "refused", "unanswered"):
        about = data.get("about") if isinstance(data.get("about"), dict) else {}
        names = ", ".join(f"{k} {str(v)[:12]}" for k, v in (about or {}).items())
        parts = [str(data.get("act", "")), names, f"({data['how']})" if data.get("how") else ""]
        return " ".join(p for p in parts if p)
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
    text = ", ".join(f"{k}: {_short(v)}" for k, v in data.items())
    return text if len(text) <= 300 else text[:297] + "..."


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _chain(events: Sequence[Mapping[str, Any]], migration: Mapping[str, Any]) -> dict[str, Any] | None:
    """Whether the trail's hash chain holds from its first event to the last one shown."""
    if not events:
        return None
    try:
        rows = [EventRow(**e) for e in events]
        head = ChainHead(count=rows[-1].seq, hash=rows[-1].hash)
        problems = verify(rows, head, migration_id=str(migration.get("migration_id") or rows[0].migration_id))
    except (TypeError, ValueError) as error:
        return {"tone": BAD, "text": f"The audit trail cannot be checked: {error}"}
    if problems:
        first = problems[0]
        return {"tone": BAD, "text": f"The hash chain is broken at row {first.seq}: {first.kind.value}, {first.seen}."}
    return {"tone": GOOD, "text": f"The hash chain of {len(rows)} events holds; it ends in {rows[-1].hash[:16]}."}


def _plan(plan: Mapping[str, Any]) -> dict[str, Any]:
    source, target = plan.get("source") or {}, plan.get("target") or {}
    return {
        "hash": str(plan.get("plan_hash", ""))[:12],
        "taken_at": _clock(when(plan.get("taken_at"))),
        "from": source.get("partitions"),
        "to": target.get("partitions"),
        "cutover": _in(plan, "spec", "cutover"),
        "actions": [a for a in plan.get("actions", []) if isinstance(a, dict)],
    }
