"""What an Argo Rollout needs besides a Deployment: a new template has to be promoted before pods are started. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def wrong(rollout: Mapping[str, Any]) -> Iterator[str]:
    """What would keep a Rollout from being moved.

    Steps other than weights run with 0 replicas, too: a pause would hold the new template back, a scale would start
    pods; and a strategy blueGreen starts pods of the old template beside the new ones.
    """
    spec, status = rollout.get("spec") or {}, rollout.get("status") or {}
    strategy = spec.get("strategy") or {}
    if spec.get("workloadRef"):
        yield "it takes its pods from elsewhere (workloadRef), so its topic is not named in it"
    if "canary" not in strategy:
        yield "its strategy is not canary, so pods of the old template would be started beside the new ones"
    steps = (strategy.get("canary") or {}).get("steps") or ()
    others = sorted({key for step in steps for key in step if key != "setWeight"})
    if others:
        yield f"its canary steps have {', '.join(others)}, which run with 0 replicas as well; take them out first"
    if status.get("pauseConditions") or status.get("abort"):
        yield "it is paused or aborted, so it ignores its replicas; promote it or retry it first"
    elif status.get("phase") != "Healthy" or not promoted(rollout):
        yield f"its update is not finished ({status.get('phase') or 'no phase'}); it has to run before it can be moved"


def promoted(rollout: Mapping[str, Any]) -> bool:
    """Whether pods that are started now are of its newest template alone, as its controller says."""
    meta, status = rollout.get("metadata") or {}, rollout.get("status") or {}
    seen = str(status.get("observedGeneration") or "") == str(meta.get("generation"))
    return bool(seen and status.get("stableRS") and status.get("stableRS") == status.get("currentPodHash"))
