r"""Gains of any policies over the behaviour policy, with a joint interval, from one release.

A policy can change at every step, and it can follow the behaviour policy in some states ("as before"). A
policy that was computed from the training part of a release is evaluated with the held-out part
(:mod:`discreet.learners.ope.release_split`). A policy that was fixed before the release is evaluated with the
whole release. This is post-processing and costs no privacy budget.

A release per step is evaluated by :func:`discreet.learners.ope.count_estimates.evaluate`, at the level 1 -
failure / k for k policies. A release of first visits is evaluated as in
:mod:`discreet.learners.ope.policy_comparison`, with one chain for all policies. Let d_h(s) be the
probability that policy pi is in s at step h, c_h = w + V_{h+1}, and P_b the next states under the behaviour
policy. The slopes of the value of pi in the cell M(s, a, t) are

    sum_h d_h(s) pi_h(a | s) (c_h(t) - P_a c_h) / N(s, a) + sum_h d_h(s) u_h(s) (c_h(t) - P_b c_h) / N(s),

where u_h(s) = 1 if the policy acts as before. Variances follow from the slopes by the same rules.

Rows that do not exceed the noise. A row is used if N > 4 sd(N) and N >= 10, with the combined visits N. In
the estimate, all other rows act as before. At the low end, an episode that takes such a row has the lowest
possible return from there, at the high end the highest. The difference of the ends is the *lack*.

Several policies. The half-width is the quantile of the largest of k errors with their estimated correlations,
from 4000 draws. The interval holds for the policies of one call together. Another call with the same part
cannot be allowed for.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from discreet.core import checks
from discreet.core.releases import Floats
from discreet.core.short_repr import brief
from discreet.learners.ope.count_estimates import BEHAVIOUR, PolicyEstimate, ValueEstimate, evaluate, uniform
from discreet.learners.ope.first_visit_query import FirstVisits, Told
from discreet.learners.ope.policy_comparison import CellErrors, cell_errors, check_paid
from discreet.learners.ope.release_split import (
    ReleasePart,
    check_spec,
    combined_visits,
    content_hash,
    release_sizes,
    split_release,
)
from discreet.learners.ope.transition_gains import Chain, TransitionCounts
from discreet.mechanisms.interfaces import ProblemSpec, StepwiseRelease
from discreet.mechanisms.policy_rows import policy_rows
from discreet.utils.random_streams_kernels import ROLE_BOOTSTRAP, generator_at

__all__ = ["PolicyGains", "evaluate_policies"]

Bools = NDArray[np.bool_]
Made = Literal["train", "outside"]

_USED, _LEAST = 4.0, 10.0  # smallest count that is used, in deviations of its noise and in users
_DRAWS = 4000


@dataclass(frozen=True, eq=False)
class PolicyGains:
    """Gains of policies over the behaviour policy, in the user's units of return.

    Attributes
    ----------
    gains : mapping of name to ValueEstimate
        Gain of each policy. The intervals hold for all policies together.
    level : float
        Joint confidence level.
    made_from : mapping
        Hash of the release, and the part and share that were read.
    """

    __repr__ = brief

    gains: Mapping[str, ValueEstimate]
    level: float
    made_from: Mapping[str, Any]

    def shown(self, name: str) -> bool:
        """Return True if the whole interval of this policy is above 0, and its estimate is informative."""
        found = self.gains[name]
        return found.known and found.low > 0.0


class _PolicySteps(NamedTuple):
    """A policy over the rows of ``spec.layout``."""

    weights: Floats  # (H, R), 0 in states in which the policy acts as before
    before: Bools  # (H, S)


def _steps(name: str, policy: ArrayLike, spec: ProblemSpec) -> _PolicySteps:
    layout = spec.layout
    array = np.asarray(policy)
    whole, before = array.dtype.kind in "iu", np.zeros((layout.horizon, layout.states), bool)
    if array.shape == (layout.states,) if whole else array.shape == (layout.states, layout.actions):
        array = np.repeat(array[None], layout.horizon, axis=0)
    if whole and array.shape == before.shape:
        before = array == -1
        array = np.where(before, layout.row_action[layout.state_ptr[:-1]], array)
    try:
        checked = policy_rows(layout, array)
    except ValueError as error:
        raise ValueError(f"policies[{name!r}]: {error}") from None
    weights = checked.probabilities.copy()
    if not checked.stochastic:
        weights = np.zeros((layout.horizon, layout.rows))
        np.put_along_axis(weights, checked.rows, 1.0, axis=1)
    weights[before[:, layout.row_state]] = 0.0
    return _PolicySteps(weights, before)


class _Value(NamedTuple):
    """Value of one policy in a chain, its ends, and its slopes."""

    value: float
    low: float
    high: float
    own: Floats  # (R, S + 1)
    pooled: Floats  # (S + 1, S + 1)


def _value(chain: Chain, weights: Floats, before: Bools, used: Bools) -> _Value:
    """Return the value of a policy in the chain, from the start state.

    - weights : (H + 1, R) action probabilities, 0 where the policy acts as before.
    - before : (H + 1, S + 1) mask of these steps and states. used : (R,) mask of the rows that are used.
    """
    told, layout = chain.told, chain.told.layout
    state, steps, start = layout.row_state, layout.horizon, told.question.start
    live = np.ones(layout.states)
    live[chain.ends] = 0.0
    laws = chain.moves / chain.taken[:, None]
    lacking = np.array([told.per_state(np.where(used, 0.0, row)) for row in weights]) * live
    mixed = np.where(before, live, lacking)
    weights = np.where(used, weights, 0.0)
    least, most = min(0.0, float(chain.paid.min())), max(0.0, float(chain.paid.max()))
    value, low, high = (np.zeros((steps + 1, layout.states)) for _ in range(3))
    moves = np.empty((steps, layout.states, layout.states))
    for h in range(steps - 1, -1, -1):
        kept = told.per_state(weights[h][:, None] * laws)
        sure = kept + np.where(before[h], live, 0.0)[:, None] * chain.usual
        moves[h] = kept + mixed[h][:, None] * chain.usual
        value[h] = moves[h] @ (chain.paid + value[h + 1])
        low[h] = sure @ (chain.paid + low[h + 1]) + lacking[h] * least
        high[h] = sure @ (chain.paid + high[h + 1]) + lacking[h] * most
    reached = np.zeros((steps, layout.states))
    reached[0, start] = 1.0
    for h in range(1, steps):
        reached[h] = reached[h - 1] @ moves[h - 1]
    later = chain.paid + value[1:]
    own = (reached[:, state] * weights).T @ later
    own -= (laws * own).sum(axis=1, keepdims=True)
    pooled = (reached * mixed).T @ later
    pooled -= (chain.usual * pooled).sum(axis=1, keepdims=True)
    return _Value(
        float(value[0, start]), float(low[0, start]), float(high[0, start]),
        own / chain.taken[:, None], pooled / chain.seen[:, None],
    )  # fmt: skip


def _first_visit_gains(
    told: Told, tables: Mapping[str, _PolicySteps], level: float
) -> dict[str, ValueEstimate]:
    check_paid(told)
    layout, spec = told.layout, told.question.spec
    chain = Chain(told, TransitionCounts(told.moves, told.visits), 1.0)
    visits, deviation = combined_visits(told.visits, told.moves, told.noise.moves, told.noise.visits)
    used = (visits > _USED * deviation) & (visits >= _LEAST)
    several = np.diff(layout.state_ptr) > 1
    everywhere = np.ones((layout.horizon, layout.states), bool)
    usual = _value(chain, np.zeros((layout.horizon, layout.rows)), everywhere, used)
    pick = layout.row_index[spec.layout.row_state, spec.layout.row_action]
    own = np.flatnonzero((pick >= 0) & several[spec.layout.row_state])
    found, errors = [], []
    for table in tables.values():
        before, weights = everywhere.copy(), np.zeros((layout.horizon, layout.rows))
        before[1:, :-1] = table.before | ~several[:-1]
        weights[1:, pick[own]] = table.weights[:, own]
        one = _value(chain, weights, before, used)
        found.append(one)
        errors.append(cell_errors(chain, one.own, one.pooled - usual.pooled))
    covariance = _covariance(chain, errors)
    deviations = np.sqrt(np.diag(covariance))
    width, single = _widths(covariance, level, told)
    least, most = told.question.bounds
    gains = {}
    for name, one, error, spread in zip(tables, found, errors, deviations.tolist(), strict=True):
        noise = math.sqrt(float((np.square(error.slopes) * chain.noise).sum()))
        value, low, high = (x - usual.value for x in (one.value, one.low, one.high))
        bottom, top, lower = np.clip(
            [low - width * spread, high + width * spread, low - single * spread], -1.0, 1.0
        ).tolist()
        gains[name] = ValueEstimate(
            min(max(value, bottom), top), bottom, top, lower, level, noise,
            math.sqrt(max(spread**2 - noise**2, 0.0)), max(high - low, 0.0), 0.0,
        ).in_units(most - least, 0.0)  # fmt: skip
    return gains


def _covariance(chain: Chain, errors: list[CellErrors]) -> Floats:
    """Return the (k, k) covariance of the errors of k gains."""
    scaled = np.array([(x.slopes * np.sqrt(chain.noise + x.luck)).ravel() for x in errors])
    return np.asarray(scaled @ scaled.T + np.diag([x.unseen for x in errors]))


def _widths(covariance: Floats, level: float, told: Told) -> tuple[float, float]:
    """Return the half-width of a joint two-sided interval, and that of joint lower bounds.

    Both are in standard deviations.
    """
    failure = 1.0 - level
    if len(covariance) == 1:
        return -float(ndtri(0.5 * failure)), -float(ndtri(failure))
    deviation = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    value, vector = np.linalg.eigh(covariance / np.outer(deviation, deviation))
    root = vector * np.sqrt(np.maximum(value, 0.0))
    key = hashlib.sha256(np.ascontiguousarray(told.moves, "<f8").tobytes()).digest()[:16]
    draw = generator_at(np.frombuffer(key, "<u8").astype(np.uint64), ROLE_BOOTSTRAP, 2**36)
    errors = draw.standard_normal((_DRAWS, len(root))) @ root.T
    two = float(np.quantile(np.abs(errors).max(axis=1), level))
    one = float(np.quantile(errors.max(axis=1), level))
    return max(two, -float(ndtri(0.5 * failure))), max(one, -float(ndtri(failure)))


def evaluate_policies(
    release: StepwiseRelease,
    policies: Mapping[str, ArrayLike],
    spec: ProblemSpec,
    *,
    made: Made = "train",
    share: float = 0.5,
    level: float = 0.95,
) -> PolicyGains:
    """Estimate the gains of policies over the behaviour policy; see the module for the method.

    Parameters
    ----------
    release : StepwiseRelease
        Release of first visits, or of counts per step. It can be a part of a split release.
    policies : mapping of name to policy
        (H, S) or (S,) integers, in which -1 means as before, or (H, S, A) or (S, A) probabilities. All
        policies that are compared must be in one call.
    spec : ProblemSpec
        Public facts about the environment.
    made : "train" or "outside"
        "train": the policies were computed from the training part, and the held-out part is read. "outside":
        they were fixed before the release, and all of it is read. For a policy that was computed from the
        whole release there is no valid interval here.
    share : float
        Share of the users in the training part, in (0, 1).
    level : float
        Joint confidence level of the intervals, in (0, 1).

    Returns
    -------
    PolicyGains

    Raises
    ------
    ValueError
        If the release belongs to another query, a policy is invalid, or an argument is out of range. For
        first visits also if no rule determines the rewards, or if episodes can end censored.
    """
    checks.choice("made", made, ("train", "outside"))
    level = checks.real("level", level, 0.0, 1.0, open_low=True, open_high=True)
    if not isinstance(policies, Mapping) or not policies or BEHAVIOUR in policies:
        said = checks.said(list(policies) if isinstance(policies, Mapping) else policies)
        raise ValueError(f"policies = {said}: must map names other than {BEHAVIOUR!r} to policies")
    check_spec(spec)
    if isinstance(release, ReleasePart):
        if made == "train" and release.part != "held_out":
            raise ValueError("release is the training part: must be the held-out part, or the whole release")
        made_from: Mapping[str, Any] = release.made_from
    elif made == "train":
        release = split_release(release, share)[1]
        made_from = release.made_from
    else:
        made_from = {"release": content_hash(release), "part": "whole", "share": 1.0}
    tables = {name: _steps(name, policies[name], spec) for name in sorted(policies)}
    episodes = release_sizes(release)[1]
    if release.layout != spec.layout:
        gains = _first_visit_gains(FirstVisits(spec, episodes).read(release), tables, level)
        return PolicyGains({name: gains[name] for name in policies}, level, made_from)
    candidates = {
        name: PolicyEstimate(np.where(table.before[..., None], uniform(spec.layout), x), table.before)
        for name, table in tables.items()
        for x in [spec.layout.from_rows(table.weights)]
    }
    each = 1.0 - (1.0 - level) / len(tables)
    found = evaluate(release, spec, candidates, level=each, episodes_per_user=episodes)
    scale = 1.0 if spec.returns is None else spec.returns.high - spec.returns.low
    return PolicyGains(
        {name: found.difference(name, BEHAVIOUR).in_units(scale, 0.0) for name in policies}, level, made_from
    )
