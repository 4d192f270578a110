"""Vectors know their bucket, processes tell each other of changes, and PostgreSQL keeps vectors as ``halfvec``."""

from __future__ import annotations

from hashlib import blake2b

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_SLICE = 5_000


def upgrade() -> None:
    """Apply the revision."""
    op.create_table(
        "changes",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("origin", sa.String(length=32), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_changes_at", "changes", ["at"], unique=False)
    op.add_column("vectors", sa.Column("bucket", sa.LargeBinary(length=16), nullable=True))
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        # No release kept vectors there as bytes: the columns are empty.
        op.execute("CREATE EXTENSION IF NOT EXISTS vector")
        for column in ("query", "window", "topic"):
            op.execute(f'ALTER TABLE vectors ALTER COLUMN "{column}" TYPE halfvec USING NULL')
    else:
        _fill(connection)
    op.create_index("ix_vectors_bucket", "vectors", ["bucket"], unique=False)


def _fill(connection: sa.Connection) -> None:
    rows = sa.text(
        "SELECT vectors.number, entries.partition, identities.identity, vectors.space FROM vectors "
        "JOIN entries ON entries.number = vectors.number "
        "JOIN identities ON identities.number = entries.identity_number "
        "WHERE vectors.number > :after AND vectors.query IS NOT NULL ORDER BY vectors.number LIMIT :slice"
    )
    after = 0
    while part := connection.execute(rows, {"after": after, "slice": _SLICE}).all():
        after = part[-1].number
        connection.execute(
            sa.text("UPDATE vectors SET bucket = :bucket WHERE number = :number"),
            [{"number": r.number, "bucket": _digest(r.partition, r.identity, r.space)} for r in part],
        )


def _digest(partition: bytes, identity: bytes, space: str) -> bytes:
    named = partition + identity + space.encode("utf-8", "surrogatepass")
    return blake2b(named, digest_size=16, person=b"antiphon.bucket").digest()


def downgrade() -> None:
    """Take the revision back."""
    op.drop_index("ix_vectors_bucket", table_name="vectors")
    with op.batch_alter_table("vectors", schema=None) as batch_op:
        batch_op.drop_column("bucket")
    if op.get_bind().dialect.name == "postgresql":
        for column in ("query", "window", "topic"):
            op.execute(f'ALTER TABLE vectors ALTER COLUMN "{column}" TYPE bytea USING NULL')
    op.drop_table("changes")
