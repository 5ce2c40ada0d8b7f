r"""Compiled planning of the noise-aware learner: a model from independent noisy measurements.

Each release i brings a measurement y_i = a sum_{j<=i} lambda^{i-j} x_j + z_i of the batches x_j of users,
with fresh noise z_i of known standard deviation sigma_i (lambda = 0, a = 1: the batch itself). Where
the policies are public and deterministic, so is the number N_j(h, s, a) of users who were *assigned*
the action at (h, s) in batch j. With m_i = lambda m_{i-1} + N_i the measurement's mean is a m_i p for a
visit rate p, its variance about sigma_i^2 + v m_i, and generalised least squares gives

    x^ = N_total / (a sum_i w_i m_i) * sum_i w_i y_i,     w_i = m_i / (sigma_i^2 + v m_i):

noise from releases in which the action was not played has weight 0. Without noise x^ is the plain sum.
Everything is a stream of sums per cell: no history is kept. All of it is post-processing, and the
intervals are heuristic: weights and rows come from the same noisy data.

Randomized reports of random steps (local privacy) have a noise of two parts: n idle + x visit for a count of
x among n users who were assigned the cell. The second is that of a sample of x / (1 + visit) records, and
so all counts are kept in this unit; the first is the noise, per assigned user.

Source: privacy-mechanisms, sections 2.1 (generalised least squares), 2.4 (bonus from the noise law),
2.5 (empirical-Bayes sharing over steps); the weights of the pooling by predicted visits are ours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.estimation.kernels import _level
from discreet.numerics.compile import inlined, kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# knobs
(STAT, PRIVACY, SHRINK, CENTERED, EXCESS, FLOW, KNOBS) = range(7)
# errors: standard deviation of one cell of the measurement's transitions, of its rewards; decay, gain a
# of randomized reports (INFLATION > 0): SIGMAs per square root of a user who was assigned the cell, 1 +
# what a record adds to the variance of its count, and what it adds to that of a reward sum
(SIGMA_T, SIGMA_R, DECAY, GAIN, INFLATION, REWARD_VISIT, ERRORS) = range(7)


_SAMPLING = 0.2  # v: variance of a count per user behind it, of the order of a visit's


def memory_size(slots: int, rows: int, states: int) -> int:
    """Floats that are carried: per cell the users assigned, their filter and total, sums of weights, sums."""
    return slots * rows * (8 + states)


def work_size(slots: int, rows: int, states: int) -> int:
    """Floats of scratch that ``noise_aware_step`` needs."""
    return slots * rows * (2 * states + 8) + 2 * states + (rows + 2) * states


@kernel
def note_assignments(memory: Floats, slots: int, rows: int, policy_rows: Ints, users: int) -> None:
    """Count users who are assigned a deterministic policy: a public fact, before they act."""
    for h in range(policy_rows.shape[0]):
        base = h * rows if slots > 1 else 0
        for s in range(policy_rows.shape[1]):
            memory[base + policy_rows[h, s]] += users


@kernel
def noise_aware_step(
    knobs: Floats,
    state_ptr: Ints,
    horizon: int,
    number: int,
    transitions: Floats,
    reward_sums: Floats,
    known_rewards: Floats,
    errors: Floats,
    due: Floats,
    memory: Floats,
    values: Floats,
    q: Floats,
    work: Floats,
) -> None:
    """One measurement into the model, then optimistic backward induction.

    transitions (T, R, S), reward_sums (T, R) : the newest measurement (rewards centred where
    knobs[CENTERED]); errors : see the names above; due (T R,) : 0 where a row was not measured, empty if all
    were; memory : carried, set up at number 0;
    values (H + 1, S), q (H, R) : overwritten.
    """
    slots, rows, states = transitions.shape
    cells = slots * rows
    pending = memory[:cells]  # users assigned since the last release
    filtered = memory[cells : 2 * cells]  # m
    total = memory[2 * cells : 3 * cells]  # N_total
    exposure = memory[3 * cells : 4 * cells]  # sum w m
    noise_sum = memory[4 * cells : 5 * cells]  # sum w^2 sigma^2, of transitions
    reward_noise_sum = memory[5 * cells : 6 * cells]
    sampling_sum = memory[6 * cells : 7 * cells]  # sum w^2 m
    reward_acc = memory[7 * cells : 8 * cells]
    acc = memory[8 * cells :].reshape(cells, states)
    moves = transitions.reshape(cells, states)
    rewards_in = reward_sums.reshape(cells)
    known = known_rewards.shape[0] > 0
    if number == 0:
        for c in range(memory.shape[0]):
            memory[c] = 0.0
    else:
        decay, square = errors[DECAY], errors[SIGMA_T] * errors[SIGMA_T]
        reward_square = errors[SIGMA_R] * errors[SIGMA_R]
        reports = errors[INFLATION] > 0.0
        unit = 1.0 / errors[INFLATION] if reports else 1.0  # counts are kept in units of this
        per_user, per_user_reward = square, reward_square
        for c in range(cells):
            if due.shape[0] > 0 and due[c] == 0.0:
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
            noise_sum[c] += w * w * square
            reward_noise_sum[c] += w * w * reward_square
            sampling_sum[c] += w * w * m
            if not known:
                reward_acc[c] += w * (rewards_in[c] * unit)
            for s in range(states):
                acc[c, s] += w * (moves[c, s] * unit)

    # ---------------------------------------------------------------- weighted counts, per cell
    at = 0
    counts = work[at : at + cells]
    at += cells
    rewards = work[at : at + cells]
    at += cells
    noise_t = work[at : at + cells]
    at += cells
    noise_r = work[at : at + cells]
    at += cells
    sampling = work[at : at + cells]  # 1 / effective sample size
    at += cells
    spread = work[at : at + cells]  # std of one entry of the row, from noise
    at += cells
    reward_spread = work[at : at + cells]
    at += cells
    model = work[at : at + cells * states].reshape(cells, states)
    at += cells * states
    raw = work[at : at + cells * states].reshape(cells, states)
    at += cells * states
    pooled = work[at : at + states].reshape(1, states)
    at += states
    scratch = work[at : at + states].reshape(1, states)
    at += states
    gain = errors[GAIN]
    half = 0.5 * knobs[CENTERED]
    for c in range(cells):
        if exposure[c] <= 0.0:
            counts[c] = 0.0
            noise_t[c] = np.inf
            noise_r[c] = np.inf
            sampling[c] = np.inf
            rewards[c] = 0.0
            for s in range(states):
                raw[c, s] = 0.0
            continue
        weight = total[c] / (gain * exposure[c])
        noise_t[c] = weight * np.sqrt(noise_sum[c])
        noise_r[c] = weight * np.sqrt(reward_noise_sum[c])
        n = 0.0
        for s in range(states):
            raw[c, s] = weight * acc[c, s]
            n += raw[c, s]
        counts[c] = n
        if errors[INFLATION] > 0.0:
            inflated = errors[REWARD_VISIT] / errors[INFLATION] * max(n, 0.0)
            noise_r[c] = np.sqrt(noise_r[c] * noise_r[c] + inflated)
        rewards[c] = weight * reward_acc[c] + half * n
        # 1 / n under the weights, times n: 1 where all users weigh the same
        sampling[c] = sampling_sum[c] * total[c] / (exposure[c] * exposure[c])

    # ------------------------------------------------- visits that the public policies lead to
    expected = work[at : at + cells]
    at += cells
    flow_scratch = work[at : at + (rows + 2) * states]
    _flow(
        knobs[FLOW] > 0.0,
        state_ptr,
        horizon,
        slots,
        rows,
        counts,
        total,
        raw,
        noise_t,
        expected,
        flow_scratch,
    )

    # -------------------------------------------------- rows: own, pooled over steps, shrunk to it
    shrink = knobs[SHRINK]
    for r in range(rows):
        mass = 0.0
        reward_mass = 0.0
        pooled_n = 0.0
        pooled_v = 0.0
        pooled_rv = 0.0
        for s in range(states):
            pooled[0, s] = 0.0
        for t in range(slots):
            c = t * rows + r
            if exposure[c] <= 0.0:
                continue
            g = noise_t[c]
            # precision of a ratio from a count n with noise g: n^2 / (g^2 + n); n itself is noisy
            n = expected[c]
            w = n / (states * g * g + n + 1.0)
            for s in range(states):
                pooled[0, s] += w * raw[c, s]
            mass += w * counts[c]
            reward_mass += w * rewards[c]
            pooled_v += w * w * g * g
            pooled_rv += w * w * noise_r[c] * noise_r[c]
            pooled_n += w * w * n * sampling[c]
        have = shrink > 0.0 and slots > 1 and mass > 0.0
        share = 0.0  # variance of p_h over steps, per row, above noise
        pool_std = np.inf
        pool_reward_std = np.inf
        pool_sampling = np.inf
        pool_reward = 0.0
        reward_share = 0.0
        if have:
            base = max(mass, np.sqrt(states * pooled_v), 1.0e-9)
            for s in range(states):
                scratch[0, s] = pooled[0, s] / base
            _simplex(scratch, 0, pooled, 0)
            pool_std = np.sqrt(pooled_v) / base
            pool_reward_std = np.sqrt(pooled_rv) / base
            pool_sampling = pooled_n / (base * base)
            pool_reward = min(1.0, max(0.0, reward_mass / base))
            concentration = 0.0
            for s in range(states):
                concentration += pooled[0, s] * pooled[0, s]
            top = 0.0
            bottom = 0.0
            null = 0.0
            reward_null = 0.0
            reward_top = 0.0
            reward_bottom = 0.0
            for t in range(slots):
                c = t * rows + r
                if exposure[c] <= 0.0:
                    continue
                n = expected[c]
                g = noise_t[c]
                w = 1.0 / (states * g * g + n + 1.0)
                square = 0.0
                for s in range(states):
                    d = raw[c, s] - counts[c] * pooled[0, s]
                    square += d * d
                usual = (states - 2.0 + states * concentration) * g * g + n * (1.0 - concentration)
                top += w * w * n * (square - usual)
                null += (w * w * n * usual) ** 2 * 2.0 / states
                bottom += w * w * n * n * n
                gr = noise_r[c] * noise_r[c] + pool_reward * pool_reward * states * g * g
                d = rewards[c] - counts[c] * pool_reward
                w = 1.0 / (gr + n + 1.0)
                reward_top += w * w * n * (d * d - gr - n * pool_reward * (1.0 - pool_reward))
                reward_bottom += w * w * n * n * n
                reward_null += (w * w * n * (gr + 0.25 * n)) ** 2 * 2.0
            z = knobs[EXCESS]
            share = max(0.0, (top - z * np.sqrt(null)) / bottom) if bottom > 0.0 else 0.0
            reward_share = 0.0
            if reward_bottom > 0.0:
                reward_share = max(0.0, (reward_top - z * np.sqrt(reward_null)) / reward_bottom)
        for t in range(slots):
            c = t * rows + r
            own = 1.0
            own_r = 1.0
            n = max(counts[c], 0.0)
            g = noise_t[c]
            base = max(n, 1.0)
            if exposure[c] > 0.0:
                base = max(base, np.sqrt(np.float64(states)) * g)
                own_std = g / base
                own_reward_std = noise_r[c] / base
                own_sampling = sampling[c] / base
                if have:
                    s2 = (states * g * g + max(n, 1.0)) / (base * base)
                    own = share / (share + s2) if share + s2 > 0.0 else 1.0
                    s2 = (noise_r[c] * noise_r[c] + 0.25 * max(n, 1.0)) / (base * base)
                    own_r = reward_share / (reward_share + s2) if reward_share + s2 > 0.0 else 1.0
                    own = 1.0 + shrink * (own - 1.0)
                    own_r = 1.0 + shrink * (own_r - 1.0)
            else:
                own_std = np.inf
                own_reward_std = np.inf
                own_sampling = np.inf
                if have:
                    own = 0.0
                    own_r = 0.0
            if own == 0.0:
                for s in range(states):
                    model[c, s] = pooled[0, s]
                spread[c] = pool_std
                sampling[c] = pool_sampling
            elif not have:
                if own_std == np.inf:
                    spread[c] = np.inf
                    for s in range(states):
                        model[c, s] = 1.0 / states
                else:
                    for s in range(states):
                        scratch[0, s] = raw[c, s] / base
                    _simplex(scratch, 0, model, c)
                    spread[c] = own_std
                    sampling[c] = own_sampling
            else:
                for s in range(states):
                    scratch[0, s] = own * (raw[c, s] / base) + (1.0 - own) * pooled[0, s]
                _simplex(scratch, 0, model, c)
                rest = 1.0 - own
                spread[c] = np.sqrt(own * own * own_std * own_std + rest * rest * pool_std * pool_std)
                sampling[c] = own * own * own_sampling + rest * rest * pool_sampling
            if own_r == 0.0:
                rewards[c] = pool_reward
                reward_spread[c] = pool_reward_std
            elif own_reward_std == np.inf:
                rewards[c] = 1.0
                reward_spread[c] = np.inf
            else:
                rest = 1.0 - own_r if have else 0.0
                estimate = min(1.0, max(0.0, rewards[c] / base))
                rewards[c] = estimate if rest == 0.0 else own_r * estimate + rest * pool_reward
                reward_spread[c] = own_reward_std
                if rest > 0.0:
                    reward_spread[c] = np.sqrt(
                        own_r * own_r * own_reward_std * own_reward_std
                        + rest * rest * pool_reward_std * pool_reward_std
                    )

    # ------------------------------------------------------------- optimistic backward induction
    stat, privacy = knobs[STAT], knobs[PRIVACY]
    for s in range(states):
        values[horizon, s] = 0.0
    for h in range(horizon - 1, -1, -1):
        left = float(horizon - h)
        base_row = h * rows if slots > 1 else 0
        for r in range(rows):
            c = base_row + r
            if spread[c] == np.inf or sampling[c] == np.inf or (not known and reward_spread[c] == np.inf):
                q[h, r] = left
                continue
            x = np.sqrt(sampling[c])
            mean = 0.0
            for s in range(states):
                mean += model[c, s] * values[h + 1, s]
            variance = 0.0
            norm = 0.0
            for s in range(states):
                d = values[h + 1, s] - mean
                variance += model[c, s] * (d * d)
                norm += d * d
            bonus = stat * (np.sqrt(max(0.0, variance)) * x + left * (x * x))
            bonus += privacy * spread[c] * np.sqrt(norm)
            if known:
                reward = known_rewards[h, r]
            else:
                reward = rewards[c]
                bonus += stat * np.sqrt(reward * (1.0 - reward)) * x + privacy * reward_spread[c]
            q[h, r] = min(left, reward + mean + bonus)
        for s in range(states):
            best = q[h, state_ptr[s]]
            for r in range(state_ptr[s] + 1, state_ptr[s + 1]):
                best = q[h, r] if q[h, r] > best else best
            values[h, s] = best


@inlined
def _flow(
    predict: bool,
    state_ptr: Ints,
    horizon: int,
    slots: int,
    rows: int,
    counts: Floats,
    total: Floats,
    raw: Floats,
    noise: Floats,
    expected: Floats,
    scratch: Floats,
) -> None:
    """Expected visits per cell: of the average policy in a rough model; else positive counts."""
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
    rough = scratch[2 * states :].reshape(rows, states)
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
