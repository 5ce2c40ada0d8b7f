r"""Sums over time: one stream of noisy releases while people keep coming, and why adaptivity costs nothing.

Policies are chosen from releases, so what later people do depends on earlier noise. The claims of this
package hold all the same. Let o be everything public: releases, policies, and coins that are published. Fix
o, and everybody's private coins (whose law does not depend on the data). In both worlds, with user k's
trajectory and with the one that replaces it, policies, ends of batches and the contributions of all users
but k are then the same, also of those after her, whose policies are functions of o. Only her own
contribution differs: call its change in the coordinates that are measured her *shift*. Three statements
follow, which other modules name:

(a) *Laplace noise, continuous or discrete.* If each output is an exact causal sum with noise of a law that
is fixed in advance, epsilon = sup over shifts of the sum of abs(shift) / scale is pure, also where noise is
drawn and used before its data exist, and with scales set from o if that sum is at most epsilon for every o.
Proof: for fixed o the noise is determined, in either world, by a map of unit Jacobian (or a bijection of
integers), since sums are causal; the ratio of the densities of o is one of noise densities at two points
that differ by the shift.

(b) *Gaussian noise.* If each output is a row of a lower-triangular matrix applied to exact sums, with fresh
independent noise, and the sum of (shift_i / sigma_i)^2 is at most mu^2 whatever o, the whole stream is
mu-GDP, with nothing lost. Proof: shifts s_i (in units of sigma_i) depend on the past only. Append one
release that nobody sees, so that the squares add up to mu^2 exactly; then exp(i u sum s_i g_i + u^2 mu^2 /
2) has mean 1 for every u, so that sum s_i g_i is normal with variance mu^2, and the loss is that of N(0, 1)
against N(mu, 1). To drop the last release is post-processing. A matrix that is not lower-triangular but
fixed in advance (noise that is used early) is one after a rotation of the noise.

(c) *Numerical losses* (discrete Gaussian or binomial noise, Laplace noise at delta > 0). If the noise of
every coordinate that a user touches is drawn after her record is in, and law and shift are fixed in
advance, the loss is a sum of independent terms, one for each coordinate. Where several patterns of shifts
are possible, the worst is taken. Not for noise that is used before its data (that is (a)'s), nor scales set
from o.

What they need, and where it is looked after: a user's policy is made from releases before she starts, and
her record belongs to the batch that was open then (:mod:`discreet.core.stream_session`); ends of batches
look at no data (:class:`~discreet.core.releases.Schedule`); the coins of policies and environments are no
noise's (:mod:`discreet.core.rng`); no noise is drawn twice and no state goes on twice
(:mod:`discreet.core.lifecycle`); a person is one user; and neighbours replace, so that the number of users
is public. Clocks of rows need more (:mod:`discreet.core.correlated_noise.per_pair_schedule`).

Sources: Chan, Shi and Song 2011 and Dwork, Naor, Pitassi and Rothblum 2010 (trees); Denisov, McMahan, Rush,
Smith and Thakurta 2022 (adaptive inputs of Gaussian factorizations).
"""
