r"""Compiled fit of one stationary model to all noisy releases, by maximum likelihood with a prior.

The model consists of transition probabilities P, mean rewards w, and the distribution ``start`` of the first
state. Let n_p users in batch j follow the policy pi_p. Under the model, the distribution mu_p of their states
is

    mu_{p,0} = start,    mu_{p,h+1}(s') = sum_s mu_{p,h}(s) P(s' | s, pi_p(h, s)).

Let N_j(h, s, a) be the sum of n_p mu_{p,h}(s) over the policies p of batch j with pi_p(h, s) = a. Release i
is a S_i with S_i = x_i + lambda_i S_{i-1}. Here x_i is the sum over the users of batch i, a is the gain, and
lambda_i is the decay. The means of released sums are:

- Transition counts per step: a M_i(h, s, a) P(s' | s, a), with M_i = N_i + lambda_i M_{i-1}.
- Rewards summed over steps and clipped, in time order, to at most C per user: a Q_i(s, a) w(s, a). Q_i is the
  sum of M_i over steps, with weight kappa_p = (1 + q^3)^(-1/3) for users of policy p. Here q is the policy's
  expected return divided by C. The weight approximates E min(return, C) / E return.
- Centred rewards per step: a M_i(h, s, a) (w(s, a) - 1/2).

The variance of a released sum is the noise variance plus a sampling variance, which is a multiple of the
mean. Adam maximises the likelihood of independent normals with a normal prior of logits. P and ``start`` are
the softmax of logits, and w is the logistic function of logits.

Sources: Dempster, Laird and Rubin 1977 for models of paths that are not observed; Kingma and Ba 2015 for
Adam. The likelihood, the factor kappa and the variances were derived for this library.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined, kernel
from discreet.utils.random_streams_kernels import normal

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Sampling variance of a count in a release, divided by its mean. It is below 1, because releases share users.
SAMPLING = 0.5
CUT_SAMPLING = 0.3  # Sampling variance of a sum of clipped rewards, divided by C times its mean.
_FLOOR = 0.25  # Variance that is added to the noise variance of each released sum, divided by gain^2.
# Variance of a count in the weights of the misfit, divided by the number of users whose policy chooses the
# action.
_WEIGH = 0.1
_RARE = 2.0  # Number that is added to each transition count for its sampling variance in the misfit.
# Tolerance for errors in the misfit: a share of the mean, and a share of the users whose policy chooses the
# action.
_TOLERATED, _TOLERATED_SHARE = 0.05, 0.002


class Evidence(NamedTuple):
    """Measurements of T releases, and the public policies of the users in them.

    There are P policies and R admissible pairs.

    Attributes
    ----------
    rows : (P, H, S)
        Row (admissible pair) that each policy chooses at each step and state.
    users, batch : (P,)
        Number of users who follow each policy, and number of their batch.
    cut : (P,)
        Value of C for these users; infinite if their rewards are not clipped.
    decay, gain : (T,)
        Decay and gain of the stream at each release.
    centered : (T,)
        1 if the release has centred rewards per step, 0 if it has clipped sums.
    cuts : (T,)
        Value of C in the newest batch of each release.
    sigma_moves, sigma_rewards, tails : (T,)
        Standard deviations of the noise in transition counts and in reward sums, and excess kurtosis of the
        noise.
    moves, rewards : (T, H, R, S) and (T, H, R)
        Measured transition counts and reward sums. Clipped sums are stored at step 0.
    """

    rows: Ints
    users: Floats
    batch: Ints
    cut: Floats
    decay: Floats
    gain: Floats
    centered: Ints
    cuts: Floats
    sigma_moves: Floats
    sigma_rewards: Floats
    tails: Floats
    moves: Floats
    rewards: Floats


class Scratch(NamedTuple):
    """Work arrays for the likelihood. The first three fields hold the decoded model.

    A field whose name ends in ``_slope`` holds the derivative of the loss with respect to the named field.
    """

    model: Floats  # (R, S) transition probabilities P.
    means: Floats  # (R,) mean rewards w.
    start: Floats  # (S,) distribution of the first state.
    flow: Floats  # (P, H + 1, S) distribution mu of the state under each policy.
    visits: Floats  # (P, R) expected visits of one user of each policy, summed over steps.
    returns: Floats  # (P,) expected return of each policy.
    seen: Floats  # (T, H, R) decayed visits M.
    counted: Floats  # (T, R) decayed visits Q, weighted by kappa.
    seen_slope: Floats
    counted_slope: Floats
    model_slope: Floats  # (R, S).
    means_slope: Floats
    start_slope: Floats
    ahead: Floats  # (2, S) values of the adjoint recursion at two successive steps.


def scratch(policies: int, releases: int, horizon: int, rows: int, states: int) -> Scratch:
    """Return work arrays for problems of this size, filled with 0."""
    return Scratch(
        np.zeros((rows, states)), np.zeros(rows), np.zeros(states), np.zeros((policies, horizon + 1, states)),
        np.zeros((policies, rows)), np.zeros(policies), np.zeros((releases, horizon, rows)),
        np.zeros((releases, rows)), np.zeros((releases, horizon, rows)), np.zeros((releases, rows)),
        np.zeros((rows, states)), np.zeros(rows), np.zeros(states), np.zeros((2, states)),
    )  # fmt: skip


def parameters(rows: int, states: int) -> int:
    """Return the number of logits, R S + R + S."""
    return rows * states + rows + states


@inlined
def _softmax(logits: Floats, at: int, out: Floats) -> None:
    high = logits[at]
    for s in range(out.shape[0]):
        high = max(high, logits[at + s])
    total = 0.0
    for s in range(out.shape[0]):
        out[s] = np.exp(logits[at + s] - high)
        total += out[s]
    for s in range(out.shape[0]):
        out[s] /= total


@kernel
def decode(theta: Floats, work: Scratch) -> None:
    """Convert the logits ``theta`` to the model, and write the model into ``work``."""
    rows, states = work.model.shape
    for r in range(rows):
        _softmax(theta, r * states, work.model[r])
        work.means[r] = 1.0 / (1.0 + np.exp(-theta[rows * states + r]))
    _softmax(theta, rows * states + rows, work.start)


@kernel
def predict(evidence: Evidence, work: Scratch) -> None:
    """Predict the flow of users under each policy, and the decayed visits of each release.

    ``work`` must hold the decoded model.
    """
    model, means, flow, seen, counted = work.model, work.means, work.flow, work.seen, work.counted
    policies, horizon, states = evidence.rows.shape
    rows = model.shape[0]
    releases = seen.shape[0]
    seen[:] = 0.0
    counted[:] = 0.0
    work.visits[:] = 0.0
    for p in range(policies):
        n, b = evidence.users[p], evidence.batch[p]
        earned = 0.0
        for s in range(states):
            flow[p, 0, s] = work.start[s]
        for h in range(horizon):
            for s in range(states):
                flow[p, h + 1, s] = 0.0
            for s in range(states):
                m = flow[p, h, s]
                r = evidence.rows[p, h, s]
                seen[b, h, r] += n * m
                work.visits[p, r] += m
                earned += m * means[r]
                for t in range(states):
                    flow[p, h + 1, t] += m * model[r, t]
        work.returns[p] = earned
        kappa = _kept(earned, evidence.cut[p])
        for r in range(rows):
            counted[b, r] += n * kappa * work.visits[p, r]
    for i in range(1, releases):
        decay = evidence.decay[i]
        if decay > 0.0:
            for h in range(horizon):
                for r in range(rows):
                    seen[i, h, r] += decay * seen[i - 1, h, r]
            for r in range(rows):
                counted[i, r] += decay * counted[i - 1, r]


@inlined
def _kept(earned: float, cut: float) -> float:
    """Return kappa, the share of the expected return ``earned`` that remains after clipping at ``cut``."""
    q = earned / cut
    return np.exp(-np.log(1.0 + q * q * q) / 3.0)


@inlined
def _slope(y: float, mean: float, variance: float, slope: float) -> float:
    """Return the derivative of -log N(y; mean, variance) with respect to the mean."""
    inverse = 1.0 / variance
    scaled = (mean - y) * inverse
    return scaled + 0.5 * slope * (inverse - scaled * scaled)


@inlined
def _fits(y: float, mean: float, variance: float) -> float:
    """Return -log N(y; mean, variance), up to a constant."""
    return 0.5 * ((mean - y) * (mean - y) / variance + np.log(variance))


@inlined
def _loss(
    theta: Floats,
    prior: Floats,
    precision: Floats,
    evidence: Evidence,
    work: Scratch,
    slope: Floats,
    summed: bool,
) -> float:
    decode(theta, work)
    predict(evidence, work)
    model, means, flow, seen, counted = work.model, work.means, work.flow, work.seen, work.counted
    seen_slope, counted_slope, model_slope = work.seen_slope, work.counted_slope, work.model_slope
    policies, horizon, states = evidence.rows.shape
    rows = model.shape[0]
    releases = seen.shape[0]
    seen_slope[:] = 0.0
    counted_slope[:] = 0.0
    model_slope[:] = 0.0
    work.means_slope[:] = 0.0
    work.start_slope[:] = 0.0
    loss = 0.0
    for i in range(releases):
        a = evidence.gain[i]
        noise = evidence.sigma_moves[i] ** 2 + _FLOOR * a * a
        reward_noise = evidence.sigma_rewards[i] ** 2 + _FLOOR * a * a
        centered = evidence.centered[i] > 0
        for h in range(horizon):
            for r in range(rows):
                m = a * seen[i, h, r]
                if m == 0.0:
                    continue
                back = 0.0
                for t in range(states):
                    mean = m * model[r, t]
                    y, variance = evidence.moves[i, h, r, t], noise + SAMPLING * mean
                    g = _slope(y, mean, variance, SAMPLING)
                    if summed:
                        loss += _fits(y, mean, variance)
                    back += g * model[r, t]
                    model_slope[r, t] += g * m
                if centered:
                    x = means[r] - 0.5
                    variance = reward_noise + 0.25 * SAMPLING * m
                    scaled = (m * x - evidence.rewards[i, h, r]) / variance
                    if summed:
                        loss += _fits(evidence.rewards[i, h, r], m * x, variance)
                    back += scaled * x + 0.125 * SAMPLING * (1.0 / variance - scaled * scaled)
                    work.means_slope[r] += scaled * m
                seen_slope[i, h, r] = back * a
        if not centered:
            share = CUT_SAMPLING * a * evidence.cuts[i]
            for r in range(rows):
                m = a * counted[i, r]
                if m == 0.0:
                    continue
                mean = m * means[r]
                y, variance = evidence.rewards[i, 0, r], reward_noise + share * mean
                g = _slope(y, mean, variance, share)
                if summed:
                    loss += _fits(y, mean, variance)
                work.means_slope[r] += g * m
                counted_slope[i, r] = g * means[r] * a
    for i in range(releases - 1, 0, -1):
        decay = evidence.decay[i]
        if decay > 0.0:
            for h in range(horizon):
                for r in range(rows):
                    seen_slope[i - 1, h, r] += decay * seen_slope[i, h, r]
            for r in range(rows):
                counted_slope[i - 1, r] += decay * counted_slope[i, r]
    ahead = work.ahead
    for p in range(policies):
        n, b, cut, earned = evidence.users[p], evidence.batch[p], evidence.cut[p], work.returns[p]
        kappa = _kept(earned, cut)
        by_return = 0.0
        for r in range(rows):
            by_return += counted_slope[b, r] * work.visits[p, r]
        by_return *= -n * kappa * earned * earned / (cut * cut * cut + earned * earned * earned)
        for r in range(rows):
            work.means_slope[r] += by_return * work.visits[p, r]
        ahead[:] = 0.0
        for h in range(horizon - 1, -1, -1):
            now, later = ahead[h % 2], ahead[(h + 1) % 2]
            for s in range(states):
                r = evidence.rows[p, h, s]
                m = flow[p, h, s]
                back = n * (seen_slope[b, h, r] + kappa * counted_slope[b, r]) + by_return * means[r]
                for t in range(states):
                    back += model[r, t] * later[t]
                    model_slope[r, t] += m * later[t]
                now[s] = back
        for s in range(states):
            work.start_slope[s] += ahead[0, s]
    for r in range(rows):
        _through_softmax(model[r], model_slope[r], r * states, slope)
        slope[rows * states + r] = work.means_slope[r] * means[r] * (1.0 - means[r])
    _through_softmax(work.start, work.start_slope, rows * states + rows, slope)
    for i in range(theta.shape[0]):
        off = theta[i] - prior[i]
        loss += 0.5 * precision[i] * off * off
        slope[i] += precision[i] * off
    return loss


@inlined
def _through_softmax(p: Floats, by_p: Floats, at: int, slope: Floats) -> None:
    centre = 0.0
    for s in range(p.shape[0]):
        centre += p[s] * by_p[s]
    for s in range(p.shape[0]):
        slope[at + s] = p[s] * (by_p[s] - centre)


@kernel
def loss(
    theta: Floats, prior: Floats, precision: Floats, evidence: Evidence, work: Scratch, slope: Floats
) -> float:
    """Return the negative log-posterior of the logits ``theta``, up to a constant.

    The gradient is written into ``slope``. ``prior`` and ``precision`` are the mean and the inverse variance
    of the normal prior.
    """
    return _loss(theta, prior, precision, evidence, work, slope, True)


@kernel
def fit(
    theta: Floats,
    prior: Floats,
    precision: Floats,
    evidence: Evidence,
    work: Scratch,
    steps: int,
    rate: float,
) -> None:
    """Minimise the loss by ``steps`` steps of Adam that start at ``theta``, which is overwritten.

    The learning rate decreases linearly from ``rate`` to a tenth of ``rate``.
    """
    n = theta.shape[0]
    slope, first, second = np.zeros(n), np.zeros(n), np.zeros(n)
    b1, b2 = 1.0, 1.0
    for k in range(steps):
        _loss(theta, prior, precision, evidence, work, slope, False)
        b1 *= 0.9
        b2 *= 0.99
        now = rate * (1.0 - 0.9 * k / steps)
        for i in range(n):
            first[i] = 0.9 * first[i] + 0.1 * slope[i]
            second[i] = 0.99 * second[i] + 0.01 * slope[i] * slope[i]
            theta[i] -= now * (first[i] / (1.0 - b1)) / (np.sqrt(second[i] / (1.0 - b2)) + 1e-8)


@kernel
def perturb(
    evidence: Evidence, work: Scratch, width: float, state: NDArray[np.uint64], moves: Floats, rewards: Floats
) -> None:
    """Write perturbed measurements into ``moves`` and ``rewards``.

    Each measurement gets normal noise of ``width`` times its standard deviation. ``work`` must hold a
    prediction. ``state`` is the state of a random stream.
    """
    model, means, seen, counted = work.model, work.means, work.seen, work.counted
    releases, horizon, rows = seen.shape
    for i in range(releases):
        a = evidence.gain[i]
        noise = evidence.sigma_moves[i] ** 2 + _FLOOR * a * a
        reward_noise = evidence.sigma_rewards[i] ** 2 + _FLOOR * a * a
        for h in range(horizon):
            for r in range(rows):
                m = a * seen[i, h, r]
                if m == 0.0:
                    continue
                for t in range(model.shape[1]):
                    std = np.sqrt(noise + SAMPLING * m * model[r, t])
                    moves[i, h, r, t] = evidence.moves[i, h, r, t] + width * std * normal(state)
                if evidence.centered[i] > 0:
                    std = np.sqrt(reward_noise + 0.25 * SAMPLING * m)
                    rewards[i, h, r] = evidence.rewards[i, h, r] + width * std * normal(state)
        if evidence.centered[i] == 0:
            for r in range(rows):
                share = CUT_SAMPLING * a * evidence.cuts[i]
                std = np.sqrt(reward_noise + share * a * counted[i, r] * means[r])
                rewards[i, 0, r] = evidence.rewards[i, 0, r] + width * std * normal(state)


@kernel
def fill_normals(state: NDArray[np.uint64], out: Floats) -> None:
    """Fill ``out``, in order, with standard normal variables from the random stream ``state``."""
    for i in range(out.shape[0]):
        out[i] = normal(state)


@kernel
def best_policy(model: Floats, means: Floats, state_ptr: Ints, horizon: int, out: Ints) -> float:
    """Write into ``out`` (H, S) the rows that the optimal policy of a stationary model chooses.

    Returns the largest value of a state at step 0.
    """
    states = model.shape[1]
    values = np.zeros((2, states))
    for h in range(horizon - 1, -1, -1):
        now, later = values[h % 2], values[(h + 1) % 2]
        for s in range(states):
            best, chosen = -1.0, state_ptr[s]
            for r in range(state_ptr[s], state_ptr[s + 1]):
                q = means[r]
                for t in range(states):
                    q += model[r, t] * later[t]
                if q > best:
                    best, chosen = q, r
            now[s] = best
            out[h, s] = chosen
    return values[0].max()


@kernel
def misfit(evidence: Evidence, work: Scratch) -> float:
    """Return a statistic that compares all released transition counts with their prediction.

    ``work`` must hold the prediction. The statistic is the sum of Z^2 - 1 over all (h, s, a, s'), divided by
    its standard deviation. Z is the weighted sum over releases of the residuals of one count, divided by its
    standard deviation.
    """
    model, seen = work.model, work.seen
    releases, horizon, rows = seen.shape
    states = model.shape[1]
    assigned = np.zeros((releases, horizon, rows))
    for p in range(evidence.users.shape[0]):
        for h in range(horizon):
            for s in range(states):
                assigned[evidence.batch[p], h, evidence.rows[p, h, s]] += evidence.users[p]
    for i in range(1, releases):
        for h in range(horizon):
            for r in range(rows):
                assigned[i, h, r] += evidence.decay[i] * assigned[i - 1, h, r]
    total = np.zeros(states)
    excess, square_std = 0.0, 0.0
    for h in range(horizon):
        for r in range(rows):
            total[:] = 0.0
            noise, fourth, mass, mean, sampling = 0.0, 0.0, 0.0, 0.0, 0.0
            carried, later, heaviest = 0.0, 0.0, 0.0
            for i in range(releases - 1, -1, -1):
                a, square, n = evidence.gain[i], evidence.sigma_moves[i] ** 2, assigned[i, h, r]
                w = n / (square + _WEIGH * a * n + a * a)
                carried = a * w + later * carried
                later = evidence.decay[i]
                heaviest = max(heaviest, carried)
                fresh = seen[i, h, r]
                if i > 0:
                    fresh -= evidence.decay[i] * seen[i - 1, h, r]
                sampling += carried * carried * fresh
                if w > 0.0:
                    noise += w * w * square
                    fourth += evidence.tails[i] * (w * w * square) ** 2
                    m = a * seen[i, h, r]
                    mass += w * a * n
                    mean += w * m
                    for t in range(states):
                        total[t] += w * (evidence.moves[i, h, r, t] - m * model[r, t])
            if mass == 0.0:
                continue
            for t in range(states):
                sampled = sampling * model[r, t] + _RARE * heaviest * heaviest
                tolerated = (_TOLERATED * mean * model[r, t]) ** 2 + (_TOLERATED_SHARE * mass) ** 2
                variance = noise + sampled + tolerated
                excess += total[t] * total[t] / variance - 1.0
                shared = sampled / variance
                square_std += 2.0 + 2.0 * (horizon - 1) * shared * shared + fourth / (variance * variance)
    return excess / np.sqrt(max(square_std, 1.0))
