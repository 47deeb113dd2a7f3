"""What a Kafka Connect worker does, as the controller relies on it: run on the fake worker and on a real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pytest

from topicshift.adapters.rest import Ask
from topicshift.core.errors import NotFound, Refused
from topicshift.core.kafka.connect import Connector, can_stop, read_connector
from topicshift.core.kafka.mirror import change, kind_of, positions

Until = Callable[[Callable[[], Any], str], Any]


class Case(Protocol):
    """One truth of a running sink connector with these settings. ``until`` waits for a condition."""

    __name__: str

    def __call__(self, ask: Ask, name: str, config: dict[str, str], until: Until) -> None: ...


def look(ask: Ask, name: str) -> Connector:
    return read_connector(
        ask("GET", f"/connectors/{name}/status", None), ask("GET", f"/connectors/{name}/config", None)
    )


def stopped(ask: Ask, name: str, until: Until) -> None:
    ask("PUT", f"/connectors/{name}/stop", None)
    until(lambda: look(ask, name).stopped, "STOPPED, and no task is listed")


def it_says_what_it_is(ask: Ask, name: str, config: dict[str, str], until: Until) -> None:
    seen = look(ask, name)
    assert (seen.name, seen.role, seen.runs, dict(seen.config)) == (name, "consumer", True, config)
    assert can_stop(ask("GET", "/", None)) == ""


def nobody_is_told_of_what_is_not_there(ask: Ask, name: str, config: dict[str, str], until: Until) -> None:
    for path in ("status", "config"):
        with pytest.raises(NotFound):
            ask("GET", f"/connectors/{name}x/{path}", None)


def a_stopped_one_keeps_its_settings_and_takes_new_ones(
    ask: Ask, name: str, config: dict[str, str], until: Until
) -> None:
    stopped(ask, name, until)
    assert look(ask, name).config == config
    ask("PUT", f"/connectors/{name}/config", {**config, "topics": f"{config['topics']},more"})
    until(lambda: look(ask, name).config == {**config, "topics": f"{config['topics']},more"}, "the new settings")
    assert look(ask, name).stopped
    stopped(ask, name, until)
    ask("PUT", f"/connectors/{name}/resume", None)
    until(lambda: look(ask, name).runs, "it runs")


def settings_that_it_would_not_take_are_told_without_taking_them(
    ask: Ask, name: str, config: dict[str, str], until: Until
) -> None:
    def wrong(settings: dict[str, str]) -> list[str]:
        answer = ask("PUT", f"/connector-plugins/{config['connector.class']}/config/validate", settings)
        named = [c["value"]["name"] for c in answer["configs"] if c["value"]["errors"]]
        assert bool(named) == bool(answer["error_count"])
        return named

    assert wrong(config) == []
    assert wrong({**config, "tasks.max": "many"}) == ["tasks.max"]
    with pytest.raises(Refused):
        ask("PUT", f"/connectors/{name}/config", {**config, "tasks.max": "many"})
    assert look(ask, name).config == config


def a_paused_one_keeps_its_tasks(ask: Ask, name: str, config: dict[str, str], until: Until) -> None:
    ask("PUT", f"/connectors/{name}/pause", None)
    until(lambda: set(look(ask, name).tasks.values()) == {"PAUSED"}, "its task is PAUSED")
    assert not look(ask, name).stopped and not look(ask, name).runs


def a_restart_of_what_failed_leaves_one_that_runs_alone(
    ask: Ask, name: str, config: dict[str, str], until: Until
) -> None:
    ask("POST", f"/connectors/{name}/restart?includeTasks=true&onlyFailed=true", None)
    until(lambda: look(ask, name).runs, "it runs")


def offsets_are_not_changed_while_it_runs(ask: Ask, name: str, config: dict[str, str], until: Until) -> None:
    at = {"partition": {"kafka_topic": config["topics"], "kafka_partition": 0}, "offset": {"kafka_offset": 0}}
    with pytest.raises(Refused):
        ask("PATCH", f"/connectors/{name}/offsets", {"offsets": [at]})
    stopped(ask, name, until)
    until(lambda: _altered(ask, name, at), "its offsets are changed")


def _altered(ask: Ask, name: str, at: dict[str, Any]) -> bool:
    return "successfully" in ask("PATCH", f"/connectors/{name}/offsets", {"offsets": [at]})["message"]


def a_mirror_is_a_source_whose_offsets_are_read_and_set(
    ask: Ask, name: str, config: dict[str, str], until: Until
) -> None:
    """Of a running mirror of one topic, of which it has copied something."""
    topic, alias = config["topics"], config["source.cluster.alias"]
    seen = look(ask, name)
    assert seen.role == "producer" and seen.runs and kind_of(seen.config) == "source"
    assert {name} <= {n for n, one in ask("GET", "/connectors?expand=info", None).items() if one["info"]["config"]}

    def own(of: str) -> dict[int, int]:
        return positions(ask("GET", f"/connectors/{name}/offsets", None), alias, of)

    def offsets_set(of: str, offsets: dict[int, int]) -> bool:
        said = ask("PATCH", f"/connectors/{name}/offsets", {"offsets": change(alias, of, offsets)})
        return "successfully" in said["message"]

    until(lambda: own(topic), "it has copied something")
    with pytest.raises(Refused):
        offsets_set(topic, {0: 1})
    stopped(ask, name, until)
    before = own(topic)
    until(lambda: offsets_set("another", {0: 3, 1: 5}), "offsets of a topic that it does not name are set")
    assert own("another") == {0: 3, 1: 5} and own(topic) == before
    until(lambda: offsets_set("another", {0: 0, 1: 4, 7: 0}), "they are changed, and forgotten")
    assert own("another") == {1: 4} and own(topic) == before
    until(lambda: offsets_set("another", {1: 0}), "as before")


CONTRACT: list[Case] = [
    it_says_what_it_is,
    nobody_is_told_of_what_is_not_there,
    a_stopped_one_keeps_its_settings_and_takes_new_ones,
    settings_that_it_would_not_take_are_told_without_taking_them,
    a_paused_one_keeps_its_tasks,
    a_restart_of_what_failed_leaves_one_that_runs_alone,
    offsets_are_not_changed_while_it_runs,
]
