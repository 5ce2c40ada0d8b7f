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
* Gaussian, mu-GDP: sqrt(levels) * l2(1 / sigma) = mu, with mu from (epsilon, delta) by the exact curve;
  discrete Gaussian noise (secure randomness) by its privacy-loss distribution where each noise is drawn
  after the records that it hides are in (:mod:`discreet.privacy.calibration`), else by its proven zCDP,
  rho = mu^2 / 2;
* Laplace with ``noise="laplace"`` and a delta: by its privacy-loss distribution too.

``calibration="published"`` is the papers' scale instead, 3 H log(K) / epsilon per node or
3 H / epsilon per user, and the guarantee then says which epsilon this really buys: the
sensitivity of a replaced trajectory is 2 H, not H, and a user lies in ceil(log2 K) nodes.

Sources: Chowdhury and Zhou 2021 and Qiao and Wang 2023 (central and local privatizers);
specification of tabular learners, sections 2 and 3.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from discreet.numerics import checks
from discreet.numerics.knobs import Knobs
from discreet.privacy import accounting, calibration, kernels
from discreet.privacy import budget as budgets
from discreet.privacy.accounting import Coordinate
from discreet.privacy.continual.clocks import Clocks
from discreet.privacy.continual.decaying import DECAYS, Decaying
from discreet.privacy.continual.optimal_tree import OptimalTree
from discreet.privacy.continual.signed_digits import MOST_ARITY, SignedDigits
from discreet.privacy.continual.square_root import MOST_LEAVES, SquareRoot
from discreet.privacy.continual.tree import Tree
from discreet.privacy.continual.walk import Walk
from discreet.privacy.counts import POOLED_REWARDS, POOLED_TRANSITIONS, TRANSITIONS, VISITS, CountQuery
from discreet.privacy.guarantee import (
    Guarantee,
    MechanismRecord,
    NoiseFamily,
    ReportRecord,
    guarantee_of,
    joint_loss,
    no_guarantee,
)
from discreet.privacy.local_reports import KINDS, Kind, StepReports
from discreet.privacy.one_shot import OneShotSession, check_query
from discreet.privacy.protocol import Floats, Norm, Schedule, Terms, Trust
from discreet.privacy.randomness import Randomness, Secure, Seeded
from discreet.privacy.session import CountSession, Mechanism, leaves_of

Noise = Literal["laplace", "gaussian", "auto"]
Calibration = Literal["exact", "published"]
Release = Literal["auto", "tree", "signed-digits", "square-root", "batches", "decaying"]
TreeEstimate = Literal["plain", "optimal"]

_RELEASES = ("auto", "tree", "signed-digits", "square-root", "batches", "decaying")
_WALKS = ("tree", "signed-digits", "square-root")  # correlated noise on prefix sums

_FINEST_ACCOUNTED = 4096  # grid of rewards: noise on a finer one has too many values to account for each
_STATED_DELTA = 1e-6  # delta at which a budget in rho or mu is also stated as (epsilon, delta)


_MOST_CELLS = 2 * 10**8  # of a session that releases all of them at once, many times


def _copied(query: Any) -> CountQuery:
    """A private copy: what a learner does to its own query later moves no noise."""
    if type(query) is not CountQuery:  # a subclass could declare any sensitivity
        raise ValueError(f"query = {query!r}: this privatizer answers a CountQuery, and no subclass of it")
    return query.copy()


def _query(query: Any) -> CountQuery:
    """A private copy of what a session of many releases can answer."""
    query = _copied(query)
    if query.episodes > 1:
        raise ValueError(
            f"query.episodes = {query.episodes}: must be 1 in a session of plans and releases, where each "
            "user is one episode; several episodes of stored people are for the one-shot session, "
            "privatizer.stored(query, randomness)"
        )
    query.check_cells(_MOST_CELLS)
    return query


def _schedule(schedule: Any) -> Schedule:
    """A private copy."""
    if type(schedule) is not Schedule:  # a subclass could move the times of release
        raise ValueError(f"schedule = {schedule!r}: must be a Schedule, and no subclass of it")
    return dataclasses.replace(schedule)


def _fresh(walk: Walk) -> bool:
    """Is each of its noises drawn after the records that it hides, on a known number of equal levels?"""
    return isinstance(walk, Tree | OptimalTree) and walk.leaves is not None


def _noise_name(family: int, grid: int | None) -> NoiseFamily:
    if family == kernels.LAPLACE:
        return "laplace" if grid is None else "discrete_laplace"
    return "gaussian" if grid is None else "discrete_gaussian"


def _named(query: CountQuery, scales: Floats, grid: int | None) -> tuple[tuple[str, float, int], ...]:
    """(family, scale, grid of its values) in the order of the query."""
    return tuple(
        (name, float(scale), 1 if grid is None or name in (VISITS, TRANSITIONS) else grid)
        for name, scale in zip(query.row_families, scales, strict=True)
    )


def _check_source(randomness: Any) -> None:
    if not isinstance(randomness, Seeded | Secure):
        raise ValueError(f"randomness = {randomness!r}: must be Seeded(...) or Secure(...)")


def _check_exact(mechanism: Mechanism, names: Iterable[str], epochs: bool) -> None:
    """Scales at which exact noise and its sums stay exact: refused before anybody comes, not after."""
    low, high = 2.0**-20, 2.0 ** (32 if epochs else 38)  # an epoch's scale grows to at most 52 times this
    for name, scale in zip(names, mechanism.scales.tolist(), strict=True):
        units = scale * mechanism.noise_factor * (mechanism.grid(name) or 1)
        if not low <= units <= high:
            raise ValueError(
                f"{name}: exact noise of scale {scale:.6g} is {units:.6g} grid units, must be in "
                f"[{low:.3g}, {high:.3g}]; use another budget, weight or reward_grid"
            )


@dataclass(frozen=True, kw_only=True)
class NoPrivacy(Knobs):
    """Exact sums, no guarantee: the baseline."""

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}, "paper": {}}

    @property
    def trust(self) -> Trust:
        """Who is trusted with raw data: nobody promises anything."""
        return "none"

    @property
    def budget(self) -> Terms:
        """What learners may know of it: no privacy."""
        return Terms("none")

    def start(self, query: Any, schedule: Schedule, randomness: Randomness) -> CountSession:
        """A session that releases exact sums. Raises ``ValueError`` if the query is not of counts."""
        query, schedule = _query(query), _schedule(schedule)
        _check_source(randomness)
        mechanism = Mechanism("exact", kernels.NO_NOISE, np.zeros(len(query.row_families)))
        return CountSession("none", mechanism, query, schedule, randomness, no_guarantee(randomness.kind))

    def stored(self, query: Any, randomness: Randomness) -> OneShotSession:
        """A session for stored people that releases exact sums, once, step by step."""
        query = _copied(query)
        _check_source(randomness)
        mechanism = Mechanism("exact", kernels.NO_NOISE, np.zeros(len(query.row_families)))
        guarantee = no_guarantee(randomness.kind, episodes=query.episodes)
        return OneShotSession(mechanism, query, randomness, guarantee, ())


@dataclass(frozen=True, kw_only=True)
class _Noisy(Knobs):
    """Budget, noise family and calibration: what central and local privatizers share."""

    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    mu: float | None = None
    noise: Noise | None = None
    calibration: Calibration | None = None
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        given = [name for name in ("epsilon", "rho", "mu") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"{' and '.join(given) or 'epsilon'}: exactly one of epsilon, rho and mu must be given"
            )
        if self.epsilon is not None:
            put(self, "epsilon", budgets.check_epsilon(self.epsilon))
        else:
            put(self, given[0], checks.positive(given[0], getattr(self, given[0])))
        if self.delta is not None and self.delta != 0:
            put(self, "delta", budgets.check_delta(self.delta))
        elif self.delta == 0:
            put(self, "delta", None)
        checks.choice("noise", self.noise, ("laplace", "gaussian", "auto"))
        checks.choice("calibration", self.calibration, ("exact", "published"))
        if self.weights is not None:
            if not isinstance(self.weights, Iterable):
                raise ValueError(f"weights = {self.weights!r}: must be positive numbers that sum to 1")
            weights = tuple(checks.positive("weights", w) for w in self.weights)
            if abs(sum(weights) - 1) > 1e-9:
                raise ValueError(f"weights = {self.weights}: must sum to 1")
            put(self, "weights", weights)
        if self.epsilon is None and self.noise == "laplace":
            raise ValueError(f"noise = 'laplace': a budget in {given[0]} is met by Gaussian noise")
        if self.epsilon is not None and self.delta is None and self.noise == "gaussian":
            raise ValueError("delta = 0: Gaussian noise needs delta in (0, 1)")
        if self.calibration == "published" and (self.noise == "gaussian" or self.epsilon is None):
            raise ValueError(
                "calibration = 'published': the papers' noise is Laplace at a pure epsilon; "
                "give epsilon, and noise 'laplace' or 'auto'"
            )

    trust: ClassVar[Any]  # a property of each trust model

    @property
    def budget(self) -> Terms:
        """The stated budget: public, for learners that choose by it."""
        return Terms(self.trust, self.epsilon, self.delta or 0.0, self.rho, self.mu)

    # ------------------------------------------------------------------------- calibration
    def _shares(self, query: CountQuery) -> tuple[float, ...]:
        families = len(query.row_families)
        if self.weights is None:
            return query.shares
        if len(self.weights) != families:
            raise ValueError(
                f"weights has {len(self.weights)} entries: must have {families}, one for each of "
                f"{', '.join(query.row_families)}"
            )
        return self.weights

    def _unit_scales(self, query: CountQuery, norm: Norm) -> Floats:
        """Scales, up to a factor, at which every family spends its share."""
        own = [query.sensitivity(norm, {name: 1.0}) for name in query.row_families]
        power = 1.0 if norm == "l1" else 0.5
        return np.array([d / w**power for d, w in zip(own, self._shares(query), strict=True)])

    def _loss(self, query: CountQuery, norm: Norm, scales: Floats) -> float:
        """Joint sensitivity in units of the noise: what one summand's exposure costs."""
        return query.sensitivity(norm, dict(zip(query.row_families, (1.0 / scales).tolist(), strict=True)))

    def _laplace(self, query: CountQuery, levels: int) -> Floats:
        assert self.epsilon is not None
        scales = self._unit_scales(query, "l1")
        return scales * (levels * self._loss(query, "l1", scales) / self.epsilon)

    def _target_mu(self, discrete: bool) -> float | None:
        """mu of the Gaussian noise, by the exact curve, or by zCDP for discrete noise; None without delta."""
        if self.mu is not None:
            return self.mu
        if self.rho is not None:
            return math.sqrt(2 * self.rho)
        if self.delta is None or self.epsilon is None:
            return None
        if discrete:
            return math.sqrt(2 * budgets.zcdp_rho(self.epsilon, self.delta))
        return budgets.gdp_mu(self.epsilon, self.delta)

    def _gaussian(self, query: CountQuery, levels: int, mu: float) -> Floats:
        scales = self._unit_scales(query, "l2")
        return scales * (math.sqrt(levels) * self._loss(query, "l2", scales) / mu)

    def _options(
        self,
        query: CountQuery,
        levels: int,
        discrete: bool,
        laplace: bool = True,
        gaussian: bool = True,
        fresh: bool = True,
    ) -> list[tuple[int, Floats, float]]:
        """(family, scales, std of one noise in a transition cell) of each noise that meets the budget.

        ``fresh`` : is each noise drawn after the records that it hides are in (what accounting needs)?
        """
        mu = self._target_mu(discrete)
        options: list[tuple[int, Floats, float]] = []
        at = list(query.row_families).index(TRANSITIONS)
        if laplace and self.noise in ("laplace", "auto") and self.epsilon is not None:
            scales = self._laplace(query, levels)
            if not discrete and self._numerical(query, kernels.LAPLACE, discrete, fresh):
                scales = scales * self._least(query, levels, kernels.LAPLACE, scales, None, 1.0)
            options.append((kernels.LAPLACE, scales, math.sqrt(2) * float(scales[at])))
        if gaussian and self.noise in ("gaussian", "auto") and mu is not None:
            scales = self._gaussian(query, levels, mu)
            options.append((kernels.GAUSSIAN, scales, float(scales[at])))
        return options

    def _numerical(self, query: CountQuery, family: int, discrete: bool, fresh: bool) -> bool:
        """Is the noise set by its privacy-loss distribution, since no closed form is as good?"""
        wanted = discrete if family == kernels.GAUSSIAN else self.noise == "laplace"
        known = self.delta is not None and self.delta >= accounting.LEAST_DELTA  # below: closed forms
        asked = self.epsilon is not None and known and self.calibration == "exact"
        return wanted and asked and fresh and calibration.shift_patterns(query, 1) is not None

    def _least(
        self, query: CountQuery, levels: int, family: int, scales: Floats, grid: int | None, guess: float
    ) -> float:
        """The least factor on scales that meet the budget by a closed form."""
        patterns = calibration.shift_patterns(query, levels)
        assert patterns is not None and self.epsilon is not None and self.delta is not None
        named = _named(query, scales, grid)
        return calibration.least_factor(
            patterns, _noise_name(family, grid), named, self.epsilon, self.delta, 1.0, guess
        )

    def _calibrated(
        self,
        trust: Literal["joint", "local"],
        mechanism: Mechanism,
        words: str,
        query: CountQuery,
        schedule: Schedule,
        randomness: Randomness,
        levels: int,
        fresh: bool = True,
    ) -> tuple[Mechanism, MechanismRecord, Guarantee]:
        """The mechanism with its last scales, what it does to a user, and what that guarantees."""
        discrete, grid = isinstance(randomness, Secure), mechanism.reward_grid
        numerical = self._numerical(query, mechanism.family, discrete, fresh)
        numerical = numerical and (grid or 1) <= _FINEST_ACCOUNTED
        if numerical and discrete:
            assert self.epsilon is not None and self.delta is not None
            guess = 1.0
            if mechanism.family == kernels.GAUSSIAN:  # as much as continuous noise
                guess = math.sqrt(2 * budgets.zcdp_rho(self.epsilon, self.delta)) * 1.001
                guess /= budgets.gdp_mu(self.epsilon, self.delta)
            factor = self._least(query, levels, mechanism.family, mechanism.scales, grid, guess)
            mechanism = dataclasses.replace(mechanism, scales=mechanism.scales * factor)
        if discrete:
            _check_exact(mechanism, query.row_families, schedule.users is None)
            assert mechanism.release_scales is not None
            for release in range(1, mechanism.release_scales.shape[0]):
                at = dataclasses.replace(mechanism, scales=mechanism.scales_at(release))
                _check_exact(at, query.row_families, False)
        laplace = mechanism.family == kernels.LAPLACE
        name = _noise_name(mechanism.family, grid)
        named = dict(zip(query.row_families, mechanism.scales.tolist(), strict=True))
        exchanges: tuple[tuple[Coordinate, ...], ...] = ()
        if numerical:
            patterns = calibration.shift_patterns(query, levels) or ()
            exchanges = calibration.exchanges(patterns, name, _named(query, mechanism.scales, grid))
        rounding = 0.0
        if mechanism.fixed_point:
            stream = Decaying(mechanism.decay)
            rounding = stream.rounding(schedule.release_times.size - 1, query.layout.horizon)
        record = MechanismRecord.of(query, words, name, named, levels, exchanges, rounding)
        guarantee = guarantee_of(
            trust,
            [record],
            randomness=randomness.kind,
            delta=None if laplace and not numerical else self.delta or _STATED_DELTA,
            epsilon_nominal=self.epsilon,
            episodes=query.episodes,
        )
        return mechanism, record, guarantee


@dataclass(frozen=True)
class Choice:
    """One mechanism that meets a budget: what it would do, and how large its noise would be.

    release : as :class:`Central`'s option; decay : of the stream; levels : noisy sums that one user is in.
    family, scales : of one noise; error : root mean square over the releases of the standard deviation of
    a transition count (sums), or that of the equivalent count at the last release (measurements).
    walk : the program of the noise, for "tree", "signed-digits" and "square-root".
    """

    release: str
    decay: float
    levels: int
    family: int
    scales: Floats
    error: float
    walk: Walk | None = None

    @property
    def noise(self) -> str:
        """Its family in words."""
        return "Laplace" if self.family == kernels.LAPLACE else "Gaussian"

    @property
    def name(self) -> str:
        """The release, with its decay, its arity or its estimate."""
        if isinstance(self.walk, SignedDigits):
            return f"{self.release} (arity {self.walk.arity}, {self.levels} levels)"
        if isinstance(self.walk, OptimalTree):
            return f"{self.release} (optimal estimate)"
        return f"{self.release} (decay {self.decay:g})" if self.decay else self.release

    def __str__(self) -> str:
        return f"{self.name}, {self.noise} noise: error {self.error:.4g} per transition count"


@dataclass(frozen=True, kw_only=True)
class Central(_Noisy):
    """Joint differential privacy: a trusted server releases noisy sums.

    Parameters
    ----------
    epsilon : float
        Privacy loss, above 0 (or give ``rho`` of zCDP or ``mu`` of Gaussian DP instead).
    delta : float
        In (0, 1); 0 or None for pure epsilon.
    noise : "laplace", "gaussian" or "auto"
        ``auto`` (default): the smaller error at this budget, both computed.
    release : "auto", "tree", "signed-digits", "square-root", "batches" or "decaying"
        ``tree``: binary tree, each node's noise is drawn once. ``signed-digits``: trees of a higher arity
        with balanced digits, Laplace noise at a pure epsilon
        (:mod:`discreet.privacy.continual.signed_digits`). ``square-root``: Gaussian noise correlated by a
        Toeplitz matrix (:mod:`discreet.privacy.continual.square_root`). ``batches``: fresh noise on each
        scheduled batch. ``decaying``: fresh Gaussian noise on a decaying sum of batches
        (:mod:`discreet.privacy.continual.decaying`). ``auto`` (default): the least expected error for
        the learner's schedule, computed from public numbers before any data (:meth:`choices`).
    decay : float, optional
        Of ``decaying``, in [0, 1); None: the best of a grid for the schedule.
    arity : int, optional
        Of ``signed-digits``, 2 to 1024; None: the least root mean square error over the releases.
    tree_estimate : "plain" or "optimal"
        Of ``tree``. ``plain`` (default): a prefix is the sum of its nodes' measurements. ``optimal``: of
        their least-squares estimates, with less noise at the same loss (known number of users, seeded
        randomness; :mod:`discreet.privacy.continual.optimal_tree`). ``auto`` tries both.
    leaf : "batch" or "user"
        A leaf of a tree or another walk is the users between two scheduled releases (default; the same
        as a user where every user is followed by a release), or one user, as in the papers.
    calibration : "exact" or "published"
        ``exact``: the stated budget is the true one. ``published``: the papers' 3 H log(K) / epsilon
        per node of the tree; the guarantee states the epsilon that it really buys.
    clocks : "common" or "rows"
        ``rows``: each (h, s, a) is measured by a clock of its own, which counts the users whose public
        policy plays it (:mod:`discreet.privacy.continual.clocks`); what no policy plays carries no noise.
        For learners that read measurements.
    clock_growth : float
        With clocks of rows: by which share a row's assigned users must have grown; 0: at every release.
    log_base : 2 or e
        Of the published scale, whose papers leave it open.
    weights : tuple, optional
        Shares of the budget per family, in the order of the query; the query's own by default.
    preset : "default" or "paper"
        ``paper``: calibration published, Laplace noise, tree, a leaf is a user.
    """

    release: Release | None = None
    leaf: Literal["batch", "user"] | None = None
    decay: float | None = None
    clocks: Literal["common", "rows"] | None = None
    clock_growth: float | None = None
    log_base: float | str | None = None
    arity: int | None = None
    tree_estimate: TreeEstimate | None = None

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {
            "noise": "auto", "calibration": "exact", "release": "auto", "leaf": "batch", "log_base": 2.0,
            "clocks": "common", "clock_growth": 0.0, "tree_estimate": "plain",
        },
        "paper": {"noise": "laplace", "calibration": "published", "release": "tree", "leaf": "user"},
    }  # fmt: skip

    def __post_init__(self) -> None:
        if self.calibration == "published" and self.release is None:
            object.__setattr__(self, "release", "tree")  # what the published scale belongs to
        if self.leaf == "user" and self.release is None:
            object.__setattr__(self, "release", "tree")
        super().__post_init__()
        checks.choice("release", self.release, _RELEASES)
        checks.choice("tree_estimate", self.tree_estimate, ("plain", "optimal"))
        checks.choice("leaf", self.leaf, ("batch", "user"))
        if self.calibration == "published" and self.release != "tree":
            raise ValueError(
                f"release = {self.release!r}: must be 'tree' with calibration 'published', whose scale is "
                "that of a tree; or give calibration 'exact'"
            )
        if self.decay is not None:
            object.__setattr__(self, "decay", checks.real("decay", self.decay, 0.0, 1.0, open_high=True))
            if self.release != "decaying":
                raise ValueError(f"decay = {self.decay!r}: is an option of release = 'decaying' only")
        checks.choice("clocks", self.clocks, ("common", "rows"))
        object.__setattr__(self, "clock_growth", Clocks(self.clock_growth or 0.0).growth)
        if self.clock_growth and self.clocks != "rows":
            raise ValueError(f"clock_growth = {self.clock_growth!r}: is an option of clocks = 'rows' only")
        if self.clocks == "rows" and (self.release in _WALKS or self.calibration == "published"):
            raise ValueError(
                "clocks = 'rows': are for release 'batches', 'decaying' or 'auto', not for a tree"
            )
        if self.arity is not None:
            object.__setattr__(self, "arity", checks.integer("arity", self.arity, 2, MOST_ARITY))
            if self.release != "signed-digits":
                raise ValueError(f"arity = {self.arity!r}: is an option of release = 'signed-digits' only")
        if self.tree_estimate == "optimal" and self.release != "tree":
            raise ValueError("tree_estimate = 'optimal': is an option of release = 'tree' only")
        gaussian = self.noise != "laplace" and (self.epsilon is None or self.delta is not None)
        if self.release == "decaying" and self.decay != 0 and not gaussian:
            raise ValueError(
                "release = 'decaying': its noise is Gaussian; give epsilon and delta, rho or mu, and noise "
                "'gaussian' or 'auto'"
            )
        if self.release == "signed-digits" and (self.noise == "gaussian" or self.epsilon is None):
            raise ValueError(
                "release = 'signed-digits': its guarantee is a pure epsilon by Laplace noise; give epsilon, "
                "and noise 'laplace' or 'auto'"
            )
        if self.release == "square-root" and (
            self.noise == "laplace" or (self.epsilon is not None and self.delta is None)
        ):
            raise ValueError(
                "release = 'square-root': its noise is Gaussian; give epsilon and delta, rho or mu, and "
                "noise 'gaussian' or 'auto'"
            )
        base = math.e if self.log_base == "e" else self.log_base
        object.__setattr__(self, "log_base", checks.choice("log_base", base, (2.0, math.e)))

    @property
    def trust(self) -> Trust:
        """The server is trusted with raw trajectories."""
        return "joint"

    def choices(self, query: Any, schedule: Schedule, randomness: Randomness) -> list[Choice]:
        """Every mechanism that meets the budget for this query and schedule, least error first.

        Computed from public numbers alone. A learner that reads measurements is offered no tree or other
        walk, whose releases share noise. Raises ``ValueError`` if none fits.
        """
        query, schedule = _query(query), _schedule(schedule)
        _check_source(randomness)
        self._check_reader(schedule)
        discrete = isinstance(randomness, Secure)
        found: list[Choice] = []
        if self.clocks == "rows" and schedule.reads == "sums":
            raise ValueError("clocks = 'rows': are for learners that read measurements, this one reads sums")
        if query.groups and (
            discrete or schedule.reads == "sums" or self.release in _WALKS or self.clocks == "rows"
        ):
            raise ValueError(
                "explore = 'returns': groups' returns are released to learners that read measurements, by "
                "release 'batches', 'decaying' or 'auto' on the common clock, and with seeded noise (in "
                "simulation) only"
            )
        # before a lone release there is nothing to correlate its noise with
        alone = schedule.final and schedule.releases == 1
        if self.release in _WALKS or (self.release == "auto" and schedule.reads == "sums" and not alone):
            leaves = leaves_of(schedule, self.leaf or "batch")
            for release, laplace, walk in self._walks(leaves, discrete):
                # the signed digits' guarantee is pure; the square root's columns have a large l1 norm
                for family, scales, std in self._options(
                    query,
                    walk.levels,
                    discrete,
                    laplace is not False,
                    laplace is not True,
                    _fresh(walk),
                ):
                    gaussian = family == kernels.GAUSSIAN
                    at = Tree(None, gaussian) if leaves is None else walk
                    found.append(Choice(release, 0.0, walk.levels, family, scales, std * at.rms(), at))
        if schedule.users is None:
            if self.release in ("batches", "decaying"):
                raise ValueError(f"users = None: release = {self.release!r} needs a known number of users")
        elif self.release not in _WALKS:
            sizes = np.diff(schedule.release_times)
            for decay in self._decays():
                if decay and discrete and schedule.pooled_shares is not None:
                    continue  # the rounding of fixed point is charged at one set of scales
                stream = Decaying(decay)
                name = "batches" if decay == 0.0 else "decaying"
                rates = schedule.reads == "measurements"
                factor = stream.rate_std(sizes) if rates else _rms_sum(stream, sizes.size)
                for family, scales, std in self._options(query, 1, discrete, laplace=decay == 0.0):
                    if discrete and decay:
                        wider = _widening(stream, query, sizes.size, scales)
                        scales, std = scales * wider, std * wider
                        if not all(stream.fits(schedule.users, query.layout.horizon, b) for b in scales):
                            continue
                    found.append(Choice(name, decay, 1, family, scales, std * factor))
        if not found:
            raise ValueError(
                f"release = {self.release!r}, noise = {self.noise!r}: no such mechanism meets this budget "
                f"for a learner that reads {schedule.reads}"
            )
        return sorted(found, key=lambda choice: choice.error)

    def _check_reader(self, schedule: Schedule) -> None:
        if schedule.reads == "measurements" and self.release in _WALKS:
            raise ValueError(
                f"release = {self.release!r}: gives no measurements with noise of their own, which this "
                "learner reads; use 'batches', 'decaying' or 'auto'"
            )

    def _walks(self, leaves: int | None, discrete: bool) -> Iterator[tuple[str, bool | None, Walk]]:
        """(release, Laplace noise only or not at all or either, walk) of each walk that is asked for."""
        auto, optimal = self.release == "auto", self.tree_estimate == "optimal"
        for wanted, name in (
            (optimal, "tree_estimate = 'optimal'"),
            (self.release == "signed-digits", "release = 'signed-digits'"),
            (self.release == "square-root", "release = 'square-root'"),
        ):
            if wanted and leaves is None:
                raise ValueError(f"users = None: {name} needs a known number of users")
            if wanted and discrete and name != "release = 'signed-digits'":
                raise ValueError(
                    f"{name}: its sums are not integers, so exact noise is not available; use the plain "
                    "'tree', 'signed-digits', 'batches' or 'auto' with secure randomness"
                )
        if auto or (self.release == "tree" and not optimal):
            yield "tree", None, Tree(leaves)
        if leaves is None:
            return
        if optimal or (auto and not discrete):
            yield "tree", None, OptimalTree(leaves)
        digits = SignedDigits.best(leaves, self.arity) if auto or self.release == "signed-digits" else None
        if digits is not None and (not auto or digits.levels > 1):  # one level is what "batches" are
            yield "signed-digits", True, digits
        if self.release == "square-root" or (auto and not discrete and leaves <= MOST_LEAVES):
            yield "square-root", False, SquareRoot(leaves)

    def _decays(self) -> tuple[float, ...]:
        if self.release == "batches":
            return (0.0,)
        if self.decay is not None:
            return (self.decay,)
        return DECAYS if self.release == "auto" else DECAYS[1:]

    def start(self, query: Any, schedule: Schedule, randomness: Randomness) -> CountSession:
        """A session. Raises ``ValueError`` if query and schedule do not fit the budget."""
        query, schedule = _query(query), _schedule(schedule)
        _check_source(randomness)
        self._check_reader(schedule)
        grid = randomness.reward_grid if isinstance(randomness, Secure) else None
        leaf = self.leaf or "batch"
        if self.calibration == "published" and schedule.pooled_shares is not None:
            raise ValueError("schedule.pooled_shares: must be None with calibration 'published'")
        if self.calibration == "published":
            if query.groups:
                raise ValueError("groups: must be 0 with calibration 'published', whose release is a tree")
            scales = np.full(len(query.row_families), self._published(query, schedule))
            walk = next(self._walks(leaves_of(schedule, leaf), isinstance(randomness, Secure)))[2]
            choice = Choice("tree", 0.0, walk.levels, kernels.LAPLACE, scales, 0.0, walk)
        else:
            choice = self.choices(query, schedule, randomness)[0]
        leaf = leaf if choice.walk else "batch"  # only a walk has leaves: laws count the releases
        clocks = Clocks(self.clock_growth or 0.0) if self.clocks == "rows" else None
        if clocks is not None and query.pooled != "none":
            raise ValueError(
                f"clocks = 'rows': do not go with counts pooled over steps (the learner asks for pooled = "
                f"{query.pooled!r}); give pooled = 'none', or clocks = 'common'"
            )
        by_release = self._release_scales(query, schedule, choice)
        mechanism = Mechanism(
            "walk" if choice.walk else "decaying", choice.family, choice.scales, grid, leaf, choice.decay,
            clocks=clocks, walk=choice.walk, release_scales=by_release,
        )  # fmt: skip
        words = _words(choice, schedule, leaf)
        if query.groups:
            words += (
                f"; returns clipped at {query.clip:g} are summed over public groups, and the budget of each "
                "release is split anew between them and the counts, by public shares, at the same joint loss"
            )
        if clocks is not None:
            words += (
                "; each (step, state, action) measured by its own clock, when the public number of users "
                "whose policy plays it has grown"
            ) + (f" by {clocks.growth:.4g} of itself" if clocks.growth else "")
        if schedule.pooled_shares is not None:
            first, last = (f"{share:.3g}" for share in schedule.pooled_shares[[0, -1]])
            moves = f"goes from {first} to {last} on a public schedule" if first != last else f"is {first}"
            words += (
                f"; of the budget, the share of counts pooled over steps {moves}, always at the same joint "
                f"loss; the composition lists scales at share {sum(self._pooled(query)):.3g}"
            )
        fresh = _fresh(choice.walk) if choice.walk else choice.decay == 0.0
        levels = choice.levels
        mechanism, _, guarantee = self._calibrated(
            "joint", mechanism, words, query, schedule, randomness, levels, fresh
        )
        return CountSession("joint", mechanism, query, schedule, randomness, guarantee)

    def stored(self, query: Any, randomness: Randomness) -> OneShotSession:
        """A session for stored people: one noisy sum over all of them, released step by step.

        Noise and guarantee are those of ``start(query, Schedule.one_shot(n), randomness)`` for every n, so it
        is not asked for. Each user has at most ``query.episodes`` episodes.

        Raises
        ------
        ValueError
            If the query cannot be released step by step, its noise cannot be drawn, or this privatizer's
            options belong to many releases.
        """
        query = _copied(query)
        _check_source(randomness)
        check_query(query)
        if (
            self.release not in ("auto", "batches")
            or self.calibration == "published"
            or self.clocks == "rows"
        ):
            raise ValueError(
                f"release = {self.release!r}, calibration = {self.calibration!r}, clocks = {self.clocks!r}: "
                "must be 'auto' or 'batches', 'exact' and 'common', stored people are released once"
            )
        discrete = isinstance(randomness, Secure)
        options = self._options(query, 1, discrete)
        if not options:
            raise ValueError(f"noise = {self.noise!r}: does not meet this budget")
        family, scales, _ = min(options, key=lambda option: option[2])
        grid = randomness.reward_grid if isinstance(randomness, Secure) else None
        mechanism = Mechanism("decaying", family, scales, grid)
        alone = Schedule.one_shot(1)
        words = _words(Choice("batches", 0.0, 1, family, scales, 0.0), alone, "batch")
        mechanism, record, guarantee = self._calibrated(
            "joint", mechanism, words, query, alone, randomness, 1
        )
        return OneShotSession(mechanism, query, randomness, guarantee, (record,))

    def _pooled(self, query: CountQuery) -> list[float]:
        """Shares of the pooled families."""
        named = zip(query.row_families, self._shares(query), strict=True)
        return [w for name, w in named if name in (POOLED_TRANSITIONS, POOLED_REWARDS)]

    def _release_scales(self, query: CountQuery, schedule: Schedule, choice: Choice) -> Floats:
        """(releases + 1, families) scales at the shares of every release; (0, families) if all are alike.

        Families of one kind share what their kind gets, so their scales change by one factor; the joint loss
        is s / f + p / g (Laplace; squares for Gaussian) for factors f, g of the per-step and the pooled
        scales, with s + p the budget: f = s / ((1 - share)(s + p)) and g = p / (share (s + p)) keep it.
        """
        none = np.zeros((0, choice.scales.size))
        shares = schedule.pooled_shares
        if shares is None:
            return none
        if query.pooled == "none":
            raise ValueError("schedule.pooled_shares: must be None, the query pools nothing")
        if choice.walk is not None:
            raise ValueError(
                "schedule.pooled_shares: must be None for a tree, whose releases carry no measurements"
            )
        norm: Norm = "l1" if choice.family == kernels.LAPLACE else "l2"
        pooled = np.array([name in (POOLED_TRANSITIONS, POOLED_REWARDS) for name in query.row_families])
        inverse = 1.0 / choice.scales
        loss = [
            query.sensitivity(norm, dict(zip(query.row_families, (inverse * kind).tolist(), strict=True)))
            for kind in (~pooled, pooled)
        ]
        power = 1.0 if norm == "l1" else 2.0
        step, other = (x**power for x in loss)
        whole = step + other
        factors = np.where(
            pooled[None, :], other / (shares[:, None] * whole), step / ((1.0 - shares[:, None]) * whole)
        )
        return choice.scales * factors ** (1.0 / power)

    def _published(self, query: CountQuery, schedule: Schedule) -> float:
        if schedule.users is None or schedule.users < 2:
            raise ValueError(
                f"users = {schedule.users}: the published scale 3 H log(K) / epsilon needs K >= 2"
            )
        assert self.epsilon is not None and isinstance(self.log_base, float)
        log_users = math.log(schedule.users) / math.log(self.log_base)
        return 3 * query.layout.horizon * log_users / self.epsilon


def _words(choice: Choice, schedule: Schedule, leaf: str) -> str:
    """The mechanism as the guarantee names it."""
    if choice.release == "batches":
        return "one noisy sum for each scheduled batch of users"
    if choice.release == "decaying":
        return (
            f"one noisy sum for each scheduled release, of all batches decaying by {choice.decay:g} a "
            "release (a user's column has l2 norm below 1, so it costs no more than one sum)"
        )
    if isinstance(choice.walk, SignedDigits):
        return (
            f"signed-digit trees of arity {choice.walk.arity}, a leaf is a {leaf} (noise of blocks ahead of "
            "their data, which a pure epsilon allows)"
        )
    if isinstance(choice.walk, SquareRoot):
        return (
            f"noise correlated by a Toeplitz matrix near the square root of summation, a leaf is a {leaf} (a "
            "user's column of the strategy has l2 norm at most 1, so it costs no more than one sum)"
        )
    if isinstance(choice.walk, OptimalTree):
        return f"binary tree, a leaf is a {leaf}, released as least-squares estimates from its nodes"
    if schedule.users is not None:
        return f"binary tree, a leaf is a {leaf}"
    growth = "e + 1" if choice.family == kernels.LAPLACE else "sqrt(e + 1)"
    return (
        "binary trees over epochs of 1, 2, 4, ... users, a leaf is a user; in epoch e = 0, 1, ... "
        f"with e + 1 levels and {growth} times the scales of epoch 0, which are given here"
    )


def _widening(stream: Decaying, query: CountQuery, releases: int, scales: Floats) -> float:
    """By how much the scales of a decaying stream in fixed point exceed those of exact arithmetic."""
    named = dict(zip(query.row_families, scales.tolist(), strict=True))
    rounding = stream.rounding(releases, query.layout.horizon)
    return joint_loss(query, "l2", named, rounding) / joint_loss(query, "l2", named)


def _rms_sum(stream: Decaying, releases: int) -> float:
    """Root mean square over the releases of the prefix sum's std, in units of one noise's."""
    releases = max(1, releases)
    return math.sqrt(sum(stream.sum_terms(i) for i in (1, releases)) / 2)  # linear in i: the mean of the ends


LocalMechanism = Literal["auto", "laplace", "gaussian", "subset", "oue", "krr"]
_REWARD_SHARE = 0.15  # of the reports that are about rewards, where the query states none
_VECTORS = ("laplace", "gaussian")


@dataclass(frozen=True)
class LocalChoice:
    """One local mechanism that meets a budget.

    mechanism : "laplace" or "gaussian" (noise in every counter), or reports by "subset", "oue" or "krr".
    steps : m, how many random steps a user reports; 0 for a vector. reward_share : of the reports.
    error : noise of a transition count per square root of a user: its standard deviation, of reports the
    root mean square over the cells of a step under a deterministic policy, which no data change.
    scales : of a vector's noise.
    """

    mechanism: str
    steps: int
    reward_share: float
    error: float
    scales: Floats

    @property
    def name(self) -> str:
        """What a device sends."""
        if not self.steps:
            return "every counter"
        return f"{self.steps} random step{'s' if self.steps > 1 else ''}"

    @property
    def noise(self) -> str:
        """How it is randomized."""
        names = {"laplace": "Laplace", "gaussian": "Gaussian", "subset": "subset selection"}
        return {**names, "oue": "unary encoding", "krr": "randomized response"}[self.mechanism]

    def __str__(self) -> str:
        return f"{self.name}, {self.noise}: error {self.error:.4g} per transition count and sqrt(user)"


@dataclass(frozen=True, kw_only=True)
class Local(_Noisy):
    """Local differential privacy: each user's device randomizes what it sends; nobody sees raw data.

    Parameters
    ----------
    epsilon, delta, rho, mu, noise, calibration, weights
        As for :class:`Central`. ``noise`` and ``weights`` belong to the noisy vector of all counters, and
        to give one of them chooses it; the published scale is 3 H / epsilon per counter, which is 2
        epsilon-LDP.
    mechanism : "auto", "laplace", "gaussian", "subset", "oue" or "krr"
        ``laplace``, ``gaussian``: noise in every counter of the user, as in the papers. ``subset``, ``oue``,
        ``krr``: reports of a few random steps by subset selection, optimised unary encoding or k-ary
        randomized response, pure epsilon (:mod:`discreet.privacy.local_reports`). ``auto`` (default): the
        least noise in a transition count, computed from public numbers before any data (:meth:`choices`).
    steps : int, optional
        m of the H steps that a user reports, at epsilon / m each; None: the best.
    reward_share : float, optional
        Probability in (0, 1) that a report is about the reward; None: the query's share of rewards, or 0.15.
    preset : "default" or "paper"
        ``paper``: Laplace noise in every counter, calibration published.

    Sources: Chowdhury and Zhou 2021 (vectors); privacy-mechanisms, section 4 (reports).
    """

    mechanism: LocalMechanism | None = None
    steps: int | None = None
    reward_share: float | None = None

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {"noise": "auto", "calibration": "exact", "mechanism": "auto"},
        "paper": {"noise": "laplace", "calibration": "published", "mechanism": "laplace"},
    }

    def __post_init__(self) -> None:
        put = object.__setattr__
        if self.mechanism is None:
            if self.noise in _VECTORS:
                put(self, "mechanism", self.noise)
            elif self.calibration == "published":
                put(self, "mechanism", "laplace")
            elif self.epsilon is None:
                put(self, "mechanism", "gaussian")
        elif self.mechanism in _VECTORS and self.noise is None:
            put(self, "noise", self.mechanism)
        super().__post_init__()
        checks.choice("mechanism", self.mechanism, ("auto", *_VECTORS, *KINDS))
        if self.mechanism in _VECTORS and self.noise not in ("auto", self.mechanism):
            raise ValueError(f"noise = {self.noise!r}: must be {self.mechanism!r}, the mechanism")
        if self.calibration == "published" and self.mechanism != "laplace":
            raise ValueError(
                f"mechanism = {self.mechanism!r}: must be 'laplace' under calibration 'published'"
            )
        if self.mechanism in KINDS:
            self._check_reports()
        if self.steps is not None:
            put(self, "steps", checks.integer("steps", self.steps, 1))
        if self.reward_share is not None:
            share = checks.real("reward_share", self.reward_share, 0.0, 1.0, open_low=True, open_high=True)
            put(self, "reward_share", share)
        given = next((n for n in ("steps", "reward_share") if getattr(self, n) is not None), None)
        if given is not None and (self.mechanism in _VECTORS or self.weights is not None):
            raise ValueError(
                f"{given} = {getattr(self, given)!r}: goes with mechanism 'auto', 'subset', 'oue' or 'krr' "
                "and without weights, not with noise in every counter"
            )

    def _check_reports(self) -> None:
        if self.epsilon is None:
            raise ValueError(f"mechanism = {self.mechanism!r}: its budget is a pure epsilon; give epsilon")
        if self.weights is not None:
            raise ValueError(f"weights = {self.weights}: reports have none; give reward_share")
        if self.noise != "auto":
            raise ValueError(f"noise = {self.noise!r}: mechanism = {self.mechanism!r} adds no noise")

    @property
    def trust(self) -> Trust:
        """Nobody is trusted with raw trajectories."""
        return "local"

    def choices(self, query: Any, schedule: Schedule, randomness: Randomness) -> list[LocalChoice]:
        """Every mechanism that meets the budget for this query, least noise first; of reports, the best m.

        Computed from public numbers alone. Raises ``ValueError`` if none fits.
        """
        query, schedule = _query(query), _schedule(schedule)
        _check_source(randomness)
        found: list[LocalChoice] = []
        steps_only = self.steps is not None or self.reward_share is not None
        if self.mechanism in ("auto", *_VECTORS) and not steps_only:
            for family, scales, std in self._options(query, 1, isinstance(randomness, Secure)):
                name = "laplace" if family == kernels.LAPLACE else "gaussian"
                found.append(LocalChoice(name, 0, 0.0, std, scales))
        kinds = KINDS if self.mechanism == "auto" else tuple(k for k in KINDS if k == self.mechanism)
        if query.pooled != "none":  # reports say nothing of them: they would be zeros under a false law
            if steps_only or self.mechanism in KINDS:
                raise ValueError(
                    f"pooled = {query.pooled!r}: reports of random steps hold no pooled counts; use "
                    "mechanism 'laplace' or 'gaussian', or pooled 'none'"
                )
            kinds = ()
        if self.epsilon is not None and self.weights is None:
            stochastic = schedule.plans == "stochastic"
            for kind in kinds:
                found.append(min(self._step_choices(query, kind, stochastic), key=lambda c: c.error))
        if not found:
            raise ValueError(
                f"mechanism = {self.mechanism!r}, noise = {self.noise!r}: do not meet this budget"
            )
        return sorted(found, key=lambda choice: choice.error)

    def _step_choices(self, query: CountQuery, kind: Kind, stochastic: bool) -> Iterator[LocalChoice]:
        horizon = query.layout.horizon
        if self.steps is not None and self.steps > horizon:
            raise ValueError(f"steps = {self.steps}: must be at most H = {horizon}")
        every = range(1, horizon + 1) if self.steps is None else (self.steps,)
        last = math.inf
        for steps in every:
            reports = self._reports(query, kind, steps)
            error = reports.unit_std(stochastic)
            yield LocalChoice(kind, steps, reports.reward_share, error, np.zeros(0))
            if error > 1.5 * last:  # far past the best number of steps
                return
            last = min(last, error)

    def _reports(self, query: CountQuery, kind: Kind, steps: int) -> StepReports:
        assert self.epsilon is not None
        share = self.reward_share or query.reward_share or _REWARD_SHARE
        return StepReports.of(query, kind, self.epsilon, steps, share)

    def start(self, query: Any, schedule: Schedule, randomness: Randomness) -> CountSession:
        """A session that sums randomized messages. Raises ``ValueError`` if they do not fit."""
        query, schedule = _query(query), _schedule(schedule)
        _check_source(randomness)
        if query.groups:
            raise ValueError(
                "explore = 'returns': sums of groups' returns need a trusted server; use privatizer "
                "'central' or 'none', or explore = 'optimism'"
            )
        grid = randomness.reward_grid if isinstance(randomness, Secure) else None
        if schedule.pooled_shares is not None:
            raise ValueError("schedule.pooled_shares: must be None, a device's noise has one scale")
        if self.calibration == "published":
            assert self.epsilon is not None
            family, scales = kernels.LAPLACE, np.full(len(query.row_families), self._published(query))
        else:
            choice = self.choices(query, schedule, randomness)[0]
            if choice.mechanism in KINDS:
                return self._start_reports(choice, query, schedule, randomness)
            family = kernels.LAPLACE if choice.mechanism == "laplace" else kernels.GAUSSIAN
            scales = choice.scales
        mechanism = Mechanism("local", family, scales, grid)
        words = "each user's own counters on the device"
        mechanism, _, guarantee = self._calibrated("local", mechanism, words, query, schedule, randomness, 1)
        return CountSession("local", mechanism, query, schedule, randomness, guarantee)

    def _start_reports(
        self, choice: LocalChoice, query: CountQuery, schedule: Schedule, randomness: Randomness
    ) -> CountSession:
        reports = self._reports(query, choice.mechanism, choice.steps)  # type: ignore[arg-type]
        alphabets = {}
        plans = {"deterministic": (False,), "stochastic": (True,)}.get(schedule.plans, (False, True))
        for about, name in enumerate(("moves", "rewards")[: 2 if reports.share else 1]):
            for stochastic in plans:
                one = reports.randomizer(about, stochastic)
                label = (
                    name
                    if len(plans) == 1
                    else f"{name} of a {'stochastic' if stochastic else 'public'} policy"
                )
                numbers = (one.elements, one.size, one.own, one.other)
                alphabets[label] = ("unary" if one.unary else "subset", *numbers)
        guarantee = guarantee_of(
            "local",
            [ReportRecord(reports.words(), reports.steps, alphabets)],
            randomness=randomness.kind,
            epsilon_nominal=self.epsilon,
        )
        mechanism = Mechanism("reports", kernels.NO_NOISE, np.zeros(len(query.row_families)), reports=reports)
        return CountSession("local", mechanism, query, schedule, randomness, guarantee)

    def _published(self, query: CountQuery) -> float:
        assert self.epsilon is not None
        return 3 * query.layout.horizon / self.epsilon
