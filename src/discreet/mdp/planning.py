"""Exact planning in a known tabular MDP: optimal values, policy values, occupancy measures."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core import checks
from discreet.core.layout import Layout
from discreet.mdp import world_kernels
from discreet.mdp.tabular import TabularMDP
from discreet.protocol import probabilities

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class PolicyRows(NamedTuple):
    """A checked policy as the kernels read it, for callers that use one policy many times.

    rows : (H, S) the row played at (h, s), empty where stochastic.
    probabilities : (H, R) over rows, empty where deterministic.
    """

    stochastic: bool
    rows: Ints
    probabilities: Floats


def policy_rows(layout: Layout, policy: ArrayLike | PolicyRows) -> PolicyRows:
    """Check a deterministic (H, S) integer or a stochastic (H, S, A) policy and give its rows.

    Raises
    ------
    ValueError
        If the shape fits neither, an action is out of range or not admissible, or probabilities are
        negative or do not sum to 1 over the admissible actions (within 1e-9).
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


def optimal_values(mdp: TabularMDP) -> tuple[Floats, Floats, Ints]:
    """V* (H + 1, S), Q* (H, S, A) and an optimal policy (H, S) of ``mdp``, by backward induction.

    Exact but for rounding; values are in units of reward, V*_h in [0, H - h]. The policy takes the first
    maximiser; Q* is -inf at inadmissible pairs.
    """
    layout = mdp.layout
    values = np.empty((layout.horizon + 1, layout.states))
    q = np.empty((layout.horizon, layout.rows))
    rows = np.empty((layout.horizon, layout.states), np.int64)
    world_kernels.optimal(mdp.world, values, q, rows)
    return values, layout.from_rows(q, fill=-np.inf), layout.row_action[rows]


def evaluate(mdp: TabularMDP, policy: ArrayLike | PolicyRows) -> Floats:
    """V^pi (H + 1, S) of a deterministic (H, S) or stochastic (H, S, A) policy in ``mdp``, V^pi[H] = 0.

    Raises ``ValueError`` on a policy of another shape, or one that plays what is not admissible.
    """
    values = np.empty((mdp.horizon + 1, mdp.states))
    world_kernels.evaluate(mdp.world, *policy_rows(mdp.layout, policy), values)
    return values


def value(mdp: TabularMDP, policy: ArrayLike | PolicyRows) -> float:
    """The expected return, in [0, H], of a policy (H, S) or (H, S, A) from ``mdp``'s initial distribution.

    Raises ``ValueError`` as :func:`evaluate` does.
    """
    return float(mdp.initial @ evaluate(mdp, policy)[0])


def occupancy(mdp: TabularMDP, policy: ArrayLike | PolicyRows) -> Floats:
    """d_h(s, a) = P(S_h = s, A_h = a) under the policy in ``mdp``, (H, S, A); every step sums to 1.

    policy : (H, S) int or (H, S, A) probabilities. Raises ``ValueError`` as :func:`evaluate` does.
    """
    layout = mdp.layout
    stochastic, rows, probabilities = policy_rows(layout, policy)
    d = np.zeros((layout.horizon, layout.rows))
    mass = mdp.initial
    length = np.diff(mdp.row_ptr)
    for h in range(layout.horizon):
        if stochastic:
            d[h] = mass[layout.row_state] * probabilities[h]
        else:
            d[h, rows[h]] = mass
        slot = h if mdp.transition_slots > 1 else 0
        each = slice(slot * layout.rows, (slot + 1) * layout.rows)
        entries = slice(mdp.row_ptr[each.start], mdp.row_ptr[each.stop])
        moved = np.repeat(d[h], length[each]) * mdp.probability[entries]
        mass = np.bincount(mdp.successor[entries], moved, layout.states).astype(np.float64)
    return layout.from_rows(d)


def uniform_policy(mdp: TabularMDP) -> Floats:
    """The policy (H, S, A) that plays every admissible action of ``mdp`` with equal probability."""
    mask = mdp.mask
    row = mask / mask.sum(axis=1, keepdims=True)
    return np.repeat(row[None], mdp.horizon, axis=0)
