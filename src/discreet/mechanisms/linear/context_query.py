"""Query of linear sums over users with real-valued contexts, with its sensitivity, for contextual bandits.

A user with context x takes action a and has reward r. A public
:class:`~discreet.device.feature_map.FeatureMap` gives phi = phi(x). For each block, the sums of phi phi^T and
of phi (r - 1/2) over users are released. Each action is a block, or all actions are one block if the features
are shared. The contribution does not depend on the user's plan. Rewards may be real numbers in [0, 1].

Sensitivity (neighbours: one user's whole record is replaced): see :mod:`discreet.device.context_form`.
Suppose that phi has bound 1, and that Gaussian noise of scale s is added to all matrices (GOE) and all
responses. Then all blocks together are (5/4)/s-GDP for any number of actions. For other scales, lemma 3 of
:mod:`discreet.mechanisms.linear.sensitivities` holds at the least scale of each family.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from discreet.core import checks
from discreet.core.layout import Layout
from discreet.core.releases import Floats, Ints
from discreet.core.short_repr import brief
from discreet.device.context_form import ContextForm, checked_contexts
from discreet.device.feature_map import FeatureMap
from discreet.device.linear_forms import GRAM, RESPONSE, Prepared
from discreet.mechanisms.linear import sensitivities as gram
from discreet.mechanisms.linear.linear_queries import LinearQuery, Noise, Unit


@dataclass(frozen=True)
class ContextRecord:
    """Record of one user with a real-valued context. The record is raw data.

    contexts : (1, *features.shape) float64. Every value is allowed.

    actions : (1,) int64 in [0, A).

    rewards : (1,) float64 in [0, 1].

    ``session.submit`` raises ``ValueError`` for other shapes, actions and rewards.
    """

    __repr__ = brief

    contexts: Floats
    actions: Ints
    rewards: Floats


@dataclass(frozen=True)
class ContextRecords:
    """Records of n users. Each row is the record of one user, as in :class:`ContextRecord`.

    contexts : (n, 1, *features.shape).

    actions, rewards : (n, 1).
    """

    __repr__ = brief

    contexts: Floats
    actions: Ints
    rewards: Floats

    def __len__(self) -> int:
        return len(self.actions)

    def __getitem__(self, index: int) -> ContextRecord:
        return ContextRecord(self.contexts[index], self.actions[index], self.rewards[index])

    def __iter__(self) -> Iterator[ContextRecord]:
        return (self[i] for i in range(len(self)))


@dataclass(frozen=True, kw_only=True, eq=False)
class ContextQuery(LinearQuery):
    """Query with a Gram matrix and a response for each block of contexts.

    Parameters
    ----------
    features : FeatureMap
    gram_ratio : float
        Noise scale of the Gram matrices divided by that of the responses, above 0.

    Raises ``ValueError`` for values that are not allowed.
    """

    __repr__ = brief

    features: FeatureMap
    gram_ratio: float = 1.0

    simulated: ClassVar[tuple[str, ...]] = (GRAM, RESPONSE)

    def __post_init__(self) -> None:
        checks.exactly("features", self.features, FeatureMap)
        object.__setattr__(self, "gram_ratio", checks.positive("gram_ratio", self.gram_ratio))

    def copy(self) -> ContextQuery:
        """Return an equal query. The feature map is rebuilt from its declaration."""
        return replace(self, features=replace(self.features, ranges=dict(self.features.ranges)))

    @cached_property
    def layout(self) -> Layout:  # type: ignore[override]
        """Layout with one state and one step; the context replaces the state."""
        return Layout(1, self.features.actions, 1)

    @property
    def families(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of each family, by name. The first axis is the block."""
        return self.form.shapes

    @property
    def row_families(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of each family, by name."""
        return self.families

    def check_coefficients(self, policy: Any) -> None:
        """Raise ``ValueError`` unless the ``policy`` of a plan is a finite table (blocks, p)."""
        shape, given = self.form.shapes[RESPONSE], np.asarray(policy)
        if given.shape != shape or given.dtype.kind not in "fiu" or not np.isfinite(given).all():
            raise ValueError(f"plan.policy has shape {given.shape}: must be {shape} finite coefficients")

    @cached_property
    def form(self) -> ContextForm:
        """Public configuration that a device needs for its contribution."""
        return ContextForm(
            states=1, actions=self.features.actions, horizon=1, mask=None, names=(GRAM, RESPONSE),
            features=self.features,
        )  # fmt: skip

    # -------------------------------------------------------------------------- privacy loss
    def losses(self, noise: Noise, scales: Mapping[str, Floats]) -> tuple[float, ...]:
        """Return a tuple with the joint loss of all blocks: mu by lemma 3, or epsilon for Laplace noise."""
        matrix, vector = float(scales[GRAM].min()), float(scales[RESPONSE].min())
        if noise == "triangle":
            matrix /= math.sqrt(2.0)  # noise N(0, s^2) on the diagonal is at least GOE(s / sqrt(2))
        at = {(name, block): x for name, x in ((GRAM, matrix), (RESPONSE, vector)) for block in self._blocks}
        return tuple(self.form.losses(at, noise == "laplace"))

    @property
    def _blocks(self) -> range:
        return range(self.features.blocks)

    def units(self, noise: Noise) -> tuple[Unit, ...]:
        """Return a tuple with one unit that contains all blocks."""
        at = {GRAM: np.full(1, self.gram_ratio), RESPONSE: np.ones(1)}
        scale, l1 = self.losses(noise, at)[0], math.sqrt(self.features.dimension)
        if noise == "laplace":
            own = {GRAM: gram.gram_l1(1.0, l1), RESPONSE: gram.vector_l1(l1, 1.0, "centred")}
        else:
            matrix = math.sqrt(2.0) if noise == "triangle" else 1.0
            own = {GRAM: matrix, RESPONSE: gram.vector_sensitivity(1.0, 1.0, "centred")}
        return (Unit(tuple(self._blocks), 1.0, {GRAM: self.gram_ratio * scale, RESPONSE: scale}, own),)

    # ----------------------------------------------------------------------------- records
    def checked(self, given: Any, users: int | None = None) -> Any:
        """Check one record, or the records of ``users`` users, and return copies.

        given : ContextRecord or ContextRecords. Raises ``ValueError`` for another type, for other shapes, and
            for actions or rewards out of range.
        """
        kind = ContextRecord if users is None else ContextRecords
        if not isinstance(given, kind):
            raise ValueError(f"record is a {type(given).__name__}: must be {kind.__name__}")
        lead, name = ((1,), "record") if users is None else ((users, 1), "records")
        return kind(
            *checked_contexts(self.features, given.contexts, given.actions, given.rewards, lead, name)
        )

    def sum_tables(self, prepared: Prepared, sums: Mapping[str, Floats]) -> dict[str, Floats]:
        """Return the sums of a batch by family. Matrices are upper triangles (n, p (p + 1) / 2).

        ``sums`` : exact sums of simulated users, as :meth:`sums_of` returns them. Raises ``ValueError`` if a
        sum is missing or has another shape.
        """
        found = {}
        for name, shape in ((GRAM, self._triangles), (RESPONSE, self.form.shapes[RESPONSE])):
            if name not in sums:
                raise ValueError(f"sums lacks {name!r}: must hold {', '.join(self.simulated)}")
            found[name] = checks.floats(f"sums[{name!r}]", sums[name], shape)
        return found

    @property
    def _triangles(self) -> tuple[int, int]:
        p = self.features.dimension
        return self.features.blocks, p * (p + 1) // 2

    def sums_of(self, records: ContextRecords, grid: int | None = None) -> dict[str, Floats]:
        """Return the exact sums of checked records by family. Matrices are stored as upper triangles.

        If ``grid`` is given, rewards are multiples of 1 / grid, and sums are integers in the units of cells.
        """
        lead = records.contexts[:, 0], records.actions[:, 0], records.rewards[:, 0]
        return self.block_sums(*self.form.factors(*lead, grid))

    def block_sums(self, phi: Floats, block: Ints, y: Floats) -> dict[str, Floats]:
        """Return the sums of phi phi^T and of phi y over rows of each block, by family.

        phi : (n, p). block, y : (n,).
        """
        found = {GRAM: np.zeros(self._triangles), RESPONSE: np.zeros(self.form.shapes[RESPONSE])}
        above = np.triu_indices(self.features.dimension, 1)
        for i in self._blocks:
            mine = phi[block == i]
            full = mine.T @ mine
            found[GRAM][i] = np.concatenate([np.diag(full), full[above]])
            found[RESPONSE][i] = y[block == i] @ mine
        return found

    def parts(self, record: ContextRecord) -> tuple[Any, Ints, Floats]:
        """Return the contexts, actions and rewards of a record, which are the arguments of the device."""
        return record.contexts, record.actions, record.rewards
