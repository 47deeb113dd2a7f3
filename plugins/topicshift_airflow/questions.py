"""Questions to people: what each says, and which two answers it takes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from topicshift.core.engine.words import Ask, mark_of
from topicshift_airflow.links import page_of

if TYPE_CHECKING:
    from topicshift.acts.advance import Asking
    from topicshift.acts.context import MigrationContext


@dataclass(frozen=True)
class Question:
    """A question as a person sees it. A yes is for exactly ``about``; its hash stands in headline, text and answers."""

    migration: str
    ask: str
    of: str
    """The consumer group, where the question is about one; else empty."""
    about: dict[str, Any]
    subject: str
    body: str
    yes: str
    no: str
    ends_at: float
    """Until when an answer is waited for, in seconds since the epoch."""
    first: str = ""
    """Who has said the first of two yes; empty where nobody has."""

    def values(self) -> dict[str, Any]:
        """Plain values, for a task that waits for its answer, or for a run's ``conf``."""
        return asdict(self)

    @property
    def timeout(self) -> timedelta:
        """How long an answer is still waited for."""
        return timedelta(seconds=max(1.0, self.ends_at - time.time()))

    @property
    def waits(self) -> str:
        """What is asked, until when, and where it is answered, in one line."""
        of = f" --of {self.of}" if self.of else ""
        return (
            f"{self.subject}, until {datetime.fromtimestamp(self.ends_at, UTC):%Y-%m-%d %H:%M:%S} UTC. Answer under "
            f"Required Actions of this task, or: topicshift answer {self.migration} {self.ask}{of} yes|no"
        )

    @property
    def name(self) -> str:
        """The name of a run of its own for exactly this question."""
        return f"{self.migration}__{mark_of([self.ask, self.of, self.about, *filter(None, [self.first])])}"


def question_of(ctx: MigrationContext, asking: Asking) -> Question:
    """The question in words, with what a person has to know to answer it."""
    from topicshift.acts.questions import first_of, timeout_of, who_of
    from topicshift.core.engine.people import who_text

    text, yes, no = _TEXTS[asking.ask]
    subject, body = text(ctx, asking)
    mark, now = mark_of(asking.about), asking.view.now
    first = first_of(asking.view.record, asking.ask, asking.subject)
    who = who_text(who_of(asking.view.record, asking.ask))
    if first:
        subject, who = f"Second yes: {subject}", f"**{first} has said yes; another person has to, too.** {who}"
    return Question(
        ctx.row.migration_id,
        asking.ask.value,
        asking.subject,
        dict(asking.about),
        f"{subject} [{mark}]",
        body
        + (f"\n\n{who}" if who else "")
        + f"\n\nA yes is for exactly this, marked `{mark}`. If it changes, you are asked again.",
        f"{yes} [{mark}]",
        f"{no} [{mark}]",
        (now + timeout_of(asking.ask, asking.about, asking.view.record, now)).timestamp(),
        first,
    )


Text = tuple[str, str]


def _plan(ctx: MigrationContext, asking: Asking) -> Text:
    from topicshift.acts.planning import accepted_plan
    from topicshift.reporting.markdown import plan_markdown

    plan = accepted_plan(ctx)
    page = page_of(ctx.ports.evidence.url(ctx.row.migration_id, "impact.html"))
    source, target = plan.source, plan.target
    assert source is not None and target is not None
    return (
        f"Move {source.name} ({source.partitions} partitions) to {target.name} ({target.partitions})?",
        plan_markdown(plan, json.loads(ctx.read("impact.json")), page),
    )


def _transactions(ctx: MigrationContext, asking: Asking) -> Text:
    from topicshift.acts.transactions import open_transactions
    from topicshift.core.fence import hanging

    source, wanted = ctx.row.source, asking.about["abort"]
    seen = [t for t in open_transactions(ctx.admin, source, ctx.clock) if hanging.key(t) in wanted]
    now_ms = int(ctx.clock.now().timestamp() * 1000)
    return f"Abort {len(wanted)} hanging transaction(s) on {source}?", hanging.explain(source, seen, now_ms)


def _go(ctx: MigrationContext, asking: Asking) -> Text:
    from topicshift.acts.planning import accepted_plan
    from topicshift.reporting.markdown import go_markdown

    gate = asking.view.gate
    forecast = getattr(gate, "forecast", None)
    return (
        f"Stop the producers of {ctx.row.source} and move to {ctx.row.target}?",
        go_markdown(accepted_plan(ctx), asking.about, forecast, ctx.spec),
    )


def _stop_by_hand(ctx: MigrationContext, asking: Asking) -> Text:
    names = ", ".join(asking.about["stop"])
    return (
        f"Stop {names} now",
        f"Stop every process of **{names}** that writes to `{ctx.row.source}`, then confirm.\n\n"
        f"The freeze begins with your answer and lasts {ctx.spec.freeze_budget.total_seconds():g} s at most. The "
        "answer is checked: the run goes on only when the end of every partition stands still.",
    )


def _certificate(ctx: MigrationContext, asking: Asking) -> Text:
    from topicshift.reporting.markdown import switch_markdown

    freeze = asking.view.record.freeze
    return (
        f"Switch the producers of {ctx.row.source} to {ctx.row.target}?",
        switch_markdown(ctx.row, ctx.spec, ctx.ports.evidence, freeze, asking.about),
    )


def _start_by_hand(ctx: MigrationContext, asking: Asking) -> Text:
    names, target = ", ".join(asking.about["start"]), ctx.row.target
    return (
        f"Point {names} to {target} and start it",
        f"Point **{names}** to `{target}`, start it, then confirm. The source stays closed for writes.",
    )


def _stop_group(ctx: MigrationContext, asking: Asking) -> Text:
    group, target = asking.subject, ctx.row.target
    return (
        f"Stop group {group} now",
        f"Stop every member of group **{group}**, then confirm. Its offsets are then set on `{target}`, and the task "
        "waits until you have pointed it there and started it.",
    )


def _rollback(ctx: MigrationContext, asking: Asking) -> Text:
    from topicshift.core.engine.back import ROLLBACK_TYPES, rollback_type

    kind, why = rollback_type(asking.view)
    source, target = ctx.row.source, ctx.row.target
    does = ROLLBACK_TYPES[str(kind)].format(source=source, target=target)
    if kind == "drain_back":
        who = f"Producers: {', '.join(asking.about['producers'])}. Groups: {', '.join(asking.about['groups'])}. "
        denied = ", ".join(asking.about["deny"]) or "nobody"
        does += f"\n\n{who}Denied in the freeze: {denied}. Freeze: {asking.about['freeze_budget_s']:g} s at most."
    return (
        f"Go back from {target} to {source} ({kind})?",
        f"The type of rollback that holds now is **{kind}**: {why}.\n\n{does}\n\nYour answer is for a rollback of this "
        "type alone. If another type holds by then, nothing is done, and you are asked again.",
    )


def _strays(ctx: MigrationContext, asking: Asking) -> Text:
    from topicshift.core.drain.names import STRAYS
    from topicshift.core.drain.strays import Strays

    strays, groups = Strays.model_validate_json(ctx.read(STRAYS)), ", ".join(asking.about["unseen_by"] or ())
    lines = [f"- `{stray.line(ctx.row.source)}`" for stray in strays.unseen[:20]]
    if len(strays.unseen) > len(lines):
        lines.append(f"- and {len(strays.unseen) - len(lines)} more in `{STRAYS}`")
    return (
        f"Does nobody need {asking.about['unseen']} record(s) that came to {ctx.row.source} too late?",
        f"They came to `{ctx.row.source}` after its fence, when **{groups}** had left it for `{ctx.row.target}` and "
        "could not see them any more:\n\n"
        + "\n".join(lines)
        + "\n\nNobody loses anything else by a yes: it says that these "
        "records, and no others, need not be read by those groups. Where they do, replay them first: "
        f"*Replay late records* on the migration's page (or `topicshift replay {ctx.row.migration_id} --what`) lists "
        "each with what it would do, and warns where newer records of its key are there already.",
    )


def _retire(ctx: MigrationContext, asking: Asking) -> Text:
    from topicshift.core.proof.retirement import retention_of

    source = ctx.row.source
    info = ctx.admin.topic(source)
    keeps = retention_of(info) if info else None
    kept = f"{keeps}" if keeps is not None else "for ever: its records are not copied anywhere by this"
    return (
        f"Delete {source} for good?",
        f"`{source}` (topic id `{asking.about['topic_id']}`) was moved to `{ctx.row.target}`. Nobody reads or writes "
        f"it. It keeps records {kept}.\n\nAfter your answer everybody is denied for {ctx.spec.retire.scream_test}, "
        "then it is looked at again and deleted. **This cannot be undone.**",
    )


_TEXTS: Mapping[Ask, tuple[Callable[..., Text], str, str]] = {
    Ask.PLAN: (_plan, "Approve", "Reject"),
    Ask.ABORT_TRANSACTIONS: (_transactions, "Abort", "Leave them"),
    Ask.FREEZE: (_go, "Go", "Not now"),
    Ask.STOP_BY_HAND: (_stop_by_hand, "Confirm", "Refuse"),
    Ask.CERTIFICATE: (_certificate, "Approve", "Reject"),
    Ask.START_BY_HAND: (_start_by_hand, "Confirm", "Refuse"),
    Ask.STOP_GROUP: (_stop_group, "Confirm", "Refuse"),
    Ask.STRAYS: (_strays, "Accept", "Not yet"),
    Ask.ROLLBACK: (_rollback, "Go back", "Leave it"),
    Ask.RETIRE: (_retire, "Delete it", "Keep it"),
}
"""Of each question: its text, the answer that means yes, the answer that means no."""
