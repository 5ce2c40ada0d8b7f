r"""Comparison of synthetic users with the real users of a release.

It uses the part of the release that the model does not use.

**Total variation.** Let p be a distribution of the real users, and q the same distribution of the synthetic
users. Both are measured by the query of the release. The held-out part gives d = p - q + e with errors e of
known standard deviations. Noise makes T = sum |d| / 2 too large. Let b = sqrt(2 / pi) sum sd(e) / 2, the mean
of T if p = q. If the errors have mean zero, E|x + e| is between |x| and |x| + E|e|. Therefore E T is between
the total variation and the total variation plus b.

- Estimate: sqrt(max(T^2 - b^2, 0)). It is exact on average if differences have the same distribution as
  errors. It is always between T - b and T.
- Low end: T - b - z s, where s is the standard deviation of T. By the Poincaré inequality, s^2 is at most the
  mean squared gradient of T in the noise. The gradient is computed at the observed signs of d.
- High end: E|x + e| is convex in |x|. Among all differences with total variation t, E T is smallest if all of
  them are the same multiple c of sd(e). Then E T = h g(c) with h = sum sd(e) / 2 and g(c) = E|c + Z|, and t =
  c h. The high end solves h g(c) = T + z s, where sd(e) includes only noise. For Laplace noise it is T + z s.

An episode has at most L counted records, and a user at most k episodes. Therefore sampling gives a sum of n
signed records a variance of at most k L n.

**States** and **pairs**: p is the distribution of visited states, or of pairs (state, action). If the release
is per step and not stationary, the distribution is over all steps. **Transitions**: for each pair, the total
variation between the next states of real and of synthetic users, weighted by the real users' share of the
pair and summed. The artificial start state of first visits is not a state here, but the first state of an
episode counts as a transition from it.

**Values**, in the user's units of return, are the mean return of the behaviour policy and the gains of three
policies over the behaviour policy. The policies take the most common action in each state, the least common
action, or a uniform action. For real users, the values are estimates from the held-out part, with a joint
interval for all three gains (:func:`discreet.learners.ope.policy_gains.evaluate_policies`). For synthetic
users, the values are exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from discreet.core.families import TRANSITIONS, VISITS
from discreet.core.releases import Floats
from discreet.core.short_repr import brief
from discreet.envs.mdp.planning import policy_value
from discreet.envs.mdp.tabular import TabularMDP
from discreet.learners.ope.count_estimates import BEHAVIOUR, evaluate, uniform
from discreet.learners.ope.first_visit_query import FirstVisits
from discreet.learners.ope.policy_gains import evaluate_policies
from discreet.learners.ope.release_split import ReleasePart, combined_visits, release_sizes, split_release
from discreet.mechanisms.interfaces import ProblemSpec, StepwiseRelease
from discreet.pipeline.world_model import WorldModel


@dataclass(frozen=True)
class Measured:
    """Estimate about the real users of a release, with an interval.

    Attributes
    ----------
    estimate, low, high : float
        Estimate and interval.
    synthetic : float or None
        Exact value for the synthetic users; None for a distance.
    """

    __repr__ = brief

    estimate: float
    low: float
    high: float
    synthetic: float | None = None


@dataclass(frozen=True, eq=False)
class Utility:
    """Utility of synthetic users, from the held-out part of the release.

    Attributes
    ----------
    states, pairs, transitions : Measured or None
        Total variation, in [0, 1]. None if the held-out part does not exceed the noise, or if the interval is
        wider than 0.9.
    values : mapping of name to Measured
        ``"behaviour"``: mean return. Names of policies: gain over the behaviour policy. A policy is absent if
        the release does not support an estimate.
    level : float
        Confidence level of each interval; for the gains, the joint level.
    """

    __repr__ = brief

    states: Measured | None
    pairs: Measured | None
    transitions: Measured | None
    values: Mapping[str, Measured]
    level: float

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as JSON values."""
        return {
            **{
                name: None if (found := getattr(self, name)) is None else asdict(found)
                for name in ("states", "pairs", "transitions")
            },
            "values": {name: asdict(found) for name, found in self.values.items()},
            "level": self.level,
        }


def total_variation(
    difference: Floats, noise: Floats, sampling: Floats, spread: float, level: float, heavy: bool = False
) -> Measured:
    """Estimate the total variation sum |p - q| / 2 from noisy differences, as in the module docstring.

    Parameters
    ----------
    difference : (n,) noisy differences p - q
    noise, sampling : (n,) standard deviations of their errors by noise and by sampling
    spread : standard deviation of sum |difference| / 2
    level : confidence level, in (0, 1)
    heavy : True for Laplace noise
    """
    z = -float(ndtri(0.5 * (1.0 - level)))
    seen = 0.5 * float(np.abs(difference).sum())
    bias = math.sqrt(0.5 / math.pi) * float(np.hypot(noise, sampling).sum())
    half, most = 0.5 * float(noise.sum()), seen + z * spread
    estimate = math.sqrt(max(seen**2 - bias**2, 0.0))
    low, high = max(seen - bias - z * spread, 0.0), most
    if half > 0.0 and not heavy:
        high = half * _multiple(most / half)
    low, high = min(low, 1.0), min(high, 1.0)
    return Measured(min(max(estimate, low), max(high, low)), low, max(high, low))


def _multiple(mean: float) -> float:
    """Return c >= 0 with E|c + Z| = ``mean`` for a standard normal Z; 0 if ``mean`` is below E|Z|."""

    def above(c: float) -> float:
        density = math.exp(-0.5 * c * c) / math.sqrt(2.0 * math.pi)
        return float(c * (2.0 * ndtr(c) - 1.0) + 2.0 * density - mean)

    return 0.0 if above(0.0) >= 0.0 else float(brentq(above, 0.0, mean + 1.0))


_WIDEST = 0.9  # largest width of an informative interval


def _known(found: Measured) -> Measured | None:
    return found if found.high - found.low <= _WIDEST else None


class _ComparedSums(NamedTuple):
    """Visits and transitions of all compared tables, concatenated."""

    visits: Floats  # (T, R)
    moves: Floats  # (T, R, S)
    weight: float  # weight of visits in the combination with sums of transitions
    of_visits: float  # standard deviation of the combined visits
    of_moves: float
    of_own: float  # standard deviation of the noise of visits; 0 if visits were not released


def _sums(release: StepwiseRelease, pooled: bool) -> _ComparedSums:
    slots = release_sizes(release)[0]
    std = {name: release.laws[name].std() for name in (VISITS, TRANSITIONS) if name in release.laws}
    own, moves = std.get(VISITS, math.inf), std[TRANSITIONS]
    visits, tables, deviation = [], [], 0.0
    for h in range(slots):
        sums = release.step(h)
        table = np.asarray(sums.transitions, np.float64)
        taken, deviation = combined_visits(sums.visits, table, moves, own)
        visits.append(taken)
        tables.append(table)
    n, m = np.array(visits), np.array(tables)
    variance = m.shape[2] * moves**2
    weight = variance / (own**2 + variance) if variance and not math.isinf(own) else 0.0
    times = math.sqrt(slots) if pooled else 1.0
    if pooled:
        n, m = n.sum(axis=0, keepdims=True), m.sum(axis=0, keepdims=True)
    return _ComparedSums(n, m, weight, times * deviation, times * moves, times * own if weight else 0.0)


class _Shape(NamedTuple):
    """Facts about the records that are compared."""

    along: float  # largest number of signed records of one user
    level: float
    heavy: bool


def _marginal(people: Floats, drawn: Floats, deviation: Floats, shape: _Shape) -> Measured | None:
    """Compare two (n,) tables of counts.

    - deviation : (n,) standard deviations of the noise in ``people``.
    """
    whole, made = float(people.sum()), float(drawn.sum())
    if whole <= 4.0 * math.sqrt(float((deviation**2).sum())):
        return None
    q = drawn / made
    difference = people / whole - q
    total = float((deviation**2).sum())
    noise = np.sqrt(deviation**2 * (1.0 - 2.0 * q) + q * q * total) / whole
    share = np.clip(people / whole, 0.0, 1.0)
    sampling = np.sqrt(np.maximum(share * (1.0 - share), 0.0) / whole + q * (1.0 - q) / made)
    slope = np.sign(difference) - float(np.sign(difference) @ q)
    spread = 0.25 * float((slope**2 * deviation**2).sum()) / whole**2
    spread += 0.25 * shape.along * (1.0 / whole + 1.0 / made)
    return _known(total_variation(difference, noise, sampling, math.sqrt(spread), shape.level, shape.heavy))


def _transitions(people: _ComparedSums, drawn: _ComparedSums, shape: _Shape) -> Measured | None:
    rows = people.visits.size
    whole = float(people.visits.sum())
    if whole <= 4.0 * people.of_visits * math.sqrt(rows):
        return None
    n, made = people.visits.reshape(-1, 1), drawn.moves.reshape(rows, -1)
    moves, size = people.moves.reshape(rows, -1), made.sum(axis=1, keepdims=True)
    p = np.where(size > 0.0, made / np.maximum(size, 1.0), 1.0 / made.shape[1])
    difference = (moves - n * p) / whole
    w, one = people.weight, people.of_moves**2
    noise = np.sqrt(one * (1.0 - 2.0 * (1.0 - w) * p) + (p * people.of_visits) ** 2) / whole
    positive = np.maximum(n, 0.0)
    luck = p * (1.0 - p) * (positive + np.where(size > 0.0, positive**2 / np.maximum(size, 1.0), 0.0))
    sign = np.sign(difference)
    mean = (sign * p).sum(axis=1, keepdims=True)
    spread = 0.25 * one * float(((sign - (1.0 - w) * mean) ** 2).sum()) / whole**2
    spread += 0.25 * (w * people.of_own) ** 2 * float((mean**2).sum()) / whole**2
    spread += 0.25 * shape.along * (whole + float((positive**2 / np.maximum(size, 1.0)).sum())) / whole**2
    found = total_variation(
        difference.ravel(), noise.ravel(), np.sqrt(luck).ravel() / whole, math.sqrt(spread), shape.level,
        shape.heavy,
    )  # fmt: skip
    return _known(found)


def _distances(
    held: ReleasePart, drawn: StepwiseRelease, spec: ProblemSpec, level: float
) -> tuple[Measured | None, Measured | None, Measured | None]:
    """Return the distances of states, pairs and transitions."""
    episodes = release_sizes(held)[1]
    first = held.layout != spec.layout
    pooled = not first and spec.stationary and spec.horizon > 1
    people, made = _sums(held, pooled), _sums(drawn, pooled)
    layout = held.layout
    counted = np.flatnonzero(layout.row_state < spec.states)
    along = float(min(spec.horizon, layout.states) + 1 if first else spec.horizon) * episodes
    shape = _Shape(along, level, "laplace" in held.laws[TRANSITIONS].family)
    n, q = people.visits[:, counted], made.visits[:, counted]
    begin = np.concatenate([[0], np.flatnonzero(np.diff(layout.row_state[counted])) + 1])
    deviation = np.full(n.shape, people.of_visits)
    per_state = np.sqrt(np.diff([*begin, n.shape[1]]))[None] * deviation[:, : len(begin)]
    in_people, in_made = (np.add.reduceat(x, begin, axis=1).ravel() for x in (n, q))
    return (
        _marginal(in_people, in_made, per_state.ravel(), shape),
        _marginal(n.ravel(), q.ravel(), deviation.ravel(), shape),
        _transitions(people, made, shape),
    )


# ------------------------------------------------------------------------------ values
def _simple(model: WorldModel) -> dict[str, Any]:
    """Return a mapping of names to the three simple policies."""
    share = model.behaviour
    possible = model.layout.row_index >= 0
    return {
        "most common action": np.where(possible, share, -1.0).argmax(axis=2),
        "least common action": np.where(possible, share, 2.0).argmin(axis=2),
        "uniform": np.array(uniform(model.layout)),
    }


def _usual(held: ReleasePart, spec: ProblemSpec, level: float) -> tuple[float, float, float]:
    """Return the mean return of the real users, and the interval of this mean, in the data's units."""
    episodes = release_sizes(held)[1]
    if held.layout == spec.layout:
        scale = 1.0 if spec.returns is None else spec.returns.high - spec.returns.low
        offset = 0.0 if spec.returns is None else spec.horizon * spec.returns.low
        one = evaluate(held, spec, {}, level=level, episodes_per_user=episodes).values[BEHAVIOUR]
        one = one.in_units(scale, offset)
        return one.estimate, one.low, one.high
    sums = FirstVisits(spec, episodes).read(held)
    rows, (least, most) = sums.begins, sums.question.bounds
    visits, deviation = combined_visits(sums.visits, sums.moves, sums.noise.moves, sums.noise.visits)
    n = max(float(visits[rows].sum()), 1.0)
    mean = min(max(float(sums.returns[rows].sum()) / n, -0.5), 0.5)
    variance = len(rows) * (sums.noise.returns**2 + (mean * deviation) ** 2)
    spread = math.sqrt(variance + episodes * n * (0.25 - mean**2)) / n
    z = -float(ndtri(0.5 * (1.0 - level)))
    ends = np.clip([mean, mean - z * spread, mean + z * spread], -0.5, 0.5)
    estimate, low, high = (least + (most - least) * (0.5 + ends)).tolist()
    return estimate, low, high


def _values(
    held: ReleasePart, model: WorldModel, worlds: Sequence[TabularMDP], level: float
) -> dict[str, Measured]:
    spec, (scale, offset) = model.spec, model.units

    def drawn(policy: Any) -> float:
        return float(np.mean([policy_value(world, policy) for world in worlds]))

    usual, policies = drawn(model.behaviour), _simple(model)
    found = {BEHAVIOUR: Measured(*_usual(held, spec, level), offset + scale * usual)}
    try:
        gains = evaluate_policies(held, policies, spec, level=level).gains
    except ValueError:  # no estimate without a rule for returns, or with censored ends
        return found
    for name, gain in gains.items():
        if gain.known:
            made = scale * (drawn(policies[name]) - usual)
            found[name] = Measured(gain.estimate, gain.low, gain.high, made)
    return found


def utility_of(
    release: StepwiseRelease,
    drawn: StepwiseRelease,
    model: WorldModel,
    worlds: Sequence[TabularMDP],
    *,
    share: float = 0.5,
    level: float = 0.95,
) -> Utility:
    """Compare synthetic users with the held-out part of a release, as in the module docstring.

    Parameters
    ----------
    release : StepwiseRelease
        Release. The model was estimated from its training part.
    drawn : StepwiseRelease
        Exact sums of the synthetic users for the same query.
    model : WorldModel
        Model of the training part.
    worlds : sequence of TabularMDP
        MDPs from which equal numbers of the users were drawn.
    share : float
        Share of the training part, in (0, 1).
    level : float
        Confidence level, in (0, 1).

    Returns
    -------
    Utility

    Raises
    ------
    ValueError
        If the release belongs to another query, or ``share`` is out of range.
    """
    held = split_release(release, share)[1]
    distances = _distances(held, drawn, model.spec, level)
    return Utility(*distances, _values(held, model, worlds, level), level)
