"""The structural fingerprint of a turn, the relations of two turns, and the guards."""

from fingerprint.facts.direct import direct_key
from fingerprint.facts.fingerprint import (
    FACTS_SCHEMA,
    Amount,
    Fingerprint,
    fingerprint_equal,
    fingerprint_of,
    pack,
    unpack,
)
from fingerprint.facts.guards import objections, relations, vetoes
from fingerprint.facts.relation import Relation

__all__ = [
    "FACTS_SCHEMA",
    "Amount",
    "Fingerprint",
    "Relation",
    "direct_key",
    "fingerprint_equal",
    "fingerprint_of",
    "objections",
    "pack",
    "relations",
    "unpack",
    "vetoes",
]
