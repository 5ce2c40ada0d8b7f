"""Queries: several families of sums over users, and their joint sensitivity to one user.

The *price* of a query is the largest total cost of the cells that change if one trajectory is replaced
(:mod:`discreet.core.exchange`). The price of all families with separate cells for each step is computed
together, case by case. The same holds for families that add records to the same cells in the same way. Every
other family has a separate bound (:mod:`discreet.core.families`). Prices of families with different cells are
summed. A release contains one family of each :class:`~discreet.core.families.OneOf`, so the price is the
largest over these choices.

With costs w x, the price is the joint l1 sensitivity in units of the noise. With costs (w x)^2, it is the
square of the joint l2 sensitivity. For families of counts per step, both are exact if two states have two
admissible actions. The l1 sensitivity is then 2 H for each uncentred family and 6 H for all three families.
The l2 sensitivity is sqrt(2 H) for each family and sqrt(6 H) for all three.

A user may have up to m episodes (``episodes``). The contribution of a user is x = x_1 + ... + x_k with k <= m
episodes, where k can be 0. The replacement contributes x' = x'_1 + ... + x'_k'. Extend both sums to m
summands with zeros. The change is then the sum of m differences x_j - x'_j. Let D be the bound for one
episode in the same norm and with the same weights. Two episodes differ by at most D. An episode and a zero
also differ by at most D, because each step of the removed episode changes one record, which is half of OTHER,
and a return is at most C. By the triangle inequality, every l1 or l2 sensitivity is at most m D. This bound
is attained whenever D is attained. In that case one user has m copies of one episode, and the other user has
m copies of another episode. All m copies can be in the same cells, so sqrt(m) D would be too small. The
number of episodes of a user is private. The limit m is declared, and
:class:`~discreet.mechanisms.dataset.dataset_release.OneShotSession` enforces it.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.exchange import CaseCosts, Cost, Over, heaviest_of
from discreet.core.families import COMBINED, Context, OneOf, OwnBound, RecordFamily, SumFamily
from discreet.core.layout import Layout
from discreet.core.trajectories import Trajectory

Floats = NDArray[np.float64]
Norm = Literal["l1", "l2"]


class SumQuery(ABC):
    """Sums over users of the families in ``parts``.

    All sums are in one flat vector of cells, in the order of the families.

    layout : public sizes and mask. Inadmissible pairs have no cells.

    episodes : largest number m of episodes that one user may have. Every sensitivity is m times the
        sensitivity to one episode.
    """

    layout: Layout
    episodes: int
    groups: int = 0
    cut: float = 0.0

    @property
    def steered(self) -> bool:
        """True if plans choose the scales of releases (group returns, clipped rewards).

        Releases then contain measurements only.
        """
        return self.groups > 0 or self.cut > 0.0

    @property
    def stored_only(self) -> bool:
        """True if the query is for offline data sets only."""
        return self.episodes > 1

    @property
    @abstractmethod
    def parts(self) -> tuple[SumFamily | OneOf, ...]:
        """Families in the order of the flat vector. A release contains one family of each ``OneOf``."""

    @abstractmethod
    def copy(self) -> Self:
        """Return an equal query that shares no array (offsets, rows, mask) with this one."""

    # -------------------------------------------------------------------------- families and cells
    @cached_property
    def listed(self) -> tuple[SumFamily, ...]:
        """All families, including those of every ``OneOf``, in the order of the flat vector."""
        return tuple(
            f for part in self.parts for f in (part.families if isinstance(part, OneOf) else (part,))
        )

    @cached_property
    def row_families(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of each family, by name, with one axis for rows (admissible pairs).

        The families are in the order of the flat vector.
        """
        return {family.name: family.shape(self.layout) for family in self.listed}

    def integral(self, name: str) -> bool:
        """Return True if each user adds integers to the family ``name``."""
        return any(family.integral for family in self.listed if family.name == name)

    @property
    def families(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of each family, by name, e.g. ``visits (T, S, A)`` or ``transition_counts (T, S, A, S)``."""
        pair = (self.layout.states, self.layout.actions)
        return {
            family.name: (shape[0], *pair, *shape[2:]) if family.by_pair else shape
            for family, shape in zip(self.listed, self.row_families.values(), strict=True)
        }

    @property
    def support(self) -> Mapping[str, NDArray[np.bool_]]:
        """Cells that can be non-zero according to public declarations: the cells of all admissible pairs."""
        return {
            family.name: self._table(family, np.ones(family.shape(self.layout))).astype(bool)
            for family in self.listed
        }

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """First index of each family in the flat vector, and the length of the vector: (families + 1,)."""
        sizes = map(math.prod, self.row_families.values())
        return np.array(list(itertools.accumulate(sizes, initial=0)), np.int64)

    @property
    def cells(self) -> int:
        """Length of the flat vector, which is the number of cells in a release."""
        return sum(map(math.prod, self.row_families.values()))

    def to_cells(self, sums: Mapping[str, Floats]) -> Floats:
        """Convert tables by (state, action) to the flat vector of cells.

        sums : one table for each of ``families``. Raises ``ValueError`` if a family is missing, has another
            shape or contains a number that is not finite.
        """
        missing = [name for name in self.families if name not in sums]
        if missing:
            raise ValueError(f"sums lacks {missing[0]!r}: must hold {', '.join(map(repr, self.families))}")
        found = []
        for family, shape in zip(self.listed, self.families.values(), strict=True):
            table = checks.floats(f"sums[{family.name!r}]", sums[family.name], shape)
            found.append(self.layout.to_rows(table).ravel() if family.by_pair else table.ravel())
        return np.concatenate(found)

    def _table(self, family: SumFamily, part: Floats) -> Floats:
        """Return the cells of one family as a table with axes for (s, a), or a copy if it has no pairs."""
        return self.layout.from_rows(part) if family.by_pair else part.copy()

    def from_cells(self, cells: Floats) -> Mapping[str, Floats]:
        """Convert the flat vector of cells to one table by (state, action) for each family.

        The tables are views of the vector if the mask allows it.
        """
        tables = {}
        for f, (family, shape) in enumerate(zip(self.listed, self.row_families.values(), strict=True)):
            part = cells[self.offsets[f] : self.offsets[f + 1]].reshape(shape)
            tables[family.name] = self._table(family, part)
        return tables

    # -------------------------------------------------------------------------- sensitivity
    @property
    def rests_on(self) -> tuple[str, ...]:
        """Declarations that the sensitivity of any family depends on, as text."""
        return tuple(dict.fromkeys(text for family in self.listed for text in family.rests_on))

    def price(self, costs: Mapping[str, Cost], squares: bool) -> float:
        """Return the largest total cost of the changed cells in one release if one episode is replaced.

        costs : for each family, a function that returns the loss caused by an absolute change of one cell.

        squares : True if costs are squares of changes in units of the noise, False if they are linear in the
            change.
        """
        return max(self._price_of(held, costs, squares) for held in self._choices())

    def _choices(self) -> Iterator[tuple[SumFamily, ...]]:
        """Return every set of families that one release can contain."""
        return itertools.product(
            *(part.families if isinstance(part, OneOf) else (part,) for part in self.parts)
        )

    def _price_of(self, held: tuple[SumFamily, ...], costs: Mapping[str, Cost], squares: bool) -> float:
        horizon, states = self.layout.horizon, self.layout.states
        groups: dict[Over, CaseCosts] = {}
        own = 0.0
        for family in held:
            if isinstance(family, RecordFamily):
                before = groups.get(family.over, CaseCosts(0.0, 0.0, 0.0))
                added = family.costs(costs[family.name])
                groups[family.over] = CaseCosts(*(a + b for a, b in zip(before, added, strict=True)))
            elif isinstance(family, OwnBound):
                own += family.price(costs[family.name], self.layout, squares)
            else:
                raise TypeError(f"family = {family!r}: must be a RecordFamily or have a bound of its own")
        per_step = [over for over in groups if over.steps(horizon) is not None]
        prices = []
        if len(per_step) > 1:  # these families count steps of the same trajectory in separate cells
            steps = [CaseCosts(0.0, 0.0, 0.0)] * horizon
            for over in per_step:
                for h in over.steps(horizon) or ():
                    steps[h] = CaseCosts(*(a + b for a, b in zip(steps[h], groups[over], strict=True)))
            prices.append(heaviest_of(steps))
        elif per_step:
            prices.append(per_step[0].price(groups[per_step[0]], horizon, states, squares))
        for over, cases in groups.items():
            if over not in per_step:
                prices.append(over.price(cases, horizon, states, squares))
        return sum(prices) + own

    def sensitivity(self, norm: Norm, weight: Mapping[str, float]) -> float:
        """Return the joint replace-one sensitivity of all families, each multiplied by its weight.

        With clipped rewards, the result is for the families of one release, with rewards clipped at the first
        threshold.

        Parameters
        ----------
        norm : "l1" or "l2"
        weight : family name to non-negative weight (1 / noise scale); an omitted family has weight 0.

        Returns
        -------
        float
            A bound on the norm over all pairs of users. It is exact for families per step if two states have
            two admissible actions each.

        Raises
        ------
        ValueError
            If ``norm`` is another text. If ``weight`` has a name that is not a family of this query, or a
            number that is negative or not finite.
        """
        checks.choice("norm", norm, ("l1", "l2"))
        unknown = set(weight) - set(self.row_families)
        if unknown:
            raise ValueError(
                f"weight[{sorted(unknown)[0]!r}]: must be one of {', '.join(map(repr, self.row_families))}"
            )
        linear = norm == "l1"
        costs = {
            name: _cost(checks.real(f"weight[{name!r}]", weight.get(name, 0.0), 0.0), linear)
            for name in self.row_families
        }
        change = self.price(costs, squares=not linear)
        return self.episodes * (change if linear else math.sqrt(change))


@dataclass(frozen=True, eq=False)
class FamilyQuery(SumQuery):
    """Query with any combination of families.

    Parameters
    ----------
    layout : Layout
    parts : at least one :class:`~discreet.core.families.RecordFamily` or
        :class:`~discreet.core.vectors.BoundedVector`, with different names.
    episodes : largest number m >= 1 of episodes that one user may have.

    Raises
    ------
    ValueError
        If two families have the same name, if a family has another class, or if a family counts a step
        outside [0, H).
    """

    layout: Layout
    parts: tuple[SumFamily | OneOf, ...] = ()
    episodes: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        object.__setattr__(self, "episodes", checks.integer("episodes", self.episodes, 1))
        names = [getattr(family, "name", None) for family in self.parts]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"parts has families {names}: must be at least one, with different names")
        for family in self.parts:
            checks.exactly("parts", family, *COMBINED)
            if isinstance(family, RecordFamily):
                counted = family.over.steps(self.layout.horizon)
                if counted is not None and counted[-1] not in range(self.layout.horizon):
                    raise ValueError(f"parts: {family.name!r} counts step {counted[-1]}, must be below H")

    def add(self, record: Trajectory, context: Context, grid: int | None, cells: Floats) -> None:
        """Add one user's checked trajectory to the flat vector ``cells``.

        record : checked trajectory. context : public arrays of the plan. grid : with exact noise, values that
            are not counts are multiples of 1 / grid.
        """
        own = np.zeros(self.cells)  # if a family raises an error, nothing is added
        for family, begin, end in zip(self.listed, self.offsets, self.offsets[1:], strict=False):
            family.add(record, self.layout, context, grid, own[begin:end])
        cells += own

    def contribution(self, trajectory: Trajectory, context: Context | None = None) -> Mapping[str, Floats]:
        """Return the values that one user adds to every family, for audits and tests. Shapes are as in
        ``families``.

        trajectory : checked trajectory. context : public arrays of the plan, by name.
        """
        cells = np.zeros(self.cells)
        self.add(trajectory, context or {}, None, cells)
        return self.from_cells(cells)

    def copy(self) -> FamilyQuery:
        """Return an equal query that shares no array (offsets, rows, mask) with this one."""
        return replace(self, layout=self.layout.copy())


def _cost(weight: float, linear: bool) -> Callable[[float], float]:
    if linear:
        return lambda change: weight * change
    return lambda change: (weight * change) * (weight * change)
