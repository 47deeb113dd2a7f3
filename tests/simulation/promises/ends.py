"""Promises about people and endings: what was approved, what is proven, what is left, and that everything ends."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import Event
from tests.simulation.promises.facts import Answers, Facts, Violation, ended, forward, noticed, required


def approved_as_shown(facts: Facts) -> Iterator[Violation]:
    """What needs a person's yes has one, for what that person was shown, and nobody's no is overruled."""
    answers = Answers()
    said, plan = answers.last, None
    for e in facts.deeds:
        answers.hear(e)
        if e.what == "plan":
            plan = e["plan_hash"]
        elif e.what == "call" and e["outcome"] == "ok" and e["method"] == "create_topic":
            yes = said.get("approve.plan")
            if "approve.plan" not in required(facts):
                continue
            if yes is None or yes["said"] != "yes":
                yield Violation("approval", f"{e.who} made the target without a yes to the plan", e.at)
            elif plan is not None and plan not in yes["shown"]:
                yield Violation(
                    "approval", f"{e.who} made the target of plan {plan}, the yes was for {yes['shown']}", e.at
                )
        elif forward(facts, e) == "points producers to the target" and "switch_producers.switch" in required(facts):
            yes = said.get("switch_producers.switch")
            if yes is None or yes["said"] != "yes":
                yield Violation("approval", f"{e.who} pointed producers without a yes to the cut-over", e.at)


def done_is_proven(facts: Facts) -> Iterator[Violation]:
    """A migration that is done has gone through every step, and each left its proof behind."""
    end = facts.end
    if end is None or end["state"] not in ("done", "retired"):
        return
    done = {e["step"] for e in facts.deeds if e.what == "row" and e["state"] == "done"}
    wanted = ["create_target", "freeze", "fence", "switch_producers", "wide_deny", "order_proof"]
    wanted += [f"switch_consumer:{g}" for g in facts.groups]
    wanted += [f"{row}{s}" for row in ("certificate", "verification") for s in _certificates(facts)]
    missing = [step for step in wanted if step not in done]
    if not any(e["fence"] for e in facts.deeds if e.what == "row"):
        missing.append("the fence's offsets")
    if missing:
        yield Violation("unproven", f"the migration is done without {', '.join(missing)}", end.at)


def _certificates(facts: Facts) -> list[str]:
    return [""] if facts.order == "drain_first" else [f":{g}" for g in facts.groups]


def hands_are_named(facts: Facts) -> Iterator[Violation]:
    """A source that was made again under a migration cannot be migrated: it does not end as if all were well."""
    end = facts.end
    begun = [e.at for e in facts.deeds if e.what == "row" and e["step"] == "create_target" and e["state"] == "done"]
    if end is None or end["state"] not in ("done", "retired") or not begun:
        return
    # What comes between the last look at the source and the end is named by the watch over it, days and weeks long.
    until = ended(facts)
    looks = [e["began"] for e in facts.events if e.what == "saw" and e["topic"] == facts.source and e.at <= until]
    for hand in facts.hand("source_remade"):
        if begun[0] < hand.at < max(looks, default=until):
            yield Violation(
                "unnamed", "the source was made again under the migration, which is done all the same", hand.at
            )


def comes_to_an_end(facts: Facts) -> Iterator[Violation]:
    """Once all is healed, every migration has ended, or stands with a reason and a command that ends it."""
    end = facts.end
    if end is None:
        yield Violation("liveness", "the run did not come to its end")
        return
    for who, error in end["broken"].items():
        yield Violation("liveness", f"{who} ended with an error that is none of the product's: {error}", end.at)
    for m in end["migrations"]:
        if m["active"] or m["state"] == "open":
            if not m["why"]:
                yield Violation("liveness", f"{m['migration']} is {m['state']} and nobody says why", end.at)
            elif not m["ends_by"]:
                yield Violation("liveness", f"{m['migration']} stands ({m['why']}) and no command ends it", end.at)


def producers_write(facts: Facts) -> Iterator[Violation]:
    """Once all is healed, every producer writes somewhere within the budget."""
    healed = next((e for e in facts.deeds if e.what == "healed"), None)
    quiet = next((e for e in facts.deeds if e.what == "quiet"), None)
    if healed is None or quiet is None or facts.end is None:
        return
    writes = {e.who for e in facts.acked if healed.at <= e.at <= quiet.at}
    for name in facts.end["instances"]:
        if name not in writes and name not in _kept_out(facts):
            yield Violation("left_stopped", f"producer {name} wrote nothing after all was healed", quiet.at)


def _kept_out(facts: Facts) -> set[str]:
    """Producers from whom somebody took what they need after the last look at it: the right to write to the target, or
    the route's record before they were there."""
    acls, routes = (
        [h.at for h in facts.hand(hand) if h["did"] and not noticed(facts, h, look)]
        for hand, look in (("target_acl_removed", "acls"), ("route_gone", "read_all"))
    )
    tries = [e for e in facts.events if e.what == "produce" and acls and e.at >= acls[0] and e["topic"] == facts.target]
    out = {e.who for e in tries if e["outcome"] == "fail" and e["why"] == "AccessDenied"}
    if routes:
        there = {e.who for e in facts.events if e.what == "admitted" and e.at < routes[-1]}
        out |= {name for name in (facts.end or facts.start)["instances"] if name not in there}
    return out


ROLLBACK_S = 30.0
"""Within this time a rollback that was asked for has taken the seat, so that nobody else points producers."""


def calm_is_done(facts: Facts) -> Iterator[Violation]:
    """Where nothing goes wrong at all, the migration is done, and its source is retired where that is wanted."""
    wanted = "retired" if facts.start.get("retire_after_s") else "done"
    if facts.start.get("calm") and facts.end is not None and facts.end["state"] != wanted:
        yield Violation("calm", f"nothing went wrong, and the migration is {facts.end['state']}", facts.end.at)


def calm_moves_everybody(facts: Facts) -> Iterator[Violation]:
    """Where nothing goes wrong at all, whoever wrote to the source writes to the target in the end."""
    if not facts.start.get("calm"):
        return
    wrote = {topic: {e.who for e in facts.acked if e["topic"] == topic} for topic in (facts.source, facts.target)}
    for who in sorted(wrote[facts.source] - wrote[facts.target]):
        yield Violation("calm", f"nothing went wrong, and {who} never wrote to {facts.target}")


def ends_tidily(facts: Facts) -> Iterator[Violation]:
    """What held for the time of a migration alone is taken back at its end; after a rollback everything is."""
    rows: dict[tuple[str, str], str] = {}
    for e in facts.deeds:
        if e.what == "row":
            rows[e["migration"], e["step"]] = e["state"]
        if e.what != "state" or e["active"] or e["state"] not in ("done", "rolled_back"):
            continue
        wanted = ["arm", "lengthen_retention"]
        if e["state"] == "rolled_back":
            wanted += ["create_target", "freeze", "fence", "wide_deny"]
        if e["state"] == "done" and rows.get((e["migration"], "rollback")) == "intended":
            yield Violation("untidy", "the migration is done, and a rollback of it was begun and not ended", e.at)
        left = [step for step in wanted if rows.get((e["migration"], step), "undone") != "undone"]
        if left:
            yield Violation("untidy", f"the migration is {e['state']}, and of it is left: {', '.join(left)}", e.at)


def free_is_rolled_back(facts: Facts) -> Iterator[Violation]:
    """Where nothing else goes wrong, a rollback that is asked for before producers are pointed takes place."""
    pointed = [e.at for e in facts.deeds if e.what == "row" and e["step"] == "switch_producers"]
    asked = facts.hand("rollback_asked")
    odd = [e for e in facts.deeds if e.what in ("fault", "killed") or (e.what == "hand" and e not in asked)]
    if facts.end is None or not asked or odd or (pointed and pointed[0] < asked[0].at + ROLLBACK_S):
        return
    if not any(e.what == "row" and (e["step"], e["state"]) == ("rollback", "done") for e in facts.deeds):
        yield Violation("calm", f"a rollback was asked for in time, and the migration is {facts.end['state']}")


ENDED = ("done", "retired", "rolled_back")
"""States of a migration that has come to its own end; what is closed then are runs that ask still."""


def ends_by_itself(facts: Facts) -> Iterator[Violation]:
    """Where nothing else goes wrong, a migration that a person goes back from comes to its end; nobody has to close it.

    Also where the brokers have forgotten what groups had committed on the topic that they read no more: they do that;
    and where the route's record is lost after everybody has moved, or an instance dies.
    """
    end, asked = facts.end, facts.hand("rollback_asked")
    moved = next((e.at for e in facts.deeds if e.what == "row" and e["step"] == "order_proof"), float("inf"))
    also = [*facts.hand("producer_crash", "consumer_crash"), *(h for h in facts.hand("route_gone") if h.at > moved)]
    if end is None or not asked or not end.get("closed") or end["state"] in ENDED or _odd(facts, also):
        return
    yield Violation("calm", f"a rollback was asked for, and the migration, {end['state']}, had to be closed", end.at)


def _odd(facts: Facts, also: list[Event] | None = None) -> bool:
    """Whether something goes wrong besides a rollback that is asked for, commits that expire, and these hands."""
    calm = [*facts.hand("rollback_asked", "commits_expired"), *(also or ())]
    return any(e.what in ("fault", "killed") or (e.what == "hand" and e not in calm and e["did"]) for e in facts.deeds)


def calm_goes_back(facts: Facts) -> Iterator[Violation]:
    """Where nothing else goes wrong, a rollback that a person has said yes to once everybody has moved takes place."""
    asked = facts.hand("rollback_asked")
    moved = [e.at for e in facts.deeds if e.what == "row" and e["step"] == "order_proof"]
    yes = [e for e in facts.deeds if e.what == "answered" and (e["question"], e["said"]) == ("rollback.approve", "yes")]
    if facts.end is None or not asked or _odd(facts) or not moved or asked[0].at < moved[0] or not yes:
        return
    states = {e["state"] for e in facts.deeds if e.what == "state"}
    if not states & {"rolled_back", "retired"}:
        yield Violation("calm", f"a rollback was asked for, and the migration is {facts.end['state']}", facts.end.at)


RULES = (
    approved_as_shown,
    done_is_proven,
    hands_are_named,
    comes_to_an_end,
    producers_write,
    calm_is_done,
    calm_moves_everybody,
    ends_tidily,
    free_is_rolled_back,
    ends_by_itself,
    calm_goes_back,
)
"""Every rule of this module."""
