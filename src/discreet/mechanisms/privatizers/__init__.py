"""Privatizers for sums of counts, as frozen objects: no privacy, central (joint DP), local and shuffle.

A privatizer contains no shapes and no data. ``start`` takes the query, the schedule and the source of
randomness, and sets the noise scales from the query's exact sensitivity. ``start`` returns a session. The
session's guarantee is computed from those scales.

Calibration. Let w_f be the shares of the budget (equal by default) and Delta_f the sensitivity of family f
alone. The noise of family f is proportional to Delta_f / w_f (Laplace) or Delta_f / sqrt(w_f) (Gaussian). The
common factor is then set so that the *joint* loss is exactly the budget:

* Laplace noise, pure epsilon: levels * l1(1 / b) = epsilon, where levels is the number of noisy sums that
  contain one user. For raw families, b = 6 H L / epsilon (tree with L levels) or 6 H / epsilon (noise of
  each device, or a single scheduled batch);
* pooled families: these are counts and rewards that are summed over all steps. Pooled families are released
  in addition to the sums of each step. ``Schedule.pooled_shares`` can give them a separate share of the
  budget in each release. The noise of release i is then set by the same rule with the shares of release i.
  For any shares, the joint loss of release i is the budget. A user's data are in release i with a factor c_i,
  where sum |c_i| <= 1 (Laplace: one batch) or sum c_i^2 <= 1 (Gaussian, decaying) over the releases. The sum
  of the losses is therefore at most the budget;
* clipped rewards: a release has one of two reward families, and each of these families has the whole share of
  rewards (:mod:`discreet.core.clipped_returns`). The joint loss is the budget with either family;
* Gaussian noise, mu-GDP: sqrt(levels) * l2(1 / sigma) = mu, where the exact privacy curve gives mu for
  (epsilon, delta). Discrete Gaussian noise (secure randomness) is calibrated by its privacy-loss distribution
  if each noise is drawn after the records that it protects (:mod:`discreet.accounting.pld_calibration`).
  Otherwise it is calibrated by its proven zCDP, rho = mu^2 / 2;
* Laplace noise with ``noise="laplace"`` and a delta: the scale is also calibrated by the privacy-loss
  distribution;
* randomized reports (on the device, or by the trusted server with ``release="reports"``): no noise is added
  to sums. The likelihood ratios of the randomizer are at most e^epsilon
  (:mod:`discreet.core.count_mechanism`).

``calibration="published"`` uses the scale of the papers instead, 3 H log(K) / epsilon for each node of the
tree or 3 H / epsilon for each user. The papers use two values that are not correct here: the sensitivity to
the replacement of a trajectory is 2 H, not H, and a user is in ceil(log2 K) nodes. The guarantee therefore
states the actual epsilon.

Sources: Chowdhury and Zhou 2021 and Qiao and Wang 2023 (central and local privatizers).
"""
