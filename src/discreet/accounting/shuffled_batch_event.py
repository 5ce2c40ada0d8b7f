"""What records of shuffled batches have in common: a user is in one batch, and laws of loss are composed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

from discreet.core import checks
from discreet.core.short_repr import brief

__all__ = ["BatchRecord", "listed", "typed"]


class BatchRecord(ABC):
    """A record whose epsilon is that of the worst batch, by laws of loss."""

    __repr__ = brief

    @property
    def norm(self) -> Literal["losses"]:
        """Neither a sum nor a root of squares: laws of loss are composed."""
        return "losses"

    @property
    def numerical(self) -> bool:
        """Its epsilon is computed from laws of loss."""
        return True

    @property
    def levels(self) -> int:
        """A user's records are in one batch."""
        return 1

    @abstractmethod
    def recomputed(self, delta: float) -> float:
        """The epsilon by dp-accounting, which shares no code with ``epsilon``."""


def listed(values: Any) -> list[Any]:
    """A list of a file, or ``ValueError``."""
    if not isinstance(values, list):
        raise ValueError(f"record: {checks.said(values)}: must be a list")
    return values


def typed(values: Any, kinds: tuple[type, ...]) -> tuple[Any, ...]:
    """A list of exactly these types, as a tuple, or ``ValueError``."""
    if [type(value) for value in listed(values)] != list(kinds):
        raise ValueError(f"record: {checks.said(values)}: must be {[kind.__name__ for kind in kinds]}")
    return tuple(values)
