"""Migrations that Airflow drives, and faults of its processes and tasks."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psutil
from tests.chaos.faults import CLASSES, SPARK_RUNS, Class, NotNow, Struck, void
from tests.chaos.part import STOPS, Part
from tests.chaos.parts import Cluster, is_driver

from lab.airflow_api import AirflowApi, AirflowError
from lab.demo import ANSWER_AFTER_S, DAG_IDS
from lab.postgres import EmbeddedPostgres, create_database
from lab.process import marked
from lab.stack import Stack

if TYPE_CHECKING:
    from lab.airflow_services import AirflowServices

AWAY = (AirflowError, httpx.HTTPError)
"""Airflow does not answer at this moment."""

SOONER = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
}
"""Airflow tries a task again soon after its worker has died; an API server that comes back is no death."""

RUN_ENDS_S = 120.0
"""Within this time after its migration has ended the run has ended as well."""

AGAIN_S = 5.0
"""Whoever is on call clears what has failed after this time."""


class AirflowCluster(Cluster):
    """The stack with Airflow; the journal lives in a PostgreSQL apart from Airflow's own database."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.stack = Stack(folder / "stack", environment=SOONER)

    def __enter__(self) -> AirflowCluster:
        with contextlib.ExitStack() as stack:
            self.postgres = stack.enter_context(EmbeddedPostgres())
            self.journal_url = self.stack.journal_url = create_database(self.postgres.url, "topicshift")
            stack.callback(self.stack.stop)
            self.stack.start()
            self.broker = self.stack.broker
            self._stack = stack.pop_all()
        return self

    @property
    def evidence(self) -> Path:
        return self.stack.evidence

    def properties(self, user: str) -> Path:
        return self.stack.properties_file(user)

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "TOPICSHIFT_HOME": str(self.stack.home)} | self._work()

    def _work(self) -> dict[str, str]:
        return {"TOPICSHIFT_WORK": str(self.stack.home / "work")}


class AirflowPart(Part):
    """One migration that a DAG run drives; somebody on call clears what fails."""

    cluster: AirflowCluster
    run_id = ""
    _failed_at = 0.0
    _looked_at = 0.0
    run_state = ""
    tries = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._asked: dict[str, float] = {}

    @classmethod
    def classes(cls) -> dict[str, Class]:
        return CLASSES | AIRFLOW_CLASSES

    @property
    def dag_id(self) -> str:
        return DAG_IDS[self.cutover]

    @property
    def api(self) -> AirflowApi:
        return self.cluster.stack.airflow

    @property
    def services(self) -> AirflowServices:
        return self.cluster.stack.services

    def form(self) -> dict[str, Any]:
        """The spec as values of the form."""
        spec = self._spec()
        spec.pop("cutover")
        approvals, ordering = spec.pop("approvals"), spec.pop("ordering")
        spec |= {f"approvals_{name}": value for name, value in approvals.items() if name != "certificate"}
        return {**spec, "ordering_sequence_header": ordering["sequence_header"]}

    def begin(self) -> str:
        self.run_id = self.api.trigger(self.dag_id, self.form())
        self.owner = f"{self.dag_id}/{self.run_id}"
        found: list[str] = []

        def opened() -> bool:
            found.extend(r.migration_id for r in self.journal.find(source=self.source))
            return bool(found)

        if not self._until(opened, 120, "the run to open its migration"):
            raise TimeoutError(f"{self.dag_id} has not opened a migration of {self.source}")
        return found[0]

    def drive(self) -> None:
        """The DAG run does."""

    def mind(self) -> None:
        """Twice a second: has the run failed, and what?"""
        if not self.migration_id or time.monotonic() - self._looked_at < 0.5:
            return
        self._looked_at = time.monotonic()
        with contextlib.suppress(*AWAY):
            state = self.api.dag_run(self.dag_id, self.run_id)["state"]
            self.run_state = str(state)
            self._say_yes()
            if state != "failed" or (self.over and self.state != "done"):
                self._failed_at = 0.0
                return
            self._failed_at = self._failed_at or time.monotonic()
            if time.monotonic() - self._failed_at >= AGAIN_S and len(self.errors) < STOPS:
                self._clear()

    def _say_yes(self) -> None:
        """A person answers what is asked, by its first option, and not at once."""
        for asked in self.api.hitl_pending(self.dag_id, self.run_id):
            instance = asked["task_instance"]
            at = f"{instance['task_id']}[{instance['map_index']}]:{instance['try_number']}:{asked.get('created_at')}"
            if time.monotonic() - self._asked.setdefault(at, time.monotonic()) < ANSWER_AFTER_S:
                continue
            option = asked["options"][0]
            self.history.add("answered", task=instance["task_id"], option=option)
            with contextlib.suppress(AirflowError):
                self.api.hitl_answer(
                    self.dag_id, self.run_id, instance["task_id"], option, map_index=instance["map_index"]
                )

    def _heal_and_end(self) -> None:
        super()._heal_and_end()
        if not self._until(lambda: self.run_state in ("success", "failed"), RUN_ENDS_S, "the run to end"):
            self.history.add("stuck", seconds=RUN_ENDS_S, before="the end", missing=f"the run is {self.run_state}")

    def _clear(self) -> None:
        failed = [t for t in self.tasks() if t["state"] == "failed" and t["task_id"] != "end_freeze"]
        first = min(failed, key=lambda t: t["start_date"] or "", default=None)
        if first is None:
            return
        text = self.api.task_log(
            self.dag_id, self.run_id, first["task_id"], max(1, first["try_number"]), map_index=first["map_index"]
        )
        said = [line for line in text.splitlines() if "Error" in line or "Broken" in line or "failed" in line]
        self.errors.append(f"{first['task_id']}: {(said or text.splitlines() or [''])[-1]}"[:400])
        self.history.add("cleared", task=first["task_id"], said=self.errors[-1])
        self.api.clear(self.dag_id, self.run_id, [first["task_id"]])
        self.tries += 1
        self._failed_at = 0.0

    def tasks(self) -> list[Mapping[str, Any]]:
        """The task instances of the run."""
        return list(self.api.task_instances(self.dag_id, self.run_id))


# ------------------------------------------------------------------------------------------------ faults


def _service_killed(part: Part, name: str) -> Struck:
    assert isinstance(part, AirflowPart)
    service = part.services.processes[name]
    if not service.alive:
        raise NotNow(f"the {name} does not run")
    service.kill()
    return Struck((), name, lambda: void(service.start()))


def scheduler_killed(part: Part, rng: random.Random) -> Struck:
    """SIGKILL for the scheduler with its workers and tasks, and back."""
    return _service_killed(part, "scheduler")


def triggerer_killed(part: Part, rng: random.Random) -> Struck:
    """SIGKILL for the triggerer, and back."""
    return _service_killed(part, "triggerer")


def api_server_killed(part: Part, rng: random.Random) -> Struck:
    """SIGKILL for the API server, through which tasks report, and back."""
    return _service_killed(part, "api-server")


def _of_tasks(part: Part, spark: bool) -> list[psutil.Process]:
    assert isinstance(part, AirflowPart)
    scheduler = part.services.processes["scheduler"]
    out = []
    for process in marked(scheduler._mark, scheduler._sessions):
        with contextlib.suppress(psutil.Error):
            words = " ".join(process.cmdline())
            task = words.startswith("airflow worker -- ") and "LocalExecutor" not in words
            if is_driver(process) if spark else task:
                out.append(process)
    return out


def task_killed(part: Part, rng: random.Random) -> Struck:
    """SIGKILL for the process of a running task."""
    found = _of_tasks(part, spark=False)
    if not found:
        raise NotNow("no task runs")
    one = rng.choice(found)
    with contextlib.suppress(psutil.NoSuchProcess):
        one.kill()
    return Struck((), f"process {one.pid}")


def task_stopped(part: Part, rng: random.Random) -> Struck:
    """SIGSTOP for the process of a running task, and a late wake-up."""
    found = _of_tasks(part, spark=False)
    if not found:
        raise NotNow("no task runs")
    one = rng.choice(found)
    os.kill(one.pid, signal.SIGSTOP)

    def wake() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGCONT)

    return Struck((), f"process {one.pid}", wake)


def task_driver_killed(part: Part, rng: random.Random) -> Struck:
    """SIGKILL for the JVM of a Spark driver that a task started."""
    found = _of_tasks(part, spark=True)
    if not found:
        raise NotNow("no Spark job runs")
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return Struck((), f"{len(found)} JVMs")


def task_cleared(part: Part, rng: random.Random) -> Struck:
    """Somebody clears a task that runs, waits or has ended, with what follows."""
    assert isinstance(part, AirflowPart)
    try:
        states = ("success", "running", "deferred", "up_for_retry")
        names = sorted({t["task_id"] for t in part.tasks() if t["state"] in states})
        if not names:
            raise NotNow("no task has begun")
        name = rng.choice(names)
        part.api.clear(part.dag_id, part.run_id, [name])
    except AWAY as error:
        raise NotNow(str(error)) from error
    return Struck((), name)


def run_twice(part: Part, rng: random.Random) -> Struck:
    """The same migration is triggered once more; that run has to fail, and name the first."""
    assert isinstance(part, AirflowPart)
    try:
        second = part.api.trigger(part.dag_id, part.form())
        until = time.monotonic() + 90
        while time.monotonic() < until and not part.over:
            part.tend()
            run = part.api.dag_run(part.dag_id, second)
            if run["state"] in ("success", "failed"):
                text = part.api.task_log(part.dag_id, second, "plan.read_spec", 1)
                held = [line for line in text.splitlines() if "held by" in line or part.run_id in line]
                said = held[-1] if held else text[-300:]
                if not part.over:
                    owner = f"{part.dag_id}/{part.run_id}"
                    part.history.add("claimed_again", refused=run["state"] == "failed", said=said[-600:], owner=owner)
                break
            time.sleep(0.3)
    except AWAY as error:
        raise NotNow(str(error)) from error
    return Struck((), second)


ALONE = ("airflow",)

AIRFLOW_CLASSES: dict[str, Class] = {
    c.name: c
    for c in (
        Class(task_killed, worlds=ALONE),
        Class(task_stopped, (3.0, 15.0), worlds=ALONE),
        Class(task_cleared, worlds=ALONE),
        Class(scheduler_killed, (1.0, 5.0), worlds=ALONE),
        Class(triggerer_killed, (1.0, 5.0), worlds=ALONE),
        Class(api_server_killed, (1.0, 4.0), worlds=ALONE),
        Class(task_driver_killed, worlds=ALONE, moments=SPARK_RUNS),
        Class(run_twice, worlds=ALONE),
    )
}
"""Every class of Airflow's own by its name."""
