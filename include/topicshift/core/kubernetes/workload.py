"""A workload as its API server shows it: its replicas, its pods, and where it names its topic. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from topicshift.core.kafka.named import exchanged, names
from topicshift.core.text import parse_json

Json = dict[str, Any]

RESOURCES = {
    "Deployment": ("apps", "v1", "deployments"),
    "StatefulSet": ("apps", "v1", "statefulsets"),
    "Rollout": ("argoproj.io", "v1alpha1", "rollouts"),
}
"""Kinds of workload that can be moved: API group, version and resource."""

BEFORE = "topicshift/before"
"""Annotation of the workload: what was there before it was stopped. It is there from the stop to the start."""

_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Place:
    """Where the topic is named: ``env`` (a variable), ``args`` (of a container) or ``configmap`` (name and key)."""

    kind: str
    name: str = ""
    key: str = ""

    @classmethod
    def of(cls, text: str) -> Place:
        """From ``env:NAME``, ``args`` or ``configmap:NAME/KEY``."""
        kind, _, rest = text.partition(":")
        name, _, key = rest.partition("/")
        return cls(kind, name, key)

    def text(self) -> str:
        """In words."""
        if self.kind == "configmap":
            return f"key {self.key} of ConfigMap {self.name}"
        return f"environment variable {self.name}" if self.kind == "env" else "arguments"


@dataclass(frozen=True)
class Before:
    """What was there before a workload was stopped, as its annotation keeps it.

    ``scalers``: of each autoscaler, by ``KIND/NAME``, the fields that are changed to pause it.
    """

    migration: str
    replicas: int
    scalers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def text(self) -> str:
        """As it is written."""
        return json.dumps(
            {"migration": self.migration, "replicas": self.replicas, "scalers": self.scalers}, sort_keys=True
        )


def path_of(kind: str, namespace: str, name: str = "") -> str:
    """Where the API server has a workload, or all of its kind."""
    group, version, resource = RESOURCES[kind]
    return f"/apis/{group}/{version}/namespaces/{quote(namespace)}/{resource}" + (f"/{quote(name)}" if name else "")


def notes_of(thing: Mapping[str, Any]) -> dict[str, str]:
    """The annotations of an object."""
    return dict(thing.get("metadata", {}).get("annotations") or {})


def with_annotations(thing: Json, changes: Mapping[str, str | None]) -> Json:
    """A copy of the object with these annotations; None takes one away."""
    made = deepcopy(thing)
    now = notes_of(made) | {k: v for k, v in changes.items() if v is not None}
    now = {k: v for k, v in now.items() if k not in changes or changes[k] is not None}
    if now:
        made["metadata"]["annotations"] = now
    else:
        made["metadata"].pop("annotations", None)
    return made


def before_of(thing: Mapping[str, Any]) -> Before | None:
    """What its annotation keeps, None without one. Raises ``ValueError`` for one that is not ours."""
    text = notes_of(thing).get(BEFORE)
    if text is None:
        return None
    try:
        found = parse_json(text)
        return Before(str(found["migration"]), int(found["replicas"]), dict(found["scalers"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"its annotation {BEFORE} is not understood ({type(error).__name__})") from None


def replicas(thing: Mapping[str, Any]) -> int:
    """How many pods are wanted; the API server fills in what was left out."""
    return int(thing.get("spec", {}).get("replicas", 1))


def scaled(thing: Json, count: int, before: Before | None) -> Json:
    """A copy with this many replicas, and this annotation (None: without one)."""
    made = with_annotations(thing, {BEFORE: before.text() if before is not None else None})
    made["spec"]["replicas"] = count
    return made


def selector(thing: Mapping[str, Any]) -> str:
    """Its label selector, as a list of pods takes it. Raises ``ValueError`` for one that selects everything."""
    spec = thing.get("spec", {}).get("selector") or {}
    parts = [f"{k}={v}" for k, v in sorted((spec.get("matchLabels") or {}).items())]
    for one in spec.get("matchExpressions") or ():
        key, operator, values = one["key"], one["operator"], ",".join(one.get("values") or ())
        parts.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": key,
                "DoesNotExist": f"!{key}",
            }[operator]
        )
    if not parts:
        raise ValueError("its selector selects every pod")
    return ",".join(parts)


# ------------------------------------------------------------------------------------------------------- the topic


def _containers(template: Mapping[str, Any], only: str | None) -> Iterator[tuple[tuple[str | int, ...], Json]]:
    spec = template.get("spec") or {}
    for part in ("initContainers", "containers"):
        for n, one in enumerate(spec.get(part) or ()):
            if only is None or one.get("name") == only:
                yield ("spec", part, n), one


def texts(template: Mapping[str, Any], place: Place, only: str | None) -> dict[tuple[str | int, ...], str | None]:
    """Every text of a pod (or of a template of pods) at this place, by its path; None for one that is not a text there.

    Of ``env`` the values of the variable in each container (or in ``only``), of ``args`` all of command and args.
    """
    found: dict[tuple[str | int, ...], str | None] = {}
    for at, container in _containers(template, only):
        if place.kind == "env":
            for n, variable in enumerate(container.get("env") or ()):
                if variable.get("name") == place.name:
                    found[*at, "env", n, "value"] = variable.get("value")
        elif place.kind == "args":
            for part in ("command", "args"):
                found |= {(*at, part, n): str(text) for n, text in enumerate(container.get(part) or ())}
    return found


def at_place(thing: Mapping[str, Any], place: Place, only: str | None) -> dict[tuple[str | int, ...], str | None]:
    """The texts at this place of a ConfigMap, or of a workload's template."""
    if place.kind == "configmap":
        return {("data", place.key): (thing.get("data") or {}).get(place.key)}
    template = texts(thing.get("spec", {}).get("template") or {}, place, only)
    return {("spec", "template", *at): text for at, text in template.items()}


def named(found: Mapping[tuple[str | int, ...], str | None], source: str, target: str) -> str | None:
    """Which of the two topics these texts name, None for neither or both."""
    on = {t for t in (source, target) for text in found.values() if text is not None and names(text, t)}
    return on.pop() if len(on) == 1 else None


def pointed(thing: Json, place: Place, only: str | None, old: str, new: str) -> Json | None:
    """A copy that names ``new`` in the place of ``old``; None where it does not name ``old`` in the one way expected.

    Each text of a variable has to name it once; of the arguments, one has to, and once. None may name ``new``.
    """
    return with_words(thing, at_place(thing, place, only), old, new, one=place.kind == "args")


def with_words(
    thing: Json, found: Mapping[tuple[str | int, ...], str | None], old: str, new: str, *, one: bool
) -> Json | None:
    """A copy with ``new`` for ``old`` in these texts, by their paths; ``one``: one alone of them names it, else each.

    None where they do not name it so, once each, or one of them names ``new``.
    """
    changes = {}
    for at, text in found.items():
        changed = exchanged(text or "", old, new)
        if changed is not None:
            changes[at] = changed
        elif not one or names(text or "", old) or names(text or "", new):
            return None
    if not changes or (one and len(changes) != 1):
        return None
    made: Any = deepcopy(thing)
    for at, text in changes.items():
        inner = made
        for step in at[:-1]:
            inner = inner[step]
        inner[at[-1]] = text
    return made  # type: ignore[no-any-return]


# ---------------------------------------------------------------------------------------------------------- pods


@dataclass(frozen=True)
class Pod:
    """A pod that has not ended. ``owner``: what controls it, as ``KIND/NAME``. ``why``: why it is not ready."""

    name: str
    owner: str
    topic: str | None
    ready: bool
    ending: bool
    why: str

    def text(self) -> str:
        """Its name, and what is the matter."""
        return f"{self.name} (it ends)" if self.ending else f"{self.name} ({self.why})" if self.why else self.name


def pods_of(found: Sequence[Json], place: Place, only: str | None, source: str, target: str) -> list[Pod]:
    """The pods that may still run something: all but those whose phase says that every container has ended."""
    return sorted(
        (_pod(p, place, only, source, target) for p in found if (p.get("status") or {}).get("phase") not in _ENDED),
        key=lambda p: p.name,
    )


def _pod(pod: Json, place: Place, only: str | None, source: str, target: str) -> Pod:
    meta, status = pod["metadata"], pod.get("status") or {}
    owner = next((o for o in meta.get("ownerReferences") or () if o.get("controller")), None)
    conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or ()}
    ending = bool(meta.get("deletionTimestamp"))
    ready = conditions.get("Ready") == "True" and not ending
    topic = None if place.kind == "configmap" else named(texts(pod, place, only), source, target)
    return Pod(
        str(meta["name"]),
        f"{owner['kind']}/{owner['name']}" if owner else "",
        topic,
        ready,
        ending,
        "" if ready else _why(status),
    )


def _why(status: Mapping[str, Any]) -> str:
    """Why a pod is not ready: the reason that a container waits or ended for, never a message, which may quote."""
    for one in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        for state in ("waiting", "terminated"):
            reason = ((one.get("state") or {}).get(state) or {}).get("reason")
            if reason:
                return str(reason)
    return f"{status.get('phase') or 'Pending'}, not ready"


def foreign(pods: Sequence[Pod], kind: str, name: str) -> list[Pod]:
    """Pods that match the selector and that something else controls, or nobody."""
    if kind == "StatefulSet":
        return [p for p in pods if p.owner != f"{kind}/{name}"]
    # Deployments and Rollouts have a ReplicaSet for each template, named after themselves and a hash.
    mine = f"ReplicaSet/{name}-"
    return [p for p in pods if not p.owner.startswith(mine) or "-" in p.owner.removeprefix(mine)]


# ---------------------------------------------------------------------------------------------------- comparison

_KEPT = ("resourceVersion", "generation", "managedFields")
_Path = tuple[str | int, ...]


def differing(before: Any, after: Any, at: _Path = ()) -> list[_Path]:
    """Paths at which two objects of the API differ, but for the status, and what the server keeps in ``metadata``."""
    if at == ("status",) or (at[:1] == ("metadata",) and at[1:2] and at[1] in _KEPT):
        return []
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = sorted({*before, *after})
        return [d for k in keys for d in differing(before.get(k), after.get(k), (*at, k))]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [d for n, (b, a) in pairs for d in differing(b, a, (*at, n))]
    return [] if before == after else [at]


def not_as_written(seen: Any, wanted: Any, shown: Any) -> list[str]:
    """Where an object shows otherwise than it was written, as JSON pointers.

    What was neither there nor written is a value that the server fills in, and is passed over.
    """
    found = (d for d in differing(wanted, shown) if _there(wanted, d) or _there(seen, d))
    return ["/" + "/".join(str(step).replace("~", "~0").replace("/", "~1") for step in d) for d in found]


def _there(thing: Any, path: _Path) -> bool:
    for step in path:
        try:
            thing = thing[step]
        except (KeyError, IndexError, TypeError):
            return False
    return thing is not None
