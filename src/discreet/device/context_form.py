"""Contributions of users with real-valued contexts, for devices and servers.

A user with context x takes action a and has reward r in [0, 1]. With phi from the public feature map
(:mod:`discreet.device.feature_map`, ||phi||_2 <= 1), the contribution is phi phi^T to the Gram matrix of
block a, and phi (r - 1/2) to its response. If all actions share the features, there is one block.

*Sensitivity to replacing one user's whole record.* Let psi = e_a (x) phi, the vector with phi in block a and
zeros in the other blocks: ||psi|| = ||phi|| <= 1. The pair (psi psi^T, psi (r - 1/2)) has the loss of lemma 3
of :mod:`discreet.mechanisms.linear.sensitivities` (centred). The blocks of psi psi^T off the diagonal are
always 0. They are not released; this omission is post-processing. Therefore all blocks together have the loss
of one block, computed at the smallest scales of any block. The l1 norms of the lemmas change in the same way,
with ||phi||_1 <= sqrt(p).

Under exact noise, phi is truncated toward zero to multiples of the grid, so its norm does not grow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from discreet.device import linear_sensitivity as lemmas
from discreet.device.feature_map import FeatureMap, as_floats
from discreet.device.linear_forms import (
    GRAM,
    GRID,
    RESPONSE,
    Floats,
    Ints,
    LinearForm,
    Prepared,
    Scales,
    outer,
)

__all__ = ["ContextForm", "checked_contexts"]


@dataclass(frozen=True, eq=False, kw_only=True)
class ContextForm(LinearForm):
    """Form of contributions of contexts; see :class:`~discreet.mechanisms.linear.context_query.ContextQuery`.

    Parameters
    ----------
    features : FeatureMap
    """

    KIND: ClassVar[str] = "contexts"

    features: FeatureMap

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Mapping of each family to its shape. The first axis is the block."""
        n, p = self.features.blocks, self.features.dimension
        return {GRAM: (n, p, p), RESPONSE: (n, p)}

    def unit(self, family: str, step: int, grid: int) -> float:
        """Return the unit of the cells of a family, as described in the base class; ``step`` is not used."""
        return GRID * GRID if family == GRAM else GRID / grid

    def losses(self, scales: Scales, laplace: bool) -> list[float]:
        """Return the privacy loss of all blocks together, as mu, or as epsilon for Laplace noise."""
        matrix = min(scales[GRAM, block] for block in range(self.features.blocks))
        vector = min(scales[RESPONSE, block] for block in range(self.features.blocks))
        if laplace:
            l1 = math.sqrt(self.features.dimension)
            return [lemmas.gram_l1(1.0, l1) / matrix + lemmas.vector_l1(l1, 1.0, "centred") / vector]
        return [lemmas.pair_mu(1.0 / matrix**2, 1.0 / vector**2, "centred")]

    def prepared(self, context: Mapping[str, Any]) -> Prepared:
        """Return an empty object, because these contributions do not depend on the plan."""
        return Prepared({})

    def rows(self, contexts: Floats, actions: Ints) -> tuple[Floats, Ints]:
        """Return phi (n, p) of each user, and the block (n,) to which it belongs.

        - contexts : (n, *features.shape).
        - actions : (n,).
        """
        phi = self.features(contexts)
        if self.features.form == "per_action":
            return phi, actions
        return phi[np.arange(len(actions)), actions], np.zeros(len(actions), np.int64)

    def factors(
        self, contexts: Floats, actions: Ints, rewards: Floats, grid: int | None = None
    ) -> tuple[Floats, Ints, Floats]:
        """Return phi (n, p), the block (n,) and r - 1/2 (n,) of each user, from which sums are computed.

        If ``grid`` is given, phi and r - 1/2 are integers that count multiples of ``GRID`` and of 1 / grid.
        """
        phi, block = self.rows(contexts, actions)
        y = np.clip(rewards, 0.0, 1.0) - 0.5
        return (phi, block, y) if grid is None else (np.trunc(phi / GRID), block, np.rint(y * grid))

    def tables(
        self, prepared: Prepared, states: Any, actions: Ints, rewards: Floats, grid: int | None = None
    ) -> dict[str, Floats]:
        """Return the contribution of one user without noise, as a mapping of family to array.

        ``states`` : the context, of shape (1, *features.shape). Only the upper triangles of matrices are
        given. If ``grid`` is given, the entries are integers that count the units of :meth:`unit`.
        """
        (n, p), (phi, block, y) = self.shapes[RESPONSE], self.factors(states, actions, rewards, grid)
        found = {GRAM: np.zeros((n, p * (p + 1) // 2)), RESPONSE: np.zeros((n, p))}
        found[GRAM][block] = outer(phi)
        found[RESPONSE][block] = phi * y[:, None]
        return found

    def checked_record(self, states: Any, actions: Any, rewards: Any) -> tuple[Floats, Ints, Floats]:
        """Check one user's record and return copies of its parts.

        states : context of shape (1, *features.shape), with any values.

        actions : one integer in [0, A).

        rewards : one number in [0, 1].

        Raises ``ValueError`` for other values.
        """
        found = checked_contexts(self.features, states, actions, rewards, (1,), "record")
        return found

    def to_plain(self) -> dict[str, Any]:
        """Return the fields of the form, with the feature map as plain values."""
        plain = super().to_plain() | {"features": self.features.to_dict()}
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Return the form with these published fields."""
        return cls(**{**plain, "features": FeatureMap.from_dict(plain["features"])})


def checked_contexts(
    features: FeatureMap, contexts: Any, actions: Any, rewards: Any, lead: tuple[int, ...], name: str
) -> tuple[Floats, Ints, Floats]:
    """Check the parts of one or several records and return copies.

    - lead : leading axes of every part.
    - name : name of the record in messages.

    Raises ``ValueError`` for other shapes, actions outside [0, A), and rewards outside [0, 1]. Every value of
    a context is accepted.
    """
    x = as_floats(contexts)
    if x.shape != (*lead, *features.shape):
        raise ValueError(f"{name}.contexts has shape {x.shape}: must be {(*lead, *features.shape)}")
    a = np.array(actions)
    if a.shape != lead or a.dtype.kind not in "iu":
        raise ValueError(f"{name}.actions has shape {a.shape} and dtype {a.dtype}: must be {lead} integers")
    bad = np.argwhere((a < 0) | (a >= features.actions))
    if bad.size:
        at = tuple(bad[0].tolist())
        raise ValueError(
            f"{name}.actions{list(at)} = {a[at]}: must be an integer in [0, {features.actions - 1}]"
        )
    r = np.array(rewards, np.float64)
    if r.shape != lead:
        raise ValueError(f"{name}.rewards has shape {r.shape}: must be {lead}")
    bad = np.argwhere(~((r >= 0) & (r <= 1)))
    if bad.size:
        at = tuple(bad[0].tolist())
        raise ValueError(f"{name}.rewards{list(at)} = {r[at]}: must be in [0, 1]")
    return x, a.astype(np.int64), r
