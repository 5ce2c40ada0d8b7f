"""Central privatizer, for a trusted server. It selects the mechanism with the least expected error.

Calibration and sources are described in :mod:`discreet.mechanisms.privatizers`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from discreet.accounting.noise_distributions.prefix_variance import best_digits, noise_of, rate_std, sum_terms
from discreet.core import checks
from discreet.core.clipped_returns import check_on_grid, widest_scales
from discreet.core.correlated_noise.binary_tree import Tree
from discreet.core.correlated_noise.decaying_sum import Decaying
from discreet.core.correlated_noise.factorization import Walk
from discreet.core.correlated_noise.matrix_factorization import MatrixFactorization
from discreet.core.correlated_noise.optimal_tree import OptimalTree
from discreet.core.correlated_noise.signed_digit_tree import MOST_ARITY, SignedDigits
from discreet.core.correlated_noise.square_root_toeplitz import MOST_LEAVES, SquareRoot
from discreet.core.count_mechanism import CountMechanism, Stated, grid_of, leaves_of
from discreet.core.count_query import CountQuery
from discreet.core.families import POOLED_REWARDS, POOLED_TRANSITIONS
from discreet.core.guarantee import joint_loss
from discreet.core.noise.noises import GAUSSIAN, LAPLACE, AdditiveNoise
from discreet.core.query import FamilyQuery
from discreet.core.releases import Floats, Norm, Schedule, Trust
from discreet.core.rng import Randomness, Secure
from discreet.core.strategies import MOST_PARTICIPATIONS, Batches, Prefixes
from discreet.mechanisms.interfaces import Budget, Mechanism
from discreet.mechanisms.local.choose_randomizer import NAMES, best_reports, weighed_error
from discreet.mechanisms.local.randomized_response import StepReports
from discreet.mechanisms.local.randomized_response_strategy import Reported
from discreet.mechanisms.open_session import Proposes
from discreet.mechanisms.privatizers.base import Budgeted
from discreet.mechanisms.query_checks import (
    check_cut,
    check_source,
    continual_query,
    has_batches,
    is_linear,
    private_query,
    private_schedule,
    standing_batch,
)

if TYPE_CHECKING:
    from discreet.mechanisms.dataset.dataset_release import OneShotSession
    from discreet.mechanisms.privatizers.linear_sums import LinearChoice

ReleaseName = Literal["auto", "tree", "signed-digits", "square-root", "batches", "decaying", "reports"]
TreeEstimate = Literal["plain", "optimal"]

_RELEASES = ("auto", "tree", "signed-digits", "square-root", "batches", "decaying", "reports")
_WALKS = ("tree", "signed-digits", "square-root")  # releases that add correlated noise to prefix sums
# Decay factors that release "auto" compares.
DECAYS = (0.0, *(round(0.5 + 0.05 * i, 2) for i in range(10)), 0.97, 0.98, 0.99)


def _fresh(walk: Walk) -> bool:
    """Return True if every draw of noise is made after the records that it protects.

    The result is True for trees with a known number of time steps. All levels of such a tree have equal
    noise.
    """
    return isinstance(walk, Tree | OptimalTree) and walk.leaves is not None


@dataclass(frozen=True)
class Choice:
    """One mechanism that meets a budget, with the standard deviation of its noise.

    Attributes
    ----------
    release : str
        Value of the option ``release`` of :class:`Central`.
    decay : float
        Factor in [0, 1) of the decaying sum of batches; 0 for all other releases.
    levels : int
        Number of noisy sums that contain one user.
    drawn, scales
        Noise distribution of one draw, and its scale for each family of the query.
    error : float
        Size of the noise. Mechanisms are compared by it. If the learner reads sums: the standard deviation of
        the noise in a transition count, as root mean square over the releases. If it reads measurements: the
        standard deviation of the equivalent count at the last release. For reports:
        :func:`~discreet.mechanisms.local.choose_randomizer.weighed_error`.
    walk : factorization, optional
        Factorization mechanism, for "tree", "signed-digits" and "square-root".
    reports : StepReports, optional
        For "reports": parameters of the server's randomized reports. ``drawn`` is then None and ``scales`` is
        empty, because no noise is added to sums.
    """

    release: str
    decay: float
    levels: int
    drawn: AdditiveNoise | None
    scales: Floats
    error: float
    walk: Walk | None = None
    reports: StepReports | None = None

    @property
    def noise(self) -> str:
        """Name of the noise family, or of the randomizer of the reports."""
        if self.reports is not None:
            return NAMES[self.reports.kind]
        return "Laplace" if self.drawn == LAPLACE else "Gaussian"

    @property
    def name(self) -> str:
        """Name of the release method, with its decay, arity, number of reported steps or kind of estimate."""
        if isinstance(self.walk, SignedDigits):
            return f"{self.release} (arity {self.walk.arity}, {self.levels} levels)"
        if isinstance(self.walk, OptimalTree):
            return f"{self.release} (optimal estimate)"
        if self.reports is not None:
            return f"{self.release} ({self.reports.steps} random step{'s' * (self.reports.steps > 1)})"
        return f"{self.release} (decay {self.decay:g})" if self.decay else self.release

    def __str__(self) -> str:
        noise = self.noise if self.reports is not None else f"{self.noise} noise"
        return f"{self.name}, {noise}: error {self.error:.4g} per transition count"


@dataclass(frozen=True, kw_only=True)
class Central(Budgeted, Proposes):
    """Privatizer of joint differential privacy: a trusted server releases noisy sums.

    Parameters
    ----------
    epsilon : float
        Privacy loss, above 0. ``rho`` of zCDP or ``mu`` of Gaussian DP can be given instead.
    delta : float
        The delta of (epsilon, delta)-privacy, in (0, 1). 0 or None means pure epsilon.
    noise : "laplace", "gaussian" or "auto"
        ``auto`` (default): the noise with the smaller error at this budget. Both errors are computed.
    release : "auto", "tree", "signed-digits", "square-root", "batches", "decaying", "reports" or matrix
        ``auto`` (default): the release with the least expected error for the learner's schedule, computed
        from public numbers before any data (:meth:`choices`). ``tree``: binary tree in which the noise of
        each node is drawn once. ``signed-digits``: trees of a higher arity with balanced digits, with Laplace
        noise at a pure epsilon (:mod:`discreet.core.correlated_noise.signed_digit_tree`). ``square-root``:
        Gaussian noise that is correlated by a Toeplitz matrix
        (:mod:`discreet.core.correlated_noise.square_root_toeplitz`). ``batches``: fresh noise on the sum of
        each scheduled batch. ``decaying``: fresh Gaussian noise on a decaying sum of batches
        (:mod:`discreet.core.correlated_noise.decaying_sum`). ``reports``: from each trajectory, the server
        draws the randomized report of a few steps that a device would send under :class:`Local`. The rest of
        the trajectory is deleted. The guarantee of ``reports`` is a pure epsilon without delta. At a large
        epsilon, reports have less noise than sums with Laplace noise (:mod:`discreet.core.count_mechanism`).
        A :class:`MatrixFactorization`: noise that is correlated by a user-supplied strategy matrix. If the
        matrix is larger than the schedule needs, only its first rows and columns are used.
    decay : float, optional
        Decay factor of ``decaying``, in [0, 1). None: the value of a grid that gives the least error for the
        schedule.
    arity : int, optional
        Arity of ``signed-digits``, 2 to 1024. None: the arity with the least root mean square error over the
        releases.
    tree_estimate : "plain" or "optimal"
        Estimate from the nodes of ``tree``. ``plain`` (default): a prefix sum is the sum of the noisy values
        of its nodes. ``optimal``: a prefix sum is the sum of the least-squares estimates of its nodes. It has
        less noise at the same privacy loss. ``optimal`` requires a known number of users and seeded
        randomness (:mod:`discreet.core.correlated_noise.optimal_tree`). Release ``auto`` tries both.
    leaf : "batch" or "user"
        Users in one time step of a tree or another factorization. ``batch`` (default): the users between two
        scheduled releases (one user if there is a release after every user). ``user``: one user, as in the
        papers.
    calibration : "exact" or "published"
        ``exact``: the stated budget is the true budget. ``published``: the scale of the papers, 3 H log(K) /
        epsilon for each node of the tree. The guarantee then states the actual epsilon.
    clocks, clock_growth : "common", 0.0
        Options of version 0.2, kept so that its files can be read. Other values are no longer supported and
        raise ``ValueError``.
    log_base : 2 or e
        Base of the logarithm in the published scale. The papers do not state the base.
    weights : tuple, optional
        Share of the budget for each family, in the order of the query. None: the shares that the query sets.
    participations, separation : int, default 1
        A user takes part at most ``participations`` times (1 to 100), and at least ``separation`` releases
        apart. The budget is for all records of a user together. The caller must ensure both limits, because a
        session does not know its users. Requires a query of counts, release "auto", "batches" or "decaying",
        and a schedule of at least ``participations`` times ``separation`` releases.
    preset : "default" or "paper"
        ``paper``: published calibration, Laplace noise, tree, ``leaf = "user"``.
    """

    release: ReleaseName | MatrixFactorization | None = None
    leaf: Literal["batch", "user"] | None = None
    decay: float | None = None
    clocks: Literal["common"] | None = None
    clock_growth: float | None = None
    log_base: float | str | None = None
    arity: int | None = None
    tree_estimate: TreeEstimate | None = None
    participations: int | None = None
    separation: int | None = None

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {
            "noise": "auto", "calibration": "exact", "release": "auto", "leaf": "batch", "log_base": 2.0,
            "clocks": "common", "clock_growth": 0.0, "tree_estimate": "plain", "participations": 1,
            "separation": 1,
        },
        "paper": {"noise": "laplace", "calibration": "published", "release": "tree", "leaf": "user"},
    }  # fmt: skip

    def __post_init__(self) -> None:
        if self.calibration == "published" and self.release is None:
            object.__setattr__(self, "release", "tree")  # the published scale is for a tree
        if self.leaf == "user" and self.release is None:
            object.__setattr__(self, "release", "tree")
        super().__post_init__()
        if type(self.release) is not MatrixFactorization:
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
        for name, only in (("clocks", "common"), ("clock_growth", 0.0)):
            if (given := getattr(self, name)) != only and given is not None:
                raise ValueError(
                    f"{name} = {given!r}: must be {only!r}, version 0.2 was the last with a schedule for "
                    "each state-action pair"
                )
        object.__setattr__(self, "clock_growth", 0.0)
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
        if self.release == "reports":
            self._check_reports()
        self._check_participations()
        base = math.e if self.log_base == "e" else self.log_base
        object.__setattr__(self, "log_base", checks.choice("log_base", base, (2.0, math.e)))

    def _check_reports(self) -> None:
        """Raise ``ValueError`` if an option does not apply to the server's randomized reports."""
        if self.epsilon is None or self.delta is not None:
            raise ValueError(
                "release = 'reports': its guarantee is a pure epsilon; give epsilon and no delta"
            )
        for name, nothing in (("noise", "auto"), ("weights", None), ("leaf", "batch")):
            if getattr(self, name) != nothing:
                raise ValueError(
                    f"{name} = {getattr(self, name)!r}: must be {nothing!r} with release = 'reports', which "
                    "adds no noise to sums"
                )

    def _check_participations(self) -> None:
        for name, most in (("participations", MOST_PARTICIPATIONS), ("separation", None)):
            object.__setattr__(self, name, checks.integer(name, getattr(self, name), 1, most))
        if self._participations == 1 and self.separation != 1:
            raise ValueError(f"separation = {self.separation}: must be 1 with participations = 1")
        if self._participations > 1 and self.release not in ("auto", "batches", "decaying"):
            raise ValueError(
                f"participations = {self.participations}: must be 1 with release = {self.release!r}"
                f"{self._by_preset('release')}; use 'auto', 'batches' or 'decaying'"
            )

    def _check_returning(self, query: Any, schedule: Schedule | None) -> None:
        """Raise ``ValueError`` if users can return, but not to releases of this query on this schedule.

        schedule : None for a release of offline data.
        """
        limits = self._batches(0.0)
        m, s = limits.participations, limits.separation
        if m == 1:
            return
        if schedule is None or has_batches(schedule) or type(query) is not CountQuery or query.steered:
            raise ValueError(
                f"participations = {m}: must be 1 unless a session answers the same query of counts at every "
                "release, without groups and clipped rewards"
            )
        releases = 0 if schedule.users is None else schedule.release_times.size - 1
        if m * s > releases:
            raise ValueError(
                f"participations = {m}, separation = {s}: need at least {m * s} releases to a known number "
                f"of users, and the schedule has {releases}"
            )

    @property
    def _participations(self) -> int:
        assert self.participations is not None
        return self.participations

    @property
    def _correlated(self) -> bool:
        """True if the option ``release`` requests correlated noise for prefix sums."""
        return isinstance(self.release, MatrixFactorization) or self.release in _WALKS

    @property
    def trust(self) -> Trust:
        """Trust model "joint": the server is trusted with raw trajectories."""
        return "joint"

    @property
    def budget(self) -> Budget:
        """Stated budget.

        The field ``reports`` is True if counts are always released as randomized reports, None if this is
        possible, and False if it never happens.
        """
        reports = True if self.release == "reports" else None if self._may_report else False
        return replace(super().budget, reports=reports)

    @property
    def _may_report(self) -> bool:
        """True if the budget and the options allow ``release = "reports"``."""
        pure = self.epsilon is not None and self.delta is None
        plain = self.noise == "auto" and self.weights is None and self.participations == 1
        return pure and plain and self.release in ("auto", "reports")

    def choices(
        self, query: Any, schedule: Schedule, randomness: Randomness
    ) -> list[Choice] | list[LinearChoice]:
        """Return every mechanism that meets the budget for this query and schedule, starting with the least
        error.

        The result depends only on public numbers. The kind of ``randomness`` determines whether noise must be
        exact. If the learner reads measurements, the result contains no tree or other factorization, because
        the releases of a factorization share noise. If ``schedule`` has a separate query for each batch, the
        result is for the last batch and ``query``. Raises ``ValueError`` if no mechanism meets the budget.
        """
        self._check_returning(query, schedule)
        schedule = standing_batch(schedule)
        if is_linear(query):
            from discreet.mechanisms.privatizers.linear_sums import central_choices

            return central_choices(
                self, schedule, randomness, self._check_linear(), self.leaf or "batch",
                self.tree_estimate == "optimal",
            )  # fmt: skip
        return self._count_choices(query, schedule, randomness)

    def _count_choices(self, query: Any, schedule: Schedule, randomness: Randomness) -> list[Choice]:
        query, schedule = continual_query(query, cuts=True), private_schedule(schedule)
        check_source(randomness)
        self._check_reader(schedule)
        discrete = isinstance(randomness, Secure)
        found: list[Choice] = []
        if query.groups and (discrete or schedule.reads == "sums" or self._correlated):
            raise ValueError(
                "explore = 'returns': groups' returns are released to learners that read measurements, by "
                "release 'batches', 'decaying' or 'auto', and with seeded noise (in simulation) only"
            )
        if query.cut:
            check_cut(query, schedule)
            grid = randomness.reward_grid if isinstance(randomness, Secure) else None
            check_on_grid("query.cut", query.cut, grid)
        if self.release == "reports":
            found.append(self._reported(query, schedule))
        elif self._may_report and self._reports_fit(query, schedule):
            # raised if epsilon is too small for the grid of the probabilities of reports
            with suppress(ValueError):
                found.append(self._reported(query, schedule))
        # A single release has no earlier noise with which its noise could be correlated.
        alone = schedule.final and schedule.releases == 1
        auto = self.release == "auto" and self.participations == 1
        if self._correlated or (auto and schedule.reads == "sums" and not alone):
            leaves = leaves_of(schedule, self.leaf or "batch")
            for release, laplace, walk in self._walks(leaves, discrete):
                # "signed-digits" needs a pure epsilon, i.e. Laplace noise. "square-root" needs Gaussian
                # noise, because the columns of its matrix have a large l1 norm.
                for noise, scales, std in self._options(
                    query,
                    walk.levels,
                    discrete,
                    laplace is not False,
                    laplace is not True,
                    _fresh(walk),
                ):
                    gaussian = noise == GAUSSIAN
                    at = Tree(None, gaussian) if leaves is None else walk
                    std *= noise_of(at).rms()
                    found.append(Choice(release, 0.0, walk.levels, noise, scales, std, at))
        if schedule.users is None:
            if self.release in ("batches", "decaying"):
                raise ValueError(f"users = None: release = {self.release!r} needs a known number of users")
        elif self.release in ("auto", "batches", "decaying"):
            found.extend(self._batch_choices(query, schedule, discrete))
        if not found:
            raise ValueError(
                f"release = {self.release!r}, noise = {self.noise!r}: no such mechanism meets this budget "
                f"for a learner that reads {schedule.reads}"
            )
        return sorted(found, key=lambda choice: choice.error)

    def _batch_choices(self, query: CountQuery, schedule: Schedule, discrete: bool) -> Iterator[Choice]:
        """Yield the choices with fresh noise at each release: batches and decaying sums.

        If users can return, the scales for each decay include the overlap of a user's records.
        """
        assert schedule.users is not None
        sizes = np.diff(schedule.release_times)
        for decay in self._decays():
            if decay and discrete and schedule.pooled_shares is not None:
                continue  # the loss by fixed-point rounding is computed for one set of scales only
            stream, batches = Decaying(decay), self._batches(decay)
            squared = batches.column_norm("l2") ** 2
            name = "batches" if decay == 0.0 else "decaying"
            rates = schedule.reads == "measurements"
            factor = rate_std(stream, sizes) if rates else _rms_sum(stream, sizes.size)
            for noise, scales, std in self._options(
                query, squared, discrete, laplace=decay == 0.0, fresh=batches.fresh
            ):
                if discrete and decay:
                    wider = _widening(batches, query, sizes.size, scales)
                    scales, std = scales * wider, std * wider
                    widest = np.concatenate([scales, widest_scales(query, scales)])
                    if not all(stream.fits(schedule.users, query.layout.horizon, b) for b in widest):
                        continue
                yield Choice(name, decay, self._participations, noise, scales, std * factor)

    def _check_linear(self) -> str:
        """Return the option ``release`` if it is available for linear sums.

        Raises ``ValueError`` otherwise.
        """
        if isinstance(self.release, MatrixFactorization):
            raise ValueError(
                "release = MatrixFactorization(...): is of counts, not of linear sums; use 'auto', 'tree', "
                "'square-root' or 'batches'"
            )
        if self.release == "reports":
            raise ValueError(
                "release = 'reports': are of counts, not of linear sums; use 'auto', 'tree', 'batches' or "
                "'decaying'"
            )
        return self.release or "auto"

    def _reports_fit(self, query: CountQuery, schedule: Schedule) -> bool:
        """Return True if ``release = "auto"`` considers randomized reports.

        The result is False if the query has a family that reports do not contain, or if the number of users
        is unknown. The result is also False for a single release, so that :meth:`stored` (offline data) and
        sessions use the same mechanism.
        """
        alone = schedule.final and schedule.releases == 1
        held = query.pooled == "none" and not query.steered and schedule.pooled_shares is None
        return held and schedule.users is not None and not alone

    def _reported(self, query: CountQuery, schedule: Schedule) -> Choice:
        """Return the choice "reports" with the randomizer and number of steps that give the least noise.

        Raises ``ValueError`` if the query or the schedule needs sums that reports do not contain.
        """
        assert self.epsilon is not None
        for name, value, nothing in (
            ("schedule.pooled_shares", schedule.pooled_shares, None), ("pooled", query.pooled, "none"),
            ("groups", query.groups, 0), ("cut", query.cut, 0.0),
        ):  # fmt: skip
            if value is not nothing and (nothing is None or value != nothing):
                raise ValueError(
                    f"{name} = {value!r}: must be {nothing!r} with release = 'reports', which hold counts of "
                    "single steps only"
                )
        reports = best_reports(query, self.epsilon, schedule.plans == "stochastic")
        error = weighed_error(reports, query, schedule)
        return Choice("reports", 0.0, 1, None, np.zeros(0), error, reports=reports)

    def _by_preset(self, option: str) -> str:
        """Return a note for an error message if the preset set this option's value, otherwise an empty
        string.
        """
        chosen = self.preset != "default" and self.PRESETS[self.preset].get(option) == getattr(self, option)
        return f" (set by preset = {self.preset!r})" if chosen else ""

    def _check_reader(self, schedule: Schedule) -> None:
        if schedule.reads == "measurements" and self._correlated:
            raise ValueError(
                f"release = {self.release!r}{self._by_preset('release')}: gives no measurements with noise "
                "of their own, which this learner reads; use 'batches', 'decaying', 'reports' or 'auto'"
            )

    def _walks(self, leaves: int | None, discrete: bool) -> Iterator[tuple[str, bool | None, Walk]]:
        """Yield (release, laplace, factorization) for each factorization mechanism that the options allow.

        The second item is True if the factorization allows only Laplace noise, False if it allows only
        Gaussian noise, and None if it allows both.

        ``leaves`` : number of time steps, or None if unknown. discrete : True if the noise must be exact.
        """
        if isinstance(self.release, MatrixFactorization):
            yield from _matrices(self.release, leaves, discrete)
            return
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
        digits = best_digits(leaves, self.arity) if auto or self.release == "signed-digits" else None
        # With one level, "signed-digits" is the same as "batches".
        if digits is not None and (not auto or digits.levels > 1):
            yield "signed-digits", True, digits
        if self.release == "square-root" or (auto and not discrete and leaves <= MOST_LEAVES):
            yield "square-root", False, SquareRoot(leaves)

    def _batches(self, decay: float) -> Batches:
        """Return the strategy of batches with this decay, for users who can return."""
        assert self.separation is not None
        return Batches(decay, self._participations, self.separation)

    def _decays(self) -> tuple[float, ...]:
        if self.release == "batches":
            return (0.0,)
        if self.decay is not None:
            return (self.decay,)
        return DECAYS if self.release == "auto" else DECAYS[1:]

    def mechanism(self, query: Any, schedule: Schedule, randomness: Randomness) -> Mechanism:
        """Return the mechanism for ``query`` and ``schedule``, with its guarantee, before data are read.

        The kind of ``randomness`` determines whether noise must be exact. Raises ``ValueError`` if no
        mechanism for this query and schedule meets the budget.
        """
        check_source(randomness)
        self._check_returning(query, schedule)
        if has_batches(schedule):
            from discreet.mechanisms.batch_queries import batch_mechanism

            return batch_mechanism(self, query, schedule, randomness)
        if is_linear(query):
            from discreet.mechanisms.privatizers.linear_sums import linear_central

            return linear_central(
                self, query, schedule, randomness, release=self._check_linear(), leaf=self.leaf or "batch",
                optimal=self.tree_estimate == "optimal",
            )  # fmt: skip
        if type(query) is FamilyQuery:
            from discreet.mechanisms.privatizers.own_families import central_mechanism

            return central_mechanism(self, query, schedule, randomness)
        query, schedule = continual_query(query, cuts=True), private_schedule(schedule)
        self._check_reader(schedule)
        choice = self._chosen(query, schedule, randomness)
        if choice.reports is not None:
            stated = Stated(epsilon=self.epsilon)
            return CountMechanism(
                query, schedule, randomness.kind, Reported(choice.reports, "server"), stated=stated
            )
        assert choice.drawn is not None
        strategy: Prefixes | Batches
        if choice.walk is not None:
            strategy, fresh = Prefixes(choice.walk, self.leaf or "batch"), _fresh(choice.walk)
        else:
            strategy = self._batches(choice.decay)
            fresh = strategy.fresh
        stated = self._stated(query, choice.drawn, randomness, fresh)
        return CountMechanism(
            query,
            schedule,
            randomness.kind,
            strategy,
            choice.drawn,
            self._least_scales(query, choice.drawn, choice.scales, choice.levels, stated, randomness),
            grid_of(randomness),
            self._release_scales(query, schedule, choice),
            stated,
        )

    def _chosen(self, query: CountQuery, schedule: Schedule, randomness: Randomness) -> Choice:
        """Return the mechanism with the least error. With published calibration, return the papers' tree."""
        if self.calibration != "published":
            return self._count_choices(query, schedule, randomness)[0]
        for name, given in (
            ("schedule.pooled_shares", schedule.pooled_shares), ("groups", query.groups or None),
            ("query.cut", query.cut or None),
        ):  # fmt: skip
            if given is not None:
                raise ValueError(
                    f"{name}: must not be given with calibration 'published', whose release is a tree"
                )
        scales = np.full(len(query.row_families), self._published(query, schedule))
        leaves = leaves_of(schedule, self.leaf or "batch")
        walk = next(self._walks(leaves, isinstance(randomness, Secure)))[2]
        return Choice("tree", 0.0, walk.levels, LAPLACE, scales, 0.0, walk)

    def stored_mechanism(self, query: Any, randomness: Randomness) -> CountMechanism:
        """Return the mechanism of one noisy sum over an offline data set, for any number of users.

        Raises ``ValueError`` if ``query`` cannot be released one step at a time, if its noise cannot be drawn
        from ``randomness``, or if this privatizer has options that need many releases.
        """
        from discreet.mechanisms.dataset.dataset_release import check_query

        query = private_query(query)
        check_source(randomness)
        check_query(query)
        self._check_returning(query, None)
        if self.release not in ("auto", "batches") or self.calibration == "published":
            raise ValueError(
                f"release = {self.release!r}, calibration = {self.calibration!r}: must be 'auto' or "
                "'batches', and 'exact', offline data are released once"
            )
        options = self._options(query, 1, isinstance(randomness, Secure))
        if not options:
            raise ValueError(f"noise = {self.noise!r}: does not meet this budget")
        noise, scales, _ = min(options, key=lambda option: option[2])
        stated = self._stated(query, noise, randomness, True)
        scales = self._least_scales(query, noise, scales, 1, stated, randomness)
        return CountMechanism(
            query, Schedule.one_shot(1), randomness.kind, Batches(), noise, scales, grid_of(randomness),
            stated=stated, stored=True,
        )  # fmt: skip

    def stored(self, query: Any, randomness: Randomness) -> OneShotSession:
        """Return a session for an offline data set. The session releases one noisy sum over all users, step
        by step.

        Noise and guarantee are those of ``start(query, Schedule.one_shot(n), randomness)`` for every n, so n
        is not an argument. Each user has at most ``query.episodes`` episodes. Raises the ``ValueError`` of
        :meth:`stored_mechanism`.
        """
        from discreet.mechanisms.dataset.dataset_release import OneShotSession

        return OneShotSession(self.stored_mechanism(query, randomness), randomness)

    def _release_scales(self, query: CountQuery, schedule: Schedule, choice: Choice) -> Floats:
        """Return (releases + 1, families) noise scales, for the share of pooled families in each release.

        The shape is (0, families) if all releases have the same scales. A family contains sums of each step
        or pooled sums (over all steps). The families of one kind divide the share of their kind, so all their
        scales are multiplied by the same factor. Let f and g be the factors of the per-step and the pooled
        scales. Let s and p be the losses of the two kinds at factor 1, where s + p is the budget. The joint
        loss is s / f + p / g (for Gaussian noise, with squares of all these numbers). The factors f = s / ((1
        - share)(s + p)) and g = p / (share (s + p)) keep the joint loss equal to the budget.
        """
        none = np.zeros((0, choice.scales.size))
        shares = schedule.pooled_shares
        if shares is None:
            return none
        if query.pooled == "none":
            raise ValueError("schedule.pooled_shares: must be None, the query pools nothing")
        if choice.walk is not None:
            raise ValueError(
                "schedule.pooled_shares: must be None for a tree, whose releases contain no measurements"
            )
        norm: Norm = "l1" if choice.drawn == LAPLACE else "l2"
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


def _matrices(
    release: MatrixFactorization, leaves: int | None, discrete: bool
) -> Iterator[tuple[str, bool, Walk]]:
    """Yield (name, laplace, factorization) for a user's strategy matrix, as in ``Central._walks``."""
    if leaves is None:
        raise ValueError("users = None: release = MatrixFactorization(...) needs a known number of users")
    for laplace in (True, False):
        walk = release.first(leaves - 1, not laplace)
        if discrete and not walk.integral:
            raise ValueError(
                "release = MatrixFactorization(...): its sums are not integers, so exact noise is not "
                "available; use an integer matrix with a diagonal of ones, 'tree', 'signed-digits', "
                "'batches' or 'auto' with secure randomness"
            )
        yield "matrix", laplace, walk


def _widening(batches: Batches, query: CountQuery, releases: int, scales: Floats) -> float:
    """Return the factor by which fixed-point rounding of a decaying sum increases the noise scales."""
    named = dict(zip(query.row_families, scales.tolist(), strict=True))
    rounding = Decaying(batches.decay).rounding(releases, query.layout.horizon)
    rounding *= math.sqrt(batches.participations) / batches.column_norm("l2")
    return joint_loss(query, "l2", named, rounding) / joint_loss(query, "l2", named)


def _rms_sum(stream: Decaying, releases: int) -> float:
    """Return the noise std of a prefix sum as root mean square over the releases, in units of one draw's std.

    stream : sums of batches, with or without decay.
    """
    releases = max(1, releases)
    ends = (sum_terms(stream, i) for i in (1, releases))
    return math.sqrt(sum(ends) / 2)  # the variance is linear in i, so its mean is the mean of both ends
