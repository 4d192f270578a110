"""First tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the revision."""
    op.create_table(
        "bars",
        sa.Column("scope", sa.LargeBinary(), nullable=False),
        sa.Column("item", sa.LargeBinary(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "item"),
        sqlite_with_rowid=False,
    )
    with op.batch_alter_table("bars", schema=None) as batch_op:
        batch_op.create_index("ix_bars_at", ["at"], unique=False)

    op.create_table(
        "identities",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("identity", sa.LargeBinary(length=32), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("weights_version", sa.Text(), nullable=False),
        sa.Column("tokenizer", sa.Text(), nullable=False),
        sa.Column("lora", sa.Text(), nullable=False),
        sa.Column("system_prompt", sa.Text(), nullable=False),
        sa.Column("tools", sa.Text(), nullable=False),
        sa.Column("knowledge_version", sa.Text(), nullable=False),
        sa.Column("fingerprint_schema", sa.Text(), nullable=False),
        sa.Column("embedder", sa.Text(), nullable=False),
        sa.Column("fields", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("identity"),
    )
    op.create_table(
        "places",
        sa.Column("place_key", sa.LargeBinary(length=32), nullable=False),
        sa.Column("node", sa.String(length=32), nullable=False),
        sa.Column("used_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("place_key"),
        sqlite_with_rowid=False,
    )
    with op.batch_alter_table("places", schema=None) as batch_op:
        batch_op.create_index("ix_places_used_at", ["used_at"], unique=False)

    op.create_table(
        "purges",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("entries", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_table(
        "sessions",
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("exact_key", sa.LargeBinary(length=32), nullable=False),
        sa.Column("node", sa.String(length=32), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("session", "exact_key"),
        sqlite_with_rowid=False,
    )
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.create_index("ix_sessions_at", ["at"], unique=False)

    op.create_table(
        "entries",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("partition", sa.LargeBinary(length=32), nullable=False),
        sa.Column("identity_number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("exact_key", sa.LargeBinary(length=32), nullable=False),
        sa.Column("parent", sa.String(length=32), nullable=True),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("supersedes", sa.String(length=32), nullable=True),
        sa.Column("semantic", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("hit_count", sa.Integer(), nullable=False),
        sa.Column("last_used_at", sa.Float(), nullable=False),
        sa.Column("thumbs_up", sa.Integer(), nullable=False),
        sa.Column("thumbs_down", sa.Integer(), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("completion_tokens", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(), nullable=True),
        sa.Column("question", sa.LargeBinary(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["identity_number"],
            ["identities.number"],
        ),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("id"),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("entries", schema=None) as batch_op:
        batch_op.create_index("ix_entries_exact_key", ["exact_key"], unique=False)
        batch_op.create_index("ix_entries_expires_at", ["expires_at"], unique=False)
        batch_op.create_index("ix_entries_identity", ["identity_number"], unique=False)
        batch_op.create_index("ix_entries_last_used_at", ["last_used_at"], unique=False)
        batch_op.create_index("ix_entries_parent", ["parent"], unique=False)

    op.create_table(
        "vectors",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("space", sa.Text(), nullable=False),
        sa.Column("query", sa.LargeBinary(), nullable=True),
        sa.Column("window", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["number"], ["entries.number"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_table(
        "wordings",
        sa.Column("exact_key", sa.LargeBinary(length=32), nullable=False),
        sa.Column("node", sa.String(length=32), nullable=False),
        sa.Column("entry_number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("parent", sa.String(length=32), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["entry_number"], ["entries.number"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("exact_key"),
        sqlite_with_rowid=False,
    )
    with op.batch_alter_table("wordings", schema=None) as batch_op:
        batch_op.create_index("ix_wordings_entry", ["entry_number"], unique=False)
        batch_op.create_index("ix_wordings_node", ["node"], unique=False)


def downgrade() -> None:
    """Take the revision back."""
    with op.batch_alter_table("wordings", schema=None) as batch_op:
        batch_op.drop_index("ix_wordings_node")
        batch_op.drop_index("ix_wordings_entry")

    op.drop_table("wordings")
    op.drop_table("vectors")
    with op.batch_alter_table("entries", schema=None) as batch_op:
        batch_op.drop_index("ix_entries_parent")
        batch_op.drop_index("ix_entries_last_used_at")
        batch_op.drop_index("ix_entries_identity")
        batch_op.drop_index("ix_entries_expires_at")
        batch_op.drop_index("ix_entries_exact_key")

    op.drop_table("entries")
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.drop_index("ix_sessions_at")

    op.drop_table("sessions")
    op.drop_table("purges")
    with op.batch_alter_table("places", schema=None) as batch_op:
        batch_op.drop_index("ix_places_used_at")

    op.drop_table("places")
    op.drop_table("identities")
    with op.batch_alter_table("bars", schema=None) as batch_op:
        batch_op.drop_index("ix_bars_at")

    op.drop_table("bars")
