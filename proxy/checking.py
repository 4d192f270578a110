"""The settings of verification and budget, as the store takes them."""

from __future__ import annotations

from proxy.settings import BudgetSettings, VerificationSettings
from store.settings import CheckSettings

__all__ = ["checks_of"]


def checks_of(verification: VerificationSettings, budget: BudgetSettings) -> CheckSettings:
    """What the store needs to know of both."""
    return CheckSettings(
        enabled=verification.enabled,
        serve_suspects=verification.serve_suspects,
        agreements=verification.agreements,
        agree_cosine=verification.agree_cosine,
        differ_cosine=verification.differ_cosine,
        window=verification.window,
        least_checks=verification.least_checks,
        accuracy=verification.least_accuracy,
        bar_s=verification.barred_hours * 3_600,
        wrong_hits=budget.wrong_hits,
        alpha=1 - budget.confidence,
        evidence=budget.evidence,
    )
