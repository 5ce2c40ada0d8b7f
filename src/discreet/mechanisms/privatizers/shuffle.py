"""Privatizer of shuffle privacy, which sets the random bits or the randomized reports of each batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from discreet.accounting import binomial_noise as accountant
from discreet.accounting import budget as budgets
from discreet.accounting.binomial_noise import CALIBRATIONS, Calibration, Noise
from discreet.core import checks
from discreet.core.count_mechanism import Stated
from discreet.core.releases import (
    Schedule,
    Trust,
)
from discreet.core.rng import Randomness
from discreet.mechanisms.interfaces import Budget, Mechanism
from discreet.mechanisms.open_session import Proposes
from discreet.mechanisms.privatizers.base import checked_weights, shares_of
from discreet.mechanisms.query_checks import (
    check_source,
    continual_query,
    has_batches,
    is_linear,
    private_schedule,
)
from discreet.mechanisms.shuffle.shuffle_mechanisms import FlipMechanism, batch_ends
from discreet.utils.config import Knobs

ShuffleRandomizer = Literal["bits", "amplified"]


@dataclass(frozen=True, kw_only=True)
class Shuffle(Knobs, Proposes):
    """Privatizer of shuffle privacy: devices randomize messages, and a shuffler releases sums of batches.

    No party sees a trajectory. The privatizer works with every learner that has a public schedule, if each
    user contributes one bit to each counter. For sums over contexts (linear-bandit), each device adds a share
    of integer Skellam noise (:mod:`discreet.mechanisms.shuffle.skellam_session`), and only ``epsilon``,
    ``delta`` and ``dishonest`` apply. The privatizer does not support sums that are pooled over steps, or
    group returns. The relative noise decreases with the size of the batches.

    Parameters
    ----------
    epsilon : float
        Privacy loss, above 0, of each batch. It is also the privacy loss of all batches together, because a
        user is in one batch.
    delta : float
        The delta of (epsilon, delta)-privacy, in [1e-10, 1).
    randomizer : "bits" or "amplified"
        ``bits`` (default): each device adds random bits (flips) to every counter. ``amplified``: each device
        sends one locally private report of a few random steps
        (:mod:`discreet.mechanisms.shuffle.amplified_session`). With ``amplified`` the sums have more noise,
        but a device needs fewer random draws. ``calibration`` and ``weights`` do not apply to ``amplified``.
        The query sets the share of the reports that are about rewards.
    calibration : "joint", "composed", "basic" or "published"
        Rule for the number of flips (:mod:`discreet.accounting.binomial_noise`).
    dishonest : float
        Share in [0, 1) of a batch's users who can omit their flips or be absent without loss of privacy for
        the other users. If all users are honest, the variance of the noise is proportional to 1 / (1 -
        dishonest).
    weights : tuple of float
        Shares of the budget of the families, in the order of the query. They sum to 1. None: the shares that
        the query sets. The variance of an estimate's noise is proportional to 1 / share, so equal shares give
        equal noise in every cell.
    """

    epsilon: float | None = None
    delta: float | None = None
    randomizer: ShuffleRandomizer | None = None
    calibration: Calibration | None = None
    dishonest: float | None = None
    weights: tuple[float, ...] | None = None

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {"delta": 1e-6, "randomizer": "bits", "calibration": "joint", "dishonest": 0.0},
        "paper": {"calibration": "published"},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        if self.epsilon is None:
            raise ValueError("epsilon = None: must be given, a finite number above 0")
        put(self, "epsilon", budgets.check_epsilon(self.epsilon))
        put(self, "delta", checks.real("delta", self.delta, accountant.LEAST_DELTA, 1.0, open_high=True))
        put(self, "randomizer", checks.choice("randomizer", self.randomizer, get_args(ShuffleRandomizer)))
        put(self, "calibration", checks.choice("calibration", self.calibration, CALIBRATIONS))
        given = "weights" if self.weights is not None else "calibration"
        if self.randomizer == "amplified" and (self.weights is not None or self.calibration != "joint"):
            raise ValueError(
                f"{given} = {getattr(self, given)!r}: is for randomizer 'bits'; amplified reports have "
                "neither (their calibration is the numerical bound)"
            )
        put(self, "dishonest", checks.real("dishonest", self.dishonest, 0.0, 1.0, open_high=True))
        put(self, "weights", checked_weights(self.weights))

    @property
    def trust(self) -> Trust:
        """Trust model "shuffle": no party sees a trajectory, and the shuffler sees single messages."""
        return "shuffle"

    @property
    def budget(self) -> Budget:
        """Stated budget. The budget is public, so learners can adapt their choices to it."""
        return Budget("shuffle", self.epsilon, float(self.delta or 0.0))

    def honest(self, users: int) -> int:
        """Return the least number of honest users in a batch of ``users`` users, at least 1.

        The calibration counts only the flips of honest users as noise.
        """
        return max(1, users - math.floor(float(self.dishonest or 0.0) * users + 1e-9))

    def noise(self, query: Any, users: int) -> Noise:
        """Return the numbers of flips, by family, for a batch of ``users`` users.

        Raises ``ValueError`` if ``query`` does not fit.
        """
        query = continual_query(query)
        shares = shares_of(query, self.weights)
        assert self.epsilon is not None and self.delta is not None and self.calibration is not None
        return accountant.noise_of(
            query, shares, self.calibration, self.epsilon, self.delta, self.honest(users)
        )

    def mechanism(self, query: Any, schedule: Schedule, randomness: Randomness) -> Mechanism:
        """Return the mechanism. Each batch between two scheduled releases has its own noise.

        Raises ``ValueError`` if contributions to ``query`` are not bits, if the release times of ``schedule``
        are not known, or if noise cannot be drawn from ``randomness``.
        """
        check_source(randomness)
        if has_batches(schedule):
            from discreet.mechanisms.batch_queries import batch_mechanism

            return batch_mechanism(self, query, schedule, randomness)
        contexts = type(query).__name__ == "ContextQuery" and is_linear(query)
        query = query.copy() if contexts else continual_query(query)
        schedule = private_schedule(schedule)
        assert self.epsilon is not None and self.delta is not None
        sizes = np.diff(batch_ends(schedule), prepend=0).tolist()
        if contexts:
            self._check_sums()
            from discreet.mechanisms.shuffle.skellam_session import skellam_mechanism

            honest = [self.honest(size) for size in sizes]
            return skellam_mechanism(query, schedule, randomness, honest, self.epsilon, self.delta)
        if self.randomizer == "amplified":
            # imported here, because the imported module extends the shuffle session
            from discreet.mechanisms.shuffle.amplified_session import amplified_mechanism

            honest = [self.honest(size) for size in sizes]
            return amplified_mechanism(query, schedule, randomness, honest, self.epsilon, self.delta)
        by_size = {size: self.noise(query, size) for size in dict.fromkeys(sizes)}
        noises = tuple(by_size[size] for size in sizes)
        stated = Stated(self.delta, self.epsilon)
        return FlipMechanism(query, schedule, randomness.kind, stated, noises, self._words())

    def _check_sums(self) -> None:
        given = {"randomizer": "bits", "calibration": "joint", "weights": None}
        for name, default in given.items():
            if getattr(self, name) != default:
                raise ValueError(
                    f"privatizer: {name} = {getattr(self, name)!r}: must be {default!r} for sums over "
                    "contexts, which have Skellam noise"
                )

    def _words(self) -> str:
        words = f"bits and coin flips, {self.calibration} calibration"
        if self.dishonest:
            words += f", of the flips of at least {1 - self.dishonest:.6g} of a batch's users"
        return words
