"""Small words of the pages: counts, what an answer is for, bounds of the gate, the name in the navigation."""

from __future__ import annotations

from datetime import UTC, datetime

from topicshift.core.page.one import _about
from topicshift.core.page.waits import _gate
from topicshift_airflow.page.view import counted, marked, rendered
from topicshift_plugin import TopicshiftPlugin


def test_one_is_no_plural() -> None:
    assert [counted(n, "file") for n in (0, 1, 2, 1000)] == ["0 files", "1 file", "2 files", "1,000 files"]


def test_backticks_are_quotation_marks_on_the_page() -> None:
    assert marked("Run `topicshift init` or `doctor`; a ` alone stays") == (
        "Run “topicshift init” or “doctor”; a ` alone stays"
    )


def test_what_an_answer_is_for_says_nothing_of_what_is_not_given() -> None:
    about = {"attempt": 1, "deny": [], "window": None, "freeze_at_most_s": 10.0, "groups": ["a", "b"]}
    assert _about(about) == {"attempt": "1", "freeze at most s": "10.0", "groups": "a, b"}


def test_the_gate_says_which_bound_it_wants_and_what_a_rate_without_end_means() -> None:
    group = {"group": "g", "lag": 102.0, "seconds_left": None, "series": [(0.0, 100.0), (60.0, 102.0)]}
    (row,) = _gate({"at": datetime.now(UTC), "wanted_s": 30.0, "groups": [group], "waits": []})
    assert row.wanted == "drained in 30 s at most, 25% of the freeze budget"
    assert row.observed == "102 offsets behind, and its commits did not move between the last two looks"


def test_an_empty_list_counts_in_words() -> None:
    asked = {"text": "", "state": "", "cluster": "", "owner": "", "window": ""}
    choices = {"clusters": [], "owners": []}
    text = rendered("list.html.j2", root="", airflow="", asked=asked, migrations=[], of=1, as_of="", choices=choices)
    assert "No migration fits the filters." in text and "There is 1 migration that you may see." in text


def test_the_entry_in_the_navigation_fits() -> None:
    nav = next(view for view in TopicshiftPlugin.external_views if view["destination"] == "nav")
    assert len(nav["name"]) <= 10, "Airflow cuts what is longer"
