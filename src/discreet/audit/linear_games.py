r"""Games for audits of linear sums, in which one user attains the proven privacy loss.

The feature vector of a pair ``(s, a)`` is a unit vector u_s that depends only on s. The inner products of the
vectors u_s with the first one are 1, -1, 0 and 1/4. These values include, exactly or nearly, the maximisers
of lemmas 1 to 5 of :mod:`discreet.mechanisms.linear.sensitivities`. Each state also has a sign sigma.

* Linear mixtures: ``phi(s' | s, a) = u_s sigma(s') 2 / S``. If features must not be
  negative (``nonneg``), sigma(s') = -1 is replaced by 0.
* Linear MDPs: phi = u_s. The vectors u_s have a common component with 1 % of the squared length, so that the
  constant 1 is in the span of the features. The inner product -1 becomes -0.98. If features must not be
  negative, they are one-hot.

The canary (:func:`canary`) is the pair of the target's records with the largest loss under the claimed noise.
If the claim is only an upper bound, the canary's loss can be smaller than the claim.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import distance

from discreet.audit.black_box import Start, play, session_times
from discreet.audit.noise_model import expected_answer, noise_of, scale_of, summand
from discreet.core import checks
from discreet.core.layout import Layout
from discreet.core.releases import Floats, Plan, Release, Schedule
from discreet.core.rng import Seeded
from discreet.core.trajectories import Trajectory
from discreet.mechanisms.features import Features, MixtureFeatures
from discreet.mechanisms.interfaces import Budget, ProblemSpec
from discreet.mechanisms.linear.linear_queries import GramQuery, LinearQuery, MixtureQuery
from discreet.mechanisms.query_queue import Response

Kind = Literal["mixture", "linear"]

_COSINES = (1.0, -1.0, 0.0, 0.25)  # Inner products of the directions with the first direction.
_AXIS = 0.1  # Component along the axis that all directions share, so that the constant 1 is in their span.


# ----------------------------------------------------------------------------------- environments
def _directions(kind: Kind, nonneg: bool) -> Floats:
    """Return the n directions of a game as unit vectors, an (n, d) array."""
    if nonneg:
        return np.eye(3)
    least = _AXIS**2 if kind == "linear" else 0.0
    cosines = np.clip((np.array(_COSINES) - least) / (1.0 - least), -1.0, 1.0)
    turned = np.stack([cosines, np.sqrt(1.0 - cosines**2)], axis=1)
    if kind == "mixture":
        return turned
    axis = np.full((len(turned), 1), _AXIS)
    return np.hstack([axis, math.sqrt(1.0 - least) * turned])


def _signs(states: int) -> Floats:
    """Return the (S,) signs sigma of the states."""
    return np.resize([1.0, -1.0], states)


def spec_of(
    kind: Kind, horizon: int, users: int, budget: Budget | None = None, nonneg: bool = False
) -> ProblemSpec:
    """Return the public facts of a game: features and known rewards.

    Rewards are 1 where sigma = 1, and 0 elsewhere.
    """
    rows = np.repeat(_directions(kind, nonneg), 2, axis=0)  # (S, d)
    states, actions = len(rows), 2
    sigma = _signs(states)
    features: Features | MixtureFeatures
    if kind == "mixture":
        of = np.maximum(sigma, 0.0) if nonneg else sigma
        one = rows[:, None, :] * of[None, :, None] * (2.0 / states)
        features = MixtureFeatures(np.repeat(one[:, None], actions, axis=1), 1.0)
    else:
        l1 = float(np.abs(rows).sum(axis=1).max())
        features = Features(np.repeat(rows[:, None], actions, axis=1), 1.0, l1=l1, nonneg=nonneg)
    rewards = np.broadcast_to((sigma > 0)[:, None], (horizon, states, actions)).astype(np.float64)
    return ProblemSpec(
        Layout(states, actions, horizon), users, known_rewards=rewards, budget=budget, features=features
    )


def values_of(query: LinearQuery) -> Floats:
    """Return (H + 1, S) values: the largest allowed value where sigma = 1, and 0 elsewhere."""
    layout = query.layout
    most = np.zeros(layout.horizon + 1)
    if isinstance(query, MixtureQuery):
        most[1:-1] = query.bounds
    else:
        most[1:-1] = np.arange(layout.horizon - 1, 0, -1)
    return most[:, None] * (_signs(layout.states) > 0)


@dataclass(frozen=True, eq=False)
class LinearPeople:
    """Users of the game. The states and rewards of the users are fixed, and their actions follow the policy.

    Parameters
    ----------
    spec : result of :func:`spec_of`.
    target : number of the target user, counted from 1.
    own : (states, rewards) of the target user under each hypothesis.
    seed : seed of the other users' states and rewards.
    """

    spec: ProblemSpec
    target: int = 1
    own: tuple[tuple[NDArray[Any], Floats], ...] = ()
    seed: int = 8

    @property
    def users(self) -> int:
        """Number of users in the game."""
        return int(self.spec.users or 0)

    def life(self, user: int, world: int, policy: NDArray[Any]) -> Trajectory:
        """Return the trajectory of a user (counted from 1) under a policy and a hypothesis ``world``."""
        luck, h = np.random.default_rng([self.seed, user]), self.spec.horizon
        states, rewards = luck.integers(self.spec.states, size=h + 1), luck.random(h)
        if user == self.target and self.own:
            states, rewards = self.own[world]
        return followed(states, rewards, policy)


def followed(states: NDArray[Any], rewards: Floats, policy: NDArray[Any]) -> Trajectory:
    """Return the trajectory with the given states and rewards, and the policy's most likely actions."""
    rows = np.asarray(policy)[np.arange(len(rewards)), states[:-1]]
    actions = rows if rows.ndim == 1 else rows.argmax(axis=1)
    return Trajectory(np.array(states, np.int64), np.array(actions, np.int64), np.array(rewards, np.float64))


# ----------------------------------------------------------------------------------- the probe
@dataclass(frozen=True, eq=False)
class Probe:
    """Learner that makes the queries of another learner at its times, with the values of largest loss.

    The probe's policy always takes action 0.

    Parameters
    ----------
    asked, when : query and schedule of the other learner in the game.
    """

    asked: LinearQuery
    when: Schedule

    @classmethod
    def of(cls, learner: Any, spec: ProblemSpec) -> Probe:
        """Return a probe that replaces ``learner``."""
        return cls(learner.query(spec), learner.schedule(spec))

    def query(self, spec: ProblemSpec) -> LinearQuery:
        """Return the replaced learner's query."""
        return self.asked

    def schedule(self, spec: ProblemSpec) -> Schedule:
        """Return the replaced learner's schedule."""
        return self.when

    def begin(self, spec: ProblemSpec, ties: NDArray[np.uint64]) -> tuple[ProblemSpec, int, int]:
        """Return the initial state (spec, number of the last release with queries, query rounds)."""
        return spec, 0, 0

    def plan(self, state: tuple[ProblemSpec, int, int], release: Release, ask: Any) -> tuple[Plan, Any]:
        """Make the queries of this release, and return one plan for all users until the next release."""
        spec, read, rounds = state
        query, schedule, values = self.asked, self.when, values_of(self.asked)
        if release.number > read and query.requeries and rounds < (schedule.answers or release.number):
            assert isinstance(query, GramQuery)
            rounds += 1
            for h in reversed(range(query.steps)):
                high = spec.horizon - h - (not query.rewards)
                ask(Response(h, values[h + 1], (0.0, float(high))))
        policy = np.zeros((spec.horizon, spec.states), np.int64)
        if schedule.plans == "stochastic":
            policy = np.eye(spec.actions)[policy]  # type: ignore[assignment]
        later = [int(t) for t in schedule.release_times if t > release.users]
        users = min([*later, int(spec.users or 1)]) - release.users
        return Plan(policy, users, context_of(query, values)), (spec, release.number, rounds)


def context_of(query: LinearQuery, values: Floats) -> dict[str, Floats]:
    """Return the context of a plan with the given values and with the largest allowed weights."""
    if not isinstance(query, MixtureQuery):
        return {}
    found = {"values": values}
    if query.second or query.largest_weight != 1.0:
        layout = query.layout
        found["weights"] = np.full((layout.horizon - 1, layout.states, layout.actions), query.largest_weight)
    return found


# ---------------------------------------------------------------------------------- the canary
def _records(query: LinearQuery) -> list[tuple[NDArray[Any], Floats]]:
    """Return (states, rewards) of all records with different contributions, for rewards 0 or 1."""
    layout = query.layout
    h = layout.horizon
    rewards = [np.zeros(h)]
    asked: Any = query
    if asked.rewards not in (None, False):
        rewards = [np.array(r, np.float64) for r in itertools.product((0.0, 1.0), repeat=h)]
    paths = itertools.product(range(layout.states), repeat=h)
    return [(np.array([*path, 0]), r) for path in paths for r in rewards]


def canary(start: Start, learner: Any, people: LinearPeople) -> tuple[LinearPeople, float]:
    """Find the pair of the target's records that has the largest loss.

    Returns the game with these records, and the loss: mu for Gaussian noise, and epsilon for Laplace noise.
    """
    spec = people.spec
    query = learner.query(spec)
    session: Any = start(query, learner.schedule(spec), Seeded(0))
    times = session_times(session)
    noise = noise_of(session, query, times)
    if noise is None:
        return dataclasses.replace(people, own=tuple(_records(query)[:2])), 0.0
    seen = play(start, learner, people, 0, Seeded(0))
    lives = [followed(*record, seen.plans[people.target - 1]) for record in _records(query)]
    cells = np.array([summand(query, life, seen.contexts[people.target - 1]) for life in lives])
    response = (np.asarray(times) >= people.target).astype(np.float64)
    power = 1 if noise.laplace else 2
    parts = []
    for f, part in enumerate(np.split(cells, query.offsets[1:-1], axis=1)):
        column = np.array([1.0 / noise.scales[f]])
        if session.guarantee.trust != "local" and noise.mixings is not None:
            mixing = noise.mixings[f]
            column = np.linalg.lstsq(mixing, response, rcond=None)[0]
        parts.append(part * np.linalg.norm(column, ord=power))
    for one in seen.asked:
        if one.users >= people.target:
            own = [expected_answer(query, one.question, [life]) for life in lives]
            parts.append(np.array(own) / scale_of(one.answer))
    metric = "cityblock" if noise.laplace else "euclidean"
    costs = distance.cdist(np.hstack(parts), np.hstack(parts), metric)
    i, j = np.unravel_index(int(costs.argmax()), costs.shape)
    every = _records(query)
    return dataclasses.replace(people, own=(every[i], every[j])), float(costs[i, j])


def game_of(
    learner: Any, users: int, budget: Budget | None = None, *, nonneg: bool = False, horizon: int = 2
) -> LinearPeople | None:
    """Return the game for a learner with linear features, without a canary, or None for other learners."""
    users = checks.integer("users", users, 2)
    for kind in ("mixture", "linear"):
        spec = spec_of(kind, horizon, users, budget, nonneg)
        try:
            query = learner.query(spec)
        except ValueError:
            continue
        if isinstance(query, LinearQuery):
            return LinearPeople(spec)
    return None
