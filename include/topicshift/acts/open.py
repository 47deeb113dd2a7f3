"""Open a migration: resolve the target's name, and lock both topics."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

from topicshift.core.errors import NotFound, Refused
from topicshift.core.plan.model import Plan, resolve_target
from topicshift.core.rehearsal import shadow_spec
from topicshift.core.spec.model import Mode, Spec
from topicshift.core.spec.shadows import mark_of_run, real_name
from topicshift.ports import Claim, ClusterAdmin, Journal, MigrationRow

REHEARSAL_OF = "rehearsal_of"
"""Kind of the event that keeps the spec of the migration itself: the row of a rehearsal has that of its shadow."""


def open_migration(
    spec: Spec,
    *,
    admin: ClusterAdmin,
    journal: Journal,
    owner: str,
    owner_alive: Callable[[str], bool | None],
) -> tuple[Claim, MigrationRow]:
    """Lock source and target for ``owner`` and return the claim and its row.

    Repeated by the same owner it returns the same claim, with the target's name as it was resolved then. Raises
    ``NotFound`` for a source that does not exist, ``Refused`` naming the owner if another run holds a topic.
    """
    cluster, asked = admin.cluster(), spec
    if spec.mode is Mode.REHEARSE:
        spec = _shadow(spec, admin, journal, owner)
    before = [r for r in journal.find(owner=owner) if r.source == spec.source and r.cluster_id == cluster.cluster_id]
    if before and spec.target in (None, before[-1].target):
        target = before[-1].target
    else:
        names = admin.topic_names()
        if (real_name(spec.source) or spec.source) not in names:
            near = ", ".join(near_names(spec.source, names))
            raise NotFound(
                f"source: topic {spec.source!r} does not exist on this cluster (or this principal may not see it). "
                + (f"There are: {near}. " if near else "")
                + "Correct `source`, or grant DESCRIBE on it."
            )
        target = resolve_target(spec, names, [r.target for r in journal.find(active=True)])
    claim = journal.claim(
        cluster_id=cluster.cluster_id,
        source=spec.source,
        target=target,
        owner=owner,
        spec=spec.model_copy(update={"target": target}).model_dump(mode="json"),
        owner_alive=owner_alive,
    )
    if asked.mode is Mode.REHEARSE and not journal.events(claim.migration_id, (REHEARSAL_OF,)):
        journal.event(claim, REHEARSAL_OF, owner, {"of": asked.source, "spec": asked.model_dump(mode="json")})
    return claim, journal.current(claim.migration_id)


def _shadow(spec: Spec, admin: ClusterAdmin, journal: Journal, owner: str) -> Spec:
    """The spec of the shadow of this run. It locks the shadow's topics alone, so it is in nobody's way."""
    if real_name(spec.source):
        raise Refused(f"source: {spec.source} is the shadow topic of a rehearsal. Name {real_name(spec.source)}.")
    taken = [r.target for r in journal.find(active=True)]
    return shadow_spec(spec, spec.target or resolve_target(spec, admin.topic_names(), taken), mark_of_run(owner))


def near_names(wanted: str, names: Iterable[str]) -> list[str]:
    """Up to five names that hold the wanted one, or that it may be a slip of the pen for."""
    known = {n.lower(): n for n in sorted(names) if not n.startswith("__")}
    holding = [n for low, n in known.items() if wanted.lower() in low]
    close = [known[low] for low in difflib.get_close_matches(wanted.lower(), list(known), n=5)]
    return list(dict.fromkeys([*holding, *close]))[:5]


def differences(before: Plan, after: Plan) -> list[str]:
    """What differs between two plans, in words."""
    out = []
    a, b = set(before.lines()[2:]), set(after.lines()[2:])
    out += [f"no longer: {line.strip()}" for line in before.lines()[2:] if line not in b and line.strip()]
    out += [f"new: {line.strip()}" for line in after.lines()[2:] if line not in a and line.strip()]
    if before.source != after.source:
        out.append(f"the source was {before.source}, it is {after.source}")
    if before.target != after.target:
        out.append("the shape of the target differs")
    return out or ["something that the plan's hash covers"]
