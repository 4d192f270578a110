"""The structural fingerprint of a turn, the relations of two turns, and the guards."""

from fingerprint.facts.guards import objections, relations
from fingerprint.facts.relation import Relation

__all__ = ["Relation", "objections", "relations"]
