r"""LDP-OBI (Garcelon, Perchet, Pike-Burke and Pirotta 2021): optimistic induction with local privacy.

R-hat, N-hat and N3-hat are the noisy reward sums, visits and transition counts before user k. Bounds on their
noise are c1 for R-hat, c2 for N-hat, c3 for the sum of N3-hat over s', and c4 for an entry of N3-hat. With
alpha > 1 and failure probability f,

    r~ = R-hat / D_r,  D_r = N-hat + alpha c2,       P~ = N3-hat / D_p,  D_p = sum_s' N3-hat + alpha c3,

    beta^r = sqrt(2 log(4 pi^2 S A H k^3 / f) / D_r) + ((alpha + 1) c2 + c1) / D_r,

    beta^p = sqrt(14 S log(4 pi^2 S A H k^3 / f) / D_p) + (S c4 + (alpha + 1) c3) / D_p,

    Q = r~ + beta^r + P~ V + H beta^p,    V = min(H - h + 1, max_a Q).

Denominators are at least 1, and negative counts are replaced by 0. The paper pools the counts of all steps;
here the option ``stationary`` selects pooling. Without pooling, the regret is O~(sqrt(S^2 A H^3 T) +
S^2 A sqrt(H^5 T) / epsilon). With ``constants="tight"``, the terms with square roots use the widths L_r and
L_p of :mod:`discreet.learners.online.bonuses`, and the range of V[h+1] replaces H.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from discreet.core import checks
from discreet.core.releases import Floats, Ints
from discreet.learners.estimation.tabular_model import POSTS
from discreet.learners.online import bonuses
from discreet.learners.online import tabular_planning_kernels as kernels
from discreet.learners.online.tabular_base import AS_PUBLISHED, ErrorAware, GreedyLearner
from discreet.mechanisms.interfaces import ProblemSpec


@dataclass(frozen=True, kw_only=True)
class LDPOBI(ErrorAware, GreedyLearner):
    """LDP-OBI (Garcelon et al. 2021) with any privatizer. The paper uses local privacy.

    Parameters
    ----------
    preset : "default", "theory" or "paper"
        ``default``: smaller constants (heuristic). ``theory``: tight constants. ``paper``: the published
        constants. The paper assumes a stationary problem; set ``stationary`` if the problem is stationary.
    alpha : float
        Factor of the noise bound that is added to the counts in the denominators. The theory needs a value
        above 1.
    clip_negative : bool
        True: replace negative counts by 0.

    For further options see :class:`~discreet.learners.online.tabular_base.ErrorAware`,
    :class:`~discreet.learners.online.tabular_base.GreedyLearner` and their base.
    """

    alpha: float | None = None
    clip_negative: bool | None = None

    reads_row_sums: ClassVar[bool] = True
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {
            "bonus_scale": 1.0, "stat_scale": 1.0, "stat_const": 0.2, "constants": "tight", "cap": "H-h+1",
            "stationary": False, "derive_visits": True, "center_rewards": True,
            "known_rewards": False, "failure": 0.05, "monotone": False, "tie_break": "random",
            "priv_scale": 0.03, "E_mode": "sd", "E_z": 1.0, "noise_failure": 0.05, "alpha": 2.0,
            "clip_negative": True,
        },
        "theory": {**AS_PUBLISHED, "stat_const": "theory", "priv_scale": 1.0, "E_mode": "quantile"},
        "paper": {
            **AS_PUBLISHED, "stat_const": "theory", "constants": "published", "priv_scale": 1.0,
            "E_mode": "quantile", "clip_negative": False,
        },
    }  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "alpha", checks.real("alpha", self.alpha, 1.0))
        object.__setattr__(self, "clip_negative", checks.flag("clip_negative", self.clip_negative))

    def _fill(self, spec: ProblemSpec, flags: Ints, knobs: Floats) -> int:
        tight = self.constants == "tight"
        flags[kernels.WIDTH] = kernels.WIDTH_OBI
        flags[kernels.POST] = POSTS["raw"]
        flags[kernels.RANGE] = kernels.RANGE_FUTURE if tight else kernels.RANGE_HORIZON
        flags[kernels.CLIP_NEGATIVE] = int(bool(self.clip_negative))
        failure, pairs = self.failure or 0.05, spec.layout.rows
        if self.stat_const is not None and not isinstance(self.stat_const, str):
            knobs[kernels.OUTER] = knobs[kernels.INNER] = self.stat_const
        elif tight:
            knobs[kernels.OUTER], knobs[kernels.INNER] = bonuses.hoeffding(spec, "tight", failure, l1=True)
        else:
            flags[kernels.GROWING_LOG] = 1
            knobs[kernels.OUTER] = math.sqrt(2.0)
            knobs[kernels.INNER] = math.sqrt(14.0 * spec.states)
            knobs[kernels.LOG_START] = math.log(4 * math.pi**2 * pairs * spec.horizon / failure)
        knobs[kernels.PRIVACY] = 1.0 if self.priv_scale is None else self.priv_scale
        knobs[kernels.ALPHA] = 2.0 if self.alpha is None else self.alpha
        return self._greedy_flags(flags)

    def heuristics(self) -> Iterator[str]:
        """Yield one string for each option value that the regret theorem does not cover."""
        yield from super().heuristics()
        if self.alpha is not None and self.alpha <= 1.0:
            yield f"alpha = {self.alpha:g} is not above 1"
