"""What may be reused: entries, vector index, reuse decision, invalidation. No HTTP."""
