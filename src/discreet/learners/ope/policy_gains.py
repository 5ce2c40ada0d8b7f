r"""Gains of policies over the behaviour policy, with a joint interval, from one release.

A policy can depend on the step, and it can follow the behaviour policy in some states ("as before"). A policy
that was computed from the training part of a release is evaluated with the held-out part
(:mod:`discreet.learners.ope.release_split`). A policy that was fixed before the release is evaluated with the
whole release. All computations are post-processing and cost no privacy budget.

A release per step is evaluated by :func:`discreet.learners.ope.count_estimates.evaluate`, at the level 1 -
failure / k for k policies. A release of first visits is evaluated by the method of
:mod:`discreet.learners.ope.policy_comparison`, with one Markov chain for all policies. Let d_h(s) be the
probability that policy pi is in s at step h. Let w be the rewards on arrival in a state, c_h = w + V_{h+1},
P_a the next-state distribution of action a, and P_b that of the behaviour policy. The derivative of the value
of pi with respect to the count M(s, a, t) is

    sum_h d_h(s) pi_h(a | s) (c_h(t) - P_a c_h) / N(s, a) + sum_h d_h(s) u_h(s) (c_h(t) - P_b c_h) / N(s),

where u_h(s) = 1 if the policy acts as before. Variances follow from these derivatives (slopes).

**Rows that do not exceed the noise.** Let N be the combined visits of a row. The row is used if N > 4 sd(N)
and N >= 10. In the estimate, the policy acts as before at all other rows. For the low end of the interval, an
episode that takes such a row gets the lowest possible return from there. For the high end, it gets the
highest. The difference of the ends is the *lack*.

**Several policies.** The half-width is a quantile of the largest of k errors. This quantile is computed from
4000 draws with the estimated correlations. The interval holds for all policies of one call together.
Intervals do not allow for other calls with the same part. A policy that acts as before everywhere has the
gain 0, with the interval [0, 0].

Two policies are compared in the same chain, by differences of values and of slopes. Their errors cancel where
both take the same actions. The intervals hold for differences and gains together.

A planner per step can compute a policy from the whole release. Such a policy is evaluated with a correction
for selection (``made="release"``), which uses the scores that the planner maximised. Other policies computed
from the whole release are rejected.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from discreet.core import checks
from discreet.core.releases import Floats, Release
from discreet.core.short_repr import brief
from discreet.learners.offline.apvi import OfflinePolicy
from discreet.learners.ope.count_estimates import BEHAVIOUR, PolicyEstimate, ValueEstimate, evaluate, uniform
from discreet.learners.ope.first_visit_query import FirstVisits, VisitSums
from discreet.learners.ope.policy_comparison import CellErrors, cell_errors, check_paid
from discreet.learners.ope.policy_origin import check_origin
from discreet.learners.ope.release_split import (
    ReleasePart,
    check_kind,
    check_spec,
    combined_visits,
    content_hash,
    release_sizes,
    split_release,
)
from discreet.learners.ope.session_release import by_step
from discreet.learners.ope.transition_gains import Chain, TransitionCounts
from discreet.mechanisms.interfaces import ProblemSpec, StepwiseRelease
from discreet.mechanisms.policy_rows import policy_rows
from discreet.utils.random_streams_kernels import ROLE_BOOTSTRAP, generator_at

Bools = NDArray[np.bool_]
Made = Literal["train", "outside", "release"]

_USED, _LEAST = 4.0, 10.0  # smallest count that is used, in standard deviations of its noise and in users
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
    against : str, optional
        Name of the policy with which the other policies were compared.
    differences : mapping of name to ValueEstimate
        Value of each other policy minus that of ``against``. The intervals of ``differences`` and ``gains``
        hold together.
    """

    __repr__ = brief

    gains: Mapping[str, ValueEstimate]
    level: float
    made_from: Mapping[str, Any]
    against: str | None = None
    differences: Mapping[str, ValueEstimate] = field(default_factory=dict)

    def shown(self, name: str) -> bool:
        """Return True if the whole interval of this policy is above 0, and its estimate is informative."""
        found = self.gains[name]
        return found.known and found.low > 0.0


class PolicySteps(NamedTuple):
    """A policy over the rows of ``spec.layout``.

    scores : scores that a planner per step maximised when it chose the policy from the whole release. For
    all other policies, it is None.
    """

    weights: Floats  # (H, R), 0 in states in which the policy acts as before
    before: Bools  # (H, S)
    scores: Floats | None = None


def policy_steps(name: str, policy: Any, spec: ProblemSpec) -> PolicySteps:
    """Check a policy and return its action probabilities by row.

    - name : name of the policy for messages.
    - policy : array as in :func:`evaluate_policies`, or the result of a learner. The result of a learner acts
      as before where it is not supported.
    - spec : public facts about the environment.

    In states with one action and in terminal states, the policy acts as before. Raises ``ValueError`` if the
    policy is invalid.
    """
    layout, scores = spec.layout, None
    if hasattr(policy, "supported") and hasattr(policy, "policy"):
        scores = policy.q if isinstance(policy, OfflinePolicy) else None
        policy = np.where(policy.supported, policy.policy, -1)
    array = np.asarray(policy)
    whole, before = array.dtype.kind in "iu", np.zeros((layout.horizon, layout.states), bool)
    if array.shape == (layout.states,) if whole else array.shape == (layout.states, layout.actions):
        array = np.repeat(array[None], layout.horizon, axis=0)
    if whole and array.shape == before.shape:
        before = np.asarray(array == -1)
        array = np.where(before, layout.row_action[layout.state_ptr[:-1]], array)
    elif array.shape == (*before.shape, layout.actions):
        before = np.asarray((array == -1).all(axis=-1))
        array = np.where(before[..., None], uniform(layout), array)
    try:
        checked = policy_rows(layout, array)
    except ValueError as error:
        raise ValueError(f"policies[{name!r}]: {error}") from None
    weights = checked.probabilities.copy()
    if not checked.stochastic:
        weights = np.zeros((layout.horizon, layout.rows))
        np.put_along_axis(weights, checked.rows, 1.0, axis=1)
    free = np.diff(layout.state_ptr) > 1
    if spec.returns is not None:
        free[list(spec.returns.terminal)] = False
    before = before | ~free
    weights[before[:, layout.row_state]] = 0.0
    return PolicySteps(weights, before, scores)


class _Value(NamedTuple):
    """Value of one policy in a chain, with its ends and its slopes."""

    value: float
    low: float
    high: float
    own: Floats  # (R, S + 1)
    pooled: Floats  # (S + 1, S + 1)


def _value(chain: Chain, weights: Floats, before: Bools, used: Bools) -> _Value:
    """Return the value of a policy in the chain, from the start state.

    - weights : (H + 1, R) action probabilities. Entries are 0 where the policy acts as before.
    - before : (H + 1, S + 1) mask of the steps and states where the policy acts as before.
    - used : (R,) mask of the rows that are used.
    """
    sums, layout = chain.sums, chain.sums.layout
    state, steps, start = layout.row_state, layout.horizon, sums.question.start
    live = np.ones(layout.states)
    live[chain.ends] = 0.0
    laws = chain.moves / chain.taken[:, None]
    lacking = np.array([sums.per_state(np.where(used, 0.0, row)) for row in weights]) * live
    mixed = np.where(before, live, lacking)
    weights = np.where(used, weights, 0.0)
    least, most = min(0.0, float(chain.paid.min())), max(0.0, float(chain.paid.max()))
    value, low, high = (np.zeros((steps + 1, layout.states)) for _ in range(3))
    moves = np.empty((steps, layout.states, layout.states))
    for h in range(steps - 1, -1, -1):
        kept = sums.per_state(weights[h][:, None] * laws)
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


class _ValuePair(NamedTuple):
    """Value of policy ``one`` minus that of policy ``other``.

    If ``other`` is None, it is the behaviour policy.
    """

    one: str
    other: str | None


def first_visit_weights(sums: VisitSums, table: PolicySteps) -> tuple[Floats, Bools]:
    """Return the (H + 1, R) weights and the (H + 1, S + 1) mask of "as before" in the layout of the query.

    sums : released sums. table : policy over the rows of the environment.
    """
    layout, spec = sums.layout, sums.question.spec
    several = np.diff(layout.state_ptr) > 1
    pick = layout.row_index[spec.layout.row_state, spec.layout.row_action]
    own = np.flatnonzero((pick >= 0) & several[spec.layout.row_state])
    before = np.ones((layout.horizon, layout.states), bool)
    weights = np.zeros((layout.horizon, layout.rows))
    before[1:, :-1] = table.before | ~several[:-1]
    weights[1:, pick[own]] = table.weights[:, own]
    return weights, before


def used_rows(sums: VisitSums) -> Bools:
    """Return an (R,) mask of the rows whose visits exceed the noise. sums : released sums."""
    visits, deviation = combined_visits(sums.visits, sums.moves, sums.noise.moves, sums.noise.visits)
    return np.asarray((visits > _USED * deviation) & (visits >= _LEAST))


def _first_visit_gains(
    sums: VisitSums,
    tables: Mapping[str, PolicySteps],
    level: float,
    asked: Sequence[_ValuePair] | None = None,
) -> list[ValueEstimate]:
    """Return the requested differences of values. By default, these are the gains of all policies."""
    check_paid(sums)
    asked = [_ValuePair(name, None) for name in tables] if asked is None else asked
    chain, used = Chain(sums, TransitionCounts(sums.moves, sums.visits), 1.0), used_rows(sums)
    found: dict[str | None, _Value] = {
        name: _value(chain, *first_visit_weights(sums, table), used) for name, table in tables.items()
    }
    steps = (sums.layout.horizon, sums.layout.rows), (sums.layout.horizon, sums.layout.states)
    found[None] = _value(chain, np.zeros(steps[0]), np.ones(steps[1], bool), used)
    pairs = [(found[pair.one], found[pair.other]) for pair in asked]
    errors = [cell_errors(chain, one.own - other.own, one.pooled - other.pooled) for one, other in pairs]
    covariance = _covariance(chain, errors)
    deviations = np.sqrt(np.diag(covariance))
    width, single = _widths(covariance, level, sums)
    least, most = sums.question.bounds
    gains = []
    for (one, other), error, spread in zip(pairs, errors, deviations.tolist(), strict=True):
        noise = math.sqrt(float((np.square(error.slopes) * chain.noise).sum()))
        value, low, high = one.value - other.value, one.low - other.high, one.high - other.low
        bottom, top, lower = np.clip(
            [low - width * spread, high + width * spread, low - single * spread], -1.0, 1.0
        ).tolist()
        gains.append(
            ValueEstimate(
                min(max(value, bottom), top), bottom, top, lower, level, noise,
                math.sqrt(max(spread**2 - noise**2, 0.0)), max(high - low, 0.0), 0.0,
            ).in_units(most - least, 0.0)
        )  # fmt: skip
    return gains


def _step_gains(
    release: StepwiseRelease, spec: ProblemSpec, tables: Mapping[str, PolicySteps], level: float,
    asked: Sequence[_ValuePair], episodes: int,
) -> list[ValueEstimate]:  # fmt: skip
    """Return the requested differences of values, estimated from a release per step."""
    moving = {name: table for name, table in tables.items() if not table.before.all()}
    candidates = {}
    for name, table in moving.items():
        weights = spec.layout.from_rows(table.weights)
        filled = np.where(table.before[..., None], uniform(spec.layout), weights)
        candidates[name] = PolicyEstimate(filled, table.before, table.scores is not None, table.scores)
    each = 1.0 - (1.0 - level) / len(asked)
    found = evaluate(release, spec, candidates, level=each, episodes_per_user=episodes)
    scale = 1.0 if spec.returns is None else spec.returns.high - spec.returns.low
    return [
        replace(
            found.difference(*(name if name in moving else BEHAVIOUR for name in pair)).in_units(scale, 0.0),
            level=level,
        )
        for pair in asked
    ]


def _covariance(chain: Chain, errors: list[CellErrors]) -> Floats:
    """Return the (k, k) covariance of the errors of k gains."""
    scaled = np.array([(x.slopes * np.sqrt(chain.noise + x.luck)).ravel() for x in errors])
    return np.asarray(scaled @ scaled.T + np.diag([x.unseen for x in errors]))


def _widths(covariance: Floats, level: float, sums: VisitSums) -> tuple[float, float]:
    """Return the half-width of a joint two-sided interval, and that of joint lower bounds.

    The unit is one standard deviation.
    """
    failure = 1.0 - level
    if len(covariance) == 1:
        return -float(ndtri(0.5 * failure)), -float(ndtri(failure))
    deviation = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    value, vector = np.linalg.eigh(covariance / np.outer(deviation, deviation))
    root = vector * np.sqrt(np.maximum(value, 0.0))
    key = hashlib.sha256(np.ascontiguousarray(sums.moves, "<f8").tobytes()).digest()[:16]
    draw = generator_at(np.frombuffer(key, "<u8").astype(np.uint64), ROLE_BOOTSTRAP, 2**36)
    errors = draw.standard_normal((_DRAWS, len(root))) @ root.T
    two = float(np.quantile(np.abs(errors).max(axis=1), level))
    one = float(np.quantile(errors.max(axis=1), level))
    return max(two, -float(ndtri(0.5 * failure))), max(one, -float(ndtri(failure)))


def evaluate_policies(
    release: StepwiseRelease | Release,
    policies: Mapping[str, Any],
    spec: ProblemSpec,
    *,
    made: Made = "train",
    share: float = 0.5,
    level: float = 0.95,
    against: str | None = None,
) -> PolicyGains:
    """Estimate the gains of policies over the behaviour policy. See the module for the method.

    Parameters
    ----------
    release : StepwiseRelease or Release
        Release of first visits, or of counts per step. It can be a part of a split release, or the release of
        a session (:class:`~discreet.learners.ope.session_release.SessionRelease`).
    policies : mapping of name to policy
        A policy is an array of actions, an array of probabilities, or the result of an offline learner.
        Actions are (H, S) or (S,) integers, and -1 means as before. Probabilities are (H, S, A) or (S, A),
        and a row of -1 means as before. All policies that are compared must be in one call. If an array has
        an origin (:mod:`~discreet.learners.ope.policy_origin`), it must agree with ``made`` and ``share``.
    spec : ProblemSpec
        Public facts about the environment.
    made : "train", "outside" or "release"
        "train": the policies were computed from the training part, and the held-out part is read. "outside":
        they were fixed before the release, and the whole release is read. "release": they are results of
        :class:`~discreet.learners.offline.apvi.DPAPVI` or ``APVI`` from the whole release per step, and the
        intervals allow for the selection. There is no valid interval for other policies that were computed
        from the whole release.
    share : float
        Share of the users in the training part, in (0, 1).
    level : float
        Joint confidence level of the intervals, in (0, 1).
    against : str, optional
        Name of a policy with which all other policies are also compared.

    Returns
    -------
    PolicyGains

    Raises
    ------
    ValueError
        If the release belongs to another query, a policy is invalid or contradicts ``made``, or an argument
        is out of range. If the release is of first visits, and no rule determines the rewards or episodes can
        end censored.
    """
    checks.choice("made", made, ("train", "outside", "release"))
    level = checks.real("level", level, 0.0, 1.0, open_low=True, open_high=True)
    if not isinstance(policies, Mapping) or not policies or BEHAVIOUR in policies:
        said = checks.said(list(policies) if isinstance(policies, Mapping) else policies)
        raise ValueError(f"policies = {said}: must map names other than {BEHAVIOUR!r} to policies")
    if against is not None:
        checks.choice("against", against, tuple(policies))
    check_spec(spec)
    release, made_from = data_to_read(by_step(release, spec.layout), made, share)
    tables = {}
    for name in sorted(policies):
        check_origin(name, getattr(policies[name], "made_from", None), made_from, made)
        tables[name] = policy_steps(name, policies[name], spec)
        if made != "release":
            tables[name] = tables[name]._replace(scores=None)
        elif tables[name].scores is None or release.layout != spec.layout:
            raise ValueError(
                f"policies[{name!r}]: must be the result of DPAPVI or APVI from this release of counts per "
                "step, with made = 'release'; plan any other policy from the training part "
                "(split_release), and use made = 'train'"
            )
    asked = [_ValuePair(name, None) for name in tables]
    asked += [_ValuePair(name, against) for name in tables if against not in (None, name)]
    moving = [pair for pair in asked if _differ(tables, pair)]
    episodes = release_sizes(release)[1]
    check_kind(release, spec)
    if release.layout != spec.layout:
        sums = FirstVisits(spec, episodes).read(release)
        check_paid(sums)
        estimates = _first_visit_gains(sums, tables, level, moving) if moving else []
    else:
        estimates = _step_gains(release, spec, tables, level, moving, episodes) if moving else []
    zero = ValueEstimate(0.0, 0.0, 0.0, 0.0, level, 0.0, 0.0, 0.0, 0.0)
    found = {**dict.fromkeys(asked, zero), **dict(zip(moving, estimates, strict=True))}
    differences = {name: found[_ValuePair(name, against)] for name in policies if against not in (None, name)}
    return PolicyGains(
        {name: found[_ValuePair(name, None)] for name in policies}, level, made_from, against, differences
    )


def _differ(tables: Mapping[str, PolicySteps], pair: _ValuePair) -> bool:
    """Return False if two policies are equal. The difference of their values is then exactly 0."""
    one = tables[pair.one]
    if pair.other is None:
        return not one.before.all()
    other = tables[pair.other]
    return not (np.array_equal(one.before, other.before) and np.array_equal(one.weights, other.weights))


def data_to_read(
    release: StepwiseRelease, made: Made, share: float
) -> tuple[StepwiseRelease, Mapping[str, Any]]:
    """Return the release or part that evaluates a policy, with the origin of these data.

    release : release or part. made, share : arguments of :func:`evaluate_policies`. Raises ``ValueError`` if
    the policies were computed from this part.
    """
    if isinstance(release, ReleasePart):
        if made == "train" and release.part != "held_out":
            raise ValueError("release is the training part: must be the held-out part, or the whole release")
        return release, release.made_from
    if made == "train":
        part = split_release(release, share)[1]
        return part, part.made_from
    return release, {"release": content_hash(release), "part": "whole", "share": 1.0}
