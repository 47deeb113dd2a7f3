"""What would keep a FlinkDeployment from being moved, asked before anything is touched."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.adapters.controllers.flink_able import declared, group, runs
from topicshift.adapters.controllers.flink_deployment import Deployed
from topicshift.adapters.controllers.kubernetes_able import owned
from topicshift.adapters.controllers.kubernetes_objects import Right, right_text
from topicshift.core.errors import Transient
from topicshift.core.flink import deployment
from topicshift.core.flink.deployment import Shown, exchanged, setting_of, texts_of
from topicshift.core.kubernetes.workload import Json, Place
from topicshift.ports import ClusterAdmin

DRAINS = "kubernetes.operator.job.drain-on-savepoint-deletion"
FOLDERS = ("execution.checkpointing.savepoint-dir", "state.savepoints.dir")


def unable(access: Deployed, admin: ClusterAdmin) -> list[str]:
    """One line for each fault. Raises as the answers of its API server and its JobManager do."""
    missing = [right for right in rights(access) if not access.objects.may(right)]
    if missing:
        where = f"namespace {access.settings.namespace}"
        return [f"its connection may not {right_text(r)} in {where}" for r in missing]
    thing = access.thing()
    faults = [*_state(access, thing), *owned(access.api, {access.name: thing})]
    if not (thing.get("spec") or {}).get("job"):
        return faults
    faults += [*_words(access, thing), *_flink(thing), *declared(access)]
    seen = Shown.of(thing)
    if seen.runs:
        faults += runs(access, access.job(seen))
    return [*faults, *group(access, admin)]


def rights(access: Deployed) -> Iterator[Right]:
    """What the controller does with one deployment."""
    name = access.settings.deployment
    yield from ((verb, deployment.GROUP, deployment.RESOURCE, name) for verb in ("get", "update"))
    yield ("get", "", "services/proxy", f"{name}-rest:8081")


def _state(access: Deployed, thing: Json) -> Iterator[str]:
    try:
        kept = access.kept(thing)
    except Transient as error:
        yield str(error)
        return
    job, seen = (thing.get("spec") or {}).get("job"), Shown.of(thing)
    if not job:
        yield f"{access.name} runs no job of its own (spec.job); move each job of its session cluster by its jar"
        return
    if kept is not None:
        return
    if seen.wanted != "running" or not seen.runs:
        yield f"{access.name} is {seen.text()}; it has to run before it can be moved and put back"
    elif not seen.seen:
        yield f"the operator of {access.name} has not acted on its spec as it is now (observedGeneration)"
    elif seen.last is None or access.on(seen) != access.ctx.source:
        yield f"what its operator deployed last (lastReconciledSpec) is not on {access.ctx.source}"
    if str(job.get("upgradeMode") or "stateless") == "stateless":
        yield "its upgradeMode is stateless, so it would begin without its state; make it savepoint or last-state"


def _words(access: Deployed, thing: Json) -> Iterator[str]:
    ctx = access.ctx
    places = [(access.place, ctx.source, ctx.target)]
    if access.who.role == "consumer" and access.settings.source_uid is not None:
        places.append((access.uid_place, access.uid(ctx.source), access.uid(ctx.target)))
    for place, now, then in places:
        found = texts_of(thing, place)
        if not found or None in found.values():
            yield f"its {_at(place)} is not there, or is taken from elsewhere (valueFrom); say where {now!r} is written"
        elif now != then and exchanged(thing, place, now, then) is None:
            yield f"its {_at(place)} has to name {now!r} once, and not {then!r}"


def _at(place: Place) -> str:
    return f"key {place.name} of flinkConfiguration" if place.kind == "config" else place.text()


def _flink(thing: Json) -> Iterator[str]:
    if setting_of(thing, DRAINS) == "true":
        yield f"{DRAINS} is true, so a suspend would end it for good (every window fires); set it to false"
    if not any(setting_of(thing, key) for key in FOLDERS):
        yield f"its flinkConfiguration names no folder for savepoints ({FOLDERS[0]})"
