r"""Private model: estimates of transitions and rewards from one release, with bounds on the noise's effect.

With hats for released sums and |N^ - N| <= E1, |R^ - R| <= E2, |N3^ - N3| <= E3 uniformly, the rules ``post``
are:

- ``none``: D = max(1, N), Lambda_r = 0 and Lambda_p = 0. P~ sums to 1 if N > 0.
- ``raw``: D = max(1, N^ + E1), Lambda_r = 2 E1 + E2 and Lambda_p = S E3 + 2 E1. P~ does not sum to 1.
- ``lp``: D = N~ (projection), Lambda_r = E + E2 and Lambda_p = (S + 3) E / 2. P~ sums to 1.

Here E = 4 max(E1, E3), P~ = N3~ / D, and r~ = R^ / D clipped to [0, 1]. With ``raw``, negative N3^ are
clipped at 0. Clipping preserves the error bound. Without clipping, optimism fails. For every pair

    |r~ - r| <= L_r / sqrt(D) + Lambda_r / D,    ||P~ - P||_1 <= L_p / sqrt(D) + Lambda_p / D.

*Derivation.* |r~ - r| <= |R^ - R| / D + |R - N r| / D + r |N - D| / D. Raw: |N - D| <= 2 E1 if N^ + E1 >= 1,
else N = 0 and D = 1, absorbed by L_r >= 1. Projection: N <= D <= N + E. For the transitions the bound is sum
|N3~ - N3| / D + ||N3 - N P||_1 / D + |N - D| / D. There sum |N3~ - N3| <= S E3 (raw), or <= S E / 2 + E / 2
(projection: each entry moves by at most E / 2, plus E / (2 S)). In both cases N <= D implies sqrt(N) / D <= 1
/ sqrt(D). QED

Sources: Chowdhury and Zhou 2021 (raw), Qiao and Wang 2023 (lp).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.layout import Layout
from discreet.learners.estimation import model_kernels as kernels
from discreet.mechanisms.interfaces import NoiseDistribution, Release

Floats = NDArray[np.float64]
Post = Literal["none", "raw", "lp"]
ErrorMode = Literal["quantile", "sd", "published"]

POSTS: dict[str, int] = {"none": kernels.POST_NONE, "raw": kernels.POST_RAW, "lp": kernels.POST_LP}
VISITS, TRANSITIONS, REWARDS, CENTERED_REWARDS = (
    "visits", "transition_counts", "reward_sums", "centered_reward_sums",
)  # fmt: skip

__all__ = ["ErrorBounds", "Post", "PrivateModel", "noise_errors", "release_rows"]


def release_rows(release: Release, layout: Layout) -> tuple[Floats, Floats, Floats]:
    """Return released sums as tables of rows.

    The tables are visits (T, R), transitions (T, R, S) and reward sums (T, R). If visits were not released,
    they are computed as sums of transitions over s'. Centred reward sums are converted by R = Rc + N / 2.
    Absent reward sums are 0. The release can hold tables by (state, action) or tables by rows.

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
    if VISITS in tables:  # these arrays are not shared, so large tables need no further copy
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
    """Rule that computes bounds E1 (visits), E2 (rewards), E3 (transitions), E_row from noise distributions.

    Parameters
    ----------
    mode : "quantile", "sd" or "published"
        ``quantile``: exact two-sided tail quantiles, with a union bound over all cells and releases (theory).
        ``sd``: z standard deviations of the noise, at the release with the largest noise so far
        (experiments). ``published``: the papers' b sqrt(8 m log(6 S A T / failure)), that is 2 std
        sqrt(log(...)), with S^2 A T for transitions. It is below the true quantile for m < 7 terms.
    failure : float
        Total probability that any error exceeds its bound, in (0, 1).
    z : float
        Number of standard deviations in mode ``sd``, > 0.
    rows : bool
        True: bound the error of a row's sum of transition counts too. False: E_row = 0.
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
        """Return the (5,) float64 error bounds for a release whose families have these noise distributions.

        They are E1, E2, E3, E_row and 0. If visits were not released, E1 is the error of a row's sum of
        transitions. For centred rewards, E1 / 2 is added to E2. Without a reward family E2 = 0. ``episodes``
        is K, for mode ``published``.
        """
        share = self.failure / (4.0 if self.rows else 3.0)
        steps = float(layout.rows * layout.horizon * episodes)

        def bound(law: NoiseDistribution, rows: bool = False) -> float:
            if self.mode == "quantile":
                return float(law.bound(share, rows))
            # Noise is independent across the cells of a row.
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


def noise_errors(release: Release, layout: Layout, bounds: ErrorBounds, episodes: int = 10**10) -> Floats:
    """Return the (5,) error bounds of one release; see :class:`ErrorBounds`."""
    laws = {name: estimate.law for name, estimate in release.estimates.items()}
    return bounds.of(laws, layout, episodes)


@dataclass(frozen=True, eq=False)
class PrivateModel:
    """Transitions and rewards estimated from one release; see the module for formulas and bounds.

    Attributes
    ----------
    denominators : (T, S, A)
        D; 0 at inadmissible pairs. T = 1 if steps are pooled, else H.
    transitions : (T, S, A, S)
        P~. With post "raw", rows need not sum to 1, so do not sample from these rows.
    rewards : (T, S, A)
        r~ in [0, 1].
    reward_slack, transition_slack : float
        Lambda_r and Lambda_p, in counts; divide them by D.
    errors : (5,)
        E1, E2, E3, E_row, 0.
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
        cls,
        release: Release,
        layout: Layout,
        post: Post = "lp",
        bounds: ErrorBounds | None = None,
        clip_negative: bool = True,
    ) -> PrivateModel:
        """Estimate the model from a release.

        Parameters
        ----------
        release : Release
            Release of a :class:`~discreet.core.count_query.CountQuery`.
        layout : Layout
            Public sizes and admissible pairs.
        post : "none", "raw" or "lp"
            Post-processing. A release without noise is never post-processed.
        bounds : ErrorBounds, optional
            Rule for the error bounds; by default exact quantiles with failure probability 0.05.
        clip_negative : bool
            Post "raw": clip negative noisy counts at 0 (default).

        Raises
        ------
        ValueError
            If ``post`` is unknown or the release does not fit the layout.
        """
        checks.choice("post", post, POSTS)
        errors = noise_errors(release, layout, bounds or ErrorBounds())
        visits, transitions, reward_sums = release_rows(release, layout)
        code = POSTS[post] if errors[:3].any() else kernels.POST_NONE
        slots, rows, states = transitions.shape
        masses, columns = np.empty((slots * rows, states)), np.empty((4, slots * rows))
        kernels.estimate_table(
            code, clip_negative, False, errors[0], errors[2], visits.ravel(),
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
