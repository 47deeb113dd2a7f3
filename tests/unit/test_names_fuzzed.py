"""Names from outside break out of nothing: spec, terminal, JSON, report, evidence files, links."""

from __future__ import annotations

import contextlib
import json
import re
import string
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.unit.test_run_report import evidence, read
from tests.unit.world import World

from topicshift import cli
from topicshift.adapters.evidence import FsspecEvidence
from topicshift.adapters.journal import SqlJournal
from topicshift.commands.common import console, escape
from topicshift.core.drain.names import certificate_name, file_name
from topicshift.core.errors import SpecError
from topicshift.core.spec.io import InvalidSpec, load_spec, spec_from_params
from topicshift.core.text import one_line, printable, printable_json, unseen
from topicshift.reporting.run_report import render
from topicshift_airflow.links import page_of

BREAKING = (
    "<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "'; DROP TABLE events; --", "{{ 7 * 7 }}",
    "{% include 'x' %}", "${jndi:ldap://x}", "$(id)", "`id`", "; rm -rf /", "../../etc/passwd", "..", ".", "%2e%2e%2f",
    "a/b", "[bold red]ok[/]", "[/]", "\x1b[2J\x1b[31mdrained", "\x9b2J", "\x00", "a\nverdict: drained", "a\r\nb",
    "a\tb", "\u202edeniard", "\u2028", "--help", "-rf", "%s%n", "\ud800", "a" * 300, "ü" * 100, "😀", " ", "null", "~",
    "file:///etc/passwd", "a:b", "C:\\x",
)  # fmt: skip
breaking = st.sampled_from(BREAKING)
anything = st.text(max_size=40) | breaking | st.builds("{}{}".format, breaking, st.text(max_size=5))
TOPIC = frozenset(string.ascii_letters + string.digits + "._-")
SEEN_BY_TERMINALS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def spec(**names: str) -> dict[str, Any]:
    return {
        "source": names.get("source", "payments"),
        "partitions": 30,
        "producers": [{"name": names.get("producer", "checkout")}],
        "consumers": [{"name": names.get("consumer", "ledger"), "group": names.get("group", "ledger")}],
    }


@given(which=st.sampled_from(["source", "producer", "consumer", "group"]), name=anything)
def test_a_name_is_taken_as_it_is_or_refused_in_words(which: str, name: str) -> None:
    try:
        made = spec_from_params(spec(**{which: name}))
    except InvalidSpec as error:
        assert not unseen(str(error).replace("\n", "")), "the message itself must be harmless"
        return
    consumer = made.consumers[0]
    names = {"source": made.source, "producer": made.producers[0].name, "consumer": consumer.name}
    taken = {**names, "group": consumer.group}[which]
    assert taken == name and not unseen(name)
    if which == "source":
        assert set(name) <= TOPIC and name not in (".", "..")
    made.model_dump_json().encode()  # nothing that no database and no file can hold


@given(text=st.text(max_size=200) | anything)
def test_a_spec_file_of_any_text_is_read_or_refused_in_words(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "x.yaml"
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        with contextlib.suppress(SpecError):
            load_spec(file)


@given(a=anything, b=anything)
@example("a" * 300, "a" * 301)
@example("a/b", "a-b")
@example("A.b", "A_b")
def test_names_of_evidence_files_stay_in_their_folder_and_differ(a: str, b: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{0,90}", file_name(a))
    assert (file_name(a) == file_name(b)) == (a == b)
    with tempfile.TemporaryDirectory() as folder:
        store = FsspecEvidence(f"{folder}/evidence")
        store.write("payments-1", certificate_name(a), "x")
        for path in Path(folder).rglob("*"):
            assert path.is_dir() or path.parent == Path(folder) / "evidence" / "payments-1"
        for name in (a, f"../{a}"):
            if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", name) is None:
                with pytest.raises(SpecError):
                    store.write(name, "x.json", "x")
                with pytest.raises(SpecError):
                    store.read("payments-1", name)


@given(text=st.text() | anything)
def test_text_for_terminals_holds_nothing_that_they_obey(text: str) -> None:
    assert not SEEN_BY_TERMINALS.search(printable(text)) and not unseen(one_line(text))
    printable(text).encode()
    assert printable(printable(text)) == printable(text)
    plain = "".join(c for c in text if not unseen(c))
    assert printable(plain) == plain, "what can be seen stays as it is"


@given(value=st.dictionaries(anything, st.text() | anything | st.integers(), max_size=3))
def test_json_for_terminals_is_the_same_value(value: dict[str, Any]) -> None:
    text = printable_json(json.dumps(value, ensure_ascii=False, indent=2))
    assert json.loads(text) == json.loads(json.dumps(value))
    assert not SEEN_BY_TERMINALS.search(text)
    text.encode()


@given(name=anything)
def test_markup_of_the_console_is_text(name: str) -> None:
    out = console()
    with out.capture() as captured:
        out.print(f"[bold]{escape(name)}[/]", soft_wrap=True)
    said = captured.get()
    assert not SEEN_BY_TERMINALS.search(said) and said.count("\n") == 1
    assert said.rstrip("\n") == one_line(name).rstrip("\n")


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(group=anything, owner=anything, actor=anything)
def test_status_and_trail_show_a_migration_of_any_names(group: str, owner: str, actor: str) -> None:
    """A journal of another version, or of somebody's hands, may hold what no spec of today lets through."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/journal.db"
        journal = SqlJournal(url)
        names = {"name": group, "group": group}
        try:
            claim = journal.claim(
                cluster_id="c",
                source="payments",
                target="payments-v2",
                owner=f"dag/{owner}",
                spec={"consumers": [names], "producers": [names]},
                owner_alive=lambda _: True,
            )
            journal.event(claim, "asked", actor, {"about": {"group": group}})
        except (UnicodeEncodeError, SpecError):
            return  # no database holds it
        finally:
            journal.close()
        for words in (
            ["status"],
            ["status", claim.migration_id],
            ["audit", "export", claim.migration_id, "--format", "text"],
        ):
            done = CliRunner().invoke(cli.cli, [*words, "--journal", url], standalone_mode=False)
            assert done.exception is None, done.exception
            assert not SEEN_BY_TERMINALS.search(done.stdout)
        done = CliRunner().invoke(cli.cli, ["status", "--json", "--journal", url], standalone_mode=False)
        assert json.loads(done.stdout)["migrations"][0]["owner"] == f"dag/{owner}"


@settings(max_examples=30)
@given(words=st.lists(anything, min_size=1, max_size=4))
def test_any_words_on_the_command_line_get_an_answer(words: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_HOME", folder)
        patch.delenv("TOPICSHIFT_JOURNAL", raising=False)
        for before in ([], ["lint"], ["status"], ["audit", "verify"], ["audit", "export"]):
            assert cli.run([*before, *words]) in (0, 2, 3, 4)


@settings(max_examples=30)
@given(name=st.text(max_size=30) | st.sampled_from(BREAKING))
def test_the_report_shows_any_name_as_text(name: str) -> None:
    """Every name of the evidence, one after the other, replaced by this one."""
    spelt = json.dumps(name)[1:-1].encode()
    files = {n: data.replace(b"payments", spelt).replace(b"ledger", spelt) for n, data in evidence().items()}
    html = render(files)
    html.encode("utf-8", "replace")
    read(html)


@given(name=anything.filter(lambda name: "\ud800" not in name))
def test_a_link_leads_to_the_evidence_page_alone(name: str) -> None:
    page = page_of(f"file:///var/evidence/payments-1/{name}")
    assert page == "" or (urlsplit(page).netloc == "" and page.startswith("/topicshift/evidence/"))


odd = anything.filter(lambda name: name.strip() != "")
topics = st.text(alphabet=sorted(TOPIC), min_size=1, max_size=80).filter(lambda name: name not in (".", ".."))


@settings(max_examples=25, deadline=None)
@given(source=topics, producer=odd, consumer=odd, group=odd)
@example("payments", "checkout", "<b>[red]ü/..", "a/b;$(id)[bold] {{x}}")
def test_a_migration_of_odd_names_goes_to_its_end_and_back(
    source: str, producer: str, consumer: str, group: str
) -> None:
    names = {
        "source": source,
        "target": f"{source}-v2",
        "producers": [{"name": producer}],
        "consumers": [{"name": consumer, "group": group}],
    }
    try:
        world = World(**names)
    except SpecError as error:
        assert not unseen(str(error).replace("\n", ""))
        return
    world.advanced()
    migration = world.claim.migration_id
    assert world.journal.current(migration).state == "done"
    files = {name: world.evidence.read(migration, name) or b"" for name in world.evidence.names(migration)}
    read(render(files))
    world.write(f"{source}-v2", 1)
    world.drain(group, f"{source}-v2")
    world.answer(world.asks(wanted="rollback"))
    world.advanced(wanted="rollback")
    assert world.journal.current(migration).state == "rolled_back"
