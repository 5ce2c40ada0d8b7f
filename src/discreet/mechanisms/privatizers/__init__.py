"""Privatizers for sums of counts, as frozen values: no privacy, central (joint DP), local and shuffle.

A privatizer contains no shapes and no data. ``start`` takes the query, the schedule and the source of
randomness, and sets the noise scales from the query's exact sensitivity. ``start`` returns a session whose
guarantee is computed from those scales.

Calibration. Let w_f be the shares of the budget (equal by default) and Delta_f the separate sensitivity of
family f. The noise of family f is proportional to Delta_f / w_f (Laplace) or Delta_f / sqrt(w_f) (Gaussian).
The common factor is then set so that the *joint* loss is exactly the budget:

* Laplace, pure epsilon: levels * l1(1 / b) = epsilon; for raw families b = 6 H L / epsilon (tree with
  L levels) or 6 H / epsilon (local; a scheduled batch);
* if the schedule has shares of the pooled families for each release, the noise of release i is set by the
  same rule with those shares. The joint loss of release i is the budget for any shares. A user's data enter
  release i with a factor c_i, with sum |c_i| <= 1 (Laplace: one batch) or sum c_i^2 <= 1 (Gaussian, decaying)
  over the releases. The sum of the losses is therefore at most the budget;
* if rewards are clipped, a release has one of two reward families, and each of them has the whole share of
  rewards (:mod:`discreet.core.clipped_returns`). The joint loss is the budget with either family;
* Gaussian, mu-GDP: sqrt(levels) * l2(1 / sigma) = mu, with mu from (epsilon, delta) by the exact curve.
  Discrete Gaussian noise (secure randomness) is calibrated by its privacy-loss distribution if each noise is
  drawn after the records that it hides (:mod:`discreet.accounting.pld_calibration`), else by its proven zCDP,
  rho = mu^2 / 2;
* Laplace with ``noise="laplace"`` and a delta is also calibrated by its privacy-loss distribution;
* reports (on the device, or ``release="reports"`` by the trusted server) have no noise in sums; the
  probabilities of the randomizer have ratios of at most e^epsilon (:mod:`discreet.core.count_mechanism`).

``calibration="published"`` uses the papers' scale instead, 3 H log(K) / epsilon per node or 3 H / epsilon per
user. The guarantee then states the actual epsilon: the sensitivity of a replaced trajectory is 2 H, not H,
and a user is in ceil(log2 K) nodes.

Sources: Chowdhury and Zhou 2021 and Qiao and Wang 2023 (central and local privatizers).
"""
