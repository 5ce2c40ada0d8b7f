"""Compiled reports of users against the law of one user, which is enumerated path by path."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

import discreet as dr
from discreet.core.rng import Seeded
from discreet.envs.rollouts.local_reports_kernels import draw_reported, work_size
from discreet.mechanisms.policy_rows import policy_rows

KEY = Seeded(5, 1).keys.environment
Outcome = tuple[tuple[int, ...], ...]  # sorted reports: (0, h, row, successor) or (1, h, row, bit)
Law = Counter[Outcome]


def world(horizon: int = 3) -> dr.TabularMDP:
    rng = np.random.default_rng(2)
    moves, means = rng.dirichlet(np.ones(2), (2, 2)), rng.uniform(0.2, 0.8, (2, 2))
    return dr.TabularMDP(moves, means, [0.25, 0.75], horizon=horizon, reward_law="bernoulli")


def mixed(mdp: dr.TabularMDP) -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.ones(2), (mdp.horizon, 2))


def law_of_one(mdp: dr.TabularMDP, policy: np.ndarray, steps: int, share: float) -> Law:
    """Probability of everything that one user can report."""
    law: Law = Counter()
    chosen = list(combinations(range(mdp.horizon), steps))

    def go(h: int, s: int, p: float, asked: tuple[int, ...], told: Outcome) -> None:
        if h == mdp.horizon:
            law[tuple(sorted(told))] += p
            return
        for a in range(2):
            row, mean = int(mdp.layout.row_index[s, a]), float(mdp.rewards[h, s, a])
            for after in range(2):
                q = p * float(policy[h, s, a]) * float(mdp.transitions[h, s, a, after])
                step = partial(go, h + 1, after)
                if h not in asked:
                    step(q, asked, told)
                    continue
                step(q * (1 - share), asked, (*told, (0, h, row, after)))
                step(q * share * mean, asked, (*told, (1, h, row, 1)))
                step(q * share * (1 - mean), asked, (*told, (1, h, row, 0)))

    for asked in chosen:
        for s in range(2):
            go(0, s, float(mdp.initial[s]) / len(chosen), asked, ())
    return Counter({outcome: p for outcome, p in law.items() if p > 0.0})


def of_two(law: Law) -> Law:
    """The law of the reports of two independent users together."""
    both: Law = Counter()
    for one, p in law.items():
        for other, q in law.items():
            both[tuple(sorted((*one, *other)))] += p * q
    return both


def drawn(
    mdp: dr.TabularMDP, policy: np.ndarray, n: int, steps: int, share: float, batch: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(moves, bits, starts, step_visits) of a batch."""
    rows, states = mdp.layout.rows, mdp.layout.states
    moves = np.full((mdp.horizon, rows, states), -1, np.int64)  # is overwritten
    bits, starts = np.full((mdp.horizon, rows, 2), -1, np.int64), np.zeros(states)
    visits, work = np.full((mdp.horizon, rows), np.nan), np.zeros(work_size(mdp.world, steps), np.int64)
    draw_reported(
        mdp.world, n, *policy_rows(mdp.layout, policy), steps, share, KEY, batch, moves, bits, starts,
        visits, work,
    )  # fmt: skip
    return moves, bits, starts, visits


@pytest.mark.parametrize(
    ("users", "horizon", "steps", "share"), [(1, 3, 2, 0.5), (1, 3, 1, 0.25), (2, 2, 1, 0.5), (2, 2, 2, 0.0)]
)
def test_reports_have_the_joint_law_of_independent_users(
    users: int, horizon: int, steps: int, share: float
) -> None:
    """Chi-squared test of all outcomes, the rare ones together, at 1e-4; the seed is fixed."""
    mdp, batches = world(horizon), 5000
    policy = mixed(mdp)
    law = law_of_one(mdp, policy, steps, share)
    if users == 2:
        law = of_two(law)
    assert law.total() == pytest.approx(1.0)
    seen: Law = Counter()
    for batch in range(batches):
        moves, bits, _, _ = drawn(mdp, policy, users, steps, share, batch)
        told = [
            (kind, *map(int, where))
            for kind, table in enumerate((moves, bits))
            for where in zip(*np.nonzero(table), strict=True)
            for _ in range(table[where])
        ]
        seen[tuple(sorted(told))] += 1
    assert set(seen) <= set(law)
    common = [outcome for outcome, p in law.items() if p * batches >= 8.0]
    observed = np.array([seen[outcome] for outcome in common])
    expected = np.array([law[outcome] * batches for outcome in common])
    observed, expected = (np.append(each, batches - each.sum()) for each in (observed, expected))
    kept = expected > 1e-6
    assert len(common) >= 12
    assert stats.chisquare(observed[kept], expected[kept]).pvalue > 1e-4


@pytest.mark.parametrize("n", [0, 1, 500])
@pytest.mark.parametrize("steps", [1, 2, 4])
def test_every_user_is_somewhere_and_reports_so_many_steps(n: int, steps: int) -> None:
    mdp = world(4)
    moves, bits, starts, visits = drawn(mdp, mixed(mdp), n, steps, 0.3, 0)
    assert (moves >= 0).all()
    assert (bits >= 0).all()
    assert moves.sum() + bits.sum() == n * steps
    assert starts.sum() == n
    assert visits.sum(axis=1).tolist() == [n] * 4
    assert (moves.sum(axis=-1) + bits.sum(axis=-1) <= visits).all()
    if steps == 4:
        assert np.array_equal(moves.sum(axis=-1) + bits.sum(axis=-1), visits)


def test_the_share_decides_between_moves_and_rewards() -> None:
    """With all steps reported as moves, people go on from where they arrived."""
    mdp = world(4)
    policy = np.random.default_rng(1).integers(2, size=(4, 2))
    moves, bits, starts, visits = drawn(mdp, policy, 300, 4, 0.0, 1)
    assert bits.sum() == 0
    state = mdp.layout.row_state
    arrived = starts
    for h in range(4):
        assert np.array_equal(np.bincount(state, visits[h], 2), arrived)
        assert not visits[h][[row not in policy_rows(mdp.layout, policy)[1][h] for row in range(4)]].any()
        arrived = moves[h].sum(axis=0)
    moves, bits, _, visits = drawn(mdp, policy, 300, 4, 1.0, 1)
    assert moves.sum() == 0
    assert np.array_equal(bits.sum(axis=-1), visits)
