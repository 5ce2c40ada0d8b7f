"""Policies as indices of admissible state-action pairs (the rows of a layout)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core import checks
from discreet.core.layout import Layout
from discreet.mechanisms.interfaces import Plan, probabilities

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class PolicyRows(NamedTuple):
    """Checked policy as the arrays that compiled kernels read.

    A row is the index of an admissible state-action pair. For a deterministic policy, ``rows`` (H, S) has the
    row that the policy plays in state s at step h. For a stochastic policy, ``probabilities`` (H, R) has the
    probability of each row's action in the row's state. The array of the other kind is empty. Keep this
    object to use one policy many times, so that the policy is checked only once.
    """

    stochastic: bool
    rows: Ints
    probabilities: Floats


def policy_rows(layout: Layout, policy: ArrayLike | PolicyRows) -> PolicyRows:
    """Check a deterministic (H, S) integer policy or a stochastic (H, S, A) policy, and convert it to rows.

    Raises
    ------
    ValueError
        If the policy has neither of these shapes, if an action is out of range or not admissible, or if
        probabilities are negative or do not sum to 1 over the admissible actions (within 1e-9).
    """
    if isinstance(policy, PolicyRows):
        return policy
    array = np.asarray(policy)
    shape = (layout.horizon, layout.states)
    if array.shape == shape and array.dtype.kind in "iu":
        bad = (array < 0) | (array >= layout.actions)
        if bad.any():
            h, s = np.argwhere(bad)[0]
            raise ValueError(
                f"policy[{h}, {s}] = {array[h, s]}: must be an integer in [0, {layout.actions - 1}]"
            )
        rows = layout.row_index[np.arange(layout.states), array]
        if layout.mask is not None and (rows < 0).any():
            h, s = np.argwhere(rows < 0)[0]
            raise ValueError(f"policy[{h}, {s}] = {array[h, s]}: not admissible in state {s}")
        return PolicyRows(False, np.ascontiguousarray(rows), np.empty((0, 0)))
    if array.shape != (*shape, layout.actions):
        raise ValueError(
            f"policy has shape {array.shape} and dtype {array.dtype}: must be integers {shape} or "
            f"probabilities {(*shape, layout.actions)}"
        )
    table = probabilities("policy", checks.floats("policy", array, array.shape))
    if layout.mask is not None and (table[:, ~layout.mask] > 0).any():
        h, s, a = np.argwhere((table > 0) & ~layout.mask)[0]
        raise ValueError(
            f"policy[{h}, {s}, {a}] = {table[h, s, a]}: action {a} is not admissible in state {s}"
        )
    return PolicyRows(True, np.empty((0, 0), np.int64), layout.to_rows(table))


def anybody(layout: Layout, users: int) -> Plan:
    """Return the plan for users with an unknown policy: uniform over admissible actions at every step."""
    mask = np.ones((layout.states, layout.actions)) if layout.mask is None else layout.mask.astype(float)
    row = mask / mask.sum(axis=1, keepdims=True)
    return Plan(np.repeat(row[None], layout.horizon, axis=0), users)
