"""Privacy record of a mechanism whose loss rests on a declaration that this library has not derived.

The declaration is about a noise of a user's own (its distribution and cost), or about a vector of a user's
own (a function of one trajectory). The record holds the losses that the declared costs gave when the
mechanism was built, so that epsilon is recomputed without the declaring code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from discreet.accounting.serialization import plain_record, record_fields
from discreet.core import checks
from discreet.core.events import Fixed, Trust

__all__ = ["DeclaredRecord"]


@dataclass(frozen=True)
class DeclaredRecord:
    """Public numbers of one mechanism, and what they rest on.

    Parameters
    ----------
    mechanism : name of the mechanism, as text.
    noise : name of the noise.
    norm : "l1" if losses of cells are summed, "l2" if their squares are.
    scales : family name to noise scale.
    losses : family name to the largest loss that replacing one user causes in that family alone: epsilon
        (l1), or mu, the root of 2 rho (l2).
    joint : largest loss in all families together, in one noisy sum.
    levels : number of noisy sums that can contain one user.
    rests_on : at least one declaration, as text.

    Raises
    ------
    ValueError
        If a number is out of range, the families differ, or ``joint`` is below the loss of a family or above
        the sum (l2: the root of the sum of squares) of all.
    """

    mechanism: str
    noise: str
    norm: Literal["l1", "l2"]
    scales: Mapping[str, float] = field(hash=False)
    losses: Mapping[str, float] = field(hash=False)
    joint: float
    levels: int
    rests_on: tuple[str, ...]
    numerical: ClassVar[bool] = False

    def __post_init__(self) -> None:
        checks.choice("norm", self.norm, ("l1", "l2"))
        scales = {name: checks.real(f"scales[{name!r}]", b, 1e-100, 1e100) for name, b in self.scales.items()}
        losses = {name: checks.positive(f"losses[{name!r}]", x) for name, x in self.losses.items()}
        if not losses or set(scales) != set(losses):
            raise ValueError(
                f"scales has families {sorted(scales)}: must be those of losses, {sorted(losses)}"
            )
        joint = checks.positive("joint", self.joint)
        most = math.fsum(losses.values()) if self.norm == "l1" else math.hypot(*losses.values())
        if not max(losses.values()) * (1 - 1e-9) <= joint <= most * (1 + 1e-9):
            raise ValueError(f"joint = {joint!r}: must be in [{max(losses.values()):g}, {most:g}], by losses")
        rests_on = tuple(self.rests_on)
        if not rests_on or not all(isinstance(text, str) and text for text in rests_on):
            raise ValueError(f"rests_on = {self.rests_on!r}: must hold at least one text")
        for name, value in (
            ("scales", Fixed(scales)), ("losses", Fixed(losses)), ("joint", joint), ("rests_on", rests_on),
            ("levels", checks.integer("levels", self.levels, 1)),
        ):  # fmt: skip
            object.__setattr__(self, name, value)

    @property
    def loss(self) -> float:
        """Privacy loss of one user: epsilon for l1, the root of 2 rho for l2."""
        return self.levels * self.joint if self.norm == "l1" else math.sqrt(self.levels) * self.joint

    def epsilon(self, delta: float) -> float:
        """Raise ``ValueError``: the loss has a closed form."""
        raise ValueError("a declared mechanism has no privacy-loss distribution")

    def line(self, delta: float) -> str:
        """Describe the mechanism with its loss; ``delta`` is not used."""
        symbol = "epsilon" if self.norm == "l1" else "sqrt(2 rho)"
        shown = ", ".join(
            f"{name} scale {scale:.6g} (loss {self.losses[name]:.6g})" for name, scale in self.scales.items()
        )
        return (
            f"{self.mechanism}: {self.noise} noise, {shown}; joint loss {self.joint:.6g}, a user in at most "
            f"{self.levels} noisy sum{'s' if self.levels > 1 else ''}: {symbol} = {self.loss:.6g}"
        )

    def sentence(self, trust: Trust) -> str:
        """Describe the noise that protects the data."""
        return f"Noise: {self.noise} in every cell ({self.mechanism})."

    def to_dict(self) -> dict[str, Any]:
        """Return the record as values that JSON can store, without loss."""
        return {**plain_record(self, "declared"), "rests_on": list(self.rests_on)}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> DeclaredRecord:
        """Return the record that :meth:`to_dict` wrote. Raises ``ValueError`` on a wrong key or type."""
        given = record_fields(cls, "declared", table)
        for name in ("scales", "losses"):
            if not isinstance(given[name], Mapping):
                raise ValueError(f"record: {name} = {checks.said(given[name])}: must be a table")
        if not isinstance(given["rests_on"], list | tuple):
            raise ValueError(f"record: rests_on = {checks.said(given['rests_on'])}: must be a list")
        return cls(**given)
