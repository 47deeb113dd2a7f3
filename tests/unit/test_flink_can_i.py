"""What the controller of kind ``flink`` says before anything is touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.flink_place import GROUP, SOURCE, Place, intake, scorer, told, writes

from topicshift.adapters.controllers.flink import FlinkController
from topicshift.core.errors import AccessDenied, Transient, Unreadable
from topicshift.core.kafka.cluster import GroupMember
from topicshift.ports import Participant
from topicshift.testing.fakes import FakeCluster


def consumer(**changes: Any) -> Participant:
    return Participant("scorer", "consumer", "flink", GROUP, None, told("scorer", **changes), "none")


@pytest.fixture
def place() -> Place:
    return Place()


def test_jobs_that_run_as_they_are_declared_can_be_moved(place: Place) -> None:
    heard = place.effects()
    assert place.controller.can_i(place.ctx, [scorer, intake]) == []
    assert not place.trail and not heard


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        (lambda p: setattr(p.manager, "version", "1.16.3"), "is of Flink 1.16, which cannot be moved (1.17 and later"),
        (lambda p: setattr(p.manager, "version", "?"), "does not say its version"),
        (lambda p: setattr(p.manager, "submits", False), "takes no jars (web.submit.enable)"),
        (lambda p: p.manager.config.clear(), "has no folder for savepoints"),
        (lambda p: p.manager.config.update({"execution.target": "kubernetes-application"}), "an operator (FlinkDep"),
        (lambda p: p.manager.config.update({"$internal.application.main": "Job"}), "an operator (FlinkDeployment)"),
        (lambda p: p.manager.jars.clear(), "has no jar 'jobs.jar': upload it"),
        (lambda p: p.manager.jars.clear(), "A job from SQL has none"),
        (lambda p: next(iter(p.manager.jars.values())).update(entry=[]), "names no class to run; see `entry_class`"),
        (lambda p: setattr(p.first, "state", "FINISHED"), "0 jobs named 'scorer' run"),
        (lambda p: p.manager.submit("f" * 32, p.first.args, 1), "2 jobs named 'scorer' run"),
        (lambda p: setattr(p.first, "state", "RESTARTING"), "is RESTARTING; not running: Source: in"),
        (lambda p: setattr(p.first, "uid", "other"), "none of its vertices begins with an operator of the uid"),
        (lambda p: setattr(p.first, "completed", 0), "no checkpoint of it is complete yet"),
        (lambda p: setattr(p.first, "failing", True), "its latest checkpoint failed"),
        (lambda p: p.cluster.join(GROUP, GroupMember("m", "m", "h")), "has 1 member(s), and a Flink job joins none"),
    ],
)
def test_what_would_keep_a_job_from_being_moved_is_said_by_name(
    place: Place, change: Callable[[Place], object], seen: str
) -> None:
    change(place)
    assert place.able().startswith("scorer: ") and seen in place.able()


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        ({"starts_at": "latest"}, "it starts at latest where it has no state, so it would lose"),
        ({"starts_at": "earliest"}, "it would read all of the source again"),
        ({"starts_at": None}, "where it starts without state is not said"),
        ({"source_uid": None}, "which uid its source has is not said"),
        ({"target_uid": "scorer-in"}, "has the same uid on both topics"),
        ({"transactional_id_prefix": "sc"}, "where to is not said; see `sinks`"),
        (
            {"args": ["scorer", "{uid}", "{topic}", "--prefix=sc-{topic}"], "transactional_id_prefix": "sc-"},
            "the prefix 'sc-' of its transactional ids changes with the topic",
        ),
    ],
)
def test_settings_with_which_something_would_be_lost_are_refused(
    place: Place, changes: dict[str, Any], seen: str
) -> None:
    assert seen in place.able(consumer(**changes))


def test_a_partition_that_was_empty_at_the_savepoint_needs_a_start_that_loses_nothing(place: Place) -> None:
    """A job started at latest loses what arrives in it before it starts again."""
    place.cluster = FakeCluster()
    place.cluster.create_topic(SOURCE, 3, 1, {})
    place.cluster.commit(GROUP, SOURCE, {0: 4, 2: 1})
    place.controller = place.new()
    assert place.able(consumer(starts_at="committed_or_earliest")) == ""
    said = place.able(consumer(starts_at="committed"))
    assert "has committed nothing in payments[1]" in said and "at latest lose" in said


def test_a_job_without_checkpoints_is_not_moved(place: Place) -> None:
    real = place.manager

    def ask(method: str, path: str, body: Any = None) -> Any:
        if path.endswith("/checkpoints/config"):
            return real(method, f"/jobs/{'0' * 32}")
        return real(method, path, body)

    place.controller = FlinkController(place.cluster, lambda _: ask, place.clock)
    assert place.able() == ("scorer: it takes no checkpoints, so neither its state nor its position would come along")


def test_a_job_that_writes_in_transactions_has_to_take_its_checkpoints_exactly_once(place: Place) -> None:
    real = place.manager

    def ask(method: str, path: str, body: Any = None) -> Any:
        if path.endswith("/checkpoints/config"):
            return {"mode": "at_least_once"}
        return real(method, path, body)

    place.controller = FlinkController(place.cluster, lambda _: ask, place.clock)
    assert place.able() == ""
    assert "its checkpoints are at_least_once" in place.able(consumer(transactional_id_prefix="sc", sinks=["x"]))


def test_one_job_in_two_roles_is_moved_as_one_or_not_at_all(place: Place) -> None:
    both = Participant("again", "producer", "flink", settings=writes("scorer"))
    found = place.controller.can_i(place.ctx, [scorer, both])
    assert [line.split(":")[0] for line in found] == ["scorer", "again"]
    assert all("declared more than once" in line for line in found)


def test_a_job_manager_that_does_not_answer_is_asked_again(place: Place) -> None:
    left = [2]
    real = place.manager

    def ask(method: str, path: str, body: Any = None) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise Transient("GET /config at http://m: no answer")
        return real(method, path, body)

    place.controller = FlinkController(place.cluster, lambda _: ask, place.clock)
    assert place.able() == ""
    left[0] = 99
    with pytest.raises(Unreadable, match="scorer: GET /config at http://m: no answer"):
        place.able()


def test_a_right_that_is_missing_is_named(place: Place) -> None:
    def ask(*_: Any) -> Any:
        raise AccessDenied("GET /config at http://m is not allowed (HTTP 401).")

    place.controller = FlinkController(place.cluster, lambda _: ask, place.clock)
    assert place.able() == "scorer: GET /config at http://m is not allowed (HTTP 401)."
