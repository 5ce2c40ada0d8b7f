"""Regret of learners for contexts in simulated worlds of contexts, at the same true privacy loss.

    python -m benchmarks.contexts [--users 10000] [--seeds 6] [--cells "ours central-1" "tree central-1" ...]

A cell is mean regret as a share of the uniform policy's, ± its standard error over seeds, and the same share
over the last quarter of users, with the largest value of a run. Each seed has a world of its own. All rows of
a seed have the same world. The options of the other learners are those of ``discreet tune``. Learners called
"oracle" have the best of :data:`ORACLE` for each world, which nobody could know. The tables are in
benchmarks/contexts.md.

    python -m benchmarks.contexts --coverage 500 [--worlds "equal arms" ...] [--privacy none central-1 ...]

This measures intervals after a study instead: the share of runs whose interval contains the truth, and the
mean half width. "Naive" is least squares on the noisy sums with its usual interval.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np

import discreet as dr
from discreet import envs
from discreet.device.feature_map import FeatureMap
from discreet.envs.context_worlds import ContextWorld, SameForAll, SharedMeans
from discreet.experiments.context_runs import ContextSetup
from discreet.learners.ope.study_inference import StudyInference, StudyInterval

FIRST_SEED = 5000
WORLDS: dict[str, Callable[[int], dr.envs.ContextWorld]] = {
    "shared d5 A5": lambda seed: envs.shared_contexts(5, 5, seed=seed),
    "shared d10 A2": lambda seed: envs.shared_contexts(10, 2, seed=seed),
    "shared d10 A5": lambda seed: envs.shared_contexts(10, 5, seed=seed),
    "per action p5 A5": lambda seed: envs.per_action_contexts(4, 5, seed=seed),
    "per action p10 A2": lambda seed: envs.per_action_contexts(9, 2, seed=seed),
    "per action p10 A5": lambda seed: envs.per_action_contexts(9, 5, seed=seed),
    "logit p5 A3": lambda seed: envs.per_action_contexts(4, 3, link="logit", seed=seed),
    "fixed arms d10 A20": lambda seed: envs.fixed_arms(10, 20, seed=seed),
}
PRIVACY: dict[str, dict[str, float]] = {
    "none": {},
    "central-10": {"epsilon": 10.0, "delta": 1e-6},
    "central-1": {"epsilon": 1.0, "delta": 1e-6},
    "shuffle-10": {"epsilon": 10.0, "delta": 1e-6},
    "shuffle-1": {"epsilon": 1.0, "delta": 1e-6},
    "local-10": {"epsilon": 10.0, "delta": 1e-6},
}
TUNED: dict[str, dict[str, float]] = {  # options of the best trial; see benchmarks/contexts.md
    "tree central-1": {"bonus_scale": 0.001753, "ridge": 6.475},
    "tree central-10": {"bonus_scale": 0.001753, "ridge": 6.475},
    "batches central-1": {"bonus_scale": 0.005641},
    "batches central-10": {"ridge": 3.048, "lam": 0.4617},
    "zheng local-10": {"ridge": 10.83},
}
CELLS = (
    "ours none", "lin-ucb none", "lin-ts none",
    *(
        f"{name} {privacy}"
        for privacy in ("central-10", "central-1")
        for name in ("ours", "tree", "tree-oracle", "batches")
    ),
    *(f"{name} local-10" for name in ("ours", "zheng", "zheng-oracle")),
)  # fmt: skip
UNSHORTENED = 5.0**0.5  # radius with which no features of four columns are shortened
# world, options of the learner, options of the inference
STUDIES: dict[str, tuple[Callable[[int], ContextWorld], dict[str, Any], dict[str, float]]] = {
    "linear": (lambda seed: envs.per_action_contexts(4, 3, 0.3, radius=UNSHORTENED, seed=seed), {}, {}),
    "linear, shortened": (lambda seed: envs.per_action_contexts(4, 3, 0.3, seed=seed), {}, {}),
    "logit": (
        lambda seed: envs.per_action_contexts(4, 3, link="logit", radius=UNSHORTENED, seed=seed), {}, {},
    ),
    "logit, misfit": (
        lambda seed: envs.per_action_contexts(4, 3, link="logit", radius=UNSHORTENED, seed=seed),
        {}, {"misfit": 0.05, "bound": 1.5},
    ),
    "fixed arms": (lambda seed: envs.fixed_arms(5, 5, seed=seed), {}, {}),
    "equal arms": (lambda seed: equal_arms(3), {}, {}),
    "equal arms, small batches": (lambda seed: equal_arms(3), {"first": 30, "growth": 1.05}, {}),
}  # fmt: skip
STUDY_PRIVACY = {**PRIVACY, "central-0.3": {"epsilon": 0.3, "delta": 1e-6}}
TARGETS = ("effect", "naive effect", "value", "naive value", "gain", "last value", "last gain", "random")
ORACLE = tuple(product((0.0, 0.005, 0.02), (1.0, 6.0)))  # bonus_scale, ridge


def parts(cell: str) -> tuple[list[Any], Any]:
    """Return the learners of a cell, of which the best counts, and its privatizer."""
    name, privacy = cell.split()
    options = TUNED.get(cell, {})
    learners = dr.learners
    tree: dict[str, Any] = {"release": "tree", "leaf": "user"} if name.startswith("tree") else {}
    privatizer = privatizer_of(privacy, tree)
    if name.endswith("-oracle"):
        return [learners.LinUCB(bonus_scale=bonus, ridge=ridge) for bonus, ridge in ORACLE], privatizer
    kinds: dict[str, Any] = {
        "ours": learners.LinearBandit, "batches": learners.BatchedLinUCB, "lin-ts": learners.LinTS,
    }  # fmt: skip
    return [kinds.get(name, learners.LinUCB)(**options)], privatizer


def privatizer_of(privacy: str, options: dict[str, Any]) -> Any:
    """Return the privatizer with this name. options : further options of central privacy."""
    budget = STUDY_PRIVACY[privacy]
    if privacy.startswith("central"):
        return dr.Central(**budget, **options)
    kinds: dict[str, Any] = {"shuffle": dr.Shuffle, "local": dr.Local}
    return kinds.get(privacy.split("-")[0], dr.NoPrivacy)(**budget)


def equal_arms(actions: int) -> ContextWorld:
    """Return an environment in which all actions have the mean reward 0.6, with a feature for each action.

    Least squares after adaptive choices is then most biased.
    """
    ranges = {f"x{i}": (-1.0, 1.0) for i in range(actions)}
    features = FeatureMap(ranges, actions, "shared", radius=1.0, intercept=False)
    return ContextWorld(
        "equal arms", features, SameForAll(np.eye(actions)), SharedMeans(np.full(actions, 0.1))
    )


@cache
def instance(world: str, seed: int) -> tuple[dr.envs.ContextWorld, float]:
    """Return an environment and the regret of the uniform policy per user."""
    made = WORLDS[world](seed)
    setup = ContextSetup(made, dr.learners.LinearBandit(), dr.NoPrivacy(), 100)
    return made, setup.optimal_value - setup.uniform_value


def runs(world: str, learner: Any, privatizer: Any, users: int, seeds: int) -> np.ndarray:
    """Return (seeds, 2) shares of the uniform policy's regret, in percent: of all users, and of the last
    quarter.
    """
    found = []
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        made, uniform = instance(world, seed)
        run = ContextSetup(made, learner, privatizer, users).run(seed, 0)
        begin = float(np.interp(0.75 * users, run.episodes, run.regret))
        last = float(run.regret[-1])
        found.append((last / (uniform * users), (last - begin) / (uniform * users / 4)))
    return 100.0 * np.array(found)


def shares(world: str, cell: str, users: int, seeds: int) -> tuple[float, float, float, float]:
    """Return mean share, its standard error, mean late share and largest late share, in percent."""
    learners, privatizer = parts(cell)
    found = []
    for learner in learners:
        whole, late = runs(world, learner, privatizer, users, seeds).T
        found.append((whole.mean(), whole.std(ddof=1) / np.sqrt(seeds), late.mean(), late.max()))
    return min(found)


def ratio(world: str, epsilon: str, users: int, seeds: int) -> str:
    """Return mean regrets under shuffle and central privacy, and their ratio with its standard error over
    seeds.
    """
    both = (parts(f"ours {trust}-{epsilon}") for trust in ("shuffle", "central"))
    own, other = (runs(world, learner, privatizer, users, seeds)[:, 0] for (learner,), privatizer in both)
    found = own.mean() / other.mean()
    error = (own - found * other).std(ddof=1) / np.sqrt(seeds) / other.mean()
    return f"{own.mean():.2f} / {other.mean():.2f} = {found:.3f} ± {error:.3f}"


def naive(study: StudyInference, c: np.ndarray, centre: float) -> tuple[float, float]:
    """Return the usual 95 % interval of centre + c^T theta by least squares, which ignores noise."""
    assert study.state.seen is not None
    _, gram, response, _, _ = study.state.seen
    inverse = np.linalg.pinv(gram)
    middle = centre + float(np.einsum("bi,bij,bj->", c, inverse, response))
    half = 1.96 * 0.5 * float(np.sqrt(np.abs(np.einsum("bi,bij,bj->", c, inverse, c))))
    return middle - half, middle + half


def checked(
    study: StudyInference, world: ContextWorld, contexts: np.ndarray, wide: np.ndarray
) -> Iterator[tuple[str, tuple[float, float], float]]:
    """Yield (target, interval, truth) of one study.

    contexts : those at which the linear model is asked.

    wide : contexts from which the truth of users' means follows.
    """
    policy, means = study.policy(contexts), world.means(contexts)
    one, value = means[0, 0] - means[0, 1], means[np.arange(len(policy)), policy].mean()

    def ends(found: StudyInterval) -> tuple[float, float]:
        return found.low, found.high

    yield "effect", ends(study.effect(0, 1, contexts[0])), one
    c = study._mean_features(0, contexts[0]) - study._mean_features(1, contexts[0])
    yield "naive effect", naive(study, c, 0.0), one
    yield "value", ends(study.value(policy, contexts)), value
    yield "naive value", naive(study, study._mean_features(policy, contexts), 0.5), value
    yield "gain", ends(study.effect(policy, "uniform", contexts)), value - means.mean()
    if study.features.intercept:
        means = world.means(wide)
        value = means[np.arange(len(wide)), study.policy(wide)].mean()
        yield "last value", ends(study.last_value()), value
        yield "last gain", ends(study.last_gain()), value - means.mean()
        yield "random", ends(study.random_effect(0, 1)), (means[:, 0] - means[:, 1]).mean()


def coverage(name: str, privacy: str, users: int, seeds: int, first: int = FIRST_SEED) -> str:
    """Return a row of the table: for each target, coverage in percent and mean half width."""
    make, options, assumed = STUDIES[name]
    learner, privatizer = dr.learners.LinearBandit(final_share=0.15, **options), privatizer_of(privacy, {})
    found: dict[str, list[tuple[bool, float]]] = {target: [] for target in TARGETS}
    for part in range(20):  # twenty worlds
        world = make(FIRST_SEED + part)
        draw = np.random.default_rng([FIRST_SEED, part])
        contexts, wide = world.draw(200, draw), world.draw(10_000, draw)
        setup = ContextSetup(world, learner, privatizer, users)
        for seed in range(first + part, first + seeds, 20):
            study = StudyInference(setup.study(seed)[1], **assumed)
            for target, (low, high), truth in checked(study, world, contexts, wide):
                inside = low - 1e-9 <= truth <= high + 1e-9
                found[target].append((bool(inside), (high - low) / 2.0))
    cells = []
    for target in TARGETS:
        inside, half = np.array(found[target] or [(np.nan, np.nan)], float).mean(axis=0)
        cells.append("" if np.isnan(inside) else f"{100 * inside:.1f} ({half:.3f})")
    return f"| {name} | {privacy} | " + " | ".join(cells) + " |"


def main(argv: Sequence[str] | None = None) -> None:
    """Print one table: a row for each world, a column for each cell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--cells", nargs="*", default=list(CELLS), choices=list(CELLS))
    parser.add_argument(
        "--shuffle", nargs="*", choices=["1", "10"], help="compare shuffle with central at these ε"
    )
    parser.add_argument("--coverage", type=int, metavar="RUNS", help="measure intervals in as many studies")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED, help="first seed of --coverage")
    parser.add_argument("--worlds", nargs="*", default=list(STUDIES), choices=list(STUDIES))
    parser.add_argument("--privacy", nargs="*", default=list(STUDY_PRIVACY), choices=list(STUDY_PRIVACY))
    given = parser.parse_args(argv)
    if given.coverage:
        print("| world | privacy | " + " | ".join(TARGETS) + " |")
        print("|---" * (2 + len(TARGETS)) + "|")
        for name in given.worlds:
            for privacy in given.privacy:
                row = coverage(name, privacy, given.users, given.coverage, given.first_seed)
                print(row, flush=True)
        return
    if given.shuffle:
        print("| world | " + " | ".join(f"ε = {e}" for e in given.shuffle) + " |")
        print("|---" * (1 + len(given.shuffle)) + "|")
        for world in WORLDS:
            cells = [ratio(world, e, given.users, given.seeds) for e in given.shuffle]
            print(f"| {world} | " + " | ".join(cells) + " |", flush=True)
        return
    print("| world | " + " | ".join(given.cells) + " |\n|---" + "|---" * len(given.cells) + "|")
    for world in WORLDS:
        cells = []
        for cell in given.cells:
            mean, error, late, worst = shares(world, cell, given.users, given.seeds)
            cells.append(f"{mean:.2f} ± {error:.2f} (late {late:.2f}, worst {worst:.2f})")
        print(f"| {world} | " + " | ".join(cells) + " |", flush=True)
        instance.cache_clear()


if __name__ == "__main__":
    main()
