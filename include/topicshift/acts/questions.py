"""Questions to people: what each is about, its answer in the journal, and until when it may be answered.

A question is one journal row (``ask:`` and its name). A yes counts for exactly what the question was about when it was
shown; when that has changed, the question is open again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Literal

from topicshift.acts.context import MigrationContext
from topicshift.core.engine import go
from topicshift.core.engine.back import rollback_type
from topicshift.core.engine.people import Person, objection, person_of, second_wanted, still_counts
from topicshift.core.engine.view import Answer, Record, Unknown, View, key_of
from topicshift.core.engine.words import BY_HAND, OF_A_MOMENT, Ask, Row, StepState, row_of
from topicshift.core.errors import NotCounted, Refused, TopicshiftError
from topicshift.core.notices import AUTO
from topicshift.core.policy.who import Who

_TIMEOUTS = {
    Ask.PLAN: timedelta(days=3),
    Ask.ABORT_TRANSACTIONS: timedelta(hours=12),
    Ask.FREEZE: go.HOLDS,
    Ask.STOP_BY_HAND: timedelta(hours=4),
    Ask.CERTIFICATE: timedelta(hours=1),
    Ask.START_BY_HAND: timedelta(hours=2),
    Ask.STOP_GROUP: timedelta(hours=4),
    Ask.STRAYS: timedelta(days=3),
    Ask.ROLLBACK: timedelta(hours=4),
    Ask.RETIRE: timedelta(days=7),
}

_PUT_BACK = " If something was stopped or started by hand for this answer alone, put it back as it was."


@cache
def name_of(ask: Ask, subject: str = "") -> str:
    """Journal name of a question."""
    return row_of(Row.QUESTION, f"{ask.value}:{subject}" if subject else ask.value)


def about_of(ask: Ask, subject: str, record: Record, view: View) -> dict[str, Any]:
    """What a yes to this question is for, as things stand now."""
    policy = record.policy
    people = [p.name for p in policy.producers if p.manual]
    switch = record.step(Row.SWITCH_PRODUCERS)
    if ask is Ask.PLAN:
        return {"plan_hash": record.plan_hash}
    if ask is Ask.ABORT_TRANSACTIONS:
        keys = () if isinstance(view.transactions, Unknown) else view.transactions.hanging
        return {"topic": record.source, "abort": sorted(keys)}
    if ask is Ask.FREEZE:
        return _about_go(record, view)
    if ask is Ask.STOP_BY_HAND:
        window = policy.opening(view.now)
        during = {} if window is None else {"window": window.opens.isoformat()}
        return {"stop": people, "source": record.source, "attempt": attempt_of(record), **during}
    if ask is Ask.ROLLBACK:
        return _about_rollback(record, view)
    if ask is Ask.CERTIFICATE:
        return {"plan_hash": record.plan_hash, **_evidence(record)}
    if ask is Ask.START_BY_HAND:
        return {"start": people, "target": record.target, "switch": switch.data.get("at") if switch else None}
    if ask is Ask.STOP_GROUP:
        return {"stop_group": subject, "target": record.target, "switch": switch.data.get("at") if switch else None}
    if ask is Ask.STRAYS:
        again = record.step(Row.FENCE_AGAIN)
        kept = again.data if again is not None else {}
        return {"topic": record.source, **{k: kept.get(k) for k in ("unseen", "unseen_by", "sha256")}}
    fence = record.step(Row.FENCE)
    return {"topic": record.source, "topic_id": fence.data.get("topic_id") if fence is not None else None}


def _about_rollback(record: Record, view: View) -> dict[str, Any]:
    before = record.step(Row.ROLLBACK)  # one that was called off had a yes of its own, which counts no more
    after = before.finished_at if before is not None else None
    kind = rollback_type(view)[0]
    about = {"rollback": kind, "source": record.source, "target": record.target, "after": after}
    if kind != "drain_back":
        return about
    policy, fence = record.policy, record.step(Row.FENCE)
    denied = {a["principal"] for a in fence.data.get("acls_added", ())} if fence is not None else set()
    return {
        **about,
        "producers": [p.name for p in policy.producers],
        "groups": list(policy.groups),
        "deny": sorted(denied),
        "freeze_budget_s": policy.freeze_budget.total_seconds(),
    }


def attempt_of(record: Record) -> int:
    """The number of the freeze that would begin now: those of this migration are counted from 1."""
    freeze = record.step(Row.FREEZE)
    return 1 + (int(freeze.data.get("attempt", 1)) if freeze is not None else 0)


def shown_of(record: Record, ask: Ask, subject: str = "") -> Mapping[str, Any]:
    """What the question was about when it was shown last; empty where it was not asked, or is closed."""
    row = record.steps.get(name_of(ask, subject))
    found: Mapping[str, Any] = row.data.get("about", {}) if row is not None and row.state.in_effect else {}
    return found


def _about_go(record: Record, view: View) -> dict[str, Any]:
    """What was shown, as long as that holds; else what is to be shown now. Without a gate nobody is asked."""
    policy, gate, shown = record.policy, view.gate, shown_of(record, Ask.FREEZE)
    if isinstance(gate, Unknown) or isinstance(gate.denied, Unknown):
        return dict(shown)
    window = policy.opening(view.now)
    covered = {
        "plan_hash": record.plan_hash,
        "source": record.source,
        "target": record.target,
        "producers": [p.name for p in policy.producers],
        "groups": list(policy.groups),
        "deny": sorted(gate.denied),
        "freeze_budget_s": policy.freeze_budget.total_seconds(),
        "window": None if window is None else [window.opens.isoformat(), window.closes.isoformat()],
        "attempt": attempt_of(record),
    }
    budget_s = policy.freeze_budget.total_seconds()
    stopped = _answer(view, Ask.STOP_BY_HAND, "").said == "yes"
    if shown and go.still_holds(
        shown, covered, gate.forecast, budget_s=budget_s, stopped_by_hand=stopped, now=view.now
    ):
        return dict(shown)
    return go.ask_for(covered, gate.forecast, budget_s=budget_s, last=window.last if window else None, now=view.now)


def _evidence(record: Record) -> dict[str, Any]:
    """The certificate, or for the other order the fence, that the switch rests on."""
    if record.policy.drain_first:
        row = record.step(Row.CERTIFICATE)
        return {"certificate": row.data.get("substance") if row is not None else None}
    row = record.step(Row.FENCE)
    proof = row.data.get("record") if row is not None else None
    return {"fence": proof.get("taken_at") if proof else None}


def answers_of(view: View) -> dict[str, Answer]:
    """The answer to every question, for what it is about as this view shows it."""
    policy, answers = view.record.policy, {}
    for ask, name in _NAMES.items():
        subjects = [c.group for c in policy.consumers if c.manual] if ask is Ask.STOP_GROUP else _NO_SUBJECT
        for subject in subjects:
            answers[key_of(name, subject)] = _answer(view, ask, subject) if ask in policy.required else _BY_SPEC
    return answers


_NAMES = {ask: ask.value for ask in Ask}
_NO_SUBJECT = ("",)
_SPEC = "spec"
_BY_SPEC = Answer("yes", by=_SPEC)
_OPEN = Answer(None)
_ASKED = Answer(None, asked=True)


def _answer(view: View, ask: Ask, subject: str) -> Answer:
    row = view.record.steps.get(name_of(ask, subject))
    if row is None or not row.state.in_effect:
        return _OPEN
    shown, about = row.data.get("about"), about_of(ask, subject, view.record, view)
    if shown != about and shown != _plain(about):
        return _OPEN
    if row.state is StepState.INTENDED:
        return _ASKED
    if row.data["said"] == "yes" and not _counts(view.record, ask, row.data):
        return _OPEN  # who may answer was narrowed since, or a person is wanted by now
    if ask in OF_A_MOMENT and row.data["said"] != "yes" and datetime.fromisoformat(row.data["at"]) < view.began_at:
        return _OPEN  # somebody goes on after a no: by now it may be done
    return Answer(row.data["said"], True, str(row.data.get("by", "")))


def _counts(record: Record, ask: Ask, row: Mapping[str, Any]) -> bool:
    return row.get("by") != _SPEC and still_counts(who_of(record, ask), row)


def who_of(record: Record, ask: Ask) -> Who:
    """Who may answer this question, as things stand now."""
    return record.policy.who.get(ask, Who())


def first_of(record: Record, ask: Ask, subject: str) -> str:
    """Who has said the first of two yes to this question, empty where nobody has."""
    row = record.steps.get(name_of(ask, subject))
    first = person_of(row.data.get("first")) if row is not None and row.state is StepState.INTENDED else None
    return first.name if first is not None else ""


def _plain(about: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(about))


def timeout_of(ask: Ask, about: Mapping[str, Any], record: Record, now: datetime) -> timedelta:
    """How long an answer is waited for. Inside the freeze that ends at the last moment to act.

    Before the freeze it ends with the go: what it would be for is asked about anew then. A way back has no go.
    """
    freeze, shortest = record.freeze, timedelta(seconds=1)
    if ask is Ask.CERTIFICATE and freeze is not None:
        return max(shortest, timedelta(seconds=freeze.left(now)))
    go = {} if record.mirrored else shown_of(record, Ask.FREEZE)
    until = {Ask.FREEZE: about, Ask.STOP_BY_HAND: go}.get(ask, {}).get("until")
    left = _TIMEOUTS[ask] if until is None else datetime.fromisoformat(str(until)) - now
    return max(shortest, min(_TIMEOUTS[ask], left))


def record_question(ctx: MigrationContext, ask: Ask, subject: str, about: Mapping[str, Any], headline: str) -> None:
    """Write down that the question was shown. Does nothing where exactly this one is open already."""
    name = name_of(ask, subject)
    row = ctx.journal.step(ctx.row.migration_id, name)
    if row is not None and row.state != StepState.UNDONE.value:
        if row.state == StepState.INTENDED.value and row.data.get("about") == _plain(about):
            return
        ctx.journal.finish(ctx.claim, name, {}, state=StepState.UNDONE.value)
    now = ctx.clock.now()
    lasts = timeout_of(ask, about, ctx.memory.record or ctx.record(), now)
    times = {"asked_at": now.isoformat(), "until": (now + lasts).isoformat()}
    trigger = {"triggered_by": ctx.triggered_by} if ctx.triggered_by else {}
    ctx.journal.intend(ctx.claim, name, {"about": dict(about), "subject": headline, **times, **trigger})
    ctx.event("asked", {"act": ask.value, "subject": headline, "about": dict(about), "for": subject})


def record_answer(
    ctx: MigrationContext,
    ask: Ask,
    subject: str,
    about: Mapping[str, Any],
    said: Literal["yes", "no", "silence"],
    *,
    actor: str,
    person: Person | None = None,
) -> None:
    """Write down who said what, for exactly the question that was shown.

    ``person`` is who answered, as Airflow has identified it; None where nobody has. A yes that is the first of two
    leaves the question open.

    Raises ``Refused`` where another question, or none, is open by now: the answer counts for nothing then. Raises
    ``NotCounted`` where the question is open, and this person may not answer it.
    """
    name = name_of(ask, subject)
    row = ctx.journal.step(ctx.row.migration_id, name)
    if row is None or row.state != StepState.INTENDED.value or row.data.get("about") != _plain(about):
        ctx.event("answer_ignored", {"act": ask.value, "about": dict(about), "said": said}, actor=actor)
        raise Refused(
            f"The answer to {ask.value} counts for nothing: what it is about has changed since it was shown, or it was "
            "answered already. Look at the question as it is now, and answer that."
            + (_PUT_BACK if ask in BY_HAND and said == "yes" else "")
        )
    who = _require_person(ctx, ask, row.data, said, person, actor) if said != "silence" else Who()
    data: dict[str, Any] = {"said": said, "by": actor, "at": ctx.clock.now().isoformat()}
    if person is not None:
        data["user"] = person.values()
    what = {"act": ask.value, "about": dict(about), "for": subject, "how": "person"}
    if person is not None and said == "yes" and second_wanted(who, row.data):
        first = {"first": person.values(), "first_at": data["at"]}
        ctx.journal.finish(ctx.claim, name, {**row.data, **first}, state=StepState.INTENDED.value)
        ctx.event("first_yes", what, actor=actor)
        return
    ctx.journal.finish(ctx.claim, name, {**row.data, **data}, state=StepState.DONE.value)
    kind = {"yes": "approved", "no": "refused", "silence": "unanswered"}[said]
    ctx.event(kind, what, actor=actor)


def _require_person(
    ctx: MigrationContext, ask: Ask, row: Mapping[str, Any], said: str, person: Person | None, actor: str
) -> Who:
    """Who may answer now. Raises ``NotCounted`` where this person may not, and where that cannot be told."""
    try:
        ctx.installation()
        who = ctx.policy.who.get(ask, Who())
        why = objection(who, person, said, row)
    except TopicshiftError as error:
        who, why = Who(), str(error)
    if why:
        ctx.event("answer_not_counted", {"act": ask.value, "said": said, "why": why}, actor=actor)
        raise NotCounted(f"The answer to {ask.value} is not counted: {why}. The question stays open.")
    return who


def approve_by_spec(ctx: MigrationContext, ask: Ask, about: Mapping[str, Any]) -> None:
    """Write down, once, that the spec wants no person for this question."""
    if ask in ctx.policy.required:
        return
    name = name_of(ask)
    row = ctx.journal.step(ctx.row.migration_id, name)
    if row is not None and row.state == StepState.DONE.value and row.data.get("about") == _plain(about):
        return
    record_question(ctx, ask, "", about, AUTO)
    data = {"said": "yes", "by": _SPEC, "at": ctx.clock.now().isoformat()}
    ctx.journal.finish(ctx.claim, name, data, state=StepState.DONE.value)
    ctx.event("approved", {"act": ask.value, "about": dict(about), "for": "", "how": "auto"}, actor=_SPEC)
