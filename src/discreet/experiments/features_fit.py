r"""Test whether an MDP is linear in a feature map.

Linear learners assume

    P_h(s' | s, a) = phi(s, a)^T mu_h(s')   and   r_h(s, a) = phi(s, a)^T theta_h

(linear mixtures: P_h(s' | s, a) = phi(s' | s, a)^T w_h). If these equations do not hold, linear learners
learn a wrong model.

**A known MDP** (simulation): the transition probabilities and rewards of the MDP are projected onto the
features. The largest residual of the least squares fit is 0 if and only if the map fits.

**A release of counts**, under any privatizer, gives an interval for every P_h(s' | s, a) and r_h(s, a).
Notation: T(s') are the released transition counts of (h, s, a), and N is their sum over s'. E bounds the
absolute noise in all cells, and E_N bounds the absolute noise in all sums N
(:mod:`~discreet.accounting.noise_distributions.distributions`); each bound fails with probability at most p /
4. The number n of users who visited (h, s, a) is then in [N - E_N, N + E_N]. Then

    |T(s') - n P(s')| <= E + sqrt(n ln(2 c n (n + 1) / (p / 2)) / 2)     for all c cells and all n at once,

by Hoeffding's inequality and a union bound over cells and over n. The inequality also holds if policies
depend on earlier users. The map is refuted if, for some h and s', no vector mu_h(s') gives probabilities in
all intervals. A map that fits is refuted with probability at most p (with rewards, p is split between
transitions and rewards). A map that is not refuted need not fit, because pairs that few users visited cannot
refute a map.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from discreet.core import checks
from discreet.core.families import CENTERED_REWARDS, REWARDS, TRANSITIONS
from discreet.core.releases import Floats, Release
from discreet.envs.mdp.tabular import TabularMDP
from discreet.mechanisms.features import FeatureMap, Features, MixtureFeatures, fitting_features

_ROUNDING = 1e-7
# Largest number of linear programs in one test. If a test has more, an evenly spaced selection of them is
# solved.
_MOST_PROGRAMS = 5000


@dataclass(frozen=True)
class FeaturesFit:
    """Result of a test of a feature map.

    Parameters
    ----------
    fits : False if the map is refuted.
    transitions, rewards : misfit of the transition probabilities and of the mean rewards. For an MDP, the
        misfit is the largest residual. For a release, it is a lower bound of the misfit.
    where : (h, s') with the largest misfit of transition probabilities; None if there is no misfit.
    failure : upper bound on the probability that a map that fits is refuted; 0 for an MDP.
    seen : share of admissible (h, s, a) for which the release gives a nontrivial interval; 1 for an MDP.
    """

    fits: bool
    transitions: float
    rewards: float
    where: tuple[int, int] | None
    failure: float
    seen: float = 1.0

    def __str__(self) -> str:
        at = "" if self.where is None else f", worst at step {self.where[0]}, successor {self.where[1]}"
        chance = f"; false alarm at most {self.failure:g}" if self.failure else ""
        if self.fits:
            share = "" if self.seen == 1.0 else f" by {self.seen:.0%} of the pairs and steps"
            return f"not refuted{share}{chance}"
        least = "at least " if self.failure else ""
        return (
            f"the features do not fit: probabilities are off by {least}{self.transitions:.2g}, mean rewards "
            f"by {least}{self.rewards:.2g}{at}{chance}"
        )


def check_features(
    source: TabularMDP | Release, features: Features | MixtureFeatures | None = None, failure: float = 1e-6
) -> FeaturesFit:
    """Test whether an MDP, or the MDP whose users' counts were released, is linear in a feature map.

    Parameters
    ----------
    source : a TabularMDP, or a Release of transition counts (``dr.mechanisms.CountQuery``). The counts can be
        those of every step, or pooled over steps.
    features : the feature map. If None, the map that belongs to the MDP. For a release, it must be
        ``Features``.
    failure : allowed probability, in (0, 1), that a map that fits is refuted; used only for a release.

    Raises
    ------
    ValueError
        If the sizes of ``source`` and ``features`` differ, the MDP has no features, or the release has no
        transition counts.
    """
    if isinstance(source, TabularMDP):
        own = fitting_features(source.features if features is None else features, source.layout)
        if own is None or isinstance(own, FeatureMap):
            raise ValueError("features = None: must be given, this world has none")
        return world_misfit(source, own)
    if not isinstance(source, Release):
        raise ValueError(f"source is a {type(source).__name__}: must be a TabularMDP or a Release of counts")
    if not isinstance(features, Features):
        raise ValueError(f"features = {checks.said(features)}: must be Features(table, bound)")
    failure = checks.real("failure", failure, 0.0, 1.0, open_low=True, open_high=True)
    return _tested(source, features, failure)


# -------------------------------------------------------------------------------------- known MDPs
def world_misfit(mdp: TabularMDP, features: Features | MixtureFeatures) -> FeaturesFit:
    """Test a known MDP: fit transition probabilities and rewards by least squares at each step.

    Returns the largest residuals over all admissible state-action pairs.
    """
    mask, slots = mdp.mask, mdp.transition_slots
    transitions, rewards = mdp.transitions, mdp.rewards
    worst, at, paid = 0.0, None, 0.0
    for h in range(slots):
        target = transitions[h][mask]  # (R, S)
        if isinstance(features, MixtureFeatures):
            design, target = features.table[mask].reshape(-1, features.dimension), target.reshape(-1, 1)
        else:
            design = features.table[mask]
        off = np.abs(target - design @ np.linalg.lstsq(design, target, rcond=None)[0])
        if off.max() > worst:
            worst = float(off.max())
            at = h, int(np.unravel_index(int(off.argmax()), (mask.sum(), mdp.states))[1])
    paying = features.rewards if isinstance(features, MixtureFeatures) else features
    if paying is not None:
        design, target = paying.table[mask], rewards[:, mask].T
        paid = float(np.abs(target - design @ np.linalg.lstsq(design, target, rcond=None)[0]).max())
    fits = max(worst, paid) <= _ROUNDING
    return FeaturesFit(fits, worst, paid, None if worst <= _ROUNDING else at, 0.0)


# --------------------------------------------------------------------------------------- releases
def _tested(release: Release, features: Features, failure: float) -> FeaturesFit:
    estimates = release.estimates
    if TRANSITIONS not in estimates:
        raise ValueError(f"source has {', '.join(estimates) or 'no sums'}: must have {TRANSITIONS}")
    counts = np.asarray(estimates[TRANSITIONS].value)  # (T, S, A, S)
    if counts.shape[1:3] != (features.states, features.actions):
        raise ValueError(
            f"features are of S = {features.states}, A = {features.actions}: the release is of "
            f"S = {counts.shape[1]}, A = {counts.shape[2]}"
        )
    paying = next((name for name in (CENTERED_REWARDS, REWARDS) if name in estimates), None)
    share = failure if paying is None else failure / 2
    law: Any = estimates[TRANSITIONS].law
    cell, row = law.bound(share / 4), law.bound(share / 4, rows=True)
    n = counts.sum(axis=-1)
    least, most = n - row, n + row
    low, high = _intervals(counts, cell, least[..., None], most[..., None], share)
    seen = (high - low).min(axis=-1) < 1.0
    off, at = _refuted(features, low, high)
    paid = 0.0
    if paying is not None:
        law = estimates[paying].law
        shift = 0.5 if paying == CENTERED_REWARDS else 0.0
        sums = np.asarray(estimates[paying].value)
        bottom, top = _intervals(sums, law.bound(share / 4), least, most, share, shift)
        paid = _refuted(features, bottom[..., None], top[..., None])[0]
    mean = float(seen.mean())
    return FeaturesFit(max(off, paid) <= _ROUNDING, off, paid, at, failure, mean)


def _intervals(
    sums: Floats, noise: float, least: Floats, most: Floats, failure: float, shift: float = 0.0
) -> tuple[Floats, Floats]:
    """Return the lower and upper ends of confidence intervals in [0, 1] for means, from noisy sums.

    Parameters
    ----------
    sums : noisy sums.
    noise : bound on the absolute noise of each sum.
    least, most : lower and upper bounds on the number of users in each sum.
    failure : allowed probability of failure.
    shift : constant that was subtracted from each reward in a sum.
    """
    few, many = np.maximum(least, 1.0), np.maximum(most, 1.0)

    def part(value: Floats, up: bool) -> Floats:
        return value / np.where((value > 0) == up, few, many)

    luck = np.sqrt((math.log(4 * sums.size / failure) + np.log(many * (many + 1.0))) / 2 / few)
    low = np.where(least > 1.0, part(sums - noise, False) - luck + shift, 0.0)
    high = np.where(least > 1.0, part(sums + noise, True) + luck + shift, 1.0)
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)


def _refuted(features: Features, low: Floats, high: Floats) -> tuple[float, tuple[int, int] | None]:
    """Compute the smallest widening of intervals such that some vector mu has phi^T mu in all of them.

    Returns the largest such amount over (h, target), and the (h, target) at which it occurs (None if it is
    0).

    low, high : (T, S, A, n) ends of the intervals. The last axis is the target, which is a successor state or
        the reward.
    """
    from scipy.optimize import linprog

    phi = features.table.reshape(-1, features.dimension)
    steps, targets = low.shape[0], low.shape[-1]
    low, high = low.reshape(steps, -1, targets), high.reshape(steps, -1, targets)
    every = [(h, j) for h in range(steps) for j in range(targets)]
    worst, where = 0.0, None
    cost = np.append(np.zeros(features.dimension), 1.0)
    for h, j in every[:: -(-len(every) // _MOST_PROGRAMS)]:
        bounded = (low[h, :, j] > 0) | (high[h, :, j] < 1)
        if bounded.sum() <= features.dimension:
            continue
        rows, ones = phi[bounded], np.ones((int(bounded.sum()), 1))
        found = linprog(
            cost,
            A_ub=np.vstack([np.hstack([rows, -ones]), np.hstack([-rows, -ones])]),
            b_ub=np.concatenate([high[h, bounded, j], -low[h, bounded, j]]),
            bounds=[(None, None)] * features.dimension + [(0.0, None)],
        )
        if found.status == 0 and found.fun > max(worst, _ROUNDING):
            worst, where = float(found.fun), (h, j)
    return worst, where
