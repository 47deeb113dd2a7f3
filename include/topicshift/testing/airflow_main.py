"""Start an Airflow service whose children are warm: ``python -m topicshift.testing.airflow_main scheduler ...``.

LocalExecutor forks its workers from the scheduler, and each task is forked from a worker. A module that the scheduler
has imported is there in every one of them; one that it has not is imported again by every single task. So this imports
what tasks need (TOPICSHIFT_WARM_MODULES, separated by commas, and Airflow's own task runner), then runs ``airflow``.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys

WARM_MODULES = (
    "airflow.sdk.execution_time.supervisor",
    "airflow.sdk.execution_time.task_runner",
    "airflow.sdk.execution_time.execute_workload",
)
"""What Airflow's worker and every task import."""

log = logging.getLogger("topicshift.warm")


def warm() -> None:
    """Import what tasks need; a module that is not there is said and passed over, since the task will say why."""
    named = [name for name in os.environ.get("TOPICSHIFT_WARM_MODULES", "").split(",") if name]
    for name in (*WARM_MODULES, *named):
        try:
            importlib.import_module(name)
        except ImportError as error:
            log.warning("cannot import %s ahead of its first use: %s", name, error)


def main() -> None:
    """Run Airflow's own entry point with these arguments."""
    if sys.argv[1:2] == ["scheduler"]:
        warm()
    from airflow.__main__ import main as airflow

    airflow()


if __name__ == "__main__":
    main()
