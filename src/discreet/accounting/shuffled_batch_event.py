"""Common base of records of shuffled batches. A user is in one batch, and loss distributions are composed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

from discreet.core import checks
from discreet.core.short_repr import brief

__all__ = ["BatchRecord", "listed", "typed"]


class BatchRecord(ABC):
    """Record whose epsilon is that of the worst batch, computed from privacy-loss distributions."""

    __repr__ = brief

    @property
    def norm(self) -> Literal["losses"]:
        """``"losses"``: loss distributions are composed, so the loss is neither an l1 nor an l2 norm."""
        return "losses"

    @property
    def numerical(self) -> bool:
        """True: epsilon is computed from loss distributions."""
        return True

    @property
    def levels(self) -> int:
        """1: a user's records are in one batch."""
        return 1

    @abstractmethod
    def recomputed(self, delta: float) -> float:
        """Return the epsilon by dp-accounting, which shares no code with ``epsilon``."""


def listed(values: Any) -> list[Any]:
    """Return a list read from a file, or raise ``ValueError``."""
    if not isinstance(values, list):
        raise ValueError(f"record: {checks.said(values)}: must be a list")
    return values


def typed(values: Any, kinds: tuple[type, ...]) -> tuple[Any, ...]:
    """Return a list of exactly these types as a tuple, or raise ``ValueError``."""
    if [type(value) for value in listed(values)] != list(kinds):
        raise ValueError(f"record: {checks.said(values)}: must be {[kind.__name__ for kind in kinds]}")
    return tuple(values)
