"""The noise-aware learner's beliefs against a slow reference, and what its explorers draw."""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from covering import by_turns
from kept_kernels import kept
from scipy import special, stats

import discreet as dr
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.envs.mdp import planning
from discreet.envs.rollouts.rollout import rollout
from discreet.experiments.simulate import Setup
from discreet.learners.online import noise_aware_kernels as noise_kernels
from discreet.learners.online import tabular_planning_kernels as kernels
from discreet.learners.online.noise_aware import explorer_share, explorers_among
from discreet.mechanisms.interfaces import ProblemSpec
from discreet.mechanisms.seeded_rng import SeededRng
from discreet.utils.random_streams_kernels import (
    ROLE_EXPLORE,
    draw_uniforms,
    open_at,
    run_key,
    scalar_draws,
)

belief_sums, model_of_cells = kept(noise_kernels._sums), kept(noise_kernels._cells)
forecast_of = kept(noise_kernels._forecast)

POINTERS = np.array([0, 2, 3, 6])  # three states with 2, 1 and 3 actions
HORIZON, ROWS, STATES = 4, 6, 3
NEVER = 5  # a row that nobody is assigned, where a setting says so
EXPLORERS, DRAWING, RELEASES, USERS = 6, 2, 7, 300  # the last three are plans for the frontier


def rows_of(memory: np.ndarray, cells: int, steps: int, states: int = STATES) -> np.ndarray:
    """(steps, S) transition probabilities that are kept in the memory."""
    table = forecast_of(memory, cells, steps, states).moves
    dense = np.zeros((steps, states))
    for c in range(steps):
        mine = slice(table.ends[c], table.ends[c + 1])
        assert (np.diff(table.state[mine]) > 0).all()
        dense[c, table.state[mine]] = table.chance[mine]
        if mine.start == mine.stop:
            dense[c] = 1.0 / states
    return dense


# ------------------------------------------------------------------------------------- the reference


def on_simplex(v: np.ndarray) -> np.ndarray:
    """Euclidean projection onto the probability simplex, by sorting."""
    ordered = np.sort(v)[::-1]
    levels = (np.cumsum(ordered) - 1.0) / np.arange(1, v.size + 1)
    return np.maximum(v - levels[ordered > levels][-1], 0.0)


def coin(total: float, visits: float) -> float:
    """Variance of one reward, a half imagined."""
    mean = np.clip((total + 0.5) / (max(visits, 0.0) + 1.0), 0.0, 1.0)
    return float(mean * (1.0 - mean))


def predicted(setting: "Setting", memory: np.ndarray) -> np.ndarray:
    """(cells,) visits that the average policy leads to in a rough model, before counts bound them."""
    knobs, slots, cells = setting.knobs, setting.slots, setting.cells
    sums = belief_sums(memory, cells, STATES)
    total, exposure, noise, moves = sums.total, sums.exposure, sums.noise, sums.moves
    weight = np.divide(total, setting.gain * exposure, out=np.zeros(cells), where=exposure > 0.0)
    raw = weight[:, None] * moves
    positive = np.maximum(raw.sum(axis=1), 0.0)
    users = total[:ROWS].sum()
    if not knobs["FLOW"] or slots == 1 or users <= 0.0:
        return positive
    g = np.where(exposure > 0.0, weight * np.sqrt(noise), np.inf)
    owner = np.repeat(np.arange(STATES), np.diff(POINTERS))

    def by_state(of_rows: np.ndarray) -> np.ndarray:
        return np.bincount(owner, of_rows, STATES)

    starts = by_state(np.maximum(0.0, raw.sum(axis=1)[:ROWS] - g[:ROWS]))
    here = starts / starts.sum() if starts.sum() > 0.0 else np.full(STATES, 1.0 / STATES)
    rough = np.empty((ROWS, STATES))
    for r in range(ROWS):
        steps = [c for c in range(r, slots * ROWS, ROWS) if total[c] > 0.0]
        w = positive[steps] / (STATES * g[steps] ** 2 + positive[steps] + 1.0)
        visits = w @ raw[steps].sum(axis=1)
        hidden = math.sqrt(STATES) * np.linalg.norm(w * g[steps])
        rough[r] = on_simplex(w @ raw[steps] / max(visits, hidden, 1e-9))
    expected = np.zeros((cells // ROWS, ROWS))
    for h in range(slots):
        share = total[h * ROWS : (h + 1) * ROWS]
        share = share / by_state(share)[owner]
        expected[h] = users * (here[owner] + 0.05 / STATES) * share  # some are where the model says nobody is
        here = (here[owner] * share) @ rough
    if setting.pooled:
        expected[slots] = expected[:slots].sum(axis=0)
        if knobs["FIRST"]:  # a user's first visit to a state alone
            expected[slots] *= np.minimum(1.0, users / by_state(expected[slots]))[owner]
    return expected.ravel()


@dataclass(frozen=True)
class Pairs:
    """Law of mean rewards over pairs: N(0, nothing), or N(mean, variance) with probability paying."""

    paying: float = 0.9
    mean: float = 0.5
    variance: float = 0.09
    nothing: float = 0.002**2

    def of(self, earned: float, n: float, variance: float) -> np.ndarray:
        """After a pair's sum of n rewards, (nothing or paying, 3): probability, mean and variance."""
        found = []
        for share, mean, own in (
            (1.0 - self.paying, 0.0, self.nothing),
            (self.paying, self.mean, self.variance),
        ):
            spread = variance + n**2 * own
            density = -0.5 * ((earned - n * mean) ** 2 / spread + math.log(2.0 * math.pi * spread))
            gained = own * n / (n**2 * own + variance)
            found.append(
                [math.log(share) + density, mean + gained * (earned - n * mean), own * (1 - gained * n)]
            )
        out = np.array(found)
        out[:, 0] = special.softmax(out[:, 0])
        return out

    def believed(self, earned: float = 0.0, n: float = 0.0, variance: float = 1.0) -> tuple[float, float]:
        """Mean and variance of the pair's mean reward."""
        shares, means, variances = self.of(earned, n, variance).T
        whole = float(shares @ means)
        return whole, float(shares @ (variances + (means - whole) ** 2))

    def learned(self, pairs: list[tuple[float, float, float]]) -> "Pairs":
        """One round of expectation and maximisation: two pairs imagined, one that pays, two that do not."""
        both = np.array([self.of(*pair) for pair in pairs]).reshape(-1, 2, 3)
        idle, found = both[:, 0], both[:, 1]
        small = np.append(0.002**2, idle[:, 1] ** 2 + idle[:, 2])
        weights, means = np.append(1.0, found[:, 0]), np.append(0.5, found[:, 1])
        mean = np.average(means, weights=weights)
        squares = np.append(0.09, found[:, 2]) + means**2
        return Pairs(
            (1.8 + found[:, 0].sum()) / (2.0 + len(pairs)),
            float(np.clip(mean, 0.0, 1.0)),
            max(1e-4, float(np.average(squares, weights=weights) - mean**2)),
            min(0.02**2, float(np.average(small, weights=np.append(2.0, idle[:, 0])))),
        )


def law_over_pairs(pairs: list[tuple[float, float, float]]) -> Pairs:
    """After twenty rounds."""
    law = Pairs()
    for _ in range(20):
        law = law.learned(pairs)
    return law


def reference(setting: "Setting", memory: np.ndarray, expected: np.ndarray) -> SimpleNamespace:
    """Everything that is believed, from the sums that are carried and the predicted visits.

    ``expected`` (cells,) : what the flow of the public policies leads to, as the kernel says; the kernel's
    own is compared with ``predicted``.
    """
    knobs, slots, cells = setting.knobs, setting.slots, setting.cells
    carried = belief_sums(memory, cells, STATES)
    total, exposure, noise, reward_noise = (
        carried.total,
        carried.exposure,
        carried.noise,
        carried.reward_noise,
    )
    sampling, rewards, moves = carried.sampling, carried.rewards, carried.moves
    seen = exposure > 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.where(seen, total / (setting.gain * exposure), 0.0)
        each = np.where(seen, sampling * total / exposure**2, np.inf)  # times 1 / visits: 1 / sample size
    raw = weight[:, None] * moves
    counts = raw.sum(axis=1)
    g = np.where(seen, weight * np.sqrt(noise), np.inf)
    gr = np.where(seen, weight * np.sqrt(reward_noise), np.inf)
    if setting.inflation:
        gr = np.sqrt(gr**2 + setting.reward_visit / setting.inflation * np.maximum(counts, 0.0))
    half = 0.5 * knobs["CENTERED"]
    sums = weight * rewards + half * counts

    # visits: the count has variance S g^2, the prediction has a standard deviation of its own size
    visits = counts.copy()
    if knobs["FLOW"] and slots > 1:
        for c in np.flatnonzero(seen & (g > 0.0)):
            precisions = np.array([1.0 / (STATES * g[c] ** 2), expected[c] ** -2.0])
            visits[c] = np.average([counts[c], expected[c]], weights=precisions)
            if not setting.known:
                sums[c] += half * (visits[c] - counts[c])

    def variance_of_sum(c: int) -> float:
        n = max(visits[c], 0.0)
        return float(gr[c] ** 2 + n * each[c] * coin(sums[c], n))

    # rows pooled over steps, and over the pooled family
    pools: dict[int, SimpleNamespace] = {}
    for r in range(ROWS) if knobs["SHRINK"] and slots > 1 else ():
        family = [c for c in range(r, cells, ROWS) if seen[c]]
        if not family:
            continue
        steps = [c for c in family if c < slots * ROWS]
        w = {c: expected[c] / (STATES * g[c] ** 2 + expected[c] + 1.0) for c in family}
        extra = sum(w[c] for c in family if c not in steps)
        mass = sum(w[c] * visits[c] for c in family)
        spread = math.sqrt(sum((w[c] * g[c]) ** 2 for c in family))
        hidden = math.sqrt(STATES) * spread
        if mass <= 0.0 and hidden <= 0.0:
            continue
        base = max(mass, hidden, 1e-9)
        sampled = sum((w[c] + extra) ** 2 * max(expected[c], visits[c]) * each[c] for c in steps)
        seen_visits = max(0.0, sum(visits[c] for c in steps))
        most = max(1.0, seen_visits + math.sqrt(STATES * sum(g[c] ** 2 for c in steps)))
        earned = sum(w[c] * sums[c] for c in family)
        pools[r] = SimpleNamespace(
            row=on_simplex(sum(w[c] * raw[c] for c in family) / base), std=spread / base,
            sampling=max(sampled / base**2, 1.0 / most), missing=1.0 - max(0.0, mass) / base,
            total=earned, mass=max(0.0, mass), mean=float(np.clip(earned / base, 0.0, 1.0)),
            variance=sum((w[c] * gr[c]) ** 2 for c in family) + sampled * coin(earned, mass), steps=steps,
        )  # fmt: skip

    # sums of rewards are wrong by the noise of visits too, times mean reward less 1/2
    if not setting.known:
        blurred = np.where(seen, STATES * g**2, 0.0)
        if knobs["FLOW"] and slots > 1:
            for c in np.flatnonzero(blurred > 0.0):
                blurred[c] = blurred[c] * expected[c] ** 2 / (blurred[c] + expected[c] ** 2)
        for c in np.flatnonzero(seen):
            alone = (sums[c] + 0.5) / (max(visits[c], 0.0) + 1.0)
            mean = pools[c % ROWS].mean if c % ROWS in pools else float(np.clip(alone, 0.0, 1.0))
            more = (mean - half) ** 2 * blurred[c]
            gr[c] = math.hypot(gr[c], math.sqrt(more))
            if c % ROWS in pools:
                w = expected[c] / (STATES * g[c] ** 2 + expected[c] + 1.0)
                pools[c % ROWS].variance += w**2 * more

    # the law of mean rewards over pairs
    pairs = []
    for r in range(ROWS):
        if r in pools:
            data = [(pools[r].total, pools[r].mass, pools[r].variance)]
        else:
            mine = [c for c in range(r, slots * ROWS, ROWS) if seen[c]]
            data = [(sums[c], visits[c], variance_of_sum(c)) for c in mine]
        pairs += [(earned, n, max(variance, 1e-12)) for earned, n, variance in data if n > 0.0]
    law = law_over_pairs(pairs)
    prior, first = law.believed()

    # what squared residuals exceed noise, sampling and chance by
    def variation(elsewhere: float, top: float, null: float, bottom: float) -> float:
        return (elsewhere + max(0.0, top - knobs["EXCESS"] * math.sqrt(null))) / (1.0 + bottom)

    def alike(variance: np.ndarray) -> np.ndarray:  # 1 where a mean is known well
        return 0.01 / (0.01 + variance)

    residuals: dict[int, np.ndarray] = {}
    for r, pool in pools.items():
        n, own, s = expected[pool.steps], g[pool.steps], visits[pool.steps]
        concentration = float((pool.row**2).sum())
        square = ((raw[pool.steps] - counts[pool.steps, None] * pool.row) ** 2).sum(axis=1)
        sampled = n * each[pool.steps]
        usual = (STATES - 2.0 + STATES * concentration) * own**2 + sampled * (1.0 - concentration)
        pooled_by = n / (STATES * own**2 + n + 1.0)
        others = np.maximum(0.0, 1.0 - n * pooled_by / pool.mass) if pool.mass > 0.0 else np.zeros(n.size)
        own_r = gr[pool.steps] ** 2
        d = (sums[pool.steps] - s * pool.mean) ** 2 - own_r - sampled * pool.mean * (1 - pool.mean)
        with np.errstate(divide="ignore", invalid="ignore"):
            w = np.where(n > 0.0, alike((STATES * own**2 + n + 1.0) / n**2), 0.0)
            wr = np.where(n > 0.0, alike((own_r + n + 1.0) / n**2), 0.0)
            v, vr = np.where(n > 0.0, w / n, 0.0) ** 2, np.where(n > 0.0, wr / n, 0.0) ** 2
        rows = (v * (square - usual)).sum(), ((v * usual) ** 2 * 2 / STATES).sum(), (w**2 * others).sum()
        pays = (vr * d).sum(), 2.0 * ((vr * (own_r + sampled / 4)) ** 2).sum(), (wr**2 * others).sum()
        residuals[r] = np.array([*rows, *pays])
    together = sum(residuals.values(), np.zeros(6))
    elsewhere, reward_elsewhere = variation(0.02, *together[:3]), variation(0.02, *together[3:])

    out = SimpleNamespace(
        visits=visits, prior=(prior, math.sqrt(first)), model=np.full((slots * ROWS, STATES), 1.0 / STATES),
        spread=np.full(slots * ROWS, np.inf), sampling=np.full(slots * ROWS, np.inf),
        missing=np.ones(slots * ROWS), rewards=np.full(slots * ROWS, prior),
        unknown=np.full(slots * ROWS, math.sqrt(first)), reward_spread=np.zeros(slots * ROWS),
        few=np.ones(slots * ROWS), shares=[], reward_variations=[],
    )  # fmt: skip
    for c in range(slots * ROWS):
        pool = pools.get(c % ROWS)
        varies = variation(elsewhere, *residuals[c % ROWS][:3]) if pool else 0.0
        reward_varies = variation(reward_elsewhere, *residuals[c % ROWS][3:]) if pool else 0.0
        own = 0.0
        if seen[c]:
            n, hidden = max(visits[c], 0.0), math.sqrt(STATES) * g[c]
            base = max(n, 1.0, hidden)
            own = varies / (varies + (hidden**2 + max(n, 1.0)) / base**2) if pool else 1.0
            mine = SimpleNamespace(
                row=raw[c] / base, std=g[c] / base, sampling=max(each[c] / base, 1.0 / max(1.0, n + hidden)),
                missing=1.0 - n / base,
            )  # fmt: skip
            both = [(own, mine)] + ([(1.0 - own, pool)] if pool else [])
        else:
            both = [(1.0, pool)] if pool else []
        out.shares.append(own)
        out.reward_variations.append(reward_varies)
        if both:
            out.model[c] = on_simplex(sum(share * part.row for share, part in both))
            out.spread[c] = math.sqrt(sum((share * part.std) ** 2 for share, part in both))
            out.sampling[c] = sum(share**2 * part.sampling for share, part in both)
            out.few[c] = out.sampling[c]  # of all steps together, whether they are alike or not
            out.sampling[c] += (1.0 - own) ** 2 * varies
            out.missing[c] = sum(share * part.missing for share, part in both)
        mean, variance = prior, first
        if pool:
            mean, variance = law.believed(pool.total, pool.mass, max(pool.variance, 1e-12))
            variance += reward_varies
        if seen[c]:
            n, of_sum = max(visits[c], 0.0), max(variance_of_sum(c), 1e-12)
            if pool:  # a normal law, and the sum n mean + an error of this variance
                gained = variance * n / (n**2 * variance + of_sum)
                mean, variance = mean + gained * (sums[c] - n * mean), variance * (1.0 - gained * n)
            else:
                mean, variance = law.believed(sums[c], n, of_sum)
        out.rewards[c] = np.clip(mean, 0.0, 1.0)
        out.unknown[c] = min(1.0, variance / first) * math.sqrt(first)
        out.reward_spread[c] = math.sqrt(max(0.0, variance - out.unknown[c] ** 2))
    return out


def planned(setting: "Setting", believed: SimpleNamespace, q_of: Any) -> np.ndarray:
    """Backward induction, (H, R); ``q_of(left, h, c, row, after)`` is the value of one cell."""
    after, q = np.zeros(STATES), np.zeros((HORIZON, ROWS))
    for h in reversed(range(HORIZON)):
        for r in range(ROWS):
            c = (h if setting.slots > 1 else 0) * ROWS + r
            q[h, r] = q_of(float(HORIZON - h), h, r, c, after)
        after = np.array([q[h, POINTERS[s] : POINTERS[s + 1]].max() for s in range(STATES)])
    return q


def optimistic(setting: "Setting", b: SimpleNamespace) -> np.ndarray:
    """(H, R) Q with the bonuses of the module's docstring."""
    stat, privacy = setting.knobs["STAT"], setting.knobs["PRIVACY"]

    def q_of(left: float, h: int, r: int, c: int, after: np.ndarray) -> float:
        if np.isinf(b.spread[c]):
            return left
        x, mean = math.sqrt(b.sampling[c]), b.model[c] @ after
        bonus = stat * (math.sqrt(max(b.model[c] @ (after - mean) ** 2, 0.0)) * x + left * x**2)
        bonus += privacy * b.spread[c] * np.linalg.norm(after - mean)
        if setting.known:
            return float(min(left, setting.known_rewards[h, r] + mean + bonus))
        reward = min(1.0, b.rewards[c] + 0.6 * b.unknown[c])
        bonus += stat * math.sqrt(reward * (1.0 - reward)) * x + privacy * b.reward_spread[c]
        return float(min(left, reward + mean + bonus))

    return planned(setting, b, q_of)


def explored(setting: "Setting", b: SimpleNamespace, users: int, z: np.ndarray, e: int) -> np.ndarray:
    """(H, R) Q of one explorer from its normal variables (R, 5)."""
    width = (0.3, 0.45)[e] * math.sqrt(math.log1p(users))
    full = max(1.0, width)

    def q_of(left: float, h: int, r: int, c: int, after: np.ndarray) -> float:
        if np.isinf(b.spread[c]):
            return left * float(np.clip(0.5 + 0.5 * z[r, 0], 0.0, 1.0))
        x2, mean = b.sampling[c], b.model[c] @ after
        value = mean + width * z[r, 0] * math.sqrt(b.model[c] @ (after - mean) ** 2 * x2 / (1.0 + 2.0 * x2))
        value += width * z[r, 1] * b.spread[c] * np.linalg.norm(after - mean)
        value += full * z[r, 2] * b.missing[c] * after.std()
        if setting.known:
            reward = setting.known_rewards[h, r]
        else:
            draw = width * z[r, 3] * b.reward_spread[c] + full * z[r, 4] * b.unknown[c]
            reward = np.clip(b.rewards[c] + draw, 0.0, 1.0)
        return float(np.clip(reward + value, 0.0, left))

    return planned(setting, b, q_of)


def hoped(setting: "Setting", b: SimpleNamespace, users: int, number: int, seeks: bool = False) -> np.ndarray:
    """(H, R) Q of the explorer who hopes for the upper end of every belief, or of the one who seeks."""
    width = 0.6 * math.sqrt(math.log1p(users))
    if setting.knobs["FARTHER"]:
        width *= 1.5 if number % 4 == 3 else 0.75
    part = 0.5
    if seeks:
        width, part = 0.45 * math.sqrt(math.log1p(users)), 1.0

    after, q = np.zeros(STATES), np.zeros((HORIZON, ROWS))
    for h in reversed(range(HORIZON)):
        left, carried = float(HORIZON - h), np.zeros(ROWS)
        for r in range(ROWS):
            c = (h if setting.slots > 1 else 0) * ROWS + r
            if np.isinf(b.spread[c]):
                q[h, r], carried[r] = left, part * left
                continue
            x2, mean = b.sampling[c], b.model[c] @ after
            stds = [math.sqrt(b.model[c] @ (after - mean) ** 2 * x2 / (1.0 + 2.0 * x2))]
            stds += [b.spread[c] * np.linalg.norm(after - mean), b.missing[c] * after.std()]
            errors = [width * std for std in stds]
            if setting.known:
                reward = setting.known_rewards[h, r]
            else:
                reward = b.rewards[c]
                visits = 1.0 / b.few[c]  # and five more that paid 1
                lucky = (visits * reward + 5.0) / (visits + 5.0) - reward
                more = width * math.hypot(b.reward_spread[c], b.unknown[c]) + lucky
                errors.append(min(1.0 - reward, more))
            hope, worth, more = float(np.linalg.norm(errors)), reward + mean, 0.0
            if (
                seeks and b.spread[c] > 0.0
            ):  # (visits / noise)^2 of what is so little that nobody may have been
                seen = 1.0 / (STATES * b.spread[c] ** 2)
                more = max(0.0, left - worth) / (1.0 + (0.15 * seen) ** 2)
            q[h, r] = min(left, worth + max(hope, more))
            carried[r] = min(left, worth + max(part * hope, more))
        after = np.array([carried[POINTERS[s] : POINTERS[s + 1]].max() for s in range(STATES)])
    return q


def reached(setting: "Setting", b: SimpleNamespace, greedy: np.ndarray, worth: np.ndarray) -> np.ndarray:
    """(H, R) Q of one plan of the frontier explorer, and the greedy Q where it reaches too little."""
    after, q = np.zeros(STATES), np.zeros((HORIZON, ROWS))
    for h in reversed(range(HORIZON)):
        for r in range(ROWS):
            c = (h if setting.slots > 1 else 0) * ROWS + r
            part, later = 1.0, 0.0
            if not np.isinf(b.spread[c]):
                error = STATES * b.spread[c] ** 2
                part, later = error**2 / (error**2 + 0.15**2), b.model[c] @ after
            part = worth[r] * (0.0 if part < 0.2 else part)
            q[h, r] = part * (HORIZON - h) / HORIZON + (1.0 - part) * later
        after = np.array([q[h, POINTERS[s] : POINTERS[s + 1]].max() for s in range(STATES)])
        little = np.repeat(after < 0.1, np.diff(POINTERS))
        q[h, little] = greedy[h, little]
    return q


# ------------------------------------------------------------------------------------- the scenarios


@dataclass(frozen=True)
class Setting:
    """What one run of random measurements is made of."""

    sigma: float = 0.0
    reward_sigma: float = 0.0
    slots: int = HORIZON
    pooled: bool = False
    known: bool = False
    inflation: float = 0.0
    reward_visit: float = 0.0
    decay: float = 0.0
    never: bool = False
    varies: float = 0.0
    knob: tuple[tuple[str, float], ...] = ()

    @property
    def knobs(self) -> Mapping[str, float]:
        plain = {"STAT": 0.1, "PRIVACY": 0.25, "SHRINK": 1.0, "CENTERED": 1.0, "EXCESS": 2.0, "FLOW": 1.0}
        rest = {"FIRST": 0.0, "CONSISTENT": 0.0, "FARTHER": 0.0, "REACH_FROM": math.inf}
        return {**plain, **rest, **dict(self.knob)}

    @property
    def gain(self) -> float:
        return math.sqrt(1.0 - self.decay**2)

    @property
    def cells(self) -> int:
        return noise_kernels.all_cells(self.slots, ROWS, self.pooled)

    @property
    def known_rewards(self) -> np.ndarray:
        return np.random.default_rng(8).random((HORIZON, ROWS))

    def world(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Rows (H, R, S) and mean rewards (H, R); they vary over steps by ``varies``."""
        move, pay = rng.dirichlet(np.ones(STATES), ROWS), rng.random(ROWS)
        other = rng.dirichlet(np.ones(STATES), (HORIZON, ROWS)), rng.random((HORIZON, ROWS))
        return move + self.varies * (other[0] - move), pay + self.varies * (other[1] - pay)

    def steps(self, seed: int) -> Iterator[SimpleNamespace]:
        """After each release: the carried sums, the model, and both kinds of Q."""
        rng = np.random.default_rng(seed)
        move, pay = self.world(rng)
        knobs, errors = np.zeros(noise_kernels.KNOBS), np.zeros(noise_kernels.ERRORS)
        for name, value in self.knobs.items():
            knobs[getattr(noise_kernels, name)] = value
        settings = {
            "SIGMA_T": self.sigma, "SIGMA_R": self.reward_sigma, "DECAY": self.decay, "GAIN": self.gain,
            "POOLED_SIGMA_T": 0.7 * self.sigma, "POOLED_SIGMA_R": 0.7 * self.reward_sigma,
            "INFLATION": self.inflation, "REWARD_VISIT": self.reward_visit,
        }  # fmt: skip
        for name, value in settings.items():
            errors[getattr(noise_kernels, name)] = value
        memory = np.zeros(noise_kernels.memory_size(self.cells, self.slots, ROWS, STATES))
        work = np.full(noise_kernels.work_size(self.cells, ROWS, STATES), np.nan)
        known = self.known_rewards if self.known else np.zeros((0, 0))
        ties = run_key(seed)
        filtered, earned = np.zeros((HORIZON, ROWS, STATES)), np.zeros((HORIZON, ROWS))
        for i in range(RELEASES + 1):
            fresh, sums = self.seen(filtered, earned, rng)
            values, q = np.full((HORIZON + 1, STATES), np.nan), np.full((HORIZON, ROWS), np.nan)
            trials = np.full((EXPLORERS, HORIZON, ROWS), np.nan)
            extra, more = np.zeros((0, 0, 0)), np.zeros((0, 0))
            if self.pooled:
                extra = 0.7 * self.sigma * rng.normal(size=(1, ROWS, STATES))
                extra += self.gain * filtered.sum(axis=0)
                more = 0.7 * self.reward_sigma * rng.normal(size=(1, ROWS)) + self.gain * earned.sum(axis=0)
            noise_kernels.noise_aware_step(
                knobs, POINTERS, HORIZON, USERS * i, i, fresh, sums, extra, more, known, errors,
                memory, values, q, ties, trials, work,
            )  # fmt: skip
            yield SimpleNamespace(
                number=i, users=USERS * i, memory=memory, q=q, trials=trials, values=values, ties=ties,
                model=model_of_cells(work, self.cells, STATES),
                moves=rows_of(memory, self.cells, self.slots * ROWS),
            )  # fmt: skip
            visits = np.zeros((HORIZON, ROWS))
            assigned = np.zeros((HORIZON, ROWS), np.int64)
            for s in range(STATES):
                rows = [r for r in range(POINTERS[s], POINTERS[s + 1]) if not (self.never and r == NEVER)]
                law = rng.dirichlet(np.full(len(rows), 0.5), HORIZON)
                assigned[:, rows] = [rng.multinomial(USERS, p) for p in law]
            if self.never:  # and another one not at one step
                assigned[1, :2] = 0, USERS
            here = np.array([0.6, 0.3, 0.1])
            for h in range(HORIZON):
                mine = np.repeat(here, np.diff(POINTERS)) * assigned[h]
                visits[h] = np.floor(mine)
                here = mine @ move[h] / USERS
            sums = belief_sums(memory, self.cells, STATES)
            for h in range(HORIZON):
                guessed = np.repeat(rng.dirichlet(np.ones(STATES)), np.diff(POINTERS))  # wrong, as it may be
                base = h * ROWS if self.slots > 1 else 0
                for first in (base, self.slots * ROWS)[: 1 + self.pooled]:
                    sums.assigned[first : first + ROWS] += assigned[h]
                    sums.coming[first : first + ROWS] += guessed * assigned[h]
            fresh_moves = rng.multinomial(visits.astype(np.int64), move).astype(float)
            filtered = self.decay * filtered + fresh_moves
            won = rng.binomial(visits.astype(np.int64), pay).astype(float)
            earned = self.decay * earned + won - 0.5 * self.knobs["CENTERED"] * visits

    def seen(
        self, filtered: np.ndarray, earned: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """The noisy measurement of per-step sums, (T, R, S) and (T, R)."""
        if self.slots == 1:
            filtered, earned = filtered.sum(axis=0, keepdims=True), earned.sum(axis=0, keepdims=True)
        per_user = math.sqrt(USERS) if self.inflation else 1.0
        moves = self.gain * filtered + per_user * self.sigma * rng.normal(size=filtered.shape)
        sums = self.gain * earned + per_user * self.reward_sigma * rng.normal(size=earned.shape)
        return moves, np.zeros_like(sums) if self.known else sums


NOISE = {"sigma": 6.0, "reward_sigma": 4.0}
SETTINGS = {
    "no noise": Setting(),
    "no noise, varying": Setting(varies=0.9),
    "no noise, a row never assigned": Setting(never=True),
    "noise": Setting(**NOISE),
    "much noise": Setting(sigma=200.0, reward_sigma=300.0),
    "noise, varying": Setting(sigma=2.0, reward_sigma=1.0, varies=0.9),
    "decay": Setting(**NOISE, decay=0.8, never=True),
    "pooled": Setting(**NOISE, pooled=True),
    "pooled, decay, varying, a row never assigned": Setting(
        **NOISE, pooled=True, decay=0.5, never=True, varies=0.9
    ),
    "pooled first": Setting(**NOISE, pooled=True, knob=(("FIRST", 1.0),)),
    "one slot": Setting(slots=1, never=True),
    "one slot, noise": Setting(**NOISE, slots=1, never=True),
    "known": Setting(sigma=6.0, known=True, never=True, knob=(("CENTERED", 0.0),)),
    "not centred": Setting(**NOISE, knob=(("CENTERED", 0.0),)),
    "reports": Setting(sigma=1.1, reward_sigma=0.8, inflation=3.5, reward_visit=1.7, never=True),
    "reports, one slot": Setting(sigma=1.1, reward_sigma=0.8, inflation=3.5, reward_visit=1.7, slots=1),
    "not shared": Setting(**NOISE, knob=(("SHRINK", 0.0),), never=True),
    "not shared, no noise": Setting(knob=(("SHRINK", 0.0),)),
    "counts as weights": Setting(**NOISE, knob=(("FLOW", 0.0),)),
    "farther": Setting(**NOISE, knob=(("FARTHER", 1.0),)),
    "frontier": Setting(**NOISE, never=True, knob=(("REACH_FROM", 0.0),)),
    "frontier, much noise": Setting(sigma=30.0, reward_sigma=30.0, knob=(("REACH_FROM", 2.0 * USERS),)),
    "frontier, one slot": Setting(**NOISE, slots=1, never=True, knob=(("REACH_FROM", 2.0 * USERS),)),
    "frontier, no noise": Setting(knob=(("REACH_FROM", 0.0),)),
    "no excess": Setting(**NOISE, varies=0.3, knob=(("EXCESS", 0.0),)),
}
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


@pytest.mark.compiles
@pytest.mark.parametrize(("name", "seed"), by_turns([*SETTINGS], range(3)))
def test_beliefs_and_plans_are_the_references(name: str, seed: int) -> None:
    setting = SETTINGS[name]
    steps = slice(0, setting.slots * ROWS)
    for step in setting.steps(seed):
        mine, own = reference(setting, step.memory, step.model.expected), step.model
        np.testing.assert_allclose(own.visits, mine.visits, **CLOSE)
        np.testing.assert_allclose(step.moves, mine.model, **CLOSE)
        for fact in ("spread", "missing"):
            np.testing.assert_allclose(getattr(own, fact)[steps], getattr(mine, fact), **CLOSE, err_msg=fact)
        np.testing.assert_allclose(own.sampling[steps], mine.sampling, **CLOSE)
        np.testing.assert_allclose(own.few[steps], mine.few, **CLOSE)
        if not setting.known:
            spread = own.reward_spread[steps]
            none = (spread < 1e-7) & (mine.reward_spread < 1e-7)  # a root of what rounding left of nothing
            mine.reward_spread[none] = spread[none]
            for fact in ("rewards", "unknown", "reward_spread"):
                np.testing.assert_allclose(
                    getattr(own, fact)[steps], getattr(mine, fact), **CLOSE, err_msg=fact
                )
        np.testing.assert_allclose(step.q, optimistic(setting, mine), **CLOSE)
        tops = [step.q[:, a:b].max(axis=1) for a, b in itertools.pairwise(POINTERS)]
        np.testing.assert_array_equal(step.values[:-1].T, tops)
        np.testing.assert_allclose(
            step.trials[DRAWING], hoped(setting, mine, step.users, step.number), **CLOSE
        )
        if step.users >= setting.knobs["REACH_FROM"]:
            for e in range(DRAWING + 1, EXPLORERS):
                coins = open_at(step.ties, ROLE_EXPLORE, step.number, e)
                worth = draw_uniforms(coins, ROWS) if e > DRAWING + 1 else np.ones(ROWS)
                np.testing.assert_allclose(step.trials[e], reached(setting, mine, step.q, worth), **CLOSE)
        else:
            last = hoped(setting, mine, step.users, step.number, seeks=True)
            np.testing.assert_allclose(step.trials[DRAWING + 1], last, **CLOSE)
            assert np.isnan(step.trials[DRAWING + 2 :]).all()  # these have no users yet
        for e in range(DRAWING):
            coins = open_at(step.ties, ROLE_EXPLORE, step.number, e)
            z = scalar_draws(coins, 1.0, True, 5 * ROWS).reshape(ROWS, 5)
            np.testing.assert_allclose(step.trials[e], explored(setting, mine, step.users, z, e), **CLOSE)
        assert np.isfinite(step.memory).all()
        assert np.isfinite(step.q).all()
        assert np.isfinite(step.trials[: DRAWING + 2]).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", SETTINGS)
def test_predicted_visits_are_the_references(name: str, seed: int) -> None:
    """Up to two standard deviations above the count, which predictions may not exceed where it is known."""
    setting = SETTINGS[name]
    for step in setting.steps(seed):
        mine = predicted(setting, step.memory)
        if setting.knobs["FLOW"] and setting.slots > 1:
            counts, noise = step.model.counts, step.model.noise
            most = np.maximum(counts, 0.0) + 2.0 * math.sqrt(STATES) * noise
            mine = np.minimum(mine, most)
        np.testing.assert_allclose(step.model.expected, mine, **CLOSE)


def expected_visits(setting: "Setting", step: SimpleNamespace, policy: np.ndarray, users: int) -> np.ndarray:
    """(T + pooled, R) where users of a policy, given as rows (H, S), come by the model of one step."""
    here = np.full(STATES, 1.0 / STATES)
    if setting.slots > 1 and step.number > 0:
        counts, noise = step.model.counts[:ROWS], step.model.noise[:ROWS]
        above = np.maximum(0.0, counts - np.where(np.isfinite(noise), noise, 0.0))
        begun = np.add.reduceat(above, POINTERS[:-1])
        here = begun / begun.sum() if begun.sum() > 0.0 else here
    moves = step.moves.reshape(setting.slots, ROWS, STATES)
    come = np.zeros((setting.slots + 1, ROWS))
    for h in range(HORIZON):
        for t in (h if setting.slots > 1 else 0, -1):
            come[t, policy[h]] += users * (0.95 * here + 0.05 / STATES)  # in twenty one may be anywhere
        here = here @ moves[h if setting.slots > 1 else 0][policy[h]]
    return come if setting.pooled else come[:-1]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", SETTINGS)
def test_users_are_expected_where_the_believed_model_leads_their_policy(name: str, seed: int) -> None:
    setting, rng = SETTINGS[name], np.random.default_rng(seed)
    for step in setting.steps(seed):
        memory = step.memory.copy()
        sums = belief_sums(memory, setting.cells, STATES)
        sums.coming[:] = sums.assigned[:] = 0.0
        before, coming, assigned = memory.copy(), np.zeros(setting.cells), np.zeros(setting.cells)
        for users in (1, 40, 7):  # one after another
            policy = np.stack([rng.integers(POINTERS[:-1], POINTERS[1:]) for _ in range(HORIZON)])
            noise_kernels.note_assignments(memory, setting.slots, ROWS, setting.pooled, policy, users)
            coming += expected_visits(setting, step, policy, users).ravel()
            each = np.array([np.bincount(rows, minlength=ROWS) * users for rows in policy])
            steps = each if setting.slots > 1 else each.sum(axis=0, keepdims=True)
            assigned += np.concatenate([steps, each.sum(axis=0)[None]])[: setting.cells // ROWS].ravel()
        np.testing.assert_allclose(sums.coming, coming, **CLOSE)
        np.testing.assert_array_equal(sums.assigned, assigned)
        first = coming[:ROWS].sum() if setting.slots > 1 else coming[:ROWS].sum() / HORIZON
        assert first == pytest.approx(48.0, rel=1e-12)  # everybody is somewhere
        sums.coming[:] = sums.assigned[:] = 0.0
        np.testing.assert_array_equal(memory, before)  # and nothing else was touched


def test_without_noise_users_are_expected_where_they_come() -> None:
    """By the true occupancy of their policy, in total variation, once 2000 users of RiverSwim were seen."""
    mdp, learner, users = dr.make("riverswim"), dr.NoiseAwareUCBVI(), 6000
    setup, keys = Setup(mdp, learner, dr.NoPrivacy(), users), Seeded(0, 0).keys
    layout, state, session = mdp.layout, learner.begin(setup.spec, keys.ties), setup.start(Seeded(0, 0))
    shape, played, compared = (layout.horizon, layout.rows), 0, 0
    while played < users:
        release = session.release()
        plan, after = learner.plan(state, release)
        if played > 2000 and release.number == state.number:
            come = after.memory[: layout.horizon * layout.rows] - state.memory[: layout.horizon * layout.rows]
            true = layout.to_rows(planning.occupancy(mdp, plan.policy))
            off = 0.5 * np.abs(come.reshape(shape) / plan.users - true).sum(axis=1)
            assert off.max() < 0.1
            compared += 1
        state, encoder = after, session.begin(plan)
        for person in range(played, played + plan.users):
            trajectory = rollout(mdp, plan.policy, keys.environment, person)
            session.submit(encoder(trajectory, plan, SeededRng(keys.noise, person)))
        played += plan.users
    session.close()
    assert compared > 10


@pytest.mark.parametrize("sigma", [1e-9, 1e12])
@pytest.mark.parametrize(
    "name", ["pooled, decay, varying, a row never assigned", "one slot, noise", "reports"]
)
def test_extreme_noise_gives_plans_of_real_numbers(name: str, sigma: float) -> None:
    """No infinity is subtracted from another, and what is drawn stays within what can be earned."""
    setting = replace(SETTINGS[name], sigma=sigma, reward_sigma=sigma)
    most = np.arange(HORIZON, 0, -1.0)[:, None]
    for step in setting.steps(0):
        for facts in step.model:
            assert not np.isnan(facts[: setting.slots * ROWS]).any()
        for q in (step.q, *step.trials[: DRAWING + 2]):
            assert ((q >= 0.0) & (q <= most)).all()


def test_the_scenarios_meet_every_case() -> None:
    """Else the comparison above would say nothing about it."""
    shares, variations, missing, visits, unseen, pooled_alone = [], [], [], [], 0, 0
    for setting in SETTINGS.values():
        for step in setting.steps(0):
            believed = reference(setting, step.memory, step.model.expected)
            steps = slice(0, setting.slots * ROWS)
            exposure = belief_sums(step.memory, setting.cells, STATES).exposure[steps]
            shares += believed.shares
            variations += believed.reward_variations
            missing += believed.missing.tolist()
            visits += (believed.visits[steps] - step.model.counts[steps]).tolist()
            unseen += int(np.isinf(believed.spread).sum())
            pooled_alone += int(((exposure == 0) & np.isfinite(believed.spread)).sum())
    least = len(shares) // 50
    for share in (np.array(shares), np.array(missing)):
        assert (share == 0.0).sum() > least
        assert ((share > 0.001) & (share < 0.999)).sum() > least
        assert (share == 1.0).sum() > least
    assert (np.array(variations) > 0.0).sum() > least
    assert (np.abs(visits) > 1.0).sum() > least
    assert unseen > least
    assert pooled_alone > 20


def test_what_a_step_says_of_its_own_reward_is_a_sample() -> None:
    """n visits leave the standard deviation sqrt(r (1 - r) / n) of a mean reward, up to what others say."""
    setting = Setting(slots=1)
    *_, last = setting.steps(0)
    mean = last.model.rewards[:ROWS]
    width = np.hypot(last.model.reward_spread, last.model.unknown)[:ROWS]
    np.testing.assert_allclose(width, np.sqrt(mean * (1 - mean) / last.model.visits[:ROWS]), rtol=0.02)


@pytest.mark.parametrize("pay", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("centered", [1.0, 0.0])
def test_sums_of_rewards_are_as_wrong_as_noise_makes_them(pay: float, centered: float) -> None:
    """Where visits are noisy, what is over the mean reward of as many visits has the stated variance.

    Six rows, 300 draws of noise: chi-square of 1800 degrees, false alarm 1e-6 (the stated variance follows
    the estimated mean reward, which is off by a tenth of a percent).
    """
    sigma, reward_sigma, many = 40.0, 30.0, 100_000.0
    knobs, errors = np.zeros(noise_kernels.KNOBS), np.zeros(noise_kernels.ERRORS)
    knobs[noise_kernels.CENTERED] = centered
    errors[[noise_kernels.SIGMA_T, noise_kernels.SIGMA_R, noise_kernels.GAIN]] = sigma, reward_sigma, 1.0
    rng, none, half, found = np.random.default_rng(12), np.zeros((0, 0)), 0.5 * centered, []
    for _ in range(300):
        memory = np.zeros(noise_kernels.memory_size(ROWS, 1, ROWS, STATES))
        memory[:ROWS] = many  # visits that were expected
        work = np.empty(noise_kernels.work_size(ROWS, ROWS, STATES))
        moves = many / STATES + sigma * rng.normal(size=(1, ROWS, STATES))
        sums = many * (pay - half) + reward_sigma * rng.normal(size=(1, ROWS))
        noise_kernels.noise_aware_step(
            knobs, POINTERS, 1, int(many), 1, moves, sums, np.zeros((0, 0, 0)), none, none, errors,
            memory, np.zeros((2, STATES)), np.zeros((1, ROWS)), run_key(0),
            np.zeros((EXPLORERS, 1, ROWS)), work,
        )  # fmt: skip
        model = model_of_cells(work, ROWS, STATES)
        earned = sums[0] + half * model.visits
        found.append((earned - pay * model.visits) / model.reward_noise)
    square = float((np.array(found) ** 2).sum())
    assert stats.chi2.cdf(square, 1800) > 0.5e-6
    assert stats.chi2.sf(square, 1800) > 0.5e-6


# --------------------------------------------------------------------------------- the explorers' draws


def drawn(seed: int, number: int, users: int = 50_000, explorers: int = DRAWING) -> np.ndarray:
    """(E, R) what explorers believe at horizon 1 where every row's reward has one standard deviation.

    Nobody was assigned anything: a pair is worth 1/2 + z / 2, within [0, 1].
    """
    memory = np.zeros(noise_kernels.memory_size(ROWS, 1, ROWS, STATES))
    trials, q = np.zeros((explorers, 1, ROWS)), np.zeros((1, ROWS))
    noise_kernels.noise_aware_step(
        np.zeros(noise_kernels.KNOBS), POINTERS, 1, users, number, np.zeros((1, ROWS, STATES)),
        np.zeros((1, ROWS)), np.zeros((0, 0, 0)), np.zeros((0, 0)), np.zeros((0, 0)),
        np.zeros(noise_kernels.ERRORS), memory, np.zeros((2, STATES)), q, run_key(seed), trials,
        np.full(noise_kernels.work_size(ROWS, ROWS, STATES), np.nan),
    )  # fmt: skip
    assert (q == 1.0).all()
    return trials[:, 0]


def test_explorers_draw_the_normal_law() -> None:
    """6000 draws inside (0, 1) against the normal law cut at one standard deviation: false alarm 1e-7."""
    draws = np.array([drawn(seed, 2).ravel() for seed in range(500)]).ravel()
    inside = draws[(draws > 0.0) & (draws < 1.0)]
    cut = stats.truncnorm(-1.0, 1.0, loc=0.5, scale=0.5)
    assert stats.kstest(inside, cut.cdf).pvalue > 1e-7
    lost = 2 * stats.norm.sf(1.0)
    assert stats.binomtest(draws.size - inside.size, draws.size, lost).pvalue > 1e-7
    assert (draws == 0.0).any()
    assert (draws == 1.0).any()


def test_explorers_are_independent_and_draw_anew_at_every_release() -> None:
    """Correlations of 3000 pairs of uniforms, seven of them: false alarm 1e-7 each (normal tails)."""
    seeds = range(500)
    table = {n: np.array([drawn(seed, n) for seed in seeds]) for n in (2, 3)}  # (seeds, E, R)
    pairs = [
        (table[2][:, 0], table[2][:, 1]), (table[2][:, 0], table[3][:, 0]), (table[2][:, 1], table[3][:, 1]),
        (table[2][:, 0], table[3][:, 1]), (table[2][:, 1], table[3][:, 0]),
        (table[2][:-1], table[2][1:]), (table[2][:, :, :-1], table[2][:, :, 1:]),
    ]  # fmt: skip
    for one, other in pairs:
        assert (one != other).mean() > 0.8
        n = one.size
        correlation = np.corrcoef(one.ravel(), other.ravel())[0, 1]
        assert abs(correlation) < stats.norm.isf(0.5e-7) / math.sqrt(n)
    more = drawn(3, 2, explorers=EXPLORERS)
    np.testing.assert_array_equal(more[:DRAWING], drawn(3, 2))  # an explorer's draws are its own
    assert (more[DRAWING : DRAWING + 2] == 1.0).all()  # who hopes or seeks draws nothing
    for e in range(DRAWING + 2, EXPLORERS):  # nothing is known, so a plan has the values that it draws
        np.testing.assert_array_equal(more[e], draw_uniforms(open_at(run_key(3), ROLE_EXPLORE, 2, e), ROWS))


@pytest.mark.parametrize("hope", [2.0, 8.0, math.inf])
@pytest.mark.parametrize("share", [1 / 64, 1 / 93, 1 / 16, 0.3, 1_000 / 1_560, 0.999])
def test_drawing_explorers_are_a_share_and_then_fewer_and_the_hopeful_one_takes_over(
    share: float, hope: float
) -> None:
    users = [*range(3000), *np.unique(np.geomspace(3000, 10**10, 4000).astype(np.int64)).tolist()]
    each = [explorers_among(n, share, hope) for n in users]
    assert each[0] == (0, 0, 0, 0)
    assert all(type(n) is int for many in each for n in many)
    for i in range(1, len(users)):
        came = users[i] - users[i - 1]
        assert all(now - then >= 0 for now, then in zip(each[i], each[i - 1], strict=True))
        assert sum(each[i]) <= users[i]
        assert sum(each[i]) - sum(each[i - 1]) <= came + 2  # three counts are rounded down one by one
        assert each[i][0] - each[i][1] in (0, 1)
    full = 1_000 / share
    for n, (one, two, hopeful, seeking) in zip(users, each, strict=True):
        drawing = min(share * n, 2_000 * math.sqrt(n / full) - 1_000 if n > full else math.inf)
        assert abs(one + two - math.floor(drawing)) <= (n > full)
        most = hope * full  # users after whom the hopeful one's share falls too
        given_up = share * (2.0 * math.sqrt(n * most) - most if n > most else n) - drawing
        assert abs(hopeful - min(2.0, (1.0 - share) / share) * given_up) <= 1.001
        # the integral of share (x - x^2), x = sqrt(full / n)
        sought = drawing - 1_000 * (1.0 + math.log(n / full)) if n > full else 0.0
        y = (64.0 * full / n) ** (1.0 / 3.0) if n > 64.0 * full else 1.0  # share (y - y^3) for the frontier
        sought += share * (1.5 * y * n - 96.0 * full + 192.0 * full * math.log(y)) if y < 1.0 else 0.0
        assert abs(seeking - sought) <= 1.001
        assert explorers_among(n, share, hope, noise=False) == (one, two, hopeful, 0)
    first, last = explorers_among(10**10, share, hope), explorers_among(10**12, share, hope)
    for e in range(2 if math.isinf(hope) else 3):
        rel = 0.6 * math.sqrt((full if e < 2 else 8.0 * hope * full) / 10**10) + 1e-3
        assert last[e] / first[e] == pytest.approx(10.0, rel=rel)
    if math.isinf(hope):
        assert last[2] / 10**12 == pytest.approx(min(2.0 * share, 1.0 - share), rel=0.01)
    assert explorers_among(10**10, 0.0, hope) == (0, 0, 0, 0)


def four(sizes: np.ndarray) -> np.ndarray:
    """(4,) numbers of users of each explorer, all plans of the last one together."""
    return np.append(sizes[:3], sizes[3:].sum())


@pytest.mark.parametrize(
    ("privatizer", "hope"),
    [
        (dr.NoPrivacy(), 2.0), (dr.Central(epsilon=1.0, delta=1e-6), 16.0),
        (dr.Shuffle(epsilon=1.0, delta=1e-6), 16.0), (dr.Central(epsilon=1.0), 32.0),
        (dr.Local(epsilon=10.0), 32.0),
    ],
)  # fmt: skip
def test_hope_lasts_the_longer_the_noisier_the_releases_are(privatizer: Any, hope: float) -> None:
    learner, users = dr.NoiseAwareUCBVI(), 10**7
    spec = Setup(dr.make("riverswim"), learner, privatizer, users).spec
    share = learner.tuned(spec).explore_share
    assert share is not None
    before = users - 10**6
    noise = not isinstance(privatizer, dr.NoPrivacy)
    counted = [explorers_among(n, share, hope, noise) for n in (users, before)]
    wanted = np.subtract(*counted)
    assert (wanted[3] > 0) == noise
    endless = learner._exploring(before, 10**6, replace(spec, users=None))
    assert np.ptp(endless[3:]) <= 1  # eight groups of equal size
    np.testing.assert_array_equal(four(endless), wanted)
    few = learner._exploring(10**6, 10**5, replace(spec, users=None))
    assert (few[3] > 0) == noise
    assert (few[4:] == 0).all()  # there is no frontier yet
    fewer = four(learner._exploring(before, 10**6, spec))  # the last tenth: 1 - n/K is .05 on average
    np.testing.assert_allclose(fewer, 0.05 * wanted, rtol=0.02, atol=1.0)


@pytest.mark.parametrize("share", [1 / 32, 0.6, 0.999])
@pytest.mark.parametrize("batch", [1, 2, 37])
def test_no_batch_has_more_explorers_than_users(share: float, batch: int) -> None:
    """Counts are rounded one by one, so several explorers may claim one user: the first of them gets it."""
    learner, first, last = dr.NoiseAwareUCBVI(explore_share=share), 100_011, 120_028
    spec = replace(Setup(dr.make("riverswim"), learner, dr.Central(epsilon=1.0), last).spec, users=None)
    total, shared, hope = np.zeros(4, np.int64), 0, explorer_share(spec)
    for before in range(first, last, batch):
        sizes = learner._exploring(before, batch, spec)
        claimed = np.subtract(
            explorers_among(before + batch, share, hope), explorers_among(before, share, hope)
        )
        assert sizes.min() >= 0
        assert sizes.sum() == min(batch, claimed.sum())
        shared += max(0, int(claimed.sum()) - batch)
        total += four(sizes)
    wanted = np.subtract(explorers_among(before + batch, share, hope), explorers_among(first, share, hope))
    assert wanted.sum() - total.sum() == shared
    assert shared > 0 or batch > 1 or share > 0.9  # there hopes are few


@pytest.mark.parametrize("hope", [2.0, 16.0, math.inf])
@pytest.mark.parametrize("share", [1 / 64, 1 / 32, 0.3, 0.999])
@pytest.mark.parametrize("end", [400, 20_000, 3_000_000])
def test_explorers_end_with_the_users_whom_they_serve(hope: float, share: float, end: int) -> None:
    """The shares of a run without an end, times 1 - n/K, summed by the midpoint rule over thin batches."""
    times = np.unique(np.concatenate([[0], np.geomspace(1, end, 4000)]).astype(np.int64)).tolist()
    plain = np.array([explorers_among(n, share, hope) for n in times])
    ended = np.array([explorers_among(n, share, hope, end=end) for n in times])
    left = 1.0 - np.add(times[1:], times[:-1]) / (2.0 * end)
    wanted = np.cumsum(left[:, None] * np.diff(plain, axis=0), axis=0)
    # The counts are rounded down one by one, so each sum is known up to a few users.
    np.testing.assert_allclose(ended[1:], wanted, rtol=1e-3, atol=3.0)
    assert (np.diff(ended, axis=0) >= 0).all()
    assert (ended <= plain).all()


def test_explorers_that_end_change_neither_query_nor_guarantee() -> None:
    """They are post-processing: a run of known length asks and promises what it did without explorers."""
    mdp, privatizer = dr.make("riverswim"), dr.Central(epsilon=1.0, delta=1e-6)
    none, some = (
        Setup(mdp, dr.NoiseAwareUCBVI(explore_share=share), privatizer, 20_000) for share in (0.0, 1 / 32)
    )
    for field in fields(none.query):
        np.testing.assert_array_equal(getattr(some.query, field.name), getattr(none.query, field.name))
    assert some.guarantee == none.guarantee
    np.testing.assert_array_equal(some.times, none.times)
    assert some.exploring.sum() > none.exploring.sum() == 0


def test_sub_batches_add_up() -> None:
    for users in range(25):
        for parts in range(1, 6):
            for exploring in ([], [0], [users], [users // 2, users // 3], [users // 3, 0, users // 4]):
                sizes = kernels.part_sizes(users, np.array(exploring, np.int64), parts)
                assert len(sizes) == parts + len(exploring)
                assert min(sizes) >= 0
                assert sum(sizes) == users
                assert sizes[parts:] == exploring
                assert np.ptp(sizes[:parts]) <= 1


@pytest.mark.parametrize(
    "options", [{}, {"replan_every": 37}, {"explore_share": 0.9}, {"tie_batches": 3, "explore_share": 0.0}]
)
def test_plans_are_the_sub_batches_of_the_compiled_driver(options: dict[str, Any]) -> None:
    """Release by release: sizes, their order, ``last``, and explorers who follow their own beliefs.

    Sub-batches that follow one another with the same policy are one plan.
    """
    mdp = dr.make("riverswim")
    setup = Setup(mdp, dr.NoiseAwareUCBVI(**options), dr.NoPrivacy(), 400)
    times, exploring = setup.times.tolist(), setup.exploring
    share = setup.learner.tuned(setup.spec).explore_share
    assert four(exploring.sum(axis=0)).tolist() == [*explorers_among(400, share, noise=False, end=400.0)]
    keys = Seeded(0, 0).keys
    state = setup.learner.begin(setup.spec, keys.ties)
    parts, explorers = int(setup.learner.tie_batches), setup.learner.explorers
    met = played = merged = 0
    session = setup.start(Seeded(0, 0))
    for i, users in enumerate(times[:-1]):
        release = session.release()
        assert release.users == users
        length = times[i + 1] - users
        wanted = [(j, kernels.part_size(length, exploring[i], parts, j)) for j in range(parts + explorers)]
        wanted = [(j, size) for j, size in wanted if size]
        listed = setup.learner.policies(setup.learner._read(state, release), users, length)
        assert [size for _, size in wanted] == [size for _, size in listed]
        k = 0
        while k < len(wanted):
            plan, state = setup.learner.plan(state, release)
            left = plan.users
            while left:  # the sub-batches of this plan
                (j, size), policy = wanted[k], listed[k][0]
                np.testing.assert_array_equal(plan.policy, policy)
                if j >= parts:  # an explorer's policy is greedy for what it believes
                    met += 1
                    rows = mdp.layout.row_index[np.arange(mdp.states)[None, :], policy]
                    beliefs = state.trials[j - parts]
                    best = mdp.layout.from_rows(beliefs).max(axis=2)
                    np.testing.assert_array_equal(np.take_along_axis(beliefs, rows, axis=1), best)
                left, k, merged = left - size, k + 1, merged + (left > size)
                assert left >= 0
            assert plan.last is (k == len(wanted))
            assert plan.last or (listed[k][0] != plan.policy).any()
            encoder = session.begin(plan)
            for _ in range(plan.users):
                trajectory = rollout(mdp, plan.policy, keys.environment, played)
                session.submit(encoder(trajectory, plan, SeededRng(keys.noise, played)))
                played += 1
    session.close()
    assert played == 400
    assert (met > 0) is (share > 0.0)
    assert merged > 0


# ------------------------------------------------------------------------------------- steps that differ


def believed_of_a_step(visits: int, differs: bool, sigma: float = 0.0) -> tuple[np.ndarray, float, float]:
    """Row, mean reward and sampling variance that are believed of (h, row) = (1, 2).

    It has so many visits with counts as they are expected, and the other steps of its row 10^7; another
    state's rows have 1000 at each step. Where it ``differs``, no other step or row does.
    """
    law, pay = np.full((HORIZON, ROWS, STATES), 1.0 / STATES), np.full((HORIZON, ROWS), 0.2)
    if differs:
        law[1, 2], pay[1, 2] = (0.9, 0.05, 0.05), 0.8
    many = np.full((HORIZON, ROWS), 1000.0)
    many[:, 2], many[1, 2] = 1e7, visits
    setting = Setting(sigma=sigma, reward_sigma=sigma, knob=(("FLOW", 0.0),))  # visits are the counts
    knobs, errors = np.zeros(noise_kernels.KNOBS), np.zeros(noise_kernels.ERRORS)
    for name, value in setting.knobs.items():
        knobs[getattr(noise_kernels, name)] = value
    errors[[noise_kernels.SIGMA_T, noise_kernels.SIGMA_R, noise_kernels.GAIN]] = sigma, sigma, 1.0
    memory = np.zeros(noise_kernels.memory_size(setting.cells, HORIZON, ROWS, STATES))
    memory[: setting.cells] = many.ravel()  # visits that were expected
    work = np.empty(noise_kernels.work_size(setting.cells, ROWS, STATES))
    none, q = np.zeros((0, 0)), np.zeros((HORIZON, ROWS))
    noise_kernels.noise_aware_step(
        knobs, POINTERS, HORIZON, 10**8, 1, many[..., None] * law, many * (pay - 0.5), np.zeros((0, 0, 0)),
        none, none, errors, memory, np.zeros((HORIZON + 1, STATES)), q, run_key(0),
        np.zeros((EXPLORERS, HORIZON, ROWS)), work,
    )  # fmt: skip
    model = model_of_cells(work, setting.cells, STATES)
    mine = reference(setting, memory, model.expected)
    c = ROWS + 2
    row = rows_of(memory, setting.cells, setting.cells)[c]
    np.testing.assert_allclose(row, mine.model[c], **CLOSE)
    np.testing.assert_allclose(model.rewards[c], mine.rewards[c], **CLOSE)
    return row, float(model.rewards[c]), float(model.sampling[c])


@pytest.mark.parametrize("sigma", [0.0, 5.0])
def test_a_step_that_differs_is_believed_in_the_end(sigma: float) -> None:
    """However many visits its row has at other steps, its own data win as they grow."""
    wrong = []
    for visits in (30, 300, 3000, 30_000):
        row, reward, _ = believed_of_a_step(visits, True, sigma)
        wrong.append((float(np.abs(row - (0.9, 0.05, 0.05)).sum()), abs(reward - 0.8)))
    assert all(b < a for a, b in itertools.pairwise(wrong))
    assert max(wrong[-1]) < 0.01


def test_what_was_hardly_seen_at_a_step_stays_open() -> None:
    """A pool of 3 * 10^7 visits does not tell what a step is like that nobody saw: explorers draw it wide."""
    seldom = [believed_of_a_step(visits, False)[2] for visits in (0, 3, 30, 3000)]
    assert all(b < a for a, b in itertools.pairwise(seldom))
    assert seldom[0] > 1e-4 > 1e3 / 3e7
    row, reward, _ = believed_of_a_step(3, False)  # and is shared meanwhile
    np.testing.assert_allclose(row, 1.0 / STATES, atol=0.01)
    assert abs(reward - 0.2) < 0.01


@pytest.mark.statistics
@pytest.mark.parametrize("privatizer", [dr.NoPrivacy(), dr.Central(epsilon=10.0, delta=1e-6)])
def test_regret_of_late_users_falls_where_every_step_differs(privatizer: Any) -> None:
    """From 20 000 to 2 000 000 users at least fivefold, in the mean of 24 seeds.

    A run that keeps a wrong policy has the same share at both, about .06; a tenth of the seeds would do to
    fail. With two other sets of 24 seeds it fell 13 to 350 times; seeds are fixed, so the test has no chance
    in it.
    """
    world = dr.make("random", states=3, actions=2, horizon=4, seed=202, stationary=False)
    early, late = (
        dr.simulate(
            world, dr.NoiseAwareUCBVI(), privatizer, users, seeds=24, seed=2024, by="batch"
        ).late_share
        for users in (20_000, 2_000_000)
    )
    assert early > 0.0
    assert late < early / 5.0


# --------------------------------------------------------------------- how far the hopeful explorer hopes


def far_hoped(users: int, number: int, farther: bool) -> np.ndarray:
    """(R,) Q of the hopeful explorer after one noisy measurement of a world of one step, at that release."""
    knobs, errors = np.zeros(noise_kernels.KNOBS), np.zeros(noise_kernels.ERRORS)
    knobs[noise_kernels.CENTERED] = errors[noise_kernels.GAIN] = 1.0
    knobs[noise_kernels.FARTHER] = float(farther)
    errors[noise_kernels.SIGMA_T] = errors[noise_kernels.SIGMA_R] = 20.0
    memory = np.zeros(noise_kernels.memory_size(ROWS, 1, ROWS, STATES))
    memory[:ROWS] = many = 5000.0  # visits that were expected
    none, trials = np.zeros((0, 0)), np.zeros((EXPLORERS, 1, ROWS))
    noise_kernels.noise_aware_step(
        knobs, POINTERS, 1, users, number, np.full((1, ROWS, STATES), many / STATES),
        np.full((1, ROWS), -0.3 * many), np.zeros((0, 0, 0)), none, none, errors, memory,
        np.zeros((2, STATES)), np.zeros((1, ROWS)), run_key(0), trials,
        np.zeros(noise_kernels.work_size(ROWS, ROWS, STATES)),
    )  # fmt: skip
    return trials[DRAWING, 0]


def untried(users: int, factor: float) -> tuple[np.ndarray, np.ndarray]:
    """(V, Q) of a world of two steps whose second state pays, after one noisy measurement, so many users."""
    knobs, errors = np.zeros(noise_kernels.KNOBS), np.zeros(noise_kernels.ERRORS)
    errors[noise_kernels.GAIN], knobs[noise_kernels.UNTRIED] = 1.0, factor
    errors[noise_kernels.SIGMA_T] = 20.0
    memory = np.zeros(noise_kernels.memory_size(2 * ROWS, 2, ROWS, STATES))
    memory[: 2 * ROWS] = many = 100.0
    known = np.zeros((2, ROWS))
    known[:, -1] = 0.1
    values, q, none = np.zeros((3, STATES)), np.zeros((2, ROWS)), np.zeros((0, 0))
    noise_kernels.noise_aware_step(
        knobs, POINTERS, 2, users, 1, np.full((2, ROWS, STATES), many / STATES), np.zeros((2, ROWS)),
        np.zeros((0, 0, 0)), none, known, errors, memory, values, q, run_key(0), np.zeros((0, 2, ROWS)),
        np.zeros(noise_kernels.work_size(2 * ROWS, ROWS, STATES)),
    )  # fmt: skip
    return values, q


def test_the_bonus_of_untried_rows_falls_with_users() -> None:
    (_, plain), (values, much), (_, little) = untried(8_000, 0.0), untried(8_000, 0.3), untried(24_000, 0.3)
    np.testing.assert_array_equal(plain[1], much[1])  # nothing follows the last step
    bonus = much[0] - plain[0]
    error = STATES * (20.0 / 100.0) ** 2 + 1.0 / 100.0  # of noise and of sampling
    gain = np.sqrt(values[1].std() * (values[1].max() - values[1].mean()))  # the row is uniform
    np.testing.assert_allclose(bonus, 0.1 * gain * error / (error + 1.0), rtol=0.05)
    np.testing.assert_allclose((little[0] - plain[0]) / bonus, np.sqrt(9 / 25), rtol=1e-9)


def test_one_in_four_tries_hopes_twice_as_far() -> None:
    """The width is one of sqrt(ln(1 + users)): it doubles from 10 users to 11^4 - 1."""
    near, far = (far_hoped(10, number, True) for number in (1, 3))
    assert (far < 1.0).all()
    assert (near < far).all()
    np.testing.assert_array_equal(far_hoped(11**4 - 1, 1, True), far)
    for number in range(1, 18):
        np.testing.assert_array_equal(far_hoped(10, number, True), far if number % 4 == 3 else near)
    same = far_hoped(10, 1, False)
    assert ((near < same) & (same < far)).all()
    assert all((far_hoped(10, number, False) == same).all() for number in range(2, 9))


def test_farther_hopes_are_for_the_gaussian_noise_of_a_trusted_server() -> None:
    layout, learner = Layout(3, 2, 4), dr.NoiseAwareUCBVI()

    def farther(budget: Any) -> bool:
        return bool(learner.kernel(ProblemSpec(layout, 1000, budget=budget)).knobs[noise_kernels.FARTHER])

    assert farther(dr.Central(epsilon=1.0, delta=1e-6).budget)
    assert farther(dr.Central(mu=1.0).budget)
    assert farther(None)
    others = dr.Central(epsilon=1.0), dr.Central(epsilon=10.0), dr.Local(epsilon=1.0), dr.NoPrivacy()
    assert not any(farther(privatizer.budget) for privatizer in others)
    assert not farther(dr.Shuffle(epsilon=1.0, delta=1e-6).budget)
