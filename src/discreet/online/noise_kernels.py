r"""Compiled planning of the noise-aware learner: a model from independent noisy measurements.

Each release i brings a measurement y_i = a sum_{j<=i} lambda^{i-j} x_j + z_i of the batches x_j of users,
with fresh noise z_i of known standard deviation sigma_i (lambda = 0, a = 1: the batch itself). Where
the policies are public and deterministic, so is the number N_j(h, s, a) of users who were *assigned*
the action at (h, s) in batch j. With m_i = lambda m_{i-1} + N_i the measurement's mean is a m_i p for a
visit rate p, its variance about sigma_i^2 + v m_i, and generalised least squares gives

    x^ = N_total / (a sum_i w_i m_i) * sum_i w_i y_i,     w_i = m_i / (sigma_i^2 + v m_i):

noise from releases in which the action was not played has weight 0. Without noise x^ is the plain sum.

A family pooled over steps (``counts.POOLED_TRANSITIONS``) is one slot more: its N_j(s, a) is the sum of the
N_j(h, s, a), and its row is one more measurement of the average over steps, with noise of its own.

One call is: make the measurement's counts obey the flow of people (``_consistent``; where they all have one
noise and one clock), take it in (``_absorb``), weigh all of them (``_weigh``), predict visits
(``_flow``) and weigh them against the counts (``_visits``), per row pool the steps (``_pool``), find the
variation over steps (``_variation``) and the law of mean rewards over pairs (``_learn_prior``), say what is
believed of every step's reward (``_believe``), shrink its row (``_shrink``), plan (``_induct``), and draw
what the explorers act on (``_explore``).
Everything is a stream of sums per cell: no history is kept. All of it is post-processing, and the
intervals are heuristic: weights and rows come from the same noisy data.

Randomized reports of random steps (local privacy) have a noise of two parts: n idle + x visit for a count of
x among n users who were assigned the cell. The second is that of a sample of x / (1 + visit) records, and
so all counts are kept in this unit; the first is the noise, per assigned user.

Source: privacy-mechanisms, sections 2.1 (generalised least squares), 2.3 (flow consistency), 2.4 (bonus from
the noise law), 2.5 (empirical-Bayes sharing over steps); the weights of the pooling by predicted visits are
ours.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.estimation.consistency_kernels import project_flow
from discreet.estimation.consistency_kernels import work_size as flow_work_size
from discreet.estimation.kernels import _level
from discreet.numerics.compile import inlined, kernel
from discreet.numerics.streams_kernels import ROLE_EXPLORE, log, normal, open_stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# knobs
(STAT, PRIVACY, SHRINK, CENTERED, EXCESS, FLOW, FIRST, CONSISTENT, KNOBS) = range(9)
# errors: standard deviation of one cell of the measurement's transitions, of its rewards; decay, gain a
# then the two standard deviations of the pooled families. Of randomized reports (INFLATION > 0): SIGMAs per
# square root of a user who was assigned the cell, 1 + what a record adds to the variance of its count, and
# what it adds to that of a reward sum
(SIGMA_T, SIGMA_R, DECAY, GAIN, POOLED_SIGMA_T, POOLED_SIGMA_R, INFLATION, REWARD_VISIT, ERRORS) = range(9)
# what pooling says of one row: noise std of an entry, sampling variance, mean reward, variance over steps (of
# the row, summed over entries; of the reward), 1 if there is anything to pool, the share of the row that
# noise hides; sum of rewards, visits behind it, variance of the sum
(POOL_STD, POOL_SAMPLING, POOL_REWARD, VARIATION, REWARD_VARIATION, POOLED, POOL_MISSING, POOL_SUM, POOL_MASS,
 POOL_VARIANCE, FACTS) = range(11)  # fmt: skip
# what is believed of the mean reward of a pair that nobody has seen: mean and standard deviation over pairs
(PRIOR_MEAN, PRIOR_STD, PRIOR_WEIGHT, PRIOR_SUM, PRIOR_SQUARES, PRIOR) = range(6)


_CLEARLY = 5.0  # standard deviations of the rows' joint excess; noise that is not normal has longer tails
_MOST_FLOW = 2.0  # standard deviations of a count by which predicted visits may exceed it
_FLOW_ERROR = 1.0  # relative standard deviation of visits that a rough model predicts
_HOPE = 0.6  # standard deviations over pairs that optimism adds where nothing is known of a reward
_WIDTH = 0.3  # of an explorer's draws, times sqrt(ln(1 + users))
_LEAST_PRIOR = 1.0e-4  # variance of mean rewards over pairs, at least
_LEAST_VARIANCE = 1.0e-12  # of a sum of rewards
_DRAWS = 5  # normal variables of a pair
_HOLD = 2  # releases that an explorer keeps its normal variables for: noisy counts add up
_KNOWN = 0.04  # variance of a mean reward at which it counts half in what is believed of others
_SAMPLING = 0.2  # v: variance of a count per user behind it, of the order of a visit's


class Sums(NamedTuple):
    """What is carried, per cell (slot, row); a last slot holds the family pooled over steps."""

    pending: Floats  # users assigned since the last release
    filtered: Floats  # m
    total: Floats  # N_total
    exposure: Floats  # sum w m
    noise: Floats  # sum w^2 sigma^2, of transitions
    reward_noise: Floats
    sampling: Floats  # sum w^2 m
    rewards: Floats  # sum w y
    moves: Floats  # (cells, S) sum w y


class Cells(NamedTuple):
    """The model, per cell, made anew at every release."""

    counts: Floats  # visits
    rewards: Floats  # their sum; after shrinking: the mean
    noise: Floats  # std of the noise in one entry of raw, and in rewards
    reward_noise: Floats
    sampling: Floats  # 1 / effective sample size, times visits; after shrinking: 1 / effective sample size
    spread: Floats  # std of one entry of the model's row, and of the mean reward, from noise
    reward_spread: Floats
    expected: Floats  # visits that the public policies lead to
    visits: Floats  # from counts and flow, each by its precision
    missing: Floats  # share of the row that noise hides, in [0, 1]
    unknown: Floats  # std of what is believed of the mean reward that comes from other pairs, not from data
    raw: Floats  # (cells, S) transitions
    model: Floats  # (cells, S)


def all_cells(slots: int, rows: int, pooled: bool) -> int:
    """Cells with the pooled slot."""
    return (slots + int(pooled)) * rows


def memory_size(cells: int, states: int) -> int:
    """Floats that are carried."""
    return cells * (8 + states)


def work_size(cells: int, rows: int, states: int) -> int:
    """Floats of scratch that ``noise_aware_step`` needs."""
    flow = max((rows + 2) * states, flow_work_size(cells // rows, states), _DRAWS * rows + 2 * states)
    return cells * (2 * states + 11) + 2 * states + FACTS + PRIOR + flow


@kernel
def note_assignments(
    memory: Floats, slots: int, rows: int, pooled: bool, policy_rows: Ints, users: int
) -> None:
    """Count users who are assigned a deterministic policy: a public fact, before they act."""
    for h in range(policy_rows.shape[0]):
        base = h * rows if slots > 1 else 0
        for s in range(policy_rows.shape[1]):
            memory[base + policy_rows[h, s]] += users
            if pooled:
                memory[slots * rows + policy_rows[h, s]] += users


@inlined
def _sums(memory: Floats, cells: int, states: int) -> Sums:
    part = memory[: 8 * cells].reshape(8, cells)
    return Sums(
        part[0], part[1], part[2], part[3], part[4], part[5], part[6], part[7],
        memory[8 * cells :].reshape(cells, states),
    )  # fmt: skip


@inlined
def _cells(work: Floats, cells: int, states: int) -> Cells:
    part = work[: 11 * cells].reshape(11, cells)
    rows = work[11 * cells : (11 + 2 * states) * cells].reshape(2, cells, states)
    return Cells(
        part[0], part[1], part[2], part[3], part[4], part[5], part[6], part[7], part[8], part[9], part[10],
        rows[0], rows[1],
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
    due: Floats,
    memory: Floats,
    values: Floats,
    q: Floats,
    ties: NDArray[np.uint64],
    trials: Floats,
    work: Floats,
) -> None:
    """One measurement into the model, then optimistic backward induction, and the explorers' draws.

    transitions (T, R, S), reward_sums (T, R) : the newest measurement (rewards centred where
    knobs[CENTERED]); pooled_transitions (1, R, S), pooled_rewards (1, R) : of the pooled families, or without
    any cell; errors : see the names above; due (T R,) : 0 where a row was not measured, empty if all were;
    memory : carried, zeros at number 0; values (H + 1, S),
    q (H, R), trials (E, H, R) : overwritten, by the optimistic and by each explorer's Q; ties : key of the
    public coins.
    """
    slots, rows, states = transitions.shape
    pooled = pooled_transitions.shape[0] > 0
    cells = (slots + 1) * rows if pooled else slots * rows
    known = known_rewards.shape[0] > 0
    sums, model = _sums(memory, cells, states), _cells(work, cells, states)
    at = cells * (2 * states + 11)
    pool = work[at : at + states].reshape(1, states)
    scratch = work[at + states : at + 2 * states].reshape(1, states)
    facts = work[at + 2 * states : at + 2 * states + FACTS]
    prior = work[at + 2 * states + FACTS : at + 2 * states + FACTS + PRIOR]
    flow_scratch = work[at + 2 * states + FACTS + PRIOR :]
    if number == 0:
        for c in range(memory.shape[0]):
            memory[c] = 0.0
    else:
        steps = slots * rows
        moves, sigma = transitions.reshape(steps, states), errors[SIGMA_T]
        one_noise = sigma > 0.0 and errors[INFLATION] == 0.0 and due.shape[0] == 0
        if knobs[CONSISTENT] > 0.0 and one_noise and slots == horizon:
            left = _consistent(
                sums, model, horizon, state_ptr, errors[DECAY], errors[GAIN], moves, flow_scratch
            )
            moves, sigma = model.raw[:steps], sigma * np.sqrt(left)
        _absorb(
            sums, 0, sigma, errors[SIGMA_R], errors[DECAY], errors[INFLATION], due, moves,
            reward_sums.reshape(steps), known,
        )  # fmt: skip
        if pooled:
            _absorb(
                sums, steps, errors[POOLED_SIGMA_T], errors[POOLED_SIGMA_R], errors[DECAY], 0.0, due[:0],
                pooled_transitions.reshape(rows, states),
                pooled_rewards.reshape(pooled_rewards.shape[0] * pooled_rewards.shape[1]), known,
            )  # fmt: skip
    _weigh(sums, model, errors[GAIN], 0.5 * knobs[CENTERED], errors[INFLATION], errors[REWARD_VISIT])
    _flow(
        knobs[FLOW] > 0.0, state_ptr, horizon, slots, rows, knobs[FIRST] > 0.0, model.counts, sums.total,
        model.raw, model.noise, model.expected, flow_scratch,
    )  # fmt: skip
    _visits(model, 0.0 if known else 0.5 * knobs[CENTERED], knobs[FLOW] > 0.0 and slots > 1)
    shrink = knobs[SHRINK] > 0.0 and slots > 1
    # first the world as a whole: if its rows together clearly vary, each row needs less to be believed
    together = 0.0
    judged = 0
    prior[PRIOR_WEIGHT], prior[PRIOR_SUM], prior[PRIOR_SQUARES] = 1.0, 0.5, 0.5  # one pair: nothing or all
    for r in range(rows):
        _pool(sums, model, shrink, slots, rows, r, pool, scratch, facts)
        if facts[POOLED] > 0.0:
            _learn_prior(prior, facts[POOL_SUM], facts[POOL_MASS], facts[POOL_VARIANCE])
            together += _variation(sums, model, knobs[EXCESS], slots, rows, r, pool, facts)
            judged += 1
        else:
            for t in range(slots):
                c = t * rows + r
                if sums.exposure[c] > 0.0:
                    _learn_prior(prior, model.rewards[c], model.visits[c], _cell_variance(model, c))
    _settle_prior(prior)
    excess = knobs[EXCESS]
    if together > _CLEARLY * np.sqrt(np.float64(judged)):
        excess = min(1.0, excess)
    for r in range(rows):
        _pool(sums, model, shrink, slots, rows, r, pool, scratch, facts)
        if facts[POOLED] > 0.0:
            _variation(sums, model, excess, slots, rows, r, pool, facts)
        for t in range(slots):
            if not known:  # before the row is shrunk: it reads how much a visit weighs
                _believe(sums, model, t * rows + r, facts, prior)
            _shrink(sums, model, t * rows + r, pool, scratch, facts)
    _induct(knobs, state_ptr, horizon, slots, rows, known_rewards, model, values, q)
    width = _WIDTH * np.sqrt(log(1.0 + users))
    coins = np.empty(4, np.uint64)
    for e in range(trials.shape[0]):
        open_stream(ties, ROLE_EXPLORE, number // _HOLD, e, coins)
        _explore(width, state_ptr, horizon, slots, rows, known_rewards, model, coins, flow_scratch, trials[e])


@inlined
def _consistent(
    sums: Sums,
    model: Cells,
    horizon: int,
    state_ptr: Ints,
    decay: float,
    gain: float,
    moves: Floats,
    work: Floats,
) -> float:
    """The measurement's transitions, projected onto the flow of people, into ``model.raw``.

    Total and active rows are public: how many users the measurement reflects, and which actions they were
    assigned. Returns the share of the noise's variance that is left on average.
    """
    pending, filtered, active, raw = sums.pending, sums.filtered, model.counts, model.raw
    for c in range(moves.shape[0]):
        active[c] = decay * filtered[c] + pending[c]
        for s in range(moves.shape[1]):
            raw[c, s] = moves[c, s]
    users = 0.0
    for r in range(state_ptr[0], state_ptr[1]):  # all of them are assigned some action there
        users += active[r]
    return project_flow(horizon, state_ptr, gain * users, active, raw, work)


@inlined
def _absorb(
    sums: Sums,
    first: int,
    sigma: float,
    reward_sigma: float,
    decay: float,
    inflation: float,
    due: Floats,
    moves: Floats,
    rewards: Floats,
    known: bool,
) -> None:
    """Add the newest measurement of the cells from ``first`` on to their weighted sums."""
    pending, filtered, total, exposure = sums.pending, sums.filtered, sums.total, sums.exposure
    noise, reward_noise, sampling = sums.noise, sums.reward_noise, sums.sampling
    reward_acc, acc = sums.rewards, sums.moves
    square, reward_square = sigma * sigma, reward_sigma * reward_sigma
    reports = inflation > 0.0
    unit = 1.0 / inflation if reports else 1.0  # counts are kept in units of this
    per_user, per_user_reward = square, reward_square
    for i in range(moves.shape[0]):
        c = first + i
        if due.shape[0] > 0 and due[i] == 0.0:
            continue
        if reports:  # only users who were assigned the cell add noise to it
            square = per_user * pending[c] * unit * unit
            reward_square = per_user_reward * pending[c] * unit * unit
        m = decay * filtered[c] + pending[c] * unit
        filtered[c] = m
        total[c] += pending[c] * unit
        pending[c] = 0.0
        if m <= 0.0:
            continue
        w = m / (square + _SAMPLING * m)
        exposure[c] += w * m
        noise[c] += w * w * square
        reward_noise[c] += w * w * reward_square
        sampling[c] += w * w * m
        if not known:
            reward_acc[c] += w * (rewards[i] * unit)
        for s in range(moves.shape[1]):
            acc[c, s] += w * (moves[i, s] * unit)


@inlined
def _weigh(sums: Sums, model: Cells, gain: float, half: float, inflation: float, reward_visit: float) -> None:
    """Counts by generalised least squares, with the noise that is left in them."""
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
        # 1 / n under the weights, times n: 1 where all users weigh the same
        sampling[c] = sums.sampling[c] * total[c] / (exposure[c] * exposure[c])


@inlined
def _visits(model: Cells, half: float, predicted: bool) -> None:
    """Visits from noisy counts and from the predicted flow, each by its precision; rewards follow.

    A count is the sum of S noisy cells; the flow of public policies in a rough model is known to a factor. It
    is that of the average policy and knows nothing of who was where when: where an action became usual in a
    state that nobody reached any more, it would predict visits for ever. It is believed up to two standard
    deviations above the count. Centred sums of rewards are those of r - 1/2: half of the visits is theirs.
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
def _pool(
    sums: Sums,
    model: Cells,
    shrink: bool,
    slots: int,
    rows: int,
    r: int,
    pool: Floats,
    scratch: Floats,
    facts: Floats,
) -> None:
    """The row pooled over steps and over the pooled family, each by its precision.

    Where noise exceeds the visits, what is divided by is the noise, and the rest of the row is missing: it is
    spread evenly.
    """
    exposure, noise, expected, raw = sums.exposure, model.noise, model.expected, model.raw
    counts, rewards, sampling = model.counts, model.rewards, model.sampling
    states = raw.shape[1]
    for i in range(FACTS):
        facts[i] = 0.0
    facts[POOL_STD] = np.inf
    facts[POOL_SAMPLING] = np.inf
    if not shrink:
        return
    mass = 0.0
    reward_mass = 0.0
    sampled = 0.0
    variance = 0.0
    reward_variance = 0.0
    visits = 0.0
    visit_variance = 0.0
    for s in range(states):
        pool[0, s] = 0.0
    extra = 0.0  # weight that the pooled family gives to every record of a step
    c = slots * rows + r
    if c < counts.shape[0] and exposure[c] > 0.0:
        n = expected[c]
        extra = n / (states * noise[c] * noise[c] + n + 1.0)
    for t in range(slots + 1):  # the last is the pooled family
        c = t * rows + r
        if c >= counts.shape[0] or exposure[c] <= 0.0:
            continue
        g = noise[c]
        # precision of a ratio from a count n with noise g: n^2 / (g^2 + n); n itself is noisy
        n = expected[c]
        w = n / (states * g * g + n + 1.0)
        for s in range(states):
            pool[0, s] += w * raw[c, s]
        mass += w * model.visits[c]
        reward_mass += w * rewards[c]
        variance += w * w * g * g
        reward_variance += w * w * model.reward_noise[c] * model.reward_noise[c]
        if t < slots:  # records of the pooled family are those of the steps
            visits += model.visits[c]
            visit_variance += states * g * g
            sampled += (w + extra) * (w + extra) * max(n, model.visits[c]) * sampling[c]
    hidden = np.sqrt(states * variance)
    if mass <= 0.0 and hidden <= 0.0:
        return
    base = max(mass, hidden, 1.0e-9)
    for s in range(states):
        scratch[0, s] = pool[0, s] / base
    _simplex(scratch, 0, pool, 0)
    facts[POOLED] = 1.0
    facts[POOL_STD] = np.sqrt(variance) / base
    facts[POOL_SAMPLING] = max(
        sampled / (base * base), 1.0 / max(1.0, max(0.0, visits) + np.sqrt(visit_variance))
    )
    facts[POOL_REWARD] = min(1.0, max(0.0, reward_mass / base))
    facts[POOL_MISSING] = 1.0 - max(0.0, mass) / base
    facts[POOL_SUM], facts[POOL_MASS] = reward_mass, max(0.0, mass)
    facts[POOL_VARIANCE] = reward_variance + sampled * _of_reward(reward_mass, mass)


@inlined
def _variation(
    sums: Sums, model: Cells, excess: float, slots: int, rows: int, r: int, pool: Floats, facts: Floats
) -> float:
    """Variance over steps: what squared residuals exceed their noise, sampling, and chance by.

    Returns the excess of the transitions' residuals in standard deviations.
    """
    exposure, noise, expected, raw = sums.exposure, model.noise, model.expected, model.raw
    counts, rewards, reward_noise = model.counts, model.rewards, model.reward_noise
    states, mean = raw.shape[1], facts[POOL_REWARD]
    concentration = 0.0
    for s in range(states):
        concentration += pool[0, s] * pool[0, s]
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
        w = 1.0 / (states * g * g + n + 1.0)
        square = 0.0
        for s in range(states):
            d = raw[c, s] - counts[c] * pool[0, s]
            square += d * d
        usual = (states - 2.0 + states * concentration) * g * g + n * (1.0 - concentration)
        top += w * w * n * (square - usual)
        null += (w * w * n * usual) ** 2 * 2.0 / states
        bottom += w * w * n * n * n
        gr = reward_noise[c] * reward_noise[c] + mean * mean * states * g * g
        d = rewards[c] - model.visits[c] * mean
        w = 1.0 / (gr + n + 1.0)
        reward_top += w * w * n * (d * d - gr - n * mean * (1.0 - mean))
        reward_bottom += w * w * n * n * n
        reward_null += (w * w * n * (gr + 0.25 * n)) ** 2 * 2.0
    if bottom > 0.0:
        facts[VARIATION] = max(0.0, (top - excess * np.sqrt(null)) / bottom)
    if reward_bottom > 0.0:
        facts[REWARD_VARIATION] = max(0.0, (reward_top - excess * np.sqrt(reward_null)) / reward_bottom)
    return top / np.sqrt(null) if null > 0.0 else 0.0


@inlined
def _shrink(sums: Sums, model: Cells, c: int, pool: Floats, scratch: Floats, facts: Floats) -> None:
    """The row of one step: its own, moved towards the pooled one by the variation over steps."""
    raw, rows = model.raw, model.model
    states, have, seen = raw.shape[1], facts[POOLED] > 0.0, sums.exposure[c] > 0.0
    if not seen and not have:
        model.spread[c] = np.inf
        model.missing[c] = 1.0
        for s in range(states):
            rows[c, s] = 1.0 / states
        return
    own, base, missing = 0.0, 1.0, 0.0
    own_std, own_sampling = 0.0, 0.0  # multiplied by 0 where the step was not seen
    if seen:
        n, g = max(model.visits[c], 0.0), model.noise[c]
        hidden = np.sqrt(np.float64(states)) * g
        base = max(max(n, 1.0), hidden)
        missing = 1.0 - n / base
        own_std, own_sampling = g / base, max(model.sampling[c] / base, 1.0 / max(1.0, n + hidden))
        own = 1.0
        if have:
            tau2 = facts[VARIATION]
            s2 = (states * g * g + max(n, 1.0)) / (base * base)
            own = tau2 / (tau2 + s2) if tau2 + s2 > 0.0 else 1.0
    rest = 1.0 - own
    if own == 0.0:
        for s in range(states):
            rows[c, s] = pool[0, s]
        model.spread[c] = facts[POOL_STD]
        model.sampling[c] = facts[POOL_SAMPLING]
        model.missing[c] = facts[POOL_MISSING]
        return
    for s in range(states):
        scratch[0, s] = own * (raw[c, s] / base)
        if rest > 0.0:
            scratch[0, s] += rest * pool[0, s]
    _simplex(scratch, 0, rows, c)
    model.spread[c] = own * own_std
    model.sampling[c] = own * own * own_sampling
    model.missing[c] = own * missing
    if rest > 0.0:
        model.spread[c] = np.sqrt((own * own_std) ** 2 + (rest * facts[POOL_STD]) ** 2)
        model.sampling[c] += rest * rest * facts[POOL_SAMPLING]
        model.missing[c] += rest * facts[POOL_MISSING]


@inlined
def _of_reward(total: float, visits: float) -> float:
    """Variance of one visit's reward: that of a coin, one visit of mean 1/2 imagined."""
    mean = min(1.0, max(0.0, (total + 0.5) / (max(0.0, visits) + 1.0)))
    return mean * (1.0 - mean)


@inlined
def _cell_variance(model: Cells, c: int) -> float:
    """Variance of the sum of rewards of one cell: noise and sampling."""
    n, g = max(0.0, model.visits[c]), model.reward_noise[c]
    return g * g + n * model.sampling[c] * _of_reward(model.rewards[c], n)


@inlined
def _learn_prior(prior: Floats, total: float, visits: float, variance: float) -> None:
    """Add a pair with this sum of rewards over visits, weighed by how well its mean is known."""
    if visits <= 0.0 or variance == np.inf:
        return
    mean = min(1.0, max(0.0, total / visits))
    weight = 1.0 / (1.0 + variance / (visits * visits * _KNOWN))
    prior[PRIOR_WEIGHT] += weight
    prior[PRIOR_SUM] += weight * mean
    prior[PRIOR_SQUARES] += weight * mean * mean


@inlined
def _settle_prior(prior: Floats) -> None:
    """Mean and standard deviation of mean rewards over the pairs that were seen."""
    mean = prior[PRIOR_SUM] / prior[PRIOR_WEIGHT]
    prior[PRIOR_MEAN] = mean
    prior[PRIOR_STD] = np.sqrt(max(_LEAST_PRIOR, prior[PRIOR_SQUARES] / prior[PRIOR_WEIGHT] - mean * mean))


@inlined
def _believe(sums: Sums, model: Cells, c: int, facts: Floats, prior: Floats) -> None:
    """Mean reward of one step by Bayes' rule: other pairs, then the pooled steps, then the step itself.

    Each is a normal law; the step's own mean differs from the pooled one by the variation over steps. What
    is left of the first law's standard deviation is ``unknown``; the rest of the last one's is
    ``reward_spread``.
    """
    have, seen = facts[POOLED] > 0.0, sums.exposure[c] > 0.0
    mean, first = prior[PRIOR_MEAN], prior[PRIOR_STD] * prior[PRIOR_STD]
    variance = first
    if have:
        n, v = facts[POOL_MASS], max(facts[POOL_VARIANCE], _LEAST_VARIANCE)
        precision = n * n / v + 1.0 / variance
        mean = (n * facts[POOL_SUM] / v + mean / variance) / precision
        variance = 1.0 / precision
    if seen and (not have or facts[REWARD_VARIATION] > 0.0):
        n, v = max(0.0, model.visits[c]), max(_cell_variance(model, c), _LEAST_VARIANCE)
        variance += facts[REWARD_VARIATION]
        precision = n * n / v + 1.0 / variance
        mean = (n * model.rewards[c] / v + mean / variance) / precision
        variance = 1.0 / precision
    model.rewards[c] = min(1.0, max(0.0, mean))
    model.unknown[c] = min(1.0, variance / first) * np.sqrt(first)
    model.reward_spread[c] = np.sqrt(max(0.0, variance - model.unknown[c] ** 2))


@inlined
def _induct(
    knobs: Floats,
    state_ptr: Ints,
    horizon: int,
    slots: int,
    rows: int,
    known_rewards: Floats,
    model: Cells,
    values: Floats,
    q: Floats,
) -> None:
    """Optimistic backward induction: bonuses from sampling, from the noise law, and for unknown rewards."""
    move, rewards, spread, sampling = model.model, model.rewards, model.spread, model.sampling
    states, stat, privacy = move.shape[1], knobs[STAT], knobs[PRIVACY]
    known = known_rewards.shape[0] > 0
    for s in range(states):
        values[horizon, s] = 0.0
    for h in range(horizon - 1, -1, -1):
        left = float(horizon - h)
        base_row = h * rows if slots > 1 else 0
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
                reward = min(1.0, rewards[c] + _HOPE * model.unknown[c])
                bonus += stat * np.sqrt(reward * (1.0 - reward)) * x + privacy * model.reward_spread[c]
            q[h, r] = min(left, reward + mean + bonus)
        for s in range(states):
            best = q[h, state_ptr[s]]
            for r in range(state_ptr[s] + 1, state_ptr[s + 1]):
                best = q[h, r] if q[h, r] > best else best
            values[h, s] = best


@inlined
def _explore(
    width: float,
    state_ptr: Ints,
    horizon: int,
    slots: int,
    rows: int,
    known_rewards: Floats,
    model: Cells,
    coins: NDArray[np.uint64],
    work: Floats,
    q: Floats,
) -> None:
    """One draw from what is believed: backward induction with errors that all steps of a pair share.

    Per pair five standard normal variables: of the next value by sampling, by noise, and where the row is
    hidden; of the reward by its data, and by other pairs'. To the data of a row one visit is added that leads
    anywhere (w = x^2 / (1 + x^2) of the mass, x^2 = 1 / effective visits). ``width`` multiplies what comes
    from data; what comes from none is drawn at its full width at least. A pair without any data earns 1/2 a
    step, give or take.
    """
    move, spread, sampling = model.model, model.spread, model.sampling
    states, full = move.shape[1], max(1.0, width)
    known = known_rewards.shape[0] > 0
    z = work[: _DRAWS * rows].reshape(rows, _DRAWS)
    at = _DRAWS * rows
    after, here = work[at : at + states], work[at + states : at + 2 * states]
    for r in range(rows):
        for i in range(_DRAWS):
            z[r, i] = normal(coins)
    for s in range(states):
        after[s] = 0.0
    for h in range(horizon - 1, -1, -1):
        left = float(horizon - h)
        base_row = h * rows if slots > 1 else 0
        centre, wide = 0.0, 0.0
        for s in range(states):
            centre += after[s] / states
        for s in range(states):
            wide += (after[s] - centre) * (after[s] - centre) / states
        for r in range(rows):
            c = base_row + r
            if spread[c] == np.inf or sampling[c] == np.inf:
                q[h, r] = left * min(1.0, max(0.0, 0.5 + 0.5 * z[r, 0]))
                continue
            w = sampling[c] / (1.0 + sampling[c])
            expected = 0.0
            for s in range(states):
                expected += move[c, s] * after[s]
            mean = (1.0 - w) * expected + w * centre
            variance = 0.0
            norm = 0.0
            for s in range(states):
                d = after[s] - expected
                norm += d * d
                d = after[s] - mean
                variance += ((1.0 - w) * move[c, s] + w / states) * (d * d)
            x = np.sqrt(sampling[c] / (1.0 + 2.0 * sampling[c]))
            value = mean + width * (np.sqrt(variance) * x * z[r, 0] + spread[c] * np.sqrt(norm) * z[r, 1])
            value += full * model.missing[c] * np.sqrt(wide) * z[r, 2]
            if known:
                reward = known_rewards[h, r]
            else:
                reward = width * model.reward_spread[c] * z[r, 3] + full * model.unknown[c] * z[r, 4]
                reward = min(1.0, max(0.0, model.rewards[c] + reward))
            q[h, r] = min(left, max(0.0, reward + value))
        for s in range(states):
            best = q[h, state_ptr[s]]
            for r in range(state_ptr[s] + 1, state_ptr[s + 1]):
                best = q[h, r] if q[h, r] > best else best
            here[s] = best
        for s in range(states):
            after[s] = here[s]


@inlined
def _flow(
    predict: bool,
    state_ptr: Ints,
    horizon: int,
    slots: int,
    rows: int,
    first: bool,
    counts: Floats,
    total: Floats,
    raw: Floats,
    noise: Floats,
    expected: Floats,
    scratch: Floats,
) -> None:
    """Expected visits per cell: of the average policy in a rough model; else positive counts.

    ``first`` : the pooled family holds a user's first visits to each state.
    """
    states = state_ptr.shape[0] - 1
    for c in range(expected.shape[0]):
        expected[c] = max(0.0, counts[c])
    if not predict or slots == 1:
        return
    here, after = scratch[:states], scratch[states : 2 * states]
    for s in range(states):
        here[s] = 0.0
    users = 0.0
    for r in range(state_ptr[0], state_ptr[1]):
        users += total[r]
    if users <= 0.0:
        return
    mass = 0.0
    for s in range(states):
        for r in range(state_ptr[s], state_ptr[s + 1]):
            here[s] += max(0.0, counts[r] - noise[r])
        mass += here[s]
    for s in range(states):
        here[s] = here[s] / mass if mass > 0.0 else 1.0 / states
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
            mine = here[s] + 0.05 / states
            for r in range(state_ptr[s], state_ptr[s + 1]):
                share = total[base + r] / users
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
    """x[j] = Euclidean projection of v[i] onto the probability simplex."""
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
