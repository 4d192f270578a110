"""What a turn means: the decision's version in the identity, direct keys, and how vectors of contexts were made."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the revision."""
    op.add_column("identities", sa.Column("decision", sa.Text(), server_default="", nullable=False))
    op.add_column("entries", sa.Column("direct", sa.LargeBinary(length=32), nullable=True))
    op.create_index("ix_entries_direct", "entries", ["direct"], unique=False)
    op.add_column("vectors", sa.Column("topic", sa.LargeBinary(), nullable=True))
    op.add_column("vectors", sa.Column("context", sa.Text(), server_default="", nullable=False))
    op.add_column("vectors", sa.Column("fresh", sa.Boolean(), server_default=sa.false(), nullable=False))


def downgrade() -> None:
    """Take the revision back."""
    for column in ("fresh", "context", "topic"):
        op.drop_column("vectors", column)
    op.drop_index("ix_entries_direct", "entries")
    op.drop_column("entries", "direct")
    op.drop_column("identities", "decision")
