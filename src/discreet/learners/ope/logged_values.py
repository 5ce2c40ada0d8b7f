r"""Value of a policy, estimated from logged decisions with known probabilities: release, intervals, forecast.

A unit (a person or an impression) has one decision: context x, action a, the probability p with which a was
drawn, and reward y in [0, 1]. The policy takes a with probability pi(a | x). With the public cap M, the
weight is w = min(pi / p, M).

**Release.** With u = w / M, each unit adds the vector v = (u y, o u, k y, s u^2 y, s o u^2). The factors o =
sqrt(r) for the public guess r of the mean reward, k = 1 / sqrt(M) and s = 0.3 are public. Neighbours: one
unit is replaced, and the number n of units is public. Every entry of v is between 0 and its factor. The
vectors are therefore in a box with the diagonal D, where D^2 = 1 + o^2 + k^2 + s^2 + s^2 o^2, and ||v - v'||
<= D. Two units with (u, y) = (0, 0) and (1, 1) attain this bound. For the sums of w y and w alone (o = 1, k =
s = 0), the sensitivity is M D = sqrt(2) M. The centre of the box is subtracted. Noise is added by
:class:`~discreet.mechanisms.dataset.clipped_sum.ClippedSum` with C = D / 2, so no vector has a norm above C.

*Several rows of a unit.* v is then the mean over the unit's rows. The box is convex, so the mean is in it,
and the sensitivity is the same for any number of rows. Expectations are over units of means over their rows.
The square of a mean is at most the mean of squares (Jensen's inequality), so variances are upper bounds,
however the rows of a unit are correlated. The rows of a unit and their number must not depend on its earlier
actions.

**Estimates.** E[w y] is the inverse propensity score (IPS), and E[w y] / E[w] its self-normalised form
(SNIPS).

- If the cap cannot change a weight (``least`` states the smallest probability of an action that the policy
  takes, and 1 / least <= M), then E[w] = 1, and both estimate the value. The interval is that of SNIPS by the
  delta method. If the noisy E[w] is below 1/2, or within 4 standard deviations of its noise from 0, the
  interval is that of IPS.
- Otherwise, the cap reduces the estimate of the value by at most 1 - E[w], so the value is in [E[w y], 1 -
  E[w (1 - y)]]. The interval covers this range with its errors: its lower end is below E[w y], and its upper
  end is above 1 - E[w (1 - y)].

**Refutation.** If the logged probabilities are correct, E[w] <= 1, and E[w] = 1 if the cap cannot change a
weight. A condition is false if the noisy E[w] is above 1 by more than 4 standard deviations of noise and
sampling. If E[w] must be 1, a condition is also false if the noisy E[w] is below 1 by more than 4 standard
deviations. No gain is then shown, and ``method`` is "ips". For values below 1, the variance uses the largest
possible E[w^2], 1 / least, because rare large weights may be missing from the data. Under the normal
approximation, fewer than 1 in 10 000 verdicts is a false alarm.

Variances follow from the second moments. They are upper bounds for rewards between 0 and 1 (Jensen's
inequality) and exact for rewards 0 and 1. The standard deviation of a moment's noise is added to it. An
estimate with a few large weights has a skewed distribution. Therefore z^2 / 3 times the largest change by one
unit is added on the side of the long tail.

The gain is the value minus the mean reward of the log. It is *shown* if its interval is above 0. Conditions:
actions were drawn with the logged probabilities, rows are independent draws, and the policy was not learned
from these decisions.

The module has no doubly robust estimate with a public model q of rewards, because the sensitivity of such an
estimate is larger. The range of its terms q(x, pi) + w (y - q(x, a)) is at least M + 1 instead of M. The
range is 2 M + 1 if q can have any value in [0, 1].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from discreet.core import checks
from discreet.core.releases import Floats, Ints
from discreet.core.short_repr import brief
from discreet.learners.ope.verdict import IntervalEstimate
from discreet.mechanisms.dataset.clipped_sum import GRID

__all__ = ["IntervalEstimate", "LogForecast", "LogQuestion", "LogVerdict", "means_of_users"]

_SECOND = 0.3  # s
_LEAST_RATE = 0.01  # smallest r
_CLEAR = 4.0  # standard deviations of E[w]: distance from 0 that SNIPS needs, and largest distance from 1


@dataclass(frozen=True, eq=False)
class LogVerdict:
    """Value and gain of a policy, estimated from logged decisions.

    Attributes
    ----------
    value, gain : estimates with intervals, in [0, 1] for the value and [-1, 1] for the gain.
    ``method`` : "snips" or "ips", the estimator of both.
    ips : E[w y].
    snips : E[w y] / E[w], or None if E[w] does not exceed its noise.
    weight : E[w].
    logged : mean reward in the log.
    level : level of both intervals.
    users : number of units.
    refuted : True if E[w] shows that a condition is false.
    """

    __repr__ = brief

    value: IntervalEstimate
    gain: IntervalEstimate
    method: str
    ips: float
    snips: float | None
    weight: float
    logged: float
    level: float
    users: int
    refuted: bool

    @property
    def shown(self) -> bool:
        """True if the interval of the gain is above 0 and E[w] contradicts no condition."""
        return self.gain.shown and not self.refuted


@dataclass(frozen=True)
class LogForecast:
    """Half widths of a gain's interval, predicted before the release, in units of a reward in [0, 1].

    Attributes
    ----------
    users : number of units.
    least : half width from the noise and the number of units if all weights are 1.
    most : half width if all weights are 0 or M. None if the cap can reduce weights, because the resulting
        bias has no public bound.
    expected : public guess of the mean reward.
    """

    users: int
    least: float
    most: float | None
    expected: float

    @property
    def hopeless(self) -> bool:
        """True if the interval is too wide to show a gain even for a policy with twice the expected reward.

        If the expected reward is above 1/2, the comparison uses a policy that always gets reward 1.
        """
        return self.least >= min(self.expected, 1.0 - self.expected)


@dataclass(frozen=True)
class LogQuestion:
    """Query that evaluates a policy on logged decisions. All its attributes are public.

    Parameters
    ----------
    cap : float
        M, at least 1.
    expected : float
        Guess r of the mean reward, in (0, 1), not computed from these data. It determines how the noise is
        divided among the entries of v.
    least : float, optional
        Smallest probability of an action that the policy takes, in (0, 1].

    Raises
    ------
    ValueError
        If a number is out of its range.
    """

    cap: float
    expected: float = 0.5
    least: float | None = None

    SIZE = 5

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "cap", checks.real("cap", self.cap, 1.0, 1e6))
        put(self, "expected", checks.real("expected", self.expected, 0.0, 1.0, open_low=True, open_high=True))
        if self.least is not None:
            put(self, "least", checks.real("least", self.least, 0.0, 1.0, open_low=True))

    @property
    def exact(self) -> bool:
        """True if no weight can be above the cap."""
        return self.least is not None and self.least * self.cap >= 1.0

    @cached_property
    def factors(self) -> Floats:
        """(5,) largest value of each entry of v."""
        o = math.sqrt(max(self.expected, _LEAST_RATE))
        return np.array([1.0, o, 1.0 / math.sqrt(self.cap), _SECOND, _SECOND * o])

    @property
    def clip(self) -> float:
        """C = D / 2, half of the l2 sensitivity."""
        return float(np.linalg.norm(self.factors)) / 2.0

    def weights(self, policy: ArrayLike, logged: ArrayLike) -> Floats:
        """Return the (n,) weights w.

        policy : (n,) probabilities of the actions under the policy. logged : (n,) logged probabilities of
            these actions.
        """
        with np.errstate(over="ignore"):  # a tiny probability gives the cap; a warning would reveal data
            ratio = np.asarray(policy, np.float64) / np.asarray(logged, np.float64)
        found: Floats = np.minimum(ratio, self.cap)
        return found

    def vectors(self, weights: ArrayLike, rewards: ArrayLike) -> Floats:
        """Return the (n, 5) vectors v minus the centre of the box. The vectors are raw data.

        weights : (n,) in [0, M]. rewards : (n,) in [0, 1].
        """
        u, y = np.asarray(weights, np.float64) / self.cap, np.asarray(rewards, np.float64)
        parts: Floats = np.stack([u * y, u, y, u * u * y, u * u], axis=1)
        return self.factors * (parts - 0.5)

    def _means(self, sums: ArrayLike, users: int) -> Floats:
        """Return the means of (w y, w, y, w^2 y, w^2) from noisy sums in units of C."""
        found = checks.floats("sums", sums, (self.SIZE,)) * self.clip / users / self.factors + 0.5
        return found * self._units

    @property
    def _units(self) -> Floats:
        m = self.cap
        return np.array([m, m, 1.0, m * m, m * m])

    def noise(self, users: int, std: float) -> Floats:
        """Return the (5,) standard deviations of the noise of the means.

        users : number of units. std : standard deviation of a sum's noise, in units of C.
        """
        return std * self.clip / users / self.factors * self._units

    def read(self, sums: ArrayLike, users: int, std: float, level: float = 0.95) -> LogVerdict:
        """Return the verdict from the noisy sums.

        sums : (5,) noisy sums, in units of C.

        users, std : as for :meth:`noise`.

        level : level of the intervals, in (0, 1).

        Raises ``ValueError`` if ``sums`` has another shape or the level is out of its range.
        """
        level = checks.real("level", level, 0.0, 1.0, open_low=True, open_high=True)
        z = NormalDist().inv_cdf(0.5 + level / 2.0)
        wy, w, y, wwy, ww = self._means(sums, users).tolist()
        noise = self.noise(users, std)
        clear = w > max(0.5, _CLEAR * float(noise[1]))
        snips = wy / w if clear else None
        wwy = self._padded(wwy, wy, (float(noise[3]), float(noise[0])))
        ww = self._padded(ww, w, (float(noise[4]), float(noise[1])))
        rest = _LogInterval(self, z, users, noise)
        refuted = self._refuted(w, ww, users, noise)
        exact = self.exact and not refuted
        if exact and snips is not None:
            v = min(max(snips, 0.0), 1.0)
            a2, a2y, r = ww / w**2, wwy / w**2, min(max(y, 0.0), 1.0)
            tails = v * self.cap / w, (1.0 - v) * self.cap / w
            value = rest.both(snips, a2y * (1.0 - 2.0 * v) + a2 * v * v, (1.0 / w, -v / w, 0.0), tails)
            spread = a2 * v * v - 2.0 * v * r + r * r + (1.0 - 2.0 * v) * a2y
            spread += 2.0 * (v + r - 1.0) * wy / w - (2.0 * r - 1.0) * r
            gain = rest.both(snips - y, spread, (1.0 / w, -v / w, -1.0), tails)
            method = "snips"
        else:
            method, lost = "ips", ww - wwy + 2.0 * float(noise[3])
            value = rest.both(wy, wwy, (1.0, 0.0, 0.0), (0.0, self.cap))
            gain = rest.both(wy - y, wwy - 2.0 * wy + y, (1.0, 0.0, -1.0), (0.0, self.cap))
            if not exact:
                upper = rest.both(1.0 - w + wy, lost, (1.0, -1.0, 0.0), (0.0, 0.0))
                value = _joined(value, upper)
                upper = rest.both(1.0 - w + wy - y, lost + y, (1.0, -1.0, -1.0), (0.0, 0.0))
                gain = _joined(gain, upper)
        value, gain = _within(value, 0.0), _within(gain, -1.0)
        return LogVerdict(value, gain, method, wy, snips, w, y, level, users, refuted)

    def _refuted(self, w: float, ww: float, users: int, noise: Floats) -> bool:
        """Return True if E[w] is above 1 by 4 standard deviations, or below 1 although it must be 1."""
        test, mean = _LogInterval(self, _CLEAR, users, noise), (0.0, 1.0, 0.0)
        if test.both(w, ww, mean, (0.0, 0.0)).low > 1.0:
            return True
        most = min(self.cap, 1.0 / (self.least or 1.0))  # of E[w^2]
        return self.exact and test.both(w, most, mean, (0.0, 0.0)).high < 1.0

    def _padded(self, moment: float, mean: float, noise: tuple[float, float]) -> float:
        """Return an upper estimate of E[w^2 f] from the noisy values of E[w^2 f] and E[w f] and their noise.

        One standard deviation is added, because otherwise a low draw of the noise could make an interval
        almost empty. The estimate uses w^2 <= M w.
        """
        return min(max(moment, 0.0) + noise[0], self.cap * (max(mean, 0.0) + noise[1]))

    def forecast(self, users: int, std: float, level: float = 0.95) -> LogForecast:
        """Return the predicted half widths of the interval of a gain, assuming the mean reward ``expected``.

        users : number of units, at least 1. std, level : as for :meth:`read`. Raises ``ValueError`` if a
        number is out of its range.
        """
        users = checks.integer("users", users, 1)
        level = checks.real("level", level, 0.0, 1.0, open_low=True, open_high=True)
        z, noise, r = NormalDist().inv_cdf(0.5 + level / 2.0), self.noise(users, std), self.expected
        coefficients = np.array([1.0, -r if self.exact else 0.0, -1.0])
        own = float(np.linalg.norm(coefficients * noise[:3]))
        ends = []
        for moment in (r, self.cap * r):  # all weights 1; all weights 0 or M
            spread = self._padded(moment, r, (float(noise[3]), float(noise[0]))) - (
                r * r if self.exact else 0.0
            )
            ends.append(z * math.hypot(own, math.sqrt(max(spread, 0.0) / users)))
        return LogForecast(users, ends[0], ends[1] if self.exact else None, r)


def means_of_users(vectors: Floats, owner: Ints) -> Floats:
    """Return the (users, 5) means of the rows of each user.

    The means are in the same box as the rows, so the sensitivity is that of one row. Only rows of the same
    user are added, so that rounding does not depend on other users.

    vectors : (n, 5).

    owner : (n,) user of each row. Users are numbered from 0, and each has a row.
    """
    order = np.argsort(owner, kind="stable")
    starts = np.searchsorted(owner[order], np.arange(owner.max() + 1))
    found: Floats = np.add.reduceat(vectors[order], starts) / np.bincount(owner)[:, None]
    return found


@dataclass(frozen=True, eq=False)
class _LogInterval:
    """Numbers from which intervals are computed."""

    question: LogQuestion
    z: float
    users: int
    noise: Floats

    def both(
        self, estimate: float, spread: float, coefficients: tuple[float, ...], tails: tuple[float, float]
    ) -> IntervalEstimate:
        """Return an estimate with its interval.

        spread : variance of one unit's influence.

        coefficients : those of w y, w and y.

        tails : largest influence of a unit that makes the estimate too high, and too low.
        """
        users, z = self.users, self.z
        noise = float(np.linalg.norm(np.array(coefficients) * self.noise[:3]))
        sampling = math.sqrt(max(spread, 1.0 / users) / users)
        deviation = math.hypot(sampling, noise)
        units = self.question._units[:3] / self.question.factors[:3]
        # vectors are truncated to the grid
        cut = self.question.clip / GRID * float(np.abs(np.array(coefficients)) @ units)
        down, up = (z * deviation + cut + z * z * one / (3.0 * users) for one in tails)
        return IntervalEstimate(estimate, estimate - down, estimate + up, deviation, sampling, noise)


def _joined(below: IntervalEstimate, above: IntervalEstimate) -> IntervalEstimate:
    """Return the first estimate, with the larger of the two upper ends."""
    return IntervalEstimate(**{**vars(below), "high": max(below.high, above.high)})


def _within(found: IntervalEstimate, least: float) -> IntervalEstimate:
    """Return the estimate with the ends of its interval clipped to [least, 1]."""
    ends: dict[str, Any] = {name: min(max(getattr(found, name), least), 1.0) for name in ("low", "high")}
    return IntervalEstimate(**{**vars(found), **ends})
