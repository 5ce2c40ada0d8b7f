r"""Private policies from cohorts of intensive care: when do they beat the clinicians who made the data?

ICU-Sepsis (S = 716, 2 313 admissible pairs, H = 20), whose value is the probability of survival within 20
steps, treated by its expert renormalised on the admissible actions. A private learner of the whole cohort
is worth something here only if its policy is better than what the cohort's clinicians did.

Two traps, both closed. *Ties*: playing the first admissible action everywhere, which needs no data, is far
better than the expert; a learner that knows nothing, breaks ties by the smallest index and is evaluated
here seems to have learned. Ties are therefore broken at random (``unsupported = "policy"``) or left to
the clinicians ("behaviour"). *Known rewards*: r(s, a) is the probability to survive at the next step, so
whoever knows the mean rewards, as the paper supposes, knows part of the transitions: the policy that is
greedy in r is better than the expert too. Public is the outcome rule: 1 on arrival in survival.

What is asked of the cohort, at mu-GDP, with visits and transitions at equal noise:

- *per step* (DP-APVI, the paper): exchanging a patient moves 2 cells of each table at every step, so
  l2 = sqrt(4 H) and sigma = sqrt(4 H) / mu a cell (more with unknown rewards, which need a share).
- *sum of the released steps*: as the model is declared stationary, the H noisy tables may be added up: free
  post-processing. Counts are H times as large and sigma is sqrt(H) sqrt(4 H) / mu = 2 H / mu.
- *pooled before the noise*: one patient may have all H records in one cell, so l2 = H sqrt(4) and
  sigma = 2 H / mu: the same. (With Laplace noise of scale l1 / epsilon, l1 = 4 H either way, the pooled
  question has sqrt(H) times less.)
- *first visits*: a patient's records at the first visit to each state (not a declared terminal one). They
  lie in different cells, at most m = min(S, H) of them. A state visited in both worlds moves at most 2
  cells of each table by 1; one that is visited in one world only moves 1 of each. Squares add up to at
  most 4 c + 2 (u - c) + 2 (v - c) = 2 (u + v) <= 4 m with u, v <= m states visited and c of them in both,
  so sigma = sqrt(4 m) / mu: the noise of a single step on the counts of all of them. Whether a visit is
  the first is settled before its action and successor are drawn, so the estimates are not biased.

Noise is continuous Gaussian, drawn from a seed: simulation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.accounting import budget as budgets
from discreet.core import checks
from discreet.core.families import CENTERED_REWARDS, TRANSITIONS, VISITS
from discreet.core.rng import Seeded
from discreet.envs.icu_sepsis import DEATH, END, SURVIVAL, expert_policy, icu_sepsis
from discreet.envs.mdp import tabular_kernels as world_kernels
from discreet.envs.mdp.planning import optimal_values, policy_value, uniform_policy
from discreet.envs.mdp.tabular import TabularMDP
from discreet.envs.rollouts.rollout import rollout_batch
from discreet.learners.estimation import model_kernels as kernels
from discreet.learners.offline.apvi import APVI, DPAPVI, OfflinePolicy
from discreet.mechanisms.interfaces import Estimate, ProblemSpec, Release, Schedule
from discreet.mechanisms.policy_rows import PolicyRows, policy_rows
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.utils.random_streams_kernels import ROLE_BATCH, ROLE_MODEL, generator_at, open_at, run_key
from papers.study import Job, Kept, file_name

Floats = NDArray[np.float64]
Method = Literal["per step", "per step, mean rewards known", "sum of the released steps", "first visits"]
Unsupported = Literal["policy", "behaviour"]

USERS = (10_000, 100_000, 1_000_000, 10_000_000)
EPSILONS: tuple[float | None, ...] = (1.0, 3.0, 10.0, None)
DELTA = 1e-8
METHODS: tuple[Method, ...] = (
    "per step", "per step, mean rewards known", "sum of the released steps", "first visits",
)  # fmt: skip
FIRST_SEED = 100
# Constants for all sizes and budgets, by true value on cohorts of seeds 500 and 600: pooled, c1 in 0, .3, 1
# and b in 0, .3, 1, 3; DP-APVI, c2 in 0, 3e-7, 1e-6, 3e-6, 3e-5 (thresholds 1, 3, 10, c3 = .02, .002 hardly
# matter); APVI, (c1, c3) in (0, 0), (0, .002), (.05, 0), (.2, .02).
C1, B, C2, C3 = 0.0, 0.3, 1e-6, 0.002
_CHUNK = 2**16


# ------------------------------------------------------------------------------------- the world
@dataclass(frozen=True, eq=False)
class Ward:
    """A world with outcomes, the behaviour of its data, and what is public about outcomes.

    mdp : stationary; behaviour : (H, S, A); terminal : declared absorbing states of value 0; arrival : (S,)
    reward on arrival.
    """

    mdp: TabularMDP
    behaviour: Floats
    terminal: tuple[int, ...]
    arrival: Floats

    @cached_property
    def rows(self) -> PolicyRows:
        """The behaviour, checked once."""
        return policy_rows(self.mdp.layout, self.behaviour)

    @cached_property
    def means(self) -> Floats:
        """(H, R) mean rewards."""
        shape = self.mdp.horizon, self.mdp.layout.rows
        return np.ascontiguousarray(np.broadcast_to(self.mdp.world.mean_reward.reshape(-1, shape[1]), shape))

    def references(self) -> dict[str, float]:
        """Values of policies that need no data, and of the best one."""
        layout, mask = self.mdp.layout, self.mdp.mask
        first = np.repeat(mask.argmax(axis=1)[None], layout.horizon, axis=0)
        greedy = layout.from_rows(self.means, fill=-1.0).argmax(axis=-1)
        return {
            "clinicians": policy_value(self.mdp, self.rows),
            "uniform": policy_value(self.mdp, uniform_policy(self.mdp)),
            "first admissible action": policy_value(self.mdp, first),
            "greedy in the mean rewards": policy_value(self.mdp, greedy),
            "optimal": float(self.mdp.initial @ optimal_values(self.mdp)[0][0]),
        }


@lru_cache(1)
def icu() -> Ward:
    """ICU-Sepsis over 20 steps, treated by its expert renormalised on the admissible actions."""
    mdp = icu_sepsis()
    arrival = np.zeros(mdp.states)
    arrival[SURVIVAL] = 1.0
    behaviour = expert_policy(horizon=mdp.horizon, inadmissible="renormalised")
    return Ward(mdp, behaviour, (DEATH, SURVIVAL, END), arrival)


# ------------------------------------------------------------------------------------- the cohort
class Counts(NamedTuple):
    """visits (T, R), moves (T, R, S), rewards (T, R): T = H, or 1 where steps are pooled."""

    visits: Floats
    moves: Floats
    rewards: Floats


def cohort(ward: Ward, users: int, seed: int) -> Counts:
    """Counts per step of so many patients, from their exact joint law: the cost does not grow with them."""
    mdp, layout = ward.mdp, ward.mdp.layout
    shape = layout.horizon, layout.rows
    found = Counts(np.zeros(shape), np.zeros((*shape, layout.states)), np.zeros(shape))
    state = open_at(run_key(checks.integer("seed", seed, 0), 0), ROLE_BATCH, 0, 0)
    world_kernels.flow(
        mdp.world, checks.integer("users", users, 1), *ward.rows, state, found.visits, found.moves,
        found.rewards, np.zeros(layout.states), np.empty(shape),
        np.empty(world_kernels.work_size(mdp.world), np.int64),
    )  # fmt: skip
    return found


def first_visits(ward: Ward, users: int, seed: int) -> Counts:
    """Counts (1, R, ...) at the first visit to each state that is not terminal; patients one by one."""
    layout = ward.mdp.layout
    states, pairs = layout.states, layout.rows
    visits, moves = np.zeros(pairs), np.zeros(pairs * states)
    alive = np.ones(states, dtype=bool)
    alive[list(ward.terminal)] = False
    for begin in range(0, checks.integer("users", users, 1), _CHUNK):
        played = rollout_batch(ward.mdp, ward.rows, min(_CHUNK, users - begin), seed, 0, begin)
        at = played.states.astype(np.int32)
        first = alive[at[:, :-1]]
        for h in range(1, layout.horizon):
            first[:, h] &= ~(at[:, :h] == at[:, h : h + 1]).any(axis=1)
        rows = layout.row_index[at[:, :-1][first], played.actions[first]]
        visits += np.bincount(rows, minlength=pairs)
        moves += np.bincount(rows * states + at[:, 1:][first], minlength=pairs * states)
    return Counts(visits[None], moves.reshape(1, pairs, states), np.zeros((1, pairs)))


# ------------------------------------------------------------------------- per step: DP-APVI, APVI
def step_release(
    ward: Ward, counts: Counts, users: int, epsilon: float | None, known: bool, noise: np.random.Generator
) -> tuple[Release, ProblemSpec]:
    """One release of counts per step with the noise that Central draws, by rows, and the public facts."""
    layout = ward.mdp.layout
    spec = ProblemSpec(layout, known_rewards=layout.from_rows(ward.means) if known else None)
    learner = DPAPVI() if epsilon is not None else APVI()
    query, schedule = learner.query(spec), Schedule.one_shot(users, plans="stochastic")
    privatizer = NoPrivacy() if epsilon is None else Central(epsilon=epsilon, delta=DELTA, noise="gaussian")
    mechanism = privatizer.mechanism(query, schedule, Seeded())
    laws, guarantee = mechanism.laws_at(users), mechanism.guarantee
    exact = {
        VISITS: counts.visits, TRANSITIONS: counts.moves,
        CENTERED_REWARDS: counts.rewards - 0.5 * counts.visits,
    }  # fmt: skip
    estimates = {}
    for name in query.row_families:
        table, scale = exact[name], laws[name].std()
        noisy = table
        if scale > 0.0:  # in place: the tables are large
            noisy = noise.standard_normal(table.shape)
            noisy *= scale
            noisy += table
        estimates[name] = Estimate(noisy, laws[name], covers=users, effective=float(users))
    return Release(estimates, users, 1, guarantee), spec


def step_policies(
    ward: Ward, found: OfflinePolicy, ties: np.random.Generator
) -> dict[Unsupported, Floats | NDArray[np.int64]]:
    """The policy with ties broken at random, and with the clinicians where there is a tie or no support."""
    mask = ward.mdp.mask
    q = np.where(mask, found.q, -1.0)
    top = q == q.max(axis=-1, keepdims=True)
    policy = np.where(top, ties.random(top.shape), -1.0).argmax(axis=-1)
    sure = found.supported & (top.sum(axis=-1) == 1)
    kept_on = np.where(sure[..., None], np.eye(mask.shape[1])[policy], ward.behaviour)
    return {"policy": policy, "behaviour": kept_on}


# ----------------------------------------------------------------------- pooled: stationary models
def pooled_scale(method: Method, horizon: int, states: int, epsilon: float) -> float:
    """Standard deviation of a pooled count, visits and transitions alike (module docstring)."""
    mu = budgets.gdp_mu(epsilon, DELTA)
    if method == "first visits":
        return math.sqrt(4 * min(states, horizon)) / mu
    return 2 * horizon / mu


def pooled_release(
    counts: Counts, method: Method, horizon: int, epsilon: float | None, noise: np.random.Generator
) -> tuple[Floats, Floats, float]:
    """Noisy pooled visits (R,), moves (R, S) and their standard deviation.

    The sum of H noisy tables has the law of the sum of the tables with sqrt(H) times the noise, which is
    how it is drawn here.
    """
    visits, moves = counts.visits.sum(axis=0), counts.moves.sum(axis=0)
    if epsilon is None:
        return visits, moves, 0.0
    scale = pooled_scale(method, horizon, moves.shape[-1], epsilon)
    return (
        visits + noise.normal(0.0, scale, visits.shape),
        moves + noise.normal(0.0, scale, moves.shape),
        scale,
    )


def consistent(visits: Floats, moves: Floats, scale: float) -> Floats:
    """(R, S) non-negative counts: least squares of both tables, then DP-APVI's projection onto the visits."""
    if scale == 0.0:
        return moves
    states = moves.shape[1]
    gap = moves.sum(axis=1) - visits
    better = visits + gap / (1 + states)
    targets = np.maximum(moves - (gap / (1 + states))[:, None], 0.0)
    found, moved = np.empty_like(targets), np.empty(len(visits))
    kernels.project_table(targets, np.maximum(better, 0.0), np.zeros(len(visits)), found, moved)
    return found


def plan_pooled(
    ward: Ward, moves: Floats, scale: float, c1: float, b: float, ties: np.random.Generator
) -> dict[Unsupported, Floats | NDArray[np.int64]]:
    """Pessimistic plans from pooled consistent counts, W_h = V_{h+1} + reward on arrival, V = 0 when over:

        Q_h = clip(P~ W_h - c1 sqrt(Var_{P~}(W_h) / n~) - b sigma / n~, 0, 1)   where n~ > sigma, else 0.

    "behaviour": what the clinicians do is one action more, with the counts of the whole state (sums of
    released counts, hence better known than any single action) and without penalty; the policy leaves it
    only for an action whose lower bound is above its estimate. "policy": ties at random.
    """
    layout = ward.mdp.layout
    n = moves.sum(axis=1)
    supported, safe = n > max(scale, 0.5), np.maximum(n, 1e-9)
    starts = layout.state_ptr[:-1]
    whole = np.add.reduceat(n, starts)
    seen = whole > max(scale, 0.5)
    best: dict[Unsupported, Floats | NDArray[np.int64]] = {}
    one_hot = np.eye(layout.actions)
    for unsupported in ("policy", "behaviour"):
        values = np.zeros(layout.states)
        policy = np.zeros((layout.horizon, layout.states), np.int64)
        stays = np.zeros(policy.shape, dtype=bool)
        for h in reversed(range(layout.horizon)):
            ahead = values + ward.arrival
            middle = 0.5 * (ahead.min() + ahead.max())
            ahead = ahead - middle
            sums = moves @ ahead
            mean = sums / safe
            spread = np.sqrt(np.maximum(moves @ (ahead * ahead) / safe - mean * mean, 0.0))
            lower = mean + middle - c1 * spread / np.sqrt(np.maximum(n, 1.0)) - b * scale / safe
            q = np.where(supported, np.clip(lower, 0.0, 1.0), 0.0)
            table = layout.from_rows(q[None], fill=-1.0)[0]
            values = table.max(axis=1)
            top = table == values[:, None]
            policy[h] = np.where(top, ties.random(top.shape), -1.0).argmax(axis=1)
            if unsupported == "behaviour":
                treated = np.add.reduceat(sums, starts) / np.maximum(whole, 1e-9) + middle
                treated = np.where(seen, np.clip(treated, 0.0, 1.0), 0.0)
                stays[h] = values <= treated
                values = np.maximum(values, treated)
            values[list(ward.terminal)] = 0.0
        chosen = np.where(stays[..., None], ward.behaviour, one_hot[policy])
        best[unsupported] = policy if unsupported == "policy" else chosen
    return best


# -------------------------------------------------------------------------------------- the study
UNSUPPORTED: tuple[Unsupported, ...] = ("policy", "behaviour")


def _values(method: Method, seed: int, users: int, epsilons: Sequence[float | None]) -> list[dict[str, Any]]:
    """What the policies of one method and cohort are worth."""
    ward = icu()
    told = (first_visits if method == "first visits" else cohort)(ward, users, seed)
    return [
        {"epsilon": epsilon, "unsupported": unsupported, "v": policy_value(ward.mdp, policy)}
        for epsilon in epsilons
        for unsupported, policy in policies(ward, told, method, users, epsilon, seed).items()
    ]


@dataclass(frozen=True)
class Size:
    """What is run."""

    users: tuple[int, ...] = USERS
    epsilons: tuple[float | None, ...] = EPSILONS
    seeds: int = 5
    methods: tuple[Method, ...] = METHODS


FULL = Size()
QUICK = Size((100_000,), (3.0, None), 2, ("sum of the released steps", "first visits"))


def policies(
    ward: Ward, told: Counts, method: Method, users: int, epsilon: float | None, seed: int
) -> dict[Unsupported, Floats | NDArray[np.int64]]:
    """What a method makes of a cohort at a budget: fresh noise for each (seed, users, method, epsilon)."""
    address = METHODS.index(method), 0 if epsilon is None else int(1000 * epsilon)
    noise = generator_at(run_key(seed, users), ROLE_MODEL, *address)
    ties = generator_at(run_key(seed, users), ROLE_MODEL, len(METHODS) + address[0], address[1])
    if method in ("per step", "per step, mean rewards known"):
        release, spec = step_release(ward, told, users, epsilon, "known" in method, noise)
        learner = APVI(c1=C1, c3=C3) if epsilon is None else DPAPVI(c1=C1, c2=C2)
        return step_policies(ward, learner.learn(release, spec), ties)
    visits, moves, scale = pooled_release(told, method, ward.mdp.horizon, epsilon, noise)
    return plan_pooled(ward, consistent(visits, moves, scale), scale, C1, B, ties)


def run(job: Job, size: Size = FULL) -> dict[str, Any]:
    """The study, resumable: a Parquet file for each method and cohort in the job's folder, and all of it.

    Returns
    -------
    dict
        ``references``: name to value; ``delta``, ``seeds``; ``rows``: users, epsilon, method, unsupported,
        values by seed.
    """
    references = icu().references()  # raises ImportError where there are no data
    found: dict[tuple[int, float | None, Method, Unsupported], list[float]] = {
        key: [] for key in itertools.product(size.users, size.epsilons, size.methods, UNSUPPORTED)
    }
    seeds, wanted = range(FIRST_SEED, FIRST_SEED + size.seeds), {}
    for method, seed, users in itertools.product(reversed(size.methods), seeds, size.users):
        facts = {
            "method": method, "seed": seed, "users": users, "epsilons": list(size.epsilons), "delta": DELTA,
            "knobs": [C1, C2, *([C3] if method.startswith("per step") else [B])],
        }  # fmt: skip
        make = partial(_values, method, seed, users, size.epsilons)
        wanted[method, users, seed] = Kept(job.folder / file_name("icu", method, users, seed), facts, make)
    for (method, users, _), lines in job.tables(wanted).items():
        for line in lines:
            found[users, line["epsilon"], method, line["unsupported"]].append(line["v"])
    rows = [
        {"users": users, "epsilon": epsilon, "method": method, "unsupported": unsupported, "values": values}
        for (users, epsilon, method, unsupported), values in found.items()
    ]
    return {"references": references, "delta": DELTA, "seeds": size.seeds, "rows": rows}
