"""Markdown for the questions that Airflow puts to a person: short, with the numbers that matter first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from topicshift.core.drain.certificate import DrainCertificate
from topicshift.core.engine.freeze import Freeze
from topicshift.core.engine.go import Forecast
from topicshift.core.engine.words import ORDER, Step
from topicshift.core.findings import Level
from topicshift.core.impact.report import Impact
from topicshift.core.plan.model import Plan
from topicshift.core.sizing.choice import choose
from topicshift.core.spec.cutover import Cutover
from topicshift.core.spec.model import Approval, Spec
from topicshift.ports import EvidenceStore, MigrationRow

_MARK = {Level.ERROR: "**ERROR**", Level.WARNING: "**Warning**", Level.INFO: "Info"}


def _cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def plan_markdown(plan: Plan, impact: Mapping[str, Any] | None, impact_url: str) -> str:
    """The plan as an approver needs it: what, the impact of the chosen count, findings, what will be done."""
    source, target = plan.source, plan.target
    assert source is not None and target is not None
    out = [
        f"**{source.name}** ({source.partitions} partitions) → **{target.name}** ({target.partitions} partitions, "
        f"replication {target.replication_factor})",
        "",
        f"Order: `{plan.spec.cutover.value}`. Freeze budget: {plan.spec.freeze_budget.total_seconds():g} s. "
        f"Plan `{plan.plan_hash[:12]}`.",
        "",
    ]
    if plan.why:
        out += [f"#### Why {target.partitions} partitions", "", *(f"- {text}" for text in plan.why), ""]
    if plan.unchecked:
        out += [*(f"- Not checked: {text}" for text in plan.unchecked), ""]
    if impact:
        out += _other_advice(plan, impact)
        out += [*_impact_rows(impact, target.partitions), "", f"[Full report]({impact_url})", ""]
    shown = [f for f in plan.findings if f.level is not Level.INFO]
    if shown:
        out += ["#### Findings", ""]
        out += [f"- {_MARK[f.level]} `{f.code}` {f.subject}: {f.seen} {f.why} *{f.do}*" for f in shown]
        out.append("")
    quiet = len(plan.findings) - len(shown)
    if quiet:
        out += [f"{quiet} further finding(s) of level info are in plan.json.", ""]
    out += ["#### What will be done", "", "| step | |", "|---|---|"]
    out += [f"| {a.step} | {_cell(a.text)} |" for a in plan.actions]
    return "\n".join(out)


def _other_advice(plan: Plan, impact: Mapping[str, Any]) -> list[str]:
    """Where the impact page advises another count than this plan takes: an approver is told both."""
    assert plan.target is not None
    try:
        choice = choose(Impact.model_validate(impact))
    except ValidationError:
        return []  # of another version: it advises nothing here
    taken = plan.target.partitions
    if plan.sizing is not None or choice.partitions in (None, taken):
        return []
    why = " ".join(choice.reasons[:1])
    return [
        f"**The impact report advises {choice.partitions} partitions; this plan takes {taken}.** {why} It weighs skew "
        "alone. Reject, and change `partitions` in the spec, to take its advice.",
        "",
    ]


def _impact_rows(impact: Mapping[str, Any], partitions: int) -> list[str]:
    """The impact of the chosen count as a table; of an empty topic, or a count that was not measured, what is known."""
    measured: list[dict[str, Any]] = impact.get("candidates", [])
    chosen = next((c for c in measured if c.get("partitions") == partitions), {})
    out = [
        "| impact | |",
        "|---|---|",
        f"| records, distinct keys | {impact['records']:,}, {impact['distinct_keys']:,} |",
    ]
    if chosen:
        keyed = impact.get("keyed_records") or 0
        share = f" ({chosen['moved_records'] / keyed:.0%} of the keyed records)" if keyed else ""
        out.append(f"| keys that change their partition | {chosen['moved_keys']:,}{share} |")
    rule = impact["partitioner"]
    now, then = impact["source"].get("max_partition_share"), chosen.get("max_partition_share")
    out.append(f"| largest partition now, then | {_share(now)}, {_share(then)} |")
    out.append(f"| rule that placed the keys | {rule.get('name') or 'not recognised'} ({_share(rule.get('fit'))}) |")
    return out


def _share(value: float | None) -> str:
    return "not known" if value is None else f"{value:.1%}"


def go_markdown(plan: Plan, about: Mapping[str, Any], forecast: Forecast | None, spec: Spec) -> str:
    """The go: what will happen, how long producers would stand still, who is denied, and until when a yes holds."""
    source, target, budget = about["source"], about["target"], about["freeze_budget_s"]
    denied = ", ".join(f"`{p}`" for p in about["deny"]) or "nobody (an unmoving end of every partition is the judge)"
    until = datetime.fromisoformat(about["until"])
    window = "none" if about["window"] is None else f"{' to '.join(about['window'])}"
    out = [
        f"Nobody is stopped yet. If you say go, the producers of **{source}** "
        f"({_cell(', '.join(about['producers']))}) are stopped, and go on with **{target}** once everything is proven. "
        f"If that is not done within {budget:g} s, they go back to {source} by themselves.",
        "",
        "| freeze | |",
        "|---|---|",
        *(f"| {name} | {_cell(value)} |" for name, value in _freeze_rows(forecast, spec)),
        f"| **your yes holds while the prediction is at most** | {about['freeze_at_most_s']:g} s |",
        f"| freeze budget | {budget:g} s |",
        f"| window | {window} |",
        f"| denied to write to {source} meanwhile | {denied} |",
        "",
        f"A yes holds until **{until:%Y-%m-%d %H:%M} UTC**, for this freeze alone. Before the first producer is "
        "stopped the gate is looked at once more.",
        "",
        "#### What will be done",
        "",
        "| step | |",
        "|---|---|",
    ]
    order = ORDER[spec.cutover]
    steps = order[order.index(Step.STOP_PRODUCERS) : order.index(Step.VERIFY)]
    out += [f"| {a.step} | {_cell(a.text)} |" for a in plan.actions if a.step in steps]
    return "\n".join(out)


def _freeze_rows(forecast: Forecast | None, spec: Spec) -> Iterator[tuple[str, str]]:
    """What the prediction is made of: what was measured, and by name what was not."""
    if forecast is None or forecast.seconds is None:
        yield "predicted", "not known: the groups' rates could not be measured"
        return
    yield "**predicted**", f"**{forecast.seconds:.1f} s**"
    yield "of it: the source stands still", f"{forecast.settle_s:g} s"
    if spec.cutover is Cutover.DRAIN_FIRST:
        slow = sorted(((s, g) for g, s in (forecast.groups or {}).items() if s is not None), reverse=True)[:3]
        named = "; ".join(f"{g} {s:.1f} s" for s, g in slow)
        yield "of it: groups read the rest, at their rate of just now", f"{forecast.drain_s:.1f} s ({named})"
    took = forecast.stop_s
    yield (
        "of it: producers stop",
        "not measured before the first freeze, so not in it" if took is None else f"{took:.1f} s in the last freeze",
    )
    if forecast.own_s is None:
        yield "the product's own acts", "not rehearsed, so not in it"
    else:
        at = (forecast.rehearsed_at or "")[:16]
        yield "of it, measured: the product's own acts", f"{forecast.own_s:.1f} s in the rehearsal that ended {at}"
    if took is None:
        yield "only estimated, not in it", "how long applications take to stop and to start: no rehearsal moves them"
    if forecast.gone_s is not None:
        yield "one dead producer process can add up to", f"{forecast.gone_s:g} s"
    people = [p.name for p in spec.producers if p.kind == "manual"]
    if people:
        yield "not in it", f"the time in which people stop and start {', '.join(people)}"
    if spec.approvals.certificate is Approval.REQUIRED:
        yield "not in it", "the time in which a person accepts the certificate"


def switch_markdown(
    row: MigrationRow, spec: Spec, evidence: EvidenceStore, freeze: Freeze | None, about: Mapping[str, Any]
) -> str:
    """The last question: the certificate, and until when an answer is possible."""
    out = [
        f"Producers of **{row.source}** are stopped. If you approve, they go on with **{row.target}**; from its first "
        "record on there is no free way back.",
        "",
    ]
    if freeze is not None:
        out += [f"Without an answer by **{freeze.act_until:%H:%M:%S} UTC** they go back to {row.source}.", ""]
    if spec.cutover is Cutover.PRODUCERS_FIRST:
        out.append("Nothing is written to the source any more (see fence.json). Groups drain it afterwards.")
    data = evidence.read(row.migration_id, "drain_certificate.json") if spec.cutover is Cutover.DRAIN_FIRST else None
    if data is not None:
        out += [certificate_markdown(DrainCertificate.model_validate_json(data)), ""]
    out += [f"- {name}: `{str(value)[:16]}`" for name, value in about.items()]
    return "\n".join(out)


def certificate_markdown(certificate: DrainCertificate) -> str:
    """A certificate as a table, one row a group."""
    out = [
        f"Drain certificate of {certificate.taken_at}: **{certificate.verdict.value}**",
        "",
        "| group | kind | verdict | partitions drained |",
        "|---|---|---|---|",
    ]
    for g in certificate.groups:
        done = sum(p.verdict.value == "drained" for p in g.partitions)
        out.append(f"| {_cell(g.group)} | {g.kind} | {g.verdict.value} | {done} of {len(g.partitions)} |")
    return "\n".join(out)
