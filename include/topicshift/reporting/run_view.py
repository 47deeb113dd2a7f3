"""What a run's report shows, worked out from the files of evidence and nothing else.

Every file may be missing or broken: then the report says so, and shows the rest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from topicshift.core.drain.reasons import explain
from topicshift.core.engine.left import left_by_hand
from topicshift.core.engine.words import Ask, Row, told
from topicshift.core.health import FILE as HEALTH
from topicshift.core.health import SHORT_S, Health, compare
from topicshift.core.impact.placement import placement
from topicshift.core.page.timeline import ends_of_steps
from topicshift.core.spec.shadows import real_name
from topicshift.reporting.drain_charts import chart
from topicshift.reporting.run_freeze import freezes
from topicshift.reporting.run_people import BAD, GOOD, OPEN, WARN, approvals, participants
from topicshift.reporting.run_trail import chain_shown, row_shown
from topicshift.reporting.values import clock, inside, seconds_text, when

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
    changes: list[dict[str, Any]] = field(default_factory=list)
    watched: str = ""
    short_rate: str = f"{SHORT_S / 60:g} minutes"
    """A rate over less than that is not judged."""
    steps: list[dict[str, Any]] = field(default_factory=list)
    freezes: list[dict[str, Any]] = field(default_factory=list)
    shown_s: float | None = None
    participants: list[dict[str, Any]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
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
    view.source = str(migration.get("source") or inside(plan, "spec", "source") or fence.get("topic") or "?")
    view.target = str(migration.get("target") or inside(plan, "spec", "target") or "?")
    view.migration_id = str(migration.get("migration_id", ""))
    view.owner, view.state = str(migration.get("owner", "")), str(migration.get("state", ""))
    view.freezes = freezes(steps, events)
    view.shown_s = _shown(events)
    _proof(view, proof)
    view.placement = read.placement(proof)
    view.changes, view.watched = read.changes()
    _verdict(view, proof, migration, events)
    view.left = _left(events, steps)
    view.steps = _steps(steps, when(migration.get("created_at")))
    view.participants = participants(migration, migration.get("spec") or plan.get("spec") or {}, steps)
    for name in sorted(evidence):
        if plain(name).startswith("drain_certificate") and name.endswith(".json"):
            answer = name.replace("drain_certificate", "drain_verification")
            verification = read.object(answer) if answer in evidence else {}
            view.certificates.append(_certificate(name, read.object(name), verification))
        elif plain(name).startswith("drain_progress") and name.endswith(".json"):
            drawn = chart(name, read.object(name))
            if drawn is not None:
                for group in drawn["groups"]:
                    group["took"] = seconds_text(group["seconds"])
                view.drains.append(drawn)
    view.people = approvals(events)
    view.trail = [row_shown(e) for e in events]
    view.chain = chain_shown(events, migration)
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
        impact, ranges = self.object("impact.json"), inside(proof, "target", "ranges")
        if not impact or not ranges:
            return None
        try:
            found = placement(impact, {int(p): end - start for p, (start, end) in ranges.items()})
        except (AttributeError, KeyError, TypeError, ValueError):
            self._note("impact.json or the proof's ranges do not hold what they should")
            return None
        tone = OPEN if found.holds is None else GOOD if found.holds else WARN
        return {"tone": tone, "text": found.sentence(), "rows": found.shares, "odd": {*found.missed, *found.off}}

    def changes(self) -> tuple[list[dict[str, Any]], str]:
        """What got better or worse, and until when that was watched."""
        if not self.object(HEALTH):
            return [], ""
        try:
            health = Health.model_validate(self.object(HEALTH))
            found = compare(health)
        except (ValueError, TypeError):
            self._note(f"{HEALTH} does not hold what it should")
            return [], ""
        tones = {"better": GOOD, "same": OPEN, "worse": BAD, "unknown": WARN}
        return [{**c.model_dump(), "tone": tones[c.verdict]} for c in found], clock(when(found and health.after[-1].at))

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


def plain(name: str) -> str:
    """The name of an evidence file without its way back: ``back1-fence.json`` is ``fence.json``."""
    way, dash, rest = name.partition("-")
    return rest if dash and way.startswith("back") and way[4:].isdigit() else name


def _verdict(
    view: View, proof: Mapping[str, Any], migration: Mapping[str, Any], events: Sequence[Mapping[str, Any]]
) -> None:
    state, rehearsed = migration.get("state"), real_name(str(migration.get("source", "")))
    if state == "rolled_back":
        aborted = _last(events, "abort", "reopened")
        view.tone, view.headline = WARN, "Rolled back: producers and groups are on the source"
        said = [f"{aborted.get('actor')} ordered it: {inside(aborted, 'data', 'reason')}."] if aborted else []
        if aborted:
            view.headline = "Aborted: producers and groups are on the source"
        said += [f"The order proof of the way forward says: {proof.get('verdict')}."] if proof else []
        view.reason = " ".join(said)
        return
    if proof:
        view.tone, view.headline = _PROOF.get(str(proof.get("verdict")), (BAD, f"Verdict: {proof.get('verdict')}"))
        view.reason = str(proof.get("reason") or "")
        if rehearsed:
            view.headline = f"A rehearsal, with a sample of {rehearsed}. {view.headline}"
        return
    closed, failed = _last(events, "closed", "reopened"), _last(events, "step_failed", "went_on")
    why = f"{inside(failed, 'data', 'task')}: {inside(failed, 'data', 'message')}" if failed else ""
    if closed:
        view.tone, view.headline = BAD, "Closed before the proof"
        view.reason = f"{closed.get('actor')} closed it: {inside(closed, 'data', 'reason')}. {why}".strip()
    elif state == "failed":
        view.tone, view.headline, view.reason = BAD, "Failed before the proof", why
    elif failed:
        view.tone, view.headline, view.reason = BAD, "Not finished: the run has failed", why
    else:
        view.reason = "There is no order proof yet, so nothing is claimed."


def _last(events: Sequence[Mapping[str, Any]], kind: str, over: str) -> Mapping[str, Any] | None:
    """The last event of a kind, None where there is none or one of kind ``over`` came after it."""
    last = next((e for e in reversed(events) if e.get("kind") in (kind, over)), None)
    return last if last is not None and last.get("kind") == kind else None


def _left(events: Sequence[Mapping[str, Any]], steps: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the end of the migration left to be done by hand."""
    rollback = next((inside(row, "data") for row in steps if row.get("step") == Row.ROLLBACK), None)
    told = [(str(e.get("kind")), data if isinstance(data := e.get("data"), Mapping) else {}) for e in events]
    return left_by_hand(told, rollback if isinstance(rollback, Mapping) else None)


def _shown(events: Sequence[Mapping[str, Any]]) -> float | None:
    """The upper bound of the freeze, in seconds, that was shown before the last yes to it."""
    go = next((e for e in reversed(events) if e.get("kind") == "approved" and _is_go(e)), None)
    found = inside(go, "data", "about", "freeze_at_most_s")
    return float(found) if isinstance(found, int | float) else None


def _is_go(event: Mapping[str, Any]) -> bool:
    return bool(inside(event, "data", "act") == Ask.FREEZE.value and inside(event, "data", "way") != "back")


def _noted(value: Any, what: str) -> str:
    return "" if value is None else f"{value} {what}"


def _number(label: str, value: Any, *, bad: bool = False, note: str = "") -> dict[str, Any]:
    text = f"{value:,}" if isinstance(value, int) else str(value)
    if value is None:
        text = "not counted"
    return {"label": label, "value": text, "tone": BAD if bad else GOOD if value == 0 else "", "note": note}


def _proof(view: View, proof: Mapping[str, Any]) -> None:
    for freeze in view.freezes:
        if freeze["seconds"] is not None:
            note = f"of {freeze['budget']} allowed" if freeze["budget"] else "producers could not write"
            name = "freeze of the way back" if freeze["back"] else "freeze"
            view.numbers.append(_number(name, freeze["length"], note=note))
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
        _number("records in the source", source.get("records"), note=_noted(source.get("partitions"), "partitions")),
        _number("records in the target", target.get("records"), note=_noted(target.get("partitions"), "partitions")),
        _number("keys", proof.get("keys"), note=_noted(proof.get("keys_in_both"), "in both topics")),
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


def _steps(rows: Sequence[Mapping[str, Any]], claimed: datetime | None) -> list[dict[str, Any]]:
    """The journal's rows with their times, and where each lies in the run, in percent of it.

    A row that is written at the end of its step has the time of that step, as the page of the migration has it.
    """
    whole_steps = ends_of_steps(rows, claimed)
    times = [
        whole_steps.get(n) or (when(row.get("started_at")), when(row.get("finished_at"))) for n, row in enumerate(rows)
    ]
    known = [t for pair in times for t in pair if t is not None]
    first, last = (min(known), max(known)) if known else (None, None)
    whole = max((last - first).total_seconds(), 0.001) if first and last else 1.0
    out = []
    for row, (began, ended) in zip(rows, times, strict=True):
        took = (ended - began).total_seconds() if began and ended else None
        name, words = told(str(row.get("step")))
        out.append(
            {
                "step": name,
                "words": words,
                "state": row.get("state"),
                "tone": {"done": GOOD, "undone": WARN, "undoing": BAD}.get(str(row.get("state")), OPEN),
                "clock": clock(began),
                "seconds": took,
                "took": seconds_text(took),
                "left": round(100 * (began - first).total_seconds() / whole, 2) if began and first else 0,
                "share": round(100 * max(took or 0, 0) / whole, 2),
            }
        )
    return out


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
        "taken_at": clock(when(certificate.get("taken_at"))),
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


def _plan(plan: Mapping[str, Any]) -> dict[str, Any]:
    source, target = plan.get("source") or {}, plan.get("target") or {}
    return {
        "hash": str(plan.get("plan_hash", ""))[:12],
        "taken_at": clock(when(plan.get("taken_at"))),
        "from": source.get("partitions"),
        "to": target.get("partitions"),
        "cutover": inside(plan, "spec", "cutover"),
        "actions": [a for a in plan.get("actions", []) if isinstance(a, dict)],
    }
