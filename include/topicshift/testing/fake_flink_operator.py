"""The Flink Kubernetes Operator, played by what its documentation says of it, over a JobManager in memory.

One operator is played in memory and at a real API server: it is given a FlinkDeployment and answers with the status
that is to be written, or with nothing. It was never compared with the real one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from topicshift.core.errors import TopicshiftError
from topicshift.core.flink.ids import trigger_id
from topicshift.core.flink.job import ENDED
from topicshift.core.kubernetes.workload import Json
from topicshift.testing.fake_flink import FakeJob, FakeJobManager

_IGNORED = ("upgradeMode", "allowNonRestoredState", "initialSavepointPath")
_LAST_STATE = "KUBERNETES_OPERATOR_LAST_STATE"


class FakeFlinkOperator:
    """One operator. ``manager`` runs every job, under the id that it is given here.

    ``older``: it keeps the place of a savepoint under ``savepointInfo`` alone; ``blind``: it suspends without noting
    one in the status; ``asleep``: it does nothing; ``snapshots``: FlinkStateSnapshots that it would make, by name.
    """

    def __init__(self, manager: FakeJobManager) -> None:
        self.manager = manager
        self.older = self.blind = self.asleep = False
        self.snapshots: dict[str, Json] = {}
        self._count = 0

    def __call__(self, thing: Json) -> Json | None:
        """The status that is to be written; None where nothing is to be done."""
        before = thing.get("status") or {}
        status = deepcopy(before)
        if not self.asleep:
            self._reconcile(thing, status)
        return status if status != before else None

    # ------------------------------------------------------------------------------------------------- its decisions

    def _reconcile(self, thing: Json, status: Json) -> None:
        spec, generation = thing["spec"], thing["metadata"]["generation"]
        job = status.setdefault("jobStatus", {})
        text = (status.get("reconciliationStatus") or {}).get("lastReconciledSpec")
        if text is None:
            if spec["job"].get("state", "running") == "running":
                self._deploy(thing, status, "", {})
            return
        last = json.loads(text)["spec"]
        one = self.manager.jobs.get(job.get("jobId", ""))
        if last["job"]["state"] == "running" and one is not None:
            job["state"] = one.state
            if one.state == "FAILED":
                status["lifecycleState"] = "FAILED"
        if _plain(last) == _plain(spec):
            status["observedGeneration"] = generation
        elif last["job"]["state"] == "running" and one is not None:
            self._upgrade(thing, status, one)
        elif spec["job"].get("state", "running") == "running":
            self._restore(thing, status, last)

    def _upgrade(self, thing: Json, status: Json, one: FakeJob) -> None:
        """A spec that has changed: its job is stopped first, in a mode that goes by how it is."""
        mode = thing["spec"]["job"].get("upgradeMode", "stateless")
        if mode == "stateless":
            one.state = "CANCELED"
        elif one.state in ENDED:
            mode = "savepoint"
            self._note(thing, status, self._checkpoint(one) if one.completed else "")
        elif one.state != "RUNNING":
            mode, one.state = "last-state", "CANCELED"
            status["jobStatus"]["upgradeSavepointPath"] = _LAST_STATE
            self._checkpoint(one)
        else:
            mode = "savepoint"
            trigger = trigger_id(one.jid, len(one.stops))
            self.manager("POST", f"/jobs/{one.jid}/stop", {"drain": False, "triggerId": trigger})
            if one.stops[trigger]["status"]["id"] == "IN_PROGRESS":
                return
            if not one.savepoint:
                status["error"] = json.dumps({"type": "org.apache.flink.UpgradeFailureException", "message": "hush"})
                return
            self._note(thing, status, one.savepoint)
        status["jobStatus"]["state"] = "FINISHED"
        if thing["spec"]["job"].get("state", "running") == "running":
            self._restore(thing, status, {"job": {"upgradeMode": mode}})
            return
        self._acted(thing, status, "suspended", mode)
        status["lifecycleState"] = "SUSPENDED"

    def _checkpoint(self, one: FakeJob) -> str:
        """The latest checkpoint of a job that has ended, to go on from."""
        path = f"file:/checkpoints/{one.jid}"
        self.manager.saved[path] = {**one.state_of, one.uid: one.topic}
        return path

    def _note(self, thing: Json, status: Json, path: str) -> None:
        if not path:
            return
        self._count += 1
        name = f"{thing['metadata']['name']}-savepoint-upgrade-{self._count}"
        self.snapshots[name] = {"name": thing["metadata"]["name"], "path": path}
        if self.blind:
            return
        if self.older:
            info = status["jobStatus"].setdefault("savepointInfo", {})
            info["lastSavepoint"] = {"location": path, "triggerType": "UPGRADE", "timeStamp": self._count}
        else:
            status["jobStatus"]["upgradeSavepointPath"] = path

    def _restore(self, thing: Json, status: Json, last: Mapping[str, Any]) -> None:
        mode = thing["spec"]["job"].get("upgradeMode", "stateless")
        mode = mode if mode == "stateless" else last["job"].get("upgradeMode", mode)
        job = status["jobStatus"]
        latest = (job.get("savepointInfo") or {}).get("lastSavepoint") or {}
        path = {
            "savepoint": job.get("upgradeSavepointPath") or latest.get("location") or "",
            "last-state": f"file:/checkpoints/{job.get('jobId')}",
        }.get(mode, "")
        self._deploy(thing, status, path, {"upgradeMode": mode})

    def _deploy(self, thing: Json, status: Json, path: str, job: Mapping[str, Any]) -> None:
        self._count += 1
        spec = thing["spec"]["job"]
        jid = f"{self._count:04d}" + "0" * 28
        args, parallelism = spec["args"], int(spec.get("parallelism", 1))
        status["jobStatus"] |= {"jobId": jid, "state": "RUNNING"}
        status.pop("error", None)
        status["lifecycleState"] = "STABLE"
        self._acted(thing, status, "running", job.get("upgradeMode", "stateless"))
        try:
            if path:
                one = self.manager.go_on(jid, args, parallelism, path, bool(spec.get("allowNonRestoredState")))
            else:
                one = self.manager.submit(jid, args, parallelism)
        except TopicshiftError:
            status["jobStatus"]["state"] = status["lifecycleState"] = "FAILED"
            return
        status["jobStatus"] |= {"state": one.state, "startTime": str(one.began), "jobName": one.name}

    def _acted(self, thing: Json, status: Json, state: str, mode: str) -> None:
        """The spec that was acted on, as it was, with what became of it."""
        spec = deepcopy(thing["spec"])
        spec["job"] |= {"state": state, "upgradeMode": mode}
        meta = {"apiVersion": "flink.apache.org/v1beta1", "firstDeployment": False}
        text = json.dumps({"spec": spec, "resource_metadata": meta})
        status["reconciliationStatus"] = {"lastReconciledSpec": text, "state": "DEPLOYED"}
        status["observedGeneration"] = thing["metadata"]["generation"]
        status.pop("error", None)


def _plain(spec: Mapping[str, Any]) -> Json:
    """What of a spec counts as a change."""
    plain = deepcopy(dict(spec))
    plain["job"] = {k: v for k, v in plain["job"].items() if k not in _IGNORED}
    plain["job"].setdefault("state", "running")
    return plain
