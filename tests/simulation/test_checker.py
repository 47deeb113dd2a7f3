"""Planted violations: each rule of the checker catches what it is there for, and says nothing of a sound history."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
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


@pytest.mark.parametrize(
    ("gone", "anew", "obeyed", "caught"),
    [
        (30.0, None, 3, True),  # it had obeyed the record that is gone
        (30.0, None, None, False),  # it begins when there is none
        (19.0, 40.0, None, True),  # the record was written anew since
    ],
)
def test_a_record_of_the_route_that_is_gone_excuses_those_who_know_of_none(
    gone: float, anew: float | None, obeyed: int | None, caught: bool
) -> None:
    story, new = Story(), {"active": "new", "state": "open", "armed": True, "until": None}

    def lost(s: Story) -> None:
        s.at(18.0, "route", "route", epoch=3, **new)
        if obeyed is not None:
            s.at(18.5, "p0-2", "says", status="running", epoch=obeyed, topic="new")
        s.at(gone, "outsider", "hand", hand="route_gone", did=True, amount=0.0)
        if anew is not None:
            s.at(anew, "route", "route", epoch=4, **new)
        s.at(78.0, "p0-2", "admitted", topic="old", key="z", seq=0, app="p0")

    story.plants["released"] = lost
    assert ("woken" in story.tell()) == caught


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
        (119.5, "stray-source", "run1.t", False),  # between the last look and the end
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


def note(s: Story, at: float, text: str) -> None:
    """What a process of the product says."""
    s.at(at, "run1.t", "note", kind="log", text=text)


@pytest.mark.parametrize(
    ("state", "said", "lost"),
    [
        ("failed", "FenceBroken: topic old was deleted and made again", False),
        ("done", "FenceBroken: topic old was deleted and made again", True),
        ("failed", "nobody answered", True),  # it failed for another reason
    ],
)
def test_a_record_on_a_source_made_again_behind_the_fence_is_no_loss_where_that_is_named(
    state: str, said: str, lost: bool
) -> None:
    story = Story()

    def late(s: Story) -> None:
        made_again(s, 66.0)
        note(s, 67.0, said)
        other(s, 70.0, 0, partition=1)

    story.plants["released"] = late
    story.end |= {"state": state, "why": said}
    assert ("loss" in story.tell()) == lost


@pytest.mark.parametrize(
    ("at", "said", "lost"),
    [
        (70.0, "FenceBroken: old[0] +1", False),
        (70.0, "FenceBroken: old[1] +1", True),  # another partition
        (63.0, "FenceBroken: old[0] +1", True),  # before it was written
        (70.0, "nobody answered", True),
    ],
)
def test_a_record_behind_the_fence_is_no_loss_where_its_partition_is_named(at: float, said: str, lost: bool) -> None:
    story = Story()

    def late(s: Story) -> None:
        lines = [(at, lambda: note(s, at, said)), (65.0, lambda: s.send(65.0, "old", 0, 2, 0, who="stray", key="x"))]
        for _, line in sorted(lines, key=lambda line: line[0]):
            line()

    story.plants["released"] = late
    story.end |= {"state": "failed", "why": said}
    assert ("loss" in story.tell()) == lost


@pytest.mark.parametrize("at", [30.0, 250.0])
def test_a_source_that_is_made_again_later_hides_no_release_that_came_too_early(at: float) -> None:
    """A record that the group had to read before its release was lost to it then, whatever became of the topic."""
    story = Story()
    story.skip = {"read"}
    story.plants["pointed" if at < 60.0 else "late"] = lambda s: made_again(s, at)
    assert "undrained" in story.tell()


def test_a_source_that_is_made_again_later_hides_no_record_that_came_behind_the_fence() -> None:
    story = Story()
    story.plants |= {"fenced": _stray, "late": lambda s: made_again(s, 250.0)}
    assert "loss" in story.tell()


def test_a_group_that_went_back_may_lose_what_is_destroyed_under_it() -> None:
    story = Story()

    def back(s: Story) -> None:
        s.at(245.0, "journal", "row", migration="m1", step="rollback", state="intended", fence=None, epoch=1)
        s.send(246.0, "old", 0, 2, 50)
        made_again(s, 247.0)

    story.plants["late"] = back
    assert "loss" not in story.tell()


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


@pytest.mark.parametrize(
    ("offset", "partition", "lost"),
    [(1, 0, False), (2, 0, True), (0, 1, True)],  # where it had read; further than that; another partition
)
def test_a_member_that_sleeps_while_the_source_is_made_again_misses_no_more_than_it_had_read(
    offset: int, partition: int, lost: bool
) -> None:
    story = Story()

    def early(s: Story) -> None:
        s.at(10.5, "outsider", "hand", hand="consumer_stall", did="g0-1", amount=2.0)
        made_again(s, 11.0)
        other(s, 13.0, offset, partition)

    story.plants["freeze"] = early
    assert ("loss" in story.tell()) == lost


def test_members_that_read_what_lies_before_a_record_have_to_get_it() -> None:
    story = Story()

    def early(s: Story) -> None:
        made_again(s, 11.0)
        other(s, 12.0, 0)
        s.at(12.1, "g0-1", "deliver", group="g0", topic="old", topic_id="C", partition=0, offset=0, key="x", seq=0)
        other(s, 12.5, 1)

    story.plants["freeze"] = early
    assert "loss" in story.tell()


@pytest.mark.parametrize(
    ("hand", "topic", "partition", "lost"),
    [
        ("partition_added_source", "old", 0, False),
        ("partition_added_source", "old", 1, True),  # it began anew on another partition
        ("partition_added_target", "old", 0, True),  # that is another topic
        ("commits_expired", "old", 0, False),
        ("group_reset", "old", 0, True),  # they were set, and not taken away
    ],
)
def test_a_group_misses_what_lies_before_the_place_where_it_began_anew_and_nothing_else(
    hand: str, topic: str, partition: int, lost: bool
) -> None:
    story = Story()

    def early(s: Story) -> None:
        s.send(10.2, "old", 0, 2, 50, key="x")
        s.at(10.5, "outsider", "hand", hand=hand, did="g0", amount=0.0)
        s.at(11.0, "g0-1", "reset", group="g0", topic=topic, partition=partition, to=3, start=0, committed=None)

    story.plants["freeze"] = early
    assert ("loss" in story.tell()) == lost


@pytest.mark.parametrize(("topic", "lost"), [("new", False), ("old", True)])
def test_a_group_that_began_anew_on_the_source_has_to_get_what_lies_on_the_target(topic: str, lost: bool) -> None:
    story = Story()

    def late(s: Story) -> None:
        s.at(65.0, "outsider", "hand", hand="partition_added_target", did=True, amount=0.0)
        s.send(65.5, "new", 3, 0, 50, key="x")
        s.at(66.0, "g0-1", "reset", group="g0", topic=topic, partition=3, to=1, start=0, committed=None)

    story.plants["released"] = late
    assert ("loss" in story.tell()) == lost


def test_commits_that_expire_on_the_source_while_the_group_is_on_the_target_are_set_again_before_it_goes_back() -> None:
    story = Story()

    def back(s: Story) -> None:
        s.at(245.0, "outsider", "hand", hand="commits_expired", did="g0", amount=0.0)
        s.at(246.0, "journal", "row", migration="m1", step="rollback", state="intended", fence=None, epoch=1)
        s.send(247.0, "old", 0, 2, 50)
        s.at(248.0, "g0-1", "reset", group="g0", topic="old", partition=0, to=3, start=0, committed=None)

    story.plants["late"] = back
    assert "loss" in story.tell()


def test_a_super_users_record_on_the_topic_that_groups_are_on_is_to_be_read_like_any_other() -> None:
    story = Story()

    def late(s: Story) -> None:
        s.at(250.0, "journal", "state", migration="m1", state="done", active=False)
        s.send(251.0, "new", 1, 0, 0, who="stray-target", key="x")

    story.plants["late"] = late
    assert "loss" in story.tell()


@pytest.mark.parametrize(("state", "lost"), [("open", False), ("done", True)])
def test_a_group_that_is_still_on_the_source_of_a_migration_that_is_done_will_get_nothing_more(
    state: str, lost: bool
) -> None:
    story = Story()
    story.plants["late"] = lambda s: s.send(250.0, "new", 1, 0, 50, key="x")
    story.end |= {"state": state, "places": {"g0": "old"}, "why": "it waits"}
    assert ("loss" in story.tell()) == lost


@pytest.mark.parametrize(("at", "who", "caught"), [(64.5, "g0-1", False), (62.0, "g0-1", True), (64.5, "g1-1", True)])
def test_a_record_comes_twice_only_where_the_group_itself_was_disturbed_in_between(
    at: float, who: str, caught: bool
) -> None:
    story = Story()
    story.plants["pointed" if at < 64.0 else "released"] = lambda s: s.at(at, who, "crashed", role="consumer")
    again = story.plants.get("released", lambda s: None)

    def twice(s: Story) -> None:
        again(s)
        _again(s)

    story.plants["released"] = twice
    assert ("duplicate" in story.tell()) == caught


@pytest.mark.parametrize(("did", "caught"), [("g0-2", False), ("g1-2", True)])
def test_a_member_of_another_group_that_sleeps_explains_no_second_delivery(did: str, caught: bool) -> None:
    story = Story()

    def twice(s: Story) -> None:
        s.at(64.2, "outsider", "hand", hand="consumer_stall", did=did, amount=20.0)
        _again(s)

    story.plants["released"] = twice
    assert ("duplicate" in story.tell()) == caught


def test_a_reset_of_another_group_explains_no_rewind() -> None:
    story = Story()

    def back(s: Story) -> None:
        s.done(245.0, "back1.switch_consumer:g0")
        s.at(246.0, "outsider", "hand", hand="group_reset", did=("g1", True), amount=0.0)
        s.at(247.0, "outsider", "hand", hand="group_reset", did=("g0", False), amount=0.0)
        s.get(250.0, "old", 0, 1, 1)

    story.plants["late"] = back
    assert "rewound" in story.tell()


@pytest.mark.parametrize("state", ["done", "retired"])
def test_a_source_made_again_under_a_migration_that_is_retired_in_the_end_is_named_too(state: str) -> None:
    story = Story()
    story.plants["freeze"] = _remade
    story.end |= {"state": state}
    assert "unnamed" in story.tell()


def test_a_late_record_is_excused_by_an_old_look_only_where_a_fault_came_between() -> None:
    def late(fault: bool) -> set[str]:
        story = Story()

        def lines(s: Story) -> None:
            s.at(100.0, "run1.t", "saw", topic="old", complete=True, began=100.0)
            s.send(110.0, "old", 0, 2, 0, who="stray-source", key="x")
            if fault:
                s.at(111.0, "run1.t", "fault", fault=SimpleNamespace(kind="slow"))
            s.at(122.0, "journal", "row", migration="m1", step="order_proof", state="done", fence=None, epoch=1,
                 by="run1.t")  # fmt: skip
            s.at(122.1, "journal", "state", migration="m1", state="done", active=False)

        story.plants["released"] = lines
        story._late = lambda: None  # type: ignore[method-assign]
        return set(story.tell())

    assert "loss" in late(fault=False) and "loss" not in late(fault=True)


def test_a_producer_left_stopped_is_caught() -> None:
    story = Story()
    story._late = lambda: story.at(125.0, "world", "healed")  # type: ignore[method-assign]
    assert "left_stopped" in story.tell()


@pytest.mark.parametrize(
    ("hand", "did", "said"),
    [
        ("target_acl_removed", [], "after all was healed"),  # nothing was removed
        ("source_deleted", True, "after all was healed"),  # it writes elsewhere
        ("producer_stall", "p1-1", "wrote nothing for"),  # another process slept
    ],
)
def test_a_producer_left_stopped_is_caught_whatever_befell_others(hand: str, did: object, said: str) -> None:
    story = Story()
    lines = [
        (100.0, "outsider", "hand", {"hand": hand, "did": did, "amount": 150.0}),
        (125.0, "world", "healed", {}),
        (290.0, "p0-1", "admitted", {"topic": "new", "key": "z", "seq": 0, "app": "p0"}),
    ]

    def late() -> None:
        for when, who, what, data in lines:
            story.at(when, who, what, **data)

    story._late = late  # type: ignore[method-assign]
    story.tell()
    assert any(said in v.text for v in judge(story.history) if v.rule == "left_stopped")


@pytest.mark.parametrize("hand", ["target_acl_removed", "route_gone"])
def test_a_producer_that_nothing_was_taken_from_is_not_excused_by_what_befell_others(hand: str) -> None:
    story = Story()

    def late() -> None:
        story.at(120.0, "journal", "state", migration="m1", state="done", active=False)
        story.at(121.0, "outsider", "hand", hand=hand, did=True, amount=0.0)
        for when in (122.0, 200.0, 280.0):
            story.at(when, "p0-1", "admitted", topic="new", key="z", seq=0, app="p0")
        story.at(160.0, "world", "healed")

    story._late = late  # type: ignore[method-assign]
    assert "left_stopped" in story.tell()


@pytest.mark.parametrize(("did", "topic", "caught"), [([], "new", True), (["a"], "old", True), (["a"], "new", False)])
def test_a_producer_that_is_denied_for_long_is_caught_unless_somebody_took_its_right(
    did: list[str], topic: str, caught: bool
) -> None:
    story = Story()

    def denied(s: Story) -> None:
        s.at(17.5, "outsider", "hand", hand="target_acl_removed", did=did, amount=0.0)
        s.at(18.0, "p0-2", "admitted", topic=topic, key="z", seq=0, app="p0")
        for when in (18.0, 60.0, 140.0):
            said = {"topic": topic, "key": "z", "seq": 0, "app": "p0"}
            s.at(when, "p0-2", "produce", outcome="fail", why="AccessDenied", **said)

    story.plants["released"] = denied
    assert ("denied" in story.tell()) == caught


@pytest.mark.parametrize(("hand", "look"), [("target_acl_removed", "acls"), ("route_gone", "read_all")])
@pytest.mark.parametrize(
    ("at", "end", "broken"), [(121.0, 123.0, True), (119.0, 123.0, False), (124.0, 123.0, False), (119.0, 156.0, True)]
)
def test_what_an_outsider_takes_away_is_seen_by_a_look_before_the_end(
    hand: str, look: str, at: float, end: float, broken: bool
) -> None:
    story = Story()

    tried = {"topic": "new", "key": "z", "seq": 0, "app": "p0"}
    denied = tried | {"outcome": "fail", "why": "AccessDenied"}
    story.end |= {"instances": ["p0-2"] if hand == "route_gone" else ["p0-1"]}  # one that was not there, or was denied
    lines: list[tuple[float, str, str, dict[str, Any]]] = [
        *([(219.0, "p0-1", "produce", denied)] if hand == "target_acl_removed" else []),
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
