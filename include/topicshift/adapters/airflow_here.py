"""Airflow as this machine has it, for a command that checks an installation. Imported only when it is asked."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from topicshift.core.errors import NotFound, Unreadable

T = TypeVar("T")
PLUGIN = "topicshift"


def missing() -> str | None:
    """Why the environment of this process is not that of an Airflow installation, None where it may be one.

    Airflow is not imported: it would make a home for itself.
    """
    config = Path("~/airflow/airflow.cfg").expanduser()
    if "airflow" in sys.modules or any(name.startswith("AIRFLOW") for name in os.environ) or config.exists():
        return None
    return f"this shell is not an Airflow installation's: no variable AIRFLOW_... is set, and there is no {config}"


def _asked(what: str, ask: Callable[[], T]) -> T:
    if (why := missing()) is not None:
        raise Unreadable(f"{what}: {why}")
    try:
        # Airflow logs to stdout as it is imported, which is for the answer.
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return ask()
    except ImportError as error:
        raise Unreadable(f"{what}: Airflow is not installed here ({error.name})") from None
    except Exception as error:  # noqa: BLE001 - of any database, secrets backend or plugin
        # Only the kind: such an error may hold an address with a password.
        raise Unreadable(f"{what}: Airflow could not tell ({type(error).__name__})") from None


def version() -> str:
    """Airflow's version. Raises ``Unreadable`` where there is none, as all of these do for what cannot be told."""

    def ask() -> str:
        from importlib.metadata import version as of

        import airflow  # noqa: F401 - whether it can be imported is the question

        return of("apache-airflow")

    return _asked("the version", ask)


def setting(section: str, key: str) -> str:
    """A setting of Airflow's configuration."""

    def ask() -> str:
        from airflow.configuration import conf

        return str(conf.get(section, key))

    return _asked(f"[{section}] {key}", ask)


def dags() -> dict[str, bool]:
    """Every DAG that Airflow's database has and that is still there: its id, and whether it is paused."""

    def ask() -> dict[str, bool]:
        from airflow.models.dag import DagModel
        from airflow.utils.session import create_session
        from sqlalchemy import select

        with create_session() as session:
            rows = session.execute(select(DagModel.dag_id, DagModel.is_paused).where(~DagModel.is_stale))
            return {str(dag_id): bool(paused) for dag_id, paused in rows}

    return _asked("the DAGs", ask)


def import_errors() -> dict[str, str]:
    """Files that Airflow's DAG processor could not parse: name to the last line of the error."""

    def ask() -> dict[str, str]:
        from airflow.models.errors import ParseImportError
        from airflow.utils.session import create_session
        from sqlalchemy import select

        with create_session() as session:
            rows = session.execute(select(ParseImportError.filename, ParseImportError.stacktrace))
            return {
                str(name): (str(trace or "").strip().splitlines() or ["no reason given"])[-1] for name, trace in rows
            }

    return _asked("the import errors", ask)


def plugin() -> str:
    """Where Topicshift's plugin was loaded from. Raises ``NotFound`` with the reason where it was not."""

    def ask() -> tuple[str, dict[str, str]]:
        from airflow import plugins_manager

        found = [p for p in plugins_manager.get_plugin_info() if p.get("name") == PLUGIN]
        return (str(found[0].get("source") or "loaded") if found else ""), plugins_manager.get_import_errors()

    source, errors = _asked("the plugins", ask)
    if not source:
        mine = "; ".join(f"{file}: {why}" for file, why in errors.items() if "topicshift" in file)
        raise NotFound(mine or "Airflow's plugins folder holds no topicshift_plugin.py")
    return source


def connection(conn_id: str) -> Any:
    """An Airflow connection, None where there is none of this name."""

    def ask() -> Any:
        from airflow.models.connection import Connection

        try:
            return Connection.get_connection_from_secrets(conn_id)
        except Exception as error:
            if type(error).__name__ == "AirflowNotFoundException":
                return None
            raise

    return _asked(f"the connection {conn_id}", ask)
