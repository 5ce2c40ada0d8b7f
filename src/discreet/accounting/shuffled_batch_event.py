"""Common base class of the records of shuffled batches.

Each user is in one batch. The loss of a batch is computed by composing privacy-loss distributions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

from discreet.core import checks
from discreet.core.short_repr import brief


class BatchRecord(ABC):
    """Privacy record with the epsilon of the worst batch, computed from privacy-loss distributions."""

    __repr__ = brief

    @property
    def norm(self) -> Literal["losses"]:
        """``"losses"``: loss distributions are composed, so the loss is not an l1 or l2 norm."""
        return "losses"

    @property
    def numerical(self) -> bool:
        """True, because epsilon is computed from privacy-loss distributions."""
        return True

    @property
    def levels(self) -> int:
        """Number of batches that contain one user, which is 1."""
        return 1

    @abstractmethod
    def recomputed(self, delta: float) -> float:
        """Return the epsilon computed by dp-accounting, which shares no code with :meth:`epsilon`."""


def listed(values: Any) -> list[Any]:
    """Return ``values`` that were read from a file. Raises ``ValueError`` unless they are a list."""
    if not isinstance(values, list):
        raise ValueError(f"record: {checks.said(values)}: must be a list")
    return values


def typed(values: Any, kinds: tuple[type, ...]) -> tuple[Any, ...]:
    """Return the list ``values`` as a tuple.

    Raises ``ValueError`` unless its items have exactly the types ``kinds``.
    """
    if [type(value) for value in listed(values)] != list(kinds):
        raise ValueError(f"record: {checks.said(values)}: must be {[kind.__name__ for kind in kinds]}")
    return tuple(values)
