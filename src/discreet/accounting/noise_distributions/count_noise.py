"""Noise distributions of a count mechanism, for each release and each cell.

The distributions are functions of the mechanism and of public numbers (the number of users so far, and the
number of users who sent nothing), never of data. Learners, forecasts and error bounds use these
distributions.
:class:`~discreet.core.session.ChannelSession` adds them to its releases. The distributions and their bounds
are defined in :mod:`discreet.accounting.noise_distributions.distributions`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.accounting.noise_distributions import distributions as laws
from discreet.accounting.noise_distributions.declared_noise import DeclaredSumLaw
from discreet.accounting.noise_distributions.prefix_variance import noise_of, sum_terms
from discreet.core import clipped_returns as steered
from discreet.core import count_kernels as kernels
from discreet.core.correlated_noise.decaying_sum import Decaying
from discreet.core.correlated_noise.factorization import Walk
from discreet.core.families import CENTERED_REWARDS, CUT_REWARDS
from discreet.core.noise.noises import GAUSSIAN, is_declared
from discreet.core.protocols import NoiseDistribution
from discreet.core.releases import Floats, Ints

if TYPE_CHECKING:
    from discreet.core.count_mechanism import CountMechanism

_PARTS = 16  # bounds that are not integers are counted in units of 1 / _PARTS of the variance of one draw

Laws = dict[str, NoiseDistribution]


def report_grid(n: int, last: int) -> int:
    """Return the smallest number >= n of a grid with steps of up to 5 %, or ``last`` if that is smaller."""
    point = 1
    while point < n:
        point = max(point + 1, math.floor(point * 1.05))
    return min(point, last) if n > 0 else 0


@dataclass(frozen=True, eq=False)
class CountLaws:
    """Noise distributions of the releases of one count mechanism."""

    mechanism: CountMechanism

    # -------------------------------------------------------------------------- public clock
    @cached_property
    def _times(self) -> Ints | None:
        schedule = self.mechanism.schedule
        return None if schedule.users is None else schedule.release_times

    def leaf(self, n: int) -> int:
        """Return the number of time steps of the noise strategy after the first n users.

        Raises ``RuntimeError`` if no release is scheduled after n users.
        """
        return self.mechanism.schedule.leaf_at(n, self.mechanism.leaf)

    @property
    def _last_count(self) -> int:
        """Number of users so far at the last release. 2^62 - 1 if the schedule has no end."""
        schedule = self.mechanism.schedule
        return 2**62 - 1 if schedule.users is None else schedule.users - 1 + schedule.final

    def _share(self, n: int) -> float:
        """Return the share of a failure probability that is assigned to the release after n users."""
        releases = self.mechanism.schedule.releases
        return 1.0 / releases if releases is not None else laws.open_share(max(n, 1))

    # -------------------------------------------------------------------------- laws
    def _law(
        self, f: int, name: str, terms: float, terms_bound: int, scale: float, share: float, sums: bool = True
    ) -> NoiseDistribution:
        mechanism, walk = self.mechanism, self.mechanism.walk
        cells = int(mechanism.query.offsets[f + 1] - mechanism.query.offsets[f])
        rows = math.prod(mechanism.query.row_families[name][:2])
        grid = mechanism.grid(name)
        weighted = walk is not None and walk.weighted
        # noise terms with different weights have no common distribution on a grid
        mixed = (mechanism.fixed_point and sums) or (grid is not None and weighted)
        law: type[laws.LaplaceSumLaw | laws.GaussianSumLaw | laws.SubGaussianSumLaw | DeclaredSumLaw]
        law = laws.GaussianSumLaw
        if mechanism.noise is not None and is_declared(mechanism.noise):
            law, scale = DeclaredSumLaw, mechanism.noise.std(scale, grid)
        elif mechanism.family == kernels.LAPLACE:
            law = laws.WeightedLaplaceLaw if weighted else laws.LaplaceSumLaw
        elif mixed:
            law = laws.SubGaussianSumLaw
        return law(
            scale=scale,
            terms=terms,
            terms_bound=terms_bound,
            cells=cells,
            rows=rows,
            row_size=cells // rows,
            share=share,
            unit=None if grid is None or mixed else 1.0 / (grid * mechanism.noise_factor),
        )

    def at(self, n: int) -> Laws:
        """Return the noise distribution of every family in the sums over the first n users.

        If the query has clipped rewards, the result includes both reward families, although a release
        contains only one of them. Both distributions are for the first clipping threshold C.
        """
        mechanism = self.mechanism
        if mechanism.stream != "decaying":
            return self.sums(n, n, 0)
        number, scales = self.leaf(n), mechanism.scales
        made = [(mechanism.scales_at(i) / scales) ** 2 for i in range(1, number + 1)]
        return self.sums(n, n, number, sum(made, np.zeros(scales.size)))

    def sums(self, n: int, senders: int, number: int, squares: Floats | None = None) -> Laws:
        """Return the noise distribution of every family in the sums over n users.

        Parameters
        ----------
        senders : number of these users who sent a message. Absent users add no local noise.
        number : number of measurements so far. The sums of a decaying stream contain this number of noise
            terms. If a scheduled release is skipped, two batches share one measurement.
        squares : for each family, the sum of the squared scales of these noise terms, relative to the usual
            scale. It is needed if the scales differ between releases.
        """
        mechanism = self.mechanism
        names = list(mechanism.query.row_families)
        if mechanism.stream == "exact":
            return {name: laws.NoNoise() for name in names}
        share = self._share(n)
        if mechanism.reports is not None:
            return self._of_reports(senders, report_grid(n, max(1, self._last_count)), share)
        factor = 1.0
        if mechanism.stream == "local":
            terms, terms_bound = float(senders), report_grid(n, max(1, self._last_count))
        elif mechanism.stream == "decaying":
            # This is the exact distribution for decay 0. For other decays it is exact for Gaussian noise,
            # because a weighted sum of Gaussian terms is Gaussian with the sum of their variances.
            terms = sum_terms(Decaying(mechanism.decay), number)
            terms_bound = math.ceil(terms - 1e-9)
            if mechanism.release_scales.size and number:
                assert squares is not None
                return self._of_unlike(n, number, squares)
        else:
            assert mechanism.walk is not None
            walk, leaf, parts = mechanism.walk, self.leaf(n), self._parts
            noise = noise_of(walk)
            factor = noise.scale(leaf) / math.sqrt(parts)
            terms, terms_bound = parts * noise.terms(leaf), bound_of(walk, leaf, parts)
        return {
            name: self._law(f, name, terms, terms_bound, factor * float(mechanism.scales[f]), share)
            for f, name in enumerate(names)
        }

    @property
    def _parts(self) -> int:
        """Number of parts into which the variance of one draw is divided for integer bounds.

        A bound on the variance is rounded up to an integer number of parts. Gaussian noise of weighted
        factorizations can be divided into parts. For other noise the number is 1.
        """
        walk = self.mechanism.walk
        gaussian = self.mechanism.noise == GAUSSIAN
        return _PARTS if walk is not None and walk.weighted and gaussian else 1

    def _of_reports(self, users: int, most: int, share: float) -> Laws:
        query, plans = self.mechanism.counts, self.mechanism.schedule.plans
        # an object of the class Reported, which cannot be imported here
        reported: Any = self.mechanism.strategy
        return {name: reported.law(query, name, plans, users, most, share) for name in query.row_families}

    def _of_unlike(self, n: int, number: int, squares: Floats) -> Laws:
        """Return the noise distributions of prefix sums if the noise scales of the measurements differ.

        The standard deviation is exact. Bounds are computed as if every noise term had the largest scale.
        """
        mechanism, share, at = self.mechanism, self._share(n), self.leaf(n)
        stream, scales = Decaying(mechanism.decay), mechanism.scales
        newest = (mechanism.scales_at(at) / scales) ** 2
        variance = (newest + (1.0 - stream.decay) ** 2 * (squares - newest)) / stream.gain**2
        largest = mechanism.release_scales[1 : at + 1].max(axis=0)
        terms_bound = math.ceil(sum_terms(stream, number) - 1e-9)
        return {
            name: self._law(
                f, name, float(variance[f] * (scales[f] / largest[f]) ** 2), terms_bound,
                float(largest[f]), share,
            )
            for f, name in enumerate(mechanism.query.row_families)
        }  # fmt: skip

    def measurement(self, n: int, senders: int, share: float | None = None, cut: float | None = None) -> Laws:
        """Return the noise distribution of every family in the measurement after n users.

        Raises ``ValueError`` for a factorization mechanism, because its releases share noise.

        Parameters
        ----------
        senders : number of users who sent a message since the last measurement.
        share : share of the budget spent on group returns. None is the share in the query. With 0 the
            measurement contains no group returns.
        cut : current clipping threshold C of a query with clipped rewards. None is the first threshold.
        """
        mechanism, query = self.mechanism, self.mechanism.query
        cut = query.cut if cut is None else cut
        left_out = () if not query.cut else CUT_REWARDS if math.isinf(cut) else CENTERED_REWARDS
        if mechanism.walk is not None:
            raise ValueError(
                f"{type(mechanism.walk).__name__}: its releases share noise, so it gives no measurements "
                "with noise of their own, which this learner reads; use release = 'auto', or a learner that "
                "reads sums"
            )
        if mechanism.stream == "exact":
            return {name: laws.NoNoise() for name in query.row_families if name != left_out}
        if mechanism.reports is not None:
            return self._of_reports(senders, senders, self._share(n))
        terms = senders if mechanism.stream == "local" else min(n, 1)
        scales = self._scales(n, share, cut)
        return {
            name: self._law(f, name, float(terms), terms, float(scales[f]), self._share(n), sums=False)
            for f, name in enumerate(query.row_families)
            if np.isfinite(scales[f]) and name != left_out
        }

    def _scales(self, n: int, share: float | None, cut: float) -> Floats:
        """Return the noise scales of the release after n users, shape (families,).

        The scale is infinite for families that the release does not contain. Raises ``RuntimeError`` if no
        release is scheduled after n users.
        """
        mechanism, query = self.mechanism, self.mechanism.query
        if mechanism.stream != "decaying" or n == 0:
            return mechanism.scales
        scales = mechanism.scales_at(self.leaf(n))
        if query.cut:
            return steered.taking_turns(mechanism.counts, scales, cut)
        return steered.at_share(mechanism, scales, share if query.groups else None)

    # -------------------------------------------------------------------------- of all releases
    def measurements(self) -> list[tuple[int, Laws]]:
        """Return (n, noise distributions of the measurement after n users) for every scheduled release.

        The number of users K must be known.
        """
        if self._times is None:
            raise ValueError("users = None: the releases of an open-ended schedule are not a list")
        mechanism, found = self.mechanism, list[tuple[int, Laws]]()
        alike = mechanism.stream == "decaying" and not mechanism.release_scales.size
        for n, size in zip(self._times.tolist(), np.diff(self._times, prepend=0).tolist(), strict=True):
            same = alike and found and found[-1][0] > 0  # one distribution for all releases with users
            found.append((n, found[-1][1] if same else self.measurement(n, size)))
        return found

    def steps(self) -> list[tuple[int, Laws]]:
        """Return the noise distributions of the sums for every interval of n with constant bounds.

        An entry is (last n of the interval, distributions after n users). ``bound`` and ``std_bound`` do not
        change within an interval. Entries are in ascending order. The number of users K must be known.
        """
        if self._times is None:
            raise ValueError("users = None: the steps of an open-ended schedule are not a list")
        last, mechanism = int(self._times[-1]), self.mechanism
        if mechanism.stream == "exact":
            ends = [last]
        elif mechanism.walk is not None:
            steps = np.array(bound_steps(mechanism.walk, self._parts))
            by_user = mechanism.leaf == "user"
            at = np.searchsorted(self._times, steps, side="right") - 1 if by_user else steps
            ends = np.unique(self._times[at]).tolist()
        elif mechanism.stream == "decaying":
            ends = self._times.tolist()
        else:
            ends, point = [0], 0
            while ends[-1] < last:
                point = report_grid(ends[-1] + 1, last)
                ends.append(point)
        return [(end, self.at(end)) for end in ends]


def bound_of(walk: Walk, leaf: int, parts: int = 1) -> int:
    """Return ``parts`` times the largest noise variance up to a time step (``leaf``), rounded up.

    The variance is in units of one draw's variance. See ``WalkNoise.most`` in
    :mod:`discreet.accounting.noise_distributions.prefix_variance`.
    """
    return math.ceil(parts * noise_of(walk).most(leaf) * (1 - 1e-12))


def bound_steps(walk: Walk, parts: int = 1) -> list[int]:
    """Return the time steps up to N - 1 after which :func:`bound_of` grows, in ascending order.

    N is the number of time steps of the factorization and must be known.
    """
    if walk.leaves is None:
        raise ValueError("leaves = None: the walk has no last step")
    ends: list[int] = []
    last, at = max(0, walk.leaves - 1), 0
    while not ends or ends[-1] < last:
        bound, low, high = bound_of(walk, at, parts), at, last + 1
        while high - low > 1:  # the variance is within the bound at low and above it at high
            middle = (low + high) // 2
            low, high = (middle, high) if bound_of(walk, middle, parts) <= bound else (low, middle)
        ends.append(low)
        at = low + 1
    return ends
