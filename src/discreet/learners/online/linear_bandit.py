"""Learner for contextual bandits: a Bayesian linear model that accounts for the privacy noise.

Source: the queries are those of private linear bandits (Shariff and Sheffet 2018, arXiv 1810.00068; in
batches as under shuffling, Chowdhury and Zhou 2022). The estimator and the exploration are not from these
papers.

For each batch of users, the Gram matrices G and responses u of its users are released by block, with noise. A
user is in one batch, so the privacy loss of all batches together is that of one batch. The learner computes a
posterior of the coefficients theta from all batches, which is post-processing.

1. Sums over batches are weighted by w_j = (n_j / max n)^gamma. The learner chooses gamma from {0, 1/2, 1} to
   minimise the total posterior variance. The noise of Gram matrices has 3/2 times the scale of that of
   responses.
2. Let T be the sum of the Gram matrices of all blocks, shrunk towards a multiple of I. The matrix of each
   block is shrunk towards its share of T. Both factors are those of James and Stein: one minus the expected
   squared norm of the noise in the differences, divided by their squared norm, and at least 0.
3. The noisy response is u = G theta + e - E theta + w, with the privacy noises E and w and the error e of
   rewards. Its covariance given theta is C = sigma^2 G_2 + k (s_u^2 I + s_G^2 (||theta||^2 I + theta
   theta^T)), where G_2 and k are the sums of G and of 1 with squared weights. Negative eigenvalues of noisy
   matrices are set to 0. The posterior is N(m, S) with S^-1 = I / tau^2 + G C^-1 G and m = S G C^-1 u. The
   moments of theta in C come from the posterior itself, in three rounds.
4. In the next batch, some users take the action with the highest mean reward (greedy). Each of the other
   users (explorers) takes the best action under an independent draw of theta from the posterior. After n of K
   users, the share of explorers is (1 - n/K)^2 times its first value, because the results of their
   exploration are useful only for the remaining K - n users.

With ``final_share``, the last batch has no explorers, and a release follows after the last user.
:class:`~discreet.learners.ope.study_inference.StudyInference` then estimates the value of the policy that
they followed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from discreet.accounting import budget as budgets
from discreet.accounting.noise_distributions.linear_noise import GoeLaw, VectorLaw
from discreet.core import checks
from discreet.core.releases import Floats
from discreet.core.short_repr import brief
from discreet.device.feature_map import FeatureMap
from discreet.device.linear_forms import GRAM, RESPONSE
from discreet.mechanisms.interfaces import Ask, Plan, ProblemSpec, Release, Schedule
from discreet.mechanisms.linear.context_query import ContextQuery
from discreet.utils.config import Knobs

SIGMA2 = 0.25  # largest variance of a reward in [0, 1]
_POWERS = (0.0, 0.5, 1.0)
_ROUNDS = 3
_GRAM_RATIO = 1.5  # scale of the noise of Gram matrices, divided by that of responses
_TAPER = 2.0  # power of (1 - n/K) in the share of explorers after n users


@dataclass(frozen=True, eq=False)
class BatchSums:
    """Released sums of one batch, by block, and the variances of their noise.

    policy : (blocks, p) coefficients that the greedy users followed. None: all actions were random.

    explorers : number of users in the batch who were not greedy.
    """

    __repr__ = brief

    users: int
    gram: Floats
    response: Floats
    gram_variance: float
    response_variance: float
    policy: Floats | None = None
    explorers: int = 0


@dataclass(frozen=True, eq=False)
class ContextState:
    """State of the learner between releases. It depends only on releases, so it is public.

    Attributes
    ----------
    mean : (blocks, p) posterior mean of the coefficients.
    root : (blocks, p, p) root of the posterior covariance; None before the first release.
    batches : sums of each released batch.
    seen : cumulative sums and noise variances in the last release.
    number : number of the last release that the learner has read.
    part : number of plans that were made from this release.
    """

    __repr__ = brief

    spec: ProblemSpec
    mean: Floats
    root: Floats | None = None
    batches: tuple[BatchSums, ...] = ()
    seen: tuple[int, Floats, Floats, float, float] | None = None
    number: int = -1
    part: int = 0


def context_features(spec: ProblemSpec) -> FeatureMap:
    """Return the public feature map of a problem.

    spec : public description of the problem. Raises ``ValueError`` if ``spec.features`` is another type.
    """
    if not isinstance(spec.features, FeatureMap):
        given = type(spec.features).__name__
        raise ValueError(f"spec.features = {given}: must be FeatureMap, the public map of contexts")
    return spec.features


def posterior(
    gram: Floats,
    response: Floats,
    squared: Floats,
    noise: tuple[float, float],
    prior: float,
    rounds: int = _ROUNDS,
) -> tuple[Floats, Floats]:
    """Return the posterior mean (blocks, p) and covariance (blocks, p, p) of the coefficients.

    gram, response : noisy weighted sums of phi phi^T (blocks, p, p) and of phi (r - 1/2) (blocks, p).

    squared : noisy sums of phi phi^T with squared weights.

    noise : variances of an entry of ``gram`` off its diagonal, and of ``response``.

    prior : prior variance tau^2 of a coefficient.

    rounds : number of times that the moments of theta in the noise are updated.
    """
    p = gram.shape[-1]
    one = np.eye(p)
    g, sampling = _nonnegative(gram), SIGMA2 * _nonnegative(squared)
    mean = np.zeros_like(response)
    cov: Floats = np.broadcast_to(prior * one, gram.shape)
    for _ in range(rounds if noise[0] else 1):
        second = cov + mean[:, :, None] * mean[:, None, :]  # E theta theta^T
        size = np.trace(second, axis1=1, axis2=2)[:, None, None]
        c = sampling + (noise[1] + noise[0] * size) * one + noise[0] * second
        c = c + 1e-12 * (1.0 + np.trace(c, axis1=1, axis2=2)[:, None, None]) * one
        weight = np.linalg.solve(c, g)  # C^-1 G
        inverse: Any = np.linalg.inv(one / prior + np.swapaxes(g, 1, 2) @ weight)
        cov = (inverse + np.swapaxes(inverse, 1, 2)) / 2
        mean = np.einsum("bij,bkj,bk->bi", cov, weight, response)
    return mean, cov


def shrunk(gram: Floats, variance: float) -> tuple[Floats, float]:
    """Return noisy matrices (blocks, p, p) shrunk by the rule of the module, and the variance of their
    entries.

    variance : variance of an entry of ``gram`` off the diagonal.
    """
    blocks, p = gram.shape[:2]
    if not variance:
        return gram, 0.0
    total, of_total = gram.sum(axis=0), blocks * variance
    level = max(0.0, float(np.trace(total))) / p * np.eye(p)
    whole = _kept(total - level, of_total * (p * (p + 1) - 2))
    total = level + whole * (total - level)
    if blocks == 1:
        return total[None], whole * variance
    size = np.maximum(np.trace(gram, axis1=1, axis2=2), 0.0)
    share = size / size.sum() if size.sum() > 0.0 else np.full(blocks, 1.0 / blocks)
    centre = share[:, None, None] * total
    lost = variance * (p * (p + 1) * (blocks - 1) + (1.0 - whole) * (p * (p + 1) - 2))
    kept = _kept(gram - centre, lost)
    return centre + kept * (gram - centre), variance * (kept + (1.0 - kept) * whole / blocks)


def _kept(differences: Floats, lost: float) -> float:
    """Return the factor of James and Stein for differences whose noise has the squared norm ``lost``."""
    found = float((differences**2).sum())
    return max(0.0, 1.0 - lost / found) if found > 0.0 else 0.0


def _nonnegative(matrices: Floats) -> Floats:
    """Return symmetric matrices with negative eigenvalues set to 0."""
    values, vectors = np.linalg.eigh(matrices)
    found: Floats = (vectors * np.maximum(values, 0.0)[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    return found


@dataclass(frozen=True, kw_only=True)
class LinearBandit(Knobs):
    """Learner for users with real-valued contexts and one decision each. The module describes the method.

    Parameters
    ----------
    explore_share : float in [0, 1]
        Share of users who explore in the first batches; it falls like (1 - n/K)^2. None: 1/2 (local privacy:
        1/10).
    thompson_scale : float
        Scale of the explorers' random coefficients, in posterior standard deviations, at least 0. None: 1/2
        if the noise of one sum is at least as large as the error of a reward (1/2), else 1.
    growth : float
        A batch ends when the number of users has grown by this factor, above 1. None: 1.5 (local privacy:
        1.2).
    first : int, optional
        Number of users in the first batch. These users act at random. None: 8 D max(1, 3/4 s) for D
        coefficients and noise of scale s, and at most K/8 (local privacy: K/128).
    final_share : float in [0, 1)
        Share of users at the end who all follow the last policy, so that its value can be estimated. If it is
        above 0, the session makes a release after the last user; see :meth:`read`.

    Raises
    ------
    ValueError
        If an option is out of its range. The methods also raise it if ``spec.features`` is not a FeatureMap
        or the number of users is unknown.
    """

    FEATURES: ClassVar[type[FeatureMap]] = FeatureMap
    """Required type of ``spec.features``."""

    explore_share: float | None = None
    thompson_scale: float | None = None
    growth: float | None = None
    first: int | None = None
    final_share: float = 0.0

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}}

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        if self.thompson_scale is not None:
            put(self, "thompson_scale", checks.real("thompson_scale", self.thompson_scale, 0.0))
        if self.explore_share is not None:
            put(self, "explore_share", checks.real("explore_share", self.explore_share, 0.0, 1.0))
        if self.growth is not None:
            put(self, "growth", checks.real("growth", self.growth, 1.0, open_low=True))
        if self.first is not None:
            put(self, "first", checks.integer("first", self.first, 1))
        put(self, "final_share", checks.real("final_share", self.final_share, 0.0, 1.0, open_high=True))

    # -------------------------------------------------------------------------- public facts
    def query(self, spec: ProblemSpec) -> ContextQuery:
        """Return the query: Gram matrices and responses of contexts."""
        return ContextQuery(features=context_features(spec), gram_ratio=_GRAM_RATIO)

    def schedule(self, spec: ProblemSpec) -> Schedule:
        """Return the public times of release: a first batch, then a geometric schedule.

        Raises ``ValueError`` if the number of users is unknown, ``spec.features`` is not a FeatureMap, or the
        first batch and the final users are more than all users.
        """
        users = checks.integer("spec.users", spec.users, 1)
        times, n = [0], float(self._first(spec))
        growth = self.growth or (1.2 if _local(spec) else 1.5)
        last = users - self._final(spec)
        while n < last:
            times.append(math.ceil(n))
            n = max(times[-1] + 1, math.ceil(growth * times[-1]))
        if last < users:
            if self._first(spec) > last:
                raise ValueError(
                    f"final_share = {self.final_share:g}: must leave the {self._first(spec)} users of the "
                    f"first batch, of {users} users"
                )
            times += [last, users]
        final = last < users
        return Schedule(users, np.array(times, np.int64), reads="measurements", plans="any", final=final)

    def _final(self, spec: ProblemSpec) -> int:
        """Return the number of users at the end who all follow the last policy."""
        return round(self.final_share * (spec.users or 0))

    def _first(self, spec: ProblemSpec) -> int:
        if self.first is not None:
            return self.first
        features, users, budget = context_features(spec), spec.users or 1, spec.budget
        needed = 8.0 * features.dimension * features.blocks
        if budget is not None and budget.private:
            needed *= max(1.0, 0.75 * _noise_scale(self.query(spec), spec))
        return max(1, math.floor(min(needed, users / (128 if _local(spec) else 8))))

    def _scale(self, spec: ProblemSpec) -> float:
        if self.thompson_scale is not None:
            return self.thompson_scale
        if spec.budget is None or not spec.budget.private:
            return 1.0
        response = _noise_scale(self.query(spec), spec) / _GRAM_RATIO
        return 0.5 if response >= math.sqrt(SIGMA2) else 1.0

    # --------------------------------------------------------------------------- planning
    def begin(self, spec: ProblemSpec, ties: NDArray[np.uint64]) -> ContextState:
        """Return the state before the first release.

        ``ties`` is not used, because the runner draws for explorers.
        """
        features = context_features(spec)
        return ContextState(spec, np.zeros((features.blocks, features.dimension)))

    def plan(
        self, state: ContextState, release: Release, ask: Ask | None = None
    ) -> tuple[Plan, ContextState]:
        """Return the next plan and the new state.

        The policy of a plan is the posterior mean. The context of a plan has the entry "random" (1,), which
        is 1 if users act at random. For explorers, it also has the entry "root" (blocks, p, p), the root of
        the covariance of their coefficients.

        ``ask`` is not used. Raises ``ValueError`` if no user is left.
        """
        state = self.read(state, release)
        users = state.spec.users
        assert users is not None
        times = self.schedule(state.spec).release_times
        later = times[times > release.users]
        size = (int(later[0]) if later.size else users) - release.users
        if size < 1 or state.part > 1:
            raise ValueError(f"release.users = {release.users}: no user is left for another plan")
        if state.root is None:
            return Plan(state.mean, size, {"random": np.ones(1)}), replace(state, part=2)
        explorers = self._explorers(state.spec, release.users, size)
        if state.part == 0 and explorers < size:
            plan = Plan(state.mean, size - explorers, {"random": np.zeros(1)}, last=not explorers)
            return plan, replace(state, part=1 if explorers else 2)
        context = {"random": np.zeros(1), "root": self._scale(state.spec) * state.root}
        return Plan(state.mean, explorers, context), replace(state, part=2)

    def _explorers(self, spec: ProblemSpec, begun: int, size: int) -> int:
        """Return the number of explorers in the batch of ``size`` users after the first ``begun`` users."""
        users = spec.users or 1
        if self._final(spec) and begun + size == users:
            return 0
        share = self.explore_share
        if share is None:
            share = 0.1 if _local(spec) else 0.5
        return round(size * share * (1.0 - begun / users) ** _TAPER)

    def read(self, state: ContextState, release: Release) -> ContextState:
        """Return the state after a release. :meth:`plan` calls this method.

        Call it directly for the release after the last user, because no plan follows. If the state already
        includes the release, the state does not change.
        """
        if release.number == state.number:
            return state
        played, state = state, replace(state, number=release.number, part=0)
        if not release.users:
            return state
        gram, response = release.estimates[GRAM], release.estimates[RESPONSE]
        assert isinstance(gram.law, GoeLaw)
        assert isinstance(response.law, VectorLaw)
        now = (
            release.users, np.array(gram.value), np.array(response.value),
            float(gram.law.std(0)) ** 2, float(response.law.std(0)) ** 2,
        )  # fmt: skip
        before = state.seen or (0, np.zeros_like(now[1]), np.zeros_like(now[2]), 0.0, 0.0)
        newest = BatchSums(
            now[0] - before[0], now[1] - before[1], now[2] - before[2], max(0.0, now[3] - before[3]),
            max(0.0, now[4] - before[4]),
        )  # fmt: skip
        if played.root is not None:
            explorers = self._explorers(state.spec, before[0], newest.users)
            newest = replace(newest, policy=played.mean, explorers=explorers)
        batches = (*state.batches, newest)
        mean, cov = self.fit(batches, self._prior(state.spec))
        root = np.linalg.cholesky(
            cov + 1e-14 * np.trace(cov, axis1=1, axis2=2)[:, None, None] * np.eye(cov.shape[-1])
        )
        return replace(state, mean=mean, root=root, batches=batches, seen=now)

    def _prior(self, spec: ProblemSpec) -> float:
        features = context_features(spec)
        return (features.own_radius**2 if features.form == "per_action" else 1.0) / features.dimension

    def fit(self, batches: tuple[BatchSums, ...], prior: float) -> tuple[Floats, Floats]:
        """Return the posterior mean (blocks, p) and covariance (blocks, p, p) from all batches.

        prior : prior variance of a coefficient.
        """
        users = np.array([one.users for one in batches], float)
        noisy = any(one.gram_variance for one in batches)
        best: tuple[float, Floats, Floats] | None = None
        matrix, vector = (
            [getattr(one, name) for one in batches] for name in ("gram_variance", "response_variance")
        )
        for power in _POWERS if noisy and len(batches) > 1 else (0.0,):
            w = (users / users.max()) ** power
            grams = [one.gram for one in batches]
            gram, variance = shrunk(_weighted(w, grams), float(w**2 @ matrix))
            squared = gram if power == 0.0 else shrunk(_weighted(w * w, grams), float(w**4 @ matrix))[0]
            response = _weighted(w, [one.response for one in batches])
            noise = variance, float(w**2 @ vector)
            mean, cov = posterior(gram, response, squared, noise, prior)
            size = float(np.trace(cov, axis1=1, axis2=2).sum())
            if best is None or size < best[0]:
                best = size, mean, cov
        assert best is not None
        return best[1], best[2]

    def summary(self) -> str:
        """Return a string that states which options are heuristics.

        The guarantee never depends on the options.
        """
        return "LinearBandit: no regret theorem holds (posterior sampling by a share of users)"


def _local(spec: ProblemSpec) -> bool:
    return spec.budget is not None and spec.budget.trust == "local"


def _weighted(weights: Floats, arrays: list[Floats]) -> Floats:
    found: Floats = np.tensordot(weights, np.stack(arrays), 1)
    return found


def _noise_scale(query: ContextQuery, spec: ProblemSpec) -> float:
    """Return the standard deviation of the noise in an off-diagonal entry of one noisy Gram matrix."""
    budget = spec.budget
    assert budget is not None
    if budget.pure:
        scales = query.calibrated("laplace", float(budget.epsilon or 0.0), 1)
        return math.sqrt(2.0) * float(scales[GRAM][0])
    if budget.mu is not None:
        mu = budget.mu
    elif budget.rho is not None:
        mu = math.sqrt(2.0 * budget.rho)
    else:
        mu = budgets.gdp_mu(float(budget.epsilon or 1.0), budget.delta)
    return float(query.calibrated("goe", mu, 1)[GRAM][0])
