"""Planted violations: each rule of the checker catches what it is there for, and says nothing of a sound history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.checker import judge
from tests.simulation.history import History

Plant = Callable[["Story"], None]


class Story:
    """A small sound migration, written line by line, into which a violation can be planted."""

    def __init__(self) -> None:
        self.now = 0.0
        self.history = History(lambda: self.now)
        self.skip: set[str] = set()
        self.end: dict[str, Any] = {
            "places": {"g0": "new"}, "commits": {}, "ids": {"old": "A", "new": "B"}, "state": "done", "why": "",
            "migrations": [{"migration": "m1", "state": "done", "active": False, "why": "", "ends_by": ""}],
            "broken": {}, "instances": ["p0-1"],
        }  # fmt: skip
        self.plants: dict[str, Plant] = {}

    def at(self, when: float, who: str, what: str, **data: Any) -> None:
        self.now = when
        self.history.add(who, what, **data)

    def send(
        self, when: float, topic: str, partition: int, offset: int, seq: int, who: str = "p0-1", key: str = "k"
    ) -> None:
        ids = {"old": "A", "new": "B"}
        said = {"key": key, "seq": seq, "topic": topic, "partition": partition, "offset": offset}
        self.at(when, who, "admitted", topic=topic, key=key, seq=seq, app="p0")
        self.at(when, who, "appended", topic_id=ids[topic], **said)
        self.at(when, who, "produce", outcome="ok", app="p0", **said)

    def get(self, when: float, topic: str, partition: int, offset: int, seq: int, key: str = "k") -> None:
        ids = {"old": "A", "new": "B"}
        self.at(when, "g0-1", "deliver", group="g0", topic=topic, topic_id=ids[topic], partition=partition,
                offset=offset, key=key, seq=seq)  # fmt: skip

    def done(self, when: float, *steps: str) -> None:
        for step in steps:
            if step not in self.skip:
                self.at(when, "journal", "row", migration="m1", step=step, state="done", fence=None, epoch=1)

    def point(self, when: float, who: str = "run1.t", **more: Any) -> None:
        data = {"points": "new", "pointed_before": "old", "released": [], "migration": "m1", "state": "paused"} | more
        self.at(when, who, "call", port="routes", method="write", args="", outcome="ok", began=when, **data)

    def tell(self) -> list[str]:
        """The migration, with what was planted at its moments; the rules that it breaks."""
        for moment in ("start", "plan", "freeze", "fenced", "pointed", "released", "late"):
            getattr(self, f"_{moment}")()
            if moment in self.plants:
                self.plants[moment](self)
        self.at(300.0, "world", "quiet")
        self.at(340.0, "world", "end", **self.end)
        return sorted({v.rule for v in judge(self.history)})

    def _start(self) -> None:
        self.at(0.0, "world", "world", source="old", target="new", order="drain_first", budget_s=60.0, groups=["g0"],
                required=["approve.plan", "switch_producers.switch"])  # fmt: skip
        self.at(1.0, "journal", "holds", topic="old", migration="m1")
        self.at(1.0, "journal", "holds", topic="new", migration="m1")
        self.send(2.0, "old", 0, 0, 0)
        self.get(3.0, "old", 0, 0, 0)

    def _plan(self) -> None:
        self.at(5.0, "journal", "plan", migration="m1", plan_hash="H1")
        if "yes" not in self.skip:
            self.at(6.0, "person", "answered", question="approve.plan", shown='{"plan_hash": "H1"}', said="yes")
        self.at(7.0, "run1.t", "call", port="admin", method="create_topic", args="new", outcome="ok", began=7.0)
        self.done(7.5, "create_target")

    def _freeze(self) -> None:
        self.send(9.0, "old", 0, 1, 1)
        if "read" not in self.skip:
            self.get(10.0, "old", 0, 1, 1)

    def _fenced(self) -> None:
        self.at(14.0, "run1.t", "saw", topic="old", complete=True, began=13.9)
        self.at(15.0, "journal", "row", migration="m1", step="fence", state="done", epoch=1,
                fence={"topic_id": "A", "offsets": {0: 2}})  # fmt: skip
        self.at(15.5, "person", "answered", question="switch_producers.switch", shown="{}", said="yes")

    def _pointed(self) -> None:
        if "look" not in self.skip:
            self.at(16.0, "run1.t", "saw", topic="old", complete="partial" not in self.skip, began=15.9)
        self.point(60.0 if "look" in self.skip else 17.0)
        self.send(61.0, "new", 0, 0, 2)

    def _released(self) -> None:
        self.at(62.0, "run1.t", "saw", topic="old", complete=True, began=61.9)
        self.at(63.0, "run1.t", "call", port="routes", method="write", args="", outcome="ok", began=63.0, points="new",
                pointed_before="new", released=["g0"], migration="m1", state="open")  # fmt: skip
        self.get(64.0, "new", 0, 0, 2)
        self.done(64.5, "freeze", "certificate", "verification", "switch_producers", "wide_deny", "switch_consumer:g0")
        self.done(64.9, "order_proof")

    def _late(self) -> None:
        for n in range(5):
            self.send(80.0 + 40 * n, "new", 0, 1 + n, 3 + n)
            self.get(81.0 + 40 * n, "new", 0, 1 + n, 3 + n)
            if n == 1:
                self.at(125.0, "world", "healed")


def test_a_sound_history_breaks_no_rule() -> None:
    assert Story().tell() == []


def _lost(s: Story) -> None:
    s.send(82.0, "new", 1, 0, 99, key="other")


def _crossed(s: Story) -> None:
    s.send(65.0, "old", 1, 0, 1, key="j")
    s.send(65.0, "new", 1, 0, 2, key="j")
    s.get(66.0, "new", 1, 0, 2, key="j")
    s.get(67.0, "old", 1, 0, 1, key="j")


def _again(s: Story) -> None:
    s.get(65.0, "new", 0, 0, 2)


def _rewound(s: Story) -> None:
    """The brokers had forgotten its commits, and nobody told them again before it went back."""
    s.at(250.0, "outsider", "hand", hand="commits_expired", did=True, amount=0.0)
    s.done(260.0, "back1.switch_consumer:g0")
    s.get(261.0, "old", 0, 1, 1)


def _work_of_a_sleeper(s: Story) -> None:
    """A member slept with a record in hand, another one read it, and after the way back the sleeper works on it."""
    s.at(250.0, "outsider", "hand", hand="consumer_stall", did="g0-2", amount=20.0)
    s.done(260.0, "back1.switch_consumer:g0")
    s.at(270.0, "g0-2", "deliver", group="g0", topic="old", topic_id="A", partition=0, offset=1, key="k", seq=1,
         fetched=250.0)  # fmt: skip


def _stray(s: Story) -> None:
    s.send(15.6, "old", 0, 2, 50, who="stray", key="x")


def _other_run(s: Story) -> None:
    s.at(70.0, "journal", "holds", topic="old", migration="m2")
    s.at(
        140.0, "run1.t", "call", port="admin", method="delete_topic", args="", outcome="ok", began=140.0, migration="m1"
    )


def _remade(s: Story) -> None:
    s.at(12.0, "outsider", "hand", hand="source_remade", did=True, amount=0.0)


def _no(s: Story) -> None:
    s.at(6.5, "person", "answered", question="approve.plan", shown='{"plan_hash": "H1"}', said="no")


def _lifted(s: Story) -> None:
    s.at(15.8, "journal", "row", migration="m1", step="fence", state="undone", fence=None, epoch=1)


def _woken(s: Story) -> None:
    """It slept through the switch, and takes a record for the old topic a minute later; the DENY stops that record."""
    s.at(18.0, "route", "route", active="new", state="open", armed=True, until=None)
    s.at(78.0, "p0-2", "admitted", topic="old", key="z", seq=0, app="p0")


def _late_point(s: Story) -> None:
    """The pause ends at 70, the point is stamped at 69, and a producer obeys it."""
    s.at(65.0, "route", "route", active="old", state="paused", armed=True, until=70.0)
    s.at(69.0, "route", "route", active="far", state="paused", armed=True, until=70.0)
    s.at(71.0, "p0-2", "admitted", topic="far", key="z", seq=0, app="p0")


def _denied(s: Story) -> None:
    """The fence hits a producer on the route, and outlives its lease."""
    s.at(18.0, "p0-2", "admitted", topic="old", key="z", seq=0, app="p0")
    for when in (18.0, 60.0, 140.0):
        said = {"topic": "old", "key": "z", "seq": 0, "app": "p0"}
        s.at(when, "p0-2", "produce", outcome="fail", why="AccessDenied", **said)


def _blind(s: Story) -> None:
    """Nothing is armed, and a producer that cannot read the route stops."""
    s.at(64.0, "p0-2", "admitted", topic="new", key="z", seq=0, app="p0")
    s.at(65.0, "outsider", "hand", hand="route_unreadable", did=True, amount=50.0)


def _no_cutover(s: Story) -> None:
    s.at(15.6, "person", "asked", question="switch_producers.switch", shown="{}")
    _no_to_the_same(s)


def _no_to_the_same(s: Story) -> None:
    s.at(15.7, "person", "answered", question="switch_producers.switch", shown="{}", said="no")


def _other_plan(s: Story) -> None:
    s.at(6.6, "journal", "plan", migration="m1", plan_hash="H2")


@pytest.mark.parametrize(
    ("moment", "plant", "rule"),
    [
        ("late", _lost, "loss"),
        ("released", _crossed, "order"),
        ("released", _again, "duplicate"),
        ("late", _rewound, "rewound"),
        ("fenced", _stray, "fence"),
        ("late", _other_run, "two_runs"),
        ("freeze", _remade, "unnamed"),
        ("released", _late_point, "void"),
        ("released", _denied, "denied"),
        ("released", _blind, "unarmed"),
        ("fenced", _no_cutover, "approval"),
        ("fenced", _lifted, "fence"),
        ("released", _woken, "woken"),
    ],
)
def test_a_planted_violation_is_caught(moment: str, plant: Plant, rule: str) -> None:
    story = Story()
    story.plants[moment] = plant
    assert rule in story.tell()


@pytest.mark.parametrize(
    ("skip", "rule"), [("yes", "approval"), ("read", "undrained"), ("look", "fence"), ("partial", "fence")]
)
def test_what_is_missing_is_caught(skip: str, rule: str) -> None:
    story = Story()
    story.skip = {skip, "look"} if skip == "partial" else {skip}
    assert rule in story.tell()


@pytest.mark.parametrize("step", ["freeze", "verification", "wide_deny", "switch_consumer:g0", "order_proof"])
def test_a_step_without_its_proof_is_caught(step: str) -> None:
    story = Story()
    story.skip = {step}
    assert "unproven" in story.tell()


def test_a_partial_look_is_no_look() -> None:
    story = Story()
    story.skip = {"partial"}

    def pointed() -> None:
        story.at(52.0, "run1.t", "saw", topic="old", complete=False, began=51.9)
        story.point(53.0)
        story.send(61.0, "new", 0, 0, 2)

    story._pointed = pointed  # type: ignore[method-assign]
    assert "fence" in story.tell()


def test_a_no_before_the_act_is_caught() -> None:
    story = Story()
    story.plants["start"] = lambda s: None
    plan = story._plan

    def refused() -> None:
        story.at(5.0, "journal", "plan", migration="m1", plan_hash="H1")
        story.at(6.0, "person", "answered", question="approve.plan", shown='{"plan_hash": "H1"}', said="no")
        story.skip = {"yes"}
        plan()

    story._plan = refused  # type: ignore[method-assign]
    assert "approval" in story.tell()


def test_a_no_after_the_yes_to_one_question_is_no_violation() -> None:
    story = Story()
    story.plants["fenced"] = _no_to_the_same
    assert story.tell() == []


def test_a_yes_to_another_plan_is_caught() -> None:
    story = Story()

    def other() -> None:
        story.at(5.0, "journal", "plan", migration="m1", plan_hash="H2")
        story.at(6.0, "person", "answered", question="approve.plan", shown='{"plan_hash": "H1"}', said="yes")
        story.at(7.0, "run1.t", "call", port="admin", method="create_topic", args="new", outcome="ok", began=7.0)

    story._plan = other  # type: ignore[method-assign]
    assert "approval" in story.tell()


def test_what_was_in_hand_before_the_way_back_is_no_rewind() -> None:
    story = Story()
    story.plants["late"] = _work_of_a_sleeper
    assert "rewound" not in story.tell()


@pytest.mark.parametrize(
    ("look", "who", "by", "lost"),
    [
        (119.0, "stray-source", "run1.t", False),  # between the last look and the end
        (121.0, "stray-source", "run1.t", True),  # whoever ended it had looked once more
        (119.0, "stray-source", "run1.u", True),  # another process had
        (60.0, "stray-source", "run1.t", True),  # an end on so old a look
        (119.0, "p0-1", "run1.t", True),  # no super user's
    ],
)
def test_a_late_record_of_a_super_user_is_no_loss_where_the_last_look_came_before_it(
    look: float, who: str, by: str, lost: bool
) -> None:
    story = Story()

    def late(story: Story) -> None:
        if look < 120.0:
            story.at(look, "run1.t", "saw", topic="old", complete=True, began=look)
        story.send(120.0, "old", 0, 2, 0, who=who, key="x")
        if look > 120.0:
            story.at(look, "run1.t", "saw", topic="old", complete=True, began=look)
        story.at(122.0, "journal", "row", migration="m1", step="order_proof", state="done", fence=None, epoch=1, by=by)
        story.at(122.1, "journal", "state", migration="m1", state="done", active=False)

    story.plants["released"] = late
    story._late = lambda: None  # type: ignore[method-assign]
    assert ("loss" in story.tell()) == lost


def made_again(s: Story, at: float) -> None:
    """Somebody makes the source again under its name."""
    s.at(at, "outsider", "hand", hand="source_remade", did=True, amount=0.0)


def other(s: Story, at: float, offset: int, partition: int = 0) -> None:
    """A super user's record on the source that was made again."""
    said = {"key": "x", "seq": 0, "topic": "old", "partition": partition, "offset": offset}
    s.at(at, "stray-source", "appended", topic_id="C", **said)
    s.at(at, "stray-source", "produce", outcome="ok", app="rogue", **said)


@pytest.mark.parametrize(("state", "lost"), [("failed", False), ("done", True)])
def test_a_record_on_a_source_made_again_behind_the_fence_is_no_loss_where_that_is_named(
    state: str, lost: bool
) -> None:
    story = Story()

    def late(s: Story) -> None:
        made_again(s, 66.0)
        other(s, 70.0, 0, partition=1)

    story.plants["released"] = late
    story.end |= {"state": state, "why": "the source was made again"}
    assert ("loss" in story.tell()) == lost


@pytest.mark.parametrize(
    ("offset", "reset_to", "lost"),
    [(1, None, False), (2, None, True), (1, 0, True)],  # it had read up to 1; further than that; it began anew
)
def test_members_that_read_on_at_their_offset_on_a_source_made_again_miss_what_came_before_it(
    offset: int, reset_to: int | None, lost: bool
) -> None:
    story = Story()

    def early(s: Story) -> None:
        made_again(s, 11.0)
        other(s, 12.0, offset)
        if reset_to is not None:
            s.at(12.5, "g0-1", "reset", group="g0", topic="old", partition=0, to=reset_to, start=0, committed=2)

    story.plants["freeze"] = early
    assert ("loss" in story.tell()) == lost


def test_a_producer_left_stopped_is_caught() -> None:
    story = Story()
    story._late = lambda: story.at(125.0, "world", "healed")  # type: ignore[method-assign]
    assert "left_stopped" in story.tell()


@pytest.mark.parametrize(("hand", "look"), [("target_acl_removed", "acls"), ("route_gone", "read_all")])
@pytest.mark.parametrize(
    ("at", "end", "broken"), [(121.0, 123.0, True), (119.0, 123.0, False), (124.0, 123.0, False), (119.0, 156.0, True)]
)
def test_what_an_outsider_takes_away_is_seen_by_a_look_before_the_end(
    hand: str, look: str, at: float, end: float, broken: bool
) -> None:
    story = Story()

    tried = {"topic": "new", "key": "z", "seq": 0, "app": "p0"}
    lines: list[tuple[float, str, str, dict[str, Any]]] = [
        (120.0, "outsider", "hand", {"hand": hand, "did": True, "amount": 0.0}),
        (at, "run1.t", "looked", {"method": look, "began": at - 0.1}),
        (end, "journal", "state", {"migration": "m1", "state": "done", "active": False}),
        (160.0, "world", "healed", {}),
        (140.0, "p0-1", "admitted", tried),
        (220.0, "p0-1", "admitted", tried),
    ]

    def late() -> None:
        for when, who, what, data in sorted(lines, key=lambda line: line[0]):
            story.at(when, who, what, **data)

    story._late = late  # type: ignore[method-assign]
    assert ("left_stopped" in story.tell()) == broken


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (
            {"migrations": [{"migration": "m1", "state": "open", "active": True, "why": "", "ends_by": "close"}]},
            "liveness",
        ),
        ({"migrations": [{"migration": "m1", "state": "open", "active": True, "why": "x", "ends_by": ""}]}, "liveness"),
        ({"broken": {"run1.t": "KeyError: 'x'"}}, "liveness"),
    ],
)
def test_what_never_ends_is_caught(change: dict[str, Any], rule: str) -> None:
    story = Story()
    story.end |= change
    assert rule in story.tell()
