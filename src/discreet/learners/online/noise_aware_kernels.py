r"""Compiled planning of the noise-aware learner: a model from independent noisy measurements.

Each release i brings a measurement y_i = a sum_{j<=i} lambda^{i-j} x_j + z_i of the batches x_j of users. The
noise z_i is fresh and has known standard deviation sigma_i. With lambda = 0 and a = 1 the measurement is of
the batch itself. The policies are public and deterministic. E_j(h, s, a) is how many of batch j's users were
*expected* to come to (h, s) and take a. It is the number of users whose policy takes a there, times the
probability of reaching (h, s) in the model that was current when they began; 5 % may be anywhere
(``note_assignments``). It is a function of earlier releases and public facts. With m_i = lambda m_{i-1} + E_i
the measurement's mean is a m_i p, where p is the ratio of true to expected visits. Its variance is about
sigma_i^2 + m_i, and generalised least squares gives

    x^ = E_total / (a sum_i w_i m_i) * sum_i w_i y_i,     w_i = m_i / (sigma_i^2 + m_i):

Releases whose users did not play the action, or were not expected where it is played, have weight 0 or a
small weight. E_j is known before the noise that it weighs is drawn. Without noise x^ is the plain sum.

Decaying sums overlap: batch j is in every later measurement, in x^ with c_j = a sum_{i>=j} w_i
lambda^{i-j}, and its sampling error there does not average out. If batches have one p, the variance is that
of sum_j E_j c_j^2 visits. Two more sums keep it exactly: v_i = lambda^2 v_{i-1} + E_i, and
u_i = sum_{j<=i} E_j c_j lambda^{i-j} / a = lambda u_{i-1} + w_i v_i.

A family pooled over steps (``counts.POOLED_TRANSITIONS``) is one slot more. Its E_j(s, a) is the sum of the
E_j(h, s, a), and its row is one more measurement of the average over steps, with separate noise.

One call does the following steps in order.

- Project the measurement onto the flow constraint (``_consistent``; if all counts have one noise level and
  one schedule), add it to the sums (``_absorb``), and weigh all measurements (``_weigh``).
- Predict visits (``_flow``), combine them with the counts (``_visits``), pool the steps of each row
  (``_pool``), and add the noise of visits to that of rewards (``_visit_noise``).
- Estimate the variation over steps (``_residuals``) and every step's mean reward (``_believe``), starting at
  the distribution of mean rewards over pairs (``_prior``). Then shrink each step's row (``_shrink``).
- Compute the explorers' Q: a draw (``_explore``) or the upper end (``_hope_for``) of the approximate
  posterior. Plan (``_induct``), and keep the model to predict the next users' visits (``_foresee``).

These are loops over all cells. A call for each cell would cost more than its work, because it counts
references to every array. The memory is a set of sums per cell and the last model, without history. All of it
is post-processing, and the intervals are heuristic: weights and rows come from the same noisy data.

Randomized reports of random steps (local privacy) have noise of two parts: n idle + x visit for a count of
x among n users who were assigned the cell. The second is that of a sample of x / (1 + visit) records, and
therefore all counts are kept in this unit. The first is the noise, per assigned user.

The methods are generalised least squares, flow consistency, a bonus from the noise distribution, and
empirical-Bayes sharing over steps. The weights by expected visits, of releases and of the pooling, are our
own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined, kernel
from discreet.core.noise.random_streams_kernels import ROLE_EXPLORE, log, normal_range, open_stream
from discreet.learners.estimation.flow_projection_kernels import project_flow
from discreet.learners.estimation.flow_projection_kernels import work_size as flow_work_size
from discreet.learners.estimation.model_kernels import _level

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# options, in kernel order
(STAT, PRIVACY, SHRINK, CENTERED, EXCESS, FLOW, FIRST, CONSISTENT, FARTHER, KNOBS) = range(10)
# Errors: standard deviation of one cell of the measurement's transitions, and of its rewards; decay, gain a;
# then the two standard deviations of the pooled families. With randomized reports (INFLATION > 0), SIGMAs are
# per square root of a user who was assigned the cell. INFLATION is 1 plus the variance that a record adds to
# its count, and REWARD_VISIT is the variance that it adds to a reward sum.
(SIGMA_T, SIGMA_R, DECAY, GAIN, POOLED_SIGMA_T, POOLED_SIGMA_R, INFLATION, REWARD_VISIT, ERRORS) = range(9)


_VARIATION = 0.02  # Variance of a row over steps (squared distance) and of a mean reward; weight of one step.
_ALIKE = 0.01  # Error variance below which residuals of steps have equal weight, for any number of visits.
_MOST_FLOW = 2.0  # Standard deviations of a count by which predicted visits may exceed it.
_FLOW_ERROR = 1.0  # Relative standard deviation of visits that a rough model predicts.
_HOPE = 0.6  # Standard deviations over pairs that optimism adds if nothing is known of a reward.
_WIDTH = 0.3  # Width of explorer 1, in units of sqrt(ln(1 + users)).
_WIDER = 1.5  # Width of explorer 2, in units of the width of explorer 1.
_HOPEFUL = 2  # Optimistic explorer: upper ends instead of draws.
_SEEKING = 3  # Maximum-uncertainty explorer: full bonus carried, maximum value for rows hidden by noise.
_FAR = 2.0  # Width of the optimistic explorer, in units of the width of explorer 1.
_NEAR = 1.5  # The same with option FARTHER, and the width of the maximum-uncertainty explorer.
# Further factor at one of four tries, for pairs that the noise of few releases made look worse than they are,
# by more than the usual width.
_FARTHER = 2.0
_FARTHER_EACH = 4
_CARRIED = 0.5  # Part of its bonus for a cell that the optimistic explorer carries to the step before.
_CARRIED_EACH = 2  # With option FARTHER one of this many tries carries the bonus, the others do not.
_HIDDEN = 0.15  # (noise / visits)^2 at which the maximum-uncertainty explorer treats a row as half unseen.
_LUCKY = 5.0  # Pseudo-visits of reward 1 that the optimistic explorer adds to every cell.
_NOTHING = 0.002  # Standard deviation of mean rewards of pairs without reward, before any data.
_MOST_NOTHING = 0.02  # Its largest value.
_PAYING = 0.9  # Share of pairs with reward before any data; has the weight of two pairs.
_IMAGINED = 2.0
_PAY, _PAY_STD = 0.5, 0.3  # Mean and std of their mean rewards; has the weight of one pair.
_LEAST_PAY_VARIANCE = 1.0e-4  # Least variance of these.
_ROUNDS = 20  # Iterations of expectation and maximisation.
_MOST_LOG_ODDS = 600.0
_LEAST_VARIANCE = 1.0e-12  # Least variance of a sum of rewards.
_DRAWS = 5  # Normal variables per pair.
_HOLD = 2  # Releases for which an explorer keeps its normal variables, because noisy counts add up.
# Share of users who may be in any state at any step, independent of the model. It is above 0 so that expected
# visits are positive for every action that was assigned to a user.
_ASTRAY = 0.05


class Problem(NamedTuple):
    """Public, constant facts of the decision process."""

    state_ptr: Ints  # (S + 1,) rows of each state
    horizon: int
    slots: int  # T, 1 or H
    rows: int
    known_rewards: Floats  # (H, R), or empty


class Sums(NamedTuple):
    """Sums carried per cell (slot, row); a last slot holds the family pooled over steps."""

    coming: Floats  # expected visits of users who were assigned the cell since the last release
    filtered: Floats  # m
    total: Floats  # E_total
    exposure: Floats  # sum w m
    noise: Floats  # sum w^2 sigma^2, of transitions
    reward_noise: Floats
    sampling: Floats  # sum c^2 E / a^2
    rewards: Floats  # sum w y
    squares: Floats  # v
    overlap: Floats  # u
    assigned: Floats  # users assigned since the last release, with or without a visit
    moves: Floats  # (cells, S) sum w y


class Forecast(NamedTuple):
    """Model in which the current policies were planned; predicts visits. Carried between releases."""

    start: Floats  # (S,)
    moves: Floats  # (T R, S)


class Cells(NamedTuple):
    """Model per cell, computed again at every release."""

    counts: Floats  # Visits.
    rewards: Floats  # Their sum; after shrinking: the mean.
    noise: Floats  # Std of the noise in one entry of raw, and in rewards.
    reward_noise: Floats
    sampling: Floats  # Inverse effective sample size times visits; after shrinking: without the factor.
    spread: Floats  # Std of one entry of the model's row, and of the mean reward, from noise.
    reward_spread: Floats
    expected: Floats  # Visits that the public policies lead to.
    visits: Floats  # From counts and flow, each by its precision.
    missing: Floats  # Share of the row that noise hides, in [0, 1].
    unknown: Floats  # Std of the mean reward due to other pairs, not to the cell's data.
    few: Floats  # Inverse effective sample size of the row, of all steps if it is pooled.
    raw: Floats  # (cells, S) transitions.
    model: Floats  # (cells, S).


class Pools(NamedTuple):
    """Joint information of all steps and the pooled family on a row; std is infinite without information."""

    std: Floats  # Std of the noise in one entry of the row.
    sampling: Floats  # Variance.
    missing: Floats  # Share of the row that noise hides, in [0, 1].
    total: Floats  # Sum of rewards.
    mass: Floats  # Visits in the sum.
    variance: Floats  # Variance of the sum.
    reward: Floats  # Mean.
    # For transitions, then for rewards: squared residuals of the steps beyond noise and sampling, their
    # variance by chance, and the factor of the variation over steps in them.
    top: Floats
    null: Floats
    bottom: Floats
    reward_top: Floats
    reward_null: Floats
    reward_bottom: Floats
    row: Floats  # (R, S)


def all_cells(slots: int, rows: int, pooled: bool) -> int:
    """Return the number of cells with the pooled slot."""
    return (slots + int(pooled)) * rows


def memory_size(cells: int, slots: int, rows: int, states: int) -> int:
    """Return the number of floats carried: sums, then the forecast."""
    return cells * (11 + states) + forecast_size(slots, rows, states)


def forecast_size(slots: int, rows: int, states: int) -> int:
    """Return how many floats at the end of the memory hold the forecast."""
    return (1 + slots * rows) * states


def work_size(cells: int, rows: int, states: int) -> int:
    """Return the floats of scratch that ``noise_aware_step`` needs."""
    flow = max((rows + 2) * states, flow_work_size(cells // rows, states), _DRAWS * rows, 3 * cells)
    return cells * (2 * states + 12) + rows * (states + 13) + flow


@kernel
def count_assignments(
    assigned: Floats, slots: int, rows: int, pooled: bool, policy_rows: Ints, users: int
) -> None:
    """Count users who are assigned a deterministic policy: a public fact, before they act."""
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
    """Record users who are assigned a deterministic policy, and their expected visits.

    The current model predicts the visits under the policy; a share ``_ASTRAY`` of the users may be anywhere.
    Both are public before any user acts.
    """
    states = policy_rows.shape[1]
    cells = (slots + 1) * rows if pooled else slots * rows
    sums, forecast = _sums(memory, cells, states), _forecast(memory, cells, slots * rows, states)
    count_assignments(sums.assigned, slots, rows, pooled, policy_rows, users)
    occupancy = np.zeros((2, states))
    here, after = occupancy[0], occupancy[1]
    for s in range(states):
        here[s] = forecast.start[s]
    for h in range(policy_rows.shape[0]):
        base = h * rows if slots > 1 else 0
        for s in range(states):
            after[s] = 0.0
        for s in range(states):
            r = policy_rows[h, s]
            come = users * ((1.0 - _ASTRAY) * here[s] + _ASTRAY / states)
            sums.coming[base + r] += come
            if pooled:
                sums.coming[slots * rows + r] += come
            if here[s] > 0.0:
                for k in range(states):
                    after[k] += here[s] * forecast.moves[base + r, k]
        for s in range(states):
            here[s] = after[s]


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
    end = at + states + steps * states
    return Forecast(memory[at : at + states], memory[at + states : end].reshape(steps, states))


@inlined
def _cells(work: Floats, cells: int, states: int) -> Cells:
    part = work[: 12 * cells].reshape(12, cells)
    rows = work[12 * cells : (12 + 2 * states) * cells].reshape(2, cells, states)
    return Cells(
        part[0], part[1], part[2], part[3], part[4], part[5], part[6], part[7], part[8], part[9], part[10],
        part[11], rows[0], rows[1],
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
    """Add one measurement to the model, then run optimistic backward induction and the explorers.

    Parameters
    ----------
    transitions, reward_sums : (T, R, S) and (T, R)
        Newest measurement (rewards centred if knobs[CENTERED]).
    pooled_transitions, pooled_rewards : (1, R, S) and (1, R)
        Measurement of the pooled families, or empty.
    errors : (ERRORS,)
        See the names above.
    memory : floats
        Carried between calls; overwritten at number 0.
    values, q, trials : (H + 1, S), (H, R) and (E, H, R)
        Overwritten by the optimistic values and Q, and by each explorer's Q.
    ties : words
        Key of the public random stream.
    """
    slots, rows, states = transitions.shape
    pooled = pooled_transitions.shape[0] > 0
    cells = (slots + 1) * rows if pooled else slots * rows
    known = known_rewards.shape[0] > 0
    problem = Problem(state_ptr, horizon, slots, rows, known_rewards)
    sums, model = _sums(memory, cells, states), _cells(work, cells, states)
    at = cells * (2 * states + 12)
    pools, scratch = _pools(work[at:], rows, states), work[at + rows * (states + 13) :]
    if number == 0:
        for c in range(memory.shape[0]):
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
    _flow(problem, predict, knobs[FIRST] > 0.0, sums, model, scratch)
    _visits(model, 0.0 if known else 0.5 * knobs[CENTERED], predict)
    _pool(problem, knobs[SHRINK] > 0.0 and slots > 1, sums, model, pools)
    if not known:
        _visit_noise(problem, 0.5 * knobs[CENTERED], predict, sums, model, pools)
    usual, usual_reward = _residuals(problem, knobs[EXCESS], sums, model, pools)
    if not known:  # before rows are shrunk, because it reads the weight of a visit
        _believe(problem, knobs[EXCESS], usual_reward, sums, model, pools, scratch)
    _shrink(problem, knobs[EXCESS], usual, sums, model, pools)
    width = _WIDTH * np.sqrt(log(1.0 + users))
    coins = np.empty(4, np.uint64)
    for e in range(trials.shape[0]):
        if e == _HOPEFUL:
            far, carried, turn = _FAR, _CARRIED, number // _HOLD
            if knobs[FARTHER] > 0.0:
                far = _NEAR
                if turn % _FARTHER_EACH == _FARTHER_EACH - 1:
                    far *= _FARTHER
                if turn % _CARRIED_EACH != _CARRIED_EACH - 1:
                    carried = 0.0
            _hope_for(problem, far * width, carried, False, model, values, trials[e])
            continue
        if e == _SEEKING:
            _hope_for(problem, _NEAR * width, 1.0, True, model, values, trials[e])
            continue
        open_stream(ties, ROLE_EXPLORE, number // _HOLD, e, coins)
        normal_range(coins, 1.0, scratch, 0, _DRAWS * rows)
        own = width if e == 0 else _WIDER * width
        _explore(problem, own, model, scratch[: _DRAWS * rows].reshape(rows, _DRAWS), values, trials[e])
    _induct(problem, knobs[STAT], knobs[PRIVACY], model, values, q)
    _foresee(problem, number > 0, sums, model, _forecast(memory, cells, slots * rows, states))


@inlined
def _foresee(problem: Problem, measured: bool, sums: Sums, model: Cells, forecast: Forecast) -> None:
    """Keep the current model: rows, and the initial distribution.

    With one slot users may begin anywhere: pooled steps do not show the first state, and counts of a single
    step would be needed. This was tried with one slot: where noise hides rare states, their users are
    expected nowhere, and the regret of 20 000 users under pure epsilon = 1 rises to 1.05 to 1.1 times.
    """
    if measured and problem.slots > 1:
        _begin(problem.state_ptr, sums, model, forecast.start)
    else:
        forecast.start[:] = 1.0 / forecast.start.shape[0]
    for c in range(forecast.moves.shape[0]):
        for s in range(forecast.moves.shape[1]):
            forecast.moves[c, s] = model.model[c, s]


@inlined
def _begin(state_ptr: Ints, sums: Sums, model: Cells, start: Floats) -> None:
    """Estimate the distribution of the first state from counts of the first step that exceed their noise."""
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
    """Project the measurement's transitions onto the flow constraint, into ``model.raw``.

    Total and active rows are public: how many users the measurement reflects, and which actions they were
    assigned. Returns the share of the noise's variance that remains on average.
    """
    coming, filtered, active, raw = sums.coming, sums.filtered, model.counts, model.raw
    state_ptr = problem.state_ptr
    for c in range(moves.shape[0]):
        active[c] = decay * filtered[c] + coming[c]
        for s in range(moves.shape[1]):
            raw[c, s] = moves[c, s]
    users = 0.0
    for r in range(problem.rows):  # all of them begin somewhere
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
    """Add the newest measurement of the cells starting at ``first`` to their weighted sums."""
    coming, filtered, total, exposure = sums.coming, sums.filtered, sums.total, sums.exposure
    noise, reward_noise, sampling = sums.noise, sums.reward_noise, sums.sampling
    reward_acc, acc, squares, overlap = sums.rewards, sums.moves, sums.squares, sums.overlap
    square, reward_square = sigma * sigma, reward_sigma * reward_sigma
    reports = inflation > 0.0
    unit = 1.0 / inflation if reports else 1.0  # counts are kept in units of this
    per_user, per_user_reward = square, reward_square
    for i in range(moves.shape[0]):
        c = first + i
        if reports:  # only users who were assigned the cell add noise to it
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
    """Compute counts by generalised least squares, and their remaining noise."""
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
        # 1 / n under the weights, times n: 1 if all users have equal weight, else more
        sampling[c] = sums.sampling[c] * total[c] / (exposure[c] * exposure[c])


@inlined
def _visits(model: Cells, half: float, predicted: bool) -> None:
    """Combine noisy counts and predicted flow into visits, each by its precision; rewards follow.

    A count is the sum of S noisy cells. The flow of public policies in a rough model is known up to a factor.
    It is the flow of one average policy, in which the actions of a state are as frequent as its expected
    visits; it does not use when each user was where. It is trusted up to two standard deviations above the
    count. Centred sums of rewards are those of r - 1/2, so half of the visits is added to them.
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
    """Pool each row over steps and with the pooled family, each by its precision.

    If noise exceeds the visits, the divisor is the noise. The rest of the row is missing and is spread
    evenly.
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
        extra = 0.0  # additional weight of every record of a step due to the pooled family
        c = slots * rows + r
        if c < cells and exposure[c] > 0.0:
            n = expected[c]
            extra = n / (states * noise[c] * noise[c] + n + 1.0)
        for t in range(slots + 1):  # the last is the pooled family
            c = t * rows + r
            if c >= cells or exposure[c] <= 0.0:
                continue
            g = noise[c]
            # precision of a ratio from a count n with noise g: n^2 / (g^2 + n); n is noisy too
            n = expected[c]
            w = n / (states * g * g + n + 1.0)
            for s in range(states):
                pool[r, s] += w * raw[c, s]
            mass += w * visits[c]
            reward_mass += w * rewards[c]
            variance += w * w * g * g
            reward_variance += w * w * reward_noise[c] * reward_noise[c]
            if t < slots:  # records of the pooled family are those of the steps
                seen += visits[c]
                seen_variance += states * g * g
                sampled += (w + extra) * (w + extra) * max(n, visits[c]) * sampling[c]
        hidden = np.sqrt(states * variance)
        if mass <= 0.0 and hidden <= 0.0:
            continue
        base = max(mass, hidden, 1.0e-9)
        for s in range(states):
            pool[r, s] /= base
        _simplex(pool, r, pool, r)
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
    """Add to the noise of reward sums the effect of an error d of visits: (mean - 1/2) d.

    A centred sum plus half of the visits is a sum of rewards; divided by the visits it is a mean. A pair with
    reward 0 gets half of the noise of its visits, a pair with mean 1/2 gets none. Without centring the
    factor is the mean reward.
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
            if predicted and own > 0.0:  # as in _visits
                flow = (_FLOW_ERROR * n) ** 2
                variance = flow * own / (flow + own)
            w = n / (own + n + 1.0)  # as in _pool
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
    """Compute squared residuals of steps from their pooled row beyond noise and sampling.

    :func:`_variation` uses them. A step is weighted by its precision up to a limit, and not by its visits.
    Otherwise a row with almost all visits at one step would show no variation. A step's residual tells less
    if its share of the pool is large.

    Returns the variation of all rows together, and of all rewards: the default for a row whose own steps have
    no information.
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
def _variation(usual: float, excess: float, top: float, null: float, bottom: float) -> float:
    """Return the variance over steps: squared residuals minus their noise, sampling, and chance.

    ``usual`` is the variance elsewhere, and has the weight of one step that is known well.
    """
    return (usual + max(0.0, top - excess * np.sqrt(null))) / (1.0 + bottom)


@inlined
def _shrink(problem: Problem, excess: float, usual: float, sums: Sums, model: Cells, pools: Pools) -> None:
    """Move each step's row towards the pooled one according to the variation over steps.

    The part taken from the pool is wrong by that variation, for any number of visits of the pool. It is
    counted as sampling error. Otherwise no user would ever try a step that differs.
    """
    rows, exposure, raw, move = problem.rows, sums.exposure, model.raw, model.model
    visits, noise, sampling = model.visits, model.noise, model.sampling
    spread, missing, few, states = model.spread, model.missing, model.few, model.raw.shape[1]
    pool, pool_std, pool_sampling, pool_missing = pools.row, pools.std, pools.sampling, pools.missing
    tops, nulls, bottoms = pools.top, pools.null, pools.bottom
    for r in range(rows):
        have = pool_std[r] < np.inf
        tau2 = _variation(usual, excess, tops[r], nulls[r], bottoms[r])
        for c in range(r, problem.slots * rows, rows):
            seen = exposure[c] > 0.0
            if not seen and not have:
                spread[c] = np.inf
                missing[c] = 1.0
                few[c] = 1.0
                for s in range(states):
                    move[c, s] = 1.0 / states
                continue
            own, base, hidden_share = 0.0, 1.0, 0.0
            own_std, own_sampling = 0.0, 0.0  # multiplied by 0 if the step was not seen
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
                for s in range(states):
                    move[c, s] = pool[r, s]
                spread[c], sampling[c], missing[c] = pool_std[r], pool_sampling[r] + tau2, pool_missing[r]
                few[c] = pool_sampling[r]
                continue
            for s in range(states):
                move[c, s] = own * (raw[c, s] / base)
                if rest > 0.0:
                    move[c, s] += rest * pool[r, s]
            _simplex(move, c, move, c)
            spread[c] = own * own_std
            sampling[c] = own * own * own_sampling
            few[c] = sampling[c]
            missing[c] = own * hidden_share
            if rest > 0.0:
                spread[c] = np.sqrt((own * own_std) ** 2 + (rest * pool_std[r]) ** 2)
                few[c] += rest * rest * pool_sampling[r]
                sampling[c] = few[c] + rest * rest * tau2
                missing[c] += rest * pool_missing[r]


@inlined
def _of_reward(total: float, visits: float) -> float:
    """Return the variance of one visit's reward: Bernoulli, with one pseudo-visit of mean 1/2."""
    mean = min(1.0, max(0.0, (total + 0.5) / (max(0.0, visits) + 1.0)))
    return mean * (1.0 - mean)


@inlined
def _of_sum(visits: float, reward_noise: float, sampling: float, rewards: float) -> float:
    """Return the variance of the sum of rewards of one cell: noise and sampling."""
    n = max(0.0, visits)
    return reward_noise * reward_noise + n * sampling * _of_reward(rewards, n)


class Pairs(NamedTuple):
    """Distribution of mean rewards over pairs: a component near 0 and a normal one."""

    paying: float  # share of pairs with reward
    mean: float  # of their mean rewards
    variance: float
    nothing: float  # variance of the mean rewards of the others, about 0


@inlined
def _paying(law: Pairs, total: float, visits: float, variance: float) -> float:
    """Return the probability that a pair has reward, from its reward sum, visits and variance."""
    nothing, something = variance + visits * visits * law.nothing, variance + visits * visits * law.variance
    d = total - visits * law.mean
    log_odds = 0.5 * (d * d / something - total * total / nothing)
    odds = (
        np.sqrt(something / nothing) * np.exp(min(_MOST_LOG_ODDS, log_odds)) * (1.0 - law.paying) / law.paying
    )
    return 1.0 / (1.0 + odds)


@inlined
def _normal(first: float, spread: float, total: float, visits: float, variance: float) -> tuple[float, float]:
    """Return mean and variance of a mean reward with prior N(first, spread), after its sum of rewards."""
    precision = visits * visits / variance + 1.0 / spread
    return (visits * total / variance + first / spread) / precision, 1.0 / precision


@inlined
def _posterior(law: Pairs, total: float, visits: float, variance: float) -> tuple[float, float]:
    """Return mean and variance of a pair's mean reward by Bayes' rule, from its sum of rewards."""
    p = _paying(law, total, visits, variance)
    low, low_variance = _normal(0.0, law.nothing, total, visits, variance)
    high, high_variance = _normal(law.mean, law.variance, total, visits, variance)
    spread = (1.0 - p) * low_variance + p * high_variance + p * (1.0 - p) * (high - low) ** 2
    return (1.0 - p) * low + p * high, spread


@inlined
def _prior(problem: Problem, sums: Sums, model: Cells, pools: Pools, data: Floats) -> Pairs:
    """Fit the distribution of mean rewards over pairs to the noisy sums of all pairs.

    In many environments most pairs have reward 0; in others all pairs have some reward. Expectation and
    maximisation find the shares and the normal component, with a few pseudo-pairs.
    """
    rows, exposure, visits, rewards = problem.rows, sums.exposure, model.visits, model.rewards
    reward_noise, sampling, pool_std = model.reward_noise, model.sampling, pools.std
    pool_total, pool_mass, pool_variance = pools.total, pools.mass, pools.variance
    many = 0
    for r in range(rows):
        have = pool_std[r] < np.inf
        for c in range(r, problem.slots * rows, rows):
            if have and c > r:  # the pooled steps count once
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
    problem: Problem, excess: float, usual: float, sums: Sums, model: Cells, pools: Pools, work: Floats
) -> None:
    """Estimate the mean reward of each step by Bayes' rule: other pairs, pooled steps, the step itself.

    The first distribution is the one over pairs (:func:`_prior`). After the pair's own sum it is approximated
    by a normal distribution of that mean and variance. The step's own mean differs from the pooled one by the
    variation over steps. The remaining part of the first standard deviation is ``unknown``; the rest of the
    last one is ``reward_spread``.
    """
    rows, exposure, visits, rewards = problem.rows, sums.exposure, model.visits, model.rewards
    reward_noise, sampling, unknown = model.reward_noise, model.sampling, model.unknown
    reward_spread, pool_std, pool_mass = model.reward_spread, pools.std, pools.mass
    pool_total, pool_variance = pools.total, pools.variance
    tops, nulls, bottoms = pools.reward_top, pools.reward_null, pools.reward_bottom
    law = _prior(problem, sums, model, pools, work)
    prior, first = _posterior(law, 0.0, 0.0, 1.0)
    std = np.sqrt(first)
    for r in range(rows):
        have = pool_std[r] < np.inf
        shared, shared_variance = prior, first
        if have:
            v = max(pool_variance[r], _LEAST_VARIANCE)
            shared, shared_variance = _posterior(law, pool_total[r], pool_mass[r], v)
            shared_variance += _variation(usual, excess, tops[r], nulls[r], bottoms[r])
        for c in range(r, problem.slots * rows, rows):
            mean, variance = shared, shared_variance
            if exposure[c] > 0.0:
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
def _best(state_ptr: Ints, h: int, q: Floats, values: Floats) -> None:
    """Set values[h] to the maximum of q[h] over the rows of each state."""
    for s in range(state_ptr.shape[0] - 1):
        best = q[h, state_ptr[s]]
        for r in range(state_ptr[s] + 1, state_ptr[s + 1]):
            best = q[h, r] if q[h, r] > best else best
        values[h, s] = best


@inlined
def _induct(problem: Problem, stat: float, privacy: float, model: Cells, values: Floats, q: Floats) -> None:
    """Run optimistic backward induction: bonuses for sampling, for noise, and for unknown rewards."""
    state_ptr, horizon, rows, known_rewards = (
        problem.state_ptr, problem.horizon, problem.rows, problem.known_rewards,
    )  # fmt: skip
    move, rewards, spread, sampling = model.model, model.rewards, model.spread, model.sampling
    unknown, reward_spread, states = model.unknown, model.reward_spread, model.raw.shape[1]
    known = known_rewards.shape[0] > 0
    for s in range(states):
        values[horizon, s] = 0.0
    for h in range(horizon - 1, -1, -1):
        left = float(horizon - h)
        base_row = h * rows if problem.slots > 1 else 0
        for r in range(rows):
            c = base_row + r
            if spread[c] == np.inf or sampling[c] == np.inf:
                q[h, r] = left
                continue
            x = np.sqrt(sampling[c])
            mean = 0.0
            for s in range(states):
                mean += move[c, s] * values[h + 1, s]
            variance = 0.0
            norm = 0.0
            for s in range(states):
                d = values[h + 1, s] - mean
                variance += move[c, s] * (d * d)
                norm += d * d
            bonus = stat * (np.sqrt(max(0.0, variance)) * x + left * (x * x))
            bonus += privacy * spread[c] * np.sqrt(norm)
            if known:
                reward = known_rewards[h, r]
            else:
                reward = min(1.0, rewards[c] + _HOPE * unknown[c])
                bonus += stat * np.sqrt(reward * (1.0 - reward)) * x + privacy * reward_spread[c]
            q[h, r] = min(left, reward + mean + bonus)
        _best(state_ptr, h, q, values)


@inlined
def _middle(values: Floats, h: int) -> tuple[float, float]:
    """Return mean and standard deviation of values[h] over states, each counted once."""
    states = values.shape[1]
    centre, square = 0.0, 0.0
    for s in range(states):
        centre += values[h, s] / states
    for s in range(states):
        square += (values[h, s] - centre) * (values[h, s] - centre) / states
    return centre, np.sqrt(square)


@inlined
def _next(model: Cells, c: int, values: Floats, h: int, centre: float) -> tuple[float, float, float]:
    """Return the mean of values[h] after a visit to the cell, and its stds by sampling and by noise.

    One visit with a uniform successor is added to the row (w = x^2 / (1 + x^2) of the mass, x^2 = 1 /
    effective visits).
    """
    move, sampling, states = model.model, model.sampling[c], model.model.shape[1]
    w = sampling / (1.0 + sampling)
    expected = 0.0
    for s in range(states):
        expected += move[c, s] * values[h, s]
    mean = (1.0 - w) * expected + w * centre
    variance = 0.0
    norm = 0.0
    for s in range(states):
        d = values[h, s] - expected
        norm += d * d
        d = values[h, s] - mean
        variance += ((1.0 - w) * move[c, s] + w / states) * (d * d)
    x = np.sqrt(sampling / (1.0 + 2.0 * sampling))
    return mean, np.sqrt(variance) * x, model.spread[c] * np.sqrt(norm)


@inlined
def _explore(problem: Problem, width: float, model: Cells, z: Floats, values: Floats, q: Floats) -> None:
    """Draw once from the approximate posterior: backward induction, errors shared by a pair's steps.

    Per pair five standard normal variables z (R, 5) perturb the next value by sampling, by noise, and by the
    hidden part of the row, and the reward by its data and by other pairs. ``width`` multiplies the parts
    estimated from data; parts without data are drawn at least at their full width. The reward of a pair
    without data has mean 1/2 per step.
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
        centre, wide = _middle(values, h + 1)
        for r in range(rows):
            c = base_row + r
            if spread[c] == np.inf or sampling[c] == np.inf:
                q[h, r] = left * min(1.0, max(0.0, 0.5 + 0.5 * z[r, 0]))
                continue
            mean, by_sampling, by_noise = _next(model, c, values, h + 1, centre)
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
def _hope_for(
    problem: Problem, width: float, carried: float, seeks: bool, model: Cells, values: Floats, q: Floats
) -> None:
    """Plan with the upper end of the approximate posterior: ``width`` standard deviations above the mean.

    A draw is high for one pair and low for the next, and rarely reaches the end of several unknown pairs. The
    optimistic explorer returns to the same pairs until data refute them. Errors of many steps do not all have
    one sign. Therefore only the part ``carried`` of a cell's bonus counts at the step before; this part leads
    to pairs behind several untried steps. If it is 0, only single deviations from the greedy policy are
    tried, so that wrong estimates of these are tested at once. If no policy can be better within that width,
    it plays the greedy policy: in a known environment it costs nothing. A cell without data has reward 1 per
    step.

    Without users, or with so few that noise hides them, the estimate is the usual value of other rows. It
    never gives a reason to go there, although the largest reward may be there. With ``seeks`` a row whose
    visits are below their noise has value 1 per step, there and at earlier steps. This value has the weight
    x^2 / (x^2 + 0.15^2), which falls as visits rise, with x = (noise / visits)^2. Without noise nothing is
    hidden.

    The rewards of few visits may all be low by chance, and then the estimated standard deviation is too
    small. Five pseudo-visits (``_LUCKY``) of reward 1 are added to every cell, with weight 5 / (n + 5) at n
    visits.
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
        centre, wide = _middle(values, h + 1)
        for s in range(values.shape[1]):
            values[h, s] = 0.0
            for r in range(state_ptr[s], state_ptr[s + 1]):
                c = base_row + r
                worth, hope, dark = 0.0, left, 0.0
                if spread[c] < np.inf and sampling[c] < np.inf:
                    mean, by_sampling, by_noise = _next(model, c, values, h + 1, centre)
                    square = width * width * (by_sampling**2 + by_noise**2 + (hidden[c] * wide) ** 2)
                    if known:
                        reward = known_rewards[h, r]
                    else:
                        reward = rewards[c]
                        lucky = _LUCKY * few[c] / (1.0 + _LUCKY * few[c])
                        more = width * np.sqrt(reward_spread[c] ** 2 + unknown[c] ** 2)
                        more += lucky * (1.0 - reward)
                        square += min(1.0 - reward, more) ** 2
                    worth, hope = reward + mean, np.sqrt(square)
                    if seeks:
                        x2 = (values.shape[1] * spread[c] * spread[c]) ** 2
                        dark = x2 / (x2 + _HIDDEN * _HIDDEN) * max(0.0, left - worth)
                q[h, r] = min(left, worth + max(hope, dark))
                values[h, s] = max(values[h, s], min(left, worth + max(carried * hope, dark)))


@inlined
def _flow(problem: Problem, predict: bool, first: bool, sums: Sums, model: Cells, scratch: Floats) -> None:
    """Write expected visits to ``model.expected``: average policy in a rough model, else positive counts.

    ``first`` : the pooled family holds a user's first visits to each state.
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
    # rough rows: pooled over steps by totals, one projection each
    rough = scratch[2 * states : (2 + rows) * states].reshape(rows, states)
    for r in range(rows):
        for s in range(states):
            rough[r, s] = 0.0
    for r in range(rows):
        n = 0.0
        v = 0.0
        for t in range(slots):
            c = t * rows + r
            if total[c] > 0.0:
                w = max(0.0, counts[c])
                w = w / (states * noise[c] * noise[c] + w + 1.0)
                n += w * counts[c]
                v += w * w * noise[c] * noise[c]
                for s in range(states):
                    rough[r, s] += w * raw[c, s]
        n = max(max(n, np.sqrt(states * v)), 1.0e-9)
        for s in range(states):
            rough[r, s] /= n
        _simplex(rough, r, rough, r)
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
                for k in range(states):
                    after[k] += here[s] * share * rough[r, k]
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


@inlined
def _simplex(v: Floats, i: int, x: Floats, j: int) -> None:
    """Set x[j] to the Euclidean projection of v[i] onto the probability simplex."""
    states = v.shape[1]
    high = v[i, 0]
    total = 0.0
    for s in range(states):
        high = max(high, v[i, s])
        total += v[i, s]
    theta = _level(v, i, 1.0, max(high - 1.0, (total - 1.0) / states))
    for s in range(states):
        excess = v[i, s] - theta
        x[j, s] = excess if excess > 0.0 else 0.0
