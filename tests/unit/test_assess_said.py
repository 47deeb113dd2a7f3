"""A look that fails says why where the page that had it begun can read it."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from topicshift.core.errors import NotFound, TopicshiftError, Transient
from topicshift_airflow.operators.assess import AssessInput


class Pushed(dict[str, Any]):
    """The task instance of a run: what it pushed, by key."""

    run_id = "manual__1"

    def xcom_push(self, key: str, value: Any) -> None:
        self[key] = value


@pytest.mark.parametrize(
    ("error", "raised", "again"),
    [(NotFound("Topic 'x' does not exist."), AirflowFailException, False), (Transient("no broker"), Transient, True)],
)
def test_why_a_look_failed_is_pushed_before_the_task_fails(
    error: TopicshiftError, raised: type[Exception], again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(AssessInput, "_draft", failing)
    ti = Pushed()
    with pytest.raises(raised):
        AssessInput(task_id="check").execute({"ti": ti, "params": {"source": "x"}})
    assert ti == {"said": {"cannot": str(error), "again": again}}
