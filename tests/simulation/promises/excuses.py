"""What a group may miss without a broken promise: what was destroyed under it, and what was said. Each is kept narrow.

An excuse names a hand of somebody outside, and holds for the records that this hand took away, not for others.
"""

from __future__ import annotations

from tests.simulation.history import Event
from tests.simulation.promises.facts import FRESH_S, LOOK_S, Facts, Fence, ended, faulty

NEVER = float("inf")


def excused(facts: Facts, group: str, record: Event, fences: list[Fence]) -> bool:
    """What no product can help, and what it named, or a person accepted."""
    return (
        beyond_help(facts, group, record)
        or _after_the_last_look(facts, group, record)
        or (any(f.past(record) or f.gone(record) for f in fences) and named(facts, record))
        or _accepted(facts, group, record)
    )


def beyond_help(facts: Facts, group: str, record: Event, until: float = NEVER) -> bool:
    """Whether by then somebody had destroyed the record, or the group's own place on its topic, before it was read."""
    return any(cause(facts, group, record, until) for cause in (_destroyed, _read_on, _began_anew))


def _destroyed(facts: Facts, group: str, record: Event, until: float) -> bool:
    """The topic was deleted under the record. No excuse where the group had been led away from it already."""
    if record["topic"] != facts.source:
        return False
    gone = [h.at for h in facts.hand("source_remade", "source_deleted") if record.at <= h.at <= until]
    return bool(gone) and not led_away(facts, group, gone[0])


def led_away(facts: Facts, group: str, at: float) -> bool:
    """Whether a migration had moved the group to the target by then, and was not going back."""
    last: dict[tuple[str, str], str] = {}
    for e in facts.deeds:
        if e.at > at:
            break
        if e.what == "row":
            last[e["migration"], e["step"]] = e["state"]
    moved = {m for (m, step), state in last.items() if (step, state) == (f"switch_consumer:{group}", "done")}
    return any(last.get((m, "rollback"), "undone") == "undone" for m in moved)


def _read_on(facts: Facts, group: str, record: Event, until: float) -> bool:
    """Members went on at their offset of the topic that is gone, on the one of its name that held as many by then.

    They had read further on the one that is gone, and got nothing that lies before the record on this one, unless one
    slept meanwhile and committed when it woke. Where a member began anew, it has to get what lies after that.
    """
    topic, partition, offset = record["topic"], record["partition"], record["offset"]
    made = max((h.at for h in facts.hand("source_remade") if h.at <= min(record.at, until)), default=None)
    if topic != facts.source or made is None:
        return False
    read = [e for e in facts.delivered[group] if (e["topic"], e["partition"]) == (topic, partition) and e.at <= until]
    here = [e for e in read if e["topic_id"] == record["topic_id"]]
    before = [e for e in read if e["topic_id"] != record["topic_id"] and e.get("fetched", e.at) <= made]
    resets = (e for e in facts.deeds if e.what == "reset" and e["group"] == group and made <= e.at <= until)
    if any((e["topic"], e["partition"]) == (topic, partition) and e["to"] <= offset for e in resets):
        return False
    further = any(e["offset"] >= offset for e in before)
    return further and (_slept(facts, group, made) or not any(e["offset"] < offset for e in here))


def _slept(facts: Facts, group: str, at: float) -> bool:
    """Whether a member of the group was stalled at this time."""
    stalls = [h for h in facts.hand("consumer_stall") if str(h["did"]).startswith(f"{group}-")]
    return any(s.at <= at <= s.at + s["amount"] for s in stalls)


def _began_anew(facts: Facts, group: str, record: Event, until: float) -> bool:
    """A member that found no offset of its own any more began past the record, on this very partition.

    The hand that took the offset away is one of: commits that expired while the group was on the source, a topic made
    again or grown.
    """
    topic, partition = record["topic"], record["partition"]
    began = [
        e.at
        for e in facts.deeds
        if e.what == "reset"
        and (e["group"], e["topic"], e["partition"]) == (group, topic, partition)
        and e["to"] > record["offset"]
        and record.at <= e.at <= until
    ]
    if topic == facts.source:
        hands = facts.hand("source_remade", "partition_added_source")
        expired = [h for h in facts.hand("commits_expired") if h["did"] == group]
        hands += [h for h in expired if not led_away(facts, group, h.at)]
    else:
        hands = facts.hand("partition_added_target")
    return any(h.at <= at for h in hands for at in began)


def last_look(facts: Facts, topic: str) -> float:
    """When whoever ended the migration began their last complete look at a topic; the end itself without a fresh one.

    What a super user writes after it is seen by nobody before the end, as what comes after the end is: the watch over
    the source names both. The target has a last look on a way back alone.
    """
    until = ended(facts) if topic == facts.source else _went_back(facts)
    by = next((e.get("by") for e in reversed(facts.deeds) if e.what == "row" and e.at <= until), None)
    looks = [
        e["began"]
        for e in facts.events
        if e.what == "saw" and e.who == by and e["topic"] == topic and e["complete"] and e.at <= until
    ]
    fresh = looks and until - looks[-1] <= (FRESH_S if faulty(facts, looks[-1], until) else LOOK_S)
    return looks[-1] if fresh else until


def _went_back(facts: Facts) -> float:
    return next((e.at for e in facts.deeds if e.what == "state" and e["state"] == "rolled_back"), NEVER)


def _after_the_last_look(facts: Facts, group: str, record: Event) -> bool:
    """A super user wrote to the topic that the group is on no more, and nobody could see it before the end."""
    place = facts.end["places"].get(group) if facts.end is not None else None
    supers = record.who.startswith(("stray", "rogue"))
    return supers and record["topic"] != place and record.at >= last_look(facts, record["topic"])


def named(facts: Facts, record: Event) -> bool:
    """The migration did not end well, and somebody said after the record, or after its topic was made again, what it
    is: the partition that was written to, or a topic that was made again or is gone."""
    end = facts.end
    if end is None or end["state"] in ("done", "retired", "rolled_back"):
        return False
    made = max((h.at for h in facts.hand("source_remade") if h.at <= record.at), default=record.at)
    words = (f"{record['topic']}[{record['partition']}]", "made again", "does not exist any more")
    said = (e["text"] for e in facts.deeds if e.what == "note" and e.at >= made)
    return any(word in text for text in said for word in words)


def _accepted(facts: Facts, group: str, record: Event) -> bool:
    """A person has accepted a list that names this record for this group; the list is taken as the files have it."""
    lists = facts.end["accepted"] if facts.end is not None and "accepted" in facts.end.data else ()
    place = (record["partition"], record["offset"])
    yes = any(
        e.what == "answered" and (e["question"], e["said"]) == ("verify.strays", "yes") and e.at >= record.at
        for e in facts.deeds
    )
    return yes and any(
        record["topic_id"] == a["topic_id"] and group in a["groups"] and place in a["records"] for a in lists
    )
