"""impact.html: one file, no network, the verdict first, every number of impact.json, nothing that breaks out."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from tests.unit.impact_sample import ERROR, WARNING, impact, unkeyed

from topicshift.core.errors import SpecError
from topicshift.core.sizing.choice import choose
from topicshift.core.sizing.sizing import SizingInput, recommend
from topicshift.reporting.impact import plotly_script, render


class _Page(HTMLParser):
    """Text, figures and references of a page; complains about elements that are not closed."""

    VOID = frozenset({"meta", "link", "br", "img", "input", "hr", "wbr"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.ids: list[str] = []
        self.figures: list[str] = []
        self.references: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == [], f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "action", "data"):
                self.references.append(str(value))
            if name == "id":
                self.ids.append(str(value))
            if name == "data-figure":
                self.figures.append(str(value))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text += " " + " ".join(data.split())


def figures(html: str) -> dict[str, Any]:
    found = re.findall(r'<script type="application/json" id="figure-([^"]+)">(.*?)</script>', html, re.S)
    return {name: json.loads(text) for name, text in found}


@pytest.fixture(scope="module")
def page() -> str:
    return render(impact().to_json())


def test_one_file_without_network(page: str) -> None:
    assert _Page(page).references == []
    assert "default-src 'none'" in page
    bare = re.sub(r'id="plotly">.*?</script>', "", page, flags=re.S)
    assert "http" not in bare.replace("http-equiv", "") and "@import" not in bare and "url(" not in bare
    assert len(page) < 2_500_000


def test_the_script_travels_compressed_and_unpacks_to_plotly() -> None:
    from plotly.offline import get_plotlyjs

    assert gzip.decompress(base64.b64decode(plotly_script())).decode() == get_plotlyjs()


def test_light_dark_and_a_phone(page: str) -> None:
    assert "prefers-color-scheme: dark" in page and "width=device-width" in page and "max-width: 30rem" in page


def test_the_verdict_and_the_recommendation_come_first(page: str) -> None:
    text = _Page(page).text
    first = [text.index(w) for w in ("Keyed: move it to a new topic", "take", "The topic today", "How it was measured")]
    assert first == sorted(first)
    choice = choose(impact())
    assert f"<b>{choice.partitions}</b>" in page and str(choice.runner_up) in text


def test_every_figure_has_its_data_and_its_numbers(page: str) -> None:
    drawn = figures(page)
    assert set(_Page(page).figures) == set(drawn) == {"curve", "slices", *(f"bars-{m}" for m in (12, 18, 24, 30, 60))}
    report = impact()
    for c in report.candidates:
        now, then = drawn[f"bars-{c.partitions}"]["data"][:2]
        assert len(now["x"]) == 6 and len(then["x"]) == c.partitions
        total = sum(c.partition_records)
        assert then["y"] == pytest.approx([100 * r / total for r in c.partition_records], abs=1e-3)
    curve = drawn["curve"]["data"][-1]
    assert dict(zip(curve["x"], curve["y"], strict=True)) == pytest.approx(
        {c.partitions: 100 * (c.max_partition_share or 0) for c in report.candidates}
    )
    assert "template" not in drawn["curve"]["layout"]


def test_hot_partitions_stand_out() -> None:
    drawn = figures(render(impact(hot_share=0.5)))
    assert "#000003" in drawn["bars-12"]["data"][1]["marker"]["color"]
    assert "#000003" not in figures(render(impact()))["bars-12"]["data"][1]["marker"]["color"]


def test_slices_of_one_minute_stay_apart() -> None:
    report = impact()
    slices = [s.model_copy(update={"start": f"2026-01-01T00:00:0{i}+00:00"}) for i, s in enumerate(report.slices)]
    strip = figures(render(report.model_copy(update={"slices": slices})))["slices"]
    assert strip["data"][0]["x"] == [0, 1, 2, 3, 4, 5]
    assert strip["layout"]["xaxis"]["ticktext"] == [
        "2026-01-01<br>00:00:00",
        "2026-01-01<br>00:00:02",
        "2026-01-01<br>00:00:04",
    ]


def test_findings_carry_code_reason_and_remedy() -> None:
    html = render(impact(findings=[WARNING, ERROR], mixture=True))
    text = _Page(html).text
    assert text.index("TS499") < text.index("TS498")
    for words in (ERROR.seen, ERROR.why, ERROR.do, "Move it only after 1 finding", "No single rule explains"):
        assert words in text
    assert "consistent over 6 partitions wrote 50.0 %" in text


def test_what_is_no_plain_rule_is_said_beside_the_rules() -> None:
    report = impact()

    def said(**part: Any) -> str:
        return _Page(render(report.model_copy(update={"partitioner": report.partitioner.model_copy(update=part)}))).text

    four = [report.partitioner.writers[0].model_copy(update={"partitions": 4})]
    assert "over 4 partitions, not over the topic's 6" in said(verdict="fixed_count", writers=four)
    assert "lies in partition 3, whatever the key" in said(verdict="constant", name=None, constant_partition=3)
    assert "empty key are spread" in said(empty_keys="spread")
    assert "empty key are spread" not in said()


def test_a_sample_says_so_and_shows_its_intervals() -> None:
    html = render(impact(sampled=True).to_json())
    text = _Page(html).text
    assert "sample of 5.0 %" in text and "95 % confidence" in text
    c = impact(sampled=True).candidates[0]
    assert f"({c.moved_keys_low:,} – {c.moved_keys_high:,})" in text
    assert "95 % interval" in html and "arrayminus" in html
    assert "95 % interval" not in render(impact())


_SHOWN = {
    "": (
        *("records", "keyed_records", "null_keys", "empty_keys", "tombstones", "distinct_keys"),
        "keys_in_several_partitions",
    ),
    "source": ("max_partition_share",),
    "limits": ("hottest_key_share", "useful_partitions"),
    "partitioner": ("fit", "unexplained_share"),
    "partitioner.rules.0": ("records_share",),
    "partitioner.writers.0": ("share",),
    "slices.0": ("records",),
    "candidates.1": (*("moved_keys", "moved_records", "max_partition_share", "imbalance", "gini", "same_index_share"),),
    "top_keys.0": ("records", "share", "bytes_share"),
    "groups.0": ("unread",),
    "groups.0.overtaken.0": ("records",),
}


_FIGURES = [(where, figure) for where, names in _SHOWN.items() for figure in names]


def _is_share(figure: str) -> bool:
    return "share" in figure or figure == "fit"


@pytest.fixture(scope="module")
def text_of_intervals() -> str:
    """A sample's page on which the n-th of the figures has an interval that no other one has."""
    plain = impact(sampled=True, mixture=True).to_json()
    for n, (where, figure) in enumerate(_FIGURES):
        node = plain
        for part in filter(None, where.split(".")):
            node = node[int(part)] if part.isdigit() else node[part]
        share = _is_share(figure)
        node |= {f"{figure}_low": (100 + n) / 1000 if share else 12 + n, f"{figure}_high": 0.987 if share else 98_765}
    return _Page(render(plain)).text


@pytest.mark.parametrize(("where", "figure"), _FIGURES)
def test_every_figure_of_a_sample_shows_its_interval(where: str, figure: str, text_of_intervals: str) -> None:
    n = _FIGURES.index((where, figure))
    assert (f"({10 + n / 10:.1f} % – 98.7 %)" if _is_share(figure) else f"({12 + n} – 98,765)") in text_of_intervals


def test_partitions_of_a_sample_show_their_intervals() -> None:
    plain = impact(sampled=True).to_json()
    m = len(plain["candidates"][0]["partition_records"])
    plain["candidates"][0] |= {
        "partition_records_low": [*range(m)],
        "partition_records_high": [70_000 + p for p in range(m)],
    }
    plain["candidates"][0] |= {"partition_bytes_low": [5] * m, "partition_bytes_high": [9 << 20] * m}
    plain |= {"bytes_low": 5, "bytes_high": 7 << 20}
    text = _Page(render(plain)).text
    assert "(3 – 70,003)" in text and "(5 B – 9.0 MiB)" in text and "(5 B – 7.0 MiB)" in text


def test_bars_are_hot_by_the_records_they_show() -> None:
    """Records without a key make partition 2 hot; the bars show keyed ones, and there it is as the others."""
    report = impact(hot_share=0.01)
    source = report.source.model_copy(update={"hot_partitions": [2], "keyed_partition_records": [100] * 6})
    drawn = figures(render(report.model_copy(update={"source": source})))
    assert "#000003" not in drawn["bars-12"]["data"][0]["marker"]["color"]


def test_an_unkeyed_topic_is_told_to_grow_in_place() -> None:
    html = render(unkeyed().to_json())
    text = _Page(html).text
    assert "No keys: increase it in place" in text and "take" not in text
    assert figures(html) == {} and "plotly" not in html, "nothing to draw needs no script"


def test_an_empty_topic() -> None:
    from topicshift.core.impact.report import Kind

    assert "Nothing to judge by" in render(unkeyed().model_copy(update={"kind": Kind.EMPTY, "records": 0}))


def test_rates_go_before_skew() -> None:
    sizing = recommend(SizingInput(throughput=100_000, per_consumer=5_000, source_partitions=6))
    html = render(impact(), sizing)
    assert "<b>30</b>" in html and "with 25% headroom at least 25" in html


def test_what_a_topic_or_key_is_called_cannot_break_out() -> None:
    nasty = "</script><script>alert(1)</script>"
    report = impact(topic=nasty)
    keys = [report.top_keys[0].model_copy(update={"key": nasty})]
    rules = [r.model_copy(update={"name": nasty}) for r in report.partitioner.rules]
    part = report.partitioner.model_copy(update={"rules": rules, "name": nasty})
    finding = ERROR.model_copy(update={"seen": f"{nasty} `{nasty}`."})
    html = render(report.model_copy(update={"top_keys": keys, "partitioner": part, "findings": [finding]}))
    assert "<script>alert" not in html
    assert _Page(html).text.count("alert(1)") >= 4
    assert figures(html)["slices"]["data"][0]["y"][0] == nasty


def test_what_is_no_impact_report_is_refused() -> None:
    for wrong in ({}, {"version": "x"}, impact().to_json() | {"records": "many"}):
        with pytest.raises(SpecError, match="no impact report of this version"):
            render(wrong)


@pytest.mark.parametrize(
    ("changes", "partitions", "says"),
    [
        ({"hot_share": 0.001, "keys": 20000}, 24, "exactly one parent"),
        ({"hot_share": 0.4}, 12, "No count relieves the hottest partition"),
        ({"hot_share": 0.06}, 12, "beyond 17 partitions"),
        ({"counts": (3,)}, 3, "hottest partition"),
        ({"counts": ()}, None, "no keyed record"),
        ({"counts": (6,)}, None, "no keyed record"),
    ],
)
def test_choosing_by_skew(changes: dict, partitions: int | None, says: str) -> None:
    choice = choose(impact(**changes))
    assert choice.partitions == partitions
    assert any(says in r for r in choice.reasons), choice.reasons


def test_clients_get_their_settings_for_the_count_to_take() -> None:
    page = _Page(render(impact())).text
    assert "Clients after the change" in page
    assert "cooperative-sticky" in page
    assert "max. poll. interval. ms" in page and "linger. ms" in page
    sized = recommend(SizingInput(throughput=9000, per_consumer=500, source_partitions=6, record_bytes=100))
    assert "16384 (the default) fills in" in _Page(render(impact(), sized)).text
    assert "Clients after the change" not in _Page(render(unkeyed())).text
