r"""Optimistic value iteration: UCB-VI without privacy, Private-UCB-VI, and DP-UCBVI.

At each release the learner computes for h = H, ..., 1:

    Q_h = clip(r~ + P~ V_{h+1} + b_h, 0, cap_h),   Q_h = min(Q_h, Q_prev) if monotone,   V_h = max_a Q_h.

Here r~ and P~ are the rewards and transition probabilities estimated from the release, b_h is the exploration
bonus (:mod:`discreet.learners.online.bonuses`), and cap_h is the upper limit of Q at step h. Q_prev is the Q
of the previous release. The Q of a state-action pair without visits is the cap.

- :class:`UCBVI` (Azar, Osband and Munos 2017) uses exact counts and is the non-private baseline.
- :class:`PrivateUCBVI` (Chowdhury and Zhou 2021, algorithm Private-UCB-VI) uses a Hoeffding bonus. Its regret
  is O~(sqrt(S A H^3 T) + S^2 A H^2 E), where E is the error of the released counts.
- :class:`DPUCBVI` (Qiao and Wang 2023, algorithm 1) uses a Bernstein bonus on projected counts. Its regret is
  O~(sqrt(S A H^2 T) + S^2 A H^2 E).

The ``default`` presets use smaller bonuses without a theorem, because Q stays at the cap with the papers'
constants.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from discreet.core import checks
from discreet.core.releases import Floats, Ints
from discreet.learners.online import bonuses
from discreet.learners.online import tabular_planning_kernels as kernels
from discreet.learners.online.tabular_base import AS_PUBLISHED, BonusLearner, GreedyLearner, PostProcessed
from discreet.mechanisms.interfaces import ProblemSpec

Options = Mapping[str, Any]

_PUBLIC_CODE_CONST = math.sqrt(2 * math.log(3))  # constant in the code published by Chowdhury and Zhou

# Options of the sampling terms of the bonus. Learners with and without privacy noise share them.
_PLAIN: Options = {
    "bonus_scale": 1.0, "stat_scale": 1.0, "stat_const": "theory", "cap": "H-h+1", "stationary": False,
    "derive_visits": True, "center_rewards": True, "known_rewards": False,
    "failure": 0.05, "tie_break": "random",
}  # fmt: skip
_HOEFFDING: dict[str, Options] = {
    "default": {**_PLAIN, "stat_const": 0.2, "constants": "tight", "monotone": False},
    "theory": {**AS_PUBLISHED, "stat_const": "theory", "constants": "tight"},
    "paper": {**AS_PUBLISHED, "stat_const": "theory", "constants": "published", "cap": "H"},
    "honest": {**AS_PUBLISHED, "stat_const": _PUBLIC_CODE_CONST, "stationary": True, "replan_every": 32},
}
_BERNSTEIN: dict[str, Options] = {
    "default": {
        **_PLAIN, "stat_const": 0.5, "constants": "tight", "monotone": False,
        "corr_scale": 0.0, "corr_const": 1000.0, "floor_scale": 0.1,
    },
    "theory": {
        **AS_PUBLISHED, "stat_const": "theory", "constants": "published", "monotone": True,
        "corr_scale": 1.0, "floor_scale": 1.0,
    },
    "paper": {
        **AS_PUBLISHED, "stat_const": "theory", "constants": "published", "cap": "H", "monotone": True,
        "corr_scale": 1.0, "floor_scale": 1.0,
    },
}  # fmt: skip
_AZAR: Options = {
    **AS_PUBLISHED, "stat_const": "theory", "constants": "azar", "cap": "H", "monotone": True,
}  # fmt: skip

# Options of the privacy terms of the bonus. They apply to learners that read noisy counts.
_NOISE: Options = {
    "priv_scale": 0.003, "E_mode": "sd", "E_z": 0.1, "noise_failure": 0.05, "post": "lp", "form": "reward",
    "missing_mass": "none", "clip_negative": True,
}  # fmt: skip
_NOISE_THEORY: Options = {"priv_scale": 1.0, "E_mode": "quantile"}
_NOISE_PAPER: Options = {
    "priv_scale": 1.0, "E_mode": "published", "post": "raw", "form": "cost", "clip_negative": False,
}  # fmt: skip


def _number(value: float | str | None) -> float | None:
    return None if value is None or isinstance(value, str) else value


def _hoeffding_width(learner: GreedyLearner, spec: ProblemSpec, flags: Ints, knobs: Floats) -> None:
    flags[kernels.WIDTH] = kernels.WIDTH_HOEFFDING
    flags[kernels.RANGE] = kernels.RANGE_FUTURE if learner.constants == "tight" else kernels.RANGE_HORIZON
    given = _number(learner.stat_const)
    failure = learner.failure or 0.05
    if learner.constants == "azar":
        log = bonuses.logarithm(spec, bool(learner.stationary), 5.0, failure, given)
        bonuses.fill_azar(knobs, spec, log, False, 0.0)
    else:
        widths = bonuses.hoeffding(spec, learner.constants or "tight", failure, l1=False)
        knobs[kernels.OUTER], knobs[kernels.INNER] = widths if given is None else (given, given)


def _bernstein_width(learner: UCBVI | DPUCBVI, spec: ProblemSpec, flags: Ints, knobs: Floats) -> None:
    flags[kernels.WIDTH] = kernels.WIDTH_BERNSTEIN
    flags[kernels.RANGE] = kernels.RANGE_LEFT if learner.constants == "tight" else kernels.RANGE_HORIZON
    given, azar = _number(learner.stat_const), learner.constants == "azar"
    failure, pooled = learner.failure or 0.05, bool(learner.stationary)
    const = 0.0 if learner.corr_const is None else learner.corr_const
    log = bonuses.logarithm(spec, pooled, 5.0 if azar else 30.0, failure, given)
    if azar:
        bonuses.fill_azar(knobs, spec, log, True, const)
    else:
        bonuses.fill_bernstein(knobs, spec, log, const, learner.constants == "tight")
    knobs[kernels.LOWER_FLOOR] *= 1.0 if learner.floor_scale is None else learner.floor_scale
    knobs[kernels.CORRECTION] *= 1.0 if learner.corr_scale is None else learner.corr_scale


def _check_bernstein(learner: UCBVI | DPUCBVI) -> None:
    for name in ("corr_scale", "corr_const", "floor_scale"):
        object.__setattr__(learner, name, checks.real(name, getattr(learner, name), 0.0))


def _bernstein_heuristics(learner: UCBVI | DPUCBVI) -> Iterator[str]:
    for name, theory in (
        ("corr_scale", 1.0),
        ("corr_const", 100.0 if learner.constants == "azar" else 1000.0),
        ("floor_scale", 1.0),
    ):
        value = getattr(learner, name)
        if value < theory:
            yield f"{name} = {value:g} is below {theory:g}"
    if learner.constants == "tight":
        yield "constants = 'tight' lets H in the bonus shrink to H - h + 1, and S max(E, 1) to max(S E, 1)"


@dataclass(frozen=True, kw_only=True)
class UCBVI(GreedyLearner, BonusLearner):
    """UCB-VI (Azar et al. 2017) on exact counts, the non-private baseline.

    The learner also accepts noisy releases, and treats the noisy values as exact counts.

    Parameters
    ----------
    bonus : "hoeffding" or "bernstein"
        ``hoeffding``: bonus of Private-UCB-VI with E = 0; with ``constants="azar"``, bonus 1 of Azar et al.
        ``bernstein``: bonus of DP-UCBVI with E = 0; with ``constants="azar"``, bonus 2 of Azar et al.
    preset : "default", "theory", "paper" or "honest"
        ``default``: smaller constants (heuristic). ``theory``: the proven constants. ``paper``: the constants
        of Azar et al. ``honest`` (only with ``bonus="hoeffding"``): counts are pooled over steps, and the
        learner replans every 32 users.
    constants : "tight", "published" or "azar"
        Set of constants in the bonus (:mod:`discreet.learners.online.bonuses`).
    corr_scale, corr_const, floor_scale : float
        Options of ``bonus="bernstein"`` only; see :class:`DPUCBVI`.

    For further options see :class:`~discreet.learners.online.tabular_base.GreedyLearner` and its base.
    """

    bonus: Literal["hoeffding", "bernstein"] = "hoeffding"
    corr_scale: float | None = None
    corr_const: float | None = None
    floor_scale: float | None = None

    ignores_noise: ClassVar[bool] = True
    CONSTANTS: ClassVar[tuple[str, ...]] = ("tight", "published", "azar")
    PRESETS: ClassVar[Mapping[str, Options]] = {**_HOEFFDING, "paper": _AZAR}
    BERNSTEIN_PRESETS: ClassVar[Mapping[str, Options]] = {
        **_BERNSTEIN,
        "paper": {**_AZAR, "corr_scale": 1.0, "corr_const": 100.0, "floor_scale": 1.0},
    }

    def __post_init__(self) -> None:
        checks.choice("bonus", self.bonus, ("hoeffding", "bernstein"))
        if self.bonus == "bernstein":
            table = self.BERNSTEIN_PRESETS
            checks.choice("preset", self.preset, table)
            for name, value in {**table["default"], **table[self.preset]}.items():
                if getattr(self, name) is None and not (
                    name == "replan_every" and self.replan_growth is not None
                ):
                    object.__setattr__(self, name, value)
            super().__post_init__()
            _check_bernstein(self)
            return
        super().__post_init__()
        for name in ("corr_scale", "corr_const", "floor_scale"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} = {getattr(self, name)!r}: is an option of bonus='bernstein' only")

    def _fill(self, spec: ProblemSpec, flags: Ints, knobs: Floats) -> int:
        if self.bonus == "bernstein":
            _bernstein_width(self, spec, flags, knobs)
        else:
            _hoeffding_width(self, spec, flags, knobs)
        return self._greedy_flags(flags)

    def heuristics(self) -> Iterator[str]:
        """Yield one string for each option value that the regret theorem does not cover."""
        yield from super().heuristics()
        if self.bonus == "bernstein":
            yield from _bernstein_heuristics(self)


@dataclass(frozen=True, kw_only=True)
class PrivateUCBVI(PostProcessed, GreedyLearner):
    """Private-UCB-VI (Chowdhury and Zhou 2021): UCB-VI on noisy counts with a Hoeffding bonus.

    Parameters
    ----------
    preset : "default", "theory", "paper" or "honest"
        ``default``: smaller constants, error bounds E in standard deviations, and projected counts
        (heuristic). ``theory``: proven constants. ``paper``: the published constants, with raw counts in cost
        form; negative counts are not clipped. ``honest``: counts are pooled over steps, and the learner
        replans every 32 users.

    For further options see :class:`~discreet.learners.online.tabular_base.PostProcessed`,
    :class:`~discreet.learners.online.tabular_base.GreedyLearner` and their bases.
    """

    PRESETS: ClassVar[Mapping[str, Options]] = {
        "default": {**_HOEFFDING["default"], **_NOISE},
        "theory": {**_HOEFFDING["theory"], **_NOISE_THEORY},
        "paper": {**_HOEFFDING["paper"], **_NOISE_PAPER},
        "honest": {**_HOEFFDING["honest"], "priv_scale": 0.0, "E_mode": "sd", "E_z": 1.0, "post": "raw"},
    }

    def _fill(self, spec: ProblemSpec, flags: Ints, knobs: Floats) -> int:
        _hoeffding_width(self, spec, flags, knobs)
        self._post_flags(flags, knobs)
        return self._greedy_flags(flags)


@dataclass(frozen=True, kw_only=True)
class DPUCBVI(PostProcessed, GreedyLearner):
    """DP-UCBVI (Qiao and Wang 2023): UCB-VI on projected noisy counts with a Bernstein bonus.

    Parameters
    ----------
    preset : "default", "theory" or "paper"
        ``default``: smaller constants, no correction term, and error bounds E in standard deviations
        (heuristic). ``theory``: the published constants, with cap H - h + 1. ``paper``: the published
        constants, with cap H as printed in the paper.
    corr_scale : float
        Factor of the fourth term; 0 omits this term.
    corr_const : float
        Value that replaces the constant 1000 of the fourth term.
    floor_scale : float
        Factor of the number 1 in max(E, 1) in the third term. The factor of E is ``priv_scale``.
    failure : float
        Failure probability, called beta in the paper. By default, one third of it is used for the noise
        bounds (``noise_failure``).

    For further options see :class:`~discreet.learners.online.tabular_base.PostProcessed`,
    :class:`~discreet.learners.online.tabular_base.GreedyLearner` and their bases.
    """

    corr_scale: float | None = None
    corr_const: float | None = None
    floor_scale: float | None = None

    PRESETS: ClassVar[Mapping[str, Options]] = {
        "default": {**_BERNSTEIN["default"], **_NOISE, "priv_scale": 0.001, "noise_failure": None},
        "theory": {**_BERNSTEIN["theory"], **_NOISE_THEORY},
        "paper": {**_BERNSTEIN["paper"], **_NOISE_THEORY},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_bernstein(self)
        if self.noise_failure is None:
            object.__setattr__(self, "noise_failure", (self.failure or 0.05) / 3.0)

    def _fill(self, spec: ProblemSpec, flags: Ints, knobs: Floats) -> int:
        _bernstein_width(self, spec, flags, knobs)
        self._post_flags(flags, knobs)
        return self._greedy_flags(flags)

    def heuristics(self) -> Iterator[str]:
        """Yield one string for each option value that the regret theorem does not cover."""
        yield from super().heuristics()
        yield from _bernstein_heuristics(self)
