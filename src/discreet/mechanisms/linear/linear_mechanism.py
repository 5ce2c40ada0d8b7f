"""Mechanisms of linear sums: the query, the noise strategy, the noise distribution, and the privacy loss.

The class :class:`LinearMechanism` corresponds to :class:`~discreet.core.count_mechanism.CountMechanism` for
counts. A user is in N noisy sums (one batch, nodes of a tree, or one message). Each sum consists of units,
and ``query.losses`` computes the loss of each unit from the scales. The losses of all units in all N sums are
added for Laplace noise. For Gaussian noise, the squared losses are added. If ``query.requeries`` is True,
there are planned questions in addition to the sums (:mod:`discreet.mechanisms.linear.adaptive_queries`). The
guarantee composes their losses with those of the sums.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from discreet.accounting.noise_distributions.linear_noise import GoeLaw, VectorLaw
from discreet.accounting.noise_distributions.prefix_variance import noise_of
from discreet.core import checks
from discreet.core.correlated_noise.binary_tree import Tree
from discreet.core.correlated_noise.factorization import Walk
from discreet.core.correlated_noise.optimal_tree import OptimalTree
from discreet.core.correlated_noise.square_root_toeplitz import SquareRoot
from discreet.core.count_mechanism import Stated, SumMechanism, leaves_of
from discreet.core.events import Fixed
from discreet.core.guarantee import MechanismRecord
from discreet.core.noise.noises import GAUSSIAN, LAPLACE
from discreet.core.releases import Floats, Schedule, Trust
from discreet.core.short_repr import brief
from discreet.core.strategies import Batches, Exact, OnDevice, Prefixes, plain_walk
from discreet.mechanisms.linear.adaptive_queries import Question, checked_plan, planned_records
from discreet.mechanisms.linear.context_query import ContextQuery
from discreet.mechanisms.linear.exact_square_root import ExactSquareRoot
from discreet.mechanisms.linear.linear_queries import GramQuery, LinearQuery, MixtureQuery, Noise

LINEAR_WALKS = (ExactSquareRoot, OptimalTree, SquareRoot, Tree)
LinearStrategy = Exact | Batches | Prefixes | OnDevice

_NOISE_UNITS = 2.0**-20, 2.0**38
_MOST_UNITS = 2.0**40  # largest noise scale of the exact sampler, in grid units
_STREAMS: dict[type, Literal["exact", "batches", "walk", "local"]] = {
    Exact: "exact", Batches: "batches", Prefixes: "walk", OnDevice: "local",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class LinearMechanism(SumMechanism):
    """Mechanism of linear sums: everything that is fixed before any data are read.

    Parameters
    ----------
    query
        MixtureQuery, GramQuery or ContextQuery.
    schedule
        Public times of release.
    source
        Source of the noise.
    strategy
        Exact(), Batches(), Prefixes(walk, leaf) or OnDevice().
    noise
        Noise distribution: "goe", "triangle" or "laplace".
    scales
        Noise scales (n,) of each family, one scale for each step. Empty for exact sums.
    grid
        With exact noise, rewards are multiples of 1 / grid. Otherwise None.
    questions
        Planned questions, in order.
    stated
        Delta and form in which the guarantee states the privacy loss.

    Raises
    ------
    ValueError
        If the parts do not fit together.
    """

    __repr__ = brief
    __reduce__ = checks.by_constructor

    query: LinearQuery
    schedule: Schedule
    source: Literal["seeded", "secure"]
    strategy: LinearStrategy
    noise: Noise = "goe"
    scales: Mapping[str, Floats] = field(default_factory=dict)
    grid: int | None = None
    questions: tuple[Question, ...] = ()
    stated: Stated = field(default_factory=Stated)

    def __post_init__(self) -> None:
        put = object.__setattr__
        checks.exactly("query", self.query, MixtureQuery, GramQuery, ContextQuery)
        checks.exactly("schedule", self.schedule, Schedule)
        checks.exactly("stated", self.stated, Stated)
        checks.exactly("strategy", self.strategy, *_STREAMS)
        checks.choice("source", self.source, ("seeded", "secure"))
        put(self, "noise", checks.choice("noise", self.noise, get_args(Noise)))
        if self.grid is not None:
            put(self, "grid", checks.integer("grid", self.grid, 2))
        if isinstance(self.strategy, Prefixes):
            leaf = checks.choice("strategy.leaf", self.strategy.leaf, ("batch", "user"))
            put(self, "strategy", Prefixes(plain_walk(self.strategy.walk, LINEAR_WALKS), leaf))
        if self.stated.numerical:
            raise ValueError("stated.numerical = True: linear sums are accounted by closed forms")
        put(self, "query", self.query.copy())
        put(self, "schedule", replace(self.schedule))
        own = {name: np.array(scales, np.float64) for name, scales in self.scales.items()}
        for scales in own.values():
            scales.flags.writeable = False
        put(self, "scales", Fixed(own))
        put(self, "questions", tuple(self.questions))
        self._check_strategy()
        self._check_scales()
        self._check_questions()

    def _check_strategy(self) -> None:
        strategy, laplace, discrete = self.strategy, self.noise == "laplace", self.source == "secure"
        if (self.grid is not None) != (discrete and not isinstance(strategy, Exact)):
            raise ValueError(
                f"grid = {self.grid}: must be given with noise from source 'secure', and only then"
            )
        if isinstance(strategy, Batches) and strategy != Batches():
            raise ValueError("strategy: batches of linear sums have no decay, and no user in several batches")
        if not isinstance(strategy, Prefixes):
            return
        walk = strategy.walk
        if walk.leaves != leaves_of(self.schedule, strategy.leaf) or walk.leaves is None:
            raise ValueError(f"strategy.walk: has {walk.leaves} leaves, which are not those of the schedule")
        if isinstance(walk, SquareRoot | ExactSquareRoot) and laplace:
            raise ValueError(
                "noise = 'laplace': a square-root walk has a large l1 norm, it needs Gaussian noise"
            )
        if isinstance(walk, ExactSquareRoot) and not (discrete and strategy.leaf == "batch"):
            raise ValueError("strategy.walk: integers are measured of batches, with a secure source")
        if isinstance(walk, OptimalTree | SquareRoot) and discrete:
            raise ValueError("source = 'secure': least-squares trees and square roots add up no integers")

    def _check_scales(self) -> None:
        if isinstance(self.strategy, Exact):
            if self.scales:
                raise ValueError("scales: must be empty without noise")
            return
        families = self.query.families
        for name, shape in families.items():
            given = self.scales.get(name, np.zeros(0))
            if given.shape != (shape[0],) or not np.isfinite(given).all() or (given < 0).any():
                raise ValueError(
                    f"scales[{name!r}] = {given}: must be {shape[0]} finite numbers, not below 0"
                )
        if set(self.scales) != set(families):
            raise ValueError(f"scales has families {sorted(self.scales)}: must be {sorted(families)}")
        if any(
            not (self.scales[name][unit.steps] > 0).all()
            for unit in self.query.units(self.noise)
            for name in unit.own
        ):
            raise ValueError("scales: every statistic that is released must have noise")
        if self.grid is not None and (
            reason := self.inexact(self.query, self.noise, self.scales, self.grid, self.walk)
        ):
            raise ValueError(reason)

    def _check_questions(self) -> None:
        query = self.query
        if not (isinstance(query, GramQuery) and query.requeries):
            if self.questions:
                raise ValueError("questions: must be empty for a query that asks nothing again")
            return
        if isinstance(self.strategy, OnDevice):
            raise ValueError(
                "questions: are asked of stored trajectories, which are not available under local privacy"
            )
        object.__setattr__(self, "questions", checked_plan(self.questions, query.layout))
        noisy = not isinstance(self.strategy, Exact)
        if any(question.private != noisy for question in self.questions):
            raise ValueError("questions: must have a loss of their own where sums have noise, and none else")
        if noisy and any((one.epsilon is not None) != (self.noise == "laplace") for one in self.questions):
            raise ValueError(
                "questions: must be priced in mu beside Gaussian noise, in epsilon beside Laplace"
            )

    @staticmethod
    def inexact(
        query: LinearQuery, noise: Noise, scales: Mapping[str, Floats], grid: int, walk: Walk | None
    ) -> str:
        """Return the reason why noise of these scales cannot be exact, or an empty string if it can be exact.

        query, noise, scales, grid : as in the class.

        ``walk`` : factorization for prefix sums, or None.
        """
        low, high = _NOISE_UNITS
        units = query.block_scales(scales, noise) / query.block_units(grid)
        if isinstance(walk, ExactSquareRoot):
            # the draws of this factorization are summed as integers, so the noise can have a larger scale
            units, high = walk.norm * units, _MOST_UNITS
        bad = np.flatnonzero((units < low) | (units > high))
        if not bad.size:
            return ""
        name, step, _ = query.blocks[int(bad[0])]
        return (
            f"{name}[{step}]: exact noise is {units[bad[0]]:.6g} grid units, must be in [{low:.3g}, "
            f"{high:.3g}]; use another budget or reward_grid"
        )

    # -------------------------------------------------------------------------- parts, by name
    @property
    def stream(self) -> Literal["exact", "batches", "walk", "local"]:
        """Name of the noise strategy."""
        return _STREAMS[type(self.strategy)]

    @property
    def trust(self) -> Trust:
        """Trust model: the party that sees raw data."""
        return {"exact": "none", "local": "local"}.get(self.stream, "joint")  # type: ignore[return-value]

    # -------------------------------------------------------------------------- privacy loss
    @cached_property
    def records(self) -> tuple[MechanismRecord, ...]:
        """Privacy records of the noisy sums and of the planned questions. Empty without noise."""
        if isinstance(self.strategy, Exact):
            return ()
        losses = self.query.losses(self.noise, self.scales)
        joint = math.fsum(losses) if self.noise == "laplace" else math.hypot(*losses)
        named, own = {}, {}
        for unit in self.query.units(self.noise):
            for name, sensitivity in unit.own.items():
                for step in unit.steps:
                    named[f"{name}[{step}]"] = float(self.scales[name][step])
                    own[f"{name}[{step}]"] = sensitivity
        discrete = self.source == "secure"
        family = (LAPLACE if self.noise == "laplace" else GAUSSIAN).record_name(self.grid)
        found = (MechanismRecord(self.words, family, named, own, joint, self.levels),)
        if not self.questions:
            return found
        assert isinstance(self.query, GramQuery)
        return (*found, *planned_records(self.questions, self.query.features, self.query.layout, discrete, 1))

    @property
    def words(self) -> str:
        """Name of the mechanism in the guarantee."""
        what = _statistics(self.query)
        if isinstance(self.strategy, OnDevice):
            return f"each user's own {what} on the device"
        if not isinstance(self.strategy, Prefixes):
            return f"one noisy sum of {what} for each scheduled batch of users"
        if isinstance(self.walk, SquareRoot | ExactSquareRoot):
            return (
                f"{what}, prefix sums with noise correlated by a Toeplitz matrix near the square root of "
                f"summation, a leaf is a {self.leaf} (a user's column of the strategy has l2 norm at most 1)"
            )
        least = ", least-squares estimates" if isinstance(self.walk, OptimalTree) else ""
        return f"{what}, binary tree, a leaf is a {self.leaf}{least}"

    def check_source(self, randomness: Any) -> None:
        """Raise ``ValueError`` unless the noise can be drawn from ``randomness`` (Seeded, Secure)."""
        self._check_drawn(randomness, self.grid)

    # -------------------------------------------------------------------------- noise distributions
    def terms(self, n: int, leaf: int, senders: int, noises: int | None) -> tuple[float, float]:
        """Return the number of noise terms in the release after n users, and the largest number so far.

        Both numbers are public.

        ``leaf`` : number of time steps of the noise strategy up to the release.

        senders : number of devices that sent a message, under local trust.

        noises : number of closed batches. None: all scheduled batches. If a scheduled release is skipped, its
            batch is merged with the next one.
        """
        if n == 0 or self.stream == "exact":
            return 0.0, 0.0
        if self.stream == "local":
            return float(senders), float(senders)
        if self.walk is not None:
            noise = noise_of(self.walk)
            return noise.terms(leaf), noise.most(leaf)
        terms = float(leaf if noises is None else noises)
        return terms, terms

    def laws(self, terms: tuple[float, float]) -> dict[str, GoeLaw | VectorLaw]:
        """Return the noise distribution of each family for the numbers of noise terms from :meth:`terms`."""
        found: dict[str, GoeLaw | VectorLaw] = {}
        releases = self.schedule.releases or 2**31
        laplace, discrete = self.noise == "laplace", self.grid is not None
        for name, shape in self.query.families.items():
            scales = self.scales.get(name, np.zeros(shape[0]))
            at = (tuple(scales.tolist()), *terms)
            if self.query.is_gram(name):
                diagonal = 2.0 if self.noise == "goe" else 1.0
                found[name] = GoeLaw(*at, shape[1], releases, laplace, discrete, diagonal)
            else:
                size = math.prod(shape[1:])
                found[name] = VectorLaw(*at, shape[-1], releases, laplace, discrete, size)
        return found

    def laws_at(self, n: int) -> dict[str, GoeLaw | VectorLaw]:
        """Return the noise distribution of each family after ``n`` users if all of them send a message."""
        return self.laws(self.terms(n, self.schedule.leaf_at(n, self.leaf), n, None))


def _statistics(query: LinearQuery) -> str:
    if isinstance(query, ContextQuery):
        each = "each action" if query.features.form == "per_action" else "all actions"
        return f"Gram matrices and responses of contexts, {each}"
    if isinstance(query, MixtureQuery):
        words = f"Gram matrices and {query.targets} value targets of steps 1 to {query.layout.horizon - 1}"
        if query.rewards is None:
            return words
        return f"{words}, rewards {'by pairs' if query.rewards == 'tabular' else 'by features'}"
    return "Gram matrices, next states and rewards" if not query.requeries else "Gram matrices"
