r"""PUCB (Vietri, Balle, Krishnamurthy and Wu 2020): Q is the upper limit while the noise exceeds the count.

N-hat, R-hat and N3-hat are the released noisy visits, reward sums and transition counts of a state-action
pair at a step. E1, E2 and E3 bound their noise. With n = N-hat and E = max(E1, E2, E3),

    n >= 2 E:  Q = min(cap, (R-hat + sum_s' V(s') N3-hat) / n + (H + 1) phi + psi),

               phi = sqrt(2 log(K / f') / max(n - E, 1)),  psi = (1 + S H)(3 E / n + 2 E^2 / n^2);

    else:      Q = cap.

The bonus is valid because n >= 2E implies N >= n - E >= E. The noise then changes the estimated reward by at
most 2 E / n, and the estimated mean of V by at most H (S + 1) E / n. The probability f' is a quarter of the
failure probability.

The published logarithm log(K / f') omits the union bound over pairs and steps. ``constants="tight"`` uses K H
S A instead of K in the logarithm, and the range of V[h+1] instead of H. The published regret bound O~(sqrt(S
A H^3 T) + S^2 A H^3 / epsilon) omits an error term (Chowdhury and Zhou 2021). The bound that the proof
supports has S^2 in its first term.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from discreet.core import checks
from discreet.core.releases import Floats, Ints
from discreet.learners.estimation.tabular_model import POSTS
from discreet.learners.online import bonuses
from discreet.learners.online import tabular_planning_kernels as kernels
from discreet.learners.online.tabular_base import AS_PUBLISHED, ErrorAware, GreedyLearner
from discreet.mechanisms.interfaces import NoiseDistribution, ProblemSpec


@dataclass(frozen=True, kw_only=True)
class PUCB(ErrorAware, GreedyLearner):
    """PUCB (Vietri et al. 2020) with any privatizer. The paper uses the tree mechanism.

    Parameters
    ----------
    preset : "default", "theory" or "paper"
        ``default``: smaller constants (heuristic). ``theory``: proven constants, and exact quantiles of the
        noise. ``paper``: the published constants and the published error bound (3 / epsilon) H log((2 S A H +
        S^2 A H) / f') log(K)^{5/2}. The code computes this bound from the standard deviation (std) of the
        noise as std / sqrt(2) log((2 S A H + S^2 A H) / f') log(K).
    clip_negative : bool
        True: replace negative counts by 0.

    For further options see :class:`~discreet.learners.online.tabular_base.ErrorAware`,
    :class:`~discreet.learners.online.tabular_base.GreedyLearner` and their base.
    """

    clip_negative: bool | None = None

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {
            "bonus_scale": 1.0, "stat_scale": 1.0, "stat_const": 0.2, "constants": "tight", "cap": "H-h+1",
            "stationary": False, "derive_visits": True, "center_rewards": True,
            "known_rewards": False, "failure": 0.05, "monotone": False, "tie_break": "random",
            "priv_scale": 0.003, "E_mode": "sd", "E_z": 0.1, "noise_failure": 0.05, "clip_negative": True,
        },
        "theory": {**AS_PUBLISHED, "stat_const": "theory", "priv_scale": 1.0, "E_mode": "quantile"},
        "paper": {
            **AS_PUBLISHED, "stat_const": "theory", "constants": "published", "priv_scale": 1.0,
            "E_mode": "published", "clip_negative": False,
        },
    }  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "clip_negative", checks.flag("clip_negative", self.clip_negative))

    def errors(self, laws: Mapping[str, NoiseDistribution], spec: ProblemSpec) -> Floats:
        """Return the (5,) bounds E1, E2, E3, E_row, 0 on noise with the distributions ``laws``."""
        if self.E_mode != "published":
            return super().errors(laws, spec)
        pairs, horizon, users = spec.layout.rows, spec.horizon, bonuses.users(spec)
        share = 0.25 * (0.05 if self.noise_failure is None else self.noise_failure)
        cells = math.log((2 + spec.states) * pairs * horizon / share)
        std = max(law.std_bound() for law in laws.values())
        errors = np.zeros(kernels.ERRORS)
        errors[:3] = std / math.sqrt(2) * cells * max(1.0, math.log(users))
        return errors

    def _fill(self, spec: ProblemSpec, flags: Ints, knobs: Floats) -> int:
        tight = self.constants == "tight"
        flags[kernels.WIDTH] = kernels.WIDTH_PUCB
        flags[kernels.POST] = POSTS["raw"]
        flags[kernels.RANGE] = kernels.RANGE_FUTURE if tight else kernels.RANGE_HORIZON
        flags[kernels.CLIP_NEGATIVE] = int(bool(self.clip_negative))
        share = 0.25 * (self.failure or 0.05)
        many = float(bonuses.users(spec))
        if tight:
            many *= spec.horizon * spec.layout.rows
        width = math.sqrt(2 * math.log(many / share))
        if self.stat_const is not None and not isinstance(self.stat_const, str):
            width = self.stat_const
        knobs[kernels.OUTER] = knobs[kernels.INNER] = width
        knobs[kernels.PRIVACY] = 1.0 if self.priv_scale is None else self.priv_scale
        return self._greedy_flags(flags)
