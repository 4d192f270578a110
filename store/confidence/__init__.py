"""Reuse confidence: how probable it is that a stored answer is right for a turn.

``load()`` gives the shipped model, ``thresholds()`` the policy that came out of its calibration.
"""

from store.confidence.model import LearnedConfidence, load, thresholds

__all__ = ["LearnedConfidence", "load", "thresholds"]
