"""Corrected branches, marks, epochs, what "yesterday" meant."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the revision."""
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "closed_nodes",
        sa.Column("node", sa.String(length=32), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("node"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_closed_nodes_at", "closed_nodes", ["at"], unique=False)
    op.create_table(
        "epochs",
        sa.Column("number", number, autoincrement=True, nullable=False),
        sa.Column("last_entry", number, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_table(
        "marks",
        sa.Column("entry_number", number, nullable=False),
        sa.Column("rater", sa.LargeBinary(), nullable=False),
        sa.Column("kind", sa.String(length=12), nullable=False),
        sa.Column("value", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["entry_number"], ["entries.number"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("entry_number", "rater", "kind"),
        sqlite_with_rowid=False,
    )
    # Plain ALTER TABLE … ADD COLUMN: making the table anew would, with foreign keys on, delete what refers to it.
    op.add_column("entries", sa.Column("sightings", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("entries", sa.Column("doubts", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("entries", sa.Column("dates", sa.Text(), nullable=False, server_default=""))
    op.create_index("ix_wordings_parent", "wordings", ["parent"], unique=False)


def downgrade() -> None:
    """Take the revision back."""
    op.drop_index("ix_wordings_parent", table_name="wordings")
    op.drop_column("entries", "dates")
    op.drop_column("entries", "doubts")
    op.drop_column("entries", "sightings")
    op.drop_table("marks")
    op.drop_table("epochs")
    op.drop_index("ix_closed_nodes_at", table_name="closed_nodes")
    op.drop_table("closed_nodes")
