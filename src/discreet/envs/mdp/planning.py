"""Exact planning in a known tabular MDP: optimal values, policy values, occupancy measures."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from discreet.core.releases import Floats, Ints
from discreet.envs.mdp import tabular_kernels as world_kernels
from discreet.envs.mdp.tabular import TabularMDP
from discreet.mechanisms.policy_rows import PolicyRows, policy_rows


def optimal_values(mdp: TabularMDP) -> tuple[Floats, Floats, Ints]:
    """Return ``V* (H + 1, S)``, ``Q* (H, S, A)`` and an optimal policy (H, S) of ``mdp``.

    Values are in units of reward, with V*_h in [0, H - h]. If several actions are optimal, the policy takes
    the first of them. Q* is -inf at inadmissible pairs.
    """
    layout = mdp.layout
    values = np.empty((layout.horizon + 1, layout.states))
    q = np.empty((layout.horizon, layout.rows))
    rows = np.empty((layout.horizon, layout.states), np.int64)
    world_kernels.optimal(mdp.world, values, q, rows)
    return values, layout.from_rows(q, fill=-np.inf), layout.row_action[rows]


def evaluate_policy(mdp: TabularMDP, policy: ArrayLike | PolicyRows) -> Floats:
    """Return the values ``V^pi (H + 1, S)`` of a policy in ``mdp``, with V^pi[H] = 0.

    policy : (H, S) actions, or (H, S, A) action probabilities. Raises ``ValueError`` if the policy has
    another shape or takes an inadmissible action.
    """
    values = np.empty((mdp.horizon + 1, mdp.states))
    world_kernels.evaluate(mdp.world, *policy_rows(mdp.layout, policy), values)
    return values


def policy_value(mdp: TabularMDP, policy: ArrayLike | PolicyRows) -> float:
    """Return the expected return in [0, H] of a policy (H, S) or (H, S, A) in ``mdp``.

    The first state follows the initial distribution.

    Raises ``ValueError`` if the policy is invalid.
    """
    return float(mdp.initial @ evaluate_policy(mdp, policy)[0])


def occupancy(mdp: TabularMDP, policy: ArrayLike | PolicyRows) -> Floats:
    """Return the (H, S, A) occupancy measure ``d_h(s, a) = P(S_h = s, A_h = a)`` of a policy in ``mdp``.

    policy : (H, S) int, or (H, S, A) probabilities. Raises ``ValueError`` if the policy is invalid.
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
    """Return the (H, S, A) policy that takes every admissible action of ``mdp`` with equal probability."""
    mask = mdp.mask
    row = mask / mask.sum(axis=1, keepdims=True)
    return np.repeat(row[None], mdp.horizon, axis=0)
