"""Public feature maps phi(s, a), with the bounds that sensitivities rest on certified at construction.

Specification: linear-and-offline, sections 1.6 and 14 (``feature_bound``, ``feature_l1``, ``nonneg``). The
table holds every pair, visited or not, so a certificate is a maximum over a public array and says nothing
of data. The trusted core knows this type and never the model behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.numerics import checks

Floats = NDArray[np.float64]

_SLACK = 1e-12  # relative: rounding of a norm
_SPAN = 1e-9  # largest residual of 1 = phi^T v that counts as rounding


@dataclass(frozen=True, eq=False, init=False)
class Features:
    """phi (S, A, d) with ||phi(s, a)||_2 <= bound, checked for every pair.

    Parameters
    ----------
    table : (S, A, d), finite
    bound : float
        b > 0, of the Euclidean norm.
    l1 : float, optional
        a, of the sum of absolute values; None: sqrt(d) b, which always holds.
    nonneg : bool
        Declare (and check) that every coordinate is at least 0: some sensitivities are then smaller.

    Raises
    ------
    ValueError
        If a declared contract does not hold at some (s, a), which is named.
    """

    table: Floats
    bound: float
    l1: float
    nonneg: bool

    def __init__(
        self, table: ArrayLike, bound: float = 1.0, *, l1: float | None = None, nonneg: bool = False
    ) -> None:
        shape = np.shape(table)
        if len(shape) != 3 or 0 in shape:
            raise ValueError(f"table has shape {shape}: must be (S, A, d), none of them 0")
        own = checks.floats("table", table, shape)
        bound = checks.positive("bound", bound)
        norms = np.linalg.norm(own, axis=2)
        _certify("bound", norms, bound, "Euclidean norm")
        most = bound * float(np.sqrt(shape[2])) if l1 is None else checks.positive("l1", l1)
        _certify("l1", np.abs(own).sum(axis=2), most, "sum of absolute values")
        if checks.flag("nonneg", nonneg) and own.min() < 0:
            s, a, i = np.argwhere(own < 0)[0]
            raise ValueError(f"table[{s}, {a}, {i}] = {own[s, a, i]}: must be at least 0, as nonneg declares")
        own.flags.writeable = False
        self.__dict__.update(table=own, bound=bound, l1=most, nonneg=bool(nonneg))

    @property
    def states(self) -> int:
        """S."""
        return int(self.table.shape[0])

    @property
    def actions(self) -> int:
        """A."""
        return int(self.table.shape[1])

    @property
    def dimension(self) -> int:
        """d."""
        return int(self.table.shape[2])

    @cached_property
    def rows(self) -> Floats:
        """(S A, d) read-only, row s A + a."""
        return self.table.reshape(-1, self.dimension)

    @cached_property
    def constant(self) -> bool:
        """Is 1 in the span of the features, phi(s, a)^T v = 1 for all pairs and one v?

        Where it is, targets may be centred by any public constant without bias.
        """
        ones = np.ones(len(self.rows))
        v = np.linalg.lstsq(self.rows, ones, rcond=None)[0]
        return bool(np.abs(self.rows @ v - ones).max() <= _SPAN)

    @cached_property
    def dead(self) -> tuple[int, ...]:
        """Coordinates that are 0 at every pair: the Gram matrix is singular along them for any data."""
        return tuple(np.flatnonzero(~self.table.any(axis=(0, 1))).tolist())

    def scaled(self, factor: float) -> Features:
        """The features times ``factor`` > 0, with contracts to match."""
        factor = checks.positive("factor", factor)
        return Features(self.table * factor, self.bound * factor, l1=self.l1 * factor, nonneg=self.nonneg)


def _certify(name: str, measured: Floats, bound: float, words: str) -> None:
    if measured.max() > bound * (1 + _SLACK):
        s, a = np.unravel_index(int(measured.argmax()), measured.shape)
        raise ValueError(f"{name} = {bound!r}: table[{s}, {a}] has {words} {measured[s, a]:.17g}")


def one_hot(states: int, actions: int) -> Features:
    """phi(s, a) = e_{s A + a}, d = S A: the tabular special case, with b = a = 1."""
    s, a = checks.integer("states", states, 1), checks.integer("actions", actions, 1)
    return Features(np.eye(s * a).reshape(s, a, s * a), 1.0, l1=1.0, nonneg=True)
