"""The journal: who owns which migration, what was intended and done, and the audit trail.

:class:`SqlJournal` keeps it in SQLite (by default) or PostgreSQL.
"""

from __future__ import annotations

from topicshift.adapters.journal.sql import SqlJournal
from topicshift.adapters.journal.urls import default_url, from_airflow_uri, journal_url_from_env

__all__ = [
    "SqlJournal",
    "default_url",
    "from_airflow_uri",
    "journal_from_env",
    "journal_url_from_env",
]


def journal_from_env() -> SqlJournal:
    """The journal that ``TOPICSHIFT_JOURNAL`` names, or the default SQLite file."""
    return SqlJournal(journal_url_from_env())
