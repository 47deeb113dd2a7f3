"""The rules while producers stand still: stop, fence, drain, and the approval of the certificate."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from topicshift.core.engine.before import retention_kept
from topicshift.core.engine.decision import Decision, Kind, Table, act, answered, retell, wait
from topicshift.core.engine.view import DrainFact, Unknown, View
from topicshift.core.engine.where import (
    against_policy,
    certifying,
    contained,
    driven,
    end_or_stop,
    fenced,
    fencing,
    finishing,
    moving,
    named,
    resume,
    seen,
    start_over,
    switching,
)
from topicshift.core.engine.words import Act, Ask, Fact, Row, Step, StepState

FROZEN = Table()
rule = FROZEN.rule

CERTIFICATE_VALID = timedelta(seconds=60)
"""A drain certificate older than this is taken anew before it licenses an act."""


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


@rule(lambda r: fencing(r) and not r.begun(Row.FENCE), Fact.SOURCE, step=Step.STOP_PRODUCERS)
def source_still_planned(view: View) -> Decision | None:
    """Nothing is fenced but the source that was planned for."""
    if isinstance(view.source, Unknown):
        return wait(f"{view.record.source} cannot be described: {view.source.why}")
    return resume("FenceBroken", f"{view.record.source} {view.source.differs}") if view.source.differs else None


@rule(fencing, Fact.DENY, step=Step.STOP_PRODUCERS)
def denied(view: View) -> Decision | None:
    """Writes to the source are denied once everybody says stopped."""
    if not view.record.begun(Row.FENCE):
        return act(Act.DENY, "every producer says stopped")
    return deny_in_force(view, Act.DENY)


def deny_in_force(view: View, repair: Act) -> Decision | None:
    """Every DENY of this migration is in force; ``repair`` is the act that puts one back."""
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
    if proof.proven:
        return act(Act.RECORD_FENCE, "nobody writes to the source any more")
    return wait(proof.waits, until=proof.until)


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
    if not fence.broken or finishing(view):
        return None
    return contained(view) or end_or_stop(view, "FenceBroken", fence.broken)


@rule(moving, Fact.DENY)
def deny_holds(view: View) -> Decision | None:
    """A DENY that somebody removed is put back before the next act."""
    return deny_in_force(view, Act.REPAIR_DENY)


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
    return retention_kept(view)


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
    if record.certificates == ("",):
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
    if record.mirrored:
        why = f"what {who} has left is read"
        return retell(view, Act.READ_TAILS, why, f"reading what {who} has left", subject)
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


@rule(lambda r: fenced(r) and not r.mirrored, Fact.POLICY, step=Step.SWITCH_PRODUCERS)
def policy_still_allows(view: View) -> Decision | None:
    """Producers resume on the source where the installation policy was tightened in the freeze."""
    return against_policy(view, partial(resume, "Refused"))


@rule(fenced, step=Step.SWITCH_PRODUCERS)
def certificate_approved(view: View) -> Decision | None:
    """A person accepts the switch on this evidence, where the spec wants it."""
    return answered(view, Ask.CERTIFICATE, "the certificate has to be accepted", refused=resume)
