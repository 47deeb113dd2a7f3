"""Markdown for the questions that Airflow puts to a person: short, with the numbers that matter first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topicshift.core.drain.certificate import DrainCertificate
from topicshift.core.engine.freeze import Freeze
from topicshift.core.findings import Level
from topicshift.core.plan.model import Plan
from topicshift.core.spec.cutover import Cutover
from topicshift.core.spec.model import Spec
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


def cutover_markdown(
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
