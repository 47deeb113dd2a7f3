"""The order to replay late records: what it would do, and the row of the journal that every advancer obeys."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from topicshift.acts.context import MigrationContext
from topicshift.acts.orders import Prospect, ended, rolling_back, sign, write_order
from topicshift.acts.replay import strays_of
from topicshift.core.drain.replay import HEADER, Offer, offer, rule_of
from topicshift.core.drain.strays import Stray, Strays
from topicshift.core.engine.people import Person, objection
from topicshift.core.engine.view import Record
from topicshift.core.engine.where import all_moved, switched
from topicshift.core.engine.words import Ask, Row, StepState
from topicshift.core.errors import Refused, SpecError
from topicshift.core.kafka.cluster import error_of_unread
from topicshift.core.policy.who import Who

KEYS_S = 60.0
"""Bound, in seconds, of looking for the keys in the target, while nothing waits for it."""

Place = tuple[int, int]


def replay_prospect(ctx: MigrationContext, record: Record, places: Collection[Place] | None) -> Prospect:
    """What the replay of these records (None: of all) would do, one line each.

    Raises ``SpecError`` for a place that is none of theirs.
    """
    return _looked(ctx, record, places)[0]


def order_replay(ctx: MigrationContext, places: Collection[Place] | None, reason: str) -> Prospect:
    """Write the order down; whoever advances the migration next carries it out. Raises what the prospect says."""
    record = ctx.refresh()
    prospect, offers = _looked(ctx, record, places)
    prospect.require()
    offsets = ctx.admin.offsets(record.target)
    ends = {p: o.end for p, o in offsets.items()}
    unread = sorted(p for p, end in ends.items() if end is None)
    if unread:
        raise error_of_unread(*(offsets[p] for p in unread))(
            f"Where {record.target} ends cannot be read (partition {unread[0]}). Nothing was changed."
        )
    data = {
        "records": [[o.stray.partition, o.stray.offset, o.to] for o in offers],
        "count": len(offers),
        "since": {str(p): end for p, end in ends.items()},
        **sign(ctx, reason),
    }
    write_order(ctx, Row.REPLAY, data)
    ctx.event("replay_ordered", {k: data[k] for k in ("records", "count", "by", "reason")})
    return prospect


def _looked(ctx: MigrationContext, record: Record, places: Collection[Place] | None) -> tuple[Prospect, list[Offer]]:
    why_not = _why_not(ctx, record)
    if why_not:
        return Prospect((), why_not), []
    offers = _offers(ctx, record, places)
    does = tuple(o.line(record.source, record.target) for o in offers)
    bad = [o for o in offers if o.to is None]
    if bad:
        first = bad[0].line(record.source, record.target)
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        why_not = f"{first}{more}. Let the application write it anew, or leave it out by naming the others."
        return Prospect(does, why_not), offers
    marked = f"each gets the header {HEADER} with its place on {record.source}; the order proof is made anew"
    return Prospect((*does, marked)), offers


def not_replayed(record: Record) -> str:
    """Why nothing is replayed now, as far as the journal tells; empty where it knows nothing against it."""
    if ended(record):
        return ended(record)
    if rolling_back(record):
        return f"{record.migration_id} is being rolled back. A replay would add to the topic that everybody leaves."
    if not record.done(Row.FENCE_AGAIN):
        return f"No record has come to {record.source} after its fence, as far as {record.migration_id} has looked."
    if not switched(record) or not all_moved(record):
        open_ = ", ".join(g for g in record.policy.groups if not record.done(Row.SWITCH_GROUP, g))
        return (
            f"A replay comes after every group is released, so that who is on {record.source} reads it there: {open_}."
        )
    if record.at(Row.REPLAY) is StepState.INTENDED:
        return f"A replay is under way already. It goes on with: topicshift advance {record.migration_id}."
    return ""


def _why_not(ctx: MigrationContext, record: Record) -> str:
    why = not_replayed(record)
    if why:
        return why
    strays = strays_of(ctx)
    if not strays.complete:
        return f"More records came to {record.source} than were named one by one; a replay would be of a part of them."
    if not strays.unseen:
        return "Every late record was read by every group, or replayed already."
    return _not_by_them(ctx)


def _not_by_them(ctx: MigrationContext) -> str:
    """Why a replay, which decides what the question about late records asks, is not for whoever orders it to decide."""
    ctx.installation()
    by = ctx.triggered_by
    who = ctx.policy.who.get(Ask.STRAYS, Who())
    why = objection(who, Person(by) if by else None, "yes", {"triggered_by": by} if by else {})
    if not why:
        return ""
    alone = "" if who.two else ", or trigger topic_control for a replay"
    return (
        f"A replay decides what {Ask.STRAYS.value} asks, and an order from here is not counted: {why}. Whoever may "
        f"answer that question can accept the records{alone}."
    )


def _chosen(strays: Strays, places: Collection[Place] | None) -> list[Stray]:
    if places is None:
        return strays.unseen
    known = {(r.partition, r.offset): r for r in strays.unseen}
    strange = sorted(set(places) - set(known))
    if strange:
        p, o = strange[0]
        raise SpecError(f"{strays.topic}[{p}] offset {o} is none of the records that wait for an answer (strays.json).")
    return [known[place] for place in sorted(set(places))]


def _offers(ctx: MigrationContext, record: Record, places: Collection[Place] | None) -> list[Offer]:
    """Raises ``Unreadable`` where the target, or the plan's impact, cannot be read."""
    strays = strays_of(ctx)
    records = _chosen(strays, places)
    since: dict[bytes, int | None] = {}
    for stray in records:
        if stray.key_hex is None:
            continue
        key, at = bytes.fromhex(stray.key_hex), stray.timestamp_ms
        before = since.get(key, at)
        since[key] = None if at is None or before is None else min(at, before)
    info = ctx.admin.topic(record.target)
    if info is None:
        raise Refused(f"Topic {record.target} is gone.")
    seen = ctx.ports.replayer.keys(record.target, since, timeout_s=KEYS_S) if since else {}
    impact: Mapping[str, Any] = json.loads(ctx.ports.evidence.read(record.migration_id, "impact.json") or b"{}")
    return offer(
        strays,
        records,
        seen={key.hex(): found for key, found in seen.items()},
        partitions=info.partitions,
        partitioner=rule_of(impact),
        groups=record.policy.groups,
    )
