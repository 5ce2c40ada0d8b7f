r"""Forecast of the probability that held-out data show a gain of a linear policy.

The forecast simulates users on a public MDP, without real data. It learns from one half of the users and
evaluates on the other half, like ``learn`` with ``judged = true``. Seeded noise is drawn with the same scales
as in the exact sampler. Gains and intervals are computed as in actual reports, without further assumptions.

If no realistic MDP is known, :func:`synthetic_linear_mdp_from_schema` can build a synthetic MDP. It requires
features that are mixtures: the entries of each phi(s, a) are at least 0 and their sum is 1. One-hot features
are such mixtures. The MDP has one distribution of next states and one mean reward for each coordinate of the
features. The spread of rewards is chosen so that the best policy has the given gain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from discreet.accounting import budget
from discreet.core import checks
from discreet.core.rng import Seeded
from discreet.data.schema import Schema
from discreet.envs.mdp.planning import policy_value
from discreet.envs.mdp.tabular import TabularMDP
from discreet.envs.rollouts.rollout import rollout_batch
from discreet.learners.offline.linear_pevi import Linear, schema_features
from discreet.mechanisms.features import Features
from discreet.mechanisms.policy_rows import policy_rows
from discreet.pipeline.power_analysis import (
    PowerForecast,
    PublicMDP,
    least_enough,
    least_epsilon,
    least_people,
    share_of,
    synthetic_mdp,
)
from discreet.utils.random_streams_kernels import ROLE_MODEL, generator_at, run_key

MOST_PEOPLE = 3_000_000  # largest number of simulated users, which limits the run time
_CHUNK = 2**16


@dataclass(frozen=True)
class LinearForecast(PowerForecast):
    """Estimated probability that the report shows a gain of a linear policy.

    Parameters
    ----------
    users, draws, chance, low, high : see :class:`~discreet.pipeline.power_analysis.PowerForecast`
    epsilon, delta : budget of the learner; epsilon is None without privacy, or if the budget is rho or mu
    better : share of draws in which the true gain of the learned policy is positive
    gain : mean true gain of the learned policies, in the units of the return
    best : gain of the best policy, in the units of the return
    nonlinear : largest error of least-squares fits of the MDP by linear functions (:func:`nonlinear`)
    """

    better: float
    gain: float
    best: float
    nonlinear: float


def linear_gain_power(
    world: PublicMDP,
    features: Features,
    learner: Linear,
    users: int,
    *,
    draws: int = 40,
    level: float = 0.95,
    seed: int = 0,
) -> LinearForecast:
    """Estimate the probability that the report shows a gain of the linear policy, by simulation.

    Parameters
    ----------
    world : PublicMDP
    features : Features
        Features of the MDP's pairs of state and action.
    learner : DPPEVI, DPVAPVI, PEVI or VAPVI
        Learner with its budget. The forecast always uses ``judged = True``.
    users : int
        Number of users, 1 to 3e6. Each user has one episode, which is simulated.
    draws : int
        Number of simulated datasets, at least 1.
    level : float
        Confidence level of the interval in the report, in (0, 1).
    seed : int
        Seed of the simulation.

    Raises
    ------
    ValueError
        If a number is out of range, or the learner cannot hold out users for evaluation.
    """
    users = checks.integer("users", users, 1, MOST_PEOPLE)
    draws = checks.integer("draws", draws, 1)
    level = checks.real("level", level, 0.0, 1.0, open_low=True, open_high=True)
    mdp = world.mdp
    played = _as_drawn(replace(learner, judged=True))
    rows = policy_rows(mdp.layout, world.behaviour)
    found = []
    for draw in range(draws):
        with played.open(mdp.layout, features, Seeded(seed, draw)) as session:
            for begin in range(0, users, _CHUNK):
                session.submit_many(rollout_batch(mdp, rows, min(_CHUNK, users - begin), seed, draw, begin))
            learned = played.ask(session)[1]
        gain = learned.gain
        shown = gain is not None and gain.at(level, float(mdp.horizon)).shown
        found.append((shown, world.units(policy_value(mdp, learned.policy) - world.usual)))
    shown_, gains = np.array(found, np.float64).T
    options = learner.options()
    return LinearForecast(
        users, options.get("epsilon"), options.get("delta") or 0.0, draws, *share_of(shown_),
        float((gains > 1e-9).mean()), float(gains.mean()), world.best, nonlinear(mdp, features),
    )  # fmt: skip


def _as_drawn(learner: Linear) -> Linear:
    """Return the learner with a budget (epsilon, delta) converted to rho.

    Secure noise for such a budget is accounted in rho. After the conversion, seeded noise has the same scale
    as secure noise. A learner with another budget is returned unchanged.
    """
    options = learner.options()
    if options.get("epsilon") is None or not options.get("delta"):
        return learner
    rho = budget.zcdp_rho(options["epsilon"], options["delta"])
    return _with(learner, epsilon=None, delta=None, rho=rho)


def _with(learner: Linear, **budget: Any) -> Linear:
    """Return a copy of the learner with another budget."""
    return replace(learner, **budget)


def nonlinear(mdp: TabularMDP, features: Features) -> float:
    """Return the largest error of the least-squares fits of an MDP by linear functions of the features.

    Transition probabilities and mean rewards are fitted. The maximum is over all admissible pairs.
    """
    inside = mdp.layout.row_index.ravel() >= 0
    rows = features.rows[inside]
    worst = 0.0
    for h in range(len(mdp.transitions)):
        wanted = np.column_stack([
            mdp.transitions[h].reshape(-1, mdp.states)[inside], mdp.rewards[h].ravel()[inside],
        ])  # fmt: skip
        fitted = rows @ np.linalg.lstsq(rows, wanted, rcond=None)[0]
        worst = max(worst, float(np.abs(fitted - wanted).max()))
    return worst if worst > 1e-9 else 0.0


def linear_sample_size(
    world: PublicMDP,
    features: Features,
    learner: Linear,
    *,
    chance: float = 0.9,
    draws: int = 40,
    seed: int = 0,
) -> int | None:
    """Return the least number of users for which the share of draws that show a gain is at least ``chance``.

    The result is at most 1.2 times too large, except for rounding to two digits. It is None if the number is
    above 3e6. Raises ``ValueError`` if a number is out of range.

    Parameters
    ----------
    world, features, learner, draws, seed : see :func:`linear_gain_power`.
    chance : required share of draws that show a gain, in (0, 1).
    """

    def shown(users: int) -> float:
        return linear_gain_power(world, features, learner, users, draws=draws, seed=seed).chance

    return least_people(shown, chance, MOST_PEOPLE)


def linear_smallest_epsilon(
    world: PublicMDP,
    features: Features,
    learner: Linear,
    users: int,
    epsilons: tuple[float, ...],
    *,
    chance: float = 0.9,
    draws: int = 40,
    seed: int = 0,
) -> float | None:
    """Return the first of ``epsilons`` for which the share of draws that show a gain is at least ``chance``.

    The result is None if no epsilon is enough.

    Parameters
    ----------
    world, features, users, draws, seed : see :func:`linear_gain_power`
    learner : learner with its options. Each value in ``epsilons`` replaces the learner's epsilon
    epsilons : values of epsilon in increasing order
    chance : required share of draws that show a gain, in (0, 1)

    Raises
    ------
    ValueError
        If a number is out of range.
    """

    def shown(epsilon: float) -> float:
        one = _with(learner, epsilon=epsilon)
        return linear_gain_power(world, features, one, users, draws=draws, seed=seed).chance

    return least_epsilon(epsilons, shown, chance)


def made_up(schema: Schema, features: Features, gain: float) -> tuple[PublicMDP, Features]:
    """Return a synthetic MDP for a schema, and the features of this MDP.

    By default, :func:`synthetic_linear_mdp_from_schema` builds the MDP. If the schema has terminal states and
    the features are one-hot, :func:`~discreet.pipeline.power_analysis.synthetic_mdp` builds it, and the
    returned features are one-hot for the states of this MDP. Every MDP is linear in one-hot features.
    """
    if schema.terminal and schema.features is None:
        world = synthetic_mdp(schema, gain)
        return world, schema_features(world.mdp.layout, nonneg=True)
    return synthetic_linear_mdp_from_schema(schema, features, gain), features


def synthetic_linear_mdp_from_schema(
    schema: Schema, features: Features, gain: float, *, seed: int = 0
) -> PublicMDP:
    """Build an MDP that is linear in given features. Its best policy has the given gain over the behaviour.

    Parameters
    ----------
    schema : Schema
        Defines states, admissible actions, horizon and range of rewards. It must have no terminal states.
    features : Features
        Features of the states and actions of the schema. The entries of each feature vector must be at least
        0 and sum to 1.
    gain : float
        Gain in the units of the return, above 0.
    seed : int
        Seed of the MDP.

    Raises
    ------
    ValueError
        If the features are not mixtures, or no rewards produce this gain.
    """
    layout, horizon = schema.layout, schema.horizon
    if schema.terminal:
        raise ValueError(
            "terminal: a world with ends is generated for one-hot features only; give --world FILE"
        )
    if features.rows.min() < 0.0 or np.abs(features.rows.sum(axis=1) - 1.0).max() > 1e-9:
        raise ValueError(
            "features: must be mixtures (at least 0, of sum 1) for a world to be generated; give --world FILE"
        )
    span = horizon * (schema.high - schema.low)
    gain = checks.real("target_gain", gain, 0.0, span, open_low=True, open_high=True)
    draw = generator_at(run_key(checks.integer("seed", seed, 0), 1), ROLE_MODEL)
    d, states, actions = features.dimension, layout.states, layout.actions
    measures = draw.dirichlet(np.full(states, max(0.3, 3.0 / states)), d)
    effects = draw.standard_normal(d)
    moves = (features.rows @ measures).reshape(states, actions, states)
    moves /= moves.sum(axis=2, keepdims=True)
    mask = layout.row_index >= 0
    behaviour = np.where(mask, draw.gamma(2.0, size=mask.shape), 0.0)
    behaviour = np.repeat((behaviour / behaviour.sum(axis=1, keepdims=True))[None], horizon, axis=0)
    initial = draw.dirichlet(np.full(states, 2.0))

    def world(strength: float) -> PublicMDP:
        rewards = (features.rows @ np.clip(0.5 + strength * effects, 0.0, 1.0)).reshape(states, actions)
        mdp = TabularMDP(
            moves, np.clip(rewards, 0.0, 1.0), initial, horizon=horizon, mask=layout.mask, name="made up",
            reward_law="bernoulli",
        )  # fmt: skip
        return PublicMDP(mdp, behaviour, schema.returns)

    high = 0.01
    while world(high).best < gain:
        high *= 2.0
        if high > 100.0:
            raise ValueError(f"target_gain = {gain:g}: must be smaller, because no rewards give this gain")
    return world(least_enough(lambda strength: world(strength).best >= gain, 0.0, high, 30))
