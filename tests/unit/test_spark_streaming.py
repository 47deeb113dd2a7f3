"""The controller of kind ``spark_streaming`` over a query in memory with a real checkpoint folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.unit.spark_contract import CONTRACT, Case

from topicshift.adapters.controllers.hooks import Answer
from topicshift.adapters.controllers.spark_streaming import SparkStreamingController
from topicshift.adapters.readers import refused
from topicshift.adapters.spark_checkpoint import look_at_checkpoint
from topicshift.core.drain.evidence import spark_batch_topics, spark_initial_offsets
from topicshift.core.errors import SpecError, Transient
from topicshift.core.kafka.cluster import GroupMember
from topicshift.core.spec.io import spec_from_params
from topicshift.core.spec.kinds import SparkSettings
from topicshift.ports import ControlContext, Participant, ParticipantState
from topicshift.testing.fake_spark import FakeQuery
from topicshift.testing.fakes import FakeCluster

SOURCE, TARGET, GROUP = "payments", "payments-v2", "stats"


class Place:
    """A cluster, a query that runs on the source, and the controller."""

    topic, other = SOURCE, TARGET

    def __init__(self, home: Path) -> None:
        self.home = home
        self.cluster = FakeCluster()
        for topic in (SOURCE, TARGET):
            self.cluster.create_topic(topic, 2, 1, {})
        self.query = FakeQuery(self.ends, SOURCE, self.folder("old"))
        self.query("", "start", {}, 1)
        self.denied: dict[str, str] = {}
        self.controller = SparkStreamingController(self.cluster, None, self.denied.get)
        self.controller._call_hook = self.query
        self.said: list[dict[str, Any]] = []
        self.ctx = ControlContext("m", SOURCE, TARGET, 1, say=lambda name, data: self.said.append({**data, "of": name}))
        folders = {SOURCE: self.folder("old"), TARGET: self.folder("new")}
        settings = {"hook": "stats", "checkpoints": folders}
        self.who = Participant("stats", "consumer", "spark_streaming", GROUP, settings=settings)

    def ends(self, topic: str) -> dict[int, int]:
        return {p: o.end or 0 for p, o in self.cluster.offsets(topic).items()}

    def folder(self, name: str) -> str:
        return str(self.home / name)

    def call(self, moment: str, **told: str) -> Answer:
        return self.query("", moment, {f"TOPICSHIFT_{k.upper()}": v for k, v in told.items()}, 1.0)

    def produce(self, topic: str, partition: int, records: int) -> None:
        self.cluster.produce(topic, partition, records)

    def given(self) -> list[tuple[str, int, int]]:
        return [(t, p, n) for (t, p), ranges in self.query.read.items() for a, b in ranges for n in range(a, b)]

    def able(self, who: Participant | None = None) -> str:
        return "\n".join(self.controller.can_i(self.ctx, [who or self.who]))

    def state(self) -> ParticipantState:
        (found,) = self.controller.observe(self.ctx, [self.who])
        return found

    def seed(self, offsets: dict[int, int] | None = None) -> None:
        self.cluster.commit(GROUP, TARGET, offsets or {0: 0, 1: 0})

    def to_target(self) -> None:
        self.controller.stop(self.ctx, [self.who])
        self.seed()
        self.controller.point(self.ctx, [self.who], TARGET)
        self.controller.start(self.ctx, [self.who])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize("case", CONTRACT, ids=lambda c: c.__name__)
def test_the_query_in_memory_keeps_the_contract(case: Case, place: Place) -> None:
    def until(holds: Any, what: str) -> None:
        assert any(holds() for _ in range(5)), what

    case(place, until)


# ------------------------------------------------------------------------------------------------ checkpoints


def test_where_a_source_began_is_read_and_nothing_else_is() -> None:
    assert spark_initial_offsets('\0v1\n{"payments":{"1":7,"0":0}}') == {"payments": {0: 0, 1: 7}}
    for text in ("", "v1\n{}", 'v2\n{"payments":{"0":1}}', "v1\nnot json", '\0v1\n{"payments":{"0":"x"}}'):
        with pytest.raises(ValueError):
            spark_initial_offsets(text)


def test_a_log_of_a_format_that_is_not_known_is_unknown_and_not_missing(place: Place) -> None:
    """Its certificate is unknown by this name; so is where it is on the target."""
    text = 'v3\n{}\n{"payments":{"0":1}}'
    with pytest.raises(ValueError, match="format v3"):
        spark_batch_topics(text)
    (place.home / "old/offsets/0").write_text(text)
    with pytest.raises(ValueError, match=r"old: it cannot be read: .*format v3"):
        look_at_checkpoint(place.folder("old"), SOURCE)
    place.query.work = lambda: None  # type: ignore[method-assign]
    assert "format v3, and this version of Topicshift reads v1 and v2" in place.able()
    place.query = FakeQuery(place.ends, TARGET, place.folder("new"), '{"payments-v2": {"0": 0, "1": 0}}')
    place.controller._call_hook = place.query
    place.call("start")
    place.seed()
    assert place.state().status == "running"
    place.query.work = lambda: None  # type: ignore[method-assign]
    (place.home / "new/offsets/0").write_text(text)
    seen = place.state()
    assert (seen.status, seen.topic) == ("unknown", TARGET) and "format v3" in seen.reason


@pytest.mark.parametrize("log", ["v1", "v2"])
def test_both_formats_are_read(place: Place, log: str) -> None:
    place.query.log = log
    place.produce(SOURCE, 1, 4)
    place.call("observe")
    found = look_at_checkpoint(place.folder("old"), SOURCE)
    assert (found.finished, found.offsets, found.topics) == (1, {0: 0, 1: 4}, {SOURCE})


def test_a_batch_that_is_begun_and_not_finished_does_not_count(place: Place) -> None:
    (place.home / "old/offsets/1").write_text('v1\n{}\n{"payments":{"0":9,"1":9}}')
    found = look_at_checkpoint(place.folder("old"), SOURCE)
    assert (found.finished, found.offsets) == (0, {0: 0, 1: 0})
    (place.home / "new/offsets").mkdir(parents=True)
    (place.home / "new/offsets/0").write_text("")
    assert look_at_checkpoint(place.folder("new"), TARGET).begun


# ------------------------------------------------------------------------------------------------------- can_i


def test_a_query_that_runs_as_it_is_declared_can_be_moved(place: Place) -> None:
    before = place.query.fields()
    assert place.able() == ""
    assert place.query.fields() == before and not place.said


def test_what_would_keep_it_from_being_moved_is_said_by_name(place: Place, tmp_path: Path) -> None:
    def with_folders(**folders: str) -> Participant:
        known = {SOURCE: place.folder("old"), TARGET: place.folder("new")}
        return replace(place.who, settings={"hook": "stats", "checkpoints": {**known, **folders}})

    assert place.able(replace(place.who, role="producer")).startswith("stats: a streaming query is moved as a consumer")
    assert "name no folder for payments-v2" in place.able(
        replace(place.who, settings={"hook": "stats", "checkpoints": {SOURCE: "a", "else": "b"}})
    )
    assert "holds no finished batch of payments" in place.able(with_folders(payments=str(tmp_path / "elsewhere")))
    place.query.failing["can_i"] = "no rights on the cluster"
    assert "its hook stats says no to can_i (exit code 1: no rights on the cluster)" in place.able()
    place.query.failing.clear()
    place.denied[place.folder("new")] = f"{place.folder('new')} may not be opened"
    assert "may not be opened" in place.able()
    place.denied.clear()
    place.cluster.join(GROUP, GroupMember("m", "m", "h"))
    assert "group stats has members" in place.able()
    place.cluster.leave(GROUP, "m")
    place.call("stop")
    assert "it is stopped; it has to run on payments" in place.able()


def test_a_folder_that_was_used_before_is_no_new_checkpoint(place: Place) -> None:
    (place.home / "new/offsets").mkdir(parents=True)
    (place.home / "new/offsets/0").write_text("")
    assert "has been used already, so the query would go on from there; name a new folder" in place.able()


def test_a_query_that_reads_other_topics_too_is_refused(place: Place) -> None:
    (place.home / "old/offsets/0").write_text('v1\n{}\n{"payments":{"0":0,"1":0}}\n{"orders":{"0":3}}')
    assert "the query reads orders as well" in place.able()


# ----------------------------------------------------------------------------------------------------- settings


def test_each_topic_has_a_folder_of_its_own() -> None:
    for folders in ({}, {SOURCE: "/a"}, {SOURCE: "/a", TARGET: "/a/"}, {SOURCE: "s3://u:p@b/x", TARGET: "/b"}):
        with pytest.raises(ValidationError):
            SparkSettings.model_validate({"hook": "stats", "checkpoints": folders})


def spec(**more: Any) -> Any:
    settings = {"hook": "stats", "checkpoints": {SOURCE: "/in/old", TARGET: "/in/new"}}
    stats = {"name": "stats", "group": "stats-g", "kind": "spark_streaming", "settings": settings}
    ledger = {"name": "ledger", "group": "ledger-g"}
    both = {"producers": [{"name": "checkout"}], "consumers": [stats, ledger]}
    return spec_from_params({"source": SOURCE, "target": TARGET, "partitions": 6, **both, **more})


def test_it_is_certified_by_its_checkpoint_on_either_topic() -> None:
    made = spec(readers=[{"name": "enrich", "kind": "spark_checkpoint", "location": "/in/other"}])
    assert [(r.name, r.location) for r in made.readers_of()] == [("enrich", "/in/other"), ("stats-g", "/in/old")]
    assert [r.name for r in made.readers_of("ledger")] == ["enrich"]
    assert [r.name for r in made.readers_of("stats")] == ["enrich", "stats-g"]
    back = made.model_copy(update={"source": TARGET, "target": SOURCE})
    assert [r.location for r in back.readers_of("stats")] == ["/in/other", "/in/new"]
    shadow = made.model_copy(update={"source": "topicshift-rehearsal-00000000.payments"})
    assert [r.name for r in shadow.readers_of()] == ["enrich"], "a rehearsal has groups alone"


def test_its_folders_are_opened_only_where_the_installation_allows() -> None:
    assert refused(spec().opened(), ["/in"]) == []
    lines = refused(spec().opened(), ["/in/old"])
    assert len(lines) == 1 and lines[0].startswith(
        "consumers[0].settings.checkpoints of stats: /in/new may not be opened"
    )


def test_it_is_not_declared_as_a_reader_besides() -> None:
    with pytest.raises(SpecError, match="both a reader and a consumer"):
        spec(readers=[{"name": "stats-g", "kind": "spark_checkpoint", "location": "/in/old"}])


# ---------------------------------------------------------------------------------------------------------- acts


def test_there_and_back_everything_is_as_before(place: Place) -> None:
    before = place.query.fields()
    place.to_target()
    assert (place.state().status, place.state().topic) == ("running", TARGET)
    said = place.said[1]
    assert said["starting_offsets"] == '{"payments-v2": {"0": 0, "1": 0}}' and said["checkpoint"] == place.folder("new")
    place.controller.stop(place.ctx, [place.who])
    place.controller.point(place.ctx, [place.who], SOURCE)
    place.controller.start(place.ctx, [place.who])
    assert place.query.fields() == before and place.query.starting_offsets == "", "it goes on from its checkpoint"


def test_one_that_does_not_stand_is_not_pointed(place: Place) -> None:
    place.query.slow = 2
    place.controller.stop(place.ctx, [place.who])
    place.seed()
    with pytest.raises(Transient, match=r"^stats: it is pointed to payments-v2 once it stands"):
        place.controller.point(place.ctx, [place.who], TARGET)
    assert place.query.topic == SOURCE


def test_without_all_offsets_it_is_not_pointed(place: Place) -> None:
    place.controller.stop(place.ctx, [place.who])
    for offsets in ({}, {0: 0}):
        place.cluster.commit(GROUP, TARGET, offsets)
        with pytest.raises(Transient, match="group stats keeps no offset on"):
            place.controller.point(place.ctx, [place.who], TARGET)
    assert place.query.topic == SOURCE


@pytest.mark.parametrize("moment", ["stop", "point", "start"])
def test_a_hook_that_fails_names_the_participant_and_is_called_again(place: Place, moment: str) -> None:
    acts: dict[str, Callable[[], object]] = {
        "stop": lambda: place.controller.stop(place.ctx, [place.who]),
        "point": lambda: place.controller.point(place.ctx, [place.who], TARGET),
        "start": lambda: place.controller.start(place.ctx, [place.who]),
    }
    place.seed()
    if moment != "stop":
        acts["stop"]()
    place.query.failing[moment] = "no such cluster"
    with pytest.raises(Transient, match=r"stats.*no such cluster"):
        acts[moment]()
    place.query.failing.clear()
    acts[moment]()


def test_nothing_is_sent_once_the_time_of_the_act_is_over(place: Place) -> None:
    def over() -> None:
        raise Transient("held up")

    place.controller.stop(place.ctx, [place.who])
    place.seed()
    with pytest.raises(Transient, match="held up"):
        place.controller.point(replace(place.ctx, still=over), [place.who], TARGET)
    assert place.query.topic == SOURCE


# ----------------------------------------------------------------------------------------------------- observing


def test_it_has_arrived_once_its_new_checkpoint_shows_it(place: Place) -> None:
    place.controller.stop(place.ctx, [place.who])
    assert place.state().status == "stopped"
    place.seed()
    place.controller.point(place.ctx, [place.who], TARGET)
    place.query.work = lambda: None  # type: ignore[method-assign]
    place.controller.start(place.ctx, [place.who])
    seen = place.state()
    assert (seen.status, seen.topic) == ("unknown", TARGET) and "holds no finished batch yet" in seen.reason
    del place.query.work
    assert place.state().status == "running"


def test_one_that_began_at_the_latest_left_records_out(place: Place) -> None:
    """Its hook did not hand the starting offsets on."""
    place.produce(TARGET, 1, 7)
    place.controller.stop(place.ctx, [place.who])
    place.seed()
    place.call("point", topic=TARGET, checkpoint=place.folder("new"), starting_offsets="")
    place.call("start")
    seen = place.state()
    assert seen.status == "unknown"
    assert (
        "it began on payments-v2[1] at 7 and is at 7, and 0 was the next to read: records are left out" in seen.reason
    )


def test_on_the_way_back_its_old_checkpoint_covers_where_it_goes_on(place: Place) -> None:
    """Source and target are exchanged: the old checkpoint began long ago, and reaches exactly to the certificate."""
    place.produce(SOURCE, 0, 5)
    place.to_target()
    back = replace(place.ctx, source=TARGET, target=SOURCE)
    place.controller.stop(back, [place.who])
    place.cluster.commit(GROUP, SOURCE, {0: 5, 1: 0})
    place.controller.point(back, [place.who], SOURCE)
    place.controller.start(back, [place.who])
    (seen,) = place.controller.observe(back, [place.who])
    assert (seen.status, seen.topic) == ("running", SOURCE)
    place.cluster.commit(GROUP, SOURCE, {0: 6, 1: 0})
    (seen,) = place.controller.observe(back, [place.who])
    assert seen.status == "unknown" and "records are left out" in seen.reason


def test_what_cannot_be_read_is_unknown(place: Place) -> None:
    place.to_target()
    (place.home / "new/sources/0/0").unlink()
    assert "cannot be read from" in place.state().reason
    place.query.failing["observe"] = "gone"
    assert place.state().status == "unknown"
    place.denied[place.folder("new")] = "may not be opened"
    place.query.failing.clear()
    assert place.state().reason == "may not be opened"


def test_json_that_a_hook_gets_is_what_spark_takes(place: Place) -> None:
    place.to_target()
    assert json.loads(place.query.starting_offsets) == {TARGET: {"0": 0, "1": 0}}
