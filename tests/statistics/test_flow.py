"""Batch flow against episodes and both against closed forms: the specification's MDP and sizes.

S = 3, A = 2, H = 3, inhomogeneous rows with zeros, a random start, Bernoulli rewards; n = 1, 3, 20, 200,
5000 users a batch; deterministic and stochastic policies. Cells are all counts N(h, s, a, s') and R(h, s, a).
Each test divides a false-alarm rate of 1e-6 among its cells and pairs (Bonferroni). Rare cells, where
the normal limit does not hold, are left to the chi-square of whole vectors at n = 1 and 3.
"""

import numpy as np
import pytest
from scipy import stats

from discreet.envs.mdp import tabular_kernels as world_kernels
from discreet.envs.mdp.tabular import TabularMDP
from discreet.envs.rollouts.rollout import rollout_batch
from discreet.mechanisms.policy_rows import policy_rows
from discreet.utils.random_streams_kernels import ROLE_BATCH, open_at, run_key

ALARM = 1e-6
SIZES = {1: 200_000, 3: 100_000, 20: 40_000, 200: 20_000, 5000: 2_000}  # users a batch: batches
H, S, A = 3, 3, 2
MOVES = H * S * A * S
CELLS = MOVES + H * S * A
KINDS = ("deterministic", "stochastic")
SETTINGS = 2 * len(SIZES)


def world():
    rng = np.random.default_rng(20261120)
    p = rng.dirichlet(np.ones(S), (H, S, A)) * (rng.random((H, S, A, S)) < 0.7)
    p[..., 1] += 0.05
    p /= p.sum(-1, keepdims=True)
    return TabularMDP(p, rng.uniform(0.1, 0.9, (H, S, A)), rng.dirichlet(np.ones(S)), reward_law="bernoulli")


def policy_of(kind):
    rng = np.random.default_rng(3)
    if kind == "deterministic":
        return rng.integers(A, size=(H, S))
    policy = rng.dirichlet(np.ones(A), (H, S))
    policy[1, 1] = [0.0, 1.0]
    return policy


def by_flow(mdp, policy, n, batches):
    """(batches, CELLS) counts of independent batches."""
    compiled, rows = policy_rows(mdp.layout, policy), mdp.layout.rows
    moves, rewards = np.zeros((batches, H, rows, S)), np.zeros((batches, H, rows))
    visits, starts, steps = np.zeros((H, rows)), np.zeros(S), np.empty((H, rows))
    work = np.empty(world_kernels.work_size(mdp.world), np.int64)
    state = open_at(run_key(5, n), ROLE_BATCH, 0, 0)
    for i in range(batches):
        world_kernels.flow(mdp.world, n, *compiled, state, visits, moves[i], rewards[i], starts, steps, work)
    return np.concatenate([moves.reshape(batches, -1), rewards.reshape(batches, -1)], axis=1)


def by_episodes(mdp, policy, n, batches):
    """The same of users played one by one."""
    out = np.zeros((batches, CELLS))
    chunk = max(1, 500_000 // n)
    for begin in range(0, batches, chunk):
        many = min(chunk, batches - begin)
        played = rollout_batch(mdp, policy, n * many, seed=11, run=n, first=n * begin)
        batch = np.arange(n * many) // n * CELLS
        for h in range(H):
            row = mdp.layout.row_index[played.states[:, h], played.actions[:, h]]
            cell = (h * S * A + row) * S + played.states[:, h + 1]
            moved = np.bincount(batch + cell, minlength=many * CELLS)
            paid = np.bincount(
                batch + MOVES + h * S * A + row, weights=played.rewards[:, h], minlength=many * CELLS
            )
            out[begin : begin + many] += (moved + paid).reshape(many, CELLS)
    return out


def closed_form(mdp, policy):
    """One user's P(cell) and P(cell i and cell j), from the start, the rows and the policy alone."""
    pi = policy if policy.ndim == 3 else np.eye(A)[policy]
    place = np.zeros((H, S))
    place[0] = mdp.initial
    for h in range(H - 1):
        place[h + 1] = np.einsum("s,sa,sat->t", place[h], pi[h], mdp.transitions[h])
    single = place[:, :, None, None] * pi[..., None] * mdp.transitions  # (H, S, A, S)
    joint = np.zeros((H, S, A, S, H, S, A, S))
    for h in range(H):
        for s, a, t in np.ndindex(S, A, S):
            joint[h, s, a, t, h, s, a, t] = single[h, s, a, t]
            at = np.eye(S)[t]
            for later in range(h + 1, H):
                cells = at[:, None, None] * pi[later][..., None] * mdp.transitions[later]
                joint[h, s, a, t, later] = single[h, s, a, t] * cells
                at = cells.sum((0, 1))
    joint = joint.reshape(MOVES, MOVES)
    joint = np.triu(joint) + np.triu(joint, 1).T
    # Given its pair a reward is a coin of its own: P(R cell and j) = r P(pair and j); r P(pair) for itself.
    pairs = np.kron(np.eye(H * S * A), np.ones(S))  # (pairs, MOVES)
    r = mdp.rewards.ravel()
    with_moves = r[:, None] * (pairs @ joint)
    among = np.outer(r, r) * (pairs @ joint @ pairs.T)
    np.fill_diagonal(among, r * (pairs @ single.ravel()))
    full = np.block([[joint, with_moves.T], [with_moves, among]])
    return np.diag(full).copy(), full


def check_moments(single, joint, n, counts):
    """Means and covariances against the closed form, of cells common enough for a normal limit."""
    limit = stats.norm.isf(ALARM / 2 / (2 * 2 * SETTINGS * CELLS * (CELLS + 3) // 2))
    batches = counts.shape[0]
    assert not counts[:, single == 0].any()
    live = batches * n * np.minimum(single, 1 - single) > 400
    e, joint = single[live], joint[np.ix_(live, live)]
    exact = n * (joint - np.outer(e, e))
    centred = counts[:, live] - n * e
    z = centred.mean(0) / np.sqrt(np.diag(exact) / batches)
    assert z.size > 20
    assert np.abs(z).max() < limit
    found = centred.T @ centred / batches
    centred *= centred
    spread = np.sqrt(np.maximum(centred.T @ centred / batches - found**2, 0) / batches)
    together = batches * (n * joint + n * (n - 1) * np.outer(e, e))  # E of the sum of products of counts
    common = (together > 2000) | (together == 0)
    size = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
    upper = np.triu(common) & (spread > 1e-9 * size)
    z = (found - exact)[upper] / spread[upper]
    assert upper.sum() > 200
    assert np.abs(z).max() < limit
    assert 0.7 < np.sqrt((z**2).mean()) < 1.4


def homogeneity(left, right, in_bins):
    """p-value of the two-sample chi-square over the values (or bins of equal mass) that are common."""
    _, code = np.unique(np.concatenate([left, right]), return_inverse=True)
    table = np.stack([np.bincount(part, minlength=code.max() + 1) for part in np.split(code, 2)])
    if in_bins and table.shape[1] > 60:
        bins = np.cumsum(table.sum(0)) * 40 // (table.sum() + 1)
        table = np.stack([np.bincount(bins, weights=row, minlength=40) for row in table])
    many = table.sum(0) >= 40
    table = np.column_stack([table[:, many], table[:, ~many].sum(1)])
    table = table[:, table.sum(0) > 0]
    return stats.chi2_contingency(table).pvalue if table.shape[1] > 1 else 1.0


def check_equal(single, n, flow, episodes):
    """Every cell, the joint law of 50 triples of cells, and at n = 1 and 3 the whole vector at once."""
    cells = np.flatnonzero(single > 0)
    values = [homogeneity(flow[:, c], episodes[:, c], True) for c in cells]
    for triple in np.random.default_rng(1).choice(cells, (50, 3)):
        places = np.array([1.0, 10_007.0, 100_000_007.0])
        if n > 20:  # coarse: each cell by quarters of its range
            edges = [np.quantile(flow[:, c], [0.25, 0.5, 0.75]) for c in triple]
            both = [
                sum(
                    np.searchsorted(e, x[:, c]) * 4**i
                    for i, (c, e) in enumerate(zip(triple, edges, strict=True))
                )
                for x in (flow, episodes)
            ]
        else:
            both = [x[:, triple] @ places for x in (flow, episodes)]
        values.append(homogeneity(*both, False))
    if n <= 3:
        weights = np.random.default_rng(0).integers(1, 2**40, CELLS)
        values.append(homogeneity(*(x.astype(np.int64) @ weights for x in (flow, episodes)), False))
    assert min(values) > ALARM / 2 / (SETTINGS * (CELLS + 51))
    assert np.mean(np.array(values) < 0.05) < 0.2  # 5 %, of tests that are not independent


@pytest.mark.statistics
@pytest.mark.parametrize("kind", KINDS)
def test_flow_episodes_and_closed_form_agree(kind):
    mdp, policy = world(), policy_of(kind)
    single, joint = closed_form(mdp, policy)
    assert 10 < (single == 0).sum() < 50
    for n, batches in SIZES.items():
        flow, episodes = by_flow(mdp, policy, n, batches), by_episodes(mdp, policy, n, batches)
        check_moments(single, joint, n, flow)
        check_moments(single, joint, n, episodes)
        check_equal(single, n, flow, episodes)
