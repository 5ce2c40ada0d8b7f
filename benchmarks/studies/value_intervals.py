"""Do the report's intervals cover? Releases drawn many times, values known exactly.

One draw is n people of a known world under a behaviour policy, one release with the noise of the stated
budget, DP-APVI's policy, and the intervals of :mod:`discreet.learners.ope.count_estimates`. What is counted:
how often an interval holds the true value of the learned policy (where it lacks support, behaviour goes on),
of the behaviour and of the uniform policy, and of the differences; how often a one-sided lower bound is at
most the truth. Coverage is stated with the Clopper-Pearson lower limit of its draws.

    python -m benchmarks.studies.value_intervals icu-sepsis --users 10000 100000 1000000 --epsilon none 10 1
    python -m benchmarks.studies.value_intervals random --users 10000 100000 --epsilon none 10 1 --draws 200
    python -m benchmarks.studies.value_intervals icu-sepsis --users 10000000 --epsilon 10 --report DIR

People's counts come from their exact joint law (:func:`discreet.envs.rollouts.rollout.batch_counts`), noise
is that which ``Central(epsilon, delta=1e-6)`` adds, drawn as continuous Gaussians.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.noise_distributions.distributions import GaussianSumLaw, NoNoise
from discreet.core.families import CENTERED_REWARDS, TRANSITIONS, VISITS
from discreet.core.guarantee import Guarantee
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.envs import random_mdp
from discreet.envs.icu_sepsis import expert_policy, icu_sepsis
from discreet.envs.mdp import tabular_kernels as world_kernels
from discreet.envs.mdp.planning import policy_value
from discreet.envs.mdp.tabular import TabularMDP
from discreet.experiments.offline_runs import SimulatedDataset, make_release
from discreet.learners.offline.apvi import DPAPVI, OfflinePolicy
from discreet.learners.ope.count_estimates import BEHAVIOUR, PolicyEstimate, evaluate, uniform
from discreet.mechanisms.interfaces import Estimate, NoiseDistribution, ProblemSpec, Release, StepSums
from discreet.mechanisms.policy_rows import policy_rows
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.reports.policy_report import make_report
from discreet.utils.markdown_table import markdown
from discreet.utils.random_streams_kernels import ROLE_BATCH, open_at

Floats = NDArray[np.float64]

DELTA = 1e-6
NAMES = ("learned", BEHAVIOUR, "uniform")

__all__ = ["Drawn", "Setting", "draw", "main", "summary", "trial"]


@dataclass(frozen=True, eq=False)
class Drawn:
    """One release in memory, by rows; a ``StepwiseRelease``."""

    layout: Layout
    users: int
    laws: Mapping[str, NoiseDistribution]
    guarantee: Guarantee
    tables: Mapping[str, Floats]  # (H, R) or (H, R, S)

    def step(self, h: int) -> StepSums:
        """The sums of step h."""
        tables = {name: table[h] for name, table in self.tables.items()}
        return StepSums(h, tables[TRANSITIONS], tables.get(VISITS), tables.get(CENTERED_REWARDS))

    @property
    def release(self) -> Release:
        """The same numbers as one object."""
        estimates = {name: Estimate(table, self.laws[name]) for name, table in self.tables.items()}
        return Release(estimates, self.users, 1, self.guarantee)


@dataclass(frozen=True, eq=False)
class Setting:
    """A world, its behaviour policy, and what the release may cost.

    epsilon : None without privacy. known : whether rewards are public. return_bound : see ``evaluate``.
    """

    mdp: TabularMDP
    behaviour: Floats
    users: int
    epsilon: float | None
    known: bool = False
    return_bound: float | None = None

    @cached_property
    def spec(self) -> ProblemSpec:
        """What is public."""
        known = self.mdp.rewards if self.known else None
        return ProblemSpec(self.mdp.layout, known_rewards=known)

    @cached_property
    def noise(self) -> tuple[Mapping[str, float], Guarantee]:
        """Standard deviations by family, and the guarantee: as a session of the smallest world of as many
        steps has.

        Sensitivities, hence scales, depend on the horizon and the families alone.
        """
        learner, horizon = DPAPVI(visits="released"), self.mdp.horizon
        small = TabularMDP(np.full((2, 2, 2), 0.5), np.zeros((2, 2)), horizon=horizon)
        known = np.zeros((horizon, 2, 2)) if self.known else None
        privatizer = (
            NoPrivacy()
            if self.epsilon is None
            else Central(epsilon=self.epsilon, delta=DELTA, noise="gaussian")
        )
        people = SimulatedDataset(small, uniform(small.layout), 1)
        query = learner.query(ProblemSpec(small.layout, known_rewards=known))
        release = make_release(people, query, learner.schedule(1), privatizer, Seeded(0))
        return {name: found.law.std() for name, found in release.estimates.items()}, release.guarantee

    @cached_property
    def references(self) -> tuple[float, float]:
        """Values of the uniform and the behaviour policy."""
        return policy_value(self.mdp, uniform(self.mdp.layout)), policy_value(self.mdp, self.behaviour)


def draw(setting: Setting, seed: int) -> Drawn:
    """People and noise of one seed."""
    mdp, layout = setting.mdp, setting.mdp.layout
    shape = (layout.horizon, layout.rows)
    visits, rewards = np.zeros(shape), np.zeros(shape)
    moves = np.zeros((*shape, layout.states))
    world_kernels.flow(
        mdp.world, setting.users, *policy_rows(layout, setting.behaviour),
        open_at(Seeded(seed).keys.environment, ROLE_BATCH, 0, 0), visits, moves, rewards,
        np.zeros(layout.states), np.empty(shape), np.empty(world_kernels.work_size(mdp.world), np.int64),
    )  # fmt: skip
    tables = {VISITS: visits, TRANSITIONS: moves}
    if not setting.known:
        tables[CENTERED_REWARDS] = rewards - 0.5 * visits
    deviations, guarantee = setting.noise
    random = np.random.default_rng([seed, 1])
    laws: dict[str, NoiseDistribution] = {}
    for name, table in tables.items():
        scale = deviations[name]
        if scale == 0.0:
            laws[name] = NoNoise()
            continue
        rows = layout.horizon * layout.rows
        width = layout.states if name == TRANSITIONS else 1
        laws[name] = GaussianSumLaw(scale, 1.0, 1, rows * width, rows, width)
        for part in table:
            part += scale * random.standard_normal(part.shape)
    return Drawn(layout, setting.users, laws, guarantee, tables)


def deployed(learned: OfflinePolicy) -> PolicyEstimate:
    """The learned policy where supported, else the behaviour policy."""
    return PolicyEstimate(learned.policy, ~learned.supported, chosen=True, scores=learned.q)


def played(setting: Setting, learned: OfflinePolicy) -> Floats:
    """(H, S, A) what :func:`deployed` does in the true world."""
    one = np.eye(setting.mdp.layout.actions)[learned.policy]
    return np.where(learned.supported[..., None], one, setting.behaviour)


def trial(setting: Setting, seed: int, level: float = 0.95) -> dict[str, dict[str, float]]:
    """Draw, learn, evaluate: by name, the interval's numbers and the ``truth``."""
    drawn = draw(setting, seed)
    learned = DPAPVI(visits="released").learn(drawn.release, setting.spec)
    found = evaluate(
        drawn, setting.spec,
        {"learned": deployed(learned), "uniform": PolicyEstimate(uniform(drawn.layout))},
        level=level, return_bound=setting.return_bound,
    )  # fmt: skip
    of_uniform, of_behaviour = setting.references
    truth = {
        "learned": policy_value(setting.mdp, played(setting, learned)),
        "uniform": of_uniform,
        BEHAVIOUR: of_behaviour,
    }
    table = {name: {**found.values[name].to_dict(), "truth": truth[name]} for name in NAMES}
    for name, other in (("learned", BEHAVIOUR), ("learned", "uniform")):
        difference = found.difference(name, other).to_dict()
        table[f"{name} - {other}"] = {**difference, "truth": truth[name] - truth[other]}
    return table


def covered_from(hits: int, draws: int, failure: float = 0.05) -> float:
    """Clopper and Pearson's lower limit of a coverage, wrong with probability at most ``failure``."""
    from scipy.special import betaincinv

    return 0.0 if hits == 0 else float(betaincinv(hits, draws - hits + 1, failure))


def summary(trials: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """By name: coverage, its lower limit, one-sided coverage, medians of the interval and of its parts."""
    table = {}
    for name in trials[0]:
        found = [one[name] for one in trials]
        hits = sum(one["low"] - 1e-12 <= one["truth"] <= one["high"] + 1e-12 for one in found)
        middle = {
            key: float(np.median([one[key] for one in found]))
            for key in found[0]
            if key not in ("lower", "level")
        }
        table[name] = {
            "draws": len(found),
            "coverage": hits / len(found),
            "coverage_at_least": covered_from(hits, len(found)),
            "one_sided": sum(one["lower"] - 1e-12 <= one["truth"] for one in found) / len(found),
            "width": float(np.median([one["high"] - one["low"] for one in found])),
            **middle,
            "above_zero": sum(one["lower"] > 0 for one in found) / len(found),
        }
    return table


def setting_of(world: str, users: int, epsilon: float | None, known: bool = False, seed: int = 0) -> Setting:
    """``icu-sepsis`` (expert behaviour, renormalised; return at most 1) or ``random`` (S = 5, A = 3, H =
    5).
    """
    if world == "icu-sepsis":
        mdp = icu_sepsis()
        return Setting(mdp, expert_policy(inadmissible="renormalised"), users, epsilon, known, 1.0)
    mdp = random_mdp(states=5, actions=3, horizon=5, seed=seed)
    shape = mdp.horizon, mdp.states
    return Setting(mdp, np.random.default_rng(seed).dirichlet(np.ones(3), shape), users, epsilon, known)


COLUMNS = {
    "draws": "draws", "coverage": "covers", "coverage_at_least": "at least", "one_sided": "lower bound holds",
    "truth": "value", "low": "low", "high": "high", "width": "width",
}  # fmt: skip


def page(found: Mapping[tuple[int, float | None], Mapping[str, Mapping[str, float]]]) -> str:
    """A Markdown table of summaries by (users, epsilon)."""
    lines = [("n", "ε", "policy", *COLUMNS.values())]
    for (users, epsilon), table in found.items():
        said = "no privacy" if epsilon is None else f"{epsilon:g}"
        for name, row in table.items():
            numbers = [f"{row[key]:.0f}" if key == "draws" else f"{row[key]:.3f}" for key in COLUMNS]
            lines.append((f"{users:,}", said, name, *numbers))
    return markdown(lines)


def _stored(out: Path | None) -> dict[str, Any]:
    """Draws of earlier runs, by their key; a line that a kill cut short is none."""
    found = {}
    for line in out.read_text().splitlines() if out is not None and out.is_file() else ():
        try:
            one = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[one["key"]] = one["trial"]
    return found


def _write_report(setting: Setting, seed: int, folder: Path) -> None:
    """One draw as its owner would see it: report.md and figures."""
    drawn = draw(setting, seed)
    learned = DPAPVI(visits="released").learn(drawn.release, setting.spec)
    report = make_report(drawn, learned, setting.spec, return_bound=setting.return_bound)
    report.figures(folder)
    (folder / "report.md").write_text(report.to_markdown(), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure settings, one draw of each in turn, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("world", choices=("icu-sepsis", "random"))
    parser.add_argument("--users", type=int, nargs="+", default=[100_000])
    parser.add_argument("--epsilon", nargs="+", default=["1"], help="numbers, or none")
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first draw (and of the first random world)"
    )
    parser.add_argument("--worlds", type=int, default=8, help="random worlds that the draws go round")
    parser.add_argument("--known-rewards", action="store_true")
    parser.add_argument("--report", type=Path, help="write the report of the first draw there, and no more")
    parser.add_argument(
        "--out", type=Path, help="JSON lines, one a draw; what is there already is not run again"
    )
    asked = parser.parse_args(arguments)
    worlds = asked.worlds if asked.world == "random" else 1
    keys = [(users, None if e == "none" else float(e)) for users in asked.users for e in asked.epsilon]
    settings = {
        (key, i): setting_of(asked.world, *key, asked.known_rewards, asked.seed + i)
        for key in keys
        for i in range(worlds)
    }
    if asked.report is not None:
        _write_report(settings[keys[0], 0], asked.seed, asked.report)
        return
    stored = _stored(asked.out)
    trials: dict[tuple[int, float | None], list[Any]] = {key: [] for key in keys}
    for i in range(asked.draws):
        for key in keys:
            name = f"{asked.world} {key} {asked.known_rewards} {asked.seed + i} {asked.seed + i % worlds}"
            if name not in stored:
                stored[name] = trial(settings[key, i % worlds], asked.seed + i)
                if asked.out is not None:
                    with asked.out.open("a") as sink:
                        sink.write(json.dumps({"key": name, "trial": stored[name]}) + "\n")
            trials[key].append(stored[name])
    print(page({key: summary(found) for key, found in trials.items()}))


if __name__ == "__main__":
    main()
