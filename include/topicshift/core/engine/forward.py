"""The rules of a migration that goes forward, in order; those at any time, and from the switch on, stand here."""

from __future__ import annotations

from datetime import datetime

from topicshift.core.engine.again import AGAIN, asks_of_strays, kept_there, replay_ordered, replayed, strays_accepted
from topicshift.core.engine.before import BEFORE
from topicshift.core.engine.decision import Decision, Kind, Table, act, answered, over, retell, stop, wait
from topicshift.core.engine.frozen import FROZEN, fence_holds
from topicshift.core.engine.hold import HOLD, paused, why_paused
from topicshift.core.engine.view import GroupFact, Member, Unknown, View
from topicshift.core.engine.where import (
    all_moved,
    always,
    arrived,
    driven,
    fenced,
    frozen,
    named,
    nobody_on_target,
    releasing,
    resume,
    start_over,
    switched,
    switching,
)
from topicshift.core.engine.words import Act, Ask, Fact, Row, Step, StepState

ALWAYS = Table()
AFTER = Table()

# ------------------------------------------------------------------------------------------------ at any time


@ALWAYS.rule(lambda r: r.over)
def ended(view: View) -> Decision | None:
    """A migration that has ended does not act again, whoever clears a task of it."""
    return over(f"the migration is {view.record.state.value}")


@ALWAYS.rule(lambda r: r.mirrored and not r.in_effect(Row.FREEZE) and not r.in_effect(Row.SWITCH_PRODUCERS))
def back_called_off(view: View) -> Decision | None:
    """A way back whose freeze has ended, or that is called off before it, leaves everything as it found it."""
    record = view.record
    row = record.step(Row.FREEZE)
    if row is None and view.wanted != "resume":
        return None
    why = "it was asked for" if row is None else str(row.data.get("why") or "the freeze has ended")
    if not record.in_effect(Row.FIRST_DENY):
        return act(Act.SHUT_SOURCE, f"the way back is called off: {why}")
    if record.in_effect(Row.LENGTHEN_RETENTION):
        return act(Act.RESTORE_RETENTION, f"the way back is called off: {why}")
    if record.in_effect(Row.ARM):
        return act(Act.DISARM, f"the way back is called off: {why}")
    return act(Act.CALL_OFF_BACK, why)


@ALWAYS.rule(lambda r: r.at(Row.FREEZE) is StepState.UNDONE)
def resumed_here(view: View) -> Decision | None:
    """An advancer that saw its freeze end does not begin another one by itself."""
    row = view.record.step(Row.FREEZE)
    at = row.finished_at if row is not None else None
    if row is None or at is None or datetime.fromisoformat(at) < view.began_at:
        return None
    if view.wanted == "resume":
        return over("producers are back on the source")
    return stop(str(row.data.get("error") or "Refused"), f"producers are back on the source: {row.data.get('why', '')}")


@ALWAYS.rule(frozen)
def budget(view: View) -> Decision | None:
    """Without time left in the freeze, and before anybody was pointed to the target, producers resume on the source."""
    freeze = view.record.freeze
    if freeze is None or view.now < freeze.act_until:
        return None
    return resume(
        "DrainTimedOut", f"the freeze budget is used up ({-freeze.left(view.now):.1f} s past the last moment to act)"
    )


@ALWAYS.rule(lambda r: r.at(Row.FREEZE) is StepState.INTENDED, Fact.PRODUCERS, Fact.TARGET)
def asked_to_resume(view: View) -> Decision | None:
    """A failed task, a person or the watching DAG asks to end the freeze: granted while nobody is on the target."""
    if view.wanted != "resume":
        return None
    return resume("Refused", "it was asked for") if frozen(view.record) else start_over(view, "it was asked for")


@ALWAYS.rule(always)
def nothing_to_resume(view: View) -> Decision | None:
    """Asked to resume where no freeze runs."""
    return over("no freeze is running") if view.wanted == "resume" else None


# ------------------------------------------------------------------------------------------------- the switch


@AFTER.rule(fenced, step=Step.SWITCH_PRODUCERS)
def switch_intended(view: View) -> Decision | None:
    """The point of no timer: written down before the first producer is pointed to the target."""
    return act(Act.INTEND_SWITCH, "the fence holds and everybody is stopped")


@AFTER.rule(lambda r: r.mirrored and switching(r) and r.in_effect(Row.FIRST_DENY), step=Step.SWITCH_PRODUCERS)
def source_opened(view: View) -> Decision | None:
    """On the way back the DENY of the way forward is gone at every broker before anybody is pointed there."""
    return retell(view, Act.OPEN_SOURCE, "producers go back to it", "the DENY to be gone at every broker")


@AFTER.rule(switching, Fact.PRODUCERS, Fact.TARGET, step=Step.SWITCH_PRODUCERS)
def producers_pointed(view: View) -> Decision | None:
    """Every producer that a controller moves runs on the target."""
    open_ = [p for p in driven(view) if not arrived(view, p, "target")]
    if not open_:
        return None
    text, freeze = named(view, open_), view.record.freeze
    if isinstance(view.producers, Unknown):
        return wait(f"producers cannot be observed: {view.producers.why}")
    if freeze is not None and view.now >= freeze.act_until and nobody_on_target(view):
        if view.now < freeze.lease_until:
            return wait(f"the lease is too short to point producers, so it has to end first: {text}")
        return start_over(view, f"the lease ended before anybody was pointed to the target: {text}")
    return retell(view, Act.POINT_PRODUCERS, f"not on the target: {text}", f"not on the target yet: {text}")


@AFTER.rule(switching, step=Step.SWITCH_PRODUCERS)
def started_by_hand(view: View) -> Decision | None:
    """Producers that a person starts are confirmed by that person; no timer decides for them."""
    people = [p.name for p in view.record.policy.producers if p.manual]
    return (
        answered(view, Ask.START_BY_HAND, f"a person has to start {', '.join(people)} on the target")
        if people
        else None
    )


@AFTER.rule(switching, step=Step.SWITCH_PRODUCERS)
def freeze_ended(view: View) -> Decision | None:
    """The freeze ends when every producer runs on the target."""
    return act(Act.END_FREEZE, "every producer runs on the target")


@AFTER.rule(lambda r: switched(r) and not r.done(Row.WIDE_DENY), step=Step.SWITCH_PRODUCERS)
def deny_widened(view: View) -> Decision | None:
    """The DENY covers everybody, so that a process that slept through the switch gets an error."""
    return act(Act.WIDEN_DENY, "every producer runs on the target")


@AFTER.rule(switched, Fact.PRODUCERS, step=Step.SWITCH_PRODUCERS)
def kept_on_target(view: View) -> Decision | None:
    """A producer that starts now is not sent back to the source because the record that says so was lost."""
    return kept_there(view)


# ---------------------------------------------------------------------------------------------------- the groups


@AFTER.rule(releasing, Fact.GROUPS, step=Step.SWITCH_CONSUMERS)
def groups_moved(view: View) -> Decision | None:
    """Each group that has drained is released to the target, at the log start, in the spec's order where it has one.

    One that cannot be released holds up only those that come after it.
    """
    waits, stops, held = [], [], []
    for consumer in view.record.policy.consumers:
        if view.focus not in (None, consumer.group) or view.record.done(Row.SWITCH_GROUP, consumer.group):
            continue
        if behind := _behind(view, consumer):
            held.append(f"group {consumer.group} is switched after {', '.join(behind)}")
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
    if waits or held:
        return wait("; ".join([*waits, *held, *(s.why for s in stops)]))
    return over(f"group {view.focus} reads the target") if view.focus is not None else None


def _behind(view: View, consumer: Member) -> list[str]:
    """Groups that the spec wants on the target before this one, and that are not there. A way back has no order."""
    record = view.record
    if record.mirrored or record.begun(Row.SWITCH_GROUP, consumer.group):
        return []
    return [g for g in consumer.after if not record.done(Row.SWITCH_GROUP, g)]


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
    if _to_stop(consumer, fact):
        return _stopped(view, consumer, fact)
    if consumer.seeded and fact.unseeded:
        if fact.members == 0:
            return act(
                Act.SEED_GROUP, f"group {group} has no offset on {fact.unseeded} partition(s) of the target", group
            )
        return wait(f"group {group} has no committed offset on {fact.unseeded} partition(s) of the target")
    if view.record.mirrored and fact.unseeded and not fact.where.runs_on("target"):
        return _offsets_set_again(view, group, fact)
    where = f"group {group} is {fact.where.status}" + (f" on the {fact.where.side}" if fact.where.side else "")
    text = where + (f" ({fact.where.reason})" if fact.where.reason else "")
    if consumer.manual:
        return wait(f"a person has to start it on the target: {text}")
    return retell(view, Act.RELEASE_GROUP, text, text, group)


def _release(view: View, consumer: Member, fact: GroupFact) -> Decision:
    group = consumer.group
    if paused(view.record):
        return wait(f"group {group} is not released: {why_paused(view.record)}")
    certificate = "" if view.record.certificates == ("",) else group
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
    elif _to_stop(consumer, fact):
        return _stopped(view, consumer, fact)
    elif view.record.mirrored and not consumer.seeded and fact.unseeded != 0:
        return _offsets_set_again(view, group, fact)
    return act(Act.RELEASE_GROUP, f"group {group} has drained the source", group)


def _to_stop(consumer: Member, fact: GroupFact) -> bool:
    """Whether a controller has to stop the group first, so that offsets can be committed for it."""
    stands = fact.members == 0 and fact.where.status == "stopped"
    return consumer.seeded and not consumer.manual and not stands and fact.where.side != "target"


def _stopped(view: View, consumer: Member, fact: GroupFact) -> Decision:
    """A group is stopped while it reads the source alone: never one that may be about to start on the target.

    Also where its controller is not certain of it: what was begun there is carried on by a stop.
    """
    group, where = consumer.group, fact.where
    if where.status == "stopped" or where.side != "source":
        return wait(f"group {group} is {where.status}" + (f" ({where.reason})" if where.reason else ""))
    text = f"group {group} still reads the source" + (f" ({where.reason})" if where.reason else "")
    return retell(view, Act.STOP_GROUP, text, text, group)


def _offsets_set_again(view: View, group: str, fact: GroupFact) -> Decision:
    """A group goes back to the offsets of its certificate; where they are not these any more, they are set again.

    Brokers take them of a group without members alone, so it leaves for a moment.
    """
    if fact.unseeded is None or fact.members is None:
        return wait(f"the offsets or the members of group {group} cannot be read")
    gone = f"group {group} has no offset, or a lower one than its certificate, on {fact.unseeded} partition(s)"
    if fact.members:
        return retell(view, Act.PAUSE_GROUP, f"{gone}, so it leaves for a moment", f"group {group} to leave", group)
    return act(Act.SEED_GROUP, f"{gone}: they are set again", group)


# ------------------------------------------------------------------------------------------------------- the end


@AFTER.rule(lambda r: all_moved(r) and paused(r), step=Step.VERIFY)
def pause_kept_at_the_end(view: View) -> Decision | None:
    """Neither the order proof nor the end is begun in a pause."""
    return wait(why_paused(view.record))


AFTER.rule(replay_ordered, step=Step.VERIFY)(replayed)


@AFTER.rule(all_moved, Fact.FENCE, step=Step.VERIFY)
def source_stood_still(view: View) -> Decision | None:
    """A record that came to the source after its last group was released is fenced and named like one before that.

    This comes before the order proof, which such a record makes fail, and holds until the migration counts as done.
    """
    return fence_holds(view)


@AFTER.rule(lambda r: all_moved(r) and not r.mirrored, Fact.ORDER_PROOF, step=Step.VERIFY)
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


AFTER.rule(asks_of_strays, step=Step.VERIFY)(strays_accepted)


@AFTER.rule(lambda r: all_moved(r) and r.in_effect(Row.LENGTHEN_RETENTION), step=Step.VERIFY)
def retention_put_back(view: View) -> Decision | None:
    """The source keeps its records as long as before: nobody has to read it any more."""
    return act(Act.RESTORE_RETENTION, "every group reads the target, and the order is proven")


@AFTER.rule(lambda r: all_moved(r) and r.in_effect(Row.ARM), step=Step.VERIFY)
def disarmed(view: View) -> Decision | None:
    """Participants follow at leisure again."""
    return act(Act.DISARM, "the migration ends")


@AFTER.rule(lambda r: all_moved(r) and r.mirrored, step=Step.VERIFY)
def went_back(view: View) -> Decision | None:
    """The end of a way back: the migration is rolled back."""
    return act(Act.FINISH_BACK, "every producer and every group is back")


@AFTER.rule(all_moved, step=Step.VERIFY)
def finished(view: View) -> Decision | None:
    """The migration is done; its topics are free again."""
    return act(Act.FINISH, "the order is proven")


FORWARD = Table()
FORWARD.rules = [*ALWAYS.rules, *HOLD.rules, *BEFORE.rules, *AGAIN.rules, *FROZEN.rules, *AFTER.rules]
"""Every rule of a migration that goes forward, in order."""
