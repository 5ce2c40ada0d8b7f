r"""Value iteration and policy optimization for unbounded rewards, which devices clip.

Rewards X have means in [0, 1] and moments E|X|^(1 + v) <= u with 0 < v <= 1. A device clips X to [-B, B] with
a public threshold B; the result is X_B. The device reports y = X_B / (2 B) + 1/2, which is in [0, 1]
(:func:`truncated`). Query, noise and privacy guarantee are those of rewards in [0, 1]. The learner converts
the noisy sums of y - 1/2 to sums of X_B.

**Effect of clipping.** For n rewards (Bubeck, Cesa-Bianchi and Lugosi 2013):

    |E X_B - E X| <= u B^(-v),                              the bias,

    Var X_B <= E X_B^2 <= u B^(1 - v) =: s^2,

    s sqrt(2 L / n) + 2 B L / (3 n),                        the error of the mean of X_B.

The error bound holds with probability 1 - e^(-L) (Bernstein). The bias increases the regret of a user by at
most 2 H u B^(-v).

**Bonus.** The bonus is that for bounded rewards, with three changes. The coefficient L_r of 1 / sqrt(D) is
multiplied by 2 s. The noise bound E_2 of rewards is multiplied by 2 B. If there is noise, 2 B L / 3 is added
to E_2. The bias is not part of the bonus.

**Threshold.** If c bounds the noise of a sum of y, then the bias equals the error 2 B c / n from noise at

    B = (u n / (2 c))^(1 / (1 + v)),                        see :func:`balanced_threshold`.

**Source.** Wu, Zhou, Chowdhury and Wang (2023, arXiv 2306.01121) propose both algorithms. Their theorems do
not cover the bonus above, which was derived for this library. benchmarks/heavy_tails.md has experiments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from discreet.core import checks
from discreet.core.layout import Layout
from discreet.core.releases import Floats
from discreet.learners.online import tabular_planning_kernels as kernels
from discreet.learners.online.policy_optimization import PrivateUCBPO
from discreet.learners.online.tabular_base import PostProcessed
from discreet.learners.online.tabular_planning_kernels import LearnerKernel
from discreet.learners.online.ucbvi import PrivateUCBVI
from discreet.mechanisms.interfaces import NoiseDistribution, ProblemSpec, Release

Options = Mapping[str, Mapping[str, Any]]

_TAILS: Mapping[str, Any] = {"threshold": 8.0, "moment": 4.0, "order": 1.0}


def truncated(rewards: ArrayLike, threshold: float) -> Floats:
    """Return rewards X clipped to [-B, B] and mapped to [0, 1], y = X_B / (2 B) + 1/2.

    rewards : finite rewards of any size. threshold : B > 0.

    Raises ``ValueError`` if a reward is not finite or the threshold is not positive.
    """
    bound = checks.positive("threshold", threshold)
    given = checks.floats("rewards", rewards, np.shape(rewards))
    return np.asarray(np.clip(given / bound, -1.0, 1.0) * 0.5 + 0.5)


def balanced_threshold(moment: float, order: float, visits: float, noise: float) -> float:
    """Return the threshold B at which the bounds on bias and noise of a mean reward are equal.

    Parameters
    ----------
    moment : float
        Bound u > 0 of E|X|^(1 + v).
    order : float
        v in (0, 1].
    visits : float
        Public number n > 0 of visits of a pair, for example an estimate made without data.
    noise : float
        Bound c > 0 of the noise of a sum of rewards in [0, 1].

    Raises
    ------
    ValueError
        If a number is outside its range.
    """
    u, v = checks.positive("moment", moment), checks.real("order", order, 0.0, 1.0, open_low=True)
    n, c = checks.positive("visits", visits), checks.positive("noise", noise)
    return float((u * n / (2.0 * c)) ** (1.0 / (1.0 + v)))


@dataclass(frozen=True, kw_only=True)
class _Truncated(PostProcessed):
    """Learner that plans in the original units of rewards that devices clip."""

    threshold: float | None = None
    moment: float | None = None
    order: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        put(self, "threshold", checks.positive("threshold", self.threshold))
        put(self, "moment", checks.positive("moment", self.moment))
        put(self, "order", checks.real("order", self.order, 0.0, 1.0, open_low=True))
        if not self.center_rewards:
            raise ValueError("center_rewards = False: must be true, sums of y - 1/2 are sums of rewards")

    @property
    def truncates_at(self) -> float:
        """Threshold B. It must equal the threshold of the environment."""
        return float(self.threshold or 0.0)

    @property
    def _tails(self) -> tuple[float, float]:
        """Return the threshold B and the bound s = sqrt(u B^(1 - v)) on the standard deviation."""
        b, u, v = self.truncates_at, float(self.moment or 0.0), float(self.order or 0.0)
        return b, (u * b ** (1.0 - v)) ** 0.5

    def _tables(self, release: Release, layout: Layout) -> tuple[Floats, Floats, Floats]:
        visits, transitions, sums = super()._tables(release, layout)
        return visits, transitions, 2.0 * self._tails[0] * (sums - 0.5 * visits)

    def kernel(self, spec: ProblemSpec) -> LearnerKernel:
        """Return the constants of the bonus for the problem ``spec``."""
        out = super().kernel(spec)
        out.knobs[kernels.OUTER] *= 2.0 * self._tails[1]
        return out

    def errors(self, laws: Mapping[str, NoiseDistribution], spec: ProblemSpec) -> Floats:
        """Return the (5,) error bounds, with the bound of rewards in original units.

        laws : noise distribution of each released family. spec : public description of the problem.
        """
        errors, (b, sd) = super().errors(laws, spec), self._tails
        if not errors.any():  # exact sums are not projected
            return errors
        outer = self.kernel(spec).knobs[kernels.OUTER] / (2.0 * sd)  # sqrt(L / 2)
        errors[1] = 2.0 * b * (errors[1] - 0.5 * errors[0]) + 4.0 / 3.0 * b * outer**2
        return errors

    def heuristics(self) -> Iterator[str]:
        """Yield one string for each option value that the regret theorem does not cover."""
        yield from super().heuristics()
        yield f"rewards are truncated at {self.threshold:g}: the bias of truncation is not in the bonus"


@dataclass(frozen=True, kw_only=True)
class HeavyUCBVI(_Truncated, PrivateUCBVI):
    """Private value iteration for heavy-tailed rewards, with a Hoeffding bonus (after Wu et al. 2023).

    Parameters
    ----------
    threshold : float
        B > 0. Devices send X clipped to [-B, B] as X / (2 B) + 1/2. The environment must use the same B.
    moment : float
        Declared bound u > 0 of E|X|^(1 + v) for all state-action pairs.
    order : float
        v in (0, 1].

    For further options see :class:`~discreet.learners.online.ucbvi.PrivateUCBVI`.

    Raises
    ------
    ValueError
        If an option is out of its range, or ``center_rewards`` is False.
    """

    PRESETS: ClassVar[Options] = {
        name: {**PrivateUCBVI.PRESETS[name], "center_rewards": True, **_TAILS}
        for name in ("default", "theory")
    }


@dataclass(frozen=True, kw_only=True)
class HeavyUCBPO(_Truncated, PrivateUCBPO):
    """Private policy optimization for heavy-tailed rewards (after Wu et al. 2023).

    Parameters
    ----------
    threshold : float
        B > 0. Devices send X clipped to [-B, B] as X / (2 B) + 1/2. The environment must use the same B.
    moment : float
        Declared bound u > 0 of E|X|^(1 + v) for all state-action pairs.
    order : float
        v in (0, 1].

    For further options see :class:`~discreet.learners.online.policy_optimization.PrivateUCBPO`.

    Raises
    ------
    ValueError
        If an option is out of its range, or ``center_rewards`` is False.
    """

    PRESETS: ClassVar[Options] = {
        name: {**PrivateUCBPO.PRESETS[name], "center_rewards": True, **_TAILS}
        for name in ("default", "theory")
    }
