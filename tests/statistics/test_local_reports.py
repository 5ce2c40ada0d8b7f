"""Sums of randomized reports against single reports, and the whole batch against episodes.

Fixed seeds. False alarms: every comparison is at 5 standard errors or p < 1e-7, and there are fewer than
two thousand, most of them dependent: below 1e-3 before the seeds were fixed, none afterwards.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import discreet as dr
from discreet.core.count_query import CountQuery
from discreet.core.rng import Seeded
from discreet.envs.rollouts.rollout import reported_counts, rollout_batch
from discreet.mechanisms.interfaces import Plan, Schedule
from discreet.mechanisms.local import randomized_response_kernels as local_kernels
from discreet.mechanisms.local.randomized_response import KINDS, randomizer
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.seeded_rng import SeededRng
from discreet.utils.random_streams_kernels import ROLE_AUDIT, open_at, run_key

pytestmark = pytest.mark.statistics
SE = 5.0


def _sums(kind, epsilon, elements, counts, draws, singly, seed):
    one = randomizer(kind, Fraction(epsilon), elements)
    state = open_at(run_key(seed), ROLE_AUDIT, int(singly), 0)
    return one, local_kernels.draw_sums(
        state, int(one.unary), elements, one.size, one.own, one.other, np.array(counts), draws, singly
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("elements", "epsilon", "counts"),
    [
        (4, 1.0, (40, 0, 3, 12)),
        (6, 0.3, (50, 1, 20, 0, 0, 19)),
        (2, 2.0, (9, 30)),
        (5, 3.0, (0, 33, 0, 7, 0)),
    ],
)
def test_sum_of_reports_has_the_law_of_its_reports(kind, elements, epsilon, counts):
    """Both ways of drawing subsets are used: many users of one element, and few."""
    draws = 20_000
    one, together = _sums(kind, epsilon, elements, counts, draws, False, 1)
    _, singly = _sums(kind, epsilon, elements, counts, draws, True, 2)
    n, p, q = sum(counts), float(one.p), float(one.q)
    gap, own, other, both, others = one.moments
    assert gap == pytest.approx(p - q)
    for found in (together, singly):
        for e, c in enumerate(counts):
            variance = c * own + (n - c) * other
            assert abs(found[:, e].mean() - (c * p + (n - c) * q)) <= SE * np.sqrt(variance / draws)
            assert abs(found[:, e].var() - variance) <= SE * variance * np.sqrt(2.2 / draws)
        for e in range(elements):
            for f in range(e):
                c = counts[e] + counts[f]
                covariance = c * both + (n - c) * others
                spread = np.sqrt(found[:, e].var() * found[:, f].var() * 2.2 / draws)
                assert abs(np.cov(found[:, e], found[:, f])[0, 1] - covariance) <= SE * spread
    for e in range(elements):
        assert _same(together[:, e], singly[:, e]) > 1e-7
    mixed = np.arange(1, elements + 1) ** 2
    assert _same(together @ mixed, singly @ mixed) > 1e-7


def _same(a, b):
    """p-value of a chi-squared test of homogeneity on pooled classes of at least 20 expected draws."""
    values, codes = np.unique(np.concatenate([a, b]), return_inverse=True)
    table = np.zeros((2, values.size))
    np.add.at(table[0], codes[: a.size], 1)
    np.add.at(table[1], codes[a.size :], 1)
    merged, at = [], np.zeros(2)
    for column in table.T:
        at = at + column
        if at.sum() >= 40:
            merged.append(at)
            at = np.zeros(2)
    if at.any() and merged:
        merged[-1] = merged[-1] + at
    if len(merged) < 2:
        return 1.0
    return float(stats.chi2_contingency(np.array(merged).T).pvalue)


def _by_users(mdp, policy, n, steps, share, runs, stochastic):
    """Reported records of n users, drawn user by user."""
    rng, layout = np.random.default_rng(5), mdp.layout
    moves = np.zeros((runs, layout.horizon, layout.states, layout.actions, layout.states))
    bits = np.zeros((runs, layout.horizon, layout.states, layout.actions, 2))
    for i in range(runs):
        for life in rollout_batch(mdp, policy, n, seed=77, run=i):
            for h in rng.choice(layout.horizon, steps, replace=False):
                s, a = life.states[h], life.actions[h]
                if rng.random() < share:
                    bits[i, h, s, a, int(rng.random() < life.rewards[h])] += 1
                else:
                    moves[i, h, s, a, life.states[h + 1]] += 1
    return moves, bits


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("stochastic", [False, True])
def test_flow_of_reporters_is_that_of_users(steps, stochastic):
    """Joint law: means, variances, and covariances across steps against users drawn one by one."""
    mdp = dr.make("random", seed=3, states=3, actions=2, horizon=3)
    policy = np.full((3, 3, 2), 0.5) if stochastic else np.tile([0, 1, 0], (3, 1))
    n, share, runs = 6, 0.3, 1500
    ours = [reported_counts(mdp, policy, n, steps, share, run_key(9, i)) for i in range(runs)]
    moves, bits = _by_users(mdp, policy, n, steps, share, runs, stochastic)
    flat = np.array([np.append(o["reported_moves"].ravel(), o["reported_bits"].ravel()) for o in ours])
    theirs = np.concatenate([moves.reshape(runs, -1), bits.reshape(runs, -1)], axis=1)
    assert (flat.sum(axis=1) == n * steps).all()
    assert all(o["step_visits"].sum() == 3 * n and o["starts"].sum() == n for o in ours)
    spread = np.sqrt((flat.var(axis=0) + theirs.var(axis=0)) / runs) + 1e-9
    assert (np.abs(flat.mean(axis=0) - theirs.mean(axis=0)) <= SE * spread + 2 / runs).all()
    rng = np.random.default_rng(0)
    for _ in range(40):  # projections see the joint law
        z = rng.normal(size=flat.shape[1])
        assert stats.ks_2samp(flat @ z, theirs @ z).pvalue > 1e-7
    assert _same(flat[:, :18].sum(axis=1), theirs[:, :18].sum(axis=1)) > 1e-7


@pytest.mark.parametrize("kind", KINDS)
def test_batches_have_the_law_of_episodes(kind):
    """Releases of one batch of users: unbiased, equal in law, the noise as stated, within the bounds."""
    mdp = dr.make("random", seed=3, states=3, actions=2, horizon=3)
    query, policy = CountQuery(mdp.layout), np.tile([0, 1, 0], (3, 1))
    plan, n, runs = Plan(policy, users=30), 30, 400
    private = Local(epsilon=1.0, randomizer=kind, steps=1)
    schedule = Schedule(60, times=np.array([0, 30]), plans="deterministic")
    episodes, batches, truths = [], [], []
    for run in range(runs):
        keys = Seeded(1, run).keys
        session = private.start(query, schedule, Seeded(1, run))
        session.release()
        encoder = session.begin(plan)
        truth = np.zeros(query.cells)
        for k, life in enumerate(rollout_batch(mdp, policy, n, seed=2, run=run)):
            session.submit(encoder(life, plan, SeededRng(keys.noise, k)))
            truth += query.to_cells(query.contribution(life))
        release = session.release()
        episodes.append(query.to_cells({m: e.value for m, e in release.estimates.items()}))
        truths.append(truth)
        session = private.start(query, schedule, Seeded(3, run))
        session.release()
        session.begin(plan)
        reports = session.mechanism.reports
        session.submit_sum(
            reported_counts(mdp, policy, n, 1, reports.reward_share, Seeded(3, run).keys.environment), n
        )
        release = session.release()
        batches.append(query.to_cells({m: e.value for m, e in release.estimates.items()}))
    a, b, t = np.array(episodes), np.array(batches), np.array(truths)
    noise = a - t
    spread = noise.std(axis=0) / np.sqrt(runs) + 1e-9
    assert (np.abs(noise.mean(axis=0)) <= SE * spread).all()
    rng = np.random.default_rng(1)
    for _ in range(30):
        z = rng.normal(size=query.cells)
        assert stats.ks_2samp(a @ z, b @ z).pvalue > 1e-7
    for f, (name, estimate) in enumerate(release.estimates.items()):
        part = noise[:, query.offsets[f] : query.offsets[f + 1]]
        assert (np.abs(part).max(axis=1) > estimate.law.bound(0.2)).mean() <= 0.2
        if name == "transition_counts":
            cells = part.reshape(runs, 3, mdp.layout.rows, 3)
            rows = mdp.layout.row_index[np.arange(3), policy[0]]
            squares = (cells[:, :, rows] ** 2).mean(axis=(1, 2, 3))
            error = squares.std() / np.sqrt(runs)
            assert abs(squares.mean() - estimate.law.std() ** 2) <= SE * error
            row_sums = np.abs(cells.sum(axis=3)).reshape(runs, -1).max(axis=1)
            assert (row_sums > estimate.law.bound(0.2, rows=True)).mean() <= 0.2


def test_regret_by_batches_is_that_by_episodes():
    mdp = dr.make("riverswim", rewards="bernoulli", horizon=6)
    learner, private = dr.NoiseAwareUCBVI(), Local(epsilon=30.0)
    finals = [
        dr.simulate(mdp, learner, private, 400, seeds=300, seed=8 + i, by=by, workers=1).regret[:, -1]
        for i, by in enumerate(("episode", "batch"))
    ]
    assert stats.ks_2samp(*finals).pvalue > 1e-7
