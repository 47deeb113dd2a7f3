"""A small kubelet: runs a local process for each pod that the API server has, and reports what it sees of it.

It binds pods to its own node, starts the command of their first container with its environment (values of ConfigMaps
included), reports Running and Ready while the process lives, starts it again where it ends, and, when a pod is deleted,
ends the process in order and lets the pod go. Images, volumes, probes and further containers are not played.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.process import GuardedProcess
from topicshift.adapters.rest import Ask
from topicshift.core.errors import TopicshiftError

NODE = "lab"
_LOOKS_S = 0.1
_BACKOFF_S = 1.0
_GRACE_S = 30

Json = dict[str, Any]


class Kubelet:
    """Plays the node of every pod of a namespace. Start it, and stop it at the end.

    Args:
        ask: asks the API server, with all rights.
        namespace: whose pods it runs.
        folder: takes the output of their processes.
        environment: what every process finds beside what its pod says.
    """

    def __init__(self, ask: Ask, namespace: str, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self._ask, self.namespace, self._folder = ask, namespace, folder
        self._environment = {"PATH": os.environ["PATH"], **(environment or {})}
        self._running: dict[str, GuardedProcess] = {}
        self._ended: dict[str, float] = {}
        self._lasts: dict[str, int] = {}
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self.holds: set[str] = set()
        """Pods whose name begins with one of these end only when it is taken out."""

    def start(self) -> Kubelet:
        """Begin to look."""
        self._thread = threading.Thread(target=self._loop, name=f"kubelet-{self.namespace}", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End every process, and look no more."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(60)
        for child in self._running.values():
            child.kill()
        self._running.clear()

    def processes(self) -> list[str]:
        """Names of the pods whose process lives."""
        return sorted(uid.partition("/")[2] for uid, child in list(self._running.items()) if child.alive)

    def _loop(self) -> None:
        while not self._stopping.wait(_LOOKS_S):
            with contextlib.suppress(TopicshiftError):  # asked again
                self._look()

    def _look(self) -> None:
        pods = self._ask("GET", self._path(), None)["items"]
        known = {self._key(p): p for p in pods}
        for key in [k for k in self._running if k not in known]:
            # Deleted by force: the process lives on until it ends, as on a real node that hears of it late.
            self._end(key)
        for key, pod in known.items():
            if pod["metadata"].get("deletionTimestamp"):
                self._let_go(key, pod)
            else:
                self._play(key, pod)

    def _play(self, key: str, pod: Json) -> None:
        if not pod["spec"].get("nodeName"):
            name = pod["metadata"]["name"]
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            self._ask("POST", f"{self._path(name)}/binding", binding)
        child = self._running.get(key)
        if child is None:
            child = self._running[key] = self._process(key, pod)
            child.start()
        elif not child.alive:
            self._ended.setdefault(key, time.monotonic())
            if time.monotonic() - self._ended[key] > _BACKOFF_S:
                self._lasts[key] = self._lasts.get(key, 0) + 1
                del self._ended[key]
                child.start()
        self._report(pod, child.alive, self._lasts.get(key, 0))

    def _report(self, pod: Json, alive: bool, restarts: int) -> None:
        ready = "True" if alive else "False"
        state = {"running": {}} if alive else {"waiting": {"reason": "CrashLoopBackOff"}}
        container = {"name": pod["spec"]["containers"][0]["name"], "ready": alive, "restartCount": restarts}
        container |= {"image": "lab", "imageID": "", "state": state}
        conditions = [{"type": t, "status": ready} for t in ("Ready", "ContainersReady")]
        seen = pod.get("status", {})
        now = {c["type"]: c["status"] for c in seen.get("conditions") or ()}
        if seen.get("phase") == "Running" and now.get("Ready") == ready:
            return
        status = {**seen, "phase": "Running", "conditions": conditions, "containerStatuses": [container]}
        self._ask("PUT", f"{self._path(pod['metadata']['name'])}/status", {**pod, "status": status})

    def _let_go(self, key: str, pod: Json) -> None:
        name = pod["metadata"]["name"]
        if any(name.startswith(held) for held in self.holds):
            return
        child = self._running.get(key)
        if child is not None and child.alive:
            since = self._ended.setdefault(key, time.monotonic())
            child.ask_to_stop()
            if time.monotonic() - since < _GRACE_S:
                return
        self._end(key)
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        self._ask("DELETE", self._path(name), {"apiVersion": "v1", "kind": "DeleteOptions", **options})

    def _end(self, key: str) -> None:
        child = self._running.pop(key, None)
        self._ended.pop(key, None)
        self._lasts.pop(key, None)
        if child is not None:
            child.stop()

    def _process(self, key: str, pod: Json) -> GuardedProcess:
        container = pod["spec"]["containers"][0]
        name = pod["metadata"]["name"]
        command = [*(container.get("command") or ()), *(container.get("args") or ())]
        env = {**self._environment, "POD_NAME": name, **self._variables(container)}
        return GuardedProcess(name, command, log=self._folder / f"{name}.log", env=env)

    def _variables(self, container: Json) -> dict[str, str]:
        found: dict[str, str] = {}
        for one in container.get("envFrom") or ():
            found |= self._config_map(one["configMapRef"]["name"])
        for one in container.get("env") or ():
            if "valueFrom" in one:
                ref = one["valueFrom"]["configMapKeyRef"]
                found[one["name"]] = self._config_map(ref["name"])[ref["key"]]
            else:
                found[one["name"]] = one.get("value", "")
        return found

    def _config_map(self, name: str) -> dict[str, str]:
        data: dict[str, str] = self._ask("GET", f"/api/v1/namespaces/{self.namespace}/configmaps/{name}", None)["data"]
        return data

    def _path(self, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods" + (f"/{name}" if name else "")

    def _key(self, pod: Json) -> str:
        return f"{pod['metadata']['uid']}/{pod['metadata']['name']}"
