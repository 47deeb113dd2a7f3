"""Make the target as planned, and take it away again while it is empty and ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from topicshift.core.errors import Refused, Unreadable
from topicshift.core.kafka.cluster import Acl, TopicInfo
from topicshift.ports import Claim, ClusterAdmin, Journal, StepRow

STEP = "create_target"
"""The journal's name of the step."""


def create_target(
    admin: ClusterAdmin,
    journal: Journal,
    claim: Claim,
    *,
    name: str,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str],
    acls: Iterable[Acl],
) -> str:
    """Make topic, configs and ACLs, the intent written before; returns the topic id. Safe to repeat.

    An empty topic of exactly this shape that is there already is used, and never deleted by the way back. After a
    kill the topic is recognised as our own by the intent. Raises ``Refused`` for a topic of another shape, one that
    holds records, or one that was made again under the name.
    """
    shape = {
        "name": name,
        "partitions": partitions,
        "replication_factor": replication_factor,
        "configs": dict(sorted(configs.items())),
    }
    wanted = sorted(set(acls))
    row = journal.step(claim.migration_id, STEP)
    seen = admin.topic(name)
    if row is not None and row.state in ("intended", "done"):
        _same_order(row, shape)
    else:
        if seen is not None:
            _require_shape(seen, shape)
            _require_empty(admin, seen)
        before = admin.acls() if wanted else frozenset()
        row = journal.intend(
            claim,
            STEP,
            {
                **shape,
                "ours": seen is None,
                "topic_id": seen.topic_id if seen is not None else None,
                "acls_added": [asdict(a) for a in wanted if a not in before],
            },
        )
    if seen is None and row.data["topic_id"] is not None:
        raise Refused(
            f"topic {name} (id {row.data['topic_id']}) was there before and is gone. Somebody deleted it. Nothing is "
            "made in its place; find out who did, and plan again."
        )
    if seen is None:
        admin.create_topic(name, partitions, replication_factor, configs)
        seen = admin.topic(name)
        if seen is None:
            raise Unreadable(f"topic {name} was created and is not shown by the brokers. Run the step again.")
    known = row.data["topic_id"]
    if known is not None and known != seen.topic_id:
        raise Refused(
            f"topic {name} was deleted and made again: its id is {seen.topic_id}, and was {known}. It is not the "
            "topic that this migration uses. Nothing was changed; find out who did this, and plan again."
        )
    _require_shape(seen, shape)
    if row.state != "done":
        _require_empty(admin, seen)
    _create_acls(admin, _acls(row))
    if row.state != "done":
        journal.finish(claim, STEP, {"topic_id": seen.topic_id})
    return seen.topic_id


def delete_target(admin: ClusterAdmin, journal: Journal, claim: Claim) -> bool:
    """The way back: delete the target that this migration made, and the ACLs that it added. Safe to repeat.

    Returns whether the topic is gone; one that was there before stays. Raises ``Refused`` when the target holds or
    has held records, or is not the topic that was made, and ``Unreadable`` when that cannot be told.
    """
    row = journal.step(claim.migration_id, STEP)
    if row is None or row.state not in ("intended", "done"):
        return False
    name = str(row.data["name"])
    seen = admin.topic(name)
    ours = bool(row.data["ours"])
    if seen is not None and ours:
        known = row.data["topic_id"]
        if known is None:
            _require_shape(seen, row.data)  # killed between the act and its record
        elif known != seen.topic_id:
            raise Refused(
                f"topic {name} was deleted and made again: its id is {seen.topic_id}, and this migration made "
                f"{known}. It is left alone."
            )
        _require_empty(admin, seen)
        admin.delete_topic(name)
    added = _acls(row)
    if added:
        admin.delete_acls(added)
    journal.finish(claim, STEP, {"deleted": seen.topic_id if seen is not None and ours else None}, state="undone")
    return ours or seen is None


def _acls(row: StepRow) -> list[Acl]:
    return [Acl(**a) for a in row.data["acls_added"]]


def _create_acls(admin: ClusterAdmin, acls: list[Acl]) -> None:
    if acls:
        admin.create_acls(acls)


def _same_order(row: StepRow, shape: Mapping[str, Any]) -> None:
    """A repeated step must be told the same shape: another plan is another migration."""
    differing = [k for k, v in shape.items() if row.data[k] != v]
    if differing:
        raise Refused(
            f"This migration already began to make {row.data['name']} with another {', '.join(differing)} than is "
            "asked now. Roll it back first, or go on with the plan that was approved."
        )


def _require_shape(seen: TopicInfo, shape: Mapping[str, Any]) -> None:
    found = {e.name: e.value for e in seen.configs.values() if e.set_here}
    wanted = dict(shape["configs"])
    differing = []
    if seen.partitions != shape["partitions"]:
        differing.append(f"{seen.partitions} partitions (planned {shape['partitions']})")
    if seen.replication_factor != shape["replication_factor"]:
        differing.append(f"replication factor {seen.replication_factor} (planned {shape['replication_factor']})")
    for key in sorted(found.keys() | wanted.keys()):
        if found.get(key) != wanted.get(key):
            differing.append(f"{key}={found.get(key, 'not set')} (planned {wanted.get(key, 'not set')})")
    if differing:
        raise Refused(
            f"topic {seen.name} is not what was planned: {', '.join(differing)}. Nothing is changed on a topic "
            "that is there. Choose another target, or delete or correct this one by hand and plan again."
        )


def _require_empty(admin: ClusterAdmin, seen: TopicInfo) -> None:
    rows = admin.offsets(seen.name)
    unread = [
        f"[{p}] {rows[p].error if p in rows else 'no answer'}" for p in range(seen.partitions) if _end(rows, p) is None
    ]
    if unread:
        raise Unreadable(
            f"Whether topic {seen.name} is empty cannot be told: {', '.join(unread)}. Unknown never counts as empty. "
            "Run it again once its partitions can be read."
        )
    used = {p: rows[p].end for p in range(seen.partitions) if rows[p].end}
    if used:
        shown = ", ".join(f"[{p}] ends at {end}" for p, end in list(used.items())[:5])
        raise Refused(
            f"topic {seen.name} holds or has held records ({shown}{', ...' if len(used) > 5 else ''}). Only an empty "
            "topic is used as a target or deleted. Choose another target, or go on forward."
        )


def _end(rows: Mapping[int, Any], partition: int) -> int | None:
    found = rows.get(partition)
    return None if found is None or found.error else found.end
