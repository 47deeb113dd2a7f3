"""Migrations, locks, steps and the append-only events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_REFUSAL = "events of the audit trail are append-only"


def upgrade() -> None:
    op.create_table(
        "topicshift_migrations",
        sa.Column("migration_id", sa.String(128), primary_key=True),
        sa.Column("cluster_id", sa.String(128), nullable=False),
        sa.Column("source", sa.String(249), nullable=False),
        sa.Column("target", sa.String(249), nullable=False),
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
    op.create_index("ix_topicshift_migrations_source", "topicshift_migrations", ["cluster_id", "source"])
    op.create_index("ix_topicshift_migrations_owner", "topicshift_migrations", ["owner"])
    op.create_table(
        "topicshift_locks",
        sa.Column("cluster_id", sa.String(128), primary_key=True),
        sa.Column("topic", sa.String(249), primary_key=True),
        sa.Column("migration_id", sa.String(128), sa.ForeignKey("topicshift_migrations.migration_id"), nullable=False),
    )
    op.create_table(
        "topicshift_steps",
        sa.Column(
            "migration_id", sa.String(128), sa.ForeignKey("topicshift_migrations.migration_id"), primary_key=True
        ),
        sa.Column("step", sa.Text, primary_key=True),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sa.Column("started_at", sa.String(40), nullable=False),
        sa.Column("finished_at", sa.String(40)),
    )
    op.create_table(
        "topicshift_events",
        sa.Column(
            "migration_id", sa.String(128), sa.ForeignKey("topicshift_migrations.migration_id"), primary_key=True
        ),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("at", sa.String(40), nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sa.Column("prev_hash", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION topicshift_events_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{_REFUSAL}'; END $$"
        )
        op.execute(
            "CREATE TRIGGER topicshift_events_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON topicshift_events "
            "FOR EACH STATEMENT EXECUTE FUNCTION topicshift_events_append_only()"
        )
    else:
        for act in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER topicshift_events_no_{act.lower()} BEFORE {act} ON topicshift_events "
                f"BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END"
            )


def downgrade() -> None:
    raise RuntimeError("The journal's schema only goes forward: going back would drop the audit trail.")
