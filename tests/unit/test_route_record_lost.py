"""A route whose record was lost goes on as its instances still obey it, never from nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from topicshift.core.errors import Refused
from topicshift.core.route.acts import Act, anew, open_groups, point_groups, remembered
from topicshift.core.route.records import Ack, Status

ACT = Act("orders", "orders", "orders-v2", "m1", 1, (0, 0), None, 5)


def ack(instance: str, topic: str, *, group: str | None = None, status: Status = Status.RUNNING, epoch: int = 5) -> Ack:
    role = "consumer" if group else "producer"
    return Ack("orders", role, instance, instance, status, epoch, topic, group)


def test_a_release_after_the_loss_leaves_producers_where_they_were_switched() -> None:
    acks = [ack("p", "orders-v2"), ack("a", "orders-v2", group="ga"), ack("b", "orders", group="gb")]
    written = point_groups(remembered("orders", "orders", acks), ACT, ["gb"], "orders-v2")
    assert written is not None
    assert (written.active, written.epoch) == ("orders-v2", 6)
    assert {g: (e.topic, e.came_from) for g, e in written.groups.items()} == {
        "ga": ("orders-v2", "orders"),
        "gb": ("orders-v2", "orders"),
    }


@pytest.mark.parametrize("producer", [[], [ack("p", "orders", epoch=1)], [ack("p", "orders-v2", status=Status.PAUSED)]])
def test_producers_that_slept_or_died_since_are_where_the_journal_has_them(producer: list[Ack]) -> None:
    acks = [*producer, ack("b", "orders", group="gb")]
    written = point_groups(remembered("orders", "orders", acks, "orders-v2"), ACT, ["gb"], "orders-v2")
    assert written is not None and (written.active, written.epoch) == ("orders-v2", 6)


def test_before_the_switch_they_are_on_the_source_and_in_between_nobody_knows() -> None:
    acks = [ack("b", "payments-v2", group="gb")]
    found = remembered("payments", "payments-v2", [replace(a, logical="payments") for a in acks], "payments-v2")
    assert found is not None and found.active == "payments-v2", "not the name that the application knows"
    with pytest.raises(Refused, match="no producer is alive"):
        remembered("orders", "orders", [ack("b", "orders", group="gb")], None)


def test_nobody_has_obeyed_a_route_yet() -> None:
    assert remembered("orders", "orders", [ack("p", "orders", epoch=0)]) is None
    assert open_groups(None, ACT, ["ga"]) is None


@pytest.mark.parametrize(
    "acks",
    [
        [ack("p", "orders-v2"), ack("q", "orders")],
        [ack("p", "orders-v2", status=Status.PAUSED)],
        [ack("a", "orders-v2", group="ga"), ack("b", "orders", group="ga")],
    ],
)
def test_what_instances_do_not_agree_on_is_refused(acks: list[Ack]) -> None:
    with pytest.raises(Refused, match="was lost while"):
        remembered("orders", "orders", acks)


def test_a_record_that_is_lost_is_written_anew_though_nothing_else_changes() -> None:
    kept = remembered("orders", "orders", [], "orders-v2")
    assert kept is not None and anew(kept, ACT).active == "orders-v2" and anew(kept, ACT).epoch == 6
    assert remembered("orders", "orders", [], "orders") is None
