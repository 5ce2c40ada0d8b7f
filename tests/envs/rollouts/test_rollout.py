"""Episodes and batch flow: reproducible, exact in law against closed forms and against each other.

False alarms: every z statistic is held to 5 (normal two-sided tail 6e-7 each, on cells where the
normal limit holds), every chi-square to p > 1e-6. Seeds are fixed: an alarm is a change of code.
"""

from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import chi2, chi2_contingency

from discreet.envs import riverswim
from discreet.envs.mdp import tabular_kernels as world_kernels
from discreet.envs.mdp.planning import occupancy, optimal_values, policy_value, uniform_policy
from discreet.envs.mdp.tabular import TabularMDP
from discreet.envs.rollouts import simulated_users as crowd
from discreet.envs.rollouts.rollout import batch_counts, rollout, rollout_batch
from discreet.envs.rollouts.simulated_users import played_counts
from discreet.mechanisms.policy_rows import policy_rows
from discreet.utils.random_streams_kernels import ROLE_BATCH, open_at, run_key


def world_with_zeros(states=5, actions=2, horizon=3, seed=0, **options):
    """Random inhomogeneous rows with zeros, a random start, random means."""
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.ones(states), (horizon, states, actions))
    transitions *= rng.random(transitions.shape) < 0.8
    transitions[..., 0] += 0.05
    transitions /= transitions.sum(-1, keepdims=True)
    rewards = options.pop("rewards", rng.random((horizon, states, actions)))
    return TabularMDP(transitions, rewards, rng.dirichlet(np.ones(states)), **options)


def stochastic_policy(mdp, seed=1):
    rng = np.random.default_rng(seed)
    policy = rng.dirichlet(np.ones(mdp.actions), (mdp.horizon, mdp.states))
    policy[0, 0] = np.eye(mdp.actions)[-1]  # a first action that is never played
    return policy


def deterministic_policy(mdp, seed=2):
    return np.random.default_rng(seed).integers(mdp.actions, size=(mdp.horizon, mdp.states))


def flows(mdp, policy, n, repeats, slots=None, key=0):
    """(repeats, ...) transition counts, reward sums, starts of independent batches, by the kernel."""
    compiled, layout = policy_rows(mdp.layout, policy), mdp.layout
    slots = mdp.horizon if slots is None else slots
    transitions = np.zeros((repeats, slots, layout.rows, layout.states))
    rewards, visits = np.zeros((repeats, slots, layout.rows)), np.zeros((repeats, slots, layout.rows))
    starts, steps = np.zeros((repeats, layout.states)), np.empty((layout.horizon, layout.rows))
    state = open_at(run_key(key), ROLE_BATCH, 0, 0)
    work = np.empty(world_kernels.work_size(mdp.world), np.int64)
    for i in range(repeats):
        world_kernels.flow(
            mdp.world, n, *compiled, state, visits[i], transitions[i], rewards[i], starts[i], steps, work
        )
    return transitions, rewards, visits, starts


def sums_of_episodes(mdp, policy, n, repeats):
    """(repeats, H, R, S) transition counts and (repeats, H, R) reward sums of n users each."""
    played = rollout_batch(mdp, policy, n * repeats, seed=9)
    h = np.broadcast_to(np.arange(mdp.horizon), played.actions.shape)
    group = np.broadcast_to(np.arange(n * repeats)[:, None] // n, played.actions.shape)
    row = mdp.layout.row_index[played.states[:, :-1], played.actions]
    transitions = np.zeros((repeats, mdp.horizon, mdp.layout.rows, mdp.states))
    rewards = np.zeros((repeats, mdp.horizon, mdp.layout.rows))
    np.add.at(transitions, (group, h, row, played.states[:, 1:]), 1)
    np.add.at(rewards, (group, h, row), played.rewards)
    return transitions, rewards


def exact_moments(mdp, policy):
    """One user's P(cell i) (cells,) and P(cell i and cell j) (cells, cells), cells = (h, s, a, s')."""
    pi = policy if policy.ndim == 3 else np.eye(mdp.actions)[policy]
    single = occupancy(mdp, policy)[..., None] * mdp.transitions
    h_count, s_count, a_count = mdp.horizon, mdp.states, mdp.actions
    shape = single.shape
    joint = np.zeros((*shape, *shape))
    for h in range(h_count):
        index = np.indices(shape[1:]).reshape(3, -1)
        joint[h, index[0], index[1], index[2], h, index[0], index[1], index[2]] = single[h].ravel()
        ahead = np.eye(s_count)  # P(S_later = t | S_{h + 1})
        for later in range(h + 1, h_count):
            cells = ahead[:, :, None, None] * (pi[later][..., None] * mdp.transitions[later])
            joint[h, :, :, :, later] = single[h][..., None, None, None] * cells[None, None]
            ahead = ahead @ np.einsum("sa,sat->st", pi[later], mdp.transitions[later])
    size = h_count * s_count * a_count * s_count
    joint = joint.reshape(size, size)
    return single.ravel(), np.triu(joint) + np.triu(joint, 1).T


@pytest.fixture(scope="module")
def mdp():
    return world_with_zeros(reward_law="bernoulli")


# ---------------------------------------------------------------------------- addresses


def test_a_user_is_the_same_alone_and_in_company():
    mdp = world_with_zeros(reward_law="bernoulli")
    for policy in (stochastic_policy(mdp), deterministic_policy(mdp)):
        many = rollout_batch(mdp, policy, 6, seed=4, run=2)
        later = rollout_batch(mdp, policy, 3, seed=4, run=2, first=3)
        for i in range(6):
            alone = rollout(mdp, policy, run_key(4, 2), i)
            for name in ("states", "actions", "rewards"):
                assert np.array_equal(getattr(alone, name), getattr(many[i], name))
                if i >= 3:
                    assert np.array_equal(getattr(alone, name), getattr(later[i - 3], name))
    assert not np.array_equal(many.states, rollout_batch(mdp, policy, 6, seed=5, run=2).states)


def test_two_policies_meet_the_same_users():
    """Where actions do not matter, two learners see the same states: luck is addressed by user and step."""
    rows = np.random.default_rng(0).dirichlet(np.ones(12), (12, 1))
    mdp = TabularMDP(np.repeat(rows, 3, 1), np.full((12, 3), 0.5), horizon=9, reward_law="bernoulli")
    played = [rollout_batch(mdp, policy, 50) for policy in (uniform_policy(mdp), np.full((9, 12), 2))]
    assert np.array_equal(played[0].states, played[1].states)
    assert np.array_equal(played[0].rewards, played[1].rewards)
    assert not np.array_equal(played[0].actions, played[1].actions)


def test_golden_episode():
    """Bits that must not change: the address of a user and the words that he consumes."""
    played = rollout_batch(riverswim(horizon=12), np.ones((12, 6), int), 2, seed=7)
    assert played.states.tolist() == [
        [0, 1, 2, 2, 2, 3, 3, 2, 3, 3, 3, 2, 2],
        [0, 1, 1, 1, 1, 2, 2, 1, 2, 3, 2, 3, 3],
    ]


def test_batches_are_addressed():
    mdp, key = riverswim(), run_key(3)
    policy = uniform_policy(mdp)
    one = batch_counts(mdp, policy, 1000, key, 5, 1)
    again = batch_counts(mdp, policy, 1000, key, 5, 1)
    other = batch_counts(mdp, policy, 1000, key, 5, 2)
    assert all(np.array_equal(one[name], again[name]) for name in one)
    assert not np.array_equal(one["visits"], other["visits"])


# ------------------------------------------------------------------------- conservation


@pytest.mark.parametrize("n", [0, 1, 7, 300, 10**10])
@pytest.mark.parametrize("kind", [stochastic_policy, deterministic_policy])
def test_flow_conserves_users(mdp, n, kind):
    policy = kind(mdp)
    counts = batch_counts(mdp, policy, n, run_key(1))
    moves = counts["transition_counts"]
    assert np.array_equal(moves, np.floor(moves))
    assert (moves >= 0).all()
    assert (moves.sum((1, 2, 3)) == n).all()
    assert np.array_equal(moves.sum(3), counts["visits"])
    assert np.array_equal(counts["visits"], counts["step_visits"])
    assert np.array_equal(counts["starts"], counts["visits"][0].sum(1))
    for before, after in pairwise(range(mdp.horizon)):
        assert np.array_equal(moves[before].sum((0, 1)), counts["visits"][after].sum(1))
    assert not moves[~(mdp.transitions > 0)].any()
    assert (counts["reward_sums"] <= counts["visits"]).all()
    if policy.ndim == 2:
        assert (counts["visits"].argmax(-1) == np.where(counts["visits"].any(-1), policy, 0)).all()
    assert not counts["visits"][occupancy(mdp, policy) == 0].any()


def test_pooled_counts_are_the_sums_over_steps(mdp):
    policy, key = stochastic_policy(mdp), run_key(1)
    for n in (5, 5000):
        each, pooled = (batch_counts(mdp, policy, n, key, pooled=p) for p in (False, True))
        assert pooled["visits"].shape == (1, 5, 2)
        for name in ("visits", "transition_counts", "reward_sums"):
            assert np.array_equal(pooled[name][0], each[name].sum(0))
        assert np.array_equal(pooled["step_visits"], each["visits"])
        assert np.array_equal(pooled["starts"], each["starts"])


def test_flow_adds_and_may_leave_transitions_out(mdp):
    layout, policy = mdp.layout, policy_rows(mdp.layout, stochastic_policy(mdp))
    work, steps = np.empty(world_kernels.work_size(mdp.world), np.int64), np.empty((3, layout.rows))
    out = {}
    for slots in (0, 3):
        visits, rewards, starts = np.ones((3, layout.rows)), np.ones((3, layout.rows)), np.ones(5)
        transitions = np.ones((slots, layout.rows, 5))
        state = open_at(run_key(2), ROLE_BATCH, 0, 0)
        world_kernels.flow(mdp.world, 50, *policy, state, visits, transitions, rewards, starts, steps, work)
        out[slots] = (visits, rewards, starts)
        assert starts.sum() == 55
        assert np.array_equal(visits - 1, steps)
    assert all(np.array_equal(a, b) for a, b in zip(out[0], out[3], strict=True))


def test_deterministic_rewards_are_counts_times_value():
    mdp = world_with_zeros()
    counts = batch_counts(mdp, stochastic_policy(mdp), 1000, run_key(0))
    assert np.allclose(counts["reward_sums"], counts["visits"] * mdp.rewards, rtol=1e-14, atol=0)
    played = rollout_batch(mdp, stochastic_policy(mdp), 50)
    steps = np.arange(3)
    assert np.array_equal(played.rewards, mdp.rewards[steps, played.states[:, :-1], played.actions])


def test_certain_and_impossible_rewards():
    rewards = np.array([[1.0, 0.0], [0.0, 1.0]])
    mdp = TabularMDP(np.full((2, 2, 2), 0.5), rewards, horizon=50, reward_law="bernoulli")
    played = rollout_batch(mdp, uniform_policy(mdp), 200)
    assert np.array_equal(played.rewards, rewards[played.states[:, :-1], played.actions])
    counts = batch_counts(mdp, uniform_policy(mdp), 10**6, run_key(0))
    assert np.array_equal(counts["reward_sums"], counts["visits"] * rewards)


def test_more_users_than_the_sampler_is_exact_for(mdp):
    with pytest.raises(ValueError, match=r"n = 10000000001: must be an integer in \[0, 10000000000\]"):
        batch_counts(mdp, stochastic_policy(mdp), 10**10 + 1, run_key(0))
    with pytest.raises(ValueError, match="n = -1"):
        rollout_batch(mdp, stochastic_policy(mdp), -1)
    with pytest.raises(ValueError, match="episode = -1"):
        rollout(mdp, stochastic_policy(mdp), run_key(0), -1)


# ---------------------------------------------------------------------------------- law


@pytest.mark.parametrize("kind", [stochastic_policy, deterministic_policy])
@pytest.mark.parametrize(("n", "repeats"), [(25, 20000), (400, 6000), (20000, 2000)])
def test_flow_has_the_closed_form_moments(mdp, kind, n, repeats):
    """Means and all covariances of the counts: alias draws (n = 25) and binomials (n = 20 000)."""
    policy = kind(mdp)
    single, joint = exact_moments(mdp, policy)
    counts = flows(mdp, policy, n, repeats)[0].reshape(repeats, -1)
    variance = n * (np.diag(joint) - single**2)
    live = n * single > 20 * min(1, n / 400)
    means = counts.mean(0)
    assert not counts[:, single == 0].any()
    z = (means - n * single)[live] / np.sqrt(variance[live] / repeats)
    assert np.abs(z).max() < 5
    covariance = n * (joint - np.outer(single, single))[np.ix_(live, live)]
    centred = (counts - n * single)[:, live]
    found = centred.T @ centred / repeats
    products = (centred**2).T @ (centred**2) / repeats - found**2  # variance of one product, measured
    z = (found - covariance) / np.sqrt(np.maximum(products, 1e-12) / repeats)
    upper = np.triu_indices(live.sum())
    fixed = products[upper] < 1e-9
    assert np.allclose(found[upper][fixed], covariance[upper][fixed], atol=1e-9)
    assert np.abs(z[upper][~fixed]).max() < 5.5  # up to 4 000 pairs, heavier tails than normal
    assert 0.8 < np.sqrt((z[upper][~fixed] ** 2).mean()) < 1.2


@pytest.mark.parametrize("kind", [stochastic_policy, deterministic_policy])
@pytest.mark.parametrize("sampler", ["flow", "episodes"])
def test_one_user_has_the_exact_law_of_a_trajectory(kind, sampler):
    """n = 1: the whole vector of counts is a trajectory, whose probability is a product."""
    mdp = world_with_zeros(states=4, horizon=2, seed=3)
    policy = kind(mdp)
    pi = policy if policy.ndim == 3 else np.eye(mdp.actions)[policy]
    first = mdp.initial[:, None, None] * pi[0][..., None] * mdp.transitions[0]
    second = pi[1][..., None] * mdp.transitions[1]
    law = np.einsum("sat,tbu->satbu", first, second).ravel()
    repeats = 60000
    moves = (
        flows(mdp, policy, 1, repeats)[0]
        if sampler == "flow"
        else sums_of_episodes(mdp, policy, 1, repeats)[0]
    )
    cells = moves.reshape(repeats, 2, -1).argmax(-1)
    code = cells[:, 0] * 32 + cells[:, 1]
    full = np.zeros((32, 32))
    index = np.arange(32)
    joined = law.reshape(8, 4, 8)
    for cell in index:
        s_next = cell % 4
        full[cell, s_next * 8 : s_next * 8 + 8] = joined[cell // 4, s_next]
    expected = repeats * full.ravel()
    observed = np.bincount(code, minlength=1024)
    assert not observed[expected == 0].any()
    common = expected > 5
    pooled = np.append(observed[common], observed[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum())
    statistic = ((pooled - wanted) ** 2 / np.maximum(wanted, 1e-300)).sum()
    assert chi2.sf(statistic, pooled.size - 1) > 1e-6


@pytest.mark.parametrize("n", [3, 40])
def test_flow_and_episodes_have_equal_laws(n):
    """Whole vectors (n = 3, S = 2) and each cell: two-sample chi-square."""
    mdp = world_with_zeros(states=2 if n == 3 else 5, horizon=2, seed=5, reward_law="bernoulli")
    policy, repeats = stochastic_policy(mdp), 10000
    by_flow = flows(mdp, policy, n, repeats)
    by_episode = sums_of_episodes(mdp, policy, n, repeats)
    both = [
        np.concatenate([x[0].reshape(repeats, -1), x[1].reshape(repeats, -1)], axis=1).round().astype(int)
        for x in (by_flow, by_episode)
    ]
    columns = [[side[:, c] for side in both] for c in range(both[0].shape[1])]
    if n == 3:
        weights = np.random.default_rng(0).integers(1, 10**9, both[0].shape[1])
        columns.append([side @ weights for side in both])
    for left, right in columns:
        values, inverse = np.unique(np.concatenate([left, right]), return_inverse=True)
        table = np.stack([np.bincount(part, minlength=values.size) for part in np.split(inverse, 2)])
        common = table.sum(0) >= 20
        table = np.concatenate([table[:, common], table[:, ~common].sum(1, keepdims=True)], axis=1)
        table = table[:, table.sum(0) > 0]
        if table.shape[1] > 1:
            assert chi2_contingency(table).pvalue > 1e-6


REWARD_LAWS = {
    "bernoulli": {"reward_law": "bernoulli"},
    "bernoulli per successor": {
        "reward_law": "bernoulli",
        "rewards": np.random.default_rng(1).random((1, 5, 2, 5)),
    },
    "deterministic per successor": {"rewards": np.random.default_rng(1).random((3, 5, 2, 5))},
    "discrete": {
        "reward_law": "discrete",
        "rewards": None,
        "reward_support": [0.0, 0.3, 0.9, 1.0],
        "reward_probabilities": np.random.default_rng(2).dirichlet(np.ones(4), (3, 5, 2)),
    },
    "discrete per successor": {
        "reward_law": "discrete",
        "rewards": None,
        "reward_support": [0.0, 0.3, 1.0],
        "reward_probabilities": np.random.default_rng(2).dirichlet(np.ones(3), (1, 5, 2, 5)),
    },
}


@pytest.mark.parametrize("law", REWARD_LAWS)
@pytest.mark.parametrize("sampler", ["flow", "episodes"])
def test_reward_laws(law, sampler):
    """Mean, variance, and covariance with the successor counts, of every cell's reward sum."""
    mdp = world_with_zeros(**REWARD_LAWS[law])
    policy, n, repeats = stochastic_policy(mdp), 200, 4000 if sampler == "flow" else 1500
    transitions, rewards = (flows if sampler == "flow" else sums_of_episodes)(mdp, policy, n, repeats)[:2]
    visit = occupancy(mdp, policy).reshape(3, -1)
    cell = visit[..., None] * mdp.layout.to_rows(mdp.transitions)
    mean = mdp.layout.to_rows(mdp.rewards)
    given = mean[..., None] if mdp.successor_rewards is None else mdp.layout.to_rows(mdp.successor_rewards)
    if law.startswith("bernoulli"):
        second = mean
    elif law.startswith("deterministic"):
        second = (mdp.layout.to_rows(mdp.transitions) * given**2).sum(-1)
    else:
        table = np.asarray(REWARD_LAWS[law]["reward_probabilities"])
        squares = table @ np.array(REWARD_LAWS[law]["reward_support"]) ** 2
        if table.ndim == 5:
            squares = (mdp.transitions * squares).sum(-1)
        second = squares.reshape(3, -1)
    live = n * visit > 10
    variance = n * (visit * second - (visit * mean) ** 2)
    z = (rewards.mean(0) - n * visit * mean)[live] / np.sqrt(variance[live] / repeats)
    assert np.abs(z).max() < 5
    centred = rewards - n * visit * mean
    fourth = (centred**4).mean(0) - (centred**2).mean(0) ** 2
    z = ((centred**2).mean(0) - variance)[live] / np.sqrt(fourth[live] / repeats)
    assert np.abs(z).max() < 5.5
    # Cov(R, N(s')) = n (P(s') E[r | s'] - P(s') E[r]) tells a law given s' from one given the pair.
    covariance = n * (cell * given - cell * (visit * mean)[..., None])
    product = centred[..., None] * (transitions - n * cell)
    z = (product.mean(0) - covariance)[live] / np.maximum(product.std(0), 1e-12)[live] * np.sqrt(repeats)
    assert np.abs(np.where(cell[live] > 0, z, 0)).max() < 5.5


def test_returns_have_the_exact_mean():
    for mdp in (riverswim(), riverswim(rewards="bernoulli"), world_with_zeros(horizon=8)):
        for policy in (uniform_policy(mdp), optimal_values(mdp)[2]):
            returns = rollout_batch(mdp, policy, 40000).rewards.sum(1)
            z = (returns.mean() - policy_value(mdp, policy)) / (returns.std() / 200)
            assert abs(z) < 5


def test_long_rows():
    """A row of 300 successors, one of them rare: chi-square of moves and of the alias branch."""
    rng = np.random.default_rng(0)
    row = rng.dirichlet(np.full(300, 0.5))
    mdp = TabularMDP(np.broadcast_to(row, (300, 1, 300)), np.zeros((300, 1)), row, horizon=1)
    policy = np.zeros((1, 300), int)
    moved = rollout_batch(mdp, policy, 200000).states
    batches = sum(batch_counts(mdp, policy, 2000, run_key(8), i)["starts"] for i in range(100))
    for observed in (
        np.bincount(moved[:, 0], minlength=300),
        np.bincount(moved[:, 1], minlength=300),
        batches,
    ):
        common = row * 200000 > 5
        counts = np.append(observed[common], observed[~common].sum())
        expected = 200000 * np.append(row[common], row[~common].sum())
        assert chi2.sf(((counts - expected) ** 2 / expected).sum(), counts.size - 1) > 1e-6


@pytest.mark.parametrize("key", [3, [1, 2], np.zeros(3, np.uint64), np.zeros(2)], ids=str)
def test_a_key_that_is_none_is_named(key):
    mdp = riverswim()
    with pytest.raises(ValueError, match="key = .*: must be two 64-bit words"):
        rollout(mdp, uniform_policy(mdp), key, 0)
    with pytest.raises(ValueError, match="key = .*: must be two 64-bit words"):
        batch_counts(mdp, uniform_policy(mdp), 5, key)


@pytest.mark.parametrize("cut", [0.0, 0.7, 1.3, 3.0])
@pytest.mark.parametrize("make", [stochastic_policy, deterministic_policy])
def test_rewards_are_counted_to_a_cut_as_in_plain_python(make, cut, monkeypatch):
    """Users of :func:`rollout`, one after the other, in chunks; actions masked, rewards of any size."""
    mask = np.ones((5, 2), bool)
    mask[3, 0] = False
    rng = np.random.default_rng(3)
    transitions = rng.dirichlet(np.ones(5), (3, 5, 2))
    mdp = TabularMDP(transitions, rng.random((3, 5, 2)), 0, mask=mask, reward_law="deterministic")
    policy = make(mdp)
    if policy.ndim == 3:
        policy = np.where(mask, policy, 0.0)
        policy /= policy.sum(axis=-1, keepdims=True)
    else:
        policy[:, 3] = 1
    key, first, n = run_key(4, 2), 11, 60
    monkeypatch.setattr(crowd, "_CHUNK", 16)
    counts, returns = played_counts(mdp, policy, n, key, first, 1.1, cut=cut)
    table, moves, rewards, total = np.zeros((1, 5, 2)), np.zeros((3, 5, 2, 5)), np.zeros((3, 5, 2)), 0.0
    for user in range(first, first + n):
        life, left = rollout(mdp, policy, key, user), cut
        for h, (s, a, r) in enumerate(zip(life.states[:-1], life.actions, life.rewards, strict=True)):
            counted = min(r, left)
            left -= counted
            table[0, s, a] += counted
            moves[h, s, a, life.states[h + 1]] += 1
            rewards[h, s, a] += r
        total += min(life.rewards.sum(), 1.1)
    np.testing.assert_allclose(counts["cut_reward_sums"], table, atol=1e-12)
    np.testing.assert_allclose(counts["reward_sums"], rewards, atol=1e-12)
    np.testing.assert_array_equal(counts["transition_counts"], moves)
    np.testing.assert_array_equal(counts["step_visits"], moves.sum(axis=-1))
    assert returns == pytest.approx(total)
    assert counts["cut_reward_sums"].sum() <= n * cut + 1e-9
    again, _ = played_counts(mdp, policy, n, key, first, 1.1, cut=cut)
    assert all(np.array_equal(again[name], counts[name]) for name in counts)
