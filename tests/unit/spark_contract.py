"""What a Structured Streaming query and its hook do: run on the fake one and on a real one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

from topicshift.adapters.controllers.command import NOT_NOW
from topicshift.adapters.controllers.hooks import Answer
from topicshift.adapters.spark_checkpoint import look_at_checkpoint, read_checkpoint

Until = Callable[[Callable[[], Any], str], Any]


class Query(Protocol):
    """A running query on ``topic`` (two partitions), which has no record yet, and ``other``, which nobody reads."""

    topic: str
    other: str

    def call(self, moment: str, **told: str) -> Answer:
        """Call its hook; ``told`` without ``TOPICSHIFT_``, in lower case."""

    def produce(self, topic: str, partition: int, records: int) -> None:
        """Write so many records."""

    def given(self) -> list[tuple[str, int, int]]:
        """Topic, partition and offset of every record that it was given, in order."""

    def folder(self, name: str) -> str:
        """A checkpoint folder; ``old`` is that of the running query."""


class Case(Protocol):
    """One truth of such a query. ``until`` waits for a condition."""

    __name__: str

    def __call__(self, query: Query, until: Until) -> None: ...


def status(query: Query) -> tuple[str, str | None]:
    answer = query.call("observe")
    if answer.code != 0:
        return "unknown", None
    said = json.loads(answer.out)
    return said["status"], said.get("topic")


def reached(query: Query, name: str, topic: str) -> dict[int, int]:
    """The next offsets by its checkpoint; the query is looked at, so that time goes by for it."""
    query.call("observe")
    return look_at_checkpoint(query.folder(name), topic).offsets


def stopped(query: Query, until: Until) -> None:
    assert query.call("stop").code == 0
    until(lambda: status(query)[0] == "stopped", "it stands")


def started(query: Query, topic: str, checkpoint: str, until: Until, first: Any = None) -> None:
    offsets = json.dumps({topic: first}) if first else ""
    told = {"topic": topic, "checkpoint": query.folder(checkpoint), "starting_offsets": offsets}
    assert query.call("point", **told).code == 0 and query.call("start").code == 0
    until(lambda: status(query) == ("running", topic), f"it runs on {topic}")


def its_checkpoint_says_what_it_has_finished(query: Query, until: Until) -> None:
    assert status(query) == ("running", query.topic)
    until(lambda: reached(query, "old", query.topic) == {0: 0, 1: 0}, "a first batch, of nothing")
    query.produce(query.topic, 0, 3)
    until(lambda: reached(query, "old", query.topic) == {0: 3, 1: 0}, "a batch of three")
    assert query.given() == [(query.topic, 0, n) for n in range(3)]
    found = read_checkpoint("q", query.folder("old"), query.topic)
    assert (found.error, found.offsets) == (None, {0: 3, 1: 0})
    assert look_at_checkpoint(query.folder("old"), query.topic).topics == {query.topic}


def a_stopped_one_reads_nothing_and_goes_on_where_it_was(query: Query, until: Until) -> None:
    query.produce(query.topic, 1, 2)
    until(lambda: reached(query, "old", query.topic) == {0: 0, 1: 2}, "all is read")
    stopped(query, until)
    before = look_at_checkpoint(query.folder("old"), query.topic)
    query.produce(query.topic, 1, 1)
    assert status(query) == ("stopped", None)
    assert look_at_checkpoint(query.folder("old"), query.topic) == before
    started(query, query.topic, "old", until)
    until(lambda: reached(query, "old", query.topic) == {0: 0, 1: 3}, "it goes on")
    assert query.given() == [(query.topic, 1, n) for n in range(3)]


def one_that_runs_is_not_pointed(query: Query, until: Until) -> None:
    answer = query.call("point", topic=query.other, checkpoint=query.folder("new"), starting_offsets="")
    assert answer.code == NOT_NOW
    assert not look_at_checkpoint(query.folder("new"), query.other).begun
    assert status(query) == ("running", query.topic)


def a_new_checkpoint_begins_at_the_offsets_that_are_given(query: Query, until: Until) -> None:
    query.produce(query.other, 0, 4)
    stopped(query, until)
    started(query, query.other, "new", until, {"0": 1, "1": 0})
    until(lambda: reached(query, "new", query.other) == {0: 4, 1: 0}, "it reads")
    found = look_at_checkpoint(query.folder("new"), query.other)
    assert (found.starts, found.topics) == ({0: 1, 1: 0}, {query.other})
    assert query.given() == [(query.other, 0, n) for n in (1, 2, 3)]


def a_new_checkpoint_holds_a_finished_batch_even_of_nothing(query: Query, until: Until) -> None:
    stopped(query, until)
    started(query, query.other, "new", until, {"0": 0, "1": 0})
    until(lambda: reached(query, "new", query.other) == {0: 0, 1: 0}, "a first batch")
    stopped(query, until)
    started(query, query.topic, "old", until)
    query.produce(query.topic, 0, 1)
    until(lambda: reached(query, "old", query.topic) == {0: 1, 1: 0}, "it is back")


def without_offsets_a_new_checkpoint_begins_at_the_latest(query: Query, until: Until) -> None:
    query.produce(query.other, 0, 4)
    stopped(query, until)
    started(query, query.other, "new", until)
    until(lambda: look_at_checkpoint(query.folder("new"), query.other).finished is not None, "a first batch")
    assert look_at_checkpoint(query.folder("new"), query.other).starts == {0: 4, 1: 0}
    assert query.given() == []


CONTRACT: list[Case] = [
    its_checkpoint_says_what_it_has_finished,
    a_stopped_one_reads_nothing_and_goes_on_where_it_was,
    one_that_runs_is_not_pointed,
    a_new_checkpoint_begins_at_the_offsets_that_are_given,
    a_new_checkpoint_holds_a_finished_batch_even_of_nothing,
    without_offsets_a_new_checkpoint_begins_at_the_latest,
]
