"""The client of Airflow's API: what a busy server answers with an error is asked again where that can do no harm."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from lab import airflow_api
from lab.airflow_api import AirflowApi, AirflowError

BUSY = httpx.Response(500, json={"detail": "Database error"})


class Server:
    """Makes runs; ``faults`` are answered first, ``effective`` ones after the run was made (as a lost reply is)."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.faults: list[httpx.Response | Exception] = []
        self.effective = False
        self.asked: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/auth/token":
            return httpx.Response(201, json={"access_token": "t"})
        self.asked.append(request.method)
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None and not self.effective:
            return self._fail(fault)
        answer = self._answer(request)
        return answer if fault is None else self._fail(fault)

    @staticmethod
    def _fail(fault: httpx.Response | Exception) -> httpx.Response:
        if isinstance(fault, Exception):
            raise fault
        return fault

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.method != "POST":
            return httpx.Response(200, json={"dag_runs": [{"dag_run_id": r} for r in self.runs]})
        run_id = json.loads(request.content)["dag_run_id"]
        if run_id in self.runs:
            return httpx.Response(409, json={"detail": "it is there already"})
        self.runs.append(run_id)
        return httpx.Response(200, json={"dag_run_id": run_id})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(airflow_api, "PAUSES_S", (0.0, 0.0))
    return Server()


@pytest.fixture
def api(server: Server) -> AirflowApi:
    client = AirflowApi("http://airflow", "admin", "secret")
    client._client = httpx.Client(base_url=client.url, transport=httpx.MockTransport(server))
    return client


@pytest.mark.parametrize("effective", [False, True])
@pytest.mark.parametrize("fault", [BUSY, httpx.Response(503), httpx.ReadTimeout("late"), httpx.ConnectError("refused")])
def test_a_run_is_made_once_whatever_a_busy_server_answers(
    api: AirflowApi, server: Server, fault: httpx.Response | Exception, effective: bool
) -> None:
    server.faults, server.effective = [fault, fault], effective
    run_id = api.trigger("topic_migration", {"source": "payments"})
    assert server.runs == [run_id]
    assert api.dag_runs("topic_migration") == [{"dag_run_id": run_id}]


def test_what_is_refused_is_not_asked_again(api: AirflowApi, server: Server) -> None:
    server.runs = ["mine"]
    with pytest.raises(AirflowError) as told:
        api.trigger("topic_migration", run_id="mine")
    assert told.value.status == 409, "somebody else's run is not ours"
    assert server.asked == ["POST"]
    server.faults = [BUSY] * 9
    with pytest.raises(AirflowError, match="Database error"):
        api.trigger("topic_migration")
    assert len(server.asked) == 1 + 3


def test_only_reading_is_tried_again_elsewhere(api: AirflowApi, server: Server) -> None:
    server.faults = [BUSY]
    assert api.dag_runs("topic_migration") == []
    server.faults = [BUSY]
    with pytest.raises(AirflowError, match="500"):
        api.clear("topic_migration", "mine", ["fence"])
    assert server.asked == ["GET", "GET", "POST"]


def test_a_dag_is_unpaused_by_a_server_that_is_busy_at_first(api: AirflowApi, server: Server) -> None:
    server.faults = [BUSY, httpx.ReadTimeout("late")]
    api.set_paused("topic_migration", False)
    assert server.asked == ["PATCH"] * 3
