"""Noise distributions of a count mechanism: the noise of each release in each cell, known before any data.

They are functions of the mechanism and of public numbers (users so far, users that sent nothing), never of
data. Learners, forecasts and bounds read them; :class:`~discreet.core.session.ChannelSession` puts them
into its releases. The distributions and their bounds are defined in
:mod:`discreet.accounting.noise_distributions.distributions`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

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

__all__ = ["CountLaws", "bound_of", "bound_steps", "report_grid"]

_PARTS = 16  # a bound that is not an integer is counted in this fraction of one draw's variance

Laws = dict[str, NoiseDistribution]


def report_grid(n: int, last: int) -> int:
    """Return the smallest number of the grid 1, 2, 3, ... (growing by 5 %) that is >= n; at most last."""
    point = 1
    while point < n:
        point = max(point + 1, math.floor(point * 1.05))
    return min(point, last) if n > 0 else 0


@dataclass(frozen=True, eq=False)
class CountLaws:
    """Noise distributions of the releases of one mechanism."""

    mechanism: CountMechanism

    # -------------------------------------------------------------------------- public clock
    @cached_property
    def _times(self) -> Ints | None:
        schedule = self.mechanism.schedule
        return None if schedule.users is None else schedule.release_times

    def leaf(self, n: int) -> int:
        """Return the number of time steps of the first n users.

        Raises ``RuntimeError`` between scheduled releases.
        """
        return self.mechanism.schedule.leaf_at(n, self.mechanism.leaf)

    @property
    def _last_count(self) -> int:
        """Return the number of users in the last release."""
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
        mixed = mechanism.fixed_point and sums  # noise terms with different weights have no common grid
        law: type[laws.LaplaceSumLaw | laws.GaussianSumLaw | laws.SubGaussianSumLaw | DeclaredSumLaw]
        law = laws.GaussianSumLaw
        if mechanism.noise is not None and is_declared(mechanism.noise):
            law, scale = DeclaredSumLaw, mechanism.noise.std(scale, grid)
        elif mixed:
            law = laws.SubGaussianSumLaw
        elif mechanism.family == kernels.LAPLACE:
            law = laws.WeightedLaplaceLaw if walk is not None and walk.weighted else laws.LaplaceSumLaw
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
        """Return the noise distribution of every family in the sums after n users.

        With clipped rewards the result includes both reward families, although only one of them is released.
        Both use the first clipping threshold C.
        """
        mechanism = self.mechanism
        if mechanism.stream != "decaying":
            return self.sums(n, n, 0)
        number, scales = self.leaf(n), mechanism.noise_scales
        made = [(mechanism.scales_at(i) / scales) ** 2 for i in range(1, number + 1)]
        return self.sums(n, n, number, sum(made, np.zeros(scales.size)))

    def sums(self, n: int, senders: int, number: int, squares: Floats | None = None) -> Laws:
        """Return the distributions after n users of whom ``senders`` sent a message.

        Absent users add no local noise. ``number`` is the number of measurements so far: the sums of a
        decaying stream contain that number of noise terms. Skipping a scheduled release merges two batches
        into one measurement. ``squares`` contains the sums of the squared scales of these terms.
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
            # exact for decay 0; Gaussian noise has the sum of the variances for any weights
            terms = sum_terms(Decaying(mechanism.decay), number)
            terms_bound = math.ceil(terms - 1e-9)
            if mechanism.by_release.size and number:
                assert squares is not None
                return self._of_unlike(n, number, squares)
        else:
            assert mechanism.walk is not None
            walk, leaf, parts = mechanism.walk, self.leaf(n), self._parts
            noise = noise_of(walk)
            factor = noise.scale(leaf) / math.sqrt(parts)
            terms, terms_bound = parts * noise.terms(leaf), bound_of(walk, leaf, parts)
        return {
            name: self._law(f, name, terms, terms_bound, factor * float(mechanism.noise_scales[f]), share)
            for f, name in enumerate(names)
        }

    @property
    def _parts(self) -> int:
        """Return the number of parts into which the variance of one draw is divided when bounds are counted.

        Gaussian noise of weighted factorizations can be divided into parts; for other noise the number is 1.
        """
        walk = self.mechanism.walk
        gaussian = self.mechanism.noise == GAUSSIAN
        return _PARTS if walk is not None and walk.weighted and gaussian else 1

    def _of_reports(self, users: int, most: int, share: float) -> Laws:
        query, reported, plans = self.mechanism.counts, self.mechanism.reported, self.mechanism.schedule.plans
        assert reported is not None
        return {name: reported.law(query, name, plans, users, most, share) for name in query.row_families}

    def _of_unlike(self, n: int, number: int, squares: Floats) -> Laws:
        """Return the distributions of prefix sums of measurements whose noise scales differ.

        The std is exact. Bounds are computed as if every term had the largest scale.
        """
        mechanism, share, at = self.mechanism, self._share(n), self.leaf(n)
        stream, scales = Decaying(mechanism.decay), mechanism.noise_scales
        newest = (mechanism.scales_at(at) / scales) ** 2
        variance = (newest + (1.0 - stream.decay) ** 2 * (squares - newest)) / stream.gain**2
        largest = mechanism.by_release[1 : at + 1].max(axis=0)
        terms_bound = math.ceil(sum_terms(stream, number) - 1e-9)
        return {
            name: self._law(
                f, name, float(variance[f] * (scales[f] / largest[f]) ** 2), terms_bound,
                float(largest[f]), share,
            )
            for f, name in enumerate(mechanism.query.row_families)
        }  # fmt: skip

    def measurement(self, n: int, senders: int, share: float | None = None, cut: float | None = None) -> Laws:
        """Return the distributions of the measurement after n users.

        Raises ``ValueError`` for a factorization mechanism, whose releases share noise.

        Parameters
        ----------
        senders : users who sent a message since the last measurement.
        share : share of the budget spent on group returns; None: the query's share; 0: group returns are left
            out.
        cut : current clipping threshold C, for a query with clipped rewards; None: the first threshold.
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
        """Return (families,) scales of the release after n users; infinite for families that are left out.

        Raises ``RuntimeError`` between scheduled releases.
        """
        mechanism, query = self.mechanism, self.mechanism.query
        if mechanism.stream != "decaying" or n == 0:
            return mechanism.noise_scales
        scales = mechanism.scales_at(self.leaf(n))
        if query.cut:
            return steered.taking_turns(mechanism.counts, scales, cut)
        return steered.at_share(mechanism, scales, share if query.groups else None)

    # -------------------------------------------------------------------------- of all releases
    def measurements(self) -> list[tuple[int, Laws]]:
        """Return (n, distributions of the measurement) of every scheduled release. K must be known."""
        if self._times is None:
            raise ValueError("users = None: the releases of an open-ended schedule are not a list")
        sizes = np.diff(self._times, prepend=0).tolist()
        return [(n, self.measurement(n, size)) for n, size in zip(self._times.tolist(), sizes, strict=True)]

    def steps(self) -> list[tuple[int, Laws]]:
        """Return (last n, distributions) in ascending order.

        ``bound`` and ``std_bound`` are constant between two entries.

        K must be known.
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
    """Return ``parts`` times the largest variance of the factorization, rounded up.

    See ``WalkNoise.most`` of :mod:`discreet.accounting.noise_distributions.prefix_variance`.
    """
    return math.ceil(parts * noise_of(walk).most(leaf) * (1 - 1e-12))


def bound_steps(walk: Walk, parts: int = 1) -> list[int]:
    """Return the time steps up to N - 1 after which :func:`bound_of` grows, in ascending order.

    N must be known.
    """
    if walk.leaves is None:
        raise ValueError("leaves = None: the walk has no last step")
    ends: list[int] = []
    last, at = max(0, walk.leaves - 1), 0
    while not ends or ends[-1] < last:
        bound, low, high = bound_of(walk, at, parts), at, last + 1
        while high - low > 1:  # the bound holds at low and is exceeded at high
            middle = (low + high) // 2
            low, high = (middle, high) if bound_of(walk, middle, parts) <= bound else (low, middle)
        ends.append(low)
        at = low + 1
    return ends
