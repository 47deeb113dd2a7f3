"""Start an Airflow service whose children are warm: ``python -m deploy.airflow_main scheduler ...``.

LocalExecutor forks its workers from the scheduler, and each task is forked from a worker; the DAG processor forks a
process for each file, the triggerer one for its triggers. A module that the service has imported is there in all of
them; one that it has not is imported again by every single one. So this imports what they need
(TOPICSHIFT_WARM_MODULES, separated by commas, ``package.*`` for all below it) and then runs ``airflow``.
"""

from __future__ import annotations

import importlib
import logging
import os
import pkgutil
import sys
from collections.abc import Iterator

TASK_MODULES = (
    "airflow.sdk.execution_time.supervisor",
    "airflow.sdk.execution_time.task_runner",
    "airflow.sdk.execution_time.execute_workload",
)
"""What Airflow's worker and every task import."""

FORKING = ("scheduler", "triggerer", "dag-processor")

log = logging.getLogger("topicshift.warm")


def modules_of(name: str) -> Iterator[str]:
    """The module named, or with ``.*`` the package and all modules below it, except Alembic's migrations."""
    if not name.endswith(".*"):
        yield name
        return
    package = name[:-2]
    yield package
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if ".migrations" not in found.name:
            yield found.name


def warm(service: str) -> None:
    """Import what the children of a service need; what cannot be imported is said, and the task will say why."""
    named = [name for name in os.environ.get("TOPICSHIFT_WARM_MODULES", "").split(",") if name]
    for name in (*(TASK_MODULES if service == "scheduler" else ()), *named):
        try:
            for module in modules_of(name):
                importlib.import_module(module)
        except ImportError as error:
            log.warning("cannot import %s ahead of its first use: %s", name, error)


def main() -> None:
    """Run Airflow's own entry point with these arguments."""
    if sys.argv[1:2] and sys.argv[1] in FORKING:
        warm(sys.argv[1])
    from airflow.__main__ import main as airflow

    airflow()


if __name__ == "__main__":
    main()
