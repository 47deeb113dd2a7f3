"""The run's report: every file may be there, missing, broken or hostile."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest

from topicshift.core.drain.certificate import DrainCertificate
from topicshift.core.drain.decision import GroupView, Snapshot, Tail, TailRange, certify, in_doubt
from topicshift.core.kafka.cluster import PartitionOffsets
from topicshift.core.proof.audit import genesis_hash, hash_of
from topicshift.core.proof.order import Facts, Side, prove
from topicshift.core.proof.verification import Segment, decide, read_plans
from topicshift.core.rows import EventRow
from topicshift.reporting.run_report import render
from topicshift.reporting.run_view import build, seconds_text

T0 = datetime(2026, 1, 4, 2, 0, tzinfo=UTC)
HOSTILE = "<script>alert('x')</script>"


def side(name: str, partitions: int, records: int, **change: Any) -> Side:
    values: dict[str, Any] = {
        "topic": name, "topic_id": f"id-{name}", "partitions": partitions,
        "ranges": dict.fromkeys(range(partitions), (0, records // partitions)), "records": records, "null_keys": 0,
        "keys": 10, "keys_in_several_partitions": 0, "without_sequence": 0, "unreadable_sequence": 0, "duplicates": 0,
        "out_of_order": 0, "misplaced_records": 0, "misplaced_keys": 0,
    }  # fmt: skip
    return Side(**{**values, **change})


def order_proof(**change: Any) -> bytes:
    facts: dict[str, Any] = {
        "source": side("payments", 6, 60), "target": side("payments-v2", 30, 90), "keys": 10, "keys_in_both": 9,
        "fence": dict.fromkeys(range(6), 10), "duplicates_across": 0, "missing": 0, "keys_with_gaps": 0,
        "crossing_keys": 0, "crossing_repeats": 0,
    }  # fmt: skip
    proof = prove(Facts(**{**facts, **change}), header="seq", now=T0, seconds=3.0)
    return proof.model_dump_json().encode()


def certificate_and_verification() -> tuple[DrainCertificate, bytes]:
    snapshot = Snapshot(
        topic="payments",
        topic_id="id-payments",
        partitions=2,
        offsets={p: PartitionOffsets(0, 10, 10) for p in range(2)},
        groups=[GroupView("ledger", committed={0: 10, 1: 8}), GroupView("fraud", committed={0: 10, 1: 10})],
        taken_at=T0 + timedelta(seconds=4),
        fence={0: 10, 1: 10},
        fence_topic_id="id-payments",
        tails={TailRange(1, 8, 10): Tail(found=False, complete=True, records=0)},
    )
    doubts = in_doubt(snapshot)
    answer = decide(snapshot, doubts, read_plans(doubts), dict[tuple[int, int], Segment](), seconds=0.4)
    return certify(snapshot), answer.model_dump_json().encode()


def trail(*events: tuple[float, str, str, dict[str, Any]]) -> bytes:
    lines, before = [], genesis_hash("m-1")
    for seq, (second, actor, kind, data) in enumerate(events, 1):
        row: dict[str, Any] = {
            "seq": seq, "migration_id": "m-1", "epoch": 1, "at": (T0 + timedelta(seconds=second)).isoformat(),
            "actor": actor, "kind": kind, "data": data, "prev_hash": before,
        }  # fmt: skip
        row["hash"] = before = hash_of(EventRow(**row, hash=""))
        lines.append(json.dumps(row))
    return "\n".join(lines).encode() + b"\n"


def steps() -> bytes:
    def row(step: str, begin: float, end: float | None, state: str = "done", **data: Any) -> dict[str, Any]:
        finished = (T0 + timedelta(seconds=end)).isoformat() if end is not None else None
        return {"step": step, "state": state, "epoch": 1, "data": data,
                "started_at": (T0 + timedelta(seconds=begin)).isoformat(), "finished_at": finished}  # fmt: skip

    freeze = {
        "started_at": T0.isoformat(),
        "lease_until": (T0 + timedelta(seconds=120)).isoformat(),
        "act_until": (T0 + timedelta(seconds=114)).isoformat(),
        "ended_at": (T0 + timedelta(seconds=8)).isoformat(),
        "how": "switched",
    }
    rows = [row("create_target", -60, -58.5), row("freeze", 0, 8, **freeze), row("fence", 0.5, 2.5)]
    return json.dumps(
        [*rows, row("switch_producers", 6, 8), row("switch_consumer:ledger", 9, None, "intended")]
    ).encode()


def progress() -> bytes:
    group = {"group": "ledger", "lag": 4, "alarm": "poison_record", "alarm_text": HOSTILE}
    return json.dumps({"at": 3.0, "groups": [{**group, "series": [[0.0, 9], [1.0, 4], [3.0, 4]]}]}).encode()


def evidence() -> dict[str, bytes]:
    certificate, verification = certificate_and_verification()
    plan = {
        "taken_at": T0.isoformat(), "plan_hash": "ab" * 32, "spec": {"source": "payments", "target": "payments-v2",
        "cutover": "drain_first"}, "source": {"partitions": 6}, "target": {"partitions": 30},
        "findings": [
            {"code": "TS204", "level": "info", "subject": "payments", "seen": "Seen.", "why": "Why.", "do": "Do."},
            {"code": "TS301", "level": "warning", "subject": HOSTILE, "seen": "Seen.", "why": "Why.", "do": "Do."},
        ],
        "actions": [{"step": "create_target", "text": "Create payments-v2 with 30 partitions."}],
    }  # fmt: skip
    return {
        "plan.json": json.dumps(plan).encode(),
        "fence.json": json.dumps({"topic": "payments", "fence_offsets": {"0": 10, "1": 10}}).encode(),
        "drain_certificate.json": certificate.model_dump_json().encode(),
        "drain_verification.json": verification,
        "drain_progress.json": progress(),
        "order_proof.json": order_proof(),
        "audit.jsonl": trail(
            (-70, "topicshift", "asked", {"act": "plan", "about": {"plan_hash": "ab" * 32}}),
            (-65, "user:dana", "approved", {"act": "plan", "about": {"plan_hash": "ab" * 32}, "how": "person"}),
            (0, "topicshift", "freeze_begun", {}),
            (2.5, "topicshift", "fenced", {"fence_offsets": {"0": 10, "1": 10}}),
            (3, "topicshift", "alarm", {"group": "ledger", "alarm": "poison_record", "text": "It stands.", "told": []}),
            (4, "topicshift", "drained", {"groups": ["ledger", "fraud"]}),
            (4.4, "topicshift", "verified", {"verdict": "verified"}),
            (8, "topicshift", "producers_switched", {"states": HOSTILE}),
        ),
        "steps.json": steps(),
        "migration.json": json.dumps({"migration_id": "m-1", "source": "payments", "target": "payments-v2",
                                      "state": "done", "owner": "topic_migration/manual"}).encode(),
    }  # fmt: skip


class Checker(HTMLParser):
    """Balanced tags, and nothing that would leave the file."""

    VOID = frozenset({"meta", "br", "hr", "img", "input", "link"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag not in ("script", "link", "img", "iframe"), tag
        assert not {name for name, _ in attrs} & {"src", "href", "onclick"}
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(html: str) -> str:
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert checker.open == []
    assert not re.search(r"https?://|@import|url\(", html)
    return re.sub(r"\s+", " ", " ".join(checker.texts))


def test_the_whole_run_is_on_the_page() -> None:
    text = read(render(evidence()))
    assert "payments → payments-v2" in text
    assert text.index("Proven: nothing lost") < text.index("The freeze") < text.index("Audit trail")
    for word in ("8.00 s", "Allowed: 2 min 00 s", "user:dana", "said yes", "TS301", "nothing_readable", "[8, 10)"):
        assert word in text, word
    assert "The hash chain of 8 events holds" in text
    assert "2 offsets in doubt, 0 records found" in text


def test_journal_rows_are_shown_in_the_words_of_the_steps() -> None:
    files = evidence()
    files["audit.jsonl"] = trail((0, "topicshift", "step_intended", {"step": "switch_consumer:ledger", "data": {}}))
    text = read(render(files))
    for said in ("stop_producers the freeze", "stop_producers DENY and fence offsets", "producers on the target"):
        assert said in text
    assert "switch_consumers group on the target: ledger" in text
    assert "switch_consumers (group on the target: ledger)" in text
    assert "switch_consumer:" not in text


def test_the_drain_is_drawn_and_its_alarms_are_told() -> None:
    page = render(evidence())
    assert '<polyline points="0.0,4.0 200.0,41.8 600.0,41.8"/>' in page
    text = read(page)
    assert "poison_record" in text
    assert "lag 9 at most, 4 at last, followed for 3.00 s" in text
    assert "raised an alarm" in text
    assert "It stands. Told: nobody is configured." in text


def test_what_came_from_outside_cannot_become_markup() -> None:
    html = render(evidence())
    read(html)
    assert HOSTILE not in html
    assert "&lt;script&gt;" in html


@pytest.mark.parametrize("name", sorted(evidence()))
def test_each_file_may_be_missing(name: str) -> None:
    files = evidence()
    del files[name]
    read(render(files))


@pytest.mark.parametrize("name", sorted(evidence()))
@pytest.mark.parametrize("content", [b"", b"[" * 100_000, b"{", b"[]", b"{}", b"\xff\xfe", b"null", b'"text"'])
def test_each_file_may_be_broken_and_is_named_then(name: str, content: bytes) -> None:
    text = read(render({**evidence(), name: content}))
    if content in (b"{", b"\xff\xfe"):
        assert name in text[text.index("Evidence that could not be read") :]


def test_nothing_at_all_claims_nothing() -> None:
    view = build({})
    assert (view.tone, view.headline) == ("open", "Not finished")
    read(render({}))


@pytest.mark.parametrize(
    ("change", "tone", "said"),
    [
        ({"missing": 3, "keys_with_gaps": 1}, "bad", "Violated"),
        ({"crossing_keys": 1}, "bad", "Violated"),
        ({"source": side("payments", 6, 0)}, "bad", "Unknown"),
        ({"fence": None}, "warn", "proven in part"),
    ],
)
def test_the_verdict_is_the_proofs(change: dict[str, Any], tone: str, said: str) -> None:
    files = {**evidence(), "order_proof.json": order_proof(**change)}
    assert build(files).tone == tone
    assert said in read(render(files))


def test_a_changed_event_breaks_the_chain_on_the_page() -> None:
    files = evidence()
    files["audit.jsonl"] = files["audit.jsonl"].replace(b"user:dana", b"user:eve")
    assert "The hash chain is broken at row 2" in read(render(files))


def test_a_freeze_that_ended_on_the_source_says_so() -> None:
    files = evidence()
    files["steps.json"] = files["steps.json"].replace(b'"switched"', b'"resumed on the source"')
    del files["order_proof.json"]
    files["migration.json"] = files["migration.json"].replace(b'"done"', b'"rolled_back"')
    text = read(render(files))
    assert "resumed on the source" in text
    assert "Rolled back" in text


def test_a_run_that_went_back_after_its_proof_says_so_first() -> None:
    files = evidence()
    files["migration.json"] = files["migration.json"].replace(b'"done"', b'"rolled_back"')
    view = build(files)
    assert (view.tone, view.headline) == ("warn", "Rolled back: producers and groups are on the source")
    assert "proven" in view.reason


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (0.4, "0.40 s"), (59.96, "60.0 s"), (61, "1 min 01 s"), (12_000, "3 h 20 min"), (187_200, "2 d 4 h")],
)
def test_durations_are_for_people(seconds: float | None, text: str) -> None:
    assert seconds_text(seconds) == text


def test_the_freezes_before_the_last_one_are_told_as_well() -> None:
    begin = [(T0 + timedelta(seconds=at)).isoformat() for at in (-300, -100)]
    events = trail(
        (-300, "topicshift", "freeze_begun", {"started_at": begin[0]}),
        (-210, "topicshift", "producers_resumed", {}),
        (-100, "topicshift", "freeze_begun", {"started_at": begin[1]}),
        (0, "topicshift", "freeze_begun", {"started_at": T0.isoformat()}),
        (8, "topicshift", "producers_switched", {}),
    )
    text = read(render({**evidence(), "audit.jsonl": events}))
    told = "Before it producers were stopped 2 times and resumed on the source"
    assert told in text
    assert f"{seconds_text(90)} from 2026-01-04 01:55:00 UTC, of unknown length from 2026-01-04 01:58:20 UTC." in text
    assert "Before it" not in read(render(evidence()))
