r"""Power analysis: the number of users, or the epsilon, for which a report shows a gain with a given
probability.

The forecast simulates users on a public MDP, without real data. For n users, the sums that the learner
``decision-points`` reads are drawn at random around their expectation. Dynamic programming computes the
expectation at a cost that does not grow with n. Let x_h(s) be the probability that the first visit to s is at
step h. Let b be the behaviour policy and Q_b its action values. Then the visit counts N, the transition
counts M and the sums of centred returns G have the expectations

    E N(s, a) = n sum_h x_h(s) b_h(a | s),   E M(s, a, s') = n sum_h x_h(s) b_h(a | s) P(s' | s, a),

    E G(s, a) = n sum_h x_h(s) b_h(a | s) (Q_b,h(s, a) - 1/2).

Visit counts are drawn from Poisson distributions and next states from multinomial distributions. Returns are
0 or 1, which gives the largest possible variance. The noise has the distribution that the privatizer would
use. From each draw, a policy is planned and evaluated as in
:class:`~discreet.learners.offline.decision_points.DecisionPoints`, with one exception. The consistency test
of the release is assumed to pass, because its null hypothesis is true in such an MDP
(:func:`~discreet.learners.ope.verdict.would_show`).

If no realistic MDP is known, :func:`synthetic_mdp` builds a synthetic MDP with as many states and actions as
the schema. Its non-terminal states have uneven visit frequencies. Its episodes last for about a quarter of
the horizon. It has a good and a bad terminal state. The effects of actions are scaled so that the best policy
has the given gain over the behaviour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from discreet.core import checks
from discreet.core.families import CENTERED_REWARDS, TRANSITIONS, VISITS
from discreet.core.layout import Layout
from discreet.core.releases import Floats
from discreet.core.rng import Secure
from discreet.core.short_repr import brief
from discreet.data.schema import Schema
from discreet.envs.mdp.planning import optimal_values, policy_value
from discreet.envs.mdp.tabular import TabularMDP
from discreet.learners.ope.deviation_gains import Path
from discreet.learners.ope.first_visit_query import FirstVisits, VisitSums
from discreet.learners.ope.transition_gains import path_of
from discreet.learners.ope.verdict import ASKED, would_show
from discreet.mechanisms.interfaces import ProblemSpec, ReturnBounds
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.utils.random_streams_kernels import ROLE_MODEL, ROLE_NOISE, generator_at, run_key

EPSILONS = (0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0)
_NEAR = 5  # number of next states of each pair in a synthetic MDP
_MOST_PEOPLE = 10**9


@dataclass(frozen=True, eq=False)
class PublicMDP:
    """Public MDP with a behaviour policy.

    Parameters
    ----------
    mdp : TabularMDP with the same transition probabilities and rewards at every step
    behaviour : (H, S, A) probabilities of actions
    returns : rule that defines the return of an episode
    scale : value of an MDP reward of 1, in units of the return. Used only if rewards are paid for outcomes

    Raises
    ------
    ValueError
        If the MDP differs from step to step, or ``behaviour`` has another shape.
    """

    __repr__ = brief

    mdp: TabularMDP
    behaviour: Floats
    returns: ReturnBounds
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not self.mdp.stationary:
            raise ValueError("mdp: must be the same at every step")
        shape = (self.mdp.horizon, self.mdp.states, self.mdp.actions)
        object.__setattr__(self, "behaviour", checks.floats("behaviour", self.behaviour, shape))

    @cached_property
    def question(self) -> FirstVisits:
        """Query of the sums that the learner ``decision-points`` reads."""
        return FirstVisits(ProblemSpec(self.mdp.layout, stationary=True, returns=self.returns))

    @cached_property
    def usual(self) -> float:
        """Value of the behaviour policy, in the MDP's units of reward."""
        return policy_value(self.mdp, self.behaviour)

    @cached_property
    def best(self) -> float:
        """Gain of the best policy over the behaviour policy, in the units of the return."""
        return self.units(float(self.mdp.initial @ optimal_values(self.mdp)[0][0]) - self.usual)

    def units(self, gain: float) -> float:
        """Convert ``gain`` from units of the MDP's rewards to units of the return."""
        returns = self.returns
        return self.scale * gain if returns.outcomes is not None else (returns.high - returns.low) * gain

    def gain(self, path: Path, count: int) -> float:
        """Return the true gain of the policy that makes the first ``count`` changes of a path.

        The gain is over the behaviour policy, in the units of the return.
        """
        policy = self.behaviour.copy()
        changed = path.changed(count)[:-1]
        policy[:, changed] = np.eye(self.mdp.actions)[path.action[:-1][changed]]
        return self.units(policy_value(self.mdp, policy) - self.usual)

    @cached_property
    def _expected(self) -> tuple[Floats, Floats, Floats]:
        """Expected values for each row of the query, which is a pair of state and action.

        These are the visits per user, the transition probabilities, and the mean of the remaining return,
        scaled to [0, 1].
        """
        mdp, layout, b = self.mdp, self.question.layout, self.behaviour
        horizon, states, actions = mdp.horizon, mdp.states, mdp.actions
        moves = mdp.transitions[0]
        ended = np.zeros(states, bool)
        ended[list(self.returns.terminal)] = True
        paid = self._paid(ended)
        least, most = self.question.bounds
        q, after = np.zeros((horizon, states, actions)), np.zeros(states)
        for h in range(horizon - 1, -1, -1):
            q[h] = np.where(ended[:, None], 0.0, paid + moves @ after)
            after = (b[h] * q[h]).sum(axis=1)
        visits = np.zeros((states + 1, actions))
        left = np.zeros((states + 1, actions))
        visits[-1, 0], left[-1, 0] = 1.0, (float(mdp.initial @ after) - least) / (most - least)
        fresh = np.repeat(mdp.initial[None], states, axis=0)
        own = np.arange(states)
        for h in range(horizon):
            arrives = fresh[own, own]
            share = np.where(ended[:, None], np.eye(actions)[layout.row_action[layout.state_ptr[:-2]]], b[h])
            visits[:-1] += arrives[:, None] * share
            left[:-1] += arrives[:, None] * share * (q[h] - least) / (most - least)
            fresh[own, own] = 0.0
            fresh = fresh @ np.einsum("sa,sat->st", b[h], moves)
        mean = np.divide(left, visits, out=np.full_like(left, 0.5), where=visits > 0.0)
        row = np.zeros((states + 1, actions, states + 1))
        row[:-1, :, :-1], row[-1, 0, :-1] = moves, mdp.initial
        rows = layout.to_rows
        return rows(visits[None])[0], rows(row[None])[0], np.clip(rows(mean[None])[0], 0.0, 1.0)

    def _paid(self, ended: NDArray[np.bool_]) -> Floats:
        """Return the (S, A) expected rewards of one step, in the units of the return."""
        returns = self.returns
        if returns.outcomes is None:
            return np.asarray(returns.low + (returns.high - returns.low) * self.mdp.rewards[0])
        arrival = np.zeros(self.mdp.states)
        arrival[list(returns.outcomes)] = list(returns.outcomes.values())
        return np.asarray(self.mdp.transitions[0] @ arrival)

    def draw_release(self, users: int, scales: dict[str, float], draw: np.random.Generator) -> VisitSums:
        """Draw the contents of one release from this MDP.

        Parameters
        ----------
        users : number of users, at least 1
        scales : standard deviation of the noise of each family of sums, by name; 0 for no noise
        draw : random generator, which draws the users' data and the noise
        """
        each, moves, mean = self._expected
        visits = draw.poisson(users * each)
        successors = draw.multinomial(visits, moves / moves.sum(axis=1, keepdims=True)).astype(np.float64)
        earned = draw.binomial(visits, mean) - 0.5 * visits
        tables = {VISITS: visits.astype(np.float64), TRANSITIONS: successors, CENTERED_REWARDS: earned}
        noisy = {
            name: table + scales[name] * draw.standard_normal(table.shape) if scales[name] else table
            for name, table in tables.items()
        }
        visited, moved, earnings = (noisy[name] for name in (VISITS, TRANSITIONS, CENTERED_REWARDS))
        sizes = (scales[name] for name in (VISITS, TRANSITIONS, CENTERED_REWARDS))
        return self.question.sums_of(visited, moved, earnings, *sizes, people=users)


@dataclass(frozen=True)
class PowerForecast:
    """Estimated probability that a report shows a gain.

    Parameters
    ----------
    users, draws : numbers of users and of draws in the simulation
    epsilon, delta : guarantee of the release; epsilon is None without privacy
    chance : share of draws in which a gain was shown
    low, high : ends of the 95 % Clopper-Pearson interval of ``chance``
    """

    users: int
    epsilon: float | None
    delta: float
    draws: int
    chance: float
    low: float
    high: float

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary of plain values."""
        return asdict(self)


@dataclass(frozen=True)
class GainForecast(PowerForecast):
    """Estimated probability that the report shows a gain of a policy learned from counts.

    Parameters
    ----------
    users, epsilon, delta, draws, chance, low, high : see :class:`PowerForecast`
    gain : mean true gain of the policies that were learned from the draws
    best : gain of the best policy
    changes : mean number of states in which a learned policy differs from the behaviour policy
    """

    gain: float
    best: float
    changes: float


def gain_power(
    world: PublicMDP,
    users: int,
    privatizer: Central | NoPrivacy,
    *,
    draws: int = 60,
    level: float = 0.95,
    hidden_cause: float = ASKED,
    seed: int = 0,
) -> GainForecast:
    """Estimate the probability that the report shows a gain, by simulation on a public MDP.

    Parameters
    ----------
    world : PublicMDP
    users : int
        Number of users, 1 to 1e9. Each user has one episode.
    privatizer : Central or NoPrivacy
    draws : int
        Number of simulated releases, at least 1.
    level : float
        Confidence level of the interval in the report, in (0, 1).
    hidden_cause : float
        Factor in [1, 50], as for :class:`~discreet.learners.offline.decision_points.DecisionPoints`.
    seed : int
        Seed of the simulation.

    Raises
    ------
    ValueError
        If a number is out of range, or the privatizer cannot release this query.
    """
    users = checks.integer("users", users, 1, _MOST_PEOPLE)
    draws = checks.integer("draws", draws, 1)
    query = world.question.query()
    mechanism = privatizer.stored_mechanism(query, Secure())
    scales = dict.fromkeys(query.row_families, 0.0)
    if isinstance(privatizer, Central):
        laws = mechanism.laws_at(1)
        scales = {name: float(laws[name].std()) for name in query.row_families}
    key = run_key(checks.integer("seed", seed, 0), users)
    found = []
    for i in range(draws):
        path = path_of(world.draw_release(users, scales, generator_at(key, ROLE_NOISE, i)), level)
        count = path.default
        found.append((would_show(path, count, hidden_cause), world.gain(path, count), count))
    shown, gains, counts = np.array(found, np.float64).T
    return GainForecast(
        users, mechanism.guarantee.epsilon, mechanism.guarantee.delta, draws,
        *share_of(shown), float(gains.mean()), world.best, float(counts.mean()),
    )  # fmt: skip


def sample_size(
    world: PublicMDP, privatizer: Central | NoPrivacy, *, chance: float = 0.9, draws: int = 60, seed: int = 0
) -> int | None:
    """Return the least number of users for which the share of draws that show a gain is at least ``chance``.

    The result is at most 1.2 times too large, except for rounding to two digits. It is None if the number is
    above 1e9.

    Parameters
    ----------
    world : PublicMDP
    privatizer : Central or NoPrivacy
    chance : required share of draws that show a gain, in (0, 1)
    draws : number of simulated releases for each number of users, at least 1
    seed : seed of the simulation

    Raises
    ------
    ValueError
        If a number is out of range.
    """

    def shown(users: int) -> float:
        return gain_power(world, users, privatizer, draws=draws, seed=seed).chance

    return least_people(shown, chance, _MOST_PEOPLE)


def share_of(shown: Floats) -> tuple[float, float, float]:
    """Return the mean of (N,) draws of 0 and 1, and the ends of the mean's 95 % Clopper-Pearson interval."""
    found = binomtest(int(shown.sum()), len(shown))
    low, high = found.proportion_ci()
    return float(found.statistic), float(low), float(high)


def least_people(shown: Callable[[int], float], chance: float, most: int) -> int | None:
    """Return the smallest number of users between 100 and ``most`` for which ``shown`` >= ``chance``.

    The result is at most 1.2 times too large, except for rounding to two digits. It is None if ``most`` users
    are not enough.
    """
    chance = checks.real("chance", chance, 0.0, 1.0, open_low=True, open_high=True)
    low, high = 100.0, 1000.0
    while shown(round(high)) < chance:
        if high >= most:
            return None
        low, high = high, min(high * math.sqrt(10.0), float(most))
    while high / low > 1.2:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if shown(round(middle)) >= chance else (middle, high)
    return rounded(high)


def smallest_epsilon(
    world: PublicMDP, users: int, delta: float, *, chance: float = 0.9, draws: int = 60, seed: int = 0
) -> float | None:
    """Return the least of ``EPSILONS`` for which the share of draws that show a gain is at least ``chance``.

    The result is None if no epsilon in the list is enough.

    Parameters
    ----------
    world : PublicMDP
    users : number of users
    delta : delta of the guarantee, in (0, 1)
    chance : required share of draws that show a gain, in (0, 1)
    draws : number of simulated releases for each epsilon, at least 1
    seed : seed of the simulation

    Raises
    ------
    ValueError
        If a number is out of range.
    """

    def shown(epsilon: float) -> float:
        privatizer = Central(epsilon=epsilon, delta=delta)
        return gain_power(world, users, privatizer, draws=draws, seed=seed).chance

    return least_epsilon(EPSILONS, shown, chance)


def least_epsilon(epsilons: Sequence[float], shown: Callable[[float], float], chance: float) -> float | None:
    """Return the first of ``epsilons`` for which ``shown`` is at least ``chance``, or None."""
    chance = checks.real("chance", chance, 0.0, 1.0, open_low=True, open_high=True)
    return next((epsilon for epsilon in epsilons if shown(epsilon) >= chance), None)


def rounded(number: float) -> int:
    """Return a number rounded up to two significant digits."""
    unit = 10 ** max(int(math.log10(number)) - 1, 0)
    return int(math.ceil(number / unit) * unit)


def synthetic_mdp(schema: Schema, gain: float, *, seed: int = 0) -> PublicMDP:
    """Build an MDP in which the best policy has the given gain over the behaviour policy.

    Parameters
    ----------
    schema : Schema
        Defines the number of non-terminal states, the admissible actions, the horizon and the bounds of
        returns.
    gain : float
        Gain in the units of the return, above 0.
    seed : int
        Seed of the MDP.

    Raises
    ------
    ValueError
        If no effects of actions produce this gain, or if the schema has censored ends. With censored ends,
        the probability that a gain is shown depends on the rate of censoring, which a synthetic MDP does not
        define.
    """
    if schema.censored is not None:
        raise ValueError(
            "target_gain: must be left out with censored ends, which a generated world does not have; give a "
            "world (--world TABLE) with the share of users who leave"
        )
    least, most = schema.returns.bounds(schema.horizon)
    gain = checks.real("target_gain", gain, 0.0, most - least, open_low=True, open_high=True)
    live = [s for s in range(schema.layout.states) if s not in schema.terminal]
    size, actions, horizon = len(live), schema.layout.actions, schema.horizon
    draw = generator_at(run_key(checks.integer("seed", seed, 0), 0), ROLE_MODEL)
    mask = np.zeros((size + 2, actions), bool)
    mask[:size] = schema.layout.row_index[live] >= 0
    mask[size:, 0] = True
    fame = draw.dirichlet(np.full(size, 0.7))
    end = min(0.9, max(4.0 / horizon, 0.05))
    moves = _local_moves(draw, fame, actions, end)
    behaviour = np.where(mask, draw.gamma(2.0, size=mask.shape), 0.0)
    behaviour /= behaviour.sum(axis=1, keepdims=True)
    base, effect = draw.uniform(0.3, 0.7, size), draw.standard_normal((size, actions))
    paid = np.zeros((size + 2, actions, size + 2))
    paid[:size, :, size + 1] = 1.0
    alike = np.where(mask[:, :, None], (moves * behaviour[:, :, None]).sum(axis=1)[:, None], 0.0)

    def world(strength: float, apart: float = 1.0) -> PublicMDP:
        """Build the MDP.

        strength : size of the effects of actions on the terminal state that is reached.
        apart : weight in [0, 1] of the differences between the next-state distributions of actions.
        """
        good = end * np.clip(base[:, None] + strength * effect, 0.0, 1.0)
        table = alike + apart * (moves - alike)
        table[:size, :, size], table[:size, :, size + 1] = end - good, good
        table[size, :, size] = table[size + 1, :, size + 1] = 1.0
        mdp = TabularMDP(
            table, paid, np.append(fame, [0.0, 0.0]), horizon=horizon,
            mask=Layout(size + 2, actions, horizon, mask).mask, terminal=(size, size + 1), name="made up",
        )  # fmt: skip
        returns = ReturnBounds(terminal=(size, size + 1), outcomes={size + 1: most - least})
        return PublicMDP(mdp, np.repeat(behaviour[None], horizon, axis=0), returns, most - least)

    return _with_gain(world, gain)


def _with_gain(family: Callable[..., PublicMDP], gain: float) -> PublicMDP:
    """Return the MDP of a family in which the best policy has the given gain.

    family : function that returns an MDP. Its arguments are the size of the effects of actions and,
        optionally, a weight of other differences.
    """
    if family(0.0).best > gain:  # the differences between next-state distributions already give a larger gain
        return family(0.0, least_enough(lambda apart: family(0.0, apart).best >= gain, 0.0, 1.0, 30))
    low, high = 0.0, 0.05
    while family(high).best < gain:
        low, high = high, 2.0 * high
        if high > 10.0:
            raise ValueError(
                f"target_gain = {gain:g}: must be smaller, because no effects of actions give this gain"
            )
    return family(least_enough(lambda strength: family(strength).best >= gain, low, high, 20))


def _local_moves(draw: np.random.Generator, fame: Floats, actions: int, end: float) -> Floats:
    """Draw transition probabilities from each pair of state and action to a few next states.

    An episode ends with probability ``end`` at each step, in one of two terminal states. Returns an array
    (size + 2, actions, size + 2). The probabilities of the two terminal states are not filled in.
    """
    size = len(fame)
    near = draw.choice(size, (size, actions, min(_NEAR, size)), p=fame)
    weights = draw.dirichlet(np.ones(near.shape[2]), (size, actions))
    moves = np.zeros((size + 2, actions, size + 2))
    pair = np.arange(size)[:, None], np.arange(actions)[None, :]
    for i in range(near.shape[2]):
        np.add.at(moves, (*pair, near[:, :, i]), (1.0 - end) * weights[:, :, i])
    return moves


def least_enough(enough: Callable[[float], bool], low: float, high: float, rounds: int) -> float:
    """Return the smallest number for which ``enough`` returns True, by bisection.

    It is assumed that ``low`` is not enough and that ``high`` is enough.

    - rounds : number of bisections.
    """
    for _ in range(rounds):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
