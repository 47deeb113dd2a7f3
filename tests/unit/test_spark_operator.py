"""The Spark task: what it submits, what it takes for an answer, and what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowSkipException,
)

from topicshift.adapters.spark import properties_text
from topicshift_airflow.operators import spark
from topicshift_airflow.operators.spark import SparkJobOperator

SECRET = "pa\\ss;word=1"


class FakeHook:
    """Stands in for the provider's hook: keeps what it was given, and does what a job would do."""

    _should_track_driver_status = False
    _is_yarn_cluster_mode = False

    def __init__(self, behaviour: Any, operator: Any) -> None:
        self.behaviour, self.operator = behaviour, operator
        self.exit_code: int | None = None
        self.killed = False

    def _should_track_driver_via_k8s_api(self) -> bool:
        return False

    def submit(self, application: str) -> None:
        code = self.behaviour(self.operator) or 0
        self.exit_code = code
        if code:
            raise AirflowException(f"Cannot execute: spark-submit. Error code is: {code}.\nerror: broker away")

    def on_kill(self) -> None:
        self.killed = True


def argument(operator: Any, name: str) -> str:
    given = operator.application_args
    return str(given[given.index(name) + 1])


def writes(verdict: str | None, *, code: int = 0, job: str = "order_proof", **more: Any) -> Any:
    def behave(operator: Any) -> int:
        folder = Path(argument(operator, "--output"))
        value = {"schema": "topicshift/test/v1", "verdict": verdict, "reason": "because", **more}
        (folder / spark.JOBS[job].result).write_text(json.dumps(value))
        return code

    return behave


@pytest.fixture
def context() -> dict[str, Any]:
    ti = SimpleNamespace(
        dag_id="topic_migration", run_id="manual__2026-01-01T00:00:00+00:00", task_id="t", map_index=-1
    )
    ti.try_number = 1
    return {"ti": ti}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, context: dict[str, Any]) -> Any:
    jars = tmp_path / "jars"
    jars.mkdir()
    for name in ("b.jar", "a.jar"):
        (jars / name).touch()
    monkeypatch.setenv("TOPICSHIFT_SPARK_JARS", str(jars))
    monkeypatch.setenv("TOPICSHIFT_WORK", str(tmp_path / "work"))
    from topicshift_airflow.operators.spark_submit import TopicshiftSparkOperator

    def go(
        behaviour: Any, cls: type[SparkJobOperator] = SparkJobOperator, job: str = "order_proof", **kwargs: Any
    ) -> Any:
        seen: dict[str, Any] = {}

        def hook(self: Any) -> FakeHook:
            seen["submitted"] = self
            seen["hook"] = FakeHook(behaviour, self)
            return seen["hook"]

        monkeypatch.setattr(TopicshiftSparkOperator, "exit_code", property(lambda self: self._hook.exit_code))
        monkeypatch.setattr(TopicshiftSparkOperator, "_get_hook", hook)
        task = cls(task_id="t", job=job, **kwargs)
        monkeypatch.setattr(
            task,
            "kafka_config",
            lambda _: {
                "bootstrap.servers": "h:9092",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "u",
                "sasl.password": SECRET,
            },
        )
        seen["task"] = task
        try:
            seen["answer"] = task.execute(context)
        except BaseException as error:
            error.seen = seen  # type: ignore[attr-defined]
            raise
        return SimpleNamespace(**seen)

    return go


def test_it_submits_the_job_in_client_mode_with_jars_and_arguments(run: Any, tmp_path: Path) -> None:
    done = run(writes("proven", seconds=2.5), job_args=["--source", "a", "--target", "b"])
    submitted = done.submitted
    assert submitted.application.endswith("spark_jobs/order_proof.py")
    assert submitted.application_args[:4] == ["--source", "a", "--target", "b"]
    assert submitted._deploy_mode == "client"
    assert [Path(jar).name for jar in submitted.jars.split(",")] == ["a.jar", "b.jar"]
    assert submitted.env_vars[spark.OWNER_ENV] == str(os.getpid())
    assert done.answer["verdict"] == "proven"
    assert done.answer["seconds"] == 2.5
    assert Path(done.answer["result"]).is_relative_to(tmp_path / "work")


def test_secrets_go_by_a_private_file_that_does_not_outlive_the_task(run: Any) -> None:
    seen: dict[str, Any] = {}

    def behave(operator: Any) -> int:
        path = Path(argument(operator, "--kafka-config"))
        seen.update(path=path, text=path.read_text(), mode=path.stat().st_mode & 0o777, dir=path.parent.stat().st_mode)
        return int(writes("proven")(operator))

    done = run(behave)
    assert 'password="pa\\\\\\\\ss;word=1"' in seen["text"]
    assert (seen["mode"], seen["dir"] & 0o777) == (0o600, 0o700)
    assert not seen["path"].parent.exists()
    said = [
        *done.submitted.application_args,
        *done.submitted.env_vars.values(),
        str(done.submitted.conf),
        str(done.answer),
    ]
    assert not any("ss;word" in text for text in said)


def test_the_properties_file_reads_back_as_written(tmp_path: Path) -> None:
    from topicshift_spark.source import read_properties

    given = {"a": "1", "ssl.truststore.certificates": "-----BEGIN-----\nMII=\n-----END-----\n", "pw": 'x\\y"\\n z\\'}
    path = tmp_path / "p"
    path.write_text(properties_text(given))
    assert read_properties(str(path)) == {**given, "ssl.truststore.certificates": given["ssl.truststore.certificates"]}


def test_the_file_is_the_verdict_not_the_exit_code(run: Any) -> None:
    assert run(writes("proven", code=3)).answer["verdict"] == "proven"
    with pytest.raises(AirflowFailException, match=r"violated\. because"):
        run(writes("violated", code=0))


@pytest.mark.parametrize(
    ("job", "verdict", "raised"),
    [
        ("order_proof", "violated", AirflowFailException),
        ("order_proof", "unknown", AirflowException),
        ("drain_verification", "not_drained", AirflowFailException),
        ("drain_verification", "fence_broken", AirflowFailException),
        ("drain_verification", "unknown", AirflowException),
        ("drain_verification_armed", "aborted", AirflowSkipException),
        ("drain_verification_armed", "deadline", AirflowException),
        ("order_proof", None, AirflowException),
    ],
)
def test_other_verdicts_fail_finally_or_may_be_tried_again(run: Any, job: str, verdict: str, raised: type) -> None:
    with pytest.raises(AirflowException) as caught:
        run(writes(verdict, job=job, code=3), job=job)
    assert type(caught.value) is raised


def test_without_a_result_the_jobs_own_words_are_shown(run: Any) -> None:
    with pytest.raises(AirflowException, match=r"^broker away\. The job order_proof .* left no result") as caught:
        run(lambda _: 4)
    assert not isinstance(caught.value, AirflowFailException)
    assert caught.value.__suppress_context__, "the provider's 3,000 characters are not shown before it"
    with pytest.raises(AirflowFailException):  # wrong use does not get better by trying
        run(lambda _: 2)
    with pytest.raises(AirflowException, match="exit code 0"):
        run(lambda _: 0)


def test_half_a_result_is_none(run: Any) -> None:
    def behave(operator: Any) -> None:
        (Path(argument(operator, "--output")) / "order_proof.json").write_text('{"schema": "x", "verdict": "prov')

    with pytest.raises(AirflowException, match="left no result"):
        run(behave)


def test_a_stale_result_is_never_taken(run: Any, tmp_path: Path) -> None:
    class Fixed(SparkJobOperator):
        def output_folder(self, context: Any) -> Path:
            return tmp_path / "fixed"

    run(writes("proven"), Fixed)
    with pytest.raises(AirflowException, match="left no result"):
        run(lambda _: 0, Fixed)


def test_each_try_has_a_folder_of_its_own(run: Any, context: dict[str, Any]) -> None:
    first = Path(run(writes("proven")).answer["result"])
    context["ti"].try_number = 2
    second = Path(run(writes("proven")).answer["result"])
    assert first != second
    assert first.exists()


def test_before_may_skip_and_then_nothing_is_submitted(run: Any) -> None:
    class Skipping(SparkJobOperator):
        def before(self, context: Any) -> None:
            raise AirflowSkipException("not this order")

    with pytest.raises(AirflowSkipException) as caught:
        run(writes("proven"), cls=Skipping)
    assert "submitted" not in caught.value.seen  # type: ignore[attr-defined]


def test_killing_ends_the_child_and_forgets_the_secrets(run: Any) -> None:
    seen: dict[str, Any] = {}

    def behave(operator: Any) -> int:
        seen["path"] = Path(argument(operator, "--kafka-config"))
        task = behave.task  # type: ignore[attr-defined]
        task.on_kill()
        seen["gone"] = not seen["path"].exists()
        return 143

    class Reachable(SparkJobOperator):
        def before(self, context: Any) -> None:
            behave.task = self  # type: ignore[attr-defined]

    with pytest.raises(AirflowException) as caught:
        run(behave, cls=Reachable)
    assert caught.value.seen["hook"].killed  # type: ignore[attr-defined]
    assert seen["gone"]


def test_the_real_hook_ends_the_whole_family(monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    from topicshift_airflow.operators.spark_submit import TopicshiftSparkHook

    def missing(self: Any, conn_id: str) -> Any:
        raise AirflowNotFoundException(conn_id)

    monkeypatch.setattr(TopicshiftSparkHook, "get_connection", missing)
    hook = TopicshiftSparkHook(conn_id="spark_default")
    child = "import subprocess,sys;p=subprocess.Popen(['sleep','60']);print(p.pid,flush=True);p.wait()"
    hook._submit_sp = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE, text=True)
    grandchild = psutil.Process(int(hook._submit_sp.stdout.readline()))
    hook.on_kill()
    assert hook._submit_sp.wait(10) is not None
    hook._submit_sp.stdout.close()
    grandchild.wait(10)
    assert not grandchild.is_running()


def test_a_missing_connection_means_local_and_a_present_one_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk import Connection

    from topicshift_airflow.operators.spark_submit import TopicshiftSparkOperator

    def hook() -> Any:
        return TopicshiftSparkOperator(task_id="x", application="job.py", conf={"spark.foo": "1"})._get_hook()

    def missing(self: Any, conn_id: str) -> Any:
        raise AirflowNotFoundException(conn_id)

    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    monkeypatch.setattr(SparkSubmitHook, "get_connection", missing)
    command = hook()._build_spark_submit_command("job.py")
    assert command[command.index("--master") + 1] == "local[*]"
    assert "spark.driver.host=127.0.0.1" in command
    assert "spark.foo=1" in command
    master = Connection(conn_id="spark_default", conn_type="spark", host="spark://m", port=7077)
    monkeypatch.setattr(SparkSubmitHook, "get_connection", lambda self, conn_id: master)
    command = hook()._build_spark_submit_command("job.py")
    assert command[command.index("--master") + 1] == "spark://m:7077"
    assert command[command.index("--deploy-mode") + 1] == "client"
    assert not any("127.0.0.1" in word for word in command)


@pytest.mark.parametrize(
    ("ui", "said", "link"),
    [
        (
            "https://spark/app/?appId={application_id}",
            "spark application: app-1 2",
            "https://spark/app/?appId=app-1%202",
        ),
        ("https://spark/app/?appId={application_id}", "", ""),
        ("https://history/", "", "https://history/"),
        ("javascript:alert(1)", "spark application: app-1", ""),
        (None, "spark application: app-1", ""),
    ],
)
def test_the_link_to_spark_leads_where_the_connection_says(
    ui: str | None, said: str, link: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Connection

    from topicshift_airflow.links import SparkLink
    from topicshift_airflow.operators.spark_submit import TopicshiftSparkOperator

    extra = json.dumps({"deploy-mode": "client"} | ({"topicshift.ui": ui} if ui else {}))
    master = Connection(conn_id="spark_default", conn_type="spark", host="spark://m", port=7077, extra=extra)
    monkeypatch.setattr(SparkSubmitHook, "get_connection", lambda self, conn_id: master)
    operator = TopicshiftSparkOperator(task_id="x", application="job.py")
    hook = operator._hook = operator._get_hook()
    hook._process_spark_submit_log(iter(["some log\n", f"{said}\n"]))
    assert operator.ui == hook.ui == link
    task = SparkJobOperator(task_id="t", job="order_proof")
    assert SparkLink().get_link(task, ti_key=SimpleNamespace()) == "", "nothing has run yet"
    task.spark_ui = operator.ui
    assert SparkLink().get_link(task, ti_key=SimpleNamespace()) == link


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("Reading 4,000 offsets of a and b ...", True),
        ("Reading 4,000 offsets of a and b: 40 s, 3 of 12 tasks of count", True),
        ("Reading 4,000 offsets of a and b: 50 s, between two stages", True),
        ("Reading 4,000 offsets of a and b: done in 61.2 s", True),
        ("26/01/01 00:00:00 WARN TaskSetManager: Lost task 0.0 in stage 1.0: 5 s, retried", False),
        ("partition 3 ends at 12", False),
    ],
)
def test_the_last_line_that_says_how_far_a_job_is_is_kept_for_its_page(line: str, kept: bool) -> None:
    from topicshift_airflow.operators.spark_submit import TopicshiftSparkHook

    pushed = dict[str, str]()
    ti = SimpleNamespace(xcom_push=lambda *, key, value: pushed.update({key: value}))
    hook = TopicshiftSparkHook.__new__(TopicshiftSparkHook)
    hook.listener = partial(spark._tell_progress, ti)
    assert list(hook._listened(iter([line + "\n"]))) == [line + "\n"], "nobody else hears less"
    assert pushed == ({"progress": line} if kept else {})
    spark._tell_progress(SimpleNamespace(), line)  # an Airflow that does not take it ends no job


def test_the_driver_is_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Connection

    from topicshift_airflow.operators.spark_submit import TopicshiftSparkOperator

    local = Connection(conn_id="spark_default", conn_type="spark", host="local[2]")
    monkeypatch.setattr(SparkSubmitHook, "get_connection", lambda self, conn_id: local)
    command = TopicshiftSparkOperator(task_id="x", application="j.py")._get_hook()._build_spark_submit_command("j.py")
    assert f"spark.pyspark.driver.python={sys.executable}" in command
    assert f"spark.pyspark.python={sys.executable}" in command


def test_spark_is_found_whatever_python_the_path_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    from topicshift_airflow.operators.spark_submit import TopicshiftSparkOperator

    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    operator = TopicshiftSparkOperator(task_id="x", application="j.py", env_vars={"A": "1"})
    assert operator._spark_binary == str(Path(sys.executable).with_name("spark-submit"))
    assert (Path(operator.env_vars["SPARK_HOME"]) / "bin" / "spark-class").exists()
    assert operator.env_vars["A"] == "1"


def test_parsing_a_dag_file_does_not_import_the_provider() -> None:
    code = (
        "import sys; from topicshift_airflow.operators.spark import SparkJobOperator; "
        "t = SparkJobOperator(task_id='x', job='order_proof', job_args=['--source', '{{ ds }}'], queue='q'); "
        "assert t.operator_name == 'SparkSubmitOperator'; "
        "heavy = ('airflow.providers.apache.spark.operators', 'airflow.providers.apache.spark.hooks', 'kubernetes',"
        " 'pyspark', 'confluent_kafka', 'requests'); "
        "print([m for m in sys.modules if m.startswith(heavy)])"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True).stdout
    assert said.strip().splitlines()[-1] == "[]"


def test_an_unknown_job_is_refused() -> None:
    with pytest.raises(ValueError, match="order_proof"):
        SparkJobOperator(task_id="x", job="order_prof")


def test_missing_jars_are_named(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TOPICSHIFT_SPARK_JARS", str(tmp_path / "none"))
    with pytest.raises(AirflowFailException, match="make setup"):
        run(writes("proven"))
