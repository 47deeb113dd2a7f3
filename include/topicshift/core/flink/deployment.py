"""A FlinkDeployment as its API server shows it: what is wanted of its job, and what it says of itself. Pure.

The Flink Kubernetes Operator starts the job again as its resource says. So a job is stopped by ``spec.job.state``, and
what the operator has done is in the status: ``lifecycleState`` is about the spec that it has acted on last, which it
keeps there, and the place of the savepoint is in either of two fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from topicshift.core.kubernetes.workload import BEFORE, Json, Place, notes_of, texts, with_annotations, with_words
from topicshift.core.kubernetes.workload import named as named_in
from topicshift.core.text import parse_json

GROUP, VERSION, RESOURCE, SNAPSHOTS = "flink.apache.org", "v1beta1", "flinkdeployments", "flinkstatesnapshots"
RUNS = ("DEPLOYED", "STABLE")
"""Lifecycle states of a deployment whose operator has done what its spec says, and whose job is to run."""

SUSPENDED = "SUSPENDED"
"""Lifecycle state of one whose job was stopped as its spec says."""

NO_REFERENCE = "KUBERNETES_OPERATOR_LAST_STATE"
"""What stands in the place of a savepoint's address where the operator goes on from its latest checkpoint."""

_FIELDS = ("state", "upgradeMode", "allowNonRestoredState")
_Texts = dict[tuple[str | int, ...], str | None]


def path_of(namespace: str, name: str = "", resource: str = RESOURCE) -> str:
    """Where the API server has a FlinkDeployment (or a snapshot), or all of them."""
    all_ = f"/apis/{GROUP}/{VERSION}/namespaces/{quote(namespace)}/{resource}"
    return f"{all_}/{quote(name)}" if name else all_


def manager_path(namespace: str, name: str) -> str:
    """Where the API server passes requests on to the JobManager of a deployment, by its service."""
    return f"/api/v1/namespaces/{quote(namespace)}/services/{quote(name)}-rest:8081/proxy"


# ------------------------------------------------------------------------------------------------------ the words


def texts_of(thing: Mapping[str, Any], place: Place) -> _Texts:
    """Every text at this place, by its path: arguments of the job, a variable of its pods, or a key of Flink's own."""
    spec = thing.get("spec") or {}
    if place.kind == "args":
        return {("spec", "job", "args", n): str(a) for n, a in enumerate((spec.get("job") or {}).get("args") or ())}
    if place.kind == "config":
        return {("spec", "flinkConfiguration", *at): text for at, text in _keyed(spec, place.name)}
    found: _Texts = {}
    for part in ((), ("jobManager",), ("taskManager",)):
        holder = spec if not part else spec.get(part[0]) or {}
        template = texts(holder.get("podTemplate") or {}, place, None)
        found |= {("spec", *part, "podTemplate", *at): text for at, text in template.items()}
    return found


def _keyed(spec: Mapping[str, Any], key: str) -> list[tuple[tuple[str, ...], str | None]]:
    """A key of the configuration, which may be written flat or as nested objects."""
    found: Any = spec.get("flinkConfiguration") or {}
    if key in found:
        return [((key,), _text(found[key]))]
    steps = tuple(key.split("."))
    for step in steps:
        if not isinstance(found, Mapping) or step not in found:
            return []
        found = found[step]
    return [(steps, _text(found))]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def setting_of(thing: Mapping[str, Any], key: str) -> str:
    """A key of its Flink configuration as text; empty where it is not there."""
    found = _keyed(thing.get("spec") or {}, key)
    value: Any = (thing.get("spec") or {}).get("flinkConfiguration") or {}
    for step in found[0][0] if found else ():
        value = value[step]
    return str(value).lower() if found else ""


def named(thing: Mapping[str, Any], place: Place, one: str, other: str) -> str | None:
    """Which of two words the texts at this place name, None for neither or both."""
    return named_in(texts_of(thing, place), one, other)


def exchanged(thing: Json, place: Place, old: str, new: str) -> Json | None:
    """A copy that names ``new`` for ``old`` at this place; None where it does not name ``old`` once and alone."""
    return with_words(thing, texts_of(thing, place), old, new, one=place.kind == "args")


# ------------------------------------------------------------------------------------------------- what was there


@dataclass(frozen=True)
class Kept:
    """What was there before a job was stopped, as the annotation of its deployment keeps it.

    ``job``: fields of ``spec.job``, None for one that was not there; ``references``: addresses of savepoints that the
    status showed already.
    """

    migration: str
    job: Mapping[str, Any]
    references: Sequence[str]

    def text(self) -> str:
        """As it is written."""
        return json.dumps({"migration": self.migration, "job": self.job, "references": self.references}, sort_keys=True)


def kept_of(thing: Mapping[str, Any]) -> Kept | None:
    """What its annotation keeps, None without one. Raises ``ValueError`` for one that is not ours."""
    text = notes_of(thing).get(BEFORE)
    if text is None:
        return None
    try:
        found = parse_json(text)
        return Kept(str(found["migration"]), dict(found["job"]), tuple(map(str, found["references"])))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"its annotation {BEFORE} is not understood ({type(error).__name__})") from None


def kept_now(thing: Mapping[str, Any], migration: str) -> Kept:
    """What is to be kept of it as it is now."""
    job = (thing.get("spec") or {}).get("job") or {}
    seen = Shown.of(thing)
    return Kept(migration, {field: job.get(field) for field in _FIELDS}, seen.references)


def suspended(thing: Json, kept: Kept) -> Json:
    """A copy that is to be stopped with a savepoint, with this annotation."""
    made = with_annotations(thing, {BEFORE: kept.text()})
    made["spec"]["job"] |= {"state": "suspended", "upgradeMode": "savepoint"}
    return made


def resumed(thing: Json, kept: Kept) -> Json:
    """A copy that is to run, with the upgrade mode of before; the rest is put back once it does."""
    return _with_job(thing, kept, ("state", "upgradeMode"))


def restored(thing: Json, kept: Kept) -> Json:
    """A copy with every field of before but its words, without the annotation."""
    return _with_job(with_annotations(thing, {BEFORE: None}), kept, _FIELDS)


def leaving(thing: Json, kept: Kept, leaves: bool) -> Json:
    """A copy that may leave state behind that no operator takes up, or, as before, may not."""
    made = _with_job(thing, kept, ("allowNonRestoredState",))
    if leaves:
        made["spec"]["job"]["allowNonRestoredState"] = True
    return made


def _with_job(thing: Json, kept: Kept, fields: Sequence[str]) -> Json:
    made = deepcopy(thing)
    for field in fields:
        if kept.job.get(field) is None:
            made["spec"]["job"].pop(field, None)
        else:
            made["spec"]["job"][field] = kept.job[field]
    return made


# ------------------------------------------------------------------------------------------------------- its status


@dataclass(frozen=True)
class Shown:
    """What a deployment says of itself. ``last``: the spec that its operator has acted on last, None without one.

    ``wanted``: ``running`` or ``suspended``; ``seen``: its operator has acted on the spec as it is now; ``failure``:
    the class of what its operator could not do; ``references``: what its status has of savepoints, the one that its
    operator would start from first.
    """

    wanted: str
    lifecycle: str
    job: str
    jid: str
    seen: bool
    failure: str
    references: tuple[str, ...]
    last: Json | None

    @classmethod
    def of(cls, thing: Mapping[str, Any]) -> Shown:
        """From the object."""
        meta, status = thing.get("metadata") or {}, thing.get("status") or {}
        job = status.get("jobStatus") or {}
        latest = (job.get("savepointInfo") or {}).get("lastSavepoint") or {}
        found = (job.get("upgradeSavepointPath"), latest.get("location"))
        return cls(
            str(((thing.get("spec") or {}).get("job") or {}).get("state") or "running").lower(),
            str(status.get("lifecycleState") or ""),
            str(job.get("state") or ""),
            str(job.get("jobId") or ""),
            int(status.get("observedGeneration") or 0) >= int(meta.get("generation") or 0),
            _failure(status.get("error")),
            tuple(str(r) for r in found if r),
            _last((status.get("reconciliationStatus") or {}).get("lastReconciledSpec")),
        )

    @property
    def runs(self) -> bool:
        """Whether its operator has deployed it and sees its job running."""
        return self.lifecycle in RUNS and self.job == "RUNNING"

    @property
    def stands(self) -> bool:
        """Whether its operator has suspended it. Where it goes on from is another question."""
        return self.lifecycle == SUSPENDED

    @property
    def mode(self) -> str:
        """How its operator has carried its state along last: ``savepoint``, ``last-state`` or ``stateless``."""
        return str(((self.last or {}).get("spec", {}).get("job") or {}).get("upgradeMode") or "").lower()

    def text(self) -> str:
        """In words."""
        said = f"{self.lifecycle or 'without a lifecycle state'}, its job {self.job or 'without a state'}"
        return said + (f"; its operator says {self.failure}" if self.failure else "")

    def reference(self, kept: Kept | None) -> str:
        """The savepoint that its operator would start it from; empty where there is none that was taken since.

        One that was there before it was stopped is an old one: its job would write again what it has written.
        """
        if self.mode != "savepoint" or not self.references:
            return ""
        first = self.references[0]
        return "" if first == NO_REFERENCE or (kept is not None and first in kept.references) else first

    def why_none(self) -> str:
        """Why it has no savepoint to go on from, in words."""
        if self.mode == "last-state":
            return "its operator has stopped it without a savepoint (last-state), since it did not run"
        return "it is SUSPENDED, and its status has no savepoint that was taken since it was stopped"


def _last(text: Any) -> Json | None:
    """The spec that was acted on last: under ``spec``, or, of older operators, by itself."""
    try:
        found = parse_json(str(text)) if text else None
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    inner = found.get("spec")
    return {"spec": inner if isinstance(inner, dict) else found}


def _failure(error: Any) -> str:
    """The class of a failure: its message may quote a setting."""
    if not error:
        return ""
    try:
        found = parse_json(str(error))
        name = str(found.get("type") or "") if isinstance(found, Mapping) else ""
    except ValueError:
        name = ""
    return re.split(r"[:\s]", name, maxsplit=1)[0][:120] or "that something failed"
