"""One noisy release of linear sums over stored visits with real-valued contexts.

A visit (x, a, y) is a context x, the action a that was taken, and a target y in [0, 1] (the later return).
With phi from the public :class:`~discreet.device.feature_map.FeatureMap` (||phi||_2 <= 1), the sums over all
visits of phi phi^T and of phi (y - 1/2) are released once, separately for each action.

Neighbours: all visits of one user are replaced. The number of users is public.

Sensitivity. At most m visits of each user are used. A change of the data is therefore a sum of m changes of
one visit each, where a visit that is absent adds zeros. By :mod:`discreet.device.context_form`, one change
has at most the loss mu_1 of lemma 3 of :mod:`discreet.mechanisms.linear.sensitivities` at the given noise
scales, and this loss is a norm of the change. The triangle inequality gives m mu_1. Users with m equal visits
attain it. The bound also covers an absent visit: its squared loss is alpha / 2 + beta / 4, and the value of
lemma 3 at t = 0 is larger, alpha + beta / 2. At equal scales of matrices and responses, the noise has the
scale s = 1.25 m / mu, for any number of actions.

If a user has more than m visits, the choice of m visits must not depend on other users' visits. The choice
can be random (:mod:`discreet.data.context_visits`).

Exact noise (secure randomness). Each phi is truncated towards 0 to multiples of 2^-12, so its norm does not
grow. Targets are rounded at random to multiples of 1/g in [0, 1]. Sums are integers, and noise is discrete
Gaussian (accounted as zCDP) or discrete Laplace in the same units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from discreet.accounting.noise_distributions.linear_noise import GoeLaw, VectorLaw
from discreet.core import checks
from discreet.core.events import MechanismRecord
from discreet.core.guarantee import guarantee_of, no_guarantee
from discreet.core.lifecycle import Guarded
from discreet.core.releases import Floats, Ints, Schedule
from discreet.core.rng import Randomness, SecureRng, Seeded, checked_on_grid
from discreet.core.short_repr import brief
from discreet.device.context_form import checked_contexts
from discreet.device.feature_map import FeatureMap
from discreet.device.linear_forms import GRAM, GRID, RESPONSE
from discreet.mechanisms.linear.context_query import ContextQuery
from discreet.mechanisms.linear.linear_session import NoiseDraws
from discreet.mechanisms.query_checks import check_source

GRAM_FAMILY, RESPONSE_FAMILY = "0.gram[0]", "0.response[0]"  # names in the record; all actions are one unit
_MOST_VISITS = 2**27  # up to this number, sums of products below 2^24 are exact in float64


@dataclass(frozen=True, eq=False)
class Visits:
    """Visits of users, one row for each visit. Visits are raw data.

    users : (n,) int64, number of the user of each visit, never decreasing.

    contexts : (n, *features.shape) float64. Every value is allowed.

    actions : (n,) int64 in [0, A).

    targets : (n,) float64 in [0, 1].
    """

    __repr__ = brief

    users: Ints
    contexts: Floats
    actions: Ints
    targets: Floats

    def __len__(self) -> int:
        return len(self.actions)

    def of(self, chosen: Any) -> Visits:
        """Return the visits at these indices, or the visits for which a boolean array is True."""
        return Visits(self.users[chosen], self.contexts[chosen], self.actions[chosen], self.targets[chosen])


@dataclass(frozen=True, eq=False)
class ContextRelease:
    """Released sums, which are public.

    features : FeatureMap of the sums.

    visits : m, the largest number of visits of one user.

    users : number of users, including those without a visit.

    gram : (A, p, p) noisy sums of phi phi^T by action.

    response : (A, p) noisy sums of phi (y - 1/2).

    gram_std : standard deviation of the noise off the diagonal of ``gram``; 0 for exact sums.

    response_std : standard deviation of the noise of ``response``.
    """

    __repr__ = brief

    features: FeatureMap
    visits: int
    users: int
    gram: Floats
    response: Floats
    gram_std: float
    response_std: float


class ContextSums(Guarded):
    """Session that sums stored visits and releases the sums once, with noise.

    Parameters
    ----------
    features : FeatureMap
        Public map, with form "per_action".
    visits : int
        m, the largest number of visits of one user, at least 1.
    privatizer : Central or NoPrivacy
        The budget. NoPrivacy releases exact sums.
    randomness : Seeded or Secure
        Source of the noise.

    Raises
    ------
    ValueError
        If an argument is not allowed, or the noise cannot be drawn exactly.
    """

    _what = "session of visits"

    def __init__(self, features: FeatureMap, visits: int, privatizer: Any, randomness: Randomness) -> None:
        super().__init__()
        checks.exactly("features", features, FeatureMap)
        checks.choice("features.form", features.form, ("per_action",))
        check_source(randomness)
        self.visits = checks.integer("visits", visits, 1)
        self.randomness = randomness
        if privatizer.trust not in ("joint", "none"):
            raise ValueError(f"privatizer = {checks.said(privatizer)}: must be Central(...) or NoPrivacy()")
        self._mechanism = privatizer.mechanism(
            ContextQuery(features=features), Schedule.one_shot(1), randomness
        )
        self.query: ContextQuery = self._mechanism.query
        self.features, self._grid = self.query.features, self._mechanism.grid
        self.records, self.guarantee = self._promised()
        self._cells = np.zeros(self.query.cells)
        self._taken, self._last, self._users = 0, -1, 0

    def _promised(self) -> tuple[tuple[MechanismRecord, ...], Any]:
        """Return the records of the mechanism and the guarantee for one user."""
        mechanism, kind = self._mechanism, self.randomness.kind
        if not mechanism.records:
            return (), no_guarantee(kind)
        (one,) = mechanism.records
        # the scales of the mechanism are for one visit, so the noise is multiplied by m
        larger = {name: self.visits * scale for name, scale in mechanism.scales.items()}
        if self._grid is not None and (
            reason := mechanism.inexact(self.query, mechanism.noise, larger, self._grid, None)
        ):
            raise ValueError(reason)
        scales = [self.visits * one.scales[f"{name}[0]"] for name in (GRAM, RESPONSE)]
        record = visits_record(self.query, self.visits, one.noise, *scales)
        stated = mechanism.stated
        delta = 0.0 if mechanism.noise == "laplace" else stated.delta
        guarantee = guarantee_of(
            "central", [record], randomness=kind, delta=delta or None, epsilon_nominal=stated.epsilon
        )
        return (record,), guarantee

    @property
    def users(self) -> int:
        """Number of users so far, including those without a visit."""
        return self._users

    def _drop(self) -> None:
        super()._drop()
        self._cells = np.zeros(0)

    def submit_many(self, visits: Visits, users: int | None = None) -> None:
        """Add the visits of users, each of whom is in one call only.

        visits : at most m rows for each user. ``users`` : number of users in the call; needed if some of them
        have no visit.

        Raises ``ValueError`` if a user has more visits or was in an earlier call, or if a value is out of
        range.
        """
        n = len(visits.actions)
        x, actions, targets = checked_contexts(
            self.features, visits.contexts, visits.actions, visits.targets, (n,), "visits"
        )
        number = np.asarray(visits.users)
        if number.shape != (n,) or number.dtype.kind not in "iu":
            raise ValueError(f"visits.users has shape {number.shape}: must be ({n},) integers")
        number = number.astype(np.int64)
        if n and ((np.diff(number) < 0).any() or number[0] < 0):
            raise ValueError("visits.users: must be at least 0 and never decrease")
        if n > self.visits and (number[self.visits :] == number[: -self.visits]).any():
            raise ValueError(f"visits: a user has more than visits = {self.visits} rows")
        different = int((np.diff(number) > 0).sum()) + 1 if n else 0
        given = different if users is None else checks.integer("users", users, different)
        phi, _ = self.query.form.rows(x, actions)
        y = np.clip(targets, 0.0, 1.0)
        if self._grid is not None:
            phi = np.trunc(phi / GRID)
            rounded = SecureRng().rounded(y, self._grid)
            y = np.rint(rounded * self._grid) - self._grid / 2
        else:
            y = y - 0.5
        cells = self.query.to_cells(self.query.block_sums(phi, actions, y))
        with self._call():
            self._check_open()
            if n and number[0] <= self._last:
                raise ValueError(f"visits.users = {number[0]}: must be above the users of earlier calls")
            if self._taken + n > _MOST_VISITS:
                raise ValueError(f"visits: sums of more than {_MOST_VISITS} visits are not exact")
            self._taken, self._users = self._taken + n, self._users + given
            self._last = int(number[-1]) if n else self._last
            self._cells += cells

    def release(self) -> ContextRelease:
        """Return the noisy sums, and close the session."""
        mechanism, query = self._mechanism, self.query
        with self._call():
            self._check_open()
            cells, users = self._cells, self._users
            self._drop()  # called before the noise is drawn, so that no sums get two noises
        laws = mechanism.laws((1.0, 1.0)) if self.records else {}
        if self.records:
            draws = NoiseDraws(mechanism, query)
            if self._grid is not None:
                checked_on_grid(cells, 1)
            if isinstance(self.randomness, Seeded):
                noise = float(self.visits) * draws.at(self.randomness.keys.noise, 0, 0)
            else:
                noise = checked_on_grid(draws.from_coins(SecureRng(), float(self.visits)), 1)
            cells = draws.in_values(cells + noise)
        found = query.from_cells(cells)
        gram, vector = laws.get(GRAM), laws.get(RESPONSE)
        std = [0.0, 0.0]
        if isinstance(gram, GoeLaw) and isinstance(vector, VectorLaw):
            std = [float(self.visits * one.std(0)) for one in (gram, vector)]
        return ContextRelease(self.features, self.visits, users, found[GRAM], found[RESPONSE], std[0], std[1])


def visits_record(
    query: ContextQuery, visits: int, noise: Any, gram: float, response: float
) -> MechanismRecord:
    """Return the privacy record of a release of sums over visits.

    query : query of one visit. visits : m. noise : kind of noise. gram, response : noise scales.
    """
    laplace = noise.endswith("laplace")
    kind: Any = "laplace" if laplace else "goe"
    blocks = query.features.blocks
    losses = query.losses(kind, {GRAM: np.full(blocks, gram), RESPONSE: np.full(blocks, response)})
    (unit,) = query.units(kind)
    return MechanismRecord(
        f"one noisy sum of phi phi^T and phi y of each action, over at most {visits} visits a person",
        noise,
        {GRAM_FAMILY: gram, RESPONSE_FAMILY: response},
        {GRAM_FAMILY: visits * unit.own[GRAM], RESPONSE_FAMILY: visits * unit.own[RESPONSE]},
        visits * (math.fsum(losses) if laplace else math.hypot(*losses)),
    )
