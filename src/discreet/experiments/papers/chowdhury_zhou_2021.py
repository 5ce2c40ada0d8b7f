"""Chowdhury and Zhou 2021, Figure 2: private UCB-VI and UCB-PO on RiverSwim, three ways.

The paper's experiment (RiverSwim, S=6, A=2, H=20, 20 runs of 20 000 users, epsilon 1 and 0.5) is
drawn

1. as the public code computes it (``code:cz22``), whose noise gives no differential privacy;
2. with the paper's stated noise, 3 H log(K) / epsilon per node and 3 H / epsilon per user, under the
   epsilon that this noise really buys;
3. at a true epsilon, with enough users for learning to begin.

Source of the settings: specification of tabular learners, section 9.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from discreet.envs import riverswim
from discreet.experiments.results import About, Result, SeedRun
from discreet.experiments.simulate import Progress, Setup, iterate_runs
from discreet.mdp.tabular import TabularMDP
from discreet.numerics import checks
from discreet.online.optimistic import UCBVI, PrivateUCBVI
from discreet.online.policy_optimization import OPPO, PrivateUCBPO
from discreet.privacy.guarantee import no_guarantee
from discreet.privacy.privatizers import Central, Local, NoPrivacy
from discreet.privacy.randomness import Seeded

_LEARNERS = {"ucb-vi": False, "private-ucb-vi": False, "oppo": True, "private-ucb-po": True}
_MODES = {"none": 0, "central": 1, "local": 2}
_ETA = math.sqrt(2 / 1000)  # the public code's learning rate


@dataclass(frozen=True, eq=False)
class PublishedCode(Setup):
    """The public code as a set-up: ``learner`` and ``privatizer`` are labels, the noise is the code's own."""

    optimize_policy: bool = False
    mode: int = 0
    epsilon: float = 1.0

    @cached_property
    def guarantee(self) -> Any:
        """None: not private at any stated level."""
        if self.mode == 0:
            return no_guarantee("seeded")
        return no_guarantee(
            "seeded",
            reason=f"the public code's noise, labelled ε = {self.epsilon:g}, is shared by cells or drawn "
            "again for the same sums, so that no ε follows from it",
        )

    @cached_property
    def fused(self) -> bool:
        """Always compiled."""
        return True

    @cached_property
    def batched(self) -> bool:
        """Never: the code replans for every user."""
        return False

    @property
    def label(self) -> str:
        """Which of the code's curves this is."""
        kind = "PO" if self.optimize_policy else "VI"
        noise = ("without noise", f"'JDP' ε={self.epsilon:g}", f"'LDP' ε={self.epsilon:g}")[self.mode]
        return f"public code {kind}, {noise}" + (" (not private)" if self.mode else "")

    def run(self, seed: int, run: int, progress: Progress | None = None, stop: Any = None) -> SeedRun:
        """One seed, all users in one call."""
        from discreet.experiments.papers.published_code_kernels import run_published_code

        begin = time.perf_counter()
        keys = Seeded(seed, run).keys
        regret, gap = np.zeros(self.recorded.size), np.zeros(self.recorded.size)
        run_published_code(
            self.mdp.world, self.start_values, self.gaps, self.optimize_policy, self.mode, self.epsilon, _ETA,
            self.episodes, keys.environment, keys.noise, self.recorded, regret, gap,
        )  # fmt: skip
        if progress is not None:
            progress(run, self.episodes)
        return SeedRun(run, self.recorded, regret, gap, time.perf_counter() - begin)


def published_code_setup(
    learner: str, privatizer: str, mdp: TabularMDP, episodes: int, epsilon: float | None
) -> PublishedCode:
    """The public code's counterpart of a learner and a privatizer, by their command-line names.

    Raises ``ValueError`` for names that the public code does not have, and for worlds with masks.
    """
    checks.choice("learner", learner, _LEARNERS)
    checks.choice("privatizer", privatizer, _MODES)
    mode = _MODES[privatizer]
    if mode and epsilon is None:
        raise ValueError("epsilon = None: the public code's noise needs a positive epsilon")
    if mdp.layout.mask is not None:
        raise ValueError("env: the public code knows no inadmissible actions")
    optimize = _LEARNERS[learner]
    stand_in = (OPPO() if optimize else UCBVI(), NoPrivacy())
    scale = 1.0 if epsilon is None else checks.positive("epsilon", epsilon)
    return PublishedCode(
        mdp, *stand_in, episodes, "episode", optimize_policy=optimize, mode=mode, epsilon=scale
    )


# --------------------------------------------------------------------------- the figure

# Means of the public code's gap regret after 1000, 5000, 10 000 and 20 000 users (20 runs), measured
# from the original script: specification of tabular learners, section 9. LDP varies too much between
# runs for more than an order.
REFERENCE = {
    ("VI", "none", 1.0): (628, 1025, 1196, 1370),
    ("VI", "central", 1.0): (1516, 2514, 2880, 3249),
    ("VI", "central", 0.5): (1993, 3731, 4275, 4813),
    ("PO", "none", 1.0): (933, 1547, 1790, 2086),
    ("PO", "central", 1.0): (1559, 2781, 3262, 3660),
    ("PO", "central", 0.5): (1903, 3698, 4380, 4995),
}
_AT = (1000, 5000, 10_000, 20_000)
_CURVES = (("none", 1.0), ("central", 1.0), ("central", 0.5), ("local", 1.0), ("local", 0.5))
_KINDS = ("VI", "PO")
_TOLERANCE = 0.10
_COLUMNS = ("as the public code does it", "the paper's stated noise", "at a true ε")


def _learner(kind: str, private: bool, **options: Any) -> Any:
    """The practical learner of columns 2 and 3: pooled counts, the public code's constants."""
    pooled: dict[str, Any] = {"stationary": True, **options}
    if kind == "VI":
        if private:
            return PrivateUCBVI(preset="honest", post="lp", E_z=0.5, **pooled)
        return UCBVI(preset="honest", **pooled)
    families: dict[str, Any] = {"derive_visits": False, "center_rewards": False}  # the paper's three
    return PrivateUCBPO(E_z=0.5, **families, **pooled) if private else OPPO(**families, **pooled)


def _privatizer(name: str, epsilon: float, **options: Any) -> Any:
    if name == "none":
        return NoPrivacy()
    if name == "central":
        return Central(epsilon=epsilon, leaf="user", **options)
    return Local(epsilon=epsilon, **options)


def _setup(column: int, kind: str, name: str, epsilon: float, episodes: int) -> Setup:
    mdp = riverswim()
    if column == 0:
        learner = "private-ucb-vi" if kind == "VI" else "private-ucb-po"
        return published_code_setup(learner, name, mdp, episodes, epsilon)
    if column == 1:
        privatizer = _privatizer(name, epsilon, **({"preset": "paper"} if name != "none" else {}))
        return Setup(mdp, _learner(kind, name != "none", replan_every=32), privatizer, episodes, "episode")
    learner = _learner(kind, name != "none", replan_growth=1.1)
    return Setup(mdp, learner, _privatizer(name, epsilon), episodes, "batch")


def learning_begins(result: Result) -> int | None:
    """The first recorded user from which on a user's mean regret stays below half the uniform policy's.

    None if that never happens among the recorded users.
    """
    lost = np.diff(result.regret.mean(axis=0)) / np.diff(result.episodes)
    early = lost >= 0.5 * (result.optimal_value - result.uniform_value)
    last = int(np.flatnonzero(early)[-1]) + 1 if early.any() else 0
    return None if last == lost.size else int(result.episodes[last])


def _mark_beginnings(axes: Any, curves: list[Result]) -> None:
    """A triangle on each curve where learning begins, and the number of users beside it."""
    from discreet.experiments.plots import PALETTE

    for result, colour in zip(curves, PALETTE, strict=False):
        users = learning_begins(result)
        if users is None:
            continue
        regret = float(np.interp(users, result.episodes, result.regret.mean(axis=0)))
        axes.plot([users], [regret], marker="v", color=colour, markersize=9, zorder=5)
        axes.annotate(
            f"learning begins: {users:,}", (users, regret), xytext=(-8, 6), textcoords="offset points",
            fontsize=7.5, color=colour, ha="right",
        )  # fmt: skip


def _at(result: Result, users: int) -> float:
    """Mean gap regret after so many users, from the recorded points (linear in between)."""
    return float(np.interp(users, result.episodes, result.gap_regret.mean(axis=0)))


def _check_code(results: dict[tuple[str, str, float], Result], users: int) -> list[dict[str, Any]]:
    """The claims on column 1: means within 10 % of the public script's, and the order of the curves."""
    claims = []
    for key, expected in REFERENCE.items():
        points = [(n, want) for n, want in zip(_AT, expected, strict=True) if n <= users]
        ratios = [_at(results[key], n) / want for n, want in points]
        claims.append(
            {
                "claim": f"{key[0]} {key[1]} epsilon {key[2]:g}: mean within 10 % of the public script's",
                "ratios": ratios,
                "holds": all(abs(ratio - 1) <= _TOLERANCE for ratio in ratios),
            }
        )
    for kind in _KINDS:
        finals = [float(results[kind, name, epsilon].gap_regret[:, -1].mean()) for name, epsilon in _CURVES]
        claims.append(
            {
                "claim": f"{kind}: none < JDP 1 < JDP 0.5 < LDP 1 < LDP 0.5 after {users} users",
                "means": finals,
                "holds": finals == sorted(finals),
            }
        )
    return claims


def reproduce(
    out: Path, quick: bool = False, workers: int | None = None, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Draw both panels of Figure 2 three ways side by side; returns what the figure shows, as plain values.

    Writes ``figure-2.png``, ``figure-2.pdf`` and ``figure-2.json`` into ``out``. ``quick`` uses 4 runs
    of 2 000 users (2e5 in the third column) in place of 20 runs of 20 000 (1e7).
    """
    from discreet.experiments import plots

    seeds, users, many = (4, 2000, 200_000) if quick else (20, 20_000, 10**7)
    figure = plots.new_figure(18.0, 11.0)
    grid = figure.subplots(2, 3)
    table: list[dict[str, Any]] = []
    code: dict[tuple[str, str, float], Result] = {}
    for row, kind in enumerate(_KINDS):
        for column, title in enumerate(_COLUMNS):
            episodes = many if column == 2 else users
            curves = []
            for name, epsilon in _CURVES:
                setup = _setup(column, kind, name, epsilon, episodes)
                runs = iterate_runs(setup, 2021, range(seeds), workers)
                words = f"{kind} {name}" if name == "none" else f"{kind} {name}, stated ε = {epsilon:g}"
                result = replace(
                    Result.from_runs(setup, 2021, runs), about=replace(About.of(setup), label=words)
                )
                curves.append(result)
                if column == 0:
                    code[kind, name, epsilon] = result
                table.append(
                    {
                        "column": title,
                        "curve": words,
                        "epsilon_true": result.guarantee.epsilon,
                        "users": episodes,
                        "final_regret": float(result.final_regret.mean()),
                        "standard_error": float(result.final_regret.std(ddof=1) / math.sqrt(seeds)),
                        "uniform_regret": result.uniform_regret,
                        "learning_begins": learning_begins(result),
                    }
                )
            axes = grid[row][column]
            plots.draw_regret(axes, curves, "log" if column == 2 else "linear", reference=column > 0)
            axes.set_title(f"Private-UCB-{kind}, {title}: {seeds} runs", fontsize=10, loc="left")
            axes.legend(fontsize=7.5, frameon=False, loc="upper left")
            if column > 0:
                axes.set_xlabel("users (episodes); pooled counts and practical bonuses, see the docs")
            if column == 0:
                axes.text(
                    0.02, 0.76, "NOT PRIVATE at any stated ε:\nnoise shared among cells (LDP) or\nredrawn on "
                    "cumulative counts (JDP)", transform=axes.transAxes, ha="left", va="top", fontsize=9,
                    color="#B00020", weight="bold",
                )  # fmt: skip
            if column == 2:
                _mark_beginnings(axes, curves)
            say(f"reproduce: Private-UCB-{kind}, {title}: done")
    claims = [] if quick else _check_code(code, users)
    document = {
        "paper": "chowdhury-zhou-2021",
        "figure": "2",
        "quick": quick,
        "seeds": seeds,
        "curves": table,
        "claims": claims,
    }
    out.mkdir(parents=True, exist_ok=True)
    for suffix in (".png", ".pdf"):
        plots.save_figure(figure, out / f"figure-2{suffix}")
    aside = out / ".figure-2.json.part"
    aside.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    os.replace(aside, out / "figure-2.json")
    for claim in claims:
        say(f"{'holds' if claim['holds'] else 'FAILS'}: {claim['claim']}")
    say(f"reproduce: {out / 'figure-2.png'}")
    return document
