r"""Constants of exploration bonuses from several papers.

Symbols: K users, horizon H, T = K H, and S A admissible state-action pairs. The failure probability f is
called delta, beta or p in the papers. Logarithms are natural, and steps h start at 1. D, Lambda_r, Lambda_p,
E and P~ are defined in :mod:`discreet.learners.estimation.tabular_model`.

**Hoeffding bonus** (Chowdhury and Zhou 2021; with E = 0 for exact counts):

    L_r / sqrt(D) + Lambda_r / D + G (L_x / sqrt(D) + Lambda_p / D),

with

- ``tight``: L_r = L_v = max(1, sqrt(log(2 SAT / f) / 2)), L_p = sqrt(2 S log(2 SAT / f)) and G = H - h;
- ``published``: L_r = L_v = sqrt(2 log(4 SAT / f)), L_p = sqrt(4 S log(6 SAT / f)) and G = H.
- ``efroni`` (Efroni et al. 2020): L_r = sqrt(2 log(12 SAT / f)), L_p = sqrt(4 S log(18 SAT / f)) and G = H.

L_x is L_v for value iteration and L_p for policy optimization.

**Bernstein bonus** (Qiao and Wang 2023, algorithm 1; iota = log(30 H SAT / f)):

    2 sqrt(Var(V) iota / D) + sqrt(2 iota / D) + 20 H S E iota / D
      + 4 sqrt(iota) sqrt(sum_s' P~(s') min{c^2 H^3 SA iota^2 / N(s') + c^2 H^4 S^4 A^2 E^2 iota^4 / N(s')^2
                                            + c^2 H^6 S^4 A^2 iota^4 / N(s')^2, H^2} / D),      c = 1000,

The code uses max(E, 1) instead of E in the third term, because the proof needs E >= 1. The constants
``tight`` use H - h + 1 instead of H, and max(S E, 1) instead of S max(E, 1). The constants ``tight`` have no
proof.

**Bonuses of Azar et al. 2017**, with L = log(5 H SAT / f), or L = log(5 SAT / f) if the counts of all steps
are pooled. If rewards are estimated, sqrt(L / (2 N)) is added to the bonus.

- Bonus 1 is 7 H L / sqrt(N).
- Bonus 2 is sqrt(8 L Var / N) + 14 H L / (3 N) + sqrt(8 sum_y P(y) min{100^2 H^3 S^2 A L^2 / N(y), H^2} / N).
"""

from __future__ import annotations

import math

from discreet.core.releases import Floats
from discreet.learners.online import tabular_planning_kernels as kernels
from discreet.mechanisms.interfaces import ProblemSpec

UNKNOWN_USERS = 10**10  # value of K if K is not known; it exceeds any possible number of users


def users(spec: ProblemSpec) -> int:
    """Return the number of users K, or ``UNKNOWN_USERS`` if the spec does not state K."""
    return spec.users if spec.users is not None else UNKNOWN_USERS


def steps(spec: ProblemSpec) -> float:
    """Return SAT: the number of admissible state-action pairs times K H."""
    return float(spec.layout.rows) * spec.horizon * users(spec)


def pooling(spec: ProblemSpec, stationary: bool) -> float:
    """Return 1 if the counts of all steps are pooled, else H."""
    return 1.0 if stationary else float(spec.horizon)


def hoeffding(spec: ProblemSpec, constants: str, failure: float, l1: bool) -> tuple[float, float]:
    """Return the coefficients of 1 / sqrt(D) in the Hoeffding bonus.

    Returns (L_r, L_p) if ``l1`` is True or ``constants`` is "efroni", and (L_r, L_v) otherwise.
    """
    many, states = steps(spec), spec.states
    if constants == "tight":
        outer = max(1.0, math.sqrt(0.5 * math.log(2 * many / failure)))
        return outer, math.sqrt(2 * states * math.log(2 * many / failure)) if l1 else outer
    if constants == "efroni":
        return (
            math.sqrt(2 * math.log(12 * many / failure)),
            math.sqrt(4 * states * math.log(18 * many / failure)),
        )
    outer = math.sqrt(2 * math.log(4 * many / failure))
    return outer, math.sqrt(4 * states * math.log(6 * many / failure)) if l1 else outer


def logarithm(
    spec: ProblemSpec, stationary: bool, factor: float, failure: float, stat_const: float | None
) -> float:
    """Return the logarithm L in the bonus, log(factor H SAT / failure).

    If ``stationary`` is True, SAT replaces H SAT. If ``stat_const`` is a number, L is stat_const^2 / 2.
    """
    if stat_const is not None:
        return 0.5 * stat_const * stat_const
    return math.log(factor * pooling(spec, stationary) * steps(spec) / failure)


def fill_bernstein(knobs: Floats, spec: ProblemSpec, iota: float, corr_const: float, tight: bool) -> None:
    """Write the constants of the Bernstein bonus into ``knobs``, without the scale options.

    ``iota`` is the logarithm, and ``corr_const`` is the constant c.
    """
    h, s, pairs = float(spec.horizon), float(spec.states), float(spec.layout.rows)
    c2 = corr_const * corr_const
    knobs[kernels.VARIANCE] = 2.0 * math.sqrt(iota)
    knobs[kernels.OUTER] = math.sqrt(2.0 * iota)
    knobs[kernels.LOWER_NOISE] = 20.0 * s * iota
    knobs[kernels.LOWER_FLOOR] = 20.0 * iota * (1.0 if tight else s)
    knobs[kernels.CORRECTION] = 4.0 * math.sqrt(iota)
    knobs[kernels.FIRST] = c2 * h**3 * pairs * iota**2
    knobs[kernels.SECOND_NOISE] = c2 * h**4 * (s * pairs) ** 2 * iota**4
    knobs[kernels.SECOND] = c2 * h**6 * (s * pairs) ** 2 * iota**4


def fill_azar(knobs: Floats, spec: ProblemSpec, log: float, bernstein: bool, corr_const: float) -> None:
    """Write the constants of bonus 2 of Azar et al. into ``knobs``, or of bonus 1 if ``bernstein`` is False.

    ``log`` is the logarithm L. ``corr_const`` replaces the constant 100.
    """
    h, s, pairs = float(spec.horizon), float(spec.states), float(spec.layout.rows)
    knobs[kernels.OUTER] = math.sqrt(0.5 * log)
    if not bernstein:
        knobs[kernels.INNER] = 7.0 * log
        return
    knobs[kernels.VARIANCE] = math.sqrt(8.0 * log)
    knobs[kernels.LOWER_FLOOR] = 14.0 * log / 3.0
    knobs[kernels.CORRECTION] = math.sqrt(8.0)
    knobs[kernels.FIRST] = corr_const**2 * h**3 * s * pairs * log**2
