"""Utility of synthetic users: distances corrected for noise, their intervals, and values of policies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import discreet as dr
from discreet.core.trajectories import Trajectories
from discreet.envs.mdp.planning import policy_value, uniform_policy
from discreet.envs.mdp.tabular import TabularMDP
from discreet.envs.rollouts.rollout import rollout_batch
from discreet.learners.ope.first_visit_query import FirstVisits
from discreet.mechanisms.dataset.dataset_release import KeptRelease
from discreet.mechanisms.interfaces import ProblemSpec, ReturnBounds
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.pipeline.synthetic_utility import Utility, _multiple, total_variation, utility_of
from discreet.pipeline.world_model import world_model

HORIZON = 5


def world() -> tuple[TabularMDP, np.ndarray]:
    draw = np.random.default_rng(8)
    moves = draw.dirichlet(np.ones(6), (6, 2))
    moves[4:] = np.eye(6)[4:, None]
    paid = np.zeros((6, 2, 6))
    paid[:4, :, 4] = 1.0
    mdp = TabularMDP(moves, paid, [0.4, 0.3, 0.2, 0.1, 0, 0], horizon=HORIZON, terminal=(4, 5))
    return mdp, np.repeat(draw.dirichlet([3.0, 3.0], 6)[None], HORIZON, axis=0)


def spec(stationary: bool = True, rule: bool = True) -> ProblemSpec:
    returns = ReturnBounds(terminal=(4, 5), outcomes={4: 1.0} if rule else None)
    return ProblemSpec(world()[0].layout, stationary=stationary, returns=returns)


def people(n: int, seed: int) -> Trajectories:
    return rollout_batch(*world(), n, seed)


def kept(asked: ProblemSpec, first: bool, told: Trajectories, privatizer: Any, seed: int) -> KeptRelease:
    query = FirstVisits(asked).query() if first else dr.DPAPVI().query(asked)
    records = FirstVisits(asked).to_records(told) if first else told
    with (privatizer or NoPrivacy()).stored(query, dr.Seeded(seed)) as session:
        session.submit_many(records, np.arange(len(told)))
        return session.release().keep()


def measured(
    n: int, first: bool, privatizer: Any = None, seed: int = 0, asked: ProblemSpec | None = None
) -> tuple[Utility, KeptRelease, Any]:
    asked = asked or spec()
    release = kept(asked, first, people(n, seed), privatizer, seed)
    model = world_model(release, asked)
    made = rollout_batch(model.mean, model.behaviour, 200_000, 99)
    if asked.returns is not None and asked.returns.outcomes is not None:
        alive = made.states[:, :-1] < 4
        made = replace(made, rewards=(alive & (made.states[:, 1:] == 4)).astype(float))
    drawn = kept(asked, first, made, None, 0)
    return utility_of(release, drawn, model, [model.mean]), drawn, model


def exact(asked: ProblemSpec, first: bool) -> KeptRelease:
    """Sums of a million people."""
    return kept(asked, first, people(1_000_000, 77), None, 0)


def distances(one: KeptRelease, other: KeptRelease, first: bool, pooled: bool) -> tuple[float, float, float]:
    """Total variation by its definition, cell by cell."""
    tables = []
    for release in (one, other):
        moves = np.array([sums.transitions for sums in release])
        tables.append(moves.sum(axis=0, keepdims=True) if pooled else moves)
    layout = one.layout
    a, b = ((x / x.sum(axis=2).sum()).sum(axis=2) for x in tables)
    counted = layout.row_state < 6
    state = layout.row_state[counted]
    pairs = [(x[:, counted] / x[:, counted].sum()) for x in (a, b)]
    states = [np.array([np.bincount(state, row, minlength=6) for row in table]) for table in pairs]
    own = 0.0
    for h, r in np.ndindex(a.shape):
        p, q = (x[h, r] / max(x[h, r].sum(), 1.0) for x in tables)
        own += a[h, r] * 0.5 * np.abs(p - q).sum()
    return 0.5 * np.abs(states[0] - states[1]).sum(), 0.5 * np.abs(pairs[0] - pairs[1]).sum(), own


def test_the_mean_of_a_folded_normal_is_inverted() -> None:
    draws = np.random.default_rng(1).standard_normal(10**6)
    for c in (0.0, 0.3, 1.0, 4.0):
        mean = np.abs(c + draws).mean()
        assert _multiple(float(mean)) == pytest.approx(c, abs=0.06 if c < 0.1 else 0.01)
    assert _multiple(0.5) == 0.0
    for large in (9.123456789, 1e3, 1e6):
        assert _multiple(large) == pytest.approx(large)


def test_without_noise_nothing_is_corrected() -> None:
    d = np.array([0.1, -0.2, 0.1])
    found = total_variation(d, np.zeros(3), np.zeros(3), 0.0, 0.95)
    assert (found.estimate, found.low, found.high) == pytest.approx((0.2, 0.2, 0.2))


@pytest.mark.parametrize("shape", ["none", "even", "few", "like the noise"])
@pytest.mark.parametrize("heavy", [False, True])
def test_intervals_hold_the_distance(shape: str, heavy: bool) -> None:
    """95 % intervals in 400 seeded draws; the bounds of the module are cautious, so that nearly all hold."""
    draw = np.random.default_rng(5)
    n, sd = 300, np.random.default_rng(6).uniform(0.5, 2.0, 300) * 1e-3
    sign = np.where(np.arange(n) % 2, 1.0, -1.0)
    true = {
        "none": np.zeros(n), "even": 2.0 * sd * sign, "few": np.where(np.arange(n) < 10, 0.02, 0.0) * sign,
        "like the noise": sd * draw.standard_normal(n),
    }[shape]  # fmt: skip
    whole = 0.5 * np.abs(true).sum()
    held, estimates = 0, []
    for _ in range(400):
        error = draw.laplace(0.0, sd / np.sqrt(2.0)) if heavy else sd * draw.standard_normal(n)
        found = total_variation(true + error, sd, np.zeros(n), 0.5 * np.sqrt((sd**2).sum()), 0.95, heavy)
        held += found.low <= whole <= found.high
        estimates.append(found.estimate)
        assert found.low <= found.estimate <= found.high
    assert held >= 380
    if shape == "like the noise" and not heavy:
        assert np.mean(estimates) == pytest.approx(whole, rel=0.15)


@pytest.mark.parametrize(("first", "stationary"), [(True, True), (False, True), (False, False)])
def test_without_privacy_distances_are_those_of_the_definition(first: bool, stationary: bool) -> None:
    """With endless people, the estimates are the distances between two tables of exact sums."""
    asked = spec(stationary)
    found, drawn, _ = measured(1_000_000, first, asked=asked)
    true = distances(exact(asked, first), drawn, first, stationary and not first)
    for one, distance in zip((found.states, found.pairs, found.transitions), true, strict=True):
        assert one is not None
        assert one.estimate == pytest.approx(distance, abs=0.004)
        assert one.low <= distance <= one.high


@pytest.mark.parametrize(("first", "stationary"), [(True, True), (False, True), (False, False)])
def test_with_privacy_intervals_hold_distances_and_values(first: bool, stationary: bool) -> None:
    """Eight seeded releases: each of 24 distances, and of the values, lies in its interval."""
    asked = spec(stationary)
    large = exact(asked, first)
    mdp, behaviour = world()
    usual = policy_value(mdp, behaviour)
    missed = 0
    for seed in range(8):
        found, drawn, model = measured(8000, first, Central(epsilon=2.0, delta=1e-6), seed, asked)
        true = distances(large, drawn, first, stationary and not first)
        for one, distance in zip((found.states, found.pairs, found.transitions), true, strict=True):
            if one is not None:
                missed += not one.low <= distance <= one.high
        own = found.values["behaviour"]
        missed += not own.low <= usual <= own.high
        assert own.synthetic == pytest.approx(model.units[1] + model.units[0] * policy_value(
            model.mean, model.behaviour
        ))  # fmt: skip
        gain = found.values.get("uniform")
        if gain is not None:
            missed += not gain.low <= policy_value(mdp, uniform_policy(mdp)) - usual <= gain.high
    assert missed <= 1


def test_too_few_people_are_unknown() -> None:
    found, _, _ = measured(30, True, Central(epsilon=0.2, delta=1e-6))
    assert (found.states, found.pairs, found.transitions) == (None, None, None)
    assert found.to_dict()["states"] is None


def test_policies_without_an_estimate_are_left_out() -> None:
    known = np.full((HORIZON, 6, 2), 0.5)
    found, _, _ = measured(2000, True, asked=replace(spec(rule=False), known_rewards=known))
    assert set(found.values) == {"behaviour"}
