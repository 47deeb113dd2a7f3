"""The rules before anybody is stopped: plan, target, the gate of the freeze, and the go."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from topicshift.core.engine.decision import Decision, Table, act, answered, due, retell, stop, wait
from topicshift.core.engine.view import Unknown, View
from topicshift.core.engine.where import against_policy, before_freeze, driven, end_or_stop, named, planning, seen
from topicshift.core.engine.words import Act, Ask, Fact, Row, Step

BEFORE = Table()
rule = BEFORE.rule


# ------------------------------------------------------------------------------------------ plan and target


@rule(lambda r: r.policy.rehearsal and not r.done(Row.SHADOW), step=Step.PLAN)
def shadow_made(view: View) -> Decision | None:
    """A rehearsal begins with topics and groups of its own, which are all that it ever touches."""
    return act(Act.MAKE_SHADOW, "the shadow of the rehearsal is not made yet")


@rule(lambda r: planning(r) and r.plan_hash is None, Fact.IMPACT, step=Step.PLAN)
def plan_made(view: View) -> Decision | None:
    """A plan with the impact in it, before anybody is asked for anything."""
    if not view.record.done(Row.CHECK):
        return act(Act.CHECK_PLAN, "topics, groups and rights are looked at first")
    if isinstance(view.impact, Unknown):
        return wait(f"the impact cannot be looked up: {view.impact.why}")
    if view.impact.verdict is None:
        return retell(view, Act.MEASURE_IMPACT, "the keys are not measured yet", "the key-rehash impact (Spark)")
    return act(Act.DECIDE_PLAN, "the keys are measured")


@rule(lambda r: planning(r) and r.plan_hash is not None, Fact.PLAN, step=Step.APPROVE)
def plan_current(view: View) -> Decision | None:
    """The plan that is asked about and carried out is the one that the world gives now."""
    plan = view.plan
    if isinstance(plan, Unknown):
        return wait(f"the plan cannot be made anew: {plan.why}")
    if plan.blocking:
        return stop(
            "PreflightFailed", "something has come up that blocks; nothing was changed: " + "; ".join(plan.blocking)
        )
    if plan.plan_hash != view.record.plan_hash:
        return act(Act.DECIDE_PLAN, "the cluster has changed since the plan was made: " + "; ".join(plan.differs))
    return None


@rule(lambda r: planning(r) and r.plan_hash is not None, step=Step.APPROVE)
def plan_approved(view: View) -> Decision | None:
    """A person (or the spec) accepts exactly this plan, by its hash."""
    return answered(view, Ask.PLAN, f"the plan {(view.record.plan_hash or '')[:12]} has to be accepted")


@rule(lambda r: r.plan_hash is not None and not r.done(Row.CREATE_TARGET), step=Step.CREATE_TARGET)
def target_made(view: View) -> Decision | None:
    """The target comes before anybody is stopped for it."""
    return act(Act.CREATE_TARGET, "the target is not made yet")


@rule(lambda r: r.done(Row.CREATE_TARGET), Fact.TARGET)
def target_stands(view: View) -> Decision | None:
    """Nobody is stopped for, or sent to, a target that is not the one that was planned and made."""
    target = view.target
    if isinstance(target, Unknown):
        return wait(f"{view.record.target} cannot be described: {target.why}")
    # Whoever is on it already must be able to write there, whatever else is wrong with it.
    odd = [*(f"{a} is missing" for a in target.missing_acls), *(f"{a} came late" for a in target.late_denies)]
    again = odd and (not target.wrong or due(view, Act.REPAIR_TARGET))
    if not target.exists or (target.wrong and not again):
        what = target.wrong or "it does not exist any more"
        return end_or_stop(view, "Refused", f"{view.record.target} is not what was planned: {what}")
    if odd:
        text = f"ACLs of the target: {', '.join(odd)}"
        return retell(view, Act.REPAIR_TARGET, text, text)
    return None


# -------------------------------------------------------------------------------------------- before the freeze


@rule(lambda r: before_freeze(r) and not r.mirrored, Fact.POLICY, step=Step.STOP_PRODUCERS)
def policy_allows(view: View) -> Decision | None:
    """No freeze begins for what the installation policy does not allow by now; it keeps nobody from going back."""
    return against_policy(view, partial(stop, "Refused"))


@rule(before_freeze, Fact.SOURCE, step=Step.STOP_PRODUCERS)
def source_is_planned(view: View) -> Decision | None:
    """No freeze begins for a source that is not as it was planned: other partitions, another topic of the name."""
    source = view.source
    if isinstance(source, Unknown):
        return wait(f"{view.record.source} cannot be described: {source.why}")
    if not source.differs:
        return None
    return stop("Refused", f"{view.record.source} {source.differs}; close this migration, and plan anew")


@rule(lambda r: before_freeze(r) and r.policy.window is not None, step=Step.STOP_PRODUCERS)
def window_open(view: View) -> Decision | None:
    """A freeze begins where it can end before the window closes. A missed window is waited out, as before it."""
    record, window = view.record, view.record.policy.opening(view.now)
    if window is None or window.is_open(view.now):
        return None
    opens = f"the next window in which a freeze can end opens at {window.opens.isoformat(timespec='minutes')}"
    if record.in_effect(Row.ARM) or record.in_effect(Row.LENGTHEN_RETENTION):
        return act(Act.MISS_WINDOW, f"the window was missed; {opens}")
    return wait(f"the window is closed, and nobody is stopped; {opens}", window.opens.isoformat())


@rule(before_freeze, step=Step.STOP_PRODUCERS)
def captured(view: View) -> Decision | None:
    """What a way back puts in place again is on record before anything of it is changed."""
    return None if view.record.done(Row.BEFORE) else act(Act.CAPTURE, "what is there now is not on record yet")


@rule(before_freeze, Fact.PRODUCERS, step=Step.STOP_PRODUCERS)
def armed(view: View) -> Decision | None:
    """Participants are told that a migration is planned, so that they follow closely; again, where some do not."""
    if not view.record.done(Row.ARM):
        return act(Act.ARM, "participants are not armed yet")
    loose = [p.name for p in driven(view) if seen(view, p).armed is False]
    if loose and due(view, Act.ARM):
        return act(Act.ARM, f"not armed: {', '.join(loose)}")
    return None


@rule(before_freeze, Fact.TRANSACTIONS, step=Step.STOP_PRODUCERS)
def transactions_settled(view: View) -> Decision | None:
    """Transactions that stand still end before anybody is stopped; a person alone has a hanging one aborted."""
    found = view.transactions
    if isinstance(found, Unknown):
        return wait(f"the transactions on the source cannot be read: {found.why}")
    if found.standing_until is not None and view.now < found.standing_until:
        return wait("transactions stand still on the source", found.standing_until.isoformat())
    if not found.hanging:
        return None
    why = f"{len(found.hanging)} transaction(s) hang on the source"
    return answered(view, Ask.ABORT_TRANSACTIONS, why) or act(Act.ABORT_TRANSACTIONS, why)


@rule(before_freeze, Fact.RETENTION, step=Step.STOP_PRODUCERS)
def retention_long_enough(view: View) -> Decision | None:
    """Records live until every group has read them."""
    return retention_kept(view)


def retention_kept(view: View) -> Decision | None:
    """Whether the longer retention is in force: None where it is, or none was needed."""
    if not view.record.done(Row.LENGTHEN_RETENTION):
        return act(Act.LENGTHEN_RETENTION, "whether records could expire unread was not looked at yet")
    if isinstance(view.retention_at_risk, Unknown):
        return wait(f"the retention of the source cannot be read: {view.retention_at_risk.why}")
    if view.retention_at_risk:
        return retell(
            view, Act.LENGTHEN_RETENTION, "the longer retention was taken back", "the retention of the source"
        )
    return None


@rule(lambda r: before_freeze(r) and not r.mirrored, Fact.VERIFIER, Fact.GATE, step=Step.STOP_PRODUCERS)
def verifier_started(view: View) -> Decision | None:
    """The verifier is armed before the fence, so that no JVM has to start while producers stand still; anew where it
    has died meanwhile."""
    found = view.verifier
    too_late = not isinstance(view.gate, Unknown) and view.gate.too_late
    if isinstance(found, Unknown) or found.state not in ("absent", "gone") or too_late:
        return None
    why = "was not started yet" if found.state == "absent" else f"is gone, so another one is started ({found.text})"
    return retell(view, Act.START_VERIFIER, f"the armed drain verifier {why}", f"the armed drain verifier {why}")


@rule(before_freeze, Fact.GATE, Fact.VERIFIER, Fact.PRODUCERS, Fact.GROUPS, step=Step.STOP_PRODUCERS)
def gate(view: View) -> Decision | None:
    """No freeze begins unless it would end within its budget, everybody answers, and the verifier lives.

    Once a person has stopped producers they stand still already: to wait for the groups then would freeze them under no
    clock, and whether somebody writes on is for the fence to find out.
    """
    found = view.gate
    if view.answer(Ask.STOP_BY_HAND).said == "yes" and not isinstance(found, Unknown):
        found = replace(found, waits=())
    waits = [] if not isinstance(found, Unknown) else [f"the gate cannot be judged: {found.why}"]
    if not isinstance(found, Unknown):
        waits += found.waits
    waits += _verifier_waits(view) + _members_wait(view)
    if not isinstance(found, Unknown) and found.too_late:
        return stop(
            "DrainTimedOut",
            "the time in which this run might begin its freeze is over: "
            + ("; ".join(waits) or "nothing else was in the way"),
        )
    return wait("; ".join(waits)) if waits else None


def _verifier_waits(view: View) -> list[str]:
    if view.record.mirrored:
        return []  # whoever advances a way back reads what is left by itself
    found = view.verifier
    if isinstance(found, Unknown):
        return [f"the armed drain verifier cannot be looked at: {found.why}"]
    if found.state == "ready":
        return []
    return [f"the armed drain verifier is {found.state}" + (f" ({found.text})" if found.text else "")]


def _members_wait(view: View) -> list[str]:
    out = []
    for p in driven(view):
        where = seen(view, p)
        if not where.runs_on("source") or where.armed is False:
            out.append(f"producer {named(view, [p])}" + (", not armed yet" if where.armed is False else ""))
    for c in view.record.policy.consumers:
        fact = view.groups.get(c.group, Unknown("it was not asked"))
        if c.manual:
            continue
        if isinstance(fact, Unknown):
            out.append(f"group {c.group} cannot be seen: {fact.why}")
        elif fact.where.status != "running":
            out.append(
                f"group {c.group} is {fact.where.status}" + (f" ({fact.where.reason})" if fact.where.reason else "")
            )
    return out


@rule(before_freeze, Fact.GATE, step=Step.STOP_PRODUCERS)
def go_given(view: View) -> Decision | None:
    """Nobody is stopped before a person (or the spec) says go to exactly this freeze."""
    denied = view.gate.denied if not isinstance(view.gate, Unknown) else view.gate
    if isinstance(denied, Unknown):
        return wait(f"who would be denied cannot be told: {denied.why}")
    return _in_window(view, Ask.FREEZE, f"nobody is stopped on {view.record.source} before a person says go")


def _in_window(view: View, ask: Ask, why: str) -> Decision | None:
    """Silence until the window closes is no failure: the next one is waited for, and asked in."""
    window = view.record.policy.opening(view.now)
    if window is not None and view.answer(ask).said == "silence":
        return wait(f"nobody answered in this window: {why}", window.last.isoformat())
    return answered(view, ask, why)


@rule(before_freeze, step=Step.STOP_PRODUCERS)
def stopped_by_hand(view: View) -> Decision | None:
    """Producers that a person stops are stopped before the freeze's clock starts."""
    people = [p.name for p in view.record.policy.producers if p.manual]
    return _in_window(view, Ask.STOP_BY_HAND, f"a person has to stop {', '.join(people)}") if people else None


@rule(before_freeze, step=Step.STOP_PRODUCERS)
def freeze_begun(view: View) -> Decision | None:
    """The freeze's clock starts before the first producer is stopped."""
    return act(Act.BEGIN_FREEZE, "everything is ready for the freeze")
