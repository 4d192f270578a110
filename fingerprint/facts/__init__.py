"""The structural fingerprint of a turn, the relations of two turns, and the guards."""

from fingerprint.facts.fingerprint import FACTS_SCHEMA, Fingerprint, direct_key, fingerprint_of
from fingerprint.facts.guards import objections, relations, vetoes
from fingerprint.facts.relation import Relation

__all__ = [
    "FACTS_SCHEMA",
    "Fingerprint",
    "Relation",
    "direct_key",
    "fingerprint_of",
    "objections",
    "relations",
    "vetoes",
]
