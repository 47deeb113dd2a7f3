"""A change counts as made when every live broker has shown it: who is asked, who is waited for, what is said."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pytest

from topicshift.adapters.kafka.propagation import Watch
from topicshift.core.errors import AccessDenied, Transient, Unreadable

LONG_S = 30.0


class Cluster:
    """Brokers that show the change from their n-th look on; None: never."""

    def __init__(self, shows_at: dict[int, int | None], live: list[set[int]] | None = None) -> None:
        self.shows_at = shows_at
        self.looks = dict.fromkeys(shows_at, 0)
        self._live = list(live or [set(shows_at)])
        self.asked_for_live: list[int | None] = []

    def live(self, node: int | None) -> Iterable[int]:
        self.asked_for_live.append(node)
        return self._live.pop(0) if len(self._live) > 1 else self._live[0]

    def look(self, node: int) -> bool:
        self.looks[node] += 1
        at = self.shows_at[node]
        return at is not None and self.looks[node] >= at

    def wait(self, time_out_s: float = LONG_S) -> None:
        Watch(self.live, self.look, time_out_s=time_out_s).wait("The change")


def test_it_waits_for_the_last_broker() -> None:
    cluster = Cluster({1: 1, 2: 4, 3: 2})
    cluster.wait()
    assert cluster.looks == {1: 1, 2: 4, 3: 2}


def test_it_asks_afresh_who_is_live_before_it_is_content() -> None:
    cluster = Cluster({1: 1, 2: 2}, [{1}, {1, 2}])
    cluster.wait()
    assert cluster.looks[2] == 2


def test_a_broker_that_has_shown_it_is_not_asked_again() -> None:
    cluster = Cluster({1: 1, 2: 9})
    cluster.wait()
    assert cluster.looks[1] == 1


def test_a_broker_that_leaves_the_cluster_is_not_waited_for() -> None:
    cluster = Cluster({1: 1, 2: None}, [{1, 2}, {1, 2}, {1}])
    cluster.wait()
    assert cluster.asked_for_live == [None, 1, 1], "who is live is asked of one that answers"


def test_a_broker_that_comes_meanwhile_is_asked_as_well() -> None:
    cluster = Cluster({1: 1, 2: None, 3: 3}, [{1, 2}, {1, 3}])
    cluster.wait()
    assert cluster.looks[3] == 3


def test_one_that_never_shows_it_is_named() -> None:
    with pytest.raises(Transient, match=r"The change was accepted.*within 0.2 s: 2 \(still the old state\)"):
        Cluster({1: 1, 2: None}).wait(0.2)


def test_one_that_cannot_be_asked_is_named_with_the_reason() -> None:
    def look(node: int) -> bool:
        if node == 2:
            raise Unreadable("no route to it")
        return True

    with pytest.raises(Transient, match=r"2 \(no route to it\)"):
        Watch(lambda _: {1, 2}, look, time_out_s=0.2).wait("The change")


def test_an_error_in_between_is_asked_again() -> None:
    first = [Unreadable("the connection broke")]

    def look(node: int) -> bool:
        if first:
            raise first.pop()
        return True

    Watch(lambda _: {1}, look, time_out_s=LONG_S).wait("The change")


def test_a_right_that_is_missing_ends_it_at_once() -> None:
    def look(node: int) -> bool:
        raise AccessDenied("DESCRIBE")

    with pytest.raises(AccessDenied):
        Watch(lambda _: {1, 2}, look, time_out_s=LONG_S).wait("The change")


def test_a_broker_that_hangs_holds_up_nobody_once_it_has_left() -> None:
    hangs = threading.Event()

    def look(node: int) -> bool:
        return node == 1 or hangs.wait(LONG_S)

    live = [{1, 2}, {1}]
    try:
        Watch(lambda _: live.pop(0) if len(live) > 1 else live[0], look, time_out_s=LONG_S).wait("The change")
    finally:
        hangs.set()


def test_who_is_live_may_be_unknown_for_a_moment() -> None:
    answers: list[set[int] | None] = [{1, 2}, None, None, {1}]

    def live(node: int | None) -> set[int]:
        answer = answers.pop(0)
        if answer is None:
            raise Unreadable("no answer")
        return answer

    Watch(live, lambda node: node == 1, time_out_s=LONG_S).wait("The change")
