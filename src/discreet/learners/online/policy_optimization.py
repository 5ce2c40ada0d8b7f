r"""Optimistic policy optimization: OPPO without privacy, and Private-UCB-PO.

The first policy pi^1 is uniform. At each release, the learner computes, for h = H, ..., 1,

    Q_h = clip(r~ + P~ V_{h+1} + beta^r + G_h beta^p, 0, cap),    V_h = sum_a pi^k(a|s) Q_h(s, a).

Here r~ and P~ are the estimated rewards and transition probabilities, and beta^r + G_h beta^p is the
exploration bonus. User k follows pi^k. The next policy pi^{k+1}(a|s) is proportional to pi^k(a|s) exp(eta
Q_h(s, a)). If n users follow the policy of one release, n eta replaces eta.

- :class:`OPPO` (Efroni, Shani, Rosenberg and Mannor 2020, under the name POMD) uses exact counts.
- :class:`PrivateUCBPO` (Chowdhury and Zhou 2021, algorithm Private-UCB-PO) uses the Hoeffding bonus of
  :mod:`discreet.learners.online.bonuses`: beta^r = L_r / sqrt(D) + Lambda_r / D and beta^p = L_p / sqrt(D) +
  Lambda_p / D. Its regret is O~(sqrt(S^2 A H^3 T) + S^2 A H^2 E), where E is the error of the released
  counts.

V is an upper bound on the value of pi^k, but not on the optimal value V*. The theory sets eta = sqrt(2 log A
/ (H^2 K)). The ``default`` presets have a larger eta and smaller widths, without a theorem.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from discreet.core import checks
from discreet.core.releases import Floats, Ints
from discreet.learners.online import bonuses
from discreet.learners.online import tabular_planning_kernels as kernels
from discreet.learners.online.tabular_base import AS_PUBLISHED, BonusLearner, PostProcessed, Theory
from discreet.mechanisms.interfaces import ProblemSpec

Options = Mapping[str, Any]

_DEFAULT: Options = {
    "bonus_scale": 1.0, "stat_scale": 1.0, "stat_const": 0.1, "constants": "tight", "cap": "H-h+1",
    "stationary": False, "derive_visits": True, "center_rewards": True,
    "known_rewards": False, "failure": 0.05, "eta": 0.03,
}  # fmt: skip
_THEORY: Options = {**AS_PUBLISHED, "stat_const": "theory", "eta": "theory"}


@dataclass(frozen=True, kw_only=True)
class _MirrorDescent(BonusLearner):
    """Learner whose policy takes one step of mirror descent on Q for each user."""

    eta: float | Theory | None = None

    stochastic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eta != "theory":
            object.__setattr__(self, "eta", checks.real("eta", self.eta, 0.0))

    def memory_size(self, spec: ProblemSpec) -> int:
        """Return 2 H R + 1, the number of floats in memory: logits, Q, and the number of users."""
        return 2 * spec.horizon * spec.layout.rows + 1

    def _fill(self, spec: ProblemSpec, flags: Ints, knobs: Floats) -> int:
        flags[kernels.WIDTH] = kernels.WIDTH_HOEFFDING
        flags[kernels.RANGE] = kernels.RANGE_FUTURE if self.constants == "tight" else kernels.RANGE_HORIZON
        widths = bonuses.hoeffding(spec, self.constants or "tight", self.failure or 0.05, l1=True)
        if self.stat_const is not None and not isinstance(self.stat_const, str):
            widths = (self.stat_const, self.stat_const)
        knobs[kernels.OUTER], knobs[kernels.INNER] = widths
        if self.eta is not None and not isinstance(self.eta, str):
            knobs[kernels.ETA] = self.eta
        else:
            count = 2 * math.log(spec.actions) / (spec.horizon**2 * bonuses.users(spec))
            knobs[kernels.ETA] = math.sqrt(count)
        return kernels.POLICY_OPTIMIZATION

    def heuristics(self) -> Iterator[str]:
        """Yield one string for each option value that the regret theorem does not cover."""
        yield from super().heuristics()
        if self.eta != "theory":
            yield f"eta = {self.eta:g} is not that of the theory"


@dataclass(frozen=True, kw_only=True)
class OPPO(_MirrorDescent):
    """Optimistic policy optimization (Efroni et al. 2020) on exact counts, a non-private baseline.

    The learner also accepts noisy releases, and treats the noisy values as exact counts.

    Parameters
    ----------
    preset : "default", "theory" or "paper"
        ``default``: smaller widths and a larger step (heuristic). ``theory``: proven constants. ``paper``:
        the widths of Efroni et al.
    constants : "tight", "published" or "efroni"
        Constants of the widths. ``published``: those of Private-UCB-PO. ``efroni``: those of Efroni et al.
    eta : float or "theory"
        Step size of mirror descent per user, at least 0.

    For further options see :class:`~discreet.learners.online.tabular_base.TabularLearner`.
    """

    ignores_noise: ClassVar[bool] = True
    CONSTANTS: ClassVar[tuple[str, ...]] = ("tight", "published", "efroni")
    PRESETS: ClassVar[Mapping[str, Options]] = {
        "default": _DEFAULT,
        "theory": _THEORY,
        "paper": {**_THEORY, "constants": "efroni"},
    }


@dataclass(frozen=True, kw_only=True)
class PrivateUCBPO(_MirrorDescent, PostProcessed):
    """Private-UCB-PO (Chowdhury and Zhou 2021): optimistic policy optimization on noisy counts.

    Parameters
    ----------
    preset : "default", "theory" or "paper"
        ``default``: smaller widths, a larger step, and error bounds E in standard deviations (heuristic).
        ``theory``: proven constants. ``paper``: the published constants, with raw counts in cost form.
    eta : float or "theory"
        Step size of mirror descent per user, at least 0.

    For further options see :class:`~discreet.learners.online.tabular_base.PostProcessed` and its bases.
    """

    PRESETS: ClassVar[Mapping[str, Options]] = {
        "default": {
            **_DEFAULT, "priv_scale": 0.003, "E_mode": "sd", "E_z": 0.1, "noise_failure": 0.05, "post": "lp",
            "form": "reward", "missing_mass": "none", "clip_negative": True,
        },
        "theory": {**_THEORY, "priv_scale": 1.0, "E_mode": "quantile"},
        "paper": {
            **_THEORY, "constants": "published", "cap": "H", "priv_scale": 1.0, "E_mode": "published",
            "post": "raw", "form": "cost", "clip_negative": False,
        },
    }  # fmt: skip

    def _fill(self, spec: ProblemSpec, flags: Ints, knobs: Floats) -> int:
        self._post_flags(flags, knobs)
        return super()._fill(spec, flags, knobs)
