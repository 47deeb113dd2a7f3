"""What the page shows to one user: journal and evidence, read anew only where something was written."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from topicshift.adapters.evidence import evidence_from_env
from topicshift.adapters.journal import SqlJournal
from topicshift.adapters.journal.snapshots import Snapshots
from topicshift.core.drain.names import is_progress
from topicshift.core.errors import NotFound, TopicshiftError
from topicshift.core.page.listing import Shown, Unclear, Wanted, entry, listed, not_understood
from topicshift.core.page.one import PEOPLE, READ, Sources, one
from topicshift.core.page.seen import LOOKS
from topicshift.core.page.timeline import usual
from topicshift_airflow.links import airflow_path
from topicshift_airflow.page.orders import offered
from topicshift_airflow.page.rights import readable, triggerable
from topicshift_airflow.runtime import journal_url

logger = logging.getLogger(__name__)

EARLIER: Final = 30
"""Finished migrations from which the usual time of a step is taken."""

USUAL_S: Final = 300.0
"""Seconds for which the usual times are kept."""

TRAIL: Final = 50
"""Rows of the audit trail that are shown at a time."""

ANSWERS: Final = 40
"""Questions and answers that are shown, the latest ones."""

JOBS: Final = {"plan": "plan.key_rehash_impact", "verify": "verify.order_proof"}
"""The task of a step that runs a Spark job for minutes: it says how far that is."""

_opened: dict[str, _Opened] = {}
_opening = threading.Lock()


class _Opened:
    """A journal that stays open between requests."""

    def __init__(self, url: str) -> None:
        self.snapshots = Snapshots(SqlJournal(url, create=False).overview())
        self._usual: tuple[float, tuple[Mapping[Any, float], int]] | None = None

    def usual(self) -> tuple[Mapping[Any, float], int]:
        """How long each step took in earlier migrations, and how many those were."""
        now = time.monotonic()
        if self._usual is None or now - self._usual[0] > USUAL_S:
            earlier = self.snapshots.overview.durations(EARLIER)
            self._usual = now, (usual(earlier), len(earlier))
        return self._usual[1]


def _journal() -> _Opened:
    url = journal_url()
    with _opening:
        if url not in _opened:
            _opened[url] = _Opened(url)
        return _opened[url]


def migrations(user: Any, wanted: Wanted) -> dict[str, Any]:
    """The list for this user: entries, and what there is to choose from. Raises what the journal raises."""
    now, mine = datetime.now(UTC), seen_by(user)
    return {
        "as_of": now.isoformat(timespec="seconds"),
        "migrations": listed(mine, wanted, now),
        "of": len(mine),
        "choices": {
            "clusters": sorted({one.row.cluster_id for one in mine}),
            "owners": sorted({one.row.owner.partition("/")[0] for one in mine}),
        },
    }


def seen_by(user: Any) -> list[Shown | Unclear]:
    """The migrations that this user may see; none where there is no journal yet. Raises what the journal raises."""
    try:
        found = _journal().snapshots.all()
    except NotFound:
        return []
    may = readable({dag for one in found for dag in one.dags}, user)
    return [one for one in found if one.dags & may]


def visible(migration_id: str, user: Any) -> Shown | Unclear | None:
    """The migration, None where there is none that this user may see."""
    try:
        found = _journal().snapshots.one(migration_id)
    except NotFound:
        return None
    return found if found is not None and readable(found.dags, user) else None


def of_run(dag_id: str, run_id: str, user: Any) -> list[Shown | Unclear]:
    """The migrations that this run owns, or has owned, and that this user may see."""
    try:
        ids = _journal().snapshots.overview.owned_by(f"{dag_id}/{run_id}")
    except NotFound:
        return []
    return [found for found in (visible(name, user) for name in ids) if found is not None]


def migration(found: Shown | Unclear, user: Any) -> dict[str, Any]:
    """All of one migration, with the orders that this user may give. Raises what the journal raises.

    Of one that is not understood: ``unclear`` says why, beside its line of the list, its evidence and its trail.
    """
    if isinstance(found, Shown):
        try:
            return _understood(found, user)
        except TopicshiftError:
            raise
        except Exception as error:
            logger.exception("%s cannot be shown", found.row.migration_id)
            found = Unclear(found.row, found.owners, not_understood(error))
    name = found.row.migration_id
    files, _, unread = _evidence(name)
    return {
        **entry(found, datetime.now(UTC)),
        "as_of": datetime.now(UTC).isoformat(timespec="seconds"),
        "unclear": found.why,
        "said_state": found.row.state,
        "files": sorted(files),
        "unread": unread,
        "run_page": _run_page(found.row.owner),
        "chain": chain(name),
        "trail": [_event(e) for e in _journal().snapshots.overview.latest(name, TRAIL)],
    }


def _run_page(owner: str) -> str:
    dag_id, _, run_id = owner.partition("/")
    return f"{airflow_path()}/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"


def _understood(found: Shown, user: Any) -> dict[str, Any]:
    opened, name = _journal(), found.row.migration_id
    overview, now = opened.snapshots.overview, datetime.now(UTC)
    files, data, unread = _evidence(name)
    page = one(
        Sources(
            found,
            overview.latest(name, LOOKS, {"act"}),
            overview.latest(name, ANSWERS, PEOPLE),
            files,
            data,
            *opened.usual(),
            unread,
        ),
        now,
    )
    run = _run_page(found.row.owner)
    dag_id, _, run_id = found.row.owner.partition("/")
    job = None if page["going_back"] else JOBS.get(page["step"])
    return {
        **page,
        "job": {"dag_id": dag_id, "run_id": run_id, "task_id": job} if job else None,
        "run_page": run,
        "answer_page": f"{run}/required_actions",
        "orders": offered(found, page, triggerable(user), now),
        "chain": chain(name),
        "trail": [_event(e) for e in overview.latest(name, TRAIL)],
    }


def chain(migration_id: str) -> dict[str, Any]:
    """How far the audit trail was verified, and what is wrong with it."""
    found = _journal().snapshots.chain(migration_id, time.time())
    return {
        "holds": not found.problems,
        "rows": found.count,
        "ends_in": found.hash,
        "problems": list(found.problems),
        "from_its_first_row_at": datetime.fromtimestamp(found.from_s, UTC).isoformat(timespec="seconds"),
    }


def trail(migration_id: str, before: int) -> list[dict[str, Any]]:
    """Earlier rows of the audit trail, newest first."""
    return [_event(e) for e in _journal().snapshots.overview.latest(migration_id, TRAIL, before=before)]


def bundle(migration_id: str) -> bytes:
    """The audit bundle of this moment, as ``topicshift audit export --out`` writes it, without a signature.

    Raises what the journal and the store of the evidence raise.
    """
    from topicshift.adapters.bundle import packed
    from topicshift.commands.audit import snapshot
    from topicshift.commands.bundle import gather

    with closing(SqlJournal(journal_url(), create=False)) as journal:
        made = gather(*snapshot(journal, migration_id), evidence_from_env())
    return packed(made.files, made.manifest, None)


def _event(event: Any) -> dict[str, Any]:
    from topicshift.reporting.run_trail import event_shown

    return {**event_shown(event), "hash": event.hash}


def _evidence(migration_id: str) -> tuple[list[str], dict[str, bytes], list[str]]:
    """Names of the evidence, the content of what the page reads, and what could not be read, in words."""
    try:
        store = evidence_from_env()
        names = store.names(migration_id)
        wanted = [n for n in names if n in READ or is_progress(n)]
        return names, {n: d for n in wanted if (d := store.read(migration_id, n)) is not None}, []
    except TopicshiftError as error:
        return [], {}, [f"The evidence could not be read: {error}"]
