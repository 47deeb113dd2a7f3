"""Broken variants of the product, each of which the simulator has to catch within a stated number of seeds."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from topicshift.core.engine.decision import act
from topicshift.core.engine.engine import RULES
from topicshift.core.engine.words import Act

from .scenario import ANY, Wish

Patch = Callable[[ExitStack], None]


@dataclass(frozen=True)
class Mutant:
    """One broken product: what is broken, how, and within how many seeds it is caught."""

    what: str
    patch: Patch
    bound: int = 40
    wish: Wish = ANY


MUTANTS: dict[str, Mutant] = {}
"""Every broken product, by name."""


def _without(table: str, *names: str) -> Patch:
    def patch(stack: ExitStack) -> None:
        left = [r for r in RULES[table] if r.name not in names]
        stack.enter_context(mock.patch.dict(RULES, {table: left}))

    return patch


def _swap(target: str, new: Any) -> Patch:
    def patch(stack: ExitStack) -> None:
        stack.enter_context(mock.patch(target, new))

    return patch


def _wrap(target: str, around: Callable[[Any], Any]) -> Patch:
    """Replace a function by one that is made from it."""

    def patch(stack: ExitStack) -> None:
        module, name = target.rsplit(".", 1)
        owner = pkgutil.resolve_name(module)
        stack.enter_context(mock.patch.object(owner, name, around(getattr(owner, name))))

    return patch


_SHOWN_BY: dict[str, Wish] = {
    "forward.ended": Wish(calm=True, hands=("rollback_asked@create_target", "second_advancer@rollback")),
    "forward.nothing_to_resume": Wish(calm=True, hands=("resume_asked@create_target",)),
    "forward.resumed_here": Wish(calm=True, hands=("stray_write_source@fence",)),
    "forward.budget": Wish(manual=True, calm=True, hands=("consumer_crash@freeze", "consumer_crash@freeze")),
    "forward.asked_to_resume": Wish(calm=True, hands=("run_deleted@freeze",)),
    "forward.source_opened": Wish(calm=True, hands=("rollback_asked@order_proof",)),
    "forward.went_back": Wish(calm=True, hands=("rollback_asked@order_proof",)),
    "forward.plan_current": Wish(calm=True, hands=("plan_changes",)),
    "forward.source_is_planned": Wish(calm=True, hands=("source_remade@create_target",)),
    "forward.retention_long_enough": Wish(calm=True),
    "forward.window_open": Wish(calm=True, window=True),
    "forward.gate": Wish(calm=True, hands=("producer_stall@create_target",)),
    "forward.retention_holds": Wish(calm=True, hands=("retention_put_back@fence", "consumer_stall@fence")),
    "forward.retention_put_back": Wish(calm=True),
    "forward.fenced_again": Wish(calm=True, hands=("stray_write_source@wide_deny",)),
    "forward.source_stood_still": Wish(calm=True, hands=("stray_write_source@prove_order",)),
    "forward.strays_accepted": Wish(
        calm=True, hands=("stray_write_source@switch_consumer:g0", "stray_write_source@switch_consumer:g1")
    ),
    "forward.deny_holds": Wish(calm=True, hands=("deny_removed@fence", "consumer_stall@fence")),
    "forward.transactions_settled": Wish(calm=True, hands=("transaction_hangs@create_target",)),
    "forward.disarmed": Wish(calm=True),
    "forward.stopped_by_hand": Wish(calm=True, manual=True),
    "forward.started_by_hand": Wish(calm=True, manual=True),
    "resume.producers_resumed": Wish(calm=True, hands=("stray_write_source@fence",)),
    "resume.fence_lifted": Wish(calm=True, hands=("stray_write_source@fence",), kinds=("refused@admin.delete_acls",)),
    "forward.order_proven": Wish(calm=True),
    "forward.fence_proven": Wish(calm=True),
    "resume.resume_ended": Wish(calm=True, hands=("stray_write_source@fence",)),
    "rollback.target_deleted": Wish(calm=True, hands=("rollback_asked@create_target",)),
    "rollback.retention_restored": Wish(calm=True, hands=("rollback_asked@lengthen_retention",)),
    "rollback.rollback_disarmed": Wish(calm=True, hands=("rollback_asked@arm",)),
    "rollback.rolled_back": Wish(calm=True, hands=("rollback_asked@create_target",)),
    "rollback.rollback_fence_gone": Wish(
        calm=True, hands=("rollback_asked@fence",), kinds=("refused@admin.delete_acls",)
    ),
    "rollback.producers_returned": Wish(calm=True, hands=("rollback_asked@fence",)),
    "rollback.stopped_on_target": Wish(calm=True, hands=("producers_idle@fence", "rollback_asked@switch_producers")),
    "rollback.groups_returned": Wish(calm=True, hands=("producers_idle@fence", "rollback_asked@switch_consumer:g0")),
    "rollback.rollback_begun": Wish(calm=True, hands=("rollback_asked@create_target",)),
    "retire.cancelled": Wish(calm=True, retire=True, hands=("retirement_cancelled@scream_test",)),
    "retire.only_finished": Wish(calm=True, retire=True, hands=("retire_asked@switch_consumer:g0",)),
    "retire.nothing_against": Wish(calm=True, retire=True),
    "retire.deletion_approved": Wish(calm=True, retire=True),
    "retire.screamed": Wish(calm=True, retire=True),
    "retire.source_deleted": Wish(calm=True, retire=True),
}
"""What shows that a rule is gone, where hardly any scenario does."""

LEFT_OUT: dict[str, str] = {
    "forward.back_called_off": "whoever asks once more goes back all the same; it puts the DENY back meanwhile",
    "forward.captured": "what it keeps is for the comparison at an ending, which unit tests judge",
    "forward.switch_in_time": "fence_holds finds such a producer by its first record, and a route that is not paused "
    "takes no point; the rule ends the freeze sooner, and says why",
    "forward.source_still_planned": "the act looks too, and fences nothing; else the budget ends the freeze",
    "forward.still_stopped": "as forward.switch_in_time",
    "resume.nobody_on_target": "target_shut keeps late comers off; removed together, they are caught",
    "resume.target_shut": "nobody_on_target goes on where somebody is there; removed together, they are caught",
    "resume.nothing_left_on_target": "it needs a record on the target in spite of target_shut",
    "resume.fence_lifted_first": "fence_lifted follows it; it spares producers of other kinds, which are not simulated",
    "rollback.rollback_unfenced": "as resume.fence_lifted_first; rollback_fence_gone follows it",
    "rollback.source_opened_for_all": "rollback_fence_gone follows it within seconds; unit tests hold that nobody is "
    "denied meanwhile",
    "rollback.groups_followed": "whoever is told follows here, at the latest when it wakes; unit tests hold the rule",
    "rollback.target_shut_for_rollback": "not shown: a producer would have to wake between two looks, within a second",
    "rollback.nothing_lost_on_target": "not shown: as rollback.target_shut_for_rollback, and in spite of it",
    "forward.kept_on_target": "the next change of the route writes a lost record anew too, at the latest its disarming",
    "forward.policy_allows": "no installation of the simulator has a policy; unit tests hold the rule",
    "forward.policy_still_allows": "as forward.policy_allows",
    "retire.policy_allows_deletion": "as forward.policy_allows",
    "retire.already_retired": "only_finished refuses a migration that is retired, as one that is not done",
    "forward.pause_kept": "nobody pauses or postpones here; unit tests hold the rules of a hold",
    "forward.postponement_kept": "as forward.pause_kept",
    "forward.pause_kept_at_the_end": "as forward.pause_kept",
    "forward.shadow_made": "no spec of the simulator is a rehearsal; unit tests kill one anywhere, and hold the rule",
    "forward.replayed": "nobody orders a replay here; unit tests hold the rule",
    "silence is death": "whoever wakes is held by the age of its own view, and what it had taken moves the ends",
    "retell never": "a task gives up after ten seconds, and its next try tells again; repeating only saves that time",
    "certificate never too old": "each look compares what the certificate says with what is true now, whatever its age",
}
"""What no seed misses when it is broken, and why: others cover for it, or the world lacks what it is for."""

_TOGETHER: dict[str, tuple[str, Wish]] = {
    "resume.nobody_on_target resume.target_shut": (
        "producers resume whoever is on the target",
        Wish(calm=True, hands=("point_in_flight",)),
    ),
    "resume.fence_lifted_first resume.fence_lifted": (
        "producers resume behind the DENY",
        Wish(calm=True, hands=("stray_write_source@fence",)),
    ),
    "rollback.rollback_unfenced rollback.rollback_fence_gone": (
        "a rollback leaves the DENY",
        Wish(calm=True, hands=("rollback_asked@fence",)),
    ),
}
"""Rules that cover for each other: removed together."""

for _table, _rules in RULES.items():
    for _rule in _rules:
        _name = f"{_table}.{_rule.name}"
        if _name not in LEFT_OUT:
            MUTANTS[f"no rule {_name}"] = Mutant(
                "the rule is gone", _without(_table, _rule.name), bound=40, wish=_SHOWN_BY.get(_name, ANY)
            )
for _names, (_what, _wish) in _TOGETHER.items():
    _table = _names.split(".")[0]
    _gone = [n.split(".")[1] for n in _names.split()]
    MUTANTS[f"no rules {_names}"] = Mutant(_what, _without(_table, *_gone), bound=40, wish=_wish)


def _mutant(name: str, what: str, patch: Patch, bound: int = 40, **wish: Any) -> None:
    MUTANTS[name] = Mutant(what, patch, bound, Wish(**wish))


# ------------------------------------------------------------------------------------------------ the route's clients

_mutant(
    "stale view admitted",
    "a producer never looks at the age of its contact",
    _swap("topicshift.core.route.client.RouteClient.in_contact", lambda self, now: True),
    30,
    hands=("producer_stall", "producer_stall"),
)
_mutant(
    "void point obeyed",
    "a point that was stamped too late counts all the same",
    _swap("topicshift.core.route.records._judged", lambda route: route),
    20,
    hands=("point_stuck",),
)
_mutant(
    "flush not awaited",
    "a producer says paused while records are undelivered",
    _wrap(
        "topicshift.core.route.client.ProducerClient.advance",
        lambda real: lambda self, now, *, flushed: real(self, now, flushed=True),
    ),
)
_mutant(
    "log start ignored",
    "a released group asks auto.offset.reset instead of the log start",
    _swap("topicshift.core.route.client.ConsumerClient.from_start", lambda self, topic: False),
)
_mutant(
    "moves unread",
    "a released member leaves before it has read its partitions",
    _wrap(
        "topicshift.core.route.client.ConsumerClient.advance",
        lambda real: lambda self, now, *, clean, at_end, out: real(self, now, clean=clean, at_end=True, out=out),
    ),
    hands=("stray_write_source@switch_consumer:g0", "stray_write_source@switch_consumer:g1", "consumer_stall@fence"),
)

# ------------------------------------------------------------------------------------------------ the journal

_mutant(
    "two in the seat",
    "the seat is given to whoever asks",
    _wrap("topicshift.testing.fake_journal.FakeJournal.take_seat", lambda real: _seat_for_all(real)),
    hands=("second_advancer", "command_line"),
)
_mutant(
    "old epochs write",
    "a claim of an older epoch still writes",
    _swap("topicshift.core.plan.ownership.lost", lambda *_, **__: None),
    hands=("second_advancer@fence", "second_advancer@create_target", "rollback_asked"),
    kinds=("stall@journal.finish", "stall@journal.intend"),
)
_mutant(
    "topics for everybody",
    "a held topic is given to the next run",
    _swap("topicshift.core.plan.ownership.in_the_way", lambda *_: []),
    hands=("triggered_twice",),
)


def _seat_for_all(real: Any) -> Any:
    def take(self: Any, claim: Any, *args: Any, **kwargs: Any) -> Any:
        self._seats.pop(claim.migration_id, None)
        return real(self, claim, *args, **kwargs)

    return take


# ------------------------------------------------------------------------------------------------ the engine

_mutant(
    "no is yes",
    "a person's no is taken for a yes",
    _wrap("topicshift.acts.questions._answer", lambda real: lambda *a: _yes(real(*a))),
    hands=("says_no",),
)
_mutant(
    "approval not compared",
    "a yes to another plan counts",
    _wrap("topicshift.acts.questions._plain", lambda real: lambda about: mock.ANY),
    hands=("plan_changes",),
)
_mutant(
    "go not compared",
    "a yes to one freeze counts for every other",
    _swap("topicshift.core.engine.go.still_holds", lambda *_, **__: True),
    20,
    hands=("asked_to_go", "stray_write_source@fence"),
)
_mutant(
    "late acts are sent",
    "an advancer that was stalled sends what it had decided",
    _swap("topicshift.acts.context.MigrationContext.check_seat", lambda self: None),
    kinds=("stall",),
)
_mutant(
    "no DENY",
    "the fence denies nobody",
    _swap("topicshift.core.fence.acls.writers", lambda acls, topic: []),
    hands=("undeclared_writer",),
)

# ------------------------------------------------------------------------------------------------ faults found by hand


def _all(*patches: Patch) -> Patch:
    """Several guards off at once, where each contains the lack of the other."""

    def patch(stack: ExitStack) -> None:
        for one in patches:
            one(stack)

    return patch


_mutant(
    "route producers denied",
    "the fence denies everybody by name, those on the route too",
    _all(
        _swap("topicshift.core.fence.acls.exempt_of", lambda producers: frozenset()),
        _swap("topicshift.core.fence.acls.doubtful", lambda *_: {}),
    ),
    40,
    hands=("run_paused",),
)
_mutant(
    "unarmed goes blind",
    "a producer that nobody migrates stops when it cannot read the route",
    _swap("topicshift.core.route.client.RouteClient.bound_s", property(lambda self: self.timing.stale_s)),
    20,
    hands=("route_away_early",),
)
_mutant(
    "wall clocks believed",
    "the brokers' time is read off the machine's own clock, and nobody compares",
    _all(
        _swap("topicshift.core.route.clocks.BrokerTime.least", lambda self, now: int(now.wall * 1000)),
        _swap("topicshift.core.route.judge.MAX_AHEAD_S", 1e9),
        _swap("topicshift.core.route.judge.MAX_BEHIND_S", 1e9),
    ),
    20,
    hands=("app_clock_step", "app_clock_step"),
)
_mutant(
    "late DENY left",
    "a DENY on the target that a late request sets after it was lifted holds producers there",
    _swap("topicshift.acts.observe.late_denies", lambda *_: []),
    20,
    calm=True,
    hands=("late_deny",),
)
_mutant(
    "switched is resumed",
    "a timer, or whoever asks, resumes producers on the source after the intent to point",
    _all(
        _swap("topicshift.core.engine.forward.nobody_on_target", lambda view: True),
        _swap("topicshift.core.engine.where.nobody_on_target", lambda view: True),
        _without("resume", "nobody_on_target"),
    ),
    60,
    hands=("resume_asked", "run_paused"),
)
_mutant(
    "grown source not seen",
    "a freeze begins on a source that has got partitions since the target was made",
    _wrap(
        "topicshift.acts.observe.source_differs",
        lambda real: lambda source, planned: "" if "partitions" in real(source, planned) else real(source, planned),
    ),
    20,
    calm=True,
    hands=("partition_added_source@create_target",),
)
_mutant(
    "strangers not looked for",
    "an application that joins the route after the plan is paused with the others, and denied",
    _swap("topicshift.acts.gate.strays", lambda spec, followers: ()),
    20,
    hands=("stranger_joins",),
)
_mutant(
    "seeded once",
    "the first offsets of a group are not looked at again",
    _wrap(
        "topicshift.core.engine.forward._group",
        lambda real: lambda view, consumer: real(_all_seeded(view, consumer.group), consumer),
    ),
    20,
    hands=("seeds_forgotten",),
)

_mutant(
    "deletes by name",
    "the source is deleted by its name, whatever topic has that by then",
    _wrap(
        "topicshift.testing.fakes.FakeCluster.delete_topic",
        lambda real: lambda self, name, topic_id=None: real(self, name),
    ),
    20,
    calm=True,
    retire=True,
    hands=("source_remade@delete_source",),
    kinds=("slow@admin.delete_topic",),
)
_mutant(
    "missed window forgotten",
    "participants stay armed from a window that was missed to the next one",
    _swap("topicshift.acts.window.disarm_all", lambda ctx: None),
    calm=True,
    window=True,
    hands=("producer_stall@create_target",),
)

# ------------------------------------------------------------------------------------------------ the way back

_BACK = ("rollback_asked@order_proof",)
_mutant(
    "no certificate back",
    "a way back takes no certificates: it never ends, since no group is released without one",
    _wrap(
        "topicshift.core.engine.frozen._certified",
        lambda real: lambda view, subject: None if view.record.mirrored else real(view, subject),
    ),
    calm=True,
    hands=_BACK,
)
_mutant(
    "back to the log start",
    "offsets that the brokers forgot are set at the log start, and any offset is good enough",
    _all(
        _wrap("topicshift.acts.groups.certified_offsets", lambda real: lambda ctx, group, starts: dict(starts)),
        _wrap("topicshift.acts.observe.certified_offsets", lambda real: _at_zero(real)),
    ),
    calm=True,
    hands=("commits_expired@order_proof", *_BACK),
)
_mutant(
    "set again too low",
    "offsets that the brokers forgot are set at the log start, which the next look refuses for ever",
    _wrap("topicshift.acts.groups.certified_offsets", lambda real: lambda ctx, group, starts: dict(starts)),
    calm=True,
    hands=("commits_expired@order_proof", *_BACK),
)
_mutant(
    "forgotten is no matter",
    "a group goes back without the offsets of its certificate",
    _swap(
        "topicshift.core.engine.forward._offsets_set_again",
        lambda view, group, fact: act(Act.RELEASE_GROUP, "it has drained", group),
    ),
    calm=True,
    hands=("commits_expired@order_proof", *_BACK),
)
_mutant(
    "a way back has a route of its own",
    "without its record, the route is looked for under the name of the topic that producers are on",
    _all(
        _wrap(
            "topicshift.acts.context.MigrationContext.control",
            lambda real: lambda *a: replace(real(*a), first_source=None),
        ),
        _swap(
            "topicshift.adapters.controllers.route.RouteController._obeyed_name",
            lambda self, ctx, named, *_: named,
        ),
    ),
    calm=True,
    hands=("route_gone@order_proof", *_BACK),
)
_mutant(
    "goes back without a group",
    "going back begins before every group is on the target",
    _swap("topicshift.core.engine.back._with_records", lambda view, used: ("drain_back", "it holds records")),
    calm=True,
    hands=("rollback_asked@switch_producers",),
)


def _at_zero(real: Any) -> Any:
    return lambda ctx, group, starts: dict.fromkeys(real(ctx, group, starts), 0)


def _all_seeded(view: Any, group: str) -> Any:
    fact = view.groups.get(group)
    seeded = replace(fact, unseeded=0) if getattr(fact, "unseeded", None) is not None else fact
    return replace(view, groups={**view.groups, group: seeded})


def _yes(answer: Any) -> Any:
    return replace(answer, said="yes") if answer.said == "no" else answer


@contextmanager
def applied(name: str) -> Iterator[None]:
    """The product broken in this way; nothing for an empty name."""
    with ExitStack() as stack:
        if name:
            MUTANTS[name].patch(stack)
        yield
