"""Alembic's environment: runs the revisions on the connection that the journal hands over.

The connection is inside a transaction that already holds the schema lock, so a revision happens whole or not at all.
"""

from __future__ import annotations

from alembic import context

from topicshift.adapters.journal.schema import VERSION_TABLE
from topicshift.adapters.journal.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, version_table=VERSION_TABLE)
context.run_migrations()
