"""What a person begins with: drafts that assessments left, and open migrations that an order may be given to."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from topicshift.adapters.evidence import evidence_from_env
from topicshift.core.errors import TopicshiftError
from topicshift.core.page.drafts import DRAFT, begins, draft_seen, latest, spec_begins, spec_seen
from topicshift.core.page.listing import Wanted, listed
from topicshift.core.sizing.sizing import MOST
from topicshift.core.spec.form import spec_files
from topicshift_airflow.links import ASSESSMENT
from topicshift_airflow.operators.open import DAGS
from topicshift_airflow.page import data
from topicshift_airflow.page.rights import ASSESS, readable, triggerable
from topicshift_airflow.runtime import SPEC_FOLDER

LOOKED: Final = 60
"""Assessments that are looked at for a draft, the latest ones by their names."""

SHOWN: Final = 20
"""Drafts that are shown, the last of each source."""

KEPT_S: Final = 10.0
"""Seconds for which what was read of the evidence is kept, for all users."""

Read = tuple[list[dict[str, Any]], list[str]]

_reading = threading.Lock()
_read: dict[str, tuple[float, Read]] = {}


def start(user: Any) -> dict[str, Any]:
    """The page for this user. Raises what the journal raises; evidence that cannot be read is named in ``unread``."""
    now, seen = datetime.now(UTC), data.seen_by(user)
    drafts, unread = _drafts() if readable([ASSESS], user) else ([], [])
    may = triggerable(user, (*DAGS.values(), ASSESS))
    begin = {c.value: d for c, d in DAGS.items() if d in may}
    return {
        "as_of": now.isoformat(timespec="seconds"),
        "most": MOST,
        "may_read": bool(readable([ASSESS], user)),
        "may_look": ASSESS in may,
        "dags": [{"cutover": cutover, "dag_id": dag_id} for cutover, dag_id in begin.items()],
        "specs": [{**one, **spec_begins(one, seen, drafts)} for one in specs(begin, SPEC_FOLDER)] if begin else [],
        "drafts": [{**one, **begins(one, seen)} for one in drafts],
        "unread": unread,
        "open": listed(seen, Wanted(), now),
    }


def specs(dag_ids: Mapping[str, str], folder: Path) -> list[dict[str, Any]]:
    """The spec files of the installation, each with the DAG (``dag_id``) of its order of the cut-over.

    ``dag_ids``: the DAG of each order that the user may trigger; ``dag_id`` is empty for another, and for a file that
    is no valid spec, whose ``problems`` say why. A folder that cannot be listed has none to offer.
    """
    out = list[dict[str, Any]]()
    try:
        names = spec_files(folder)
    except TopicshiftError:
        return []
    for name in names:
        try:
            text = (folder / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            out.append({**spec_seen(name, ""), "problems": [f"{name} cannot be read: {error}"], "dag_id": ""})
            continue
        found = spec_seen(name, text)
        out.append({**found, "dag_id": dag_ids.get(found["cutover"], "")})
    return out


def _drafts() -> Read:
    with _reading:
        try:
            store = evidence_from_env()
            kept = _read.get(store.base_url)
            if kept is None or time.monotonic() - kept[0] > KEPT_S:
                kept = time.monotonic(), _found(store)
                _read[store.base_url] = kept
            return kept[1]
        except TopicshiftError as error:
            return [], [f"The drafts could not be read: {error}"]


def _found(store: Any) -> Read:
    found, unread = list[dict[str, Any]](), list[str]()
    try:
        for folder in reversed(store.folders(ASSESSMENT)[-LOOKED:]):
            text = store.read(folder, DRAFT)
            if text is not None:
                found.append(draft_seen(folder, text.decode("utf-8", "replace")))
    except TopicshiftError as error:
        # What was read before the store fell silent is shown, with the word that it is not all.
        unread.append(f"Not every draft could be read: {error}")
    return latest(found, SHOWN), unread
