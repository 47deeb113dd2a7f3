"""Reading specs: every problem at once, with its place; never a guess."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from topicshift.core.errors import NotFound, SpecError
from topicshift.core.kafka.rules import collides, next_target_name, topic_name_problem
from topicshift.core.spec.io import InvalidSpec, load_spec, parse_spec, spec_from_params
from topicshift.core.spec.model import Sizing, Spec

GOOD = {
    "source": "payments",
    "partitions": 30,
    "producers": [{"name": "checkout"}],
    "consumers": [{"name": "ledger", "group": "ledger"}],
}
ONE = {"name": "ledger", "group": "ledger"}


def problems(text: str) -> dict[str, tuple[int | None, str]]:
    with pytest.raises(InvalidSpec) as caught:
        parse_spec(text, "x.yaml")
    assert isinstance(caught.value, SpecError) and caught.value.exit_code == 2
    assert str(caught.value).startswith("x.yaml: ")
    return {p.path: (p.line, str(p)) for p in caught.value.problems}


def good(**changes: object) -> str:
    return yaml.safe_dump({k: v for k, v in (GOOD | changes).items() if v is not None})


def test_the_smallest_spec_has_safe_defaults() -> None:
    spec = parse_spec(good())
    assert spec.target is None and spec.cutover == "drain_first" and spec.freeze_budget == timedelta(seconds=120)
    assert {spec.approvals.plan, spec.approvals.freeze, spec.approvals.retire} == {"required"}
    assert spec.history is None and spec.ignore_groups == []


def test_every_problem_at_once_with_its_line() -> None:
    found = problems(
        """apiVersion: topicshift/v1
sorce: payments
source: a/b
partitions: "30"
partitions: 31
freeze_budget: 1:30
cutover: drain-first
window: {cron: "0 2 * *", timezone: Europe/Berln}
approvals: {plan: yes}
producers:
  - {name: a}
  - {name: a, knd: route, principal: checkout}
consumers: []
ignore_groups: [{group: x, reason: hello}, {group: x, reason: hello}]
"""
    )
    assert {path: line for path, (line, _) in found.items()} == {
        "sorce": 2,
        "source": 3,
        "partitions": 5,
        "freeze_budget": 6,
        "cutover": 7,
        "window.cron": 8,
        "window.timezone": 8,
        "approvals.plan": 9,
        "producers[1].knd": 12,
        "producers[1].principal": 12,
        "consumers": 13,
        "ignore_groups[1].group": 14,
    }
    assert "Did you mean `source`?" in found["sorce"][1]
    assert "Did you mean `drain_first`?" in found["cutover"][1]
    assert "Did you mean `Europe/Berlin`?" in found["window.timezone"][1]
    assert "Did you mean `kind`?" in found["producers[1].knd"][1]
    assert "written twice (first in line 4)" in found["partitions"][1]
    assert "User:checkout" in found["producers[1].principal"][1]


@pytest.mark.parametrize(
    ("changes", "path", "says"),
    [
        ({"source": None}, "source", "missing"),
        ({"source": ""}, "source", "empty"),
        ({"source": ".."}, "source", "folder"),
        ({"source": "x" * 250}, "source", "250 characters"),
        ({"target": "pay ments"}, "target", "' '"),
        ({"target": "payments"}, "target", "altered in place"),
        ({"apiVersion": "topicshift/v2"}, "apiVersion", "topicshift/v1"),
        ({"partitions": 0}, "partitions", "at least 1"),
        ({"partitions": -5}, "partitions", "at least 1"),
        ({"partitions": 1e9}, "partitions", "whole number"),
        ({"partitions": True}, "partitions", "not a whole number"),
        ({"partitions": 30.5}, "partitions", "not a whole number"),
        ({"partitions": "30"}, "partitions", "Take the quotes off"),
        ({"partitions": {"throughput": 5}}, "partitions.per_consumer", "missing"),
        ({"partitions": {"throughput": 5, "per_consumer": 0}}, "partitions.per_consumer", "above 0"),
        ({"partitions": {"throughput": 5, "per_consumr": 1}}, "partitions.per_consumr", "`per_consumer`"),
        ({"partitions": {"throughput": 1e12, "per_consumer": 1}}, "partitions", "more than 100,000 partitions"),
        ({"partitions": {"throughput": math.inf, "per_consumer": 1}}, "partitions.throughput", "not a number"),
        ({"partitions": {"throughput": 5, "per_consumer": 1e-320}}, "partitions", "more than 100,000 partitions"),
        ({"partitions": {"throughput": 5, "per_consumer": 1, "multiple_of": 10**9}}, "partitions", "a multiple of"),
        ({"approvals": {"cutover": "required"}}, "approvals.cutover", "Write `freeze` (a person says go before"),
        ({"approvals": {"cutover": "auto"}}, "approvals.cutover", "`certificate` (a person accepts"),
        ({"freeze_budget": "soon"}, "freeze_budget", "not a duration"),
        ({"freeze_budget": "1s"}, "freeze_budget", "too short"),
        ({"replication_factor": 0}, "replication_factor", "at least 1"),
        ({"history": "carry"}, "history", "none"),
        ({"producers": []}, "producers", "at least one"),
        ({"producers": {"name": "a"}}, "producers", "not a list"),
        ({"producers": [{"name": ""}]}, "producers[0].name", "names nothing"),
        ({"producers": [{"name": "a", "kind": "rout"}]}, "producers[0].kind", "Did you mean `route`?"),
        ({"consumers": [{"name": "a"}]}, "consumers[0].group", "missing"),
        (
            {"consumers": [{"name": "a", "group": "g"}, {"name": "b", "group": "g"}]},
            "consumers[1].group",
            "named twice",
        ),
        (
            {"ignore_groups": [{"group": "ledger", "reason": "why not"}]},
            "ignore_groups[0].group",
            "declared and ignored",
        ),
        ({"consumers": [{**ONE, "after": ["ledgr"]}]}, "consumers[0].after", "Did you mean `ledger`"),
        ({"consumers": [{**ONE, "after": ["ledger"]}]}, "consumers[0].after", "after itself"),
        (
            {"consumers": [{**ONE, "after": ["b"]}, {"name": "b", "group": "b", "after": ["ledger"]}]},
            "consumers[1].after",
            "by way of b, ledger",
        ),
        ({"coupled": [{"reason": "both"}]}, "coupled[0]", "names a topic or a group"),
        ({"coupled": [{"topic": "a", "group": "ledger", "reason": "both"}]}, "coupled[0]", "one of them alone"),
        ({"coupled": [{"group": "ledgr", "reason": "joins none"}]}, "coupled[0].group", "Did you mean `ledger`"),
        ({"ignore_groups": [{"group": "x", "reason": ""}]}, "ignore_groups[0].reason", "too short"),
        (
            {"lost_records_accepted": [{"group": "ledgr", "reason": "ok then"}]},
            "lost_records_accepted[0].group",
            "`ledger`",
        ),
        ({"window": {"cron": "0 0 31 2 *"}}, "window.cron", "no such day"),
        ({"window": {"cron": "0 99 * * *"}}, "window.cron", "99"),
        ({"window": {"cron": "@daily"}}, "window.cron", "not five"),
        ({"window": {"cron": "0 2 * * *", "timezone": ""}}, "window.timezone", "time zone"),
        ({"window": {"cron": "0 2 * * *", "duration": "0s"}}, "window.duration", "no time"),
        ({"window": {"cron": "0 2 * * *", "duration": "1m"}}, "window.duration", "no longer than the freeze budget"),
        ({"ordering": {"sequence_header": "  "}}, "ordering.sequence_header", "blank"),
        ({"kafka_conn_id": ""}, "kafka_conn_id", "names nothing"),
    ],
)
def test_bad_values(changes: dict, path: str, says: str) -> None:
    found = problems(good(**changes))
    assert path in found, found
    assert says in found[path][1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment\n",
        "- a\n- b\n",
        "just words",
        "a: [",
        "a: &x {b: *x}",
        "<<: {a: 1}",
        "\t- x",
        "a: !!python/name:os.system x",
    ],
)
def test_what_is_no_spec_at_all(text: str) -> None:
    assert problems(text)


def test_text_stays_text() -> None:
    """`on`, `no` and dates are words in YAML 1.2; a group may be called any of them."""
    spec = parse_spec(
        "source: payments\npartitions: 30\nproducers: [{name: on}]\nconsumers: [{name: no, group: 2026-01-01}]\n"
    )
    assert (spec.producers[0].name, spec.consumers[0].name, spec.consumers[0].group) == ("on", "no", "2026-01-01")


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(good())
    assert load_spec(file).source == "payments"
    with pytest.raises(NotFound, match="no such file"):
        load_spec(tmp_path / "b.yaml")
    with pytest.raises(NotFound, match="folder"):
        load_spec(tmp_path)
    file.write_bytes(b"source: \xff")
    with pytest.raises(InvalidSpec, match="UTF-8"):
        load_spec(file)


def test_the_shipped_examples_are_right() -> None:
    files = sorted(Path("include/migrations").glob("*.yaml"))
    assert files
    for file in files:
        load_spec(file)


def test_params_there_and_back() -> None:
    spec = spec_from_params(
        GOOD
        | {
            "partitions": {"throughput": 100000, "per_consumer": 5000.5},
            "window": {"cron": "0 2 * * SUN", "duration": "90m"},
            "ignore_groups": [{"group": "x", "reason": "because"}],
        }
    )
    assert isinstance(spec.partitions, Sizing)
    plain = spec.model_dump(mode="json")
    assert spec_from_params(plain) == spec
    assert json.loads(json.dumps(plain)) == plain


def test_names_that_collide_and_names_that_follow() -> None:
    assert collides("a.b", {"a_b", "a.b", "ab", "a-b"}) == ["a_b"]
    assert next_target_name("payments-v9", {"payments-v10"}) == "payments-v11"
    assert next_target_name("x" * 249, set()) == "x" * 246 + "-v2"
    assert topic_name_problem("a.b_c-D9") is None


_VALUES = st.one_of(
    st.none(),
    st.integers(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.sampled_from(["name", "cron", "plan"]), st.text(max_size=4), max_size=2),
)


@given(st.dictionaries(st.sampled_from([*Spec.model_fields, "srce"]), _VALUES, max_size=6))
def test_nothing_crashes_the_reader(data: dict) -> None:
    try:
        spec_from_params(GOOD | data)
    except InvalidSpec as err:
        assert err.problems


_NAMES = st.text(alphabet="ab.-_v23", min_size=1, max_size=12)


@given(_NAMES.filter(lambda n: topic_name_problem(n) is None), st.sets(_NAMES, max_size=5))
def test_the_next_name_is_free_and_legal(source: str, taken: set[str]) -> None:
    name = next_target_name(source, taken)
    assert topic_name_problem(name) is None
    assert name not in taken and name != source and not collides(name, taken | {source})


@pytest.mark.parametrize(
    ("location", "refused"),
    [
        ("http://me:geheim@worker:8083/connectors/sink", True),
        ("https://me@worker:8083/connectors/sink", True),
        ("s3://key:geheim@bucket/checkpoints", True),
        ("http://worker:8083/connectors/sink", False),
        ("abfss://container@account.dfs.core.windows.net/checkpoints", False),
        ("checkpoints/enrich", False),
    ],
)
def test_the_location_of_a_reader_holds_no_credentials(location: str, refused: bool) -> None:
    values = {**GOOD, "readers": [{"name": "r", "kind": "connect", "location": location}]}
    if not refused:
        assert spec_from_params(values).readers[0].location == location
        return
    with pytest.raises(InvalidSpec, match=r"readers\[0\]\.location: the location holds credentials") as told:
        spec_from_params(values)
    assert "geheim" not in str(told.value)


def test_a_freeze_budget_is_no_longer_than_producers_may_stand_still() -> None:
    with pytest.raises(InvalidSpec, match=r"freeze_budget: a freeze budget of 100d is too long"):
        spec_from_params({**GOOD, "freeze_budget": "100d"})
    assert spec_from_params({**GOOD, "freeze_budget": "1d"})


@pytest.mark.parametrize("value", ["checkout", ["checkout"]])
def test_a_list_of_blocks_that_is_none_is_shown_as_it_should_be(value: object) -> None:
    with pytest.raises(InvalidSpec, match=r'for instance `producers: \[{"name": "checkout", "kind": "route"}\]`'):
        spec_from_params({**GOOD, "producers": value})


def test_the_examples_of_applications_of_several_topics_are_specs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/coupling.md").read_text()
    path, found = tmp_path / "spec.yaml", []
    for example in page.split("```yaml\n")[1:]:
        path.write_text(example.partition("```")[0])
        found.append(load_spec(path))
    coupled, two_roles = found
    assert [c.topic or c.group for c in coupled.coupled] == ["fees", "ledger"]
    assert two_roles.producers[0].name == two_roles.consumers[0].name
