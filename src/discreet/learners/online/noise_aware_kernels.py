r"""Compiled planning of the noise-aware learner. It estimates a model from independent noisy measurements.

R is the number of admissible state-action pairs. T is the number of step slots: H, or 1 if steps are pooled.
A *cell* is a pair in a slot. A policy *chooses* a cell if it takes the action of this pair at a step of this
slot. A *row* is the vector of the S transition counts, or transition probabilities, of one pair. Noise
*hides* a part of a row if the noise in its counts is large compared with its visits.

**Measurements.** For each cell, release i contains a measurement y_i = a sum_{j<=i} lambda^{i-j} x_j + z_i.
Here x_j is the exact sum over the users of batch j, a is the gain, and lambda is the decay. The noise z_i is
independent of all other noise and has the known standard deviation sigma_i. With lambda = 0 and a = 1, the
measurement contains batch i only.

**Expected visits.** The policies are public and deterministic. E_j(h, s, a) is the *expected* number of
visits of the users in batch j to (h, s, a). It is the number of users whose policy takes a at (h, s), times
the probability of reaching (h, s) in the model that was current when these users began. In this probability,
5 % of the users are in a uniformly random state (``note_assignments``). E_j is a function of earlier releases
and public facts.

**Estimate.** Let m_i = lambda m_{i-1} + E_i. The mean of measurement i is a m_i p, where p is the ratio of
true to expected visits. Its variance is about sigma_i^2 + m_i. Generalised least squares estimates the total
of all batches as

    x^ = E_total / (a sum_i w_i m_i) * sum_i w_i y_i,     w_i = m_i / (sigma_i^2 + m_i).

A release has weight 0, or a small weight, if its users did not choose the action, or were not expected in the
state. The weight of a measurement is known before the noise of the measurement is drawn. Without noise and
with lambda = 0, x^ is the exact sum.

**Overlap of decaying sums.** Batch j is part of every later measurement. Its coefficient in sum_i w_i y_i is
c_j = a sum_{i>=j} w_i lambda^{i-j}. Its sampling error does not average out over these measurements. If all
batches have the same p, the sampling variance is that of sum_j E_j c_j^2 visits. Two more sums are enough to
compute it exactly: v_i = lambda^2 v_{i-1} + E_i, and u_i = sum_{j<=i} E_j c_j lambda^{i-j} / a =
lambda u_{i-1} + w_i v_i.

**Pooled family.** Counts that are pooled over steps (``count_query.POOLED_TRANSITIONS``) occupy one
additional slot. Their expected visits E_j(s, a) are the sum of E_j(h, s, a) over h. Each of their rows is one
more measurement of the average over steps, with separate noise.

**One call** does the following steps in order.

- Project the measurement onto the flow constraint (``_consistent``). This is done only if all counts have the
  same noise level and the same schedule. Then add the measurement to the sums (``_absorb``), and compute the
  weighted estimates (``_weigh``).
- Predict visits (``_flow``), combine the prediction with the counts (``_visits``), pool the steps of each
  pair (``_pool``), and add the noise of visits to the noise of rewards (``_visit_noise``).
- Estimate the variation over steps (``_residuals``) and the mean reward at every step (``_believe``). The
  prior of mean rewards is a distribution over pairs (``_prior``). Then shrink the row of each step towards
  the pooled row (``_shrink``).
- Compute Q for each explorer, from a draw (``_explore``) or from the upper end (``_plan_upper``) of the
  approximate posterior. Then compute the optimistic Q (``_induct``) and the Q of the frontier explorer
  (``_reach``), and keep the model to predict the visits of the next users (``_foresee``).

Each of these functions loops over all cells. A call for each cell would take more time than its computation,
because every call updates the reference counts of all arrays. The memory consists of a few sums for each cell
and the last model; earlier measurements are not stored. Everything here is post-processing. The intervals are
heuristic, because weights and rows come from the same noisy data.

**Randomized reports** about random steps (local privacy) give counts whose noise variance has two parts. For
a count of x among n users whose policy chooses the cell, it is n idle + x visit, where ``idle`` and ``visit``
are fields of ``ReportLaw``. The second part increases the sampling variance from x to x (1 + visit). A sample
of x / (1 + visit) records has the same relative variance, so all counts are stored in units of 1 + visit. The
first part is the noise of each of the n users.

**Sources.** The methods are generalised least squares, flow consistency, a bonus from the noise distribution,
and empirical-Bayes sharing over steps. Two parts were derived for this library: expected
visits as the weights of releases, and expected visits as the weights of steps in the pooled row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined, kernel
from discreet.learners.estimation.flow_projection_kernels import project_flow
from discreet.learners.estimation.flow_projection_kernels import work_size as flow_work_size
from discreet.learners.online.prior_kernels import (
    Given,
    believe_reward,
    fit_shares,
    measure_rewards,
    measure_rows,
    posterior,
    read_prior,
    weigh_row,
)
from discreet.learners.online.prior_kernels import work_size as prior_work_size
from discreet.learners.online.successor_kernels import (
    GIVEN,
    UNIFORM,
    Successors,
    add_row,
    fill,
    flow_from,
    middle,
    moments,
    project_in_place,
    spliced,
    successors,
    table_size,
)
from discreet.utils.random_streams_kernels import ROLE_EXPLORE, log, normal_range, open_stream, uniform

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Indices of the learner's constants in ``knobs``; the last name is their number.
(STAT, PRIVACY, SHRINK, CENTERED, EXCESS, FLOW, FIRST, CONSISTENT, FARTHER, UNTRIED, REACH_FROM, KNOBS) = (
    range(12)
)
# Indices of the array ``errors``; the last name is its length. SIGMA_T and SIGMA_R are the standard
# deviations of the noise in one transition count and in one reward sum of the measurement. POOLED_SIGMA_T and
# POOLED_SIGMA_R are those of the pooled families. DECAY is lambda and GAIN is a. INFLATION is 0 except for
# randomized reports. For these, SIGMA_T and SIGMA_R are the standard deviations for one user whose policy
# chooses the cell; with n such users they are multiplied by sqrt(n). INFLATION is then 1 plus the variance
# that one record adds to its count, and REWARD_VISIT is the variance that one record adds to its reward sum.
(SIGMA_T, SIGMA_R, DECAY, GAIN, POOLED_SIGMA_T, POOLED_SIGMA_R, INFLATION, REWARD_VISIT, ERRORS) = range(9)


# Prior variance over steps. It is used for the transition probabilities of a pair (squared distance) and for
# its mean reward, and has the weight of one step.
_VARIATION = 0.02
_ALIKE = 0.01  # Steps with a smaller error variance have about equal weight in the variation over steps.
_MOST_FLOW = 2.0  # Predicted visits exceed a count by at most this number of its standard deviations.
_FLOW_ERROR = 1.0  # Relative standard deviation of the visits that a rough model predicts.
_REWARD_OPTIMISM = (
    0.6  # The optimistic reward is the mean plus this factor times its standard deviation ``unknown``.
)
# Number of users at which the bonus of untried rows (constant UNTRIED) starts to fall like 1 / sqrt(users).
_UNTRIED_USERS = 1_000.0
_WIDTH = 0.3  # Width of explorer 1, in units of sqrt(ln(1 + users)).
_WIDER = 1.5  # Width of explorer 2, in units of the width of explorer 1.
_OPTIMISTIC = 2  # Index of the optimistic explorer, which plans with upper ends of the posterior.
# Index of the maximum-uncertainty explorer, which becomes the frontier explorer. Larger indices are further
# plans of the frontier explorer.
_SEEKING = 3
_FAR = 2.0  # Width of the optimistic explorer, in units of the width of explorer 1.
# Width of the optimistic explorer if the constant FARTHER is 1, and always of the maximum-uncertainty
# explorer.
_NEAR = 1.5
# If the constant FARTHER is 1, the width of the optimistic explorer is multiplied by _FARTHER in every fourth
# plan. The noise of a few releases can lower the estimate of a good pair by more than the usual width. With
# the larger width, users also visit such pairs.
_FARTHER = 2.0
_FARTHER_EACH = 4
_CARRIED = 0.5  # Part of the bonus of a cell that the optimistic explorer propagates to the previous step.
# If (noise / visits)^2 = _HIDDEN, the maximum-uncertainty explorer gives weight 1/2 to the maximum value of a
# row, and the frontier explorer regards half of the row as hidden. The frontier explorer regards a row as
# known if less than _BARELY of it is hidden. It acts greedily in states whose value in its plan is below
# _WORTHWHILE.
_HIDDEN, _BARELY, _WORTHWHILE = 0.15, 0.2, 0.1
_LUCKY = 5.0  # Number of pseudo-visits with reward 1 that the optimistic explorer adds to every cell.
_NOTHING = 0.002  # Prior standard deviation of the mean rewards of pairs without reward.
_MOST_NOTHING = 0.02  # Upper limit of the estimate that replaces _NOTHING once there are data.
_PAYING = 0.9  # Prior share of pairs with reward.
_IMAGINED = 2.0  # Weight of the prior share, as a number of pairs.
# Prior mean and standard deviation of mean rewards over pairs with reward. They have the weight of one pair.
_PAY, _PAY_STD = 0.5, 0.3
_LEAST_PAY_VARIANCE = 1.0e-4  # Smallest estimate of the variance of mean rewards over pairs with reward.
_ROUNDS = 20  # Number of iterations of the expectation-maximisation (EM) algorithm.
_MOST_LOG_ODDS = 600.0  # Upper limit of log odds, so that exp does not overflow.
_LEAST_VARIANCE = 1.0e-12  # Lower limit of the variance of a sum of rewards.
# Smallest sampling variance of a visit to a row of the prior, and smallest error of an estimated row.
_LEAST_SPREAD, _LEAST_ERROR = 0.02, 1.0e-9
_LEAST_REWARD_SPREAD = 0.01  # The same sampling variance for rewards.
_DRAWS = 5  # Number of normal variables for each pair.
# Share of users who are assumed to be in a uniformly random state at every step, for any model.
# It is above 0, so that expected visits are positive for every action that the policy of a user takes.
_ASTRAY = 0.05


class Problem(NamedTuple):
    """Public, constant facts of the decision process."""

    state_ptr: Ints  # (S + 1,); rows state_ptr[s] to state_ptr[s + 1] - 1 belong to state s
    horizon: int
    slots: int  # T, which is 1 or H
    rows: int  # R
    known_rewards: Floats  # (H, R) public mean rewards, or empty


class Sums(NamedTuple):
    """Weighted sums of all measurements, for each cell. They persist between releases.

    The symbols are those of the module docstring. The last slot holds the family that is pooled over steps.
    """

    coming: Floats  # Expected visits of the users who received a policy since the last release.
    filtered: Floats  # The sum m of expected visits, with decay.
    total: Floats  # The sum E_total of expected visits, without decay.
    exposure: Floats  # The sum of w m over releases, with the weights w.
    noise: Floats  # The sum of w^2 sigma^2 over releases, for transition counts.
    reward_noise: Floats  # The sum of w^2 sigma^2 over releases, for reward sums.
    sampling: Floats  # The sum of c^2 E / a^2 over batches.
    rewards: Floats  # The sum of w y over releases, where y is the measured reward sum.
    squares: Floats  # The sum v of expected visits, with squared decay.
    overlap: Floats  # The sum u, which accounts for the overlap of decaying sums.
    assigned: Floats  # Users since the last release whose policy chooses the cell, with or without a visit.
    moves: Floats  # (cells, S) sums of w y over releases, where y is a measured transition count.


class Forecast(NamedTuple):
    """Model that the current policies were planned from. It persists between releases to predict visits."""

    start: Floats  # (S,) distribution of the first state
    moves: Successors  # transition probabilities of the T R cells


class Cells(NamedTuple):
    """Estimated model of each cell, computed again at every release."""

    counts: Floats  # Estimated visits, as sums of transition counts.
    rewards: Floats  # Sum of rewards; after ``_believe`` the mean reward.
    noise: Floats  # Standard deviation of the noise in one entry of ``raw``.
    reward_noise: Floats  # Standard deviation of the noise in ``rewards``.
    sampling: Floats  # Visits / effective sample size; after ``_shrink``, 1 / effective sample size.
    spread: Floats  # Standard deviation of one estimated transition probability due to noise.
    reward_spread: Floats  # Standard deviation of the mean reward due to the noise and sampling of its data.
    expected: Floats  # Visits that the public policies lead to.
    visits: Floats  # Estimate that combines counts and predicted flow, each weighted by its precision.
    missing: Floats  # Share of the row that noise hides, in [0, 1].
    unknown: Floats  # Standard deviation of the mean reward due to differences between pairs.
    few: Floats  # 1 / effective sample size of the row. If steps are pooled, the sample includes all of them.
    raw: Floats  # (cells, S) estimated transition counts; scratch space from ``_shrink`` on.


class Pools(NamedTuple):
    """Data of each pair (R,), pooled over all steps and the pooled family.

    A pair without data has an infinite standard deviation.
    """

    std: Floats  # Standard deviation of the noise in one entry of the pooled row.
    sampling: Floats  # Sampling variance, 1 / effective sample size.
    missing: Floats  # Share of the row that noise hides, in [0, 1].
    total: Floats  # Weighted sum of rewards.
    mass: Floats  # Weighted number of visits in ``total``.
    variance: Floats  # Variance of ``total``.
    reward: Floats  # Mean reward.
    # For transitions (first three) and for rewards: ``top`` is the sum of the squared residuals of the steps
    # minus the part that noise and sampling explain. ``null`` is its variance if steps do not differ.
    # ``bottom`` is the factor by which the variance over steps enters the expectation of ``top``.
    top: Floats
    null: Floats
    bottom: Floats
    reward_top: Floats
    reward_null: Floats
    reward_bottom: Floats
    row: Floats  # (R, S) pooled transition probabilities


def all_cells(slots: int, rows: int, pooled: bool) -> int:
    """Return the number of cells: one per slot and row, plus ``rows`` if there is a pooled family."""
    return (slots + int(pooled)) * rows


def memory_size(cells: int, slots: int, rows: int, states: int) -> int:
    """Return the number of floats that persist between releases: first the sums, then the forecast."""
    return cells * (11 + states) + forecast_size(slots, rows, states)


def forecast_size(slots: int, rows: int, states: int) -> int:
    """Return the number of floats in the forecast, which is the last part of the memory."""
    return states + table_size(slots * rows, states)


def work_size(cells: int, rows: int, states: int) -> int:
    """Return the number of floats of scratch space that ``noise_aware_step`` needs."""
    flow = max(3 * states, flow_work_size(cells // rows, states), _DRAWS * rows, 3 * cells)
    flow = max(flow, cells + 2 * states + rows)
    flow = max(flow, 3 * cells + prior_work_size(rows, states))
    return cells * (states + 12) + rows * (states + 13) + flow


@kernel
def count_assignments(
    assigned: Floats, slots: int, rows: int, pooled: bool, policy_rows: Ints, users: int
) -> None:
    """Add ``users`` to ``assigned`` in every cell that a deterministic policy chooses.

    ``policy_rows`` (H, S) holds the row of the action that the policy takes at each step and state.
    ``assigned`` counts the users whose policy chooses a cell. This count is public, because it is known
    before the users act.
    """
    for h in range(policy_rows.shape[0]):
        base = h * rows if slots > 1 else 0
        for s in range(policy_rows.shape[1]):
            assigned[base + policy_rows[h, s]] += users
            if pooled:
                assigned[slots * rows + policy_rows[h, s]] += users


@kernel
def note_assignments(
    memory: Floats, slots: int, rows: int, pooled: bool, policy_rows: Ints, users: int
) -> None:
    """Record in the memory that ``users`` users follow a deterministic policy, and add their expected visits.

    ``policy_rows`` (H, S) holds the row of the action that the policy takes at each step and state. The
    current model predicts the visits under the policy; a share ``_ASTRAY`` of the users is assumed to be in a
    uniformly random state. The policy and the expected visits are public, because they are known before the
    users act.
    """
    states = policy_rows.shape[1]
    cells = (slots + 1) * rows if pooled else slots * rows
    sums, forecast = _sums(memory, cells, states), _forecast(memory, cells, slots * rows, states)
    count_assignments(sums.assigned, slots, rows, pooled, policy_rows, users)
    occupancy = np.zeros((2, states))
    here, after, start, coming = occupancy[0], occupancy[1], forecast.start, sums.coming
    for s in range(states):
        here[s] = start[s]
    for h in range(policy_rows.shape[0]):
        base = h * rows if slots > 1 else 0
        anywhere = 0.0
        for s in range(states):
            after[s] = 0.0
        for s in range(states):
            r = policy_rows[h, s]
            come = users * ((1.0 - _ASTRAY) * here[s] + _ASTRAY / states)
            coming[base + r] += come
            if pooled:
                coming[slots * rows + r] += come
            if here[s] > 0.0:
                anywhere += flow_from(forecast.moves, base + r, here[s], after)
        for s in range(states):
            here[s] = after[s] + anywhere / states


@inlined
def _sums(memory: Floats, cells: int, states: int) -> Sums:
    part = memory[: 11 * cells].reshape(11, cells)
    return Sums(
        part[0], part[1], part[2], part[3], part[4], part[5], part[6], part[7], part[8], part[9], part[10],
        memory[11 * cells : (11 + states) * cells].reshape(cells, states),
    )  # fmt: skip


@inlined
def _forecast(memory: Floats, cells: int, steps: int, states: int) -> Forecast:
    at = (11 + states) * cells
    return Forecast(memory[at : at + states], successors(memory[at + states :], steps, states))


@inlined
def _cells(work: Floats, cells: int, states: int) -> Cells:
    part = work[: 12 * cells].reshape(12, cells)
    rows = work[12 * cells : (12 + states) * cells].reshape(cells, states)
    return Cells(
        part[0], part[1], part[2], part[3], part[4], part[5], part[6], part[7], part[8], part[9], part[10],
        part[11], rows,
    )  # fmt: skip


@inlined
def _pools(work: Floats, rows: int, states: int) -> Pools:
    part = work[: 13 * rows].reshape(13, rows)
    return Pools(
        part[0], part[1], part[2], part[3], part[4], part[5], part[6], part[7], part[8], part[9], part[10],
        part[11], part[12], work[13 * rows : (13 + states) * rows].reshape(rows, states),
    )  # fmt: skip


@kernel
def noise_aware_step(
    knobs: Floats,
    state_ptr: Ints,
    horizon: int,
    users: int,
    number: int,
    transitions: Floats,
    reward_sums: Floats,
    pooled_transitions: Floats,
    pooled_rewards: Floats,
    known_rewards: Floats,
    errors: Floats,
    memory: Floats,
    values: Floats,
    q: Floats,
    ties: NDArray[np.uint64],
    trials: Floats,
    work: Floats,
) -> None:
    """Add one measurement to the model, then compute the optimistic values and the Q of each explorer.

    Parameters
    ----------
    knobs : (KNOBS + P,)
        Constants of the learner, then the public prior as P floats
        (:func:`~discreet.learners.online.prior_kernels.read_prior`). Without a prior, P is 0.
    state_ptr : (S + 1,)
        Rows ``state_ptr[s]`` to ``state_ptr[s + 1] - 1`` belong to state s.
    users, number : int
        Number of users up to this measurement, and number of the release.
    transitions, reward_sums : (T, R, S) and (T, R)
        Newest measurement. Reward sums are centred if ``knobs[CENTERED]`` is 1.
    pooled_transitions, pooled_rewards : (1, R, S) and (1, R)
        Measurement of the pooled families, or empty.
    known_rewards : (H, R)
        Public mean rewards, or empty.
    errors : (ERRORS,)
        Noise, decay and gain of the measurement; the indices are defined in this module.
    memory : floats
        Memory of the learner between calls, updated in place. It is filled with zeros first if ``number`` is
        0.
    values, q, trials : (H + 1, S), (H, R) and (E, H, R)
        Overwritten with the optimistic V, the optimistic Q, and the Q of each of E explorers.
    ties : words
        Key of the public random stream.
    work : floats
        Scratch space of at least ``work_size`` floats.
    """
    slots, rows, states = transitions.shape
    pooled = pooled_transitions.shape[0] > 0
    cells = (slots + 1) * rows if pooled else slots * rows
    known = known_rewards.shape[0] > 0
    problem = Problem(state_ptr, horizon, slots, rows, known_rewards)
    sums, model = _sums(memory, cells, states), _cells(work, cells, states)
    forecast = _forecast(memory, cells, slots * rows, states)
    moves_of, at = forecast.moves, cells * (states + 12)
    pools, scratch = _pools(work[at:], rows, states), work[at + rows * (states + 13) :]
    if number == 0:
        for c in range(cells * (11 + states)):
            memory[c] = 0.0
    else:
        steps = slots * rows
        moves, sigma = transitions.reshape(steps, states), errors[SIGMA_T]
        one_noise = sigma > 0.0 and errors[INFLATION] == 0.0
        if knobs[CONSISTENT] > 0.0 and one_noise and slots == horizon:
            left = _consistent(problem, sums, model, errors[DECAY], errors[GAIN], moves, scratch)
            moves, sigma = model.raw[:steps], sigma * np.sqrt(left)
        _absorb(
            sums, 0, sigma, errors[SIGMA_R], errors[DECAY], errors[INFLATION], moves,
            reward_sums.reshape(steps), known,
        )  # fmt: skip
        if pooled:
            _absorb(
                sums, steps, errors[POOLED_SIGMA_T], errors[POOLED_SIGMA_R], errors[DECAY], 0.0,
                pooled_transitions.reshape(rows, states),
                pooled_rewards.reshape(pooled_rewards.shape[0] * pooled_rewards.shape[1]), known,
            )  # fmt: skip
    _weigh(sums, model, errors[GAIN], 0.5 * knobs[CENTERED], errors[INFLATION], errors[REWARD_VISIT])
    predict = knobs[FLOW] > 0.0 and slots > 1
    _flow(problem, predict, knobs[FIRST] > 0.0, sums, model, moves_of, scratch)
    _visits(model, 0.0 if known else 0.5 * knobs[CENTERED], predict)
    informed = knobs.shape[0] > KNOBS
    _pool(problem, knobs[SHRINK] > 0.0 and (slots > 1 or informed), sums, model, pools)
    if not known:
        _visit_noise(problem, 0.5 * knobs[CENTERED], predict, sums, model, pools)
    usual, usual_reward = _residuals(problem, knobs[EXCESS], sums, model, pools)
    if informed:
        _apply_prior(knobs[KNOBS:], problem, sums, model, pools, scratch)
    if not known:  # This runs before _shrink, because _shrink changes the meaning of ``model.sampling``.
        _believe(problem, knobs[EXCESS], usual_reward, knobs[KNOBS:], sums, model, pools, scratch)
    _shrink(problem, knobs[EXCESS], usual, sums, model, pools, moves_of)
    width = _WIDTH * np.sqrt(log(1.0 + users))
    coins = np.empty(4, np.uint64)
    reaches = users >= knobs[REACH_FROM]
    for e in range(trials.shape[0]):
        if e == _OPTIMISTIC:
            far = _FAR
            if knobs[FARTHER] > 0.0:
                far = _NEAR
                if number % _FARTHER_EACH == _FARTHER_EACH - 1:
                    far *= _FARTHER
            _plan_upper(problem, far * width, _CARRIED, False, model, moves_of, values, trials[e])
            continue
        if e >= _SEEKING:
            if e == _SEEKING and not reaches:
                _plan_upper(problem, _NEAR * width, 1.0, True, model, moves_of, values, trials[e])
            continue
        open_stream(ties, ROLE_EXPLORE, number, e, coins)
        normal_range(coins, 1.0, scratch, 0, _DRAWS * rows)
        own = width if e == 0 else _WIDER * width
        z = scratch[: _DRAWS * rows].reshape(rows, _DRAWS)
        _explore(problem, own, model, moves_of, z, values, trials[e])
    untried = knobs[UNTRIED] / np.sqrt(1.0 + users / _UNTRIED_USERS)
    _induct(problem, knobs[STAT], knobs[PRIVACY], untried, model, moves_of, values, q)
    if reaches and trials.shape[0] > _SEEKING:
        parts, rest = scratch[: slots * rows], scratch[slots * rows :]
        hides = _hidden_parts(model, states, parts)
        for e in range(_SEEKING, trials.shape[0]):
            if hides:
                open_stream(ties, ROLE_EXPLORE, number, e, coins)
                _reach(problem, parts, model, moves_of, q, e > _SEEKING, coins, trials[e], rest)
            else:  # Every plan is the greedy policy.
                trials[e] = q
    _foresee(problem, number > 0, sums, model, forecast.start)


@inlined
def _foresee(problem: Problem, measured: bool, sums: Sums, model: Cells, start: Floats) -> None:
    """Store the distribution of the first state in ``start``, to predict the visits of the next users.

    If all steps share one slot, the distribution of the first state is uniform, because counts that are
    pooled over steps have no information about the first state. A separate count of the first step is not
    used. With such a count, no users are expected in rare states that noise hides, and the regret of 20 000
    users under pure DP with epsilon = 1 is 1.05 to 1.1 times as large.
    """
    if measured and problem.slots > 1:
        _begin(problem.state_ptr, sums, model, start)
    else:
        start[:] = 1.0 / start.shape[0]


@inlined
def _begin(state_ptr: Ints, sums: Sums, model: Cells, start: Floats) -> None:
    """Write an estimate of the distribution of the first state into ``start`` (S,).

    The estimate is proportional to the counts of the first step minus the standard deviation of their noise,
    where this difference is positive. The estimate is uniform if no difference is positive.
    """
    mass = 0.0
    for s in range(start.shape[0]):
        start[s] = 0.0
        for r in range(state_ptr[s], state_ptr[s + 1]):
            if sums.exposure[r] > 0.0:
                start[s] += max(0.0, model.counts[r] - model.noise[r])
        mass += start[s]
    for s in range(start.shape[0]):
        start[s] = start[s] / mass if mass > 0.0 else 1.0 / start.shape[0]


@inlined
def _consistent(
    problem: Problem, sums: Sums, model: Cells, decay: float, gain: float, moves: Floats, work: Floats
) -> float:
    """Write into ``model.raw`` the projection of the measured transition counts onto the flow constraint.

    The flow constraint says that the users who arrive at a state also leave it. The projection uses two
    public facts: the total number of users in the measurement, and the actions to which they were assigned.
    Returns the part of the noise variance that remains on average after the projection, in [0, 1].
    """
    coming, filtered, active, raw = sums.coming, sums.filtered, model.counts, model.raw
    state_ptr = problem.state_ptr
    for c in range(moves.shape[0]):
        active[c] = decay * filtered[c] + coming[c]
        for s in range(moves.shape[1]):
            raw[c, s] = moves[c, s]
    users = 0.0
    for r in range(problem.rows):  # every user is in exactly one state at the first step
        users += active[r]
    return project_flow(problem.horizon, state_ptr, gain * users, active, raw, work)


@inlined
def _absorb(
    sums: Sums,
    first: int,
    sigma: float,
    reward_sigma: float,
    decay: float,
    inflation: float,
    moves: Floats,
    rewards: Floats,
    known: bool,
) -> None:
    """Add the newest measurement to the weighted sums of the cells ``first``, ``first`` + 1, and so on.

    ``sigma`` and ``reward_sigma`` are the standard deviations of the noise in one transition count and in one
    reward sum. For randomized reports, they are the values for one user whose policy chooses the cell.
    ``inflation`` is ``errors[INFLATION]``. ``due`` is 0 for each cell that was not measured, and empty if all
    were measured.
    """
    coming, filtered, total, exposure = sums.coming, sums.filtered, sums.total, sums.exposure
    noise, reward_noise, sampling = sums.noise, sums.reward_noise, sums.sampling
    reward_acc, acc, squares, overlap = sums.rewards, sums.moves, sums.squares, sums.overlap
    square, reward_square = sigma * sigma, reward_sigma * reward_sigma
    reports = inflation > 0.0
    unit = 1.0 / inflation if reports else 1.0  # Stored counts are measured counts times this.
    per_user, per_user_reward = square, reward_square
    for i in range(moves.shape[0]):
        c = first + i
        if reports:  # only users whose policy chooses the cell add noise to its count
            square = per_user * sums.assigned[c] * unit * unit
            reward_square = per_user_reward * sums.assigned[c] * unit * unit
        m = decay * filtered[c] + coming[c] * unit
        filtered[c] = m
        total[c] += coming[c] * unit
        squares[c] = decay * decay * squares[c] + coming[c] * unit
        overlap[c] *= decay
        coming[c] = 0.0
        sums.assigned[c] = 0.0
        if m <= 0.0:
            continue
        w = m / (square + m)
        exposure[c] += w * m
        noise[c] += w * w * square
        reward_noise[c] += w * w * reward_square
        sampling[c] += w * (2.0 * overlap[c] + w * squares[c])
        overlap[c] += w * squares[c]
        if not known:
            reward_acc[c] += w * (rewards[i] * unit)
        for s in range(moves.shape[1]):
            acc[c, s] += w * (moves[i, s] * unit)


@inlined
def _weigh(sums: Sums, model: Cells, gain: float, half: float, inflation: float, reward_visit: float) -> None:
    """Estimate the counts and reward sums of all cells by generalised least squares, with their noise.

    gain : gain a of the measurements.

    half : 1/2 if reward sums are centred, else 0.

    inflation, reward_visit : entries of ``errors`` for randomized reports.
    """
    total, exposure, acc = sums.total, sums.exposure, sums.moves
    counts, rewards, raw, sampling = model.counts, model.rewards, model.raw, model.sampling
    for c in range(counts.shape[0]):
        n = 0.0
        if exposure[c] <= 0.0:
            counts[c] = 0.0
            rewards[c] = 0.0
            model.noise[c] = np.inf
            model.reward_noise[c] = np.inf
            sampling[c] = np.inf
            for s in range(raw.shape[1]):
                raw[c, s] = 0.0
            continue
        weight = total[c] / (gain * exposure[c])
        model.noise[c] = weight * np.sqrt(sums.noise[c])
        model.reward_noise[c] = weight * np.sqrt(sums.reward_noise[c])
        for s in range(raw.shape[1]):
            raw[c, s] = weight * acc[c, s]
            n += raw[c, s]
        counts[c] = n
        if inflation > 0.0:
            inflated = reward_visit / inflation * max(n, 0.0)
            model.reward_noise[c] = np.sqrt(model.reward_noise[c] * model.reward_noise[c] + inflated)
        rewards[c] = weight * sums.rewards[c] + half * n
        # This is visits / effective sample size. It is 1 if all users have equal weight, otherwise above 1.
        sampling[c] = sums.sampling[c] * total[c] / (exposure[c] * exposure[c])


@inlined
def _visits(model: Cells, half: float, predicted: bool) -> None:
    """Write into ``model.visits`` the average of noisy counts and predicted visits, weighted by precision.

    The noisy count of visits is the sum of S noisy transition counts. The prediction is ``model.expected``:
    the visits of one average policy in a rough model. This policy chooses the actions of a state in
    proportion to their expected visits; it does not use the order of the batches. The prediction has a
    relative error ``_FLOW_ERROR`` and is limited to two standard deviations above the noisy count.

    If rewards are centred, sums of r - 1/2 were measured, and ``half`` is 1/2. A reward sum is the measured
    sum plus half of the visits. Therefore it changes if the visits change.
    """
    counts, visits, expected, noise = model.counts, model.visits, model.expected, model.noise
    states = np.float64(model.raw.shape[1])
    for c in range(counts.shape[0]):
        visits[c] = counts[c]
        if predicted and noise[c] < np.inf:
            most = max(0.0, counts[c]) + _MOST_FLOW * np.sqrt(states) * noise[c]
            expected[c] = min(expected[c], most)
        if predicted and 0.0 < noise[c] < np.inf:
            flow = (_FLOW_ERROR * expected[c]) ** 2
            own = states * noise[c] * noise[c]
            visits[c] = (counts[c] * flow + expected[c] * own) / (flow + own)
            model.rewards[c] += half * (visits[c] - counts[c])


@inlined
def _pool(problem: Problem, shrink: bool, sums: Sums, model: Cells, pools: Pools) -> None:
    """Write into ``pools`` the average over steps of the data of each pair, weighted by precision.

    The pooled family, if there is one, is included as one more step. If ``shrink`` is False, nothing is
    pooled. If the noise of the pooled counts exceeds the visits, the counts are divided by the noise instead
    of the visits. The probability that is then missing is divided evenly among the successor states.
    """
    slots, rows, exposure = problem.slots, problem.rows, sums.exposure
    noise, expected, raw, visits = model.noise, model.expected, model.raw, model.visits
    rewards, reward_noise, sampling = model.rewards, model.reward_noise, model.sampling
    pool, cells, states = pools.row, model.counts.shape[0], model.raw.shape[1]
    pool_std, pool_sampling, pool_missing, pool_total = pools.std, pools.sampling, pools.missing, pools.total
    pool_mass, pool_variance, pool_reward = pools.mass, pools.variance, pools.reward
    for r in range(rows):
        pool_std[r] = np.inf
        if not shrink:
            continue
        mass = 0.0
        reward_mass = 0.0
        sampled = 0.0
        variance = 0.0
        reward_variance = 0.0
        seen = 0.0
        seen_variance = 0.0
        for s in range(states):
            pool[r, s] = 0.0
        extra = 0.0  # additional weight of each visit, because the pooled family contains it too
        c = slots * rows + r
        if c < cells and exposure[c] > 0.0:
            n = expected[c]
            extra = n / (states * noise[c] * noise[c] + n + 1.0)
        for t in range(slots + 1):  # the last slot is the pooled family
            c = t * rows + r
            if c >= cells or exposure[c] <= 0.0:
                continue
            g = noise[c]
            # The ratio of a count with noise g to n visits has precision n^2 / (g^2 + n). Here n also has the
            # noise of S entries.
            n = expected[c]
            w = n / (states * g * g + n + 1.0)
            for s in range(states):
                pool[r, s] += w * raw[c, s]
            mass += w * visits[c]
            reward_mass += w * rewards[c]
            variance += w * w * g * g
            reward_variance += w * w * reward_noise[c] * reward_noise[c]
            if t < slots:  # the pooled family contains the same visits as the steps, so it is not added again
                seen += visits[c]
                seen_variance += states * g * g
                sampled += (w + extra) * (w + extra) * max(n, visits[c]) * sampling[c]
        hidden = np.sqrt(states * variance)
        if mass <= 0.0 and hidden <= 0.0:
            continue
        base = max(mass, hidden, 1.0e-9)
        for s in range(states):
            pool[r, s] /= base
        project_in_place(pool, r)
        pool_std[r] = np.sqrt(variance) / base
        pool_sampling[r] = max(
            sampled / (base * base), 1.0 / max(1.0, max(0.0, seen) + np.sqrt(seen_variance))
        )
        pool_reward[r] = min(1.0, max(0.0, reward_mass / base))
        pool_missing[r] = 1.0 - max(0.0, mass) / base
        pool_total[r], pool_mass[r] = reward_mass, max(0.0, mass)
        pool_variance[r] = reward_variance + sampled * _of_reward(reward_mass, mass)


@inlined
def _visit_noise(
    problem: Problem, half: float, predicted: bool, sums: Sums, model: Cells, pools: Pools
) -> None:
    """Add the effect of the noise in visits to the noise of reward sums.

    If the visits of a pair have an error d, the effect on its reward sum is (mean - half) d. Here ``half`` is
    1/2 for centred rewards, else 0. The reason is that a centred sum plus half of the visits is the sum of
    rewards, and the sum of rewards divided by the visits is the mean. With centring, a pair with mean
    reward 0 gets half of the noise of its visits, and a pair with mean reward 1/2 gets none.
    """
    rows, exposure, noise, expected = problem.rows, sums.exposure, model.noise, model.expected
    visits, rewards, reward_noise = model.visits, model.rewards, model.reward_noise
    pool_std, pool_reward, pool_variance = pools.std, pools.reward, pools.variance
    states = np.float64(model.raw.shape[1])
    for r in range(rows):
        have = pool_std[r] < np.inf
        blurred = 0.0
        for c in range(r, visits.shape[0], rows):
            if exposure[c] <= 0.0:
                continue
            n, own = expected[c], states * noise[c] * noise[c]
            variance = own
            if predicted and own > 0.0:  # the variance of the weighted average in _visits
                flow = (_FLOW_ERROR * n) ** 2
                variance = flow * own / (flow + own)
            w = n / (own + n + 1.0)  # the weight of this step in _pool
            blurred += w * w * variance
            mean = pool_reward[r] if have else (rewards[c] + 0.5) / (max(0.0, visits[c]) + 1.0)
            mean = min(1.0, max(0.0, mean))
            reward_noise[c] = np.sqrt(reward_noise[c] * reward_noise[c] + (mean - half) ** 2 * variance)
        if have:
            pool_variance[r] += (pool_reward[r] - half) ** 2 * blurred


@inlined
def _residuals(
    problem: Problem, excess: float, sums: Sums, model: Cells, pools: Pools
) -> tuple[float, float]:
    """Compare each step of a pair with the pooled row, and write the squared residuals into ``pools``.

    The part of the squared residuals that noise and sampling explain is subtracted. :func:`_variation`
    computes the variance over steps from the result. The weight of a step is its precision, with an upper
    limit. Without the limit, a pair with almost all visits at one step would show no variation. A step with a
    large share of the pooled data is close to the pooled row, so ``bottom`` counts its residual less.

    Returns the variance over steps of transition probabilities and that of mean rewards, both computed from
    all pairs together. They are the prior for a pair whose own steps have no information.
    """
    slots, rows, exposure = problem.slots, problem.rows, sums.exposure
    noise, expected, raw, visits = model.noise, model.expected, model.raw, model.visits
    counts, rewards, reward_noise, sampling = model.counts, model.rewards, model.reward_noise, model.sampling
    pool, pool_std, pool_reward, pool_mass = pools.row, pools.std, pools.reward, pools.mass
    states = model.raw.shape[1]
    tops, nulls, bottoms = pools.top, pools.null, pools.bottom
    reward_tops, reward_nulls, reward_bottoms = pools.reward_top, pools.reward_null, pools.reward_bottom
    all_top, all_null, all_bottom = 0.0, 0.0, 0.0
    all_reward_top, all_reward_null, all_reward_bottom = 0.0, 0.0, 0.0
    for r in range(rows):
        if pool_std[r] == np.inf:
            continue
        mean = pool_reward[r]
        concentration = 0.0
        for s in range(states):
            concentration += pool[r, s] * pool[r, s]
        top = 0.0
        bottom = 0.0
        null = 0.0
        reward_top = 0.0
        reward_bottom = 0.0
        reward_null = 0.0
        for t in range(slots):
            c = t * rows + r
            if exposure[c] <= 0.0:
                continue
            n = expected[c]
            g = noise[c]
            w = n / (states * g * g + n + 1.0)
            others = max(0.0, 1.0 - n * w / pool_mass[r]) if pool_mass[r] > 0.0 else 0.0
            w *= _ALIKE / (_ALIKE * n * w + 1.0)
            square = 0.0
            for s in range(states):
                d = raw[c, s] - counts[c] * pool[r, s]
                square += d * d
            usual = (states - 2.0 + states * concentration) * g * g
            usual += n * sampling[c] * (1.0 - concentration)
            top += w * w * (square - usual)
            null += (w * w * usual) ** 2 * 2.0 / states
            bottom += (w * n) ** 2 * others
            gr = reward_noise[c] * reward_noise[c]
            d = rewards[c] - visits[c] * mean
            sampled = n * sampling[c]
            w = n / (gr + n + 1.0)
            w *= _ALIKE / (_ALIKE * n * w + 1.0)
            reward_top += w * w * (d * d - gr - sampled * mean * (1.0 - mean))
            reward_null += (w * w * (gr + 0.25 * sampled)) ** 2 * 2.0
            reward_bottom += (w * n) ** 2 * others
        tops[r], nulls[r], bottoms[r] = top, null, bottom
        reward_tops[r], reward_nulls[r], reward_bottoms[r] = reward_top, reward_null, reward_bottom
        all_top, all_null, all_bottom = all_top + top, all_null + null, all_bottom + bottom
        all_reward_top, all_reward_null = all_reward_top + reward_top, all_reward_null + reward_null
        all_reward_bottom += reward_bottom
    return (
        _variation(_VARIATION, excess, all_top, all_null, all_bottom),
        _variation(_VARIATION, excess, all_reward_top, all_reward_null, all_reward_bottom),
    )


@inlined
def _misfits(prior: Given, problem: Problem, sums: Sums, model: Cells, pools: Pools, work: Floats) -> None:
    """Write the squared distances between pooled rows and the rows of the prior into ``work``.

    The first 3 R entries are three arrays (R,): the squared distance from the prior's row, the squared
    distance from the uniform row, and the mean squared error of the pooled row. The error is infinite for a
    pair without data or without a prior. For a pair without data, the function also writes values of weight 0
    into ``pools``.
    """
    slots, rows, exposure = problem.slots, problem.rows, sums.exposure
    noise, expected, raw, visits, counts = model.noise, model.expected, model.raw, model.visits, model.counts
    cells, states = counts.shape[0], raw.shape[1]
    size = float(states)
    misfit, near, error = work[:rows], work[rows : 2 * rows], work[2 * rows : 3 * rows]
    total = work[3 * rows : 3 * rows + states]
    for r in range(rows):
        misfit[r], near[r], error[r] = 0.0, 0.0, np.inf
        if pools.std[r] == np.inf:  # the arrays hold no values for this pair
            pools.total[r], pools.mass[r], pools.variance[r], pools.reward[r] = 0.0, 0.0, 1.0, 0.5
            pools.top[r], pools.null[r], pools.bottom[r] = 0.0, 0.0, 0.0
            pools.reward_top[r], pools.reward_null[r], pools.reward_bottom[r] = 0.0, 0.0, 0.0
        if prior.strength[r] <= 0.0 or pools.mass[r] <= 0.0:
            continue
        mass, every, variance, concentration = 0.0, 0.0, 0.0, 0.0
        for s in range(states):
            total[s] = 0.0
            concentration += prior.rows[r, s] * prior.rows[r, s]
        for t in range(slots + 1):  # the last slot is the pooled family
            c = t * rows + r
            if c >= cells or exposure[c] <= 0.0:
                continue
            w = expected[c] / (size * noise[c] * noise[c] + expected[c] + 1.0)  # as in _pool
            mass += w * visits[c]
            every += w * counts[c]
            variance += w * w * noise[c] * noise[c]
            for s in range(states):
                total[s] += w * raw[c, s]
        for s in range(states):
            misfit[r] += ((total[s] - every * prior.rows[r, s]) / mass) ** 2
            near[r] += ((total[s] - every / size) / mass) ** 2
        # The sum of the row is subtracted in the residuals, so they contain the noise of S - 1 directions.
        error[r] = variance * max(0.0, size - 2.0 + size * concentration) / (mass * mass)
        error[r] += pools.sampling[r] * max(_LEAST_SPREAD, 1.0 - concentration) + _LEAST_ERROR


@inlined
def _apply_prior(
    given: Floats, problem: Problem, sums: Sums, model: Cells, pools: Pools, work: Floats
) -> None:
    """Combine the pooled row of each pair with the row of the public prior, and write it into ``pools``.

    given : the prior, as :func:`~discreet.learners.online.prior_kernels.read_prior` reads it. The weight of
    the prior's row depends on the misfit of this row and of all other rows
    (:mod:`discreet.learners.online.prior_kernels`). The row of a pair without data is a mixture of the
    prior's row and the uniform row.
    """
    rows, states = problem.rows, model.raw.shape[1]
    pool, std, sampling, missing = pools.row, pools.std, pools.sampling, pools.missing
    prior, size = read_prior(given, rows, states), float(states)
    _misfits(prior, problem, sums, model, pools, work)
    misfit, near, error = work[:rows], work[rows : 2 * rows], work[2 * rows : 3 * rows]
    table = measure_rows(prior.strength, misfit, near, error, states, work[3 * rows + states :])
    shares, chances = np.empty(table.shape[1]), np.empty(table.shape[1])
    fit_shares(table, error, shares)
    for r in range(rows):
        if prior.strength[r] <= 0.0:
            continue
        chances[:] = shares
        if error[r] < np.inf:
            posterior(table[r], shares, chances)
        found = weigh_row(prior.strength[r], error[r], chances)
        own, mine, between = found.data, 1.0 - found.data, 0.0
        hidden, old, few, have = 1.0, 1.0 / size, 1.0, std[r] < np.inf
        if have:
            hidden, old, few = missing[r], std[r] * std[r], sampling[r]
        for s in range(states):
            row = pool[r, s] if have else 1.0 / size
            between += (row - prior.rows[r, s]) ** 2
            pool[r, s] = own * row + mine * prior.rows[r, s]
        variance = found.variance + found.between * between
        std[r] = np.sqrt(own * own * old + variance / size)
        sampling[r] = own * own * few + mine * mine / prior.strength[r] + variance
        missing[r] = own * hidden + min(1.0, variance)


@inlined
def _variation(usual: float, excess: float, top: float, null: float, bottom: float) -> float:
    """Return an estimate of the variance over steps, from ``top``, ``null`` and ``bottom`` of `Pools`.

    Only the part of ``top`` that exceeds ``excess`` null standard deviations is used, so that random
    differences are not counted as variation. ``usual`` is the prior variance. It has the weight of one step
    with a small error.
    """
    return (usual + max(0.0, top - excess * np.sqrt(null))) / (1.0 + bottom)


@inlined
def _shrink(
    problem: Problem, excess: float, usual: float, sums: Sums, model: Cells, pools: Pools, table: Successors
) -> None:
    """Write into ``table`` a weighted average of the row of each step and the pooled row.

    The weights depend on the estimated variance over steps. If a step differs from the other steps, the
    pooled row is wrong at this step, however many visits it contains. Therefore the variance over steps is
    added to the sampling variance, in proportion to the squared weight of the pooled row. Without this
    addition, the explorers would never try a step that differs.
    """
    rows, exposure, raw = problem.rows, sums.exposure, model.raw
    visits, noise, sampling = model.visits, model.noise, model.sampling
    spread, missing, few, states = model.spread, model.missing, model.few, model.raw.shape[1]
    pool, pool_std, pool_sampling, pool_missing = pools.row, pools.std, pools.sampling, pools.missing
    tops, nulls, bottoms = pools.top, pools.null, pools.bottom
    kinds, variation = np.zeros(problem.slots * rows, np.int8), np.zeros(rows)
    if problem.slots > 1:
        for r in range(rows):
            variation[r] = _variation(usual, excess, tops[r], nulls[r], bottoms[r])
    r = -1
    for c in range(problem.slots * rows):
        r = r + 1 if r + 1 < rows else 0
        have, tau2 = pool_std[r] < np.inf, variation[r]
        seen = exposure[c] > 0.0
        if not seen and not have:
            spread[c] = np.inf
            missing[c] = 1.0
            few[c] = 1.0
            kinds[c] = UNIFORM
            continue
        own, base, hidden_share = 0.0, 1.0, 0.0
        own_std, own_sampling = 0.0, 0.0  # these have weight 0 if the step has no data
        if seen:
            n, g = max(visits[c], 0.0), noise[c]
            hidden = np.sqrt(np.float64(states)) * g
            base = max(max(n, 1.0), hidden)
            hidden_share = 1.0 - n / base
            own_std, own_sampling = g / base, max(sampling[c] / base, 1.0 / max(1.0, n + hidden))
            own = 1.0
            if have:
                s2 = (states * g * g + max(n, 1.0)) / (base * base)
                own = tau2 / (tau2 + s2)
        rest = 1.0 - own
        if own == 0.0:
            kinds[c] = GIVEN
            for s in range(states):
                raw[c, s] = pool[r, s]
            spread[c], sampling[c], missing[c] = pool_std[r], pool_sampling[r] + tau2, pool_missing[r]
            few[c] = pool_sampling[r]
            continue
        for s in range(states):
            raw[c, s] = own * (raw[c, s] / base)
            if rest > 0.0:
                raw[c, s] += rest * pool[r, s]
        spread[c] = own * own_std
        sampling[c] = own * own * own_sampling
        few[c] = sampling[c]
        missing[c] = own * hidden_share
        if rest > 0.0:
            spread[c] = np.sqrt((own * own_std) ** 2 + (rest * pool_std[r]) ** 2)
            few[c] += rest * rest * pool_sampling[r]
            sampling[c] = few[c] + rest * rest * tau2
            missing[c] += rest * pool_missing[r]
    fill(table, raw, kinds)


@inlined
def _of_reward(total: float, visits: float) -> float:
    """Return the variance of the reward of one visit, as if rewards were Bernoulli.

    The mean is estimated from the reward sum ``total``, the visits, and one pseudo-visit with reward 1/2.
    """
    mean = min(1.0, max(0.0, (total + 0.5) / (max(0.0, visits) + 1.0)))
    return mean * (1.0 - mean)


@inlined
def _of_sum(visits: float, reward_noise: float, sampling: float, rewards: float) -> float:
    """Return the variance of the reward sum of one cell, which has a noise part and a sampling part.

    visits, reward_noise, sampling and rewards are the cell's values of these fields in `Cells`.
    """
    n = max(0.0, visits)
    return reward_noise * reward_noise + n * sampling * _of_reward(rewards, n)


class Pairs(NamedTuple):
    """Distribution of mean rewards over pairs: a mixture of two normal components.

    Pairs without reward have mean rewards near 0. Pairs with reward have the other component.
    """

    paying: float  # Share of pairs with reward.
    mean: float  # Mean, over pairs with reward, of their mean rewards.
    variance: float  # Variance, over pairs with reward, of their mean rewards.
    nothing: float  # Variance, over pairs without reward, of their mean rewards. Their mean is 0.


@inlined
def _paying(law: Pairs, total: float, visits: float, variance: float) -> float:
    """Return the posterior probability that a pair has reward, given its reward sum ``total``.

    ``variance`` is the variance of ``total``.
    """
    nothing, something = variance + visits * visits * law.nothing, variance + visits * visits * law.variance
    d = total - visits * law.mean
    log_odds = 0.5 * (d * d / something - total * total / nothing)
    odds = (
        np.sqrt(something / nothing) * np.exp(min(_MOST_LOG_ODDS, log_odds)) * (1.0 - law.paying) / law.paying
    )
    return 1.0 / (1.0 + odds)


@inlined
def _normal(first: float, spread: float, total: float, visits: float, variance: float) -> tuple[float, float]:
    """Return the posterior mean and variance of a mean reward, given the reward sum ``total``.

    The prior is normal with mean ``first`` and variance ``spread``. ``variance`` is the variance of
    ``total``.
    """
    precision = visits * visits / variance + 1.0 / spread
    return (visits * total / variance + first / spread) / precision, 1.0 / precision


@inlined
def _posterior(law: Pairs, total: float, visits: float, variance: float) -> tuple[float, float]:
    """Return the posterior mean and variance of a mean reward under the mixture prior ``law``.

    ``total`` is the reward sum of the pair, and ``variance`` is the variance of ``total``.
    """
    p = _paying(law, total, visits, variance)
    low, low_variance = _normal(0.0, law.nothing, total, visits, variance)
    high, high_variance = _normal(law.mean, law.variance, total, visits, variance)
    spread = (1.0 - p) * low_variance + p * high_variance + p * (1.0 - p) * (high - low) ** 2
    return (1.0 - p) * low + p * high, spread


@inlined
def _prior(problem: Problem, sums: Sums, model: Cells, pools: Pools, data: Floats) -> Pairs:
    """Fit the distribution of mean rewards over pairs to the noisy reward sums of all pairs.

    In many environments most pairs have reward 0; in others all pairs have some reward. The
    expectation-maximisation (EM) algorithm estimates the share of pairs with reward and the parameters of
    both components. A few pseudo-pairs with the values of the prior are added to the data. ``data`` is
    scratch space for three floats per cell.
    """
    rows, exposure, visits, rewards = problem.rows, sums.exposure, model.visits, model.rewards
    reward_noise, sampling, pool_std = model.reward_noise, model.sampling, pools.std
    pool_total, pool_mass, pool_variance = pools.total, pools.mass, pools.variance
    many = 0
    for r in range(rows):
        have = pool_std[r] < np.inf
        for c in range(r, problem.slots * rows, rows):
            if have and c > r:  # a pair with pooled data is used once, not at every step
                break
            if have:
                total, n, variance = pool_total[r], pool_mass[r], pool_variance[r]
            elif exposure[c] > 0.0:
                total, n = rewards[c], visits[c]
                variance = _of_sum(n, reward_noise[c], sampling[c], total)
            else:
                continue
            if n <= 0.0 or variance == np.inf:
                continue
            data[3 * many], data[3 * many + 1] = total, n
            data[3 * many + 2] = max(variance, _LEAST_VARIANCE)
            many += 1
    law = Pairs(_PAYING, _PAY, _PAY_STD * _PAY_STD, _NOTHING * _NOTHING)
    for _ in range(_ROUNDS):
        count, weight, first = _IMAGINED * _PAYING, 1.0, _PAY
        second = _PAY * _PAY + _PAY_STD * _PAY_STD
        others, small = _IMAGINED, _IMAGINED * (_NOTHING * _NOTHING)
        for i in range(many):
            total, n, variance = data[3 * i], data[3 * i + 1], data[3 * i + 2]
            p = _paying(law, total, n, variance)
            low, low_variance = _normal(0.0, law.nothing, total, n, variance)
            others += 1.0 - p
            small += (1.0 - p) * (low * low + low_variance)
            mean, variance = _normal(law.mean, law.variance, total, n, variance)
            count += p
            weight += p
            first += p * mean
            second += p * (mean * mean + variance)
        mean = first / weight
        law = Pairs(
            count / (_IMAGINED + many),
            min(1.0, max(0.0, mean)),
            max(_LEAST_PAY_VARIANCE, second / weight - mean * mean),
            min(_MOST_NOTHING * _MOST_NOTHING, small / others),
        )
    return law


@inlined
def _believe(
    problem: Problem,
    excess: float,
    usual: float,
    given: Floats,
    sums: Sums,
    model: Cells,
    pools: Pools,
    work: Floats,
) -> None:
    """Estimate the mean reward of each cell by Bayes' rule, and write it into ``model.rewards``.

    The estimate uses the data of other pairs, of the same pair at all steps, and of the cell itself, in this
    order. The prior is the distribution over pairs (:func:`_prior`). The posterior after the pooled reward
    sum of the pair is approximated by a normal distribution with the same mean and variance. The variance
    over steps is added, because the mean of a step differs from the pooled mean. The last update uses the
    reward sum of the cell.

    If there is a public prior, it is one more source of knowledge about a pair, before the data of the cell
    (:func:`_apply_reward_prior`).

    The standard deviation of the result has two parts. ``unknown`` is the standard deviation of the prior
    times the ratio of the posterior variance to the prior variance. ``reward_spread`` is the remaining part.
    """
    rows, exposure, visits, rewards = problem.rows, sums.exposure, model.visits, model.rewards
    reward_noise, sampling, unknown = model.reward_noise, model.sampling, model.unknown
    reward_spread, pool_std, pool_mass = model.reward_spread, pools.std, pools.mass
    pool_total, pool_variance = pools.total, pools.variance
    tops, nulls, bottoms = pools.reward_top, pools.reward_null, pools.reward_bottom
    law = _prior(problem, sums, model, pools, work)
    prior, first = _posterior(law, 0.0, 0.0, 1.0)
    std = np.sqrt(first)
    beliefs = np.empty((0, 2))
    if given.shape[0] > 0:
        beliefs = work[: 2 * rows].reshape(rows, 2)
        _apply_reward_prior(given, law, problem, model, pools, beliefs, work[2 * rows :])
    for r in range(rows):
        have = pool_std[r] < np.inf
        shared, shared_variance = prior, first
        if have:
            v = max(pool_variance[r], _LEAST_VARIANCE)
            shared, shared_variance = _posterior(law, pool_total[r], pool_mass[r], v)
            if beliefs.shape[0] > 0:
                shared, shared_variance = beliefs[r, 0], beliefs[r, 1]
            if problem.slots > 1:
                shared_variance += _variation(usual, excess, tops[r], nulls[r], bottoms[r])
        for c in range(r, problem.slots * rows, rows):
            mean, variance = shared, shared_variance
            if exposure[c] > 0.0 and not (have and problem.slots == 1):
                n = max(0.0, visits[c])
                v = max(_of_sum(n, reward_noise[c], sampling[c], rewards[c]), _LEAST_VARIANCE)
                if have:
                    precision = n * n / v + 1.0 / variance
                    mean = (n * rewards[c] / v + mean / variance) / precision
                    variance = 1.0 / precision
                else:
                    mean, variance = _posterior(law, rewards[c], n, v)
            rewards[c] = min(1.0, max(0.0, mean))
            unknown[c] = min(1.0, variance / first) * std
            reward_spread[c] = np.sqrt(max(0.0, variance - unknown[c] ** 2))


@inlined
def _apply_reward_prior(
    given: Floats, law: Pairs, problem: Problem, model: Cells, pools: Pools, beliefs: Floats, work: Floats
) -> None:
    """Write the posterior mean and variance of the mean reward of each pair into ``beliefs`` (R, 2).

    given : the public prior. law : distribution over pairs, which is the prior under the empty hypothesis and
    for pairs without a public prior.
    """
    rows = problem.rows
    prior = read_prior(given, rows, model.raw.shape[1])
    misfit, near, error = work[:rows], work[rows : 2 * rows], work[2 * rows : 3 * rows]
    for r in range(rows):
        misfit[r], near[r], error[r] = 0.0, 0.0, np.inf
        n = pools.mass[r]
        if prior.reward_strength[r] <= 0.0 or n <= 0.0:
            continue
        mean = pools.total[r] / n
        error[r] = max(pools.variance[r], _LEAST_REWARD_SPREAD * n) / (n * n) + _LEAST_ERROR
        misfit[r] = (mean - prior.rewards[r]) ** 2
        nothing, something = error[r] + law.nothing, error[r] + law.variance
        low = -0.5 * (log(nothing) + mean * mean / nothing) + log(max(1.0 - law.paying, _LEAST_ERROR))
        high = -0.5 * (log(something) + (mean - law.mean) ** 2 / something) + log(law.paying)
        top = max(low, high)
        near[r] = top + log(np.exp(low - top) + np.exp(high - top))
    table = measure_rewards(prior.reward_strength, misfit, near, error, work[3 * rows :])
    shares, chances = np.empty(table.shape[1]), np.empty(table.shape[1])
    fit_shares(table, error, shares)
    for r in range(rows):
        n, v = pools.mass[r], max(pools.variance[r], _LEAST_VARIANCE)
        beliefs[r, 0], beliefs[r, 1] = _posterior(law, pools.total[r], n, v)
        if prior.reward_strength[r] <= 0.0:
            continue
        chances[:] = shares
        mean = 0.0
        if error[r] < np.inf:
            posterior(table[r], shares, chances)
            mean = pools.total[r] / n
        beliefs[r, 0], beliefs[r, 1] = believe_reward(
            prior.reward_strength[r], prior.rewards[r], mean, error[r], beliefs[r, 0], beliefs[r, 1], chances
        )


@inlined
def _best(state_ptr: Ints, h: int, q: Floats, values: Floats) -> None:
    """Write into values[h] (S,) the maximum of q[h] over the actions of each state."""
    for s in range(state_ptr.shape[0] - 1):
        best = q[h, state_ptr[s]]
        for r in range(state_ptr[s] + 1, state_ptr[s + 1]):
            best = q[h, r] if q[h, r] > best else best
        values[h, s] = best


@inlined
def _induct(
    problem: Problem,
    stat: float,
    privacy: float,
    untried: float,
    model: Cells,
    moves: Successors,
    values: Floats,
    q: Floats,
) -> None:
    """Run optimistic backward induction, and write V and Q into ``values`` and ``q``.

    The bonus has four parts. The first is for sampling (factor ``stat``), and the second for privacy noise
    (factor ``privacy``). The third is for rewards that the pair's own data do not determine. The fourth is
    for rows that these data do not determine (factor ``untried``). The fourth part is ``untried`` times
    sqrt(d g) v / (v + k^2). Let d be the standard deviation of the next value over all states, and g the
    largest next value minus its mean at the row's successor. Let v be the variance of the row due to noise
    and sampling, and k the share of the row that noise does not hide.
    """
    state_ptr, horizon, rows, known_rewards = (
        problem.state_ptr, problem.horizon, problem.rows, problem.known_rewards,
    )  # fmt: skip
    rewards, spread, sampling = model.rewards, model.spread, model.sampling
    unknown, reward_spread, states = model.unknown, model.reward_spread, model.raw.shape[1]
    missing, known = model.missing, known_rewards.shape[0] > 0
    for s in range(states):
        values[horizon, s] = 0.0
    for h in range(horizon - 1, -1, -1):
        left = float(horizon - h)
        base_row = h * rows if problem.slots > 1 else 0
        centre, wide, square = middle(values, h + 1)
        most = 0.0
        for s in range(states):
            most = max(most, values[h + 1, s])
        for r in range(rows):
            c = base_row + r
            if spread[c] == np.inf or sampling[c] == np.inf:
                q[h, r] = left
                continue
            x = np.sqrt(sampling[c])
            mean, variance, norm = moments(moves, c, values, h + 1, centre, square)
            bonus = stat * (np.sqrt(max(0.0, variance)) * x + left * (x * x))
            bonus += privacy * spread[c] * np.sqrt(norm)
            if untried > 0.0:
                error = states * spread[c] * spread[c] + sampling[c]
                gain = np.sqrt(wide * max(0.0, most - mean))
                bonus += untried * gain * error / (error + (1.0 - missing[c]) ** 2)
            if known:
                reward = known_rewards[h, r]
            else:
                reward = min(1.0, rewards[c] + _REWARD_OPTIMISM * unknown[c])
                bonus += stat * np.sqrt(reward * (1.0 - reward)) * x + privacy * reward_spread[c]
            q[h, r] = min(left, reward + mean + bonus)
        _best(state_ptr, h, q, values)


@spliced
def _next(
    model: Cells, moves: Successors, c: int, values: Floats, h: int, centre: float, square: float
) -> tuple[float, float, float]:
    """Return the mean of values[h] at the successor of cell ``c``, and two standard deviations of this mean.

    The first standard deviation is due to sampling, the second to noise. ``centre`` and ``square`` are
    results of :func:`~discreet.learners.online.successor_kernels.middle`.
    """
    sampling = model.sampling[c]
    mean, variance, norm = moments(moves, c, values, h, centre, square)
    x = np.sqrt(sampling / (1.0 + 2.0 * sampling))
    return mean, np.sqrt(variance) * x, model.spread[c] * np.sqrt(norm)


@inlined
def _explore(
    problem: Problem, width: float, model: Cells, moves: Successors, z: Floats, values: Floats, q: Floats
) -> None:
    """Run backward induction with one draw from the approximate posterior, and write V and Q.

    The draw uses five standard normal variables for each pair, z (R, 5), which are the same at all steps.
    Three of them change the mean value of the successor: they stand for sampling, for noise, and for the part
    of the row that noise hides. The other two change the reward: they stand for the errors of the pair's own
    data and for the differences between pairs.

    ``width`` multiplies the parts that are estimated from data. The parts without data have at least their
    full standard deviation. A cell without any data has mean reward 1/2 per step.
    """
    state_ptr, horizon, rows, known_rewards = (
        problem.state_ptr, problem.horizon, problem.rows, problem.known_rewards,
    )  # fmt: skip
    rewards, spread, sampling = model.rewards, model.spread, model.sampling
    unknown, reward_spread, hidden = model.unknown, model.reward_spread, model.missing
    full = max(1.0, width)
    known = known_rewards.shape[0] > 0
    for s in range(values.shape[1]):
        values[horizon, s] = 0.0
    for h in range(horizon - 1, -1, -1):
        left = float(horizon - h)
        base_row = h * rows if problem.slots > 1 else 0
        centre, wide, square = middle(values, h + 1)
        for r in range(rows):
            c = base_row + r
            if spread[c] == np.inf or sampling[c] == np.inf:
                q[h, r] = left * min(1.0, max(0.0, 0.5 + 0.5 * z[r, 0]))
                continue
            mean, by_sampling, by_noise = _next(model, moves, c, values, h + 1, centre, square)
            value = mean + width * (by_sampling * z[r, 0] + by_noise * z[r, 1])
            value += full * hidden[c] * wide * z[r, 2]
            if known:
                reward = known_rewards[h, r]
            else:
                reward = width * reward_spread[c] * z[r, 3] + full * unknown[c] * z[r, 4]
                reward = min(1.0, max(0.0, rewards[c] + reward))
            q[h, r] = min(left, max(0.0, reward + value))
        _best(state_ptr, h, q, values)


@inlined
def _plan_upper(
    problem: Problem,
    width: float,
    carried: float,
    seeks: bool,
    model: Cells,
    moves: Successors,
    values: Floats,
    q: Floats,
) -> None:
    """Plan with values ``width`` standard deviations above the mean of the approximate posterior.

    This is the method of the optimistic explorer. A random draw is high for some pairs and low for others, so
    it rarely leads users through several unknown pairs in sequence. The optimistic explorer selects the same
    pairs until data show that they are not better.

    The estimation errors of many steps do not all have the same sign. Therefore only the part ``carried`` of
    the bonus of a cell is propagated to the previous step. This part leads users to pairs that can be reached
    only after several untried steps. If no policy can be better within the width, the plan is the greedy
    policy. Therefore this explorer adds no regret once the estimates are precise. A cell without data has
    reward 1 per step.

    If a cell has no visits, or so few that noise hides them, its estimate is close to the mean of the other
    rows. The plan then never selects the cell, although the cell may have the largest reward. If ``seeks`` is
    True (the maximum-uncertainty explorer), a row whose visits are below their noise has value 1 per step,
    and this value is propagated to earlier steps. Its weight is x^2 / (x^2 + 0.15^2) with x = (noise /
    visits)^2, which decreases as visits increase. Without noise, this weight is 0.

    If a cell has few visits, all of its rewards may be low by chance. The estimated standard deviation is
    then too small. Therefore five pseudo-visits (``_LUCKY``) of reward 1 are added to every cell; at n visits
    they have the weight 5 / (n + 5).
    """
    state_ptr, horizon, rows, known_rewards = (
        problem.state_ptr, problem.horizon, problem.rows, problem.known_rewards,
    )  # fmt: skip
    rewards, spread, sampling = model.rewards, model.spread, model.sampling
    unknown, reward_spread, hidden = model.unknown, model.reward_spread, model.missing
    few, known = model.few, known_rewards.shape[0] > 0
    for s in range(values.shape[1]):
        values[horizon, s] = 0.0
    for h in range(horizon - 1, -1, -1):
        left = float(horizon - h)
        base_row = h * rows if problem.slots > 1 else 0
        centre, wide, square = middle(values, h + 1)
        for s in range(values.shape[1]):
            values[h, s] = 0.0
            for r in range(state_ptr[s], state_ptr[s + 1]):
                c = base_row + r
                worth, bonus, dark = 0.0, left, 0.0
                if spread[c] < np.inf and sampling[c] < np.inf:
                    mean, by_sampling, by_noise = _next(model, moves, c, values, h + 1, centre, square)
                    upper = width * width * (by_sampling**2 + by_noise**2 + (hidden[c] * wide) ** 2)
                    if known:
                        reward = known_rewards[h, r]
                    else:
                        reward = rewards[c]
                        lucky = _LUCKY * few[c] / (1.0 + _LUCKY * few[c])
                        more = width * np.sqrt(reward_spread[c] ** 2 + unknown[c] ** 2)
                        more += lucky * (1.0 - reward)
                        upper += min(1.0 - reward, more) ** 2
                    worth, bonus = reward + mean, np.sqrt(upper)
                    if seeks:
                        x2 = (values.shape[1] * spread[c] * spread[c]) ** 2
                        dark = x2 / (x2 + _HIDDEN * _HIDDEN) * max(0.0, left - worth)
                q[h, r] = min(left, worth + max(bonus, dark))
                values[h, s] = max(values[h, s], min(left, worth + max(carried * bonus, dark)))


@inlined
def _hidden_parts(model: Cells, states: int, parts: Floats) -> bool:
    """Write the part of each row that noise hides, in [0, 1], into ``parts`` (T R,), for :func:`_reach`.

    Returns True if at least one part is above 0. Let x be the sum of the squared errors of a row's entries
    due to noise. The part x^2 / (x^2 + _HIDDEN^2) of the row is hidden, and a part below _BARELY is set to 0.
    A row without data is hidden completely.
    """
    spread, sampling = model.spread, model.sampling
    most = 0.0
    for c in range(parts.shape[0]):
        hidden = 1.0
        if spread[c] < np.inf and sampling[c] < np.inf:
            x = states * spread[c] * spread[c]
            hidden = x * x / (x * x + _HIDDEN * _HIDDEN)
            if hidden < _BARELY:
                hidden = 0.0
        parts[c] = hidden
        most = max(most, hidden)
    return most > 0.0


@inlined
def _reach(
    problem: Problem,
    parts: Floats,
    model: Cells,
    moves: Successors,
    greedy: Floats,
    random: bool,
    coins: NDArray[np.uint64],
    q: Floats,
    scratch: Floats,
) -> None:
    """Plan to reach rows that noise hides, regardless of all rewards, and write the plan into ``q``.

    This is the method of the frontier explorer. An explorer that maximises the return does not leave good
    rewards for slightly better rewards that can be reached only through hidden rows. The hidden part of a row
    (``parts``, by :func:`_hidden_parts`) has the value (H - h) / H at step h, where steps start at 0. All
    other parts have value 0. In states whose best value is below _WORTHWHILE, the explorer acts greedily, by
    the Q ``greedy``. Therefore the plan is the greedy policy if noise hides no row.

    A plan leads all of its users along one path, and far fewer users are enough to see the rows of a path.
    Therefore a batch has several plans. If ``random`` is True, the hidden part of each row is multiplied by
    its own uniform draw from ``coins``, so that plans have different goals.
    """
    state_ptr, horizon, rows = problem.state_ptr, problem.horizon, problem.rows
    spread, sampling, states = model.spread, model.sampling, model.raw.shape[1]
    now, after = scratch[:states], scratch[states : 2 * states]
    worth = scratch[2 * states : 2 * states + rows]
    for r in range(rows):
        worth[r] = uniform(coins) if random else 1.0
    for s in range(states):
        after[s] = 0.0
    for h in range(horizon - 1, -1, -1):
        left = float(horizon - h) / float(horizon)
        base_row = h * rows if problem.slots > 1 else 0
        for s in range(states):
            now[s] = 0.0
            for r in range(state_ptr[s], state_ptr[s + 1]):
                c = base_row + r
                later = 0.0
                if spread[c] < np.inf and sampling[c] < np.inf:
                    first, end = moves.ends[c], moves.ends[c + 1]
                    for j in range(first, end):
                        later += moves.chance[j] * after[moves.state[j]]
                    if first == end:  # The row is uniform.
                        for k in range(states):
                            later += after[k] / states
                hidden = parts[c] * worth[r]
                q[h, r] = hidden * left + (1.0 - hidden) * later
                now[s] = max(now[s], q[h, r])
            if now[s] < _WORTHWHILE:
                for r in range(state_ptr[s], state_ptr[s + 1]):
                    q[h, r] = greedy[h, r]
        for s in range(states):
            after[s] = now[s]


@inlined
def _flow(
    problem: Problem, predict: bool, first: bool, sums: Sums, model: Cells, table: Successors, scratch: Floats
) -> None:
    """Write the expected visits of each cell into ``model.expected``.

    If ``predict`` is True, they are the visits of the average policy in a rough model; otherwise they are the
    positive parts of the counts. ``first`` is True if the pooled family counts only the first visit of each
    user to each state. The entries of ``table`` are scratch space.
    """
    state_ptr, horizon, slots, rows = problem.state_ptr, problem.horizon, problem.slots, problem.rows
    total, counts, raw, noise = sums.total, model.counts, model.raw, model.noise
    expected = model.expected
    states = state_ptr.shape[0] - 1
    for c in range(expected.shape[0]):
        expected[c] = max(0.0, counts[c])
    if not predict:
        return
    here, after = scratch[:states], scratch[states : 2 * states]
    users = 0.0
    for r in range(rows):
        users += total[r]
    if users <= 0.0:
        return
    _begin(state_ptr, sums, model, here)
    # The rough model has one row per pair: weighted sums of the counts of all steps, projected once.
    rough = scratch[2 * states : 3 * states].reshape(1, states)
    table.ends[0] = 0
    for r in range(rows):
        n = 0.0
        v = 0.0
        for s in range(states):
            rough[0, s] = 0.0
        for t in range(slots):
            c = t * rows + r
            if total[c] > 0.0:
                w = max(0.0, counts[c])
                w = w / (states * noise[c] * noise[c] + w + 1.0)
                n += w * counts[c]
                v += w * w * noise[c] * noise[c]
                for s in range(states):
                    rough[0, s] += w * raw[c, s]
        n = max(max(n, np.sqrt(states * v)), 1.0e-9)
        for s in range(states):
            rough[0, s] /= n
        project_in_place(rough, 0)
        add_row(table, r, rough, 0)
    for h in range(horizon):
        base = h * rows
        for s in range(states):
            after[s] = 0.0
        for s in range(states):
            mine = here[s] + _ASTRAY / states
            came = 0.0
            for r in range(state_ptr[s], state_ptr[s + 1]):
                came += total[base + r]
            for r in range(state_ptr[s], state_ptr[s + 1]):
                share = total[base + r] / came if came > 0.0 else 0.0
                expected[base + r] = users * mine * share
                flow_from(table, r, here[s] * share, after)
        for s in range(states):
            here[s] = after[s]
    if expected.shape[0] == slots * rows:
        return
    for s in range(states):
        visits = 0.0
        for r in range(state_ptr[s], state_ptr[s + 1]):
            expected[slots * rows + r] = 0.0
            for h in range(horizon):
                expected[slots * rows + r] += expected[h * rows + r]
            visits += expected[slots * rows + r]
        if first and visits > users:
            for r in range(state_ptr[s], state_ptr[s + 1]):
                expected[slots * rows + r] *= users / visits
