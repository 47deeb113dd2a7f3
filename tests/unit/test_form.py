"""The trigger form follows the model, has safe defaults, and takes one way of filling it in, not two."""

from __future__ import annotations

import itertools
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from topicshift.core.errors import NotFound
from topicshift.core.spec.form import form_fields, spec_fields, spec_files, spec_from_form
from topicshift.core.spec.io import InvalidSpec, load_spec
from topicshift.core.spec.model import Sizing, Spec

FOLDER = Path("include/migrations")
FILLED = {
    "source": "payments",
    "partitions": 30,
    "producers": [{"name": "checkout"}],
    "consumers": [{"name": "ledger", "group": "ledger"}],
}


def submitted(**changes: Any) -> dict[str, Any]:
    """What Airflow hands over: every field, at its default unless changed."""
    return {name: f["default"] for name, f in form_fields(FOLDER).items()} | changes


def test_every_field_of_the_model_is_in_the_form() -> None:
    paths = {f.path[0] for f in spec_fields()}
    assert paths == set(Spec.model_fields) - {"apiVersion", "window"}
    for name, field in form_fields(FOLDER).items():
        schema = field["schema"]
        assert schema["title"] and schema["description_md"], name
        assert "`" not in schema["description_md"], "Airflow's box around code covers the line above it"
        assert "$ref" not in str(schema) and "anyOf" not in str(schema), name
        assert "array" not in schema["type"] or schema["type"][0] == "string", "Airflow would show its JSON editor"


def test_what_every_migration_needs_stands_first_in_the_one_section_that_is_open() -> None:
    fields = form_fields(FOLDER)
    first = [n for n, f in fields.items() if "section" not in f["schema"]]
    assert (
        list(fields)[: len(first)] == first == ["spec_file", "source", "target", "partitions", "producers", "consumers"]
    )
    assert {n for n, f in Spec.model_fields.items() if f.is_required()} <= set(first)
    sections = [f["schema"]["section"] for f in fields.values() if "section" in f["schema"]]
    assert len(list(itertools.groupby(sections))) == len(set(sections)), "a section is torn apart"


def test_airflow_takes_every_default_and_what_a_person_fills_in() -> None:
    from airflow.sdk.definitions.param import Param, ParamsDict

    params = ParamsDict({n: Param(f["default"], **f["schema"]) for n, f in form_fields(FOLDER).items()})
    params.validate()
    for name, value in FILLED.items():
        params[name] = value
    assert spec_from_form(params.validate(), FOLDER).partitions == 30


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("source", "a/b", "no topic name"),
        ("freeze_budget", "soon", "freeze_budget"),
        ("producers", [{"nam": "x"}], "Did you mean `name`"),
        ("consumers", [], "consumers"),
        ("consumers", "- {name: a, grup: b}", "Did you mean `group`"),
        ("consumers", "ledger: ledger-g", "this is no list.*one name a line"),
        ("producers", '[{"name": "x"}]]', "this is not YAML"),
    ],
)
def test_what_a_person_types_wrong_is_refused_in_words_and_not_by_the_page(name: str, value: Any, said: str) -> None:
    """Airflow's page says no more than "Bad Request" where a parameter's schema refuses."""
    from airflow.sdk import Param

    field = form_fields(FOLDER)[name]
    assert Param(field["default"], **field["schema"]).resolve(value) == value
    with pytest.raises(InvalidSpec, match=said):
        spec_from_form(submitted(**FILLED | {name: value}), FOLDER)


@pytest.mark.parametrize(
    ("name", "wrong", "said"),
    [
        ("partitions", (0, -3, 100_001, 10**12), "1 to 100,000"),
        ("replication_factor", (0, 40_000), "1 to 32,767"),
        ("broker_cores", (0,), "1 or more"),
        ("sizing_throughput", (-1,), "0 or more"),
        ("sizing_headroom", (-0.5, 9), "0 to 5"),
        ("sizing_multiple_of", (0,), "1 or more"),
    ],
)
def test_a_number_out_of_its_bounds_is_refused_by_the_form_and_by_the_spec(
    name: str, wrong: tuple[float, ...], said: str
) -> None:
    """Airflow's page puts the nearest number into the field; whoever goes past the page is refused all the same."""
    from airflow.sdk import Param
    from airflow.sdk.exceptions import ParamValidationError

    field = form_fields(FOLDER)[name]
    assert f"A number: {said}. Airflow's form puts the nearest one in the place" in field["schema"]["description_md"]
    rates = {"partitions": None, "sizing_throughput": 100.0, "sizing_per_consumer": 10.0}
    base = FILLED | (rates if name.startswith("sizing") else {})
    for value in wrong:
        with pytest.raises(ParamValidationError):
            Param(field["default"], **field["schema"]).resolve(value)
        with pytest.raises(InvalidSpec, match=r"is out of range\. .* Write a number (at least|at most|above)"):
            spec_from_form(submitted(**base | {name: value}), FOLDER)


@pytest.mark.parametrize(
    ("producers", "consumers"),
    [
        ("checkout", "ledger"),
        ("  checkout\n\n", "ledger\n"),
        ("- name: checkout", "- {name: ledger, group: ledger}"),
        ('[{"name": "checkout"}]', '[{"name": "ledger", "group": "ledger"}]'),
        ([{"name": "checkout"}], [{"name": "ledger", "group": "ledger"}]),
    ],
)
def test_a_list_may_be_written_in_any_way_that_is_clear(producers: Any, consumers: Any) -> None:
    spec = spec_from_form(submitted(**FILLED | {"producers": producers, "consumers": consumers}), FOLDER)
    assert [p.name for p in spec.producers] == ["checkout"]
    assert [(c.name, c.group) for c in spec.consumers] == [("ledger", "ledger")]
    several = spec_from_form(submitted(**FILLED | {"producers": "checkout\nbilling:eu"}), FOLDER)
    assert [p.name for p in several.producers] == ["checkout", "billing:eu"]


@pytest.mark.parametrize(("name", "value"), [("cutover", "later"), ("spec_file", "../secret.yaml")])
def test_a_choice_that_is_not_offered_is_refused_by_airflow(name: str, value: Any) -> None:
    from airflow.sdk import Param
    from airflow.sdk.exceptions import ParamValidationError

    field = form_fields(FOLDER)[name]
    with pytest.raises(ParamValidationError):
        Param(field["default"], **field["schema"]).resolve(value)


def test_fields_become_a_spec_with_safe_defaults() -> None:
    spec = spec_from_form(submitted(**FILLED, target="", approvals_freeze="auto", retire_after="1d"), FOLDER)
    assert (spec.source, spec.target, spec.partitions) == ("payments", None, 30)
    assert (
        spec.approvals.plan == "required" and spec.approvals.freeze == "auto" and spec.approvals.certificate == "auto"
    )
    assert spec.retire.after == timedelta(days=1) and spec.retire.scream_test == timedelta(hours=1)


def test_the_old_field_of_the_cut_over_is_refused_and_names_the_two_new_ones() -> None:
    with pytest.raises(InvalidSpec, match=r"approvals_freeze.*approvals_certificate"):
        spec_from_form(submitted(**FILLED, approvals_cutover="auto"), FOLDER)


def test_rates_become_a_sizing_block() -> None:
    rates = {"sizing_throughput": 100000, "sizing_per_consumer": 5000.0, "sizing_headroom": 1}
    spec = spec_from_form(submitted(**FILLED | {"partitions": None} | rates), FOLDER)
    assert isinstance(spec.partitions, Sizing)
    assert (spec.partitions.throughput, spec.partitions.headroom) == (100000, 1)
    with pytest.raises(InvalidSpec, match="decided twice"):
        spec_from_form(submitted(**FILLED | rates), FOLDER)


def test_a_file_is_the_whole_spec() -> None:
    assert spec_from_form(submitted(spec_file="payments.yaml"), FOLDER) == load_spec(FOLDER / "payments.yaml")
    assert spec_from_form({"spec_file": "payments.yaml"}, FOLDER) == load_spec(FOLDER / "payments.yaml")


def test_both_ways_at_once_are_refused_by_name() -> None:
    with pytest.raises(InvalidSpec, match=r"'payments.yaml' is chosen, and partitions, source are filled in"):
        spec_from_form(submitted(spec_file="payments.yaml", source="x", partitions=3), FOLDER)


def test_neither_way_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="Choose a spec file, or fill in"):
        spec_from_form(submitted(), FOLDER)


def test_a_file_outside_the_folder_is_not_read() -> None:
    for name in ("../payments.yaml", "/etc/passwd", "payment.yaml"):
        with pytest.raises(NotFound):
            spec_from_form({"spec_file": name}, FOLDER)


def test_a_rest_call_may_use_the_words_of_a_spec_and_is_told_of_misspelt_ones() -> None:
    spec = spec_from_form(submitted(**FILLED, approvals={"retire": "auto"}), FOLDER)
    assert spec.approvals.retire == "auto"
    with pytest.raises(InvalidSpec, match="Did you mean `target`"):
        spec_from_form(submitted(**FILLED, taget="x"), FOLDER)


def test_what_is_missing_is_said() -> None:
    with pytest.raises(InvalidSpec) as caught:
        spec_from_form(submitted(source="payments"), FOLDER)
    assert {p.path for p in caught.value.problems} == {"partitions", "producers", "consumers"}


def test_no_folder_no_files(tmp_path: Path) -> None:
    assert spec_files(tmp_path / "none") == []
    (tmp_path / "b.yaml").touch()
    (tmp_path / "a.yml").touch()
    (tmp_path / "README.md").touch()
    assert spec_files(tmp_path) == ["a.yml", "b.yaml"]
