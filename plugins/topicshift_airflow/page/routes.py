"""The addresses of the page: HTML for people, JSON for scripts, and its own style and script.

Nothing here changes anything. Every address wants a log-in, and shows a migration to those who may read the DAG of its
run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from fastapi.exception_handlers import http_exception_handler

from topicshift.core.errors import TopicshiftError
from topicshift.core.page.listing import Shown, Unclear, Wanted
from topicshift_airflow.links import airflow_path
from topicshift_airflow.page import data, start
from topicshift_airflow.page.view import rendered

SAFE = {
    # Scripts and styles are the page's own files, so a name that should turn out to be HTML would still run nothing.
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

router = APIRouter()
NO_SUCH = "There is no such migration that you may see."


def _read(work: Callable[[], Any], what: str = "The journal cannot be read") -> Any:
    try:
        return work()
    except TopicshiftError as error:
        raise HTTPException(502, f"{what}: {error}") from None


def wanted(
    state: Annotated[str, Query(max_length=20)] = "",
    q: Annotated[str, Query(max_length=300)] = "",
    cluster: Annotated[str, Query(max_length=200)] = "",
    owner: Annotated[str, Query(max_length=300)] = "",
    window: Annotated[str, Query(max_length=10)] = "",
) -> Wanted:
    """What the list is asked for."""
    return Wanted(state, q.strip(), cluster, owner, window)


WantedDep = Annotated[Wanted, Depends(wanted)]


def visible(migration_id: str, user: GetUserDep) -> Shown | Unclear:
    """The migration; 404 where there is none that this user may see, 502 where the journal does not answer."""
    found: Shown | Unclear | None = _read(lambda: data.visible(migration_id, user))
    if found is None:
        raise HTTPException(404, NO_SUCH)
    return found


VisibleDep = Annotated[Shown | Unclear, Depends(visible)]


def _json(work: Callable[[], Any]) -> Response:
    # Plain values already: FastAPI would walk them all once more.
    return Response(json.dumps(_read(work)), media_type="application/json", headers=SAFE)


def _page(template: str, root: str, **values: Any) -> Response:
    text = rendered(template, root=root, airflow=airflow_path(), **values)
    return Response(text, media_type="text/html", headers=SAFE)


TITLES = {403: "That is not shown to you", 404: "Nothing is shown here", 502: "This cannot be shown now"}
"""Heads of the pages that say why there is none."""


async def refused(request: Request, error: Exception) -> Response:
    """Why an address shows nothing: a page for a browser, JSON for scripts and for what was never a page."""
    assert isinstance(error, HTTPException)
    path = request.url.path.removeprefix(str(request.scope.get("root_path", ""))).lstrip("/")
    browser = "text/html" in request.headers.get("accept", "") and not path.startswith("api/")
    if not browser or error.status_code not in TITLES:
        return await http_exception_handler(request, error)
    title, root = TITLES[error.status_code], "../" * path.count("/")
    found = _page("gone.html.j2", root, title=title, text=str(error.detail))
    found.status_code = error.status_code
    return found


# ------------------------------------------------------------------------------------------------- JSON


@router.get("/api/migrations")
def api_list(user: GetUserDep, asked: WantedDep) -> Response:
    """The list, filtered as on the page."""
    return _json(lambda: data.migrations(user, asked))


@router.get("/api/migrations/{migration_id}")
def api_one(user: GetUserDep, found: VisibleDep) -> Response:
    """All of one migration."""
    return _json(lambda: data.migration(found, user))


@router.get("/api/migrations/{migration_id}/trail")
def api_trail(found: VisibleDep, before: Annotated[int, Query(ge=0)] = 0) -> Response:
    """Rows of the audit trail with a lower number than ``before``, newest first; the newest without it."""
    return _json(lambda: data.trail(found.row.migration_id, before))


@router.get("/api/start")
def api_start(user: GetUserDep) -> Response:
    """Drafts, open migrations, and which DAGs this user may begin a migration with."""
    return _json(lambda: start.start(user))


# ------------------------------------------------------------------------------------------------- pages


@router.get("/")
def list_page(user: GetUserDep, asked: WantedDep) -> Response:
    """Migrations, those that wait for a person first."""
    return _page("list.html.j2", "", asked=asked, **_read(lambda: data.migrations(user, asked)))


@router.get("/start")
def start_page(user: GetUserDep) -> Response:
    """What a migration may begin with, and the migrations that an order may be given to."""
    return _page("start.html.j2", "", s=_read(lambda: start.start(user)))


@router.get("/run")
def run_page(
    user: GetUserDep,
    dag_id: Annotated[str, Query(max_length=300)],
    run_id: Annotated[str, Query(max_length=300)],
) -> Response:
    """The migration of one run of Airflow, as a view of that run; a list where it has several."""
    found = _read(lambda: data.of_run(dag_id, run_id, user))
    if len(found) == 1:
        return _one(found[0], user, "")
    names = [one.row.migration_id for one in found]
    return _page("run.html.j2", "", names=[(n, quote(n, safe="")) for n in names])


@router.get("/migrations/{migration_id}")
def one_page(user: GetUserDep, found: VisibleDep) -> Response:
    """One migration."""
    return _one(found, user, "../")


def _one(found: Shown | Unclear, user: Any, root: str) -> Response:
    m = _read(lambda: data.migration(found, user))
    return _page("unclear.html.j2" if "unclear" in m else "one.html.j2", root, m=m)


@router.get("/migrations/{migration_id}/audit.zip")
def audit_bundle(found: VisibleDep) -> Response:
    """The audit bundle of this moment; 502 where journal or evidence do not answer."""
    name = found.row.migration_id
    made = _read(lambda: data.bundle(name), "The audit bundle cannot be made")
    given = {**SAFE, "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}-audit.zip"}
    return Response(made, media_type="application/zip", headers=given)


# ------------------------------------------------------------------------------------------------- assets


@cache
def _file(name: str) -> bytes:
    return (Path(__file__).with_name("static") / name).read_bytes()


@router.get("/page.css")
def css(user: GetUserDep) -> Response:
    """The style of the pages."""
    return Response(_file("page.css"), media_type="text/css", headers=SAFE)


@router.get("/page.js")
def js(user: GetUserDep) -> Response:
    """The script of the pages."""
    return Response(_file("page.js"), media_type="text/javascript", headers=SAFE)


@router.get("/icon.svg")
def icon(user: GetUserDep) -> Response:
    """The mark of the entry in Airflow's navigation."""
    return Response(_file("icon.svg"), media_type="image/svg+xml", headers=SAFE)


@router.get("/icon-dark.svg")
def icon_dark(user: GetUserDep) -> Response:
    """The same for dark pages."""
    return Response(_file("icon-dark.svg"), media_type="image/svg+xml", headers=SAFE)
