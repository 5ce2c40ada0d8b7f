"""Privatizers for sums of counts: none, central (joint DP) and local, as frozen specifications.

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
  (:mod:`discreet.privacy.continual.splits`): the joint loss is the budget whichever it is;
* Gaussian, mu-GDP: sqrt(levels) * l2(1 / sigma) = mu, with mu from (epsilon, delta) by the exact curve;
  discrete Gaussian noise (secure randomness) by its privacy-loss distribution where each noise is drawn
  after the records that it hides are in (:mod:`discreet.privacy.calibration`), else by its proven zCDP,
  rho = mu^2 / 2;
* Laplace with ``noise="laplace"`` and a delta: by its privacy-loss distribution too;
* reports (on the device, or ``release="reports"`` by the trusted server): no noise in sums, the randomizer's
  probabilities have ratios of at most e^epsilon (:mod:`discreet.privacy.mechanism`).

``calibration="published"`` is the papers' scale instead, 3 H log(K) / epsilon per node or
3 H / epsilon per user, and the guarantee then says which epsilon this really buys: the
sensitivity of a replaced trajectory is 2 H, not H, and a user lies in ceil(log2 K) nodes.

Sources: Chowdhury and Zhou 2021 and Qiao and Wang 2023 (central and local privatizers);
specification of tabular learners, sections 2 and 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from discreet.numerics.knobs import Knobs
from discreet.privacy.batch_session import batch_mechanism, has_batches
from discreet.privacy.budgeted import (
    check_cut,
    check_source,
    continual_query,
    private_query,
    private_schedule,
)
from discreet.privacy.central import Central, Choice
from discreet.privacy.linear_start import is_linear, linear_none
from discreet.privacy.local import Local, LocalChoice
from discreet.privacy.mechanism import CountMechanism, Exact
from discreet.privacy.one_shot import OneShotSession
from discreet.privacy.protocol import Budget, Mechanism, Schedule, Trust
from discreet.privacy.randomness import Randomness
from discreet.privacy.sessions import Proposes

__all__ = ["Central", "Choice", "Local", "LocalChoice", "NoPrivacy"]


@dataclass(frozen=True, kw_only=True)
class NoPrivacy(Knobs, Proposes):
    """Exact sums, no guarantee: the baseline."""

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}, "paper": {}}

    @property
    def trust(self) -> Trust:
        """Who is trusted with raw data: nobody promises anything."""
        return "none"

    @property
    def budget(self) -> Budget:
        """What learners may know of it: no privacy."""
        return Budget("none")

    def mechanism(self, query: Any, schedule: Schedule, randomness: Randomness) -> Mechanism:
        """Exact sums. Raises ``ValueError`` if the query is of no known type."""
        check_source(randomness)
        if has_batches(schedule):
            return batch_mechanism(self, query, schedule, randomness)
        if is_linear(query):
            return linear_none(query, schedule, randomness)
        query, schedule = continual_query(query, cuts=True), private_schedule(schedule)
        check_cut(query, schedule)
        return CountMechanism(query, schedule, randomness.kind, Exact())

    def stored_mechanism(self, query: Any, randomness: Randomness) -> CountMechanism:
        """Exact sums of stored people."""
        check_source(randomness)
        return CountMechanism(
            private_query(query), Schedule.one_shot(1), randomness.kind, Exact(), stored=True
        )

    def stored(self, query: Any, randomness: Randomness) -> OneShotSession:
        """A session for stored people that releases exact sums, once, step by step."""
        return OneShotSession(self.stored_mechanism(query, randomness), randomness)
