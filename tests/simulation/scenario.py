"""A scenario: the shape of the world and everything that will go wrong in it, drawn from one seed before it is run."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from . import faults as port_faults
from .faults import Fault
from .world import APP_FAULTS, HANDS, Hand, Shape, Window

GOES_BACK = 0.15
"""Share of scenarios in which somebody goes back once everything has moved."""

IN_WINDOWS = 0.1
"""Share of scenarios whose freeze may begin in a maintenance window alone."""

_EVERY_3_MIN = tuple(range(-60, 3600, 180))
WINDOWS = (
    Window("*/3 * * * *", "UTC", 40, _EVERY_3_MIN),
    Window("*/3 * * * *", "Europe/Berlin", 80, _EVERY_3_MIN),
    # On this night clocks go from 2 to 3 at second 120: what is to begin at 2 begins at 3 then.
    Window("0 2 * * *", "Europe/Berlin", 480, (120,)),
    Window("0 * * * *", "Europe/Berlin", 480, (120,)),
)
"""Windows that a scenario may have."""

MILESTONES = (
    "create_target",
    "freeze",
    "fence",
    "switch_producers",
    "switch_consumer:g0",
    "switch_consumer:g1",
    "wide_deny",
)
"""Journal rows (or acts that are under way) that a hand may wait for, so that it falls into the part of a run where it
matters."""

RETIREMENT = ("scream_test", "scream_test", "delete_source")
"""The same for the retirement."""
RETIREMENT_HANDS = (
    "reader_returns", "stray_write_source", "source_remade", "source_deleted", "deny_removed", "undeclared_group",
    "retirement_cancelled", "retire_asked", "rollback_asked", "cleared", "triggered_twice",
)  # fmt: skip
"""What may befall a source that is to be retired."""

PEOPLES_HANDS = (
    "cleared", "marked_success", "marked_failed", "run_deleted", "run_paused", "triggered_twice", "command_line",
    "second_advancer", "resume_asked", "rollback_asked", "verifier_dies",
)  # fmt: skip


DRAWN = sorted(
    HANDS.keys() - {"undeclared_follower", "transaction_hangs", "transaction_ends", "reader_returns", "source_deleted"}
)
"""Hands of outsiders that any scenario may hold; a stranger on the route keeps the gate shut for good."""

SPECIAL = frozenset(
    {"plan_changes", "point_stuck", "point_in_flight", "route_away_early", "says_no", "seeds_forgotten", "asked_to_go"}
    | {"stranger_joins", "late_deny"}
)
"""Wishes that are no hands of their own."""


DRAWN_FAULTS = sorted(APP_FAULTS.keys() - {"producers_idle"})
"""What happens to applications unasked; idle producers are wished for alone."""


@dataclass(frozen=True)
class Mood:
    """How a person answers: seconds until the answer, what it is, and whether it comes twice."""

    after: float = 5.0
    says: str = "yes"
    twice: bool = False


@dataclass(frozen=True)
class Scenario:
    """One whole run."""

    seed: int
    shape: Shape
    faults: tuple[Fault, ...] = ()
    hands: tuple[Hand, ...] = ()
    moods: tuple[Mood, ...] = (Mood(),)
    approvals: str = "required"
    skew: float = 0.0
    """How far the product's own clocks run ahead at first."""

    @property
    def parts(self) -> int:
        """The number of things that go wrong in it."""
        return len(self.faults) + len(self.hands) + sum(m != Mood(m.after) for m in self.moods)


@dataclass(frozen=True)
class Wish:
    """What a caller wants of the scenarios it draws."""

    order: str | None = None
    calm: bool = False
    hands: tuple[str, ...] = field(default=())
    """Hands that are added to each scenario (``what`` or ``what@row``): for mutants that only a certain hand shows."""
    manual: bool = False
    """People move every producer."""
    kinds: tuple[str, ...] = ()
    """Fault kinds that are added to each scenario (``kind`` or ``kind@port.method``)."""
    retire: bool | None = None
    """Whether the source is retired afterwards; None: as the seed has it."""
    window: bool = False
    """A freeze may begin in a window alone, and controllers move every producer."""


ANY = Wish()
"""No wish in particular."""


def draw(seed: int, wish: Wish = ANY) -> Scenario:
    """The scenario of a seed."""
    rng = random.Random(f"scenario {seed}")
    order = rng.choice(("drain_first", "producers_first"))
    shape = Shape(
        order=wish.order or order,
        source_partitions=rng.choice((1, 2, 2, 3)),
        target_partitions=rng.choice((3, 3, 4, 5)),
        producers=rng.choice((1, 2, 2)),
        instances=rng.choice(((1,), (1, 2), (2,))),
        groups=rng.choice((1, 2, 2)),
        members=rng.choice(((1,), (2, 1), (1, 2))),
        resets=rng.choice((("earliest", "latest"), ("latest",), ("earliest",))),
        skews=rng.choice(((0.0,), (0.0,), (0.0, 0.4, -0.7), (-3.0, 0.0, 0.0, 0.5), (0.0, 1.6))),
        budget_s=rng.choice((30, 60, 60, 120)),
    )
    if shape.target_partitions <= shape.source_partitions:
        shape = replace(shape, target_partitions=shape.source_partitions + 1)
    if rng.random() < 0.2:
        shape = replace(shape, manual_producers=rng.choice((0, 1)), manual_groups=rng.choice((0, 1, 1)))
    if wish.manual:
        shape = replace(shape, manual_producers=shape.producers)
    more = random.Random(f"more {seed}")
    retires = more.random() < 0.3 if wish.retire is None else wish.retire
    if retires:
        shape = _retired(more, shape)
    times = random.Random(f"window {seed}")
    if wish.window or (wish == ANY and times.random() < IN_WINDOWS):
        shape = replace(
            shape, window=times.choice(WINDOWS), manual_producers=shape.manual_producers * (not wish.window)
        )
    base = Scenario(seed, shape, approvals=rng.choice(("required", "auto", "auto")))
    if wish.calm and not (wish.hands or wish.kinds):
        return base
    weight = rng.choice((0, 1, 1, 2, 2, 3, 3)) * (not wish.calm)
    count = rng.choice((1, 3, 6, 10)) * (weight > 0)
    faults = port_faults.draw(rng, count)
    hands = [_app_fault(rng) for _ in range(rng.choice((0, 1, 1, 2)) * (weight > 0))]
    hands += [_hand(rng, rng.choice(DRAWN)) for _ in range(rng.choice((0, 0, 0, 1, 1, 2)) * (weight > 0))]
    hands += [_hand(rng, rng.choice(PEOPLES_HANDS)) for _ in range(rng.choice((0, 0, 1, 1, 2)) * (weight > 0))]
    hands += [_wished(rng, n) for n in wish.hands if n not in SPECIAL]
    if weight and more.random() < 0.15:
        hands.append(_hand(more, "transaction_ends"))
    if weight and retires:
        hands += [_at_its_retirement(more) for _ in range(more.choice((0, 1, 1, 2)))]
    if "plan_changes" in wish.hands:
        base = replace(base, approvals="required")
        hands.append(Hand("partition_added_source", rng.uniform(4.0, 12.0)))
    if "point_stuck" in wish.hands:
        faults.append(Fault("slow", "routes", "write", 3, shape.budget_s * rng.uniform(0.7, 1.1)))
    if "seeds_forgotten" in wish.hands:
        base = replace(base, shape=replace(base.shape, groups=1, manual_groups=1, resets=("latest",)))
        hands = [Hand("seeds_expired", rng.uniform(0.6, 2.4), "switch_consumer:g0")]
    if "stranger_joins" in wish.hands:
        hands = [Hand("undeclared_follower", rng.uniform(0.1, 1.0), "create_target"), Hand("run_paused", 0.5, "fence")]
    if "late_deny" in wish.hands:  # killed at the switch, resumed, and on again before the late request takes effect
        shape = replace(base.shape, order="producers_first", producers=1, groups=1, members=(1,), budget_s=120)
        base = replace(base, shape=replace(shape, manual_producers=0, manual_groups=0), approvals="auto")
        faults = [Fault("kill_after", "journal", "intend", 10), Fault("late", "admin", "create_acls", 3, 16.0)]
        at = {"run_deleted": 0.3, "resume_asked": 1.0, "second_advancer": 38.0}
        hands = [Hand(what, seconds, "switch_producers") for what, seconds in at.items()]
    if "route_away_early" in wish.hands:
        hands = [Hand("route_unreadable", rng.uniform(0.0, 2.0), "", rng.uniform(40.0, 60.0))]
    if "point_in_flight" in wish.hands:
        faults.append(Fault("late", "routes", "write", 3, rng.uniform(0.3, 1.4)))
        hands += [Hand("resume_asked", rng.uniform(0.0, 0.5), "switch_producers") for _ in range(2)]
    if {"says_no", "asked_to_go"} & set(wish.hands):
        base = replace(base, approvals="required")
    for kind in wish.kinds:
        faults += port_faults.wished(rng, kind)
    skew = rng.choice((0.0, 0.0, 0.0, 0.3, -0.5, 4.0, -4.0)) if weight > 1 else 0.0
    moods = (Mood(3.0, "no"),) if "says_no" in wish.hands else _moods(rng, weight)
    if not wish.calm and random.Random(f"back {seed}").random() < GOES_BACK:
        hands.append(Hand("rollback_asked", rng.uniform(0.0, 3.0), "order_proof"))
    return replace(base, faults=tuple(faults), hands=tuple(hands), moods=moods, skew=skew)


def _retired(rng: random.Random, shape: Shape) -> Shape:
    """A world whose source is retired: time is short there."""
    return replace(
        shape,
        retire_after_s=rng.choice((5, 20, 60)),
        scream_s=rng.choice((10, 25)),
        retention_ms=rng.choice((-1, 40_000, 90_000)),
    )


def _at_its_retirement(rng: random.Random) -> Hand:
    at = rng.choice((0.0, 0.5, 3.0, 12.0, 25.0)) * rng.uniform(0.3, 1.5)
    return Hand(rng.choice(RETIREMENT_HANDS), at, rng.choice(RETIREMENT))


def _moods(rng: random.Random, weight: int) -> tuple[Mood, ...]:
    out = []
    for _ in range(6):
        after = rng.uniform(1.0, 8.0)
        if rng.random() < 0.08 * weight:
            out.append(
                rng.choice(
                    (Mood(rng.uniform(30, 200)), Mood(after, "no"), Mood(after, "never"), Mood(after, "yes", True))
                )
            )
        else:
            out.append(Mood(after))
    return tuple(out)


def _when(rng: random.Random) -> tuple[float, str]:
    if rng.random() < 0.75:
        return rng.choice((0.0, 0.1, 0.5, 2.0, 6.0, 20.0)) * rng.uniform(0.3, 1.5), rng.choice(MILESTONES)
    return rng.uniform(1.0, 120.0), ""


def _wished(rng: random.Random, name: str) -> Hand:
    """A hand by name, or by name and milestone: ``run_deleted@freeze`` falls into the seconds after that row."""
    what, _, after = name.partition("@")
    if not after:
        return _app_fault(rng, what) if what in APP_FAULTS else _hand(rng, what)
    amount = rng.choice((70.0, 200.0)) * rng.uniform(0.7, 1.3) if what in APP_FAULTS else 0.0
    amount = rng.uniform(5.0, 40.0) if what == "producers_idle" else amount
    return Hand(what, rng.choice((0.0, 0.3, 1.0, 3.0)) * rng.uniform(0.3, 1.5), after, amount)


def _hand(rng: random.Random, what: str) -> Hand:
    at, after = _when(rng)
    return Hand(what, at, after)


def _app_fault(rng: random.Random, what: str = "") -> Hand:
    what, wished = what or rng.choice(DRAWN_FAULTS), what
    at, after = _when(rng)
    if wished:
        at, after = rng.uniform(0.0, 3.0), rng.choice(("freeze", "freeze", "create_target", "fence"))
    amount = rng.choice((2.0, 8.0, 20.0, 70.0, 200.0)[3 * bool(wished) :]) * rng.uniform(0.7, 1.3)
    if what == "app_clock_step":
        amount = rng.choice((-90.0, -5.0, -0.8, 0.8, 3.0, 60.0))
    return Hand(what, at, after, amount)
