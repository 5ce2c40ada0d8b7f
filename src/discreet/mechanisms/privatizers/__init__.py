"""Privatizers for sums of counts: none, central (joint DP) and local, as frozen values.

A privatizer knows no shapes and holds no data; ``start`` binds the query, the schedule and the
source of randomness, sets the noise scales from the query's exact sensitivity, and hands out a
session whose guarantee is computed from those scales.

Calibration. With shares w_f of the budget (equal by default) and Delta_f the family's own
sensitivity, noise of family f is proportional to Delta_f / w_f (Laplace) or Delta_f / sqrt(w_f)
(Gaussian); the common factor is then set so that the *joint* loss is exactly the budget:

* Laplace, pure epsilon: levels * l1(1 / b) = epsilon; for raw families b = 6 H L / epsilon (tree with
  L levels) or 6 H / epsilon (local; a scheduled batch);
* where the schedule names shares of the pooled families for each release, the noise of release i is that of
  the same rule at those shares: its joint loss is the budget whatever the shares, and a user's data
  enter it with a factor c_i of a column with sum |c_i| <= 1 (Laplace: one batch) or sum c_i^2 <= 1
  (Gaussian, decaying), so that the losses add up to the budget at most;
* of a query with a cut a release holds one of two reward families, each at the rewards' whole share
  (:mod:`discreet.core.clipped_returns`): the joint loss is the budget whichever it is;
* Gaussian, mu-GDP: sqrt(levels) * l2(1 / sigma) = mu, with mu from (epsilon, delta) by the exact curve;
  discrete Gaussian noise (secure randomness) by its privacy-loss distribution where each noise is drawn
  after the records that it hides are in (:mod:`discreet.accounting.pld_calibration`), else by its proven
  zCDP, rho = mu^2 / 2;
* Laplace with ``noise="laplace"`` and a delta: by its privacy-loss distribution too;
* reports (on the device, or ``release="reports"`` by the trusted server): no noise in sums, the randomizer's
  probabilities have ratios of at most e^epsilon (:mod:`discreet.core.count_mechanism`).

``calibration="published"`` is the papers' scale instead, 3 H log(K) / epsilon per node or
3 H / epsilon per user, and the guarantee then says which epsilon this really buys: the
sensitivity of a replaced trajectory is 2 H, not H, and a user lies in ceil(log2 K) nodes.

Sources: Chowdhury and Zhou 2021 and Qiao and Wang 2023 (central and local privatizers).
"""
