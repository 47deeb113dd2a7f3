"""The DAG ``topic_doctor``: what ``topicshift doctor`` looks at, seen by a worker of this Airflow."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowRuntimeError

from topicshift.core.errors import Unreadable
from topicshift_airflow.airflow_api import no_such_run, send
from topicshift_airflow.runtime import find_connection


class AirflowOfTask:
    """Airflow as a task may ask it, by its API server alone; ``folder``: of the DAG files, which this worker parses.

    Settings are those of this worker, whose environment should be the scheduler's.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def version(self) -> str:
        """Airflow's version."""
        from topicshift.adapters import airflow_here

        return airflow_here.version()

    def setting(self, section: str, key: str) -> str:
        """A setting of this worker's configuration."""
        from topicshift.adapters import airflow_here

        return airflow_here.setting(section, key)

    def dags(self) -> dict[str, bool]:
        """Of the DAGs that have to be there, those that Airflow knows: id to whether it is paused."""
        from topicshift.core.doctor import DAGS, MAY_BE_PAUSED

        found = {dag_id: _paused(dag_id) for dag_id in (*DAGS, *MAY_BE_PAUSED)}
        return {dag_id: paused for dag_id, paused in found.items() if paused is not None}

    def import_errors(self) -> dict[str, str]:
        """DAG files that cannot be parsed here: name to the error."""
        files = sorted(self.folder.glob("*.py"))
        if not files:
            raise Unreadable(f"no DAG file is in {self.folder}")
        return {file.name: why for file in files if (why := _not_parsed(file)) is not None}

    def plugin(self) -> str:
        """Where Topicshift's plugin was loaded from."""
        from topicshift.adapters import airflow_here

        return airflow_here.plugin()

    def connection(self, conn_id: str) -> Any:
        """An Airflow connection, None where there is surely none of this name."""
        return find_connection(conn_id)


def _paused(dag_id: str) -> bool | None:
    """None where Airflow says that it has no such DAG. Raises ``Unreadable`` where it cannot tell."""
    from airflow.sdk.execution_time.comms import GetDag

    try:
        return bool(send(GetDag(dag_id=dag_id)).is_paused)
    except AirflowRuntimeError as error:
        if no_such_run(error.error):
            return None
        raise Unreadable(f"Airflow could not tell of the DAG {dag_id}: {error.error.error.value}") from None


def _not_parsed(file: Path) -> str | None:
    spec = importlib.util.spec_from_file_location(f"topic_doctor_looks_at_{file.stem}", file)
    if spec is None or spec.loader is None:
        return "it is no Python file"
    try:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it is what is asked
        return f"{type(error).__name__}: {error}"
    return None


class LookAt(BaseOperator):
    """Look at one area of the installation. Red, with what to do, where something is not OK or could not be told."""

    ui_color = "#e3f0fb"

    def __init__(self, *, area: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.area = area

    def execute(self, context: Any) -> list[dict[str, Any]]:
        """Returns one row for each thing that was looked at."""
        from topicshift.commands.installation import look
        from topicshift.core.doctor import overall, told

        here = AirflowOfTask(Path(context["dag"].fileloc).parent)
        rows = list(look([self.area], here, str(context["params"]["kafka_conn_id"])))
        for row in rows:
            self.log.info("%s: %s: %s: %s", row.verdict.replace("_", " "), row.area, row.name, row.seen)
        if overall(rows) != "ok":
            raise AirflowFailException(f"This installation is not fit for a migration:\n{told(rows)}")
        return [row.values() for row in rows]
