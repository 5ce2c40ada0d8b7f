r"""Fresh noise for each scheduled batch. The noise is added to the batch or to a decaying sum of all batches.

At scheduled release i (i = 1, 2, ...), with x_i the sum of the users since release i - 1,

    S_i = x_i + lambda S_{i-1},     y_i = a S_i + z_i,     a = sqrt(1 - lambda^2),   z_i fresh,

lambda in [0, 1) is a constant of the stream, fixed before data are read. lambda = 0 means separate batches:
y_i = x_i + z_i.

Privacy. A user is in one batch j. For each i >= j, replacing the user changes y_i by a lambda^{i-j} times the
user's own change. The column ``(a, a lambda, a lambda^2, ...)`` has l2 norm below 1 for any number of
releases. Gaussian noise of standard deviation sigma therefore has the same loss as one release of one batch,
mu = Delta_2 / sigma. The statement also holds for adaptively chosen data (fresh noise, lower-triangular rows:
:mod:`discreet.core.correlated_noise`, b). The l1 norm of the column exceeds 1 unless lambda = 0, so Laplace
noise is used with lambda = 0 only: epsilon = Delta_1 / b. The decay is never set from the observed growth of
the batches, because the norm of its column could exceed 1.

Users who return. A user takes part in batches b_1 < ... < b_m, with b_{k+1} - b_k >= s. The batches of the
user are public, and all the user's records are replaced together. Let g_b be the column of batch b, and d_k
the change of record k. Release i changes by sum_k g_{b_k, i} d_k. The inner product of g_b and g_c is at
least 0 and at most lambda^{abs(b - c)}. Therefore

    sum_i norm(sum_k g_{b_k, i} d_k)^2 <= Delta^2 sum_{k, l} lambda^{abs(b_k - b_l)} <= Delta^2 F,
    F = m + 2 sum_{j=1}^{m-1} (m - j) lambda^{s j},      F = m for lambda = 0.

The bound holds for all b_k and d_k, also if they depend on earlier releases. So mu is sqrt(F) Delta_2 / sigma
(:meth:`Decaying.norm_of_returning`). Scales can change by release, if the norm of each d_k is at most Delta
in the units of every release. The bound then follows from the triangle inequality, since no coefficient is
negative.

With Laplace noise and lambda = 0, the losses of the m batches are summed: epsilon = m Delta_1 / b. If m > 1,
privacy-loss distributions of listed exchanges are not used. A user can replace records in different ways in
different batches, and no single way need be worst.

Each release has two parts. The first part is the prefix sum of all users, for learners that need counts. This
prefix sum is computed from the measurements:

    P_i = (y_i + (1 - lambda) sum_{j<i} y_j) / a,    noise variance sigma^2 (1 + (1-lambda)^2 (i-1)) / a^2,

The second part is the measurement y_i, for learners that weight batches by generalised least squares. The
noise of y_i is independent of the noise of all other measurements. If rates are estimated from batches of
sizes L_i, the value y_i / a is a sum over m_i = L_i + lambda m_{i-1} users. With weights m_i, the equivalent
count over n users has noise of standard deviation sigma n / (a sqrt(sum m_i^2)). If the batches grow by a
constant factor, this standard deviation is below 2 sigma for any number of releases. (For the tree, the
corresponding factor grows with the logarithm of the number of releases.)

Exact noise (secure randomness). S_i is stored in fixed point, in units u = 2^-20. Every contribution is a
multiple of u. Data are never multiplied by the irrational gain:

    S_i = x_i + round(lambda S_{i-1}),     released: S_i + z_i,  z_i discrete Gaussian of sigma / a on u Z,

The measurement y_i = a (S_i + z_i) is computed from the released sum. Two data sets that differ in one user
of batch j have |S - S'| = D_i in a cell, D_j = d and D_i = lambda D_{i-1} + e_i for i > j. In double
precision round(lambda S) has an error of at most 1/2 + 1/8 units while |S| < 2^51 units. Therefore |e_i| <=
5/4 units. e_i = 0 in cells where the two sums are still equal. Only the cells that the user's change reaches
can differ: at most 2 H of each family. Therefore D_i = lambda^{i-j} d + E_i with |E_i| <= 5/4 u / (1 -
lambda), and by the triangle inequality over cells and B releases, in units of sigma / a,

    sqrt(2 rho) <= ||d / sigma|| + r sqrt(sum_f 1 / sigma_f^2),
    r = (5/4) u sqrt(2 H (B - 1) (1 + lambda) / (1 - lambda)),

The formula of r uses a / (1 - lambda) = sqrt((1 + lambda) / (1 - lambda)). The e_i may depend on earlier
releases (through the data of later users). The bound on the sum of squares holds for every such e_i.
Therefore zCDP composes: for every order alpha, exp((alpha - 1) (loss so far - alpha * (sum of squares so far)
/ 2)) is a supermartingale. B is the length of the schedule, which is finite. No stream has more than B
measurements. A measurement is stored in the same atomic step that makes its release, and a release without
new users repeats the previous measurement. After an interrupt before that step, S and x are unchanged, and
the next release rounds the same sums with other noise (the first draw was never used). If the interrupt comes
after that step, the release exists. The second term is about 1e-4 times the first. The scales are increased
by that amount. For a user in m batches, at most 2 H m cells of each family differ, so r is multiplied by
sqrt(m).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from discreet.core import checks

FINE = 2**20  # Number of fixed-point units per unit of the data.
_MOST_UNITS = 2.0**51  # Largest value of a cell, in fixed-point units.
_MOST_SCALE = 2.0**38  # Largest scale of exact noise that can be drawn, in fixed-point units.


@dataclass(frozen=True)
class Decaying:
    """Public constant of a stream of decaying sums: ``decay`` is lambda in [0, 1)."""

    decay: float = 0.0

    def __post_init__(self) -> None:
        # convert to a plain float, so that the decay cannot change after the noise is set
        object.__setattr__(self, "decay", checks.real("decay", self.decay, 0.0, 1.0, open_high=True))

    @property
    def gain(self) -> float:
        """Gain a = sqrt(1 - lambda^2), by which a decaying sum is multiplied.

        For lambda > 0.99 the gain is computed from the product (1 - lambda) (1 + lambda). Otherwise a
        rounding error in lambda^2 could cause a relative error of 4e-9 in a.
        """
        decay = self.decay
        return math.sqrt(1.0 - decay * decay if decay <= 0.99 else (1.0 - decay) * (1.0 + decay))

    def rounding(self, releases: int, horizon: int) -> float:
        """Return the amount that fixed-point rounding adds to the l2 sensitivity of a family.

        The unit is the unit of the family's values.
        """
        ratio = (1.0 + self.decay) / (1.0 - self.decay)
        return 1.25 / FINE * math.sqrt(max(0, releases - 1) * ratio * 2 * horizon)

    def norm_of_returning(self, participations: int, separation: int) -> float:
        """Return sqrt(F), a bound on the l2 norm of all columns of one user together.

        participations : largest number m of batches with the user. separation : least difference s between
            the numbers of two of these batches.
        """
        pairs = ((participations - j) * self.decay ** (separation * j) for j in range(1, participations))
        return math.sqrt(participations + 2.0 * math.fsum(pairs))

    def fits(self, users: int, horizon: int, scale: float) -> bool:
        """Return True if sums over ``users`` users, and noise of this scale, are exact in fixed point."""
        return users * horizon * FINE <= _MOST_UNITS and 1.0 <= scale / self.gain * FINE <= _MOST_SCALE
