"""The journal: who owns which migration, what was intended and done, and the audit trail.

:class:`SqlJournal` keeps it in SQLite (by default) or PostgreSQL.
"""

from __future__ import annotations

from topicshift.adapters.journal.sql import SqlJournal
from topicshift.adapters.journal.urls import default_url, from_airflow_uri

__all__ = ["SqlJournal", "default_url", "from_airflow_uri"]
