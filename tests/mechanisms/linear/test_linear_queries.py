"""Queries of linear sums: their contracts hold for any context, and their price is the true supremum."""

import numpy as np
import pytest

from discreet.core.layout import Layout
from discreet.core.trajectories import Trajectory
from discreet.mechanisms.features import Features, MixtureFeatures
from discreet.mechanisms.linear.linear_queries import (
    GRAM,
    RESPONSE,
    SECOND_GRAM,
    SECOND_RESPONSE,
    GramQuery,
    MixtureQuery,
    projected,
)

S, A, H, D = 5, 3, 4, 3
LAYOUT = Layout(S, A, H)
RNG = np.random.default_rng(5)
MIXED = MixtureFeatures(RNG.uniform(-1, 1, (S, A, S, D)) / 4, 2.0)
POSITIVE = MixtureFeatures(RNG.dirichlet(np.ones(S), (D, S, A)).transpose(1, 2, 3, 0) / np.sqrt(D), 2.0)
PSI = Features(RNG.dirichlet(np.ones(3), (S, A)), 1.0, l1=1.0)
PHI = Features(RNG.dirichlet(np.ones(4), (S, A)), 1.0, l1=1.0, nonneg=True)
SIGNED = Features(RNG.uniform(-0.5, 0.5, (S, A, 4)), 1.0)

MIXTURES = [
    MixtureQuery(
        layout=LAYOUT,
        features=features,
        targets=targets,
        second=second,
        rewards=rewards,
        largest_weight=weight,
    )
    for features in (MIXED, POSITIVE)
    for targets in ("raw", "centred", "span")
    for second, rewards, weight in ((False, None, 1.0), (True, "tabular", 3.0), (True, PSI, 1.0))
]
SPARSE = Features(
    np.where(RNG.uniform(size=(S, A, 3)) < 0.3, RNG.uniform(size=(S, A, 3)), 0) / 2, 1.0, nonneg=True
)
MIXTURES += [MixtureQuery(layout=LAYOUT, features=MIXED, rewards=psi) for psi in (SPARSE, SIGNED)]
GRAMS = [
    GramQuery(layout=LAYOUT, features=PHI),
    GramQuery(layout=LAYOUT, features=SIGNED, rewards=False),
    GramQuery(layout=LAYOUT, features=SIGNED, model=False),
]


def trajectory(rng):
    rewards = rng.choice([0.0, 1.0, rng.uniform()], H)
    return Trajectory(rng.integers(0, S, H + 1), rng.integers(0, A, H), rewards)


def context(rng, query, kind="random"):
    """Hostile ones too: ranges that vanish or exceed every bound."""
    values = np.zeros((H + 1, S))
    for h in range(H):
        top = float(H - h)
        values[h] = {
            "random": rng.uniform(0, top, S),
            "corners": rng.choice([0.0, top], S),
            "flat": 0.7 + 1e-16 * rng.integers(0, 3, S),
            "narrow": 0.7 + 1e-7 * rng.uniform(size=S),
            "huge": rng.choice([-1e6, 1e6, 1e300], S),
        }[kind]
    found = {"values": values}
    if isinstance(query, MixtureQuery) and query.largest_weight != 1.0:
        found["weights"] = rng.choice([0.0, 1.0, 2.9, 3.0, 1e9, -4.0], (H - 1, S, A))
    return found


def loss(query, noise, one, other, scales):
    """What this exchange costs at these scales, cell by cell."""
    change = (query.to_cells(one) - query.to_cells(other)) / np.repeat(
        query.block_scales(scales, noise), np.diff(query.offsets)
    )
    return np.abs(change).sum() if noise == "laplace" else np.linalg.norm(change)


@pytest.mark.parametrize("query", [*MIXTURES, *GRAMS])
@pytest.mark.parametrize("noise", ["goe", "triangle", "laplace"])
def test_no_exchange_of_a_user_costs_more_than_is_declared(query, noise):
    rng = np.random.default_rng(1)
    scales = query.calibrated(noise, 0.8, 1)
    for kind in ("random", "corners", "flat", "narrow", "huge"):
        for _ in range(12):
            ready = query.prepared(context(rng, query, kind))
            one, other = (query.user_tables(ready, trajectory(rng)) for _ in range(2))
            assert loss(query, noise, one, other, scales) <= 0.8 * (1 + 1e-9)
            assert all(np.isfinite(table).all() for table in one.values())


@pytest.mark.parametrize("query", [*MIXTURES, *GRAMS])
def test_shares_add_up_and_every_unit_spends_its_own(query):
    for noise in ("goe", "triangle", "laplace"):
        units = query.units(noise)
        assert sum(unit.share for unit in units) == pytest.approx(1.0)
        losses = query.losses(noise, query.calibrated(noise, 0.5, 4))
        spent = [4 * x / 0.5 if noise == "laplace" else 4 * (x / 0.5) ** 2 for x in losses]
        assert spent == pytest.approx([unit.share for unit in units])


def test_the_supremum_is_attained_by_span_targets_and_by_raw_ones():
    # phi_v = v(0) e - v(1) e at action 0 and the negative of it at action 1, e a unit vector
    table = np.zeros((2, 2, 2, 2))
    table[:, 0, :, 0], table[:, 1, :, 0] = (0.5, -0.5), (-0.5, 0.5)
    features = MixtureFeatures(table, 2.0)
    layout = Layout(2, 2, 2)
    values = {"values": np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]])}
    stay = Trajectory(np.array([0, 0, 0]), np.array([0, 0]), np.zeros(2))
    for targets, other in (("span", ([0, 1, 0], [0, 0])), ("raw", ([0, 0, 0], [1, 0]))):
        query = MixtureQuery(layout=layout, features=features, targets=targets)
        ready, scales = query.prepared(values), query.calibrated("goe", 1.0, 1)
        there = Trajectory(np.array(other[0]), np.array(other[1]), np.zeros(2))
        found = loss(query, "goe", query.user_tables(ready, stay), query.user_tables(ready, there), scales)
        assert found == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize(
    ("target", "x", "rewards"),
    [
        ("raw-nonneg", [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], (1.0, 1.0)),  # orthogonal, both earn 1
        ("raw", [[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]], (1.0, 1.0)),  # opposite
        ("centred", [[1.0, 0.0], [0.25, (15 / 16) ** 0.5], [1.0, 0.0]], (1.0, 0.0)),  # at t = 1/4
    ],
)
def test_the_supremum_is_attained_by_features_of_rewards(target, x, rewards):
    # both statistics at one scale: lemma 3 with alpha = beta
    psi = Features(np.array([x, x]), 1.0, nonneg=target == "raw-nonneg")
    mixed = MixtureFeatures(np.full((2, 3, 2, 1), 0.5), 2.0)
    query = MixtureQuery(layout=Layout(2, 3, 2), features=mixed, rewards=psi)
    assert query.pairs[-1].target == target
    ready, scales = query.prepared({"values": np.zeros((3, 2))}), query.calibrated("goe", 1.0, 1)
    one, other = (
        Trajectory(np.array([0, 1, 0]), np.array([i, 2]), np.array([rewards[i], 0.0])) for i in range(2)
    )
    found = loss(query, "goe", query.user_tables(ready, one), query.user_tables(ready, other), scales)
    assert found == pytest.approx(np.sqrt(query.units("goe")[-1].share), rel=1e-9)


def test_targets_centre_features_and_values_alike():
    rng = np.random.default_rng(2)
    values = context(rng, MIXTURES[0])["values"]
    for query in MIXTURES:
        if query.second or query.rewards is not None:
            continue
        record = trajectory(rng)
        found = query.contribution(record, {"values": values})
        for h in range(H - 1):
            v = values[h + 1]
            b, (low, high) = H - 1 - h, (v.min(), v.max())
            c, m = {"raw": (0, 1), "centred": (b / 2, 1), "span": ((low + high) / 2, high - low)}[
                query.targets
            ]
            s, a, to = record.states[h], record.actions[h], record.states[h + 1]
            x = query.features.table[s, a].T @ ((v - c) / m)
            np.testing.assert_allclose(found[GRAM][h], np.outer(x, x), atol=1e-12)
            np.testing.assert_allclose(found[RESPONSE][h], x * (v[to] - c) / m, atol=1e-12)


@pytest.mark.parametrize("query", [one for one in MIXTURES if one.second])
def test_second_moments_are_of_squared_targets_and_honest_ones_are_not_cut(query):
    rng = np.random.default_rng(2)
    for kind in ("random", "corners"):
        ready = context(rng, query, kind)
        record = trajectory(rng)
        found = query.contribution(record, ready)
        for h in range(H - 1):
            v = ready["values"][h + 1]
            b, (low, high) = H - 1 - h, (v.min(), v.max())
            c, m = {"raw": (0, 1), "centred": (b / 2, 1), "span": ((low + high) / 2, high - low)}[
                query.targets
            ]
            bar = (v - c) / m if m else 0.0 * v
            s, a, to = record.states[h], record.actions[h], record.states[h + 1]
            x = query.features.table[s, a].T @ bar**2
            np.testing.assert_allclose(found[SECOND_GRAM][h], np.outer(x, x), atol=1e-12)
            np.testing.assert_allclose(found[SECOND_RESPONSE][h], x * bar[to] ** 2, atol=1e-12)


@pytest.mark.parametrize("query", GRAMS)
def test_a_mirrored_triangle_costs_what_goe_noise_of_less_scale_does(query):
    """Its entries off the diagonal count twice in the norm: sqrt(2) of the scale; all else is the same."""
    scales = {name: np.linspace(3.0, 5.0, shape[0]) for name, shape in query.families.items()}
    less = {name: table / (np.sqrt(2.0) if name == GRAM else 1.0) for name, table in scales.items()}
    assert query.losses("triangle", scales) == pytest.approx(query.losses("goe", less), rel=1e-12)


@pytest.mark.parametrize("query", [*MIXTURES, *GRAMS])
def test_the_sum_of_a_batch_from_counts_is_the_sum_of_its_users(query):
    rng = np.random.default_rng(3)
    ready = query.prepared(context(rng, query))
    users = [trajectory(rng) for _ in range(7)]
    sums = {"visits": np.zeros((H, S, A)), "reward_sums": np.zeros((H, S, A))}
    sums["transition_counts"] = np.zeros((H, S, A, S))
    for user in users:
        at = np.arange(H), user.states[:-1], user.actions
        sums["visits"][at] += 1
        sums["reward_sums"][at] += user.rewards
        sums["transition_counts"][(*at, user.states[1:])] += 1
    one_by_one = sum(query.to_cells(query.user_tables(ready, user)) for user in users)
    np.testing.assert_allclose(query.to_cells(query.sum_tables(ready, sums)), one_by_one, atol=1e-12)
    with pytest.raises(ValueError, match="reward_sums"):
        query.sum_tables(ready, {name: sums[name] for name in ("visits", "transition_counts")})


@pytest.mark.parametrize("query", [*MIXTURES, *GRAMS])
def test_on_the_grid_contributions_are_integers_and_cost_no_more(query):
    rng = np.random.default_rng(4)
    grid = 16
    units = np.repeat(query.block_units(grid), np.diff(query.offsets))
    scales = query.calibrated("goe", 1.0, 1)
    noise = np.repeat(query.block_scales(scales, "goe"), np.diff(query.offsets))
    for kind in ("random", "corners", "narrow"):
        ready = query.prepared(context(rng, query, kind))
        cells = []
        for _ in range(6):
            user = trajectory(rng)
            user = Trajectory(user.states, user.actions, np.round(user.rewards * grid) / grid)
            exact = query.to_cells(query.user_tables(ready, user, grid))
            assert (exact == np.round(exact)).all()
            cells.append(exact * units)
            near = query.to_cells(query.user_tables(ready, user))
            np.testing.assert_allclose(cells[-1], near, atol=0.05 * max(1.0, np.abs(near).max()))
        for one in cells:
            for other in cells:
                assert np.linalg.norm((one - other) / noise) <= 1 + 1e-9


def test_hostile_numbers_are_projected_and_never_raise():
    x = np.array([[1e6, 0.0], [np.nan, 1.0], [np.inf, 1.0], [1e308, 1e308], [3e-320, 0.0], [0.3, 0.4]])
    y = np.array([5.0, np.nan, -np.inf, -5.0, 0.25, 0.5])
    found, targets = projected(x, y, 0.5, -0.5, 0.5)
    assert (np.linalg.norm(found, axis=1) <= 0.5).all()
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[[0, 1, 5]], [[0.5, 0.0], [0.0, 0.0], [0.3, 0.4]])
    np.testing.assert_array_equal(targets, [0.5, 0.0, 0.0, -0.5, 0.25, 0.5])
    assert projected(x, y, 0.5, 0.0, 1.0)[1].min() >= 0.0


def test_budget_over_steps():
    def gram_scales(over, targets="raw"):
        query = MixtureQuery(layout=LAYOUT, features=MIXED, targets=targets, over_steps=over)
        return query.calibrated("goe", 1.0, 1)[GRAM]

    b = np.array([3.0, 2.0, 1.0])
    power = gram_scales("power")
    np.testing.assert_allclose(power / power[-1], b ** (4 / 3))
    assert np.ptp(gram_scales("noise")) < 1e-12 * power[0]
    assert np.ptp(gram_scales("power", "span")) < 1e-12
    flat = gram_scales("flat")
    np.testing.assert_allclose(flat / flat[-1], b**2)
    np.testing.assert_allclose(gram_scales((0.25, 0.25, 0.5))[:2] / gram_scales("flat")[:2], np.sqrt(4 / 3))


def test_rounding_never_decides_a_target():
    query = MixtureQuery(layout=LAYOUT, features=MIXED)
    values = np.zeros((H + 1, S))
    values[1] = 0.3 + np.array([0, 1, 2, 3, 4]) * 2.0**-54
    ready = query.prepared({"values": values})
    assert not ready.values[RESPONSE].any()


@pytest.mark.parametrize(
    ("query", "arguments", "message"),
    [
        (MixtureQuery, {"layout": Layout(S, A, 1), "features": MIXED}, "horizon"),
        (MixtureQuery, {"layout": LAYOUT, "features": PHI}, "features"),
        (MixtureQuery, {"layout": Layout(S, A + 1, H), "features": MIXED}, "features"),
        (MixtureQuery, {"layout": LAYOUT, "features": MIXED, "targets": "mean"}, "targets"),
        (MixtureQuery, {"layout": LAYOUT, "features": MIXED, "rewards": "linear"}, "rewards"),
        (MixtureQuery, {"layout": LAYOUT, "features": MIXED, "over_steps": (0.5, 0.5)}, "over_steps"),
        (MixtureQuery, {"layout": LAYOUT, "features": MIXED, "largest_weight": 0.0}, "largest_weight"),
        (GramQuery, {"layout": LAYOUT, "features": MIXED}, "features"),
        (GramQuery, {"layout": LAYOUT, "features": PHI, "shares": (0.5, 0.5, 0.5)}, "shares"),
    ],
)
def test_bad_queries_are_refused(query, arguments, message):
    with pytest.raises(ValueError, match=message):
        query(**arguments)


def test_bad_contexts_are_refused():
    query = MixtureQuery(layout=LAYOUT, features=MIXED, largest_weight=2.0)
    values = np.zeros((H + 1, S))
    for given, message in (
        ({}, "values"),
        ({"values": values[1:]}, "values"),
        ({"values": np.where(np.eye(H + 1, S) > 0, np.nan, 0.0)}, "values"),
        ({"values": values}, "weights"),
        ({"values": values, "weights": np.ones((H, S, A))}, "weights"),
    ):
        with pytest.raises(ValueError, match=message):
            query.prepared(given)
