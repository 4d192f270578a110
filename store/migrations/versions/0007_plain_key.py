"""The key of a question without its courtesies."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the revision. Entries that are there are found as before; the next answer to them has the key."""
    op.add_column("entries", sa.Column("plain_key", sa.LargeBinary(length=32), nullable=True))
    op.create_index("ix_entries_plain_key", "entries", ["plain_key", "parent"])


def downgrade() -> None:
    """Take the revision back."""
    op.drop_index("ix_entries_plain_key", table_name="entries")
    op.drop_column("entries", "plain_key")
