r"""Estimate of the gain of a fixed policy, from users who did not contribute to learning it.

Users are divided into two groups. The release of group A gives a model and a policy pi. It also gives all
public numbers of the question. Group B answers the question once. Consider one user of group B with states
s_h, actions a_h and returns G_h of the remaining episode. The answer of this user is the sum, over the steps
h at which pi acts, of

    omega_h(s_h) (1{a_h = pi} / b(s_h) - 1) (G_h - Q_h(s_h)).

Here b is the estimated probability of the action pi_h(s_h). Q_h(s_h) is the estimated value of this action if
all later actions follow the behaviour policy. The ratio omega_h compares the probability of the state under
pi with its probability under the behaviour policy. It is clipped to [0, 4]. If omega and b are correct, the
mean answer is the gain of pi over the behaviour policy, for every Q (performance-difference identity). If b
is wrong by the factor 1 + e, the mean is wrong by e times the error of Q. If omega is wrong, its error is
multiplied by the advantage of pi.

The following estimates are post-processing of the release of group A:

- omega and Q are those of :func:`~discreet.pipeline.world_model.world_model`. Q is corrected by the
  difference between the mean return of the state and its value in the model. The difference is shrunk towards
  its mean over states;
- b is the share of the action, shrunk towards its share over all states (James and Stein). Without shrinkage,
  b is too small for an action with few noisy visits and a high mean return. b is at least 0.01;
- the error of the model is estimated in 24 MDPs from the posterior distribution of the model. In each of
  them, both the mean answer and the gain are known. The mean difference is subtracted from the estimate, and
  the variance of the difference is added to the variance of the estimate.

*Clipping.* The vector y of a user's answers to k policies is scaled down to norm C: l2 for Gaussian noise, l1
for Laplace noise. A user adds y and the scaled squares y_j^2 / (2 C). The variance of the answers is
estimated from the squares, because the variance in the model can be a third too small. Since ||y|| <= C, the
norm of all 2 k numbers is at most kappa C, with kappa = sqrt(5/4) (l1: 3/2). C = max(6 sqrt(p), sqrt(p n) /
(8 kappa g)). Here p is the variance of the answers in the model, and n the number of users in group B. The
noise multiplier g is the standard deviation of the noise for sensitivity 1. With the second value, the
standard deviation of the noise is a quarter of the sampling error.
:mod:`discreet.mechanisms.dataset.clipped_sum` derives the sensitivity, which is 2 kappa C.

*Limits.* An unrecorded common cause of actions and outcomes biases this estimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from discreet.core import checks
from discreet.core.releases import Floats, Ints
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectories
from discreet.learners.ope.first_visit_query import FirstVisits, VisitSums
from discreet.learners.ope.release_split import combined_visits, release_sizes
from discreet.learners.ope.verdict import PolicyAnswer
from discreet.mechanisms.interfaces import ProblemSpec, StepwiseRelease
from discreet.pipeline.world_model import WorldModel, world_model

__all__ = ["PolicyAnswer", "PolicyQuestion", "kappa", "policy_question"]

Bools = NDArray[np.bool_]

MEMBERS = 24  # MDPs from the posterior distribution of the model
_SIMULATED = 20_000  # number of simulated episodes for the variance of the answers
_MOST_RATIO = 4.0  # largest omega
_LEAST_CHANCE = 0.01  # smallest b
_LEAST_VARIANCE = 1e-6
_SQUARES = 0.5  # weight of the squares of answers
_LEAST_SHARE = 0.25  # weight of the variance in the model


@dataclass(frozen=True, eq=False)
class _Model:
    """Model from group A on the admissible pairs of the environment, with a corrected behaviour policy."""

    world: WorldModel
    share: Floats  # (R,) b, which sums to 1 in each state
    deviation: Floats  # (R,) standard deviation of b


@dataclass(frozen=True, eq=False)
class _Run:
    """Values and occupancies of a policy in one MDP."""

    q: Floats  # (H, R)
    value: Floats  # (H, S)
    occupancy: Floats  # (H, S)

    @property
    def total(self) -> float:
        return float(self.occupancy[0] @ self.value[0])


def _run(world: WorldModel, table: Floats, weights: Floats) -> _Run:
    """Evaluate a policy.

    - table : (R, S) next-state probabilities.
    - weights : (H, R) probabilities of the pairs.
    """
    layout = world.layout
    ptr, state = layout.state_ptr[:-1], layout.row_state
    ended = np.isin(state, world.terminal)
    value = np.zeros((layout.horizon + 1, layout.states))
    q = np.zeros((layout.horizon, layout.rows))
    for h in range(layout.horizon - 1, -1, -1):
        q[h] = np.where(ended, 0.0, table @ (world.arrival + value[h + 1]))
        value[h] = np.add.reduceat(weights[h] * q[h], ptr)
    occupancy = np.zeros((layout.horizon, layout.states))
    occupancy[0] = world.initial
    for h in range(layout.horizon - 1):
        occupancy[h + 1] = (weights[h] * occupancy[h][state]) @ table
    return _Run(q, value[:-1], occupancy)


def _shares(sums: VisitSums, pick: Ints, spec: ProblemSpec) -> tuple[Floats, Floats]:
    """Return the (R,) shrunk shares of actions and their standard deviations."""
    layout, noise = spec.layout, sums.noise
    visits, deviation = combined_visits(sums.visits, sums.moves[:, :-1], noise.moves, noise.visits)
    state = layout.row_state
    taken = np.where(np.isin(state, sums.question.returns.terminal), 0.0, visits[pick])
    count = np.diff(layout.state_ptr)[state]
    n = np.add.reduceat(taken, layout.state_ptr[:-1])[state]
    n = np.maximum(n, np.maximum(1.0, 2.0 * deviation * np.sqrt(count)))
    own = np.clip(taken / n, 0.0, 1.0)
    whole = np.bincount(layout.row_action, np.maximum(taken, 0.0), minlength=layout.actions)
    among = np.bincount(layout.row_action, n, minlength=layout.actions)
    usual = np.maximum(whole[layout.row_action] / np.maximum(among[layout.row_action], 1e-300), 1e-3)
    usual = usual / np.add.reduceat(usual, layout.state_ptr[:-1])[state]
    middle = np.clip(own, 0.5 / n, 1.0)
    error = deviation**2 * ((1.0 - own) ** 2 + (count - 1) * own**2) + n * middle * (1.0 - own)
    error = np.maximum(error / n**2, 1e-12)
    several = (count > 1) & ~np.isin(state, sums.question.returns.terminal)
    weight = np.where(several, error, np.inf) ** -2.0
    excess = (taken / n - usual) ** 2 - error
    between = max(float((weight * excess).sum() / max(weight.sum(), 1e-300)), _LEAST_VARIANCE)
    kept = between / (between + error)
    share = np.where(several, np.maximum(usual + kept * (taken / n - usual), 1e-3), 1.0)
    share = share / np.add.reduceat(share, layout.state_ptr[:-1])[state]
    return share, np.where(several, np.sqrt(kept * error), 0.0)


def _level(sums: VisitSums, world: WorldModel, run: _Run) -> Floats:
    """Return the (S,) amounts by which mean returns of states exceed their values in the model."""
    states, noise = world.layout.states, sums.noise
    visits, deviation = combined_visits(sums.visits, sums.moves[:, :-1], noise.moves, noise.visits)
    n = sums.per_state(visits)[:states]
    rows = np.diff(sums.layout.state_ptr)[:states]
    least, most = sums.question.bounds
    origin = (least - min(max(0.0, least), most)) / (most - least)  # returns are counted from here
    seen = n > np.maximum(10.0, 4.0 * np.sqrt(rows) * deviation)
    seen &= ~np.isin(np.arange(states), world.terminal)
    n = np.where(seen, n, 1.0)
    mean = sums.per_state(sums.returns)[:states] / n + 0.5 + origin
    model = (run.occupancy * run.value).sum(axis=0) / np.maximum(run.occupancy.sum(axis=0), 1e-12)
    excess = np.where(seen, mean - model, 0.0)
    error = (rows * noise.returns**2 + 0.25 * n) / n**2
    weight = seen / error
    if not weight.any():
        return np.zeros(states)
    centre = float((weight * excess).sum() / weight.sum())
    spread = ((excess - centre) ** 2 - error)[seen]
    between = max(float((weight[seen] ** 2 * spread).sum() / (weight[seen] ** 2).sum()), 0.0)
    return np.where(seen, centre + between / (between + error) * (excess - centre), centre)


@dataclass(frozen=True, eq=False)
class PolicyQuestion:
    """Question about k policies. All coefficients are public.

    Attributes
    ----------
    world : WorldModel
        Model of group A.
    policies : (k, H, S) int
        Actions; -1 means the behaviour policy.
    ratio, chance, own : (k, H, S)
        omega (0 at states where the policy does not act), b, and Q of the policy's action.
    variance : float
        p, the sum of the variances of the k answers in the model.
    covariance : (k, k)
        Covariance of the answers in the model.
    bias : (k,)
        Mean difference between mean answer and gain, over MDPs of the posterior distribution.
    error : (k, k)
        Covariance of this difference over the same MDPs.
    """

    __repr__ = brief

    world: WorldModel
    policies: Ints
    ratio: Floats
    chance: Floats
    own: Floats
    variance: float
    covariance: Floats
    bias: Floats
    error: Floats

    def answers(self, people: Trajectories) -> Floats:
        """Return the (n, k) answers of n users, before clipping, in units of the model.

        people : one episode of each user.
        """
        return _answers(self, np.asarray(people.states), np.asarray(people.actions))

    def clip(self, users: int, multiplier: float, laplace: bool = False) -> float:
        """Return C.

        - users : number of users in group B.
        - multiplier : standard deviation of the noise for sensitivity 1.
        - laplace : True for Laplace noise.
        """
        sd = math.sqrt(self.variance)
        return max(6.0 * sd, sd * math.sqrt(users) / (8.0 * kappa(laplace) * multiplier))

    def contributions(self, people: Trajectories, clip: float, laplace: bool = False) -> Floats:
        """Return the (n, 2 k) numbers that n users add to the sums, of norm at most kappa C.

        - people : one episode of each user.
        - clip : C.
        - laplace : True for Laplace noise.
        """
        y = self.answers(people)
        norm = np.linalg.norm(y, 1 if laplace else 2, axis=1, keepdims=True)
        y = y * (clip / np.maximum(norm, clip))
        return np.concatenate([y, _SQUARES / clip * y**2], axis=1)

    def read(
        self, sums: Floats, clip: float, users: int, std: float, level: float = 0.95, laplace: bool = False
    ) -> tuple[PolicyAnswer, ...]:
        """Return the estimate and the interval of the gain of each of the k policies.

        A policy that changes nothing has gain 0, without noise.

        Parameters
        ----------
        sums : (2 k,)
            Noisy sums of :meth:`contributions`, in units of kappa C.
        clip : float
            C.
        users : int
            Number of users in group B.
        std : float
            Standard deviation of the noise in a sum, in units of kappa C.
        level : float
            Probability, in (0, 1), that all k intervals contain the true gains. For k > 1, each interval has
            level 1 - (1 - level) / k.
        laplace : bool
            True for Laplace noise.

        Raises
        ------
        ValueError
            If ``sums`` has another shape or a number is out of range.
        """
        level = checks.real("level", level, 0.0, 1.0, open_low=True, open_high=True)
        clip, users = checks.positive("clip", clip), checks.integer("users", users, 1)
        k, unit, bound = len(self.policies), self.world.units[0], kappa(laplace) * clip
        means = checks.floats("sums", sums, (2 * k,)) * bound / users
        noise = checks.real("std", std, 0.0) * bound / users
        # the noise of the squares is added, so that the variance is rarely too small
        variance = (means[k:] + noise) * clip / _SQUARES - means[:k] ** 2
        variance = np.maximum(variance, _LEAST_SHARE * np.diag(self.covariance))
        z = float(ndtri(1.0 - (1.0 - level) / (2.0 * k)))
        found = []
        for j in range(k):
            if not (self.policies[j] >= 0).any():
                found.append(PolicyAnswer(*[0.0] * 7))
                continue
            mean = unit * float(means[j] - self.bias[j])
            parts = (math.sqrt(variance[j] / users), noise, math.sqrt(self.error[j, j]))
            deviation = unit * math.hypot(*parts)
            ends = mean - z * deviation, mean + z * deviation
            found.append(PolicyAnswer(mean, *ends, deviation, *(unit * part for part in parts)))
        return tuple(found)


def kappa(laplace: bool) -> float:
    """Return the largest norm of a user's contributions, in units of C.

    - laplace : True for Laplace noise.
    """
    return 1.0 + _SQUARES if laplace else math.sqrt(1.0 + _SQUARES**2)


def _returns(world: WorldModel, states: Ints) -> Floats:
    """Return the (n, H) returns of the remaining episode, in units of the model. Rules pay rewards on arrival
    in a state.
    """
    ended = np.isin(states[:, :-1], world.terminal)
    paid = np.where(ended, 0.0, world.arrival[states[:, 1:]])
    return np.asarray(np.cumsum(paid[:, ::-1], axis=1)[:, ::-1])


def _answers(asked: PolicyQuestion | _Coefficients, states: Ints, actions: Ints) -> Floats:
    left = _returns(asked.world, states)
    found = np.zeros((len(states), len(asked.policies)))
    for h in range(actions.shape[1]):
        s, a = states[:, h], actions[:, h]
        for j in range(len(asked.policies)):
            weight = np.where(a == asked.policies[j, h, s], 1.0 / asked.chance[j, h, s], 0.0) - 1.0
            found[:, j] += asked.ratio[j, h, s] * weight * (left[:, h] - asked.own[j, h, s])
    return found


@dataclass(frozen=True, eq=False)
class _Coefficients:
    """Coefficients of a question before its variance is known."""

    world: WorldModel
    policies: Ints
    ratio: Floats
    chance: Floats
    own: Floats


def _simulated(model: _Model, seed: int) -> tuple[Ints, Ints]:
    """Simulate episodes in the model under the behaviour policy. Returns states and actions."""
    world, layout = model.world, model.world.layout
    draw = np.random.default_rng(seed)
    states = np.zeros((_SIMULATED, layout.horizon + 1), np.int64)
    actions = np.zeros((_SIMULATED, layout.horizon), np.int64)
    states[:, 0] = draw.choice(layout.states, _SIMULATED, p=world.initial / world.initial.sum())
    cumulative = np.cumsum(model.share)
    before = np.concatenate([[0.0], cumulative])[layout.state_ptr[:-1]]
    for h in range(layout.horizon):
        at = before[states[:, h]] + draw.random(_SIMULATED) * (1.0 - 1e-9)
        row = np.searchsorted(cumulative, at, side="right")
        row = np.clip(row, layout.state_ptr[states[:, h]], layout.state_ptr[states[:, h] + 1] - 1)
        actions[:, h] = layout.row_action[row]
        chosen, luck = np.unique(row), draw.random(_SIMULATED)
        order = np.argsort(row, kind="stable")
        ends = np.searchsorted(row[order], chosen, side="right")
        begin = 0
        for one, end in zip(chosen.tolist(), ends.tolist(), strict=True):
            own, law = order[begin:end], np.cumsum(world.probability[0, one])
            states[own, h + 1] = np.minimum(
                np.searchsorted(law, luck[own] * law[-1], side="right"), layout.states - 1
            )
            begin = end
    return states, actions


def policy_question(release: StepwiseRelease, spec: ProblemSpec, policies: Ints) -> PolicyQuestion:
    """Return the question about given policies, which may be learned from the release of group A.

    Parameters
    ----------
    release : StepwiseRelease
        Release of first visits of group A.
    spec : ProblemSpec
        Public facts about the environment.
    policies : (k, H, S) int
        Actions; -1 means the behaviour policy.

    Returns
    -------
    PolicyQuestion

    Raises
    ------
    ValueError
        If the release does not contain first visits, or if no rule (``outcomes``) determines the rewards.
        Also if there are groups or a censored state, or if a policy has another shape or an inadmissible
        action.
    """
    policies = _checked(policies, spec)
    if not spec.stationary or release.layout != FirstVisits(spec).layout:
        raise ValueError("release: must be of first visits in the environment of spec")
    returns = FirstVisits(spec).returns
    if returns.outcomes is None or returns.censored is not None or spec.groups > 1:
        raise ValueError(
            "spec: must have rewards that a rule pays by the state in which an episode ends (outcomes), no "
            "censored state and no groups"
        )
    if release_sizes(release)[1] > 1:
        raise ValueError("release: must be of one episode per user")
    question = FirstVisits(spec)
    world, sums, layout = world_model(release, spec, part="whole"), question.read(release), spec.layout
    index = question.layout.row_index[: spec.states, : spec.actions]
    first = question.layout.state_ptr[: spec.states, None]
    pick = layout.to_rows(np.where(index < 0, first, index)[None].astype(float))[0].astype(np.int64)
    share, deviation = _shares(sums, pick, spec)
    model = _Model(world, share, deviation)
    usual = np.broadcast_to(share, (spec.horizon, layout.rows))
    run = _run(world, world.probability[0], usual)
    level = _level(sums, world, run)

    acting = policies >= 0
    acting[:, :, list(world.terminal)] = False
    row = layout.row_index[np.arange(spec.states), np.maximum(policies, 0)]
    row = np.where(acting, row, 0)
    weights = [
        _weights(layout.row_state, layout.rows, usual, acting[j], row[j]) for j in range(len(policies))
    ]
    steps = np.arange(spec.horizon)[:, None]
    ratio = np.zeros(policies.shape)
    for j, own in enumerate(weights):
        occupancy = _run(world, world.probability[0], own).occupancy
        ratio[j] = np.clip(occupancy / np.maximum(run.occupancy, 1e-12), 0.0, _MOST_RATIO)
    ratio = np.where(acting, ratio, 0.0)
    chance = np.maximum(share[row], _LEAST_CHANCE)
    own_value = run.q[steps, row] + level
    asked = _Coefficients(world, np.where(acting, policies, -1), ratio, chance, own_value)
    bias, error = _errors(model, asked, acting, row, weights)
    answers = _answers(asked, *_simulated(model, 0))
    covariance = np.atleast_2d(np.cov(answers, rowvar=False))
    covariance += 1e-12 * np.eye(len(policies))
    return PolicyQuestion(
        **vars(asked), variance=float(np.trace(covariance)), covariance=covariance, bias=bias, error=error
    )


def _weights(state: Ints, rows: int, usual: Floats, acting: Bools, row: Ints) -> Floats:
    """Return the (H, R) probabilities of the pairs under a policy."""
    found = np.where(acting[:, state], 0.0, usual)
    h, s = np.nonzero(acting)
    found[h, row[h, s]] = 1.0
    return found


def _errors(
    model: _Model, asked: _Coefficients, acting: Bools, row: Ints, weights: list[Floats]
) -> tuple[Floats, Floats]:
    """Return the mean and the covariance of (mean answer - gain) in MDPs of the posterior distribution."""
    world, layout = model.world, model.world.layout
    draw = np.random.default_rng(0)
    steps = np.arange(layout.horizon)[:, None]
    found = np.zeros((MEMBERS, len(asked.policies)))
    for m in range(MEMBERS):
        table = world._drawn(draw)[0]
        share = np.maximum(model.share + model.deviation * draw.standard_normal(layout.rows), 1e-3)
        share = share / np.add.reduceat(share, layout.state_ptr[:-1])[layout.row_state]
        usual = np.broadcast_to(share, (layout.horizon, layout.rows))
        run = _run(world, table, usual)
        for j in range(len(asked.policies)):
            own = np.where(acting[j][:, layout.row_state], weights[j], usual)
            gain = _run(world, table, own).total - run.total
            taken = share[row[j]] / asked.chance[j] * (run.q[steps, row[j]] - asked.own[j])
            answer = run.occupancy * asked.ratio[j] * (taken - run.value + asked.own[j])
            found[m, j] = float(answer[acting[j]].sum()) - gain
    return found.mean(axis=0), np.atleast_2d(np.cov(found, rowvar=False))


def _checked(policies: Ints, spec: ProblemSpec) -> Ints:
    """Return a copy of the policies. Raises ``ValueError`` if they do not fit the environment."""
    found = np.array(policies)
    shape = (spec.horizon, spec.states)
    if found.ndim != 3 or not len(found) or found.shape[1:] != shape or found.dtype.kind not in "iu":
        raise ValueError(f"policies has shape {found.shape}: must be (k, H, S) = (k, {shape[0]}, {shape[1]})")
    if found.min() < -1 or found.max() >= spec.actions:
        raise ValueError(f"policies hold {found.min()} to {found.max()}: must be in [-1, {spec.actions - 1}]")
    if (spec.layout.row_index[np.arange(spec.states), np.maximum(found, 0)][found >= 0] < 0).any():
        raise ValueError("policies: must contain only admissible actions")
    return found.astype(np.int64)
