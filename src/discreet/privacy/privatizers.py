"""Privatizers for sums of counts: none, central (joint DP) and local, as frozen specifications.

A privatizer knows no shapes and holds no data; ``start`` binds the query, the schedule and the
source of randomness, sets the noise scales from the query's exact sensitivity, and hands out a
session whose guarantee is computed from those scales.

Calibration. With shares w_f of the budget (equal by default) and Delta_f the family's own
sensitivity, noise of family f is proportional to Delta_f / w_f (Laplace) or Delta_f / sqrt(w_f)
(Gaussian); the common factor is then set so that the *joint* loss is exactly the budget:

* Laplace, pure epsilon: levels * l1(1 / b) = epsilon; for raw families b = 6 H L / epsilon (tree with
  L levels) or 6 H / epsilon (local);
* Gaussian, mu-GDP: sqrt(levels) * l2(1 / sigma) = mu, with mu from (epsilon, delta) by the exact curve;
  discrete Gaussian noise (secure randomness) is calibrated by its proven zCDP, rho = mu^2 / 2.

``calibration="published"`` is the papers' scale instead, 3 H log(K) / epsilon per node or
3 H / epsilon per user, and the guarantee then says which epsilon this really buys: the
sensitivity of a replaced trajectory is 2 H, not H, and a user lies in ceil(log2 K) nodes.

Sources: Chowdhury and Zhou 2021 and Qiao and Wang 2023 (central and local privatizers);
specification of tabular learners, sections 2 and 3.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from discreet.numerics import checks
from discreet.numerics.knobs import Knobs
from discreet.privacy import budget as budgets
from discreet.privacy import kernels
from discreet.privacy.continual.tree import Tree
from discreet.privacy.counts import TRANSITIONS, CountQuery
from discreet.privacy.guarantee import MechanismRecord, guarantee_of, no_guarantee
from discreet.privacy.protocol import Floats, Norm, Schedule, Trust
from discreet.privacy.randomness import Randomness, Secure, Seeded
from discreet.privacy.session import CountSession, Mechanism, Stream, leaves_of

Noise = Literal["laplace", "gaussian", "auto"]
Calibration = Literal["exact", "published"]

_STATED_DELTA = 1e-6  # delta at which a budget in rho or mu is also stated as (epsilon, delta)


def _query(query: Any) -> CountQuery:
    """A private copy: what a learner does to its own query later moves no noise."""
    if type(query) is not CountQuery:  # a subclass could declare any sensitivity
        raise ValueError(f"query = {query!r}: this privatizer answers a CountQuery, and no subclass of it")
    return query.copy()


def _schedule(schedule: Any) -> Schedule:
    """A private copy."""
    if type(schedule) is not Schedule:  # a subclass could move the times of release
        raise ValueError(f"schedule = {schedule!r}: must be a Schedule, and no subclass of it")
    return dataclasses.replace(schedule)


def _check_source(randomness: Any) -> None:
    if not isinstance(randomness, Seeded | Secure):
        raise ValueError(f"randomness = {randomness!r}: must be Seeded(...) or Secure(...)")


def _check_exact(mechanism: Mechanism, names: Iterable[str], epochs: bool) -> None:
    """Scales at which exact noise and its sums stay exact: refused before anybody comes, not after."""
    low, high = 2.0**-20, 2.0 ** (32 if epochs else 38)  # an epoch's scale grows to at most 52 times this
    for name, scale in zip(names, mechanism.scales.tolist(), strict=True):
        units = scale * (mechanism.grid(name) or 1)
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

    def start(self, query: Any, schedule: Schedule, randomness: Randomness) -> CountSession:
        """A session that releases exact sums. Raises ``ValueError`` if the query is not of counts."""
        query, schedule = _query(query), _schedule(schedule)
        _check_source(randomness)
        mechanism = Mechanism("exact", kernels.NO_NOISE, np.zeros(len(query.row_families)))
        return CountSession("none", mechanism, query, schedule, randomness, no_guarantee(randomness.kind))


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

    # ------------------------------------------------------------------------- calibration
    def _shares(self, query: CountQuery) -> tuple[float, ...]:
        families = len(query.row_families)
        if self.weights is None:
            return (1.0 / families,) * families
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

    def _scales(self, query: CountQuery, levels: int, discrete: bool) -> tuple[int, Floats]:
        """(family code, scales): the noise with the smaller standard deviation per transition cell."""
        mu = self._target_mu(discrete)
        options: list[tuple[int, Floats, float]] = []
        at = list(query.row_families).index(TRANSITIONS)
        if self.noise in ("laplace", "auto") and self.epsilon is not None:
            scales = self._laplace(query, levels)
            options.append((kernels.LAPLACE, scales, math.sqrt(2) * scales[at]))
        if self.noise in ("gaussian", "auto") and mu is not None:
            scales = self._gaussian(query, levels, mu)
            options.append((kernels.GAUSSIAN, scales, scales[at]))
        family, scales, _ = min(options, key=lambda option: option[2])
        return family, scales

    def _start(
        self,
        trust: Literal["joint", "local"],
        stream: Stream,
        query: CountQuery,
        schedule: Schedule,
        randomness: Randomness,
        levels: int,
        published: Floats | None,
        leaf: Literal["batch", "user"] = "batch",
    ) -> CountSession:
        _check_source(randomness)
        discrete = isinstance(randomness, Secure)
        if published is not None:
            family, scales = kernels.LAPLACE, published
        else:
            family, scales = self._scales(query, levels, discrete)
        grid = randomness.reward_grid if isinstance(randomness, Secure) else None
        mechanism = Mechanism(stream, family, scales, grid, leaf)
        if discrete:
            _check_exact(mechanism, query.row_families, schedule.users is None)
        if stream == "local":
            words = "each user's own counters on the device"
        elif schedule.users is None:
            growth = "e + 1" if family == kernels.LAPLACE else "sqrt(e + 1)"
            words = (
                "binary trees over epochs of 1, 2, 4, ... users, a leaf is a user; in epoch e = 0, 1, ... "
                f"with e + 1 levels and {growth} times the scales of epoch 0, which are given here"
            )
        else:
            words = f"binary tree, a leaf is a {leaf}"
        name = ("discrete_" if discrete else "") + ("laplace" if family == kernels.LAPLACE else "gaussian")
        named = dict(zip(query.row_families, scales.tolist(), strict=True))
        record = MechanismRecord.of(query, words, name, named, levels)  # type: ignore[arg-type]
        guarantee = guarantee_of(
            trust,
            [record],
            randomness=randomness.kind,
            delta=None if family == kernels.LAPLACE else self.delta or _STATED_DELTA,
            epsilon_nominal=self.epsilon,
        )
        return CountSession(trust, mechanism, query, schedule, randomness, guarantee)


@dataclass(frozen=True, kw_only=True)
class Central(_Noisy):
    """Joint differential privacy: a trusted server releases noisy sums through a binary tree.

    Parameters
    ----------
    epsilon : float
        Privacy loss, above 0 (or give ``rho`` of zCDP or ``mu`` of Gaussian DP instead).
    delta : float
        In (0, 1); 0 or None for pure epsilon.
    noise : "laplace", "gaussian" or "auto"
        ``auto`` (default): the smaller standard deviation at this budget, both computed.
    release : "tree"
        Binary tree: each node's noise is drawn once.
    leaf : "batch" or "user"
        A leaf of the tree is the users between two scheduled releases (default; the same as a user
        where every user is followed by a release), or one user, as in the papers.
    calibration : "exact" or "published"
        ``exact``: the stated budget is the true one. ``published``: the papers' 3 H log(K) / epsilon
        per node; the guarantee states the epsilon that it really buys.
    log_base : 2 or e
        Of the published scale, whose papers leave it open.
    weights : tuple, optional
        Shares of the budget per family, in the order of the query; equal by default.
    preset : "default" or "paper"
        ``paper``: calibration published, Laplace noise, tree.
    """

    release: Literal["tree"] | None = None
    leaf: Literal["batch", "user"] | None = None
    log_base: float | str | None = None

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {
            "noise": "auto", "calibration": "exact", "release": "tree", "leaf": "batch", "log_base": 2.0,
        },
        "paper": {"noise": "laplace", "calibration": "published", "release": "tree", "leaf": "user"},
    }  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.choice("release", self.release, ("tree",))
        checks.choice("leaf", self.leaf, ("batch", "user"))
        base = math.e if self.log_base == "e" else self.log_base
        object.__setattr__(self, "log_base", checks.choice("log_base", base, (2.0, math.e)))

    @property
    def trust(self) -> Trust:
        """The server is trusted with raw trajectories."""
        return "joint"

    def start(self, query: Any, schedule: Schedule, randomness: Randomness) -> CountSession:
        """A session of the tree. Raises ``ValueError`` if query and schedule do not fit the budget."""
        query, schedule = _query(query), _schedule(schedule)
        published = None
        if self.calibration == "published":
            if schedule.users is None or schedule.users < 2:
                raise ValueError(
                    f"users = {schedule.users}: the published scale 3 H log(K) / epsilon needs K >= 2"
                )
            assert self.epsilon is not None and isinstance(self.log_base, float)
            log_users = math.log(schedule.users) / math.log(self.log_base)
            scale = 3 * query.layout.horizon * log_users / self.epsilon
            published = np.full(len(query.row_families), scale)
        leaf = self.leaf or "batch"
        levels = Tree(leaves_of(schedule, leaf)).levels
        return self._start("joint", "tree", query, schedule, randomness, levels, published, leaf)


@dataclass(frozen=True, kw_only=True)
class Local(_Noisy):
    """Local differential privacy: each user's device adds noise to every counter before it sends.

    Parameters: as for :class:`Central`, without ``release`` and ``log_base``; the published scale is
    3 H / epsilon per counter, which is 2 epsilon-LDP.
    """

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {"noise": "auto", "calibration": "exact"},
        "paper": {"noise": "laplace", "calibration": "published"},
    }

    @property
    def trust(self) -> Trust:
        """Nobody is trusted with raw trajectories."""
        return "local"

    def start(self, query: Any, schedule: Schedule, randomness: Randomness) -> CountSession:
        """A session that sums randomized messages. Raises ``ValueError`` if they do not fit."""
        query, schedule = _query(query), _schedule(schedule)
        published = None
        if self.calibration == "published":
            assert self.epsilon is not None
            published = np.full(len(query.row_families), 3 * query.layout.horizon / self.epsilon)
        return self._start("local", "local", query, schedule, randomness, 1, published)
