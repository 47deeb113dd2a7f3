"""Spark jobs for the command line: each runs as a child of this command, beside its looks."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topicshift.core.engine.words import Act
from topicshift.core.errors import Transient, Unreadable

if TYPE_CHECKING:
    from topicshift.acts.context import MigrationContext


VERIFIER_STARTS = 3
"""So many armed verifiers are started, one after the other, where each dies before it is needed."""


class JobRunner:
    """Starts a job when the engine wants it, and makes evidence of its result at the next look after it has ended.

    The master is ``TOPICSHIFT_SPARK_MASTER``, ``local[*]`` by default. A job that fails is not started again: the error
    names its log. An armed verifier that has died is, a few times. Where another advancer on this work folder runs the
    job, its end is waited for: a lock that spark-submit holds says so, and goes with it.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._running: dict[Act, tuple[subprocess.Popen[bytes], Path]] = {}
        self._secrets: list[Path] = []
        self._starts = 0

    def __call__(self, ctx: MigrationContext, act: Act) -> None:
        """Start the job, or look at the one that runs. Raises ``Unreadable`` for one that left no result."""
        from topicshift.acts.jobs import RESULTS, keep

        if act is Act.START_VERIFIER:
            self._end_verifier(ctx)
        if act not in self._running:
            self._start(ctx, act)
            return
        process, folder = self._running[act]
        if process.poll() is None:
            return
        result = folder / RESULTS[act]
        if not result.exists():
            code, cause = process.returncode, _cause(folder / "log")
            raise Unreadable(
                f"The Spark job for {act.value} left no result (exit code {code}){cause} Its log is {folder}/log."
            )
        keep(ctx.write, folder, RESULTS[act])
        said = json.loads(result.read_bytes())
        del self._running[act]  # wanted once more, it runs once more
        ctx.event("spark_job", {"job": act.value, "verdict": said.get("verdict"), "seconds": said.get("seconds")})

    def _end_verifier(self, ctx: MigrationContext) -> None:
        """Make room for another one: the engine asks for it only where none is there, or none gives a sign of life."""
        from topicshift.adapters.verifier import FileVerifier

        state, why = FileVerifier(ctx.row.migration_id, ctx.clock).state()
        process, folder = self._running.pop(Act.START_VERIFIER, (None, Path()))
        if process is not None:
            _end(process, signal.SIGKILL)
            process.wait()
        self._starts = 1 if state == "absent" else self._starts + 1
        if self._starts > VERIFIER_STARTS:
            raise Unreadable(
                f"The armed drain verifier was started {VERIFIER_STARTS} times and each has died ({why}), so whether "
                f"records are left could not be read in the freeze. Nobody was stopped. See {folder}/log."
            )

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
        turn: list[int] = []
        if act in jobs.RESULTS:  # a verifier that gives no sign of life is replaced, whoever started it
            turn = _turn(folder.with_name(f"{act.value}.lock"))
            if not turn:
                ctx.log(f"another process runs {job.script} for this migration: its result is waited for")
                return
        given = jobs.give(job, folder / "given")  # what lies beside the result becomes evidence
        if act in jobs.RESULTS:
            (folder / jobs.RESULTS[act]).unlink(missing_ok=True)
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
            with (folder / "log").open("ab") as log:
                process = subprocess.Popen(
                    command, stdout=log, stderr=log, env=environment, start_new_session=True, pass_fds=turn
                )
        except OSError as error:
            raise Transient(f"spark-submit could not be started: {error}. Is pyspark installed here?") from error
        finally:
            for lock in turn:
                os.close(lock)
        self._running[act] = process, folder
        ctx.log(f"started {job.script} (process {process.pid}); its log is {folder}/log")

    def close(self) -> None:
        """End what still runs, and remove the files with secrets."""
        for process, _ in self._running.values():
            if process.poll() is None:
                _end(process, signal.SIGTERM)
        for folder in self._secrets:
            shutil.rmtree(folder, ignore_errors=True)


def _cause(log: Path) -> str:
    """What a job said last of why it failed, to be put into a sentence."""
    with contextlib.suppress(OSError):
        said = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("error: ")]
        if said:
            return f": {said[-1].removeprefix('error: ')[:1000]}"
    return "."


def _turn(path: Path) -> list[int]:
    """The lock of a job as an open file, which its process is to inherit; empty where another one's job runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return []
    return [file]


def _end(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    """End spark-submit with all that it started; those that are left when it is gone as well."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, how)


def _spark_submit() -> str:
    beside = Path(sys.executable).with_name("spark-submit")
    return str(beside) if beside.exists() else "spark-submit"
