"""Bai et al. 2024, policy elimination under shuffle privacy: what the protocols cost, measured.

The paper ("No-regret Exploration in Shuffle Private Reinforcement Learning", Bai, Talebi, Zhao, Cheng and
Chen 2024) has theorems and no experiments. :func:`run` measures its learner as this
library repairs it, :class:`~discreet.learners.online.policy_elimination.SDPPE`; its efficient variant
:class:`~discreet.learners.online.occupancy_elimination.SDPPEOM`; and the noise-aware learner. Each stands
under shuffle privacy beside a trusted server, local privacy and no privacy, at the same true epsilon, delta =
1e-6:

- on small random MDPs with transitions of their own for each step (S = 3, A = 2, H = 4: 2^10 policies, all
  of them listed), and on RiverSwim (S = 6, A = 2, H = 20, no listing), against users K and epsilon;
- the set of policies that are left after the last stage, with bounds that hold and with tuned ones;
- the noise of a counter by protocol (:mod:`papers.shuffle_noise`).

**Regret.** R(K) of a learner that is told its K: every K is a run of its own. Worlds are fixed, seeds are
random: standard errors are of means over seeds within worlds. The *cost* of privacy is R(K) less that of
the same learner without privacy, each with knobs tuned for it, run by run.

**Tuning.** ``width_scale`` and ``explore_share`` of the eliminating learners and ``replan_growth`` of the
noise-aware one, at epsilon = 1, the same grid for every privatizer, on worlds and seeds that are not
reported (:data:`GRIDS`, :class:`Size`): the least geometric mean of (regret / uniform play's). Everything
else is at its default. ``central, batches`` takes the knobs of shuffle: the two differ in trust alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.leaderboard.env_suites import tuning_shares
from discreet.core.count_query import CountQuery
from discreet.core.families import TRANSITIONS
from discreet.core.rng import Seeded
from discreet.envs import combination_lock, random_mdp, riverswim
from discreet.envs.mdp.tabular import TabularMDP
from discreet.experiments.simulate import Setup
from discreet.learners.online.noise_aware import NoiseAwareUCBVI, defaults_for
from discreet.learners.online.occupancy_elimination import SDPPEOM
from discreet.learners.online.policy_elimination import APEVE, SDPPE, EliminationMemory
from discreet.mechanisms.interfaces import Plan, ProblemSpec, Release, Schedule
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.mechanisms.privatizers.shuffle import Shuffle
from papers.references import mean_losses
from papers.shuffle_noise import noise_table
from papers.study import Job, Kept, file_name, kept

Floats = NDArray[np.float64]
Knobs = Mapping[str, Any]
DELTA = 1e-6
EPSILON = 1.0
SEED, TUNING_SEED = 2024, 42
NONE, CENTRAL, BATCHES, SHUFFLE = "none", "central", "central, batches", "shuffle"
PUBLISHED, AMPLIFIED, LOCAL = "shuffle, published", "shuffle, amplified", "local"
PRIVACY = (NONE, CENTRAL, BATCHES, SHUFFLE, PUBLISHED, AMPLIFIED, LOCAL)
SMALL, CHAIN = "small", "riverswim"
_WIDTHS = (0.003, 0.01, 0.03, 0.1)
_ELIMINATION = {"width_scale": _WIDTHS, "explore_share": (0.01, 0.05, 0.2)}
GRIDS: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "sdp-pe": _ELIMINATION,
    "apeve": {"width_scale": _WIDTHS, "explore_share": (0.05, 0.2, 0.5)},  # its first stage is of 2 sqrt(K)
    "sdp-pe-om": _ELIMINATION,
    "noise-aware": {"replan_growth": (1.05, 1.1, 1.2, 1.4)},
}
# What is run against K. A batch of SDP-PE stands alone: there central and central, batches differ in knobs
# only. The true epsilon of the published flips takes long where batches are many.
RUN: Mapping[tuple[str, str], tuple[str, ...]] = {
    (SMALL, "sdp-pe"): PRIVACY,
    (SMALL, "apeve"): (NONE,),
    (SMALL, "sdp-pe-om"): PRIVACY,
    (SMALL, "noise-aware"): (NONE, CENTRAL, BATCHES, SHUFFLE, PUBLISHED, LOCAL),
    (CHAIN, "sdp-pe-om"): (NONE, CENTRAL, BATCHES, SHUFFLE, PUBLISHED, LOCAL),
    (CHAIN, "noise-aware"): (NONE, CENTRAL, BATCHES, SHUFFLE, LOCAL),
}
BY_EPSILON = (CENTRAL, SHUFFLE, LOCAL)


@dataclass(frozen=True)
class Size:
    """How much is run.

    worlds : seeds of the small MDPs; seeds, chain_seeds : on each of them, on RiverSwim; users, chain_users :
    K; epsilons : at ``swept`` users, one of both; proven : K of elimination with bounds that hold (as
    printed: the first); training, tuning_users, tuning_seeds : of the tuning, ``tuning_users[-1]`` alone for
    RiverSwim; tried : so many values of each knob, the last of the grid; counted : batches in the table of
    noise; privacy : of :data:`RUN`, what is run.
    """

    worlds: tuple[int, ...]
    seeds: int
    chain_seeds: int
    users: tuple[int, ...]
    chain_users: tuple[int, ...]
    epsilons: tuple[float, ...]
    swept: int
    proven: tuple[int, ...]
    training: tuple[int, ...]
    tuning_users: tuple[int, ...]
    tuning_seeds: int
    tried: int
    counted: tuple[int, ...]
    privacy: tuple[str, ...] = PRIVACY


FULL = Size(
    (200, 201, 202, 203), 6, 20, (10_000, 100_000, 1_000_000, 10_000_000), (100_000, 1_000_000, 10_000_000),
    (0.3, 1.0, 3.0, 10.0), 1_000_000, (10_000_000, 1_000_000_000), (900, 901, 902), (100_000, 1_000_000), 4,
    4, (1_000, 10_000, 100_000),
)  # fmt: skip
QUICK = Size(
    (200,), 2, 2, (10_000, 100_000), (100_000,), (1.0, 10.0), 100_000, (100_000,), (900,), (100_000,), 1, 1,
    (1_000,), (NONE, CENTRAL, BATCHES, SHUFFLE, LOCAL),
)  # fmt: skip


# ---------------------------------------------------------------------------------- what is run
def world(seed: int) -> TabularMDP:
    """A small MDP whose policies can be listed; its rows differ from step to step, as in the paper."""
    return random_mdp(states=3, actions=2, horizon=4, seed=seed, stationary=False)


def worlds(scenario: str, size: Size) -> dict[str, TabularMDP]:
    """The worlds that are reported, by name."""
    if scenario == CHAIN:
        return {CHAIN: riverswim(rewards="bernoulli")}
    return {f"random {seed}": world(seed) for seed in size.worlds}


def training(scenario: str, size: Size) -> dict[str, TabularMDP]:
    """The worlds of the tuning: none of them is reported."""
    if scenario == CHAIN:
        lock = {"combination lock 106": combination_lock(states=6, seed=106)}
        return {**lock, "random 102": random_mdp(states=6, successors=2, seed=102)}
    return {f"random {seed}": world(seed) for seed in size.training}


def privatizer(privacy: str, epsilon: float = EPSILON) -> Any:
    """The privatizer of this name."""
    budget: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA}
    made: dict[str, Callable[[], Any]] = {
        NONE: NoPrivacy,
        CENTRAL: lambda: Central(**budget),
        BATCHES: lambda: Central(**budget, release="batches"),
        SHUFFLE: lambda: Shuffle(**budget),
        PUBLISHED: lambda: Shuffle(**budget, calibration="published"),
        AMPLIFIED: lambda: Shuffle(**budget, randomizer="amplified"),
        LOCAL: lambda: Local(**budget),
    }
    return made[privacy]()


def _shared_alike(query: CountQuery) -> CountQuery:
    """Equal shares of the flips' variances, as a server's shares: a share w of rewards is w / (2 - w)."""
    return replace(query, reward_share=1.0 / 3.0)


@dataclass(frozen=True, kw_only=True)
class SDPPEAlike(SDPPE):
    """SDP-PE whose questions get from a trusted server the noise that they get under shuffle."""

    def query(self, spec: ProblemSpec) -> CountQuery:
        """The learner's, with the shares of the flips."""
        return _shared_alike(super().query(spec))


@dataclass(frozen=True, kw_only=True)
class SDPPEOMAlike(SDPPEOM):
    """SDP-PE-OM whose questions get from a trusted server the noise that they get under shuffle."""

    def query(self, spec: ProblemSpec) -> CountQuery:
        """The learner's, with the shares of the flips."""
        return _shared_alike(super().query(spec))


def learner(name: str, knobs: Knobs, privacy: str = NONE) -> Any:
    """The learner of this name.

    Under ``central, batches`` it has the knobs that it has under shuffle (the noise-aware learner also those
    that it chooses there), and its rewards the share that gives every cell the same noise
    (:mod:`benchmarks.studies.shuffle_regret`).
    """
    if name != "noise-aware":
        kinds: Mapping[str, Any] = {"sdp-pe": SDPPE, "apeve": APEVE, "sdp-pe-om": SDPPEOM}
        alike: Mapping[str, Any] = {**kinds, "sdp-pe": SDPPEAlike, "sdp-pe-om": SDPPEOMAlike}
        return (alike if privacy == BATCHES else kinds)[name](**knobs)
    if privacy != BATCHES:
        return NoiseAwareUCBVI(**knobs)
    flips = Shuffle(epsilon=EPSILON, delta=DELTA)
    own: dict[str, Any] = {**defaults_for(ProblemSpec(world(0).layout, 1, budget=flips.budget)), **knobs}
    share = own["reward_share"]
    return NoiseAwareUCBVI(**{**own, "reward_share": share / (2.0 - share)})


class Watched:
    """A learner whose newest state can be read; nothing else is changed."""

    def __init__(self, learner: Any) -> None:
        self.learner = learner
        self.state: Any = None

    def __getattr__(self, name: str) -> Any:
        if name == "learner":  # a copy that has nothing yet
            raise AttributeError(name)
        return getattr(self.learner, name)

    def begin(self, spec: ProblemSpec, ties: NDArray[np.uint64]) -> Any:
        """The learner's."""
        self.state = self.learner.begin(spec, ties)
        return self.state

    def plan(self, state: Any, release: Release, ask: Any = None) -> tuple[Plan, Any]:
        """The learner's; its state is remembered."""
        plan, self.state = self.learner.plan(state, release, ask)
        return plan, self.state


def survivors(watched: Watched, setup: Setup) -> tuple[bool, int, float]:
    """(is an optimal policy left, how many are, the largest gap V* - V among them) after a run of SDP-PE."""
    memory: EliminationMemory = watched.state.memory
    mdp = setup.mdp
    tables = mdp.layout.to_rows(mdp.transitions), mdp.layout.to_rows(mdp.rewards)
    shape = (mdp.horizon, mdp.layout.rows)
    transitions = np.broadcast_to(tables[0], (*shape, mdp.states))
    gaps = setup.optimal_value - watched.learner.enumeration(setup.spec).values(
        np.ascontiguousarray(transitions), np.ascontiguousarray(np.broadcast_to(tables[1], shape))
    )
    left = gaps[memory.active]
    return bool(left.min() < 1e-9), int(left.size), float(left.max())


def _runs(
    folder: Path, name: str, mdp: TabularMDP, learns: Any, protects: Any, users: int, seeds: int,
    watch: bool = False,
) -> Kept:  # fmt: skip
    """A line a seed: final regret, what is left of the policies if ``watch``, the true epsilon."""
    facts = {"users": users, "seed": SEED, "seeds": seeds, "of": [repr(learns), repr(protects)]}
    make = partial(_played, mdp, learns, protects, users, seeds, watch)
    return Kept(folder / file_name(name, users), {**facts, "world": name}, make)


def _played(
    mdp: TabularMDP, learns: Any, protects: Any, users: int, seeds: int, watch: bool
) -> list[dict[str, Any]]:
    watched = Watched(learns) if watch else None
    setup = Setup(mdp, watched or learns, protects, users, "batch")
    lines = []
    for run in range(seeds):
        final = float(setup.run(SEED, run).regret[-1])
        optimal, left, worst = survivors(watched, setup) if watched else (None, None, None)
        line = {"final": final, "kept": optimal, "left": left, "worst": worst}
        lines.append({**line, "epsilon": setup.guarantee.epsilon})
    return lines


@lru_cache(maxsize=64)
def _uniform(scenario: str, size: Size) -> tuple[float, ...]:
    """Regret per user of uniform play on each reported world."""
    return tuple(_loss(mdp) for mdp in worlds(scenario, size).values())


def _loss(mdp: TabularMDP) -> float:
    setup = Setup(mdp, NoiseAwareUCBVI(), NoPrivacy(), 2)
    return setup.optimal_value - setup.uniform_value


# ---------------------------------------------------------------------------------------- tuning
def settings_of(size: Size, name: str) -> list[Knobs]:
    """The grid of a learner."""
    grid = {knob: values[-size.tried :] for knob, values in GRIDS[name].items()}
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def scores(folder: Path, size: Size, scenario: str, name: str, privacy: str) -> Kept:
    """A line a setting of the grid: its score on the worlds of the choice."""
    known, protects = training(scenario, size), privatizer(privacy)
    users = size.tuning_users if scenario == SMALL else size.tuning_users[-1:]
    facts = {
        "worlds": list(known), "users": list(users), "seeds": size.tuning_seeds,
        "settings": settings_of(size, name), "of": repr(protects),
    }  # fmt: skip
    path = folder / file_name("tuning", scenario, name, privacy)
    return Kept(path, facts, partial(_scored, size, scenario, name, privacy, users))


def _scored(
    size: Size, scenario: str, name: str, privacy: str, users: Sequence[int]
) -> list[dict[str, float]]:
    found, known = [], training(scenario, size)
    for knobs in settings_of(size, name):
        learns = learner(name, knobs, privacy)
        setups = (
            Setup(mdp, learns, privatizer(privacy), many, "batch")
            for mdp, many in itertools.product(known.values(), users)
        )
        shares = tuning_shares(setups, TUNING_SEED, size.tuning_seeds)
        found.append({"score": float(np.exp(np.mean(np.log(shares))))})
    return found


def tune(job: Job, size: Size, wanted: Sequence[tuple[str, str, str]]) -> list[dict[str, Any]]:
    """The winner of the grid for each (scenario, learner, privacy): knobs, its score and the worst."""
    found = []
    tables = job.tables({one: scores(job.folder, size, *one) for one in wanted})
    for (scenario, name, privacy), lines in tables.items():
        each = [line["score"] for line in lines]
        best = int(np.argmin(each))
        found.append({
            "scenario": scenario, "learner": name, "privacy": privacy,
            "knobs": settings_of(size, name)[best], "score": each[best], "worst": max(each),
        })  # fmt: skip
    return found


# -------------------------------------------------------------------------------------- measuring
def _summary(
    size: Size, scenario: str, name: str, privacy: str, epsilon: float, users: int, runs: Sequence[Any]
) -> dict[str, Any]:
    """A line of the results from the runs of each world."""
    finals = np.array([[line["final"] for line in lines] for lines in runs], float)  # (worlds, seeds)
    loss = np.array(_uniform(scenario, size))
    left, optimal, worst, true = (
        [line[name] for lines in runs for line in lines if line[name] is not None]
        for name in ("left", "kept", "worst", "epsilon")
    )
    mean, error = spread(finals)
    return {
        "scenario": scenario, "learner": name, "privacy": privacy,
        "epsilon": None if privacy == NONE else epsilon, "epsilon_true": max(true) if true else None,
        "users": users, "worlds": finals.shape[0], "seeds": finals.shape[1], "mean": mean, "error": error,
        "share": mean / (users * float(loss.mean())), "finals": finals.tolist(),
        "optimal": [sum(optimal), len(optimal)] if optimal else None,
        "left": float(np.mean(left)) if left else None, "worst": max(worst) if worst else None,
    }  # fmt: skip


def spread(values: Floats) -> tuple[float, float]:
    """Mean over (worlds, seeds) and its standard error: worlds are fixed, seeds independent."""
    count, seeds = values.shape
    if seeds < 2:
        return float(values.mean()), 0.0
    return float(values.mean()), float(np.sqrt((values.var(axis=1, ddof=1) / seeds).sum())) / count


def _curves(job: Job, size: Size, tuned: Mapping[tuple[str, str, str], Knobs]) -> list[dict[str, Any]]:
    """Every learner under every privatizer, against K at epsilon = 1 and against epsilon."""
    lines = []
    for (scenario, name), every in RUN.items():
        names = [privacy for privacy in every if privacy in size.privacy]
        cells = [
            (p, EPSILON, k) for p in names for k in (size.users if scenario == SMALL else size.chain_users)
        ]
        if len(names) > 1:
            cells += [(p, e, size.swept) for p in BY_EPSILON for e in size.epsilons]
        lines += [(scenario, name, *cell) for cell in dict.fromkeys(cells)]
    wanted = dict[tuple[Any, ...], Kept]()
    for scenario, name, privacy, epsilon, users in lines:
        knobs = tuned[scenario, name, SHUFFLE if privacy == BATCHES else privacy]
        learns, protects = learner(name, knobs, privacy), privatizer(privacy, epsilon)
        watch, seeds = name in ("sdp-pe", "apeve"), size.seeds if scenario == SMALL else size.chain_seeds
        for place, mdp in worlds(scenario, size).items():
            title = f"{name}, {privacy}, {epsilon:g}, {place}"
            wanted[scenario, name, privacy, epsilon, users, place] = _runs(
                job.folder, title, mdp, learns, protects, users, seeds, watch
            )
    kept, found = job.tables(wanted), []
    for scenario, name, privacy, epsilon, users in lines:
        runs = [kept[scenario, name, privacy, epsilon, users, place] for place in worlds(scenario, size)]
        found.append(_summary(size, scenario, name, privacy, epsilon, users, runs))
        title, share = f"{name}, {privacy}, {epsilon:g}", f"{100 * found[-1]['share']:.3g} % of uniform play"
        job.say(f"{scenario:10s} {title:36s} K = {users:<13,} {share}")
    return found


def _proven(job: Job, size: Size) -> list[dict[str, Any]]:
    """SDP-PE with bounds that hold, and as printed: what is left of the policies."""
    asked = [("theory", p, k) for p in (NONE, CENTRAL, SHUFFLE, LOCAL) for k in size.proven]
    asked += [("paper", p, size.proven[0]) for p in (NONE, PUBLISHED)]
    places = worlds(SMALL, size)
    wanted = dict[tuple[Any, ...], Kept]()
    for one, place in itertools.product(asked, places):
        preset, privacy, users = one
        name, learns = f"sdp-pe, {preset}, {privacy}, {place}", SDPPE(preset=preset)
        wanted[*one, place] = _runs(
            job.folder, name, places[place], learns, privatizer(privacy), users, size.seeds, True
        )
    kept, found = job.tables(wanted), []
    for preset, privacy, users in asked:
        runs, name = [kept[preset, privacy, users, place] for place in places], f"sdp-pe, {preset}"
        found.append(_summary(size, SMALL, name, privacy, EPSILON, users, runs))
        job.say(f"{name}, {privacy}: {found[-1]['left']:.1f} policies left of K = {users:,}")
    return found


def _noise(folder: Path, size: Size) -> list[dict[str, Any]]:
    """The table of noise per counter, local privacy beside it, at H = 20, S = 6, A = 2."""
    names = ("protocol", "users", "std", "rewards", "flips", "true")

    def make() -> list[dict[str, Any]]:
        lines: list[tuple[Any, ...]] = []
        for row in noise_table(size.counted, 20, EPSILON, DELTA):
            rewards = [value for family, value in row.std.items() if "reward" in family]
            std = row.std[TRANSITIONS]
            lines.append(
                (row.protocol, row.users, std, rewards[0] if rewards else None, row.flips, row.epsilon)
            )
        moves = CountQuery(riverswim().layout, visits=False, known_rewards=True)
        for n in size.counted:
            mechanism = privatizer(LOCAL).mechanism(moves, Schedule.one_shot(n), Seeded(0))
            std, true = mechanism.laws_at(n)[TRANSITIONS].std(), mechanism.guarantee.epsilon
            lines.append(("local, transitions alone", n, std, None, 0, true))
        return [dict(zip(names, line, strict=True)) for line in lines]

    return kept(folder / "noise.parquet", {"counted": list(size.counted), "of": [EPSILON, DELTA, 20]}, make)


def run(job: Job) -> dict[str, Any]:
    """Tuning, then everything that is reported.

    Returns
    -------
    dict
        ``tuning``, ``rows`` (regret), ``proven`` (SDP-PE with bounds that hold, and as printed), ``noise``,
        ``references`` (regret per user of policies without data), and what was asked for.
    """
    folder, size = job.folder, QUICK if job.quick else FULL
    document: dict[str, Any] = {
        "delta": DELTA, "epsilon": EPSILON, "swept": size.swept,
        "training": {s: list(training(s, size)) for s in (SMALL, CHAIN)},
        "tuning_users": list(size.tuning_users), "tuning_seeds": size.tuning_seeds,
    }  # fmt: skip
    document["noise"] = _noise(folder, size)
    document["references"] = {
        scenario: mean_losses(
            worlds(scenario, size).values(), learner("noise-aware", {}), privatizer(SHUFFLE)
        )
        for scenario in (SMALL, CHAIN)
    }
    document["proven"] = _proven(job, size)
    asked = [
        (scenario, name, privacy)
        for (scenario, name), names in RUN.items()
        for privacy in names
        if privacy != BATCHES and privacy in size.privacy
    ]
    document["tuning"] = tune(job, size, asked)
    tuned = {(one["scenario"], one["learner"], one["privacy"]): one["knobs"] for one in document["tuning"]}
    document["rows"] = _curves(job, size, tuned)
    return document
