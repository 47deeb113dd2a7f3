"""What a task or a trigger asks of Airflow itself: the state of a run, a new run, the question that Airflow shows."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowRuntimeError

from topicshift.core.errors import Transient

if TYPE_CHECKING:
    from airflow.sdk.execution_time.comms import ErrorResponse

    from topicshift_airflow.questions import Question

GONE = "gone"
"""State of a run that Airflow does not know (any more)."""


def send(message: Any) -> Any:
    """Airflow's answer to a message of the task's (or the triggerer's) own process. Raises ``AirflowRuntimeError``."""
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import ErrorResponse

    answer = task_runner.SUPERVISOR_COMMS.send(message)
    if isinstance(answer, ErrorResponse):
        raise AirflowRuntimeError(answer)
    return answer


def run_state(dag_id: str, run_id: str) -> str | None:
    """State of a DAG run, ``GONE`` where Airflow says that there is none; None where it cannot tell."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    try:
        state = RuntimeTaskInstance.get_dagrun_state(dag_id, run_id)
    except AirflowRuntimeError as error:
        return GONE if no_such_run(error.error) else None
    return str(getattr(state, "value", state))


def no_such_run(answer: ErrorResponse) -> bool:
    """Whether Airflow's own answer for the state of a run says that there is none; a proxy's 404 does not."""
    from airflow.sdk.exceptions import ErrorType

    said = answer.detail or {}
    body = said.get("detail")
    reason = body.get("detail") if isinstance(body, dict) else None
    return (
        answer.error is ErrorType.API_SERVER_ERROR
        and said.get("status_code") == 404
        and isinstance(reason, dict)
        and reason.get("reason") == "not_found"
    )


def start_run(dag_id: str, name: str, conf: Mapping[str, Any]) -> str:
    """See that a run of this name is under way, and return its id: another one is started only where none is.

    Raises ``Transient`` where Airflow cannot tell or does not take it.
    """
    from airflow.sdk.exceptions import ErrorType
    from airflow.sdk.execution_time.comms import TriggerDagRun

    for n in count(1):
        run_id = f"{name}__{n}"
        state = run_state(dag_id, run_id)
        if state is None:
            raise Transient(f"Airflow could not tell the state of {dag_id} {run_id}. It is asked again.")
        if state in ("queued", "running"):
            return run_id
        if state == GONE:
            break
    try:
        send(TriggerDagRun(dag_id=dag_id, run_id=run_id, conf=dict(conf)))
    except AirflowRuntimeError as error:
        if error.error.error is not ErrorType.DAGRUN_ALREADY_EXISTS:
            raise Transient(f"Airflow did not start {dag_id} {run_id}: {error}. It is tried again.") from error
    return run_id


def show(ti_id: Any, question: Question) -> bool:
    """Have Airflow show this question to people; False where it goes on showing an earlier one.

    Airflow keeps the first text of a task instance, whatever is asked in it later, in the same try or after a retry.
    """
    from airflow.sdk.execution_time.comms import CreateHITLDetailPayload

    shown = send(
        CreateHITLDetailPayload(
            ti_id=ti_id,
            options=[question.yes, question.no],
            subject=question.subject,
            body=question.body,
            params={},
            assigned_users=[],
        )
    )
    return (shown.subject, list(shown.options)) == (question.subject, [question.yes, question.no])


def answer_of(ti_id: Any) -> dict[str, Any] | None:
    """The answer to the question of a task instance, as Airflow wakes a task with it; None while there is none."""
    from airflow.sdk.execution_time.comms import GetHITLDetailResponse

    found = send(GetHITLDetailResponse(ti_id=ti_id))
    if not found.response_received:
        return None
    user = found.responded_by_user
    return {
        "chosen_options": list(found.chosen_options or ()),
        "responded_by_user": {"id": user.id, "name": user.name} if user is not None else None,
    }


def withdraw(ti_id: Any, option: str) -> None:
    """Have Airflow show the question of a task instance no longer. For triggers: Airflow takes it from no task."""
    from airflow.sdk.execution_time.comms import UpdateHITLDetail

    send(UpdateHITLDetail(ti_id=ti_id, chosen_options=[option], params_input={}))
