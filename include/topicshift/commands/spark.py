"""Spark jobs for the command line: each runs as a child of this command, beside its looks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topicshift.core.engine.words import Act
from topicshift.core.errors import Transient, Unreadable

if TYPE_CHECKING:
    from topicshift.acts.context import MigrationContext


class JobRunner:
    """Starts a job when the engine wants it, and makes evidence of its result at the next look after it has ended.

    The master is ``TOPICSHIFT_SPARK_MASTER``, ``local[*]`` by default. A job that fails is not started again: the error
    names its log.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._running: dict[Act, tuple[subprocess.Popen[bytes], Path]] = {}
        self._secrets: list[Path] = []

    def __call__(self, ctx: MigrationContext, act: Act) -> None:
        """Start the job, or look at the one that runs. Raises ``Unreadable`` for one that left no result."""
        from topicshift.acts.jobs import RESULTS, keep

        if act not in self._running:
            self._start(ctx, act)
            return
        process, folder = self._running[act]
        if process.poll() is None or act not in RESULTS:
            return
        result = folder / RESULTS[act]
        if not result.exists():
            code = process.returncode
            raise Unreadable(f"The Spark job for {act.value} left no result (exit code {code}). See {folder}/log.")
        keep(ctx.write, folder, RESULTS[act])
        said = json.loads(result.read_bytes())
        ctx.event("spark_job", {"job": act.value, "verdict": said.get("verdict"), "seconds": said.get("seconds")})

    def _start(self, ctx: MigrationContext, act: Act) -> None:
        from topicshift.acts import jobs
        from topicshift.adapters.spark import connector_jars, job_file, python_path, write_secrets
        from topicshift.adapters.verifier import FileVerifier
        from topicshift.adapters.work import work_folder

        record = ctx.record()
        folder = work_folder() / record.migration_id / "jobs" / f"{act.value}-{os.getpid()}"
        output = folder
        if act is Act.START_VERIFIER:
            verifier = FileVerifier(record.migration_id, ctx.clock)
            verifier.arm()
            job, output = jobs.armed_job(record, verifier.requests), verifier.answers
        else:
            job = (jobs.impact_job if act is Act.MEASURE_IMPACT else jobs.order_proof_job)(ctx, record)
        given = jobs.give(job, folder)
        secrets = write_secrets(self._config)
        self._secrets.append(secrets.parent)
        command = [
            _spark_submit(), "--master", os.environ.get("TOPICSHIFT_SPARK_MASTER", "local[*]"),
            "--name", f"topicshift {job.script}", "--jars", connector_jars(), "--driver-memory", "2g",
            "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1",
            "--conf", "spark.ui.enabled=false", "--conf", "spark.log.level=WARN",
            str(job_file(job.script)), *given, "--output", str(output), "--kafka-config", str(secrets),
        ]  # fmt: skip
        environment = {**os.environ, **python_path(), "PYSPARK_PYTHON": sys.executable}
        environment |= {"PYSPARK_DRIVER_PYTHON": sys.executable, "TOPICSHIFT_OWNER_PID": str(os.getpid())}
        try:
            with (folder / "log").open("wb") as log:
                process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        except OSError as error:
            raise Transient(f"spark-submit could not be started: {error}. Is pyspark installed here?") from error
        self._running[act] = process, folder
        ctx.log(f"started {job.script} (process {process.pid}); its log is {folder}/log")

    def close(self) -> None:
        """End what still runs, and remove the files with secrets."""
        for process, _ in self._running.values():
            if process.poll() is None:
                process.terminate()
        for folder in self._secrets:
            shutil.rmtree(folder, ignore_errors=True)


def _spark_submit() -> str:
    beside = Path(sys.executable).with_name("spark-submit")
    return str(beside) if beside.exists() else "spark-submit"
