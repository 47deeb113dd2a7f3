"""Alembic revisions of the journal's schema, run by :mod:`topicshift.adapters.journal.schema` at first use."""
