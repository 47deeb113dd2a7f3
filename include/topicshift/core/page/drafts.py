"""Drafts of a first spec, as assessments left them, and what a migration that begins with one will do. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from topicshift.core.engine.words import MigrationState, Row
from topicshift.core.kafka.rules import next_target_name
from topicshift.core.page.listing import Shown, Unclear
from topicshift.core.plan.draft import TARGETS_FREE, TARGETS_THERE
from topicshift.core.spec.form import SPEC_FILE
from topicshift.core.spec.io import InvalidSpec, parse_spec, read_yaml

DRAFT: Final = "draft.yaml"
"""A first spec of the source, in the evidence of an assessment."""

_HEAD = re.compile(r"# A first spec for .*, as seen at (\S+) on cluster (.*)\.$")
_ITEM = "#   - "


def draft_seen(folder: str, text: str) -> dict[str, Any]:
    """One draft as plain values.

    ``taken_at`` (ISO 8601, None where it does not say) and ``cluster_id`` are from its head; ``conf`` is what its
    migration is triggered with; ``problems``: what keeps it from being a valid spec, one line each; ``notes``: what was
    left out and what could not be seen, by title. ``there`` and ``free``: names of targets, as they were then.
    """
    first = _HEAD.match(text.partition("\n")[0])
    problems, data = list[str](), dict[str, Any]()
    try:
        read, _, _ = read_yaml(text, DRAFT)
        data = dict(read) if isinstance(read, Mapping) else {}
        parse_spec(text, DRAFT)
    except InvalidSpec as error:
        problems = [str(problem) for problem in error.problems]
    notes = _notes(text)
    named = {note["title"]: note["lines"] for note in notes}
    return {
        "folder": folder,
        "taken_at": first[1] if first else None,
        "cluster_id": first[2] if first else None,
        "source": str(data.get("source") or "?"),
        "partitions": data.get("partitions") if isinstance(data.get("partitions"), int) else None,
        "kafka_conn_id": str(data.get("kafka_conn_id") or "kafka_default"),
        "producers": _named(data.get("producers")),
        "consumers": _named(data.get("consumers")),
        "conf": {key: value for key, value in data.items() if key != "apiVersion"},
        "problems": problems,
        "notes": notes,
        "there": named.get(TARGETS_THERE.removesuffix(":"), []),
        "free": named.get(TARGETS_FREE.removesuffix(":"), []),
        "text": text,
    }


def spec_seen(name: str, text: str) -> dict[str, Any]:
    """One spec file of the installation as plain values: what its migration is, or ``problems``, one line each."""
    found: dict[str, Any] = {"file": name, "source": "", "target": "", "partitions": None, "cutover": "", "text": text}
    found |= {"producers": [], "consumers": [], "conf": {SPEC_FILE: name}, "problems": [], "scheduled": False}
    found["kafka_conn_id"] = ""
    try:
        spec = parse_spec(text, name)
    except InvalidSpec as error:
        return {**found, "problems": [str(problem) for problem in error.problems]}
    count = spec.partitions if isinstance(spec.partitions, int) else None
    return {
        **found,
        "source": spec.source,
        "target": spec.target or "",
        "partitions": count,
        "cutover": spec.cutover.value,
        "producers": [{"name": p.name, "kind": p.kind} for p in spec.producers],
        "consumers": [{"name": c.name, "kind": c.kind} for c in spec.consumers],
        "scheduled": spec.window is not None,
        "kafka_conn_id": spec.kafka_conn_id,
    }


def _named(given: Any) -> list[dict[str, str]]:
    rows = [one for one in given if isinstance(one, Mapping)] if isinstance(given, list) else []
    return [{k: str(one.get(k) or ("route" if k == "kind" else "")) for k in ("name", "kind", "group")} for one in rows]


def _notes(text: str) -> list[dict[str, Any]]:
    out = list[dict[str, Any]]()
    for line in text.splitlines():
        if line.startswith(_ITEM) and out:
            out[-1]["lines"].append(line.removeprefix(_ITEM))
        elif line.startswith("# ") and line.endswith(":"):
            out.append({"title": line[2:-1], "lines": []})
    return [note for note in out if note["lines"]]


def latest(drafts: Iterable[Mapping[str, Any]], most: int) -> list[dict[str, Any]]:
    """The last draft of each source on each cluster, the newest first, ``most`` at most."""
    found = dict[tuple[Any, Any], dict[str, Any]]()
    for one in sorted(drafts, key=lambda d: str(d["taken_at"] or "")):
        found.pop((one["cluster_id"], one["source"]), None)
        found[one["cluster_id"], one["source"]] = dict(one)
    return list(reversed(found.values()))[:most]


def begins(draft: Mapping[str, Any], seen: Collection[Shown | Unclear]) -> dict[str, Any]:
    """``does``: what happens when a migration is begun with this draft; ``cannot``: why it would be refused now.

    ``seen``: the migrations that this user may see; others may be in the way as well, and the run itself finds them.
    """
    manual = sorted({p["name"] for p in (*draft["producers"], *draft["consumers"]) if p["kind"] == "manual"})
    does = [
        "a run begins with these values; every other field of the form stays at its default",
        "it makes the plan first and changes nothing: what would block ends it there",
        "you are asked to accept exactly this plan, and once more before any producer is stopped",
    ]
    if draft["there"] or draft["free"]:
        does.insert(2, _called(draft, seen))
    if manual:
        does.append(f"people move {', '.join(manual)}: the run asks for each when it is its turn")
    for problem in draft["problems"]:
        return {"does": [], "cannot": f"the draft is no valid spec yet: {problem}", "held_by": None}
    cannot, holder = _held({draft["source"]}, (one for one in seen if one.row.cluster_id == draft["cluster_id"]))
    return {"does": [] if cannot else does, "cannot": cannot, "held_by": holder}


def _called(draft: Mapping[str, Any], seen: Collection[Shown | Unclear]) -> str:
    """The name that the plan will give the target, unless topics have come since the look."""
    held = {t for one in seen if _holds(one) and one.row.cluster_id == draft["cluster_id"] for t in _topics(one)}
    name = next_target_name(draft["source"], {*draft["there"], *held})
    why = f": {', '.join(draft['there'])} existed already at this look" if draft["there"] else ""
    return f"the target will be called {name}, the next free name{why}"


def _holds(one: Shown | Unclear) -> bool:
    return one.row.active or one.row.state == MigrationState.OPEN


def _topics(one: Shown | Unclear) -> set[str]:
    return {one.row.source, one.row.target}


def spec_begins(
    spec: Mapping[str, Any], seen: Collection[Shown | Unclear], drafts: Collection[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Of a spec file ``cannot`` and ``held_by``, as :func:`begins`, and ``warns``: what else is known against it.

    Migrations of the same Kafka connection count: which cluster a file is for is not known before its run. Topics are
    known by the last look at the source: ``looked`` says what it tells of the target.
    """
    same = [one for one in seen if _connection(one.row.spec) == spec["kafka_conn_id"]]
    cannot, holder = _held({spec["source"], spec["target"]} - {""}, same)
    # What a migration that was rolled back free has made is deleted again.
    kept = (MigrationState.DONE, MigrationState.RETIRED)
    left = next((one.row for one in same if one.row.target == spec["target"] and _left(one, kept)), None)
    warns = ""
    if left is not None and not cannot:
        state = left.state.replace("_", " ")
        warns = (
            f"{left.target} was the target of an earlier migration ({left.migration_id}, {state}) and may hold its "
            "records: the plan refuses a target that exists (TS103). Delete it first, or name another target."
        )
    looked = ""
    if spec["target"] and not warns and not cannot:
        warns, looked = _looked(spec, drafts)
    return {"cannot": cannot, "held_by": holder, "warns": warns, "looked": looked}


def _looked(spec: Mapping[str, Any], drafts: Collection[Mapping[str, Any]]) -> tuple[str, str]:
    """What the last look at the source of a spec file says against its target, and what it says beside that."""
    source, target = spec["source"], spec["target"]
    same = [d for d in drafts if (d["source"], d["kafka_conn_id"]) == (source, spec["kafka_conn_id"])]
    told = [d for d in same if target in (*d["there"], *d["free"])]
    if not told:
        text = f"Whether a topic {target} exists already has not been looked at: Look at {source} above says so, and "
        return "", text + "the plan does, before anybody is stopped."
    last = max(told, key=lambda d: str(d["taken_at"] or ""))
    at = _minute(last["taken_at"])
    if target in last["free"]:
        return "", f"There was no topic {target} at the last look at {source} ({at})."
    text = f"{target} existed already at the last look at {source} ({at}). "
    do = "Name another target in the file, leave it out for the next free name, or delete that topic if nobody needs it"
    return text + f"The plan refuses it where it holds records or has another shape (TS103). {do}, then look again.", ""


def _minute(text: Any) -> str:
    try:
        return f"{datetime.fromisoformat(str(text)).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return "at a time that it does not say"


def _left(one: Shown | Unclear, kept: Collection[str]) -> bool:
    if one.row.state in kept:
        return True
    back = one.record.step(Row.ROLLBACK) if isinstance(one, Shown) else None
    return one.row.state == MigrationState.ROLLED_BACK and back is not None and back.data.get("type") == "drain_back"


def _connection(spec: Any) -> str:
    return str((spec.get("kafka_conn_id") if isinstance(spec, Mapping) else None) or "kafka_default")


def _held(topics: Collection[str], seen: Iterable[Shown | Unclear]) -> tuple[str, str | None]:
    """Why these topics cannot be migrated now, and the migration that holds one of them."""
    for one in seen:
        if _holds(one) and _topics(one) & set(topics):
            said = f"{one.row.source} to {one.row.target} is not over, and holds both topics"
            return said, one.row.migration_id
    return "", None
