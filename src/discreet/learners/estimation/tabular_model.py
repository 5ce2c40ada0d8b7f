r"""Private model: transitions and rewards estimated from one release, with bounds on the effect of noise.

N, R and N3 are the true visits, reward sums and transition counts of a pair. N^, R^ and N3^ are the released
values. Suppose that |N^ - N| <= E1, |R^ - R| <= E2 and |N3^ - N3| <= E3 for all cells. There are three
post-processing rules ``post``:

- ``none``: D = max(1, N), Lambda_r = 0 and Lambda_p = 0. P~ sums to 1 if N > 0.
- ``raw``: D = max(1, N^ + E1), Lambda_r = 2 E1 + E2 and Lambda_p = S E3 + 2 E1. P~ does not sum to 1.
- ``lp``: D = N~ (projection), Lambda_r = E + E2 and Lambda_p = (S + 3) E / 2. P~ sums to 1.

Here E = 4 max(E1, E3), P~ = N3~ / D, and r~ = R^ / D clipped to [0, 1]. With ``raw``, N3~ is N3^ with
negative values set to 0. For every pair

    |r~ - r| <= L_r / sqrt(D) + Lambda_r / D,    ||P~ - P||_1 <= L_p / sqrt(D) + Lambda_p / D.

*Derivation.* |r~ - r| <= |R^ - R| / D + |R - N r| / D + r |N - D| / D. For ``raw``, |N - D| <= 2 E1 if N^ +
E1 >= 1. Otherwise N = 0 and D = 1, and L_r >= 1 covers this case. For ``lp``, N <= D <= N + E. For the
transitions, the bound is sum |N3~ - N3| / D + ||N3 - N P||_1 / D + |N - D| / D. The first sum is at most S E3
for ``raw``. For ``lp``, the first sum is at most S E / 2 + E / 2, because each entry changes by at most E / 2
+ E / (2 S). In both cases, N <= D implies sqrt(N) / D <= 1 / sqrt(D). QED

Sources: Chowdhury and Zhou 2021 (raw), Qiao and Wang 2023 (lp).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from discreet.core import checks
from discreet.core.layout import Layout
from discreet.core.releases import Floats
from discreet.learners.estimation import model_kernels as kernels
from discreet.mechanisms.interfaces import NoiseDistribution, Release

Post = Literal["none", "raw", "lp"]
ErrorMode = Literal["quantile", "sd", "published"]

POSTS: dict[str, int] = {"none": kernels.POST_NONE, "raw": kernels.POST_RAW, "lp": kernels.POST_LP}
VISITS, TRANSITIONS, REWARDS, CENTERED_REWARDS = (
    "visits", "transition_counts", "reward_sums", "centered_reward_sums",
)  # fmt: skip


def release_rows(release: Release, layout: Layout) -> tuple[Floats, Floats, Floats]:
    """Return the released sums as three tables with one entry per admissible pair.

    The tables are visits (T, R), transitions (T, R, S) and reward sums (T, R). If visits were not released,
    they are computed as sums of transitions over s'. Centred reward sums Rc are converted to R = Rc + N / 2.
    If no rewards were released, the reward sums are 0.

    Raises
    ------
    ValueError
        If there are no transition counts, an estimate is not a sum over users, or a shape does not fit the
        layout.
    """
    estimates = release.estimates
    if TRANSITIONS not in estimates:
        raise ValueError(f"release holds {', '.join(estimates) or 'nothing'}: must hold {TRANSITIONS}")
    slots = int(np.shape(estimates[TRANSITIONS].value)[0])
    if slots not in (1, layout.horizon):
        raise ValueError(f"release has {slots} steps: must have 1 (pooled) or H = {layout.horizon}")
    rewards = next((name for name in (REWARDS, CENTERED_REWARDS) if name in estimates), None)
    tables: dict[str, Floats] = {}
    for name in (VISITS, TRANSITIONS, rewards):
        if name is None or name not in estimates:
            continue
        estimate = estimates[name]
        if estimate.estimand != "sum":
            raise ValueError(
                f"release.{name} estimates a {estimate.estimand} sum: this estimator reads plain sums"
            )
        tail = (layout.states,) if name == TRANSITIONS else ()
        pairs, rows = (slots, layout.states, layout.actions, *tail), (slots, layout.rows, *tail)
        shape = np.shape(estimate.value)
        if shape not in (pairs, rows):
            raise ValueError(f"release.{name} has shape {shape}: must be {pairs}")
        value = checks.floats(f"release.{name}", estimate.value, shape)
        tables[name] = layout.to_rows(value) if shape == pairs else value
    if VISITS in tables:  # no other code uses these arrays, so large tables are not copied again
        visits, sums = tables[VISITS], np.zeros((slots, layout.rows))
        if rewards is not None:
            sums = tables[rewards] if rewards == REWARDS else tables[rewards] + 0.5 * visits
        return visits, tables[TRANSITIONS], sums
    kind = {
        None: kernels.REWARD_ABSENT,
        REWARDS: kernels.REWARD_SUMS,
        CENTERED_REWARDS: kernels.REWARD_CENTERED,
    }
    visits = np.empty((slots, layout.rows))
    transitions = np.empty((slots, layout.rows, layout.states))
    reward_sums = np.empty((slots, layout.rows))
    cells = np.concatenate([table.ravel() for table in tables.values()])
    kernels.assemble(cells, False, kind[rewards], visits, transitions, reward_sums)
    return visits, transitions, reward_sums


@dataclass(frozen=True)
class ErrorBounds:
    """Rule that computes bounds on the noise of released counts from the noise distributions.

    E1 bounds the noise of visits, E2 that of rewards, and E3 that of transitions. E_row bounds the noise of
    the sum of a row of transition counts over successors.

    Parameters
    ----------
    mode : "quantile", "sd" or "published"
        ``quantile``: exact two-sided tail quantiles, with a union bound over all cells and releases.
        ``sd``: z standard deviations of the noise at the release with the largest noise so far.
        ``published``: the formula b sqrt(8 m log(6 S A T / failure)) of the papers, which
        equals 2 std sqrt(log(...)), with S^2 A T for transitions. For m < 7 terms, it is below the true
        quantile.
    failure : float
        Total probability that any error exceeds its bound, in (0, 1).
    z : float
        Number of standard deviations in mode ``sd``, > 0.
    rows : bool
        True: compute E_row. False: E_row = 0.
    """

    mode: ErrorMode = "quantile"
    failure: float = 0.05
    z: float = 1.0
    rows: bool = False

    def __post_init__(self) -> None:
        checks.choice("E_mode", self.mode, ("quantile", "sd", "published"))
        checks.real("noise_failure", self.failure, 0.0, 1.0, open_low=True, open_high=True)
        checks.positive("E_z", self.z)

    def of(self, laws: Mapping[str, NoiseDistribution], layout: Layout, episodes: int) -> Floats:
        """Return the (5,) float64 error bounds of a release: E1, E2, E3, E_row and 0.

        If visits were not released, E1 is the bound for the sum of a row of transition counts. For centred
        rewards, E1 / 2 is added to E2. If no rewards were released, E2 = 0.

        laws : noise distribution of each released family. episodes : number of episodes K, used only by the
        mode ``published``.
        """
        share = self.failure / (4.0 if self.rows else 3.0)
        steps = float(layout.rows * layout.horizon * episodes)

        def bound(law: NoiseDistribution, rows: bool = False) -> float:
            if self.mode == "quantile":
                return float(law.bound(share, rows))
            # The noise of different cells in a row is independent, so variances add.
            std = float(law.std_bound()) * (math.sqrt(layout.states) if rows else 1.0)
            if self.mode == "sd":
                return self.z * std
            many = layout.states if law is laws[TRANSITIONS] else 1
            return 2.0 * std * math.sqrt(math.log(6.0 * steps * many / self.failure))

        if TRANSITIONS not in laws:
            raise ValueError(f"laws name {', '.join(laws) or 'nothing'}: must name {TRANSITIONS}")
        errors = np.zeros(5)
        derived = VISITS not in laws
        e_row = bound(laws[TRANSITIONS], True) if derived or self.rows else 0.0
        errors[0] = e_row if derived else bound(laws[VISITS])
        if REWARDS in laws:
            errors[1] = bound(laws[REWARDS])
        elif CENTERED_REWARDS in laws:
            errors[1] = bound(laws[CENTERED_REWARDS]) + 0.5 * errors[0]
        errors[2] = bound(laws[TRANSITIONS])
        errors[3] = e_row if self.rows else 0.0
        return errors


@dataclass(frozen=True, eq=False)
class PrivateModel:
    """Transition probabilities and rewards, estimated from one release.

    The module docstring has the formulas and error bounds.

    Attributes
    ----------
    denominators : (T, S, A)
        D; 0 at inadmissible pairs. T = 1 if steps are pooled, else H.
    transitions : (T, S, A, S)
        Estimated probabilities P~. With post "raw", rows need not sum to 1.
    rewards : (T, S, A)
        Estimated rewards r~, in [0, 1].
    reward_slack, transition_slack : float
        Lambda_r and Lambda_p, in counts; divide them by D to get error bounds.
    errors : (5,)
        The bounds E1, E2, E3 and E_row on noise, and 0.
    post : "none", "raw" or "lp"
    """

    denominators: Floats
    transitions: Floats
    rewards: Floats
    reward_slack: float
    transition_slack: float
    errors: Floats
    post: str

    @classmethod
    def from_release(
        cls, release: Release, layout: Layout, post: Post = "lp", bounds: ErrorBounds | None = None
    ) -> PrivateModel:
        """Estimate the model from a release.

        Parameters
        ----------
        release : Release
            Release of a :class:`~discreet.core.count_query.CountQuery`.
        layout : Layout
            Public numbers of states, actions and steps, and the admissible pairs.
        post : "none", "raw" or "lp"
            Post-processing. A release without noise is not post-processed. With "raw", negative noisy
            transition counts are set to 0.
        bounds : ErrorBounds, optional
            Rule for the bounds on noise. None: exact quantiles with failure probability 0.05.

        Raises
        ------
        ValueError
            If ``post`` is unknown or the release does not fit the layout.
        """
        checks.choice("post", post, POSTS)
        laws = {name: estimate.law for name, estimate in release.estimates.items()}
        errors = (bounds or ErrorBounds()).of(laws, layout, 10**10)
        visits, transitions, reward_sums = release_rows(release, layout)
        code = POSTS[post] if errors[:3].any() else kernels.POST_NONE
        slots, rows, states = transitions.shape
        masses, columns = np.empty((slots * rows, states)), np.empty((4, slots * rows))
        kernels.estimate_table(
            code, True, False, errors[0], errors[2], visits.ravel(),
            transitions.reshape(slots * rows, states), reward_sums.ravel(), masses, columns,
        )  # fmt: skip
        inverses = columns[1]
        reward, transition = kernels.slacks(code, states, errors[0], errors[1], errors[2])
        return cls(
            layout.from_rows((1.0 / inverses).reshape(slots, rows)),
            layout.from_rows((masses * inverses[:, None]).reshape(slots, rows, states)),
            layout.from_rows(columns[2].reshape(slots, rows)),
            float(reward),
            float(transition),
            errors,
            next(name for name, value in POSTS.items() if value == code),
        )
