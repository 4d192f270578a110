"""What checks of answers found: question keys, versions of answers, evidence for the error budget."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Apply the revision."""
    op.create_table(
        "answer_versions",
        sa.Column("number", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("question_key", sa.LargeBinary(length=32), nullable=False),
        sa.Column("entry_id", sa.String(length=32), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("verdict", sa.String(length=8), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("cosine", sa.Float(), nullable=True),
        sa.Column("space", sa.Text(), nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_index("ix_answer_versions_question_key", "answer_versions", ["question_key"])
    op.create_table(
        "evidence",
        sa.Column("number", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("confidence", sa.Float(), nullable=False),
        sa.Column("wrong", sa.Boolean(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("source", sa.String(length=16), nullable=False),
        sa.Column("question_key", sa.LargeBinary(length=32), nullable=True),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_index("ix_evidence_question_key", "evidence", ["question_key"])
    with op.batch_alter_table("entries") as batch_op:
        batch_op.add_column(sa.Column("question_key", sa.LargeBinary(length=32), nullable=True))
        batch_op.add_column(sa.Column("unserved_until", sa.Float(), nullable=False, server_default="0"))
        batch_op.create_index("ix_entries_question_key", ["question_key"])
    with op.batch_alter_table("wordings") as batch_op:
        batch_op.add_column(sa.Column("kind", sa.String(length=16), nullable=False, server_default="other_context"))
        batch_op.add_column(sa.Column("confidence", sa.Float(), nullable=False, server_default="1"))
        batch_op.add_column(sa.Column("suspect", sa.Boolean(), nullable=False, server_default=sa.false()))
        batch_op.add_column(sa.Column("agreements", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    """Take the revision back."""
    with op.batch_alter_table("wordings") as batch_op:
        for name in ("agreements", "suspect", "confidence", "kind"):
            batch_op.drop_column(name)
    with op.batch_alter_table("entries") as batch_op:
        batch_op.drop_index("ix_entries_question_key")
        batch_op.drop_column("unserved_until")
        batch_op.drop_column("question_key")
    op.drop_index("ix_evidence_question_key", table_name="evidence")
    op.drop_table("evidence")
    op.drop_index("ix_answer_versions_question_key", table_name="answer_versions")
    op.drop_table("answer_versions")
