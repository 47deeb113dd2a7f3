"""The act of each migration that is under way; and steps that are being taken back say so."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "topicshift_acts",
        sa.Column(
            "migration_id", sa.String(128), sa.ForeignKey("topicshift_migrations.migration_id"), primary_key=True
        ),
        sa.Column("act", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("began_at", sa.String(40), nullable=False),
        sa.Column("until", sa.String(40), nullable=False),
    )
    op.execute("UPDATE topicshift_steps SET state = 'undoing', finished_at = NULL WHERE state = 'failed'")


def downgrade() -> None:
    raise RuntimeError("The journal's schema only goes forward: going back would drop the audit trail.")
