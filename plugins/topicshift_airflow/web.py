"""Evidence in the browser, read from its store: Airflow's pages link to ``http`` alone, and evidence lies anywhere.

Mounted by the plugin at ``/topicshift``. Apps of plugins have no authentication of their own: whoever may read the
XComs of a DAG may read the evidence of its runs, nobody else.
"""

from __future__ import annotations

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import Depends, FastAPI, HTTPException, Request, Response

from topicshift.adapters.evidence import evidence_from_env
from topicshift.core.errors import NotFound, SpecError, TopicshiftError
from topicshift_airflow.links import ASSESSMENT
from topicshift_airflow.runtime import open_journal

KINDS = {".html": "text/html", ".json": "application/json", ".jsonl": "text/plain"}
SAFE = {
    # A page of evidence is shown as if from nowhere: its scripts reach neither the session nor Airflow's API.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; sandbox allow-scripts",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

app = FastAPI(title="Topicshift", docs_url=None, redoc_url=None, openapi_url=None)


def dags_of(folder: str) -> list[str]:
    """The DAGs whose runs a folder of evidence is of: those that have owned the migration, as the journal has it."""
    journal = open_journal(create=False)
    try:
        events = journal.events(folder)
    except NotFound:
        return ["topic_assessment"] if folder.startswith(ASSESSMENT) else []
    finally:
        journal.close()
    owners = (e.actor for e in events if e.kind in ("claimed", "reopened", "taken_over"))
    return list(dict.fromkeys(owner.partition("/")[0] for owner in owners))


def may_read(folder: str, request: Request, user: GetUserDep) -> None:
    """Let those pass who may read the XComs of one of the folder's DAGs; 403 for everybody else."""
    try:
        dags = dags_of(folder)
    except TopicshiftError as error:
        raise HTTPException(502, f"Whose run {folder} is cannot be looked up: {error}") from None
    for dag_id in dags:
        try:
            requires_access_dag("GET", DagAccessEntity.XCOM, dag_id)(request, user)
        except HTTPException as error:
            if error.status_code != 403:
                raise
        else:
            return
    raise HTTPException(
        403,
        f"{folder} is shown to those who may read the DAG of its run. The journal knows no such run that you may read.",
    )


@app.get("/evidence/{folder}/{name}", dependencies=[Depends(may_read)])
def evidence(folder: str, name: str) -> Response:
    """One file of a migration or an assessment; 404 if it is not there, 502 if the store does not answer."""
    try:
        data = evidence_from_env().read(folder, name)
    except SpecError as error:
        raise HTTPException(404, str(error)) from None
    except TopicshiftError as error:
        raise HTTPException(502, str(error)) from None
    if data is None:
        raise HTTPException(404, f"There is no evidence {name} of {folder}.")
    kind = next((kind for end, kind in KINDS.items() if name.endswith(end)), "application/octet-stream")
    return Response(data, media_type=kind, headers=SAFE)
