r"""How a learner does on every kind of world: mean, worst seed and late share, world by world.

    python -m benchmarks.studies.broad --learner noise-aware --users 20000 --seeds 32 --out results/broad

For each world of :data:`benchmarks.leaderboard.env_suites.BROAD` and each budget:

- *share*: final regret over the regret of the uniform policy, mean and worst seed;
- *late share*: regret per user in the last quarter of the run over the uniform policy's regret per user. A
  learner that has settled on a policy that is not optimal keeps its late share for ever; one that learns
  has a late share that falls with the number of users.

Worlds that are too large for counts per step (``World.pooled``) are run with ``stationary=True``.
Results are printed as a table and, with ``--out``, written as JSON lines, one a cell, as they come; cells
that are there are not run again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.leaderboard.env_suites import BROAD, SUITE, TRAINING, World
from discreet.envs.mdp import planning
from discreet.experiments.simulate import Setup, iterate_runs
from discreet.learners.online.joint_posterior import JointPosterior
from discreet.learners.online.noise_aware import NoiseAwareUCBVI
from discreet.learners.online.policy_gradient import DPNaturalPolicyGradient, DPPolicyGradient
from discreet.learners.online.psrl import PSRL
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.mechanisms.privatizers.shuffle import Shuffle

BROAD_SEED = 9200  # of reports; no choice was made on it
BUDGETS: Mapping[str, Any] = {
    "none": NoPrivacy(),
    "(1, 1e-6)": Central(epsilon=1.0, delta=1e-6),
    "(10, 1e-6)": Central(epsilon=10.0, delta=1e-6),
    "pure 1": Central(epsilon=1.0),
    "pure 10": Central(epsilon=10.0),
    "local 3": Local(epsilon=3.0),
    "local 10": Local(epsilon=10.0),
    "shuffle (1, 1e-6)": Shuffle(epsilon=1.0, delta=1e-6),
}

LEARNERS: Mapping[str, Any] = {
    "noise-aware": NoiseAwareUCBVI(), "joint": JointPosterior(), "psrl": PSRL(), "dp-pg": DPPolicyGradient(),
    "dp-npg": DPNaturalPolicyGradient(),
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One cell: what seeds of one setting gave. Shares are of the uniform policy's regret."""

    world: str
    kind: str
    budget: str
    users: int
    seeds: int
    regret: float
    error: float  # standard error of the mean regret
    share: float
    worst: float
    late: float
    late_error: float
    late_worst: float
    seconds: float  # mean of a run
    learner: str  # its options in words
    seed: int

    @property
    def cell(self) -> tuple[str, str, str, int, int, int]:
        """What tells a row from all others."""
        return self.learner, self.world, self.budget, self.users, self.seeds, self.seed


def curves(
    world: World, learner: Any, privatizer: Any, users: int, seeds: Sequence[int], seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Final regrets (N,), regret of the last quarter (N,), both over uniform play's, and mean seconds.

    ``learner`` is a learner with its options; for worlds that are pooled it is run with ``stationary=True``.
    """
    if world.pooled:
        learner = replace(learner, stationary=True)
    setup = Setup(world.build(), learner, privatizer, users, "batch")
    lost = setup.optimal_value - setup.uniform_value
    runs = sorted(iterate_runs(setup, seed, seeds), key=lambda one: one.run)  # they come as they are done
    final = np.array([run.regret[-1] for run in runs])
    start = np.array([np.interp(0.75 * users, run.episodes, run.regret) for run in runs])
    seconds = float(np.mean([run.seconds for run in runs]))
    return final / (users * lost), (final - start) / (0.25 * users * lost), seconds


def measure(
    world: World, learner: Any, budget: str, users: int, seeds: int, seed: int = BROAD_SEED
) -> Row:  # fmt: skip
    """The row of one world at one of :data:`BUDGETS`."""
    shares, late, seconds = curves(world, learner, BUDGETS[budget], users, range(seeds), seed)
    mdp = world.build()
    optimal, uniform = planning.optimal_values(mdp)[0][0], planning.uniform_policy(mdp)
    lost = users * (float(mdp.initial @ optimal) - planning.policy_value(mdp, uniform))
    root = max(1, seeds - 1) ** 0.5
    return Row(
        world.name, world.kind, budget, users, seeds, float(shares.mean() * lost),
        float(shares.std() * lost / root), float(shares.mean()), float(shares.max()), float(late.mean()),
        float(late.std() / root), float(late.max()), seconds, repr(learner), seed,
    )  # fmt: skip


def rows(
    learner: Any,
    worlds: Sequence[World],
    budgets: Sequence[str],
    users: Sequence[int],
    seeds: int,
    seed: int,
    out: Path | None = None,
) -> Iterator[Row]:
    """Every cell; what ``out`` (a file of JSON lines) has is read, what it lacks is run and added.

    A last line that a kill cut off is dropped from the file.
    """
    known: dict[tuple[str, str, str, int, int, int], Row] = {}
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        stored = read(out)
        out.write_text("".join(f"{json.dumps(asdict(row))}\n" for row in stored))
        known = {row.cell: row for row in stored}
    for k in users:
        for budget in budgets:
            for world in worlds:
                row = known.get((repr(learner), world.name, budget, k, seeds, seed))
                if row is None:
                    row = measure(world, learner, budget, k, seeds, seed)
                    if out is not None:
                        with out.open("a") as file:
                            file.write(json.dumps(asdict(row)) + "\n")
                yield row


def read(out: Path) -> list[Row]:
    """The rows of a file of JSON lines, but for a last line that a kill cut off."""
    whole = out.read_text().split("\n")[:-1] if out.exists() else []
    return [Row(**json.loads(text)) for text in whole]


def line(row: Row) -> str:
    """A row of the table."""
    return (
        f"| {row.world} | {row.budget} | {row.users:.0e} | {row.regret:,.0f} ± {row.error:,.0f} | "
        f"{row.share:.3%} | {row.worst:.3%} | {row.late:.4%} | {row.late_worst:.4%} |"
    ).replace(",", " ")


def page(found: Sequence[Row], title: str) -> str:
    """Markdown: a summary, then by budget its worlds: share and late share (mean, worst seed) at each K."""
    users = sorted({row.users for row in found})
    head = "| world | " + " | ".join(f"K = {k:,}: share | late".replace(",", " ") for k in users) + " |"
    out = [f"# {title}\n", summary(found)]
    for budget in dict.fromkeys(row.budget for row in found):
        mine = [row for row in found if row.budget == budget]
        seeds = " and ".join(str(n) for n in sorted({row.seeds for row in mine}))
        out += [f"\n## {budget}\n", f"{seeds} runs a cell.\n", head, "|---" * (1 + 2 * len(users)) + "|"]
        for world in dict.fromkeys(row.world for row in mine):
            cells = []
            for k in users:
                row = next((r for r in mine if r.world == world and r.users == k), None)
                cells.append(
                    "- | -"
                    if row is None
                    else f"{_percent(row.share)} ({_percent(row.worst)}) | "
                    f"{_percent(row.late)} ({_percent(row.late_worst)})"
                )
            out.append(f"| {world} | " + " | ".join(cells) + " |")
    return "\n".join(out) + "\n"


def summary(found: Sequence[Row]) -> str:
    """Markdown: a line for each budget and K, over worlds.

    Shares as geometric means over worlds, the median world's late share, the two worst and the worst run.
    """
    few, every = {w.name for w in SUITE}, {row.world for row in found}
    out = [
        f"| budget | users | {len(SUITE)} with few rewards | all {len(every)} worlds "
        "| late share: median world | worst two worlds (mean) | worst single run |",
        "|---" * 7 + "|",
    ]
    for budget in dict.fromkeys(row.budget for row in found):
        for k in sorted({row.users for row in found}):
            mine = [row for row in found if row.budget == budget and row.users == k]
            if not mine:
                continue
            worst = sorted(mine, key=lambda row: -row.late)[:2]
            run = max(mine, key=lambda row: row.late_worst)
            shares = [_geometric([r.share for r in mine if r.world in among]) for among in (few, every)]
            late = _percent(float(np.median([row.late for row in mine])))
            means = ", ".join(f"{_percent(row.late)} ({row.world})" for row in worst)
            one = f"{_percent(run.late_worst)} ({run.world})"
            out.append(f"| {budget} | {k} | {shares[0]} | {shares[1]} | {late} | {means} | {one} |")
    return "\n".join(out) + "\n"


def _geometric(shares: Sequence[float]) -> str:
    return f"{100 * np.exp(np.mean(np.log(shares))):.3g} %" if shares else "-"


def _percent(x: float) -> str:
    return f"{100 * x:.2g} %" if abs(x) < 0.995 else f"{100 * x:.0f} %"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--learner", default="noise-aware", choices=list(LEARNERS))
    parser.add_argument("--users", type=float, nargs="+", default=[2e4])
    parser.add_argument("--budgets", nargs="+", default=list(BUDGETS), choices=list(BUDGETS))
    parser.add_argument("--worlds", help="part of a world's name")
    parser.add_argument("--small", action="store_true", help="worlds of fewer than 50 states only")
    parser.add_argument("--list", choices=("broad", "training"), default="broad")
    parser.add_argument("--seeds", type=int, default=32)
    parser.add_argument("--seed", type=int, default=BROAD_SEED)
    parser.add_argument("--out", type=Path, help="a file of JSON lines")
    parser.add_argument(
        "--page", type=Path, help="write the tables of benchmarks/broad_suite.md into this file"
    )
    args = parser.parse_args()
    worlds = [w for w in (BROAD if args.list == "broad" else TRAINING) if (args.worlds or "") in w.name]
    if args.small:
        worlds = [w for w in worlds if w.build().states < 50]
    if args.learner == "joint":
        worlds = [w for w in worlds if w.build().stationary and not w.pooled]
    print("| world | budget | K | regret | share | worst | late share | worst |\n" + "|---" * 8 + "|")
    users = [int(k) for k in args.users]
    found = []
    for row in rows(LEARNERS[args.learner], worlds, args.budgets, users, args.seeds, args.seed, args.out):
        print(line(row), flush=True)
        found.append(row)
    if args.page is not None:
        if args.out is not None:  # with the cells of earlier commands, of other numbers of seeds too
            mine = repr(LEARNERS[args.learner]), args.seed
            found = [row for row in read(args.out) if (row.learner, row.seed) == mine]
            found.sort(key=lambda row: list(BUDGETS).index(row.budget))
        args.page.write_text(page(found, f"The broad suite: {args.learner}, seed {args.seed}"))


if __name__ == "__main__":
    main()
