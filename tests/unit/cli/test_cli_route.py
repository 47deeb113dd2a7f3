"""`topicshift route`: the answer on stdout, and nothing in it that a terminal would obey."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import KafkaError

from topicshift.client.follower import unread
from topicshift.core.route.records import BadAck

EVIL = "\x1b[2J\x1b]0;owned\x07"


class Store:
    """A route with an acknowledgement that nobody understands, and one problem of its topics."""

    def __init__(self, _: Any) -> None:
        self.problems: list[str] = ["__topicshift_acks has retention.ms 1."]

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def ensure_topics(self) -> list[str]:
        self.problems = []
        return ["made __topicshift_routes with 1 replicas"]

    def missing(self) -> list[str]:
        return ["__topicshift_routes"] if self.problems else []

    def check(self) -> list[str]:
        return self.problems

    def read_all(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {}, {}

    def all_acks(self) -> tuple[list[Any], list[Any]]:
        return [], [BadAck("payments", f"a{EVIL}", f"no{EVIL}")]


@pytest.fixture(autouse=True)
def _store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topicshift.adapters.route_store.RouteStore", Store)


def test_what_was_done_to_the_topics_is_the_answer(run: Any) -> None:
    code, out, err = run("route", "init", "--bootstrap-server", "b:1")
    assert (code, err) == (0, "")
    assert out == "made __topicshift_routes with 1 replicas\nBoth topics of the route are right.\n"
    code, out, err = run("route", "init", "--check", "--bootstrap-server", "b:1")
    gone = "__topicshift_routes does not exist: nobody can follow a route. Run topicshift route init."
    assert (code, out, err) == (3, f"{gone}\n__topicshift_acks has retention.ms 1.\n", "")


def test_the_words_of_others_are_shown_as_text(run: Any) -> None:
    code, out, err = run("route", "show", "--bootstrap-server", "b:1")
    assert code == 0 and "\\x1b[2J\\x1b]0;owned\\x07: its last word is not understood: no\\x1b[2J" in out
    assert not {c for c in out + err if c < " " and c != "\n"}
    _, out, _ = run("route", "show", "--bootstrap-server", "b:1", "--json")
    assert "\x1b" not in out
    assert json.loads(out)["routes"][0]["instances_not_understood"][0]["instance"] == f"a{EVIL}"


def test_a_right_that_may_be_missing_is_named() -> None:
    assert "no READ" in unread(KafkaError(KafkaError._UNKNOWN_PARTITION, "Unknown partition"))
    assert "READ" not in unread(KafkaError(KafkaError._ALL_BROKERS_DOWN, "down"))
