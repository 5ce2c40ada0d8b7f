"""Stored user records (raw data), and the sums over the records of one step.

Features and weights are functions of the pair p = (s, a). Every question of
:mod:`discreet.mechanisms.linear.adaptive_queries` is therefore a function of the following sums over the
records of one step:

* n_p, the number of records with pair p, and R_p, the sum of the rewards of these records;
* the sum of values[s'] over the records with pair p, for a public array ``values``;
* for each s', the sum of x[p] over the records that lead to s', for a public table x.

If the table of (pair, next state) counts of all steps is small, only this table is stored. The choice depends
only on public sizes (:data:`MOST_CELLS`). The cost of a question and the memory then do not depend on the
number of users. Otherwise the records of each step are stored, in as few bytes as their ranges need. Integer
arrays give integer sums, which are exact below 2^63. In floating point the results of the two storage forms
differ by rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core.layout import Layout
from discreet.core.releases import Floats, Ints

# largest H S A S (with halves: 2 H S A S) for tables of counts; these tables then need 64 MB
MOST_CELLS = 2**23

_BEGINS = np.array([-1, 0, 0, -1, -1, 0, -1], np.int64)  # selects the sums of transitions and of rewards


class Stored:
    """Stored records of all steps, for all users together or for each half of the users.

    Parameters
    ----------
    layout
        Layout, which gives S, A and H.
    halves
        True if sums for each half of the users are needed.
    rewards
        True if sums of rewards are needed.
    dense
        True: store counts; False: store records. None: choose by the size of the table of counts.
    fine
        True if rewards are multiples of 2^-20 or of a larger power of two. Single precision is then enough.
    """

    _STATE = ("_cells", "_sums", "_chunks")  # raw data that are saved in a file

    def __init__(
        self, layout: Layout, *, halves: bool, rewards: bool, fine: bool, dense: bool | None = None
    ) -> None:
        self._actions, self._horizon = layout.actions, layout.horizon
        self._pairs, self._states = layout.states * layout.actions, layout.states
        self._index = np.arange(self._pairs).reshape(layout.states, layout.actions)
        self._halves = 2 if halves else 1
        cells = self._halves * layout.horizon * self._pairs * self._states
        self.dense = cells <= MOST_CELLS if dense is None else dense
        self._cells = np.zeros((0, 0, 0, 0), np.int64)
        self._sums = np.zeros((0, 0, 0))
        if self.dense:
            self._cells = np.zeros((self._halves, layout.horizon, self._pairs, self._states), np.int64)
            self._sums = np.zeros((self._halves, layout.horizon, self._pairs))
        self._with_rewards, self._real = rewards, np.float32 if fine else np.float64
        self._chunks: list[tuple[NDArray[np.int32], NDArray[np.int32], Floats, NDArray[np.int8]]] = []

    def add(self, states: Ints, actions: Ints, rewards: Floats, half: Ints) -> None:
        """Add n checked episodes.

        states : ``(n, H + 1)``. actions, rewards : ``(n, H)``.

        half : ``(n,)``, the half (0 or 1) of each episode's user.
        """
        from discreet.core import trajectory_sums_kernels as records_kernels

        half = half if self._halves == 2 else np.zeros_like(half)
        if self.dense:
            for g in range(self._halves):
                own = half == g
                records_kernels.add_trajectories(
                    states[own], actions[own], rewards[own], self._index, 0, self._horizon, self._horizon,
                    self._pairs, _BEGINS, 0.0, 0.0, self._cells[g].reshape(-1), self._sums[g].reshape(-1),
                )  # fmt: skip
            return
        pairs = states[:, :-1] * self._actions + actions
        kept = rewards.T if self._with_rewards else np.zeros((actions.shape[1], 0))
        self._chunks.append(
            (
                np.ascontiguousarray(pairs.T, np.int32),
                np.ascontiguousarray(states[:, 1:].T, np.int32),
                np.ascontiguousarray(kept, self._real),
                half.astype(np.int8),
            )
        )

    def add_counts(self, moves: Floats, rewards: Floats) -> None:
        """Add simulated users from exact tables: moves ``(H, S, A, S)`` and rewards ``(H, S, A)``.

        Raises ``ValueError`` if records are stored instead of counts.
        """
        self.check_counts()
        self._cells[0] += np.rint(moves).astype(np.int64).reshape(self._cells.shape[1:])
        self._sums[0] += rewards.reshape(self._sums.shape[1:])

    def check_counts(self) -> None:
        """Raise ``ValueError`` if records are stored instead of counts."""
        if not self.dense:
            raise ValueError("sums: must be given user by user, these sizes are too many to keep counts")

    def check(self) -> None:
        """Raise ``ValueError`` unless records read from a file are valid for these states and pairs."""
        horizon = self._horizon
        for chunk in self._chunks:
            pairs, to, rewards, half = chunk
            n = half.size
            kinds = [one.dtype for one in chunk] == [np.int32, np.int32, self._real, np.int8]
            shapes = [one.shape for one in chunk]
            wanted = [(horizon, n), (horizon, n), (horizon if self._with_rewards else 0, n), (n,)]
            if not kinds or shapes != wanted:
                raise ValueError("_chunks: must hold pairs, next states, rewards and halves of each step")
            for one, below in ((pairs, self._pairs), (to, self._states), (half, self._halves)):
                if n and not 0 <= one.min() <= one.max() < below:
                    raise ValueError(f"_chunks: must hold numbers in [0, {below})")
            if rewards.size and not 0.0 <= rewards.min() <= rewards.max() <= 1.0:
                raise ValueError("_chunks: must hold rewards in [0, 1]")
        if (self._cells < 0).any() or not (self._sums >= 0.0).all():
            raise ValueError("_cells: must be counts of at least 0")

    def clear(self) -> None:
        """Delete all records and counts."""
        self._cells, self._sums, self._chunks = self._cells[:0], self._sums[:0], []

    def _table(self, step: int, half: int | None) -> Ints:
        """Return (P, S) counts of (pair, next state) at a step, for half 0, half 1, or all users (None)."""
        table: Ints = self._cells[:, step].sum(axis=0) if half is None else self._cells[half, step]
        return table

    def visits(self, step: int, half: int | None) -> Ints:
        """Return the (P,) numbers n_p of records with each pair."""
        from discreet.mechanisms.linear import dataset_sums_kernels as kernels

        if self.dense:
            visits: Ints = self._table(step, half).sum(axis=1)
            return visits
        out = np.zeros(self._pairs, np.int64)
        for pairs, _, _, halves in self._chunks:
            kernels.add_visits(pairs[step], halves, -1 if half is None else half, out)
        return out

    def rewards(self, step: int, half: int | None) -> Floats:
        """Return the (P,) sums R_p of the rewards at each pair.

        The sums are exact if rewards are multiples of a power of two.
        """
        from discreet.mechanisms.linear import dataset_sums_kernels as kernels

        if self.dense:
            sums: Floats = self._sums[:, step].sum(axis=0) if half is None else self._sums[half, step]
            return sums
        out = np.zeros(self._pairs)
        for pairs, _, rewards, halves in self._chunks:
            kernels.add_numbers(pairs[step], rewards[step], halves, -1 if half is None else half, out)
        return out

    def values(self, step: int, half: int | None, values: NDArray[Any]) -> NDArray[Any]:
        """Return the (P,) sums of values[s'] over the records with each pair.

        The sums have the dtype of ``values`` (S,), which is int64 or float64.
        """
        from discreet.mechanisms.linear import dataset_sums_kernels as kernels

        if self.dense:
            return self._table(step, half) @ values
        out = np.zeros(self._pairs, values.dtype)
        for pairs, to, _, halves in self._chunks:
            kernels.add_values(pairs[step], to[step], halves, -1 if half is None else half, values, out)
        return out

    def moves(self, step: int, half: int | None, x: NDArray[Any]) -> NDArray[Any]:
        """Return a (d, S) array whose column s' is the sum of x[p] over the records that lead to s'.

        The array has the dtype of ``x`` (P, d).
        """
        from discreet.mechanisms.linear import dataset_sums_kernels as kernels

        if self.dense:
            return x.T @ self._table(step, half)
        out = np.zeros((self._states, x.shape[1]), x.dtype)
        for pairs, to, _, halves in self._chunks:
            kernels.add_moves(pairs[step], to[step], halves, -1 if half is None else half, x, out)
        return np.ascontiguousarray(out.T)
