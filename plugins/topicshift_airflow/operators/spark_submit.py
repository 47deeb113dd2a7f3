"""``SparkSubmitOperator`` and its hook, fitted to Topicshift's jobs. Imported only when a job runs."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook  # noqa: TID253 - see the docstring
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator  # noqa: TID253 - likewise
from airflow.sdk.exceptions import AirflowNotFoundException

from topicshift.core.text import SPARK_APPLICATION

UI = "topicshift.ui"
"""Key of the Spark connection's extra: where a browser finds an application, for instance on the master's web page."""

PLACE = "{application_id}"
"""Stands for the application in the value of :data:`UI`."""

_LOCAL = {
    # Nobody outside speaks to a local driver, and a laptop's host name often resolves to nothing useful.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


class TopicshiftSparkHook(SparkSubmitHook):
    """The provider's hook, with ``local[*]`` as the master where the connection does not exist (it says ``yarn``)."""

    _ui = ""
    _application_id = ""
    listener: Callable[[str], None] | None = None
    """Told each line of the job."""

    def _resolve_connection(self) -> dict[str, Any]:
        try:
            self.get_connection(self._conn_id)
        except AirflowNotFoundException:
            self.log.info("No Airflow connection %s: running on local[*]", self._conn_id)
            found = {
                "master": "local[*]",
                "queue": None,
                "deploy_mode": "client",
                "spark_binary": self.spark_binary or "spark-submit",
                "namespace": None,
                "principal": self._principal,
                "keytab": self._keytab,
                "rest_scheme": "http",
                "rest_port": 6066,
                "rest_endpoint": None,
            }
        else:
            found = super()._resolve_connection()
            self._ui = str(self.get_connection(self._conn_id).extra_dejson.get(UI) or "")
        self._fit(str(found["master"]))
        return found

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(self._listened(itr))

    def _listened(self, lines: Iterator[Any]) -> Iterator[Any]:
        for line in lines:
            if str(line).startswith(SPARK_APPLICATION):
                self._application_id = str(line).removeprefix(SPARK_APPLICATION).strip()
            if self.listener is not None:
                self.listener(str(line).strip())
            yield line

    @property
    def ui(self) -> str:
        """Spark's page of this application; empty where the connection names none, or the application is not known."""
        if not self._ui.startswith(("http://", "https://")) or (PLACE in self._ui and not self._application_id):
            return ""
        return self._ui.replace(PLACE, quote(self._application_id, safe=""))

    def _fit(self, master: str) -> None:
        settings = {"spark.pyspark.driver.python": sys.executable}
        if master.startswith("local"):
            settings |= {"spark.pyspark.python": sys.executable, **_LOCAL}
        self._conf = {**settings, **self._conf}

    @property
    def exit_code(self) -> int | None:
        """How spark-submit ended; None while it runs, or if it never began."""
        return self._submit_sp.returncode if self._submit_sp is not None else None

    def on_kill(self) -> None:
        """Ask spark-submit's whole family to end, and see to it: the driver's Python is its child."""
        family = _family(self._submit_sp.pid) if self._submit_sp is not None and self._submit_sp.poll() is None else []
        _end(family)
        super().on_kill()


class TopicshiftSparkOperator(SparkSubmitOperator):
    """``SparkSubmitOperator`` in client mode (Spark refuses cluster mode for Python on a standalone master).

    ``spark-submit`` is the one of this Python's environment where the path has none; a binary named by the connection
    wins.
    """

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("deploy_mode", "client")
        beside, found = Path(sys.executable).with_name("spark-submit"), shutil.which("spark-submit")
        if beside.exists() and (found is None or Path(found) == beside):
            if found is None:
                kwargs.setdefault("spark_binary", str(beside))
            spec = importlib.util.find_spec("pyspark")
            if spec is not None and spec.origin and "SPARK_HOME" not in os.environ:
                # That script asks the first python3 of the path where Spark is, which need not be this one.
                kwargs["env_vars"] = {"SPARK_HOME": str(Path(spec.origin).parent), **(kwargs.get("env_vars") or {})}
        super().__init__(**kwargs)
        self.listener: Callable[[str], None] | None = None

    @property
    def exit_code(self) -> int | None:
        """The job's exit code; None if it never began."""
        hook = self._hook
        return hook.exit_code if isinstance(hook, TopicshiftSparkHook) else None

    @property
    def ui(self) -> str:
        """Spark's page of the job's application, or nothing."""
        hook = self._hook
        return hook.ui if isinstance(hook, TopicshiftSparkHook) else ""

    def on_kill(self) -> None:
        """End the child, if there is one."""
        if self._hook is not None:
            self._hook.on_kill()

    def _get_hook(self) -> SparkSubmitHook:
        hook = TopicshiftSparkHook(
            conf=self.conf,
            conn_id=self._conn_id,
            files=self.files,
            py_files=self.py_files,
            jars=self.jars,
            packages=self.packages,
            driver_class_path=self.driver_class_path,
            total_executor_cores=self._total_executor_cores,
            executor_cores=self._executor_cores,
            executor_memory=self._executor_memory,
            driver_memory=self._driver_memory,
            num_executors=self._num_executors,
            keytab=self.keytab,
            principal=self.principal,
            proxy_user=self.proxy_user,
            use_krb5ccache=self._use_krb5ccache,
            name=self.name,
            application_args=self.application_args,
            env_vars=self.env_vars,
            verbose=self._verbose,
            spark_binary=self._spark_binary,
            properties_file=self.properties_file,
            yarn_queue=self._yarn_queue,
            deploy_mode=self._deploy_mode,
        )
        hook.listener = self.listener
        return hook


def _family(pid: int) -> list[Any]:
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        return [*parent.children(recursive=True), parent]
    return []


def _end(family: list[Any], patience_s: float = 5.0) -> None:
    import psutil

    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, left = psutil.wait_procs(family, timeout=patience_s)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
