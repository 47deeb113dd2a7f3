"""How a job ends: the cause in one line, whatever the JVM wraps it in."""

from __future__ import annotations

import pytest

from topicshift_spark.result import first_cause, run

PY4J = """An error occurred while calling o99.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2898)
Caused by: java.util.concurrent.ExecutionException: no answer
\tat java.base/java.util.concurrent.FutureTask.report(FutureTask.java:122)
Caused by: org.apache.kafka.common.errors.TimeoutException: Timeout of 6000ms expired
\t... 3 more"""


def test_the_innermost_cause_is_told_without_the_stack() -> None:
    timeout = "org.apache.kafka.common.errors.TimeoutException: Timeout of 6000ms expired"
    assert first_cause(RuntimeError(PY4J)) == timeout
    assert first_cause(RuntimeError(PY4J.split("Caused by")[0])).startswith(
        "org.apache.spark.SparkException: Job aborted"
    )
    assert first_cause(RuntimeError("one line")) == "one line"
    assert first_cause(RuntimeError()) == "RuntimeError"
    assert len(first_cause(RuntimeError("x" * 9000))) == 500


def test_an_unforeseen_end_is_unknown_and_its_cause_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    def main(_: object) -> int:
        raise RuntimeError(PY4J)

    with pytest.raises(SystemExit) as ended:
        run(main)
    assert ended.value.code == 4
    assert capsys.readouterr().err.startswith("error: RuntimeError: org.apache.kafka.common.errors.TimeoutException")
