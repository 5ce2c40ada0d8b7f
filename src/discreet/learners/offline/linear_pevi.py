"""Pessimistic value iteration for linear MDPs from stored trajectories: PEVI, VAPVI, DP-VAPVI, DP-PEVI.

A learner declares all its queries before data are read (:meth:`~Linear.questions`). :meth:`Linear.open` opens
a session to which users are submitted. :meth:`Linear.ask` makes the queries, and noise is drawn. Let b_h = H
- h be the upper bound of values at step h (h starts at 0 in the code). All algorithms plan from the last step
to the first:

* PEVI (Jin, Yang and Wang 2021). With Lambda = lam I + sum phi phi^T and w = Lambda^-1 sum phi (r + V(s')),
  the value is Q = clip(phi^T w - c d H ||phi||_{Lambda^-1}, 0, b_h).
* VAPVI (Yin, Duan, Wang and Wang 2022). Records are weighted by 1 / max{1, Var}, and the penalty is
  C sqrt(d) ||phi||. The variance is Var = clip(phi^T beta, 0, b^2) - clip(phi^T theta, 0, b)^2, where beta
  and theta are ridge estimates of V^2 and V.
* DP-VAPVI (Qiao and Wang 2023, algorithm 2) is VAPVI on noisy sums. The presets ``paper`` and ``figure-1``
  use the noise that the paper states. With rho0 = rho / (5 H), both Gram matrices get GOE noise of scale s =
  1 / (2 sqrt(rho0)). The vector sum phi V^2 gets noise of variance 2 H^4 / rho0, and the other two vectors
  get noise of variance 2 H^2 / rho0. The paper's sensitivity 1/sqrt(2) of the Gram matrix is valid if
  neighbours differ by adding or removing a user. If neighbours replace one user, the sensitivity is 1. The
  guarantee is computed from the actual noise. At H = 20, the guarantee is 0.969 rho for features in the unit
  ball, and 40.4 rho for the unscaled features of the paper's appendix F (norms up to sqrt(7)).
* DP-PEVI (developed for this library, the default) needs 2 H noisy sums instead of 5 H, because it does not
  estimate variances. The sensitivity of Gram matrix and response is computed for both together (lemma 3).
  With ``response="model"``, Gram matrix, next states and rewards are released once (lemma 5, finite S).

**Known rewards** r (H, S, A). If rewards are known, the queries are only about V(s'), and Q = r + clip(phi^T
w - penalty, 0, b_{h+1}).

**Support.** Let L be the total ridge, and let

    n_eff(s, a) = 1 / ||phi||^2_{Lambda^-1} - L / ||phi||^2.                                       (1)

With one-hot features, n_eff is the number of visits to the pair. For other features, n_eff is the number of
visits with exactly the features of the pair that would give the same uncertainty. The noise of the Gram
matrix in the direction phi, converted to visits, has standard deviation sqrt(2) s / ||phi||^2. A pair is
supported if n_eff is above half a visit and above ``support`` (default 3) of these standard deviations. For
VAPVI, n_eff is divided by the weight w(s, a) of a visit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.accounting import budget as budgets
from discreet.core import checks
from discreet.core.guarantee import Guarantee
from discreet.core.layout import Layout
from discreet.core.releases import Floats, Ints
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

_STATED_DELTA = 1e-6  # delta at which a budget in rho or mu is also stated as (epsilon, delta)

_LEVEL = 0.95  # confidence level of the interval of the gain
_START_SHARE = 0.04  # share of the budget of the held-out half that is spent on first states

_MOST_ONE_HOT = 1000  # largest dimension of one-hot features; planning then takes about a minute at H = 20


class Core(Protocol):
    """Interface of an object that answers the queries of a learner."""

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
    """Policy that a linear learner computed from data, with the privacy guarantee.

    Attributes
    ----------
    policy : (H, S)
        Action at each step and state.
    values : (H + 1, S)
        Pessimistic values V of states.
    q : (H, S, A)
        Pessimistic values Q of actions; -inf at inadmissible pairs.
    floored : int
        Number of eigenvalues of noisy Gram matrices that were raised to the floor.
    supported : (H, S)
        True if the data support the policy's action: its n_eff (1) is above the threshold.
    effective : (H, S, A)
        n_eff in units of visits; infinite at the last step if rewards are known.
    users : int
        Number of users in the sums.
    guarantee : Guarantee, optional
        Privacy guarantee of the session that answered the queries; None if no session was used.
    heuristics : tuple of str
        Reasons why ``values`` are not proven lower bounds.
    gain : LinearGain, optional
        Gain of the policy over the behaviour policy. None if the gain was not estimated: ``judged`` is False,
        the held-out half is too small, or a stored release evaluates another policy.
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
        """Return the policy's pessimistic value in [0, H] for a public ``initial`` distribution (S,)."""
        start = probabilities("initial", checks.floats("initial", initial, self.values.shape[1:]))
        return float(start @ self.values[0])


class _StepFit(NamedTuple):
    """Results of the regression at one step. The arrays are (S A,), with one entry per pair."""

    estimate: Floats  # predicted Q, or predicted next value if rewards are known
    penalty: Floats
    floored: int  # number of eigenvalues that were raised to the floor
    effective: Floats  # n_eff
    threshold: Floats  # a pair is supported if its n_eff is above this number


@dataclass(frozen=True, kw_only=True)
class Linear(Knobs):
    """Base class of the linear offline learners.

    S, A and H are the numbers of states, actions and steps, and phi(s, a) is a feature vector in R^d. The
    constructor raises ``ValueError`` if an option is out of its range.

    Attributes
    ----------
    lam : float
        Ridge parameter, > 0.
    support : float
        A pair is supported if its n_eff exceeds this many standard deviations of the noise; at least 0.
    judged : bool
        True: learn from one half of the users, and estimate the policy's gain over the behaviour policy from
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
        """Return all queries of the learner, which are fixed before data are read.

        Parameters
        ----------
        layout, features
            Layout and features of the problem.
        exact : bool
            True if the noise is discrete (secure randomness).
        known_rewards : bool
            True if planning will use known rewards.
        episodes : int
            Largest number of episodes of one user. Used only for ``noise="published"``.

        Raises
        ------
        ValueError
            If ``judged`` is combined with known rewards, or if the learner's options do not fit the features.
        """
        plan = self._learning(layout, features, exact, known_rewards, episodes)
        if not self.judged:
            return plan
        if known_rewards:
            raise ValueError("judged = True: must be False with known rewards, returns are queried")
        ones_of(features)
        judging = self._judging(layout.horizon, exact)
        return (*(replace(question, half=0) for question in plan), *judging)

    def _learning(
        self, layout: Layout, features: Features, exact: bool, known_rewards: bool, episodes: int
    ) -> tuple[Question, ...]:
        """Return the queries from which the policy is learned. See :meth:`questions` for the arguments."""
        raise TypeError(f"{type(self).__name__} states no questions")

    def _judging(self, horizon: int, exact: bool) -> tuple[Question, ...]:
        """Return the queries on the held-out half, with which the policy is evaluated.

        There is one query of a model for each step, from the last to the first, and one for first states.
        Every user is in only one half, so each half can use the whole budget.
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
        """Return the budgets of the evaluation queries: one for each step, and one for first states."""
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

        Budget is spent only when :meth:`ask` is called. Raises ``ValueError`` if the options do not fit the
        problem.

        Parameters
        ----------
        layout, features
            Layout and features of the problem.
        randomness : Seeded or Secure
        episodes : int
            Largest number of episodes of one user.
        known_rewards : bool
            True if :meth:`ask` will be called with known rewards.
        """
        exact = isinstance(randomness, Secure)
        plan = self.questions(layout, features, exact, known_rewards=known_rewards, episodes=episodes)
        delta = getattr(self, "delta", None) or _STATED_DELTA
        return ResponseSession(layout, features, plan, randomness, episodes=episodes, delta=delta)

    def ask(
        self, session: ResponseSession, known_rewards: ArrayLike | None = None
    ) -> tuple[LinearRelease, LinearOfflinePolicy]:
        """Make all queries, and return the release and the policy. The session's budget is spent.

        known_rewards : (H, S, A) in [0, 1]; needed if the session was opened for known rewards.

        Raises ``ValueError``, before budget is spent, if the session was opened with other options.
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
            raise ValueError("session.users = 0: must be at least 1")
        recorder = Recorder(session)
        found = self.solve(session.layout, session.features, recorder, known_rewards)
        release = recorder.release()
        return release, replace(found, guarantee=release.guarantee)

    def solve(
        self, layout: Layout, features: Features, core: Core, known_rewards: ArrayLike | None = None
    ) -> LinearOfflinePolicy:
        """Make the declared queries and compute the policy from the answers, starting at the last step.

        Raises ``ValueError`` if a stored answer does not belong to a declared query.

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
        """Return the gain of ``policy`` over the behaviour policy, estimated from the held-out half.

        Returns None if the gain cannot be estimated.
        """
        answers: list[Answer] = []
        for h in reversed(range(layout.horizon)):
            answers.append(core.model(h) if h < layout.horizon - 1 else core.pair(h, np.zeros(layout.states)))
        found = followed(layout, features, policy, answers[::-1], self._pure())
        begun = core.start(found.values[0])
        return None if begun is None else found.gain(begun, _LEVEL, core.episodes, self._pure())

    def _pure(self) -> bool:
        return False

    def heuristics(self) -> Iterable[str]:
        """Yield the reasons why the values of the policy are not proven lower bounds."""
        return ("the constants of pessimism and ridge are measured, not those of a theorem",)

    def _step(
        self, layout: Layout, features: Features, core: Core, h: int, after: Floats, known: bool
    ) -> _StepFit:
        """Make the queries of step h and return the results of the regression.

        after : (S,) values V_{h+1} of the next step. known : True if rewards are known; the results then
        predict only the value of the next state.
        """
        raise TypeError(f"{type(self).__name__} plans nothing")

    def _repaired(self, answer: Answer, ridge: Ridge) -> Repaired:
        assert answer.gram is not None
        return repaired(answer.gram, self._level(answer, ridge), self.lam or 0.0)

    def _level(self, answer: Answer, ridge: Ridge) -> float:
        """Return the total ridge L that is added to the diagonal of the Gram matrix in ``answer``."""
        assert answer.gram is not None and self.lam is not None
        if not answer.gram_scale:
            return self.lam
        return ridge_level(answer.gram_scale, len(answer.gram), ridge, self.lam)

    def _known(
        self, features: Features, answer: Answer, ridge: Ridge, length: Floats, weights: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Return n_eff (1) and the threshold for support, both (S A,).

        length : (S A,) norms ||phi||_{Lambda^-1}. weights : (S, A) weights of VAPVI; None means 1.
        """
        squared = np.einsum("nd,nd->n", features.rows, features.rows)
        safe = np.where(squared > 0, squared, 1.0)
        visits = 1.0 / np.where(squared > 0, length**2, 1.0) - self._level(answer, ridge) / safe
        noise = self.support * math.sqrt(2.0) * answer.gram_scale / safe
        one = 1.0 if weights is None else weights.ravel()
        visits = np.where(squared > 0, visits / one, 0.0)  # a pair with phi = 0 has n_eff = 0
        return visits, 0.5 + noise / one


def _targets(layout: Layout, known_rewards: bool) -> Iterator[tuple[int, float]]:
    """Yield each step h with the upper bound of its regression targets, from the last step to the first."""
    for h in reversed(range(layout.horizon - known_rewards)):
        yield h, float(layout.horizon - h - known_rewards)


def _rewards(known: ArrayLike, shape: tuple[int, int, int]) -> Floats:
    rewards = checks.floats("known_rewards", known, shape)
    if rewards.min() < 0 or rewards.max() > 1:
        raise ValueError("known_rewards: every entry must be in [0, 1]")
    return rewards


def _estimate(features: Features, gram: Repaired, answer: Answer) -> Floats:
    """Return the (S A,) predictions centre + phi^T Lambda^-1 u, with the noisy response u in ``answer``."""
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
    """Learn a policy from the records of many users with one episode each.

    Returns the policy with its guarantee. Raises ``ValueError`` if options do not fit the problem or a record
    is invalid. The message about a record contains private data.

    Parameters
    ----------
    learner : DPPEVI, DPVAPVI, PEVI or VAPVI
        Learner. Its options state the budget.
    layout : Layout
        S, A and H.
    features : Features
        Features phi (S, A, d) with their declared bounds.
    trajectories : Trajectories
        Records of n users.
    randomness : Seeded (simulation) or Secure
    known_rewards : (H, S, A) in [0, 1], optional
        Public rewards. The queries are then only about next states.
    """
    known = known_rewards is not None
    with learner.open(layout, features, randomness, known_rewards=known) as session:
        session.submit_many(trajectories)
        return learner.ask(session, known_rewards)[1]


def replan_linear(
    learner: Linear, release: LinearRelease, features: Features, known_rewards: ArrayLike | None = None
) -> LinearOfflinePolicy:
    """Learn a policy from a stored release, without reading data or spending budget.

    A release with ``response="model"`` allows any options and any known rewards. Other releases raise
    ``ValueError`` for options that lead to other queries.

    Parameters
    ----------
    learner : DPPEVI, DPVAPVI, PEVI or VAPVI
        Learner; its budget is not used.
    release : LinearRelease
        Stored release.
    features : Features
        Features with which the release was made.
    known_rewards : (H, S, A) in [0, 1], optional
    """
    stated = dict(release.features)
    if fingerprint(features) != stated:
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
    """Return the features that a public schema declares: a table with its bound, or one-hot features.

    ``table`` is (S, A, d); None means one-hot features with d = S A. ``ValueError`` is raised for d above
    1000; use the learner dp-apvi instead.
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
    """Pessimistic value iteration for linear MDPs, without privacy (PEVI; Jin, Yang and Wang 2021).

    From the last step to the first, Q_h = phi^T theta_h - c d H ||phi||_{Lambda_h^-1}. Here theta_h is the
    ridge regression of r + V_{h+1}, and Lambda_h is the regularised Gram matrix.

    Parameters
    ----------
    preset : "default" or "paper"
        ``default``: the constant c that was best on the synthetic linear MDP. ``paper``: the same c with lam
        = 1.
    c : float
        Constant of the penalty, at least 0.
    lam : float
        Ridge parameter, > 0.
    support : float
        A pair is supported if its n_eff exceeds this many standard deviations of the noise; at least 0.

    Raises
    ------
    ValueError
        If an option is out of its range.
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
        """Return the queries without noise: one query per step, for Gram matrix and response.

        See :meth:`questions` for the arguments; ``exact`` and ``episodes`` are not used.
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
    """Base class with the penalty C sqrt(d) ||phi||_{Lambda^-1} of VAPVI, DP-VAPVI and DP-PEVI."""

    C: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.real("C", self.C, 0.0)

    def _penalty(self, features: Features, length: Floats) -> Floats:
        assert self.C is not None
        return self.C * math.sqrt(features.dimension) * length


@dataclass(frozen=True, kw_only=True)
class _VarianceAware(_Pessimist):
    """Base class that plans one step of VAPVI from exact or noisy answers.

    The options are those of :class:`VAPVI`.
    """

    split: bool | None = None
    var_max: float | None = None
    D: float | Literal["printed"] | None = None
    ridge: Ridge | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.flag("split", self.split)
        if self.split and self.judged:
            raise ValueError("judged = True: must be False with split, which needs both halves")
        self._check_lower_order()
        if self.var_max is not None:
            checks.real("var_max", self.var_max, 1.0)
        check_ridge(self.ridge if self.ridge is not None else 0.0)

    def _check_lower_order(self) -> None:
        checks.real("D", self.D, 0.0)

    def _constants(self, layout: Layout, features: Features) -> tuple[Ridge, float]:
        """Return the ridge and the numerator of the penalty D / K."""
        return 0.0 if self.ridge is None else self.ridge, float(self.D or 0.0)

    def _step(
        self, layout: Layout, features: Features, core: Core, h: int, after: Floats, known: bool
    ) -> _StepFit:
        ridge, lower_order = self._constants(layout, features)
        weights, low = self._weights(layout, features, core, h, after, ridge)
        gram_answer, answer = self._regression(core, h, after, weights)
        gram = self._repaired(gram_answer, ridge)
        length = norms(features.rows, gram.inverse)
        penalty = self._penalty(features, length)
        if lower_order:
            penalty = penalty + lower_order / max(1, core.users)
        certainty = self._known(features, gram_answer, ridge, length, weights)
        return _StepFit(_estimate(features, gram, answer), penalty, low + gram.floored, *certainty)

    def _regression(self, core: Core, h: int, after: Floats, weights: Floats | None) -> tuple[Answer, Answer]:
        answer = core.pair(h, after, weights)
        return answer, answer

    def _weights(
        self, layout: Layout, features: Features, core: Core, h: int, after: Floats, ridge: Ridge
    ) -> tuple[Floats | None, int]:
        """Return the (S, A) weights 1 / max{1, Var} and the number of eigenvalues that were raised."""
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

    def _asked(
        self, gram: Question, after: float, mus: Sequence[float | None], high: float, reward: bool
    ) -> list[Question]:
        """Return the queries of one step: Gram matrix, responses of V^2 and of V, and the regression."""
        half = self._halves()[1]
        regression = replace(gram, kind="pair", mu=mus[2], high=high, half=half, reward=reward)
        if not after:
            return [regression]
        value = replace(gram, kind="response", mu=mus[1], high=after, reward=False)
        return [gram, replace(value, mu=mus[0], high=after**2), value, regression]


@dataclass(frozen=True, kw_only=True)
class VAPVI(_VarianceAware):
    """Variance-aware pessimistic value iteration without privacy (VAPVI; Yin, Duan, Wang and Wang 2022).

    VAPVI differs from :class:`PEVI` in two points. Each record is weighted by the reciprocal of the estimated
    variance of the next state's value. The penalty for K users is C sqrt(d) ||phi||_{Lambda_h^-1} + D / K.

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
        Upper limit of the estimated variance, at least 1; None: H^2.
    ridge : float or "bound"
        Not used without noise. :class:`DPVAPVI` uses it as a multiple of the spectral edge of the noise
        matrix.
    support : float
        A pair is supported if its n_eff exceeds this many standard deviations of the noise; at least 0.

    Raises
    ------
    ValueError
        If an option is out of its range.
    """

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {"C": 0.1, "lam": 0.1, "split": False, "D": 0.0, "ridge": 0.0},
        "paper": {},
    }

    def _learning(
        self, layout: Layout, features: Features, exact: bool, known_rewards: bool, episodes: int
    ) -> tuple[Question, ...]:
        """Return the queries without noise, from the last step to the first, with four queries per step.

        See :meth:`questions` for the arguments; ``exact`` and ``episodes`` are not used.
        """
        found: list[Question] = []
        for h, high in _targets(layout, known_rewards):
            gram = Question(kind="gram", step=h, mu=None, centre=False, half=self._halves()[0])
            after = float(layout.horizon - h - 1)
            found += self._asked(gram, after, (None, None, None), high, not known_rewards)
        return tuple(found)


# --------------------------------------------------------------------------------- with privacy


@dataclass(frozen=True, kw_only=True)
class _Private(Linear):
    """Base class of the private learners. The budget is epsilon (with delta), rho or mu."""

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
        """Return the whole budget as mu.

        exact : True if the noise is discrete (secure randomness). The budget is then converted through zCDP,
        with rho = mu^2 / 2.
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
        """Return the (H,) budgets mu of the steps.

        The share of a step in mu^2 is proportional to (range of the targets)^{2/3} (1.2).
        """
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
    """Private PEVI (DP-PEVI). Each step releases one noisy Gram matrix and one noisy response.

    Attributes
    ----------
    epsilon, delta, rho, mu : float
        Budget, > 0. Exactly one of epsilon, rho (zCDP) and mu (GDP) must be given. With epsilon, delta must
        be in (0, 1) for Gaussian noise, and is not given for Laplace noise.
    C : float
        Constant of the penalty C sqrt(d) ||phi||_{Lambda^-1}, at least 0.
    lam, support, judged
        See :class:`Linear`.
    response : "requery" or "model"
        ``requery``: the response is queried for the values V of one plan. ``model``: Gram matrix, next states
        and rewards are queried once (for S up to a few tens), and any policy can be planned without further
        budget.
    range : "values" or "declared"
        ``values``: noise is scaled to the range of the values V that the query uses. ``declared``: noise is
        scaled to the upper bound b_h.
    joint : bool
        True: compute the sensitivity of Gram matrix and response together, by lemma 3. False: compute the
        worst-case sensitivity of each separately.
    centre : bool, optional
        True: centre targets, which needs 1 in the span of the features. None: True if 1 is in the span.
    noise : "gaussian" or "laplace"
        ``laplace`` is for pure epsilon (no delta). Laplace noise is much larger than Gaussian noise, unless
        ||phi||_1 is small (one-hot or simplex features). Declare a small ||phi||_1 by ``Features(l1=...)``.
    ridge : float or "bound", optional
        Ridge as a multiple of the spectral edge 2 s sqrt(d) of the noise matrix, or "bound" (Gaussian noise
        only). None: 2 for ``requery``, 1 for ``model``.
    simplex : bool
        True: project the rows of the estimated model onto the simplex.
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
        """Return the budget of step h. For pure epsilon, the shares are proportional to sqrt(b_h)."""
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
        """Return the queries, from the last step to the first.

        See :meth:`questions` for the arguments.
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
                found += [Question(kind="gram", step=h, **half), Question(kind="response", **half, **common)]
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
        """Return the results of a step with ``response="model"``.

        The results predict Q = r + P V, where the rows of P are 1/S + phi^T Lambda^-1 M.
        """
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

    The presets ``figure-1`` and ``paper`` use the noise that the paper states for a budget in rho.
    ``figure-1`` has the settings of the paper's Figure 1: one data set for variances and regression, D = 0
    and C = 0.1. Its ridge is one spectral edge of the noise matrix.
    ``paper`` is the algorithm in the text: two halves of the users, the ridge E / 2, and the penalty D / K
    for K users in each half. With rho0 = rho / (5 H) and failure probability p, lemma D.2 and theorem 4.1 of
    the paper state

        L = 2 H sqrt((d / rho0) log(10 H d / p)),   E = sqrt(d / rho0) (2 + (log(5 H / p) / d)^{2/3}).

    The constant of the penalty is

        D = H^2 L / kappa + H^4 E sqrt(d) / kappa^{3/2} + H^3 sqrt(d).

    All constants that the paper does not give are 1 here. The paper requires lam < kappa, which is not
    checked.

    Attributes
    ----------
    noise : "exact" or "published"
        ``exact``: noise is calibrated to the budget with exact sensitivities, centred targets and the ranges
        of the released values. A step spends the share 0.15 of its budget on the Gram matrix, 0.05 on V^2,
        0.10 on V, and 0.70 on the weighted Gram matrix with its response. With ``split``, one half spends the
        shares 0.5, 0.17 and 0.33 of the whole budget on Gram matrix, V^2 and V. The other half spends the
        whole budget on the weighted Gram matrix with its response. ``published``: the noise that the paper
        states, with targets that are not centred. The guarantee then states the actual rho.
    D : float or "printed"
        Constant of the penalty D / K. ``printed`` is the formula above; it needs the published noise. With
        ``printed`` and ``split``, K is the number of users in each half, and a ridge of 1 is E / 2.
    kappa : float, optional
        Public lower bound, for D = "printed", on the smallest eigenvalue of E[phi phi^T] under the behaviour
        policy, at all steps. None: the largest possible value, which is the squared bound of ||phi|| divided
        by d.
    failure : float
        Failure probability p in L and E, in (0, 1).
    var_max : float, optional
        Upper limit of the estimated variance, at least 1; None: H^2.
    """

    noise: Literal["exact", "published"] | None = None
    kappa: float | None = None
    failure: float = 0.05

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {"C": 0.1, "lam": 0.1, "split": False, "D": 0.0, "ridge": 2.0, "noise": "exact"},
        "figure-1": {"ridge": 1.0, "noise": "published"},
        "paper": {"C": 1.0, "split": True, "D": "printed", "ridge": 1.0, "noise": "published"},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.choice("noise", self.noise, ("exact", "published"))
        if self.noise == "published" and self.rho is None:
            raise ValueError("rho = None: must be given, the printed noise is stated for a budget in rho")
        if self.noise == "published" and self.judged:
            raise ValueError("judged = True: must be False with the printed noise, which has no share for it")
        checks.real("failure", self.failure, 0.0, 1.0, open_low=True, open_high=True)
        if self.kappa is not None:
            checks.positive("kappa", self.kappa)

    def _check_lower_order(self) -> None:
        if self.D != "printed":
            super()._check_lower_order()
        elif self.noise != "published":
            raise ValueError("D = 'printed': must be a number unless noise = 'published'")

    def _constants(self, layout: Layout, features: Features) -> tuple[Ridge, float]:
        if self.D != "printed" or self.rho is None:
            return super()._constants(layout, features)
        horizon, d = layout.horizon, features.dimension
        kappa = features.bound**2 / d if self.kappa is None else self.kappa
        edge = math.sqrt(d * 5 * horizon / self.rho)
        tail = (math.log(5 * horizon / self.failure) / d) ** (2 / 3)
        vector = 2 * horizon * edge * math.sqrt(math.log(10 * horizon * d / self.failure))
        matrix = edge * (2 + tail)
        lower_order = horizon**2 * vector / kappa + horizon**3 * math.sqrt(d)
        lower_order += horizon**4 * matrix * math.sqrt(d) / kappa**1.5
        ridge = self.ridge if self.ridge is None or self.ridge == "bound" else self.ridge * (1 + tail / 2)
        return 0.0 if ridge is None else ridge, lower_order * (2 if self.split else 1)

    def heuristics(self) -> Iterable[str]:
        """Yield the reasons why the values of the policy are not proven lower bounds."""
        if self.D != "printed":
            return super().heuristics()
        return ("the paper gives no value for the constants of C, D and E (1 here) and does not bound kappa",)

    def _learning(
        self, layout: Layout, features: Features, exact: bool, known_rewards: bool, episodes: int
    ) -> tuple[Question, ...]:
        """Return the queries, from the last step to the first, with four queries per step.

        See :meth:`questions` for the arguments; ``episodes`` is used only if ``noise`` is "published".
        """
        steps = list(_targets(layout, known_rewards))
        reward = not known_rewards
        if self.noise == "published":
            found = [q for h, _ in steps for q in self._published(layout.horizon, h, features, reward)]
            return tuple(replace(q, mu=episodes * (q.mu or 0.0)) for q in found)
        variances, _ = self._halves()
        shares = (0.5, 0.17, 0.33, 1.0) if self.split else (0.15, 0.05, 0.10, 0.70)
        centre, found = features.constant, list[Question]()
        for h, high in steps:
            mu = float(self._step_mu(layout.horizon, exact, known_rewards)[h])
            after = float(layout.horizon - h - 1)
            first, second, third, fourth = (mu * math.sqrt(share) for share in shares)
            gram = Question(kind="gram", step=h, mu=first, reward=False, centre=centre, half=variances)
            found += self._asked(gram, after, (second, third, fourth if after else mu), high, reward)
        return tuple(found)

    def _published(self, horizon: int, h: int, features: Features, reward: bool) -> list[Question]:
        """Return the queries of step h with the noise that the paper states."""
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
            # The paper releases this Gram matrix and charges it to the budget. The answer is not used,
            # because at the last step every variance is 1.
            core.gram(h)
        return super()._weights(layout, features, core, h, after, ridge)

    def _regression(self, core: Core, h: int, after: Floats, weights: Floats | None) -> tuple[Answer, Answer]:
        if self.noise == "published":
            return core.gram(h, weights), core.response(h, after, weights)
        return super()._regression(core, h, after, weights)
