r"""What privacy costs, at a true epsilon: the declared suite, two trust models, both sides of the table.

Everything is named as on the command line and stored as a sweep's runs are: a folder a setting under
``out/runs``, finished seeds are not run again, ``discreet compare`` and ``discreet plot`` read them. The
library's side is its defaults (:class:`~discreet.mechanisms.privatizers.central.Central`, ``Local`` and the
noise-aware learner, one setting for all worlds and budgets), so that a better mechanism enters by itself.

*Their* mechanism is the papers' at the true epsilon: Laplace noise on the three families of counts, joint
DP by a binary tree whose leaves are users (6 H L / epsilon a node), local DP on every counter of a user's
own (6 H / epsilon). Being pure it serves for both budgets, pure and approximate. All learners replan when
the users have grown by a tenth, so that the schedule is nobody's advantage.

*Users until within 10 %*. Between recorded numbers of users e_{j-1} < e_j (ends of batches, at most 1000)
the deployed policies lose on average l_j = (regret(e_j) - regret(e_{j-1})) / (e_j - e_{j-1}) a user. The
answer of a seed is the smallest recorded e_j with l_i <= V* / 10 for every i > j (0 if that holds from the
start); it is censored, "> K", if the last interval still loses more. "Stays" is only seen up to K.

Lower bounds: orders, constants set to 1, worst case over all MDPs of the size, so that a learner may well
be below on one of them: sqrt(S A H^2 T), T = K H (Jin et al. 2018); plus S A H ln(K H) / epsilon under joint
DP (Vietri et al. 2020); at least H sqrt(S A K) / min(e^epsilon - 1, 1) under local DP (Garcelon et al. 2021).
The last two are quoted from those papers, where transitions do not depend on the step.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.leaderboard.env_suites import SUITE, SUITE_SEED, World, geometric_mean
from discreet.core import checks
from discreet.envs.mdp.tabular import TabularMDP
from discreet.experiments import build_run, statistics, sweep
from discreet.experiments.engine import Engine
from discreet.experiments.results import Result
from discreet.experiments.run_config import RunConfig
from discreet.utils.system import processors
from papers.page import power_of_ten, standard_error
from papers.study import Job, Progress

Mechanism = Literal["ours", "theirs", "none"]
Floats = NDArray[np.float64]

DELTA = 1e-6
EPSILONS = (0.1, 1.0, 10.0)
TOLERANCE = 0.1
GROWTH = 1.1
_AWARE, _PAPERS = "noise-aware", ("dp-ucbvi", "private-ucb-vi")
_PLUGIN = "papers.price_of_privacy.plugin"  # registers noise-aware-sums
_BOTH: tuple[Mechanism, ...] = ("theirs", "ours")
_FAMILIES = {"learner.derive_visits": False, "learner.center_rewards": False}

# Winners of benchmarks.studies.tuning_papers; the noise-aware learner on our mechanism is at its defaults.
TUNED: Mapping[tuple[str, Mechanism], Mapping[str, float]] = {
    ("dp-ucbvi", "theirs"): {"bonus_scale": 0.1, "priv_scale": 0.0003},
    ("dp-ucbvi", "ours"): {"bonus_scale": 0.03, "priv_scale": 0.03},
    ("private-ucb-vi", "theirs"): {"bonus_scale": 0.03, "priv_scale": 0.003},
    ("private-ucb-vi", "ours"): {"bonus_scale": 0.1, "priv_scale": 0.03},
    (_AWARE, "theirs"): {"stat_scale": 0.05, "priv_scale": 0.06},
    (_AWARE, "ours"): {},
    ("ucb-vi-bernstein", "none"): {"bonus_scale": 0.3, "replan_growth": 1.02},
    ("ucb-vi", "none"): {"bonus_scale": 0.3, "replan_growth": 1.02},
    (_AWARE, "none"): {"stat_scale": 0.05, "replan_growth": 1.02},
}


# --------------------------------------------------------------------------------- what is run
@dataclass(frozen=True)
class Budget:
    """A trust model and its true budget; delta None: pure."""

    trust: Literal["none", "joint", "local"]
    epsilon: float | None = None
    delta: float | None = None

    def __str__(self) -> str:
        if self.trust == "none":
            return "no privacy"
        if self.delta is None:
            return f"{self.trust} pure {self.epsilon:g}"
        return f"{self.trust} ({self.epsilon:g}, {power_of_ten(self.delta)})"


NO_PRIVACY = Budget("none")
FAMILIES: tuple[tuple[Literal["joint", "local"], float | None], ...] = (
    ("joint", DELTA),
    ("joint", None),
    ("local", DELTA),
    ("local", None),
)


@dataclass(frozen=True)
class Cell:
    """One setting on one world. tuned : use :data:`TUNED`, else the defaults; options : further ones."""

    world: World
    learner: str
    mechanism: Mechanism
    budget: Budget
    users: int
    seed: int
    options: tuple[tuple[str, Any], ...] = ()

    def config(self, seeds: int = 1) -> RunConfig:
        """The run, by names."""
        learner, budget = self.learner, self.budget
        plugins: tuple[str, ...] = ()
        options: dict[str, Any] = dict(self.options)
        delta = budget.delta
        if self.mechanism == "theirs":
            options |= _FAMILIES | _their_release(budget)
            delta = None
            if learner == _AWARE and budget.trust == "joint":
                learner, plugins = "noise-aware-sums", (_PLUGIN,)  # a tree's releases share noise
        if not (learner == _AWARE and self.mechanism == "ours"):
            options.setdefault("learner.replan_growth", GROWTH)
        return RunConfig(
            env=self.world.env,
            env_options=dict(self.world.options),
            learner=learner,
            plugins=plugins,
            privatizer={"none": "none", "joint": "central", "local": "local"}[budget.trust],
            episodes=self.users,
            seeds=seeds,
            seed=self.seed,
            epsilon=budget.epsilon,
            delta=delta,
            by="batch",
            options=options,
        )


def _their_release(budget: Budget) -> dict[str, Any]:
    """The papers' mechanism at a true epsilon, by the privatizers' options."""
    if budget.trust == "joint":
        return {"privatizer.release": "tree", "privatizer.leaf": "user", "privatizer.noise": "laplace"}
    return {"privatizer.randomizer": "laplace"}


@dataclass(frozen=True)
class Size:
    """How much is run.

    seeds, long_seeds, square_seeds : of the main table, the long runs, the two-by-two table; chain_seeds,
    long_chain_seeds : those of RiverSwim; grid : knobs tried on RiverSwim itself, on ``grid_seeds`` other
    seeds; None: nothing is tuned on it.
    """

    worlds: tuple[World, ...] = SUITE
    epsilons: tuple[float, ...] = EPSILONS
    users: int = 20_000
    chain_users: tuple[int, ...] = (200_000, 10_000_000)
    long_users: int = 1_000_000
    seeds: int = 12
    chain_seeds: int = 48
    long_seeds: int = 4
    long_chain_seeds: int = 12
    square_seeds: int = 4
    grid: Mapping[str, tuple[float, ...]] | None = None
    grid_seeds: int = 8


_GRID = {"stat_scale": (0.1, 0.3), "priv_scale": (0.06, 0.125, 0.25, 0.5), "replan_growth": (1.05, 1.2)}
FULL = Size(grid=_GRID)
QUICK = Size(
    worlds=tuple(next(w for w in SUITE if w.kind == kind) for kind in dict.fromkeys(w.kind for w in SUITE)),
    chain_users=(200_000,),
    long_users=1_000_000,
    seeds=3,
    chain_seeds=6,
    long_seeds=2,
    long_chain_seeds=4,
    square_seeds=2,
    grid={"priv_scale": (0.125, 0.25)},
    grid_seeds=2,
)

# RiverSwim at K = 20 000: where knobs tuned on this task stand beside the defaults.
TARGETS: tuple[Budget, ...] = (
    Budget("joint", 1.0, DELTA),
    Budget("joint", 10.0, DELTA),
    Budget("joint", 1.0),
    Budget("joint", 10.0),
    Budget("local", 10.0),
    Budget("local", 3.0),
)


# Budgets at which exploration by measured returns is set beside the plain learner.
RETURNS: tuple[Budget, ...] = (
    Budget("joint", 1.0, DELTA),
    Budget("joint", 10.0, DELTA),
    Budget("joint", 1.0),
)


def by_returns(cell: Cell) -> Cell:
    """The same setting, exploring by returns."""
    return replace(cell, options=(("learner.explore", "returns"),))


def budgets(size: Size) -> list[Budget]:
    """No privacy, then every trust model, approximate and pure kept apart, at every epsilon."""
    return [NO_PRIVACY, *(Budget(t, e, d) for t, d in FAMILIES for e in size.epsilons)]


def cell_of(size: Size, world: World, learner: str, mechanism: Mechanism, budget: Budget) -> Cell:
    """One setting with the knobs of :data:`TUNED`; every world has users of its own."""
    seed = SUITE_SEED + [w.name for w in SUITE].index(world.name)
    knobs = tuple((f"learner.{name}", value) for name, value in TUNED[learner, mechanism].items())
    return Cell(world, learner, mechanism, budget, size.users, seed, knobs)


def plan(size: Size) -> dict[str, dict[Cell, int]]:
    """Cells and their numbers of seeds by table.

    main, long, chain, returns, square, baselines, targets, grid.
    """
    names = ("main", "long", "chain", "returns", "square", "baselines", "targets", "grid")
    tables: dict[str, dict[Cell, int]] = {name: {} for name in names}
    for world, budget in itertools.product(size.worlds, budgets(size)):
        one, first = cell_of(size, world, _AWARE, "ours", budget), world.kind == "chain"
        long_run = replace(one, users=size.long_users)
        tables["main"][one] = size.chain_seeds if first else size.seeds
        tables["long"][long_run] = size.long_chain_seeds if first else size.long_seeds
        if budget in RETURNS:
            tables["returns"][by_returns(one)] = size.seeds  # users are played one by one
        for users in size.chain_users if first else ():
            tables["chain"][replace(one, users=users)] = size.long_chain_seeds
    for world, (trust, delta), epsilon in itertools.product(size.worlds, FAMILIES, size.epsilons):
        for learner, mechanism in itertools.product((*_PAPERS, _AWARE), _BOTH):
            if trust == "joint" or delta is None:  # the papers' local mechanism is pure: compared with pure
                one = cell_of(size, world, learner, mechanism, Budget(trust, epsilon, delta))
                tables["square"][one] = size.square_seeds
    for world, learner in itertools.product(size.worlds, ("ucb-vi-bernstein", "ucb-vi", _AWARE)):
        tables["baselines"][cell_of(size, world, learner, "none", NO_PRIVACY)] = size.seeds
    chain = [world for world in size.worlds if world.kind == "chain"]
    for world, budget in itertools.product(chain, TARGETS if size.grid else ()):
        one = cell_of(size, world, _AWARE, "ours", budget)
        tables["targets"][one] = size.chain_seeds
        for values in itertools.product(*(size.grid or {}).values()):
            knobs = tuple((f"learner.{n}", v) for n, v in zip(size.grid or {}, values, strict=True))
            tables["grid"][replace(one, options=knobs, seed=SUITE_SEED + 500)] = size.grid_seeds
    return tables


# --------------------------------------------------------------------------------- measurements
def users_until_within(
    episodes: NDArray[np.int64], regret: Floats, optimal_value: float, tolerance: float = TOLERANCE
) -> int | None:
    """Users after which the deployed policies stay within ``tolerance`` of optimal; None: censored.

    episodes (M,) : recorded numbers of users, ascending; regret (M,) : cumulative, exact; optimal_value :
    V* > 0 a user. See the module's definition.
    """
    checks.positive("optimal_value", optimal_value)
    lost = np.diff(regret, prepend=0.0) / np.diff(episodes, prepend=0)
    bad = np.flatnonzero(lost > tolerance * optimal_value)
    if bad.size == 0:
        return 0
    return None if bad[-1] == lost.size - 1 else int(episodes[bad[-1]])


@dataclass(frozen=True)
class Until:
    """Users until within 10 %, over seeds; None: more than K. reached : share of the seeds not censored."""

    median: int | None
    low: int | None
    high: int | None
    p10: int | None
    p90: int | None
    reached: float

    @classmethod
    def of(cls, result: Result) -> Until:
        """Quantiles are order statistics, so that censored seeds are no obstacle."""
        found = [users_until_within(result.episodes, row, result.optimal_value) for row in result.regret]
        never = float(result.users) * 2
        values = np.array([never if n is None else n for n in found], np.float64)
        interval = statistics.median_interval(values)
        quantiles = np.quantile(values, [0.5, 0.1, 0.9], method="inverted_cdf").tolist()
        picked = [quantiles[0], interval.low, interval.high, *quantiles[1:]]
        shown = [None if v is None or v > result.users else int(v) for v in picked]
        median, low, high, p10, p90 = shown
        return cls(median, low, high, p10, p90, float(np.mean(values <= result.users)))


@dataclass(frozen=True)
class Row:
    """One setting's numbers. share : mean regret over the uniform policy's; epsilon_true : of the session."""

    world: str
    kind: str
    learner: str
    mechanism: Mechanism
    budget: str
    trust: str
    epsilon: float | None
    delta: float | None
    epsilon_true: float | None
    users: int
    seeds: int
    mean: float
    low: float | None
    high: float | None
    median: float
    p10: float
    p90: float
    standard_error: float
    uniform_regret: float
    share: float
    until: Until
    options: Mapping[str, Any]

    @classmethod
    def of(cls, cell: Cell, result: Result) -> Row:
        """From a result of all its seeds."""
        final = result.final_regret
        mean = statistics.mean_interval(final)
        p10, median, p90 = np.quantile(final, [0.1, 0.5, 0.9]).tolist()
        budget = cell.budget
        return cls(
            cell.world.name, cell.world.kind, cell.learner, cell.mechanism, str(budget), budget.trust,
            budget.epsilon, budget.delta, result.guarantee.epsilon, cell.users, final.size, mean.estimate,
            mean.low, mean.high, median, p10, p90, standard_error(final), result.uniform_regret,
            mean.estimate / result.uniform_regret, Until.of(result), dict(cell.options),
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(self).items()
        }


def lower_bound(mdp: TabularMDP, users: float, budget: Budget) -> float:
    """Order of the least worst-case regret after so many users; constants are set to 1 (see the module)."""
    s, a, h = mdp.states, mdp.actions, mdp.horizon
    sampling = math.sqrt(s * a * h**3 * users)
    if budget.trust == "none" or budget.epsilon is None:
        return sampling
    if budget.trust == "joint":
        return sampling + s * a * h * math.log(max(2.0, users * h)) / budget.epsilon
    return max(sampling, h * math.sqrt(s * a * users) / min(math.expm1(budget.epsilon), 1.0))


def gain(square: Mapping[tuple[str, Mechanism], float], learner: str) -> dict[str, float]:
    """How much a mechanism and a learner each gain: quotients of a two-by-two table of regrets.

    ``mechanism`` : theirs over ours with the papers' learner; ``learner`` : the papers' over ours on our
    mechanism; ``both`` their product; ``mechanism_for_ours`` and ``learner_on_theirs`` in the other order.
    """
    old, new = square[learner, "theirs"], square[_AWARE, "ours"]
    mixed, other = square[learner, "ours"], square[_AWARE, "theirs"]
    return {
        "mechanism": old / mixed, "learner": mixed / new, "both": old / new,
        "mechanism_for_ours": other / new, "learner_on_theirs": old / other,
    }  # fmt: skip


# ------------------------------------------------------------------------------------ running it
@dataclass(frozen=True)
class Found:
    """Everything that was run: rows by table, results by cell."""

    size: Size
    rows: Mapping[str, list[Row]]
    results: Mapping[Cell, Result]

    def suite_numbers(self) -> Iterator[tuple[str, statistics.Interval, dict[str, float]]]:
        """(budget, geometric mean of the shares over the suite's worlds, share by world)."""
        main = plan(self.size)["main"]
        for budget in budgets(self.size):
            cells = [cell for cell in main if cell.budget == budget]
            shares = [self.results[c].final_regret / self.results[c].uniform_regret for c in cells]
            yield (
                str(budget),
                geometric_mean(shares),
                {c.world.name: float(s.mean()) for c, s in zip(cells, shares, strict=True)},
            )

    def by_returns(self) -> Iterator[tuple[str, dict[str, tuple[float, float, float, float]]]]:
        """(budget, (regret by returns, plain regret, their quotient, its standard error) by world).

        Plain and returns on the same seeds, which meet the same users' luck.
        """
        tables = plan(self.size)
        for budget in RETURNS:
            found = {}
            for cell in (c for c in tables["main"] if c.budget == budget):
                new = self.results[by_returns(cell)].final_regret
                old = self.results[cell].final_regret[: new.size]
                quotient = float(new.mean() / old.mean())
                spread = float((new - quotient * old).std(ddof=1)) if new.size > 1 else math.nan
                error = spread / (math.sqrt(new.size) * float(old.mean()))
                found[cell.world.name] = (float(new.mean()), float(old.mean()), quotient, error)
            if found:
                yield str(budget), found

    def squares(self) -> Iterator[tuple[str, str, dict[tuple[str, Mechanism], float]]]:
        """(budget, "RiverSwim" or "suite", share by learner and mechanism); the suite's is geometric."""
        for budget in dict.fromkeys(row.budget for row in self.rows["square"]):
            rows = [row for row in self.rows["square"] if row.budget == budget]
            for where in ("RiverSwim", "suite"):
                cells: dict[tuple[str, Mechanism], list[float]] = {}
                for row in rows:
                    if where == "suite" or row.world == where:
                        cells.setdefault((row.learner, row.mechanism), []).append(row.share)
                if cells:
                    yield budget, where, {k: float(np.exp(np.mean(np.log(v)))) for k, v in cells.items()}

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "rows": {name: [row.to_json() for row in rows] for name, rows in self.rows.items()},
            "suite": [
                {"budget": budget, "geometric_mean": interval.to_json(), "shares": shares}
                for budget, interval, shares in self.suite_numbers()
            ],
            "by_returns": [
                {
                    "budget": budget,
                    "worlds": {
                        world: {"returns": new, "plain": old, "quotient": q, "standard_error": error}
                        for world, (new, old, q, error) in found.items()
                    },
                }
                for budget, found in self.by_returns()
            ],
            "two_by_two": [
                {
                    "budget": budget,
                    "where": where,
                    "shares": {f"{learner} on {mechanism}": v for (learner, mechanism), v in square.items()},
                    "gains": {learner: gain(square, learner) for learner in _PAPERS},
                }
                for budget, where, square in self.squares()
            ],
        }


def measured(
    out: Path, size: Size, workers: int | None = None, progress: Progress | None = None,
    engine: Engine | None = None,
) -> Found:  # fmt: skip
    """Run what ``out`` does not hold yet, here or on an engine, and put the tables together.

    progress : called with numbers of settings, or of runs, and how many runs of each are finished.
    """
    tables = plan(size)
    wanted = _wanted(tables)
    done = _finish(out, wanted, workers, progress, 0, engine)
    results = {cell: done[cell.config()] for table in tables.values() for cell in table}
    rows = {name: [Row.of(c, results[c]) for c in table] for name, table in tables.items()}
    best = {}
    for cell, seeds in tables["targets"].items():  # the best of the grid, on seeds that chose nothing
        tried = [c for c in tables["grid"] if c.budget == cell.budget]
        chosen = min(tried, key=lambda c: float(results[c].final_regret.mean()))
        best[replace(cell, options=chosen.options)] = seeds
    confirmed = {cell.config(): seeds for cell, seeds in best.items()}
    done |= _finish(out, confirmed, workers, progress, sum(wanted.values()), engine)
    results |= {cell: done[cell.config()] for cell in best}
    rows["tuned"] = [Row.of(cell, results[cell]) for cell in best]
    return Found(size, rows, results)


def _finish(
    out: Path, wanted: Mapping[RunConfig, int], workers: int | None, progress: Progress | None, first: int,
    engine: Engine | None,
) -> dict[RunConfig, Result]:  # fmt: skip
    """Results of configurations with so many seeds each. Here settings, not seeds, run side by side: most of
    them take less time than storing them.
    """
    if engine is not None:
        made = [build_run.resolved(config.with_seeds(seeds)) for config, seeds in wanted.items()]
        runs = [(build_run.prepare(one), one, out / "runs" / sweep.folder_name(one)) for one in made]
        told = None if progress is None else partial(_count, progress, first)
        return dict(zip(wanted, sweep.run_all(runs, build_run.prepare, engine, told), strict=True))
    stop = threading.Event()

    def one(number: int, config: RunConfig, seeds: int) -> Result:
        resolved = build_run.resolved(config.with_seeds(seeds))
        setup = build_run.prepare(resolved)
        finished: set[int] = set()

        def report(run: int, users: int) -> None:
            if stop.is_set():
                raise InterruptedError("the study was stopped")
            if users >= config.episodes and progress is not None:
                finished.add(run)
                progress(number, len(finished))

        return sweep.run(setup, resolved, out / "runs" / sweep.folder_name(resolved), 1, report)

    threads = processors() if workers is None else checks.integer("workers", workers, 1)
    with ThreadPoolExecutor(2 * threads) as pool:
        futures = {
            config: pool.submit(one, first + i, config, seeds)
            for i, (config, seeds) in enumerate(wanted.items())
        }
        try:
            return {config: future.result() for config, future in futures.items()}
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _count(progress: Progress, first: int, number: int, users: int) -> None:
    """One more run is finished."""
    progress(first + number, 1)


def _wanted(tables: Mapping[str, Mapping[Cell, int]]) -> dict[RunConfig, int]:
    """Settings with the most seeds that any table needs."""
    wanted: dict[RunConfig, int] = {}
    for cell, seeds in (item for table in tables.values() for item in table.items()):
        config = cell.config()
        wanted[config] = max(seeds, wanted.get(config, 0))
    return wanted


def size_of(quick: bool) -> Size:
    """How much is run."""
    return QUICK if quick else FULL


def runs_planned(quick: bool) -> int:
    """Runs of all settings, the confirmations of the tuned ones included."""
    tables = plan(size_of(quick))
    return sum(_wanted(tables).values()) + sum(tables["targets"].values())


def run(job: Job) -> dict[str, Any]:
    """The study's numbers (:meth:`Found.to_json`), and itself under ``found``."""
    study = measured(job.out, size_of(job.quick), job.workers, job.progress, job.engine)
    return {**study.to_json(), "found": study}
