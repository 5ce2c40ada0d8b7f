"""Sensitivities by brute force over every pair of trajectories."""

import itertools
import math

import numpy as np
import pytest

from discreet.mdp.layout import Layout
from discreet.mdp.trajectories import Trajectory
from discreet.privacy.counts import CountQuery

VARIANTS = [
    {},
    {"visits": False},
    {"center_rewards": True},
    {"known_rewards": True},
    {"visits": False, "center_rewards": True},
    {"visits": False, "known_rewards": True},
]


def all_trajectories(layout: Layout) -> list[Trajectory]:
    s, a, h = layout.states, layout.actions, layout.horizon
    return [
        Trajectory(np.array(states), np.array(actions), np.array(rewards, float))
        for states in itertools.product(range(s), repeat=h + 1)
        for actions in itertools.product(range(a), repeat=h)
        for rewards in itertools.product((0.0, 1.0), repeat=h)
    ]


def weighted_vectors(query: CountQuery, weight: dict[str, float]) -> np.ndarray:
    rows = []
    for trajectory in all_trajectories(query.layout):
        sums = query.contribution(trajectory)
        rows.append(np.concatenate([weight[name] * sums[name].ravel() for name in query.families]))
    return np.array(rows)


def brute_force(query: CountQuery, norm: str, weight: dict[str, float]) -> float:
    vectors = weighted_vectors(query, weight)
    worst = 0.0
    for row in vectors:
        change = vectors - row
        size = np.abs(change).sum(axis=1) if norm == "l1" else np.sqrt((change**2).sum(axis=1))
        worst = max(worst, float(size.max()))
    return worst


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_sensitivity_bounds_every_pair(variant: dict[str, bool], stationary: bool, norm: str) -> None:
    query = CountQuery(Layout(2, 2, 2), stationary=stationary, **variant)
    rng = np.random.default_rng(5)
    weights = [dict.fromkeys(query.families, 1.0)]
    weights += [{name: float(rng.uniform(0.05, 2.0)) for name in query.families} for _ in range(3)]
    for weight in weights:
        exact, claimed = brute_force(query, norm, weight), query.sensitivity(norm, weight)  # type: ignore[arg-type]
        assert exact <= claimed * (1 + 1e-12)
        if not query.center_rewards:
            assert exact == pytest.approx(claimed, rel=1e-12)


@pytest.mark.parametrize("horizon", [1, 2, 3])
def test_raw_families_have_the_papers_true_sensitivity(horizon: int) -> None:
    query = CountQuery(Layout(2, 2, horizon))
    for name in query.families:
        assert query.sensitivity("l1", {name: 1.0}) == 2 * horizon
        assert query.sensitivity("l2", {name: 1.0}) == pytest.approx(math.sqrt(2 * horizon))
    ones = dict.fromkeys(query.families, 1.0)
    assert query.sensitivity("l1", ones) == 6 * horizon
    assert query.sensitivity("l2", ones) == pytest.approx(math.sqrt(6 * horizon))
    pooled = CountQuery(Layout(2, 2, horizon), stationary=True)
    assert pooled.sensitivity("l1", ones) == 6 * horizon
    assert pooled.sensitivity("l2", ones) == pytest.approx(horizon * math.sqrt(6))


def test_variants_lower_the_joint_l1() -> None:
    layout = Layout(3, 2, 20)
    for variant, joint in [
        ({"known_rewards": True}, 4),
        ({"visits": False}, 4),
        ({"center_rewards": True}, 5),
    ]:
        query = CountQuery(layout, **variant)
        assert query.sensitivity("l1", dict.fromkeys(query.families, 1.0)) == joint * 20


def test_random_pairs_of_larger_problems_never_exceed() -> None:
    layout, rng = Layout(5, 3, 7), np.random.default_rng(8)
    query = CountQuery(layout)
    ones = dict.fromkeys(query.families, 1.0)

    def draw() -> np.ndarray:
        trajectory = Trajectory(rng.integers(5, size=8), rng.integers(3, size=7), rng.uniform(size=7))
        return np.concatenate([table.ravel() for table in query.contribution(trajectory).values()])

    for _ in range(300):
        change = draw() - draw()
        assert np.abs(change).sum() <= query.sensitivity("l1", ones) + 1e-9
        assert np.linalg.norm(change) <= query.sensitivity("l2", ones) + 1e-9


def test_masked_cells_do_not_exist() -> None:
    mask = np.array([[True, False], [True, True], [False, True]])
    query = CountQuery(Layout(3, 2, 4, mask))
    assert query.row_families["transition_counts"] == (4, 4, 3)
    assert query.cells == 4 * 4 * (1 + 3 + 1)
    support = query.support["transition_counts"]
    assert support.shape == (4, 3, 2, 3)
    assert (support.any(axis=-1) == mask[None]).all()
    cells = np.arange(query.cells, dtype=float)
    assert (query.to_cells(query.from_cells(cells)) == cells).all()


def test_too_large_a_release_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match=r"counts need 2\.57e\+08 cells.*pool the steps"):
        CountQuery(Layout(716, 25, 20))
    assert CountQuery(Layout(716, 25, 20), stationary=True).cells == 716 * 25 * 718
