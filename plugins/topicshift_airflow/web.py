"""Evidence in the browser, read from its store: Airflow's pages link to ``http`` alone, and evidence lies anywhere.

Mounted by the plugin at ``/topicshift``. Apps of plugins have no authentication of their own: whoever may read the
XComs of a DAG may read the evidence of its runs, nobody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import Depends, FastAPI, HTTPException, Request, Response

from topicshift.adapters.evidence import evidence_from_env
from topicshift.core.engine.need import OWNED
from topicshift.core.errors import NotFound, SpecError, TopicshiftError
from topicshift_airflow.links import ASSESSMENT
from topicshift_airflow.page.routes import refused, router
from topicshift_airflow.runtime import open_journal

if TYPE_CHECKING:
    from topicshift.ports import Journal

KINDS = {".html": "text/html", ".json": "application/json", ".jsonl": "text/plain", ".yaml": "text/plain"}
SAFE = {
    # A page of evidence is shown as if from nowhere: its scripts reach neither the session nor Airflow's API.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; sandbox allow-scripts",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

app = FastAPI(title="Topicshift", docs_url=None, redoc_url=None, openapi_url=None)
app.include_router(router)
app.add_exception_handler(HTTPException, refused)


STYLE = (
    ":root{color-scheme:light dark;--link:#0b5cad;background:#fff;color:#1b2430}a{color:var(--link)}"
    "@media(prefers-color-scheme:dark){:root{--link:#8fbcff;background:#12161c;color:#e6eaf0}}"
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}"
    "th,td{text-align:left;padding:.3rem .8rem .3rem 0;overflow-wrap:anywhere}"
)


def dags_of(folder: str, journal: Journal | None = None) -> list[str]:
    """The DAGs whose runs a folder of evidence is of: those that have owned the migration, as the journal has it."""
    opened = journal or open_journal(create=False)
    try:
        events = opened.events(folder, OWNED)
    except NotFound:
        return ["topic_assessment"] if folder.startswith(ASSESSMENT) else []
    finally:
        if journal is None:
            opened.close()
    return list(dict.fromkeys(event.actor.partition("/")[0] for event in events))


def may_read(folder: str, request: Request, user: GetUserDep) -> None:
    """Let those pass who may read the XComs of one of the folder's DAGs; 403 for everybody else."""
    try:
        dags = dags_of(folder)
    except TopicshiftError as error:
        raise HTTPException(502, f"Whose run {folder} is cannot be looked up: {error}") from None
    if any(_reads(dag_id, request, user) for dag_id in dags):
        return
    raise HTTPException(
        403,
        f"{folder} is shown to those who may read the DAG of its run. The journal knows no such run that you may read.",
    )


def _reads(dag_id: str, request: Request, user: Any) -> bool:
    try:
        requires_access_dag("GET", DagAccessEntity.XCOM, dag_id)(request, user)
    except HTTPException as error:
        if error.status_code != 403:
            raise
        return False
    return True


LISTED = 200
"""Migrations on the index at most, those that are open first, then the latest."""


@app.get("/evidence/")
def index(request: Request, user: GetUserDep) -> Response:
    """The migrations whose evidence this user may read, the open ones first; 502 if the journal does not answer."""
    try:
        with closing(open_journal(create=False)) as journal:
            rows = sorted(journal.find(), key=lambda r: r.updated_at, reverse=True)
            rows = sorted(rows, key=lambda r: r.state != "open")[:LISTED]
            owners = {row.migration_id: dags_of(row.migration_id, journal) for row in rows}
    except NotFound:
        rows, owners = [], {}
    except TopicshiftError as error:
        raise HTTPException(502, f"The journal cannot be read: {error}") from None
    seen = {dag_id: _reads(dag_id, request, user) for dag_id in {d for dags in owners.values() for d in dags}}
    lines = [
        (row.migration_id, f"{row.source} to {row.target}", row.state, row.updated_at[:16].replace("T", " "))
        for row in rows
        if any(seen[d] for d in owners[row.migration_id])
    ]
    return _page("Migrations", ("migration", "topics", "state", "last change (UTC)"), lines)


@app.get("/evidence/{folder}/", dependencies=[Depends(may_read)])
def files(folder: str) -> Response:
    """The files of one migration or assessment; 404 if there is none, 502 if the store does not answer."""
    try:
        names = evidence_from_env().names(folder)
    except SpecError as error:
        raise HTTPException(404, str(error)) from None
    except TopicshiftError as error:
        raise HTTPException(502, str(error)) from None
    return _page(f"Evidence of {folder}", ("file",), [(name,) for name in names], slash="")


def _page(title: str, columns: Sequence[str], lines: Sequence[Sequence[str]], slash: str = "/") -> Response:
    """A table whose first column links to what it names; relative, so that it holds under any address of Airflow's."""
    head = "".join(f"<th>{escape(c)}</th>" for c in columns)
    body = "".join(
        f'<tr><td><a href="{quote(line[0])}{slash}">{escape(line[0])}</a></td>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in line[1:])
        + "</tr>"
        for line in lines
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if lines else "<p>There is none.</p>"
    return Response(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style><h1>{escape(title)}</h1>{table}",
        media_type="text/html",
        headers=SAFE,
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
