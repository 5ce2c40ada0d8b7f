r"""Membership inference attacks: attempts to determine whether a user's trajectory was in the data.

The data are the trajectories of n - 1 users from an MDP, and the target's trajectory x ("in") or another
trajectory x' ("out"). A learner is run on one of these two neighbouring data sets. Three adversaries see
outputs of the learner, and each adversary computes a score:

1. **policy** sees only the learned actions (H, S);
2. **values** sees the actions and the pessimistic values Q (H, S, A);
3. **release** sees the learner's input, which is noisy or exact counts.

If ``knows`` is ``"everything"``, the adversaries know the other n - 1 records, x and x'. If ``knows`` is
``"population"``, the adversaries know the MDP and x, as in a shadow-model attack [#]_. The other records and
x' are then drawn independently in every run.

*Scores.* The scores of the first two adversaries are fitted to simulated runs with and without the target
(:func:`discreet.audit.black_box.fit_events`, :func:`~discreet.audit.black_box.fit_linear`). The score with
the greater AUC on separate runs is used. If the other records are known, the third adversary's score is the
log-likelihood ratio under the noise distribution, which is the most powerful test (Neyman and Pearson). If
the other records are unknown, the score is
(c(x) - m)' C^-1 (R - E[R]). Here R is the release, C its covariance matrix, c(x) the counts of x, and m the
mean of one user's counts.

*Bound from the guarantee.* Every test of x against x' has a true positive rate of at most 1 - f(a) at false
positive rate a. The function f is the trade-off curve of mu-GDP, or the maximum of the curves of all
(epsilon, delta) that the guarantee implies. The bound also holds on average over the other users, x and x',
because f is convex [#]_.

*Evaluation.* Thresholds are chosen on a quarter of the runs, and rates are counted on all other runs. The
Clopper-Pearson limits hold for the mean rate over targets, because a sum of Bernoulli variables with unequal
rates has a smaller variance than a sum with equal rates [#]_. A claim is *exceeded* if the lower limit of a
true positive rate is above the curve at the upper limit of the false positive rate. If the claim is true, the
probability of this event is at most ``alarm``.

A failed attack proves nothing, because another attack can succeed.

.. [#] Carlini et al. 2022, Membership Inference Attacks From First Principles.

.. [#] Dong, Roth and Su 2022, Gaussian Differential Privacy, section 2.

.. [#] Hoeffding 1956, for counts that exceed the mean by at least one. A limit from a single hit is wrong
   with probability at most (1 + alarm / 2) times its stated probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from discreet.accounting import budget
from discreet.accounting import pld as numerical
from discreet.accounting import pld_calibration as calibration
from discreet.audit.black_box import epsilon_bound, fit_events, fit_linear, mu_bound, rate_limits
from discreet.core import checks
from discreet.core.count_channels import is_of_counts
from discreet.core.guarantee import Guarantee
from discreet.core.releases import Floats, Release
from discreet.core.rng import Seeded
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.envs.mdp.planning import uniform_policy
from discreet.envs.mdp.tabular import TabularMDP
from discreet.envs.rollouts.rollout import rollout_batch
from discreet.envs.rollouts.simulated_users import simulate_counts
from discreet.learners.offline.apvi import OfflinePolicy
from discreet.learners.offline.interface import OfflineLearner
from discreet.mechanisms.interfaces import Privatizer, ProblemSpec
from discreet.mechanisms.policy_rows import PolicyRows, anybody, policy_rows

Score = Callable[[Floats], Floats]
Adversary = Literal["policy", "values", "release"]
Knowledge = Literal["everything", "population"]
Target = Literal["drawn", "canary"]

ADVERSARIES: tuple[Adversary, ...] = get_args(Adversary)
LEVELS = (0.001, 0.01, 0.1, 0.25, 0.5)  # False positive rates for which thresholds are chosen.
ALARM = 1e-6
_INTERVAL = 0.025  # Error probability on each side of the reported intervals.
# Largest number of cells in a release, because attacks run the learner thousands of times.
_MOST_CELLS = 20_000
_FEW = 20  # Least number of shadow runs of each kind to which a linear score is fitted.


# ------------------------------------------------------------------------ what a guarantee implies
@dataclass(frozen=True)
class Tradeoff:
    """Trade-off curve: the largest true positive rate that a guarantee allows at each false positive rate.

    Parameters
    ----------
    mu : parameter of Gaussian DP, or None.
    pairs : pairs (epsilon, delta) that all hold. They are used if mu is None. Without pairs, the curve is 1
        everywhere.
    """

    __repr__ = brief

    mu: float | None = None
    pairs: tuple[tuple[float, float], ...] = ()

    @classmethod
    def of(cls, guarantee: Guarantee) -> Tradeoff:
        """Return the curve of a stated guarantee.

        A zCDP guarantee is converted to (epsilon, delta) at many values of delta.
        """
        if guarantee.epsilon is None:
            return cls()
        if guarantee.mu is not None:
            return cls(mu=guarantee.mu)
        pairs = [(guarantee.epsilon, guarantee.delta)]
        if guarantee.rho is not None:
            deltas = np.logspace(-10, -0.25, 40).tolist()
            pairs += [(budget.zcdp_epsilon(guarantee.rho, delta), delta) for delta in deltas]
        return cls(pairs=tuple(pairs))

    @classmethod
    def of_exchanges(cls, exchanges: Sequence[tuple[numerical.Coordinate, ...]]) -> Tradeoff:
        """Return the curve for independent noise if an exchange of users has one of the given shifts.

        The curve is computed from epsilon at many values of delta.
        """
        deltas = (1e-8, 1e-6, 1e-4, 1e-3, 3e-3, 0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6)
        return cls(pairs=tuple((numerical.worst_epsilon(exchanges, delta), delta) for delta in deltas))

    def __call__(self, rates: ArrayLike) -> Floats:
        """Return the largest true positive rates 1 - f(a) at false positive rates a in [0, 1]."""
        a = np.asarray(rates, np.float64)
        if self.mu is not None:
            with np.errstate(invalid="ignore"):  # at rate 0, the argument is -inf + mu
                return np.asarray(special.ndtr(special.ndtri(a) + self.mu), np.float64)
        top = np.ones_like(a)
        for epsilon, delta in self.pairs:
            steep = math.exp(min(epsilon, 700.0)) * a + delta
            flat = 1.0 - math.exp(-epsilon) * (1.0 - delta - a)
            top = np.minimum(top, np.minimum(steep, flat))
        return top

    @cached_property
    def auc(self) -> float:
        """Area under the curve, the largest possible AUC of an attack."""
        if self.mu is not None:
            return float(special.ndtr(self.mu / math.sqrt(2.0)))
        grid = np.unique(np.concatenate([np.linspace(0.0, 1.0, 4001), np.logspace(-12, 0, 2001)]))
        return float(np.trapezoid(self(grid), grid))

    @cached_property
    def advantage(self) -> float:
        """Largest possible difference of the two rates: the total variation distance."""
        if self.mu is not None:
            return float(2.0 * special.ndtr(0.5 * self.mu) - 1.0)
        # f is piecewise linear and symmetric, so the largest difference is at a = f(a)
        return min(
            [1.0, *(math.tanh(0.5 * e) + 2 * d / (math.exp(min(e, 700.0)) + 1) for e, d in self.pairs)]
        )


# ----------------------------------------------------------------------------- results of attacks
class Rate(NamedTuple):
    """Measured probability and its 95 % Clopper-Pearson interval."""

    value: float
    low: float
    high: float


def _rate(hits: int, runs: int) -> Rate:
    return Rate(hits / runs, *rate_limits(hits, runs, _INTERVAL))


@dataclass(frozen=True)
class Point:
    """Threshold of a score, and the numbers of runs with a score at or above it.

    Parameters
    ----------
    level : false positive rate for which the threshold was chosen. nan for the threshold of the greatest
        advantage.
    inside, outside : numbers of evaluated runs with and without the target whose score is at or above the
        threshold.
    runs : numbers of all evaluated runs with and without the target.
    """

    level: float
    inside: int
    outside: int
    runs: tuple[int, int]

    @property
    def true_positive(self) -> Rate:
        """Positive rate of the runs with the target in the data."""
        return _rate(self.inside, self.runs[0])

    @property
    def false_positive(self) -> Rate:
        """Positive rate of the runs without the target in the data."""
        return _rate(self.outside, self.runs[1])

    def limits(self, alarm: float) -> tuple[float, float]:
        """Return a lower limit of the true positive rate, and an upper limit of the false positive rate.

        Each limit is wrong with probability at most ``alarm``.
        """
        return (
            rate_limits(self.inside, self.runs[0], alarm)[0],
            rate_limits(self.outside, self.runs[1], alarm)[1],
        )


@dataclass(frozen=True, eq=False)
class Roc:
    """Scores of one adversary in the evaluated runs, and the points of its ROC curve.

    Parameters
    ----------
    statistic : name of the score
    inside, outside : scores of the runs with and without the target. A larger score means "in"
    points : points of the thresholds for :data:`LEVELS` and for the greatest advantage (its level is nan)
    """

    __repr__ = brief

    adversary: Adversary
    statistic: str
    inside: Floats
    outside: Floats
    points: tuple[Point, ...]

    @property
    def curve(self) -> tuple[Floats, Floats]:
        """False positive rates and true positive rates of all thresholds, increasing from 0 to 1."""
        cuts = np.unique(np.concatenate([self.inside, self.outside]))[::-1]
        rates = [
            1.0 - np.searchsorted(np.sort(part), cuts) / part.size for part in (self.outside, self.inside)
        ]
        return np.concatenate([[0.0], rates[0]]), np.concatenate([[0.0], rates[1]])

    @cached_property
    def auc(self) -> tuple[float, float]:
        """The AUC and its standard error.

        The AUC is the probability that a run with the target has a larger score than a run without the
        target. Ties count half. The standard error is DeLong's, for given targets.
        """
        zero, one = np.sort(self.outside), np.sort(self.inside)
        above = 0.5 * (np.searchsorted(zero, self.inside) + np.searchsorted(zero, self.inside, "right"))
        below = 0.5 * (np.searchsorted(one, self.outside) + np.searchsorted(one, self.outside, "right"))
        over, under = above / zero.size, 1.0 - below / one.size
        variance = sum(float(part.var(ddof=1)) / part.size for part in (over, under) if part.size > 1)
        return float(over.mean()), math.sqrt(variance)

    @property
    def advantage(self) -> float:
        """True positive rate minus false positive rate at the threshold of the greatest advantage."""
        best = self.points[-1]
        return best.true_positive.value - best.false_positive.value

    def at(self, level: float) -> Point:
        """Return the ROC point that belongs to a level in :data:`LEVELS`."""
        return self.points[LEVELS.index(checks.choice("level", level, LEVELS))]


@dataclass(frozen=True, eq=False)
class AttackResult:
    """Result of an attack.

    Parameters
    ----------
    claim : guarantee with which the attack is compared
    bound : trade-off curve of this guarantee
    realised : largest norm, over the games, of the change from x to x' divided by the noise scales. The norm
        is l2 for Gaussian noise (the result is the mu of this exchange) and l1 for Laplace noise (the result
        is its epsilon). None without noise, or if the other records are unknown
    exchanges : all ways in which an exchange of one user can shift the sums, for :attr:`numerical`. Empty
        unless the noise is Laplace noise
    alarm : probability that :attr:`exceeded` is True although the claim is true
    """

    __repr__ = brief

    world: str
    learner: str
    privatizer: str
    users: int
    target: Target
    knows: Knowledge
    games: int
    shadows: int
    trials: int
    seed: int
    claim: Guarantee
    realised: float | None
    exchanges: tuple[tuple[numerical.Coordinate, ...], ...]
    alarm: float
    rocs: tuple[Roc, ...]

    @cached_property
    def bound(self) -> Tradeoff:
        """Trade-off curve that the claim implies."""
        return Tradeoff.of(self.claim)

    @cached_property
    def numerical(self) -> Tradeoff | None:
        """Trade-off curve of Laplace noise, computed from its privacy-loss distribution.

        The value is None for other noise. The computation takes a few seconds.
        """
        return Tradeoff.of_exchanges(self.exchanges) if self.exchanges else None

    def roc(self, adversary: Adversary) -> Roc:
        """Return the scores of one adversary and the points of its ROC curve."""
        return self.rocs[ADVERSARIES.index(checks.choice("adversary", adversary, ADVERSARIES))]

    @property
    def _each(self) -> float:
        """Error probability of one confidence limit."""
        return self.alarm / (2 * sum(len(roc.points) for roc in self.rocs))

    def exceeds(self, adversary: Adversary) -> bool:
        """Return True if the results of this adversary contradict the claim."""
        return any(
            low > float(self.bound(high)) * (1 + 1e-9)
            for low, high in (point.limits(self._each) for point in self.roc(adversary).points)
        )

    @property
    def exceeded(self) -> bool:
        """True if the results of at least one adversary contradict the claim. False if nothing is claimed."""
        return any(self.exceeds(roc.adversary) for roc in self.rocs)

    def lower_bounds(self, adversary: Adversary) -> tuple[float, float]:
        """Return lower bounds on mu and on epsilon at the claim's delta.

        A bound of 0 gives no information.
        """
        mu, epsilon, delta = 0.0, 0.0, self.claim.delta
        for point in self.roc(adversary).points:
            low, high = point.limits(self._each)
            mu = max(mu, mu_bound(low, high))
            epsilon = max(epsilon, epsilon_bound(low, high, delta), epsilon_bound(1 - high, 1 - low, delta))
        return mu, epsilon

    def rows(self) -> list[dict[str, Any]]:
        """Return one dictionary per adversary, with values of built-in types."""
        out = []
        for roc in self.rocs:
            mu, epsilon = self.lower_bounds(roc.adversary)
            row: dict[str, Any] = {
                "adversary": roc.adversary,
                "statistic": roc.statistic,
                "auc": roc.auc[0],
                "auc_standard_error": roc.auc[1],
                "advantage": roc.advantage,
                "mu_at_least": mu,
                "epsilon_at_least": epsilon,
                "exceeds_the_bound": self.exceeds(roc.adversary),
            }
            row["points"] = [
                {
                    "level": None if math.isnan(point.level) else point.level,
                    "true_positive": list(point.true_positive),
                    "false_positive": list(point.false_positive),
                    "bound_at_measured_false_positive": float(self.bound(point.false_positive.value)),
                    "runs": list(point.runs),
                }
                for point in roc.points
            ]
            out.append(row)
        return out

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dictionary of JSON values."""
        names = ("world", "learner", "privatizer", "users", "target", "knows", "games", "shadows", "trials")
        return {
            **{name: getattr(self, name) for name in names},
            "seed": self.seed,
            "claim": self.claim.to_dict(),
            "realised": self.realised,
            "alarm": self.alarm,
            "bound": {
                "auc": self.bound.auc,
                "advantage": self.bound.advantage,
                "true_positive": {str(level): float(self.bound(level)) for level in LEVELS},
            },
            "adversaries": self.rows(),
        }


# ---------------------------------------------------------------------- least likely trajectory
def _log_steps(world: TabularMDP, behaviour: PolicyRows) -> tuple[Floats, Floats]:
    """Return negative log-probabilities: (H, S, A, S) of steps and (S,) of first states."""
    layout = world.layout
    if behaviour.stochastic:
        acts = layout.from_rows(behaviour.probabilities)
    else:
        acts = layout.from_rows(
            np.array([np.bincount(rows, minlength=layout.rows) for rows in behaviour.rows], np.float64)
        )
    with np.errstate(divide="ignore"):
        return -np.log(acts[..., None] * world.transitions), -np.log(world.initial)


def _cheapest(step: Floats, start: Floats) -> Trajectory | None:
    """Return the trajectory of least total cost with rewards 0, or None if every cost is infinite."""
    horizon, states = step.shape[:2]
    ahead = np.zeros(states)
    moves = np.empty((horizon, states), np.int64)
    for h in range(horizon - 1, -1, -1):
        total = (step[h] + ahead).reshape(states, -1)
        moves[h] = total.argmin(axis=1)
        ahead = total.min(axis=1)
    if not np.isfinite((start + ahead).min()):
        return None
    path, played = [int((start + ahead).argmin())], []
    for h in range(horizon):
        action, after = divmod(int(moves[h, path[-1]]), states)
        played.append(action)
        path.append(after)
    return Trajectory(np.array(path), np.array(played), np.zeros(horizon))


def rarest(world: TabularMDP, behaviour: ArrayLike | PolicyRows) -> Trajectory:
    """Return the least likely trajectory of positive probability, with reward 1 at every step.

    The reward 1 is the largest that a record can contain, even if this MDP never gives it.
    """
    step, start = _log_steps(world, policy_rows(world.layout, behaviour))
    path = _cheapest(*(np.where(np.isfinite(cost), -cost, np.inf) for cost in (step, start)))
    assert path is not None  # at least one trajectory has positive probability
    return replace(path, rewards=np.ones(world.horizon))


def most_likely(
    world: TabularMDP, behaviour: ArrayLike | PolicyRows, apart: Trajectory | None = None
) -> Trajectory:
    """Return the most likely trajectory without a (step, state, action) of ``apart``, with rewards 0.

    If every such trajectory has probability 0, return the most likely of all trajectories.
    """
    step, start = _log_steps(world, policy_rows(world.layout, behaviour))
    if apart is not None:
        without = step.copy()
        without[np.arange(world.horizon), apart.states[:-1], apart.actions] = np.inf
        path = _cheapest(without, start)
        if path is not None:
            return path
    path = _cheapest(step, start)
    assert path is not None
    return path


# ---------------------------------------------------------------------------------------- the game
class _ShadowStatistics(NamedTuple):
    """Outputs of one run that the three adversaries see, as flat arrays."""

    policy: Floats
    values: Floats
    release: Floats


class _Game(NamedTuple):
    """Contributions of x, of x' and of all other users; None if they are drawn in each run."""

    inside: Floats
    outside: Floats | None
    others: Floats | None


@dataclass(frozen=True, eq=False)
class _MembershipBench:
    """Setting of an attack, which runs a learner on counts through an ordinary session."""

    world: TabularMDP
    behaviour: PolicyRows
    learner: OfflineLearner
    privatizer: Privatizer
    spec: ProblemSpec
    users: int
    seed: int

    @cached_property
    def query(self) -> Any:
        return self.learner.query(self.spec)

    def cells(self, life: Trajectory) -> Floats:
        """Return the contribution of one user as a vector of cells."""
        return self.query.to_cells(self.query.contribution(life))

    def drawn(self, number: int, first: int) -> Trajectories:
        """Draw the trajectories of ``number`` users from the MDP."""
        return rollout_batch(self.world, self.behaviour, number, self.seed, 1, first)

    def others(self, batch: int) -> Floats:
        """Return the summed counts of n - 1 users. batch : index that determines their random numbers."""
        key = Seeded(self.seed, 0).keys.environment
        crowd = simulate_counts(self.world, self.query, self.behaviour, self.users - 1, key, batch)
        return np.asarray(self.query.to_cells(crowd.sums))

    def release(self, cells: Floats, run: int) -> Release:
        """Return one release of the given sums, with independent noise in every run."""
        schedule = self.learner.schedule(self.users)
        session = self.privatizer.start(self.query, schedule, Seeded(self.seed, 2 + run))
        if not is_of_counts(session) or session.mechanism.reports is not None:
            raise ValueError(f"privatizer = {self.privatizer!r}: must release sums of counts")
        with session:
            session.release()
            session.begin(anybody(self.query.layout, self.users))
            session.submit_sum(self.query.from_cells(cells), self.users)
            return session.release()

    def seen(self, cells: Floats, run: int) -> _ShadowStatistics:
        """Run the learner on one release, and return the outputs that the adversaries see."""
        release = self.release(cells, run)
        learned: OfflinePolicy = self.learner.learn(release, self.spec)
        actions = learned.policy[..., None] == np.arange(self.spec.actions)
        q = np.where(np.isfinite(learned.q), learned.q, 0.0)
        numbers = self.query.to_cells({name: one.value for name, one in release.estimates.items()})
        return _ShadowStatistics(actions.ravel().astype(np.float64), q.ravel(), numbers)


def _play(
    bench: _MembershipBench, game: _Game, inside: bool, runs: int, first: int
) -> list[_ShadowStatistics]:
    """Return the outputs of ``runs`` runs with or without the target; the first has number ``first``."""
    out = []
    for run in range(first, first + runs):
        others = bench.others(run) if game.others is None else game.others
        mine: Floats | None = game.inside if inside else game.outside
        if mine is None:
            mine = bench.cells(bench.drawn(1, run)[0])
        out.append(bench.seen(others + mine, run))
    return out


def _stack(seen: Sequence[_ShadowStatistics], adversary: Adversary) -> Floats:
    """Return the (runs, numbers) array of the outputs that an adversary sees."""
    if adversary == "values":
        return np.array([np.concatenate([one.policy, one.values]) for one in seen])
    return np.array([getattr(one, adversary) for one in seen])


def _learned(inside: Floats, outside: Floats) -> dict[str, Score]:
    """Return the scores that are fitted to shadow runs with and without the target."""
    found: dict[str, Score] = {"frequencies": fit_events(inside, outside)}
    if len(inside) >= _FEW:
        found["linear"] = fit_linear(inside, outside)
    return found


def _likelihood(bench: _MembershipBench, game: _Game, release: Release) -> Score:
    """Return the score of the third adversary if the other records are known.

    The score is the log-likelihood ratio of a release. Without noise, the score is 1 if the release is closer
    to the data with x, and otherwise -1.
    """
    assert game.others is not None
    assert game.outside is not None
    one, zero = game.others + game.inside, game.others + game.outside
    scales = _scales(bench, release)
    if scales is None:

        def which(rows: Floats) -> Floats:
            differ = np.abs(rows - zero).max(axis=1) - np.abs(rows - one).max(axis=1)
            return np.sign(differ)

        return which
    units, laplace = scales

    def ratio(rows: Floats) -> Floats:
        far, near = (rows - zero) / units, (rows - one) / units
        if laplace:
            return np.asarray((np.abs(far) - np.abs(near)).sum(axis=1))
        return np.asarray(0.5 * (far**2 - near**2).sum(axis=1))

    return ratio


def _scales(bench: _MembershipBench, release: Release) -> tuple[Floats, bool] | None:
    """Return the (cells,) scales of the noise, and True if it is Laplace noise. None without noise."""
    laws = [release.estimates[name].law for name in bench.query.row_families]
    kinds = {law.family for law in laws}
    if kinds == {"none"}:
        return None
    if not (kinds == {"laplace"} or kinds == {"gaussian"}):
        raise ValueError(f"privatizer = {bench.privatizer!r}: its noise is {sorted(kinds)}, must be all one")
    laplace = kinds == {"laplace"}
    each = [law.std() / (math.sqrt(2.0) if laplace else 1.0) for law in laws]
    return np.repeat(each, np.diff(bench.query.offsets)), laplace


def _exchanges(bench: _MembershipBench, release: Release) -> tuple[tuple[numerical.Coordinate, ...], ...]:
    """Return all ways in which an exchange of one user can shift the sums, in units of Laplace noise.

    The result is empty for other noise.
    """
    patterns, found = calibration.shift_patterns(bench.query, 1), _scales(bench, release)
    if patterns is None or found is None or not found[1]:
        return ()
    units = found[0]
    scales = [
        (name, float(units[at]), 1)
        for name, at in zip(bench.query.row_families, bench.query.offsets[:-1].tolist(), strict=True)
    ]
    return calibration.exchanges(patterns, "laplace", scales)


def _normal_ratio(bench: _MembershipBench, release: Release, people: int = 4000) -> Callable[[_Game], Score]:
    """Return a function that gives the score of the third adversary if the other records are unknown.

    people : number of users that are drawn to estimate the mean and the covariance.
    """
    drawn = np.array([bench.cells(life) for life in bench.drawn(people, 2**40)])
    mean, centred = drawn.mean(axis=0), drawn - drawn.mean(axis=0)
    variance = (bench.users - 1) / (people - 1) * (centred.T @ centred)
    scales = _scales(bench, release)
    if scales is not None:
        units, laplace = scales
        variance[np.diag_indices_from(variance)] += (2.0 if laplace else 1.0) * units**2
    # the ridge gives a positive variance to cells that no drawn user has changed
    variance[np.diag_indices_from(variance)] += (bench.users - 1) / people

    def score(game: _Game) -> Score:
        weights = np.linalg.solve(variance, game.inside - mean)
        offset = bench.users * mean + 0.5 * (game.inside - mean)
        return lambda rows: np.asarray((rows - offset) @ weights)

    return score


def _auc(inside: Floats, outside: Floats) -> float:
    return Roc("policy", "", inside, outside, ()).auc[0]


def _judged(adversary: Adversary, scores: Mapping[str, tuple[Floats, Floats]]) -> Roc:
    """Choose a score and its thresholds on a part of the runs, and evaluate them on all other runs.

    scores : for each score, two (games, trials) arrays of its values, in runs with and without the target.
    """
    split: dict[str, list[tuple[Floats, Floats]]] = {}
    for name, pair in scores.items():
        games, trials = pair[0].shape
        axis, first = (1, trials // 4) if trials >= 4 else (0, games // 4)
        parts = [np.split(part, [first], axis=axis) for part in pair]
        split[name] = [(part[0].ravel(), part[1].ravel()) for part in parts]
    best = max(split, key=lambda name: _auc(split[name][0][0], split[name][1][0]))
    (in_chosen, inside), (out_chosen, outside) = split[best]
    cuts = [_threshold(in_chosen, out_chosen, level) for level in LEVELS]
    every = np.unique(np.concatenate([in_chosen, out_chosen]))
    gain = [(in_chosen >= cut).mean() - (out_chosen >= cut).mean() for cut in every]
    cuts.append(float(every[int(np.argmax(gain))]))
    points = tuple(
        Point(level, int((inside >= cut).sum()), int((outside >= cut).sum()), (inside.size, outside.size))
        for level, cut in zip((*LEVELS, math.nan), cuts, strict=True)
    )
    return Roc(adversary, best, inside, outside, points)


def _threshold(inside: Floats, outside: Floats, level: float) -> float:
    """Return the smallest threshold with at most the share ``level`` of false positives.

    A false positive is a run without the target whose score is at or above the threshold.
    """
    worst = np.sort(outside)[::-1][int(level * outside.size)]
    above = inside[inside > worst].min(initial=np.inf), outside[outside > worst].min(initial=np.inf)
    return float(min(above)) if np.isfinite(min(above)) else float(np.nextafter(worst, np.inf))


def membership_attack(
    world: TabularMDP,
    learner: OfflineLearner,
    privatizer: Privatizer,
    users: int,
    *,
    behaviour: ArrayLike | PolicyRows | None = None,
    target: Target = "drawn",
    knows: Knowledge = "everything",
    games: int = 8,
    shadows: int = 200,
    trials: int = 400,
    seed: int = 0,
    known_rewards: bool = False,
    claim: Guarantee | None = None,
    alarm: float = ALARM,
) -> AttackResult:
    """Run a learner on data with and without a target user, and evaluate three adversaries.

    Parameters
    ----------
    world : TabularMDP. A release must have at most 20 000 cells; it has slightly more than H S^2 A cells. The
        learner runs 2 x games x (shadows + trials) times, and each run takes some milliseconds.
    learner : APVI or DPAPVI
    privatizer : NoPrivacy, or Central with Gaussian or Laplace noise
    users : number n of users, at least 2
    behaviour : policy of the users. None: uniform
    target : "drawn": x and x' are independent draws from the population in each game. "canary": x is the
        least likely trajectory (:func:`rarest`), and x' is the most likely trajectory that has no
        state-action pair in common with x at the same step (:func:`most_likely`)
    knows : "everything" or "population", the knowledge of the adversaries; see the module docstring
    games : number of targets, at least 4. Each target has other users in the data
    shadows, trials : numbers of shadow runs and of evaluated runs in each game, both with the target and
        without the target. If the other records are known and there is no noise, all runs are equal, and one
        run is made
    seed : seed of users and noise
    known_rewards : True if rewards are public, so that the learner does not query them
    claim : guarantee that the attack tests. None: the guarantee of the release
    alarm : probability in (0, 0.5] that ``exceeded`` is True although the claim is true

    Raises
    ------
    ValueError
        If a value is out of range, the MDP is too large, or the release does not consist of sums that are
        exact or have Gaussian or Laplace noise.
    """
    users, seed = checks.integer("users", users, 2), checks.integer("seed", seed, 0)
    checks.choice("target", target, get_args(Target))
    checks.choice("knows", knows, get_args(Knowledge))
    games = checks.integer("games", games, 4)
    shadows, trials = checks.integer("shadows", shadows, 1), checks.integer("trials", trials, 1)
    alarm = checks.real("alarm", alarm, 0.0, 0.5, open_low=True)
    bench = _bench(world, learner, privatizer, users, behaviour, known_rewards, seed)
    first = bench.release(bench.others(0) + bench.cells(bench.drawn(1, 0)[0]), 0)
    claim = first.guarantee if claim is None else claim
    if knows == "everything" and privatizer.trust == "none":
        shadows = trials = 1
    played = _Games(bench, first, target, knows, shadows, trials)
    rocs = played.play(games)
    return AttackResult(
        world.name, type(learner).__name__, type(privatizer).__name__, users, target, knows, games, shadows,
        trials, seed, claim, max(played.realised, default=None), _exchanges(bench, first), alarm, rocs,
    )  # fmt: skip


def _bench(
    world: TabularMDP, learner: OfflineLearner, privatizer: Privatizer, users: int,
    behaviour: ArrayLike | PolicyRows | None, known_rewards: bool, seed: int,
) -> _MembershipBench:  # fmt: skip
    """Return the setting of an attack. Raises ``ValueError`` if a release has too many cells."""
    rows = policy_rows(world.layout, uniform_policy(world) if behaviour is None else behaviour)
    known = world.rewards if checks.flag("known_rewards", known_rewards) else None
    spec = ProblemSpec(world.layout, users, known_rewards=None if known is None else np.array(known))
    bench = _MembershipBench(world, rows, learner, privatizer, spec, users, seed)
    if bench.query.cells > _MOST_CELLS:
        raise ValueError(
            f"world: a release has {bench.query.cells} cells, must be at most {_MOST_CELLS} to be attacked"
        )
    return bench


class _Games:
    """Games of one attack, which collect each adversary's scores with and without the target."""

    def __init__(
        self, bench: _MembershipBench, first: Any, target: Target, knows: Knowledge, shadows: int, trials: int
    ) -> None:
        self.bench, self.first, self.target, self.knows = bench, first, target, knows
        self.shadows, self.trials = shadows, trials
        self.release_score = None if knows == "everything" else _normal_ratio(bench, first)
        self.found: dict[Adversary, dict[str, list[tuple[Floats, Floats]]]] = {
            name: {} for name in ADVERSARIES
        }
        self.realised: list[float] = []

    def play(self, games: int) -> tuple[Roc, ...]:
        """Play all games. Return the ROC curve of each adversary's best score."""
        for number in range(games):
            self._add(number)
        return tuple(
            _judged(
                adversary,
                {
                    name: (np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs]))
                    for name, pairs in self.found[adversary].items()
                },
            )
            for adversary in ADVERSARIES
        )

    def _add(self, number: int) -> None:
        """Play the game with index ``number``, and add its scores."""
        bench, shadows, trials = self.bench, self.shadows, self.trials
        game = _game(bench, self.target, self.knows, number)
        at = 1 + number * 2 * (shadows + trials)
        shadow = [_play(bench, game, kind, shadows, at + shadows * (1 - kind)) for kind in (True, False)]
        at += 2 * shadows
        trial = [_play(bench, game, kind, trials, at + trials * (1 - kind)) for kind in (True, False)]
        for adversary in ADVERSARIES:
            ones, zeros = (_stack(seen, adversary) for seen in trial)
            if adversary != "release":
                scores = _learned(*(_stack(seen, adversary) for seen in shadow))
            elif self.release_score is None:
                scores = {"likelihood ratio": _likelihood(bench, game, self.first)}
            else:
                scores = {"normal likelihood ratio": self.release_score(game)}
            for name, score in scores.items():
                self.found[adversary].setdefault(name, []).append((score(ones), score(zeros)))
        change = _change(bench, game, self.first)
        self.realised += [] if change is None else [change]


def _game(bench: _MembershipBench, target: Target, knows: Knowledge, number: int) -> _Game:
    """Return the game with index ``number``: the contributions of x, of x' and of the other users.

    No run uses the same random numbers.
    """
    if target == "canary":
        life = rarest(bench.world, bench.behaviour)
        other = most_likely(bench.world, bench.behaviour, life)
    else:
        life, other = bench.drawn(2, 2**41 + 2 * number)
    if knows == "population":
        return _Game(bench.cells(life), None, None)
    return _Game(bench.cells(life), bench.cells(other), bench.others(2**41 + number))


def _change(bench: _MembershipBench, game: _Game, release: Release) -> float | None:
    """Return the norm of the change from x to x' divided by the noise scales.

    The norm is l2 for Gaussian noise and l1 for Laplace noise. The result is None without noise, or if x' is
    drawn again in every run.
    """
    scales = _scales(bench, release)
    if scales is None or game.outside is None:
        return None
    moved = (game.inside - game.outside) / scales[0]
    return float(np.abs(moved).sum() if scales[1] else math.sqrt(float(moved @ moved)))
