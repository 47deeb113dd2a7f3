"""A client of Airflow's REST API, logged in as a person would be (SimpleAuthManager's token endpoint)."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import quote

import httpx

Json = dict[str, Any]


class AirflowError(RuntimeError):
    """Airflow answered with an error. ``status`` is the HTTP code; the message holds method, path and detail."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


PAUSES_S = (0.2, 1.0, 3.0)
"""Seconds before each further try of a request that can be made twice."""


def passing(error: Exception) -> bool:
    """Whether the server was only too busy, or away for a moment."""
    return isinstance(error, httpx.TransportError) or (isinstance(error, AirflowError) and error.status >= 500)


class AirflowApi:
    """Airflow's REST API as one user sees it. Every call is bounded by ``timeout`` seconds.

    Args:
        url: the API server's base URL.
        user: who logs in.
        password: that user's password; kept in memory alone.
        timeout: seconds that one request may take.
    """

    def __init__(self, url: str, user: str, password: str, *, timeout: float = 30.0) -> None:
        self.url = url.rstrip("/")
        self.user = user
        self._password = password
        self._client = httpx.Client(base_url=self.url, timeout=timeout, trust_env=False)
        self._token: str | None = None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    # ------------------------------------------------------------------------------------------------ requests

    def _log_in(self) -> str:
        answer = self._client.post("/auth/token", json={"username": self.user, "password": self._password})
        if answer.status_code != 201:
            raise AirflowError(answer.status_code, f"log-in of {self.user} was refused ({answer.status_code})")
        return str(answer.json()["access_token"])

    def request(self, method: str, path: str, *, idempotent: bool = False, **kwargs: Any) -> Any:
        """One request to ``/api/v2`` + path; the decoded JSON answer (None where it is empty).

        A server that is overloaded (SQLite: "Database error") may have done what it answers 500 to. So only reading,
        and what is ``idempotent``, is tried again here; :meth:`trigger` does so by the id of its run.

        Raises:
            AirflowError: any answer that is not 2xx.
            httpx.HTTPError: no answer at all.
        """
        for pause in (*PAUSES_S, None) if idempotent or method == "GET" else (None,):
            try:
                return self._once(method, path, **kwargs)
            except (AirflowError, httpx.TransportError) as error:
                if pause is None or not passing(error):
                    raise
            time.sleep(pause)
        raise AssertionError("unreachable: the last try returns or raises")

    def _once(self, method: str, path: str, **kwargs: Any) -> Any:
        for attempt in (1, 2):
            if self._token is None:
                self._token = self._log_in()
            headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
            answer = self._client.request(method, f"/api/v2{path}", headers=headers, **kwargs)
            if answer.status_code == 401 and attempt == 1:
                self._token = None  # the token has run out
                continue
            break
        if not answer.is_success:
            try:
                detail = answer.json().get("detail", "")
            except ValueError:
                detail = answer.text[:500]
            raise AirflowError(answer.status_code, f"{method} {path}: {answer.status_code} {detail}")
        return answer.json() if answer.content else None

    def health(self) -> Json:
        """Status of metadatabase, scheduler, triggerer and dag_processor; needs no log-in."""
        answer = self._client.get("/api/v2/monitor/health")
        answer.raise_for_status()
        return cast(Json, answer.json())

    # ------------------------------------------------------------------------------------------------ DAGs

    def dags(self) -> list[Json]:
        """Every DAG that has been parsed."""
        return cast(list[Json], self.request("GET", "/dags", params={"limit": 100, "exclude_stale": True})["dags"])

    def dag(self, dag_id: str) -> Json:
        """One DAG. Raises ``AirflowError`` 404 where it has not been parsed."""
        return cast(Json, self.request("GET", f"/dags/{dag_id}"))

    def import_errors(self) -> list[Json]:
        """DAG files that do not parse: ``filename`` and ``stack_trace``."""
        return cast(list[Json], self.request("GET", "/importErrors", params={"limit": 100})["import_errors"])

    def set_paused(self, dag_id: str, paused: bool) -> None:
        """Pause or unpause a DAG."""
        self.request("PATCH", f"/dags/{dag_id}", idempotent=True, json={"is_paused": paused})

    def unpause(self, dag_id: str) -> None:
        """Unpause a DAG."""
        self.set_paused(dag_id, False)

    def wait_parsed(self, *dag_ids: str, timeout: float = 240.0) -> None:
        """Wait until these DAGs have been parsed.

        Raises:
            TimeoutError: they have not in time; the message holds the import errors.
        """

        def parsed() -> bool:
            known = {dag["dag_id"] for dag in self.dags()}
            return set(dag_ids) <= known

        try:
            wait_until(parsed, timeout, f"DAGs {', '.join(dag_ids)} to be parsed", every=0.25)
        except TimeoutError as late:
            errors = "\n".join(f"{each['filename']}:\n{each['stack_trace']}" for each in self.import_errors())
            raise TimeoutError(f"{late}\n{errors or 'There are no import errors.'}") from None

    # ------------------------------------------------------------------------------------------------ runs

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None, *, run_id: str | None = None) -> str:
        """Trigger a run as the form does (no logical date) and return its id, which makes a second try safe.

        Raises:
            AirflowError: the form's values were refused (400), no such DAG (404).
        """
        run_id = run_id or f"manual__{datetime.now(UTC).isoformat()}_{secrets.token_hex(4)}"
        body: Json = {"logical_date": None, "conf": dict(conf or {}), "dag_run_id": run_id}
        failed = False
        for pause in (*PAUSES_S, None):
            try:
                return str(self._once("POST", f"/dags/{dag_id}/dagRuns", json=body)["dag_run_id"])
            except (AirflowError, httpx.TransportError) as error:
                if failed and isinstance(error, AirflowError) and error.status == 409:
                    return run_id  # the request that was answered with an error has made it
                if pause is None or not passing(error):
                    raise
                failed = True
            time.sleep(pause)
        raise AssertionError("unreachable: the last try returns or raises")

    def dag_run(self, dag_id: str, run_id: str) -> Json:
        """One run: ``state`` is queued, running, success or failed."""
        return cast(Json, self.request("GET", f"/dags/{dag_id}/dagRuns/{_path(run_id)}"))

    def dag_runs(self, dag_id: str) -> list[Json]:
        """The last 100 runs of a DAG, newest first."""
        params = {"limit": 100, "order_by": "-run_after"}
        return cast(list[Json], self.request("GET", f"/dags/{dag_id}/dagRuns", params=params)["dag_runs"])

    def set_run_state(self, dag_id: str, run_id: str, state: str) -> None:
        """Mark a run as queued, success or failed."""
        self.request("PATCH", f"/dags/{dag_id}/dagRuns/{_path(run_id)}", json={"state": state})

    def wait_run(self, dag_id: str, run_id: str, *, timeout: float) -> Json:
        """Wait until a run has ended, ``timeout`` seconds at most, and return it.

        Raises:
            TimeoutError: it has not ended; the message names the tasks that are not done.
        """
        deadline = time.monotonic() + timeout
        while True:
            run = self.dag_run(dag_id, run_id)
            if run["state"] in ("success", "failed"):
                return run
            if time.monotonic() > deadline:
                done = ("success", "skipped", None)
                states = {task: s for task, s in self.task_states(dag_id, run_id).items() if s not in done}
                raise TimeoutError(f"{dag_id} {run_id} is still {run['state']} after {timeout:.0f} s: {states}")
            time.sleep(0.5)

    # ------------------------------------------------------------------------------------------------ tasks

    def task_instances(self, dag_id: str, run_id: str) -> list[Json]:
        """Every task instance of a run."""
        found: list[Json] = []
        path = f"/dags/{dag_id}/dagRuns/{_path(run_id)}/taskInstances"
        while True:
            page = self.request("GET", path, params={"limit": 100, "offset": len(found)})
            found += page["task_instances"]
            if not page["task_instances"] or len(found) >= page["total_entries"]:
                return found

    def task_states(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        """State by task id (with ``[map_index]`` behind it where the task is mapped)."""
        return {
            each["task_id"] + (f"[{each['map_index']}]" if each["map_index"] >= 0 else ""): each["state"]
            for each in self.task_instances(dag_id, run_id)
        }

    def clear(self, dag_id: str, run_id: str, task_ids: list[str], *, downstream: bool = True) -> None:
        """Clear tasks of a run, whatever state they are in, so that they run again."""
        body = {
            "dry_run": False,
            "dag_run_id": run_id,
            "task_ids": task_ids,
            "only_failed": False,
            "include_downstream": downstream,
            "reset_dag_runs": True,
        }
        self.request("POST", f"/dags/{dag_id}/clearTaskInstances", json=body)

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        """One XCom value. Raises ``AirflowError`` 404 where there is none."""
        path = f"/dags/{dag_id}/dagRuns/{_path(run_id)}/taskInstances/{task_id}/xcomEntries/{_path(key)}"
        params = {"deserialize": True}
        return self.request("GET", path, params=params)["value"]

    def task_log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1, *, map_index: int = -1) -> str:
        """The log of one try as text, one line an event."""
        path = f"/dags/{dag_id}/dagRuns/{_path(run_id)}/taskInstances/{task_id}/logs/{try_number}"
        params = {"full_content": True, "map_index": map_index}
        content = self.request("GET", path, params=params)["content"]
        if isinstance(content, str):
            return content
        return "\n".join(_log_line(each) for each in content)

    # ------------------------------------------------------------------------------------------------ people

    def hitl_pending(self, dag_id: str, run_id: str) -> list[Json]:
        """What waits for a person: ``task_instance.task_id``, ``subject``, ``body``, ``options``, ``params``."""
        path = f"/dags/{dag_id}/dagRuns/{_path(run_id)}/hitlDetails"
        details = self.request("GET", path, params={"limit": 100, "response_received": False})["hitl_details"]
        return [each for each in details if not each["response_received"]]

    def hitl_answer(
        self, dag_id: str, run_id: str, task_id: str, option: str | list[str], *, map_index: int = -1
    ) -> Json:
        """Answer as a person would: choose an option (such as ``Approve``).

        Raises:
            AirflowError: no such question (404), answered already (409), no such option (422 or 400).
        """
        path = f"/dags/{dag_id}/dagRuns/{_path(run_id)}/taskInstances/{task_id}/{map_index}/hitlDetails"
        body = {"chosen_options": [option] if isinstance(option, str) else option, "params_input": {}}
        return cast(Json, self.request("PATCH", path, json=body))


def _path(part: str) -> str:
    return quote(part, safe="")


def _log_line(event: Any) -> str:
    if not isinstance(event, Mapping):
        return str(event)
    line = str(event.get("event", ""))
    detail = event.get("error_detail")
    if detail:
        causes = "; ".join(f"{each.get('exc_type')}: {each.get('exc_value')}" for each in detail)
        line = f"{line} [{causes}]"
    return line


def wait_until(ready: Callable[[], bool], timeout: float, what: str, *, every: float = 0.1) -> None:
    """Wait until ``ready()`` is true.

    Raises:
        TimeoutError: it was not in ``timeout`` seconds; the message says what was waited for.
    """
    deadline = time.monotonic() + timeout
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:.0f} s in vain for {what}")
        time.sleep(every)
