"""The journal's tables. The schema itself is made by the Alembic revisions; a test holds the two against each other.

JSON is kept as text in its canonical spelling, because the audit trail hashes exactly what is stored.
"""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()

TOPIC = 249
"""Kafka's longest topic name."""

migrations = sa.Table(
    "topicshift_migrations",
    metadata,
    sa.Column("migration_id", sa.String(128), primary_key=True),
    sa.Column("cluster_id", sa.String(128), nullable=False),
    sa.Column("source", sa.String(TOPIC), nullable=False),
    sa.Column("target", sa.String(TOPIC), nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("active", sa.Boolean, nullable=False),
    sa.Column("step", sa.Text),
    sa.Column("plan_hash", sa.Text),
    sa.Column("spec", sa.Text, nullable=False),
    sa.Column("created_at", sa.String(40), nullable=False),
    sa.Column("updated_at", sa.String(40), nullable=False),
    sa.Column("event_count", sa.BigInteger, nullable=False),
    sa.Column("event_head", sa.String(64), nullable=False),
)

locks = sa.Table(
    "topicshift_locks",
    metadata,
    sa.Column("cluster_id", sa.String(128), primary_key=True),
    sa.Column("topic", sa.String(TOPIC), primary_key=True),
    sa.Column("migration_id", sa.String(128), sa.ForeignKey(migrations.c.migration_id), nullable=False),
)

steps = sa.Table(
    "topicshift_steps",
    metadata,
    sa.Column("migration_id", sa.String(128), sa.ForeignKey(migrations.c.migration_id), primary_key=True),
    sa.Column("step", sa.Text, primary_key=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("data", sa.Text, nullable=False),
    sa.Column("started_at", sa.String(40), nullable=False),
    sa.Column("finished_at", sa.String(40)),
)

acts = sa.Table(
    "topicshift_acts",
    metadata,
    sa.Column("migration_id", sa.String(128), sa.ForeignKey(migrations.c.migration_id), primary_key=True),
    sa.Column("act", sa.Text, nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("began_at", sa.String(40), nullable=False),
    sa.Column("until", sa.String(40), nullable=False),
)
"""The act of each migration that is under way, with its holder: at most one."""

events = sa.Table(
    "topicshift_events",
    metadata,
    sa.Column("migration_id", sa.String(128), sa.ForeignKey(migrations.c.migration_id), primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("at", sa.String(40), nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("data", sa.Text, nullable=False),
    sa.Column("prev_hash", sa.String(64), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
)

sa.Index("ix_topicshift_migrations_source", migrations.c.cluster_id, migrations.c.source)
sa.Index("ix_topicshift_migrations_owner", migrations.c.owner)
