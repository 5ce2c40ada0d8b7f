r"""Noise that several sites draw independently, with a proven bound on the privacy loss of the sum.

Every site adds an independent discrete Gaussian variable to each cell of its sums. With parameter sigma^2,
its probability P(x) is proportional to e^{-x^2 / (2 sigma^2)} on the integers, and its variance is nearly
sigma^2. :mod:`discreet.core.noise.discrete_samplers` draws such variables exactly. Only the sum over sites is
decrypted. A sum of n discrete Gaussians is not a discrete Gaussian, but its distribution is close to one.
Kairouz, Liu and Steinke (2021, The distributed discrete Gaussian mechanism for federated learning with secure
aggregation) bound the distance between the two distributions. The bound used here is derived below, with
different constants.

*Two terms.* Let X and Y be independent discrete Gaussians with parameters u and v. Let W be a discrete
Gaussian with parameter u + v. Completing the square, with s^2 = 1 / (1/u + 1/v) and c = z u / (u + v), gives

    P(X + Y = z) = e^{-z^2 / (2 (u + v))} sum_x e^{-(x - c)^2 / (2 s^2)} / const.

By Poisson's summation formula, the sum over x is s sqrt(2 pi) (1 + theta(z)) with
theta(z) = 2 sum_{k >= 1} e^{-2 pi^2 s^2 k^2} cos(2 pi k c). So the ratio P(X + Y = z) / P(W = z) is
(1 + theta(z)) / E[1 + theta(W)]. Here |theta| <= e, where

    e(s^2) = 2 q / (1 - q^3),   q = e^{-2 pi^2 s^2}      (k^2 >= 1 + 3 (k - 1)).

If e < 1, the logarithm of the ratio is at most ln((1 + e) / (1 - e)) in absolute value.                 (1)

*n terms.* Suppose that the probabilities of a sum of k terms are within a factor e^{+-T} of those of the
discrete Gaussian with parameter k sigma^2. Add an independent term with parameter sigma^2 to both variables.
The probabilities of the two new sums are still within this factor of each other. By (1), the sum of the
discrete Gaussian and the new term is close to the discrete Gaussian with parameter (k + 1) sigma^2. Here u =
k sigma^2, v = sigma^2 and s^2 = sigma^2 k / (k + 1). Therefore

    |ln P(X_1 + .. + X_n = z) / P(W = z)| <= tau_n = sum_{k < n} ln((1 + e_k) / (1 - e_k)),

    e_k = e(sigma^2 k / (k + 1)),   W with parameter n sigma^2,   for every integer z.                    (2)

*Privacy loss of one exchanged user.* Let x and x' be the exact sums before and after the exchange. They
differ in at most m_f cells of each family f. In units of the grid of each family, the l2 norm || (x - x') /
(sqrt(n) sigma) || is at most Delta. The proof compares four distributions. P is the distribution of x plus
the sum of the sites' noise. P~ differs from P only in the cells in which x and x' differ. There, the noise of
P~ is a discrete Gaussian with parameter n sigma_f^2. Q and Q~ are defined in the same way, with x' instead of
x. In all other cells the four distributions are equal. Cells are independent.

- P and P~: in each of the m_f cells of a family, the logarithm of the ratio of probabilities is at most tau_f
  in absolute value. So the Renyi divergences of this cell are at most tau_f^2 alpha / 2 in both directions (a
  pure tau is tau^2/2-zCDP; Bun and Steinke 2016, proposition 3.3). The divergences of all cells together are
  at most a^2 alpha / 2 with a^2 = sum_f m_f tau_f^2. The same bound holds for Q~ and Q.
- P~ and Q~: the Renyi divergence is at most Delta^2 alpha / 2 (Canonne, Kamath and Steinke 2020).
- The square roots of these bounds are summed. If D_alpha(A | B) <= a^2 alpha / 2 and D_alpha(B | C) <= b^2
  alpha / 2 for all alpha > 1, then D_alpha(A | C) <= (a + b)^2 alpha / 2. The proof applies Hoelder's
  inequality to (A^alpha B^{-r}) (B^r C^{1 - alpha}) with r = alpha - 1/p and 1/p + 1/q = 1. This gives

      D_alpha(A | C) <= (p alpha - 1) / (p (alpha - 1)) D_{p alpha}(A | B) + D_{q (alpha - 1) + 1}(B | C).

  With p = 1 + t (alpha - 1) / alpha, the orders are alpha + t (alpha - 1) and alpha (1 + 1/t). The right side
  is a^2 (1 + t) alpha / 2 + b^2 (1 + 1/t) alpha / 2, which is smallest at t = b / a.

So the sum of the noise of n sites gives rho-zCDP with

    sqrt(2 rho) = Delta + 2 (sum_f m_f tau_f^2)^{1/2}.                                                   (3)

*Honest sites.* Noise that an attacker knows protects no user. Therefore n does not count sites that collude
with the analyst or add no noise. If t honest sites are in the sum, (3) holds with n = t for all messages of
the other sites: the attacker can compute these messages. If there are more than t honest sites, the other
honest sites add further independent noise, which is post-processing. So rho is proportional to 1/t, except
for the terms with tau.

*Mechanism record.* A mechanism with discrete Gaussian noise of scales (1 - eta) sqrt(t) sigma has the loss
Delta / (1 - eta), which is at least Delta (1 + eta). The number eta is chosen so that eta Delta is at least
the second term of (3). Then the record of this mechanism states at least the loss in (3). In addition, scales
are rounded down by 2^-50. :class:`SplitNoise` rejects sigma if eta would be above 1e-9 (sigma below about 1.6
units of the grid). No modular reduction occurs: sums that could exceed the range of the secure sum are
rejected before noise is drawn (:mod:`discreet.pipeline.federated`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from discreet.core import checks
from discreet.core.count_mechanism import CountMechanism
from discreet.core.count_query import CountQuery
from discreet.core.guarantee import Guarantee, MechanismRecord, guarantee_of, joint_loss
from discreet.core.noise.noises import GAUSSIAN
from discreet.core.short_repr import brief

_NEAR = 1e-9  # upper bound on eta (module docstring)
_DOWN = 2.0**-50


def sum_distance(sigma: float, terms: int) -> float:
    """Return the bound tau of equation (2) for a sum of ``terms`` discrete Gaussians.

    The bound applies to the logarithm of the ratio between the probabilities of the sum and those of one
    discrete Gaussian. Returns infinity if the bound does not apply (sigma below about 0.3).
    """
    sigma, terms = checks.positive("sigma", sigma), checks.integer("terms", terms, 1)
    parts = []
    for k in range(1, terms):
        q = math.exp(-2.0 * math.pi**2 * sigma * sigma * k / (k + 1))
        e = 2.0 * q / (1.0 - q**3)
        if e >= 1.0:
            return math.inf
        parts.append(math.log1p(e) - math.log1p(-e))
    return math.fsum(parts)


@dataclass(frozen=True, eq=False)
class SplitNoise:
    """Noise shares of the sites. The summed noise of ``honest`` sites gives the guarantee of ``mechanism``.

    Parameters
    ----------
    mechanism : CountMechanism for offline data, with discrete Gaussian noise
    sites : number of sites that draw noise
    honest : smallest number t of honest sites in a decrypted sum. An honest site does not collude with the
        analyst

    Raises
    ------
    ValueError
        If the mechanism is not for offline data, has noise that is not discrete Gaussian, or has too small a
        noise share per site.
    """

    __repr__ = brief

    mechanism: CountMechanism
    sites: int
    honest: int

    def __post_init__(self) -> None:
        mechanism = self.mechanism
        if type(mechanism) is not CountMechanism or not mechanism.stored or mechanism.source != "secure":
            raise ValueError(
                f"mechanism = {checks.said(mechanism)}: must be of offline data, from secure noise"
            )
        if mechanism.noise != GAUSSIAN:
            raise ValueError("mechanism: noise that sites share must be Gaussian: give a delta, rho or mu")
        sites = checks.integer("sites", self.sites, 2)
        checks.integer("honest", self.honest, 1, sites)
        if not self.distance <= _NEAR:
            least = min(self._units.values())
            raise ValueError(
                f"sites = {sites}, honest = {self.honest}: a site's share of the noise has standard "
                f"deviation {least:.3g} in units of its grid, too little for sums of it to be like Gaussian "
                "noise; must be about 1.7 at least: ask for fewer honest sites, or a smaller epsilon"
            )

    @cached_property
    def scales(self) -> dict[str, float]:
        """Scale of the noise that each site draws, by family of counts, in the units of the counts."""
        share = 1.0 / math.sqrt(self.honest)
        names = self.mechanism.query.row_families
        return dict(zip(names, (self.mechanism.scales * share).tolist(), strict=True))

    @property
    def _units(self) -> dict[str, float]:
        return {name: scale * (self.mechanism.grid(name) or 1) for name, scale in self.scales.items()}

    @cached_property
    def distance(self) -> float:
        """The number eta. The scales in the record are (1 - eta) times the scales of the summed shares."""
        query = self.mechanism.counts
        apart = math.sqrt(
            math.fsum(
                moved_cells(query, name) * sum_distance(units, self.honest) ** 2
                for name, units in self._units.items()
            )
        )
        return 2.0 * apart / joint_loss(query, "l2", self._together)

    @property
    def _together(self) -> dict[str, float]:
        return {name: scale * math.sqrt(self.honest) for name, scale in self.scales.items()}

    @cached_property
    def record(self) -> MechanismRecord:
        """Mechanism record that states the privacy loss of the sum.

        The attacker is assumed to know all noise except the noise of ``honest`` sites.
        """
        scales = {name: s * (1.0 - self.distance) * (1.0 - _DOWN) for name, s in self._together.items()}
        words = (
            f"one noisy sum over all users of {self.sites} sites, each of which adds a share of the noise; "
            f"the scales are those of {self.honest} shares together, the fewest honest ones in a sum that is "
            "opened"
        )
        return MechanismRecord.of(self.mechanism.query, words, "discrete_gaussian", scales)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Privacy guarantee of the sum over sites, at the delta of the mechanism."""
        stated = self.mechanism.stated
        return guarantee_of(
            "central", (self.record,), randomness="secure", delta=stated.delta,
            epsilon_nominal=stated.epsilon, episodes=self.mechanism.query.episodes,
        )  # fmt: skip

    def among(self, honest: int) -> SplitNoise:
        """Return the noise for another number of honest sites. The noise of each site does not change."""
        share = math.sqrt(checks.integer("honest", honest, 1, self.sites) / self.honest)
        return SplitNoise(replace(self.mechanism, scales=self.mechanism.scales * share), self.sites, honest)


def moved_cells(query: CountQuery, family: str) -> int:
    """Return the largest number m_f of cells of a family in which the sums of two neighbouring datasets
    differ.

    Each record of the removed user, and each record of the user who replaces them, is counted in one cell of
    a family.
    """
    records = query.first_records if query.first else query.counted_steps
    return min(2 * records * query.episodes, int(np.prod(query.row_families[family])))
