"""Comparisons of two turns, the features of the reuse confidence."""

from fingerprint.comparisons.compare import NAMES, SCHEMA_VERSION, compare

__all__ = ["NAMES", "SCHEMA_VERSION", "compare"]
