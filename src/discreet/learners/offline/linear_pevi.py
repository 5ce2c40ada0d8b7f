"""Pessimistic value iteration for linear MDPs from stored trajectories: PEVI, VAPVI, DP-VAPVI, DP-PEVI.

A learner states its queries in advance (:meth:`~Linear.questions`), and the core answers them
(:class:`~discreet.mechanisms.linear.adaptive_queries.ResponseSession`). All further computation is
post-processing of the answers. Let b_h = H - h be the bound of values at step h (h starts at 0 in the code).
Backward over steps:

* PEVI (Jin, Yang and Wang 2021). With Lambda = lam I + sum phi phi^T and w = Lambda^-1 sum phi (r + V(s')),
  the value is Q = clip(phi^T w - c d H ||phi||_{Lambda^-1}, 0, b_h).
* VAPVI (Yin, Duan, Wang and Wang 2022). Records are weighted by 1 / max{1, Var}, and the penalty is
  C sqrt(d) ||phi||. The variance is Var = clip(phi^T beta, 0, b^2) - clip(phi^T theta, 0, b)^2, where beta
  and theta are ridge estimates of V^2 and V.
* DP-VAPVI (Qiao and Wang 2023, algorithm 2) is VAPVI on noisy sums. ``preset="paper"`` draws the printed
  noise. With rho0 = rho / (5 H), the noise is GOE of s = 1 / (2 sqrt(rho0)) on both Grams. The noise has
  variance 2 H^4 / rho0 on sum phi V^2, and 2 H^2 / rho0 on the other two vectors. The printed sensitivity of
  the Gram, 1/sqrt(2), is valid if neighbours differ by adding or removing a user. If neighbours replace one
  user, the sensitivity is 1, but the clipped values compensate for this. The guarantee is computed from the
  actual noise. At H = 20 it is 0.969 rho for features in the unit ball, and 40.4 rho for the features of the
  paper's appendix F as printed (norms up to sqrt(7)). The loss is smaller if features are declared
  nonnegative.
* DP-PEVI (new here, the default) uses no variances, and therefore 2 H noisy sums instead of 5 H. Gram and
  response are accounted together (lemma 3), targets are centred, and noise is scaled to the range of the
  released values. With ``response="model"`` Gram, next states and rewards are released once (lemma 5, finite
  S).

Without noise, DP-VAPVI and DP-PEVI with the matching options are VAPVI and PEVI.

Known rewards r (H, S, A). If rewards are known, the queries are about V(s') only, in [0, b_{h+1}]. Because no
value is negative, Q = r + clip(phi^T w - penalty, 0, b_{h+1}): pessimism applies only to the unknown part. At
the last step everything is known, so no query is made and Q = r.

Support. With one-hot features ||phi||^2_{Lambda^-1} = 1 / (n + L), where L is the total ridge. In general

    n_eff(s, a) = 1 / ||phi||^2_{Lambda^-1} - L / ||phi||^2                                        (1)

is the number of visits of a pair with exactly these features that would leave the same uncertainty, after
noise. Along phi the noise of the Gram matrix, in visits, has standard deviation sqrt(2) s / ||phi||^2. A pair
is supported if n_eff is above half a visit and above ``support`` (3) of these deviations. If features
generalise, a pair without visits can be supported. For the weighted Gram matrix of VAPVI a visit counts w(s,
a), and n_eff has the same unit.

Learning from a stored data set has two stages, so that a ledger can be written between the stages.
:meth:`Linear.open` fixes all queries and opens a session for all users, without any query. :meth:`Linear.ask`
makes the queries, which draws noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.accounting import budget as budgets
from discreet.core import checks
from discreet.core.guarantee import Guarantee
from discreet.core.layout import Layout
from discreet.core.rng import Randomness, Secure
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectories
from discreet.learners.estimation.linear_regression import (
    Project,
    Repaired,
    Ridge,
    check_ridge,
    model_rewards,
    model_values,
    norms,
    repaired,
    ridge_level,
)
from discreet.learners.offline.linear_query_log import LinearRelease, LoggedAnswers, Recorder, fingerprint
from discreet.learners.ope.linear_gains import LinearGain, followed, ones_of
from discreet.mechanisms.features import Features, one_hot
from discreet.mechanisms.interfaces import probabilities
from discreet.mechanisms.linear.adaptive_queries import Answer, Question, ResponseSession
from discreet.mechanisms.linear.sensitivities import gram_mu, vector_sensitivity
from discreet.utils.config import Knobs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_STATED_DELTA = 1e-6  # delta for stating a budget in rho or mu also as (epsilon, delta)

_LEVEL = 0.95  # default level of the gain's interval
_START_SHARE = 0.04  # share of the holdout half's budget for the initial distribution

_MOST_ONE_HOT = 1000  # largest dimension; planning takes a minute at H = 20

__all__ = [
    "DPPEVI", "DPVAPVI", "PEVI", "VAPVI", "Core", "LinearOfflinePolicy", "Linear", "learn_linear",
    "replan_linear",
    "schema_features",
]  # fmt: skip


class Core(Protocol):
    """Queries that a learner can make; all arguments are public arrays."""

    @property
    def users(self) -> int: ...
    def gram(self, step: int, weights: ArrayLike | None = None) -> Answer: ...
    def response(self, step: int, values: ArrayLike, weights: ArrayLike | None = None) -> Answer: ...
    def pair(self, step: int, values: ArrayLike, weights: ArrayLike | None = None) -> Answer: ...
    def model(self, step: int) -> Answer: ...
    @property
    def episodes(self) -> int: ...
    def start(self, values: ArrayLike) -> Answer | None: ...


@dataclass(frozen=True, eq=False)
class LinearOfflinePolicy:
    """Policy learned from data, with its privacy guarantee.

    Attributes
    ----------
    policy : (H, S)
        Actions.
    values : (H + 1, S)
        Pessimistic V.
    q : (H, S, A)
        Pessimistic Q; -inf at inadmissible pairs.
    floored : int
        Number of eigenvalues of noisy Gram matrices that had to be raised.
    supported : (H, S)
        True if data support the policy's action: n_eff (1) is above the threshold.
    effective : (H, S, A)
        n_eff, in visits; infinite at the last step if rewards are known.
    users : int
        Number of users in the sums.
    guarantee : Guarantee, optional
        Guarantee of the session that answered; None if no session was used.
    heuristics : tuple of str
        Reasons for which ``values`` are not proven lower bounds.
    gain : LinearGain, optional
        Gain over the behaviour policy. None if the learner's ``judged`` is False, if the holdout half is too
        small, or if this policy was planned again from a release that evaluates another policy.
    """

    __repr__ = brief

    policy: Ints
    values: Floats
    q: Floats
    floored: int
    supported: NDArray[np.bool_]
    effective: Floats
    users: int
    guarantee: Guarantee | None = None
    heuristics: tuple[str, ...] = ()
    gain: LinearGain | None = None

    def lower_bound(self, initial: ArrayLike) -> float:
        """Return the pessimistic value from a public initial distribution (S,), in [0, H]."""
        start = probabilities("initial", checks.floats("initial", initial, self.values.shape[1:]))
        return float(start @ self.values[0])


class _StepFit(NamedTuple):
    """Results of one step by pairs (S A,): predictions, penalties, and effective numbers of visits."""

    estimate: Floats
    penalty: Floats
    floored: int
    effective: Floats  # n_eff
    threshold: Floats  # smallest n_eff for support


@dataclass(frozen=True, kw_only=True)
class Linear(Knobs):
    """Base of the linear offline learners: S states, A actions, H steps, d features phi(s, a) in R^d.

    Raises ``ValueError`` for an option out of its range. :meth:`open` raises ``ValueError`` for options that
    do not fit the problem.

    Attributes
    ----------
    lam : float
        Ridge parameter, > 0.
    support : float
        A pair is supported if its visits exceed this many standard deviations of their noise, at least 0.
    judged : bool
        True: learn from one half of the users, and estimate the policy's gain over the behaviour policy on
        the other half (:mod:`~discreet.learners.ope.linear_gains`).
    """

    lam: float | None = None
    support: float = 3.0
    judged: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.flag("judged", self.judged)
        checks.positive("lam", self.lam)
        checks.real("support", self.support, 0.0)

    def questions(
        self,
        layout: Layout,
        features: Features,
        exact: bool = False,
        *,
        known_rewards: bool = False,
        episodes: int = 1,
    ) -> tuple[Question, ...]:
        """Return all queries, which are fixed before data.

        Parameters
        ----------
        layout, features
            Layout and features of the problem.
        exact : bool
            True for discrete noise (secure randomness).
        known_rewards : bool
            True if the planner will get known rewards.
        episodes : int
            m, the largest number of episodes of one user. It matters only if the noise is the printed one,
            which is not calibrated to a budget.

        Raises
        ------
        ValueError
            If ``judged`` is combined with known rewards, or if the learner's options do not fit.
        """
        plan = self._learning(layout, features, exact, known_rewards, episodes)
        if not self.judged:
            return plan
        if known_rewards:
            raise ValueError("judged = True: must be False with known rewards, what people earned is asked")
        ones_of(features)
        judging = self._judging(layout.horizon, exact)
        return (*(replace(question, half=0) for question in plan), *judging)

    def _learning(
        self, layout: Layout, features: Features, exact: bool, known_rewards: bool, episodes: int
    ) -> tuple[Question, ...]:
        """Return the queries for learning the policy."""
        raise TypeError(f"{type(self).__name__} states no questions")

    def _judging(self, horizon: int, exact: bool) -> tuple[Question, ...]:
        """Return the queries on the holdout half: first states, and a model of each step, last step first.

        The halves have different users, so each half has the whole budget.
        """
        steps, start = self._judges(horizon, exact)
        last: dict[str, Any] = {"kind": "pair", "high": 1.0}
        return (
            *(
                Question(step=h, half=1, **budget, **({"kind": "model"} if h < horizon - 1 else last))
                for h, budget in reversed(list(enumerate(steps)))
            ),
            Question(kind="start", step=0, reward=False, half=1, **start),
        )

    def _judges(self, horizon: int, exact: bool) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return the budgets of the steps, and of the query on first states."""
        return [{"mu": None}] * horizon, {"mu": None}

    def open(
        self,
        layout: Layout,
        features: Features,
        randomness: Randomness,
        *,
        episodes: int = 1,
        known_rewards: bool = False,
    ) -> ResponseSession:
        """Open a session to which users are submitted (``submit_many``, ``absent``).

        Its guarantee is known already. No budget is spent before :meth:`ask`. Raises ``ValueError`` if the
        options do not fit the problem.

        Parameters
        ----------
        layout, features
            Layout and features of the problem.
        randomness : Seeded or Secure
        episodes : int
            Largest number of episodes of one user.
        known_rewards : bool
            True if :meth:`ask` will get known rewards.
        """
        exact = isinstance(randomness, Secure)
        plan = self.questions(layout, features, exact, known_rewards=known_rewards, episodes=episodes)
        delta = getattr(self, "delta", None) or _STATED_DELTA
        return ResponseSession(layout, features, plan, randomness, episodes=episodes, delta=delta)

    def ask(
        self, session: ResponseSession, known_rewards: ArrayLike | None = None
    ) -> tuple[LinearRelease, LinearOfflinePolicy]:
        """Make all queries, which spends the session's budget, and return the policy.

        known_rewards : (H, S, A) in [0, 1], if the session was opened for known rewards.

        Raises ``ValueError``, and spends nothing, if the session was opened with other options.
        """
        exact = session.randomness == "secure"
        known = known_rewards is not None
        plan = self.questions(
            session.layout, session.features, exact, known_rewards=known, episodes=session.episodes
        )
        if plan != session.plan or session.asked:
            raise ValueError(
                "session: must be a new one, opened by this learner, with known rewards if they are given"
            )
        if not session.users:
            raise ValueError("session.users = 0: nobody came")
        recorder = Recorder(session)
        found = self.solve(session.layout, session.features, recorder, known_rewards)
        release = recorder.release()
        return release, replace(found, guarantee=release.guarantee)

    def solve(
        self, layout: Layout, features: Features, core: Core, known_rewards: ArrayLike | None = None
    ) -> LinearOfflinePolicy:
        """Make the planned queries and plan backward, as post-processing of the answers.

        Raises ``ValueError`` if an answer does not belong to a planned query.

        Parameters
        ----------
        layout, features
            Layout and features of the problem.
        core : session or stored release
            Object that answers the queries.
        known_rewards : (H, S, A) in [0, 1], optional
        """
        shape = layout.horizon, layout.states, layout.actions
        known = None if known_rewards is None else _rewards(known_rewards, shape)
        q, effective = np.empty(shape), np.full(shape, np.inf)
        enough = np.ones(shape, np.bool_)
        values = np.zeros((layout.horizon + 1, layout.states))
        floored = 0
        for h in reversed(range(layout.horizon)):
            base = 0.0 if known is None else known[h].ravel()
            table = np.zeros(shape[1] * shape[2]) + base
            if known is None or h < layout.horizon - 1:
                step = self._step(layout, features, core, h, values[h + 1], known is not None)
                top = float(layout.horizon - h - (known is not None))
                table = base + np.clip(step.estimate - step.penalty, 0.0, top)
                floored += step.floored
                effective[h] = step.effective.reshape(shape[1:])
                enough[h] = (step.effective > step.threshold).reshape(shape[1:])
            table = table.reshape(shape[1:])
            q[h] = table if layout.mask is None else np.where(layout.mask, table, -np.inf)
            values[h] = q[h].max(axis=1)
        policy = q.argmax(axis=2)
        gain = self._gain(layout, features, core, policy) if self.judged else None
        supported = np.take_along_axis(enough, policy[..., None], axis=2)[..., 0]
        return LinearOfflinePolicy(
            policy, values, q, floored, supported, effective, core.users, heuristics=tuple(self.heuristics()),
            gain=gain,
        )  # fmt: skip

    def _gain(self, layout: Layout, features: Features, core: Core, policy: Ints) -> LinearGain | None:
        """Estimate the gain on the holdout half."""
        told: list[Answer] = []
        for h in reversed(range(layout.horizon)):
            told.append(core.model(h) if h < layout.horizon - 1 else core.pair(h, np.zeros(layout.states)))
        found = followed(layout, features, policy, told[::-1], self._pure())
        begun = core.start(found.values[0])
        return None if begun is None else found.gain(begun, _LEVEL, core.episodes, self._pure())

    def _pure(self) -> bool:
        return False

    def heuristics(self) -> Iterable[str]:
        """Yield the reasons for which the values are not proven lower bounds."""
        return ("the constants of pessimism and ridge are measured, not those of a theorem",)

    def _step(
        self, layout: Layout, features: Features, core: Core, h: int, after: Floats, known: bool
    ) -> _StepFit:
        """Make the queries of step h and return the results, for next values only if rewards are known."""
        raise TypeError(f"{type(self).__name__} plans nothing")

    def _repaired(self, answer: Answer, ridge: Ridge) -> Repaired:
        assert answer.gram is not None
        return repaired(answer.gram, self._level(answer, ridge), self.lam or 0.0)

    def _level(self, answer: Answer, ridge: Ridge) -> float:
        """Return L, the amount added to the diagonal."""
        assert answer.gram is not None and self.lam is not None
        if not answer.gram_scale:
            return self.lam
        return ridge_level(answer.gram_scale, len(answer.gram), ridge, self.lam)

    def _known(
        self, features: Features, answer: Answer, ridge: Ridge, length: Floats, weights: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Return n_eff (1) and its threshold; ``length`` (S A,) is ||phi||_{Lambda^-1}."""
        squared = np.einsum("nd,nd->n", features.rows, features.rows)
        safe = np.where(squared > 0, squared, 1.0)
        visits = 1.0 / np.where(squared > 0, length**2, 1.0) - self._level(answer, ridge) / safe
        noise = self.support * math.sqrt(2.0) * answer.gram_scale / safe
        one = 1.0 if weights is None else weights.ravel()
        visits = np.where(squared > 0, visits / one, 0.0)  # zero features need no visits
        return visits, 0.5 + noise / one


def _targets(layout: Layout, known_rewards: bool) -> Iterator[tuple[int, float]]:
    """Yield (h, bound of the target values of step h), last step first, for bounds above 0."""
    for h in reversed(range(layout.horizon - known_rewards)):
        yield h, float(layout.horizon - h - known_rewards)


def _rewards(known: ArrayLike, shape: tuple[int, int, int]) -> Floats:
    rewards = checks.floats("known_rewards", known, shape)
    if rewards.min() < 0 or rewards.max() > 1:
        raise ValueError("known_rewards: every entry must be in [0, 1]")
    return rewards


def _estimate(features: Features, gram: Repaired, answer: Answer) -> Floats:
    """Return the (S A,) predictions centre + phi^T Lambda^-1 u."""
    assert answer.vector is not None
    return answer.centre + features.rows @ (gram.inverse @ answer.vector)


def learn_linear(
    learner: Linear,
    layout: Layout,
    features: Features,
    trajectories: Trajectories,
    randomness: Randomness,
    known_rewards: ArrayLike | None = None,
) -> LinearOfflinePolicy:
    """Learn a policy from the records of many users, one episode each; return it with its guarantee.

    Raises ``ValueError`` for invalid records (its message contains private data) and for options that do not
    fit the problem.

    Parameters
    ----------
    learner : DPPEVI, DPVAPVI, PEVI or VAPVI
        The learner, which has the budget.
    layout : Layout
        S, A and H.
    features : Features
        phi (S, A, d) with its bounds.
    trajectories : Trajectories
        Records of n users.
    randomness : Seeded (simulation) or Secure
    known_rewards : (H, S, A) in [0, 1], optional
        Rewards, if they are public. The queries are then about next states only.
    """
    known = known_rewards is not None
    with learner.open(layout, features, randomness, known_rewards=known) as session:
        session.submit_many(trajectories)
        return learner.ask(session, known_rewards)[1]


def replan_linear(
    learner: Linear, release: LinearRelease, features: Features, known_rewards: ArrayLike | None = None
) -> LinearOfflinePolicy:
    """Learn a policy from a stored release, without data and without budget.

    A release in model form allows any option and any known rewards. Other releases allow only options that
    lead to the same queries with the same public arrays. For other options a ``ValueError`` states the
    difference.

    Parameters
    ----------
    learner : as for :func:`learn_linear`
        The learner; its budget is not used.
    release : LinearRelease
        Stored release.
    features : Features
        Features of the release.
    known_rewards : (H, S, A) in [0, 1], optional
    """
    told = dict(release.features)
    if fingerprint(features) != told:
        raise ValueError("features: must be those of the release (table, bound, l1 and nonneg)")
    plan = learner.questions(release.layout, features, known_rewards=known_rewards is not None)
    found = learner.solve(release.layout, features, LoggedAnswers(release, plan), known_rewards)
    return replace(found, guarantee=release.guarantee)


def schema_features(
    layout: Layout,
    table: ArrayLike | None = None,
    bound: float = 1.0,
    *,
    l1: float | None = None,
    nonneg: bool = False,
) -> Features:
    """Return the features that a public schema names: a table (S, A, d) with its bound, or one-hot.

    One-hot features (None) have d = S A, and need a noisy matrix of d^2 entries and d^3 operations per step.
    Above d = 1000 they are refused, because counts (dp-apvi) give the same information with less noise and
    computation.
    """
    if table is not None:
        found = Features(table, bound, l1=l1, nonneg=nonneg)
        if (found.states, found.actions) != (layout.states, layout.actions):
            raise ValueError(
                f"features are of {found.states} states and {found.actions} actions: must be of "
                f"{layout.states} and {layout.actions}"
            )
        return found
    d = layout.states * layout.actions
    if d > _MOST_ONE_HOT:
        raise ValueError(
            f"features = 'one-hot': has S A = {d} dimensions, must have at most {_MOST_ONE_HOT}; with no "
            "features of lower dimension use dp-apvi, which counts the same pairs"
        )
    return one_hot(layout.states, layout.actions)


# ------------------------------------------------------------------------------ without privacy


@dataclass(frozen=True, kw_only=True)
class PEVI(Linear):
    """Pessimistic value iteration without privacy (PEVI; Jin, Yang and Wang 2021), on features of pairs.

    Backward, Q_h = phi^T theta_h - c d H ||phi||_{Lambda_h^-1}, with theta_h the ridge regression of
    r + V_{h+1} and Lambda_h the regularised Gram matrix of step h.

    Parameters
    ----------
    preset : "default" or "paper"
        ``default``: the constant that was best on the synthetic linear MDP. ``paper``: lam = 1.
    c : float
        Constant of the penalty, at least 0.
    lam : float
        Ridge parameter, > 0.
    support : float
        A pair is supported if its visits exceed so many standard deviations of their noise, at least 0.

    Raises
    ------
    ValueError
        For an option out of its range.
    """

    c: float | None = None

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {"c": 0.005, "lam": 0.1},
        "paper": {"lam": 1.0},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.real("c", self.c, 0.0)

    def _learning(
        self, layout: Layout, features: Features, exact: bool, known_rewards: bool, episodes: int
    ) -> tuple[Question, ...]:
        """Return one query (a pair) for each step, last step first, without noise.

        The arguments are those of :meth:`questions`; ``exact`` and ``episodes`` are not used.
        """
        return tuple(
            Question(kind="pair", step=h, mu=None, high=high, centre=False, reward=not known_rewards)
            for h, high in _targets(layout, known_rewards)
        )

    def _step(
        self, layout: Layout, features: Features, core: Core, h: int, after: Floats, known: bool
    ) -> _StepFit:
        answer = core.pair(h, after)
        gram = self._repaired(answer, 0.0)
        assert self.c is not None
        scale, length = self.c * features.dimension * layout.horizon, norms(features.rows, gram.inverse)
        certainty = self._known(features, answer, 0.0, length)
        return _StepFit(_estimate(features, gram, answer), scale * length, gram.floored, *certainty)


@dataclass(frozen=True, kw_only=True)
class _Pessimist(Linear):
    """Base with the penalty C sqrt(d) ||phi||_{Lambda^-1}, for VAPVI, DP-VAPVI and DP-PEVI."""

    C: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.real("C", self.C, 0.0)

    def _penalty(self, features: Features, length: Floats) -> Floats:
        assert self.C is not None
        return self.C * math.sqrt(features.dimension) * length


@dataclass(frozen=True, kw_only=True)
class _VarianceAware(_Pessimist):
    """Base that plans one step of VAPVI from the exact or noisy answers of a core.

    split : True to estimate variances from one half of the users and the regression from the other half
        (:class:`~discreet.mechanisms.linear.adaptive_queries.Question`: ``half``).
    var_max : upper limit of the variance, at least 1; None: H^2.
    D : constant of the term D / K in the penalty.
    ridge : ridge in spectral edges of the noise matrix, or "bound"; without noise it is not used.
    """

    split: bool | None = None
    var_max: float | None = None
    D: float | None = None
    ridge: Ridge | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.flag("split", self.split)
        if self.split and self.judged:
            raise ValueError("judged = True: must be False with split, which has a use of its own for halves")
        checks.real("D", self.D, 0.0)
        if self.var_max is not None:
            checks.real("var_max", self.var_max, 1.0)
        check_ridge(self.ridge if self.ridge is not None else 0.0)

    def _step(
        self, layout: Layout, features: Features, core: Core, h: int, after: Floats, known: bool
    ) -> _StepFit:
        ridge = 0.0 if self.ridge is None else self.ridge
        weights, low = self._weights(layout, features, core, h, after, ridge)
        gram_answer, answer = self._regression(core, h, after, weights)
        gram = self._repaired(gram_answer, ridge)
        length = norms(features.rows, gram.inverse)
        penalty = self._penalty(features, length)
        if self.D:
            penalty = penalty + self.D / max(1, core.users)
        certainty = self._known(features, gram_answer, ridge, length, weights)
        return _StepFit(_estimate(features, gram, answer), penalty, low + gram.floored, *certainty)

    def _regression(self, core: Core, h: int, after: Floats, weights: Floats | None) -> tuple[Answer, Answer]:
        answer = core.pair(h, after, weights)
        return answer, answer

    def _weights(
        self, layout: Layout, features: Features, core: Core, h: int, after: Floats, ridge: Ridge
    ) -> tuple[Floats | None, int]:
        """Return the (S, A) weights 1 / max{1, Var}; None at the last step, where V = 0."""
        bound = float(layout.horizon - h)
        if bound == 1.0:
            return None, 0
        gram = self._repaired(core.gram(h), ridge)
        second = np.clip(_estimate(features, gram, core.response(h, after**2)), 0.0, bound**2)
        first = np.clip(_estimate(features, gram, core.response(h, after)), 0.0, bound)
        most = float(layout.horizon**2) if self.var_max is None else self.var_max
        variance = np.clip(second - first**2, 1.0, max(1.0, most))
        return (1.0 / variance).reshape(layout.states, layout.actions), gram.floored

    def _halves(self) -> tuple[int | None, int | None]:
        return (0, 1) if self.split else (None, None)


@dataclass(frozen=True, kw_only=True)
class VAPVI(_VarianceAware):
    """Variance-aware pessimistic value iteration without privacy (VAPVI; Yin, Duan, Wang and Wang 2022).

    It differs from :class:`PEVI` in two points. Each record is weighted by the reciprocal of the estimated
    variance of its next value. The penalty for K users is C sqrt(d) ||phi||_{Lambda_h^-1} + D / K.

    Parameters
    ----------
    preset : "default" or "paper"
        Both have the same settings, because the paper gives no constants.
    C, D : float
        Constants of the penalty, at least 0.
    lam : float
        Ridge parameter, > 0.
    split : bool
        True: estimate variances from one half of the users, and the regression from the other half.
    var_max : float, optional
        Largest variance, at least 1; None: H^2.
    ridge : float or "bound"
        Used only under noise, by :class:`DPVAPVI`.
    support : float
        A pair is supported if its visits exceed so many standard deviations of their noise, at least 0.

    Raises
    ------
    ValueError
        For an option out of its range.
    """

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {"C": 0.1, "lam": 0.1, "split": False, "D": 0.0, "ridge": 0.0},
        "paper": {},
    }

    def _learning(
        self, layout: Layout, features: Features, exact: bool, known_rewards: bool, episodes: int
    ) -> tuple[Question, ...]:
        """Return the queries of each step, last step first, without noise.

        Each step has queries for the Gram matrix, V^2, V and the weighted pair, in this order. The arguments
        are those of :meth:`questions`; ``exact`` and ``episodes`` are not used.
        """
        variances, regression = self._halves()
        found: list[Question] = []
        for h, b in _targets(layout, known_rewards):
            after = float(layout.horizon - h - 1)
            if after:
                raw: dict[str, Any] = {"mu": None, "step": h, "centre": False, "half": variances}
                found += [
                    Question(kind="gram", **raw),
                    Question(kind="response", high=after**2, reward=False, **raw),
                    Question(kind="response", high=after, reward=False, **raw),
                ]
            found.append(
                Question(
                    kind="pair",
                    step=h,
                    mu=None,
                    high=b,
                    centre=False,
                    half=regression,
                    reward=not known_rewards,
                )
            )
        return tuple(found)


# --------------------------------------------------------------------------------- with privacy


@dataclass(frozen=True, kw_only=True)
class _Private(Linear):
    """Base of the private learners; the budget is one of epsilon (with delta), rho and mu."""

    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    mu: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in ("epsilon", "rho", "mu") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"{' and '.join(given) or 'epsilon'}: exactly one of epsilon, rho and mu must be given"
            )
        budgets.check_epsilon(getattr(self, given[0]), given[0])
        if self._pure():
            if self.epsilon is None or self.delta:
                raise ValueError("noise = 'laplace': needs epsilon, and no delta, rho or mu")
        elif self.delta is not None or self.epsilon is not None:
            budgets.check_delta(self.delta)

    def total_mu(self, exact: bool) -> float:
        """Return the mu of the whole budget.

        exact : True if the noise is discrete (secure randomness), which is accounted as zCDP, rho = mu^2 / 2.
        """
        if self.mu is not None:
            return self.mu
        if self.rho is not None:
            return math.sqrt(2 * self.rho)
        assert self.epsilon is not None and self.delta is not None
        if exact:
            return math.sqrt(2 * budgets.zcdp_rho(self.epsilon, self.delta))
        return budgets.gdp_mu(self.epsilon, self.delta)

    def _step_mu(self, horizon: int, exact: bool, known_rewards: bool) -> Floats:
        """Return the (H,) mu of steps; shares of mu^2 are proportional to (target range)^{2/3} (1.2)."""
        shares = np.arange(horizon - known_rewards, -known_rewards, -1) ** (2 / 3)
        return self.total_mu(exact) * np.sqrt(shares / shares.sum())

    def _judges(self, horizon: int, exact: bool) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        if self._pure():
            assert self.epsilon is not None
            parts = np.sqrt(np.arange(horizon, 0, -1))
            rest = self.epsilon * (1.0 - _START_SHARE) * parts / parts.sum()
            return [{"mu": None, "epsilon": float(e)} for e in rest], {
                "mu": None, "epsilon": self.epsilon * _START_SHARE,
            }  # fmt: skip
        steps = math.sqrt(1.0 - _START_SHARE) * self._step_mu(horizon, exact, False)
        return [{"mu": float(mu)} for mu in steps], {"mu": math.sqrt(_START_SHARE) * self.total_mu(exact)}


@dataclass(frozen=True, kw_only=True)
class DPPEVI(_Pessimist, _Private):
    """Private PEVI, with one noisy Gram matrix and one noisy response per step, accounted together.

    Attributes
    ----------
    epsilon, delta, rho, mu : float
        Budget, > 0: exactly one of epsilon (with delta in (0, 1), or without delta for Laplace noise), rho
        (zCDP) and mu (GDP).
    C : float
        Constant of the penalty C sqrt(d) ||phi||_{Lambda^-1}, at least 0.
    lam, support, judged
        See the base class.
    response : "requery" or "model"
        ``requery``: each V needs a new query for the response. ``model``: Gram, next states and rewards are
        queried once (for S up to a few tens); then any policy can be planned without further budget.
    range : "values" or "declared"
        ``values``: noise follows the range of the released values. ``declared``: b_h.
    joint : bool
        True: account Gram and response together by lemma 3. False: account each by its separate worst case.
    centre : bool, optional
        Centre targets, which needs 1 in the span of the features. None: True if 1 is in the span.
    noise : "gaussian" or "laplace"
        ``laplace`` is for a pure epsilon (no delta). Laplace scales follow l1 sensitivities, which is much
        more noise unless ||phi||_1 is small (one-hot, simplex); declare it by ``Features(l1=...)``.
    ridge : float or "bound", optional
        Ridge in multiples of the spectral edge 2 s sqrt(d) of the noise matrix, or "bound" (Gaussian noise
        only). None: 2 (requery), 1 (model).
    simplex : bool
        Project rows of the model onto the simplex.
    """

    response: Literal["requery", "model"] | None = None
    range: Literal["values", "declared"] | None = None
    joint: bool | None = None
    centre: bool | None = None
    ridge: Ridge | None = None
    simplex: bool | None = None
    noise: Literal["gaussian", "laplace"] = "gaussian"

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {
            "C": 0.1, "lam": 0.1, "response": "requery", "range": "values", "joint": True, "simplex": True,
        }
    }  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.choice("response", self.response, ("requery", "model"))
        checks.choice("range", self.range, ("values", "declared"))
        checks.choice("noise", self.noise, ("gaussian", "laplace"))
        checks.flag("joint", self.joint)
        checks.flag("simplex", self.simplex)
        if self.centre is not None:
            checks.flag("centre", self.centre)
        if self.ridge is None:
            object.__setattr__(self, "ridge", 1.0 if self.response == "model" else 2.0)
        check_ridge(self.ridge if self.ridge is not None else 0.0)

        if self._pure() and self.ridge == "bound":
            raise ValueError(
                "ridge = 'bound': must be a number with noise = 'laplace': the bound is Gaussian"
            )

    def _pure(self) -> bool:
        return self.noise == "laplace"

    def _budget(self, layout: Layout, exact: bool, known_rewards: bool, h: int) -> dict[str, Any]:
        """Return the budget of step h; shares of epsilon ~ sqrt(b_h) are best for errors b_h / epsilon_h."""
        if not self._pure():
            return {"mu": float(self._step_mu(layout.horizon, exact, known_rewards)[h])}
        assert self.epsilon is not None
        shares = np.sqrt(np.arange(layout.horizon - known_rewards, -known_rewards, -1))
        return {"mu": None, "epsilon": float(self.epsilon * shares[h] / shares.sum())}

    def _centred(self, features: Features) -> bool:
        asked = features.constant if self.centre is None else self.centre
        if (asked or self.response == "model") and not features.constant:
            name = "response = 'model'" if self.response == "model" else "centre = True"
            raise ValueError(f"{name}: needs 1 in the span of the features, or estimates are biased")
        return asked or self.response == "model"

    def _learning(
        self, layout: Layout, features: Features, exact: bool, known_rewards: bool, episodes: int
    ) -> tuple[Question, ...]:
        """Return one query (a pair, or a model) per step, or Gram and response, last step first.

        The arguments are those of :meth:`questions`.
        """
        centre, found = self._centred(features), list[Question]()
        assert self.range is not None
        reward = not known_rewards
        for h, high in _targets(layout, known_rewards):
            budget = self._budget(layout, exact, known_rewards, h)
            if self.response == "model" and h < layout.horizon - 1:
                found.append(Question(kind="model", step=h, reward=reward, **budget))
                continue
            common: dict[str, Any] = {"step": h, "high": high, "reward": reward}
            common |= {"centre": centre, "span": self.range}
            if self.joint:
                found.append(Question(kind="pair", **budget, **common))
            else:
                halves = 0.5 if self._pure() else math.sqrt(0.5)
                half = {name: value and value * halves for name, value in budget.items()}
                found += [
                    Question(kind="gram", step=h, **half),
                    Question(kind="response", **half, **common),
                ]
        return tuple(found)

    def _step(
        self, layout: Layout, features: Features, core: Core, h: int, after: Floats, known: bool
    ) -> _StepFit:
        assert self.ridge is not None
        if self.response == "model" and h < layout.horizon - 1:
            return self._model_step(features, core.model(h), after, not known)
        gram_answer = core.pair(h, after) if self.joint else core.gram(h)
        answer = gram_answer if self.joint else core.response(h, after)
        gram = self._repaired(gram_answer, self.ridge)
        length = norms(features.rows, gram.inverse)
        certainty = self._known(features, gram_answer, self.ridge, length)
        return _StepFit(
            _estimate(features, gram, answer), self._penalty(features, length), gram.floored, *certainty
        )

    def _model_step(self, features: Features, answer: Answer, after: Floats, reward: bool) -> _StepFit:
        """Return Q = r + P V with rows of P = 1/S + phi^T Lambda^-1 M; centring makes P unbiased."""
        assert answer.successors is not None and self.ridge is not None
        gram = self._repaired(answer, self.ridge)
        project: Project = "simplex" if self.simplex else "none"
        estimate = model_values(features.rows, gram.inverse, answer.successors, after, project)
        if reward:
            assert answer.rewards is not None
            estimate = estimate + model_rewards(features.rows, gram.inverse, answer.rewards)
        length = norms(features.rows, gram.inverse)
        certainty = self._known(features, answer, self.ridge, length)
        return _StepFit(estimate, self._penalty(features, length), gram.floored, *certainty)


@dataclass(frozen=True, kw_only=True)
class DPVAPVI(_VarianceAware, _Private):
    """Private VAPVI (Qiao and Wang 2023, algorithm 2).

    ``preset="paper"`` uses the printed noise for a budget in rho, with the settings of the paper's Figure 1.
    It differs from the printed algorithm 2 in four points. Variances and regression use one data set;
    ``split=True`` uses two halves, as printed. D is 0, because the paper gives only the order of D, with an
    unknown coverage. C is 0.1, because the paper gives no value. The ridge is the leading order of the
    printed E / 2, which is one spectral edge of the noise matrix.

    Attributes
    ----------
    noise : "exact" or "published"
        ``exact``: noise is calibrated to the budget by the exact sensitivities, with centred targets and the
        ranges of the released values. The shares of a step are 0.15 for Gram, 0.05 for V^2, 0.10 for V, and
        0.70 for the weighted pair. With ``split`` each half has the whole budget: 0.5/0.17/0.33 for Gram, V^2
        and V on one half, and the pair on the other half. ``published``: the printed noise with raw targets;
        the guarantee then states the actual rho.
    """

    noise: Literal["exact", "published"] | None = None

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {"C": 0.1, "lam": 0.1, "split": False, "D": 0.0, "ridge": 2.0, "noise": "exact"},
        "paper": {"ridge": 1.0, "noise": "published"},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.choice("noise", self.noise, ("exact", "published"))
        if self.noise == "published" and self.rho is None:
            raise ValueError("rho = None: must be given, the printed noise is stated for a budget in rho")
        if self.noise == "published" and self.judged:
            raise ValueError("judged = True: must be False with the printed noise, which has no part for it")

    def _learning(
        self, layout: Layout, features: Features, exact: bool, known_rewards: bool, episodes: int
    ) -> tuple[Question, ...]:
        """Return the queries for Gram, V^2, V and the weighted regression of each step, last step first.

        The arguments are those of :meth:`questions`; ``episodes`` matters only if noise is "published".
        """
        steps = list(_targets(layout, known_rewards))
        reward = not known_rewards
        if self.noise == "published":
            found = [q for h, _ in steps for q in self._published(layout.horizon, h, features, reward)]
            return tuple(replace(q, mu=episodes * (q.mu or 0.0)) for q in found)
        variances, regression = self._halves()
        shares = (0.5, 0.17, 0.33, 1.0) if self.split else (0.15, 0.05, 0.10, 0.70)
        centre, found = features.constant, list[Question]()
        for h, high in steps:
            mu = float(self._step_mu(layout.horizon, exact, known_rewards)[h])
            after, last = float(layout.horizon - h - 1), h == layout.horizon - 1
            parts = [mu * math.sqrt(share) for share in shares]
            if not last:
                common: dict[str, Any] = {"step": h, "reward": False, "centre": centre, "half": variances}
                found += [
                    Question(kind="gram", mu=parts[0], **common),
                    Question(kind="response", mu=parts[1], high=after**2, **common),
                    Question(kind="response", mu=parts[2], high=after, **common),
                ]
            found.append(
                Question(
                    kind="pair",
                    step=h,
                    mu=mu if last else parts[3],
                    high=high,
                    centre=centre,
                    half=regression,
                    reward=reward,
                )
            )
        return tuple(found)

    def _published(self, horizon: int, h: int, features: Features, reward: bool) -> list[Question]:
        """Return the queries of step h with the printed noise, which state its actual mu for one episode.

        Vectors of V = 0 contain no data and are omitted.
        """
        assert self.rho is not None
        rho0 = self.rho / (5 * horizon)
        gram = gram_mu(features.bound, 0.5 / math.sqrt(rho0))
        row: Literal["raw", "raw-nonneg"] = "raw-nonneg" if features.nonneg else "raw"

        def mu(high: float, std: float) -> float:
            return vector_sensitivity(features.bound, high, row) / std

        variances, regression = self._halves()
        raw: dict[str, Any] = {"step": h, "centre": False, "span": "declared"}
        after, std = float(horizon - h - 1), horizon * math.sqrt(2 / rho0)
        b = after + reward
        found = [Question(kind="gram", mu=gram, half=variances, **raw)]
        if after:
            squares = mu(after**2, horizon * std)
            found += [
                Question(kind="response", mu=squares, high=after**2, reward=False, half=variances, **raw),
                Question(kind="response", mu=mu(after, std), high=after, reward=False, half=variances, **raw),
            ]
        return [
            *found,
            Question(kind="gram", mu=gram, half=regression, **raw),
            Question(kind="response", mu=mu(b, std), high=b, half=regression, reward=reward, **raw),
        ]

    def _weights(
        self, layout: Layout, features: Features, core: Core, h: int, after: Floats, ridge: Ridge
    ) -> tuple[Floats | None, int]:
        if self.noise == "published" and h == layout.horizon - 1:
            core.gram(h)  # printed and charged, but unused: clipped at b_H = 1, every variance is 1
        return super()._weights(layout, features, core, h, after, ridge)

    def _regression(self, core: Core, h: int, after: Floats, weights: Floats | None) -> tuple[Answer, Answer]:
        if self.noise == "published":
            return core.gram(h, weights), core.response(h, after, weights)
        return super()._regression(core, h, after, weights)
