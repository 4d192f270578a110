"""What a database says of itself, and the spaces whose vectors are kept with fewer dimensions."""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the revision."""
    properties = op.create_table(
        "properties",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.bulk_insert(properties, [{"name": "store", "value": secrets.token_hex(16)}])
    op.create_table(
        "vector_spaces",
        sa.Column("space", sa.Text(), nullable=False),
        sa.Column("dimensions", sa.Integer(), nullable=False),
        sa.Column("matrix", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("space"),
    )


def downgrade() -> None:
    """Take the revision back."""
    op.drop_table("vector_spaces")
    op.drop_table("properties")
