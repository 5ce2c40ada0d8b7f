r"""APVI and DP-APVI: a pessimistic policy from one release of the counts of stored trajectories.

Yin and Wang 2021 (APVI, no privacy) and Qiao and Wang 2023, "Offline RL with Differential Privacy",
algorithm 1 (DP-APVI). Everything here is post-processing of one release: no knob but those of the query
(``visits``, ``reward_share``), which are fixed before data, enters the noise.

With hats for released sums, sigma_v and sigma_t the standard deviations of visits and transitions:

1. visits and transitions are combined by least squares (``combine``), then truncated at 0;
2. per (h, s, a) the consistent counts x minimise max |x - n^(s')| over x >= 0, |sum x - n^| <= w
   (:mod:`discreet.estimation.projection`, the same programme as online); n~ = sum x, P~ = x / n~. As the
   targets are not negative the optimum is unique: n^ itself if its sum fits, else all entries move
   up by one amount, or down with a floor at 0 (specification, section 8, step 2);
3. a pair is *supported* if n~ > T;
4. for h = H, ..., 1, with iota = log(H S A / p), b_h = H - h + 1, r known or r~ = 1/2 + R~ / n~ from
   centred sums,

       Gamma = c1 sqrt(Var_{P~}(V_{h+1}) iota / max(n~ - T, 1)) + (c2 S E + c3) H iota / n~          (1)
       Q_h = clip(r + P~ V_{h+1} - Gamma, 0, b_h) if supported, else 0;   V_h = max_a Q_h,

   greedily; ``pessimism="hoeffding"`` has H in place of the standard deviation. As no reward is negative,
   a known r is a lower bound of its own: with ``reward_floor`` Q_h is never below it, supported or not.
   Unsupported pairs have Gamma = C H with C > 1 in the paper, that is Q = 0. Unknown rewards add

       (c1 / sqrt 2) sqrt(iota / (2 max(n~ - T, 1))) + c4 (E_r + E / 2) / n~                           (2)

   (Hoeffding, and |R~ - R| <= E_r; both factors are 1 at the constants of the theory).

E / 2 bounds every noise of visits and transitions with probability 1 - p, E_r that of rewards. In the
paper, with rho-zCDP, sigma^2 = 2 H / rho and E = 4 sqrt(H log(4 H S^2 A / p) / rho); with Laplace noise
of scale 4 H / epsilon, E = (8 H / epsilon) log(2 H S^2 A / p) (``E_mode="published"``). ``quantile`` reads E
off the release's exact law instead.

Sensitivity (:mod:`discreet.privacy.counts`): a replaced trajectory moves one unit out of one cell and one
into another in each table at every step, so l2 = sqrt(2 H) a table, sqrt(4 H) in all, and l1 = 4 H: the
paper's noise is exact (its text says 2 H for sqrt(2 H)). Corrections: as printed the penalty vanishes
with E, so the algorithm does not reduce to APVI without noise; the term c3 H iota / n~, c3 = 7/3, of the
empirical Bernstein inequality makes it do so. Without visits in the release (``visits="derived"``: each is
the sum of S counts, and a count's variance is halved) sigma_v^2 is S H / rho against 2 H / rho.

Pessimism. At ``preset="theory"`` V_1 is at most the value of the policy, but for probability p each for
noise and sampling. The ``default`` constants are measured, not proven; privacy is touched by neither.
They were chosen on random MDPs (S = 3, 5, 8 and 16, A = 3, H = 5; 24 of each size, rho = 0.1 and 1, n from
300 to 30 000) that no table in the documentation uses: the least-squares combination, the floor of known
rewards and a c2 ten times below the specification's 0.0003 each lower the suboptimality there; deriving
visits does for S <= 4 only. Unknown rewards (S = 5) need c4 = 0.1 (0 and 0.3 are worse); shares from 0.3 to
0.6 for them are alike, and better than 0.2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.estimation import kernels
from discreet.estimation.model import release_rows
from discreet.mdp.layout import Layout
from discreet.numerics import checks
from discreet.numerics.knobs import Knobs
from discreet.privacy.counts import CENTERED_REWARDS, REWARDS, TRANSITIONS, VISITS, CountQuery
from discreet.privacy.guarantee import Guarantee
from discreet.privacy.protocol import NoiseLaw, Release, Schedule, Spec

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_DERIVE_UP_TO = 4  # states: up to here, sums of transitions are as good as visits of their own

__all__ = ["APVI", "DPAPVI", "OfflinePolicy"]


@dataclass(frozen=True, eq=False)
class OfflinePolicy:
    """What an offline learner made of one release.

    policy : (H, S) int, the first maximiser of q.
    q : (H, S, A) pessimistic values in [0, H]; -inf at inadmissible pairs.
    values : (H + 1, S), max over actions of q; lower bounds of the policy's values under the theory's
        constants (``heuristics`` is empty), with probability 1 - failure each for noise and sampling.
    supported : (H, S), whether the estimated visits of the policy's own action are above T before they are
        truncated and projected: an unbiased reading, where n~ of a pair that nobody played is up to E / 2
        (the positive halves of S noises), so that the planner may still play it.
    visits : (H, S, A), the consistent counts n~ of the release.
    threshold : T, in visits. noise_error : E, twice the bound of one count's noise. users : in the release.
    guarantee : of the release; it covers all of this.
    heuristics : why ``values`` are no proven bounds, in words.
    """

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

    def lower_bound(self, initial: ArrayLike) -> float:
        """The pessimistic value from a public initial distribution (S,), in [0, H]."""
        start = checks.probabilities("initial", checks.floats("initial", initial, self.values.shape[1:]))
        return float(start @ self.values[0])


class _Counts(NamedTuple):
    """Consistent counts by rows, and what is known of their noise."""

    moves: Floats  # (H, R, S) x
    visits: Floats  # (H, R) n~
    estimated: Floats  # (H, R) of visits, before truncation and projection: unbiased
    rewards: Floats  # (H, R) r~, or the known ones
    sigma: float  # standard deviation of the estimate of visits before its projection
    error: float  # E
    reward_error: float  # E_r


def _published_bound(law: NoiseLaw, noises: int, failure: float) -> float:
    """The paper's union bound over ``noises`` Gaussians (2 exp(-t^2 / 2) each) or Laplace variables."""
    if "laplace" in law.family:
        return law.std() / math.sqrt(2) * math.log(noises / failure)
    return law.std() * math.sqrt(2 * math.log(2 * noises / failure))


@dataclass(frozen=True, kw_only=True)
class _Pessimistic(Knobs):
    """Equations (1) and (2) on whatever counts, with whatever is said of their noise."""

    c1: float | None = None
    c3: float | None = None
    min_visits: float | None = None
    pessimism: Literal["bernstein", "hoeffding"] | None = None
    failure: float | None = None
    clip: Literal["H-h+1", "H"] | None = None
    reward_share: float | None = None
    reward_floor: bool | None = None

    _NAMES: ClassVar[tuple[str, ...]] = ("c1", "c3", "min_visits")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self._NAMES:
            object.__setattr__(self, name, checks.real(name, getattr(self, name), 0.0))
        checks.choice("pessimism", self.pessimism, ("bernstein", "hoeffding"))
        checks.real("failure", self.failure, 0.0, 1.0, open_low=True, open_high=True)
        checks.choice("clip", self.clip, ("H-h+1", "H"))
        object.__setattr__(self, "reward_floor", checks.flag("reward_floor", self.reward_floor))
        if self.reward_share is not None:
            checks.real("reward_share", self.reward_share, 0.0, 1.0, open_low=True, open_high=True)

    # ------------------------------------------------------------------ before data
    def query(self, spec: Spec) -> CountQuery:
        """What is asked of the data: transitions, perhaps visits, and centred rewards unless known."""
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
        """One release, after all users, whose policy may have been any."""
        return Schedule.one_shot(users, plans="stochastic")

    # ------------------------------------------------------------------- after data
    def learn(self, release: Release, spec: Spec) -> OfflinePolicy:
        """The policy from one release.

        Raises
        ------
        ValueError
            If the release does not fit the layout, pools the steps, is made before anybody came, or holds
            no rewards though ``spec.known_rewards`` is None.
        """
        layout = spec.layout
        if release.users == 0:
            raise ValueError("release.users = 0: nobody came before it")
        slots = np.shape(release.estimates[TRANSITIONS].value)[0] if TRANSITIONS in release.estimates else 0
        if slots == 1 and layout.horizon > 1:
            raise ValueError("release pools the steps: this learner reads counts per step")
        if spec.known_rewards is None and not {REWARDS, CENTERED_REWARDS} & set(release.estimates):
            raise ValueError("release holds no rewards: must hold them, or spec.known_rewards must be given")
        counts = self._counts(release, spec)
        threshold = self._threshold(counts)
        supported = counts.visits > threshold
        q, values = self._plan(counts, supported, threshold, spec)
        table = layout.from_rows(q, fill=-np.inf)
        policy = np.ascontiguousarray(table.argmax(axis=-1), np.int64)
        has = layout.from_rows((counts.estimated > threshold).astype(np.float64)) > 0
        chosen = np.take_along_axis(has, policy[..., None], axis=-1)[..., 0]
        return OfflinePolicy(
            policy, table, values, chosen, layout.from_rows(counts.visits), threshold, counts.error,
            release.users, release.guarantee, tuple(self.heuristics()),
        )  # fmt: skip

    def heuristics(self) -> Iterator[str]:
        """Why the values are no proven lower bounds, if so."""
        if self.c1 is not None and self.c1 < math.sqrt(2):
            yield f"c1 = {self.c1:g} is below sqrt(2)"
        if self.c3 is not None and self.c3 < 7 / 3:
            yield f"c3 = {self.c3:g} is below 7/3"

    def _counts(self, release: Release, spec: Spec) -> _Counts:
        raise TypeError(f"{type(self).__name__} reads no counts")

    def _threshold(self, counts: _Counts) -> float:
        return self.min_visits or 0.0

    def _noise_penalty(self, counts: _Counts, spec: Spec, iota: float) -> tuple[float, float]:
        """Numerators over n~ of the noise's penalties for transitions and for rewards."""
        return 0.0, 0.0

    def _plan(self, counts: _Counts, supported: Bools, threshold: float, spec: Spec) -> tuple[Floats, Floats]:
        """Equations (1) and (2): Q by rows (H, R) and V (H + 1, S)."""
        layout = spec.layout
        horizon, states = layout.horizon, layout.states
        c1, c3 = self.c1 or 0.0, self.c3 or 0.0
        iota = math.log(horizon * states * layout.actions / (self.failure or 0.05))
        moves_slack, rewards_slack = self._noise_penalty(counts, spec, iota)
        safe = np.where(supported, counts.visits, 1.0)
        width = np.sqrt(iota / np.maximum(safe - threshold, 1.0))
        fixed = (moves_slack + c3 * horizon * iota) / safe
        if spec.known_rewards is None:
            fixed += 0.5 * c1 * width + rewards_slack / safe
        q = np.empty(supported.shape)
        values = np.zeros((horizon + 1, states))
        for h in range(horizon - 1, -1, -1):
            # centred at mid-range: the variance of nearly equal large values stays exact
            middle = 0.5 * (values[h + 1].min() + values[h + 1].max())
            ahead = values[h + 1] - middle
            mean = counts.moves[h] @ ahead / safe[h]
            spread = np.full(layout.rows, float(horizon))
            if self.pessimism == "bernstein":
                spread = np.sqrt(np.maximum(counts.moves[h] @ (ahead * ahead) / safe[h] - mean * mean, 0.0))
            lower = counts.rewards[h] + mean + middle - c1 * width[h] * spread - fixed[h]
            cap = float(horizon - h if self.clip == "H-h+1" else horizon)
            q[h] = np.where(supported[h], np.clip(lower, 0.0, cap), 0.0)
            if self.reward_floor and spec.known_rewards is not None:
                q[h] = np.maximum(q[h], counts.rewards[h])
            values[h] = np.maximum.reduceat(q[h], layout.state_ptr[:-1])
        return q, values


def _rewards(release: Release, visits: Floats, sums: Floats, consistent: Floats, spec: Spec) -> Floats:
    """r~ by rows: known, or from centred or plain sums over the consistent counts, in [0, 1]."""
    if spec.known_rewards is not None:
        return spec.layout.to_rows(spec.known_rewards)
    safe = np.where(consistent > 0.0, consistent, 1.0)
    if CENTERED_REWARDS in release.estimates:
        return np.clip(0.5 + (sums - 0.5 * visits) / safe, 0.0, 1.0)
    return np.clip(sums / safe, 0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class APVI(_Pessimistic):
    """Adaptive pessimistic value iteration (Yin and Wang 2021) on exact counts: the baseline.

    The same code as :class:`DPAPVI` without noise. Given a noisy release it takes what is released,
    truncated at 0, as counts and ignores the noise law.

    Parameters
    ----------
    c1, c3 : float
        Constants of the penalty (1), at least 0: sqrt(2) and 7/3 in theory.
    min_visits : float
        Threshold: pairs with at most so many visits are unsupported; 0 in theory.
    pessimism, failure, clip, reward_share, reward_floor
        As for :class:`DPAPVI`.
    preset : "default" (c1 = 0.2, c3 = 0.02: measured), "theory" or "paper" (theory without the floor)
    """

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {
            "c1": 0.2, "c3": 0.02, "min_visits": 0.0, "pessimism": "bernstein", "failure": 0.05,
            "clip": "H-h+1", "reward_share": 0.2, "reward_floor": True,
        },
        "theory": {"c1": math.sqrt(2), "c3": 7 / 3},
        "paper": {"c1": math.sqrt(2), "c3": 7 / 3, "reward_floor": False},
    }  # fmt: skip

    def _counts(self, release: Release, spec: Spec) -> _Counts:
        visits, moves, sums = release_rows(release, spec.layout)
        kept, whole = np.maximum(visits, 0.0), np.maximum(moves, 0.0)
        return _Counts(whole, kept, visits, _rewards(release, visits, sums, kept, spec), 0.0, 0.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class DPAPVI(_Pessimistic):
    """DP-APVI (Qiao and Wang 2023, algorithm 1): pessimism from one private release of counts.

    Parameters
    ----------
    c1, c2, c3, c4 : float
        Constants of the penalties (1) and (2), at least 0: sampling, noise, lower order, noise of unknown
        rewards. sqrt(2), 16, 7/3 and 1 in theory.
    threshold : float or "bound"
        T in standard deviations of the noise of visits, or E ("bound", the paper's).
    min_visits : float
        T is at least this many visits.
    pessimism : "bernstein" or "hoeffding"
        The paper's algorithm 1, or its variant with H for the standard deviation.
    failure : float
        p in (0, 1).
    clip : "H-h+1" or "H"
        Upper end of Q.
    E_mode : "quantile" or "published"
        E from the exact law of the noise, or the paper's formula (which knows released visits only).
    width : float
        Half-width w of the projection, in units of E: 0.5 in the paper; 0 keeps the (truncated) visits.
    combine : bool
        Combine visits and transitions by least squares before the projection.
    visits : "released", "derived" or "auto"
        Release visits beside transitions (the paper), or derive them; ``auto``: derive for S <= 4.
    reward_share : float
        Share of the budget in (0, 1) for unknown rewards (0.2 in theory); visits and transitions share the
        rest equally.
    reward_floor : bool
        Where rewards are known: Q is at least the reward itself, a proven bound.
    preset : "default", "theory" or "paper"
        ``paper`` is as printed (no c3); ``theory`` the corrected constants, for which pessimism is proven.
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
            **APVI.PRESETS["default"], "c2": 0.00003, "c4": 0.1, "threshold": 1.0, "E_mode": "quantile",
            "width": 0.5, "combine": True, "visits": "auto", "reward_share": 0.4,
        },
        "theory": {
            **APVI.PRESETS["theory"], "c2": 16.0, "c4": 1.0, "threshold": "bound", "combine": False,
            "reward_share": 0.2,
        },
        "paper": {
            "c1": math.sqrt(2), "c2": 16.0, "c3": 0.0, "c4": 1.0, "threshold": "bound", "E_mode": "published",
            "combine": False, "visits": "released", "reward_floor": False, "reward_share": 0.2,
        },
    }  # fmt: skip
    _NAMES: ClassVar[tuple[str, ...]] = ("c1", "c2", "c3", "c4", "min_visits", "width")

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
        """Why the values are no proven lower bounds, if so."""
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

    def _threshold(self, counts: _Counts) -> float:
        own = counts.error if self.threshold == "bound" else float(self.threshold or 0.0) * counts.sigma
        return max(own, self.min_visits or 0.0)

    def _noise_penalty(self, counts: _Counts, spec: Spec, iota: float) -> tuple[float, float]:
        c2 = self.c2 or 0.0
        moves = c2 * spec.states * spec.horizon * counts.error * iota
        return moves, (self.c4 or 0.0) * (counts.reward_error + 0.5 * counts.error)

    def _counts(self, release: Release, spec: Spec) -> _Counts:
        layout = spec.layout
        visits, moves, sums = release_rows(release, layout)
        laws = {name: estimate.law for name, estimate in release.estimates.items()}
        error, reward_error = self._errors(laws, layout)
        sigma_moves = laws[TRANSITIONS].std()
        sigma = laws[VISITS].std() if VISITS in laws else math.sqrt(layout.states) * sigma_moves
        better = estimated = visits
        # the tables of moves are large, and ours: they change in place
        if self.combine and VISITS in laws and sigma > 0.0:
            both = sigma**2 + layout.states * sigma_moves**2
            gap = moves.sum(axis=-1) - visits
            better = estimated = visits + gap * (sigma**2 / both)
            moves -= (gap * (sigma_moves**2 / both))[..., None]
            sigma *= math.sqrt(layout.states) * sigma_moves / math.sqrt(both)
        if error > 0.0:
            np.maximum(moves, 0.0, out=moves)
            targets = np.maximum(better, 0.0).ravel()
            projected, moved = np.empty((targets.size, layout.states)), np.empty(targets.size)
            half = np.full(targets.size, (self.width or 0.0) * error)
            kernels.project_table(moves.reshape(projected.shape), targets, half, projected, moved)
            moves = projected.reshape(moves.shape)
            better = moves.sum(axis=-1)
        rewards = _rewards(release, visits, sums, better, spec)
        return _Counts(moves, better, estimated, rewards, sigma, error, reward_error)

    def _errors(self, laws: Mapping[str, NoiseLaw], layout: Layout) -> tuple[float, float]:
        """(E, E_r): 2 x what bounds the noises of visits and transitions, and that of rewards."""
        failure, pairs = self.failure or 0.05, layout.horizon * layout.rows
        moves, noises = laws[TRANSITIONS], 2 * pairs * layout.states  # as many as both tables have at most
        reward = next((laws[name] for name in (CENTERED_REWARDS, REWARDS) if name in laws), None)
        if self.E_mode == "published" and VISITS in laws:
            error = 2 * max(_published_bound(law, noises, failure) for law in (laws[VISITS], moves))
            return error, 0.0 if reward is None else _published_bound(reward, pairs, failure)
        of_visits = laws[VISITS].bound(failure / 2) if VISITS in laws else moves.bound(failure / 2, rows=True)
        error = 2.0 * max(of_visits, moves.bound(failure / 2))
        return float(error), 0.0 if reward is None else float(reward.bound(failure))
