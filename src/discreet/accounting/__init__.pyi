"""Guarantees and budgets."""

from discreet.core.guarantee import Guarantee as Guarantee
from discreet.mechanisms.interfaces import Budget as Budget

__all__: list[str]
