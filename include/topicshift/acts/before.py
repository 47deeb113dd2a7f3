"""What was in effect before anybody was stopped: captured once, and compared with what is there at every ending."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from typing import Any

from topicshift.acts.context import MigrationContext, file_on
from topicshift.acts.health import look_before
from topicshift.core.engine.decision import Decision
from topicshift.core.engine.view import Record, View
from topicshift.core.engine.words import Row
from topicshift.core.errors import NotFound, TopicshiftError
from topicshift.core.fence.acls import concerning
from topicshift.core.fence.restored import Restored, State, compare
from topicshift.core.kafka.cluster import Acl, error_of_unread
from topicshift.core.proof.verification import same_topic_id
from topicshift.ports import ParticipantState

BEFORE_FILE = "before.json"
RESTORED_FILE = "restored.json"


def capture(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Write down configs, ACLs and commits of the source as they are, before anybody is stopped.

    Configs, ACLs and the epochs of routes are in the journal too; commits are in ``before.json``, whose SHA-256 the
    journal has. Raises ``Unreadable`` for what cannot be read: what is not known now cannot be put back later.
    """
    source = ctx.row.source
    state, topic_id = _now(ctx, source)
    commits = _commits(ctx, source, state.partitions)
    at = ctx.clock.now().isoformat()
    small = {
        "taken_at": at,
        "topic": source,
        "topic_id": topic_id,
        "partitions": state.partitions,
        "configs": dict(sorted(state.configs.items())),
        "acls": [asdict(a) for a in sorted(state.acls)],
        "epochs": {s.participant.name: epoch for s in _driven(ctx) if (epoch := _epoch(s)) is not None},
        "stopped": [s.participant.name for s in _groups(ctx) if s.status == "stopped"],
    }
    data = json.dumps({**small, "commits": commits}, indent=2).encode()
    ctx.check_seat()
    ctx.write(BEFORE_FILE, data)
    look_before(ctx)
    ctx.finish(Row.BEFORE, {**small, "sha256": hashlib.sha256(data).hexdigest()})


def tell_restored(ctx: MigrationContext, record: Record, how: str, *, ends: bool = False) -> Restored | None:
    """Compare the source with what was captured, write it down, and say by name what is not as it was.

    ``ends``: nobody will put back later what the migration still holds.
    None where nothing was captured, because nothing of it was changed. What cannot be read is named, and ends nothing.
    """
    row = record.step(Row.BEFORE)
    if row is None or not row.state.in_effect:
        return None
    found = _compare(ctx, record, row.data, ends)
    said = {"how": how, "at": ctx.clock.now().isoformat(), **asdict(found)}
    try:
        ctx.keep(file_on(record.way, RESTORED_FILE), json.dumps(said, indent=2))
    except TopicshiftError as error:
        ctx.log(f"{RESTORED_FILE} could not be written: {error}")
    ctx.event("restored", {"how": how, "differs": list(found.differs), "unknown": list(found.unknown)})
    for line in (*found.differs, *found.unknown):
        ctx.log(f"NOT RESTORED: {line}")
    return found


def _compare(ctx: MigrationContext, record: Record, held: Mapping[str, Any], ends: bool) -> Restored:
    source, unknown = record.source, list[str]()
    before = State(
        int(held["partitions"]),
        {str(k): str(v) for k, v in held["configs"].items()},
        frozenset(Acl(**a) for a in held["acls"]),
    )
    seen = _try(lambda: _now(ctx, source), f"{source} cannot be read", unknown)
    if seen is None:
        return Restored((), (), tuple(unknown))
    now, topic_id = seen
    if not same_topic_id(topic_id, str(held["topic_id"])):
        return Restored((), (f"topic {source} is another one: its id is {topic_id}, and was {held['topic_id']}",), ())
    kept = record.step(Row.LENGTHEN_RETENTION)
    ours = kept.data.get("set", {}) if kept is not None and kept.state.in_effect and not ends else {}
    found = compare(source, before, now, still_ours=frozenset(ours))
    lower, same = _lower(ctx, file_on(record.way, BEFORE_FILE), held, unknown)
    epochs, stopped = held.get("epochs", {}), held.get("stopped", [])
    found_on = _try(lambda: _producers(ctx, source, epochs), f"where producers of {source} are", unknown)
    on: tuple[list[str], list[str]] = found_on or ([], [])
    groups = _try(lambda: _consumers(ctx, source, stopped), f"where groups of {source} are", unknown)
    on = [*on[0], *(groups or ([], []))[0]], [*on[1], *(groups or ([], []))[1]]
    return Restored((*found.equal, *same, *on[0]), (*found.differs, *lower, *on[1]), (*found.unknown, *unknown))


def _try(ask: Callable[[], Any], what: str, unknown: list[str]) -> Any:
    try:
        return ask()
    except TopicshiftError as error:
        unknown.append(f"{what}: {error}")
        return None


def _now(ctx: MigrationContext, source: str) -> tuple[State, str]:
    """Partitions, configs that are set on it, and ACLs of the source; and its topic id."""
    answers = ctx.ask_all({"topic": lambda: ctx.admin.topic(source), "acls": ctx.admin.acls})
    topic, acls = answers["topic"], answers["acls"]
    if topic is None:
        raise NotFound(f"topic {source} does not exist (any more).")
    configs = {e.name: str(e.value) for e in topic.configs.values() if e.set_here and not e.sensitive}
    return State(topic.partitions, configs, frozenset(concerning(acls, source))), topic.topic_id


def _commits(ctx: MigrationContext, source: str, partitions: int) -> dict[str, dict[str, int | None]]:
    """Where every declared group stands on the source, by partition (None: no commit)."""
    groups = [c.group for c in ctx.consumers if c.group is not None]
    if not groups:
        return {}
    found = ctx.admin.commits(groups, source, range(partitions))
    out: dict[str, dict[str, int | None]] = {}
    for group in groups:
        answer = found.get(group)
        if answer is None or answer.error or answer.errors:
            why = "no answer" if answer is None else answer.error or dict(answer.errors)
            raise error_of_unread(answer)(f"The commits of group {group} on {source} cannot be read: {why}.")
        out[group] = {str(p): answer.offsets.get(p) for p in range(partitions)}
    return out


def _lower(
    ctx: MigrationContext, name: str, held: Mapping[str, Any], unknown: list[str]
) -> tuple[list[str], list[str]]:
    """Commits on the source that are lower than they were, or gone; else one line that says that none is."""
    source = str(held["topic"])
    data = _try(lambda: ctx.ports.evidence.read(ctx.row.migration_id, name), f"{name} cannot be read", unknown)
    if data is None or hashlib.sha256(data).hexdigest() != held["sha256"]:
        unknown.append(f"the commits of groups: {name} is missing, or not the file that was written")
        return [], []
    now = _try(lambda: _commits(ctx, source, int(held["partitions"])), "the commits of groups", unknown)
    if now is None:
        return [], []
    lines = []
    for group, before in json.loads(data)["commits"].items():
        for partition, at in before.items():
            then = now.get(group, {}).get(partition)
            if at is not None and (then is None or then < at):
                seen = "gone" if then is None else f"{then}, which is lower"
                lines.append(f"the commit of group {group} on {source}[{partition}] was {at} and is {seen}")
    return lines, [] if lines else [f"no commit on {source} is lower than it was"]


def _driven(ctx: MigrationContext) -> list[ParticipantState]:
    return ctx.observe(ctx.driven(ctx.producers))


def _groups(ctx: MigrationContext) -> list[ParticipantState]:
    return ctx.observe(ctx.driven(ctx.consumers))


def _epoch(state: ParticipantState) -> int | None:
    """The newest epoch of its route that an instance follows."""
    return max((i.epoch for i in state.instances if i.epoch is not None), default=None)


def _producers(ctx: MigrationContext, source: str, before: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """Where the producers that a controller moves are: lines of those on the source, and of the others.

    ``before`` has the epochs of their routes: a route that has forgotten its epochs is one that others do not follow.
    """
    good, bad = [], []
    for state in _driven(ctx):
        name, epoch, was = state.participant.name, _epoch(state), before.get(state.participant.name)
        at = f" at epoch {epoch} of its route" if epoch is not None else ""
        at += f" (was {was})" if at and was is not None else ""
        absent = state.status == "stopped" and not state.instances
        if epoch is not None and was is not None and epoch < was:
            bad.append(f"producer {name} is{at}, which is lower")
        elif state.topic == source and (state.status == "running" or absent):
            good.append(f"producer {name} is on {source}{at}")
        else:
            where = f" on {state.topic}" if state.topic else ""
            bad.append(
                f"producer {name} is {state.status}{where}, not running on {source} ({state.reason or 'no reason'})"
            )
    return good, bad


def _consumers(ctx: MigrationContext, source: str, stopped: Collection[str]) -> tuple[list[str], list[str]]:
    """The same of the groups that a controller moves. ``stopped``: consumers that did not run before either."""
    good, bad = [], []
    for state in _groups(ctx):
        who = f"consumer {state.participant.name} (group {state.participant.group})"
        as_before = state.status == "stopped" and state.participant.name in stopped
        absent = state.status == "stopped" and not state.instances
        if as_before or (state.topic == source and (state.status == "running" or absent)):
            good.append(f"{who} {'stands still, as before' if as_before else f'is on {source}'}")
        else:
            where = f" on {state.topic}" if state.topic else ""
            bad.append(f"{who} is {state.status}{where}, not running on {source} ({state.reason or 'no reason'})")
    return good, bad
