"""The page from which others write clients says what the code does: its fields, words, numbers and its example."""

from __future__ import annotations

import json
import re
from pathlib import Path

from topicshift.core.route import client, records
from topicshift.core.route.fields import MAX_COUNT, MAX_DEPTH, MAX_NAME
from topicshift.core.route.records import Ack, Status, parse_route, route_json, serialise_ack

PAGE = (Path(__file__).parents[2] / "docs" / "route-protocol.md").read_text()


def section(title: str) -> str:
    """One section of the page, up to the next one of any level."""
    return re.split(r"^##+ ", PAGE.split(f"## {title}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> list[list[str]]:
    """The cells of every table in it, without heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rules = {i for i, line in enumerate(lines) if set(line) <= set("|- ")}
    heads = rules | {i - 1 for i in rules}
    return [[c.strip() for c in line.strip("|").split("|")] for i, line in enumerate(lines) if i not in heads]


def names(cells: list[list[str]]) -> set[str]:
    return {name for row in cells for name in re.findall(r"`(\w+)`", row[0])}


def test_its_fields_are_those_of_the_records() -> None:
    example = json.loads(re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)[0])
    route = parse_route(json.dumps(example), b"payments", 1896056187000)
    assert (route.active, route.voided) == ("payments-v2", None)
    assert parse_route(json.dumps(example), b"payments", 1896056188000).active == "payments", "too late, so it is void"
    of_group = set(route_json(route)["groups"]["ledger"])
    assert names(rows(section("The route record"))) == set(route_json(route)) | of_group
    ack = Ack("payments", "producer", "checkout", "a", Status.RUNNING, 1, "payments")
    assert names(rows(section("The acknowledgement"))) == set(json.loads(serialise_ack(ack)))


def test_its_words_are_those_of_the_clients() -> None:
    producer, consumer = section("A producer"), section("A consumer")
    words = {str(s) for s in Status}
    assert names([r for r in rows(producer) if r[1].startswith(("yes", "no"))]) == words - {"draining"}
    assert names([r for r in rows(consumer) if r[1].startswith(("yes", "no"))]) == words - {"flushing"}


def test_its_numbers_are_those_of_the_code() -> None:
    said = {row[0]: row[1] for row in rows(section("Numbers"))}
    delivery, margin = records.DELIVERY_TIMEOUT_S, records.GONE_MARGIN_S
    armed, loose = records.STALE_S + delivery + margin, records.UNARMED_S + delivery + margin
    assert said["heartbeat"] == f"{records.HEARTBEAT_S:g} s"
    assert said["silent"] == f"{records.MISSED_HEARTBEATS} missed heartbeats (9 s)"
    assert said["view confirmed"] == f"every {client.CONFIRM_S:g} s"
    assert said["bound of contact"] == f"{records.STALE_S:g} s armed, {records.UNARMED_S / 60:g} min not armed"
    assert f"= {armed:g} s" in said["gone (producer)"] and f"= {loose:g} s" in said["gone (producer)"]
    assert f"{armed * 1000:.0f} armed and {loose * 1000:.0f} not armed" in PAGE
    assert said["picture of the brokers' clock"] == (
        f"at most {records.MAX_AHEAD_S:g} s ahead, {records.MAX_BEHIND_S:g} s behind"
    )
    assert f"nested deeper than {MAX_DEPTH}" in PAGE and f"at most {MAX_NAME} printable" in PAGE
    assert MAX_COUNT == 2**53 - 1 and "2^53 - 1" in PAGE
