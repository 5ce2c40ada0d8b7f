r"""Streams of noisy sums while users arrive, and the proof that adaptivity has no privacy cost.

Policies are chosen from releases, so the trajectories of later users depend on earlier noise. The privacy
claims of this package are still valid. Let o be everything that is public: releases, policies, and published
random bits. Fix o and the private random bits of all users. The distribution of these bits does not depend on
the data. Compare the trajectory of user k with the trajectory that replaces it. In both cases the policies,
the ends of batches and the contributions of all other users are the same. Later users also contribute the
same, because their policies are functions of o. Only the contribution of user k differs. The *shift* is the
change of this contribution in the measured coordinates. Three statements (a) to (c) follow. Other modules
refer to them:

(a) *Laplace noise, continuous or discrete.* Suppose that each output is an exact causal sum plus noise whose
distribution is fixed in advance. Then pure epsilon-DP holds with epsilon = sup over shifts of the sum of
abs(shift) / scale. Noise may be drawn and used before the user's record exists. The scales may be set from o,
provided that the sum is at most epsilon for every o. Proof: sums are causal. For fixed o, a map of unit
Jacobian (or a bijection of integers) therefore determines the noise, in either case. The ratio of the two
densities of o is the ratio of the noise density at two points that differ by the shift.

(b) *Gaussian noise.* Suppose that each output is a row of a lower-triangular matrix applied to exact sums,
with fresh independent noise. Suppose further that the sum of (shift_i / sigma_i)^2 is at most mu^2 for every
o. Then the whole stream is exactly mu-GDP. Proof: let s_i be the shifts in units of sigma_i, and g_i the
noise in the same units. Each s_i depends only on the past. Append one unpublished release, so that the sum of
squares is exactly mu^2. Then exp(i u sum s_i g_i + u^2 mu^2 / 2) has mean 1 for every u. Therefore sum s_i
g_i is normal with variance mu^2, and the loss is that of N(0, 1) against N(mu, 1). Dropping the last release
is post-processing. A matrix that is fixed in advance need not be lower-triangular. (Its noise is then used
early.) A rotation of the noise makes such a matrix lower-triangular.

(c) *Numerical losses* (discrete Gaussian or binomial noise, Laplace noise at delta > 0). Suppose that the
noise of every coordinate that a user changes is drawn after the user's record was added, and that
distribution and shift are fixed in advance. Then the loss is a sum of independent terms, one for each
coordinate. If several patterns of shifts are possible, the guarantee uses the worst pattern. Statement (c)
does not cover noise that is drawn before the user's record is added (see (a)). It does not cover scales set
from o.

The statements need the following conditions, which the named modules enforce. The policy of a user is
computed from releases before the user starts, and the user's record belongs to the batch that was open at
that time (:mod:`discreet.core.session`). Ends of batches depend on no data
(:class:`~discreet.core.releases.Schedule`). The random bits of policies and environments are separate from
the noise (:mod:`discreet.core.rng`). No noise is drawn twice, and no state is continued twice
(:mod:`discreet.core.lifecycle`). One person is one user. The neighbouring relation replaces a user, so the
number of users is public.

Sources: Chan, Shi and Song 2011 and Dwork, Naor, Pitassi and Rothblum 2010 (trees); Denisov, McMahan, Rush,
Smith and Thakurta 2022 (adaptive inputs of Gaussian factorizations).
"""
