"""Sensitivities by brute force over every pair of trajectories."""

import itertools
import math

import numpy as np
import pytest

from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.rng import Secure
from discreet.core.trajectories import Trajectory
from discreet.mechanisms.interfaces import Schedule
from discreet.mechanisms.privatizers.base import shares_of
from discreet.mechanisms.privatizers.central import Central

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
        if not (query.center_rewards and stationary):
            assert exact == pytest.approx(claimed, rel=1e-12)


def one_by_one(cases: tuple[float, float, float], steps: int, parted: bool = False) -> float:
    """The most that so many records can change, by trying every sequence of the three cases of the table."""
    if steps == 0:
        return 0.0
    other_pair, other_next, same = cases
    found = [other_pair + one_by_one(cases, steps - 1, after) for after in (False, True)]
    if not parted:  # users in different states share no pair
        found += [other_next + one_by_one(cases, steps - 1, True), same + one_by_one(cases, steps - 1)]
    return max(found)


@pytest.mark.parametrize("visits", [False, True])
@pytest.mark.parametrize("horizon", range(1, 8))
def test_squares_of_centred_rewards_are_those_of_the_worst_sequence(horizon: int, visits: bool) -> None:
    """Two different successors do not follow each other: exact, by all pairs of users up to three steps."""
    rng = np.random.default_rng(horizon)
    query = CountQuery(Layout(2, 2, horizon), visits=visits, center_rewards=True)
    for trial in range(60):
        # rewards of hardly any weight up to all of it: the worst sequence bends in between
        weight = {name: float(rng.uniform(0.05, 2.0)) for name in query.families}
        weight["centered_reward_sums"] *= float(rng.choice([0.3, 1.0, 3.0]))
        v, t, r = (
            weight.get(name, 0.0) ** 2 for name in ("visits", "transition_counts", "centered_reward_sums")
        )
        claimed = query.sensitivity("l2", weight)
        exact = one_by_one((2 * v + 2 * t + 0.5 * r, 2 * t + r, r), horizon)
        assert claimed**2 == pytest.approx(exact, rel=1e-12)
        assert claimed**2 <= horizon * max(2 * v + 2 * t + 0.5 * r, 2 * t + r) * (1 + 1e-12)
        if horizon == 3 and trial < 4:
            assert brute_force(query, "l2", weight) == pytest.approx(claimed, rel=1e-12)


def test_the_default_learners_question_costs_three_quarters_of_its_rewards() -> None:
    query = CountQuery(Layout(6, 2, 20), visits=False, center_rewards=True, reward_share=0.35)
    weight = {"transition_counts": math.sqrt(0.65 / 40), "centered_reward_sums": math.sqrt(0.35 / 20)}
    assert query.sensitivity("l2", weight) ** 2 == pytest.approx(0.65 + 0.75 * 0.35)
    assert query.sensitivity("l2", {"centered_reward_sums": 1.0}) ** 2 == pytest.approx(20)


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_sensitivity_of_one_step_is_exact(variant: dict[str, bool], step: int, norm: str) -> None:
    query = CountQuery(Layout(2, 2, 2), step=step, **variant)
    rng = np.random.default_rng(6)
    weights = [dict.fromkeys(query.families, 1.0)]
    weights += [{name: float(rng.uniform(0.05, 2.0)) for name in query.families} for _ in range(3)]
    for weight in weights:
        claimed = query.sensitivity(norm, weight)  # type: ignore[arg-type]
        assert brute_force(query, norm, weight) == pytest.approx(claimed, rel=1e-12)


@pytest.mark.parametrize("horizon", [1, 2, 5])
def test_one_step_costs_what_it_costs_whatever_the_horizon(horizon: int) -> None:
    query = CountQuery(Layout(2, 2, horizon), step=horizon - 1)
    ones = dict.fromkeys(query.families, 1.0)
    assert query.families["transition_counts"] == (1, 2, 2, 2)
    assert [query.sensitivity(norm, ones) for norm in ("l1", "l2")] == pytest.approx([6.0, math.sqrt(6)])
    crude = CountQuery(Layout(2, 2, horizon), step=0, known_rewards=True)
    ones = dict.fromkeys(crude.families, 1.0)
    assert [crude.sensitivity(norm, ones) for norm in ("l1", "l2")] == pytest.approx([4.0, 2.0])
    assert crude.copy().step == 0


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


@pytest.mark.parametrize("pooled", ["all", "first"])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_pooled_families_bound_every_pair(variant: dict[str, bool], pooled: str, norm: str) -> None:
    """Also where S > H and H > S, so that the first visits of a user are fewer than either."""
    rng = np.random.default_rng(6)
    for layout in (Layout(2, 2, 2), Layout(3, 1, 2), Layout(2, 1, 3)):
        query = CountQuery(layout, pooled=pooled, **variant)  # type: ignore[arg-type]
        weights = [dict.fromkeys(query.families, 1.0)]
        weights += [{name: float("pooled" in name) for name in query.families}]
        weights += [{name: float(rng.uniform(0.05, 2.0)) for name in query.families} for _ in range(2)]
        for weight in weights:
            claimed = query.sensitivity(norm, weight)  # type: ignore[arg-type]
            assert brute_force(query, norm, weight) <= claimed * (1 + 1e-12)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_first_visits_alone_bound_every_pair(variant: dict[str, bool], norm: str) -> None:
    """Where S > H and H > S; the bound of raw families is attained where two users can stay apart."""
    rng = np.random.default_rng(8)
    for layout in (Layout(2, 2, 2), Layout(3, 1, 2), Layout(2, 1, 3), Layout(2, 2, 3)):
        query = CountQuery(layout, stationary=True, first=True, **variant)
        weights = [dict.fromkeys(query.families, 1.0)]
        weights += [{name: float(rng.uniform(0.05, 2.0)) for name in query.families} for _ in range(3)]
        for weight in weights:
            claimed = query.sensitivity(norm, weight)  # type: ignore[arg-type]
            exact = brute_force(query, norm, weight)
            assert exact <= claimed * (1 + 1e-12)
            if layout.actions > 1 and not query.center_rewards:
                assert exact == pytest.approx(claimed, rel=1e-12)
    assert query.copy().first
    ones = dict.fromkeys(query.families, 1.0)
    every = CountQuery(Layout(2, 2, 3), stationary=True, **variant)
    assert query.sensitivity(norm, ones) < every.sensitivity(norm, ones)  # type: ignore[arg-type]


def test_first_visits_alone_are_of_stationary_counts_of_stored_people() -> None:
    with pytest.raises(ValueError, match="first = True: must be false when stationary is false"):
        CountQuery(Layout(2, 2, 2), first=True)
    query = CountQuery(Layout(2, 2, 2), center_rewards=True, stationary=True, first=True)
    with pytest.raises(ValueError, match="first visits: only for offline data"):
        Central(rho=1.0).mechanism(query, Schedule.one_shot(10), Secure())


def test_pooled_sensitivities_are_attained() -> None:
    """All records: two users who stay apart. First visits: two who go round in opposite directions."""
    weight = {"pooled_transition_counts": 1.0, "pooled_reward_sums": 0.5}
    every = CountQuery(Layout(2, 1, 3), pooled="all")
    assert every.sensitivity("l1", weight) == 3 * (2 + 2 * 0.5)
    assert brute_force(every, "l1", {**dict.fromkeys(every.families, 0.0), **weight}) == 9.0
    first = CountQuery(Layout(3, 1, 5), visits=False, center_rewards=True, pooled="first")
    around = [
        Trajectory(np.arange(6) * step % 3, np.zeros(5, int), np.full(5, r))
        for step, r in ((1, 1.0), (2, 0.0))
    ]
    change = [first.contribution(t) for t in around]
    size = {name: np.abs(change[0][name] - change[1][name]).sum() for name in weight}
    assert sum(w * size[name] for name, w in weight.items()) == first.sensitivity("l1", weight) == 3 * 2.5


def test_pooled_contributions_are_sums_over_steps() -> None:
    rng = np.random.default_rng(7)
    for _ in range(20):
        trajectory = Trajectory(rng.integers(4, size=9), rng.integers(2, size=8), rng.uniform(size=8))
        sums = CountQuery(Layout(4, 2, 8), center_rewards=True, pooled="all").contribution(trajectory)
        for pooled, name in (
            ("pooled_transition_counts", "transition_counts"),
            ("pooled_reward_sums", "centered_reward_sums"),
        ):
            np.testing.assert_allclose(sums[pooled], sums[name].sum(axis=0, keepdims=True))
        first = CountQuery(Layout(4, 2, 8), pooled="first").contribution(trajectory)[
            "pooled_transition_counts"
        ]
        visited = np.unique(trajectory.states[:-1])
        assert (first.sum(axis=(0, 2, 3)) == np.isin(np.arange(4), visited)).all()


def test_shares_of_pooled_families() -> None:
    query = CountQuery(Layout(2, 2, 3), visits=False, reward_share=0.2, pooled="all", pooled_share=0.6)
    assert shares_of(query) == pytest.approx((0.32, 0.08, 0.48, 0.12))
    assert shares_of(query.copy()) == shares_of(query)
    with pytest.raises(ValueError, match="pooled_share = 0.5: must be None"):
        CountQuery(Layout(2, 2, 3), pooled_share=0.5)
    with pytest.raises(ValueError, match="must be 'none' when stationary"):
        CountQuery(Layout(2, 2, 3), stationary=True, pooled="all")


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


def test_queries_are_steered_where_plans_say_more_than_a_policy() -> None:
    layout = Layout(3, 2, 4)
    assert not CountQuery(layout).steered
    assert CountQuery(layout, groups=2, clip=1.0).steered
    assert CountQuery(layout, visits=False, center_rewards=True, cut=2.0).steered


def test_too_large_a_release_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match=r"counts need 2\.57e\+09 cells.*pool the steps"):
        CountQuery(Layout(716, 25, 200))
    assert CountQuery(Layout(716, 25, 20), stationary=True).cells == 716 * 25 * 718
