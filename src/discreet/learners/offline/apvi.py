r"""APVI and DP-APVI: pessimistic value iteration from one release of counts of stored trajectories.

Sources: Yin and Wang 2021 (APVI, no privacy) and Qiao and Wang 2023, "Offline RL with Differential Privacy",
algorithm 1 (DP-APVI).

Notation: n^ is the released number of visits to (h, s, a). n^(s') is the released number of transitions from
(h, s, a) to s'. The upper limit of values at step h is b_h = H - h + 1.

1. Visits and transitions are combined by least squares (``combine``), then truncated at 0.
2. For each (h, s, a), the consistent counts x minimise max |x - n^(s')| over x >= 0, |sum x - n^| <= w
   (:mod:`discreet.learners.estimation.model_kernels`). Then n~ = sum x, and P~ = x / n~ is the estimated
   transition distribution.
3. A pair is *supported* if n~ > T.
4. Let iota = log(H S A / p). Let r be the known reward, or the estimate 1/2 + R~ / n~ from centred reward
   sums R~. For h = H, ..., 1,

       Gamma = c1 sqrt(Var_{P~}(V_{h+1}) iota / max(n~ - T, 1)) + (c2 S E + c3) H iota / n~          (1)
       Q_h = clip(r + P~ V_{h+1} - Gamma, 0, b_h) if supported, else 0;   V_h = max_a Q_h,

   ``pessimism="hoeffding"`` uses H instead of the standard deviation of V_{h+1}. With ``reward_floor``, Q_h
   is at least a known r for all pairs. If rewards are unknown, Gamma has the additional term

       (c1 / sqrt 2) sqrt(iota / (2 max(n~ - T, 1))) + c4 (E_r + E / 2) / n~                           (2)

With probability 1 - p, E / 2 bounds the noise of every cell of visits and transitions, and E_r bounds the
noise of rewards. In the paper (``E_mode="published"``), with rho-zCDP, the noise variance of a count is 2 H /
rho, and E = 4 sqrt(H log(4 H S^2 A / p) / rho). With Laplace noise of scale 4 H / epsilon, E = (8 H /
epsilon) log(2 H S^2 A / p). ``E_mode="quantile"`` computes E from the exact noise distribution of the release
instead.

**Sensitivity** (:mod:`discreet.core.count_query`). Suppose that one trajectory is replaced. Then at every
step, one cell of each table decreases by 1, and another cell increases by 1. Therefore the l2 sensitivity is
sqrt(2 H) per table and sqrt(4 H) in all, and the l1 sensitivity is 4 H.

**Difference from the paper.** The penalty has the additional term c3 H iota / n~, c3 = 7/3, of the empirical
Bernstein inequality. If visits are not released (``visits="derived"``), each visit count is the sum of S
transition counts. The noise variance of a visit count is then S H / rho instead of 2 H / rho.

**Pessimism.** With ``preset="theory"``, V_1 is at most the value of the policy. The bound fails with
probability at most p because of noise, and at most p because of sampling. The constants of
``preset="default"`` were chosen by experiments and have no proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.accounting.noise_distributions.distributions import GaussianSumLaw, LaplaceSumLaw
from discreet.core import checks
from discreet.core.count_query import CountQuery
from discreet.core.families import CENTERED_REWARDS, REWARDS, TRANSITIONS, VISITS
from discreet.core.guarantee import Guarantee
from discreet.core.layout import Layout
from discreet.core.releases import Floats, Ints
from discreet.core.short_repr import brief
from discreet.learners.estimation import model_kernels as kernels
from discreet.learners.estimation.tabular_model import release_rows
from discreet.learners.offline.prior_counts import PriorVisits
from discreet.mechanisms.interfaces import (
    Estimate,
    NoiseDistribution,
    ProblemSpec,
    Release,
    Schedule,
    StepwiseRelease,
    probabilities,
)
from discreet.utils.config import Knobs

if TYPE_CHECKING:
    from discreet.learners.online.prior import Prior

Bools = NDArray[np.bool_]

_READ = (VISITS, TRANSITIONS, REWARDS, CENTERED_REWARDS)
_DERIVE_UP_TO = 4  # up to this S, visits computed from transitions are as accurate as released visits


@dataclass(frozen=True, eq=False)
class OfflinePolicy:
    """Policy that an offline learner computed from one release.

    Attributes
    ----------
    policy : (H, S) int
        First action with the largest q at each (h, s).
    q : (H, S, A)
        Pessimistic values of actions, in [0, H]; -inf at inadmissible pairs.
    values : (H + 1, S)
        Maximum of q over actions. If ``heuristics`` is empty, they are lower bounds of the policy's values.
        The bounds fail with probability at most ``failure`` because of noise, and at most ``failure`` because
        of sampling.
    supported : (H, S)
        True if the estimated visits of the policy's action exceed T and ``support`` standard deviations of
        their noise. Unbiased estimates before truncation and projection are used. False if the two largest
        values of q are equal.
    visits : (H, S, A)
        Consistent counts n~, including the visits of a prior.
    threshold : float
        T: a pair is supported only if its estimated visits n~ exceed this number.
    noise_error : float
        E, which is twice the bound on the noise of one count.
    users : int
        Number of users in the release.
    guarantee : Guarantee
        Privacy guarantee of the release and of this policy. The guarantee does not cover the people whose
        data a prior contains.
    heuristics : tuple of str
        Reasons why ``values`` are not proven bounds; empty if they are proven.
    behaviour : (H, S) int
        Most frequent action of the users, by the estimated visits before truncation and projection. Arbitrary
        at a state that no user visited.
    privacy_note : str, optional
        Statement about data of a prior that the guarantee does not cover (``prior.statement``); None without
        a prior.
    """

    __repr__ = brief

    policy: Ints
    q: Floats
    values: Floats
    supported: Bools
    visits: Floats
    threshold: float
    noise_error: float
    users: int
    guarantee: Guarantee
    heuristics: tuple[str, ...]
    behaviour: Ints
    privacy_note: str | None = None

    def lower_bound(self, initial: ArrayLike) -> float:
        """Return the pessimistic value of the policy, in [0, H], for a public ``initial`` distribution (S,).

        Raises ``ValueError`` unless ``initial`` has S entries, each at least 0, with sum 1.
        """
        start = probabilities("initial", checks.floats("initial", initial, self.values.shape[1:]))
        return float(start @ self.values[0])


class _ReleaseNoise(NamedTuple):
    """Noise of a release, which is equal for all steps."""

    sigma: float  # standard deviation of the noise of estimated visits, before the projection
    error: float  # E, twice the bound on the noise of visits and transitions
    reward_error: float  # E_r, the bound on the noise of reward sums


class _StepCounts(NamedTuple):
    """Consistent counts of one step; row r of each array belongs to admissible pair r."""

    moves: Floats  # (R, S) x, the consistent transition counts
    visits: Floats  # (R,) n~, the consistent visit counts
    estimated: Floats  # (R,) unbiased estimates of visits, before truncation and projection
    rewards: Floats  # (R,) estimated rewards r~, or the known rewards


class _Steps:
    """Reader that returns the tables of a release one step at a time."""

    def __init__(self, release: Release | StepwiseRelease, layout: Layout, pooled: bool) -> None:
        if release.users == 0:
            raise ValueError("release.users = 0: must be at least 1")
        self._release, self._layout, self._pooled = release, layout, pooled
        if isinstance(release, Release):
            self._dense = {name: release.estimates[name] for name in _READ if name in release.estimates}
            self.laws = {name: estimate.law for name, estimate in self._dense.items()}
            for name, estimate in self._dense.items():
                slots = (np.shape(estimate.value) or (0,))[0]
                if slots == 1 and layout.horizon > 1:
                    raise ValueError("release pools the steps: this learner reads counts per step")
                if slots != layout.horizon:
                    raise ValueError(f"release.{name} has {slots} steps: must have H = {layout.horizon}")
        else:
            self.laws = dict(release.laws)
            if release.layout != layout:
                raise ValueError("release.layout: must be the layout of spec")
        if pooled:
            self.laws = {name: _pooled(law, layout.horizon) for name, law in self.laws.items()}

    def rows(self, h: int) -> tuple[Floats, Floats, Floats]:
        """Return the released visits (R,), transitions (R, S) and reward sums (R,) of step h."""
        if not self._pooled:
            return self._of_step(h)
        sums = self._of_step(0)
        for other in range(1, self._layout.horizon):
            for table, more in zip(sums, self._of_step(other), strict=True):
                table += more
        return sums

    def _of_step(self, h: int) -> tuple[Floats, Floats, Floats]:
        release = self._release
        if isinstance(release, Release):
            step = {
                name: replace(estimate, value=estimate.value[h : h + 1])
                for name, estimate in self._dense.items()
            }
        else:
            sums = release.step(h)
            held = {VISITS: sums.visits, TRANSITIONS: sums.transitions, CENTERED_REWARDS: sums.rewards}
            tables = {name: value[None] for name, value in held.items() if value is not None}
            if set(tables) != set(self.laws):
                raise ValueError(f"release.step({h}) holds {sorted(tables)}: must hold {sorted(self.laws)}")
            step = {name: Estimate(value, self.laws[name]) for name, value in tables.items()}
        visits, moves, rewards = release_rows(
            Release(step, release.users, 1, release.guarantee), self._layout
        )
        return visits[0], moves[0], rewards[0]


def _pooled(law: NoiseDistribution, horizon: int) -> NoiseDistribution:
    """Return the noise distribution of the sum of a cell over all steps.

    law : noise distribution of the cell at one step; the noise is independent between steps.
    """
    if law.family == "none":
        return law
    if not isinstance(law, LaplaceSumLaw | GaussianSumLaw):
        raise ValueError(f"stationary = True: noise of {type(law).__name__} cannot be summed over steps")
    return replace(
        law, terms=law.terms * horizon, terms_bound=law.terms_bound * horizon,
        cells=law.cells // horizon, rows=law.rows // horizon,
    )  # fmt: skip


def _decided(q: Floats) -> Bools:
    """Return an (H, S) mask of the states where exactly one action has the largest value of q."""
    if q.shape[-1] == 1:
        return np.ones(q.shape[:-1], np.bool_)
    second, best = np.moveaxis(np.partition(q, -2, axis=-1)[..., -2:], -1, 0)
    return np.asarray(best > second)


def _published_bound(law: NoiseDistribution, noises: int, failure: float) -> float:
    """Return a bound on all of ``noises`` noise variables, which holds with probability 1 - ``failure``.

    The union bound of the paper uses P(|Z| > t) <= 2 exp(-t^2 / 2) for a standard normal variable Z, and the
    exact tail of a Laplace variable.
    """
    if "laplace" in law.family:
        return law.std() / math.sqrt(2) * math.log(noises / failure)
    return law.std() * math.sqrt(2 * math.log(2 * noises / failure))


@dataclass(frozen=True, kw_only=True)
class _Pessimistic(Knobs):
    """Base class that plans with equations (1) and (2) of the module docstring."""

    c1: float | None = None
    c3: float | None = None
    min_visits: float | None = None
    pessimism: Literal["bernstein", "hoeffding"] | None = None
    failure: float | None = None
    clip: Literal["H-h+1", "H"] | None = None
    reward_share: float | None = None
    reward_floor: bool | None = None
    support: float | None = None
    stationary: bool | None = None

    _NAMES: ClassVar[tuple[str, ...]] = ("c1", "c3", "min_visits", "support")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self._NAMES:
            object.__setattr__(self, name, checks.real(name, getattr(self, name), 0.0))
        checks.choice("pessimism", self.pessimism, ("bernstein", "hoeffding"))
        checks.real("failure", self.failure, 0.0, 1.0, open_low=True, open_high=True)
        checks.choice("clip", self.clip, ("H-h+1", "H"))
        for name in ("reward_floor", "stationary"):
            object.__setattr__(self, name, checks.flag(name, getattr(self, name)))
        if self.reward_share is not None:
            checks.real("reward_share", self.reward_share, 0.0, 1.0, open_low=True, open_high=True)

    # ------------------------------------------------------------------ before data
    def query(self, spec: ProblemSpec) -> CountQuery:
        """Return the query for the environment that ``spec`` describes.

        The query includes transition counts, visits unless ``visits`` is "derived", and centred reward sums
        if rewards are unknown.
        """
        known = spec.known_rewards is not None
        return CountQuery(
            spec.layout,
            visits=self._releases_visits(spec.states),
            center_rewards=not known,
            known_rewards=known,
            reward_share=None if known else self.reward_share,
        )

    def _releases_visits(self, states: int) -> bool:
        return True

    @staticmethod
    def schedule(users: int) -> Schedule:
        """Return a schedule with one release after all users."""
        return Schedule.one_shot(users, plans="stochastic")

    # ------------------------------------------------------------------- after data
    def learn(
        self, release: Release | StepwiseRelease, spec: ProblemSpec, prior: Prior | None = None
    ) -> OfflinePolicy:
        """Learn a policy from one release.

        The known rewards (``spec.known_rewards``) and all options that are not part of the query can differ
        from those for which the release was made.

        prior : public model that counts as additional visits
            (:mod:`~discreet.learners.offline.prior_counts`). The problem must be declared stationary. The
            guarantee of the release does not cover the people whose data the prior contains.

        Raises
        ------
        ValueError
            If the release or the prior does not fit the layout. If the release pools the steps, has no users,
            or holds no rewards although ``spec.known_rewards`` is None.
        """
        layout = spec.layout
        if self.stationary and not spec.stationary:
            raise ValueError(
                "stationary = True: must be declared of the world (spec.stationary, stationary of a schema)"
            )
        if prior is not None and not spec.stationary:
            raise ValueError("prior: must be None, the problem is not declared stationary")
        steps = _Steps(release, layout, bool(self.stationary))
        if TRANSITIONS not in steps.laws:
            raise ValueError(f"release holds {', '.join(steps.laws) or 'nothing'}: must hold {TRANSITIONS}")
        if spec.known_rewards is None and not {REWARDS, CENTERED_REWARDS} & set(steps.laws):
            raise ValueError("release holds no rewards: must hold them, or spec.known_rewards must be given")
        noise = self._noise(steps.laws, layout)
        threshold = self._threshold(noise)
        q, visits, estimated = np.empty((3, layout.horizon, layout.rows))
        values = np.zeros((layout.horizon + 1, layout.states))
        counts: _StepCounts | None = None
        start = None if prior is None else PriorVisits.of(prior, layout)
        for h in range(layout.horizon - 1, -1, -1):
            if counts is None or not self.stationary:
                counts = None  # free the arrays of the previous step, so that only one step is in memory
                counts = self._counts(steps, h, noise, spec)
                if start is not None:
                    limited = start.limited(steps.rows(h), steps.laws)
                    moves, added, rewards = limited.added(counts.moves, counts.visits, counts.rewards)
                    if spec.known_rewards is not None:
                        rewards = counts.rewards
                    counts = _StepCounts(moves, added, counts.estimated, rewards)
            elif spec.known_rewards is not None:
                counts = counts._replace(rewards=layout.to_rows(spec.known_rewards[h : h + 1])[0])
            q[h] = self._backup(counts, values[h + 1], h, threshold, noise, spec)
            values[h] = np.maximum.reduceat(q[h], layout.state_ptr[:-1])
            visits[h], estimated[h] = counts.visits, counts.estimated
        table = layout.from_rows(q, fill=-np.inf)
        policy = np.ascontiguousarray(table.argmax(axis=-1), np.int64)
        seen = layout.from_rows(estimated, fill=-np.inf)
        enough = max(threshold, (self.support or 0.0) * noise.sigma)
        chosen = np.take_along_axis(seen, policy[..., None], axis=-1)[..., 0] > enough
        chosen &= _decided(table)
        behaviour = np.ascontiguousarray(seen.argmax(axis=-1), np.int64)
        reasons = tuple(self.heuristics())
        if prior is not None:
            reasons += (f"a prior ({prior.origin}) counts as visits",)
        return OfflinePolicy(
            policy, table, values, chosen, layout.from_rows(visits), threshold, noise.error,
            release.users, release.guarantee, reasons, behaviour, None if prior is None else prior.statement,
        )  # fmt: skip

    def heuristics(self) -> Iterator[str]:
        """Yield the reasons why the values of the policy are not proven lower bounds."""
        if self.c1 is not None and self.c1 < math.sqrt(2):
            yield f"c1 = {self.c1:g} is below sqrt(2)"
        if self.c3 is not None and self.c3 < 7 / 3:
            yield f"c3 = {self.c3:g} is below 7/3"

    def _noise(self, laws: Mapping[str, NoiseDistribution], layout: Layout) -> _ReleaseNoise:
        return _ReleaseNoise(0.0, 0.0, 0.0)

    def _counts(self, steps: _Steps, h: int, noise: _ReleaseNoise, spec: ProblemSpec) -> _StepCounts:
        raise TypeError(f"{type(self).__name__} reads no counts")

    def _threshold(self, noise: _ReleaseNoise) -> float:
        return self.min_visits or 0.0

    def _noise_penalty(self, noise: _ReleaseNoise, spec: ProblemSpec, iota: float) -> tuple[float, float]:
        """Return the penalties for noise in transitions and for noise in rewards, before division by n~."""
        return 0.0, 0.0

    def _backup(
        self,
        counts: _StepCounts,
        after: Floats,
        h: int,
        threshold: float,
        noise: _ReleaseNoise,
        spec: ProblemSpec,
    ) -> Floats:
        """Return the pessimistic values Q_h (R,) of step h by equations (1) and (2).

        after : (S,) values V_{h+1} of the next step. threshold : T.
        """
        layout = spec.layout
        horizon = layout.horizon
        c1, c3 = self.c1 or 0.0, self.c3 or 0.0
        iota = math.log(horizon * layout.states * layout.actions / (self.failure or 0.05))
        moves_slack, rewards_slack = self._noise_penalty(noise, spec, iota)
        supported = counts.visits > threshold
        safe = np.where(supported, counts.visits, 1.0)
        width = np.sqrt(iota / np.maximum(safe - threshold, 1.0))
        fixed = (moves_slack + c3 * horizon * iota) / safe
        if spec.known_rewards is None:
            fixed += 0.5 * c1 * width + rewards_slack / safe
        # Values are centred at the middle of their range, so that the variance is accurate if they are large
        # and nearly equal.
        middle = 0.5 * (after.min() + after.max())
        ahead = after - middle
        mean = counts.moves @ ahead / safe
        spread = np.full(layout.rows, float(horizon))
        if self.pessimism == "bernstein":
            spread = np.sqrt(np.maximum(counts.moves @ (ahead * ahead) / safe - mean * mean, 0.0))
        lower = counts.rewards + mean + middle - c1 * width * spread - fixed
        cap = float(horizon - h if self.clip == "H-h+1" else horizon)
        q: Floats = np.where(supported, np.clip(lower, 0.0, cap), 0.0)
        if self.reward_floor and spec.known_rewards is not None:
            q = np.maximum(q, counts.rewards)
        return q


def _rewards(
    laws: Mapping[str, NoiseDistribution],
    h: int,
    visits: Floats,
    sums: Floats,
    consistent: Floats,
    spec: ProblemSpec,
) -> Floats:
    """Return the rewards (R,) of step h, in [0, 1]."""
    if spec.known_rewards is not None:
        return spec.layout.to_rows(spec.known_rewards[h : h + 1])[0]
    safe = np.where(consistent > 0.0, consistent, 1.0)
    if CENTERED_REWARDS in laws:
        return np.clip(0.5 + (sums - 0.5 * visits) / safe, 0.0, 1.0)
    return np.clip(sums / safe, 0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class APVI(_Pessimistic):
    """Adaptive pessimistic value iteration (APVI, Yin and Wang 2021), the baseline without privacy.

    Noisy counts are truncated at 0 and used as if they were exact.

    Parameters
    ----------
    c1, c3 : float
        Constants of the penalty (1), at least 0: sqrt(2) and 7/3 in theory.
    min_visits : float
        Pairs with at most this number of visits are unsupported; 0 in theory.
    pessimism, failure, clip, reward_share, reward_floor, support, stationary
        See :class:`DPAPVI`.
    preset : "default", "theory" or "paper"
        "default": c1 = 0.2 and c3 = 0.02, chosen by experiments. "theory": constants for which the values are
        proven lower bounds. "paper": the same as "theory" without ``reward_floor``.
    """

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {
            "c1": 0.2, "c3": 0.02, "min_visits": 0.0, "support": 3.0, "stationary": False,
            "pessimism": "bernstein", "failure": 0.05,
            "clip": "H-h+1", "reward_share": 0.2, "reward_floor": True,
        },
        "theory": {"c1": math.sqrt(2), "c3": 7 / 3},
        "paper": {"c1": math.sqrt(2), "c3": 7 / 3, "reward_floor": False},
    }  # fmt: skip

    def _counts(self, steps: _Steps, h: int, noise: _ReleaseNoise, spec: ProblemSpec) -> _StepCounts:
        visits, moves, sums = steps.rows(h)
        kept = np.maximum(visits, 0.0)
        np.maximum(moves, 0.0, out=moves)
        return _StepCounts(moves, kept, visits, _rewards(steps.laws, h, visits, sums, kept, spec))


@dataclass(frozen=True, kw_only=True)
class DPAPVI(_Pessimistic):
    """DP-APVI (Qiao and Wang 2023, algorithm 1): pessimistic planning from one private release of counts.

    Parameters
    ----------
    c1, c2, c3, c4 : float
        Constants of the penalties (1) and (2), at least 0. The constant c1 is for sampling, c2 for noise, c3
        for the lower-order term, and c4 for the noise of unknown rewards. In theory they are sqrt(2), 16, 7/3
        and 1.
    threshold : float or "bound"
        T, in standard deviations of the noise of visits. "bound": T = E, the value in the paper.
    min_visits : float
        Smallest T, as a number of visits.
    support : float
        Smallest estimated visits of a ``supported`` action, in standard deviations of the noise.
        Planning does not use this option.
    stationary : bool
        True: plan with one model for all steps, from the released counts summed over steps. The environment
        must be declared stationary.
    pessimism : "bernstein" or "hoeffding"
        "bernstein" is the paper's algorithm 1; "hoeffding" uses H instead of the standard deviation.
    failure : float
        Failure probability p, in (0, 1).
    clip : "H-h+1" or "H"
        Upper limit of Q_h.
    E_mode : "quantile" or "published"
        Computation of E. "quantile": from the exact noise distribution. "published": by the formula of the
        paper if visits are released, otherwise the same as "quantile".
    width : float
        Half-width w of the constraint |sum x - n^| <= w of the projection, in units of E. The paper uses 0.5.
        With 0, n~ equals the truncated visits.
    combine : bool
        True: combine visits and transitions by least squares before the projection.
    visits : "released", "derived" or "auto"
        "released": release visits in addition to transitions (as in the paper). "derived": compute visits
        from transitions. "auto": "derived" for S <= 4, "released" otherwise.
    reward_share : float
        Share of the privacy budget for unknown rewards, in (0, 1); 0.2 in theory. Visits and transitions have
        equal shares of the remaining budget.
    reward_floor : bool
        True: if rewards are known, Q is at least the reward, which is a proven lower bound.
    preset : "default", "theory" or "paper"
        "default": constants that were chosen by experiments. "theory": corrected constants, for which the
        values are proven lower bounds. "paper": the constants of the paper, without the term with c3.
    """

    c2: float | None = None
    c4: float | None = None
    threshold: float | Literal["bound"] | None = None
    E_mode: Literal["quantile", "published"] | None = None
    width: float | None = None
    combine: bool | None = None
    visits: Literal["released", "derived", "auto"] | None = None

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {
            **APVI.PRESETS["default"], "c2": 1e-6, "c4": 0.1, "threshold": 1.0,
            "E_mode": "quantile", "width": 0.5, "combine": True, "visits": "auto", "reward_share": 0.4,
        },
        "theory": {
            **APVI.PRESETS["theory"], "c2": 16.0, "c4": 1.0, "threshold": "bound",
            "combine": False, "reward_share": 0.2,
        },
        "paper": {
            "c1": math.sqrt(2), "c2": 16.0, "c3": 0.0, "c4": 1.0, "threshold": "bound",
            "E_mode": "published", "combine": False, "visits": "released", "reward_floor": False,
            "reward_share": 0.2,
        },
    }  # fmt: skip
    _NAMES: ClassVar[tuple[str, ...]] = ("c1", "c2", "c3", "c4", "min_visits", "support", "width")

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        if self.threshold != "bound":
            if isinstance(self.threshold, str):
                raise ValueError(f"threshold = {self.threshold!r}: must be 'bound' or a number, at least 0")
            put(self, "threshold", checks.real("threshold", self.threshold, 0.0))
        checks.choice("E_mode", self.E_mode, ("quantile", "published"))
        put(self, "combine", checks.flag("combine", self.combine))
        checks.choice("visits", self.visits, ("released", "derived", "auto"))

    def heuristics(self) -> Iterator[str]:
        """Yield the reasons why the values of the policy are not proven lower bounds."""
        yield from super().heuristics()
        if self.c2 is not None and self.c2 < 16:
            yield f"c2 = {self.c2:g} is below 16"
        if self.c4 is not None and self.c4 < 1:
            yield f"c4 = {self.c4:g} is below 1"
        if self.threshold != "bound":
            yield f"threshold = {self.threshold:g} standard deviations is below the noise's bound"
        if self.width is not None and self.width < 0.5:
            yield f"width = {self.width:g} is below 0.5: true counts may be infeasible"
        if self.combine:
            yield "combine = True: E bounds the noise before the combination"

    def _releases_visits(self, states: int) -> bool:
        return self.visits == "released" or (self.visits == "auto" and states > _DERIVE_UP_TO)

    def _threshold(self, noise: _ReleaseNoise) -> float:
        own = noise.error if self.threshold == "bound" else float(self.threshold or 0.0) * noise.sigma
        return max(own, self.min_visits or 0.0)

    def _noise_penalty(self, noise: _ReleaseNoise, spec: ProblemSpec, iota: float) -> tuple[float, float]:
        c2 = self.c2 or 0.0
        moves = c2 * spec.states * spec.horizon * noise.error * iota
        return moves, (self.c4 or 0.0) * (noise.reward_error + 0.5 * noise.error)

    def _combines(self, laws: Mapping[str, NoiseDistribution]) -> bool:
        return bool(self.combine) and VISITS in laws and laws[VISITS].std() > 0.0

    def _noise(self, laws: Mapping[str, NoiseDistribution], layout: Layout) -> _ReleaseNoise:
        error, reward_error = self._errors(laws, layout)
        sigma_moves = laws[TRANSITIONS].std()
        sigma = laws[VISITS].std() if VISITS in laws else math.sqrt(layout.states) * sigma_moves
        if self._combines(laws):
            both = sigma**2 + layout.states * sigma_moves**2
            sigma *= math.sqrt(layout.states) * sigma_moves / math.sqrt(both)
        return _ReleaseNoise(sigma, error, reward_error)

    def _counts(self, steps: _Steps, h: int, noise: _ReleaseNoise, spec: ProblemSpec) -> _StepCounts:
        laws, layout = steps.laws, spec.layout
        visits, moves, sums = steps.rows(h)
        better = estimated = visits
        # The transition table is large, and no other code uses it. Therefore it is changed in place.
        if self._combines(laws):
            variance, of_moves = laws[VISITS].std() ** 2, laws[TRANSITIONS].std() ** 2
            both = variance + layout.states * of_moves
            gap = moves.sum(axis=-1) - visits
            better = estimated = visits + gap * (variance / both)
            moves -= (gap * (of_moves / both))[..., None]
        if noise.error > 0.0:
            np.maximum(moves, 0.0, out=moves)
            targets, half = np.maximum(better, 0.0), np.full(layout.rows, (self.width or 0.0) * noise.error)
            # `moves` can be input and output, because each row is written after its last read.
            kernels.project_table(moves, targets, half, moves, np.empty(layout.rows))
            better = moves.sum(axis=-1)
        rewards = _rewards(laws, h, visits, sums, better, spec)
        return _StepCounts(moves, better, estimated, rewards)

    def _errors(self, laws: Mapping[str, NoiseDistribution], layout: Layout) -> tuple[float, float]:
        """Return E and E_r.

        E is twice the bound on the noise of visits and transitions. E_r bounds the noise of reward sums.
        """
        failure, pairs = self.failure or 0.05, layout.horizon * layout.rows
        moves, noises = (
            laws[TRANSITIONS],
            2 * pairs * layout.states,
        )  # at least the number of cells in both tables
        reward = next((laws[name] for name in (CENTERED_REWARDS, REWARDS) if name in laws), None)
        if self.E_mode == "published" and VISITS in laws:
            error = 2 * max(_published_bound(law, noises, failure) for law in (laws[VISITS], moves))
            return error, 0.0 if reward is None else _published_bound(reward, pairs, failure)
        of_visits = laws[VISITS].bound(failure / 2) if VISITS in laws else moves.bound(failure / 2, rows=True)
        error = 2.0 * max(of_visits, moves.bound(failure / 2))
        return float(error), 0.0 if reward is None else float(reward.bound(failure))
