"""Who puts an object back when somebody changes it: Argo CD, Flux, or a controller of its own. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from topicshift.core.kubernetes.workload import notes_of

TRACKED = "argocd.argoproj.io/tracking-id"
SKIPPED = "argocd.argoproj.io/skip-reconcile"
FLUX = {
    "kustomize.toolkit.fluxcd.io": ("Kustomization", "kustomizations", "kustomize.toolkit.fluxcd.io/reconcile"),
    "helm.toolkit.fluxcd.io": ("HelmRelease", "helmreleases", "helm.toolkit.fluxcd.io/driftDetection"),
}
_MANAGERS = {
    "argocd-controller": "Argo CD",
    "argocd-application-controller": "Argo CD",
    "kustomize-controller": "Flux",
    "helm-controller": "Flux",
}


@dataclass(frozen=True)
class Owner:
    """What keeps an object as Git has it. ``name`` is empty where the object does not say which one it is."""

    tool: str
    kind: str
    group: str
    resource: str
    namespace: str
    name: str

    def text(self) -> str:
        """In words."""
        return f"{self.tool} {self.kind} {self.namespace + '/' if self.namespace else ''}{self.name}".strip()


def owner_of(thing: Mapping[str, Any]) -> Owner | None:
    """The tool that would put the object back, None where nothing says that there is one.

    Argo CD is known by its tracking annotation, Flux by its labels, both by their entry in ``managedFields``. An object
    that Flux is told to leave alone by an annotation of its own has none.
    """
    meta = thing.get("metadata") or {}
    labels, notes = dict(meta.get("labels") or {}), notes_of(thing)
    for group, (kind, resource, switch) in FLUX.items():
        name = labels.get(f"{group}/name")
        if name and notes.get(switch) == "disabled":
            return None
        if name:
            return Owner("Flux", kind, group, resource, labels.get(f"{group}/namespace", ""), name)
    if notes.get(TRACKED):
        name = notes[TRACKED].split(":", 1)[0]
        namespace, _, name = name.rpartition("_")
        return Owner("Argo CD", "Application", "argoproj.io", "applications", namespace, name)
    for entry in meta.get("managedFields") or ():
        tool = _MANAGERS.get(str(entry.get("manager")))
        if tool:
            return Owner(tool, "", "", "", "", str(labels.get("app.kubernetes.io/instance", "")))
    return None


def is_paused(owner: Owner, found: Mapping[str, Any]) -> bool:
    """Whether the tool says of itself that it leaves its objects alone now, by the object that it goes by."""
    spec = found.get("spec") or {}
    if owner.tool == "Flux":
        drift = (spec.get("driftDetection") or {}).get("mode", "disabled")
        return spec.get("suspend") is True or (owner.kind == "HelmRelease" and drift != "enabled")
    automated = (spec.get("syncPolicy") or {}).get("automated")
    if notes_of(found).get(SKIPPED) == "true":
        return True
    return automated is None or automated.get("enabled") is False


def way(owner: Owner) -> str:
    """How a person keeps the tool from putting it back, and how Git comes to name the target afterwards."""
    where = f" -n {owner.namespace}" if owner.namespace else ""
    if owner.tool == "Flux" and owner.kind:
        kind = owner.kind.lower()
        stop, on = f"flux suspend {kind} {owner.name}{where}", f"flux resume {kind} {owner.name}{where}"
    elif owner.tool == "Flux":
        stop, on = "suspend its Kustomization or HelmRelease", "resume it"
    else:
        name = owner.name or "APPLICATION"
        stop, on = f"argocd app set {name} --sync-policy none", "set the policy again"
    return (
        f"Pause it for the migration ({stop}); when the migration is done, let Git name the target, and only then "
        f"{on}: otherwise the application is sent back to the source"
    )


def controller_of(thing: Mapping[str, Any]) -> str:
    """What controls the object within the cluster (an operator's own resource), as ``KIND/NAME``; empty if nothing."""
    for owner in (thing.get("metadata") or {}).get("ownerReferences") or ():
        if owner.get("controller"):
            return f"{owner.get('kind')}/{owner.get('name')}"
    return ""
