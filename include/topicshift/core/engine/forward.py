"""The rules of a migration that goes forward: plan, target, gate, freeze, drain, switch, groups, proof."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from topicshift.core.engine.decision import Decision, Kind, Table, act, answered, due, over, retell, stop, wait
from topicshift.core.engine.view import DrainFact, GroupFact, Member, Record, Side, Unknown, View, Whereabouts
from topicshift.core.engine.words import Act, Ask, Fact, Row, Step, StepState

FORWARD = Table()
rule = FORWARD.rule

CERTIFICATE_VALID = timedelta(seconds=60)
"""A drain certificate older than this is taken anew before it licenses an act."""


# ------------------------------------------------------------------------------------------- where the run stands


def always(record: Record) -> bool:
    """In play at any time."""
    return True


def planning(record: Record) -> bool:
    """Nothing was changed yet."""
    return not record.in_effect(Row.CREATE_TARGET)


def before_freeze(record: Record) -> bool:
    """The target is there and no producer is stopped."""
    return record.done(Row.CREATE_TARGET) and record.freeze is None and not record.in_effect(Row.SWITCH_PRODUCERS)


def frozen(record: Record) -> bool:
    """Producers are stopped, or about to be, and nobody was pointed to the target."""
    return record.at(Row.FREEZE) is StepState.INTENDED and not record.in_effect(Row.SWITCH_PRODUCERS)


def fencing(record: Record) -> bool:
    """The freeze has begun and the fence is not proven yet."""
    return frozen(record) and not record.done(Row.FENCE)


def fenced(record: Record) -> bool:
    """The fence is proven, and producers are not pointed to the target yet."""
    return frozen(record) and record.done(Row.FENCE)


def switching(record: Record) -> bool:
    """The intent to point producers to the target is written, and not all of them run there yet."""
    return record.at(Row.SWITCH_PRODUCERS) is StepState.INTENDED


def switched(record: Record) -> bool:
    """Every producer runs on the target."""
    return record.done(Row.SWITCH_PRODUCERS)


def moving(record: Record) -> bool:
    """The fence is proven, and some group is not on the target yet."""
    return record.done(Row.FENCE) and not all_moved(record)


def all_moved(record: Record) -> bool:
    """Every producer and every group runs on the target."""
    return switched(record) and all(record.done(Row.SWITCH_GROUP, g) for g in record.policy.groups)


def certifying(record: Record) -> bool:
    """Certificates are wanted now, by the order of this migration."""
    if record.policy.drain_first:
        return fenced(record)
    return switched(record) and any(not record.begun(Row.SWITCH_GROUP, g) for g in record.policy.groups)


def releasing(record: Record) -> bool:
    """Producers are on the target under the wider DENY, and some group is not there yet."""
    return switched(record) and record.done(Row.WIDE_DENY) and not all_moved(record)


def resume(error: str, why: str) -> Decision:
    """End the freeze: producers resume on the source. ``error`` says how the run ends then."""
    return replace(act(Act.BEGIN_RESUME, why), error=error)


def end_or_stop(view: View, error: str, why: str) -> Decision:
    """Resume on the source where it is certain that nobody is on the target, else stop and call a person."""
    if frozen(view.record) or (switching(view.record) and _nobody_on_target(view)):
        return resume(error, why)
    return stop(error, why, _way_out(view.record) if error == "FenceBroken" else "")


def _way_out(record: Record) -> str:
    """What a person can do once the fence is broken with producers on the target."""
    left = ", ".join(g for g in record.policy.groups if not record.begun(Row.SWITCH_GROUP, g)) or "no group"
    return (
        f"Nobody else is moved, and both topics stay locked. Find that writer and stop it; still on {record.source}: "
        f"{left}. Where this run is not to go on: topicshift close {record.migration_id} gives both topics free "
        "and names what is left to do by hand."
    )


def driven(view: View) -> list[Member]:
    """Producers that a controller moves."""
    return [p for p in view.record.policy.producers if not p.manual]


def seen(view: View, member: Member) -> Whereabouts:
    """A producer as observed; unknown where nothing was said of it."""
    if isinstance(view.producers, Unknown):
        return Whereabouts("unknown", reason=view.producers.why)
    return view.producers.get(member.name) or Whereabouts("unknown", reason="its controller gave no answer")


def arrived(view: View, member: Member, side: Side) -> bool:
    """Whether a producer runs there, or would, if it has no live instance now."""
    where = seen(view, member)
    return where.side == side and (where.status == "running" or where.absent)


def named(view: View, members: list[Member]) -> str:
    """Members with what was seen of each, for a person."""
    return "; ".join(
        f"{m.name} is {w.status}" + (f" on the {w.side}" if w.side else "") + (f" ({w.reason})" if w.reason else "")
        for m in members
        for w in [seen(view, m)]
    )


# ------------------------------------------------------------------------------------------------ at any time


@rule(lambda r: r.over)
def ended(view: View) -> Decision | None:
    """A migration that has ended does not act again, whoever clears a task of it."""
    return over(f"the migration is {view.record.state.value}")


@rule(lambda r: r.at(Row.FREEZE) is StepState.UNDONE)
def resumed_here(view: View) -> Decision | None:
    """An advancer that saw its freeze end does not begin another one by itself."""
    row = view.record.step(Row.FREEZE)
    at = row.finished_at if row is not None else None
    if row is None or at is None or datetime.fromisoformat(at) < view.began_at:
        return None
    if view.wanted == "resume":
        return over("producers are back on the source")
    return stop(str(row.data.get("error") or "Refused"), f"producers are back on the source: {row.data.get('why', '')}")


@rule(frozen)
def budget(view: View) -> Decision | None:
    """Without time left in the freeze, and before anybody was pointed to the target, producers resume on the source."""
    freeze = view.record.freeze
    if freeze is None or view.now < freeze.act_until:
        return None
    return resume(
        "DrainTimedOut", f"the freeze budget is used up ({-freeze.left(view.now):.1f} s past the last moment to act)"
    )


@rule(lambda r: r.at(Row.FREEZE) is StepState.INTENDED, Fact.PRODUCERS, Fact.TARGET)
def asked_to_resume(view: View) -> Decision | None:
    """A failed task, a person or the watching DAG asks to end the freeze: granted while nobody is on the target."""
    if view.wanted != "resume":
        return None
    return resume("Refused", "it was asked for") if frozen(view.record) else start_over(view, "it was asked for")


@rule(always)
def nothing_to_resume(view: View) -> Decision | None:
    """Asked to resume where no freeze runs."""
    return over("no freeze is running") if view.wanted == "resume" else None


def _nobody_on_target(view: View) -> bool:
    """Whether it is certain that no producer and no group is on the target, and that nothing was written there."""
    if isinstance(view.target, Unknown) or view.target.used != 0 or isinstance(view.producers, Unknown):
        return False
    if view.record.released or switched(view.record):
        return False
    return all(w.side == "source" or (w.absent and w.side is None) for p in driven(view) for w in [seen(view, p)])


def start_over(view: View, why: str) -> Decision | None:
    """After the intent to point: resume on the source only where it is certain that nobody is on the target."""
    if _nobody_on_target(view):
        return resume("DrainTimedOut", f"{why}; nobody is on the target and it is empty")
    used = None if isinstance(view.target, Unknown) else view.target.used
    return stop(
        "AmbiguousState",
        f"{why}, but it is not certain that nobody is on {view.record.target}: "
        f"{named(view, list(view.record.policy.producers))}; records in it: {'not known' if used is None else used}",
    )


# ------------------------------------------------------------------------------------------ plan and target


@rule(lambda r: planning(r) and r.plan_hash is None, Fact.IMPACT, step=Step.PLAN)
def plan_made(view: View) -> Decision | None:
    """A plan with the impact in it, before anybody is asked for anything."""
    if not view.record.done(Row.CHECK):
        return act(Act.CHECK_PLAN, "the cluster was not looked at yet")
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
    return answered(view, Ask.PLAN, f"the plan {view.record.plan_hash} has to be accepted")


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
    if not target.exists or target.wrong:
        what = target.wrong or "it does not exist any more"
        return end_or_stop(view, "Refused", f"{view.record.target} is not what was planned: {what}")
    if target.missing_acls:
        missing = ", ".join(target.missing_acls)
        return retell(
            view, Act.REPAIR_TARGET, f"ACLs of the target are missing: {missing}", f"ACLs of the target: {missing}"
        )
    return None


# -------------------------------------------------------------------------------------------- before the freeze


@rule(before_freeze, Fact.SOURCE, step=Step.STOP_PRODUCERS)
def source_is_planned(view: View) -> Decision | None:
    """No freeze begins for a topic that took the place of the one that was planned for."""
    source = view.source
    if isinstance(source, Unknown):
        return wait(f"{view.record.source} cannot be described: {source.why}")
    if source.exists and source.same:
        return None
    what = "was deleted and made again since the plan was made" if source.exists else "does not exist any more"
    return stop("Refused", f"{view.record.source} {what}; close this migration, and plan anew")


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
    return _retention(view)


def _retention(view: View) -> Decision | None:
    if not view.record.done(Row.LENGTHEN_RETENTION):
        return act(Act.LENGTHEN_RETENTION, "whether records could expire unread was not looked at yet")
    if isinstance(view.retention_at_risk, Unknown):
        return wait(f"the retention of the source cannot be read: {view.retention_at_risk.why}")
    if view.retention_at_risk:
        return retell(
            view, Act.LENGTHEN_RETENTION, "the longer retention was taken back", "the retention of the source"
        )
    return None


@rule(before_freeze, Fact.VERIFIER, Fact.GATE, step=Step.STOP_PRODUCERS)
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


@rule(before_freeze, step=Step.STOP_PRODUCERS)
def stopped_by_hand(view: View) -> Decision | None:
    """Producers that a person stops are stopped before the freeze's clock starts."""
    people = [p.name for p in view.record.policy.producers if p.manual]
    return answered(view, Ask.STOP_BY_HAND, f"a person has to stop {', '.join(people)}") if people else None


@rule(before_freeze, step=Step.STOP_PRODUCERS)
def freeze_begun(view: View) -> Decision | None:
    """The freeze's clock starts before the first producer is stopped."""
    return act(Act.BEGIN_FREEZE, "everything is ready for the freeze")


# ------------------------------------------------------------------------------------------------ in the freeze


@rule(fencing, Fact.PRODUCERS, step=Step.STOP_PRODUCERS)
def producers_stopped(view: View) -> Decision | None:
    """Every producer says stopped."""
    open_ = [p for p in driven(view) if seen(view, p).status != "stopped"]
    if not open_:
        return None
    text = named(view, open_)
    if view.record.begun(Row.STOP_PRODUCERS) or not isinstance(view.producers, Unknown):
        return retell(view, Act.STOP_PRODUCERS, f"not stopped: {text}", f"not stopped yet: {text}")
    return wait(f"producers cannot be observed: {text}")


@rule(fencing, Fact.DENY, step=Step.STOP_PRODUCERS)
def denied(view: View) -> Decision | None:
    """Writes to the source are denied once everybody says stopped."""
    if not view.record.begun(Row.FENCE):
        return act(Act.DENY, "every producer says stopped")
    return _deny_in_force(view, Act.DENY)


def _deny_in_force(view: View, repair: Act) -> Decision | None:
    if isinstance(view.deny, Unknown):
        return wait(f"whether the DENY is in force cannot be told: {view.deny.why}")
    if view.deny.missing:
        missing = ", ".join(view.deny.missing)
        return retell(view, repair, f"DENY bindings are not in force: {missing}", f"DENY bindings: {missing}")
    return None


@rule(fencing, Fact.PROOF, step=Step.STOP_PRODUCERS)
def fence_proven(view: View) -> Decision | None:
    """The ends stand still, no transaction is open, and no producer is active, over a settle time."""
    proof = view.proof
    if isinstance(proof, Unknown):
        return wait(f"the source cannot be sampled: {proof.why}")
    if proof.broken:
        return resume("FenceBroken", proof.waits)
    return act(Act.RECORD_FENCE, "nobody writes to the source any more") if proof.proven else wait(proof.waits)


@rule(switching, Fact.PRODUCERS, Fact.TARGET, step=Step.SWITCH_PRODUCERS)
def switch_in_time(view: View) -> Decision | None:
    """A point that came too late ends nothing: producers that run on the source again are fenced anew."""
    back = [p for p in driven(view) if seen(view, p).runs_on("source")]
    return start_over(view, f"on the source by themselves: {named(view, back)}") if back else None


@rule(moving, Fact.FENCE)
def fence_holds(view: View) -> Decision | None:
    """A write to the source after the fence voids every certificate."""
    fence = view.fence
    if isinstance(fence, Unknown):
        return wait(f"the source cannot be compared with its fence, and unknown is never OK: {fence.why}")
    return end_or_stop(view, "FenceBroken", fence.broken) if fence.broken else None


@rule(moving, Fact.DENY)
def deny_holds(view: View) -> Decision | None:
    """A DENY that somebody removed is put back before the next act."""
    return _deny_in_force(view, Act.REPAIR_DENY)


@rule(fenced, Fact.PRODUCERS)
def still_stopped(view: View) -> Decision | None:
    """A producer that runs again before the switch ends the freeze."""
    open_ = [p for p in driven(view) if seen(view, p).status != "stopped"]
    running = [p for p in open_ if seen(view, p).status == "running"]
    if running:
        return resume("FenceBroken", f"a producer runs again before the switch: {named(view, running)}")
    return wait(f"producers cannot be observed: {named(view, open_)}") if open_ else None


@rule(certifying, Fact.RETENTION)
def retention_holds(view: View) -> Decision | None:
    """A retention that somebody put back is lengthened again while groups still read."""
    return _retention(view)


@rule(certifying, Fact.DRAIN, Fact.VERIFIER, step=Step.DRAIN)
def drained(view: View) -> Decision | None:
    """Every group has read the source up to the fence, certified and verified by reading; for each certificate."""
    waits: list[Decision] = []
    subjects = _subjects(view)
    for subject in subjects:
        decision = _certified(view, subject)
        if decision is not None and decision.kind is not Kind.WAIT:
            return decision
        if decision is not None:
            waits.append(decision)
    if not waits or len(waits) < len(subjects) or _under_way(view):
        return None
    return replace(wait("; ".join(w.why for w in waits)), step=waits[0].step)


def _under_way(view: View) -> bool:
    """Whether some group was released to the target and is not there yet: it need not wait for those that drain."""
    groups = [g for g in view.record.policy.groups if view.focus in (None, g)]
    return any(view.record.at(Row.SWITCH_GROUP, g) is StepState.INTENDED for g in groups)


def _subjects(view: View) -> list[str]:
    """Certificates that are wanted and not used yet."""
    record = view.record
    if record.policy.drain_first:
        return [""]
    return [g for g in record.policy.groups if view.focus in (None, g) and not record.begun(Row.SWITCH_GROUP, g)]


def _certified(view: View, subject: str) -> Decision | None:
    drain = view.drain.get(subject, Unknown("it was not asked"))
    who = f"group {subject}" if subject else "every group"
    if isinstance(drain, Unknown):
        return wait(f"whether {who} has drained cannot be told: {drain.why}")
    if drain.verdict != "drained":
        if drain.forgotten and view.record.done(Row.VERIFICATION, subject):
            return None  # verified against this very fence: commits that the brokers forgot since take nothing away
        return wait(f"{who} has not drained the source: {drain.text}")
    if not _certificate_holds(view, subject, drain):
        return act(Act.CERTIFY, f"{who} has nothing left to read", subject)
    verified = _verified(view, subject, drain.substance, who)
    return None if verified is None else replace(verified, step=Step.VERIFY_DRAIN)


def _certificate_holds(view: View, subject: str, drain: DrainFact) -> bool:
    row = view.record.step(Row.CERTIFICATE, subject)
    if row is None or row.state is not StepState.DONE or row.data.get("substance") != drain.substance:
        return False
    taken = datetime.fromisoformat(str(row.data["taken_at"]))
    return -timedelta(seconds=1) <= view.now - taken <= CERTIFICATE_VALID


def _verified(view: View, subject: str, substance: str, who: str) -> Decision | None:
    record, verifier = view.record, view.verifier
    row = record.step(Row.VERIFICATION, subject)
    asked = row is not None and row.data.get("substance") == substance and row.state.in_effect
    if asked and row is not None and row.state is StepState.DONE:
        return None
    if isinstance(verifier, Unknown):
        return wait(f"the verifier's answer for {who} cannot be read: {verifier.why}")
    verdict = verifier.answers.get(substance)
    if verdict == "verified":
        return act(Act.RECORD_VERIFICATION, f"reading confirms that {who} has nothing left to read", subject)
    if verdict == "fence_broken":
        return end_or_stop(
            view, "FenceBroken", f"the verifier found the source written to after the fence: {verifier.text}"
        )
    if verdict == "not_drained":
        return end_or_stop(
            view, "GuardViolated", f"the certificate says drained, but reading found records left: {verifier.text}"
        )
    if verdict is not None or verifier.state in ("gone", "absent"):
        why = f"the armed verifier is {verifier.state}, so this advancer reads what {who} has left"
        return retell(view, Act.READ_TAILS, why, f"reading what {who} has left", subject)
    if not asked:
        return act(Act.REQUEST_VERIFICATION, f"the certificate of {who} is to be verified by reading", subject)
    waits = f"the verifier's answer for {who}"
    return retell(view, Act.REQUEST_VERIFICATION, f"{waits} has not come", waits, subject)


@rule(fenced, step=Step.SWITCH_PRODUCERS)
def cutover_approved(view: View) -> Decision | None:
    """A person accepts the cut-over on this evidence, where the spec wants it."""
    return answered(view, Ask.CUTOVER, "the cut-over has to be accepted", refused=resume)


# ------------------------------------------------------------------------------------------------- the switch


@rule(fenced, step=Step.SWITCH_PRODUCERS)
def switch_intended(view: View) -> Decision | None:
    """The point of no timer: written down before the first producer is pointed to the target."""
    return act(Act.INTEND_SWITCH, "the fence holds and everybody is stopped")


@rule(switching, Fact.PRODUCERS, Fact.TARGET, step=Step.SWITCH_PRODUCERS)
def producers_pointed(view: View) -> Decision | None:
    """Every producer that a controller moves runs on the target."""
    open_ = [p for p in driven(view) if not arrived(view, p, "target")]
    if not open_:
        return None
    text, freeze = named(view, open_), view.record.freeze
    if isinstance(view.producers, Unknown):
        return wait(f"producers cannot be observed: {view.producers.why}")
    if freeze is not None and view.now >= freeze.act_until and _nobody_on_target(view):
        if view.now < freeze.lease_until:
            return wait(f"the lease is too short to point producers, so it has to end first: {text}")
        return start_over(view, f"the lease ended before anybody was pointed to the target: {text}")
    return retell(view, Act.POINT_PRODUCERS, f"not on the target: {text}", f"not on the target yet: {text}")


@rule(switching, step=Step.SWITCH_PRODUCERS)
def started_by_hand(view: View) -> Decision | None:
    """Producers that a person starts are confirmed by that person; no timer decides for them."""
    people = [p.name for p in view.record.policy.producers if p.manual]
    return (
        answered(view, Ask.START_BY_HAND, f"a person has to start {', '.join(people)} on the target")
        if people
        else None
    )


@rule(switching, step=Step.SWITCH_PRODUCERS)
def freeze_ended(view: View) -> Decision | None:
    """The freeze ends when every producer runs on the target."""
    return act(Act.END_FREEZE, "every producer runs on the target")


@rule(lambda r: switched(r) and not r.done(Row.WIDE_DENY), step=Step.SWITCH_PRODUCERS)
def deny_widened(view: View) -> Decision | None:
    """The DENY covers everybody, so that a process that slept through the switch gets an error."""
    return act(Act.WIDEN_DENY, "every producer runs on the target")


# ---------------------------------------------------------------------------------------------------- the groups


@rule(releasing, Fact.GROUPS, step=Step.SWITCH_CONSUMERS)
def groups_moved(view: View) -> Decision | None:
    """Each group that has drained is released to the target, at the log start; one that cannot holds up no other."""
    waits, stops = [], []
    for consumer in view.record.policy.consumers:
        if view.focus not in (None, consumer.group) or view.record.done(Row.SWITCH_GROUP, consumer.group):
            continue
        decision = _group(view, consumer)
        if decision.kind is Kind.WAIT:
            waits.append(decision.why)
        elif decision.kind is Kind.STOP:
            stops.append(decision)
        else:
            return decision
    if stops and not waits:
        return stops[0]
    if waits:
        return wait("; ".join([*waits, *(s.why for s in stops)]))
    return over(f"group {view.focus} reads the target") if view.focus is not None else None


def _group(view: View, consumer: Member) -> Decision:
    group = consumer.group
    fact = view.groups.get(group, Unknown("it was not asked"))
    if isinstance(fact, Unknown):
        return wait(f"group {group} cannot be seen: {fact.why}")
    if not view.record.begun(Row.SWITCH_GROUP, group):
        return _release(view, consumer, fact)
    if fact.where.runs_on("target") and fact.unseeded == 0:
        return act(Act.FINISH_GROUP, f"group {group} reads the target", group)
    if fact.unseeded is None:
        return wait(f"the offsets of group {group} on the target cannot be read")
    if consumer.manual and fact.unseeded:
        if fact.members == 0:
            return act(
                Act.SEED_GROUP, f"group {group} has no offset on {fact.unseeded} partition(s) of the target", group
            )
        return wait(f"group {group} has no committed offset on {fact.unseeded} partition(s) of the target")
    where = f"group {group} is {fact.where.status}" + (f" on the {fact.where.side}" if fact.where.side else "")
    text = where + (f" ({fact.where.reason})" if fact.where.reason else "")
    if consumer.manual:
        return wait(f"a person has to start it on the target: {text}")
    return retell(view, Act.RELEASE_GROUP, text, text, group)


def _release(view: View, consumer: Member, fact: GroupFact) -> Decision:
    group = consumer.group
    certificate = "" if view.record.policy.drain_first else group
    if not view.record.done(Row.VERIFICATION, certificate):
        return wait(f"group {group} has no verified certificate")
    if fact.beyond:
        return stop("Refused", f"group {group} has commits on the target before it was released to it: {fact.beyond}")
    if consumer.manual:
        question = answered(view, Ask.STOP_GROUP, f"a person has to stop group {group}", group)
        if question is not None:
            return question
        if fact.members is None:
            return wait(f"the members of group {group} cannot be counted")
        if fact.members:
            return wait(f"group {group} still has {fact.members} member(s); stop them")
    return act(Act.RELEASE_GROUP, f"group {group} has drained the source", group)


# ------------------------------------------------------------------------------------------------------- the end


@rule(all_moved, Fact.ORDER_PROOF, step=Step.VERIFY)
def order_proven(view: View) -> Decision | None:
    """Spark reads both topics: nothing lost, nothing crossed."""
    proof = view.order_proof
    if isinstance(proof, Unknown):
        return wait(f"the order proof cannot be looked up: {proof.why}")
    if proof.verdict is None:
        return retell(
            view, Act.PROVE_ORDER, "every producer and every group is on the target", "the order proof (Spark)"
        )
    if proof.verdict not in ("proven", "partly_proven"):
        return stop("GuardViolated", f"the order proof says {proof.verdict}: {proof.text}")
    return None


@rule(lambda r: all_moved(r) and r.in_effect(Row.LENGTHEN_RETENTION), step=Step.VERIFY)
def retention_put_back(view: View) -> Decision | None:
    """The source keeps its records as long as before: nobody has to read it any more."""
    return act(Act.RESTORE_RETENTION, "every group reads the target, and the order is proven")


@rule(lambda r: all_moved(r) and r.in_effect(Row.ARM), step=Step.VERIFY)
def disarmed(view: View) -> Decision | None:
    """Participants follow at leisure again."""
    return act(Act.DISARM, "the migration ends")


@rule(all_moved, step=Step.VERIFY)
def finished(view: View) -> Decision | None:
    """The migration is done; its topics are free again."""
    return act(Act.FINISH, "the order is proven")
