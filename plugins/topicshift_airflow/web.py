"""Evidence in the browser, read from its store: Airflow's pages link to ``http`` alone, and evidence lies anywhere.

Mounted by the plugin at ``/topicshift``. Apps of plugins have no authentication of their own: whoever may read the
XComs of ``topic_migration`` may read evidence, nobody else.
"""

from __future__ import annotations

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import Depends, FastAPI, HTTPException, Response

from topicshift.adapters.evidence import evidence_from_env
from topicshift.core.errors import SpecError, TopicshiftError

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


@app.get(
    "/evidence/{folder}/{name}",
    dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.XCOM, "topic_migration"))],
)
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
