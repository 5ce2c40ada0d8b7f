"""Learner with one principle: posteriors under the known noise, by empirical Bayes, in every place.

    discreet run --plugin benchmarks.studies.one_principle --learner one-principle --env riverswim ...

:func:`blend` combines a centre and its variance with a mean and its error variance. It estimates visits, and
rows over steps. Where the variance is not known, :func:`mixed` fits a mixture to all pairs: a mixture of
scales for the difference of one step from the mean over steps (:func:`scales`), and a mixture over a grid for
mean rewards. The variances take the noise of every measurement into account, which is known.

Greedy users add a bonus proportional to the posterior *variance* of the reward, and small bonuses that are
proportional to standard deviations. Few users follow posterior draws or upper ends of the posterior; their numbers are
those of the default learner. All of it is post-processing of the default learner's query.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet import registry
from discreet.core.count_query import CountQuery
from discreet.core.families import CENTERED_REWARDS, TRANSITIONS
from discreet.learners.online.noise_aware import explorers_among
from discreet.learners.online.tabular_base import batch_size, regular_schedule
from discreet.mechanisms.interfaces import Ask, Plan, ProblemSpec, Release, Schedule
from discreet.utils.random_streams_kernels import ROLE_SAMPLES, generator_at

Floats = NDArray[np.float64]
_GRID = np.concatenate([[0.0, 0.005, 0.01, 0.02], np.linspace(0.05, 1.0, 20)])
_SCALES = np.concatenate([[0.0], 0.5 * 4.0 ** -np.arange(8.0)])
_ASTRAY, _PARTS, _ROUNDS, _TINY = 0.05, 4, 20, 1e-12


class Belief(NamedTuple):
    """Posterior of the model: rows and rewards of each step, with the variances of both."""

    start: Floats  # (S,)
    rows: Floats  # (H, R, S)
    noise: Floats  # (H, R) variance of one entry of a row by noise
    sampling: Floats  # (H, R) 1 / effective sample size
    missing: Floats  # (H, R) weight of the uniform row
    rewards: Floats  # (H, R)
    variance: Floats  # (H, R) of the mean reward
    unknown: float  # prior variance of a mean reward


@dataclass(frozen=True, eq=False)
class State:
    """State between releases; it depends on releases only."""

    spec: ProblemSpec
    ties: NDArray[np.uint64]
    sums: Floats  # (9, H, R): weighted sums, as in ``noise_aware_kernels.Sums``
    moves: Floats  # (H, R, S)
    belief: Belief
    coming: Floats
    number: int = -1
    queue: tuple[tuple[NDArray[np.int64], int], ...] = ()


def blend(centre: Any, variance: Any, mean: Any, error: Any) -> tuple[Any, Any, Any]:
    """Return the posterior mean and variance, and the weight of ``mean``; ``error`` may be infinite."""
    weight = np.where(error < np.inf, variance / np.maximum(variance + error, _TINY), 0.0)
    found = centre + weight * (np.where(error < np.inf, mean, centre) - centre)
    return found, (1.0 - weight) * variance, weight


def mixed(logs: Floats, first: Floats, imagined: float) -> tuple[Floats, Floats]:
    """Return shares (K,) and posteriors (R, K) of a mixture, by expectation and maximisation.

    ``logs`` (R, K) are log likelihoods; ``imagined`` rows with the shares ``first`` are added.
    """
    logs, shares = np.exp(logs - logs.max(1, keepdims=True)), first
    for _ in range(_ROUNDS):
        chances = logs * shares
        chances /= chances.sum(1, keepdims=True)
        shares = (imagined * first + chances.sum(0)) / (imagined + len(logs))
    return shares, chances


def scales(squares: Floats, errors: Floats, freedom: float, most: float) -> tuple[Floats, Floats]:
    """Return the weight of each step's own data, (H, R), from squared distances to the pooled mean.

    ``squares`` and their expected ``errors`` without variation are (H, R); ``most`` is the largest variance.
    """
    known = np.isfinite(errors)
    e, d = np.where(known, errors, 1.0)[..., None], np.where(known, squares, 0.0)[..., None]
    whole = e + most * _SCALES
    logs = np.where(known[..., None], -0.5 * freedom * (np.log(whole / e) + d / whole - d / e), 0.0).sum(0)
    first = np.concatenate([[0.5], np.full(len(_SCALES) - 1, 0.5 / (len(_SCALES) - 1))])
    chances = mixed(logs, first, 2.0)[1]
    return np.where(known, (chances * (most * _SCALES / whole)).sum(-1), 0.0), chances @ (most * _SCALES)


@dataclass(frozen=True, kw_only=True)
class OnePrinciple:
    """Posteriors under the known noise in every place; draws and upper ends explore.

    hope : factor of the bonus, in prior standard deviations per relative variance. far : width of upper ends
    over that of draws. width : width of draws, in units of sqrt(ln(1 + users)).
    """

    hope: float = 0.5
    ends: float = 0.05
    width: float = 0.35
    far: float = 1.5
    share: float = 1 / 16
    growth: float = 1.1
    reward_share: float = 0.35
    spread: float = 1.0
    zero: float = 0.05
    imagined: float = 5.0
    more: float = 0.05

    def schedule(self, spec: ProblemSpec) -> Schedule:
        """Return geometric releases."""
        return replace(regular_schedule(None, self.growth, spec, "deterministic"), reads="measurements")

    def query(self, spec: ProblemSpec) -> CountQuery:
        """Return the query of the default learner."""
        share = 0.5 if spec.states == 1 else self.reward_share
        return CountQuery(spec.layout, visits=False, center_rewards=True, reward_share=share)

    def begin(self, spec: ProblemSpec, ties: NDArray[np.uint64]) -> State:
        """Return the state before the first release."""
        shape, size = (spec.horizon, spec.layout.rows), spec.states
        flat, rows = np.zeros(shape), np.full((*shape, size), 1.0 / size)
        whole = flat + 1.0
        belief = Belief(rows[0, 0], rows, flat, whole, whole, flat + 0.5, flat + 0.1, 0.1)
        return State(spec, np.array(ties, np.uint64), np.zeros((9, *shape)), 0.0 * rows, belief, flat)

    def plan(self, state: State, release: Release, ask: Ask | None = None) -> tuple[Plan, State]:
        """Return the policy of the next users, and the new state."""
        if release.number != state.number:
            state = self._read(state, release)
        (rows, users), queue = state.queue[0], state.queue[1:]
        return Plan(state.spec.layout.row_action[rows], users, last=not queue), replace(state, queue=queue)

    def _read(self, state: State, release: Release) -> State:
        spec, n = state.spec, release.users
        if release.number > 0:
            state = self._learned(state, release)
        users, end = batch_size(n, None, self.growth, spec), float(spec.users or math.inf)
        noise = spec.budget is None or spec.budget.private
        counts = [explorers_among(k, self.share, 16.0, noise, end) for k in (n, n + users)]
        some = np.diff(np.array(counts), axis=0)[0]
        sizes = np.minimum(users, np.maximum(0, np.cumsum([some[0], some[1], some[2] + some[3]])))
        sizes = np.diff(sizes, prepend=0)
        left = users - int(sizes.sum())
        equal = [left * (j + 1) // _PARTS - left * j // _PARTS for j in range(_PARTS)]
        coins = generator_at(state.ties, ROLE_SAMPLES, release.number, 0)
        policies = self._policies(state, n, coins)
        parts = [(p, int(k)) for p, k in zip(policies, [*equal, *sizes], strict=True) if k]
        coming = _visits_of(state.belief, spec, parts)
        return replace(state, number=release.number, queue=tuple(parts), coming=coming)

    # ------------------------------------------------------------------------------ belief
    def _learned(self, state: State, release: Release) -> State:
        spec, newest = state.spec, release.measurement
        if newest is None:
            raise ValueError("release: carries no measurement with noise of its own")
        layout, new = spec.layout, newest.estimates
        moves, rewards = layout.to_rows(new[TRANSITIONS].value), layout.to_rows(new[CENTERED_REWARDS].value)
        sigma, reward_sigma = new[TRANSITIONS].law.std(), new[CENTERED_REWARDS].law.std()
        decay, gain, size, come = newest.decay, newest.gain, spec.states, state.coming
        m, squares, overlap, total, exposure, noise, reward_noise, sampling, sums = state.sums
        m, squares, overlap = decay * m + come, decay**2 * squares + come, decay * overlap
        w = m / (sigma**2 + m + _TINY)
        stored = np.array([
            m, squares, overlap + w * squares, total + come, exposure + w * m, noise + (w * sigma) ** 2,
            reward_noise + (w * reward_sigma) ** 2, sampling + w * (2.0 * overlap + w * squares),
            sums + w * rewards,
        ])  # fmt: skip
        _, _, _, total, exposure, noise, reward_noise, sampling, sums = stored
        kept = state.moves + w[..., None] * moves
        seen = exposure > _TINY
        scale = np.where(seen, total / np.maximum(exposure, _TINY), 0.0)
        raw, factor = scale[..., None] * kept / gain, scale * scale / gain**2
        noise, reward_noise = factor * noise, factor * reward_noise
        sampling = np.where(seen, sampling * total / np.maximum(exposure, _TINY) ** 2, 1.0)
        counts = raw.sum(-1)
        start = _first(spec, counts[0] - np.sqrt(noise[0]))
        # Visits: noisy counts and the flow of all policies through a rough model, each with its error.
        rough = np.maximum(0.0, counts)
        rough = np.where(seen, rough / (size * noise + rough + 1.0), 0.0)
        mass = (rough * counts).sum(0)
        e = size * (rough**2 * noise).sum(0)
        a = (rough[..., None] * raw).sum(0) * mass[:, None] + e[:, None] / size
        rows = _simplex(a / (mass**2 + e + _TINY)[:, None])
        flow = _flow(spec, start, rows, total)
        own = np.where(seen, size * noise, np.inf)
        flow = np.minimum(flow, np.maximum(0.0, counts) + 2.0 * np.sqrt(np.where(seen, own, 0.0)))
        visits, blurred, _ = blend(flow, flow**2, counts, own)
        visits = np.maximum(visits, 0.0)
        totals = scale * sums / gain + 0.5 * visits
        # Rows over steps.
        w = np.where(seen, flow / (size * noise + flow + 1.0), 0.0)
        a, mass = (w[..., None] * raw).sum(0), (w * visits).sum(0)
        by_noise, by_sampling = (w * w * noise).sum(0), (w * w * np.maximum(flow, visits) * sampling).sum(0)
        have = mass > _TINY
        safe = np.where(have, mass, 1.0)
        error = np.where(have, (size * by_noise + by_sampling) / safe**2, np.inf)
        pool, _, o = blend(1.0 / size, self.spread, a / safe[:, None], error[:, None])
        o, pool = o[:, 0], _simplex(pool)
        pool_noise = o * o * np.where(have, by_noise / safe**2, 0.0)
        pool_sampling = np.maximum(o * o * np.where(have, by_sampling / safe**2, 0.0), 0.0)
        # Rows of each step.
        flat = 1.0 - (pool**2).sum(-1)
        n = np.maximum(visits, 1.0)
        d = ((raw - counts[..., None] * pool) ** 2).sum(-1) / n**2
        twice = size - 2.0 + size * (1.0 - flat)  # the sum of a row is subtracted
        e = np.where(seen, (twice * noise + n * sampling * np.maximum(flat, 0.02)) / n**2, np.inf)
        own, spare = scales(d, e, min(4.0, max(1.0, size - 1.0)), 1.0)
        rows = _simplex(pool + own[..., None] * (raw / n[..., None] - pool))
        rest = 1.0 - own
        row_noise = (own**2 * np.where(seen, noise, 0.0) / n**2) + rest**2 * pool_noise
        row_sampling = own**2 * sampling / n + rest**2 * (pool_sampling + spare)
        # Rewards over steps: a law over pairs on a grid.
        total, blur = (w * totals).sum(0), (w * w * blurred).sum(0)
        by_reward = (w * w * reward_noise).sum(0)
        v = np.maximum(_GRID * (1 - _GRID), 0.25 / (mass + 1)[:, None]) * by_sampling[:, None]
        v += by_reward[:, None] + (_GRID - 0.5) ** 2 * blur[:, None] + _TINY
        d = (total[:, None] - mass[:, None] * _GRID) ** 2
        logs = np.where(have[:, None], -0.5 * (np.log(v) + d / v), 0.0)
        first = np.concatenate([[self.zero], np.full(_GRID.size - 1, (1.0 - self.zero) / (_GRID.size - 1))])
        first[1:4] *= 0.2
        first /= first.sum()
        shares, chances = mixed(logs, first, self.imagined)
        mean = chances @ _GRID
        var = chances @ _GRID**2 - mean**2
        unknown = max(1e-4, float(shares @ _GRID**2 - (shares @ _GRID) ** 2))
        # Rewards of each step.
        e = reward_noise + n * sampling * np.maximum(0.02, mean * (1 - mean)) + (mean - 0.5) ** 2 * blurred
        e = np.where(seen, e / n**2, np.inf)
        own, spare = scales((totals / n - mean) ** 2, e, 1.0, 0.25)
        rewards = np.clip(mean + own * (totals / n - mean), 0.0, 1.0)
        variance = own**2 * np.where(seen, e, 0.0) + (1.0 - own) ** 2 * (var + spare)
        missing = rest * (1.0 - o)
        belief = Belief(start, rows, row_noise, row_sampling, missing, rewards, variance, unknown)
        return replace(state, sums=stored, moves=kept, belief=belief)

    # ------------------------------------------------------------------------------ plans
    def _policies(self, state: State, users: int, coins: np.random.Generator) -> list[NDArray[np.int64]]:
        """Return four greedy policies that break ties at random, two of draws, and one of upper ends."""
        spec, b = state.spec, state.belief
        ptr, size = spec.layout.state_ptr, spec.states
        width = self.width * math.sqrt(math.log(1.0 + users))
        wide = np.array([width, 1.5 * width])[:, None]
        full = np.maximum(1.0, wide)
        z = coins.standard_normal((4, 2, spec.layout.rows))
        values, policies = np.zeros((4, size)), np.zeros((7, spec.horizon, size), np.int64)
        x = np.sqrt(b.sampling / (1.0 + 2.0 * b.sampling))
        std, first = np.sqrt(b.variance), math.sqrt(b.unknown)
        hopes = self.hope * np.minimum(b.variance / first, first)
        for h in range(spec.horizon - 1, -1, -1):
            mean = values @ b.rows[h].T
            by_sampling = np.sqrt(np.maximum(0.0, (values**2) @ b.rows[h].T - mean**2)) * x[h]
            norm = (values**2).sum(1)[:, None] - 2.0 * mean * values.sum(1)[:, None] + size * mean**2
            by_noise = np.sqrt(np.maximum(0.0, norm * b.noise[h]))
            hidden = values.std(1)[:, None] * b.missing[h]
            q = mean + b.rewards[h]
            q[0] += hopes[h] + self.more * std[h] + self.ends * (by_sampling[0] + by_noise[0])
            q[1:3] += wide * (by_sampling[1:3] * z[0] + by_noise[1:3] * z[1]) + full * hidden[1:3] * z[2]
            reward = b.rewards[h] + np.maximum(wide, np.minimum(1.0, std[h] / first)) * std[h] * z[3]
            q[1:3] += np.clip(reward, 0.0, 1.0) - b.rewards[h]
            far = self.far * width
            more = np.minimum(1.0 - b.rewards[h], far * std[h])
            whole = np.sqrt(far**2 * (by_sampling[3] ** 2 + by_noise[3] ** 2 + hidden[3] ** 2) + more**2)
            kept = np.clip(q[3] + 0.5 * whole, 0.0, spec.horizon - h)
            q[3] += whole
            q = np.clip(q, 0.0, spec.horizon - h)
            values = np.maximum.reduceat(np.vstack([q[:3], kept[None]]), ptr[:-1], axis=1)
            every = np.vstack([np.repeat(q[:1], _PARTS, 0), q[1:]])
            every = every + 1e-9 * coins.random(every.shape)
            for s in range(size):
                policies[:, h, s] = ptr[s] + every[:, ptr[s] : ptr[s + 1]].argmax(1)
        return list(policies)


def _simplex(rows: Floats) -> Floats:
    """Return the projections of ``rows`` onto the simplex, along the last axis."""
    size = rows.shape[-1]
    order = -np.sort(-rows, axis=-1)
    sums = np.cumsum(order, axis=-1) - 1.0
    last = (order * np.arange(1, size + 1) > sums).sum(-1, keepdims=True) - 1
    cut = np.take_along_axis(sums, last, -1) / (last + 1.0)
    return np.maximum(rows - cut, 0.0)


def _first(spec: ProblemSpec, counts: Floats) -> Floats:
    start = np.add.reduceat(np.maximum(0.0, counts), spec.layout.state_ptr[:-1])
    return start / start.sum() if start.sum() > 0.0 else np.full(spec.states, 1.0 / spec.states)


def _flow(spec: ProblemSpec, start: Floats, rows: Floats, chosen: Floats) -> Floats:
    """Return the visits (H, R) of all users, who follow the mean of their policies in the model ``rows``."""
    ptr, size, visits, here = spec.layout.state_ptr, spec.states, np.zeros_like(chosen), start
    which = np.repeat(np.arange(size), np.diff(ptr))
    users = chosen[0].sum()
    for h in range(spec.horizon):
        came = np.add.reduceat(chosen[h], ptr[:-1])[which]
        share = np.where(came > 0.0, chosen[h] / np.maximum(came, _TINY), 0.0)
        visits[h] = users * (here[which] + _ASTRAY / size) * share
        here = (here[which] * share) @ rows
    return visits


def _visits_of(belief: Belief, spec: ProblemSpec, parts: list[tuple[NDArray[np.int64], int]]) -> Floats:
    """Return the expected visits (H, R) of users who follow the policies ``parts``."""
    coming, size = np.zeros(belief.noise.shape), spec.states
    here = np.tile(belief.start, (len(parts), 1))
    policies, users = np.array([p for p, _ in parts]), np.array([n for _, n in parts], float)
    for h in range(spec.horizon):
        come = users[:, None] * ((1.0 - _ASTRAY) * here + _ASTRAY / size)
        np.add.at(coming[h], policies[:, h], come)
        here = np.einsum("ps,pst->pt", here, belief.rows[h][policies[:, h]])
    return coming


registry.register("learner", "one-principle", OnePrinciple, fits="central without trees, or none")
