"""What a person begins with: drafts that assessments left, and open migrations that an order may be given to."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Any, Final

from topicshift.adapters.evidence import evidence_from_env
from topicshift.core.errors import TopicshiftError
from topicshift.core.page.drafts import DRAFT, begins, draft_seen, latest
from topicshift.core.page.listing import Wanted, listed
from topicshift.core.sizing.sizing import MOST
from topicshift_airflow.links import ASSESSMENT
from topicshift_airflow.operators.open import DAGS
from topicshift_airflow.page import data
from topicshift_airflow.page.rights import ASSESS, readable, triggerable

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
    return {
        "as_of": now.isoformat(timespec="seconds"),
        "most": MOST,
        "may_read": bool(readable([ASSESS], user)),
        "may_look": ASSESS in may,
        "dags": [{"cutover": c.value, "dag_id": d} for c, d in DAGS.items() if d in may],
        "drafts": [{**one, **begins(one, seen)} for one in drafts],
        "unread": unread,
        "open": listed(seen, Wanted(), now),
    }


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
