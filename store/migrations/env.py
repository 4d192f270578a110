"""Alembic's entry point: runs the revisions on the connection handed over by `store.migrations`."""

from alembic import context

from store.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
