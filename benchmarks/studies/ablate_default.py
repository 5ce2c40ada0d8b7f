"""What each part of the default learner is worth: leave out one part at a time.

    python -m benchmarks.studies.ablate_default --out ablation.json [--users 2e4 2e5] [--runs 8]
        [--parts NAME ...] [--only NAME] [--table]

For each part and each number of users, the command prints the geometric mean over environments of the ratio
(regret without the part / regret of the default) and the standard error of its logarithm. It then prints the
environment whose ratio has the largest lower 95 % limit. If this limit is above 1, the environment is run
again with other seeds (``--again`` runs of each side), and the new ratio is printed with its lower limit.

A ratio above 1 says that the part reduces regret. The budget is (1, 1e-6), or that of ``--budget``. Users are
simulated by batches. All arms have the same seeds. Cells that the file holds are not run again.

Most parts are inside compiled code. The command therefore copies the package into a temporary folder, where
constants of ``noise_aware_kernels`` become entries of the learner's array ``knobs`` (:func:`edited`). This
needs one compilation. With the values of the library, the copy has the regret of the library
(``tests/benchmarks/test_ablate_default.py``).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import discreet as dr
from benchmarks import hard_worlds, late_tail, prior
from discreet.experiments.simulate import Setup
from discreet.learners.online import noise_aware, noise_aware_kernels
from discreet.learners.online.tabular_planning_kernels import LearnerKernel
from discreet.mechanisms.interfaces import ProblemSpec

SEED, SEED_AGAIN = 39_001, 39_002
BUDGETS: Mapping[str, Any] = {
    "1": dr.Central(epsilon=1.0, delta=1e-6),
    "10": dr.Central(epsilon=10.0, delta=1e-6),
    "pure 1": dr.Central(epsilon=1.0),
    "none": dr.NoPrivacy(),
}
Counts = tuple[int, int, int, int]
# Constants of the kernels that the copy reads from ``knobs``; those of INTEGERS are used as integers.
CONSTANTS = (
    "_VARIATION", "_ALIKE", "_MOST_FLOW", "_FLOW_ERROR", "_REWARD_OPTIMISM", "_WIDTH", "_WIDER", "_FAR",
    "_NEAR", "_FARTHER", "_CARRIED", "_HIDDEN", "_LUCKY", "_PAYING", "_MOST_NOTHING", "_UNTRIED_USERS",
    "_BARELY",
)  # fmt: skip
INTEGERS = ("_FARTHER_EACH", "_ROUNDS")
# Parts without a constant: the copy has a new entry of ``knobs`` at "{}". Its value in the library is 1.
SWITCHES: Mapping[str, tuple[str, str]] = {
    "visit noise": (
        "    if not known:\n        _visit_noise(",
        "    if not known and {} > 0.0:\n        _visit_noise(",
    ),
    "widths grow": ("log(1.0 + users))", "log(1.0 + (users if {} > 0.0 else 1000.0)))"),
    "full width": ("full = max(1.0, width)", "full = max({}, width)"),
    "square term": ("left * (x * x))", "{} * left * (x * x))"),
    "reward term": ("bonus += stat * np.sqrt(reward", "bonus += {} * stat * np.sqrt(reward"),
    "first states": (
        "if sums.exposure[r] > 0.0:\n                start",
        "if {} * sums.exposure[r] > 0.0:\n                start",
    ),
    "variation": ("few[c] + rest * rest * tau2", "few[c] + {} * rest * rest * tau2"),
    "hidden in draws": ("full * hidden[c] * wide", "{} * full * hidden[c] * wide"),
    "hidden in ends": ("(hidden[c] * wide) ** 2)", "({} * hidden[c] * wide) ** 2)"),
}  # fmt: skip
KNOBS = (*CONSTANTS, *INTEGERS, *SWITCHES)


def edited(text: str) -> str:
    """Return the source of the kernels in which constants and switches are entries of ``model.knobs``.

    Raises ``ValueError`` if a text that is to be replaced does not occur.
    """
    size = len(KNOBS)
    entry = {name: f"model.knobs[KNOBS - {size - i}]" for i, name in enumerate(KNOBS)}
    pairs = {old: new.format(entry[name]) for name, (old, new) in SWITCHES.items()}
    pairs |= {
        "    raw: Floats  # (cells, S)": "    knobs: Floats\n    raw: Floats  # (cells, S)",
        "def _cells(work: Floats, cells: int,": "def _cells(work: Floats, knobs: Floats, cells: int,",
        "        part[11], rows,\n": "        part[11], knobs, rows,\n",
        " _cells(work, cells,": " _cells(work, knobs, cells,",
    }
    for old, new in pairs.items():
        if old not in text:
            raise ValueError(f"edited: the kernels do not contain {old!r}")
        text = text.replace(old, new)
    lines = text.splitlines()
    for name in (*CONSTANTS, *INTEGERS):
        value = f"int({entry[name]})" if name in INTEGERS else entry[name]
        found = [
            i for i, line in enumerate(lines) if line.startswith("    ") and re.search(rf"\b{name}\b", line)
        ]
        if not found:
            raise ValueError(f"edited: the kernels do not use {name}")
        for i in found:  # definitions of constants are not indented
            lines[i] = re.sub(rf"\b{name}\b", value, lines[i])
    return "\n".join([*lines, f"KNOBS += {size}", ""])


def library() -> dict[str, float]:
    """Return the values of all entries in the library."""
    return {name: float(getattr(noise_aware_kernels, name, 1.0)) for name in KNOBS}


@dataclass(frozen=True)
class Part:
    """One part of the learner, and how it is left out.

    knobs : entries of ``knobs`` that change. options : options of the learner that change. counts : change of
    the numbers of users of the four explorers, from the arguments of ``explorers_among``. base : options of
    both sides.
    """

    text: str
    knobs: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    counts: Callable[..., Counts] | None = None
    base: Mapping[str, Any] = field(default_factory=dict)


_among = noise_aware.explorers_among


def _without(*which: int) -> Callable[..., Counts]:
    def counts(*given: Any) -> Counts:
        found = [0 if e in which else n for e, n in enumerate(_among(*given))]
        return found[0], found[1], found[2], found[3]

    return counts


def _endless(users: int, share: float, optimism: float, noise: bool, end: float) -> Counts:
    return _among(users, share, optimism, noise, math.inf)


def _constant(users: int, share: float, optimism: float, noise: bool, end: float) -> Counts:
    half = math.floor(share * (users - users * users / (2.0 * end)) / 2.0)
    return half, half, 0, 0


def _fixed_optimism(users: int, share: float, optimism: float, noise: bool, end: float) -> Counts:
    return _among(users, share, 2.0, noise, end)


PARTS: Mapping[str, Part] = {
    "all explorers": Part("explorers 1 to 4", counts=_without(0, 1, 2, 3)),
    "draws": Part("explorers 1 and 2, which plan with posterior draws", counts=_without(0, 1)),
    "wider draw": Part("the larger width of explorer 2", knobs={"_WIDER": 1.0}),
    "optimistic explorer": Part("explorer 3", counts=_without(2)),
    "luck": Part("five pseudo-visits of reward 1 in explorer 3", knobs={"_LUCKY": 0.0}),
    "far plans": Part("triple width in every fourth plan of explorer 3", knobs={"_FARTHER": 1.0}),
    "propagation": Part("propagation of bonuses by explorer 3", knobs={"_CARRIED": 0.0}),
    "uncertainty explorer": Part("explorer 4, with the frontier", counts=_without(3)),
    "hidden rows": Part("the maximum value of hidden rows in explorer 4", knobs={"_HIDDEN": 1e9}),
    "widths grow": Part("growth of widths; that of 1 000 users stays", knobs={"widths grow": 0}),
    "full width": Part("at least one standard deviation for parts without data", knobs={"full width": 0.0}),
    "hidden in widths": Part(
        "the hidden share of a row in the widths of explorers 1 to 3",
        knobs={"hidden in draws": 0.0, "hidden in ends": 0.0},
    ),
    "taper": Part("shares that fall to 0 at the end of the run", counts=_endless),
    "schedule of shares": Part("all but a constant share of draws", counts=_constant),
    "long optimism": Part("the longer schedule of explorer 3 under noise", counts=_fixed_optimism),
    "flow projection": Part("projection onto the flow constraint", options={"consistent": False}),
    "predicted flow": Part("visits predicted by a rough model", options={"flow": False}),
    "limit of flow": Part("the limit of predicted visits", knobs={"_MOST_FLOW": 1e9}),
    "first states": Part("the estimated distribution of the first state", knobs={"first states": 0.0}),
    "shrinkage": Part("pooling of rows over steps", options={"shrink": False}),
    "variation": Part("estimated variation over steps (stationary=True)", options={"excess": 1e300}),
    "threshold of variation": Part("the threshold of the estimated variation", options={"excess": 0.0}),
    "allowance": Part("the allowance for variation over steps", knobs={"_VARIATION": 1e-6}),
    "variation in widths": Part("variation over steps in the widths", knobs={"variation": 0.0}),
    "even steps": Part("the limit of a step's weight in the variation", knobs={"_ALIKE": 1e9}),
    "mixture": Part("the component of pairs without reward", knobs={"_PAYING": 1.0}),
    "fitted prior": Part("the fit of the distribution of rewards", knobs={"_ROUNDS": 0}),
    "visit noise": Part("the noise of visits in reward sums", knobs={"visit noise": 0.0}),
    "reward optimism": Part("the term 0.6 s_r of the bonus", knobs={"_REWARD_OPTIMISM": 0.0}),
    "statistical bonus": Part("the sampling part of the bonus", options={"stat_scale": 0.0}),
    "square term": Part("the term (H - h) x^2 of the bonus", knobs={"square term": 0.0}),
    "reward term": Part("the term sqrt(r (1 - r)) x of the bonus", knobs={"reward term": 0.0}),
    "privacy bonus": Part("the privacy part of the bonus", options={"priv_scale": 0.0}),
    "centred rewards": Part("sums of r - 1/2 in place of r", options={"center_rewards": False}),
    "random ties": Part("random ties", options={"tie_break": "first"}),
    "reward share": Part("the larger share of transitions (0.35 becomes 0.5)", options={"reward_share": 0.5}),
    "bonus of known rewards": Part(
        "the bonus of untried rows with known rewards", knobs={"_UNTRIED_USERS": 1e-30},
        base={"known_rewards": True},
    ),
}  # fmt: skip


def clinic(seed: int, levels: int = 6, doses: int = 4, horizon: int = 12) -> dr.TabularMDP:
    """Return a treatment: doses move the level of an illness; large doses harm, and one level is final."""
    draw, n = np.random.default_rng([seed, 51]), levels
    table, rewards = np.zeros((n, doses, n)), np.zeros((n, doses))
    for s, a in np.ndindex(n, doses):
        better = draw.uniform(0.1, 0.3) + 0.5 * (a == s % doses)
        table[s, a, max(0, s - 1)] += better
        table[s, a, min(n - 1, s + 1)] += 0.1
        table[s, a, s] += 0.9 - better
        rewards[s, a] = max(0.0, 1.0 - s / (n - 1) - 0.1 * a)
    table[n - 1, :] = np.eye(n)[n - 1]
    rewards[n - 1] = 0.0
    return dr.TabularMDP(table, rewards, n // 2, horizon=horizon, reward_law="bernoulli", name="clinic")


def storage(seed: int, most: int = 4, prices: int = 3, horizon: int = 14) -> dr.TabularMDP:
    """Return a store of energy: buy, wait or sell at prices that change at random."""
    draw, n = np.random.default_rng([seed, 52]), (most + 1) * prices
    change = draw.dirichlet(np.full(prices, 2.0), size=prices)
    table, rewards = np.zeros((n, 3, n)), np.zeros((n, 3))
    for level, price, a in np.ndindex(most + 1, prices, 3):
        after = min(most, max(0, level + 1 - a))
        value = (level - after) * (price + 1) / prices
        rewards[level * prices + price, a] = 0.5 + 0.5 * value
        table[level * prices + price, a, after * prices : (after + 1) * prices] = change[price]
    return dr.TabularMDP(table, rewards, 0, horizon=horizon, reward_law="bernoulli", name="storage")


def tree(seed: int, depth: int = 4) -> dr.TabularMDP:
    """Return a binary tree with random slips whose leaves have rewards."""
    draw, n = np.random.default_rng([seed, 53]), 2 ** (depth + 1) - 1
    table, rewards = np.zeros((n, 2, n)), np.zeros((n, 2))
    for s, a in np.ndindex(n, 2):
        if 2 * s + 2 < n:
            table[s, a, 2 * s + 1 + a] += 0.9
            table[s, a, 2 * s + 2 - a] += 0.1
        else:
            table[s, a, s] = 1.0
    rewards[n // 2 :] = draw.beta(0.5, 1.0, (n - n // 2, 1))
    return dr.TabularMDP(table, rewards, 0, horizon=depth + 1, reward_law="bernoulli", name="tree")


def worlds() -> dict[str, dr.TabularMDP]:
    """Return environments on which nothing was chosen. The last three kinds are new."""
    return {
        **{f"two states {seed}": prior.two_states(seed) for seed in (391, 392)},
        **{f"four pairs {seed}": prior.four_pairs(seed) for seed in (3912, 3913)},
        "queue": prior.queue(391, 9, 16),
        "grid": prior.grid(391, 4, 14),
        "machine": prior.machine(391, 8, 22),
        "contexts": prior.contexts(391, 15, 4),
        "two queues": late_tail.two_queues(391, 3, 16),
        "gambler": late_tail.gambler(391, 12, 14),
        "wage .5": late_tail.wage(391, 7, 15, 0.5),
        "wage .8": late_tail.wage(392, 7, 18, 0.8),
        "haystack": late_tail.haystack(391, 9, 12, 7),
        "doors": hard_worlds.doors(6, 7, 0.7, 0.45),
        "delay": hard_worlds.delay(4, 3, 14),
        "star": hard_worlds.star(8, 6),
        "corridor": hard_worlds.corridor(8, 14, 0.15),
        "turn": hard_worlds.turn(3, 4, 11),
        "window": hard_worlds.window(4, 14),
        "stock": hard_worlds.stock(6, 5, 12),
        "stopping": hard_worlds.stopping(8, 15),
        "behind": hard_worlds.behind(0.8, 0.95, 13),
        "graph": hard_worlds.graph(9, 3, 12, 3916),
        "bandit": dr.make("bandit", contexts=1, actions=20, seed=3917),
        "lock": dr.make("combination-lock", states=7, depth=5, actions=3, seed=3918),
        "random": dr.make("random", states=9, actions=3, horizon=10, seed=3919),
        "sparse": dr.make("random", states=12, actions=3, horizon=12, seed=3920, successors=3),
        "rewarding": dr.make("random", states=8, actions=3, horizon=10, rewarding=24, seed=3921),
        "varying": dr.make("random", states=6, seed=3922, rewarding=12, stationary=False, varies="rows"),
        "clinic": clinic(391),
        "storage": storage(391),
        "tree": tree(391),
    }


def lake(seed: int) -> dr.TabularMDP:
    """Return a random map of Gymnasium's FrozenLake with 20 steps."""
    import gymnasium
    from gymnasium.envs.toy_text.frozen_lake import generate_random_map

    drawn = generate_random_map(size=4, p=0.75, seed=seed)
    return dr.from_gymnasium(gymnasium.make("FrozenLake-v1", desc=drawn), horizon=20)


def rare() -> dict[str, dr.TabularMDP]:
    """Return environments of kinds in which some runs of earlier versions kept a wrong policy forever."""
    sizes = ((10, 2, 10, 1), (15, 2, 20, 1), (8, 3, 20, 1), (12, 2, 15, 2))
    graphs = {}
    for seed in range(39_100, 39_108):
        states, actions, horizon, successors = sizes[seed % 4]
        graphs[f"graph {seed}"] = hard_worlds.graph(states, actions, horizon, seed, successors)
    return {
        **graphs,
        **{f"lake {seed}": lake(seed) for seed in range(39_000, 39_004)},
        "behind": hard_worlds.behind(0.82, 0.96, 11),
        "window": hard_worlds.window(5, 14),
    }


SUITES: Mapping[str, Callable[[], dict[str, dr.TabularMDP]]] = {"worlds": worlds, "rare": rare}


@contextmanager
def left_out(part: Part | None) -> Iterator[None]:
    """Change the learner while the context is open; None changes nothing. Only for use in the copy."""
    values = library() | dict(part.knobs if part else {})
    plain = noise_aware.NoiseAwareUCBVI.kernel

    def kernel(learner: dr.NoiseAwareUCBVI, spec: ProblemSpec) -> LearnerKernel:
        found = plain(learner, spec)
        end = noise_aware_kernels.KNOBS
        found.knobs[end - len(KNOBS) : end] = list(values.values())
        return found

    counts = part.counts if part and part.counts else _among
    with (
        patch.object(noise_aware.NoiseAwareUCBVI, "kernel", kernel),
        patch.object(noise_aware, "explorers_among", counts),
    ):
        yield


def shares(
    mdp: dr.TabularMDP,
    options: Mapping[str, Any],
    part: Part | None,
    budget: str,
    users: int,
    seed: int,
    runs: int,
) -> list[float]:
    """Return the regret of each run, as a share of the uniform policy's regret."""
    with left_out(part):
        setup = Setup(mdp, dr.NoiseAwareUCBVI(**options), BUDGETS[budget], users, "batch")
        lost = users * (setup.optimal_value - setup.uniform_value)
        return [float(setup.run(seed, i).regret[-1] / lost) for i in range(runs)]


@dataclass
class Store:
    """Measured cells, kept in a JSON file."""

    path: Path
    budget: str

    def __post_init__(self) -> None:
        self.cells: dict[str, list[float]] = json.loads(self.path.read_text()) if self.path.exists() else {}

    def get(self, name: str, world: str, mdp: dr.TabularMDP, users: int, seed: int, runs: int) -> list[float]:
        """Return the shares of one cell; ``name`` is a part, or the options of the default."""
        part = PARTS.get(name)
        options = dict(part.base) | dict(part.options) if part else json.loads(name)
        key = f"{name} | {world} | {self.budget} | {users} | {seed}"
        if len(self.cells.get(key, [])) < runs:
            self.cells[key] = shares(mdp, options, part, self.budget, users, seed, runs)
            self.path.write_text(json.dumps(self.cells))
        return self.cells[key][:runs]

    def compare(
        self, name: str, chosen: Mapping[str, dr.TabularMDP], users: int, runs: int, again: int
    ) -> dict[str, float | str]:
        """Return the mean ratio of one part, its error, and the worst environment.

        The worst environment is that with the largest lower limit. If this limit is above 1, the environment
        is measured again, because the largest of many noisy limits is too large.
        """
        base = json.dumps(dict(PARTS[name].base))
        ratios, limits = {}, {}
        for world, mdp in chosen.items():
            found = [self.get(side, world, mdp, users, SEED, runs) for side in (name, base)]
            ratios[world] = float(np.mean(found[0]) / max(float(np.mean(found[1])), 1e-9))
            limits[world] = late_tail.lower_limit(*found) if found[0] != found[1] else 1.0
        logs, worst = np.log(list(ratios.values())), max(limits, key=limits.__getitem__)
        error = float(logs.std(ddof=1) / len(logs) ** 0.5) if len(logs) > 1 else 0.0
        line: dict[str, float | str] = {
            "part": name, "users": users, "mean": float(np.exp(logs.mean())), "error": error,
            "worst": worst, "ratio": ratios[worst], "limit": limits[worst],
        }  # fmt: skip
        if again and limits[worst] > 1.0:
            both = [self.get(side, worst, chosen[worst], users, SEED_AGAIN, again) for side in (name, base)]
            line["again"] = float(np.mean(both[0]) / np.mean(both[1]))
            line["least"] = late_tail.lower_limit(both[0], both[1])
        return line


def in_copy(arguments: Sequence[str]) -> int:
    """Run this command with a copy of the package whose kernels are edited. Returns the exit status."""
    source = Path(dr.__file__).resolve().parent
    kernels = Path(noise_aware_kernels.__file__)
    name = hashlib.sha256(edited(kernels.read_text()).encode())
    for path in sorted(source.rglob("*.py")):
        name.update(path.read_bytes())
    folder = Path(tempfile.gettempdir()) / f"discreet-ablation-{name.hexdigest()[:12]}"
    copy = folder / "discreet"
    if not copy.exists():
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / kernels.resolve().relative_to(source)).write_text(edited(kernels.read_text()))
    root = Path(__file__).resolve().parents[2]
    paths = os.pathsep.join([str(folder), str(root)])
    environment = {**os.environ, "PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, "-m", __spec__.name, *arguments, "--copied"], env=environment, cwd=root, check=False
    ).returncode


def said(line: Mapping[str, Any]) -> str:
    """Return one row of the table."""
    row = f"| {line['part']} | {line['users']:.0e} | {line['mean']:.3f} ± {line['error']:.3f} | "
    row += f"{line['worst']} {line['ratio']:.2f} ({line['limit']:.2f}) |"
    return row + (f" {line['again']:.2f} ({line['least']:.2f}) |" if "again" in line else " - |")


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return a table with one row for each part, and the worst environment over all numbers of users."""
    sizes = sorted({line["users"] for line in lines})
    head = " | ".join(f"{users:.0e}" for users in sizes).replace("e+0", "e")
    rows = [f"| left out | {head} | worst (lower limit) |", "|---" * (len(sizes) + 2) + "|"]
    for name, part in PARTS.items():
        mine = {line["users"]: line for line in lines if line["part"] == name}
        if not mine:
            continue
        row = f"| {name}: {part.text} |"
        for users in sizes:
            one = mine.get(users)
            row += f" {one['mean']:.3f} ± {one['error']:.3f} |" if one else " - |"
        again = [line for line in mine.values() if "again" in line]
        worst = max(again, key=lambda line: float(line["least"])) if again else None
        row += f" {worst['worst']} {worst['again']:.2f} ({worst['least']:.2f}) |" if worst else " - |"
        rows.append(row)
    return "\n".join(rows)


def main(arguments: Sequence[str]) -> int:
    """Print one row for each part and number of users."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--users", nargs="+", type=float, default=[2e4, 2e5])
    parser.add_argument("--budget", default="1", choices=list(BUDGETS))
    parser.add_argument("--suite", default="worlds", choices=list(SUITES))
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--again", type=int, default=32, help="runs of the worst environment; 0: none")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--only", default="", help="environments whose name begins so")
    parser.add_argument("--out", type=Path, required=True, help="a JSON file, continued if it exists")
    parser.add_argument("--copied", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if not given.copied:
        return in_copy(arguments)
    store = Store(given.out, given.budget)
    chosen = {name: mdp for name, mdp in SUITES[given.suite]().items() if name.startswith(given.only)}
    print(
        "| left out | users | mean ratio | worst (lower limit) | other seeds |\n|---|---|---|---|---|",
        flush=True,
    )
    lines: list[dict[str, float | str]] = []
    for users in map(int, given.users):
        for name in given.parts:
            lines.append(store.compare(name, chosen, users, given.runs, given.again))
            print(said(lines[-1]), flush=True)
    print(table(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
